//! Runs `weir sweep`: replays policies at all combinations of one or two varied parameters.

mod combined;
mod grid;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use combined::ClusteredBy;
use grid::{Point, grid};
use table::Cells;
use weir_console::failure::Failure;
use weir_console::output::{self, OutputFile, ResultDestination};
use weir_console::policy_spec;
use weir_console::problem::{self, Problem};
use weir_console::record::Record;
use weir_console::report::sweep::{SweepLine, SweepPoint, SweepReport};
use weir_console::report::{self, Origin};
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_experiment::comparison::{first_repeated, with_baseline};
use weir_experiment::metrics::{Baseline, Metrics};
use weir_experiment::network::{self, KeptDetails, Network};
use weir_experiment::options::NetworkParameter;
use weir_experiment::source::Source;
use weir_experiment::tables::coflows;
use weir_experiment::unused_keys;
use weir_experiment::varied_params::{PolicySpec, add_supported_params, check_params};
use weir_sim::Outcome;
use weir_trace::SourceKind;

use crate::args;
use crate::compare::{check_distinct, input_files, report_origin};
use crate::detail_file::{DetailFile, DetailRows};
use crate::inputs::read_source;
use crate::render;
use crate::replay::{Replay, run_replays};

/// A trace of the sweep, or a trace with jobs and services.
struct Input {
    source: Arc<Source>,
    network: Network,
    /// The varied parameters, with the seeds of `--seeds`.
    vary: Vec<args::VariedParameter>,
    points: Vec<Point>,
    /// The workload at each arrival factor of a point, and at 1.
    workloads: Vec<(f64, Workload)>,
}

impl Input {
    fn read(files: &[PathBuf], args: &args::Sweep) -> Result<Input, Failure> {
        let args::Experiment { input, replay, network, .. } = &args.experiment;
        let step =
            input.arrivals.shift_step(intervals(&args.vary).chain([network::interval(replay.interval)]));
        let unit = input.read_options.trace_unit;
        let source = read_source(files, &input.read_options.trace_options(step), unit, false)?;
        let mut source = Arc::new(source);
        let mut network = network.requested(replay);
        network.varied_buffer = first_buffer(&args.vary);
        if args.fixed_baseline && network.incast.is_some() && network.buffer.is_none() {
            return Err(Failure::input(
                "--fixed-baseline: the baseline has the unvaried buffer; expected --buffer PACKETS with --incast",
            ));
        }
        let network = Network::read(&network, &mut source, KeptDetails::default())?;
        let mut vary = args.vary.clone();
        if let Some(seeds) = &args.seeds {
            let key = network.seed_parameter().ok_or_else(|| {
                Failure::input(
                    "--seeds: one switch has no random choices; expected --fabric, or a file with a network",
                )
            })?;
            vary.push(seeds.vary(key));
        }
        let points = grid(&vary, &network)?;
        let workloads = workloads_by_arrival_factor(&source, &points, replay.per_stage)?;
        if replay.per_stage {
            Arc::make_mut(&mut source).workload = find_workload(&workloads, 1.0).clone();
        }
        Ok(Input { source, network, vary, points, workloads })
    }

    /// Reads each of several traces, or the trace, the jobs and the services.
    ///
    /// # Errors
    /// If a file cannot be read, does not fit the options, or nothing varies.
    fn read_all(args: &args::Sweep) -> Result<Vec<Input>, Failure> {
        let files = &args.experiment.input.sources;
        let traces = files.iter().filter(|file| SourceKind::detect(file) == SourceKind::Trace).count();
        if traces > 1 && traces < files.len() {
            return Err(Failure::input(
                "a sweep cannot combine several traces with jobs or services; expected one trace with them, or traces alone",
            ));
        }
        let has_several_traces = traces > 1;
        if args.vary.is_empty() && args.seeds.is_none() && !has_several_traces {
            return Err(Failure::input("--vary: expected one or two parameters, --seeds, or several traces"));
        }
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        if let Some(name) = first_repeated(&names) {
            return Err(Failure::input(format_args!("{name} is given twice; expected each trace once")));
        }
        let is_sampled = |vary: &args::VariedParameter| combined::SAMPLED_KEYS.contains(&vary.key.as_str());
        let has_seeds = args.seeds.is_some() || args.vary.iter().any(is_sampled);
        if args.confidence && !has_several_traces && !has_seeds {
            return Err(Failure::input(
                "--confidence: each policy has one sample; expected several traces, or --seeds such as 1..20",
            ));
        }
        match has_several_traces {
            true => files.chunks(1).map(|file| Input::read(file, args)).collect(),
            false => Ok(vec![Input::read(files, args)?]),
        }
    }
}

