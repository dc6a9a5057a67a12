//! Runs replays without the interpreter's lock, reports their progress, and stops them when a signal arrives.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use weir_console::failure::Failure;
use weir_sim::{CoflowOutcome, Observer, Snapshot};

use crate::error::to_exception;
use crate::policy::take_python_error;

/// The time between two checks of signals.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Completed coflows of replays, and whether these have to stop.
pub struct Control {
    is_stopped: AtomicBool,
    completed: Vec<AtomicUsize>,
    /// The messages of failures, and the exceptions of policies in Python that caused them.
    causes: Mutex<Vec<(String, PyErr)>>,
    /// The interpreter's identifiers of the threads that replay now.
    threads: Mutex<Vec<u64>>,
}

/// Locks state that no panic leaves invalid.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// The control of a number of replays.
    pub fn new(replays: usize) -> Control {
        Control {
            is_stopped: AtomicBool::new(false),
            completed: (0..replays).map(|_| AtomicUsize::new(0)).collect(),
            causes: Mutex::default(),
            threads: Mutex::default(),
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

    /// Calls `work`, which builds policies or replays, in this thread. Keeps the exception of a policy in Python that made it fail;
    /// Ctrl-C there stops all replays.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        // The thread keeps one state of the interpreter. Without it, each call of a policy creates and deletes one.
        Python::attach(|py| {
            let thread = thread_id(py).map_err(Failure::runtime)?;
            lock(&self.threads).push(thread);
            let result = py.detach(work);
            lock(&self.threads).retain(|&other| other != thread);
            if let Err(failure) = &result
                && let Some(exception) = take_python_error(py, &failure.message)
            {
                if exception.is_instance_of::<PyKeyboardInterrupt>(py) {
                    self.stop();
                }
                lock(&self.causes).push((failure.message.clone(), exception));
            }
            result
        })
    }

    /// The exception for a failure, with that of a policy in Python as its cause.
    pub fn to_exception(&self, py: Python<'_>, failure: Failure) -> PyErr {
        let cause = self.take_cause(|(message, _)| *message == failure.message);
        let exception = to_exception(failure);
        if cause.is_some() {
            exception.set_cause(py, cause);
        }
        exception
    }

    /// The exception of a policy in Python that was stopped by Ctrl-C.
    fn take_interrupt(&self, py: Python<'_>) -> Option<PyErr> {
        self.take_cause(|(_, exception)| exception.is_instance_of::<PyKeyboardInterrupt>(py))
    }

    fn take_cause(&self, is_wanted: impl FnMut(&(String, PyErr)) -> bool) -> Option<PyErr> {
        let mut causes = lock(&self.causes);
        let position = causes.iter().position(is_wanted)?;
        Some(causes.swap_remove(position).1)
    }

    /// Stops all replays, also those that execute a policy in Python.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        self.stop();
        let threads = lock(&self.threads).clone();
        py.import("weir.simulator.own_policy")?.call_method1("interrupt_threads", (threads,)).map(drop)
    }

    fn progress(&self) -> Vec<usize> {
        self.completed.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// The interpreter's identifier of this thread.
fn thread_id(py: Python<'_>) -> PyResult<u64> {
    py.import("threading")?.call_method0("get_ident")?.extract()
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
                    exception = Python::attach(|py| {
                        let exception = check(py).err()?;
                        // Without the interrupt of policies, replays end at their next schedule.
                        let _ = control.interrupt(py);
                        Some(exception)
                    });
                }
            }
            match worker.join() {
                Ok(result) => {
                    // A signal can arrive after the last check.
                    let late = || {
                        Python::attach(|py| control.take_interrupt(py).or_else(|| py.check_signals().err()))
                    };
                    (result, exception.or_else(late))
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    })
}
