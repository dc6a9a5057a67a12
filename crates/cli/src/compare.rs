//! Runs `weir sim` and `weir compare`: replays a trace under one or several policies.

mod outputs;
mod table;

use outputs::Outputs;
pub use outputs::check_distinct;
use weir_console::failure::Failure;
use weir_console::record::Record;

use crate::args;
use crate::metrics::{Baseline, Metrics};
use crate::network::{Network, Replay, run_replays};
use crate::render;
use crate::source::Source;

/// Runs `weir sim`.
pub fn sim(args: &args::Sim) -> Result<(), Failure> {
    let args::Sim { policy, experiment, details } = args;
    let outputs = Outputs::open(experiment, details, &[policy])?;
    let source = Source::read(&experiment.input, experiment.replay.per_stage)?;
    let network = Network::read(&experiment.replay, &experiment.network, details.per_flow.is_some())?;
    let policies = std::slice::from_ref(policy);
    let outcomes = replay_policies(&source, &network, policies, &experiment.run_options)?;

    let metrics = Metrics::new(&source, &source.workload, &network, !experiment.no_timing);
    let record = metrics.record(policy, &outcomes[0], None)?;
    let table =
        || format!("{}\n{}", caption(&source, &network, |_| false), table::single_policy_table(&record));
    let text = render::object(experiment.output.format, table, || record.clone(), || vec![record.clone()]);
    outputs.write(&text, &source, &network, policies, &outcomes)
}

/// Runs `weir compare`.
pub fn compare(args: &args::Compare) -> Result<(), Failure> {
    let args::Compare { policies, baseline, experiment, wide, details } = args;
    let requested: Vec<&String> = policies.iter().chain(baseline).collect();
    let outputs = Outputs::open(experiment, details, &requested)?;
    let source = Source::read(&experiment.input, experiment.replay.per_stage)?;
    let network = Network::read(&experiment.replay, &experiment.network, details.per_flow.is_some())?;
    let policies =
        if policies.is_empty() { network.default_policies(&source.workload) } else { policies.clone() };
    let (policies, baseline_position) = with_baseline(&policies, baseline.as_ref())?;
    let outcomes = replay_policies(&source, &network, &policies, &experiment.run_options)?;

    let metrics = Metrics::new(&source, &source.workload, &network, !experiment.no_timing);
    let baseline = Baseline::new(&policies[baseline_position], &outcomes[baseline_position]);
    let records = policies.iter().zip(&outcomes);
    let records = records.map(|(policy, outcome)| metrics.record(policy, outcome, Some(&baseline)));
    let records: Vec<Record> = records.collect::<Result<_, _>>()?;
    let table = || {
        let head = caption(&source, &network, |_| false);
        let tables = if *wide { table::wide_table } else { table::short_table };
        head + &tables(&records, &policies[baseline_position], metrics.min_mean_cct())
    };
    let text = render::list(experiment.output.format, table, || records.clone());
    outputs.write(&text, &source, &network, &policies, &outcomes)
}

fn replay_policies(
    source: &Source,
    network: &Network,
    policies: &[String],
    run_options: &args::RunOptions,
) -> Result<Vec<weir_sim::Outcome>, Failure> {
    let to_replay = |policy: &String| Replay { policy: policy.clone(), workload: &source.workload, network };
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