/// A result of the sweep.
struct Row<'a> {
    /// The policy as given.
    policy: &'a str,
    /// What varies, with the value: the trace if there are several, and the parameters.
    values: Vec<(String, String)>,
    metrics: Record,
    problem: Option<Problem>,
}

impl Row<'_> {
    /// The policy and the values.
    fn name(&self) -> String {
        let values: String = self.values.iter().map(|(key, value)| format!(", {key}={value}")).collect();
        format!("{}{values}", self.policy)
    }
}

/// Runs `weir sweep`.
pub fn sweep(args: &args::Sweep) -> Result<(), Failure> {
    let experiment = &args.experiment;
    let (policies, baseline_position) =
        with_baseline(&args::listed_policies(&args.policies), args.baseline.as_ref())?;
    let inputs = Input::read_all(args)?;
    // The points of all inputs have the same parameters.
    let points = &inputs[0].points;
    let specs = points
        .iter()
        .flat_map(|point| policies.iter().map(|policy| add_supported_params(policy, &point.params)))
        .collect::<Result<Vec<PolicySpec>, _>>()
        .map_err(|error| Failure::input(format_args!("--vary: {error}")))?;
    check_params(&points[0].params, &specs, &inputs[0].network.sweep_parameters())
        .map_err(|reason| Failure::input(format_args!("--vary: {reason}")))?;
    let requested: Vec<&String> = policies.iter().collect();
    let outputs = [
        ("--out", experiment.output.out.as_deref()),
        ("--report", args.report.as_deref()),
        ("--per-coflow", args.per_coflow.as_deref()),
    ];
    output::check_single_stdout(&outputs)?;
    check_distinct(experiment, &requested, &outputs)?;
    let sink = ResultDestination::new(experiment.output.out.as_deref())?;
    let report_file = args.report.as_deref().map(OutputFile::create).transpose()?;
    let coflow_file = args.per_coflow.as_deref().map(DetailFile::create).transpose()?;

    let (mut rows, coflow_file) = run(args, &policies, baseline_position, &inputs, &specs, coflow_file)?;
    let clustered_by = args.confidence.then(|| ClusteredBy::from_rows(&rows));
    if let Some(clustered_by) = clustered_by {
        rows = combined::combine(&rows, clustered_by);
    }
    let failure =
        problem::to_failure(rows.iter().filter_map(|row| Some((row.name(), row.problem.as_ref()?))));
    if failure.is_some() {
        rows.iter_mut().for_each(|row| problem::add_columns(&mut row.metrics, row.problem.as_ref()));
    }
    let is_varied = |key: &str| inputs[0].vary.iter().any(|vary| vary.key == key);
    let sources: String = inputs.iter().map(|input| input.source.caption()).collect();
    let network = inputs[0].network.caption(is_varied);
    let all_specs = || specs.iter().map(|spec| spec.spec_text.as_str());
    let unused_keys =
        unused_keys::note(inputs.iter().flat_map(|input| all_specs().map(|spec| (&*input.source, spec))));
    // Only a sweep over one input has services.
    let source = &inputs[0].source;
    let caption = |separator| {
        let unit = table::time_unit(&rows);
        let results = table::caption(args, source, unit, &policies[baseline_position], separator);
        let intervals = clustered_by.map_or("", table::intervals_caption);
        let has_stalled = clustered_by.is_none() && failure.is_some();
        let completed = if has_stalled { problem::COMPLETED_CAPTION } else { "" };
        format!("{sources}{network}{unused_keys}{results}{intervals}{completed}")
    };
    let cells = match clustered_by {
        Some(clustered_by) => Cells::with_intervals(&rows, source, clustered_by),
        None => Cells::new(&rows, source),
    };
    if let Some(file) = coflow_file {
        file.finish()?;
    }
    if let Some(file) = report_file {
        let origin = report_origin(input_files(experiment, &policies));
        file.write_and_finish(report::sweep::html(&to_report(&rows, &cells, caption(", "), origin))?)?;
    }
    let table = || format!("{}\n{}", caption(" | "), cells.to_table());
    let records = || rows.iter().map(to_record).collect();
    sink.write_text(render::list(experiment.output.format, table, records))?;
    failure.map_or(Ok(()), Err)
}

