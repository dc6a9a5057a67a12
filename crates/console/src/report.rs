//! Writes reports: one HTML file that needs no other file and no network.
//!
//! The same input gives the same bytes. Files are named without their folders.

pub mod explanation;
mod heat_map;
mod page;
pub mod sweep;

pub use page::Origin;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::chart::{self, LineChart, Scale};
use crate::failure::Failure;
use crate::policy_spec;
use crate::problem;
use crate::record::Record;
use crate::table::{format_count, format_optional, format_seconds};
use page::{Page, code, escape, figure, legend, table};
use weir_sim::outcome::{LinkUse, percentile};
use weir_sim::{CoflowOutcome, JobOutcome, Outcome};

/// A narrow coflow has at most this many flows, and the longest flow of a short coflow has at most this many bytes (Varys, SIGCOMM
/// '14, Table 3).
const MAX_NARROW_WIDTH: usize = 50;
const MAX_SHORT_BYTES: f64 = 5e6;

/// A column of the result table: its title, its key in records, and its meaning.
const COLUMNS: [(&str, &str, &str); 7] = [
    ("mean", "mean_cct_s", "mean completion time"),
    ("P50", "p50_cct_s", "50th percentile of completion times"),
    ("P90", "p90_cct_s", "90th percentile"),
    ("P95", "p95_cct_s", "95th percentile"),
    ("P99", "p99_cct_s", "99th percentile"),
    (
        "speedup",
        "speedup_p50",
        "median over coflows of the time under the baseline divided by the time under the policy",
    ),
    ("/bound", "over_bound", "mean divided by a lower bound of the mean under any schedule"),
];

/// Columns of the result table for workloads with weights, deadlines or jobs, whose records have these keys.
const OPTIONAL_COLUMNS: [(&str, &str, &str); 9] = [
    (
        "completed",
        problem::COMPLETED,
        "coflows that completed; statistics are of these, and speedups of those that completed under both",
    ),
    ("dropped", "dropped_bytes", "bytes that were not sent before the limit of their transfer"),
    ("weighted", "weighted_mean_cct_s", "mean weighted by the coflows' weights"),
    ("met", "deadlines_met", "coflows that met their deadlines"),
    ("missed", "deadlines_missed", "coflows that were admitted and completed after their deadlines"),
    (
        "rejected",
        "deadlines_rejected",
        "coflows that were rejected at admission and completed after their deadlines",
    ),
    ("mean JCT", "mean_jct_s", "mean job completion time"),
    (
        "mean slowdown of jobs",
        "mean_job_slowdown",
        "mean over jobs of the time divided by the time alone, under `fair`",
    ),
    ("max", "max_job_slowdown", "the same, maximum"),
];

/// The maximum number of groups of weights, and of jobs, in a table.
const MAX_GROUPS: usize = 8;
const MAX_JOBS: usize = 40;

/// What a report describes.
pub struct Comparison<'a> {
    /// The description of workload and network, as lines of text.
    pub caption: String,
    /// How to make the report again.
    pub origin: Origin<'a>,
    /// The compared policies with results.
    pub policies: &'a [String],
    /// By policy: the outcome of its replay.
    pub outcomes: &'a [Outcome],
    /// The metrics of all replays, with those without results.
    pub records: &'a [Record],
    /// The position of the baseline among the policies, if its replay has results.
    pub baseline: Option<usize>,
    /// By coflow: the lower bound of its completion time, in seconds.
    pub min_ccts: &'a [f64],
    /// By coflow: the bytes of its longest flow.
    pub longest_flows: Vec<f64>,
    /// By coflow: its weight.
    pub weights: Vec<f64>,
    /// The ends of a link between switches or regions, by its number.
    pub trunk_name: &'a dyn Fn(usize) -> String,
    /// The name of a job, by its number.
    pub job_name: &'a dyn Fn(u64) -> String,
    /// The rates of services, if there are any.
    pub services: Option<ServiceRates>,
}

