//! Durable store of a coordinator: registrations, weights, the policy and the sensitivity table, in one file.
//!
//! A [`Table`] has keys and JSON values. A change is on the disk when [`Store::put`] or [`Store::remove`] returns. Changes
//! that arrive during a write go into one transaction, so concurrent callers share a wait for the disk. If the process is
//! killed or the machine loses power, the store has the state after the last transaction. Only one process can open a
//! store.
//!
//! If a write fails, such as on a full disk, the store refuses changes until a later attempt succeeds (`writer.rs`).
//!
//! redb stores a checksum of each page in use, and [`Store::open`] verifies all pages. Transactions are committed in two
//! phases, so a page of the last transaction that fails verification is damaged, not an unfinished write. redb therefore
//! does not return to the previous transaction.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError, RwLock};
use std::{fmt, thread};

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError, TableHandle,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;
use tokio::sync::{Mutex, mpsc, oneshot};
use tracing::{error, warn};

mod epoch_file;
mod file;
mod numbers;
mod snapshot;
mod successor;
mod writer;

use epoch_file::epoch_path;
use file::StoreFile;
use numbers::StartNumbers;
use writer::{SharedStatus, Writer, WriterEpoch};

pub(crate) use numbers::unix_millis;
pub(crate) use snapshot::hex;
pub use snapshot::{BackupError, RecordCheck, Snapshot, StoreSummary, verify, write_backup};
pub use successor::Successor;
pub use writer::StoreStatus;

/// Version of the format, which the file contains.
pub const VERSION: u64 = 1;

/// Size of the page cache, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// Maximum number of queued changes, and of changes in one transaction.
const MAX_QUEUED_CHANGES: usize = 1024;

/// Advice in errors about a refused store.
const RECOVERY_HELP: &str = "restore a backup of `weir ctl backup`, or move the file away to start with an empty store: frameworks then \
                    register again (docs/serve.md, \"Back up and recover\")";

/// Advice in errors about a store that cannot be written.
const WRITE_HELP: &str = "free space on its disk, or repair the disk (docs/serve.md, \"A full disk\")";

/// Key of a number that a restored backup contains until a coordinator starts with it.
const RESTORED_KEY: &str = "restored";

/// Table of numbers: the version of the format, the epoch, the generations, and [`RESTORED_KEY`].
const NUMBERS_TABLE: TableDefinition<'_, &str, u64> = TableDefinition::new("weir");

/// Tables of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Coflows by their ids.
    Coflows,
    /// The first flows of coflows whose flows were replaced. Removing a coflow also removes its first flows.
    FirstFlows,
    /// Coflows between regions by their ids.
    OverlayCoflows,
    /// Measured bandwidths of links between regions, by the names of the regions with `/` between them.
    LinkSamples,
    /// The last addresses of relays that have names in the configuration, by the name of the relay.
    RelayAddresses,
    /// Hosts that have joined, by name.
    Hosts,
    /// Saba's applications by their ids.
    Applications,
    /// Connections of applications, by their ids.
    Connections,
    /// Weights of services by name.
    Weights,
    /// Single values: the policy and the sensitivity table.
    Settings,
}

impl Table {
    const ALL: [Table; 10] = [
        Table::Coflows,
        Table::FirstFlows,
        Table::OverlayCoflows,
        Table::LinkSamples,
        Table::RelayAddresses,
        Table::Hosts,
        Table::Applications,
        Table::Connections,
        Table::Weights,
        Table::Settings,
    ];

    /// Name of the table in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Table::Coflows => "coflows",
            Table::FirstFlows => "first flows",
            Table::OverlayCoflows => "overlay coflows",
            Table::LinkSamples => "link samples",
            Table::RelayAddresses => "relay addresses",
            Table::Hosts => "hosts",
            Table::Applications => "applications",
            Table::Connections => "connections",
            Table::Weights => "weights",
            Table::Settings => "settings",
        }
    }

    fn definition(self) -> TableDefinition<'static, &'static str, &'static [u8]> {
        TableDefinition::new(self.name())
    }
}

