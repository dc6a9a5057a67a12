//! `weir explain`.

use std::fmt::Write as _;

use serde_json::{Value, json};
use weir_core::allocation::{Rule, Standing};
use weir_sim::explain::{Cause, Explainer, Explanation, PortSide, Segment, State};
use weir_sim::{CoflowOutcome, Moment, Observer, replay};

use crate::args::{self, Format};
use crate::compare::{caption, options};
use crate::input::Source;
use weir_console::failure::Failure;
use weir_console::output::{self, Sink};
use weir_console::progress::{Progress, Watch};
use weir_console::record::{self, Record};
use weir_console::spec;
use weir_console::table::{Align, Table, bytes, count, number, percent, seconds};

/// Lines of a time line that is still read.
const LINES: usize = 24;

/// Entries of a summary by coflow or by port.
const TOP: usize = 5;

/// Shows progress and follows the coflow.
struct Both<'a> {
    watch: Watch,
    explainer: &'a mut Explainer,
}

impl Observer for Both<'_> {
    fn scheduled(&mut self, moment: &Moment<'_>) -> bool {
        self.explainer.scheduled(moment) && self.watch.scheduled(moment)
    }

    fn done(&mut self, outcome: &CoflowOutcome) {
        self.explainer.done(outcome);
        self.watch.done(outcome);
    }
}

/// Runs `weir explain`.
///
/// # Errors
/// Whatever ends it early.
pub fn explain(args: &args::Explain) -> Result<(), Failure> {
    output::check_distinct(&args.input.trace, &[("--out", args.output.out.as_deref())])?;
    let sink = Sink::new(args.output.out.as_deref())?;
    let source = Source::read(&args.input, args.replay.per_stage)?;
    let workload = &source.workload;
    let Some(index) = workload.coflows.iter().position(|c| c.id == args.coflow) else {
        return Err(Failure::input(format_args!(
            "{}: no coflow {}: expected one of the trace's {}{}",
            source.name,
            args.coflow,
            count(workload.coflows.len(), "id"),
            some_ids(&source),
        )));
    };
    let options = options(&args.replay, false);
    let policy = spec::build(&args.policy, Some(&workload.names))?;
    let mut explainer = Explainer::new(workload, index, &options);
    let watch = Progress::new(args.quiet).watch(&args.policy, workload.coflows.len());
    let mut both = Both { watch, explainer: &mut explainer };
    replay(workload, policy, &options, &mut both).map_err(|error| Failure::replay(&args.policy, &error))?;
    drop(both);
    let found = explainer
        .finish()
        .ok_or_else(|| Failure::undone(format_args!("coflow {} was not seen to end", args.coflow)))?;

    let lines = merged(&found.segments, if args.all { usize::MAX } else { LINES });
    let text = match args.output.format {
        Format::Json => record::json(&as_json(&source, &args.policy, &found, &lines)).into_bytes(),
        Format::Csv => {
            let records: Vec<Record> = lines.iter().map(|line| line.record(found.outcome.arrival)).collect();
            record::csv(&records)
        }
        Format::Table => {
            let mut text = caption(&source, Some(options.port_rate), Some(options.interval), None);
            text.push('\n');
            for_people(&args.policy, &found, &lines, &mut text);
            text.into_bytes()
        }
    };
    sink.fill(&text)
}

/// The first ids of a trace, for somebody who guessed.
fn some_ids(source: &Source) -> String {
    let ids: Vec<String> = source.workload.coflows.iter().take(5).map(|c| c.id.to_string()).collect();
    if ids.is_empty() { String::new() } else { format!(", such as {}", ids.join(", ")) }
}

/// A line of the time line: one segment, or some short ones under the name of the longest.
struct Line<'a> {
    /// The longest.
    main: &'a Segment,
    from: f64,
    to: f64,
    bytes: f64,
    alone: f64,
    segments: usize,
}

