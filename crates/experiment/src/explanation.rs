//! Explains the completion times of coflows, as text and as records.

mod leaves;
mod names;
mod table;

pub use leaves::Leaves;
use names::{attained_seconds, contending_coflows, estimated_seconds, rejection_seconds};
use serde_json::{Value, json};
use weir_console::failure::Failure;
use weir_console::record::Record;
use weir_console::table::format_count;
use weir_core::allocation::OrderCriterion;
use weir_core::model::Workload;
use weir_sim::explain::{Explainer, Explanation, Link, PathCollision, ProgressState, TimelineEntry};
use weir_sim::{CoflowOutcome, Outcome};

use crate::network::Network;
use crate::source::Source;
pub use table::explanation as explanation_blocks;

/// The maximum number of entries of a time line, unless all are requested.
pub const MAX_ENTRIES: usize = 24;

/// An explanation, and what its output states in addition.
pub struct Report<'a> {
    /// The coflows.
    pub source: &'a Source,
    /// The network.
    pub network: &'a Network,
    /// The policy.
    pub policy: &'a str,
    /// The leaves of all coflows, if the policy is a tree.
    pub leaves: &'a Leaves,
    /// The explanation.
    pub explanation: &'a Explanation,
    /// Its time line.
    pub entries: &'a [TimelineEntry<'a>],
}

/// The position of a coflow in the workload.
///
/// # Errors
/// If the trace has no coflow of this number.
pub fn find_coflow(coflow: u64, source: &Source) -> Result<usize, Failure> {
    let position = source.workload.coflows.iter().position(|other| other.id == coflow);
    position.ok_or_else(|| unknown_coflow(coflow, source))
}

/// The positions of the coflows with the longest completion times, the longest first.
pub fn slowest_coflows(outcome: &Outcome, count: usize) -> Vec<usize> {
    let mut coflows: Vec<&CoflowOutcome> = outcome.coflows.iter().collect();
    coflows.sort_by(|a, b| b.cct().total_cmp(&a.cct()));
    coflows.iter().take(count).map(|coflow| coflow.index).collect()
}

/// The failure for a coflow that has not completed.
fn incomplete_coflow(policy: &str, workload: &Workload, outcome: &Outcome, index: usize) -> Failure {
    let mut stalled = outcome.stall.iter().flat_map(|stall| &stall.coflows);
    let found = stalled.find(|coflow| coflow.index == index);
    let reason = found.map_or_else(String::new, |coflow| format!("; {}", coflow.reason()));
    let id = workload.coflows[index].id;
    Failure::runtime(format_args!("{}: coflow {id} cannot complete{reason}", policy))
}

/// A line of CSV for each entry of the time line, with the coflow if there are several.
pub fn entry_lines(report: &Report<'_>, has_coflow: bool) -> Vec<Record> {
    let line = |entry: &TimelineEntry<'_>| {
        let mut record = Record::default();
        if has_coflow {
            record.add("coflow", report.explanation.outcome.id);
        }
        record.append(entry_line(report, entry));
        record
    };
    report.entries.iter().map(line).collect()
}

