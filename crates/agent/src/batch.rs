//! Runs `ip` and `tc`: a batch of lines, or one command whose output it returns.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Why `ip` or `tc` failed.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The program is not installed, or does not start.
    #[error("{tool} cannot be run: {error}")]
    Start {
        /// The program.
        tool: &'static str,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The program refused a line.
    #[error("{tool}{in_namespace}: `{line}`: {message}")]
    Refused {
        /// The program.
        tool: &'static str,
        /// Text such as ` in NAMESPACE`, with a leading space; empty for the namespace of this process.
        in_namespace: String,
        /// The line, or the first line of the batch if the program does not report a line number.
        line: String,
        /// The first line of the program's error output.
        message: String,
    },
}

/// Feeds lines to `tool`, which stops at the first line that fails. `command` is `tool` with the arguments before `-batch`.
///
/// # Errors
/// If `tool` cannot be started, or refuses a line.
pub fn run_batch(
    mut command: Command,
    tool: &'static str,
    in_namespace: impl FnOnce() -> String,
    lines: &str,
) -> Result<(), BatchError> {
    let to_error = |error| BatchError::Start { tool, error };
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(to_error)?;
    let mut stdin = child.stdin.take().expect("the standard input is piped");
    match stdin.write_all(lines.as_bytes()) {
        // A broken pipe means that the program stopped early; its error output contains the reason.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(to_error(error)),
        _ => drop(stdin),
    }
    let output = child.wait_with_output().map_err(to_error)?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The error output names the line, as in `Command failed -:3`.
    let line_number = stderr.rsplit_once("-:").and_then(|(_, number)| number.trim().parse::<usize>().ok());
    let line = lines.lines().nth(line_number.unwrap_or(1).saturating_sub(1)).unwrap_or_default();
    Err(refused_error(tool, in_namespace(), line.to_owned(), &stderr))
}

/// Runs `tool` with arguments, and returns its standard output.
///
/// # Errors
/// If `tool` cannot be started, or exits with an error.
pub fn run_tool(tool: &'static str, args: &[&str]) -> Result<String, BatchError> {
    let output = Command::new(tool).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| BatchError::Start { tool, error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(refused_error(tool, String::new(), args.join(" "), &stderr))
}

fn refused_error(tool: &'static str, in_namespace: String, line: String, stderr: &str) -> BatchError {
    let message = stderr.lines().next().unwrap_or("the command failed without a message").to_owned();
    BatchError::Refused { tool, in_namespace, line, message }
}