impl<'a> Line<'a> {
    fn new(segments: &'a [Segment]) -> Option<Line<'a>> {
        let (first, last) = (segments.first()?, segments.last()?);
        let main = segments.iter().fold(first, |a, b| if b.time() > a.time() { b } else { a });
        Some(Line {
            main,
            from: first.from,
            to: last.to,
            bytes: segments.iter().map(|s| s.bytes).sum(),
            alone: segments.iter().map(|s| s.alone).sum(),
            segments: segments.len(),
        })
    }

    fn pace(&self) -> f64 {
        let time = self.to - self.from;
        if time > 0.0 { self.alone / time } else { 0.0 }
    }

    /// The line for programs, of a coflow that was released at `release`.
    fn record(&self, release: f64) -> Record {
        let mut r = Record::default();
        let side = side_of(self.main.cause);
        r.add("from_s", self.from);
        r.add("to_s", self.to);
        r.add("state", state_name(self.main.state));
        r.add("pace", self.pace());
        r.add("bytes", self.bytes);
        r.add("queue", self.main.queue);
        r.add("contention", contention(self.main.standing));
        r.add("overdue", self.main.standing == Standing::Overdue);
        r.add("rule", rule_name(self.main.rule));
        r.add("cause", cause_name(self.main.cause));
        r.add("port", side.map(|s| s.port));
        r.add("side", side.map(|s| if s.sends { "send" } else { "receive" }));
        let first = self.main.holders.first();
        r.add("behind", first.map(|h| h.coflow));
        r.add("behind_queue", first.map(|h| h.queue));
        r.add("behind_contention", first.and_then(|h| contention(h.standing)));
        r.add("behind_overdue", first.map(|h| h.standing == Standing::Overdue));
        r.add("behind_share", first.map(|h| h.share));
        r.add("segments", self.segments);
        r.add("since_release_s", self.from - release);
        r
    }
}

/// Puts neighbours together, the shortest ones first, until there are no more than `most` lines.
fn merged(segments: &[Segment], most: usize) -> Vec<Line<'_>> {
    let total: f64 = segments.iter().map(Segment::time).sum();
    let mut least = 0.0;
    loop {
        let lines = lines_of(segments, least);
        if lines.len() <= most || least > total {
            return lines;
        }
        least = if least == 0.0 { total / 4096.0 } else { least * 1.5 };
    }
}

/// Segments of `least` seconds or more each on a line of its own, and runs of shorter ones together, in lines of at
/// least that length where there is enough of them.
fn lines_of(segments: &[Segment], least: f64) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for (at, segment) in segments.iter().enumerate() {
        if segment.time() >= least {
            lines.extend(Line::new(&segments[start..at]));
            lines.extend(Line::new(&segments[at..=at]));
            start = at + 1;
        } else if segment.to - segments[start].from >= least {
            lines.extend(Line::new(&segments[start..=at]));
            start = at + 1;
        }
    }
    lines.extend(Line::new(&segments[start..]));
    lines
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Slowed => "slowed",
        State::Full => "full",
    }
}

/// `WorkConservation` as `work-conservation`: a new rule needs no line here.
fn rule_name(rule: Rule) -> String {
    let mut name = String::new();
    for c in format!("{rule:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// What a rule means, where its name does not say.
fn rule_meaning(name: &str) -> &'static str {
    match name {
        "unsaid" => "the policy does not say",
        "all-or-none" => "all of its flows at once, at equal rates, or none",
        "work-conservation" => {
            "some port of it had nothing left, or some of its data was not there: what others left over"
        }
        "none" => "some port of it had nothing left, or some of its data was not there: none of its flows",
        "madd" => "all of its flows at rates at which they end together",
        "deadline" => "all of its flows at rates at which they end at its deadline",
        "backfill" => "only what others left over",
        "in-order" => "flow by flow, in the order of coflows",
        "lacks-data" => "some of its data is not there",
        "transport" => "shared by the transport inside its queue",
        "connections" => "over the connections that its receivers have opened",
        _ => "",
    }
}

fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Nothing => "nothing",
        Cause::NextSchedule => "next-schedule",
        Cause::NoData => "no-data",
        Cause::Port(_) => "port",
        Cause::SlowPort(_) => "slow-port",
        Cause::Policy => "policy",
    }
}

