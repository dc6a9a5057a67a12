//! `weir testbed`: networks of namespaces, and real traffic over them beside the simulator's prediction.

mod incast;

use std::path::Path;

use weir_core::model::Topology;
use weir_core::model::scenario::Scenario;
use weir_core::netshare::Throttle;
use weir_core::units::Time;
use weir_sim::service::{Mechanism, Shared};
use weir_testbed::bed::{self, GoOn, Listed};
use weir_testbed::probe::{self, Check};
use weir_testbed::{Bed, BedError, CommandError, Name, Phase, Plan, RunError, batch, queues, run};
use weir_trace::topology;

use crate::args::{self, Format};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, Sink};
use crate::progress::Progress;
use crate::record::{self, Record};
use crate::share;
use crate::table::{Align, BITS, Table, number, percent, rate};

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

/// Signals are heeded between steps.
const GO_ON: GoOn<'static> = &|| !interrupt::asked();

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

/// What to say about a bed that could not be made, with what the machine lacks if that is why.
pub fn failure(error: &BedError) -> Failure {
    match error {
        BedError::Command(CommandError::Interrupted) => {
            Failure::interrupted("interrupted; nothing of the bed is left")
        }
        BedError::Plan(_) => Failure::input(error),
        BedError::Command(_) | BedError::File { .. } => {
            let mut message = error.to_string();
            let missing: Vec<Check> =
                probe::probe().into_iter().filter(|check| check.missing.is_some()).collect();
            for Check { what, needed_for, missing } in &missing {
                let why = missing.as_deref().unwrap_or_default();
                message.push_str(&format!("\n  missing: {what}: {why}; needed for {needed_for}"));
            }
            if !missing.is_empty() {
                message.push_str(&format!("\n{}", probe::STILL_WORKS));
            }
            Failure::undone(message)
        }
        BedError::Up(_) | BedError::Busy(_) | BedError::Left(..) => Failure::undone(error),
    }
}

fn run_scenario(args: &args::TestbedRun) -> Result<(), Failure> {
    output::check_distinct(&args.scenario, &[("--out", args.output.out.as_deref())])?;
    let sink = Sink::new(args.output.out.as_deref())?;
    let scenario = weir_trace::scenario::read(&args.scenario)?;
    check_scenario(&scenario, &args.mechanism)?;
    let progress = Progress::new(args.quiet);
    let mut predicted = Vec::new();
    for &mechanism in &args.mechanism {
        predicted.push((mechanism, share::under(&scenario, mechanism, &progress)?));
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

/// A bed that goes away in the end, whatever happens.
struct Passing(Option<Bed>);

impl Drop for Passing {
    fn drop(&mut self) {
        // After a panic; `on_a_bed` does it where an error can be told.
        if let Some(bed) = self.0.take() {
            let _ = bed.down();
        }
    }
}

/// Does something on the bed of this name, or on one that is there for no longer than that.
///
/// # Errors
/// What `work` answers, or what keeps a bed from being made or taken away.
pub fn on_a_bed<T>(
    name: &Name,
    topology: &Topology,
    work: impl FnOnce(&Bed) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some(bed) = Bed::open(name).map_err(|error| failure(&error))? {
        if bed.topology() != topology {
            let why = format_args!(
                "bed `{name}` has another network: expected another --name, or `weir testbed down --name {name}` before"
            );
            return Err(Failure::input(why));
        }
        let done = work(&bed);
        bed.set_queues(None).map_err(|error| failure(&error))?;
        return done;
    }
    let mut passing = Passing(Some(Bed::up(name, topology, GO_ON).map_err(|error| failure(&error))?));
    let done = work(passing.0.as_ref().expect("it was just put there"));
    let gone = passing.0.take().map_or(Ok(()), Bed::down);
    let done = done?;
    gone.map_err(|error| failure(&error))?;
    Ok(done)
}

/// Runs a scenario over a bed that is up, in the phases that the simulator found.
///
/// # Errors
/// Whatever ends it early.
pub fn measure(
    bed: &Bed,
    scenario: &Scenario,
    mechanism: Mechanism,
    shared: &Shared,
    progress: &Progress,
) -> Result<Vec<Phase>, Failure> {
    let queueing = mechanism.queues().then(|| scenario.queueing());
    bed.set_queues(queueing.as_ref()).map_err(|error| failure(&error))?;
    let phases: Vec<(Time, Time)> = shared.phases.iter().map(|phase| (phase.from, phase.to)).collect();
    let throttle = mechanism.throttles().then(|| Throttle::new(scenario.floor));
    send(bed, scenario, &phases, throttle.as_ref(), mechanism.name(), progress)
}

/// Runs a scenario over a bed as it is. `what` is for people who wait.
///
/// # Errors
/// Whatever ends it early.
pub fn send(
    bed: &Bed,
    scenario: &Scenario,
    phases: &[(Time, Time)],
    throttle: Option<&Throttle>,
    what: &str,
    progress: &Progress,
) -> Result<Vec<Phase>, Failure> {
    let bar = progress.steps(&format!("{what}, in real time"), scenario.end.get().ceil() as usize);
    let measured = run(bed.plan(), scenario, phases, throttle, |at| {
        bar.set_position(at.get() as u64);
        !interrupt::asked()
    });
    bar.finish_and_clear();
    measured.map_err(|error| match error {
        RunError::Interrupted { .. } => Failure::interrupted(format!("{what}: {error}; nothing was written")),
        RunError::Connections(_) => Failure::input(error),
        RunError::Socket { .. } => Failure::undone(error),
    })
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
