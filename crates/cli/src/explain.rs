//! Runs `weir explain`: replays a trace, and explains the completion times of one coflow or of the slowest ones.

use std::path::PathBuf;
use std::sync::Arc;

use weir_console::drawing;
use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile, ResultDestination};
use weir_console::policy_spec;
use weir_console::problem::{self, Problem};
use weir_console::record::Record;
use weir_console::report::explanation::{self, ExplanationReport, PacePeriod};
use weir_experiment::comparison::caption;
use weir_experiment::explanation::{
    Leaves, MAX_ENTRIES, Report, entry_lines, explanation_blocks, explanation_record, explanation_text,
    find_coflow, finish_explanations, slowest_coflows,
};
use weir_experiment::network::{self, KeptDetails, Network};
use weir_sim::Observer;
use weir_sim::explain::{Explainer, Explanation, Segment, TimelineEntry, build_timeline};

use crate::args;
use crate::compare::report_origin;
use crate::inputs::read_source;
use crate::render;
use crate::replay::Replay;

/// Runs `weir explain`.
pub fn explain(args: &args::Explain) -> Result<(), Failure> {
    let args::ReplaySources { sources, read_options, arrivals } = &args.input;
    let trace_events = args.events.trace_events.as_deref();
    let outputs = [
        ("--out", args.output.out.as_deref()),
        ("--trace-events", trace_events),
        ("--report", args.report.as_deref()),
    ];
    output::check_single_stdout(&outputs)?;
    for file in sources {
        output::check_distinct(file, &outputs)?;
    }
    let sink = ResultDestination::new(args.output.out.as_deref())?;
    let events_file = trace_events.map(OutputFile::create).transpose()?;
    let report_file = args.report.as_deref().map(OutputFile::create).transpose()?;
    let step = arrivals.shift_step([network::interval(args.replay.interval)]);
    let options = read_options.trace_options(step);
    let source = read_source(sources, &options, read_options.trace_unit, args.replay.per_stage)?;
    let mut source = Arc::new(source);
    let requested = args.network.requested(&args.replay);
    let network = Network::read(&requested, &mut source, KeptDetails::default())?;
    let policy =
        policy_spec::build_policy(&args.policy, Some(&source.workload.names), &source.sensitivities)?;
    let leaves = Leaves::new(&policy, &source.workload).map_err(Failure::input)?;
    let replay = Replay {
        policy: args.policy.clone(),
        workload: &source.workload,
        network: &network,
        sensitivities: &source.sensitivities,
    };
    let indices = match args.coflow {
        Some(coflow) => vec![find_coflow(coflow, &source)?],
        None => slowest_coflows(&replay.run_observed(&mut [], args.quiet)?, args.slowest.unwrap_or(1)),
    };
    let (explanations, failure) = explain_coflows(&replay, &indices, events_file, args.quiet)?;

    let max_entries = if args.all { usize::MAX } else { MAX_ENTRIES };
    let entries: Vec<Vec<TimelineEntry<'_>>> =
        explanations.iter().map(|explanation| build_timeline(&explanation.segments, max_entries)).collect();
    let to_report = |(explanation, entries)| Report {
        source: &source,
        network: &network,
        policy: &args.policy,
        leaves: &leaves,
        explanation,
        entries,
    };
    let reports: Vec<Report<'_>> =
        explanations.iter().zip(entries.iter().map(Vec::as_slice)).map(to_report).collect();
    if let (Some(file), Some(report)) = (report_file, reports.first()) {
        file.write_and_finish(explanation::html(&html_report(args, report))?)?;
    }
    let colors = sink.is_terminal().then(drawing::has_colors);
    let table = || {
        let texts: Vec<String> = reports.iter().map(|report| explanation_text(report, colors)).collect();
        format!("{}\n{}", caption(&source, &network, std::slice::from_ref(&args.policy)), texts.join("\n"))
    };
    let has_coflow = args.slowest.is_some();
    let lines = || reports.iter().flat_map(|report| entry_lines(report, has_coflow)).collect();
    let records = || reports.iter().map(explanation_record).collect::<Vec<Record>>();
    sink.write_text(match args.slowest {
        None => render::object(args.output.format, table, || records().swap_remove(0), lines),
        Some(_) => render::object(args.output.format, table, records, lines),
    })?;
    failure.map_or(Ok(()), Err)
}

/// Replays the trace, and explains the coflows at these positions. `events_file` gets the trace events of the only one. The failure says
/// which other coflows cannot complete.
fn explain_coflows(
    replay: &Replay<'_>,
    indices: &[usize],
    events_file: Option<OutputFile>,
    quiet: bool,
) -> Result<(Vec<Explanation>, Option<Failure>), Failure> {
    let mut explainers: Vec<Explainer> = indices.iter().map(|&index| Explainer::new(index)).collect();
    let mut observers: Vec<&mut dyn Observer> =
        explainers.iter_mut().map(|explainer| explainer as &mut dyn Observer).collect();
    let outcome = match events_file {
        None => replay.run_observed(&mut observers, quiet)?,
        Some(mut file) => {
            let only = indices.first().copied();
            let outcome = replay.run_with_events(&mut file, only, observers.pop(), quiet)?;
            file.finish()?;
            outcome
        }
    };
    let explained = (replay.policy.as_str(), replay.workload);
    let explanations = finish_explanations(explainers, indices, explained, &outcome)?;
    let problem = Problem::find(&outcome, &replay.network.bounds(replay.workload));
    Ok((explanations, problem::to_failure(problem.iter().map(|problem| (replay.policy.clone(), problem)))))
}

/// What the report in HTML describes.
fn html_report(args: &args::Explain, report: &Report<'_>) -> ExplanationReport<'static> {
    let Report { source, network, policy, explanation, .. } = *report;
    let release = explanation.outcome.released_at;
    let period = |segment: &Segment| PacePeriod {
        start: segment.start - release,
        end: segment.end - release,
        pace: segment.pace(),
    };
    let network_files = [&args.network.incast, &args.network.fabric].into_iter().flatten().cloned();
    let tree = policy_spec::tree_file(policy).map(PathBuf::from);
    ExplanationReport {
        title: format!("Coflow {} under {}", explanation.outcome.id, policy_spec::without_folder(policy)),
        caption: caption(source, network, std::slice::from_ref(&args.policy)),
        origin: report_origin(args.input.sources.iter().cloned().chain(network_files).chain(tree).collect()),
        blocks: explanation_blocks(report, None),
        paces: explanation.segments.iter().map(period).collect(),
    }
}