fn side_of(cause: Cause) -> Option<PortSide> {
    match cause {
        Cause::Port(side) | Cause::SlowPort(side) => Some(side),
        _ => None,
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
        Cause::Policy => "no port is short: the policy gives no more".to_owned(),
    }
}

fn contention(standing: Standing) -> Option<u32> {
    match standing {
        Standing::Contention(others) => Some(others),
        Standing::Unsaid | Standing::Overdue => None,
    }
}

/// A queue, and what decides inside.
fn place(queue: usize, standing: Standing) -> String {
    match standing {
        Standing::Unsaid => format!("queue {queue}"),
        Standing::Contention(others) => format!("queue {queue}, contention {others}"),
        Standing::Overdue => format!("queue {queue}, overdue"),
    }
}

/// Who has the port.
fn behind(segment: &Segment) -> String {
    const SHOWN: usize = 2;
    let mut text = String::new();
    for holder in segment.holders.iter().take(SHOWN) {
        let place = place(holder.queue, holder.standing);
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}{} ({place}, {})", holder.coflow, percent(holder.share))
            .expect("memory takes all");
    }
    match segment.holders.len() {
        more if more > SHOWN => format!("{text} and {} more", more - SHOWN),
        _ => text,
    }
}

fn for_people(policy: &str, found: &Explanation, lines: &[Line<'_>], out: &mut String) {
    let outcome = &found.outcome;
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        "Coflow {} under {policy}: {}, {}, released at {}, done at {}.",
        outcome.id,
        count(outcome.width, "flow"),
        bytes(outcome.bytes),
        seconds(outcome.arrival),
        seconds(outcome.end),
    ));
    let slowdown = match found.alone {
        0.0 => String::new(),
        alone => format!(", {} times as long", number(outcome.cct() / alone)),
    };
    line(format!("It took {}; alone it takes {}{slowdown}.", seconds(outcome.cct()), seconds(found.alone)));
    if found.lost_bytes > 0.0 {
        line(format!("{} were moved in vain, by flows that started anew.", bytes(found.lost_bytes)));
    }
    if let Some(met) = outcome.met_deadline {
        line(format!("It {} its deadline.", if met { "met" } else { "missed" }));
    }
    if lines.is_empty() {
        line("It took no time: there is nothing to explain.".to_owned());
        return;
    }

    out.push_str("\nIts time line, in seconds since its release:\n\n");
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
    for l in lines {
        let merged = match l.segments {
            1 => state_name(l.main.state).to_owned(),
            n => format!("{}, mostly ({n})", state_name(l.main.state)),
        };
        table.line(vec![
            format!("{:.4}", l.from - outcome.arrival),
            format!("{:.4}", l.to - outcome.arrival),
            merged,
            percent(l.pace()),
            bytes(l.bytes),
            place(l.main.queue, l.main.standing),
            rule_name(l.main.rule),
            if l.main.cause == Cause::Nothing { String::new() } else { cause_text(l.main.cause) },
            behind(l.main),
        ]);
    }
    table.print(out);
    if lines.iter().any(|l| l.segments > 1) {
        out.push_str("\nShort segments are merged into lines (how many), under the name of the longest; --all shows each.\n");
    }
    let standing = |is: fn(Standing) -> bool| {
        let of_others = |l: &Line<'_>| l.main.holders.iter().any(|h| is(h.standing));
        lines.iter().any(|l| is(l.main.standing) || of_others(l))
    };
    if standing(|standing| contention(standing).is_some()) {
        out.push_str("\nInside a queue the coflow goes first that contends with the fewest others.\n");
    }
    if standing(|standing| standing == Standing::Overdue) {
        out.push_str("\nA coflow is overdue when it has waited in its queue for as long as it may; then it goes before all queues.\n");
    }
    summary(found, out);
}

