//! Runs `weir sim` and `weir compare`: replays a trace under one or several policies.

mod kept_outcomes;
mod outputs;
mod replays;

use std::path::PathBuf;
use std::sync::Arc;

use kept_outcomes::KeptOutcomes;
use outputs::Outputs;
pub use outputs::check_distinct;
use replays::{FinishedReplays, run_until_interrupted};
use weir_console::drawing;
use weir_console::failure::Failure;
use weir_console::output::OutputFile;
use weir_console::policy_spec;
use weir_console::problem::{self, Problem};
use weir_console::progress::Progress;
use weir_console::report::{self, Comparison, Origin};
use weir_console::run::ReplayTask;
use weir_console::table::{Alignment, Table, format_seconds};
use weir_core::model::{FlowSpec, Workload};
use weir_experiment::comparison::{
    ComparedReplays, add_problem_columns, add_slowdowns, caption, compare_replays, job_times, jobs_table,
    services_table, with_baseline,
};
use weir_experiment::jobs::Jobs;
use weir_experiment::metrics::Metrics;
use weir_experiment::network::{self, KeptDetails, Network};
use weir_experiment::results::Results;
use weir_experiment::services::Services;
use weir_experiment::source::Source;
use weir_experiment::summary_table;
use weir_sim::Outcome;

use crate::args;
use crate::inputs::read_source;
use crate::render;
use crate::replay::{Replay, run_replays};

/// Runs `weir sim`.
pub fn sim(args: &args::Sim) -> Result<(), Failure> {
    let args::Sim { policy, experiment, details, events } = args;
    let trace_events = events.trace_events.as_deref();
    let outputs = Outputs::open(experiment, details, &[("--trace-events", trace_events)], &[policy])?;
    let events_file = trace_events.map(OutputFile::create).transpose()?;
    let (source, network) = read_inputs(experiment, details, false)?;
    let policies = std::slice::from_ref(policy);
    print_ignored_limits(&source, &network, policies, &experiment.run_options);
    let alone = durations_alone(&source, &network, &experiment.run_options)?;
    let replay = to_replay(policy, &source, &network);
    let outcomes = match events_file {
        None => run_replays(&[replay], &experiment.run_options)?,
        Some(mut file) => {
            let outcome = replay.run_with_events(&mut file, None, None, experiment.run_options.quiet)?;
            file.finish()?;
            vec![outcome]
        }
    };

    let metrics = Metrics::new(&source, &source.workload, &network, !experiment.no_timing);
    let (mut record, problem) = metrics.record(policy, &outcomes[0], None);
    let failure = problem::to_failure(problem.iter().map(|problem| (policy.clone(), problem)));
    if problem.as_ref().is_some_and(Problem::is_invalid) {
        return failure.map_or(Ok(()), Err);
    }
    add_problem_columns(std::slice::from_mut(&mut record), &[problem]);
    let job_times = job_times(&source, &alone, &outcomes);
    add_slowdowns(std::slice::from_mut(&mut record), &job_times);
    let table = || {
        let head = caption(&source, &network, policies);
        head + "\n"
            + &summary_table::single_policy_table(&record, !source.is_services_alone())
            + &jobs_table(policies, &job_times)
            + &services_table(&source, policies, &outcomes)
    };
    let text = render::object(experiment.output.format, table, || record.clone(), || vec![record.clone()]);
    outputs.write(
        &text,
        &Results { source: &source, network: &network, policies, outcomes: &outcomes, alone: &alone },
    )?;
    failure.map_or(Ok(()), Err)
}