/// The explanation as text; see [`table::explanation`].
pub fn explanation_text(report: &Report<'_>, colors: Option<bool>) -> String {
    let blocks = table::explanation(report, colors);
    blocks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The failure for a coflow that the trace does not contain; lists some ids as examples.
fn unknown_coflow(coflow: u64, source: &Source) -> Failure {
    let coflows = &source.workload.coflows;
    let ids: Vec<String> = coflows.iter().take(5).map(|coflow| coflow.id.to_string()).collect();
    let examples = if ids.is_empty() { String::new() } else { format!(", such as {}", ids.join(", ")) };
    let ids = format_count(coflows.len(), "id");
    let expected = format!("one of its {ids}{examples}");
    let message = format!("{}: coflow {coflow} is not in the trace; expected {expected}", source.name);
    Failure::invalid_value("coflow", coflow, Some(&expected), message)
}

/// The record of an entry of the time line.
fn entry_record(report: &Report<'_>, entry: &TimelineEntry<'_>) -> Record {
    let main = entry.main;
    let link = main.cause.link();
    let mut r = Record::default();
    r.add("from_s", entry.start);
    r.add("to_s", entry.end);
    r.add("state", entry.state().name());
    r.add("pace", entry.pace());
    r.add("bytes", entry.bytes);
    r.add("queue", main.queue);
    r.add("contention", contending_coflows(main.order_criterion));
    r.add("overdue", main.order_criterion == OrderCriterion::DeadlineExpired);
    r.add("rule", main.rule.name());
    r.add("cause", main.cause.name());
    r.add("port", link.and_then(Link::port));
    r.add("side", link.filter(|link| link.port().is_some()).map(Link::kind));
    let first_holder = main.holders.first();
    r.add("held_up_by", first_holder.map(|holder| holder.coflow));
    r.add("held_up_by_queue", first_holder.map(|holder| holder.queue));
    r.add(
        "held_up_by_contention",
        first_holder.and_then(|holder| contending_coflows(holder.order_criterion)),
    );
    r.add(
        "held_up_by_overdue",
        first_holder.map(|holder| holder.order_criterion == OrderCriterion::DeadlineExpired),
    );
    r.add("held_up_by_share", first_holder.map(|holder| holder.rate_share));
    r.add("segments", entry.segment_count);
    r.add("since_release_s", entry.start - report.explanation.outcome.released_at);
    r.add("trunk", trunk_name(link, report.network));
    let leaf = first_holder.and_then(|holder| report.leaves.find(holder.coflow));
    r.add("held_up_by_leaf", leaf.map(|leaf| leaf.name.as_str()));
    let estimated = estimated_seconds(main.order_criterion);
    r.add("estimated_s", estimated.map(|(needed, _)| needed).filter(|needed| needed.is_finite()));
    r.add("estimated_from_flows", estimated.map(|(_, flows)| flows));
    r.add("attained_s", attained_seconds(main.order_criterion));
    let of_holder = first_holder.map(|holder| holder.order_criterion);
    let estimated = of_holder.and_then(estimated_seconds).map(|(needed, _)| needed);
    r.add("held_up_by_estimated_s", estimated.filter(|needed| needed.is_finite()));
    r.add("held_up_by_attained_s", of_holder.and_then(attained_seconds));
    r
}

/// Adds the facts that hold for the coflow as a whole: its leaf in a policy tree with the policy of the leaf, and, if it was rejected at
/// admission, the time that it needed and the time until its deadline.
fn add_coflow_facts(r: &mut Record, report: &Report<'_>) {
    let leaf = report.leaves.find(report.explanation.outcome.id);
    r.add("leaf", leaf.map(|leaf| leaf.name.as_str()));
    r.add("leaf_policy", leaf.map(|leaf| leaf.policy.as_str()));
    let rejection = rejection_seconds(report.explanation);
    r.add("rejected_needed_s", rejection.map(|(needed, _)| needed).filter(|needed| needed.is_finite()));
    r.add("rejected_left_s", rejection.map(|(_, left)| left));
}

/// The record of an entry of the time line as a line of CSV.
fn entry_line(report: &Report<'_>, entry: &TimelineEntry<'_>) -> Record {
    let mut r = entry_record(report, entry);
    add_coflow_facts(&mut r, report);
    r
}

/// The ends of a trunk that limits the coflow.
fn trunk_name(link: Option<Link>, network: &Network) -> Option<String> {
    Some(network.trunk_name(link?.trunk()? as usize))
}

/// The flows that share a link although other paths are less loaded, for JSON.
fn collision_record(collision: &PathCollision, network: &Network) -> Value {
    let unused: Vec<String> =
        collision.unused_links.iter().filter_map(|&link| trunk_name(Some(link), network)).collect();
    json!({
        "trunk": trunk_name(Some(collision.link), network),
        "flows": collision.flow_count,
        "candidate_flows": collision.candidate_flow_count,
        "unused_trunks": unused,
        "time_s": collision.seconds,
        "even_time_s": collision.even_seconds,
    })
}

/// The whole explanation, for JSON.
pub fn explanation_record(report: &Report<'_>) -> Record {
    let Report { source, network, policy, explanation, entries, .. } = *report;
    let outcome = &explanation.outcome;
    let mut r = Record::default();
    source.record_fields().into_iter().for_each(|(name, value)| r.add(name, value));
    r.add("policy", policy);
    r.add("coflow", outcome.id);
    r.add_all(["arrival_s", "end_s", "cct_s"], [outcome.released_at, outcome.end, outcome.cct()]);
    let spec = &source.workload.coflows[outcome.index];
    r.add("job", spec.job.map(|number| source.job_name(number)));
    r.add("stage", spec.stage);
    r.add("width", outcome.width);
    // The sizes of endless coflows are no result.
    r.add("bytes", if spec.is_endless { outcome.sent_bytes() } else { outcome.bytes });
    r.add("dropped_bytes", (!spec.is_endless).then_some(outcome.dropped_bytes));
    r.add("lost_bytes", explanation.lost_bytes);
    r.add("resent_s", explanation.restart_seconds());
    r.add("alone_s", explanation.alone_seconds);
    let collision = explanation.collision.as_ref();
    r.add("collision", collision.map(|collision| collision_record(collision, network)));
    let has_slowdown = explanation.alone_seconds > 0.0 && !spec.is_endless;
    r.add("slowdown", has_slowdown.then(|| outcome.cct() / explanation.alone_seconds));
    r.add("met_deadline", outcome.met_deadline());
    add_coflow_facts(&mut r, report);
    let times = [ProgressState::Waiting, ProgressState::Slowed, ProgressState::FullPace]
        .map(|state| explanation.seconds_in_state(state));
    r.add_all(["waiting_s", "slowed_s", "full_s"], times);
    let rules = explanation.seconds_under_each_rule().into_iter();
    let rules = rules.map(|(rule, time)| json!({ "rule": rule.name(), "time_s": time }));
    r.add("by_rule", rules.collect::<Vec<Value>>());
    let causes = explanation.lost_seconds_by_cause().into_iter().map(|(cause, lost)| {
        let link = cause.link();
        let port = link.and_then(Link::port);
        let side = link.filter(|_| port.is_some()).map(Link::kind);
        let trunk = trunk_name(link, network);
        json!({ "cause": cause.name(), "port": port, "side": side, "trunk": trunk, "lost_s": lost })
    });
    r.add("by_cause", causes.collect::<Vec<Value>>());
    let coflows = explanation.lost_seconds_by_coflow().into_iter();
    let coflows = coflows.map(|(id, lost)| json!({ "coflow": id, "lost_s": lost }));
    r.add("by_coflow", coflows.collect::<Vec<Value>>());
    let entries = entries.iter().map(|entry| entry_record(report, entry).into());
    r.add("segments", entries.collect::<Vec<Value>>());
    r
}

/// The explanations of explainers that have observed a replay of `workload` under a policy, and were created for the coflows at
/// `indices`.
///
/// # Errors
/// If a coflow has not completed.
pub fn finish_explanations(
    explainers: Vec<Explainer>,
    indices: &[usize],
    (policy, workload): (&str, &Workload),
    outcome: &Outcome,
) -> Result<Vec<Explanation>, Failure> {
    let explain = |(explainer, &index): (Explainer, &usize)| {
        let (Some(mut explanation), Some(completed)) = (explainer.finish(), outcome.coflow(index)) else {
            return Err(incomplete_coflow(policy, workload, outcome, index));
        };
        // Between regions, the explained flows are merged; the outcome is that of the trace's flows.
        explanation.outcome = completed.clone();
        Ok(explanation)
    };
    explainers.into_iter().zip(indices).map(explain).collect()
}
