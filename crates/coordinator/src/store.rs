//! Durable state of a coordinator: registrations, weights and tables, in one file.
//!
//! A room is a table of keys and JSON values. A change is on the disk when [`Store::put`] or [`Store::remove`] returns.
//! Changes that arrive during a write go into one transaction, so concurrent callers share a wait for the disk. If the
//! process is killed or the machine loses power, the store has the state after the last transaction. One process at a
//! time can open a store.
//!
//! redb keeps a checksum of each page in use, and [`Store::open`] verifies all of them. Transactions are committed in
//! two phases: a page of the last transaction that fails verification is then damage and not an unfinished write. redb
//! therefore does not return to the transaction before it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, thread};

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError, TableHandle,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;
use tokio::sync::{mpsc, oneshot};

mod file;
mod snapshot;

use file::StoreFile;
pub use snapshot::{BackupError, Contents, Snapshot, verify, write_backup};

/// Version of the format, which the file contains.
pub const VERSION: u64 = 1;

/// Size of the page cache, in bytes.
const CACHE: usize = 16 << 20;

/// Maximum number of waiting changes, and of changes in one transaction.
const WAITING: usize = 1024;

/// Advice in errors about a refused store.
const HELP: &str = "restore a backup of `weir ctl backup`, or move the file away to start with an empty store: frameworks then \
                    register again (docs/serve.md, \"Back up and recover\")";

/// The number that a backup has until a coordinator starts with it.
const RESTORED: &str = "restored";

/// Numbers of the store: format version and epoch.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("weir");

/// Tables of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Coflows by their ids.
    Coflows,
    /// The first flows of coflows whose flows were replaced. They are removed with their coflow.
    First,
    /// Saba's applications by their ids.
    Applications,
    /// Connections of applications, by their ids.
    Connections,
    /// Weights of services by name.
    Weights,
    /// Single values: the policy and the sensitivity table.
    Settings,
}

impl Room {
    const ALL: [Room; 6] =
        [Room::Coflows, Room::First, Room::Applications, Room::Connections, Room::Weights, Room::Settings];

    /// Name of the table in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Room::Coflows => "coflows",
            Room::First => "first flows",
            Room::Applications => "applications",
            Room::Connections => "connections",
            Room::Weights => "weights",
            Room::Settings => "settings",
        }
    }

    fn table(self) -> TableDefinition<'static, &'static str, &'static [u8]> {
        TableDefinition::new(self.name())
    }
}

/// A part of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Bytes of the file.
    Bytes(Range<u64>),
    /// A record of a room.
    Record {
        /// The room.
        table: &'static str,
        /// The key.
        key: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Bytes(range) if range.start >= range.end => write!(f, "byte {}", range.start),
            Place::Bytes(range) => write!(f, "bytes {} to {}", range.start, range.end - 1),
            Place::Record { table, key } => write!(f, "table `{table}`, record `{}`", key.escape_debug()),
        }
    }
}

/// Reason for which the store cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open.
    #[error("{}: another coordinator has it open; expected one coordinator for each store", .0.display())]
    Open(PathBuf),
    /// Another process changed it during a check.
    #[error(
        "{}: another process has it open and changes it; expected a store that is not in use; help: stop the coordinator, or use \
         `weir ctl backup`, which checks what it writes",
        .0.display()
    )]
    InUse(PathBuf),
    /// A file that another program wrote.
    #[error(
        "{}: not a store ({what}); expected a store of Weir; help: check `store` in the configuration; if the file was a store, {HELP}",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// An unknown format.
    #[error(
        "{}: the store has version {found}; expected {VERSION}; help: run the version of Weir that wrote the store",
        .path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u64,
    },
    /// Bytes or a record that something other than a coordinator changed.
    #[error("{}: damaged at {place} ({what}); expected the contents that a coordinator wrote; help: {HELP}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first damaged part.
        place: Place,
        /// The reason.
        what: String,
    },
    /// A value that cannot be written as JSON or read from it.
    #[error("the store's {room} `{key}`: {message}")]
    Value {
        /// The room.
        room: &'static str,
        /// The key.
        key: String,
        /// The cause.
        message: String,
    },
    /// The file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: Arc<redb::Error>,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    fn io(path: &Path, error: io::Error) -> StoreError {
        StoreError::File { path: path.to_owned(), error: Arc::new(redb::Error::Io(error)) }
    }

    fn damaged(path: &Path, place: Place, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: path.to_owned(), place, what: what.into() }
    }

    fn foreign(path: &Path, what: impl Into<String>) -> StoreError {
        StoreError::Foreign { path: path.to_owned(), what: what.into() }
    }
}

