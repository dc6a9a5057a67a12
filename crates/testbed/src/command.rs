//! Runs the steps that [`crate::batch`] generates: stages one after the other, the steps of a stage concurrently.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weir_agent::batch::{BatchError, run_batch};

use crate::batch::{Stage, Step, Tool};
use crate::namespace;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A program is not installed, or refused a line.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The kernel refused a setting.
    #[error("/proc/sys/net/{file} in {namespace}: {error}")]
    Setting {
        /// The file below `/proc/sys/net`.
        file: &'static str,
        /// The namespace.
        namespace: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A namespace cannot be entered.
    #[error("namespace {namespace} cannot be entered: {error}")]
    Enter {
        /// The namespace.
        namespace: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A signal stopped the work.
    #[error("interrupted")]
    Interrupted,
}

/// The reason why a lock is not poisoned, for `expect`.
pub(crate) const UNPOISONED: &str = "no thread panics while it holds the lock";

/// The maximum number of concurrent programs. They mostly wait for the kernel, so there may be more of them than processors.
const MAX_CONCURRENT_STEPS: usize = 4;

/// Runs stages one after the other, and the steps of each stage concurrently. Started programs inherit `lock_file`, so its lock ends with
/// the last of them even if this process is killed.
pub fn run_stages(
    stages: &[Stage],
    lock_file: &File,
    should_continue: &(dyn Fn() -> bool + Sync),
) -> Result<(), CommandError> {
    stages.iter().try_for_each(|steps| run_stage(steps, lock_file, should_continue))
}

/// Runs the steps of a stage concurrently.
pub fn run_stage(
    steps: &[Step],
    lock_file: &File,
    should_continue: &(dyn Fn() -> bool + Sync),
) -> Result<(), CommandError> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let lock_failure = || failure.lock().expect(UNPOISONED);
    let work = || {
        while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
            if lock_failure().is_some() {
                break;
            }
            let result =
                if should_continue() { run_step(step, lock_file) } else { Err(CommandError::Interrupted) };
            if let Err(error) = result {
                lock_failure().get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..MAX_CONCURRENT_STEPS.min(steps.len()) {
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        // This thread works as well, so all steps run even if no other thread can be started.
        work();
    });
    failure.into_inner().expect(UNPOISONED).map_or(Ok(()), Err)
}

/// Runs one step.
pub fn run_step(step: &Step, lock_file: &File) -> Result<(), CommandError> {
    match step {
        Step::Batch { tool, namespace, lines } => {
            run_tool_batch(*tool, namespace.as_deref(), lines, lock_file)
        }
        Step::Settings { namespace, settings } => {
            let write = || {
                settings.iter().try_for_each(|setting| {
                    let file = setting.file;
                    match std::fs::write(format!("/proc/sys/net/{file}"), &setting.value) {
                        Err(error) if !(setting.is_optional && error.kind() == io::ErrorKind::NotFound) => {
                            Err(CommandError::Setting { file, namespace: namespace.clone(), error })
                        }
                        _ => Ok(()),
                    }
                })
            };
            namespace::run_inside(namespace, write)
                .map_err(|error| CommandError::Enter { namespace: namespace.clone(), error })?
        }
    }
}

/// Feeds lines to a program, which stops at the first line that fails.
fn run_tool_batch(
    tool: Tool,
    namespace: Option<&str>,
    lines: &str,
    lock_file: &File,
) -> Result<(), CommandError> {
    let mut command = Command::new(tool.name());
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    // The programs print nothing to their standard output, so it can hold the lock. Ctrl-C is for this process, which then cleans up.
    let lock_copy = lock_file.try_clone().map_err(|error| BatchError::Start { tool: tool.name(), error })?;
    command.stdout(lock_copy).process_group(0);
    let in_namespace = || namespace.map(|name| format!(" in {name}")).unwrap_or_default();
    Ok(run_batch(command, tool.name(), in_namespace, lines)?)
}