/// What the report in HTML describes. Its x axis has the values of what varies first.
fn to_report<'a>(rows: &[Row<'_>], cells: &Cells, caption: String, origin: Origin<'a>) -> SweepReport<'a> {
    let (mut x_values, mut lines): (Vec<String>, Vec<SweepLine>) = (Vec::new(), Vec::new());
    for Row { policy, values, metrics, .. } in rows {
        let (first, others) =
            values.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
        let value = first.map_or("", |(_, value)| value);
        let position = x_values.iter().position(|other| other == value).unwrap_or_else(|| {
            x_values.push(value.to_owned());
            x_values.len() - 1
        });
        let others: String = others.iter().map(|(key, value)| format!(", {key}={value}")).collect();
        let name = policy_spec::without_folder(policy) + &others;
        let Some(mean) = metrics.number("mean_cct_s") else { continue };
        let half_width = metrics.number(&combined::half_width_column("mean_cct_s"));
        let point = SweepPoint { position, mean, half_width };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(SweepLine { name, points: vec![point] }),
        }
    }
    SweepReport {
        caption,
        origin,
        table: cells.to_report_table(),
        x_title: rows
            .first()
            .and_then(|row| row.values.first())
            .map_or_else(String::new, |(key, _)| key.clone()),
        x_values,
        lines,
    }
}

/// The values of a row, and its metrics.
fn to_record(row: &Row<'_>) -> Record {
    let mut record = Record::default();
    // The metrics contain the trace.
    for (key, value) in row.values.iter().filter(|(key, _)| key != "trace") {
        record.add_named(format!("vary_{key}"), value.as_str());
    }
    record.append(row.metrics.clone());
    record
}

/// Replays each policy at each point of each input. `specs` are the policies at the first point, at the second one, and so on. Returns
/// the rows, and the complete file of coflows.
fn run<'a>(
    args: &args::Sweep,
    policies: &'a [String],
    baseline_position: usize,
    inputs: &[Input],
    specs: &[PolicySpec],
    coflow_file: Option<DetailFile>,
) -> Result<(Vec<Row<'a>>, Option<OutputFile>), Failure> {
    // Equal replays at several points, as of a policy without the varied parameter, run once.
    let mut replays: Vec<Replay<'_>> = Vec::new();
    let mut positions: Vec<Vec<usize>> = Vec::new();
    let mut fixed_baselines = Vec::new();
    for Input { source, network, points, workloads, .. } in inputs {
        let mut replay_at = |policy: &str, factor: f64, network| {
            let (policy, workload) = (policy.to_owned(), find_workload(workloads, factor));
            let sensitivities = source.sensitivities.as_slice();
            find_or_push(&mut replays, Replay { policy, workload, network, sensitivities })
        };
        for (point, specs) in points.iter().zip(specs.chunks(policies.len())) {
            let position =
                |spec: &PolicySpec| replay_at(&spec.spec_text, point.arrival_factor, &point.network);
            positions.push(specs.iter().map(position).collect());
        }
        fixed_baselines
            .push(args.fixed_baseline.then(|| replay_at(&policies[baseline_position], 1.0, network)));
    }
    let outcomes = run_replays(&replays, &args.experiment.run_options)?;

    let mut rows = Vec::new();
    let mut coflow_lines = coflow_file.map(|file| CoflowLines::new(file, inputs)).transpose()?;
    let mut positions = positions.iter();
    for (input, fixed_baseline) in inputs.iter().zip(fixed_baselines) {
        let Input { source, network, vary, points, workloads } = input;
        let has_timing = !args.experiment.no_timing;
        // The baseline of each point has other bounds than a fixed one.
        let fixed_metrics =
            fixed_baseline.map(|_| Metrics::new(source, find_workload(workloads, 1.0), network, has_timing));
        for (point, positions) in points.iter().zip(&mut positions) {
            let workload = find_workload(workloads, point.arrival_factor);
            let metrics = Metrics::new(source, workload, &point.network, has_timing);
            let baseline = fixed_baseline.unwrap_or(positions[baseline_position]);
            let baseline = Baseline::new(
                &replays[baseline].policy,
                Some(&outcomes[baseline]),
                fixed_metrics.as_ref().unwrap_or(&metrics),
            );
            let trace = (inputs.len() > 1).then(|| ("trace".to_owned(), source.name.clone()));
            let keys = vary.iter().map(|parameter| parameter.key.clone());
            let values: Vec<_> = trace.into_iter().chain(keys.zip(point.values.iter().cloned())).collect();
            for (policy, &position) in policies.iter().zip(positions) {
                let replay = &replays[position];
                let (mut record, problem) =
                    metrics.record(&replay.policy, &outcomes[position], Some(&baseline));
                if fixed_baseline.is_some() {
                    record.add("fixed_baseline", true);
                }
                if let Some(lines) = &mut coflow_lines {
                    let alone = metrics.min_ccts();
                    lines.write((source, workload), alone, (&values, policy), &outcomes[position])?;
                }
                rows.push(Row { policy, values: values.clone(), metrics: record, problem });
            }
        }
    }
    Ok((rows, coflow_lines.map(|lines| lines.rows.end()).transpose()?))
}

