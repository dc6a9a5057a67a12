//! Prints the tables of `docs/results/bench.md`; `make bench` runs this program.
//!
//! Every replay runs in a separate process, so that peak memory is per replay. Systems without `/proc` have no
//! peak memory.

#[path = "../../core/benches/two_tier/mod.rs"]
mod two_tier;

mod fabrics;
mod naive;
mod orders;
mod simgrid;

use std::error::Error;
use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use two_tier::Instance;
use weir_core::model::{CoflowSpec, FlowSpec, Workload};
use weir_core::policy::{self, POLICIES};
use weir_core::solve::{FlowClass, max_min};
use weir_core::units::{Bytes, Time};
use weir_sim::outcome::{mean, percentile};
use weir_sim::thread_clock::thread_cpu_time;
use weir_sim::{NoObserver, Observer, ReplayOptions, Snapshot, replay};
use weir_trace::generate::{Preset, generate};
use weir_trace::{Limits, TraceOptions, TraceUnit};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The policies of the growth tables: one per kind of computation.
const GROWTH_POLICIES: [&str; 6] = ["saath", "aalo", "fair", "varys", "sincronia", "pfp"];

/// Number of coflows of the replays with growing numbers of hosts.
const HOSTS_COFLOWS: usize = 200;

/// Runs that take more seconds than this are not repeated.
const MAX_REPEATED_SECONDS: f64 = 2.0;

/// Time limit of a replay, including repeats and reading.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(120);

/// The seed of the generated trace.
const SEED: u64 = 1;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["replay", axis, times, policy, repeats] => {
            let workload =
                GrowthDimension::parse(axis)?.scale_workload(read_or_generate_workload()?, times.parse()?);
            println!(
                "{}",
                ReplayMeasurement::measure_in_process(
                    &workload,
                    policy,
                    &ReplayOptions::default(),
                    repeats.parse()?
                )?
                .print()
            );
            Ok(())
        }
        ["fat-tree", network, policy] => {
            println!("{}", fabrics::measure_on_hosts_of_fat_tree(network, policy)?.print());
            Ok(())
        }
        [..] => print_tables(&args),
    }
}

// Input.

/// Path of the public trace, if it exists: from `WEIR_FB_TRACE`, in `data/` here, or in a sibling directory.
fn find_public_trace() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("WEIR_FB_TRACE") {
        return Some(path.into());
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut directories = vec![repository.clone()];
    let siblings = repository.join("..").read_dir().into_iter().flatten().flatten();
    directories.extend(siblings.map(|entry| entry.path()));
    directories.sort();
    directories.iter().map(|place| place.join("data/FB2010-1Hr-150-0.txt")).find(|path| path.is_file())
}

fn read_or_generate_workload() -> Result<Workload> {
    let limits = Limits { max_flows: 100_000_000, ..Limits::default() };
    match find_public_trace() {
        Some(path) => {
            Ok(weir_trace::read(&path, &TraceOptions { limits, ..TraceOptions::default() })?.workload)
        }
        None => Ok(generate(&Preset::Facebook.spec(SEED), TraceUnit::MB, &limits)?),
    }
}

/// The dimension of the workload that grows.
#[derive(Debug, Clone, Copy)]
enum GrowthDimension {
    /// The trace `times` times in sequence.
    TraceLength,
    /// The trace `times` times concurrently, each time on other ports.
    Concurrency,
    /// Each mapper split into `times` tasks with equal parts of its bytes.
    FlowsPerCoflow,
    /// Each port split into `times` ports, and arrivals `times` times as fast: the load of ports is
    /// unchanged.
    PortCount,
}

impl GrowthDimension {
    const ALL: [GrowthDimension; 4] = [
        GrowthDimension::TraceLength,
        GrowthDimension::Concurrency,
        GrowthDimension::FlowsPerCoflow,
        GrowthDimension::PortCount,
    ];

