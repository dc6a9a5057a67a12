//! Lists network namespaces, and runs code and programs inside them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::process::{Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use weir_agent::batch::run_tool;

/// Where `ip netns` keeps network namespaces.
pub(crate) const NETNS_FOLDER: &str = "/run/netns";

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

/// Moves this thread into a new namespace permanently. Its loopback interface is up. Threads and processes that this thread starts later
/// are in the namespace, which ends with the last of them.
///
/// # Errors
/// If this process lacks the privilege, or `ip` fails.
pub fn enter_new() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    run_tool("ip", &["link", "set", "lo", "up"]).map(drop).map_err(io::Error::other)
}

/// A command that runs a program inside a namespace, without standard input. Unlike `ip netns exec`, it keeps the mounts, so the program
/// sees the cgroups and the BPF file system.
pub fn command(name: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={NETNS_FOLDER}/{name}")).arg(program).stdin(Stdio::null());
    command
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