/// A waiting change, and the channel for its result.
struct Change {
    room: Room,
    key: String,
    /// The new value; `None` removes the record.
    value: Option<Vec<u8>>,
    done: oneshot::Sender<Result<(), Arc<redb::Error>>>,
}

impl Change {
    /// Whether the change affects a room.
    fn is_in(&self, room: Room) -> bool {
        let goes_with = (self.room, room) == (Room::Coflows, Room::First) && self.value.is_none();
        self.room == room || goes_with
    }
}

/// File of a store, with the path and the damaged bytes for errors.
#[derive(Debug, Clone)]
struct Source {
    path: Arc<Path>,
    file: StoreFile,
    /// The bytes that redb read when the latest transaction failed verification.
    first: Arc<Mutex<Option<Range<u64>>>>,
}

impl Source {
    fn open(path: &Path, writable: bool) -> Result<Source, StoreError> {
        let file = StoreFile::open(path, writable).map_err(|error| StoreError::io(path, error))?;
        let source = Source { path: path.into(), file, first: Arc::default() };
        if source.file.bytes().map_err(|error| StoreError::io(path, error))? == 0 {
            return Err(StoreError::damaged(path, Place::Bytes(0..0), "the file is empty"));
        }
        if !source.file.has_magic().map_err(|error| StoreError::io(path, error))? {
            return Err(StoreError::foreign(path, "bytes 0 to 8 are not those of a file of redb"));
        }
        Ok(source)
    }

    /// Opens the database and verifies all of it. The file is not changed before [`StoreFile::apply`].
    fn database(&self) -> Result<Database, StoreError> {
        let (file, first) = (self.file.clone(), Arc::clone(&self.first));
        let note = move |session: &mut redb::RepairSession| {
            // redb reports this progress when the latest transaction does not verify, and only then.
            if (0.2..0.5).contains(&session.progress())
                && let Ok(mut first) = first.lock()
            {
                first.get_or_insert(file.last_read());
            }
        };
        self.guard(|| {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE).set_check_integrity_on_open(true).set_repair_callback(note);
            builder.create_with_backend(self.file.clone()).map_err(redb::Error::from)
        })
    }

    /// Runs a function that reads the file. A panic in redb is damage that redb did not check for.
    fn guard<T>(&self, read: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, StoreError> {
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(result) => result.map_err(|error| self.error(error)),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(self.damaged(text.unwrap_or("redb panicked").to_owned()))
            }
        }
    }

    /// The error for damage at the bytes that redb read last.
    fn damaged(&self, what: String) -> StoreError {
        let first = self.first.lock().ok().and_then(|mut first| first.take());
        let place = match self.file.bytes() {
            Ok(bytes) if what.contains("truncated") => bytes..bytes,
            _ => first.unwrap_or_else(|| self.file.last_read()),
        };
        // Messages of redb about a wrong checksum of the latest transaction.
        let is_checksum = ["Primary is corrupted", "All roots are corrupted", "commit slots are corrupted"];
        let is_checksum = is_checksum.iter().any(|words| what.contains(words));
        let what = if is_checksum { "a checksum does not match".to_owned() } else { what };
        StoreError::damaged(&self.path, Place::Bytes(place), what)
    }

    fn error(&self, error: redb::Error) -> StoreError {
        match error {
            redb::Error::DatabaseAlreadyOpen => StoreError::Open(self.path.to_path_buf()),
            redb::Error::Corrupted(what) => self.damaged(what),
            redb::Error::UpgradeRequired(version) => {
                self.damaged(format!("version {version} of redb's format"))
            }
            redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.damaged(error.to_string())
            }
            redb::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.damaged("beyond the end of the file".to_owned())
            }
            other => StoreError::File { path: self.path.to_path_buf(), error: Arc::new(other) },
        }
    }

    /// The version and the epoch of a database; zeros if it has no tables yet.
    fn identify(&self, transaction: &ReadTransaction) -> Result<(u64, u64), StoreError> {
        let foreign = |what: &str| Err(StoreError::foreign(&self.path, what));
        let names: Vec<String> = self.guard(|| {
            let names = transaction.list_tables()?.map(|table| table.name().to_owned());
            Ok(names.collect())
        })?;
        if names.is_empty() {
            return Ok((0, 0));
        }
        if !names.iter().any(|name| name == NUMBERS.name()) {
            return foreign("it has other tables");
        }
        let number = |key: &str| {
            let table = match transaction.open_table(NUMBERS) {
                Err(TableError::Storage(error)) => return Err(redb::Error::from(error)),
                Err(_) => return Ok(None),
                Ok(table) => table,
            };
            Ok(table.get(key)?.map(|number| number.value()))
        };
        match self.guard(|| number("version"))? {
            None => foreign("it has no version"),
            Some(VERSION) => Ok((VERSION, self.guard(|| number("epoch"))?.unwrap_or(0))),
            Some(found) => Err(StoreError::Version { path: self.path.to_path_buf(), found }),
        }
    }
}

