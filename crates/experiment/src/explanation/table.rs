//! Prints an explanation as text with tables.

use weir_console::drawing::{self, Color};
use weir_console::report::explanation::Block;
use weir_console::table::{
    Alignment, Table, TimeUnit, format_bytes, format_count, format_number, format_percent, format_rate,
    format_seconds,
};
use weir_core::allocation::{OrderCriterion, Rule};
use weir_sim::explain::{Explanation, Link, PathCollision, ProgressState, Segment, SlowdownCause};

use super::Report;
use super::names::{attained_seconds, contending_coflows, estimated_seconds, link_name, rejection_seconds};
use crate::network::Network;

/// The number of causes or coflows that a summary names if there are many.
const MAX_SUMMARY_LINES: usize = 5;

/// The explanation: the outcome of the coflow, its time line, and sums of time by state, rule, cause and coflow. In a terminal,
/// `colors` states whether a drawing of the time line has colors.
pub fn explanation(report: &Report<'_>, colors: Option<bool>) -> Vec<Block> {
    let Report { explanation, entries, .. } = *report;
    let outcome = outcome_text(report);
    if entries.is_empty() || explanation.outcome.cct() == 0.0 {
        return vec![Block::Text(outcome + "It took no time: there is nothing to explain.\n")];
    }
    let mut blocks = vec![Block::Text(outcome)];
    blocks.extend(colors.map(|has_colors| Block::Text(pace_drawing(explanation, has_colors))));
    let unit = TimeUnit::fitting([explanation.outcome.cct()]);
    blocks.push(Block::Title(format!("Time line, in {} since the release", unit.name)));
    blocks.push(Block::Table(timeline_table(report, unit)));
    let occurs = |matches_criterion: fn(OrderCriterion) -> bool| {
        entries.iter().any(|entry| {
            matches_criterion(entry.main.order_criterion)
                || entry.main.holders.iter().any(|holder| matches_criterion(holder.order_criterion))
        })
    };
    let notes = [
        (true, "`pace` is the progress relative to running alone; `sent` counts the bytes of all its flows."),
        (
            entries.iter().any(|entry| entry.segment_count > 1),
            "Short segments are merged (number of segments). Queue, rule and cause are those of the one that loses the most time; `--all` shows each segment.",
        ),
        (
            occurs(|criterion| contending_coflows(criterion).is_some()),
            "Within a queue, the coflow that contends with the fewest others goes first.",
        ),
        (
            occurs(|criterion| estimated_seconds(criterion).is_some()),
            "The coflow with the shortest estimated time goes first: from its completed flows, or, without any, from earlier coflows and the time that its bottleneck has served it (attained).",
        ),
        (
            occurs(|criterion| criterion == OrderCriterion::DeadlineExpired),
            "A coflow is overdue after its maximum waiting time in a queue; it then goes before all queues.",
        ),
    ];
    let shown = notes.iter().filter(|(is_shown, _)| *is_shown);
    blocks.extend(shown.map(|(_, note)| Block::Text((*note).to_owned())));
    blocks.extend(summary(explanation, report.network));
    blocks
}