/// The rates of services, as texts.
pub struct ServiceRates {
    /// What the rates are.
    pub description: String,
    /// The names of the services.
    pub names: Vec<String>,
    /// By policy: the rate of each service.
    pub rates: Vec<Vec<String>>,
}

/// The report as HTML.
///
/// # Errors
/// If an input cannot be read again.
pub fn html(comparison: &Comparison<'_>) -> Result<String, Failure> {
    let Comparison { policies, outcomes, .. } = *comparison;
    let title = match comparison.records.len() {
        1 => "One policy".to_owned(),
        count => format!("{count} policies compared"),
    };
    let mut page = Page::new(&title, &comparison.caption, &comparison.origin);
    let has_coflows =
        comparison.services.is_none() || outcomes.iter().any(|outcome| !outcome.coflows.is_empty());
    if has_coflows {
        page.add_section("Results", &results_table(comparison));
        add_distributions(&mut page, comparison);
        page.add_section("Coflows over time", &coflow_timelines(comparison));
    }
    page.add_section("Utilization of links", &link_uses(comparison));
    if let Some(baseline) = comparison.baseline.filter(|_| has_coflows) {
        page.add_section("Speedups by size", &speedup_table(comparison, baseline));
    }
    if let Some(table) = weight_table(comparison) {
        page.add_section("Completion times by weight", &table);
    }
    if let Some(table) = job_table(comparison) {
        page.add_section("Jobs", &table);
    }
    if let Some(services) = &comparison.services {
        page.add_section("Services", &service_table(policies, services));
    }
    let seconds = format_seconds(latest_end(outcomes));
    page.finish(&comparison.origin, &format!("The longest replay ends at {seconds}."))
}

/// The distributions of completion times and of slowdowns, and the number of active coflows.
fn add_distributions(page: &mut Page, comparison: &Comparison<'_>) {
    let legend = legend(comparison.policies);
    let ccts: Vec<Vec<f64>> = comparison.outcomes.iter().map(Outcome::ccts).collect();
    let completion_times = figure(
        &distribution(&ccts, "completion time (s)"),
        "Distribution of completion times",
        "Part of the coflows that take at most this time. Coflows that take no time count, but have no place on this axis.",
    );
    page.add_section("Completion times", &(completion_times + &legend));
    let slowdowns: Vec<Vec<f64>> =
        comparison.outcomes.iter().map(|outcome| slowdowns(outcome, comparison.min_ccts)).collect();
    let slowdowns = figure(
        &distribution(&slowdowns, "completion time / lower bound of the coflow"),
        "Distribution of slowdowns",
        "Part of the coflows whose time is at most this multiple of their lower bound, the time alone on the network.",
    );
    page.add_section("Slowdowns", &(slowdowns + &legend));
    let active = figure(
        &active_coflows(comparison.outcomes),
        "Number of active coflows over time",
        "Coflows that are released and not complete. A policy that completes small coflows first has fewer.",
    );
    page.add_section("Active coflows", &(active + &legend));
}

/// The distribution of positive values of each policy.
fn distribution<'a>(values: &[Vec<f64>], x_title: &'a str) -> LineChart<'a> {
    // Coflows that take no time count, but have no place on the axis.
    let line = |values: &Vec<f64>| {
        let steps = chart::distribution(values).into_iter();
        steps.filter(|(value, _)| *value > 0.0).collect()
    };
    LineChart {
        x_title,
        y_title: "part of the coflows",
        x_scale: Scale::Log,
        y_max: 1.0,
        lines: values.iter().map(line).collect(),
        ..LineChart::default()
    }
}

/// The completion times of coflows divided by their lower bounds, where these are above 0.
fn slowdowns(outcome: &Outcome, min_ccts: &[f64]) -> Vec<f64> {
    let coflows = outcome.coflows.iter().map(|coflow| (coflow.cct(), min_ccts[coflow.index]));
    coflows.filter(|(_, min)| *min > 0.0).map(|(cct, min)| cct / min).collect()
}

