//! Replays the policies of a comparison until a signal arrives.

use std::sync::Mutex;

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::run::PartialResults;
use weir_sim::Outcome;

use super::kept_outcomes::KeptOutcomes;
use crate::args;
use crate::network::{Replay, run_replays_until_interrupted};

/// The policies whose replays have finished, with their outcomes.
#[derive(Default)]
pub struct FinishedReplays {
    /// The policies.
    pub policies: Vec<String>,
    /// By policy: the outcome.
    pub outcomes: Vec<Outcome>,
    /// The failure if a signal arrived before the others had finished, or outcomes could not be kept.
    pub failure: Option<Failure>,
}

/// Runs all replays that are not in `kept`, or those that finish before a signal arrives.
///
/// # Errors
/// If a replay fails, or a signal arrives before the baseline has finished.
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
    let mut stopped = Vec::new();
    for replay in replays {
        match done.remove(&replay.policy).or_else(|| results.next().flatten()) {
            Some(outcome) => {
                finished.policies.push(replay.policy.clone());
                finished.outcomes.push(outcome);
            }
            None => stopped.push(replay.policy.as_str()),
        }
    }
    finished.failure = write_failure.into_inner().expect("no thread panics while it holds the lock");
    let Some(failure) = interruption else { return Ok(finished) };
    let baseline = &replays[baseline].policy;
    if !finished.policies.contains(baseline) {
        let Some(kept) = kept else { return Err(failure) };
        let (lacking, all) = (stopped.len(), replays.len());
        let message = format!(
            "interrupted; {} has the outcomes of {} of {all} policies; help: for the others, repeat the command",
            kept.path().display(),
            all - lacking
        );
        return Err(Failure { message, ..failure });
    }
    // The results of the finished policies are written; the exit code is that of the signal.
    interrupt::forget_signal();
    let remedy = match kept {
        Some(_) => "repeat the command".to_owned(),
        None => format!("run with --policies {} --baseline {baseline}", stopped.join(",")),
    };
    let (lacking, all) = (stopped.len(), replays.len());
    let message =
        format!("interrupted; the results lack {lacking} of {all} policies; help: for the others, {remedy}");
    finished.failure = Some(Failure { message, ..failure });
    Ok(finished)
}
