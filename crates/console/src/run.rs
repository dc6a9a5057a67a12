//! Running replays, one or several at a time.

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

/// One replay to run.
pub struct Task<'a> {
    /// The policy and its parameters.
    pub policy: String,
    /// What to replay.
    pub workload: &'a Workload,
    /// How.
    pub options: Options,
}

impl Task<'_> {
    fn build(&self) -> Result<AnyPolicy, Failure> {
        spec::build(&self.policy, Some(&self.workload.names))
    }

    /// Runs it.
    ///
    /// # Errors
    /// If the policy does not exist, or the replay has no outcome.
    pub fn run(&self, progress: &Progress) -> Result<Outcome, Failure> {
        let policy = self.build()?;
        let mut watch = progress.watch(&self.policy, self.workload.coflows.len());
        replay(self.workload, policy, &self.options, &mut watch)
            .map_err(|error| Failure::replay(&self.policy, &error))
    }
}

/// Runs all tasks, up to `jobs` at a time, and hands each outcome to `each` on the way. The results are in the order
/// of the tasks, whichever ends first.
///
/// # Errors
/// The first failure, by the order of the tasks among those that had begun; tasks that had not are not begun.
pub fn run<T: Send>(
    tasks: &[Task<'_>],
    jobs: usize,
    progress: &Progress,
    each: impl Fn(usize, Outcome) -> T + Sync,
) -> Result<Vec<T>, Failure> {
    // A policy that does not fit its trace is refused before the others are replayed.
    tasks.iter().try_for_each(|task| task.build().map(drop))?;
    pool(tasks.len(), jobs, |at| tasks[at].run(progress).map(|outcome| each(at, outcome)))
}

/// Does `count` things, up to `jobs` at a time. The results are in their order, whichever ends first.
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
    // What is missing had not begun when another failed.
    results.into_iter().flatten().collect()
}

/// Runs a scenario under a mechanism, until somebody asks to stop.
///
/// # Errors
/// If there is no outcome.
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
