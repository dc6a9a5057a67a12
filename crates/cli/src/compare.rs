//! `weir sim` and `weir compare`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use weir_core::solve::Levels;
use weir_core::units::{Rate, Time};
use weir_sim::{Options, Outcome};

use crate::args::{self, Format};
use crate::behind::Short;
use crate::input::Source;
use crate::measure::{Baseline, Setting};
use crate::wide::{self, Wide};
use weir_console::failure::Failure;
use weir_console::output::{self, Pending, Sink};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::run::{self, Task};
use weir_console::spec;
use weir_console::table::{Align, Table, bytes, count, number, optional, percent, seconds};

/// How a replay is to go.
pub fn options(replay: &args::Replay, keep_flows: bool) -> Options {
    Options { port_rate: replay.port_rate, interval: replay.interval, keep_flows, behind: None }
}

/// Refuses outputs that would overwrite each other, or what a replay reads.
///
/// # Errors
/// The first pair of names for one file.
pub fn check_distinct(
    input: &args::Input,
    (wide, behind): (&args::Wide, &args::Behind),
    policies: &[&String],
    outputs: &[(&str, Option<&Path>)],
) -> Result<(), Failure> {
    output::check_distinct(&input.trace, outputs)?;
    let read = wide.wide_area.iter().chain(&behind.incast).chain(&behind.fabric).map(PathBuf::as_path);
    let trees = policies.iter().filter_map(|policy| spec::tree(policy)).map(Path::new);
    read.chain(trees).try_for_each(|file| output::check_distinct(file, outputs))
}

/// The outputs of a command, begun before its work.
struct Outputs {
    result: Sink,
    per_coflow: Option<Pending>,
    per_flow: Option<Pending>,
}

impl Outputs {
    fn begin(
        input: &args::Input,
        output: &args::Output,
        details: &args::Details,
        short: (&args::Wide, &args::Behind),
        policies: &[&String],
    ) -> Result<Outputs, Failure> {
        let (result, coflows, flows) =
            (output.out.as_deref(), details.per_coflow.as_deref(), details.per_flow.as_deref());
        let named = [("--out", result), ("--per-coflow", coflows), ("--per-flow", flows)];
        check_distinct(input, short, policies, &named)?;
        let begin = |path: Option<&Path>| path.map(Pending::begin).transpose();
        Ok(Outputs { result: Sink::new(result)?, per_coflow: begin(coflows)?, per_flow: begin(flows)? })
    }

    /// Writes all of them; files get their names only once all of them are complete.
    fn finish(
        self,
        text: &[u8],
        source: &Source,
        policies: &[String],
        outcomes: &[Outcome],
    ) -> Result<(), Failure> {
        let mut files = Vec::new();
        // Who reads the standard output may have seen enough; the files are written all the same.
        let mut seen_enough = None;
        for (file, fill) in [(self.per_coflow, coflow_lines as Fill), (self.per_flow, flow_lines as Fill)] {
            let Some(mut file) = file else { continue };
            if let Err(error) = fill(&mut file, source, policies, outcomes) {
                let error = match error.into_kind() {
                    csv::ErrorKind::Io(error) => error,
                    other => io::Error::other(format!("{other:?}")),
                };
                let failure = file.failure(&error);
                if failure.code > 0 {
                    return Err(failure);
                }
                seen_enough = Some(failure);
                continue;
            }
            files.push(file);
        }
        if let Sink::File(mut file) = self.result {
            if let Err(error) = file.write_all(text) {
                return Err(file.failure(&error));
            }
            files.push(file);
            files.into_iter().try_for_each(Pending::finish)?;
            return seen_enough.map_or(Ok(()), Err);
        }
        files.into_iter().try_for_each(Pending::finish)?;
        seen_enough.map_or_else(|| Sink::Stdout.fill(text), Err)
    }
}

type Fill = fn(&mut Pending, &Source, &[String], &[Outcome]) -> csv::Result<()>;

fn coflow_lines(out: &mut Pending, _: &Source, policies: &[String], outcomes: &[Outcome]) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "coflow", "arrival_s", "width", "bytes", "cct_s"])?;
    for (policy, outcome) in policies.iter().zip(outcomes) {
        for c in &outcome.coflows {
            csv.serialize((policy, c.id, c.arrival, c.width, c.bytes, c.cct()))?;
        }
    }
    Ok(csv.flush()?)
}