/// The outcome of the coflow.
fn outcome_text(report: &Report<'_>) -> String {
    let Report { policy, explanation, .. } = *report;
    let outcome = &explanation.outcome;
    let source = report.source;
    let services = source.services.as_ref();
    if let Some(served) = services.and_then(|services| services.served_by(&source.workload, outcome)) {
        return format!(
            "Coflow {} under {policy}: demand {} of service {}, {}, from {} to {}.\nIt sent {}, a mean rate of {}.\n",
            outcome.id,
            served.demand,
            served.service,
            format_count(served.connections, "connection"),
            format_seconds(served.from),
            format_seconds(served.to),
            format_bytes(served.bytes),
            format_rate(served.mean_rate()),
        );
    }
    let slowdown = match explanation.alone_seconds {
        0.0 => String::new(),
        alone => format!(": a slowdown of {}", format_number(outcome.cct() / alone)),
    };
    let mut out = format!(
        "Coflow {} under {policy}: {}, {}, released at {}, completed at {}.\n\
         It took {}; alone it takes {}{slowdown}.\n",
        outcome.id,
        format_count(outcome.width, "flow"),
        format_bytes(outcome.bytes),
        format_seconds(outcome.released_at),
        format_seconds(outcome.end),
        format_seconds(outcome.cct()),
        format_seconds(explanation.alone_seconds),
    );
    if let Some(collision) = &explanation.collision {
        out += &collision_text(collision, report.network);
    }
    let spec = &report.source.workload.coflows[outcome.index];
    if let Some(job) = spec.job {
        let stage = spec.stage.map_or_else(String::new, |stage| format!(", stage {stage}"));
        out += &format!("It belongs to job {}{stage}.\n", report.source.job_name(job));
    }
    if let Some(leaf) = report.leaves.find(outcome.id) {
        out += &format!("Leaf {} of the tree schedules it by {}.\n", leaf.name, leaf.policy);
    }
    if outcome.dropped_bytes > 0.0 {
        out += &format!(
            "Its flows ended at their limit: {} were not sent.\n",
            format_bytes(outcome.dropped_bytes)
        );
    }
    if explanation.lost_bytes > 0.0 {
        out += &format!("{} were sent again by restarted flows.\n", format_bytes(explanation.lost_bytes));
    }
    if let Some(met) = outcome.met_deadline() {
        out += &format!("It {} its deadline.\n", if met { "met" } else { "missed" });
    }
    if let Some((needed, left)) = rejection_seconds(explanation) {
        let needed = match needed.is_finite() {
            true => format!("needs {} on the residual capacity", format_seconds(needed)),
            false => "a link has no residual capacity".to_owned(),
        };
        out += &format!("Rejected at admission: {needed}, deadline in {}.\n", format_seconds(left));
    }
    out
}

/// The flows that share a link although other paths are less loaded.
fn collision_text(collision: &PathCollision, network: &Network) -> String {
    const MAX_SHOWN_LINKS: usize = 3;
    let PathCollision { link, flow_count, candidate_flow_count, unused_links, seconds, even_seconds } =
        collision;
    let shown = unused_links.iter().take(MAX_SHOWN_LINKS).map(|&link| link_name(link, network));
    let mut unused = shown.collect::<Vec<_>>().join(", ");
    if unused_links.len() > MAX_SHOWN_LINKS {
        unused += &format!(" and {} more", unused_links.len() - MAX_SHOWN_LINKS);
    }
    let unused = if unused.is_empty() { unused } else { format!(", and none crosses {unused}") };
    let link = link_name(*link, network);
    format!(
        "Its flows collide: {flow_count} of {candidate_flow_count} cross {link}{unused}. \
         Spread evenly over the paths, they take {} instead of {}.\n",
        format_seconds(*even_seconds),
        format_seconds(*seconds),
    )
}

/// The number of characters of a drawing.
const DRAWING_WIDTH: usize = 64;

/// The pace from the release to the completion, as a line of bars. Colors show the state.
fn pace_drawing(explanation: &Explanation, has_colors: bool) -> String {
    let outcome = &explanation.outcome;
    let part_seconds = outcome.cct() / DRAWING_WIDTH as f64;
    let character = |part: usize| {
        let from = outcome.released_at + part as f64 * part_seconds;
        let (pace, state) = explanation.progress_between(from, from + part_seconds);
        let bar = drawing::bar(pace);
        let color = match state {
            ProgressState::Waiting => Color::Red,
            ProgressState::Slowed => Color::Yellow,
            ProgressState::FullPace => Color::Green,
        };
        match has_colors {
            // A space would not show its color.
            true => drawing::colored(
                &(if bar == ' ' { drawing::bar(f64::MIN_POSITIVE) } else { bar }).to_string(),
                color,
            ),
            false => bar.to_string(),
        }
    };
    let line: String = (0..DRAWING_WIDTH).map(character).collect();
    let legend = match has_colors {
        true => "Green: as fast as alone. Yellow: slower. Red: no flow moves.\n",
        false => "",
    };
    format!("Pace from the release to the completion; full height: as fast as alone.\n{legend}\n|{line}|\n")
}

/// A pace as a percentage. A coflow that is slowed has neither 0 % nor 100 %.
fn pace_text(pace: f64, state: ProgressState) -> String {
    match state {
        ProgressState::Slowed if pace < 0.0005 => "<0.1 %".to_owned(),
        _ => format_percent(pace),
    }
}

