//! Writes the section about the estimated flow lengths of section 4.3, on the trace and on generated workloads.

use weir_console::failure::Failure;
use weir_console::run::{self, ReplayTask};
use weir_trace::generate::{Preset, generate};
use weir_trace::{Limits, TraceUnit};

use super::Options;
use super::replays::{ReplaySetting, Replays, mean_cct, replay_options};
use crate::markdown::{format_cell, table};
use crate::{RunContext, Trace};

/// Saath with estimates, and with its default values.
const POLICIES: [&str; 2] = ["saath:requeue=on", "saath"];

/// The settings of the trace's row.
pub fn settings() -> Vec<ReplaySetting> {
    POLICIES.map(ReplaySetting::new).to_vec()
}

/// Mean CCTs of a workload under [`POLICIES`], in seconds.
struct Row {
    workload: String,
    mean_ccts: [f64; 2],
}

impl Row {
    /// The mean CCT without estimates, relative to that with them.
    fn ratio(&self) -> f64 {
        let [with, without] = self.mean_ccts;
        without / with
    }
}

/// The rows of the generator's workloads.
fn generated(seeds: u64, options: &Options, run_context: &RunContext<'_>) -> Result<Vec<Row>, Failure> {
    let generated = |seed| generate(&Preset::Facebook.spec(seed), TraceUnit::MB, &Limits::default());
    let workloads = (1..=seeds).map(generated).collect::<Result<Vec<_>, _>>()?;
    let task = |workload, policy: &str| ReplayTask {
        policy: policy.to_owned(),
        workload,
        options: replay_options(options),
        sensitivities: &[],
    };
    let tasks: Vec<ReplayTask<'_>> =
        workloads.iter().flat_map(|workload| POLICIES.map(|policy| task(workload, policy))).collect();
    let bar = run_context.progress.add_step_bar("generated workloads", tasks.len());
    let means = run::run_replays(&tasks, run_context.jobs, run_context.progress, |_, outcome| {
        bar.inc(1);
        mean_cct(&outcome)
    })?;
    bar.finish_and_clear();
    let row = |(seed, means): (usize, &[f64])| Row {
        workload: format!("`weir trace generate --preset facebook --seed {}`", seed + 1),
        mean_ccts: [means[0], means[1]],
    };
    Ok(means.chunks_exact(2).enumerate().map(row).collect())
}

/// The section with a row for the trace, and one for each of `seeds` generated workloads.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn section(
    trace: &Trace,
    replays: &Replays,
    options: &Options,
    run_context: &RunContext<'_>,
) -> Result<String, Failure> {
    let mean_ccts = POLICIES.map(|policy| mean_cct(replays.outcome_of_policy(policy)));
    let mut rows = vec![Row { workload: format!("`{}`", trace.name), mean_ccts }];
    rows.extend(generated(options.seeds, options, run_context)?);
    let lower = rows.iter().filter(|row| row.ratio() < 1.0).count();
    let ratios = || rows.iter().map(Row::ratio);
    let (min, max) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let [with, without] = row.mean_ccts.map(format_cell);
            vec![row.workload.clone(), with, without, format!("{:.3}", row.ratio())]
        })
        .collect();
    Ok(format!(
        "\n\
         ## Estimated flow lengths (4.3)\n\n\
         The paper re-assigns the queue of a coflow by the median length of its completed flows, for coflows that \"failures, \
         stragglers, skew\" delay: it \"can move up a CoFlow from low to high priority queues when its flows start to finish\". \
         Without a way to recognise such coflows, the rule applies to all (`requeue=on`). The paper calls the median \
         \"a heuristic\". The flows of a coflow that complete first are its shortest, so the median underestimates the others, \
         and a long coflow can go before short ones.\n\n\
         The default, `requeue=off`, has the lower mean CCT on {lower} of {} workloads: {min:.3} to {max:.3} of that with \
         estimates.\n\n\
         {}",
        rows.len(),
        table(&["Workload", "Mean CCT, s: `saath:requeue=on`", "`saath`", "Ratio"], 1, &lines)
    ))
}
