//! `weir share`: services that share a network, under NetShare's mechanisms.

use weir_console::failure::Failure;
use weir_console::output::{self, Sink};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::table::{Align, BITS, Table, count, number, rate};
use weir_core::model::LinkId;
use weir_core::model::scenario::{Reduction, Scenario};
use weir_sim::service::{Mechanism, Phase, Segment, ServicePhase, Shared};

use crate::args;
use crate::render;

/// Runs `weir share`.
pub fn share(args: &args::Share) -> Result<(), Failure> {
    let outputs = [("--out", args.output.out.as_deref()), ("--over-time", args.over_time.as_deref())];
    output::check_distinct(&args.scenario, &outputs)?;
    let sink = Sink::new(args.output.out.as_deref())?;
    let over_time = args.over_time.as_deref().map(|path| Sink::new(Some(path))).transpose()?;
    let scenario = weir_trace::scenario::read(&args.scenario)?;
    let progress = Progress::new(args.quiet);
    let mut outcomes = Vec::new();
    for mechanism in mechanisms(&args.mechanism) {
        outcomes.push((mechanism, weir_console::run::share(&scenario, mechanism, &progress)?));
    }
    if let Some(sink) = over_time {
        sink.fill(record::csv(&rates_over_time(&scenario, &outcomes)))?;
    }
    sink.fill(render::list(
        args.output.format,
        || tables(&args.scenario.display().to_string(), &scenario, &outcomes),
        || records(&scenario, &outcomes),
    ))
}

/// The requested mechanisms, each once.
fn mechanisms(requested: &[Option<Mechanism>]) -> Vec<Mechanism> {
    let mut mechanisms: Vec<Mechanism> = Vec::new();
    for mechanism in
        requested.iter().flat_map(|one| one.as_ref().map_or(&Mechanism::ALL[..], std::slice::from_ref))
    {
        if !mechanisms.contains(mechanism) {
            mechanisms.push(*mechanism);
        }
    }
    mechanisms
}

/// What each service received in each phase under each mechanism.
fn rows<'a>(
    scenario: &Scenario,
    outcomes: &'a [(Mechanism, Shared)],
) -> Vec<(&'a (Mechanism, Shared), &'a Phase, ServicePhase)> {
    let mut rows = Vec::new();
    for outcome in outcomes {
        for phase in &outcome.1.phases {
            let services = outcome.1.services(scenario, phase);
            rows.extend(services.into_iter().map(|service| (outcome, phase, service)));
        }
    }
    rows
}

fn tables(name: &str, scenario: &Scenario, outcomes: &[(Mechanism, Shared)]) -> String {
    let [left, right] = [Align::Left, Align::Right].map(|align| move |name| (name, align));
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
    for ((mechanism, _), phase, found) in rows(scenario, outcomes) {
        let service = &scenario.services[found.service];
        table.line(vec![
            mechanism.to_string(),
            number(phase.from.get()),
            number(phase.to.get()),
            service.name.clone(),
            service.weight.to_string(),
            rate(found.mean),
            rate(found.last),
            rate(found.sent),
        ]);
    }
    let connections: u64 = scenario.demands.iter().map(|demand| demand.count()).sum();
    let mut out = format!(
        "{name}: {}, {} on {}, until {}\n\n\
         The rate that each service receives, on average over a phase and at its end, and its sending rate then:\n\n{table}",
        count(scenario.services.len(), "service"),
        count(connections, "connection"),
        count(scenario.topology.hosts(), "host"),
        scenario.end,
    );
    // Paths are the same under all mechanisms.
    let mut stranded = rows(scenario, &outcomes[..outcomes.len().min(1)]);
    stranded.retain(|(_, _, found)| found.stranded > 0);
    if !stranded.is_empty() {
        out += "\nConnections without a path, which send nothing:\n\n";
    }
    for (_, phase, ServicePhase { service, stranded, .. }) in stranded {
        let (from, to) = (number(phase.from.get()), number(phase.to.get()));
        out += &format!("- from {from} s to {to} s, {stranded} of {}\n", scenario.services[service].name);
    }
    // Guarantees are those of the scenario, and so the same under all mechanisms.
    let reductions = outcomes.first().map_or(&[][..], |(_, shared)| &shared.reductions);
    if !reductions.is_empty() {
        out += "\nGuarantees that exceed a lowered link, all reduced by the link's factor:\n\n";
    }
    for reduction in reductions {
        out += &reduced(scenario, reduction);
    }
    for (mechanism, shared) in outcomes.iter().filter(|(_, shared)| shared.residual > 0.0) {
        let residual = number(shared.residual);
        out += &format!(
            "\n{mechanism}: the rates of queues have not settled; they still change by a fraction of {residual}.\n"
        );
    }
    out
}

/// A line about a time of reduced guarantees: the link, the factor, and each service with the rate that it keeps.
fn reduced(scenario: &Scenario, reduction: &Reduction) -> String {
    let Reduction { link, from, to, factor } = *reduction;
    let [start, end] = link_ends(scenario, link);
    let guarantees = scenario.guarantees.iter().filter(|guarantee| guarantee.link == link);
    let services: Vec<String> = guarantees
        .map(|guarantee| {
            let full = guarantee.rate.get();
            let name = &scenario.services[guarantee.service].name;
            format!("{name} {} instead of {}", rate(full * factor), rate(full))
        })
        .collect();
    format!(
        "- link {start} to {end}, from {} s to {} s, by the factor {}: {}\n",
        number(from.get()),
        number(to.get()),
        number(factor),
        services.join(", ")
    )
}

/// The names of a link's ends.
fn link_ends(scenario: &Scenario, link: LinkId) -> [&str; 2] {
    let link = scenario.topology.link(link);
    [link.from, link.to].map(|end| scenario.topology.name(end))
}

fn records(scenario: &Scenario, outcomes: &[(Mechanism, Shared)]) -> Vec<Record> {
    let mut records = Vec::new();
    for ((mechanism, shared), phase, found) in rows(scenario, outcomes) {
        let service = &scenario.services[found.service];
        let mut r = Record::default();
        r.add("mechanism", mechanism.name());
        r.add_all(["from_s", "to_s"], [phase.from.get(), phase.to.get()]);
        r.add("service", service.name.as_str());
        r.add("weight", service.weight);
        let rates = [found.mean, found.last, found.sent];
        r.add_all(["mean_bit_per_s", "end_bit_per_s", "sent_bit_per_s"], rates.map(|rate| rate * BITS));
        r.add("without_path", found.stranded);
        r.add("residual", shared.residual);
        r.add("guarantee_factor", found.reduction.map_or(1.0, |reduction| reduction.factor));
        let link = found.reduction.map(|reduction| link_ends(scenario, reduction.link).join(" to "));
        r.add("reduced_on", link);
        records.push(r);
    }
    records
}

/// A record for each interval of constant rates, and each service.
fn rates_over_time(scenario: &Scenario, outcomes: &[(Mechanism, Shared)]) -> Vec<Record> {
    let mut records = Vec::new();
    for (mechanism, shared) in outcomes {
        for Segment { from, to, delivered, sent } in &shared.segments {
            let (delivered, sent) = (shared.by_service(delivered), shared.by_service(sent));
            for (at, service) in scenario.services.iter().enumerate() {
                let mut r = Record::default();
                r.add("mechanism", mechanism.name());
                r.add("from_s", from.get());
                r.add("to_s", to.get());
                r.add("service", service.name.as_str());
                r.add("delivered_bit_per_s", delivered[at] * BITS);
                r.add("sent_bit_per_s", sent[at] * BITS);
                records.push(r);
            }
        }
    }
    records
}
