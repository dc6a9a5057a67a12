//! Runs replays without the interpreter's lock, reports their progress, and stops them when a signal arrives.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use weir_sim::{CoflowOutcome, Observer, Snapshot};

/// The time between two checks of signals.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Completed coflows of replays, and whether these have to stop.
pub struct Control {
    is_stopped: AtomicBool,
    completed: Vec<AtomicUsize>,
}

impl Control {
    /// The control of a number of replays.
    pub fn new(replays: usize) -> Control {
        Control {
            is_stopped: AtomicBool::new(false),
            completed: (0..replays).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Whether replays have to stop.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Stops all replays at their next schedule.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn progress(&self) -> Vec<usize> {
        self.completed.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// Counts the completed coflows of a replay, and passes its events to another observer.
pub struct ControlledReplay<'a> {
    /// The control of all replays.
    pub control: &'a Control,
    /// The number of this replay.
    pub number: usize,
    /// The other observer.
    pub observer: &'a mut dyn Observer,
}

impl Observer for ControlledReplay<'_> {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        !self.control.is_stopped() && self.observer.on_schedule(snapshot)
    }

    fn on_coflow_completed(&mut self, outcome: &CoflowOutcome) {
        self.control.completed[self.number].fetch_add(1, Ordering::Relaxed);
        self.observer.on_coflow_completed(outcome);
    }
}

/// Receives the numbers of completed coflows by replay.
pub type OnProgress<'a> = dyn Fn(Python<'_>, Vec<usize>) -> PyResult<()> + Sync + 'a;

/// Calls `work` in another thread without the interpreter's lock, and returns its result. Meanwhile checks signals, and calls
/// `on_progress`. After a signal or an exception of `on_progress`, replays are stopped, and the exception is returned too.
///
/// # Panics
/// If `work` panics.
pub fn run<T: Send>(
    py: Python<'_>,
    control: &Control,
    on_progress: Option<&OnProgress<'_>>,
    work: impl FnOnce() -> T + Send,
) -> (T, Option<PyErr>) {
    let check = |py: Python<'_>| {
        py.check_signals()?;
        on_progress.map_or(Ok(()), |report| report(py, control.progress()))
    };
    py.detach(|| {
        thread::scope(|scope| {
            let (done, is_done) = mpsc::channel::<()>();
            let worker = scope.spawn(move || {
                let result = work();
                drop(done);
                result
            });
            let mut exception = None;
            while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(CHECK_INTERVAL) {
                if exception.is_none() {
                    exception = Python::attach(check).err();
                    if exception.is_some() {
                        control.stop();
                    }
                }
            }
            match worker.join() {
                Ok(result) => (result, exception),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    })
}
