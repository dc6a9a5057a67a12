//! Creates, opens and removes beds.
//!
//! A bed consists of its namespaces, which are named after it, and a file below `/run/weir` with its topology. The file is
//! written last, so a bed without it is unfinished. A second file is locked while a process changes the bed. If that process is
//! killed, [`down`] finds all parts of the bed by its name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_core::model::Topology;
use weir_core::model::scenario::NetworkQueues;
use weir_core::saba::Fraction;

use crate::batch::{self, Stage, Step, Tool};
use crate::command::{self, CommandError};
use crate::lock::Lock;
use crate::namespace;
use crate::plan::{BedName, Plan, PlanError};

/// The folder of the beds' files. The system empties it when it boots.
const BED_FOLDER: &str = "/run/weir";

/// How long to wait for another process, such as programs that a killed process started.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Why an operation on a bed failed.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The topology cannot be built as a bed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The bed exists already.
    #[error(
        "bed `{0}` is up already; help: remove it with `weir testbed down --name {0}`, or use another name"
    )]
    AlreadyUp(BedName),
    /// Another process is using the bed.
    #[error("bed `{0}` is in use by another process")]
    Busy(BedName),
    /// A step failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Namespaces could not be deleted.
    #[error("bed `{0}`: {1} namespaces cannot be removed, such as {2}")]
    NamespacesLeft(BedName, usize, String),
    /// A file of the bed could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// [`Bed::up`] calls this before each step, and stops if it returns false.
pub type ContinueCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// An existing bed, locked for this process. Dropping the value unlocks the bed and does not remove it.
#[derive(Debug)]
pub struct Bed {
    plan: Plan,
    topology: Topology,
    lock: Lock,
}

impl Bed {
    /// Creates a bed. Removes the rest of an unfinished one of this name first.
    ///
    /// # Errors
    /// If the bed exists already or another process is using it, or a step fails. A bed that could not be completed is removed.
    pub fn up(
        name: &BedName,
        topology: &Topology,
        should_continue: ContinueCheck<'_>,
    ) -> Result<Bed, BedError> {
        let plan = Plan::new(name.clone(), topology)?;
        let lock = acquire_lock(name)?;
        if read_complete_topology(name)?.is_some() {
            return Err(BedError::AlreadyUp(name.clone()));
        }
        remove_parts(name, &lock)?;
        let bed = Bed { plan, topology: topology.clone(), lock };
        let result =
            command::run_stages(&batch::creation_stages(&bed.plan), bed.lock.file(), should_continue);
        match result.map_err(BedError::from).and_then(|()| bed.write_state()) {
            Ok(()) => Ok(bed),
            // The reason for the failure matters more than a failed removal, except after an interruption by the user.
            Err(error) => match (error, bed.down()) {
                (BedError::Command(CommandError::Interrupted), Err(left)) => Err(left),
                (error, _) => Err(error),
            },
        }
    }

    /// Opens an existing bed; none if it does not exist or is unfinished.
    ///
    /// # Errors
    /// If another process is using the bed, or its files cannot be read.
    pub fn open(name: &BedName) -> Result<Option<Bed>, BedError> {
        let topology = read_complete_topology(name)?;
        if topology.is_none() && !Lock::is_locked(&lock_file(name)) {
            return Ok(None);
        }
        let lock = acquire_lock(name)?;
        let Some(topology) = read_complete_topology(name)? else { return Ok(None) };
        Ok(Some(Bed { plan: Plan::new(name.clone(), &topology)?, topology, lock }))
    }

    /// The nodes, addresses and routes.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The topology from which the bed was created.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Replaces the queues of each port by those of `queueing`, or by one queue without it. Packets are assigned to queues by their
    /// services' marks ([`crate::queues::dscp`]).
    ///
    /// # Errors
    /// If the kernel refuses the queues.
    pub fn set_queues(&self, queueing: Option<&NetworkQueues>) -> Result<(), BedError> {
        self.run_stage(&batch::queue_stage(&self.plan, queueing))
    }

