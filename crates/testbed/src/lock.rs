//! Locks a bed, so that only one process at a time changes it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A file that is locked until this value is dropped and programs that inherited it have exited. The kernel ends the lock of a killed
/// process.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

/// The time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

impl Lock {
    /// Locks the file, and creates it if it does not exist. None if another process holds the lock until the timeout.
    pub fn acquire(path: &Path, timeout: Duration) -> io::Result<Option<Lock>> {
        let started = Instant::now();
        loop {
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            match file.try_lock() {
                // The previous holder may have removed the file meanwhile. A lock on a removed file protects nothing.
                Ok(()) if is_same_file(&file, path) => return Ok(Some(Lock { file, path: path.to_owned() })),
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) if started.elapsed() < timeout => thread::sleep(RETRY_INTERVAL),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Whether a process holds the lock.
    pub fn is_locked(path: &Path) -> bool {
        File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The locked file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Removes the file. Another process can then lock a new one.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let metadata = file.metadata().and_then(|file| fs::metadata(path).map(|path| (file, path)));
    metadata.is_ok_and(|(file, path)| (file.dev(), file.ino()) == (path.dev(), path.ino()))
}
