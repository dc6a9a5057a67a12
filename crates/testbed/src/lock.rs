//! One process at a time may change a bed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A file that is locked as long as this, or a program that was started with it, lives. The kernel ends the lock of a
/// process that is killed.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(20);

impl Lock {
    /// Locks the file, which is made if it is not there; none if somebody else has it for all of `patience`.
    pub fn take(path: &Path, patience: Duration) -> io::Result<Option<Lock>> {
        let started = Instant::now();
        loop {
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            match file.try_lock() {
                // Whoever had it before may have removed it in the meantime; then it is nobody's.
                Ok(()) if same(&file, path) => return Ok(Some(Lock { file, path: path.to_owned() })),
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) if started.elapsed() < patience => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Whether somebody has it now.
    pub fn is_taken(path: &Path) -> bool {
        File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Ends it, and removes the file.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

fn same(file: &File, path: &Path) -> bool {
    let places = file.metadata().and_then(|file| fs::metadata(path).map(|path| (file, path)));
    places.is_ok_and(|(file, path)| (file.dev(), file.ino()) == (path.dev(), path.ino()))
}