    /// Replaces the queues of each port by one queue. Its limit is the bytes that the link carries in `hosts` or `switches` seconds, and at
    /// least one packet.
    ///
    /// # Errors
    /// If the kernel refuses the queues.
    pub fn set_short_queues(&self, hosts: f64, switches: f64) -> Result<(), BedError> {
        self.run_stage(&batch::short_queue_stage(&self.plan, hosts, switches))
    }

    /// Replaces the queues of each port, also at hosts, by one queue for each weight of a service. [`Bed::set_queues`] undoes this.
    ///
    /// # Errors
    /// If the kernel refuses the queues.
    pub fn set_service_queues(&self, weights: &[f64]) -> Result<(), BedError> {
        self.run_stage(&batch::service_queue_stage(&self.plan, weights))
    }

    /// Limits all cables of these nodes, by their positions in the plan, to a fraction of their rates, in both directions. The limit stays
    /// until it is set to [`Fraction::ALL`]. Each port must have one queue.
    ///
    /// # Errors
    /// If the kernel refuses the rates.
    pub fn throttle(&self, nodes: &[usize], fraction: Fraction) -> Result<(), BedError> {
        self.run_stage(&batch::throttle_stage(&self.plan, nodes, fraction))
    }

    fn run_stage(&self, stage: &Stage) -> Result<(), BedError> {
        // The change is not interruptible, since a partial change would leave the bed inconsistent.
        Ok(command::run_stage(stage, self.lock.file(), &|| true)?)
    }

    /// Runs `ip` with these lines in a namespace of the bed.
    pub(crate) fn run_ip(&self, namespace: &str, lines: String) -> Result<(), BedError> {
        self.run_lines(Tool::Ip, namespace, lines)
    }

    /// Runs `tc` with these lines in a namespace of the bed.
    pub(crate) fn run_tc(&self, namespace: &str, lines: String) -> Result<(), BedError> {
        self.run_lines(Tool::Tc, namespace, lines)
    }

    fn run_lines(&self, tool: Tool, namespace: &str, lines: String) -> Result<(), BedError> {
        let step = Step::Batch { tool, namespace: Some(namespace.to_owned()), lines };
        Ok(command::run_step(&step, self.lock.file())?)
    }

    /// Removes the bed.
    ///
    /// # Errors
    /// If a namespace or file cannot be removed.
    pub fn down(self) -> Result<(), BedError> {
        remove_parts(&self.plan.name, &self.lock)?;
        remove_lock(self.lock)
    }

    /// Writes the file of the topology atomically.
    fn write_state(&self) -> Result<(), BedError> {
        let mut text = Vec::new();
        weir_trace::topology::write(&self.topology, &mut text).expect("writing to a Vec does not fail");
        let path = state_file(&self.plan.name);
        let temporary = path.with_extension("new");
        fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|error| file_error(&path, error))
    }
}

/// Runs `work` as during the creation of a bed of this name, and then removes all parts of that bed.
pub(crate) fn with_unfinished_bed(name: &BedName, work: impl FnOnce(&fs::File)) -> Result<(), BedError> {
    let lock = acquire_lock(name)?;
    work(lock.file());
    remove_parts(name, &lock)?;
    remove_lock(lock)
}

/// Removes a bed, finished or not. Returns whether it existed.
///
/// # Errors
/// If a namespace or file cannot be removed, or another process is using the bed.
pub fn down(name: &BedName) -> Result<bool, BedError> {
    if !bed_names()?.contains(name) {
        return Ok(false);
    }
    let lock = acquire_lock(name)?;
    remove_parts(name, &lock)?;
    remove_lock(lock)?;
    Ok(true)
}

/// A bed, or an unfinished one.
#[derive(Debug, Clone, PartialEq)]
pub struct BedEntry {
    /// The name.
    pub name: BedName,
    /// The topology; none for an unfinished bed.
    pub topology: Option<Topology>,
    /// Whether a process is using the bed.
    pub is_busy: bool,
    /// The number of namespaces.
    pub namespace_count: usize,
}