fn flow_lines(
    out: &mut Pending,
    source: &Source,
    policies: &[String],
    outcomes: &[Outcome],
) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "coflow", "flow", "src", "dst", "bytes", "fct_s"])?;
    for (policy, outcome) in policies.iter().zip(outcomes) {
        for c in &outcome.coflows {
            let flows = &source.workload.coflows[c.index].flows;
            for (number, (flow, end)) in flows.iter().zip(&c.flow_ends).enumerate() {
                let fct = end - c.arrival;
                csv.serialize((policy, c.id, number, flow.src, flow.dst, flow.bytes.get(), fct))?;
            }
        }
    }
    Ok(csv.flush()?)
}

/// Runs `weir sim`.
///
/// # Errors
/// Whatever ends it early.
pub fn sim(args: &args::Sim) -> Result<(), Failure> {
    let short = (&args.wide, &args.behind);
    let outputs = Outputs::begin(&args.input, &args.output, &args.details, short, &[&args.policy])?;
    let source = Source::read(&args.input, args.replay.per_stage)?;
    let policies = vec![args.policy.clone()];
    let network = Network::new(&args.replay, &args.wide, &args.behind, &args.details)?;
    let outcomes = network.run(&source, &policies, 1, &Progress::new(args.running.quiet))?;

    let setting = network.setting(&source, &args.details);
    let record = setting.record(&args.policy, &outcomes[0], None)?;
    let text = match args.output.format {
        Format::Json => record::json(&record).into_bytes(),
        Format::Csv => record::csv(&[record]),
        Format::Table => {
            let mut text = network.caption(&source);
            text.push('\n');
            details(&record, &mut text);
            text.into_bytes()
        }
    };
    outputs.finish(&text, &source, &policies, &outcomes)
}

/// Runs `weir compare`.
///
/// # Errors
/// Whatever ends it early.
pub fn compare(args: &args::Compare) -> Result<(), Failure> {
    let asked: Vec<&String> = args.policies.iter().chain(&args.baseline).collect();
    let short = (&args.wide, &args.behind);
    let outputs = Outputs::begin(&args.input, &args.output, &args.details, short, &asked)?;
    let source = Source::read(&args.input, args.replay.per_stage)?;
    let network = Network::new(&args.replay, &args.wide, &args.behind, &args.details)?;
    let listed = if args.policies.is_empty() { network.all(&source) } else { args.policies.clone() };
    let (policies, place) = args::with_baseline(&listed, args.baseline.as_ref())?;
    let outcomes = network.run(&source, &policies, args.running.jobs, &Progress::new(args.running.quiet))?;

    let setting = network.setting(&source, &args.details);
    let baseline = Baseline::new(&policies[place], &outcomes[place]);
    let records = policies
        .iter()
        .zip(&outcomes)
        .map(|(policy, outcome)| setting.record(policy, outcome, Some(&baseline)))
        .collect::<Result<Vec<Record>, Failure>>()?;
    let text = match args.output.format {
        Format::Json => record::json(&records).into_bytes(),
        Format::Csv => record::csv(&records),
        Format::Table => {
            let mut text = network.caption(&source);
            if let Some(bound) = setting.least_mean() {
                writeln!(text, "No schedule has a mean CCT below {}.", seconds(bound))
                    .expect("memory takes all");
            }
            tables(&records, &policies[place], &mut text);
            text.into_bytes()
        }
    };
    outputs.finish(&text, &source, &policies, &outcomes)
}

/// What a trace is replayed over.
enum Network {
    Switch(Options, Option<Short>),
    Wide(Wide, bool),
}

impl Network {
    fn new(
        replay: &args::Replay,
        wide: &args::Wide,
        behind: &args::Behind,
        details: &args::Details,
    ) -> Result<Network, Failure> {
        let keep_flows = details.per_flow.is_some();
        if let Some(wide) = Wide::read(wide)? {
            return Ok(Network::Wide(wide, keep_flows));
        }
        let (mut options, short) = (options(replay, keep_flows), Short::read(behind)?);
        short.iter().for_each(|short| short.apply(&mut options));
        Ok(Network::Switch(options, short))
    }