/// The maximum number of steps of a line.
const MAX_STEPS: usize = 190;

fn active_coflows(outcomes: &[Outcome]) -> LineChart<'static> {
    let line = |outcome: &Outcome| -> Vec<(f64, f64)> {
        let coflows = outcome.coflows.iter();
        let mut changes: Vec<(f64, f64)> =
            coflows.flat_map(|coflow| [(coflow.released_at, 1.0), (coflow.end, -1.0)]).collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        // A chart has fewer points than large workloads have changes.
        let samples = changes.len().min(MAX_STEPS);
        let end = changes.last().map_or(0.0, |change| change.0);
        let (mut active, mut next) = (0.0, changes.iter().peekable());
        let steps = (1..=samples).map(|sample| {
            let former = active;
            let at = match samples == changes.len() {
                true => changes[sample - 1].0,
                false => end * sample as f64 / samples as f64,
            };
            while let Some((_, change)) = next.next_if(|change| change.0 <= at) {
                active += change;
            }
            [(at, former), (at, active)]
        });
        steps.collect::<Vec<_>>().concat()
    };
    let lines: Vec<Vec<(f64, f64)>> = outcomes.iter().map(line).collect();
    let y_max = lines.iter().flatten().map(|point| point.1).fold(1.0, f64::max);
    LineChart { x_title: "time (s)", y_title: "active coflows", y_max, lines, ..LineChart::default() }
}

/// The number of parts of the time in a coflow timeline.
const TIMELINE_PARTS: usize = 256;

/// For each policy, an image with a row for each coflow, filled from its release to its end.
fn coflow_timelines(comparison: &Comparison<'_>) -> String {
    let end = latest_end(comparison.outcomes);
    let images = comparison.policies.iter().zip(comparison.outcomes).map(|(policy, outcome)| {
        let mut lives: Vec<(f64, f64)> =
            outcome.coflows.iter().map(|coflow| (coflow.released_at, coflow.end)).collect();
        lives.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let part_seconds = end / TIMELINE_PARTS as f64;
        let active_part = |(released_at, end): (f64, f64), part: usize| {
            let [from, to] = [part, part + 1].map(|part| part as f64 * part_seconds);
            ((end.min(to) - released_at.max(from)) / part_seconds).max(0.0)
        };
        let mean_row = |lives: &[(f64, f64)]| {
            let mean =
                |part| lives.iter().map(|&life| active_part(life, part)).sum::<f64>() / lives.len() as f64;
            (0..TIMELINE_PARTS).map(mean).collect()
        };
        // Means first, since a row for each of many coflows would need too much memory.
        let rows: Vec<Vec<f64>> =
            lives.chunks(lives.len().div_ceil(heat_map::MAX_ROWS).max(1)).map(mean_row).collect();
        // The first row is at the top, the last one at the bottom.
        let labels = [("first coflow", 1), ("", 10), ("last coflow", 1)];
        let labels = labels.map(|(name, rows)| RowLabel { name: name.to_owned(), rows });
        image(policy, &rows, &labels, end, end, "coflows over time; `--per-coflow` writes the values")
    });
    format!(
        "<p class=\"note\">A row for each coflow, from the first released at the top to the last; with more than {} coflows, the mean of \
         several. Its line goes from the release to the end: yellow where it is active all the time of a pixel. Times are in seconds.</p>\n{}",
        heat_map::MAX_ROWS,
        images.collect::<String>()
    )
}

