//! The assumptions that change a result most, one at a time.

use weir_console::failure::Failure;
use weir_core::saba::Fraction;
use weir_core::saba::share::FLOOR;
use weir_core::solve::polynomial::Degree;
use weir_sim::stage::sharing::Controllers;

use super::QUEUES;
use super::simulation::{self, Compared, QUARTER, Simulation};
use super::testbed::{self, Speedups, Testbed};
use crate::doc::{n, table};

/// The maximum number of setups per row.
const SETUPS: usize = 100;

/// The section of the page.
pub fn section(testbed: &Testbed<'_>, simulation: &Simulation<'_>) -> Result<String, Failure> {
    let mut lines = on_testbed(testbed)?;
    lines.extend(on_1944_servers(simulation)?);
    let head = ["section", "change", "Saba", "ideal max-min"];
    Ok(format!(
        "## Assumptions\n\nAverage speedups over the baseline when one assumption changes. Rows of section 8.2 are of the first {} \
         setups. The minimum weight is Weir's: Eq. 2 alone can assign a weight of 0.\n{}\
         - *Limit*: no workload waits longer for its bytes than LR does. The published slowdowns of LR, 3.4 at 25 % and 4.5 at 10 % of the \
         bandwidth, require such a limit. The paper publishes nothing of the kind for most others.\n\
         - *Simulated slowdowns*: a queue per job, and Eq. 2 minimises the sum of the slowdowns that the simulator uses.\n\n",
        testbed.setups().len().min(SETUPS),
        table(&head, 2, &lines)
    ))
}

/// A minimum weight of half an equal share.
fn half() -> Fraction {
    Fraction::new(0.5).unwrap_or(FLOOR)
}

fn line(section: &str, change: &str, saba: f64, ideal: Option<f64>) -> Vec<String> {
    vec![section.to_owned(), change.to_owned(), n(saba), ideal.map_or_else(|| "-".to_owned(), n)]
}

fn on_testbed(testbed: &Testbed<'_>) -> Result<Vec<Vec<String>>, Failure> {
    use testbed::{PAPER, Policy, SABA, World};
    let setups = &testbed.setups()[..testbed.setups().len().min(SETUPS)];
    let limited = World { limited: true, ..PAPER };
    let careful = Policy::Saba(Degree::Three, half());
    let pair = |world| [(world, SABA), (world, Policy::IdealMaxMin)];
    let with = [(PAPER, careful), (PAPER, Policy::SimulatedSlowdowns)];
    let paper = testbed.compare(setups, PAPER, &[pair(PAPER), with].concat())?;
    let limited = testbed.compare(setups, limited, &pair(limited))?;
    let slow = testbed.compare(setups, World { links: 0.5, ..PAPER }, &pair(PAPER))?;
    let line = |change, saba: &Speedups, ideal: Option<&Speedups>| {
        line("8.2", change, saba.all, ideal.map(|ideal| ideal.all))
    };
    Ok(vec![
        line("none (Fig. 8)", &paper[0], Some(&paper[1])),
        line("limit on the wait for bytes, for all workloads", &limited[0], Some(&limited[1])),
        line("minimum weight 0.5 of an equal share, not 0.1", &paper[2], None),
        line("simulated slowdowns in place of the cubics", &paper[3], None),
        line("the baseline's links carry 50 %", &slow[0], Some(&slow[1])),
    ])
}

fn on_1944_servers(simulation: &Simulation<'_>) -> Result<Vec<Vec<String>>, Failure> {
    use simulation::{PAPER, Policy, SABA, World};
    let careful = Policy::Saba(Some(QUEUES), half(), Controllers::Central);
    let pair = [SABA, Policy::IdealMaxMin];
    let with = [careful, Policy::SimulatedSlowdowns];
    let paper = simulation.compare(PAPER, PAPER, &pair)?;
    let quarter = simulation.compare(QUARTER, QUARTER, &[pair, with].concat())?;
    let slow = simulation.compare(World { links: 0.8, ..PAPER }, PAPER, &pair)?;
    let line = |change, of: &Compared, saba: usize, ideal: Option<usize>| {
        line("8.4", change, of.policies[saba].all, ideal.map(|ideal| of.policies[ideal].all))
    };
    Ok(vec![
        line("none (Fig. 10)", &paper, 0, Some(1)),
        line("links between switches at 1/4", &quarter, 0, Some(1)),
        line("the same, and minimum weight 0.5 of an equal share", &quarter, 2, None),
        line("the same, and simulated slowdowns in place of the cubics", &quarter, 3, None),
        line("the baseline's links carry 80 %", &slow, 0, Some(1)),
    ])
}
