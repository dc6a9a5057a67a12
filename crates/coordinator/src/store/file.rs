//! Storage backend of redb that leaves a file unchanged until it has been verified.
//!
//! redb repairs and commits while it opens a file, and reports damage without the damaged bytes. This backend therefore
//! stages writes in memory until the file has been verified, and records the last read, at which verification stopped.

use std::fs::{self, File};
use std::io;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// The first bytes of each file of redb.
const REDB_MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// The length of the header, in bytes (docs/design.md of redb).
const HEADER_BYTES: usize = 320;

/// The offset of the flags in the header, and two flags.
const FLAGS_OFFSET: usize = 9;
const PRIMARY_SLOT_FLAG: u8 = 1;
const TWO_PHASE_FLAG: u8 = 4;

/// The offsets of the numbers of the two latest transactions in the header.
const TRANSACTION_OFFSETS: [usize; 2] = [168, 296];

/// The maximum number of staged bytes. A repair writes only the header; more writes mean that the file is damaged.
const MAX_STAGED_BYTES: usize = 64 << 20;

/// A staged change of the file.
#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

/// The staged changes, in order.
#[derive(Debug, Default)]
struct StagedChanges {
    changes: Vec<Change>,
    bytes: usize,
}

#[derive(Debug)]
struct FileState {
    file: FileBackend,
    /// Whether redb locks the file against other processes.
    takes_locks: bool,
    /// `None` after [`StoreFile::apply`]: changes then go to the file at once.
    staged: Mutex<Option<StagedChanges>>,
    /// The bytes of the last read.
    last_read: Mutex<Range<u64>>,
}

/// A file whose changes are staged until [`StoreFile::apply`]. Clones share the file.
#[derive(Debug, Clone)]
pub struct StoreFile(Arc<FileState>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StoreFile {
    /// Opens an existing file. With `writable`, redb locks the file against other processes.
    ///
    /// # Errors
    /// If the file cannot be opened, or is not a regular file.
    pub fn open(path: &Path, writable: bool) -> io::Result<StoreFile> {
        // Opening a pipe would wait for its other end.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::options().read(true).write(writable).open(path)?;
        let file = FileBackend::new(file).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(StoreFile(Arc::new(FileState {
            file,
            takes_locks: writable,
            staged: Mutex::new(Some(StagedChanges::default())),
            last_read: Mutex::new(0..0),
        })))
    }

    /// Whether the file starts with the magic bytes of redb.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn has_magic(&self) -> io::Result<bool> {
        let mut start = [0; REDB_MAGIC.len()];
        if self.0.file.len()? < REDB_MAGIC.len() as u64 {
            return Ok(false);
        }
        self.0.file.read(0, &mut start)?;
        Ok(start == *REDB_MAGIC)
    }

    /// The bytes of the last read.
    pub fn last_read(&self) -> Range<u64> {
        lock(&self.0.last_read).clone()
    }

    /// The length of the file, in bytes.
    ///
    /// # Errors
    /// If the length cannot be determined.
    pub fn file_len(&self) -> io::Result<u64> {
        self.0.file.len()
    }

    /// Applies the staged changes in order. Later changes go to the file at once.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn apply(&self) -> io::Result<()> {
        let mut staged = lock(&self.0.staged);
        for change in staged.take().unwrap_or_default().changes {
            match change {
                Change::Write(offset, bytes) => self.0.file.write(offset, &bytes)?,
                Change::SetLen(len) => self.0.file.set_len(len)?,
                Change::Sync => self.0.file.sync_data()?,
            }
        }
        Ok(())
    }

    /// Stages a change. After [`StoreFile::apply`], calls `apply` instead.
    fn change(&self, change: Change, apply: impl FnOnce(&FileBackend) -> io::Result<()>) -> io::Result<()> {
        let mut staged = lock(&self.0.staged);
        let Some(staged) = &mut *staged else { return apply(&self.0.file) };
        if let Change::Write(_, bytes) = &change {
            staged.bytes += bytes.len();
        }
        if staged.bytes > MAX_STAGED_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a repair would write more than 64 MiB"));
        }
        staged.changes.push(change);
        Ok(())
    }
}

/// The length of a file of `len` bytes after the staged changes.
fn len_after(len: u64, staged: Option<&StagedChanges>) -> u64 {
    let changes = staged.map_or(&[][..], |staged| &staged.changes);
    changes.iter().fold(len, |len, change| match change {
        Change::Write(offset, bytes) => len.max(offset + bytes.len() as u64),
        Change::SetLen(len) => *len,
        Change::Sync => len,
    })
}

/// Makes redb consider both of the latest transactions if the one that is not primary is newer. A crash during a write leaves
/// such a header, and so does damage to the flags. Without this change of the header, redb would open the older transaction.
fn clear_two_phase_flag_if_secondary_is_newer(header: &mut [u8]) {
    let transaction_number = |slot: usize| {
        let offset = TRANSACTION_OFFSETS[slot];
        header[offset..offset + 8].iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let primary = usize::from(header[FLAGS_OFFSET] & PRIMARY_SLOT_FLAG);
    if transaction_number(1 - primary) > transaction_number(primary) {
        header[FLAGS_OFFSET] &= !TWO_PHASE_FLAG;
    }
}

impl StorageBackend for StoreFile {
    fn len(&self) -> io::Result<u64> {
        let staged = lock(&self.0.staged);
        Ok(len_after(self.0.file.len()?, staged.as_ref()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(out.len() as u64);
        *lock(&self.0.last_read) = offset..end;
        let staged = lock(&self.0.staged);
        let Some(staged) = &*staged else { return self.0.file.read(offset, out) };
        let file_len = self.0.file.len()?;
        if end > len_after(file_len, Some(staged)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes_from_file = file_len.clamp(offset, end) - offset;
        let (old, new) = out.split_at_mut(bytes_from_file as usize);
        self.0.file.read(offset, old)?;
        new.fill(0);
        let mut is_changed = false;
        for change in &staged.changes {
            let Change::Write(at, bytes) = change else { continue };
            let (from, to) = (offset.max(*at), end.min(at + bytes.len() as u64));
            if from < to {
                let bytes = &bytes[(from - at) as usize..(to - at) as usize];
                out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(bytes);
                is_changed = true;
            }
        }
        if offset == 0 && out.len() >= HEADER_BYTES && !is_changed {
            clear_two_phase_flag_if_secondary_is_newer(out);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Change::SetLen(len), |file| file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(Change::Sync, |file| file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if lock(&self.0.staged).is_none() {
            return self.0.file.write(offset, data);
        }
        self.change(Change::Write(offset, data.to_vec()), |file| file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if self.0.takes_locks { self.0.file.try_lock_range(start, end) } else { Ok(true) }
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if self.0.takes_locks { self.0.file.try_lock_shared_range(start, end) } else { Ok(true) }
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if self.0.takes_locks { self.0.file.query_lock_range(start, end) } else { Ok(false) }
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        if self.0.takes_locks { self.0.file.unlock_range(start, end) } else { Ok(()) }
    }
}
