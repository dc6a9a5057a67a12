//! `weir sim` and `weir compare`.

mod details;
mod table;

use details::Outputs;
pub use details::check_distinct;
use weir_console::failure::Failure;
use weir_console::record::Record;

use crate::args;
use crate::metrics::{Baseline, Metrics};
use crate::network::{Network, Replay, run_all};
use crate::render;
use crate::source::Source;

/// Runs `weir sim`.
pub fn sim(args: &args::Sim) -> Result<(), Failure> {
    let args::Sim { policy, experiment, details } = args;
    let outputs = Outputs::open(experiment, details, &[policy])?;
    let source = Source::read(&experiment.input, experiment.replay.per_stage)?;
    let network = Network::read(&experiment.replay, &experiment.network, details.per_flow.is_some())?;
    let policies = std::slice::from_ref(policy);
    let outcomes = replay_policies(&source, &network, policies, &experiment.running)?;

    let metrics = Metrics::new(&source, &source.workload, &network, !experiment.no_timing);
    let record = metrics.record(policy, &outcomes[0], None)?;
    let table = || format!("{}\n{}", caption(&source, &network, |_| false), table::one(&record));
    let text = render::object(experiment.output.format, table, || record.clone(), || vec![record.clone()]);
    outputs.write(&text, &source, policies, &outcomes)
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
    let (policies, base) = with_baseline(&policies, baseline.as_ref())?;
    let outcomes = replay_policies(&source, &network, &policies, &experiment.running)?;

    let metrics = Metrics::new(&source, &source.workload, &network, !experiment.no_timing);
    let baseline = Baseline::new(&policies[base], &outcomes[base]);
    let records = policies.iter().zip(&outcomes);
    let records = records.map(|(policy, outcome)| metrics.record(policy, outcome, Some(&baseline)));
    let records: Vec<Record> = records.collect::<Result<_, _>>()?;
    let table = || {
        let head = caption(&source, &network, |_| false);
        let tables = if *wide { table::wide } else { table::short };
        head + &tables(&records, &policies[base], metrics.min_mean_cct())
    };
    let text = render::list(experiment.output.format, table, || records.clone());
    outputs.write(&text, &source, &policies, &outcomes)
}

fn replay_policies(
    source: &Source,
    network: &Network,
    policies: &[String],
    running: &args::Running,
) -> Result<Vec<weir_sim::Outcome>, Failure> {
    let replay = |policy: &String| Replay { policy: policy.clone(), workload: &source.workload, network };
    run_all(&policies.iter().map(replay).collect::<Vec<_>>(), running)
}

/// What is replayed, and over which network. `varies` says which parameters a sweep varies.
pub fn caption(source: &Source, network: &Network, varies: impl Fn(&str) -> bool) -> String {
    source.caption() + &network.caption(varies)
}

/// The policies to replay, and the position of the baseline among them. A baseline that is not among them goes first.
///
/// # Errors
/// If a policy is repeated.
pub fn with_baseline(
    policies: &[String],
    baseline: Option<&String>,
) -> Result<(Vec<String>, usize), Failure> {
    if let Some(policy) = args::first_repeated(policies) {
        return Err(Failure::input(format_args!("--policies: `{policy}`: expected each policy once")));
    }
    let mut policies = policies.to_vec();
    let Some(baseline) = baseline else { return Ok((policies, 0)) };
    let position = policies.iter().position(|policy| policy == baseline);
    if position.is_none() {
        policies.insert(0, baseline.clone());
    }
    Ok((policies, position.unwrap_or(0)))
}
