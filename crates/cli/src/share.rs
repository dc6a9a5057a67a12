//! Runs `weir share`: simulates services that share a network under NetShare's mechanisms.

use weir_console::failure::Failure;
use weir_console::output::{self, ResultDestination};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::table::{Alignment, BITS_PER_BYTE, Table, format_count, format_number, format_rate};
use weir_core::model::LinkId;
use weir_core::model::scenario::{Reduction, Scenario};
use weir_sim::service::{Mechanism, Phase, ScenarioOutcome, Segment, ServicePhase};

use crate::args;
use crate::render;

/// Runs `weir share`.
pub fn share(args: &args::Share) -> Result<(), Failure> {
    let outputs = [("--out", args.output.out.as_deref()), ("--over-time", args.over_time.as_deref())];
    output::check_distinct(&args.scenario, &outputs)?;
    let sink = ResultDestination::new(args.output.out.as_deref())?;
    let over_time = args.over_time.as_deref().map(|path| ResultDestination::new(Some(path))).transpose()?;
    let scenario = weir_trace::scenario::read(&args.scenario)?;
    let progress = Progress::new(args.quiet);
    let mut outcomes = Vec::new();
    for mechanism in unique_mechanisms(&args.mechanism) {
        outcomes.push((mechanism, weir_console::run::run_scenario(&scenario, mechanism, &progress)?));
    }
    if let Some(sink) = over_time {
        sink.write_text(record::csv(&rates_over_time(&scenario, &outcomes)))?;
    }
    sink.write_text(render::list(
        args.output.format,
        || tables(&args.scenario.display().to_string(), &scenario, &outcomes),
        || records(&scenario, &outcomes),
    ))
}

/// The requested mechanisms without duplicates.
fn unique_mechanisms(requested: &[Option<Mechanism>]) -> Vec<Mechanism> {
    let mut mechanisms: Vec<Mechanism> = Vec::new();
    for mechanism in requested.iter().flat_map(|mechanism_or_all| {
        mechanism_or_all.as_ref().map_or(&Mechanism::ALL[..], std::slice::from_ref)
    }) {
        if !mechanisms.contains(mechanism) {
            mechanisms.push(*mechanism);
        }
    }
    mechanisms
}

/// The rates of each service in each phase under each mechanism.
fn service_phases<'a>(
    scenario: &Scenario,
    outcomes: &'a [(Mechanism, ScenarioOutcome)],
) -> Vec<(&'a (Mechanism, ScenarioOutcome), &'a Phase, ServicePhase)> {
    let mut rows = Vec::new();
    for outcome in outcomes {
        for phase in &outcome.1.phases {
            let services = outcome.1.service_phases(scenario, phase);
            rows.extend(services.into_iter().map(|service| (outcome, phase, service)));
        }
    }
    rows
}

fn tables(name: &str, scenario: &Scenario, outcomes: &[(Mechanism, ScenarioOutcome)]) -> String {
    let [left, right] = [Alignment::Left, Alignment::Right].map(|align| move |name| (name, align));
    let mut table = Table::new(&[
        left("mechanism"),
        right("from s"),
        right("to s"),
        left("service"),
        right("weight"),
        right("mean"),
        right("at the end"),
        right("sent"),
    ]);
    for ((mechanism, _), phase, service_phase) in service_phases(scenario, outcomes) {
        let service = &scenario.services[service_phase.service];
        table.add_row(vec![
            mechanism.to_string(),
            format_number(phase.start.get()),
            format_number(phase.end.get()),
            service.name.clone(),
            service.weight.to_string(),
            format_rate(service_phase.mean_rate),
            format_rate(service_phase.final_rate),
            format_rate(service_phase.final_sent_rate),
        ]);
    }
    let connections: u64 = scenario.demands.iter().map(|demand| demand.connection_count()).sum();
    let mut out = format!(
        "{name}: {}, {} on {}, until {}\n\n\
         The rate that each service receives, on average over a phase and at its end, and its sending rate then:\n\n{table}",
        format_count(scenario.services.len(), "service"),
        format_count(connections, "connection"),
        format_count(scenario.topology.hosts(), "host"),
        scenario.end,
    );
    // All mechanisms use the same paths, so the first outcome is sufficient.
    let mut without_path = service_phases(scenario, &outcomes[..outcomes.len().min(1)]);
    without_path.retain(|(_, _, service_phase)| service_phase.pathless_connections > 0);
    if !without_path.is_empty() {
        out += "\nConnections without a path, which send nothing:\n\n";
    }
    for (_, phase, ServicePhase { service, pathless_connections: stranded, .. }) in without_path {
        let (from, to) = (format_number(phase.start.get()), format_number(phase.end.get()));
        out += &format!("- from {from} s to {to} s, {stranded} of {}\n", scenario.services[service].name);
    }
    // The guarantees are part of the scenario, so all mechanisms have the same reductions.
    let reductions = outcomes.first().map_or(&[][..], |(_, shared)| &shared.reductions);
    if !reductions.is_empty() {
        out += "\nGuarantees that exceed a lowered link, all reduced by the link's factor:\n\n";
    }
    for reduction in reductions {
        out += &reduction_line(scenario, reduction);
    }
    for (mechanism, shared) in outcomes.iter().filter(|(_, shared)| shared.convergence_error > 0.0) {
        let residual = format_number(shared.convergence_error);
        out += &format!(
            "\n{mechanism}: the rates of queues have not settled; they still change by a fraction of {residual}.\n"
        );
    }
    out
}

