//! `weir sweep`.

use std::fmt::Write as _;
use std::str::FromStr;

use weir_core::model::Workload;
use weir_core::policy::{self, ParamsError};
use weir_core::wide_area;
use weir_sim::{Options, Outcome};

use crate::args::{self, Format};
use crate::behind::Short;
use crate::compare::{caption, check_distinct, options, traced};
use crate::input::Source;
use crate::measure::{Baseline, Setting};
use crate::wide::Wide;
use weir_console::failure::Failure;
use weir_console::output::Sink;
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::run::{self, Task};
use weir_console::spec;
use weir_console::table::{Align, Table, optional};

/// A parameter and the values to try: `start=1MB,10MB`.
#[derive(Debug, Clone)]
pub struct Vary {
    /// `interval`, `arrival`, `port-rate`, `bandwidth-seed`, or a parameter of a policy.
    key: String,
    values: Vec<String>,
}

impl FromStr for Vary {
    type Err = String;

    fn from_str(text: &str) -> Result<Vary, String> {
        let (key, values) = text.split_once('=').ok_or("expected KEY=V1,V2,...")?;
        let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        let key = key.trim().to_owned();
        if key.is_empty() || values.iter().any(String::is_empty) {
            return Err("expected KEY=V1,V2,... without empty parts".to_owned());
        }
        if let Some(value) = args::repeated(&values) {
            return Err(format!("`{value}` is there twice: expected each value once"));
        }
        let known = ["policy", "baseline", "trace", "coflows", "flows"];
        if known.contains(&key.as_str()) {
            return Err(format!("`{key}` is no parameter"));
        }
        Ok(Vary { key, values })
    }
}

/// One combination of values.
#[derive(Clone)]
struct Point {
    /// As they were given, by the place of the key.
    values: Vec<String>,
    options: Options,
    /// What the bandwidth of a wide area is drawn by.
    seed: u64,
    /// Position among the workloads: one for each speed-up of arrivals.
    workload: usize,
    /// Parameters for policies that have them.
    params: Vec<(String, String)>,
}

/// A policy at a point, to be replayed.
struct Spot<'a> {
    policy: String,
    point: &'a Point,
}

impl Spot<'_> {
    /// Whether the outcome is the same.
    fn is_like(&self, policy: &str, point: &Point) -> bool {
        let same = |a: &Options, b: &Options| a.port_rate == b.port_rate && a.interval == b.interval;
        self.policy == policy
            && (self.point.workload, self.point.seed) == (point.workload, point.seed)
            && same(&self.point.options, &point.options)
    }
}

/// Where a policy at a point is among what is replayed; it is put there if nothing like it is.
fn place_in<'a>(spots: &mut Vec<Spot<'a>>, policy: &str, point: &'a Point) -> usize {
    spots.iter().position(|spot| spot.is_like(policy, point)).unwrap_or_else(|| {
        spots.push(Spot { policy: policy.to_owned(), point });
        spots.len() - 1
    })
}

