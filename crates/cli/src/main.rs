//! The program `weir`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(commit) = commit() {
        weir_cli::set_commit(commit);
    }
    weir_cli::run(Vec::new())
}

/// The number of shown digits of a commit.
const COMMIT_DIGITS: usize = 12;

/// The commit in `WEIR_COMMIT` during the build, or the one that was checked out; `None` without both. The last build of this file
/// determines it, which follows each commit.
fn commit() -> Option<&'static str> {
    let given = option_env!("WEIR_COMMIT").filter(|commit| !commit.is_empty());
    given.or_else(checked_out)
}

/// The last commit in Git's log.
#[cfg(has_commit_log)]
fn checked_out() -> Option<&'static str> {
    const DIGITS: Option<[u8; COMMIT_DIGITS]> = last_commit(include_bytes!(env!("WEIR_COMMIT_LOG")));
    DIGITS.as_ref().and_then(|digits| std::str::from_utf8(digits).ok())
}

/// The commit that the build script read; `None` without a repository.
#[cfg(not(has_commit_log))]
fn checked_out() -> Option<&'static str> {
    option_env!("WEIR_CHECKED_OUT")?.get(..COMMIT_DIGITS)
}

/// The commit after the last line of Git's log: its second word. Computed by the compiler, so that the program does not contain the log.
#[cfg(has_commit_log)]
const fn last_commit(log: &[u8]) -> Option<[u8; COMMIT_DIGITS]> {
    let mut start = log.len().saturating_sub(1);
    while start > 0 && log[start - 1] != b'\n' {
        start -= 1;
    }
    while start < log.len() && log[start] != b' ' {
        start += 1;
    }
    let (mut digits, mut at) = ([0; COMMIT_DIGITS], 0);
    while at < COMMIT_DIGITS {
        if start + 1 + at >= log.len() || !log[start + 1 + at].is_ascii_hexdigit() {
            return None;
        }
        digits[at] = log[start + 1 + at];
        at += 1;
    }
    Some(digits)
}
