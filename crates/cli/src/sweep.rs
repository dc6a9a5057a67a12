//! Runs `weir sweep`: replays policies at all combinations of one or two varied parameters.

mod grid;

use grid::{Point, PolicySpec, add_supported_params, grid};
use weir_console::failure::Failure;
use weir_console::output::ResultDestination;
use weir_console::record::Record;
use weir_console::table::{Alignment, Table, format_optional};
use weir_core::model::Workload;

use crate::args::{self, VariedParameter};
use crate::compare::{caption, check_distinct, with_baseline};
use crate::metrics::{Baseline, Metrics};
use crate::network::{Network, Replay, run_replays};
use crate::render;
use crate::source::Source;

/// Runs `weir sweep`.
pub fn sweep(args: &args::Sweep) -> Result<(), Failure> {
    let experiment = &args.experiment;
    let (policies, baseline_position) = with_baseline(&args.policies, args.baseline.as_ref())?;
    let args::ReplaySources { sources, read_options } = &experiment.input;
    let mut source = Source::read(sources, read_options, false)?;
    let network = Network::read(&experiment.replay, &experiment.network, &source, false)?;
    let points = grid(&args.vary, &network)?;
    let specs = points
        .iter()
        .map(|point| policies.iter().map(|policy| add_supported_params(policy, &point.params)).collect())
        .collect::<Result<Vec<Vec<PolicySpec>>, Failure>>()?;
    grid::check_params(&points[0].params, &specs[0], &network)?;
    let requested: Vec<&String> = policies.iter().collect();
    check_distinct(experiment, &requested, &[("--out", experiment.output.out.as_deref())])?;
    let sink = ResultDestination::new(experiment.output.out.as_deref())?;

    let workloads = workloads_by_arrival_factor(&source, &points, experiment.replay.per_stage)?;
    let workload_at = |factor: f64| {
        let found = workloads.iter().find(|(other, _)| *other == factor);
        &found.expect("`workloads` has an entry for the arrival factor of every point and for 1").1
    };
    if experiment.replay.per_stage {
        source.workload = workload_at(1.0).clone();
    }

    // Equal replays at several points, as of a policy without the varied parameter, run once.
    let mut replays: Vec<Replay<'_>> = Vec::new();
    let sensitivities = source.sensitivities.as_slice();
    let mut replay_at = |policy: &str, factor: f64, network| {
        let workload = workload_at(factor);
        find_or_push(&mut replays, Replay { policy: policy.to_owned(), workload, network, sensitivities })
    };
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for (point, specs) in points.iter().zip(&specs) {
        rows.push(
            specs
                .iter()
                .map(|spec| replay_at(&spec.spec_text, point.arrival_factor, &point.network))
                .collect(),
        );
    }
    let fixed_baseline_position =
        args.fixed_baseline.then(|| replay_at(&policies[baseline_position], 1.0, &network));
    let outcomes = run_replays(&replays, &experiment.run_options)?;

    let mut records = Vec::new();
    for (point, row) in points.iter().zip(&rows) {
        let metrics =
            Metrics::new(&source, workload_at(point.arrival_factor), &point.network, !experiment.no_timing);
        let baseline_replay = fixed_baseline_position.unwrap_or(row[baseline_position]);
        let baseline = Baseline::new(&replays[baseline_replay].policy, &outcomes[baseline_replay]);
        for &index in row {
            let mut record = Record::default();
            for (vary, value) in args.vary.iter().zip(&point.values) {
                record.add_named(format!("vary_{}", vary.key), value.as_str());
            }
            record.append(metrics.record(&replays[index].policy, &outcomes[index], Some(&baseline))?);
            if fixed_baseline_position.is_some() {
                record.add("fixed_baseline", true);
            }
            records.push(record);
        }
    }
    let table = || {
        let head = caption(&source, &network, |key| args.vary.iter().any(|vary| vary.key == key));
        head + &table(args, &policies, &policies[baseline_position], &points, &records)
    };
    sink.write_text(render::list(experiment.output.format, table, || records.clone()))
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

fn table(
    args: &args::Sweep,
    policies: &[String],
    baseline: &str,
    points: &[Point],
    records: &[Record],
) -> String {
    const COLUMNS: [(&str, &str); 9] = [
        ("mean", "mean_cct_s"),
        ("P50", "p50_cct_s"),
        ("P90", "p90_cct_s"),
        ("/bound", "over_bound"),
        ("| P10", "speedup_p10"),
        ("P50", "speedup_p50"),
        ("P90", "speedup_p90"),
        ("mean", "speedup_mean"),
        ("| schedule us", "schedule_mean_us"),
    ];
    let varied = args.vary.iter().map(|VariedParameter { key, .. }| (key.as_str(), Alignment::Right));
    let has_jobs = records.iter().any(|record| record.get("mean_jct_s").is_some());
    let columns: Vec<(&str, &str)> =
        COLUMNS.into_iter().chain(has_jobs.then_some(("mean JCT", "mean_jct_s"))).collect();
    let titles = columns.iter().map(|(title, _)| (*title, Alignment::Right));
    let mut table =
        Table::new(&varied.chain([("policy", Alignment::Left)]).chain(titles).collect::<Vec<_>>());
    for (index, record) in records.iter().enumerate() {
        let mut cells = points[index / policies.len()].values.clone();
        cells.push(policies[index % policies.len()].clone());
        cells.extend(columns.iter().map(|(_, name)| format_optional(record.number(name))));
        table.add_row(cells);
    }
    let values = if args.fixed_baseline { "with unvaried parameters" } else { "at the same values" };
    format!(
        "\nCoflow completion times in seconds | speedups over `{baseline}` {values}, coflow by coflow.\n\
         /bound: mean divided by the lower bound of the mean.\n\n{table}"
    )
}
