//! An explanation for people.

use weir_console::table::{Align, Table, bytes, count, number, percent, seconds};
use weir_core::allocation::Standing;
use weir_sim::explain::{Cause, Entry, Explanation, PortSide, Segment, State};

use super::names::{contention, rule_name};

/// The most lines of a summary by cause or by coflow.
const TOP: usize = 5;

/// The explanation: what became of the coflow, its time line, and sums.
pub fn explanation(policy: &str, explanation: &Explanation, entries: &[Entry<'_>]) -> String {
    let outcome = &explanation.outcome;
    let slowdown = match explanation.alone {
        0.0 => String::new(),
        alone => format!(", {} times as long", number(outcome.cct() / alone)),
    };
    let mut out = format!(
        "Coflow {} under {policy}: {}, {}, released at {}, completed at {}.\n\
         It took {}; alone it takes {}{slowdown}.\n",
        outcome.id,
        count(outcome.width, "flow"),
        bytes(outcome.bytes),
        seconds(outcome.arrival),
        seconds(outcome.end),
        seconds(outcome.cct()),
        seconds(explanation.alone),
    );
    if explanation.lost_bytes > 0.0 {
        out += &format!("{} were sent again by restarted flows.\n", bytes(explanation.lost_bytes));
    }
    if let Some(met) = outcome.met_deadline {
        out += &format!("It {} its deadline.\n", if met { "met" } else { "missed" });
    }
    if entries.is_empty() {
        return out + "It took no time: there is nothing to explain.\n";
    }
    out += &format!("\nIts time line, in seconds since its release:\n\n{}", lines(entries, outcome.arrival));
    if entries.iter().any(|entry| entry.segments > 1) {
        out += "\nShort segments are merged (number of segments) under the name of the longest; --all shows each segment.\n";
    }
    let occurs = |is: fn(Standing) -> bool| {
        entries.iter().any(|entry| {
            is(entry.main.standing) || entry.main.holders.iter().any(|holder| is(holder.standing))
        })
    };
    if occurs(|standing| contention(standing).is_some()) {
        out += "\nWithin a queue, the coflow that contends with the fewest others goes first.\n";
    }
    if occurs(|standing| standing == Standing::Overdue) {
        out += "\nA coflow is overdue after its maximum waiting time in a queue; it then goes before all queues.\n";
    }
    out + &sums(explanation)
}

fn lines(entries: &[Entry<'_>], release: f64) -> String {
    let mut table = Table::new(&[
        ("from", Align::Right),
        ("to", Align::Right),
        ("", Align::Left),
        ("pace", Align::Right),
        ("moved", Align::Right),
        ("place", Align::Left),
        ("rule", Align::Left),
        ("held up by", Align::Left),
        ("behind", Align::Left),
    ]);
    for entry in entries {
        let main = entry.main;
        let state = match entry.segments {
            1 => main.state.name().to_owned(),
            n => format!("{}, mostly ({n})", main.state.name()),
        };
        table.line(vec![
            format!("{:.4}", entry.from - release),
            format!("{:.4}", entry.to - release),
            state,
            percent(entry.pace()),
            bytes(entry.bytes),
            place(main.queue, main.standing),
            rule_name(main.rule),
            if main.cause == Cause::Nothing { String::new() } else { cause_text(main.cause) },
            holders(main),
        ]);
    }
    table.to_string()
}

/// Time by state, by rule, and lost time by cause and by coflow.
fn sums(explanation: &Explanation) -> String {
    let cct = explanation.outcome.cct();
    let row =
        |name: String, time: f64, note: &str| vec![name, seconds(time), percent(time / cct), note.to_owned()];
    let states = [
        (State::Waiting, "nothing moves"),
        (State::Slowed, "its bottleneck moves at less than full rate"),
        (State::Full, "as fast as alone: its bottleneck moves at full rate"),
    ];
    let states = states.map(|(state, note)| row(state.name().to_owned(), explanation.time_in(state), note));
    let rules = explanation.by_rule().into_iter().map(|(rule, time)| {
        let name = rule_name(rule);
        let meaning = rule_meaning(&name);
        row(name, time, meaning)
    });
    let causes = explanation.by_cause().into_iter().take(TOP);
    let mut causes: Vec<_> = causes.map(|(cause, time)| row(cause_text(cause), time, "")).collect();
    if explanation.thrown_back() > 1e-9 * cct {
        causes.push(row("restarted flows".to_owned(), explanation.thrown_back(), ""));
    }
    let coflows = explanation.by_coflow().into_iter().take(TOP);
    let coflows = coflows.map(|(id, time)| row(format!("coflow {id}"), time, ""));
    let sections = [
        ("Its time", states.into()),
        ("By rule", rules.collect()),
        ("Lost against being alone, by cause", causes),
        ("Lost behind other coflows", coflows.collect()),
    ];
    sections
        .into_iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(title, rows)| section(title, rows))
        .collect()
}

fn section(title: &str, rows: Vec<Vec<String>>) -> String {
    let aligns = [Align::Left, Align::Right, Align::Right, Align::Left];
    let mut table = Table::new(&aligns.map(|align| ("", align)));
    rows.into_iter().for_each(|row| table.line(row));
    format!("\n{title}:\n\n{table}")
}

/// The meaning of a rule, if its name does not say it.
fn rule_meaning(name: &str) -> &'static str {
    match name {
        "unsaid" => "the policy gives no rule",
        "all-or-none" => "all of its flows at once, at equal rates, or none",
        "work-conservation" => "one of its ports was full, or data was missing: residual capacity only",
        "none" => "one of its ports was full, or data was missing: none of its flows",
        "madd" => "all of its flows at rates at which they end together",
        "deadline" => "all of its flows at rates at which they end at its deadline",
        "backfill" => "residual capacity only",
        "in-order" => "flow by flow, in the order of coflows",
        "lacks-data" => "some of its data is missing",
        "transport" => "shared by the transport inside its queue",
        "connections" => "over the connections that its receivers have opened",
        _ => "",
    }
}

fn side_text(side: PortSide) -> String {
    format!("port {} ({})", side.port, if side.sends { "sending" } else { "receiving" })
}

fn cause_text(cause: Cause) -> String {
    match cause {
        Cause::Nothing => "its bottleneck became another port between schedules".to_owned(),
        Cause::NextSchedule => "released between two schedules".to_owned(),
        Cause::NoData => "its bottleneck has no data to send".to_owned(),
        Cause::Port(side) => side_text(side),
        Cause::SlowPort(side) => format!("{} is below its nominal rate", side_text(side)),
        Cause::Policy => "no port is a bottleneck: the policy gives no more".to_owned(),
    }
}

/// A queue, and the coflow's standing in it.
fn place(queue: usize, standing: Standing) -> String {
    match standing {
        Standing::Unsaid => format!("queue {queue}"),
        Standing::Contention(others) => format!("queue {queue}, contention {others}"),
        Standing::Overdue => format!("queue {queue}, overdue"),
    }
}

/// The coflows that use the port.
fn holders(segment: &Segment) -> String {
    const SHOWN: usize = 2;
    let shown = segment.holders.iter().take(SHOWN).map(|holder| {
        let place = place(holder.queue, holder.standing);
        format!("{} ({place}, {})", holder.coflow, percent(holder.share))
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match segment.holders.len() {
        all if all > SHOWN => format!("{shown} and {} more", all - SHOWN),
        _ => shown,
    }
}
