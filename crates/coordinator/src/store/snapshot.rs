//! Reads a whole store: for verification and for backups.
//!
//! A backup is sent as lines of JSON. The first line has the format's version and the epoch, and each following line
//! one record. The last line has the number of records and a checksum (SHA-256) of all lines before. The receiver
//! builds a store from the lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, TryLockError};
use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::Arc;

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, TableError, WriteTransaction};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::{NUMBERS, Place, RESTORED, Room, Source, StoreError, VERSION, build, publish};
use crate::registry::records;

/// The version of the lines of a backup.
const LINES_VERSION: u64 = 1;

/// The maximum length of a line, in bytes: a coflow of the largest body that a coordinator can be configured to accept is shorter.
const MAX_LINE: u64 = 1 << 30;

/// The contents of a verified store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The version of the format.
    pub version: u64,
    /// The epoch of the coordinator that had the store last, or of the backup.
    pub epoch: u64,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// The number of records of each room, by its name.
    pub records: BTreeMap<&'static str, u64>,
}

/// All entries of a store at one moment.
pub struct Snapshot {
    source: Source,
    transaction: ReadTransaction,
    epoch: u64,
}

/// A line of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    First {
        #[serde(rename = "weir-backup")]
        version: u64,
        epoch: u64,
    },
    Record {
        table: String,
        key: String,
        value: String,
    },
    Last {
        records: u64,
        sha256: String,
    },
}

impl Snapshot {
    pub(super) fn new(source: Source, transaction: ReadTransaction, epoch: u64) -> Snapshot {
        Snapshot { source, transaction, epoch }
    }

