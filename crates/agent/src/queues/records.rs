//! The files about the interfaces of a network namespace: records of the roots that the agent's queues replaced, and marks of queues that
//! were configured by hand.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::QueueError;
use crate::namespace;

/// The folder of the files. The system empties this folder when it boots, which also deletes the agent's queues. The testbed has its files
/// in the same parent folder (`/run/weir/BED.toml`); the name of a bed contains no `-`, so it cannot be `agent-queues`.
pub(super) const RECORD_FOLDER: &str = "/run/weir/agent-queues";

/// The files of one network namespace. They are named by the interface's number, which stays when the interface is renamed, and by the
/// namespace, since numbers repeat.
pub(super) struct Records {
    folder: PathBuf,
    prefix: String,
}

impl Records {
    /// The files of the calling thread's network namespace.
    ///
    /// # Errors
    /// If the namespace cannot be identified.
    pub(super) fn current() -> Result<Records, QueueError> {
        Ok(Records { folder: PathBuf::from(RECORD_FOLDER), prefix: namespace_prefix()? })
    }

    /// The record of the root that the agent's queues replaced.
    pub(super) fn record_path(&self, index: u32) -> PathBuf {
        self.path(index, "json")
    }

    /// The mark of queues that were configured by hand. The file is empty.
    pub(super) fn manual_mark_path(&self, index: u32) -> PathBuf {
        self.path(index, "manual")
    }

    fn path(&self, index: u32, extension: &str) -> PathBuf {
        self.folder.join(format!("{}{index}.{extension}", self.prefix))
    }

    /// Deletes the files of all interfaces but those with these numbers.
    ///
    /// # Errors
    /// If the folder cannot be read, or a file cannot be deleted.
    pub(super) fn delete_except(&self, kept_indexes: &BTreeSet<u32>) -> Result<(), QueueError> {
        let to_error = |error| file_error(&self.folder, error);
        for entry in fs::read_dir(&self.folder).map_err(to_error)? {
            let path = entry.map_err(to_error)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(suffix) = name.and_then(|name| name.strip_prefix(&self.prefix)) else { continue };
            let index = suffix.split('.').next().and_then(|index| index.parse::<u32>().ok());
            if !index.is_some_and(|index| kept_indexes.contains(&index)) {
                delete_file(&path)?;
            }
        }
        Ok(())
    }
}

/// The prefix of a namespace's files: the cookie of the namespace, so that a record never applies to a later namespace. Kernels before
/// 5.14 have no cookies; there it is the inode number, which a later namespace can have as well.
fn namespace_prefix() -> Result<String, QueueError> {
    if let Ok(cookie) = namespace::cookie() {
        return Ok(format!("c{cookie}-"));
    }
    let path = Path::new("/proc/thread-self/ns/net");
    let inode = fs::metadata(path).map_err(|error| file_error(path, error))?.ino();
    Ok(format!("{inode}-"))
}

/// Deletes a file, if it exists.
///
/// # Errors
/// If the file cannot be deleted.
pub(super) fn delete_file(path: &Path) -> Result<(), QueueError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path, error)),
        _ => Ok(()),
    }
}

pub(super) fn file_error(path: &Path, error: io::Error) -> QueueError {
    QueueError::File { path: path.display().to_string(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_interfaces_and_namespaces_stay() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records { folder: folder.path().to_owned(), prefix: "c1-".to_owned() };
        let other = Records { folder: folder.path().to_owned(), prefix: "c12-".to_owned() };
        let write = |path: PathBuf| fs::write(path, "").unwrap();
        for index in [2, 3, 23] {
            write(records.record_path(index));
            write(records.manual_mark_path(index));
        }
        // A record that was not completely written.
        write(records.record_path(4).with_extension("new"));
        write(other.record_path(3));
        let names = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
        };
        records.delete_except(&BTreeSet::from([2])).unwrap();
        assert_eq!(names(), BTreeSet::from(["c1-2.json", "c1-2.manual", "c12-3.json"].map(str::to_owned)));
        records.delete_except(&BTreeSet::new()).unwrap();
        assert_eq!(names(), BTreeSet::from(["c12-3.json".to_owned()]));
    }
}
