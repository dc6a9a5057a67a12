//! Lists network namespaces, and runs code inside them.

use std::fs::{self, File};
use std::io;
use std::thread;

use nix::sched::{CloneFlags, setns};

/// Where `ip netns` keeps network namespaces.
const NETNS_FOLDER: &str = "/run/netns";

/// The names with a prefix, sorted.
pub(crate) fn list_with_prefix(prefix: &str) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(NETNS_FOLDER) {
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

/// Moves this thread into a namespace permanently. Sockets that it opens later are in the namespace.
///
/// # Errors
/// If the namespace does not exist, or this process lacks the privilege.
pub fn enter(name: &str) -> io::Result<()> {
    let file = File::open(format!("{NETNS_FOLDER}/{name}"))?;
    Ok(setns(file, CloneFlags::CLONE_NEWNET)?)
}

/// Runs `work` inside a namespace, in a separate thread, so that the calling thread stays outside.
///
/// # Errors
/// As [`enter`], or if no thread can be started.
pub fn run_inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || enter(name).map(|()| work()))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
