//! Reads, configures and restores the queues of an interface, in the network namespace of the calling thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::actual_queues::{ActualQueues, Fifo, Mq, ParseError, RootQdisc};
use super::change::{Change, changes, filter_protocol};
use super::counters::{ClassCounters, parse_counters};
use super::desired_queues::DesiredQueues;
use super::device::Device;
use super::error::QueueError;
use super::ids;
use super::interface::Interface;
use super::interface_lock::InterfaceLock;
use super::records::{RECORD_FOLDER, Records, delete_file, file_error};
use crate::batch::{run_batch, run_tool};

/// Which root queueing disciplines of other processes the agent may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceableRoots {
    /// Those that [`Interface::restore`] can set up again: the kernel's default, `pfifo`, `bfifo`, and `mq` over
    /// these.
    Restorable,
    /// The kernel's default only. A queueing discipline that appears in place of the agent's is another process's decision.
    KernelDefault,
}

/// The recorded root queueing discipline from before the agent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PreviousRoot {
    /// The kernel's default, which the kernel sets up again when the agent's root is deleted.
    Default,
    /// A FIFO.
    Fifo(Fifo),
    /// `mq` with a handle.
    Mq(Mq),
}

impl PreviousRoot {
    /// The lines for `tc` that set up the root again in place of the agent's.
    fn lines(&self, dev: &str) -> String {
        let fifo_line = |parent: &str, Fifo { kind, handle, limit }: &Fifo| {
            format!("qdisc replace dev {dev} {parent} handle {handle:x}: {kind} limit {limit}\n")
        };
        match self {
            PreviousRoot::Default => format!("qdisc del dev {dev} root\n"),
            PreviousRoot::Fifo(fifo) => fifo_line("root", fifo),
            PreviousRoot::Mq(Mq { handle, fifos }) => {
                let root = format!("qdisc replace dev {dev} root handle {handle:x}: mq\n");
                let lines = fifos
                    .iter()
                    .map(|(queue, fifo)| fifo_line(&format!("parent {handle:x}:{queue:x}"), fifo));
                root + &lines.collect::<String>()
            }
        }
    }
}

/// The recorded state of an interface from before the agent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Record {
    root: PreviousRoot,
    /// The maximum number of segments of a packet.
    gso_max_segs: u32,
}

#[derive(Deserialize)]
struct InterfaceQdisc {
    dev: String,
    handle: String,
    #[serde(default)]
    root: bool,
}

impl Interface {
    /// Reads the queues, classes and filters. Starts `tc` once, or three times if the root is the agent's.
    ///
    /// # Errors
    /// If `tc` fails, or prints something unexpected.
    pub fn read_queues(&self) -> Result<ActualQueues, QueueError> {
        let dev = self.0.as_str();
        let qdiscs = run_tool("tc", &["-j", "qdisc", "show", "dev", dev])?;
        let is_agent_root = ActualQueues::parse(&qdiscs, "", "")?.root == RootQdisc::Agent;
        if !is_agent_root {
            return Ok(ActualQueues::parse(&qdiscs, "", "")?);
        }
        let classes = run_tool("tc", &["-d", "class", "show", "dev", dev])?;
        let filters =
            run_tool("tc", &["filter", "show", "dev", dev, "parent", &format!("{:x}:", ids::ROOT_HANDLE)])?;
        Ok(ActualQueues::parse(&qdiscs, &classes, &filters)?)
    }

    /// Reads the counters of the agent's classes, by number. Starts `tc` once.
    ///
    /// # Errors
    /// If `tc` fails, or prints something unexpected.
    pub fn read_counters(&self) -> Result<BTreeMap<u16, ClassCounters>, QueueError> {
        let text = run_tool("tc", &["-s", "-d", "class", "show", "dev", self.0.as_str()])?;
        Ok(parse_counters(&text)?)
    }

    /// Returns the commands that [`Interface::reconcile`] would run, one per line. Changes nothing.
    ///
    /// # Errors
    /// If `ip` or `tc` fails or prints something unexpected, or the root queueing discipline cannot be restored.
    pub fn commands(&self, desired: &DesiredQueues) -> Result<String, QueueError> {
        let actual = self.read_queues()?;
        self.previous_root(&actual.root, ReplaceableRoots::Restorable)?;
        let segments = self.read_record()?.map(|record| record.gso_max_segs);
        let command = |change: Change| format!("{} {}\n", change.tool(), change.line(&self.0));
        let queue_changes = changes(desired, &actual);
        Ok(self.segment_change(desired, segments)?.into_iter().chain(queue_changes).map(command).collect())
    }

