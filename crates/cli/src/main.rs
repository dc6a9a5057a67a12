//! The program `weir`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(commit) = commit() {
        weir_cli::set_commit(commit);
    }
    weir_cli::run(Vec::new())
}

/// The commit in `WEIR_COMMIT` during the build, or the one that was checked out; `None` without both. The last build of this file
/// determines it, which follows each commit.
fn commit() -> Option<&'static str> {
    let given = option_env!("WEIR_COMMIT").filter(|commit| !commit.is_empty());
    #[cfg(has_commit_list)]
    {
        const CHECKED_OUT: Option<[u8; COMMIT_DIGITS]> =
            last_commit(include_bytes!(env!("WEIR_COMMIT_LIST")));
        given.or(CHECKED_OUT.as_ref().and_then(|digits| std::str::from_utf8(digits).ok()))
    }
    #[cfg(not(has_commit_list))]
    given
}

/// The number of shown digits of a commit.
#[cfg(has_commit_list)]
const COMMIT_DIGITS: usize = 12;

/// The commit after the last line of Git's list: its second word. Computed by the compiler, so that the program does not contain the list.
#[cfg(has_commit_list)]
const fn last_commit(list: &[u8]) -> Option<[u8; COMMIT_DIGITS]> {
    let mut start = list.len().saturating_sub(1);
    while start > 0 && list[start - 1] != b'\n' {
        start -= 1;
    }
    while start < list.len() && list[start] != b' ' {
        start += 1;
    }
    let (mut digits, mut at) = ([0; COMMIT_DIGITS], 0);
    while at < COMMIT_DIGITS {
        if start + 1 + at >= list.len() || !list[start + 1 + at].is_ascii_hexdigit() {
            return None;
        }
        digits[at] = list[start + 1 + at];
        at += 1;
    }
    Some(digits)
}
