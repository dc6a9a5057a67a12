//! Beds: made, found again, taken away.
//!
//! A bed is its namespaces, all named after it, and a file below `/run/weir` with its fabric, which is written when all
//! else is there: a bed without it was never finished. A second file is locked while somebody works on the bed. Whatever dies in
//! between, [`down`] finds all that there is by its name.

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

/// Where the files of beds are; the system empties it when it starts.
const PLACE: &str = "/run/weir";

/// How long to wait for somebody else, which may be the rest of one that was killed.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is wrong with a bed.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// There can be none of this topology.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It is there already.
    #[error("bed `{0}` is up already: expected it down, or another name")]
    Up(Name),
    /// Somebody else works on it.
    #[error("bed `{0}` is in use by another process")]
    Busy(Name),
    /// Something was not done.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Namespaces did not go away.
    #[error("bed `{0}`: {1} namespaces cannot be removed, the first of them {2}")]
    Left(Name, usize, String),
    /// The files of beds.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
}

/// Ends `up` early if its answer is `false`.
pub type GoOn<'a> = &'a (dyn Fn() -> bool + Sync);

/// A bed that is up, and nobody else's as long as this lives. It stays up after that.
#[derive(Debug)]
pub struct Bed {
    plan: Plan,
    topology: Topology,
    lock: Lock,
}

impl Bed {
    /// Makes a bed. What is left of one that was never finished goes away first.
    ///
    /// # Errors
    /// If it is there already, or cannot be made; then nothing of it is left.
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
            // Why it could not be made matters more than why something of it stays; who interrupts it knows why.
            Err(error) => match (error, bed.down()) {
                (BedError::Command(CommandError::Interrupted), Err(left)) => Err(left),
                (error, _) => Err(error),
            },
        }
    }

    /// A bed that was made before; none if it was not, or not finished.
    ///
    /// # Errors
    /// If somebody else works on it.
    pub fn open(name: &Name) -> Result<Option<Bed>, BedError> {
        let found = find(name)?;
        if found.is_none() && !Lock::is_taken(&lock_file(name)) {
            return Ok(None);
        }
        let lock = lock(name)?;
        let Some(topology) = find(name)? else { return Ok(None) };
        Ok(Some(Bed { plan: Plan::new(name.clone(), &topology)?, topology, lock }))
    }

    /// What it has.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What it was made from.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Gives every port the queues that it has there, or else one queue to all. Packets find theirs by their services'
    /// marks ([`crate::queues::dscp`]).
    ///
    /// # Errors
    /// If the kernel does not take them.
    pub fn set_queues(&self, queueing: Option<&Queueing>) -> Result<(), BedError> {
        self.change(&batch::queues(&self.plan, queueing))
    }

    /// Gives every port one queue that holds what its link carries in so many seconds, at hosts and at switches, and a packet at least.
    ///
    /// # Errors
    /// If the kernel does not take them.
    pub fn set_short_queues(&self, hosts: f64, switches: f64) -> Result<(), BedError> {
        self.change(&batch::short_queues(&self.plan, hosts, switches))
    }

    /// Gives every service a queue with its weight at every port, of hosts as well as of switches.
    /// [`Bed::set_queues`] takes them away.
    ///
    /// # Errors
    /// If the kernel does not take them.
    pub fn set_queues_everywhere(&self, weights: &[f64]) -> Result<(), BedError> {
        self.change(&batch::queues_everywhere(&self.plan, weights))
    }

    /// Has all cables of these nodes, by their positions in the plan, carry a part of what they do, both ways. It stays so until it is
    /// [`Fraction::ALL`]. Ports have to have one queue each.
    ///
    /// # Errors
    /// If the kernel does not take it.
    pub fn throttle(&self, nodes: &[usize], part: Fraction) -> Result<(), BedError> {
        self.change(&batch::throttle(&self.plan, nodes, part))
    }

    fn change(&self, stage: &Stage) -> Result<(), BedError> {
        // A change half made would be worse than waiting for it.
        Ok(command::stage(stage, self.lock.file(), &|| true)?)
    }

    /// Has `ip` do these lines in a namespace of the bed.
    pub(crate) fn links(&self, namespace: &str, lines: String) -> Result<(), BedError> {
        self.tell(Tool::Ip, namespace, lines)
    }

    /// Has `tc` do these lines in a namespace of the bed.
    pub(crate) fn shape(&self, namespace: &str, lines: String) -> Result<(), BedError> {
        self.tell(Tool::Tc, namespace, lines)
    }

    fn tell(&self, tool: Tool, namespace: &str, lines: String) -> Result<(), BedError> {
        let step = Step::Batch { tool, namespace: Some(namespace.to_owned()), lines };
        Ok(command::step(&step, self.lock.file())?)
    }

    /// Takes it away.
    ///
    /// # Errors
    /// If something of it stays.
    pub fn down(self) -> Result<(), BedError> {
        clear(&self.plan.name, &self.lock)?;
        forget(self.lock)
    }

    /// Writes what it was made from, all at once.
    fn remember(&self) -> Result<(), BedError> {
        let mut text = Vec::new();
        weir_trace::topology::write(&self.topology, &mut text).expect("writing to a Vec does not fail");
        let path = state_file(&self.plan.name);
        let new = path.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(|error| file(&path, error))
    }
}

/// Does some work as if on the way to a bed of this name, and then takes away what it made.
pub(crate) fn unfinished(name: &Name, work: impl FnOnce(&fs::File)) -> Result<(), BedError> {
    let lock = lock(name)?;
    work(lock.file());
    clear(name, &lock)?;
    forget(lock)
}

/// Takes a bed away, whatever there is of it. The answer is whether there was anything.
///
/// # Errors
/// If something of it stays, or somebody works on it.
pub fn down(name: &Name) -> Result<bool, BedError> {
    if !names()?.contains(name) {
        return Ok(false);
    }
    let lock = lock(name)?;
    clear(name, &lock)?;
    forget(lock)?;
    Ok(true)
}

/// A bed, or what is left of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its name.
    pub name: Name,
    /// What it was made from, if it is whole.
    pub topology: Option<Topology>,
    /// Whether somebody works on it.
    pub busy: bool,
    /// How many namespaces there are.
    pub namespaces: usize,
}

/// All beds, by name.
///
/// # Errors
/// If that cannot be found out.
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

/// What a bed was made from, if it is whole.
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
            // Whoever takes the last bed away may have removed the folder in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound && started.elapsed() < PATIENCE => {}
            lock => {
                return lock.map_err(|error| file(&path, error))?.ok_or_else(|| BedError::Busy(name.clone()));
            }
        }
    }
}

/// Removes all but the lock.
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

/// Removes the lock, and the folder if it was the last.
fn forget(lock: Lock) -> Result<(), BedError> {
    lock.remove().map_err(|error| file(Path::new(PLACE), error))?;
    // Others may be in there.
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
