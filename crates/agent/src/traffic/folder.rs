//! Manages the folder of the BPF file system that holds programs and maps. They stay when the agent is killed, and the next agent takes
//! over.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::TrafficError;

const SYSTEM: &str = "/sys/fs/bpf";
const OURS: &str = "weir";

/// The version of the map layout. It changes with the structures of `bpf/application.c`: this version does not read maps of another one.
const LAYOUT: &str = "1";

/// The folder of this network namespace, locked by this process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    lock: File,
}

impl Folder {
    /// Creates the folder if it does not exist, and mounts the BPF file system if it is not mounted.
    pub fn make() -> Result<Folder, TrafficError> {
        mount_system()?;
        let path = parent().join(format!("{}{LAYOUT}", prefix()?));
        fs::create_dir_all(&path).map_err(|error| TrafficError::file(&path, error))?;
        Folder::lock(path)
    }

    /// Whether the BPF file system is visible from here.
    pub fn is_seen() -> bool {
        statfs(SYSTEM).is_ok_and(|system| system.filesystem_type() == BPF_FS_MAGIC)
    }

    /// Opens all existing folders of this network namespace, also those of other versions, except one that is open.
    pub fn found(open: Option<&Folder>) -> Result<Vec<Folder>, TrafficError> {
        let parent = parent();
        let entries = match fs::read_dir(&parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| TrafficError::file(&parent, error))?,
        };
        let prefix = prefix()?;
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| TrafficError::file(&parent, error))?;
            let is_open = open.is_some_and(|open| open.path == entry.path());
            if !is_open && entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                found.push(Folder::lock(entry.path())?);
            }
        }
        Ok(found)
    }

    fn lock(path: PathBuf) -> Result<Folder, TrafficError> {
        let file = File::open(&path).map_err(|error| TrafficError::file(&path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Folder { path, lock: file }),
            Err(TryLockError::WouldBlock) => Err(TrafficError::Busy),
            Err(TryLockError::Error(error)) => Err(TrafficError::file(&path, error)),
        }
    }

    /// Creates the folder again if another process deleted it, and returns whether one had.
    ///
    /// # Errors
    /// If the folder cannot be created, or another agent created it meanwhile.
    pub fn restore(&mut self) -> Result<bool, TrafficError> {
        let failed = |error| TrafficError::file(&self.path, error);
        let held = self.lock.metadata().map_err(failed)?.ino();
        if fs::metadata(&self.path).is_ok_and(|found| found.ino() == held) {
            return Ok(false);
        }
        mount_system()?;
        fs::create_dir_all(&self.path).map_err(failed)?;
        *self = Folder::lock(self.path.clone())?;
        Ok(true)
    }

    /// Whether a file of this name exists.
    pub fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path.join(name)).is_ok()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the maps in the folder have this version's layout.
    pub fn is_current(&self) -> bool {
        self.path.to_str().and_then(|path| path.rsplit_once('-')).is_some_and(|(_, layout)| layout == LAYOUT)
    }

    /// Pins an object by `pin`, and atomically replaces an object of the same name.
    pub fn replace(
        &self,
        name: &str,
        pin: impl FnOnce(&Path) -> Result<(), TrafficError>,
    ) -> Result<(), TrafficError> {
        let (new, path) = (self.path.join(format!("{name}-new")), self.path.join(name));
        remove(&new)?;
        pin(&new)?;
        fs::rename(&new, &path).map_err(|error| TrafficError::file(&path, error))
    }

    /// Removes all files whose names are not wanted. A program without a file or an open link is detached.
    pub fn keep(&self, wanted: impl Fn(&str) -> bool) -> Result<(), TrafficError> {
        for entry in fs::read_dir(&self.path).map_err(|error| TrafficError::file(&self.path, error))? {
            let entry = entry.map_err(|error| TrafficError::file(&self.path, error))?;
            if !entry.file_name().to_str().is_some_and(&wanted) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the folder and all files in it.
    pub fn remove(self) -> Result<(), TrafficError> {
        self.keep(|_| false)?;
        fs::remove_dir(&self.path).map_err(|error| TrafficError::file(&self.path, error))?;
        // The parent folder may hold folders of other namespaces.
        let _ = fs::remove_dir(parent());
        Ok(())
    }
}

/// Mounts the BPF file system if none is.
fn mount_system() -> Result<(), TrafficError> {
    let system = Path::new(SYSTEM);
    let failed = |error: nix::Error| TrafficError::file(system, error.into());
    if statfs(system).map_err(failed)?.filesystem_type() != BPF_FS_MAGIC {
        mount(Some("bpf"), system, Some("bpf"), MsFlags::empty(), None::<&str>).map_err(failed)?;
    }
    Ok(())
}

fn parent() -> PathBuf {
    Path::new(SYSTEM).join(OURS)
}

/// The prefix of the folders of this network namespace.
fn prefix() -> Result<String, TrafficError> {
    let path = Path::new("/proc/thread-self/ns/net");
    let number = fs::metadata(path).map_err(|error| TrafficError::file(path, error))?.ino();
    Ok(format!("{number}-"))
}

fn remove(path: &Path) -> Result<(), TrafficError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(TrafficError::file(path, error)),
        _ => Ok(()),
    }
}