    fn name(self) -> &'static str {
        match self {
            GrowthDimension::TraceLength => "coflows, one hour after the other",
            GrowthDimension::Concurrency => "coflows, in the same hour",
            GrowthDimension::FlowsPerCoflow => "flows of every coflow",
            GrowthDimension::PortCount => "ports, with the same load each",
        }
    }

    fn parse(text: &str) -> Result<GrowthDimension> {
        let found = GrowthDimension::ALL.into_iter().find(|axis| axis.name() == text);
        found.ok_or_else(|| format!("growth dimension {text}: unknown").into())
    }

    fn scale_workload(self, workload: Workload, times: u32) -> Workload {
        if times == 1 {
            return workload;
        }
        let ports = workload.ports;
        let coflows = workload.coflows.iter();
        let copies = |change: &dyn Fn(&CoflowSpec, u32) -> CoflowSpec| -> Vec<CoflowSpec> {
            let all = (0..times).flat_map(|copy| coflows.clone().map(move |coflow| change(coflow, copy)));
            let numbered = all.enumerate().map(|(index, coflow)| CoflowSpec { id: index as u64, ..coflow });
            numbered.collect()
        };
        let last = workload.coflows.iter().map(|c| c.arrival.get()).fold(0.0, f64::max);
        match self {
            GrowthDimension::TraceLength => Workload {
                coflows: copies(&|coflow, copy| {
                    let arrival = coflow.arrival.get() + f64::from(copy) * last;
                    CoflowSpec { arrival: time(arrival), ..coflow.clone() }
                }),
                ..workload
            },
            GrowthDimension::Concurrency => {
                let mut coflows = copies(&|coflow, copy| {
                    let shifted = |port: u32| (port + copy * (ports / times)) % ports;
                    with_flows(coflow, |f| vec![FlowSpec { src: shifted(f.src), dst: shifted(f.dst), ..*f }])
                });
                coflows.sort_by(|a, b| a.arrival.get().total_cmp(&b.arrival.get()));
                Workload { coflows, ..workload }
            }
            GrowthDimension::FlowsPerCoflow => Workload {
                coflows: coflows
                    .map(|coflow| {
                        with_flows(coflow, |f| {
                            let bytes = bytes(f.bytes.get() / f64::from(times));
                            vec![FlowSpec { bytes, ..*f }; times as usize]
                        })
                    })
                    .collect(),
                ..workload
            },
            GrowthDimension::PortCount => {
                let subport = |coflow: &CoflowSpec, port: u32| {
                    let hash = (coflow.id.wrapping_mul(31).wrapping_add(port.into()))
                        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    port * times + (hash >> 33) as u32 % times
                };
                let coflows = coflows
                    .map(|coflow| {
                        with_flows(coflow, |f| {
                            vec![FlowSpec { src: subport(coflow, f.src), dst: subport(coflow, f.dst), ..*f }]
                        })
                    })
                    .collect();
                Workload { coflows, ports: ports * times, ..workload }.with_faster_arrivals(f64::from(times))
            }
        }
    }
}

fn time(seconds: f64) -> Time {
    Time::new(seconds).expect("a sum of times is a time")
}

fn bytes(bytes: f64) -> Bytes {
    Bytes::new(bytes).expect("a part of a size is a size")
}

fn with_flows(coflow: &CoflowSpec, change: impl Fn(&FlowSpec) -> Vec<FlowSpec>) -> CoflowSpec {
    CoflowSpec { flows: coflow.flows.iter().flat_map(change).collect(), ..coflow.clone() }
}

// Measurements.

/// Results of one replay process.
struct ReplayMeasurement {
    /// The fastest of the repeats.
    seconds: f64,
    schedules: usize,
    mean_us: f64,
    p99_us: f64,
    /// Peak memory in kilobytes, and that before the replays.
    peak_kb: Option<u64>,
    workload_kb: Option<u64>,
    max_live_flows: usize,
}

/// Counts live flows.
#[derive(Default)]
struct LiveFlowCounter {
    max: usize,
}

impl Observer for LiveFlowCounter {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let live = snapshot.active().iter().map(|&slot| snapshot.coflow(slot).live_count()).sum();
        self.max = self.max.max(live);
        true
    }
}

