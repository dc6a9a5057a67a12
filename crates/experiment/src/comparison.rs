//! Compares the outcomes of policies.

use weir_console::failure::Failure;
use weir_console::problem::{self, Problem};
use weir_console::record::Record;
use weir_sim::Outcome;

use crate::jobs::{self, JobTime};
use crate::metrics::{Baseline, Metrics};
use crate::network::Network;
use crate::services::{self, Services};
use crate::source::Source;
use crate::unused_keys;

/// A description of the trace and the network, and the keys of the trace that policies do not use.
pub fn caption(source: &Source, network: &Network, policies: &[String]) -> String {
    let replays = policies.iter().map(|policy| (source, policy.as_str()));
    source.caption() + &network.caption(|_| false) + &unused_keys::note(replays)
}

/// The policies to replay, and the position of the baseline among them. A baseline outside `policies` is inserted first.
///
/// # Errors
/// If a policy is repeated.
pub fn with_baseline(
    policies: &[String],
    baseline: Option<&String>,
) -> Result<(Vec<String>, usize), Failure> {
    if let Some(policy) = first_repeated(policies) {
        let problem = format!("`{policy}` is repeated");
        return Err(Failure::option("policies", policy, problem, "each policy once"));
    }
    let mut policies = policies.to_vec();
    let Some(baseline) = baseline else { return Ok((policies, 0)) };
    let position = policies.iter().position(|policy| policy == baseline);
    if position.is_none() {
        policies.insert(0, baseline.clone());
    }
    Ok((policies, position.unwrap_or(0)))
}

/// The first text that repeats an earlier one.
pub fn first_repeated(texts: &[String]) -> Option<&String> {
    (1..).zip(texts).find_map(|(end, text)| texts[..end - 1].contains(text).then_some(text))
}

/// The results of the replays of a comparison.
pub struct ComparedReplays {
    /// The rows of all replays that have finished.
    pub records: Vec<Record>,
    /// The policies with results, and their outcomes.
    pub policies: Vec<String>,
    /// By policy: the outcome.
    pub outcomes: Vec<Outcome>,
    /// The failure of results, or of the comparison before.
    pub failure: Option<Failure>,
}

/// Computes the records of the outcomes of policies, and separates replays without results. `failure` is an earlier one.
pub fn compare_replays(
    (policies, outcomes): (Vec<String>, Vec<Outcome>),
    baseline: &str,
    metrics: &Metrics<'_>,
    failure: Option<Failure>,
) -> ComparedReplays {
    let of_baseline = policies.iter().position(|policy| policy == baseline);
    let baseline = Baseline::new(baseline, of_baseline.map(|position| &outcomes[position]), metrics);
    let rows = policies.iter().zip(&outcomes);
    let rows = rows.map(|(policy, outcome)| metrics.record(policy, outcome, Some(&baseline)));
    let (mut records, problems): (Vec<Record>, Vec<Option<Problem>>) = rows.unzip();
    add_problem_columns(&mut records, &problems);
    let named = policies.iter().cloned().zip(&problems);
    let problem_failure =
        problem::to_failure(named.filter_map(|(policy, problem)| Some((policy, problem.as_ref()?))));
    let failure = match problem_failure {
        Some(other) => Some(other.after(failure)),
        None => failure,
    };
    let has_results = problems.iter().map(|problem| !problem.as_ref().is_some_and(Problem::is_invalid));
    let valid = policies.into_iter().zip(outcomes).zip(has_results).filter(|(_, has_results)| *has_results);
    let (policies, outcomes) = valid.map(|(replay, _)| replay).unzip();
    ComparedReplays { records, policies, outcomes, failure }
}

/// Adds the columns about problems, if any replay has one.
pub fn add_problem_columns(records: &mut [Record], problems: &[Option<Problem>]) {
    if problems.iter().any(Option::is_some) {
        records
            .iter_mut()
            .zip(problems)
            .for_each(|(record, problem)| problem::add_columns(record, problem.as_ref()));
    }
}

/// The times of the jobs of a file under each policy; empty without such jobs.
pub fn job_times<'a>(
    source: &'a Source,
    alone: &'a [Option<f64>],
    outcomes: &[Outcome],
) -> Vec<Vec<JobTime<'a>>> {
    source.jobs.as_ref().map_or_else(Vec::new, |jobs| jobs.times(alone, outcomes))
}

/// Adds the slowdowns of jobs, by policy with results.
pub fn add_slowdowns(records: &mut [Record], job_times: &[Vec<JobTime<'_>>]) {
    if job_times.is_empty() {
        return;
    }
    let mut times = job_times.iter();
    for record in records {
        let times = if problem::is_failed(record) { None } else { times.next() };
        let summary = times.map_or([None; 2], |times| jobs::slowdown_summary(times));
        record.add_all(["mean_job_slowdown", "max_job_slowdown"], summary);
    }
}

/// The slowdowns of jobs as a table; empty without jobs.
pub fn jobs_table(policies: &[String], job_times: &[Vec<JobTime<'_>>]) -> String {
    if job_times.is_empty() { String::new() } else { jobs::slowdown_table(policies, job_times) }
}

/// The mean rates of the services of a file; empty without services.
pub fn services_table(source: &Source, policies: &[String], outcomes: &[Outcome]) -> String {
    let table = |services: &Services| services::rate_table(policies, &services.rates(outcomes));
    source.services.as_ref().map_or_else(String::new, table)
}