/// For each policy, an image with a row for each link.
fn link_uses(comparison: &Comparison<'_>) -> String {
    let end = latest_end(comparison.outcomes);
    let Some(first) = comparison.outcomes.iter().find_map(|outcome| outcome.link_use.as_ref()) else {
        return String::new();
    };
    let labels = link_labels(first, comparison.trunk_name);
    let images = comparison.policies.iter().zip(comparison.outcomes).map(|(policy, outcome)| {
        let Some(used) = &outcome.link_use else { return String::new() };
        let rows = [&used.send[..], &used.recv, &used.trunks].concat();
        let parts = rows.first().map_or(0, Vec::len);
        image(
            policy,
            &rows,
            &labels,
            (parts as f64 * used.part_seconds).min(end),
            end,
            "utilization of links over time; `--per-link-time` writes the values",
        )
    });
    format!(
        "<p class=\"note\">A row for each link, or for several with more than {} links. Times are in seconds. The color is the part of \
         the capacity in use: <span class=\"scale\" style=\"background:{}\"></span> from just above 0 to all of it.</p>\n{}",
        heat_map::MAX_ROWS,
        heat_map::css_gradient(),
        images.collect::<String>()
    )
}

fn latest_end(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|outcome| outcome.makespan).fold(0.0, f64::max)
}

/// A label next to rows of an image.
struct RowLabel {
    name: String,
    /// The number of its rows.
    rows: usize,
}

/// The maximum number of links that have a label each.
const MAX_LABELS: usize = 14;

/// A label for each link, or, with many links, for the sending sides, the receiving sides and the links between switches or regions.
fn link_labels(used: &LinkUse, trunk_name: &dyn Fn(usize) -> String) -> Vec<RowLabel> {
    let [send, recv, trunks] = [used.send.len(), used.recv.len(), used.trunks.len()];
    if send + recv + trunks <= MAX_LABELS {
        let sides = (0..send).map(|port| format!("port {port} sends"));
        let sides = sides.chain((0..recv).map(|port| format!("port {port} receives")));
        let names = sides.chain((0..trunks).map(trunk_name));
        return names.map(|name| RowLabel { name, rows: 1 }).collect();
    }
    let side =
        |name: &str, count: usize| RowLabel { name: format!("ports 0 to {} {name}", count - 1), rows: count };
    let between = || match trunks {
        1 => trunk_name(0),
        count => format!("{} to {}", trunk_name(0), trunk_name(count - 1)),
    };
    let sides = [("send", send), ("receive", recv)].into_iter().filter(|(_, count)| *count > 0);
    let mut labels: Vec<RowLabel> = sides.map(|(name, count)| side(name, count)).collect();
    if trunks > 0 {
        labels.push(RowLabel { name: between(), rows: trunks });
    }
    labels
}

/// The maximum number of times below an image.
const MAX_TIMES: usize = 10;

/// An image of a policy's values, with labels of its rows and times in seconds below it. Its columns cover the time from 0 to `seconds`,
/// and the page's width the time from 0 to `end`.
fn image(
    policy: &str,
    rows: &[Vec<f64>],
    labels: &[RowLabel],
    seconds: f64,
    end: f64,
    content: &str,
) -> String {
    let Some(url) = heat_map::data_url(rows) else { return String::new() };
    let policy = escape(policy);
    let label =
        |RowLabel { name, rows }: &RowLabel| format!("<span style=\"flex:{rows}\">{}</span>", escape(name));
    let labels: String = labels.iter().map(label).collect();
    let part = |seconds: f64| if end > 0.0 { 100.0 * seconds / end } else { 100.0 };
    let time = |time: f64| format!("<span style=\"left:{:.2}%\">{}</span>", part(time), chart::number(time));
    let times: String = chart::round_values(end, MAX_TIMES).into_iter().map(time).collect();
    format!(
        "<figure class=\"map\">\n<figcaption><code>{policy}</code></figcaption>\n<div class=\"rows\">{labels}</div>\n\
         <div><img alt=\"{policy}: {content}\" style=\"width:{:.2}%\" src=\"{url}\"></div>\n<div class=\"times\">{times}</div>\n</figure>\n",
        part(seconds)
    )
}