    /// The policies to compare if none are named.
    fn all(&self, source: &Source) -> Vec<String> {
        match self {
            Network::Switch(_, short) => {
                let mut all = spec::all(&source.workload.names);
                all.retain(|name| short.as_ref().is_none_or(|short| short.takes(name)));
                let ports = source.workload.ports as usize;
                all.retain(|name| name != "fair" || short.is_some() || ports <= Levels::MAX_PORTS);
                all
            }
            Network::Wide(..) => wide::all(),
        }
    }

    fn run(
        &self,
        source: &Source,
        policies: &[String],
        jobs: usize,
        progress: &Progress,
    ) -> Result<Vec<Outcome>, Failure> {
        let workload = &source.workload;
        match self {
            Network::Switch(options, _) => {
                let task =
                    |policy: &String| Task { policy: policy.clone(), workload, options: options.clone() };
                let tasks: Vec<Task<'_>> = policies.iter().map(task).collect();
                run::run(&tasks, jobs, progress, |_, outcome| outcome)
            }
            Network::Wide(wide, keep_flows) => wide.run(workload, policies, *keep_flows, jobs, progress),
        }
    }

    fn setting(&self, source: &Source, details: &args::Details) -> Setting {
        let timing = !details.no_timing;
        match self {
            Network::Switch(options, short) => {
                Setting::new(source, &source.workload, options, short.as_ref(), timing)
            }
            Network::Wide(wide, _) => Setting::wide(source, &source.workload, wide, timing),
        }
    }

    fn caption(&self, source: &Source) -> String {
        match self {
            Network::Switch(options, short) => {
                caption(source, Some(options.port_rate), Some(options.interval), short.as_ref())
            }
            Network::Wide(wide, _) => format!("{}{}", traced(source), wide.caption()),
        }
    }
}

/// What was replayed and how, for people. What is `None` is varied.
pub fn caption(
    source: &Source,
    port_rate: Option<Rate>,
    interval: Option<Time>,
    short: Option<&Short>,
) -> String {
    let schedules = match interval {
        None => "a schedule every `interval`".to_owned(),
        Some(Time::ZERO) => "a schedule whenever something happens".to_owned(),
        Some(interval) => format!("a schedule every {interval}"),
    };
    let port_rate = port_rate.map(|port_rate| short.map_or(port_rate, |short| short.port_rate(port_rate)));
    let short = short.map_or(String::new(), |short| match port_rate {
        Some(port_rate) => short.caption(port_rate),
        None => format!("{}.\n", short.name()),
    });
    let port_rate = port_rate.map_or("`port-rate`".to_owned(), |port_rate| port_rate.to_string());
    format!("{}Ports of {port_rate}, {schedules}.\n{short}", traced(source))
}

/// What was replayed.
pub fn traced(source: &Source) -> String {
    let workload = &source.workload;
    let total: f64 = workload.coflows.iter().map(|c| c.bytes()).sum();
    format!(
        "{}: {}, {}, {} on {} ({})\n",
        source.name,
        count(workload.coflows.len(), "coflow"),
        count(workload.flows(), "flow"),
        bytes(total),
        count(workload.ports, "port"),
        source.understood(),
    )
}

fn text_of(record: &Record, name: &str) -> String {
    record.get(name).and_then(|v| v.as_str()).unwrap_or_default().to_owned()
}

fn numbers(record: &Record, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| optional(record.number(name))).collect()
}

fn whole(record: &Record, name: &str) -> String {
    record.get(name).map_or_else(|| "-".to_owned(), ToString::to_string)
}

fn share(record: &Record, name: &str) -> String {
    record.number(name).map_or_else(|| "-".to_owned(), percent)
}

