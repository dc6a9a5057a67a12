//! `weir testbed`: networks of namespaces, and real traffic over them compared with the simulation.

mod incast;

use std::path::Path;

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output;
use weir_console::progress::Progress;
use weir_console::record::Record;
use weir_console::table::{Align, BITS, Table, number, percent, rate};
use weir_console::testbed::{GO_ON, failure, measure, on_a_bed};
use weir_core::model::scenario::Scenario;
use weir_sim::service::{Mechanism, ServicePhase, Shared};
use weir_testbed::bed::{self, Listed};
use weir_testbed::probe::{self, Check};
use weir_testbed::{Bed, Name, Phase, Plan, batch};
use weir_trace::topology;

use crate::args;
use crate::render;

/// Runs `weir testbed`.
pub fn testbed(args: &args::Testbed) -> Result<(), Failure> {
    // From here on, signals do not end the process before the testbed is removed.
    interrupt::watch();
    match args {
        args::Testbed::Up(args) => up(args),
        args::Testbed::Run(args) => run_scenario(args),
        args::Testbed::Incast(args) => incast::incast(args),
        args::Testbed::Down(args) => down(args),
        args::Testbed::List(args) => list(args),
        args::Testbed::Check => check(),
    }
}

fn up(args: &args::TestbedUp) -> Result<(), Failure> {
    let topology = topology::read(&args.fabric)?;
    let name = &args.bed.name;
    if args.dry_run {
        let plan = Plan::new(name.clone(), &topology).map_err(Failure::input)?;
        return Ok(output::print(batch::shell(&batch::up(&plan)))?);
    }
    let bed = Bed::up(name, &topology, GO_ON).map_err(|error| failure(&error))?;
    let (hosts, switches) = (topology.hosts(), topology.nodes() - topology.hosts());
    let line =
        format!("up: {name}: {hosts} hosts, {switches} switches, {} cables\n", bed.plan().cables.len());
    Ok(output::print(line)?)
}

fn down(args::Bed { name }: &args::Bed) -> Result<(), Failure> {
    let was = bed::down(name).map_err(|error| failure(&error))?;
    let line = if was { format!("down: {name}\n") } else { format!("down: {name}: nothing was there\n") };
    Ok(output::print(line)?)
}

fn list(args: &args::TestbedList) -> Result<(), Failure> {
    let beds = bed::list().map_err(|error| failure(&error))?;
    let table = match &args.name {
        None => all(&beds),
        Some(name) => nodes(&beds, name)?,
    };
    Ok(output::print(table.to_string())?)
}

fn all(beds: &[Listed]) -> Table {
    let columns = [
        ("bed", Align::Left),
        ("state", Align::Left),
        ("hosts", Align::Right),
        ("switches", Align::Right),
        ("namespaces", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for Listed { name, topology, busy, namespaces } in beds {
        let state = match (topology, busy) {
            (_, true) => "in use",
            (Some(_), false) => "up",
            (None, false) => "unfinished",
        };
        let count = |count: Option<usize>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        table.line(vec![
            name.to_string(),
            state.to_owned(),
            count(topology.as_ref().map(|t| t.hosts())),
            count(topology.as_ref().map(|t| t.nodes() - t.hosts())),
            namespaces.to_string(),
        ]);
    }
    table
}

fn nodes(beds: &[Listed], name: &Name) -> Result<Table, Failure> {
    let found = beds.iter().find(|bed| bed.name == *name).and_then(|bed| bed.topology.as_ref());
    let topology = found.ok_or_else(|| Failure::undone(format_args!("no bed `{name}` is up")))?;
    let plan = Plan::new(name.clone(), topology).map_err(Failure::input)?;
    let columns = ["node", "namespace", "address", "ports"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns);
    for node in &plan.nodes {
        let port = |port: &weir_testbed::Port| {
            format!("{} to {}", port.interface, topology.name(topology.link(port.link).to))
        };
        let ports: Vec<String> = node.ports.iter().map(port).collect();
        table.line(vec![
            node.name.clone(),
            node.namespace.clone(),
            node.address.to_string(),
            ports.join(", "),
        ]);
    }
    Ok(table)
}

fn check() -> Result<(), Failure> {
    let checks = probe::probe();
    let line = |Check { what, needed_for, missing }: &Check| match missing {
        None => format!("ok       {what}\n"),
        Some(why) => format!("missing  {what}: {why}; needed for {needed_for}\n"),
    };
    output::print(checks.iter().map(line).collect::<String>())?;
    if checks.iter().all(|check| check.missing.is_none()) {
        return Ok(());
    }
    Err(Failure::undone(probe::STILL_WORKS))
}

fn run_scenario(args: &args::TestbedRun) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.scenario)?;
    let scenario = weir_trace::scenario::read(&args.scenario)?;
    let queues = args.mechanism.iter().any(|mechanism| mechanism.queues());
    weir_testbed::check(&scenario, queues).map_err(Failure::input)?;
    let progress = Progress::new(args.quiet);
    let mut predicted = Vec::new();
    for &mechanism in &args.mechanism {
        predicted.push((mechanism, weir_console::run::share(&scenario, mechanism, &progress)?));
    }
    let lines = on_a_bed(&args.bed.name, &scenario.topology, |bed| {
        let mut lines = Vec::new();
        for (mechanism, shared) in &predicted {
            let measured = measure(bed, &scenario, *mechanism, shared, &progress)?;
            lines.extend(compare(&scenario, *mechanism, shared, &measured));
        }
        Ok(lines)
    })?;
    let table = || table(&args.scenario, &scenario, &lines);
    sink.fill(render::list(args.output.format, table, || records(&lines)))
}

