//! Runs `weir sim` and `weir compare`: replays a trace under one or several policies.

mod groups;
mod outputs;
mod table;

pub use outputs::check_distinct;
use outputs::{Outputs, Results};
use weir_console::failure::Failure;
use weir_console::record::Record;
use weir_sim::Outcome;

use crate::args;
use crate::jobs::{self, JobTime, Jobs};
use crate::metrics::{Baseline, Metrics};
use crate::network::{Network, Replay, run_replays};
use crate::render;
use crate::source::Source;

/// Runs `weir sim`.
pub fn sim(args: &args::Sim) -> Result<(), Failure> {
    let args::Sim { policy, experiment, details } = args;
    let outputs = Outputs::open(experiment, details, &[policy])?;
    let (source, network) = read_inputs(experiment, details)?;
    let policies = std::slice::from_ref(policy);
    let alone = durations_alone(&source, &network, &experiment.run_options)?;
    let outcomes = replay_policies(&source, &network, policies, &experiment.run_options)?;

    let metrics = Metrics::new(&source, &source.workload, &network, !experiment.no_timing);
    let mut record = metrics.record(policy, &outcomes[0], None)?;
    let job_times = job_times(&source, &alone, &outcomes);
    add_slowdowns(std::slice::from_mut(&mut record), &job_times);
    let table = || {
        let head = caption(&source, &network, |_| false);
        head + "\n" + &table::single_policy_table(&record) + &jobs_table(policies, &job_times)
    };
    let text = render::object(experiment.output.format, table, || record.clone(), || vec![record.clone()]);
    outputs.write(
        &text,
        &Results { source: &source, network: &network, policies, outcomes: &outcomes, alone: &alone },
    )
}

/// Runs `weir compare`.
pub fn compare(args: &args::Compare) -> Result<(), Failure> {
    let args::Compare { policies, baseline, experiment, wide, details } = args;
    let requested: Vec<&String> = policies.iter().chain(baseline).collect();
    let outputs = Outputs::open(experiment, details, &requested)?;
    let (source, network) = read_inputs(experiment, details)?;
    let policies =
        if policies.is_empty() { network.default_policies(&source.workload) } else { policies.clone() };
    let (policies, baseline_position) = with_baseline(&policies, baseline.as_ref())?;
    let alone = durations_alone(&source, &network, &experiment.run_options)?;
    let outcomes = replay_policies(&source, &network, &policies, &experiment.run_options)?;

    let metrics = Metrics::new(&source, &source.workload, &network, !experiment.no_timing);
    let baseline = Baseline::new(&policies[baseline_position], &outcomes[baseline_position]);
    let records = policies.iter().zip(&outcomes);
    let records = records.map(|(policy, outcome)| metrics.record(policy, outcome, Some(&baseline)));
    let mut records: Vec<Record> = records.collect::<Result<_, _>>()?;
    let job_times = job_times(&source, &alone, &outcomes);
    add_slowdowns(&mut records, &job_times);
    let table = || {
        let head = caption(&source, &network, |_| false);
        let tables = if *wide { table::wide_table } else { table::short_table };
        let main = tables(&records, &policies[baseline_position], metrics.min_mean_cct());
        head + &main + &jobs_table(&policies, &job_times)
    };
    let text = render::list(experiment.output.format, table, || records.clone());
    let policies = &policies;
    outputs.write(
        &text,
        &Results { source: &source, network: &network, policies, outcomes: &outcomes, alone: &alone },
    )
}

fn read_inputs(
    experiment: &args::Experiment,
    details: &args::DetailFiles,
) -> Result<(Source, Network), Failure> {
    let args::ReplaySources { sources, read_options } = &experiment.input;
    let source = Source::read(sources, read_options, experiment.replay.per_stage)?;
    let keep_flows = details.per_flow.is_some();
    let network = Network::read(&experiment.replay, &experiment.network, &source, keep_flows)?;
    Ok((source, network))
}

/// The durations of the jobs of a file alone, in seconds; empty without such jobs.
fn durations_alone(
    source: &Source,
    network: &Network,
    run_options: &args::RunOptions,
) -> Result<Vec<f64>, Failure> {
    let durations = |jobs: &Jobs| jobs.durations_alone(&source.workload, network, run_options);
    source.jobs.as_ref().map_or(Ok(Vec::new()), durations)
}

/// The times of the jobs of a file under each policy; empty without such jobs.
fn job_times<'a>(source: &'a Source, alone: &'a [f64], outcomes: &[Outcome]) -> Vec<Vec<JobTime<'a>>> {
    source.jobs.as_ref().map_or_else(Vec::new, |jobs| jobs.times(alone, outcomes))
}

fn add_slowdowns(records: &mut [Record], job_times: &[Vec<JobTime<'_>>]) {
    for (record, times) in records.iter_mut().zip(job_times) {
        let (mean, max) = jobs::slowdown_summary(times);
        record.add_all(["mean_job_slowdown", "max_job_slowdown"], [mean, max]);
    }
}

fn jobs_table(policies: &[String], job_times: &[Vec<JobTime<'_>>]) -> String {
    if job_times.is_empty() { String::new() } else { jobs::slowdown_table(policies, job_times) }
}

fn replay_policies(
    source: &Source,
    network: &Network,
    policies: &[String],
    run_options: &args::RunOptions,
) -> Result<Vec<Outcome>, Failure> {
    let to_replay = |policy: &String| Replay {
        policy: policy.clone(),
        workload: &source.workload,
        network,
        sensitivities: source.sensitivities(),
    };
    run_replays(&policies.iter().map(to_replay).collect::<Vec<_>>(), run_options)
}

/// A description of the trace and the network. `is_varied` returns whether a sweep varies a parameter.
pub fn caption(source: &Source, network: &Network, is_varied: impl Fn(&str) -> bool) -> String {
    source.caption() + &network.caption(is_varied)
}

/// The policies to replay, and the position of the baseline among them. A baseline outside `policies` is inserted first.
///
/// # Errors
/// If a policy is repeated.
pub fn with_baseline(
    policies: &[String],
    baseline: Option<&String>,
) -> Result<(Vec<String>, usize), Failure> {
    if let Some(policy) = args::first_repeated(policies) {
        return Err(Failure::input(format_args!(
            "--policies: `{policy}` is repeated; expected each policy once"
        )));
    }
    let mut policies = policies.to_vec();
    let Some(baseline) = baseline else { return Ok((policies, 0)) };
    let position = policies.iter().position(|policy| policy == baseline);
    if position.is_none() {
        policies.insert(0, baseline.clone());
    }
    Ok((policies, position.unwrap_or(0)))
}
