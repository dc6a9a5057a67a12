//! Creates, opens and removes beds.
//!
//! A bed consists of its namespaces, which are named after it, and a file below `/run/weir` with its topology. The file is written last, so
//! a bed without it is unfinished. A second file is locked while a process changes the bed. If that process is killed, [`down`] finds
//! all parts of the bed by its name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_core::model::Topology;
use weir_core::model::scenario::Queueing;
use weir_core::saba::Fraction;

use crate::batch::{self, Stage, Step, Tool};
use crate::command::{self, CommandError};
use crate::lock::Lock;
use crate::namespace;
use crate::plan::{Name, Plan, PlanError};

/// The folder of the beds' files. The system empties it when it boots.
const PLACE: &str = "/run/weir";

/// How long to wait for another process, such as the programs of a killed one.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why an operation on a bed failed.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The topology cannot become a bed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The bed exists already.
    #[error("bed `{0}` is up already: expected it down, or another name")]
    Up(Name),
    /// Another process is using the bed.
    #[error("bed `{0}` is in use by another process")]
    Busy(Name),
    /// A step failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Namespaces could not be deleted.
    #[error("bed `{0}`: {1} namespaces cannot be removed, the first of them {2}")]
    Left(Name, usize, String),
    /// A file of the bed could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// Called between two steps of [`Bed::up`], which stops if it returns false.
pub type GoOn<'a> = &'a (dyn Fn() -> bool + Sync);

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
    pub fn up(name: &Name, topology: &Topology, go_on: GoOn<'_>) -> Result<Bed, BedError> {
        let plan = Plan::new(name.clone(), topology)?;
        let lock = lock(name)?;
        if find(name)?.is_some() {
            return Err(BedError::Up(name.clone()));
        }
        clear(name, &lock)?;
        let bed = Bed { plan, topology: topology.clone(), lock };
        let made = command::stages(&batch::up(&bed.plan), bed.lock.file(), go_on);
        match made.map_err(BedError::from).and_then(|()| bed.remember()) {
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
    pub fn open(name: &Name) -> Result<Option<Bed>, BedError> {
        let found = find(name)?;
        if found.is_none() && !Lock::is_taken(&lock_file(name)) {
            return Ok(None);
        }
        let lock = lock(name)?;
        let Some(topology) = find(name)? else { return Ok(None) };
        Ok(Some(Bed { plan: Plan::new(name.clone(), &topology)?, topology, lock }))
    }

    /// The nodes, addresses and routes.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The topology of which it was created.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Replaces the queues of each port by those of `queueing`, or by one queue without it. Packets are assigned to queues by their
    /// services' marks ([`crate::queues::dscp`]).
    ///
    /// # Errors
    /// If the kernel refuses the queues.
    pub fn set_queues(&self, queueing: Option<&Queueing>) -> Result<(), BedError> {
        self.change(&batch::queues(&self.plan, queueing))
    }

    /// Replaces the queues of each port by one queue of `hosts` or `switches` seconds of its link, at least one packet.
    ///
    /// # Errors
    /// If the kernel refuses the queues.
    pub fn set_short_queues(&self, hosts: f64, switches: f64) -> Result<(), BedError> {
        self.change(&batch::short_queues(&self.plan, hosts, switches))
    }

    /// Replaces the queues of each port, also at hosts, by one queue for each weight of a service. [`Bed::set_queues`] undoes this.
    ///
    /// # Errors
    /// If the kernel refuses the queues.
    pub fn set_queues_everywhere(&self, weights: &[f64]) -> Result<(), BedError> {
        self.change(&batch::queues_everywhere(&self.plan, weights))
    }

    /// Limits all cables of these nodes, by their positions in the plan, to a fraction of their rates, in both directions. The limit stays
    /// until it is set to [`Fraction::ALL`]. Each port must have one queue.
    ///
    /// # Errors
    /// If the kernel refuses the rates.
    pub fn throttle(&self, nodes: &[usize], part: Fraction) -> Result<(), BedError> {
        self.change(&batch::throttle(&self.plan, nodes, part))
    }

    fn change(&self, stage: &Stage) -> Result<(), BedError> {
        // The change is not interruptible: a partial change would be worse than the wait.
        Ok(command::stage(stage, self.lock.file(), &|| true)?)
    }

    /// Runs `ip` with these lines in a namespace of the bed.
    pub(crate) fn links(&self, namespace: &str, lines: String) -> Result<(), BedError> {
        self.tell(Tool::Ip, namespace, lines)
    }

    /// Runs `tc` with these lines in a namespace of the bed.
    pub(crate) fn shape(&self, namespace: &str, lines: String) -> Result<(), BedError> {
        self.tell(Tool::Tc, namespace, lines)
    }

    fn tell(&self, tool: Tool, namespace: &str, lines: String) -> Result<(), BedError> {
        let step = Step::Batch { tool, namespace: Some(namespace.to_owned()), lines };
        Ok(command::step(&step, self.lock.file())?)
    }

    /// Removes the bed.
    ///
    /// # Errors
    /// If a namespace or file cannot be removed.
    pub fn down(self) -> Result<(), BedError> {
        clear(&self.plan.name, &self.lock)?;
        forget(self.lock)
    }

    /// Writes the file of the topology atomically.
    fn remember(&self) -> Result<(), BedError> {
        let mut text = Vec::new();
        weir_trace::topology::write(&self.topology, &mut text).expect("writing to a Vec does not fail");
        let path = state_file(&self.plan.name);
        let new = path.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(|error| file(&path, error))
    }
}

/// Runs `work` as during the creation of a bed of this name, and then removes all parts of that bed.
pub(crate) fn unfinished(name: &Name, work: impl FnOnce(&fs::File)) -> Result<(), BedError> {
    let lock = lock(name)?;
    work(lock.file());
    clear(name, &lock)?;
    forget(lock)
}

/// Removes a bed, finished or not. Returns whether it existed.
///
/// # Errors
/// If a namespace or file cannot be removed, or another process is using the bed.
pub fn down(name: &Name) -> Result<bool, BedError> {
    if !names()?.contains(name) {
        return Ok(false);
    }
    let lock = lock(name)?;
    clear(name, &lock)?;
    forget(lock)?;
    Ok(true)
}

/// A bed, or an unfinished one.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The name.
    pub name: Name,
    /// The topology; none for an unfinished bed.
    pub topology: Option<Topology>,
    /// Whether a process is using the bed.
    pub busy: bool,
    /// The number of namespaces.
    pub namespaces: usize,
}

