//! Measures the time of a schedule (section 7.3).

use weir_console::failure::Failure;
use weir_console::run::ReplayTask;
use weir_sim::outcome::{mean, percentile};

use super::Options;
use super::replays::replay_options;
use crate::markdown::{format_cell, format_ratio, table};
use crate::{RunContext, Trace};

/// The policies, with the published mean and P90 of the time of a schedule, in microseconds (Table 2).
const PUBLISHED: [(&str, [f64; 2]); 2] = [("saath", [570.0, 2850.0]), ("aalo", [100.0, 200.0])];

/// The section with the time of a schedule. Its replays run one after the other, without concurrent replays.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn section(trace: &Trace, options: &Options, run_context: &RunContext<'_>) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for (policy, published) in PUBLISHED {
        let task = ReplayTask {
            policy: policy.to_owned(),
            workload: &trace.workload,
            options: replay_options(options),
            sensitivities: &[],
        };
        let outcome = task.run(run_context.progress)?;
        let us: Vec<f64> = outcome.schedule_ns.iter().map(|&ns| f64::from(ns) / 1e3).collect();
        let mut line = vec![format!("`{policy}`"), us.len().to_string()];
        for (published, measured) in published.into_iter().zip([mean(&us), percentile(&us, 90.0)]) {
            line.extend([format_cell(published), format_cell(measured), format_ratio(measured, published)]);
        }
        line.push(format_cell(percentile(&us, 99.0)));
        lines.push(line);
    }
    let head = [
        "Policy",
        "Schedules",
        "Mean, published",
        "measured",
        "ratio",
        "P90, published",
        "measured",
        "ratio",
        "P99, measured",
    ];
    Ok(format!(
        "\n\
         ## Timings\n\n\
         The time of a schedule in microseconds (7.3, Table 2). The numbers depend on the machine. The paper's coordinator \
         is multi-threaded on four cores of 2.4 GHz and also handles messages. Weir's engine uses one thread and computes a \
         schedule only after an event.\n\
         {}",
        table(&head, 1, &lines)
    ))
}
