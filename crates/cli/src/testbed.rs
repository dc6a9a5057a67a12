//! `weir testbed`: networks of namespaces, and real traffic over them beside the simulator's prediction.

mod incast;

use std::path::Path;

use weir_core::model::scenario::Scenario;
use weir_sim::service::{Mechanism, Shared};
use weir_testbed::bed::{self, Listed};
use weir_testbed::probe::{self, Check};
use weir_testbed::{Bed, Name, Phase, Plan, batch, queues};
use weir_trace::topology;

use crate::args::{self, Format};
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output::{self, Sink};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::table::{Align, BITS, Table, number, percent, rate};
use weir_console::testbed::{GO_ON, failure, measure, on_a_bed};

/// Runs `weir testbed`.
///
/// # Errors
/// Whatever ends it early.
pub fn testbed(args: &args::Testbed) -> Result<(), Failure> {
    // What is begun has to be taken away again.
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
        return Ok(output::print(batch::shell(&batch::up(&plan)).as_bytes())?);
    }
    let bed = Bed::up(name, &topology, GO_ON).map_err(|error| failure(&error))?;
    let (hosts, switches) = (topology.hosts(), topology.nodes() - topology.hosts());
    let line =
        format!("up: {name}: {hosts} hosts, {switches} switches, {} cables\n", bed.plan().cables.len());
    Ok(output::print(line.as_bytes())?)
}

fn down(args: &args::TestbedDown) -> Result<(), Failure> {
    let name = &args.bed.name;
    let was = bed::down(name).map_err(|error| failure(&error))?;
    let line = if was { format!("down: {name}\n") } else { format!("down: {name}: nothing was there\n") };
    Ok(output::print(line.as_bytes())?)
}

fn list(args: &args::TestbedList) -> Result<(), Failure> {
    let beds = bed::list().map_err(|error| failure(&error))?;
    let mut out = String::new();
    match &args.name {
        None => all(&beds, &mut out),
        Some(name) => nodes(&beds, name, &mut out)?,
    }
    Ok(output::print(out.as_bytes())?)
}

fn all(beds: &[Listed], out: &mut String) {
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
    table.print(out);
}

fn nodes(beds: &[Listed], name: &Name, out: &mut String) -> Result<(), Failure> {
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
    table.print(out);
    Ok(())
}

fn check() -> Result<(), Failure> {
    let checks = probe::probe();
    let mut out = String::new();
    for Check { what, needed_for, missing } in &checks {
        match missing {
            None => out.push_str(&format!("ok       {what}\n")),
            Some(why) => out.push_str(&format!("missing  {what}: {why}; needed for {needed_for}\n")),
        }
    }
    output::print(out.as_bytes())?;
    if checks.iter().all(|check| check.missing.is_none()) {
        return Ok(());
    }
    Err(Failure::undone(probe::STILL_WORKS))
}

fn run_scenario(args: &args::TestbedRun) -> Result<(), Failure> {
    output::check_distinct(&args.scenario, &[("--out", args.output.out.as_deref())])?;
    let sink = Sink::new(args.output.out.as_deref())?;
    let scenario = weir_trace::scenario::read(&args.scenario)?;
    check_scenario(&scenario, &args.mechanism)?;
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
    let text = match args.output.format {
        Format::Table => for_people(&args.scenario, &scenario, &lines).into_bytes(),
        Format::Json => record::json(&records(&lines)).into_bytes(),
        Format::Csv => record::csv(&records(&lines)),
    };
    sink.fill(&text)
}

/// Whether a bed can do what the scenario says.
fn check_scenario(scenario: &Scenario, mechanisms: &[Mechanism]) -> Result<(), Failure> {
    let services = scenario.services.len();
    // Packets have marks for so many.
    if services > queues::MOST_SERVICES && mechanisms.iter().any(|mechanism| mechanism.queues()) {
        let most = queues::MOST_SERVICES;
        return Err(Failure::input(format_args!(
            "queues: {services} services: expected at most {most} (DSCP)"
        )));
    }
    let events = scenario.events.len();
    if events > 0 {
        return Err(Failure::input(format_args!(
            "event: {events} of them: expected none, since the cables of a bed stay as they are"
        )));
    }
    Ok(())
}

/// What a service got in a phase, in bytes per second.
struct Line {
    mechanism: Mechanism,
    from: f64,
    to: f64,
    service: String,
    weight: f64,
    predicted: f64,
    measured: f64,
    late: f64,
    /// Parts of what all got.
    share_predicted: f64,
    share_measured: f64,
}

fn compare(scenario: &Scenario, mechanism: Mechanism, shared: &Shared, measured: &[Phase]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (expected, found) in shared.phases.iter().zip(measured) {
        let [predicted, mean, late] =
            [&expected.mean, &found.mean, &found.late].map(|r| shared.by_service(r));
        let share = |of: &[f64], at: usize| {
            let sum: f64 = of.iter().sum();
            if sum > 0.0 { of[at] / sum } else { 0.0 }
        };
        for (at, service) in scenario.services.iter().enumerate() {
            let mut demands = scenario.demands.iter();
            if demands.any(|demand| demand.service == at && demand.is_active(expected.from)) {
                lines.push(Line {
                    mechanism,
                    from: expected.from.get(),
                    to: expected.to.get(),
                    service: service.name.clone(),
                    weight: service.weight,
                    predicted: predicted[at],
                    measured: mean[at],
                    late: late[at],
                    share_predicted: share(&predicted, at),
                    share_measured: share(&mean, at),
                });
            }
        }
    }
    lines
}

fn for_people(name: &Path, scenario: &Scenario, lines: &[Line]) -> String {
    let mut out = format!(
        "{}: {} services on {} hosts, until {}\n\n\
         What arrives of each service, with headers, as simulated and as measured: on average over a phase, over its\n\
         second half, and as a share of what all services get in it:\n\n",
        name.display(),
        scenario.services.len(),
        scenario.topology.hosts(),
        scenario.end,
    );
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
        table.line(vec![
            line.mechanism.to_string(),
            number(line.from),
            number(line.to),
            line.service.clone(),
            line.weight.to_string(),
            rate(line.predicted),
            rate(line.measured),
            rate(line.late),
            percent(line.share_predicted),
            percent(line.share_measured),
        ]);
    }
    table.print(&mut out);
    out
}

fn records(lines: &[Line]) -> Vec<Record> {
    let record = |line: &Line| {
        let mut r = Record::default();
        r.add("mechanism", line.mechanism.name());
        r.add("from_s", line.from);
        r.add("to_s", line.to);
        r.add("service", line.service.as_str());
        r.add("weight", line.weight);
        r.add("simulated_bit_per_s", line.predicted * BITS);
        r.add("measured_bit_per_s", line.measured * BITS);
        r.add("second_half_bit_per_s", line.late * BITS);
        r.add("simulated_share", line.share_predicted);
        r.add("measured_share", line.share_measured);
        r
    };
    lines.iter().map(record).collect()
}