/// All beds, sorted by name.
///
/// # Errors
/// If the namespaces or files cannot be listed.
pub fn list() -> Result<Vec<Listed>, BedError> {
    let listed = |name: Name| {
        Ok(Listed {
            topology: find(&name)?,
            busy: Lock::is_taken(&lock_file(&name)),
            namespaces: namespaces(&name)?.len(),
            name,
        })
    };
    names()?.into_iter().map(listed).collect()
}

fn names() -> Result<BTreeSet<Name>, BedError> {
    let mut names: BTreeSet<Name> = all("weir-")?.iter().filter_map(|n| Name::of_namespace(n)).collect();
    let files = match fs::read_dir(PLACE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        files => files.map_err(|error| file(Path::new(PLACE), error))?,
    };
    for entry in files {
        let path = entry.map_err(|error| file(Path::new(PLACE), error))?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()?.parse::<Name>().ok()));
    }
    Ok(names)
}

fn all(prefix: &str) -> Result<Vec<String>, BedError> {
    namespace::named(prefix).map_err(|error| file(Path::new("/run/netns"), error))
}

fn namespaces(name: &Name) -> Result<Vec<String>, BedError> {
    all(&name.prefix())
}

/// The topology of a bed; none if the bed is unfinished or does not exist.
fn find(name: &Name) -> Result<Option<Topology>, BedError> {
    let Ok(topology) = weir_trace::topology::read(&state_file(name)) else { return Ok(None) };
    Ok((namespaces(name)?.len() == topology.nodes()).then_some(topology))
}

fn lock(name: &Name) -> Result<Lock, BedError> {
    let path = lock_file(name);
    let started = Instant::now();
    loop {
        fs::create_dir_all(PLACE).map_err(|error| file(Path::new(PLACE), error))?;
        match Lock::take(&path, PATIENCE) {
            // A process that removed the last bed may have removed the folder meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && started.elapsed() < PATIENCE => {}
            lock => {
                return lock.map_err(|error| file(&path, error))?.ok_or_else(|| BedError::Busy(name.clone()));
            }
        }
    }
}

/// Removes the namespaces and files of a bed, except the lock.
fn clear(name: &Name, lock: &Lock) -> Result<(), BedError> {
    for path in [state_file(name), state_file(name).with_extension("new")] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file(&path, error)),
            _ => {}
        }
    }
    let there = namespaces(name)?;
    if there.is_empty() {
        return Ok(());
    }
    command::step(&batch::down(&there), lock.file())?;
    match &namespaces(name)?[..] {
        [] => Ok(()),
        left @ [first, ..] => Err(BedError::Left(name.clone(), left.len(), first.clone())),
    }
}

/// Removes the lock, and the folder if it is empty.
fn forget(lock: Lock) -> Result<(), BedError> {
    lock.remove().map_err(|error| file(Path::new(PLACE), error))?;
    // The folder may hold files of other beds, and then stays.
    let _ = fs::remove_dir(PLACE);
    Ok(())
}

fn state_file(name: &Name) -> PathBuf {
    Path::new(PLACE).join(format!("{name}.toml"))
}

fn lock_file(name: &Name) -> PathBuf {
    Path::new(PLACE).join(format!("{name}.lock"))
}

fn file(path: &Path, error: io::Error) -> BedError {
    BedError::File { path: path.display().to_string(), error }
}
