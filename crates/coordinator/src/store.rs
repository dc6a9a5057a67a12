//! What a coordinator knows after a restart: registrations, weights and tables, in one file.
//!
//! Rooms are tables of keys and JSON. What is written is on the disk when [`Store::put`] and [`Store::remove`] have answered; what is
//! written meanwhile goes into one transaction, so that many callers wait for the disk once. A process that is killed, or a machine
//! that loses power, leaves the state after the last transaction. One process at a time has a store open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition, TableError,
    TableHandle, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

/// The version of the format, which is in the file.
pub const VERSION: u64 = 1;

/// Memory for pages of the file, in bytes.
const CACHE: usize = 16 << 20;

/// The most changes that wait, and that go into one transaction.
const WAITING: usize = 1024;

/// Numbers: the version, and the epoch.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("weir");

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Coflows by their ids.
    Coflows,
    /// The flows that coflows were registered with, of those that were updated. They go with their coflows.
    First,
    /// Saba's applications by their ids.
    Applications,
    /// Connections of these by their ids.
    Connections,
    /// Weights of services by name.
    Weights,
    /// What there is one of: the policy, the sensitivity table.
    Settings,
}

impl Room {
    const ALL: [Room; 6] =
        [Room::Coflows, Room::First, Room::Applications, Room::Connections, Room::Weights, Room::Settings];

    /// What it is called in the file.
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

/// Why nothing was read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it.
    #[error("{}: another coordinator has it open: expected one for each store", .0.display())]
    Open(PathBuf),
    /// A file of something else.
    #[error("{}: expected a store of Weir, or no file", .0.display())]
    Foreign(PathBuf),
    /// A format that is not known.
    #[error("{}: the store has version {found}: expected {VERSION}", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: u64,
    },
    /// An entry that cannot be understood.
    #[error("the store's {room} `{key}`: {message}")]
    Entry {
        /// The room.
        room: &'static str,
        /// The key.
        key: String,
        /// Why.
        message: String,
    },
    /// The file cannot be read or written.
    #[error("the store: {0}")]
    File(Arc<redb::Error>),
    /// It was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    fn file(error: impl Into<redb::Error>) -> StoreError {
        StoreError::File(Arc::new(error.into()))
    }
}

/// What is to be written, and whom to tell.
struct Change {
    room: Room,
    key: String,
    /// Nothing: the entry goes away.
    value: Option<Vec<u8>>,
    done: oneshot::Sender<Result<(), Arc<redb::Error>>>,
}

impl Change {
    /// Whether something in a room changes.
    fn is_in(&self, room: Room) -> bool {
        let goes_with = (self.room, room) == (Room::Coflows, Room::First) && self.value.is_none();
        self.room == room || goes_with
    }
}

/// The store. Clones are the same one.
#[derive(Clone)]
pub struct Store {
    database: Arc<Database>,
    epoch: u64,
    changes: mpsc::Sender<Change>,
}

impl Store {
    /// The store at `path`, which is made if there is none; its epoch is one more than when it was opened before.
    ///
    /// # Errors
    /// Why it is not.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        // Who may read it may read what everybody registered. One that is there keeps what its owner gave it.
        let made = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        made.map_err(|error| StoreError::file(StorageError::from(error)))?;
        let mut builder = Database::builder();
        let database = builder.set_cache_size(CACHE).set_check_integrity_on_open(true).create(path);
        let database = database.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StoreError::Open(path.to_owned()),
            DatabaseError::Storage(StorageError::Corrupted(_)) => StoreError::Foreign(path.to_owned()),
            DatabaseError::Storage(StorageError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                StoreError::Foreign(path.to_owned())
            }
            other => StoreError::file(other),
        })?;
        // The file's own name has to be there after a loss of power, too.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let synced = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        synced.map_err(|error| StoreError::file(StorageError::from(error)))?;
        let epoch = begin(&database, path, milliseconds())?;
        let database = Arc::new(database);
        let (changes, waiting) = mpsc::channel(WAITING);
        let writer = Arc::clone(&database);
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || write_all(&writer, waiting))
            .map_err(|error| StoreError::file(StorageError::from(error)))?;
        Ok(Store { database, epoch, changes })
    }

    /// One more than when it was opened before; a new one begins with the clock.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// All entries of a room, in order of keys.
    ///
    /// # Errors
    /// If the file cannot be read, or an entry is no `T`.
    pub fn all<T: DeserializeOwned>(&self, room: Room) -> Result<Vec<(String, T)>, StoreError> {
        let read = || -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
            let table = self.database.begin_read()?.open_table(room.table())?;
            let entry = |entry: Result<(redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, &[u8]>), _>| {
                let (key, value) = entry?;
                Ok((key.value().to_owned(), value.value().to_owned()))
            };
            table.iter()?.map(entry).collect()
        };
        let parse = |(key, value): (String, Vec<u8>)| match serde_json::from_slice(&value) {
            Ok(value) => Ok((key, value)),
            Err(error) => Err(StoreError::Entry { room: room.name(), key, message: error.to_string() }),
        };
        read().map_err(StoreError::file)?.into_iter().map(parse).collect()
    }

    /// One entry of a room, if there is one.
    ///
    /// # Errors
    /// As [`Store::all`].
    pub fn get<T: DeserializeOwned>(&self, room: Room, key: &str) -> Result<Option<T>, StoreError> {
        let read = || -> Result<Option<Vec<u8>>, redb::Error> {
            let table = self.database.begin_read()?.open_table(room.table())?;
            Ok(table.get(key)?.map(|value| value.value().to_owned()))
        };
        let Some(value) = read().map_err(StoreError::file)? else { return Ok(None) };
        serde_json::from_slice(&value).map(Some).map_err(|error| StoreError::Entry {
            room: room.name(),
            key: key.to_owned(),
            message: error.to_string(),
        })
    }

    /// Keeps an entry, in place of the one that there is.
    ///
    /// # Errors
    /// If it is not on the disk.
    pub async fn put<T: Serialize>(&self, room: Room, key: &str, value: &T) -> Result<(), StoreError> {
        let value = serde_json::to_vec(value).map_err(|error| StoreError::Entry {
            room: room.name(),
            key: key.to_owned(),
            message: error.to_string(),
        })?;
        self.change(room, key, Some(value)).await
    }

    /// Forgets an entry, if there is one.
    ///
    /// # Errors
    /// If that is not on the disk.
    pub async fn remove(&self, room: Room, key: &str) -> Result<(), StoreError> {
        self.change(room, key, None).await
    }

    async fn change(&self, room: Room, key: &str, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        let change = Change { room, key: key.to_owned(), value, done };
        self.changes.send(change).await.map_err(|_| StoreError::Closed)?;
        written.await.map_err(|_| StoreError::Closed)?.map_err(StoreError::File)
    }
}