/// The time line, with times in `unit`.
fn timeline_table(report: &Report<'_>, unit: TimeUnit) -> Table {
    let release = report.explanation.outcome.released_at;
    // All times have the decimals with which the last one has five significant digits.
    let decimals = match unit.count(report.explanation.outcome.cct()) {
        last if last < 10.0 => 4,
        last if last < 100.0 => 3,
        last if last < 1000.0 => 2,
        _ => 1,
    };
    let mut table = Table::new(&[
        ("from", Alignment::Right),
        ("to", Alignment::Right),
        ("state", Alignment::Left),
        ("pace", Alignment::Right),
        ("sent", Alignment::Right),
        ("queue", Alignment::Left),
        ("rule", Alignment::Left),
        ("cause", Alignment::Left),
        ("held up by", Alignment::Left),
    ]);
    for entry in report.entries {
        let main = entry.main;
        let state = entry.state();
        let state_text = match entry.segment_count {
            1 => state.name().to_owned(),
            n => format!("{} ({n})", state.name()),
        };
        let [from, to] = [entry.start, entry.end].map(|at| unit.count(at - release));
        table.add_row(vec![
            format!("{from:.decimals$}"),
            format!("{to:.decimals$}"),
            state_text,
            pace_text(entry.pace(), state),
            format_bytes(entry.bytes),
            queue_text(main.queue, main.order_criterion),
            main.rule.name().to_owned(),
            if state == ProgressState::FullPace {
                String::new()
            } else {
                cause_text(main.cause, report.network)
            },
            holders_text(main, report),
        ]);
    }
    table
}

/// Sums: time by state and by rule, and lost time by cause and by coflow.
fn summary(explanation: &Explanation, network: &Network) -> Vec<Block> {
    let cct = explanation.outcome.cct();
    let row = |name: String, time: f64, note: &str| {
        vec![name, format_seconds(time), format_percent(time / cct), note.to_owned()]
    };
    let states = [
        (ProgressState::Waiting, "nothing moves"),
        (ProgressState::Slowed, "slower than alone"),
        (ProgressState::FullPace, "as fast as alone: its bottleneck is at full rate"),
    ];
    let states =
        states.map(|(state, note)| row(state.name().to_owned(), explanation.seconds_in_state(state), note));
    let rules = explanation.seconds_under_each_rule().into_iter();
    let rules = rules.map(|(rule, time)| row(rule.name().to_owned(), time, rule_meaning(rule)));
    let causes = explanation.lost_seconds_by_cause().into_iter();
    let causes = causes.map(|(cause, time)| (cause_text(cause, network), time)).collect();
    let mut causes: Vec<_> =
        sum_last_lines(causes, "causes").map(|(cause, time)| row(cause, time, "")).collect();
    if explanation.restart_seconds() > 1e-9 * cct {
        causes.push(row("restarted flows".to_owned(), explanation.restart_seconds(), ""));
    }
    let coflows = explanation.lost_seconds_by_coflow().into_iter();
    let coflows = coflows.map(|(id, time)| (format!("coflow {id}"), time)).collect();
    let coflows = sum_last_lines(coflows, "coflows").map(|(coflow, time)| row(coflow, time, ""));
    let sections = [
        ("Time by state", states.into()),
        ("Time by rule", rules.collect()),
        ("Time lost relative to running alone, by cause", causes),
        ("Time lost to other coflows", coflows.collect()),
    ];
    sections
        .into_iter()
        .filter(|(_, rows)| !rows.is_empty())
        .flat_map(|(title, rows)| section(title, rows))
        .collect()
}

/// Replaces the last of many lines by one with their number and sum.
fn sum_last_lines(mut lines: Vec<(String, f64)>, noun: &str) -> impl Iterator<Item = (String, f64)> {
    if lines.len() > MAX_SUMMARY_LINES + 1 {
        let others = lines.split_off(MAX_SUMMARY_LINES);
        lines.push((format!("{} other {noun}", others.len()), others.iter().map(|(_, time)| time).sum()));
    }
    lines.into_iter()
}

