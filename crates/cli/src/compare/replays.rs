//! Replays the policies of a comparison until a signal arrives.

use std::sync::Mutex;

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::run::PartialResults;
use weir_sim::Outcome;

use super::kept_outcomes::KeptOutcomes;
use crate::args;
use crate::replay::{Replay, run_replays_until_interrupted};

/// The policies whose replays have finished, with their outcomes.
#[derive(Default)]
pub struct FinishedReplays {
    /// The policies.
    pub policies: Vec<String>,
    /// By policy: the outcome.
    pub outcomes: Vec<Outcome>,
    /// The policies that a signal stopped, or that had not started.
    pub missing: Vec<String>,
    /// The failure if a signal arrived before the others had finished, or outcomes could not be kept.
    pub failure: Option<Failure>,
}

/// Runs all replays that are not in `kept`, or those that finish before a signal arrives.
///
/// # Errors
/// If a replay fails, or a signal arrives before any has finished.
pub fn run_until_interrupted(
    replays: &[Replay<'_>],
    baseline: usize,
    mut kept: Option<KeptOutcomes>,
    run_options: &args::RunOptions,
) -> Result<FinishedReplays, Failure> {
    let mut done = kept.as_mut().map(KeptOutcomes::take_outcomes).unwrap_or_default();
    let left: Vec<&Replay<'_>> = replays.iter().filter(|replay| !done.contains_key(&replay.policy)).collect();
    let write_failure = Mutex::new(None);
    let keep = |replay: &Replay<'_>, outcome: &Outcome| {
        if let Some(Err(failure)) = kept.as_ref().map(|kept| kept.append(&replay.policy, outcome)) {
            write_failure.lock().expect("no thread panics while it holds the lock").get_or_insert(failure);
        }
    };
    let PartialResults { results, interruption } = run_replays_until_interrupted(&left, run_options, keep)?;
    let mut results = results.into_iter();
    let mut finished = FinishedReplays::default();
    for replay in replays {
        match done.remove(&replay.policy).or_else(|| results.next().flatten()) {
            Some(outcome) => {
                finished.policies.push(replay.policy.clone());
                finished.outcomes.push(outcome);
            }
            None => finished.missing.push(replay.policy.clone()),
        }
    }
    finished.failure = write_failure.into_inner().expect("no thread panics while it holds the lock");
    let Some(failure) = interruption else { return Ok(finished) };
    if finished.policies.is_empty() {
        return Err(failure);
    }
    // The results of the finished policies are written; the exit code is that of the signal.
    interrupt::forget_signal();
    let message =
        interruption_message(&finished.missing, replays.len(), &replays[baseline].policy, kept.is_some());
    finished.failure = Some(Failure { message, ..failure });
    Ok(finished)
}

/// States which results lack, and how to get them.
fn interruption_message(missing: &[String], all: usize, baseline: &str, are_kept: bool) -> String {
    let remedy = match are_kept {
        true => "repeat the command".to_owned(),
        false => format!("run with --policies {} --baseline {baseline}", missing.join(",")),
    };
    let speedups = match missing.iter().any(|policy| policy == baseline) {
        true => format!(", and speedups, since the baseline `{baseline}` has not finished"),
        false => String::new(),
    };
    let lacking = missing.len();
    format!(
        "interrupted; the results lack {lacking} of {all} policies{speedups}; help: for the others, {remedy}"
    )
}
