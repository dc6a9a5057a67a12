//! Runs the steps of scripts.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weir_agent::batch::{BatchError, feed};

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
    #[error("{namespace} cannot be entered: {error}")]
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

/// Why a lock is not poisoned.
pub(crate) const UNPOISONED: &str = "no thread panics while it holds the lock";

/// The maximum number of concurrent programs. They mostly wait for the kernel, so there may be more of them than processors.
const AT_A_TIME: usize = 4;

/// Runs stages one after the other, and the steps of each stage concurrently. Started programs inherit `held`, so its lock ends with the
/// last of them even if this process is killed.
pub fn stages(stages: &[Stage], held: &File, go_on: &(dyn Fn() -> bool + Sync)) -> Result<(), CommandError> {
    stages.iter().try_for_each(|steps| stage(steps, held, go_on))
}

/// Runs the steps of a stage concurrently.
pub fn stage(steps: &[Step], held: &File, go_on: &(dyn Fn() -> bool + Sync)) -> Result<(), CommandError> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let lock = || failed.lock().expect(UNPOISONED);
    let work = || {
        while let Some(one) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
            if lock().is_some() {
                break;
            }
            let done = if go_on() { step(one, held) } else { Err(CommandError::Interrupted) };
            if let Err(error) = done {
                lock().get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..AT_A_TIME.min(steps.len()) {
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        // This thread works as well, so all steps are done even if no other thread can be started.
        work();
    });
    failed.into_inner().expect(UNPOISONED).map_or(Ok(()), Err)
}

/// Runs one step.
pub fn step(step: &Step, held: &File) -> Result<(), CommandError> {
    match step {
        Step::Batch { tool, namespace, lines } => batch(*tool, namespace.as_deref(), lines, held),
        Step::Settings { namespace, settings } => {
            let write = || {
                settings.iter().try_for_each(|setting| {
                    let file = setting.file;
                    match std::fs::write(format!("/proc/sys/net/{file}"), &setting.value) {
                        Err(error) if !(setting.optional && error.kind() == io::ErrorKind::NotFound) => {
                            Err(CommandError::Setting { file, namespace: namespace.clone(), error })
                        }
                        _ => Ok(()),
                    }
                })
            };
            namespace::inside(namespace, write)
                .map_err(|error| CommandError::Enter { namespace: namespace.clone(), error })?
        }
    }
}

/// Feeds lines to a program, which stops at the first line that fails.
fn batch(tool: Tool, namespace: Option<&str>, lines: &str, held: &File) -> Result<(), CommandError> {
    let mut command = Command::new(tool.name());
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    // The programs print nothing to their standard output, so it can carry the lock. Ctrl-C is for this process, which then cleans up.
    let held = held.try_clone().map_err(|error| BatchError::Start { tool: tool.name(), error })?;
    command.stdout(held).process_group(0);
    let place = || namespace.map(|name| format!(" in {name}")).unwrap_or_default();
    Ok(feed(command, tool.name(), place, lines)?)
}