impl ReplayMeasurement {
    fn measure_in_process(
        workload: &Workload,
        policy: &str,
        options: &ReplayOptions,
        repeats: usize,
    ) -> Result<ReplayMeasurement> {
        let mut best: Option<ReplayMeasurement> = None;
        let workload_kb = peak_memory_kb();
        for _ in 0..repeats {
            if best.as_ref().is_some_and(|best| best.seconds > MAX_REPEATED_SECONDS) {
                break;
            }
            let policy = policy::build(policy)?;
            let mut live_flows = LiveFlowCounter::default();
            let clock = CpuClock::start();
            let outcome = replay(workload, policy, options, &mut live_flows)?;
            let seconds = clock.seconds();
            let us: Vec<f64> = outcome.schedule_ns.iter().map(|&ns| f64::from(ns) / 1e3).collect();
            if best.as_ref().is_none_or(|best| seconds < best.seconds) {
                best = Some(ReplayMeasurement {
                    seconds,
                    schedules: us.len(),
                    mean_us: mean(&us),
                    p99_us: percentile(&us, 99.0),
                    peak_kb: None,
                    workload_kb,
                    max_live_flows: live_flows.max,
                });
            }
        }
        let mut best = best.ok_or("no replay ran; expected at least one repeat")?;
        best.peak_kb = peak_memory_kb();
        Ok(best)
    }

    /// Peak memory above that before the replays, in bytes for each of the maximum number of live flows.
    fn bytes_per_live_flow(&self) -> Option<f64> {
        let kb = self.peak_kb?.checked_sub(self.workload_kb?)?;
        Some(kb as f64 * 1024.0 / self.max_live_flows as f64)
    }

    fn print(&self) -> String {
        let [peak, workload] =
            [self.peak_kb, self.workload_kb].map(|kb| kb.map_or("-".to_owned(), |kb| kb.to_string()));
        let ReplayMeasurement { seconds, schedules, mean_us, p99_us, max_live_flows, .. } = self;
        format!("{seconds} {schedules} {mean_us} {p99_us} {peak} {workload} {max_live_flows}")
    }

    fn parse(text: &str) -> Result<ReplayMeasurement> {
        let [seconds, schedules, mean_us, p99_us, peak, workload, max_live_flows] =
            text.split_whitespace().collect::<Vec<_>>()[..]
        else {
            return Err(format!("a replay printed `{text}`; expected seven values").into());
        };
        Ok(ReplayMeasurement {
            seconds: seconds.parse()?,
            schedules: schedules.parse()?,
            mean_us: mean_us.parse()?,
            p99_us: p99_us.parse()?,
            peak_kb: peak.parse().ok(),
            workload_kb: workload.parse().ok(),
            max_live_flows: max_live_flows.parse()?,
        })
    }

    /// Measures a replay in a separate process. Returns `None` if it exceeds the time limit.
    fn measure_in_subprocess(
        axis: GrowthDimension,
        times: u32,
        policy: &str,
        repeats: u32,
    ) -> Result<Option<ReplayMeasurement>> {
        eprintln!("{policy}: {} x {times}", axis.name());
        ReplayMeasurement::run(&["replay", axis.name(), &times.to_string(), policy, &repeats.to_string()])
    }

    /// Runs this program with arguments for one measurement. Returns `None` if it exceeds the time limit.
    fn run(args: &[&str]) -> Result<Option<ReplayMeasurement>> {
        let mut program = Command::new(std::env::current_exe()?);
        program.args(args);
        let mut child = program.stdout(Stdio::piped()).spawn()?;
        let started = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if started.elapsed() > REPLAY_TIMEOUT => {
                    child.kill()?;
                    child.wait()?;
                    return Ok(None);
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        if !status.success() {
            return Err(format!("the replay with the arguments {args:?} failed").into());
        }
        let mut output = String::new();
        child.stdout.ok_or("its output was piped")?.read_to_string(&mut output)?;
        ReplayMeasurement::parse(&output).map(Some)
    }
}

/// Peak memory of this process, in kilobytes.
fn peak_memory_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Measures CPU seconds of this thread, which does all the work here. Load from other processes does not
/// count.
struct CpuClock(Duration);

impl CpuClock {
    fn start() -> CpuClock {
        CpuClock(thread_cpu_time())
    }