/// Handle of the store. Clones share the store.
#[derive(Clone)]
pub struct Store {
    database: Arc<Database>,
    source: Source,
    epoch: u64,
    changes: mpsc::Sender<Change>,
}

impl Store {
    /// Opens the store at `path`, or creates it. Raises the epoch above the former one. A new or restored store starts at the time of day
    /// in milliseconds, so it has an epoch above that of all orders that agents have accepted, unless the clock was wrong.
    ///
    /// # Errors
    /// [`StoreError`]: the store is refused or cannot be read. An existing file is unchanged.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        if !path.exists() {
            publish(build(path, |_| Ok(()))?, path, false)?;
        }
        let source = Source::open(path, true)?;
        let database = source.database()?;
        source.identify(&source.guard(|| Ok(database.begin_read()?))?)?;
        let writing = |error| StoreError::io(path, error);
        source.file.apply().map_err(writing)?;
        let epoch = source.guard(|| begin(&database, milliseconds()))?;
        let database = Arc::new(database);
        let (changes, waiting) = mpsc::channel(WAITING);
        let writer = Arc::clone(&database);
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || write_all(&writer, waiting))
            .map_err(writing)?;
        Ok(Store { database, source, epoch, changes })
    }

    /// The epoch: higher than that of each earlier coordinator with this store.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The error for a record that no coordinator can have written.
    pub(crate) fn damaged_record(&self, room: Room, key: &str, what: impl Into<String>) -> StoreError {
        let place = Place::Record { table: room.name(), key: key.to_owned() };
        StoreError::damaged(&self.source.path, place, what)
    }

    fn parse<T: DeserializeOwned>(&self, room: Room, key: &str, value: &[u8]) -> Result<T, StoreError> {
        serde_json::from_slice(value).map_err(|error| self.damaged_record(room, key, error.to_string()))
    }

    /// All records of a room, in order of keys.
    ///
    /// # Errors
    /// The file cannot be read, or a value does not decode into `T`.
    pub fn all<T: DeserializeOwned>(&self, room: Room) -> Result<Vec<(String, T)>, StoreError> {
        let read = || -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
            let table = self.database.begin_read()?.open_table(room.table())?;
            let entry = |entry: Result<(redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, &[u8]>), _>| {
                let (key, value) = entry?;
                Ok((key.value().to_owned(), value.value().to_owned()))
            };
            table.iter()?.map(entry).collect()
        };
        let parse = |(key, value): (String, Vec<u8>)| Ok((key.clone(), self.parse(room, &key, &value)?));
        self.source.guard(read)?.into_iter().map(parse).collect()
    }

    /// One record of a room; `None` if it does not exist.
    ///
    /// # Errors
    /// Those of [`Store::all`].
    pub fn get<T: DeserializeOwned>(&self, room: Room, key: &str) -> Result<Option<T>, StoreError> {
        let read = || -> Result<Option<Vec<u8>>, redb::Error> {
            let table = self.database.begin_read()?.open_table(room.table())?;
            Ok(table.get(key)?.map(|value| value.value().to_owned()))
        };
        let value = self.source.guard(read)?;
        value.map(|value| self.parse(room, key, &value)).transpose()
    }

    /// All records at this moment, without later changes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let transaction = self.source.guard(|| Ok(self.database.begin_read()?))?;
        Ok(Snapshot::new(self.source.clone(), transaction, self.epoch))
    }

    /// Writes a record, and replaces an existing one.
    ///
    /// # Errors
    /// The record is not on the disk.
    pub async fn put<T: Serialize>(&self, room: Room, key: &str, value: &T) -> Result<(), StoreError> {
        let value = serde_json::to_vec(value).map_err(|error| StoreError::Value {
            room: room.name(),
            key: key.to_owned(),
            message: error.to_string(),
        })?;
        self.change(room, key, Some(value)).await
    }

    /// Removes a record, if it exists.
    ///
    /// # Errors
    /// The removal is not on the disk.
    pub async fn remove(&self, room: Room, key: &str) -> Result<(), StoreError> {
        self.change(room, key, None).await
    }

    async fn change(&self, room: Room, key: &str, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        let change = Change { room, key: key.to_owned(), value, done };
        self.changes.send(change).await.map_err(|_| StoreError::Closed)?;
        let written = written.await.map_err(|_| StoreError::Closed)?;
        let path = || self.source.path.to_path_buf();
        written.map_err(|error| StoreError::File { path: path(), error })
    }
}

#[cfg(test)]
impl Store {
    /// The same store, but all writes fail.
    pub(crate) fn unwritable(&self) -> Store {
        let (changes, _) = mpsc::channel(1);
        Store { changes, ..self.clone() }
    }
}