fn section(title: &str, rows: Vec<Vec<String>>) -> [Block; 2] {
    let aligns = [Alignment::Left, Alignment::Right, Alignment::Right, Alignment::Left];
    let mut table = Table::new(&aligns.map(|align| ("", align)));
    rows.into_iter().for_each(|row| table.add_row(row));
    [Block::Title(title.to_owned()), Block::Table(table)]
}

fn rule_meaning(rule: Rule) -> &'static str {
    match rule {
        Rule::Unexplained => "the policy gives no rule",
        Rule::AllOrNone => "all of its flows at once, at equal rates, or none",
        Rule::WorkConservation => "one of its links was full, or data was missing: residual capacity only",
        Rule::NotAdmitted => "one of its links was full, or data was missing: none of its flows",
        Rule::Madd => "all of its flows at rates at which they end together",
        Rule::Deadline => "all of its flows at rates at which they end at its deadline",
        Rule::Backfill => "residual capacity only",
        Rule::InOrder => "flow by flow, in the order of coflows",
        Rule::WaitingForData => "some of its data is missing",
        Rule::Transport => "shared by the transport inside its queue",
        Rule::Connections => "over the connections that its receivers have opened",
        Rule::Other(_) => "a rule of the policy itself",
    }
}

fn cause_text(cause: SlowdownCause, network: &Network) -> String {
    match cause {
        SlowdownCause::None => "its bottleneck became another link between schedules".to_owned(),
        SlowdownCause::NextSchedule => "waits for the next schedule".to_owned(),
        SlowdownCause::NoData => "its bottleneck has no data to send".to_owned(),
        SlowdownCause::ContendedLink(link) => link_name(link, network),
        SlowdownCause::SlowLink(Link::Trunk(trunk)) if trunk as usize >= network.trunk_count() => {
            "no path leads to the receiver while cables are down".to_owned()
        }
        SlowdownCause::SlowLink(link) => format!("{} is below its nominal rate", link_name(link, network)),
        SlowdownCause::Policy => "the policy assigns no more".to_owned(),
    }
}

/// A queue, and the criterion by which the coflow is ordered in it.
fn queue_text(queue: usize, criterion: OrderCriterion) -> String {
    match criterion {
        OrderCriterion::Constant => format!("queue {queue}"),
        OrderCriterion::Contention(others) => format!("queue {queue}, contention {others}"),
        OrderCriterion::DeadlineExpired => format!("queue {queue}, overdue"),
        OrderCriterion::EstimatedTime { .. } | OrderCriterion::ExpectedTime { .. } => {
            estimate_text(criterion)
        }
        OrderCriterion::Rejected { .. } => "rejected".to_owned(),
    }
}

/// The estimate by which the coflow is ordered, if it is ordered by one.
fn estimate_text(criterion: OrderCriterion) -> String {
    let Some((needed, flows)) = estimated_seconds(criterion) else { return String::new() };
    if needed.is_infinite() {
        return "a link is down".to_owned();
    }
    let needed = format_seconds(needed);
    match (flows, attained_seconds(criterion)) {
        (_, Some(attained)) => format!("estimated {needed}, attained {}", format_seconds(attained)),
        (0, None) => format!("estimated {needed} from earlier coflows"),
        (_, None) => format!("estimated {needed} from {}", format_count(flows, "flow")),
    }
}

/// The coflows that use the link which limits this coflow, with their queues and shares of the link, and their leaf of the tree if it is
/// another one.
fn holders_text(segment: &Segment, report: &Report<'_>) -> String {
    const MAX_SHOWN_HOLDERS: usize = 2;
    let own_leaf = report.leaves.find(report.explanation.outcome.id);
    let shown = segment.holders.iter().take(MAX_SHOWN_HOLDERS).map(|holder| {
        let other_leaf = report.leaves.find(holder.coflow).filter(|leaf| Some(*leaf) != own_leaf);
        let leaf = other_leaf.map_or_else(String::new, |leaf| format!("{}, ", leaf.name));
        let queue = queue_text(holder.queue, holder.order_criterion);
        format!("{} ({leaf}{queue}, {})", holder.coflow, format_percent(holder.rate_share))
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match segment.holders.len() {
        holder_count if holder_count > MAX_SHOWN_HOLDERS => {
            format!("{shown} and {} more", holder_count - MAX_SHOWN_HOLDERS)
        }
        _ => shown,
    }
}
