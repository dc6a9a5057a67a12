//! `weir share`: services that share a network, under NetShare's mechanisms.

use serde_json::Value;
use weir_core::model::scenario::Scenario;
use weir_sim::service::{Mechanism, Segment, Shared};

use crate::args::{self, Format};
use weir_console::failure::Failure;
use weir_console::output::{self, Sink};
use weir_console::progress::Progress;
use weir_console::record::{self, Record};
use weir_console::table::{Align, BITS, Table, count, number, rate};

/// Runs `weir share`.
///
/// # Errors
/// Whatever ends it early.
pub fn share(args: &args::Share) -> Result<(), Failure> {
    let outputs = [("--out", args.output.out.as_deref()), ("--over-time", args.over_time.as_deref())];
    output::check_distinct(&args.scenario, &outputs)?;
    let sink = Sink::new(args.output.out.as_deref())?;
    let over_time = args.over_time.as_deref().map(|path| Sink::new(Some(path))).transpose()?;
    let scenario = weir_trace::scenario::read(&args.scenario)?;
    let mechanisms = mechanisms(&args.mechanism);
    let progress = Progress::new(args.quiet);
    let mut outcomes = Vec::new();
    for mechanism in mechanisms {
        outcomes.push((mechanism, weir_console::run::share(&scenario, mechanism, &progress)?));
    }
    if let Some(sink) = over_time {
        sink.fill(&record::csv(&lines(&scenario, &outcomes)))?;
    }
    let text = match args.output.format {
        Format::Table => for_people(&args.scenario.display().to_string(), &scenario, &outcomes).into_bytes(),
        Format::Json => record::json(&records(&scenario, &outcomes)).into_bytes(),
        Format::Csv => record::csv(&records(&scenario, &outcomes)),
    };
    sink.fill(&text)
}

/// The mechanisms that were asked for, each once; `all` is all of them.
fn mechanisms(asked: &[Option<Mechanism>]) -> Vec<Mechanism> {
    let mut found: Vec<Mechanism> = Vec::new();
    for one in asked {
        let these = one.as_ref().map_or(&Mechanism::ALL[..], std::slice::from_ref);
        for mechanism in these {
            if !found.contains(mechanism) {
                found.push(*mechanism);
            }
        }
    }
    found
}

/// What a service got in a phase.
struct Line<'a> {
    mechanism: Mechanism,
    from: f64,
    to: f64,
    service: &'a str,
    weight: f64,
    mean: f64,
    end: f64,
    sent: f64,
    /// Connections without a path.
    stranded: u32,
}

/// A line for each mechanism, phase and service that sends in it.
fn phases<'a>(scenario: &'a Scenario, outcomes: &[(Mechanism, Shared)]) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (mechanism, shared) in outcomes {
        for phase in &shared.phases {
            let mean = shared.by_service(&phase.mean);
            let end = shared.by_service(&phase.last);
            let sent = shared.by_service(&phase.sent);
            for (at, service) in scenario.services.iter().enumerate() {
                let own = || scenario.demands.iter().enumerate().filter(|(_, demand)| demand.service == at);
                if own().any(|(_, demand)| demand.is_active(phase.from)) {
                    lines.push(Line {
                        mechanism: *mechanism,
                        from: phase.from.get(),
                        to: phase.to.get(),
                        service: &service.name,
                        weight: service.weight,
                        mean: mean[at],
                        end: end[at],
                        sent: sent[at],
                        stranded: own().map(|(demand, _)| phase.stranded[demand]).sum(),
                    });
                }
            }
        }
    }
    lines
}

fn for_people(name: &str, scenario: &Scenario, outcomes: &[(Mechanism, Shared)]) -> String {
    let connections: u64 = scenario.demands.iter().map(|demand| demand.count()).sum();
    let mut out = format!(
        "{name}: {}, {} on {}, until {}\n\n\
         What arrives of each service, on average over a phase and at its end, and what it sends then:\n\n",
        count(scenario.services.len(), "service"),
        count(connections, "connection"),
        count(scenario.topology.hosts(), "host"),
        scenario.end,
    );
    let columns = [
        ("mechanism", Align::Left),
        ("from s", Align::Right),
        ("to s", Align::Right),
        ("service", Align::Left),
        ("weight", Align::Right),
        ("mean", Align::Right),
        ("at the end", Align::Right),
        ("sent", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for line in phases(scenario, outcomes) {
        table.line(vec![
            line.mechanism.to_string(),
            number(line.from),
            number(line.to),
            line.service.to_owned(),
            line.weight.to_string(),
            rate(line.mean),
            rate(line.end),
            rate(line.sent),
        ]);
    }
    table.print(&mut out);
    let stranded = without_path(scenario, outcomes);
    if !stranded.is_empty() {
        out.push_str("\nConnections that have no path and send nothing:\n\n");
    }
    for Line { from, to, service, stranded, .. } in stranded {
        let (from, to) = (number(from), number(to));
        out.push_str(&format!("- from {from} s to {to} s, {stranded} of {service}\n"));
    }
    for (mechanism, shared) in outcomes.iter().filter(|(_, shared)| shared.residual > 0.0) {
        let far = number(shared.residual);
        out.push_str(&format!(
            "\n{mechanism}: queues had not settled; rates still moved by {far} of themselves.\n"
        ));
    }
    out
}

/// The phases and services with connections that have no path. They are the same under all mechanisms.
fn without_path<'a>(scenario: &'a Scenario, outcomes: &[(Mechanism, Shared)]) -> Vec<Line<'a>> {
    let first = outcomes.get(..1).unwrap_or_default();
    phases(scenario, first).into_iter().filter(|line| line.stranded > 0).collect()
}

fn records(scenario: &Scenario, outcomes: &[(Mechanism, Shared)]) -> Vec<Record> {
    let residual = |of: Mechanism| {
        let found = outcomes.iter().find(|(mechanism, _)| *mechanism == of);
        found.map_or(Value::Null, |(_, shared)| shared.residual.into())
    };
    let record = |line: &Line<'_>| {
        let mut r = Record::default();
        r.add("mechanism", line.mechanism.name());
        r.add("from_s", line.from);
        r.add("to_s", line.to);
        r.add("service", line.service);
        r.add("weight", line.weight);
        r.add("mean_bit_per_s", line.mean * BITS);
        r.add("end_bit_per_s", line.end * BITS);
        r.add("sent_bit_per_s", line.sent * BITS);
        r.add("without_path", line.stranded);
        r.add("residual", residual(line.mechanism));
        r
    };
    phases(scenario, outcomes).iter().map(record).collect()
}

/// A line for each time in which rates stood still, and each service.
fn lines(scenario: &Scenario, outcomes: &[(Mechanism, Shared)]) -> Vec<Record> {
    let mut lines = Vec::new();
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
                lines.push(r);
            }
        }
    }
    lines
}