/// Creates a store in a temporary file next to `path`; `fill` adds records to its first transaction.
fn build(
    path: &Path,
    fill: impl FnOnce(&WriteTransaction) -> Result<(), StoreError>,
) -> Result<NamedTempFile, StoreError> {
    let wrong = |error| StoreError::io(path, error);
    // The mode is 0600: readers of the file can read all registrations.
    let temporary = tempfile::Builder::new().prefix(".weir-").tempfile_in(folder(path)).map_err(wrong)?;
    let file = StoreFile::open(temporary.path(), true).map_err(wrong)?;
    let source = Source { path: path.into(), file, first: Arc::default() };
    let database = source.database()?;
    source.file.apply().map_err(wrong)?;
    let transaction = source.guard(|| {
        let mut transaction = database.begin_write()?;
        transaction.set_two_phase_commit(true);
        transaction.open_table(NUMBERS)?.insert("version", VERSION)?;
        for room in Room::ALL {
            transaction.open_table(room.table())?;
        }
        Ok(transaction)
    })?;
    fill(&transaction)?;
    source.guard(|| {
        transaction.commit()?;
        Ok(database.close()?)
    })?;
    temporary.as_file().sync_all().map_err(wrong)?;
    Ok(temporary)
}

/// Renames a new store to `path`; replaces an existing file only with `replace`.
fn publish(temporary: NamedTempFile, path: &Path, replace: bool) -> Result<(), StoreError> {
    let named = if replace { temporary.persist(path) } else { temporary.persist_noclobber(path) };
    named.map_err(|error| StoreError::io(path, error.error))?;
    // Syncs the folder, so that the new name is on the disk.
    File::open(folder(path)).and_then(|folder| folder.sync_all()).map_err(|error| StoreError::io(path, error))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Raises the epoch by one. A new store, and one that was restored from a backup, starts at the time of day in milliseconds, `clock`, or above:
/// agents refuse orders of an epoch below that of the last order that they accepted. Other starts do not use the clock, so of two
/// coordinators the one with the older store stays the older one when it restarts.
fn begin(database: &Database, clock: u64) -> Result<u64, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    let epoch = {
        let mut numbers = transaction.open_table(NUMBERS)?;
        let last = numbers.get("epoch")?.map(|number| number.value());
        let is_restored = numbers.remove(RESTORED)?.is_some();
        let next = last.map_or(clock, |last| last.saturating_add(1));
        let epoch = if is_restored { next.max(clock) } else { next };
        numbers.insert("version", VERSION)?;
        numbers.insert("epoch", epoch)?;
        epoch
    };
    for room in Room::ALL {
        transaction.open_table(room.table())?;
    }
    transaction.commit()?;
    Ok(epoch)
}

/// The time of day in milliseconds; 1 before 1970.
fn milliseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64)
}

/// Writes changes until all handles of the store are dropped.
fn write_all(database: &Database, mut waiting: mpsc::Receiver<Change>) {
    let mut changes = Vec::new();
    while waiting.blocking_recv_many(&mut changes, WAITING) > 0 {
        let written = write(database, &changes).map_err(Arc::new);
        for change in changes.drain(..) {
            // The caller may have been cancelled.
            let _ = change.done.send(written.clone());
        }
    }
}

fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let mut transaction: WriteTransaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    for room in Room::ALL {
        let mut own = changes.iter().filter(|change| change.is_in(room)).peekable();
        if own.peek().is_none() {
            continue;
        }
        let mut table = transaction.open_table(room.table())?;
        for change in own {
            match &change.value {
                Some(value) => table.insert(change.key.as_str(), value.as_slice())?,
                None => table.remove(change.key.as_str())?,
            };
        }
    }
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    #[test]
    fn epochs_rise_for_any_clock_and_reach_it_in_new_and_restored_stores() {
        const HOUR: u64 = 3_600_000;
        const NOW: u64 = 1_000 * HOUR;
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let epochs = [NOW, NOW - HOUR, NOW + HOUR, 0].map(|clock| begin(&database, clock).unwrap());
        assert_eq!(epochs, [NOW, NOW + 1, NOW + 2, NOW + 3]);
        let restore = || {
            let transaction = database.begin_write().unwrap();
            transaction.open_table(NUMBERS).unwrap().insert(RESTORED, 1).unwrap();
            transaction.commit().unwrap();
        };
        restore();
        assert_eq!(
            [NOW + HOUR, NOW + 2 * HOUR].map(|clock| begin(&database, clock).unwrap()),
            [NOW + HOUR, NOW + HOUR + 1]
        );
        restore();
        assert_eq!(begin(&database, NOW).unwrap(), NOW + HOUR + 2);
    }
}
