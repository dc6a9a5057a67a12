//! Compares Saba and its rivals on 1,944 servers (Fig. 10 and 11), with several rates of links between switches.

use crate::saba::lockstep::sharing::ControllerKind;
use weir_console::chart::{DotPlot, DotRow, DotSeries, Scale};
use weir_console::failure::Failure;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;

use super::simulation::{
    self, Comparison, Conditions, DISTRIBUTED, PAPER_CONDITIONS, Policy, QUARTER_TRUNKS, Simulation,
};
use crate::markdown::{format_cell, table};
use crate::picture::Pictures;

/// The average speedup of Saba in section 8.4.
pub const PUBLISHED_SABA_SPEEDUP: f64 = 1.27;

/// The policies of Fig. 10 and 11, with the published average speedup and its place in the paper. The first is Saba, with 8 queues.
const RIVALS: [(&str, Policy, Option<f64>, &str); 9] = [
    ("Saba", simulation::SABA, Some(PUBLISHED_SABA_SPEEDUP), "8.4, study 4: \"Saba ... is 1.27x\""),
    (
        "ideal max-min",
        Policy::IdealMaxMin,
        Some(1.14),
        "8.4, study 4: \"ideal max-min fairness is ... 1.14x\"",
    ),
    ("Homa-like", Policy::Homa, Some(1.12), "8.4, study 5: \"Homa achieves 1.12x\""),
    ("Sincronia", Policy::Sincronia, Some(1.19), "8.4, study 6: \"Sincronia achieves 1.19x\""),
    ("distributed Saba", DISTRIBUTED, Some(1.23), "8.4, study 7, Fig. 11a: \"1.23x\""),
    ("Saba, 2 queues", saba_with_queues(Some(2)), Some(1.12), "8.4, study 8, Fig. 11b: \"1.12x\""),
    ("Saba, 4 queues", saba_with_queues(Some(4)), None, "Fig. 11b; not in the text"),
    ("Saba, 16 queues", saba_with_queues(Some(16)), None, "Fig. 11b; not in the text"),
    ("Saba, a queue per workload", saba_with_queues(None), Some(1.33), "8.4, study 8, Fig. 11b: \"1.33x\""),
];

const fn saba_with_queues(queues: Option<u16>) -> Policy {
    Policy::Saba(queues, DEFAULT_MIN_SHARE, ControllerKind::Central)
}

/// The paper's conditions, then links between switches at a half, a quarter and an eighth of their rate.
const CONDITIONS: [Conditions; 4] = [
    PAPER_CONDITIONS,
    Conditions { trunk_factor: 0.5, ..PAPER_CONDITIONS },
    QUARTER_TRUNKS,
    Conditions { trunk_factor: 0.125, ..PAPER_CONDITIONS },
];

/// The speedups of all rivals under all conditions.
pub struct RivalSpeedups {
    /// In the order of [`CONDITIONS`]. The policies of each comparison are in the order of [`RIVALS`], so Saba is first.
    pub conditions: [Comparison; 4],
}

/// Runs all rivals under all conditions.
pub fn measure(simulation: &Simulation<'_>) -> Result<RivalSpeedups, Failure> {
    let policies = RIVALS.map(|(_, policy, ..)| policy);
    let compare = |conditions| simulation.compare(conditions, conditions, &policies);
    let [paper, half, quarter, eighth] = CONDITIONS.map(compare);
    Ok(RivalSpeedups { conditions: [paper?, half?, quarter?, eighth?] })
}

fn speedups_plot(rows: Vec<DotRow>) -> Option<String> {
    let measured = ["measured", "links between switches at 1/2", "at 1/4", "at 1/8"].map(DotSeries::measured);
    let series = [DotSeries::published("published")].into_iter().chain(measured).collect();
    DotPlot { title: "speedup", scale: Scale::Log, reference: Some(1.0), series, rows }.to_svg()
}

/// The section of the page.
pub fn section(
    simulation: &Simulation<'_>,
    RivalSpeedups { conditions }: &RivalSpeedups,
    pictures: &mut Pictures,
) -> String {
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    let mut line = |name: &str,
                    citation: &str,
                    published: Option<f64>,
                    value: &dyn Fn(&Comparison) -> f64| {
        let mut line =
            vec![name.to_owned(), citation.to_owned(), published.map_or_else(|| "-".to_owned(), format_cell)];
        line.extend(conditions.iter().map(|comparison| format_cell(value(comparison))));
        lines.push(line);
        let measured = conditions.iter().map(|comparison| Some(value(comparison)));
        rows.push(DotRow::new(name, &[published].into_iter().chain(measured).collect::<Vec<Option<f64>>>()));
    };
    for (index, (name, _, published, citation)) in RIVALS.into_iter().enumerate() {
        line(name, citation, published, &|comparison| comparison.policies[index].mean);
    }
    let saba = |comparison: &Comparison| comparison.policies[0].workloads.clone();
    let max_speedup = |comparison: &Comparison| saba(comparison).into_iter().fold(0.0, f64::max);
    let min_speedup = |comparison: &Comparison| saba(comparison).into_iter().fold(f64::INFINITY, f64::min);
    line("Saba, best workload", "8.4, study 4: \"1.79x\"", Some(1.79), &max_speedup);
    line(
        "Saba, worst workload",
        "8.4, study 4: \"penalized by 3%\" (two workloads)",
        Some(0.97),
        &min_speedup,
    );
    line("baseline: time / time with all bandwidth", "-", None, &|comparison| comparison.slowdown);
    // The last row has no speedups.
    rows.pop();
    let head = [
        "policy",
        "place in the paper",
        "published",
        "measured",
        "links between switches at 1/2",
        "at 1/4",
        "at 1/8",
    ];
    let [solutions, unsettled] = [0, 1]
        .map(|index| conditions.iter().map(|comparison| comparison.solution_counts[index]).sum::<u64>());
    format!(
        "## 1,944 servers (Fig. 10 and 11)\n\n\
         Average speedups over the baseline of 20 synthetic workloads, drawn with seed {}, with 97 servers each; every \
         server runs one workload. The network has the three tiers of section 8.1, and flows are split evenly over all \
         shortest paths. The last three columns have slower links between switches, so that workloads compete for them.\n\n\
         - Saba: 8 queues per port and 16 priority levels, unless stated otherwise. With a queue per workload, there is also \
         a level per workload.\n\
         - Homa-like: 8 strict priorities by the initial size of a flow, with equal bytes in each. With the size limits of \
         the paper, all flows here (above 10 KB) have the same priority, and Homa equals the baseline.\n\
         - Sincronia: strict priorities between the active transfers. The order is computed again whenever a transfer starts \
         or ends.\n\
         {}The paper does not say whether 1.79 and 0.97 are relative to the baseline, as here, or to ideal max-min. The \
         simulator computed rates {solutions} times; {unsettled} of these computations did not converge.\n\n{}",
        simulation.seed,
        table(&head, 2, &lines),
        pictures.add(
            "servers",
            "Speedups of Saba and its rivals on 1,944 servers: published, and measured with four rates of links between switches",
            "The speedups of the table.",
            speedups_plot(rows),
        )
    )
}