#[cfg(test)]
impl Store {
    /// The same one, but nothing can be written any more.
    pub(crate) fn unwritable(&self) -> Store {
        let (changes, _) = mpsc::channel(1);
        Store { changes, ..self.clone() }
    }
}

/// Looks whether the file is a store, and counts the epoch up. The clock counts for a new one only, in milliseconds: that is above the
/// epochs of a store that was lost, unless the clock was far wrong or there was more than a start a millisecond.
fn begin(database: &Database, path: &Path, clock: u64) -> Result<u64, StoreError> {
    let transaction = database.begin_write().map_err(StoreError::file)?;
    let names = transaction.list_tables().map_err(StoreError::file)?;
    let names: Vec<String> = names.map(|table| table.name().to_owned()).collect();
    let is_new = names.is_empty();
    let epoch = {
        let foreign = |error| match error {
            TableError::Storage(error) => StoreError::file(error),
            _ => StoreError::Foreign(path.to_owned()),
        };
        if !is_new && !names.iter().any(|name| name == NUMBERS.name()) {
            return Err(StoreError::Foreign(path.to_owned()));
        }
        let mut numbers = transaction.open_table(NUMBERS).map_err(foreign)?;
        let number = |key: &str| -> Result<Option<u64>, StoreError> {
            Ok(numbers.get(key).map_err(StoreError::file)?.map(|number| number.value()))
        };
        match number("version")? {
            Some(VERSION) => {}
            None if is_new => {}
            Some(found) => return Err(StoreError::Version { path: path.to_owned(), found }),
            None => return Err(StoreError::Foreign(path.to_owned())),
        }
        let epoch = number("epoch")?.map_or(clock, |before| before.saturating_add(1));
        for (key, value) in [("version", VERSION), ("epoch", epoch)] {
            numbers.insert(key, value).map_err(StoreError::file)?;
        }
        for room in Room::ALL {
            transaction.open_table(room.table()).map_err(foreign)?;
        }
        epoch
    };
    transaction.commit().map_err(StoreError::file)?;
    Ok(epoch)
}

/// What the clock says.
fn milliseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64)
}

/// Writes what is asked for until nobody can ask any more.
fn write_all(database: &Database, mut waiting: mpsc::Receiver<Change>) {
    let mut changes = Vec::new();
    while waiting.blocking_recv_many(&mut changes, WAITING) > 0 {
        let written = write(database, &changes).map_err(Arc::new);
        for change in changes.drain(..) {
            // Who asked may have gone away.
            let _ = change.done.send(written.clone());
        }
    }
}

fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let transaction: WriteTransaction = database.begin_write()?;
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

    /// The only place where the time of day counts for anything.
    #[test]
    fn epochs_rise_whatever_the_clock_says() {
        const HOUR: u64 = 3_600_000;
        const NOW: u64 = 1_000 * HOUR;
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let epochs = [NOW, NOW - HOUR, NOW + HOUR, 0]
            .map(|clock| begin(&database, Path::new("weir.redb"), clock).unwrap());
        assert_eq!(epochs, [NOW, NOW + 1, NOW + 2, NOW + 3]);
    }
}