    fn seconds(&self) -> f64 {
        (thread_cpu_time() - self.0).as_secs_f64()
    }
}

/// The fastest of several runs and the result of the last one. Slow runs are not repeated.
fn fastest<T>(runs: usize, mut run: impl FnMut() -> T) -> (f64, T) {
    let mut timed = || {
        let clock = CpuClock::start();
        let result = run();
        (clock.seconds(), result)
    };
    let (mut best, mut result) = timed();
    for _ in 1..runs {
        if best > MAX_REPEATED_SECONDS {
            break;
        }
        let (seconds, next_result) = timed();
        (best, result) = (best.min(seconds), next_result);
    }
    (best, result)
}

// Tables.

/// A Markdown table with aligned columns.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new(head: &[&str]) -> Table {
        Table(vec![head.iter().map(|&cell| cell.to_owned()).collect()])
    }

    fn line(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    fn print(&self) {
        let width = |column: usize| self.0.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.0[0].len()).map(width).collect();
        for (number, line) in self.0.iter().enumerate() {
            let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
                0 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            });
            println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
            if number == 0 {
                let rules = widths.iter().enumerate().map(|(column, &width)| match column {
                    0 => "-".repeat(width + 2),
                    _ => format!("{}:", "-".repeat(width + 1)),
                });
                println!("|{}|", rules.collect::<Vec<_>>().join("|"));
            }
        }
        println!();
    }
}

/// Formats with three significant digits.
fn format_significant(value: f64) -> String {
    let digits = if value <= 0.0 { 0 } else { (2 - value.log10().floor() as i32).clamp(0, 6) };
    format!("{value:.*}", digits as usize)
}

/// Placeholder for the time of a replay that exceeded the limit.
fn timeout_cell() -> String {
    format!("over {}", REPLAY_TIMEOUT.as_secs())
}

fn megabytes(kilobytes: Option<u64>) -> String {
    kilobytes.map_or("unknown".to_owned(), |kb| format_significant(kb as f64 * 1024.0 / 1e6))
}

fn strings(cells: &[&dyn Display]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

type PrintTable = fn() -> Result<()>;

/// Prints the named tables, or all tables without names.
fn print_tables(names: &[String]) -> Result<()> {
    let printers: [(&str, PrintTable); 8] = [
        ("policies", print_policies),
        ("reference", print_reference),
        ("simgrid", simgrid::print_table),
        ("growth", print_growth),
        ("hosts", print_hosts),
        ("fabrics", fabrics::print_table),
        ("orders", orders::print_table),
        ("solver", print_solver),
    ];
    if let Some(name) = names.iter().find(|name| printers.iter().all(|(other, _)| name != other)) {
        return Err(format!(
            "table {name}: unknown; expected policies, reference, simgrid, growth, hosts, fabrics, orders or solver"
        )
        .into());
    }
    for (name, print) in printers {
        if names.is_empty() || names.iter().any(|other| other == name) {
            print()?;
        }
    }
    Ok(())
}

fn print_policies() -> Result<()> {
    let started = Instant::now();
    let workload = read_or_generate_workload()?;
    let reading = started.elapsed().as_secs_f64();
    let (name, verb) = match find_public_trace() {
        Some(_) => ("The public coflow-benchmark trace".to_owned(), "Reading"),
        None => {
            (format!("A generated trace in place of the public one (`facebook`, seed {SEED})"), "Generating")
        }
    };
    println!("## Replays\n");
    println!(
        "{name}: {} coflows, {} flows, {} ports of 1 Gbit/s, a schedule every 8 ms. \
         Times are processor seconds of the fastest of three runs (of one run if it takes over {MAX_REPEATED_SECONDS} s).",
        workload.coflows.len(),
        workload.flow_count(),
        workload.ports
    );
    println!(
        "{verb} the trace takes {} s more. Peak memory is that of the whole process, with the trace. The last column is the \
         peak memory above that after reading, divided by the maximum number of live flows.\n",
        format_significant(reading)
    );
    drop(workload);
    let mut table = Table::new(&[
        "policy",
        "replay (s)",
        "schedules",
        "schedule mean (us)",
        "schedule P99 (us)",
        "peak memory (MB)",
        "per live flow (B)",
    ]);
    for entry in POLICIES {
        let Some(m) =
            ReplayMeasurement::measure_in_subprocess(GrowthDimension::TraceLength, 1, entry.name, 3)?
        else {
            let unknown = std::iter::repeat_n("-".to_owned(), 5);
            table.line([entry.name.to_owned(), timeout_cell()].into_iter().chain(unknown).collect());
            continue;
        };
        let cells = strings(&[
            &entry.name,
            &format_significant(m.seconds),
            &m.schedules,
            &format_significant(m.mean_us),
            &format_significant(m.p99_us),
        ]);
        let per_flow = m.bytes_per_live_flow().map_or("unknown".to_owned(), format_significant);
        table.line([cells, vec![megabytes(m.peak_kb), per_flow]].concat());
    }
    table.print();
    Ok(())
}

fn print_reference() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let demo = weir_trace::read(&root.join("examples/demo.txt"), &TraceOptions::default())?.workload;
    let mut spec = Preset::Facebook.spec(SEED);
    spec.coflows = 120;
    let part = generate(&spec, TraceUnit::MB, &Limits::default())?;
    println!("## Comparison with per-flow code\n");
    println!(
        "The same replay by code that updates every flow at every event (`crates/sim/benches/naive`), in the same"
    );
    println!(
        "run on the same machine. The last column is the maximum difference between the two in a coflow's"
    );
    println!("completion time, relative to that time.\n");
    let mut table =
        Table::new(&["replay", "flows", "straightforward (s)", "Weir (s)", "ratio", "difference"]);
    let options = ReplayOptions::default();
    let traces = [("examples/demo.txt", &demo), ("120 coflows of `facebook`", &part)];
    for (name, workload) in traces {
        let port_positions = naive::port_positions(workload);
        for rule in [naive::ReferencePolicy::Varys, naive::ReferencePolicy::Fair] {
            eprintln!("per-flow code {}: {name}", rule.name());
            let (reference_seconds, expected) =
                fastest(3, || naive::replay(workload, &port_positions, rule, &options));
            let (weir_seconds, outcome) = fastest(5, || {
                replay(
                    workload,
                    policy::build(rule.name()).expect("the policy exists"),
                    &options,
                    &mut NoObserver,
                )
            });
            let ccts = outcome?.ccts();
            let differences = ccts.iter().zip(&expected).map(|(a, b)| (a - b).abs() / b.max(1e-9));
            table.line(strings(&[
                &format!("`{}`, {name}", rule.name()),
                &workload.flow_count(),
                &format_significant(reference_seconds),
                &format_significant(weir_seconds),
                &format_significant(reference_seconds / weir_seconds),
                &format!("{:.0e}", differences.fold(0.0, f64::max)),
            ]));
        }
    }
    table.print();
    Ok(())
}