    /// Applies the desired queues in one batch, and returns the changes. Queued packets stay, unless their queue is deleted. The queues
    /// are then those of an agent: [`cleanup_unused`] removes them, unless [`Interface::mark_as_manual`] follows.
    ///
    /// # Errors
    /// If the root queueing discipline could not be restored, which leaves it unmodified; or if `ip` or `tc` fails, or a file cannot be
    /// written. Some changes may have been applied; the next call applies the rest.
    pub fn reconcile(
        &self,
        desired: &DesiredQueues,
        replace: ReplaceableRoots,
    ) -> Result<Vec<Change>, QueueError> {
        let lock = lock_records()?;
        let actual = self.read_queues()?;
        let record = self.read_record()?;
        let replace = if record.is_some() { ReplaceableRoots::KernelDefault } else { replace };
        let previous = self.previous_root(&actual.root, replace)?;
        let list = changes(desired, &actual);
        // A record from before the agent's first configuration stays when the agent restores its queues.
        if let Some(root) = previous.filter(|_| record.is_none()) {
            self.write_record(&Record { root, gso_max_segs: Device::read(self)?.gso_max_segs })?;
        }
        let segment_change = self.segment_change(desired, record.map(|record| record.gso_max_segs))?;
        if let Some(change) = &segment_change {
            run_ip_line(&change.line(&self.0).to_string())?;
        }
        if !list.is_empty() {
            let lines: String = list.iter().map(|change| format!("{}\n", change.line(&self.0))).collect();
            run_tc_batch(&lines, &lock)?;
        }
        delete_file(&self.manual_mark_path()?)?;
        Ok(segment_change.into_iter().chain(list).collect())
    }

    /// The change that limits the segments of packets as desired, at most to the recorded number; none if the limit is set, or lower.
    fn segment_change(
        &self,
        desired: &DesiredQueues,
        recorded: Option<u32>,
    ) -> Result<Option<Change>, QueueError> {
        let Some(max_segments) = desired.max_segments() else { return Ok(None) };
        let actual = Device::read(self)?.gso_max_segs;
        let segments = max_segments.min(recorded.unwrap_or(actual));
        Ok((segments != actual).then_some(Change::SetSegments(segments)))
    }

    /// Removes the filters that map UDP flows to classes with their rates: the packets then share the queue of packets without a class.
    ///
    /// # Errors
    /// If the folder of records cannot be created or locked, or `tc` cannot be run. It is no error if no such filter exists.
    pub fn delete_flow_filters(&self) -> Result<(), QueueError> {
        let lock = lock_records()?;
        if self.read_queues()?.root == RootQdisc::Agent {
            for preference in [ids::IPV4_FLOW_FILTER_PREF, ids::IPV6_FLOW_FILTER_PREF] {
                let (dev, parent, protocol) = (&self.0, ids::ROOT_HANDLE, filter_protocol(preference));
                let line = format!(
                    "filter del dev {dev} parent {parent:x}: protocol {protocol} prio {preference}\n"
                );
                // The command fails if no such filter exists.
                let _ = run_tc_batch(&line, &lock);
            }
        }
        Ok(())
    }

    /// Marks the queues as configured by hand: only [`cleanup`] removes them, and an agent that configures others.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn mark_as_manual(&self) -> Result<(), QueueError> {
        let path = self.manual_mark_path()?;
        fs::write(&path, "").map_err(|error| file_error(&path, error))
    }

    /// Restores the previous root queueing discipline. Returns whether the root was the agent's.
    ///
    /// # Errors
    /// If `tc` fails, or a record cannot be deleted.
    pub fn restore(&self) -> Result<bool, QueueError> {
        let lock = lock_records()?;
        self.restore_locked(&lock)
    }

    fn restore_locked(&self, lock: &File) -> Result<bool, QueueError> {
        let paths = [self.record_path()?, self.manual_mark_path()?];
        let is_agent_root = self.read_queues()?.root == RootQdisc::Agent;
        if is_agent_root {
            let dev = &self.0;
            let record = self.read_record()?;
            let root = record.as_ref().map_or(&PreviousRoot::Default, |record| &record.root);
            run_tc_batch(&root.lines(dev), lock)?;
            if let Some(Record { gso_max_segs, .. }) = record
                && Device::read(self)?.gso_max_segs != gso_max_segs
            {
                run_ip_line(&Change::SetSegments(gso_max_segs).line(dev).to_string())?;
            }
        }
        paths.iter().try_for_each(|path| delete_file(path))?;
        Ok(is_agent_root)
    }

    /// The root to record before the agent's replaces it; none if it is the agent's already.
    fn previous_root(
        &self,
        root: &RootQdisc,
        replace: ReplaceableRoots,
    ) -> Result<Option<PreviousRoot>, QueueError> {
        let is_replaceable = replace == ReplaceableRoots::Restorable;
        match root.clone() {
            RootQdisc::Agent => Ok(None),
            RootQdisc::KernelDefault => Ok(Some(PreviousRoot::Default)),
            RootQdisc::Fifo(fifo) if is_replaceable => Ok(Some(PreviousRoot::Fifo(fifo))),
            RootQdisc::Mq(mq) if is_replaceable => Ok(Some(PreviousRoot::Mq(mq))),
            RootQdisc::Fifo(Fifo { kind, .. }) | RootQdisc::Other(kind) => self.foreign_root(kind),
            RootQdisc::Mq(_) => self.foreign_root("mq".to_owned()),
        }
    }

    fn foreign_root(&self, kind: String) -> Result<Option<PreviousRoot>, QueueError> {
        Err(QueueError::ForeignRoot { interface: self.clone(), kind })
    }

    /// The record; none without one. A malformed record counts as none: it must not prevent the removal of the agent's queues.
    fn read_record(&self) -> Result<Option<Record>, QueueError> {
        let text = fs::read(self.record_path()?).ok();
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// Writes the record atomically, before any change.
    fn write_record(&self, previous: &Record) -> Result<(), QueueError> {
        let path = self.record_path()?;
        let temporary = path.with_extension("new");
        let text = serde_json::to_vec(previous).map_err(|error| file_error(&path, error.into()))?;
        fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|error| file_error(&path, error))
    }

    fn record_path(&self) -> Result<PathBuf, QueueError> {
        Ok(Records::current()?.record_path(self.index().unwrap_or(0)))
    }

    fn manual_mark_path(&self) -> Result<PathBuf, QueueError> {
        Ok(Records::current()?.manual_mark_path(self.index().unwrap_or(0)))
    }
}