/// A part of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Bytes of the file.
    Bytes(Range<u64>),
    /// A record of a table.
    Record {
        /// The table.
        table: &'static str,
        /// The key.
        key: String,
    },
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Bytes(range) if range.start >= range.end => write!(f, "byte {}", range.start),
            Location::Bytes(range) => write!(f, "bytes {} to {}", range.start, range.end - 1),
            Location::Record { table, key } => write!(f, "table `{table}`, record `{}`", key.escape_debug()),
        }
    }
}

/// Why the store cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open.
    #[error("{}: another coordinator has the store open; expected one coordinator for each store", .0.display())]
    AlreadyOpen(PathBuf),
    /// Another process changed the store during a check.
    #[error(
        "{}: another process has the store open and changes it; expected a store that is not in use; help: stop the coordinator, \
         or use `weir ctl backup`, which verifies the backup",
        .0.display()
    )]
    InUse(PathBuf),
    /// A file that another program wrote.
    #[error(
        "{}: not a store ({reason}); expected a store of Weir; help: check `store` in the configuration; if the file was a store, {RECOVERY_HELP}",
        .path.display()
    )]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
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
    /// Bytes or a record that no coordinator can have written.
    #[error("{}: damaged at {location} ({reason}); expected the contents that a coordinator wrote; help: {RECOVERY_HELP}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first damaged part.
        location: Location,
        /// The reason.
        reason: String,
    },
    /// A value that cannot be written as JSON or read from it.
    #[error("store: table `{table}`, record `{key}`: {message}")]
    InvalidValue {
        /// The table.
        table: &'static str,
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
    /// A write failed, and the file has not been opened again yet.
    #[error("{}: cannot be written ({reason}); changes are refused until it can; help: {WRITE_HELP}", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: Arc<str>,
    },
    /// A coordinator with a higher epoch writes the store.
    #[error(
        "the coordinator has loaded another configuration; expected a request to the new one; help: send the request again"
    )]
    Superseded,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    fn from_io(path: &Path, error: io::Error) -> StoreError {
        StoreError::File { path: path.to_owned(), error: Arc::new(redb::Error::Io(error)) }
    }

    /// The message without the path of the file, if the cause is the file system.
    fn reason(&self) -> String {
        match self {
            StoreError::File { error, .. } => error.to_string(),
            other => other.to_string(),
        }
    }

    fn damaged(path: &Path, location: Location, reason: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: path.to_owned(), location, reason: reason.into() }
    }

    fn not_a_store(path: &Path, reason: impl Into<String>) -> StoreError {
        StoreError::NotAStore { path: path.to_owned(), reason: reason.into() }
    }
}

/// A queued change, and the channel for its result.
struct Change {
    /// The epoch of the handle that requests it.
    epoch: u64,
    table: Table,
    key: String,
    /// The new value; `None` removes the record.
    value: Option<Vec<u8>>,
    result: oneshot::Sender<Result<(), RefusedChange>>,
}

/// Why a change is not written.
#[derive(Debug, Clone)]
enum RefusedChange {
    /// The file cannot be written, for this reason.
    Unwritable(Arc<str>),
    /// A handle with a higher epoch has taken over.
    Superseded,
}

impl Change {
    /// Whether the change affects a table.
    fn affects(&self, table: Table) -> bool {
        let removes_first_flows =
            (self.table, table) == (Table::Coflows, Table::FirstFlows) && self.value.is_none();
        self.table == table || removes_first_flows
    }
}

/// The file of a store, with its path and its first damaged bytes for errors.
#[derive(Debug, Clone)]
struct StoreSource {
    path: Arc<Path>,
    file: StoreFile,
    /// The bytes that redb read when the latest transaction failed verification.
    first_damaged: Arc<StdMutex<Option<Range<u64>>>>,
}

impl StoreSource {
    fn open(path: &Path, writable: bool) -> Result<StoreSource, StoreError> {
        let file = StoreFile::open(path, writable).map_err(|error| StoreError::from_io(path, error))?;
        let source = StoreSource { path: path.into(), file, first_damaged: Arc::default() };
        if source.file.file_len().map_err(|error| StoreError::from_io(path, error))? == 0 {
            return Err(StoreError::damaged(path, Location::Bytes(0..0), "the file is empty"));
        }
        if !source.file.has_magic().map_err(|error| StoreError::from_io(path, error))? {
            return Err(StoreError::not_a_store(path, "bytes 0 to 8 are not those of a redb file"));
        }
        Ok(source)
    }

