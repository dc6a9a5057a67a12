//! Runs replays, one or several concurrently.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use weir_core::model::Workload;
use weir_core::model::scenario::Scenario;
use weir_core::policy::AnyPolicy;
use weir_sim::service::{Mechanism, ShareError, Shared};
use weir_sim::{Options, Outcome, replay};

use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Progress;
use crate::spec;

/// A replay to run.
pub struct Task<'a> {
    /// The policy and its parameters.
    pub policy: String,
    /// The workload.
    pub workload: &'a Workload,
    /// The options of the replay.
    pub options: Options,
}

impl Task<'_> {
    fn build(&self) -> Result<AnyPolicy, Failure> {
        spec::build(&self.policy, Some(&self.workload.names))
    }

    /// Runs the replay.
    ///
    /// # Errors
    /// If the policy does not exist, or the replay fails.
    pub fn run(&self, progress: &Progress) -> Result<Outcome, Failure> {
        let policy = self.build()?;
        let mut watch = progress.watch(&self.policy, self.workload.coflows.len());
        replay(self.workload, policy, &self.options, &mut watch)
            .map_err(|error| Failure::replay(&self.policy, &error))
    }
}

/// Runs all tasks, at most `jobs` concurrently, and passes each outcome to `each` when it is available. The results are in the order of the
/// tasks.
///
/// # Errors
/// The failure of the first task, in their order, that failed. No further task starts after a failure.
pub fn run<T: Send>(
    tasks: &[Task<'_>],
    jobs: usize,
    progress: &Progress,
    each: impl Fn(usize, Outcome) -> T + Sync,
) -> Result<Vec<T>, Failure> {
    // A policy that does not fit its trace is refused before any replay starts.
    tasks.iter().try_for_each(|task| task.build().map(drop))?;
    pool(tasks.len(), jobs, |at| tasks[at].run(progress).map(|outcome| each(at, outcome)))
}

/// Calls `each` for 0 to `count` - 1, at most `jobs` concurrently. The results are in the order of the numbers.
///
/// # Errors
/// As [`run`].
pub fn pool<T: Send>(
    count: usize,
    jobs: usize,
    each: impl Fn(usize) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Mutex<Vec<Option<Result<T, Failure>>>> = Mutex::new((0..count).map(|_| None).collect());
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let result = each(at);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().expect("no thread panics while it holds the lock")[at] = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs.min(count) {
            scope.spawn(work);
        }
        work();
    });
    let results = results.into_inner().expect("no thread panics while it holds the lock");
    // Missing results are of tasks that had not started when another failed.
    results.into_iter().flatten().collect()
}

/// Runs a scenario under a mechanism, until a signal arrives.
///
/// # Errors
/// If the scenario is invalid or too large, or a signal arrives.
pub fn share(scenario: &Scenario, mechanism: Mechanism, progress: &Progress) -> Result<Shared, Failure> {
    let bar = progress.steps(mechanism.name(), scenario.end.get().ceil() as usize);
    let outcome = weir_sim::service::share(scenario, mechanism, |at| {
        bar.set_position(at.get() as u64);
        !interrupt::asked()
    });
    bar.finish_and_clear();
    outcome.map_err(|error| match error {
        ShareError::Interrupted { .. } => {
            Failure::interrupted(format_args!("{mechanism}: {error}; nothing was written"))
        }
        ShareError::Scenario(_) | ShareError::TooLarge { .. } => Failure::input(error),
    })
}
