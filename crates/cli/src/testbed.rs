//! Runs `weir testbed`: builds networks of namespaces, and compares real traffic over them with the simulation.

mod incast;

use std::path::Path;

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::output;
use weir_console::progress::Progress;
use weir_console::record::Record;
use weir_console::table::{
    Alignment, BITS_PER_BYTE, Table, format_count, format_number, format_percent, format_rate,
};
use weir_console::testbed::{SHOULD_CONTINUE, failure, measure_scenario, with_bed};
use weir_core::model::scenario::Scenario;
use weir_sim::service::{Mechanism, ScenarioOutcome, ServicePhase};
use weir_testbed::bed::{self, BedEntry};
use weir_testbed::probe::{self, Requirement};
use weir_testbed::{Bed, BedName, Phase, Plan, batch};
use weir_trace::topology;

use crate::args;
use crate::render;

/// Runs `weir testbed`.
pub fn testbed(args: &args::Testbed) -> Result<(), Failure> {
    // From here on, a signal does not end the process before the testbed is removed.
    interrupt::record_signals();
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
    let name = &args.testbed.name;
    if args.dry_run {
        let plan = Plan::new(name.clone(), &topology).map_err(Failure::input)?;
        return Ok(output::print(batch::to_shell_script(&batch::creation_stages(&plan)))?);
    }
    let bed = Bed::up(name, &topology, SHOULD_CONTINUE).map_err(|error| failure(&error))?;
    let (hosts, switches) = (topology.hosts(), topology.nodes() - topology.hosts());
    Ok(output::print(format!(
        "up: {name}: {}, {}, {}\n",
        format_count(hosts, "host"),
        format_count(switches, "switch"),
        format_count(bed.plan().cables.len(), "cable")
    ))?)
}

fn down(args::TestbedName { name }: &args::TestbedName) -> Result<(), Failure> {
    let existed = bed::down(name).map_err(|error| failure(&error))?;
    let line =
        if existed { format!("down: {name}\n") } else { format!("down: testbed `{name}` does not exist\n") };
    Ok(output::print(line)?)
}

fn list(args: &args::TestbedList) -> Result<(), Failure> {
    let beds = bed::list().map_err(|error| failure(&error))?;
    let table = match &args.name {
        None => beds_table(&beds),
        Some(name) => nodes_table(&beds, name)?,
    };
    Ok(output::print(table.to_string())?)
}

fn beds_table(beds: &[BedEntry]) -> Table {
    let columns = [
        ("bed", Alignment::Left),
        ("state", Alignment::Left),
        ("hosts", Alignment::Right),
        ("switches", Alignment::Right),
        ("namespaces", Alignment::Right),
    ];
    let mut table = Table::new(&columns);
    for BedEntry { name, topology, is_busy, namespace_count } in beds {
        let state = match (topology, is_busy) {
            (_, true) => "in use",
            (Some(_), false) => "up",
            (None, false) => "unfinished",
        };
        let count = |count: Option<usize>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        table.add_row(vec![
            name.to_string(),
            state.to_owned(),
            count(topology.as_ref().map(|t| t.hosts())),
            count(topology.as_ref().map(|t| t.nodes() - t.hosts())),
            namespace_count.to_string(),
        ]);
    }
    table
}