/// All beds, sorted by name.
///
/// # Errors
/// If the namespaces or files cannot be listed.
pub fn list() -> Result<Vec<BedEntry>, BedError> {
    let bed_entry = |name: BedName| {
        Ok(BedEntry {
            topology: read_complete_topology(&name)?,
            is_busy: Lock::is_locked(&lock_file(&name)),
            namespace_count: namespaces(&name)?.len(),
            name,
        })
    };
    bed_names()?.into_iter().map(bed_entry).collect()
}

fn bed_names() -> Result<BTreeSet<BedName>, BedError> {
    let mut names: BTreeSet<BedName> =
        namespaces_with_prefix("weir-")?.iter().filter_map(|n| BedName::from_namespace(n)).collect();
    let files = match fs::read_dir(BED_FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        files => files.map_err(|error| file_error(Path::new(BED_FOLDER), error))?,
    };
    for entry in files {
        let path = entry.map_err(|error| file_error(Path::new(BED_FOLDER), error))?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()?.parse::<BedName>().ok()));
    }
    Ok(names)
}

fn namespaces_with_prefix(prefix: &str) -> Result<Vec<String>, BedError> {
    namespace::list_with_prefix(prefix).map_err(|error| file_error(Path::new(namespace::NETNS_FOLDER), error))
}

fn namespaces(name: &BedName) -> Result<Vec<String>, BedError> {
    namespaces_with_prefix(&name.namespace_prefix())
}

/// The topology of a bed; none if the bed is unfinished or does not exist.
fn read_complete_topology(name: &BedName) -> Result<Option<Topology>, BedError> {
    let Ok(topology) = weir_trace::topology::read(&state_file(name)) else { return Ok(None) };
    Ok((namespaces(name)?.len() == topology.nodes()).then_some(topology))
}

fn acquire_lock(name: &BedName) -> Result<Lock, BedError> {
    let path = lock_file(name);
    let started = Instant::now();
    loop {
        fs::create_dir_all(BED_FOLDER).map_err(|error| file_error(Path::new(BED_FOLDER), error))?;
        match Lock::acquire(&path, LOCK_TIMEOUT) {
            // A process that removed the last bed may have removed the folder meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && started.elapsed() < LOCK_TIMEOUT => {}
            lock => {
                return lock
                    .map_err(|error| file_error(&path, error))?
                    .ok_or_else(|| BedError::Busy(name.clone()));
            }
        }
    }
}

/// Removes the namespaces and files of a bed, except the lock.
fn remove_parts(name: &BedName, lock: &Lock) -> Result<(), BedError> {
    for path in [state_file(name), state_file(name).with_extension("new")] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file_error(&path, error)),
            _ => {}
        }
    }
    let existing = namespaces(name)?;
    if existing.is_empty() {
        return Ok(());
    }
    command::run_step(&batch::deletion_step(&existing), lock.file())?;
    match &namespaces(name)?[..] {
        [] => Ok(()),
        remaining @ [first, ..] => {
            Err(BedError::NamespacesLeft(name.clone(), remaining.len(), first.clone()))
        }
    }
}

/// Removes the lock, and the folder if it is empty.
fn remove_lock(lock: Lock) -> Result<(), BedError> {
    lock.remove().map_err(|error| file_error(Path::new(BED_FOLDER), error))?;
    // The folder may hold files of other beds, and then stays.
    let _ = fs::remove_dir(BED_FOLDER);
    Ok(())
}

fn state_file(name: &BedName) -> PathBuf {
    Path::new(BED_FOLDER).join(format!("{name}.toml"))
}

fn lock_file(name: &BedName) -> PathBuf {
    Path::new(BED_FOLDER).join(format!("{name}.lock"))
}

fn file_error(path: &Path, error: io::Error) -> BedError {
    BedError::File { path: path.display().to_string(), error }
}