/// Restores all interfaces of this namespace. Returns those whose root was the agent's.
///
/// # Errors
/// If an agent keeps an interface, `tc` fails, or a record cannot be read or deleted.
pub fn cleanup() -> Result<Vec<Interface>, QueueError> {
    restore_interfaces(false)
}

/// Restores the interfaces of this namespace whose queues an agent has left: no process keeps them, and they were not configured by hand.
/// Returns those whose root was the agent's.
///
/// # Errors
/// If `tc` fails, or a record cannot be read or deleted.
pub fn cleanup_unused() -> Result<Vec<Interface>, QueueError> {
    restore_interfaces(true)
}

fn restore_interfaces(unused_only: bool) -> Result<Vec<Interface>, QueueError> {
    let text = run_tool("tc", &["-j", "qdisc", "show"])?;
    let qdiscs: Vec<InterfaceQdisc> = serde_json::from_str(&text).map_err(|_| ParseError {
        line: text.chars().take(200).collect(),
        expected: "a JSON array of queues, each with its interface",
    })?;
    let root = format!("{:x}:", ids::ROOT_HANDLE);
    let agent_roots = qdiscs.into_iter().filter(|queue| queue.root && queue.handle == root);
    let lock = lock_records()?;
    let (mut restored, mut kept_indexes) = (Vec::new(), BTreeSet::new());
    for queue in agent_roots {
        let interface = Interface(queue.dev);
        let interface_lock = InterfaceLock::acquire(&interface);
        let is_manual = interface.manual_mark_path()?.exists();
        if unused_only && (is_manual || matches!(interface_lock, Err(QueueError::Locked { .. }))) {
            kept_indexes.extend(interface.index());
            continue;
        }
        let _interface_lock = interface_lock?;
        if interface.restore_locked(&lock)? {
            restored.push(interface);
        }
    }
    // The other files are of interfaces that were deleted, or restored by another process.
    Records::current()?.delete_except(&kept_indexes)?;
    Ok(restored)
}

/// Locks the folder of records until the returned file is closed, so that only one process changes queues.
fn lock_records() -> Result<File, QueueError> {
    let path = Path::new(RECORD_FOLDER);
    let to_error = |error| file_error(path, error);
    fs::create_dir_all(path).map_err(to_error)?;
    let folder = File::open(path).map_err(to_error)?;
    folder.lock().map_err(to_error)?;
    Ok(folder)
}

fn run_ip_line(line: &str) -> Result<(), QueueError> {
    let words: Vec<&str> = line.split(' ').collect();
    run_tool("ip", &words)?;
    Ok(())
}

fn run_tc_batch(lines: &str, lock: &File) -> Result<(), QueueError> {
    let mut command = Command::new("tc");
    // A separate process group: Ctrl-C waits for the end of the batch instead of leaving it half applied. If this process is killed, the
    // batch continues, and the next process has to wait for its end. The batch therefore holds the lock, in place of its standard output,
    // which it does not use.
    let lock_copy = lock.try_clone().map_err(|error| file_error(Path::new(RECORD_FOLDER), error))?;
    command.process_group(0).stdout(lock_copy);
    Ok(run_batch(command, "tc", String::new, lines)?)
}