fn print_growth() -> Result<()> {
    println!("## Growth\n");
    println!(
        "Processor seconds of replays of the first table's trace. One dimension has one, two and four times its size."
    );
    println!(
        "Times are of the fastest of two runs; a run that takes over {MAX_REPEATED_SECONDS} s is not repeated.\n"
    );
    println!("- Coflows, one hour after the other: the same load for a longer time.");
    println!(
        "- Coflows, in the same hour: copies on other ports, so the load and the backlog are two and four times as high."
    );
    println!(
        "- Flows of every coflow: each mapper is split into two or four tasks on its port, with equal parts of its bytes."
    );
    println!(
        "- Ports, with the same load each: each port is split into two or four, and the arrival rate grows in proportion.\n"
    );
    let cpu_seconds = |axis, times, policy| -> Result<Option<f64>> {
        Ok(ReplayMeasurement::measure_in_subprocess(axis, times, policy, 2)?.map(|measured| measured.seconds))
    };
    let baseline = GROWTH_POLICIES.map(|policy| cpu_seconds(GrowthDimension::TraceLength, 1, policy));
    let once: Vec<Option<f64>> = baseline.into_iter().collect::<Result<_>>()?;
    for axis in GrowthDimension::ALL {
        let head = format!("more {}", axis.name());
        let mut table = Table::new(&[&head, "x1 (s)", "x2 (s)", "x4 (s)", "x2 / x1", "x4 / x1"]);
        for (policy, once) in GROWTH_POLICIES.into_iter().zip(&once) {
            let walls = [*once, cpu_seconds(axis, 2, policy)?, cpu_seconds(axis, 4, policy)?];
            let ratio = |wall: Option<f64>| match (wall, *once) {
                (Some(wall), Some(once)) => format_significant(wall / once),
                _ => "-".to_owned(),
            };
            let mut cells = vec![policy.to_owned()];
            cells.extend(walls.map(|wall| wall.map_or_else(timeout_cell, format_significant)));
            cells.extend([ratio(walls[1]), ratio(walls[2])]);
            table.line(cells);
        }
        table.print();
    }
    Ok(())
}

