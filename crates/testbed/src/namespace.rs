//! Network namespaces: which there are, and code that runs inside them.

use std::fs::{self, File};
use std::io;
use std::thread;

use nix::sched::{CloneFlags, setns};

/// Where `ip netns` keeps them.
const PLACE: &str = "/run/netns";

/// The names that begin so, in order.
pub(crate) fn named(prefix: &str) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(PLACE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok().filter(|name| name.starts_with(prefix)));
    }
    names.sort_unstable();
    Ok(names)
}

/// Moves this thread into a namespace, for good: the sockets that it opens are in there.
///
/// # Errors
/// If it is not there, or this process may not.
pub fn enter(name: &str) -> io::Result<()> {
    let file = File::open(format!("{PLACE}/{name}"))?;
    Ok(setns(file, CloneFlags::CLONE_NEWNET)?)
}

/// Does something inside a namespace, in a thread of its own, so that nothing else gets there.
///
/// # Errors
/// As [`enter`], or if the system has no thread.
pub fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || enter(name).map(|()| work()))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
