//! Feeds lines to `ip` and `tc`, and reads what they say.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// What kept a program from doing what it was told.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// It is not there, or does not start.
    #[error("{tool} cannot be run: {error}")]
    Start {
        /// The program.
        tool: &'static str,
        /// Why.
        error: io::Error,
    },
    /// It refused a line.
    #[error("{tool}{place}: `{line}`: {said}")]
    Refused {
        /// The program.
        tool: &'static str,
        /// In which namespace, in words; empty in the one that this process is in.
        place: String,
        /// The line; all of the batch's first where the program does not say which.
        line: String,
        /// What it said.
        said: String,
    },
}

/// Feeds lines to `tool`, which stops at the first that it cannot do. `command` is `tool` with all that goes before `-batch`.
///
/// # Errors
/// Which line was refused, and why.
pub fn feed(
    mut command: Command,
    tool: &'static str,
    place: impl FnOnce() -> String,
    lines: &str,
) -> Result<(), BatchError> {
    let failed = |error| BatchError::Start { tool, error };
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take().expect("the standard input is piped");
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
    Err(refused(tool, place(), line.to_owned(), &said))
}

/// What `tool` prints when it is asked.
///
/// # Errors
/// If it fails.
pub fn ask(tool: &'static str, args: &[&str]) -> Result<String, BatchError> {
    let output = Command::new(tool).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| BatchError::Start { tool, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(refused(tool, String::new(), args.join(" "), &said))
}

fn refused(tool: &'static str, place: String, line: String, said: &str) -> BatchError {
    let said = said.lines().next().unwrap_or("it failed without a word").to_owned();
    BatchError::Refused { tool, place, line, said }
}