    /// Opens the database and verifies all pages. The file is unchanged until [`StoreFile::apply`].
    fn database(&self) -> Result<Database, StoreError> {
        let (file, first_damaged) = (self.file.clone(), Arc::clone(&self.first_damaged));
        let record_damage = move |session: &mut redb::RepairSession| {
            // redb reports this progress only if the verification of the latest transaction fails.
            if (0.2..0.5).contains(&session.progress())
                && let Ok(mut first) = first_damaged.lock()
            {
                first.get_or_insert(file.last_read());
            }
        };
        self.catch_damage(|| {
            let mut builder = Database::builder();
            builder
                .set_cache_size(CACHE_BYTES)
                .set_check_integrity_on_open(true)
                .set_repair_callback(record_damage);
            builder.create_with_backend(self.file.clone()).map_err(redb::Error::from)
        })
    }

    /// Runs a function that reads the file. A panic in redb means damage that redb does not check for.
    fn catch_damage<T>(&self, read: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, StoreError> {
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
    fn damaged(&self, reason: String) -> StoreError {
        let first_damaged = self.first_damaged.lock().ok().and_then(|mut first| first.take());
        let damaged_bytes = match self.file.file_len() {
            Ok(bytes) if reason.contains("truncated") => bytes..bytes,
            _ => first_damaged.unwrap_or_else(|| self.file.last_read()),
        };
        // Messages of redb about a wrong checksum of the latest transaction.
        let checksum_messages =
            ["Primary is corrupted", "All roots are corrupted", "commit slots are corrupted"];
        let is_checksum = checksum_messages.iter().any(|message| reason.contains(message));
        let reason = if is_checksum { "a checksum does not match".to_owned() } else { reason };
        StoreError::damaged(&self.path, Location::Bytes(damaged_bytes), reason)
    }

    fn error(&self, error: redb::Error) -> StoreError {
        match error {
            redb::Error::DatabaseAlreadyOpen => StoreError::AlreadyOpen(self.path.to_path_buf()),
            redb::Error::Corrupted(reason) => self.damaged(reason),
            redb::Error::UpgradeRequired(version) => {
                self.damaged(format!("version {version} of redb's format"))
            }
            redb::Error::Io(error) if error.kind() == ErrorKind::InvalidData => {
                self.damaged(error.to_string())
            }
            redb::Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.damaged("a read beyond the end of the file".to_owned())
            }
            other => StoreError::File { path: self.path.to_path_buf(), error: Arc::new(other) },
        }
    }

    /// The version and the epoch of a database; zeros if it has no tables yet.
    fn version_and_epoch(&self, transaction: &ReadTransaction) -> Result<(u64, u64), StoreError> {
        let not_a_store = |reason: &str| Err(StoreError::not_a_store(&self.path, reason));
        let names: Vec<String> = self.catch_damage(|| {
            let names = transaction.list_tables()?.map(|table| table.name().to_owned());
            Ok(names.collect())
        })?;
        if names.is_empty() {
            return Ok((0, 0));
        }
        if !names.iter().any(|name| name == NUMBERS_TABLE.name()) {
            return not_a_store("a redb file without the tables of a store");
        }
        let read_number = |key: &str| {
            let table = match transaction.open_table(NUMBERS_TABLE) {
                Err(TableError::Storage(error)) => return Err(redb::Error::from(error)),
                Err(_) => return Ok(None),
                Ok(table) => table,
            };
            Ok(table.get(key)?.map(|number| number.value()))
        };
        match self.catch_damage(|| read_number("version"))? {
            None => not_a_store("a redb file without a version of Weir"),
            Some(VERSION) => Ok((VERSION, self.catch_damage(|| read_number("epoch"))?.unwrap_or(0))),
            Some(found) => Err(StoreError::Version { path: self.path.to_path_buf(), found }),
        }
    }
}

/// An open database, and its file.
struct OpenDatabase {
    database: Database,
    source: StoreSource,
}

impl OpenDatabase {
    /// Opens and verifies an existing store. The file is unchanged until [`OpenDatabase::make_writable`].
    fn open(path: &Path) -> Result<OpenDatabase, StoreError> {
        let source = StoreSource::open(path, true)?;
        let database = source.database()?;
        source.version_and_epoch(&source.catch_damage(|| Ok(database.begin_read()?))?)?;
        Ok(OpenDatabase { database, source })
    }
}

/// The database of a store, which its writer replaces after a failed write. `None` while it cannot be opened.
#[derive(Clone)]
struct SharedDatabase(Arc<RwLock<Option<OpenDatabase>>>);

impl SharedDatabase {
    /// Calls a function with the database.
    fn with<T>(&self, read: impl FnOnce(&OpenDatabase) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let open = self.0.read().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map_or(Err(StoreError::Closed), read)
    }

    fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn set(&self, open: OpenDatabase) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(open);
    }
}

/// Client of the store. Clones share the store.
#[derive(Clone)]
pub struct Store {
    path: Arc<Path>,
    database: SharedDatabase,
    status: SharedStatus,
    numbers: StartNumbers,
    /// The next generation of a registration.
    next_generation: Arc<AtomicU64>,
    changes: mpsc::Sender<Change>,
    /// The epoch whose changes are written. The writer locks it for each transaction.
    writer_epoch: Arc<Mutex<WriterEpoch>>,
}

impl Store {
    /// Opens the store at `path`, or creates it. Raises the epoch and reserves generations. A new or restored store starts at the
    /// time of day, so its epoch is above that of all accepted orders, and its generations are above those of an earlier store,
    /// unless the clock was wrong.
    ///
    /// If an existing store cannot be written, such as on a full disk, the store can be read, and refuses changes until it can be written:
    /// [`Store::status`]. Its epoch is then written to the epoch file only. If that fails too, the epoch is at least the time of day in
    /// milliseconds, so that two such starts have different epochs.
    ///
    /// # Errors
    /// [`StoreError`]: the store is refused or cannot be read, or does not exist and cannot be created. An existing file is unchanged.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        if !path.exists() {
            publish(build_file(path, |_| Ok(()))?, path, false)?;
        }
        let mut open = OpenDatabase::open(path)?;
        let stored = open.numbers()?;
        let reserved_epoch = epoch_file::read(&epoch_path(path));
        let mut numbers = StartNumbers::after(stored, reserved_epoch, unix_millis());
        let reserved = epoch_file::write(&epoch_path(path), numbers.epoch);
        let (status, mut stored_epoch) = (SharedStatus::default(), stored.epoch);
        match open.make_writable(&numbers) {
            Ok(()) => stored_epoch = Some(numbers.epoch),
            Err(error @ StoreError::Damaged { .. }) => return Err(error),
            Err(error) => {
                status.record_failure(&error.reason());
                error!(%error, "the store cannot be written; changes are refused until it can");
                if reserved.is_err() {
                    numbers.epoch = numbers.epoch.max(unix_millis());
                }
                // The failed write closed the database.
                drop(open);
                open = OpenDatabase::open(path)?;
            }
        }
        if let Err(error) = reserved {
            warn!(path = %epoch_path(path).display(), %error, "the epoch file cannot be written");
        }
        let path: Arc<Path> = path.into();
        let to_error = |error| StoreError::from_io(&path, error);
        let database = SharedDatabase(Arc::new(RwLock::new(Some(open))));
        let (changes, receiver) = mpsc::channel(MAX_QUEUED_CHANGES);
        let writer_epoch = Arc::new(Mutex::new(WriterEpoch { numbers, stored_epoch, failed_epoch: None }));
        let writer =
            Writer::new(Arc::clone(&path), database.clone(), status.clone(), Arc::clone(&writer_epoch));
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(to_error)?;
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(&clock, receiver))
            .map_err(to_error)?;
        let next_generation = Arc::new(AtomicU64::new(numbers.next_generation));
        Ok(Store { path, database, status, numbers, next_generation, changes, writer_epoch })
    }

    /// Whether the store can be written.
    pub fn status(&self) -> StoreStatus {
        self.status.lock().clone()
    }

    /// Why the store cannot be written; `Ok` if it can.
    ///
    /// # Errors
    /// [`StoreError::Unwritable`]: a write has failed, and no later attempt has succeeded.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        match self.status().failure {
            None => Ok(()),
            Some(reason) => Err(self.unwritable_error(reason)),
        }
    }

    fn unwritable_error(&self, reason: Arc<str>) -> StoreError {
        StoreError::Unwritable { path: self.path.to_path_buf(), reason }
    }

    /// The epoch: higher than that of each earlier coordinator with this store.
    pub fn epoch(&self) -> u64 {
        self.numbers.epoch
    }

    /// The lowest generation of the store. A registration of a lower one was in an earlier store that was lost or replaced.
    pub fn first_generation(&self) -> u64 {
        self.numbers.first_generation
    }

    /// A generation for a registration: higher than each earlier one of this store.
    pub fn next_generation(&self) -> u64 {
        self.next_generation.fetch_add(1, Ordering::Relaxed)
    }

    /// The error for a record that no coordinator can have written.
    pub(crate) fn damaged_record(&self, table: Table, key: &str, reason: impl Into<String>) -> StoreError {
        let location = Location::Record { table: table.name(), key: key.to_owned() };
        StoreError::damaged(&self.path, location, reason)
    }

    fn parse<T: DeserializeOwned>(&self, table: Table, key: &str, value: &[u8]) -> Result<T, StoreError> {
        serde_json::from_slice(value).map_err(|error| self.damaged_record(table, key, error.to_string()))
    }

    /// All records of a table, in order of keys.
    ///
    /// # Errors
    /// The file cannot be read, or a value does not decode to `T`.
    pub fn records<T: DeserializeOwned>(&self, table: Table) -> Result<Vec<(String, T)>, StoreError> {
        let to_value = |(key, value): (String, Vec<u8>)| Ok((key.clone(), self.parse(table, &key, &value)?));
        self.values(table)?.into_iter().map(to_value).collect()
    }

    /// The records of a table of measurements, in order of keys. A coordinator can do without a measurement: those that do not decode to
    /// `T`, such as those of another version, are skipped with one warning.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn decodable_records<T: DeserializeOwned>(
        &self,
        table: Table,
    ) -> Result<Vec<(String, T)>, StoreError> {
        let (mut records, mut skipped) = (Vec::new(), Vec::new());
        for (key, value) in self.values(table)? {
            match serde_json::from_slice(&value) {
                Ok(value) => records.push((key, value)),
                Err(error) => skipped.push((key, error)),
            }
        }
        if let Some((key, error)) = skipped.first() {
            let count = skipped.len();
            warn!(table = table.name(), count, first = key, %error, "stored measurements ignored: another format");
        }
        Ok(records)
    }

    /// The encoded records of a table, in order of keys.
    fn values(&self, table: Table) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let read = |database: &Database| -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
            let table = match database.begin_read()?.open_table(table.definition()) {
                // A store of an earlier version on a full disk.
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let to_record =
                |entry: Result<(redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, &[u8]>), _>| {
                    let (key, value) = entry?;
                    Ok((key.value().to_owned(), value.value().to_owned()))
                };
            table.iter()?.map(to_record).collect()
        };
        self.read(read)
    }

    /// One record of a table; `None` if it does not exist.
    ///
    /// # Errors
    /// Those of [`Store::records`].
    pub fn get<T: DeserializeOwned>(&self, table: Table, key: &str) -> Result<Option<T>, StoreError> {
        let read = |database: &Database| -> Result<Option<Vec<u8>>, redb::Error> {
            let table = database.begin_read()?.open_table(table.definition())?;
            Ok(table.get(key)?.map(|value| value.value().to_owned()))
        };
        let value = self.read(read)?;
        value.map(|value| self.parse(table, key, &value)).transpose()
    }

    /// The current records, without later changes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.with_database(|open| {
            let transaction = open.source.catch_damage(|| Ok(open.database.begin_read()?))?;
            Ok(Snapshot::new(open.source.clone(), transaction, self.numbers.epoch))
        })
    }

    /// Reads from the database.
    fn read<T>(&self, read: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, StoreError> {
        self.with_database(|open| open.source.catch_damage(|| read(&open.database)))
    }

    fn with_database<T>(
        &self,
        read: impl FnOnce(&OpenDatabase) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.database.with(read).map_err(|error| match (error, self.status().failure) {
            // The store could not be opened again after a failed write.
            (StoreError::Closed, Some(reason)) => self.unwritable_error(reason),
            (error, _) => error,
        })
    }

    /// Writes a record, and replaces an existing one.
    ///
    /// # Errors
    /// The record is not on the disk.
    pub async fn put<T: Serialize>(&self, table: Table, key: &str, value: &T) -> Result<(), StoreError> {
        let value = serde_json::to_vec(value).map_err(|error| StoreError::InvalidValue {
            table: table.name(),
            key: key.to_owned(),
            message: error.to_string(),
        })?;
        self.change(table, key, Some(value)).await
    }

    /// Removes a record, if it exists.
    ///
    /// # Errors
    /// The removal is not on the disk.
    pub async fn remove(&self, table: Table, key: &str) -> Result<(), StoreError> {
        self.change(table, key, None).await
    }

    async fn change(&self, table: Table, key: &str, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        let (result, result_receiver) = oneshot::channel();
        let change = Change { epoch: self.numbers.epoch, table, key: key.to_owned(), value, result };
        self.changes.send(change).await.map_err(|_| StoreError::Closed)?;
        let written = result_receiver.await.map_err(|_| StoreError::Closed)?;
        written.map_err(|refused| match refused {
            RefusedChange::Unwritable(reason) => self.unwritable_error(reason),
            RefusedChange::Superseded => StoreError::Superseded,
        })
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

/// Creates a temporary file next to `path`. Its errors do not name the temporary file, which the user does not know.
fn create_temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = folder(path);
    tempfile::Builder::new().prefix(".weir-").tempfile_in(folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let reason = format!("the folder {} does not exist; help: create it", folder.display());
            io::Error::new(ErrorKind::NotFound, reason)
        }
        kind => kind.into(),
    })
}

