//! `weir explain`.

mod names;
mod table;

use names::{contention, rule_name};
use serde_json::{Value, json};
use weir_console::failure::Failure;
use weir_console::progress::{Progress, Watch};
use weir_console::record::Record;
use weir_console::spec;
use weir_console::table::count;
use weir_core::allocation::Standing;
use weir_sim::explain::{Entry, Explainer, Explanation, PortSide, State, timeline};
use weir_sim::{CoflowOutcome, Observer, Snapshot, replay};

use crate::args;
use crate::compare::caption;
use crate::network::{Network, switch_options};
use crate::render;
use crate::source::Source;

/// The longest time line without `--all`.
const MAX_ENTRIES: usize = 24;

/// Shows progress and follows the coflow.
struct Both<'a> {
    watch: Watch,
    explainer: &'a mut Explainer,
}

impl Observer for Both<'_> {
    fn scheduled(&mut self, moment: &Snapshot<'_>) -> bool {
        self.explainer.scheduled(moment) && self.watch.scheduled(moment)
    }

    fn done(&mut self, outcome: &CoflowOutcome) {
        self.explainer.done(outcome);
        self.watch.done(outcome);
    }
}

/// Runs `weir explain`.
pub fn explain(args: &args::Explain) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.input.trace)?;
    let source = Source::read(&args.input, args.replay.per_stage)?;
    let workload = &source.workload;
    let position = workload.coflows.iter().position(|coflow| coflow.id == args.coflow);
    let index = position.ok_or_else(|| unknown_coflow(args.coflow, &source))?;
    let options = switch_options(&args.replay, false);
    let policy = spec::build(&args.policy, Some(&workload.names))?;
    let mut explainer = Explainer::new(workload, index, &options);
    let watch = Progress::new(args.quiet).watch(&args.policy, workload.coflows.len());
    let mut both = Both { watch, explainer: &mut explainer };
    replay(workload, policy, &options, &mut both).map_err(|error| Failure::replay(&args.policy, &error))?;
    drop(both);
    let explanation = explainer.finish();
    let explanation = explanation
        .ok_or_else(|| Failure::undone(format_args!("coflow {} did not complete", args.coflow)))?;

    let entries = timeline(&explanation.segments, if args.all { usize::MAX } else { MAX_ENTRIES });
    let release = explanation.outcome.arrival;
    let table = || {
        let head = caption(&source, &Network::Switch(options, None), |_| false);
        format!("{head}\n{}", table::explanation(&args.policy, &explanation, &entries))
    };
    sink.fill(render::object(
        args.output.format,
        table,
        || object(&source, &args.policy, &explanation, &entries),
        || entries.iter().map(|entry| record(entry, release)).collect(),
    ))
}

/// Names the first coflows of the trace.
fn unknown_coflow(coflow: u64, source: &Source) -> Failure {
    let coflows = &source.workload.coflows;
    let ids: Vec<String> = coflows.iter().take(5).map(|coflow| coflow.id.to_string()).collect();
    let such = if ids.is_empty() { String::new() } else { format!(", such as {}", ids.join(", ")) };
    let ids = count(coflows.len(), "id");
    Failure::input(format_args!(
        "{}: no coflow {coflow}: expected one of the trace's {ids}{such}",
        source.name
    ))
}

/// An entry of the time line of a coflow that was released at `release`.
fn record(entry: &Entry<'_>, release: f64) -> Record {
    let main = entry.main;
    let side = main.cause.side();
    let mut r = Record::default();
    r.add("from_s", entry.from);
    r.add("to_s", entry.to);
    r.add("state", main.state.name());
    r.add("pace", entry.pace());
    r.add("bytes", entry.bytes);
    r.add("queue", main.queue);
    r.add("contention", contention(main.standing));
    r.add("overdue", main.standing == Standing::Overdue);
    r.add("rule", rule_name(main.rule));
    r.add("cause", main.cause.name());
    r.add("port", side.map(|side| side.port));
    r.add("side", side.map(PortSide::name));
    let first = main.holders.first();
    r.add("behind", first.map(|holder| holder.coflow));
    r.add("behind_queue", first.map(|holder| holder.queue));
    r.add("behind_contention", first.and_then(|holder| contention(holder.standing)));
    r.add("behind_overdue", first.map(|holder| holder.standing == Standing::Overdue));
    r.add("behind_share", first.map(|holder| holder.share));
    r.add("segments", entry.segments);
    r.add("since_release_s", entry.from - release);
    r
}

fn object(source: &Source, policy: &str, explanation: &Explanation, entries: &[Entry<'_>]) -> Record {
    let outcome = &explanation.outcome;
    let mut r = Record::default();
    r.add("trace", source.name.as_str());
    r.add("trace_unit", source.unit_value());
    r.add("policy", policy);
    r.add("coflow", outcome.id);
    r.add_all(["arrival_s", "end_s", "cct_s"], [outcome.arrival, outcome.end, outcome.cct()]);
    r.add("width", outcome.width);
    r.add("bytes", outcome.bytes);
    r.add("lost_bytes", explanation.lost_bytes);
    r.add("thrown_back_s", explanation.thrown_back());
    r.add("alone_s", explanation.alone);
    r.add("slowdown", (explanation.alone > 0.0).then(|| outcome.cct() / explanation.alone));
    r.add("met_deadline", outcome.met_deadline);
    let times = [State::Waiting, State::Slowed, State::Full].map(|state| explanation.time_in(state));
    r.add_all(["waiting_s", "slowed_s", "full_s"], times);
    let rules = explanation.by_rule().into_iter();
    let rules = rules.map(|(rule, time)| json!({ "rule": rule_name(rule), "time_s": time }));
    r.add("by_rule", rules.collect::<Vec<Value>>());
    let causes = explanation.by_cause().into_iter().map(|(cause, lost)| {
        let side = cause.side();
        let (port, name) = (side.map(|side| side.port), side.map(PortSide::name));
        json!({ "cause": cause.name(), "port": port, "side": name, "lost_s": lost })
    });
    r.add("by_cause", causes.collect::<Vec<Value>>());
    let coflows = explanation.by_coflow().into_iter();
    let coflows = coflows.map(|(id, lost)| json!({ "coflow": id, "lost_s": lost }));
    r.add("by_coflow", coflows.collect::<Vec<Value>>());
    let entries = entries.iter().map(|entry| record(entry, outcome.arrival).into());
    r.add("segments", entries.collect::<Vec<Value>>());
    r
}