    /// Calls `each` with the room, the key and the value of each record, in order.
    fn read(
        &self,
        mut each: impl FnMut(Room, &str, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for room in Room::ALL {
            let table = self.source.guard(|| match self.transaction.open_table(room.table()) {
                Ok(table) => Ok(Some(table)),
                Err(TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            })?;
            let Some(table) = table else { continue };
            let mut entries = self.source.guard(|| Ok(table.iter()?))?;
            while let Some((key, value)) = self.source.guard(|| Ok(entries.next().transpose()?))? {
                each(room, key.value(), value.value())?;
            }
        }
        Ok(())
    }

    /// Sends the lines of a backup to `send`, which returns whether to continue.
    ///
    /// # Errors
    /// A record cannot be read, or `send` returns `false`. Then the last line is missing.
    pub fn lines(&self, mut send: impl FnMut(Vec<u8>) -> bool) -> Result<(), StoreError> {
        let (mut digest, mut records) = (Context::new(&SHA256), 0);
        let mut line = |line: &Line, digest: Option<&mut Context>| {
            let mut bytes = serde_json::to_vec(line).map_err(|error| StoreError::Value {
                room: "backup",
                key: String::new(),
                message: error.to_string(),
            })?;
            bytes.push(b'\n');
            if let Some(digest) = digest {
                digest.update(&bytes);
            }
            if send(bytes) { Ok(()) } else { Err(StoreError::Closed) }
        };
        line(&Line::First { version: LINES_VERSION, epoch: self.epoch }, Some(&mut digest))?;
        self.read(|room, key, value| {
            let value = String::from_utf8(value.to_vec()).map_err(|error| {
                StoreError::damaged(&self.source.path, record(room, key), error.to_string())
            })?;
            records += 1;
            let record = Line::Record { table: room.name().to_owned(), key: key.to_owned(), value };
            line(&record, Some(&mut digest))
        })?;
        line(&Line::Last { records, sha256: hex(&digest.finish()) }, None)
    }
}

fn record(room: Room, key: &str) -> Place {
    Place::Record { table: room.name(), key: key.to_owned() }
}

fn hex(digest: &impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Verifies a store without a change of the file, and without locking a coordinator out: all pages that are in use, and all records.
///
/// # Errors
/// The first damaged part, or why the file cannot be read.
pub fn verify(path: &Path) -> Result<Contents, StoreError> {
    let before = fs::metadata(path).map_err(|error| StoreError::io(path, error))?;
    verify_contents(path).map_err(|error| match error {
        StoreError::Damaged { .. } if is_changing(path, &before) => StoreError::InUse(path.to_owned()),
        other => other,
    })
}

/// Whether another process has locked a file, or has changed it since `before`.
fn is_changing(path: &Path, before: &fs::Metadata) -> bool {
    let state = |found: &fs::Metadata| (found.len(), found.modified().ok());
    let Ok(file) = fs::File::open(path) else { return false };
    let is_locked = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    is_locked || file.metadata().is_ok_and(|now| state(&now) != state(before))
}

fn verify_contents(path: &Path) -> Result<Contents, StoreError> {
    let source = Source::open(path, false)?;
    let bytes = source.file.bytes().map_err(|error| StoreError::io(path, error))?;
    let database = source.database()?;
    let transaction = source.guard(|| Ok(database.begin_read()?))?;
    let (version, epoch) = source.identify(&transaction)?;
    let mut records: BTreeMap<&'static str, u64> = Room::ALL.map(|room| (room.name(), 0)).into();
    let mut applications = BTreeSet::new();
    let snapshot = Snapshot::new(source, transaction, epoch);
    snapshot.read(|room, key, value| {
        *records.entry(room.name()).or_default() += 1;
        if room == Room::Applications {
            applications.insert(key.to_owned());
        }
        records::check(room, key, value, &applications)
            .map_err(|what| StoreError::damaged(path, record(room, key), what))
    })?;
    Ok(Contents { version, epoch, bytes, records })
}

/// Reason for which a backup was not written.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The lines are not those of a backup.
    #[error("backup: line {line}: {what}; expected {expected}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The reason.
        what: String,
        /// The expected contents.
        expected: &'static str,
    },
    /// The file cannot be written, or does not verify.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes the backup that `lines` has as a store at `path`, with mode 0600: complete and verified, or not at all.
///
/// # Errors
/// [`BackupError`]: the lines are not a complete backup, or the file cannot be written or verified. Without `replace`, an existing file
/// is an error.
pub fn write_backup(lines: impl Read, path: &Path, replace: bool) -> Result<Contents, BackupError> {
    let mut lines = Lines { input: std::io::BufReader::new(lines), line: 0, digest: Context::new(&SHA256) };
    let mut failed = None;
    let built = build(path, |transaction| {
        fill(&mut lines, path, transaction).map_err(|error| match error {
            BackupError::Store(error) => error,
            other => {
                failed = Some(other);
                StoreError::Closed
            }
        })
    });
    let temporary = match (built, failed) {
        (_, Some(error)) => return Err(error),
        (built, None) => built?,
    };
    let contents = verify(temporary.path())?;
    publish(temporary, path, replace)?;
    Ok(contents)
}

/// The lines of a backup that were read so far.
struct Lines<R> {
    input: std::io::BufReader<R>,
    line: u64,
    digest: Context,
}

impl<R: Read> Lines<R> {
    fn wrong(&self, what: impl ToString, expected: &'static str) -> BackupError {
        BackupError::Line { line: self.line, what: what.to_string(), expected }
    }

    /// The next line, and the checksum of the lines before.
    fn next(&mut self) -> Result<(Line, String), BackupError> {
        const EXPECTED: &str = "a line of a backup, and the number of records as the last line";
        self.line += 1;
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut bytes);
        read.map_err(|error| self.wrong(error, EXPECTED))?;
        if bytes.last() != Some(&b'\n') {
            return Err(self.wrong("the backup ends early", EXPECTED));
        }
        let before = hex(&self.digest.clone().finish());
        self.digest.update(&bytes);
        let line = serde_json::from_slice(&bytes).map_err(|error| self.wrong(error, EXPECTED))?;
        Ok((line, before))
    }
}

fn fill<R: Read>(
    lines: &mut Lines<R>,
    path: &Path,
    transaction: &WriteTransaction,
) -> Result<(), BackupError> {
    let failed = |error: redb::Error| StoreError::File { path: path.to_owned(), error: Arc::new(error) };
    match lines.next()?.0 {
        Line::First { version: LINES_VERSION, epoch } => {
            let mut numbers = transaction.open_table(NUMBERS).map_err(|error| failed(error.into()))?;
            for (key, value) in [("epoch", epoch), (RESTORED, 1)] {
                numbers.insert(key, value).map_err(|error| failed(error.into()))?;
            }
        }
        Line::First { version, .. } => {
            return Err(lines.wrong(format_args!("version {version}"), "version 1 of the format"));
        }
        _ => return Err(lines.wrong("no version", "the version of the format first")),
    }
    let mut count = 0;
    loop {
        let (table, key, value) = match lines.next()? {
            (Line::Record { table, key, value }, _) => (table, key, value),
            (Line::Last { records, sha256 }, before) => {
                if (records, &sha256) == (count, &before) {
                    return Ok(());
                }
                let what = format_args!("{records} records with the checksum {sha256}").to_string();
                return Err(lines.wrong(what, "the number and the checksum of the records before"));
            }
            (Line::First { .. }, _) => return Err(lines.wrong("a second version", "a record")),
        };
        count += 1;
        let Some(room) = Room::ALL.into_iter().find(|room| room.name() == table) else {
            return Err(
                lines.wrong(format_args!("unknown table `{table}`"), "a table of this version of Weir")
            );
        };
        let mut table = transaction.open_table(room.table()).map_err(|error| failed(error.into()))?;
        table.insert(key.as_str(), value.as_bytes()).map_err(|error| failed(error.into()))?;
    }
}

const _: () = assert!(VERSION == 1, "a backup has the version of the store that its receiver builds");