/// Runs `weir compare`.
pub fn compare(args: &args::Compare) -> Result<(), Failure> {
    let args::Compare { policies, baseline, experiment, resume, wide, details, report } = args;
    let policies = args::listed_policies(policies);
    let requested: Vec<&String> = policies.iter().chain(baseline).collect();
    let others = [("--report", report.as_deref()), ("--resume", resume.as_deref())];
    let outputs = Outputs::open(experiment, details, &others, &requested)?;
    let report_file = report.as_deref().map(OutputFile::create).transpose()?;
    let (source, network) = read_inputs(experiment, details, report.is_some())?;
    let policies = if policies.is_empty() { network.default_policies(&source.workload) } else { policies };
    let (policies, baseline_position) = with_baseline(&policies, baseline.as_ref())?;
    print_ignored_limits(&source, &network, &policies, &experiment.run_options);
    let alone = durations_alone(&source, &network, &experiment.run_options)?;
    let open = |file: &PathBuf| KeptOutcomes::open(file, &source, &network, &policies);
    let kept = resume.as_ref().map(open).transpose()?;
    let replays: Vec<Replay<'_>> =
        policies.iter().map(|policy| to_replay(policy, &source, &network)).collect();
    let finished = run_until_interrupted(&replays, baseline_position, kept, &experiment.run_options)?;
    let baseline_name = &policies[baseline_position];
    let FinishedReplays { policies: finished, outcomes, missing, failure } = finished;
    let metrics = Metrics::new(&source, &source.workload, &network, !experiment.no_timing);
    let ComparedReplays { mut records, policies, outcomes, failure } =
        compare_replays((finished, outcomes), baseline_name, &metrics, failure);
    let baseline_position = policies.iter().position(|policy| policy == baseline_name);
    let job_times = job_times(&source, &alone, &outcomes);
    add_slowdowns(&mut records, &job_times);
    if !missing.is_empty() {
        records.iter_mut().for_each(|record| record.add("missing_policies", missing.clone()));
    }
    let table = || {
        let head = caption(&source, &network, &policies);
        let tables = if *wide { summary_table::wide_table } else { summary_table::short_table };
        let has_times = !source.is_services_alone();
        let main = tables(&records, baseline_name, metrics.min_mean_cct(), has_times);
        let drawing = outputs.has_terminal().then(|| distribution_drawing(&policies, &outcomes));
        head + &main
            + &jobs_table(&policies, &job_times)
            + &services_table(&source, &policies, &outcomes)
            + &drawing.unwrap_or_default()
    };
    let text = render::list(experiment.output.format, table, || records.clone());
    let policies = &policies;
    if let Some(file) = report_file {
        let incomplete = failure.as_ref().map_or_else(String::new, |failure| failure.message.clone());
        let comparison = Comparison {
            caption: caption(&source, &network, policies) + &incomplete,
            origin: report_origin(input_files(experiment, policies)),
            policies: &policies.iter().map(|policy| policy_spec::without_folder(policy)).collect::<Vec<_>>(),
            outcomes: &outcomes,
            records: &records,
            baseline: baseline_position,
            min_ccts: metrics.min_ccts(),
            longest_flows: longest_flows(&source.workload),
            weights: source.workload.finite_coflows().iter().map(|coflow| coflow.weight).collect(),
            trunk_name: &|trunk| network.trunk_name(trunk),
            job_name: &|job| source.job_name(job),
            services: source.services.as_ref().map(|services| services.rates(&outcomes)),
        };
        file.write_and_finish(report::html(&comparison)?)?;
    }
    outputs.write(
        &text,
        &Results { source: &source, network: &network, policies, outcomes: &outcomes, alone: &alone },
    )?;
    failure.map_or(Ok(()), Err)
}

/// The origin of a report: these input files and those that they name, and the arguments and the version of this process.
pub fn report_origin(named: Vec<PathBuf>) -> Origin<'static> {
    let mut inputs: Vec<PathBuf> = Vec::new();
    for file in named.into_iter().filter(|file| file.as_os_str() != "-") {
        for file in [file.clone()].into_iter().chain(weir_fields::referenced_files(&file)) {
            if !inputs.contains(&file) {
                inputs.push(file);
            }
        }
    }
    Origin { inputs, command: std::env::args().skip(1).collect(), version: args::version() }
}

/// The files that replays of policies read.
pub fn input_files(experiment: &args::Experiment, policies: &[String]) -> Vec<PathBuf> {
    let args::NetworkOptions { incast, fabric, .. } = &experiment.network;
    let trees = policies.iter().filter_map(|policy| policy_spec::tree_file(policy)).map(PathBuf::from);
    experiment
        .input
        .sources
        .iter()
        .cloned()
        .chain(fabric.clone())
        .chain(incast.clone())
        .chain(trees)
        .collect()
}