fn summary(found: &Explanation, out: &mut String) {
    let cct = found.outcome.cct();
    let share = |time: f64| percent(time / cct);
    let section = |title: &str, rows: Vec<Vec<String>>, out: &mut String| {
        if rows.is_empty() {
            return;
        }
        write!(out, "\n{title}:\n\n").expect("memory takes all");
        let mut table =
            Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Right), ("", Align::Left)]);
        rows.into_iter().for_each(|row| table.line(row));
        table.print(out);
    };
    let row = |name: String, time: f64, note: &str| vec![name, seconds(time), share(time), note.to_owned()];
    let states = [
        (State::Waiting, "waiting", "nothing moved"),
        (State::Slowed, "slowed", "its bottleneck moves at less than full rate"),
        (State::Full, "full", "as fast as alone: its bottleneck moves at full rate"),
    ];
    let rows = states.map(|(state, name, note)| row(name.to_owned(), found.time_in(state), note));
    section("Its time", rows.into(), out);
    let rows = found.by_rule().into_iter().map(|(rule, time)| {
        let name = rule_name(rule);
        let meaning = rule_meaning(&name);
        row(name, time, meaning)
    });
    section("By rule", rows.collect(), out);
    let causes = found.by_cause().into_iter().take(TOP).map(|(cause, time)| row(cause_text(cause), time, ""));
    let mut rows: Vec<_> = causes.collect();
    if found.thrown_back() > 1e-9 * cct {
        rows.push(row("flows that started anew".to_owned(), found.thrown_back(), ""));
    }
    section("Lost against being alone, by what held it up", rows, out);
    let rows =
        found.by_coflow().into_iter().take(TOP).map(|(id, time)| row(format!("coflow {id}"), time, ""));
    section("Lost behind others", rows.collect(), out);
}

fn as_json(source: &Source, policy: &str, found: &Explanation, lines: &[Line<'_>]) -> Record {
    let outcome = &found.outcome;
    let mut r = Record::default();
    r.add("trace", source.name.clone());
    r.add("trace_unit", source.unit_value());
    r.add("policy", policy);
    r.add("coflow", outcome.id);
    r.add("arrival_s", outcome.arrival);
    r.add("end_s", outcome.end);
    r.add("cct_s", outcome.cct());
    r.add("width", outcome.width);
    r.add("bytes", outcome.bytes);
    r.add("lost_bytes", found.lost_bytes);
    r.add("thrown_back_s", found.thrown_back());
    r.add("alone_s", found.alone);
    r.add("slowdown", (found.alone > 0.0).then(|| outcome.cct() / found.alone));
    r.add("met_deadline", outcome.met_deadline);
    r.add("waiting_s", found.time_in(State::Waiting));
    r.add("slowed_s", found.time_in(State::Slowed));
    r.add("full_s", found.time_in(State::Full));
    let rules = found.by_rule().into_iter().map(|(rule, s)| json!({ "rule": rule_name(rule), "time_s": s }));
    r.add("by_rule", rules.collect::<Vec<Value>>());
    let causes = found.by_cause().into_iter().map(|(cause, lost)| {
        let side = side_of(cause);
        json!({
            "cause": cause_name(cause),
            "port": side.map(|s| s.port),
            "side": side.map(|s| if s.sends { "send" } else { "receive" }),
            "lost_s": lost,
        })
    });
    r.add("by_cause", causes.collect::<Vec<Value>>());
    let coflows = found.by_coflow().into_iter().map(|(id, lost)| json!({ "coflow": id, "lost_s": lost }));
    r.add("by_coflow", coflows.collect::<Vec<Value>>());
    let segments: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::to_value(line.record(outcome.arrival)).expect("a record has names for keys"))
        .collect();
    r.add("segments", segments);
    r
}