/// The file with a line for each replay and coflow.
struct CoflowLines {
    rows: DetailRows,
}

impl CoflowLines {
    fn new(file: DetailFile, inputs: &[Input]) -> Result<CoflowLines, Failure> {
        let trace = (inputs.len() > 1).then(|| "trace".to_owned());
        let varied = inputs[0].vary.iter().map(|parameter| format!("vary_{}", parameter.key));
        let policy =
            ["policy"].into_iter().chain(coflows::columns().map(|(name, _)| name)).map(str::to_owned);
        Ok(CoflowLines { rows: file.begin(trace.into_iter().chain(varied).chain(policy))? })
    }

    fn write(
        &mut self,
        (source, workload): (&Source, &Workload),
        alone: &[f64],
        (values, policy): (&[(String, String)], &str),
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let head: Vec<&str> = values.iter().map(|(_, value)| value.as_str()).chain([policy]).collect();
        coflows::write_rows(&mut self.rows, head, (source, workload), alone, &outcome.coflows)
            .map_err(|error| self.rows.failure(&error))
    }
}

/// The first value of the buffer, if it varies.
fn first_buffer(vary: &[args::VariedParameter]) -> Option<u32> {
    vary.iter().flat_map(|parameter| &parameter.values).find_map(|(_, setting)| match setting {
        args::VariedSetting::Network(NetworkParameter::Buffer(buffer)) => Some(*buffer),
        _ => None,
    })
}

/// The varied intervals.
fn intervals(vary: &[args::VariedParameter]) -> impl Iterator<Item = Time> {
    vary.iter().flat_map(|parameter| &parameter.values).filter_map(|(_, setting)| match setting {
        args::VariedSetting::Network(NetworkParameter::Interval(interval)) => Some(*interval),
        _ => None,
    })
}

/// The workload at an arrival factor of a point, or at 1.
fn find_workload(workloads: &[(f64, Workload)], factor: f64) -> &Workload {
    let found = workloads.iter().find(|(other, _)| *other == factor);
    &found.expect("there is an entry for the arrival factor of every point and for 1").1
}

/// The workload at each arrival factor, and at factor 1. Stages are merged after arrivals are scaled, so that the release times
/// of later stages are scaled too.
fn workloads_by_arrival_factor(
    source: &Source,
    points: &[Point],
    per_stage: bool,
) -> Result<Vec<(f64, Workload)>, Failure> {
    let mut factors: Vec<f64> = points.iter().map(|point| point.arrival_factor).chain([1.0]).collect();
    factors.sort_by(f64::total_cmp);
    factors.dedup();
    let workload = |factor: f64| {
        let scaled = source.workload.with_faster_arrivals(factor);
        Ok((factor, if per_stage { source.merge_stages(&scaled)? } else { scaled }))
    };
    factors.into_iter().map(workload).collect()
}

/// The position of a replay among `replays`, to which it is appended if no equal replay exists.
fn find_or_push<'a>(replays: &mut Vec<Replay<'a>>, replay: Replay<'a>) -> usize {
    let is_equal = |other: &Replay<'_>| {
        other.policy == replay.policy
            && std::ptr::eq(other.workload, replay.workload)
            && other.network.has_equal_parameters(replay.network)
    };
    replays.iter().position(is_equal).unwrap_or_else(|| {
        replays.push(replay);
        replays.len() - 1
    })
}