/// A service in a phase.
struct Line {
    mechanism: Mechanism,
    from: f64,
    to: f64,
    service: String,
    weight: f64,
    /// Simulated, measured, and measured in the second half, in bytes per second.
    rates: [f64; 3],
    /// Simulated and measured, as fractions of what all services received.
    shares: [f64; 2],
}

fn compare(scenario: &Scenario, mechanism: Mechanism, shared: &Shared, measured: &[Phase]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (expected, found) in shared.phases.iter().zip(measured) {
        let rates = [&expected.mean, &found.mean, &found.late].map(|rates| shared.by_service(rates));
        let share = |rates: &[f64], at: usize| {
            let sum: f64 = rates.iter().sum();
            if sum > 0.0 { rates[at] / sum } else { 0.0 }
        };
        lines.extend(shared.services(scenario, expected).iter().map(
            |&ServicePhase { service: at, .. }| Line {
                mechanism,
                from: expected.from.get(),
                to: expected.to.get(),
                service: scenario.services[at].name.clone(),
                weight: scenario.services[at].weight,
                rates: [0, 1, 2].map(|of| rates[of][at]),
                shares: [share(&rates[0], at), share(&rates[1], at)],
            },
        ));
    }
    lines
}

fn table(name: &Path, scenario: &Scenario, lines: &[Line]) -> String {
    let right = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("mechanism", Align::Left),
        right("from s"),
        right("to s"),
        ("service", Align::Left),
        right("weight"),
        right("simulated"),
        right("measured"),
        right("2nd half"),
        right("share simulated"),
        right("share measured"),
    ]);
    for line in lines {
        let [from, to] = [line.from, line.to].map(number);
        let mut cells =
            vec![line.mechanism.to_string(), from, to, line.service.clone(), line.weight.to_string()];
        cells.extend(line.rates.map(rate));
        cells.extend(line.shares.map(percent));
        table.line(cells);
    }
    format!(
        "{}: {} services on {} hosts, until {}\n\n\
         The rate that each service receives, with headers, simulated and measured: on average over a phase, over its\n\
         second half, and as a share of all services:\n\n{table}",
        name.display(),
        scenario.services.len(),
        scenario.topology.hosts(),
        scenario.end,
    )
}

fn records(lines: &[Line]) -> Vec<Record> {
    let record = |line: &Line| {
        let mut r = Record::default();
        r.add("mechanism", line.mechanism.name());
        r.add_all(["from_s", "to_s"], [line.from, line.to]);
        r.add("service", line.service.as_str());
        r.add("weight", line.weight);
        let rates = line.rates.map(|rate| rate * BITS);
        r.add_all(["simulated_bit_per_s", "measured_bit_per_s", "second_half_bit_per_s"], rates);
        r.add_all(["simulated_share", "measured_share"], line.shares);
        r
    };
    lines.iter().map(record).collect()
}