/// A line about reduced guarantees: the link, the time, the factor, and the rates of each service.
fn reduction_line(scenario: &Scenario, reduction: &Reduction) -> String {
    let Reduction { link, start: from, end: to, factor } = *reduction;
    let [start, end] = link_ends(scenario, link);
    let guarantees = scenario.guarantees.iter().filter(|guarantee| guarantee.link == link);
    let services: Vec<String> = guarantees
        .map(|guarantee| {
            let guaranteed = guarantee.rate.get();
            let name = &scenario.services[guarantee.service].name;
            format!("{name} {} instead of {}", format_rate(guaranteed * factor), format_rate(guaranteed))
        })
        .collect();
    format!(
        "- link {start} to {end}, from {} s to {} s, by the factor {}: {}\n",
        format_number(from.get()),
        format_number(to.get()),
        format_number(factor),
        services.join(", ")
    )
}

/// The names of the nodes at the ends of a link.
fn link_ends(scenario: &Scenario, link: LinkId) -> [&str; 2] {
    let link = scenario.topology.link(link);
    [link.from, link.to].map(|end| scenario.topology.name(end))
}

/// A record for each mechanism, phase and service.
fn records(scenario: &Scenario, outcomes: &[(Mechanism, ScenarioOutcome)]) -> Vec<Record> {
    let mut records = Vec::new();
    for ((mechanism, shared), phase, service_phase) in service_phases(scenario, outcomes) {
        let service = &scenario.services[service_phase.service];
        let mut r = Record::default();
        r.add("mechanism", mechanism.name());
        r.add_all(["from_s", "to_s"], [phase.start.get(), phase.end.get()]);
        r.add("service", service.name.as_str());
        r.add("weight", service.weight);
        let rates = [service_phase.mean_rate, service_phase.final_rate, service_phase.final_sent_rate];
        r.add_all(
            ["mean_bit_per_s", "end_bit_per_s", "sent_bit_per_s"],
            rates.map(|rate| rate * BITS_PER_BYTE),
        );
        r.add("without_path", service_phase.pathless_connections);
        r.add("residual", shared.convergence_error);
        r.add("guarantee_factor", service_phase.reduction.map_or(1.0, |reduction| reduction.factor));
        let link = service_phase.reduction.map(|reduction| link_ends(scenario, reduction.link).join(" to "));
        r.add("reduced_on_link", link);
        records.push(r);
    }
    records
}

/// A record for each interval of constant rates and each service, for `--over-time`.
fn rates_over_time(scenario: &Scenario, outcomes: &[(Mechanism, ScenarioOutcome)]) -> Vec<Record> {
    let mut records = Vec::new();
    for (mechanism, shared) in outcomes {
        for Segment { start: from, end: to, delivered_rates: delivered, sent_rates: sent } in &shared.segments
        {
            let (delivered, sent) = (shared.sum_by_service(delivered), shared.sum_by_service(sent));
            for (index, service) in scenario.services.iter().enumerate() {
                let mut r = Record::default();
                r.add("mechanism", mechanism.name());
                r.add("from_s", from.get());
                r.add("to_s", to.get());
                r.add("service", service.name.as_str());
                r.add("delivered_bit_per_s", delivered[index] * BITS_PER_BYTE);
                r.add("sent_bit_per_s", sent[index] * BITS_PER_BYTE);
                records.push(r);
            }
        }
    }
    records
}
