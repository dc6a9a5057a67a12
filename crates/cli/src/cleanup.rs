//! Removes what an agent has left: `weir agent cleanup`, and the process that an agent starts when it stops, so that its queues stay for
//! the next agent and yet not for ever.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use std::os::unix::process::CommandExt;

use weir_agent::queues::{self, InterfaceLock};
use weir_agent::traffic::{self, TrafficError};
use weir_console::failure::Failure;
use weir_console::output;
use weir_core::units::Time;

use crate::args;

/// The namespace of processes that no container has: the kernel gives it this number.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The root of cgroups, version 2.
const ROOT_CGROUP: &str = "/sys/fs/cgroup";

/// How often a process that waits looks for an agent.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `weir agent cleanup`.
pub fn cleanup(args: &args::AgentCleanup) -> Result<(), Failure> {
    if args.if_unused && !stays_unused(Duration::from_secs_f64(args.after.get())) {
        return Ok(());
    }
    // This call fails if an agent runs, so it comes before any change.
    let had_programs = match traffic::cleanup() {
        Err(TrafficError::Busy) if args.if_unused => return Ok(()),
        result => result?,
    };
    let restored = if args.if_unused { queues::cleanup_unused() } else { queues::cleanup() };
    let restored = restored.map_err(Failure::runtime)?;
    let mut text: String = restored.iter().map(|interface| format!("{interface}: restored\n")).collect();
    if had_programs {
        text += "BPF programs: removed\n";
    }
    let mount_namespaces = ["/proc/self/ns/mnt", "/proc/1/ns/mnt"].map(|space| fs::read_link(space).ok());
    if !traffic::is_bpf_fs_visible() && mount_namespaces[0] != mount_namespaces[1] {
        eprintln!(
            "weir: /sys/fs/bpf: no BPF file system is visible, so programs of an earlier agent cannot be found; help: use \
             `nsenter --net=/run/netns/NAME` instead of `ip netns exec`"
        );
    }
    if text.is_empty() {
        text += "nothing to remove\n";
    }
    Ok(output::print(text)?)
}

/// Waits for a time. Returns whether no agent has kept an interface meanwhile: a command that configures queues holds a lock at one check
/// only.
fn stays_unused(time: Duration) -> bool {
    let end = Instant::now() + time;
    let mut was_held = false;
    loop {
        let is_held = InterfaceLock::is_any_held();
        let remaining = end.saturating_duration_since(Instant::now());
        if is_held && was_held {
            return false;
        }
        if !is_held && remaining.is_zero() {
            return true;
        }
        sleep(if is_held { CHECK_INTERVAL } else { CHECK_INTERVAL.min(remaining) });
        was_held = is_held;
    }
}

/// Starts a process that removes queues and marks after a time, unless an agent keeps an interface until then. Queues that were configured
/// by hand stay.
///
/// # Errors
/// Why the process would end with this one's unit or container.
pub fn start_cleaner(program: &Path, time: Time) -> Result<(), String> {
    let own_namespace = fs::read_link("/proc/self/ns/pid").map_err(|error| error.to_string())?;
    if own_namespace.as_os_str() != INITIAL_PID_NAMESPACE {
        return Err("the agent runs in a container, with which all its processes end".to_owned());
    }
    let mut command = Command::new(program);
    command.args(["agent", "cleanup", "--if-unused", "--after", &time.to_string()]);
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut cleaner = command.spawn().map_err(|error| error.to_string())?;
    move_to_root_cgroup(cleaner.id()).map_err(|error| {
        // It has nothing to clean up yet, and would end with the unit.
        let _ = cleaner.kill();
        let _ = cleaner.wait();
        format!("its process cannot leave the cgroup of this unit: {error}")
    })
}

/// Moves a process out of its unit's cgroup: a service manager stops all processes there.
fn move_to_root_cgroup(process: u32) -> io::Result<()> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    if own.lines().all(|line| line.strip_prefix("0::").is_none_or(|path| path == "/")) {
        return Ok(());
    }
    fs::write(Path::new(ROOT_CGROUP).join("cgroup.procs"), process.to_string())
}