/// Runs `weir sweep`.
///
/// # Errors
/// Whatever ends it early.
pub fn sweep(args: &args::Sweep) -> Result<(), Failure> {
    check_keys(&args.vary)?;
    let (policies, place) = args::with_baseline(&args.policies, args.baseline.as_ref())?;
    let over = match (&args.wide.wide_area, &args.behind.fabric) {
        (Some(_), _) => Over::WideArea,
        (None, Some(_)) => Over::Fabric,
        (None, None) => Over::Switch,
    };
    let (mut points, speeds) = points(args, over)?;
    let mut as_it_is = start(args);
    let plans = points
        .iter()
        .map(|point| policies.iter().map(|policy| with_params(policy, &point.params, over)).collect())
        .collect::<Result<Vec<Vec<Spec>>, Failure>>()?;
    check_taken(&points, &plans, &policies, over)?;
    let out = [("--out", args.output.out.as_deref())];
    let asked: Vec<&String> = policies.iter().collect();
    check_distinct(&args.input, (&args.wide, &args.behind), &asked, &out)?;
    let sink = Sink::new(args.output.out.as_deref())?;

    let mut source = Source::read(&args.input, false)?;
    let wide = Wide::read(&args.wide)?;
    let short = Short::read(&args.behind)?;
    for point in points.iter_mut().chain([&mut as_it_is]) {
        short.iter().for_each(|short| short.apply(&mut point.options));
    }
    // Coflows come faster, and what comes is merged: stages begin sooner then too.
    let sped = speeds.iter().map(|&factor| {
        let sped = source.workload.sped_up(factor);
        if args.replay.per_stage { source.per_stage(&sped) } else { Ok(sped) }
    });
    let sped: Vec<Workload> = sped.collect::<Result<_, Failure>>()?;
    if args.replay.per_stage {
        source.workload = sped[0].clone();
    }

    // A policy that a parameter does not touch is replayed once for all its values.
    let mut spots: Vec<Spot<'_>> = Vec::new();
    let mut places = Vec::new();
    for (point, plan) in points.iter().zip(&plans) {
        let mut row = Vec::new();
        for Spec { text, .. } in plan {
            row.push(place_in(&mut spots, text, point));
        }
        places.push(row);
    }
    let fixed = args.fixed_baseline.then(|| place_in(&mut spots, &policies[place], &as_it_is));
    let outcomes = replayed(&spots, &sped, wide.as_ref(), args)?;

    let mut records = Vec::new();
    for (point, row) in points.iter().zip(&places) {
        let (workload, timing) = (&sped[point.workload], !args.no_timing);
        let setting = match &wide {
            Some(wide) => Setting::wide(&source, workload, &wide.with_seed(point.seed), timing),
            None => Setting::new(&source, workload, &point.options, short.as_ref(), timing),
        };
        let base = fixed.unwrap_or(row[place]);
        let baseline = Baseline::new(&spots[base].policy, &outcomes[base]);
        for &at in row {
            let mut r = Record::default();
            for (vary, value) in args.vary.iter().zip(&point.values) {
                r.add_named(format!("vary_{}", vary.key), value.clone());
            }
            r.append(setting.record(&spots[at].policy, &outcomes[at], Some(&baseline))?);
            if fixed.is_some() {
                r.add("fixed_baseline", true);
            }
            records.push(r);
        }
    }
    let text = match args.output.format {
        Format::Json => record::json(&records).into_bytes(),
        Format::Csv => record::csv(&records),
        Format::Table => {
            let mut text = match &wide {
                Some(wide) => format!("{}{}", traced(&source), wide.caption()),
                None => {
                    let varied = |key| args.vary.iter().any(|vary| vary.key == key);
                    let port_rate = Some(args.replay.port_rate).filter(|_| !varied("port-rate"));
                    let interval = Some(args.replay.interval).filter(|_| !varied("interval"));
                    caption(&source, port_rate, interval, short.as_ref())
                }
            };
            table(args, &policies, place, &points, &records, &mut text);
            text.into_bytes()
        }
    };
    sink.fill(&text)
}

/// Replays all of them.
fn replayed(
    spots: &[Spot<'_>],
    sped: &[Workload],
    wide: Option<&Wide>,
    args: &args::Sweep,
) -> Result<Vec<Outcome>, Failure> {
    let progress = Progress::new(args.running.quiet);
    if let Some(wide) = wide {
        return run::pool(spots.len(), args.running.jobs, |at| {
            let Spot { policy, point } = &spots[at];
            wide.with_seed(point.seed).replay(&sped[point.workload], policy, false, &progress)
        });
    }
    let task = |Spot { policy, point }: &Spot<'_>| Task {
        policy: policy.clone(),
        workload: &sped[point.workload],
        options: point.options.clone(),
    };
    let tasks: Vec<Task<'_>> = spots.iter().map(task).collect();
    run::run(&tasks, args.running.jobs, &progress, |_, outcome| outcome)
}

/// What is replayed over, which has policies and parameters of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Switch,
    Fabric,
    WideArea,
}

impl Over {
    /// What may be varied besides parameters of policies.
    fn keys(self) -> &'static str {
        match self {
            Over::Switch => "interval, arrival, port-rate",
            Over::Fabric => "interval, arrival",
            Over::WideArea => "arrival, bandwidth-seed",
        }
    }

    /// Whether there is such a policy.
    fn check(self, policy: &str) -> Result<(), ParamsError> {
        match self {
            Over::Switch | Over::Fabric => policy::build(policy).map(drop),
            Over::WideArea => wide_area::build(policy).map(drop),
        }
    }
}

fn check_keys(vary: &[Vary]) -> Result<(), Failure> {
    if vary.len() > 2 {
        return Err(Failure::input("--vary: expected one or two parameters to vary"));
    }
    if vary.len() == 2 && vary[0].key == vary[1].key {
        return Err(Failure::input(format_args!("--vary: `{}` is given twice", vary[0].key)));
    }
    Ok(())
}

/// Where nothing is varied.
fn start(args: &args::Sweep) -> Point {
    let (options, seed) = (options(&args.replay, false), args.wide.bandwidth_seed);
    Point { values: Vec::new(), options, seed, workload: 0, params: Vec::new() }
}