/// The policies side by side: what they are worth, then how they did it.
fn tables(records: &[Record], baseline: &str, out: &mut String) {
    use Align::{Left, Right};
    writeln!(out, "\nCoflow completion times (s), and speed-ups over {baseline}, coflow by coflow:\n")
        .expect("memory takes all");
    let mut table = Table::new(&[
        ("policy", Left),
        ("mean", Right),
        ("P50", Right),
        ("P90", Right),
        ("P95", Right),
        ("P99", Right),
        ("makespan", Right),
        ("/bound", Right),
        ("| P10", Right),
        ("P50", Right),
        ("P90", Right),
        ("mean", Right),
    ]);
    for r in records {
        let mut cells = vec![text_of(r, "policy")];
        cells.extend(numbers(
            r,
            &["mean_cct_s", "p50_cct_s", "p90_cct_s", "p95_cct_s", "p99_cct_s", "makespan_s", "over_bound"],
        ));
        cells.extend(numbers(r, &["speedup_p10", "speedup_p50", "speedup_p90", "speedup_mean"]));
        table.line(cells);
    }
    table.print(out);

    out.push_str("\nHow far out of sync the flows of a coflow end (standard deviation over mean), how busy ports are, and what\nscheduling takes:\n\n");
    let mut columns = vec![
        ("policy", Left),
        ("out of sync P50", Right),
        ("P90", Right),
        ("ports busy", Right),
        ("most", Right),
        ("schedules", Right),
        ("mean us", Right),
        ("P90", Right),
        ("P99", Right),
        ("replay s", Right),
    ];
    let deadlines = records.iter().any(|r| r.get("deadlines").is_some());
    let jobs = records.iter().any(|r| r.get("mean_jct_s").is_some());
    if deadlines {
        columns.push(("in time", Right));
    }
    if jobs {
        columns.push(("mean JCT s", Right));
    }
    let mut table = Table::new(&columns);
    for r in records {
        let mut cells = vec![text_of(r, "policy")];
        for name in ["out_of_sync_p50", "out_of_sync_p90", "utilisation_mean", "utilisation_max"] {
            cells.push(share(r, name));
        }
        cells.push(whole(r, "schedules"));
        cells.extend(numbers(r, &["schedule_mean_us", "schedule_p90_us", "schedule_p99_us", "wall_s"]));
        if deadlines {
            cells.push(format!("{}/{}", whole(r, "deadlines_met"), whole(r, "deadlines")));
        }
        if jobs {
            cells.extend(numbers(r, &["mean_jct_s"]));
        }
        table.line(cells);
    }
    table.print(out);
}

/// One policy, line by line.
fn details(r: &Record, out: &mut String) {
    let cct = |name| r.number(name).map_or_else(|| "-".to_owned(), seconds);
    let us = |name| r.number(name).map_or_else(|| "-".to_owned(), |us| format!("{} us", number(us)));
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    let mut line = |name: &str, value: String| table.line(vec![name.to_owned(), value]);
    line("policy", text_of(r, "policy"));
    line("mean CCT", cct("mean_cct_s"));
    if let Some(over) = r.number("over_bound") {
        let bound = cct("lower_bound_mean_cct_s");
        line("", format!("{} times {bound}, which no schedule beats", number(over)));
    }
    for (name, key) in
        [("P50", "p50_cct_s"), ("P90", "p90_cct_s"), ("P95", "p95_cct_s"), ("P99", "p99_cct_s")]
    {
        line(&format!("{name} CCT"), cct(key));
    }
    line("makespan", cct("makespan_s"));
    line("out of sync", format!("P50 {}, P90 {}", share(r, "out_of_sync_p50"), share(r, "out_of_sync_p90")));
    line(
        "ports busy",
        format!("{} on average, the most {}", share(r, "utilisation_mean"), share(r, "utilisation_max")),
    );
    if r.get("deadlines").is_some() {
        line("in time", format!("{} of {} with deadlines", whole(r, "deadlines_met"), whole(r, "deadlines")));
    }
    if r.get("mean_jct_s").is_some() {
        line("mean JCT", cct("mean_jct_s"));
    }
    line("schedules", whole(r, "schedules"));
    if r.number("schedule_mean_us").is_some() {
        let (mean, p90, p99) = (us("schedule_mean_us"), us("schedule_p90_us"), us("schedule_p99_us"));
        line("", format!("mean {mean}, P90 {p90}, P99 {p99}"));
        line("replay took", cct("wall_s"));
    }
    table.print(out);
}