/// Creates a store in a temporary file next to `path`; `fill` adds records to its first transaction.
fn build_file(
    path: &Path,
    fill: impl FnOnce(&WriteTransaction) -> Result<(), StoreError>,
) -> Result<NamedTempFile, StoreError> {
    let to_error = |error| StoreError::from_io(path, error);
    // The mode is 0600, since the file contains all registrations.
    let temporary = create_temporary(path).map_err(to_error)?;
    let file = StoreFile::open(temporary.path(), true).map_err(to_error)?;
    let source = StoreSource { path: path.into(), file, first_damaged: Arc::default() };
    let database = source.database()?;
    source.file.apply().map_err(to_error)?;
    let transaction = source.catch_damage(|| {
        let mut transaction = database.begin_write()?;
        transaction.set_two_phase_commit(true);
        transaction.open_table(NUMBERS_TABLE)?.insert("version", VERSION)?;
        for table in Table::ALL {
            transaction.open_table(table.definition())?;
        }
        Ok(transaction)
    })?;
    fill(&transaction)?;
    source.catch_damage(|| {
        transaction.commit()?;
        Ok(database.close()?)
    })?;
    temporary.as_file().sync_all().map_err(to_error)?;
    Ok(temporary)
}

/// Renames a new store to `path`. Replaces an existing file only with `replace`.
fn publish(temporary: NamedTempFile, path: &Path, replace: bool) -> Result<(), StoreError> {
    let named = if replace { temporary.persist(path) } else { temporary.persist_noclobber(path) };
    named.map_err(|error| StoreError::from_io(path, error.error))?;
    // Syncs the folder, so that the new name is on the disk.
    File::open(folder(path))
        .and_then(|folder| folder.sync_all())
        .map_err(|error| StoreError::from_io(path, error))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