/// All combinations of values, and the speed-ups of arrivals in them; the first is that where nothing is varied.
fn points(args: &args::Sweep, over: Over) -> Result<(Vec<Point>, Vec<f64>), Failure> {
    let mut speeds = vec![1.0];
    let mut points = vec![start(args)];
    for Vary { key, values } in &args.vary {
        let elsewhere = match over {
            Over::Switch => &["bandwidth-seed"][..],
            Over::Fabric => &["bandwidth-seed", "port-rate"],
            Over::WideArea => &["interval", "port-rate"],
        };
        if elsewhere.contains(&key.as_str()) {
            return Err(Failure::input(format_args!(
                "--vary: `{key}` is nothing that this network has: expected {}, or a parameter of a policy",
                over.keys()
            )));
        }
        let mut more = Vec::new();
        for point in &points {
            for value in values {
                let mut point = point.clone();
                let wrong = |why: String| Failure::input(format_args!("--vary: `{key}`: `{value}`: {why}"));
                point.values.push(value.clone());
                match key.as_str() {
                    "interval" => point.options.interval = args::interval(value).map_err(wrong)?,
                    "port-rate" => point.options.port_rate = args::port_rate(value).map_err(wrong)?,
                    "bandwidth-seed" => {
                        let seed = value.parse().ok();
                        point.seed = seed.ok_or_else(|| wrong("expected a whole number".to_owned()))?;
                    }
                    "arrival" => {
                        let factor = value
                            .parse()
                            .ok()
                            .filter(|f: &f64| (1e-6..=1e6).contains(f))
                            .ok_or_else(|| wrong("expected a factor from 1e-6 to 1e6".to_owned()))?;
                        let known = speeds.iter().position(|&speed| speed == factor);
                        point.workload = known.unwrap_or_else(|| {
                            speeds.push(factor);
                            speeds.len() - 1
                        });
                    }
                    _ => point.params.push((key.clone(), value.clone())),
                }
                more.push(point);
            }
        }
        points = more;
    }
    Ok((points, speeds))
}

/// A policy at a point.
struct Spec {
    text: String,
    /// Which parameters of the point it has.
    takes: Vec<bool>,
}

/// A policy with those of the parameters that it has.
fn with_params(policy: &str, params: &[(String, String)], over: Over) -> Result<Spec, Failure> {
    let mut text = policy.to_owned();
    let mut takes = Vec::new();
    for (key, value) in params {
        if policy.starts_with(spec::TREE) {
            takes.push(false);
            continue;
        }
        let longer = format!("{text}:{key}={value}");
        match over.check(&longer) {
            Ok(()) => text = longer,
            Err(ParamsError::UnknownKey { .. }) => {
                takes.push(false);
                continue;
            }
            Err(error) => return Err(Failure::input(format_args!("--vary: {error}"))),
        }
        takes.push(true);
    }
    Ok(Spec { text, takes })
}

/// Refuses a parameter that no policy has.
fn check_taken(
    points: &[Point],
    plans: &[Vec<Spec>],
    policies: &[String],
    over: Over,
) -> Result<(), Failure> {
    let (Some(point), Some(plan)) = (points.first(), plans.first()) else { return Ok(()) };
    for (place, (key, _)) in point.params.iter().enumerate() {
        if !plan.iter().any(|spec| spec.takes[place]) {
            return Err(Failure::input(format_args!(
                "--vary: none of {} has a parameter `{key}`: expected {}, or one of those that `weir policies NAME` lists",
                policies.join(", "),
                over.keys()
            )));
        }
    }
    Ok(())
}

fn table(
    args: &args::Sweep,
    policies: &[String],
    place: usize,
    points: &[Point],
    records: &[Record],
    out: &mut String,
) {
    use Align::{Left, Right};
    writeln!(
        out,
        "\nCoflow completion times (s), and speed-ups over {} {}, coflow by coflow:\n",
        policies[place],
        if args.fixed_baseline { "with nothing varied" } else { "at the same values" },
    )
    .expect("memory takes all");
    let mut columns: Vec<(&str, Align)> = args.vary.iter().map(|vary| (vary.key.as_str(), Right)).collect();
    columns.push(("policy", Left));
    let names = [
        ("mean", "mean_cct_s"),
        ("P50", "p50_cct_s"),
        ("P90", "p90_cct_s"),
        ("/bound", "over_bound"),
        ("| P10", "speedup_p10"),
        ("P50", "speedup_p50"),
        ("P90", "speedup_p90"),
        ("mean", "speedup_mean"),
        ("| sched. us", "schedule_mean_us"),
    ];
    columns.extend(names.iter().map(|(title, _)| (*title, Right)));
    let mut table = Table::new(&columns);
    for (at, record) in records.iter().enumerate() {
        let mut cells = points[at / policies.len()].values.clone();
        cells.push(policies[at % policies.len()].clone());
        cells.extend(names.iter().map(|(_, key)| optional(record.number(key))));
        table.line(cells);
    }
    table.print(out);
}