fn results_table(comparison: &Comparison<'_>) -> String {
    let has_values = |key: &str| comparison.records.iter().any(|record| record.number(key).is_some());
    let optional = OPTIONAL_COLUMNS.into_iter().filter(|(_, key, _)| has_values(key));
    let columns: Vec<(&str, &str, &str)> = COLUMNS.into_iter().chain(optional).collect();
    let head: Vec<&str> = ["policy"].into_iter().chain(columns.iter().map(|column| column.0)).collect();
    let row = |record: &Record| -> Vec<String> {
        let policy = record.get("policy").and_then(Value::as_str).unwrap_or_default();
        let cells = columns.iter().map(|(_, key, _)| record.format_cell(key));
        let mut row: Vec<String> = [policy_spec::without_folder(policy)].into_iter().chain(cells).collect();
        if problem::is_failed(record) {
            row[1] = problem::FAILED.to_owned();
        }
        row
    };
    let rows: Vec<Vec<String>> = comparison.records.iter().map(row).collect();
    let meaning = |(title, _, meaning): &(&str, &str, &str)| format!("<li>{title}: {}</li>\n", code(meaning));
    let meanings: String = columns.iter().map(meaning).collect();
    let baseline = match comparison.baseline {
        Some(baseline) => format!("The baseline is <code>{}</code>.", escape(&comparison.policies[baseline])),
        None => "The baseline has no results.".to_owned(),
    };
    format!(
        "{}<p class=\"note\">Times are in seconds. {baseline}</p>\n<ul class=\"note\">\n{meanings}</ul>\n",
        table(&head, &rows)
    )
}