fn print_hosts() -> Result<()> {
    println!("## A decision of Django by number of hosts\n");
    println!(
        "Replays of {HOSTS_COFLOWS} generated coflows (`facebook`, seed {SEED}) on this number of hosts. The arrival rate is"
    );
    println!(
        "proportional to the number of hosts; a coflow has at most one mapper and one reducer per host. \
         The last column is the mean divided by the number of hosts.\n"
    );
    let mut table = Table::new(&[
        "hosts",
        "flows",
        "schedules",
        "schedule mean (us)",
        "schedule P99 (us)",
        "per host (ns)",
    ]);
    for hosts in [16, 32, 64, 128, 256, 512, 1024] {
        eprintln!("django: {hosts} hosts");
        let mut spec = Preset::Facebook.spec(SEED);
        let arrival_speedup = f64::from(hosts) / f64::from(spec.ports);
        (spec.ports, spec.coflows) = (hosts, HOSTS_COFLOWS);
        let workload =
            generate(&spec, TraceUnit::MB, &Limits::default())?.with_faster_arrivals(arrival_speedup);
        let m = ReplayMeasurement::measure_in_process(&workload, "django", &ReplayOptions::default(), 1)?;
        let ns_per_host = format_significant(1e3 * m.mean_us / f64::from(hosts));
        let flows = workload.flow_count();
        table.line(strings(&[
            &hosts,
            &flows,
            &m.schedules,
            &format_significant(m.mean_us),
            &format_significant(m.p99_us),
            &ns_per_host,
        ]));
    }
    table.print();
    Ok(())
}

fn print_solver() -> Result<()> {
    println!("## The max-min solver alone\n");
    println!(
        "`weir_core::solve::max_min` on a fabric of 16 cores and 128 edges (4,096 links). Every flow goes from its edge"
    );
    println!(
        "up to a core and down to another edge. Each solution starts from scratch. Per flow: every flow is a"
    );
    println!(
        "class. Per route: flows over the same links are one class; the time to group them is excluded. \
         The textbook solver, in the same run, visits"
    );
    println!(
        "every flow for each link that it fixes. The last column is the maximum relative difference of a rate.\n"
    );
    let mut table = Table::new(&[
        "flows",
        "routes",
        "per flow (ms)",
        "per route (ms)",
        "textbook (ms)",
        "textbook / per flow",
        "difference",
    ]);
    for flows in [10_000, 100_000, 1_000_000] {
        eprintln!("max-min of {flows} flows");
        let instance = Instance::new(flows);
        let flow_classes: Vec<FlowClass<'_>> =
            instance.routes.iter().map(|links| FlowClass { links, flows: 1.0 }).collect();
        let routes = instance.classes();
        let classes: Vec<FlowClass<'_>> =
            routes.iter().map(|(links, flows)| FlowClass { links, flows: *flows }).collect();
        let (per_flow, rates) = fastest(5, || max_min(&instance.capacities, &flow_classes));
        let (per_route, by_route) = fastest(5, || max_min(&instance.capacities, &classes));
        let (textbook, expected) = fastest(1, || instance.textbook_rates());
        let rate_of_route = |route| {
            let index = routes
                .binary_search_by(|(other, _)| other.cmp(route))
                .expect("the route of a flow is one of the classes");
            by_route[index]
        };
        let differences = instance.routes.iter().zip(rates.iter().zip(&expected)).map(|(route, (a, b))| {
            let per_route = (rate_of_route(route) - b).abs();
            (a - b).abs().max(per_route) / b
        });
        let ms = |seconds: f64| format_significant(seconds * 1e3);
        table.line(strings(&[
            &flows,
            &routes.len(),
            &ms(per_flow),
            &ms(per_route),
            &ms(textbook),
            &format_significant(textbook / per_flow),
            &format!("{:.0e}", differences.fold(0.0, f64::max)),
        ]));
    }
    table.print();
    Ok(())
}
