//! `weir sweep`.

mod grid;

use grid::{Point, Spec, grid, with_params};
use weir_console::failure::Failure;
use weir_console::record::Record;
use weir_console::table::{Align, Table, optional};
use weir_core::model::Workload;

use crate::args::{self, Vary};
use crate::compare::{caption, check_distinct, with_baseline};
use crate::metrics::{Baseline, Metrics};
use crate::network::{Network, Replay, run_all};
use crate::render;
use crate::source::Source;

/// Runs `weir sweep`.
pub fn sweep(args: &args::Sweep) -> Result<(), Failure> {
    let experiment = &args.experiment;
    let (policies, base) = with_baseline(&args.policies, args.baseline.as_ref())?;
    let network = Network::read(&experiment.replay, &experiment.network, false)?;
    let points = grid(&args.vary, &network)?;
    let specs = points
        .iter()
        .map(|point| policies.iter().map(|policy| with_params(policy, &point.params, &network)).collect())
        .collect::<Result<Vec<Vec<Spec>>, Failure>>()?;
    grid::check_params(&points[0].params, &specs[0], &network)?;
    let requested: Vec<&String> = policies.iter().collect();
    check_distinct(experiment, &requested, &[("--out", experiment.output.out.as_deref())])?;
    let sink = render::open(&experiment.output, &experiment.input.trace)?;

    let mut source = Source::read(&experiment.input, false)?;
    let workloads = workloads(&source, &points, experiment.replay.per_stage)?;
    let workload_at = |speed: f64| {
        let found = workloads.iter().find(|(other, _)| *other == speed);
        &found.expect("`workloads` has an entry for the speed of every point and for 1").1
    };
    if experiment.replay.per_stage {
        source.workload = workload_at(1.0).clone();
    }

    // A policy that no parameter changes is replayed once.
    let mut replays: Vec<Replay<'_>> = Vec::new();
    let mut replay_at = |policy: &str, speed: f64, network| {
        let workload = workload_at(speed);
        position_of(&mut replays, Replay { policy: policy.to_owned(), workload, network })
    };
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for (point, specs) in points.iter().zip(&specs) {
        rows.push(specs.iter().map(|spec| replay_at(&spec.text, point.speed, &point.network)).collect());
    }
    let fixed = args.fixed_baseline.then(|| replay_at(&policies[base], 1.0, &network));
    let outcomes = run_all(&replays, &experiment.running)?;

    let mut records = Vec::new();
    for (point, row) in points.iter().zip(&rows) {
        let metrics = Metrics::new(&source, workload_at(point.speed), &point.network, !experiment.no_timing);
        let base = fixed.unwrap_or(row[base]);
        let baseline = Baseline::new(&replays[base].policy, &outcomes[base]);
        for &at in row {
            let mut record = Record::default();
            for (vary, value) in args.vary.iter().zip(&point.values) {
                record.add_named(format!("vary_{}", vary.key), value.as_str());
            }
            record.append(metrics.record(&replays[at].policy, &outcomes[at], Some(&baseline))?);
            if fixed.is_some() {
                record.add("fixed_baseline", true);
            }
            records.push(record);
        }
    }
    let table = || {
        let head = caption(&source, &network, |key| args.vary.iter().any(|vary| vary.key == key));
        head + &table(args, &policies, &policies[base], &points, &records)
    };
    sink.fill(render::list(experiment.output.format, table, || records.clone()))
}

/// The unchanged trace, and the trace at each speed of arrivals. Stages are merged after arrivals are scaled, so that they start
/// sooner too.
fn workloads(source: &Source, points: &[Point], per_stage: bool) -> Result<Vec<(f64, Workload)>, Failure> {
    let mut speeds: Vec<f64> = points.iter().map(|point| point.speed).chain([1.0]).collect();
    speeds.sort_by(f64::total_cmp);
    speeds.dedup();
    let workload = |speed: f64| {
        let scaled = source.workload.sped_up(speed);
        Ok((speed, if per_stage { source.per_stage(&scaled)? } else { scaled }))
    };
    speeds.into_iter().map(workload).collect()
}

/// The position of a replay among `replays`; it is appended if there is no equal one.
fn position_of<'a>(replays: &mut Vec<Replay<'a>>, replay: Replay<'a>) -> usize {
    let is_equal = |other: &Replay<'_>| {
        other.policy == replay.policy
            && std::ptr::eq(other.workload, replay.workload)
            && other.network.has_parameters_of(replay.network)
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
    let varied = args.vary.iter().map(|Vary { key, .. }| (key.as_str(), Align::Right));
    let columns = COLUMNS.iter().map(|(title, _)| (*title, Align::Right));
    let mut table = Table::new(&varied.chain([("policy", Align::Left)]).chain(columns).collect::<Vec<_>>());
    for (at, record) in records.iter().enumerate() {
        let mut cells = points[at / policies.len()].values.clone();
        cells.push(policies[at % policies.len()].clone());
        cells.extend(COLUMNS.iter().map(|(_, name)| optional(record.number(name))));
        table.line(cells);
    }
    let values = if args.fixed_baseline { "with nothing varied" } else { "at the same values" };
    format!(
        "\nCoflow completion times in seconds | speedups over `{baseline}` {values}, coflow by coflow.\n\
         /bound: mean divided by the lower bound of the mean.\n\n{table}"
    )
}