/// By coflow: the bytes of its longest flow.
fn longest_flows(workload: &Workload) -> Vec<f64> {
    let longest = |flows: &[FlowSpec]| flows.iter().map(|flow| flow.bytes.get()).fold(0.0, f64::max);
    workload.finite_coflows().iter().map(|coflow| longest(&coflow.flows)).collect()
}

fn read_inputs(
    experiment: &args::Experiment,
    details: &args::DetailFiles,
    has_report: bool,
) -> Result<(Arc<Source>, Network), Failure> {
    let args::ReplaySources { sources, read_options, arrivals } = &experiment.input;
    let step = arrivals.shift_step([network::interval(experiment.replay.interval)]);
    let options = read_options.trace_options(step);
    let source = read_source(sources, &options, read_options.trace_unit, experiment.replay.per_stage)?;
    let mut source = Arc::new(source);
    if details.per_demand.is_some() && source.services.is_none() {
        return Err(Failure::input(format_args!(
            "--per-demand: {} has no services; expected a scenario with services among the sources; help: add one, such as \
             examples/services.toml",
            source.name
        )));
    }
    let kept = KeptDetails {
        flow_ends: details.per_flow.is_some() || details.per_bin.is_some(),
        link_use: has_report || details.per_link.is_some() || details.per_link_time.is_some(),
    };
    let network = Network::read(&experiment.network.requested(&experiment.replay), &mut source, kept)?;
    Ok((source, network))
}

/// Prints which of the policies do not apply the limits of connections.
fn print_ignored_limits(
    source: &Source,
    network: &Network,
    policies: &[String],
    run_options: &args::RunOptions,
) {
    let has_limits = source.services.as_ref().is_some_and(Services::have_limits);
    if run_options.quiet || !has_limits {
        return;
    }
    let is_at_ports = |policy: &&String| {
        let built = policy_spec::build_policy(policy, Some(&source.workload.names), &source.sensitivities);
        built.is_ok_and(|policy| network.decides_at_ports(&policy))
    };
    let names: Vec<&str> = policies.iter().filter(is_at_ports).map(String::as_str).collect();
    if !names.is_empty() {
        eprintln!(
            "weir: {}: these policies decide over ports without the limits of capped connections, and other flows do not get the \
             bandwidth that a limit leaves unused: {}",
            source.name,
            names.join(", ")
        );
    }
}

/// The durations of the jobs of a file alone, in seconds; empty without such jobs.
fn durations_alone(
    source: &Source,
    network: &Network,
    run_options: &args::RunOptions,
) -> Result<Vec<Option<f64>>, Failure> {
    let progress = Progress::new(run_options.quiet);
    let replay = |task: &ReplayTask<'_>| task.run_observed(&progress, &mut []);
    let durations =
        |jobs: &Jobs| jobs.durations_alone(&source.workload, network.options(), run_options.jobs, replay);
    source.jobs.as_ref().map_or(Ok(Vec::new()), durations)
}

/// The distribution of completion times under each policy as a line of bars.
fn distribution_drawing(policies: &[String], outcomes: &[Outcome]) -> String {
    let ccts: Vec<Vec<f64>> = outcomes.iter().map(Outcome::ccts).collect();
    let Some(([low, high], lines)) = drawing::distributions(&ccts) else { return String::new() };
    let mut table = Table::new(&[("", Alignment::Left), ("", Alignment::Left)]);
    policies.iter().zip(lines).for_each(|(policy, line)| table.add_row(vec![policy.clone(), line]));
    format!(
        "\nPart of the coflows that complete within {} to {}, in equal ratios from left to right:\n\n{table}",
        format_seconds(low),
        format_seconds(high)
    )
}

fn to_replay<'a>(policy: &str, source: &'a Source, network: &'a Network) -> Replay<'a> {
    let sensitivities = &source.sensitivities;
    Replay { policy: policy.to_owned(), workload: &source.workload, network, sensitivities }
}
