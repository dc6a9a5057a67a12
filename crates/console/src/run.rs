//! Runs replays, one or several concurrently, and scenarios under a mechanism.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use weir_core::model::Workload;
use weir_core::model::scenario::Scenario;
use weir_core::policy::AnyPolicy;
use weir_core::saba::Sensitivity;
use weir_sim::service::{Mechanism, ScenarioOutcome, ScenarioRunError};
use weir_sim::{
    CoflowOutcome, Observer, Outcome, ReplayError, ReplayOptions, Snapshot, replay_until_stalled,
};

use crate::failure::Failure;
use crate::interrupt;
use crate::policy_spec;
use crate::progress::{Progress, ReplayProgress};

/// A replay to run.
pub struct ReplayTask<'a> {
    /// The policy and its parameters.
    pub policy: String,
    /// The workload.
    pub workload: &'a Workload,
    /// The options of the replay.
    pub options: ReplayOptions,
    /// The sensitivities of all applications to bandwidth, if they are known.
    pub sensitivities: &'a [Sensitivity],
}

impl ReplayTask<'_> {
    fn build(&self) -> Result<AnyPolicy, Failure> {
        policy_spec::build_policy(&self.policy, Some(&self.workload.names), self.sensitivities)
    }

    /// Runs the replay.
    ///
    /// # Errors
    /// As [`ReplayTask::run_observed`], and if some coflow cannot complete.
    pub fn run(&self, progress: &Progress) -> Result<Outcome, Failure> {
        self.check_complete(self.run_observed(progress, &mut [])?)
    }

    fn check_complete(&self, mut outcome: Outcome) -> Result<Outcome, Failure> {
        match outcome.stall.take() {
            Some(stall) => Err(Failure::from_replay_error(&self.policy, &ReplayError::Stalled(stall))),
            None => Ok(outcome),
        }
    }

    /// Runs the replay until all coflows have completed or no flow can send any more, and passes its events to `observers`.
    ///
    /// # Errors
    /// If the policy does not exist, or the replay fails; an interruption if an observer stops the replay.
    pub fn run_observed(
        &self,
        progress: &Progress,
        observers: &mut [&mut dyn Observer],
    ) -> Result<Outcome, Failure> {
        let policy = self.build()?;
        let watch = progress.add_replay_bar(&self.policy, self.workload.coflows.len());
        replay_until_stalled(self.workload, policy, &self.options, &mut Watched { watch, observers })
            .map_err(|error| Failure::from_replay_error(&self.policy, &error))
    }
}

/// Passes events of a replay to its progress bar and to other observers.
struct Watched<'a, 'b> {
    watch: ReplayProgress,
    observers: &'a mut [&'b mut dyn Observer],
}

impl Observer for Watched<'_, '_> {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        self.observers.iter_mut().all(|observer| observer.on_schedule(snapshot))
            && self.watch.on_schedule(snapshot)
    }

    fn on_coflow_completed(&mut self, outcome: &CoflowOutcome) {
        self.observers.iter_mut().for_each(|observer| observer.on_coflow_completed(outcome));
        self.watch.on_coflow_completed(outcome);
    }
}

