//! Does what scripts say.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::batch::{Stage, Step, Tool};
use crate::namespace;

/// What kept a step from being done.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A program that is not there, or does not start.
    #[error("{tool} cannot be run: {error}")]
    Start {
        /// The program.
        tool: &'static str,
        /// Why.
        error: io::Error,
    },
    /// A program that refused a line.
    #[error("{tool}{place}: `{line}`: {said}")]
    Refused {
        /// The program.
        tool: &'static str,
        /// In which namespace, in words.
        place: String,
        /// The line; all of the batch's first where the program does not say which.
        line: String,
        /// What it said.
        said: String,
    },
    /// A setting that the kernel does not take.
    #[error("/proc/sys/net/{file} in {namespace}: {error}")]
    Setting {
        /// Which.
        file: &'static str,
        /// Where.
        namespace: String,
        /// Why.
        error: io::Error,
    },
    /// A namespace that cannot be entered.
    #[error("{namespace} cannot be entered: {error}")]
    Enter {
        /// Which.
        namespace: String,
        /// Why.
        error: io::Error,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// How many programs run at a time. They mostly wait for the kernel, so a few more than there are processors.
const AT_A_TIME: usize = 4;

/// Does stages one after the other, and the steps of each a few at a time. `held` is kept open by the programs that are
/// started, so that its lock ends with the last of them even if this process is killed.
pub fn stages(stages: &[Stage], held: &File, go_on: &(dyn Fn() -> bool + Sync)) -> Result<(), CommandError> {
    stages.iter().try_for_each(|steps| stage(steps, held, go_on))
}

/// Does the steps of a stage.
pub fn stage(steps: &[Step], held: &File, go_on: &(dyn Fn() -> bool + Sync)) -> Result<(), CommandError> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let lock = || failed.lock().expect("nobody panics while holding it");
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(steps.len()) {
            scope.spawn(|| {
                while let Some(one) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if lock().is_some() {
                        break;
                    }
                    let done = if go_on() { step(one, held) } else { Err(CommandError::Interrupted) };
                    if let Err(error) = done {
                        lock().get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner().expect("nobody panicked while holding it").map_or(Ok(()), Err)
}

/// Does one step.
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

/// Feeds lines to a program, which stops at the first that it cannot do.
fn batch(tool: Tool, namespace: Option<&str>, lines: &str, held: &File) -> Result<(), CommandError> {
    let failed = |error| CommandError::Start { tool: tool.name(), error };
    let mut command = Command::new(tool.name());
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    // It prints nothing there; what it inherits is the lock. Ctrl-C is for this process, which then cleans up.
    command.stdout(held.try_clone().map_err(failed)?).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take().expect("it was asked for");
    match stdin.write_all(lines.as_bytes()) {
        // It stopped before the end, and says why.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(error)),
        _ => drop(stdin),
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // As in `Command failed -:3`.
    let number = said.rsplit_once("-:").and_then(|(_, number)| number.trim().parse::<usize>().ok());
    let line = lines.lines().nth(number.unwrap_or(1).saturating_sub(1)).unwrap_or_default();
    Err(CommandError::Refused {
        tool: tool.name(),
        place: namespace.map(|name| format!(" in {name}")).unwrap_or_default(),
        line: line.to_owned(),
        said: said.lines().next().unwrap_or("it failed without a word").to_owned(),
    })
}
