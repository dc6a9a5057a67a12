//! Writes the section with the assumptions that change a result most, one at a time.

use crate::saba::lockstep::sharing::ControllerKind;
use weir_console::failure::Failure;
use weir_core::saba::Fraction;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::solve::polynomial::Degree;

use super::QUEUES;
use super::simulation::{self, Comparison, QUARTER_TRUNKS, Simulation};
use super::testbed::{self, Speedups, Testbed};
use crate::markdown::{format_cell, table};

/// The maximum number of setups per row of section 8.2.
const MAX_SETUPS: usize = 100;

/// The section of the page.
pub fn section(testbed: &Testbed<'_>, simulation: &Simulation<'_>) -> Result<String, Failure> {
    let mut lines = on_testbed(testbed)?;
    lines.extend(on_1944_servers(simulation)?);
    let head = ["section", "change", "Saba", "ideal max-min"];
    Ok(format!(
        "## Assumptions\n\n\
         Average speedups over the baseline when one assumption changes. Rows of section 8.2 use the first {} setups. The \
         minimum weight is a choice of Weir: Eq. 2 alone can assign a weight of 0.\n\
         {}- *Limit*: no workload waits longer for its bytes than LR does. The published slowdowns of LR, 3.4 at 25 % and \
         4.5 at 10 % of the bandwidth, require such a limit. For most other workloads, the paper publishes no slowdowns at \
         such bandwidths.\n\
         - *Simulated slowdowns*: a queue per job, and Eq. 2 minimizes the sum of the slowdowns that the simulator uses.\n\n",
        testbed.setups().len().min(MAX_SETUPS),
        table(&head, 2, &lines)
    ))
}

/// A minimum weight of half an equal share.
fn half_floor() -> Fraction {
    Fraction::new(0.5).unwrap_or(DEFAULT_MIN_SHARE)
}

fn line(section: &str, change: &str, saba: f64, ideal: Option<f64>) -> Vec<String> {
    vec![
        section.to_owned(),
        change.to_owned(),
        format_cell(saba),
        ideal.map_or_else(|| "-".to_owned(), format_cell),
    ]
}

fn on_testbed(testbed: &Testbed<'_>) -> Result<Vec<Vec<String>>, Failure> {
    use testbed::{Conditions, PAPER_CONDITIONS, Policy, SABA};
    let setups = &testbed.setups()[..testbed.setups().len().min(MAX_SETUPS)];
    let limited_wait = Conditions { limited_wait: true, ..PAPER_CONDITIONS };
    let higher_floor = Policy::Saba(Degree::Cubic, half_floor());
    let pair = |conditions| [(conditions, SABA), (conditions, Policy::IdealMaxMin)];
    let variants = [(PAPER_CONDITIONS, higher_floor), (PAPER_CONDITIONS, Policy::SimulatedSlowdowns)];
    let paper = testbed.compare(setups, PAPER_CONDITIONS, &[pair(PAPER_CONDITIONS), variants].concat())?;
    let limited = testbed.compare(setups, limited_wait, &pair(limited_wait))?;
    let slower_baseline = testbed.compare(
        setups,
        Conditions { link_factor: 0.5, ..PAPER_CONDITIONS },
        &pair(PAPER_CONDITIONS),
    )?;
    let line = |change, saba: &Speedups, ideal: Option<&Speedups>| {
        line("8.2", change, saba.mean, ideal.map(|ideal| ideal.mean))
    };
    Ok(vec![
        line("none (Fig. 8)", &paper[0], Some(&paper[1])),
        line("limit on the wait for bytes, for all workloads", &limited[0], Some(&limited[1])),
        line("minimum weight 0.5 of an equal share, not 0.1", &paper[2], None),
        line("simulated slowdowns in place of the cubic models", &paper[3], None),
        line("the baseline's links carry 50 %", &slower_baseline[0], Some(&slower_baseline[1])),
    ])
}

fn on_1944_servers(simulation: &Simulation<'_>) -> Result<Vec<Vec<String>>, Failure> {
    use simulation::{Conditions, PAPER_CONDITIONS, Policy, SABA};
    let higher_floor = Policy::Saba(Some(QUEUES), half_floor(), ControllerKind::Central);
    let pair = [SABA, Policy::IdealMaxMin];
    let variants = [higher_floor, Policy::SimulatedSlowdowns];
    let paper = simulation.compare(PAPER_CONDITIONS, PAPER_CONDITIONS, &pair)?;
    let quarter = simulation.compare(QUARTER_TRUNKS, QUARTER_TRUNKS, &[pair, variants].concat())?;
    let slower_baseline =
        simulation.compare(Conditions { link_factor: 0.8, ..PAPER_CONDITIONS }, PAPER_CONDITIONS, &pair)?;
    let line = |change, comparison: &Comparison, saba: usize, ideal: Option<usize>| {
        line(
            "8.4",
            change,
            comparison.policies[saba].mean,
            ideal.map(|ideal| comparison.policies[ideal].mean),
        )
    };
    Ok(vec![
        line("none (Fig. 10)", &paper, 0, Some(1)),
        line("links between switches at 1/4", &quarter, 0, Some(1)),
        line("the same, and minimum weight 0.5 of an equal share", &quarter, 2, None),
        line("the same, and simulated slowdowns in place of the cubic models", &quarter, 3, None),
        line("the baseline's links carry 80 %", &slower_baseline, 0, Some(1)),
    ])
}
