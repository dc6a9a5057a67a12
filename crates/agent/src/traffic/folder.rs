//! Manages the folder of the BPF file system that holds programs and maps. They stay when the agent is killed, and the next agent
//! takes over.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::TrafficError;

const BPF_FS: &str = "/sys/fs/bpf";
const FOLDER_NAME: &str = "weir";

/// What a folder is for. The end of its name is the version of the maps' layout: this version does not read maps of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderKind {
    /// The maps of `bpf/application.c`, and programs.
    Applications,
    /// The maps of `bpf/lease.c`, and its programs.
    Leases,
}

impl FolderKind {
    /// The end of the name of this version's folder.
    const fn suffix(self) -> &'static str {
        match self {
            FolderKind::Applications => "2",
            FolderKind::Leases => "leases1",
        }
    }

    /// Whether a name is that of a folder of this kind, of any version.
    fn has_suffix(self, suffix: &str) -> bool {
        let version = match self {
            FolderKind::Applications => Some(suffix),
            FolderKind::Leases => suffix.strip_prefix("leases"),
        };
        version.is_some_and(|version| version.parse::<u32>().is_ok())
    }
}

/// The folder of this network namespace, locked by this process.
#[derive(Debug)]
pub(super) struct PinFolder {
    path: PathBuf,
    lock: File,
}

impl Drop for PinFolder {
    fn drop(&mut self) {
        // Closing alone would not end the lock while a command that another thread starts has a copy of the file, until it executes.
        let _ = self.lock.unlock();
    }
}

impl PinFolder {
    /// Creates the folder if it does not exist, and mounts the BPF file system if it is not mounted.
    pub fn create(kind: FolderKind) -> Result<PinFolder, TrafficError> {
        mount_bpf_fs()?;
        let path = parent_folder().join(format!("{}{}", folder_prefix()?, kind.suffix()));
        fs::create_dir_all(&path).map_err(|error| TrafficError::file(&path, error))?;
        PinFolder::lock(path)
    }

    /// Whether the BPF file system is visible from here.
    pub fn is_bpf_fs_visible() -> bool {
        statfs(BPF_FS).is_ok_and(|system| system.filesystem_type() == BPF_FS_MAGIC)
    }

    /// Opens all existing folders of a kind in this network namespace, also those of other versions, except one that is open.
    pub fn open_existing(
        kind: FolderKind,
        except: Option<&PinFolder>,
    ) -> Result<Vec<PinFolder>, TrafficError> {
        let parent = parent_folder();
        let entries = match fs::read_dir(&parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| TrafficError::file(&parent, error))?,
        };
        let prefix = folder_prefix()?;
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| TrafficError::file(&parent, error))?;
            let is_open = except.is_some_and(|open| open.path == entry.path());
            let name = entry.file_name();
            let suffix = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            if !is_open && suffix.is_some_and(|suffix| kind.has_suffix(suffix)) {
                folders.push(PinFolder::lock(entry.path())?);
            }
        }
        Ok(folders)
    }

    fn lock(path: PathBuf) -> Result<PinFolder, TrafficError> {
        let file = File::open(&path).map_err(|error| TrafficError::file(&path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(PinFolder { path, lock: file }),
            Err(TryLockError::WouldBlock) => Err(TrafficError::Busy),
            Err(TryLockError::Error(error)) => Err(TrafficError::file(&path, error)),
        }
    }

    /// Creates the folder again if another process deleted it, and returns whether one had.
    ///
    /// # Errors
    /// If the folder cannot be created, or another agent created it meanwhile.
    pub fn recreate(&mut self) -> Result<bool, TrafficError> {
        let to_error = |error| TrafficError::file(&self.path, error);
        let locked_inode = self.lock.metadata().map_err(to_error)?.ino();
        if fs::metadata(&self.path).is_ok_and(|found| found.ino() == locked_inode) {
            return Ok(false);
        }
        mount_bpf_fs()?;
        fs::create_dir_all(&self.path).map_err(to_error)?;
        *self = PinFolder::lock(self.path.clone())?;
        Ok(true)
    }

    /// Whether a file of this name exists.
    pub fn contains(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path.join(name)).is_ok()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the maps in the folder have this version's layout.
    pub fn is_current(&self, kind: FolderKind) -> bool {
        let name = self.path.to_str().and_then(|path| path.rsplit_once('-'));
        name.is_some_and(|(_, suffix)| suffix == kind.suffix())
    }

    /// Removes all files except those for which `is_kept` is true. A program without a file or an open link is detached.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) -> Result<(), TrafficError> {
        for entry in fs::read_dir(&self.path).map_err(|error| TrafficError::file(&self.path, error))? {
            let entry = entry.map_err(|error| TrafficError::file(&self.path, error))?;
            if !entry.file_name().to_str().is_some_and(&is_kept) {
                remove_file(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the folder and all files in it.
    pub fn remove(self) -> Result<(), TrafficError> {
        self.retain(|_| false)?;
        fs::remove_dir(&self.path).map_err(|error| TrafficError::file(&self.path, error))?;
        // The parent folder may hold folders of other namespaces.
        let _ = fs::remove_dir(parent_folder());
        Ok(())
    }
}

/// Pins an object in a folder by `pin`, and atomically replaces an object of the same name.
pub(super) fn replace_pin(
    folder: &Path,
    name: &str,
    pin: impl FnOnce(&Path) -> Result<(), TrafficError>,
) -> Result<(), TrafficError> {
    let (temporary, path) = (folder.join(format!("{name}-new")), folder.join(name));
    remove_file(&temporary)?;
    pin(&temporary)?;
    fs::rename(&temporary, &path).map_err(|error| TrafficError::file(&path, error))
}

/// Mounts the BPF file system if none is.
fn mount_bpf_fs() -> Result<(), TrafficError> {
    let mount_point = Path::new(BPF_FS);
    let to_error = |error: nix::Error| TrafficError::file(mount_point, error.into());
    if statfs(mount_point).map_err(to_error)?.filesystem_type() != BPF_FS_MAGIC {
        mount(Some("bpf"), mount_point, Some("bpf"), MsFlags::empty(), None::<&str>).map_err(to_error)?;
    }
    Ok(())
}

fn parent_folder() -> PathBuf {
    Path::new(BPF_FS).join(FOLDER_NAME)
}

/// The prefix of the folders of this network namespace.
fn folder_prefix() -> Result<String, TrafficError> {
    let path = Path::new("/proc/thread-self/ns/net");
    let inode = fs::metadata(path).map_err(|error| TrafficError::file(path, error))?.ino();
    Ok(format!("{inode}-"))
}

fn remove_file(path: &Path) -> Result<(), TrafficError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(TrafficError::file(path, error)),
        _ => Ok(()),
    }
}