fn nodes_table(beds: &[BedEntry], name: &BedName) -> Result<Table, Failure> {
    let found = beds.iter().find(|bed| bed.name == *name).and_then(|bed| bed.topology.as_ref());
    let topology = found.ok_or_else(|| Failure::runtime(format_args!("testbed `{name}` does not exist")))?;
    let plan = Plan::new(name.clone(), topology).map_err(Failure::input)?;
    let columns = ["node", "namespace", "address", "ports"].map(|name| (name, Alignment::Left));
    let mut table = Table::new(&columns);
    for node in &plan.nodes {
        let port = |port: &weir_testbed::Port| {
            format!("{} to {}", port.interface, topology.name(topology.link(port.link).to))
        };
        let ports: Vec<String> = node.ports.iter().map(port).collect();
        table.add_row(vec![
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
    let line = |Requirement { name, needed_for, problem }: &Requirement| match problem {
        None => format!("ok       {name}\n"),
        Some(reason) => format!("missing  {name}: {reason}; needed for {needed_for}\n"),
    };
    output::print(checks.iter().map(line).collect::<String>())?;
    if checks.iter().all(|check| check.problem.is_none()) {
        return Ok(());
    }
    Err(Failure::runtime(probe::ALTERNATIVES))
}

fn run_scenario(args: &args::TestbedRun) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.scenario)?;
    let scenario = weir_trace::scenario::read(&args.scenario)?;
    let needs_queues = args.mechanism.iter().any(|mechanism| mechanism.has_service_queues());
    weir_testbed::check(&scenario, needs_queues).map_err(Failure::input)?;
    let progress = Progress::new(args.quiet);
    let mut predicted = Vec::new();
    for &mechanism in &args.mechanism {
        predicted.push((mechanism, weir_console::run::run_scenario(&scenario, mechanism, &progress)?));
    }
    let lines = with_bed(&args.testbed.name, &scenario.topology, |bed| {
        let mut lines = Vec::new();
        for (mechanism, shared) in &predicted {
            let measured = measure_scenario(bed, &scenario, *mechanism, shared, &progress)?;
            lines.extend(service_results(&scenario, *mechanism, shared, &measured));
        }
        Ok(lines)
    })?;
    let table = || table(&args.scenario, &scenario, &lines);
    sink.write_text(render::list(args.output.format, table, || records(&lines)))
}

/// The rates of a service in a phase, simulated and measured.
struct ServiceResult {
    mechanism: Mechanism,
    from: f64,
    to: f64,
    service: String,
    weight: f64,
    /// Simulated, measured, and measured in the second half of the phase, in bytes per second.
    rates: [f64; 3],
    /// Simulated and measured, as fractions of the sum over all services.
    shares: [f64; 2],
}

fn service_results(
    scenario: &Scenario,
    mechanism: Mechanism,
    shared: &ScenarioOutcome,
    measured: &[Phase],
) -> Vec<ServiceResult> {
    let mut lines = Vec::new();
    for (expected, observed) in shared.phases.iter().zip(measured) {
        let rates = [&expected.mean_rates, &observed.mean_rates, &observed.second_half_rates]
            .map(|rates| shared.sum_by_service(rates));
        let fraction_of_sum = |rates: &[f64], index: usize| {
            let sum: f64 = rates.iter().sum();
            if sum > 0.0 { rates[index] / sum } else { 0.0 }
        };
        lines.extend(shared.service_phases(scenario, expected).iter().map(
            |&ServicePhase { service, .. }| ServiceResult {
                mechanism,
                from: expected.start.get(),
                to: expected.end.get(),
                service: scenario.services[service].name.clone(),
                weight: scenario.services[service].weight,
                rates: [0, 1, 2].map(|series| rates[series][service]),
                shares: [fraction_of_sum(&rates[0], service), fraction_of_sum(&rates[1], service)],
            },
        ));
    }
    lines
}

fn table(name: &Path, scenario: &Scenario, lines: &[ServiceResult]) -> String {
    let right = |name| (name, Alignment::Right);
    let mut table = Table::new(&[
        ("mechanism", Alignment::Left),
        right("from s"),
        right("to s"),
        ("service", Alignment::Left),
        right("weight"),
        right("simulated"),
        right("measured"),
        right("2nd half"),
        right("share simulated"),
        right("share measured"),
    ]);
    for line in lines {
        let [from, to] = [line.from, line.to].map(format_number);
        let mut cells =
            vec![line.mechanism.to_string(), from, to, line.service.clone(), line.weight.to_string()];
        cells.extend(line.rates.map(format_rate));
        cells.extend(line.shares.map(format_percent));
        table.add_row(cells);
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

fn records(lines: &[ServiceResult]) -> Vec<Record> {
    let record = |line: &ServiceResult| {
        let mut r = Record::default();
        r.add("mechanism", line.mechanism.name());
        r.add_all(["from_s", "to_s"], [line.from, line.to]);
        r.add("service", line.service.as_str());
        r.add("weight", line.weight);
        let rates = line.rates.map(|rate| rate * BITS_PER_BYTE);
        r.add_all(["simulated_bit_per_s", "measured_bit_per_s", "second_half_bit_per_s"], rates);
        r.add_all(["simulated_share", "measured_share"], line.shares);
        r
    };
    lines.iter().map(record).collect()
}