/// Runs all tasks, at most `jobs` concurrently, and passes each outcome to `on_outcome` when it is available. The results are in the
/// order of the tasks.
///
/// # Errors
/// The failure of the first task, in their order, that failed for another reason than a signal; otherwise the interruption. A replay
/// in which some coflow cannot complete fails.
pub fn run_replays<T: Send>(
    tasks: &[ReplayTask<'_>],
    jobs: usize,
    progress: &Progress,
    on_outcome: impl Fn(usize, Outcome) -> T + Sync,
) -> Result<Vec<T>, Failure> {
    let on_complete = |at: usize, outcome: Outcome| -> Result<T, Failure> {
        Ok(on_outcome(at, tasks[at].check_complete(outcome)?))
    };
    run_replays_until_interrupted(tasks, jobs, progress, on_complete)?.complete()?.into_iter().collect()
}

/// Calls `job` for 0 to `count` - 1, at most `jobs` concurrently. The results are in the order of the numbers.
///
/// # Errors
/// The failure of the first job, in their order, that failed. No further job starts after a failure.
pub fn run_concurrently<T: Send>(
    count: usize,
    jobs: usize,
    job: impl Fn(usize) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let results = run_until_failure(count, jobs, job);
    // Missing results are of tasks that had not started when another failed.
    results.into_iter().flatten().collect()
}

/// As [`run_concurrently`], with the result of each task that has started.
fn run_until_failure<T: Send>(
    count: usize,
    jobs: usize,
    job: impl Fn(usize) -> Result<T, Failure> + Sync,
) -> Vec<Option<Result<T, Failure>>> {
    let next = AtomicUsize::new(0);
    let has_failed = AtomicBool::new(false);
    let results: Mutex<Vec<Option<Result<T, Failure>>>> = Mutex::new((0..count).map(|_| None).collect());
    let work = || {
        while !has_failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let result = job(index);
            has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().expect("no thread panics while it holds the lock")[index] = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs.min(count) {
            scope.spawn(work);
        }
        work();
    });
    results.into_inner().expect("no thread panics while it holds the lock")
}

/// Results of tasks, of which a signal may have stopped some.
pub struct PartialResults<T> {
    /// The results, in the order of the tasks; `None` for a task that was stopped or not started.
    pub results: Vec<Option<T>>,
    /// The interruption, if a signal arrived.
    pub interruption: Option<Failure>,
}

impl<T> PartialResults<T> {
    /// All results.
    ///
    /// # Errors
    /// The interruption, if a signal arrived.
    pub fn complete(self) -> Result<Vec<T>, Failure> {
        self.interruption.map_or_else(|| Ok(self.results.into_iter().flatten().collect()), Err)
    }
}

/// As [`run_replays`], but outcomes lack coflows that cannot complete, and a signal keeps the results of the tasks that have finished.
///
/// # Errors
/// The failure of the first task, in their order, that failed for another reason than a signal. No further task starts after a failure.
pub fn run_replays_until_interrupted<T: Send>(
    tasks: &[ReplayTask<'_>],
    jobs: usize,
    progress: &Progress,
    on_outcome: impl Fn(usize, Outcome) -> T + Sync,
) -> Result<PartialResults<T>, Failure> {
    // A policy that does not fit its trace is refused before any replay starts.
    tasks.iter().try_for_each(|task| task.build().map(drop))?;
    let run = |at: usize| tasks[at].run_observed(progress, &mut []).map(|outcome| on_outcome(at, outcome));
    let mut partial = PartialResults { results: Vec::with_capacity(tasks.len()), interruption: None };
    for result in run_until_failure(tasks.len(), jobs, run) {
        partial.results.push(match result {
            Some(Err(failure)) if failure.is_interruption() => {
                partial.interruption.get_or_insert(failure);
                None
            }
            other => other.transpose()?,
        });
    }
    Ok(partial)
}

/// Runs a scenario under a mechanism, until a signal arrives.
///
/// # Errors
/// If the scenario is invalid or too large, or a signal arrives.
pub fn run_scenario(
    scenario: &Scenario,
    mechanism: Mechanism,
    progress: &Progress,
) -> Result<ScenarioOutcome, Failure> {
    let bar = progress.add_step_bar(mechanism.name(), scenario.end.get().ceil() as usize);
    let outcome = weir_sim::service::run_scenario(scenario, mechanism, |at| {
        bar.set_position(at.get() as u64);
        !interrupt::is_requested()
    });
    bar.finish_and_clear();
    outcome.map_err(|error| match error {
        ScenarioRunError::Interrupted { .. } => {
            Failure::interrupted(format_args!("{mechanism}: {error}; nothing was written"))
        }
        ScenarioRunError::Scenario(_) | ScenarioRunError::TooLarge { .. } => Failure::input(error),
    })
}