/// Mean completion times by weight, if weights differ. Of many weights, neighbours share a column.
fn weight_table(comparison: &Comparison<'_>) -> Option<String> {
    let mut weights = comparison.weights.clone();
    weights.sort_by(f64::total_cmp);
    weights.dedup();
    if weights.len() < 2 {
        return None;
    }
    let groups: Vec<[f64; 2]> = weights
        .chunks(weights.len().div_ceil(MAX_GROUPS))
        .map(|group| [group[0], group[group.len() - 1]])
        .collect();
    let members = |[min, max]: [f64; 2]| -> Vec<usize> {
        (0..comparison.weights.len()).filter(|&at| (min..=max).contains(&comparison.weights[at])).collect()
    };
    let members: Vec<Vec<usize>> = groups.iter().map(|group| members(*group)).collect();
    let title = |([min, max], members): (&[f64; 2], &Vec<usize>)| {
        let weights = if min == max { min.to_string() } else { format!("{min} to {max}") };
        format!("{weights} ({})", members.len())
    };
    let titles: Vec<String> = groups.iter().zip(&members).map(title).collect();
    let head: Vec<&str> = ["policy"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    let row = |(policy, outcome): (&String, &Outcome)| -> Vec<String> {
        let mean = |members: &Vec<usize>| {
            let ccts: Vec<f64> =
                members.iter().filter_map(|&at| outcome.coflow(at)).map(CoflowOutcome::cct).collect();
            format_optional((!ccts.is_empty()).then(|| weir_sim::outcome::mean(&ccts)))
        };
        [policy.clone()].into_iter().chain(members.iter().map(mean)).collect()
    };
    let rows: Vec<Vec<String>> = comparison.policies.iter().zip(comparison.outcomes).map(row).collect();
    Some(format!(
        "{}<p class=\"note\">Mean completion time in seconds by the weight of the coflow, and the number of coflows.</p>\n",
        table(&head, &rows)
    ))
}

/// Completion times of jobs, if the workload has jobs: statistics, and the times of the first jobs.
fn job_table(comparison: &Comparison<'_>) -> Option<String> {
    let jobs: BTreeSet<u64> =
        comparison.outcomes.iter().flat_map(|outcome| &outcome.jobs).map(|job| job.id).collect();
    if jobs.is_empty() {
        return None;
    }
    let time = |job: &JobOutcome| job.end - job.arrival;
    let times = |outcome: &Outcome| -> Vec<f64> { outcome.jobs.iter().map(time).collect() };
    let row = |(policy, outcome): (&String, &Outcome)| -> Vec<String> {
        let times = times(outcome);
        let percentiles = [50.0, 90.0, 99.0].map(|percentage| percentile(&times, percentage));
        let cells = [weir_sim::outcome::mean(&times)].into_iter().chain(percentiles);
        let cells = cells.map(|cell| format_optional((!times.is_empty()).then_some(cell)));
        [policy.clone()].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = comparison.policies.iter().zip(comparison.outcomes).map(row).collect();
    let head =
        ["job"].into_iter().chain(comparison.policies.iter().map(String::as_str)).collect::<Vec<&str>>();
    let job_row = |&id: &u64| -> Vec<String> {
        let find = |outcome: &Outcome| {
            let found = outcome.jobs.binary_search_by_key(&id, |job| job.id).ok();
            format_optional(found.map(|at| time(&outcome.jobs[at])))
        };
        [(comparison.job_name)(id)].into_iter().chain(comparison.outcomes.iter().map(find)).collect()
    };
    let job_rows: Vec<Vec<String>> = jobs.iter().take(MAX_JOBS).map(job_row).collect();
    let shown = match jobs.len() {
        count if count > MAX_JOBS => format!("the first {MAX_JOBS} of {}", format_count(count, "job")),
        count => format_count(count, "job"),
    };
    Some(format!(
        "{}<p class=\"note\">Job completion times in seconds, below those of {shown}.</p>\n{}",
        table(&["policy", "mean", "P50", "P90", "P99"], &rows),
        table(&head, &job_rows)
    ))
}

fn service_table(policies: &[String], services: &ServiceRates) -> String {
    let head: Vec<&str> = ["policy"].into_iter().chain(services.names.iter().map(String::as_str)).collect();
    let row = |(policy, rates): (&String, &Vec<String>)| [std::slice::from_ref(policy), rates].concat();
    let rows: Vec<Vec<String>> = policies.iter().zip(&services.rates).map(row).collect();
    format!("<p class=\"note\">{}</p>\n{}", escape(&services.description), table(&head, &rows))
}

/// Median speedups of coflows by width and by the length of their longest flow.
fn speedup_table(comparison: &Comparison<'_>, baseline: usize) -> String {
    let baseline_name = escape(&comparison.policies[baseline]);
    let coflows = &comparison.outcomes[baseline].coflows;
    let is_short = |coflow: &CoflowOutcome| comparison.longest_flows[coflow.index] <= MAX_SHORT_BYTES;
    let is_narrow = |coflow: &CoflowOutcome| coflow.width <= MAX_NARROW_WIDTH;
    let groups = [
        ("short, narrow", true, true),
        ("long, narrow", false, true),
        ("short, wide", true, false),
        ("long, wide", false, false),
    ];
    let members = groups.map(|(_, short, narrow)| -> Vec<&CoflowOutcome> {
        coflows.iter().filter(|coflow| is_short(coflow) == short && is_narrow(coflow) == narrow).collect()
    });
    let titles: Vec<String> = groups
        .iter()
        .zip(&members)
        .map(|(group, members)| format!("{} ({})", group.0, members.len()))
        .collect();
    let head: Vec<&str> = ["policy"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    let rows: Vec<Vec<String>> = comparison
        .policies
        .iter()
        .zip(comparison.outcomes)
        .map(|(policy, outcome)| {
            let speedup = |members: &Vec<&CoflowOutcome>| {
                let of_member = |baseline: &&CoflowOutcome| {
                    let cct = outcome.coflow(baseline.index)?.cct();
                    (cct > 0.0).then(|| baseline.cct() / cct)
                };
                let speedups: Vec<f64> = members.iter().filter_map(of_member).collect();
                format_optional((!speedups.is_empty()).then(|| percentile(&speedups, 50.0)))
            };
            [policy.clone()].into_iter().chain(members.iter().map(speedup)).collect()
        })
        .collect();
    format!(
        "{}<p class=\"note\">Median speedup over <code>{baseline_name}</code>, and the number of coflows. Narrow: at most {MAX_NARROW_WIDTH} flows. \
         Short: no flow above {} MB.</p>\n",
        table(&head, &rows),
        MAX_SHORT_BYTES / 1e6
    )
}
