//! Reads a whole store for verification and for backups, and writes backups.
//!
//! A backup consists of lines of JSON. The first line has the version of the format and the epoch, and each following line
//! has one record. The last line has the number of records and a checksum (SHA-256) of all lines before it. The receiver
//! builds a store from the lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, TryLockError};
use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::Arc;

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, TableError, WriteTransaction};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::{
    Location, NUMBERS_TABLE, RESTORED_KEY, StoreError, StoreSource, Table, VERSION, build_file, publish,
};

/// The version of the format of backups.
const BACKUP_VERSION: u64 = 1;

/// The maximum length of a line, in bytes: above that of a record of the highest configurable `limits.body`.
const MAX_LINE_BYTES: u64 = 1 << 30;

/// Checks a record by its table, key and value, and the ids of all applications. The error is the reason why the record is damaged.
pub type RecordCheck = fn(Table, &str, &[u8], &BTreeSet<String>) -> Result<(), String>;

/// The contents of a verified store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSummary {
    /// The version of the format.
    pub version: u64,
    /// The epoch of the last coordinator with the store, or of the backup.
    pub epoch: u64,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// The number of records of each table, by its name.
    pub records: BTreeMap<&'static str, u64>,
}

/// The records of a store at one time.
pub struct Snapshot {
    source: StoreSource,
    transaction: ReadTransaction,
    epoch: u64,
}

/// A line of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum BackupLine {
    Header {
        #[serde(rename = "weir-backup")]
        version: u64,
        epoch: u64,
    },
    Record {
        table: String,
        key: String,
        value: String,
    },
    Trailer {
        records: u64,
        sha256: String,
    },
}

impl Snapshot {
    pub(super) fn new(source: StoreSource, transaction: ReadTransaction, epoch: u64) -> Snapshot {
        Snapshot { source, transaction, epoch }
    }

    /// Calls `visit` with the table, the key and the value of each record, in order.
    fn for_each_record(
        &self,
        mut visit: impl FnMut(Table, &str, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for store_table in Table::ALL {
            let table =
                self.source.catch_damage(|| match self.transaction.open_table(store_table.definition()) {
                    Ok(table) => Ok(Some(table)),
                    Err(TableError::TableDoesNotExist(_)) => Ok(None),
                    Err(error) => Err(error.into()),
                })?;
            let Some(table) = table else { continue };
            let mut entries = self.source.catch_damage(|| Ok(table.iter()?))?;
            while let Some((key, value)) = self.source.catch_damage(|| Ok(entries.next().transpose()?))? {
                visit(store_table, key.value(), value.value())?;
            }
        }
        Ok(())
    }

    /// Sends the lines of a backup to `send`, which returns whether to continue.
    ///
    /// # Errors
    /// A record cannot be read, or `send` returns `false`. The last line is then missing.
    pub fn send_lines(&self, mut send: impl FnMut(Vec<u8>) -> bool) -> Result<(), StoreError> {
        let (mut digest, mut records) = (Context::new(&SHA256), 0);
        let mut send_line = |line: &BackupLine, digest: Option<&mut Context>| {
            let mut bytes = serde_json::to_vec(line).map_err(|error| StoreError::InvalidValue {
                table: "backup",
                key: String::new(),
                message: error.to_string(),
            })?;
            bytes.push(b'\n');
            if let Some(digest) = digest {
                digest.update(&bytes);
            }
            if send(bytes) { Ok(()) } else { Err(StoreError::Closed) }
        };
        send_line(&BackupLine::Header { version: BACKUP_VERSION, epoch: self.epoch }, Some(&mut digest))?;
        self.for_each_record(|table, key, value| {
            let value = String::from_utf8(value.to_vec()).map_err(|error| {
                StoreError::damaged(&self.source.path, record_location(table, key), error.to_string())
            })?;
            records += 1;
            let record = BackupLine::Record { table: table.name().to_owned(), key: key.to_owned(), value };
            send_line(&record, Some(&mut digest))
        })?;
        send_line(&BackupLine::Trailer { records, sha256: hex(&digest.finish()) }, None)
    }
}

fn record_location(table: Table, key: &str) -> Location {
    Location::Record { table: table.name(), key: key.to_owned() }
}

/// The bytes of a digest as hexadecimal digits.
pub(crate) fn hex(digest: &impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Verifies all pages in use and all records of a store. Does not change the file or lock it against a coordinator.
///
/// # Errors
/// The first damaged part, or why the file cannot be read.
pub fn verify(path: &Path, check_record: RecordCheck) -> Result<StoreSummary, StoreError> {
    let metadata = fs::metadata(path).map_err(|error| StoreError::from_io(path, error))?;
    verify_contents(path, check_record).map_err(|error| match error {
        StoreError::Damaged { .. } if is_changing(path, &metadata) => StoreError::InUse(path.to_owned()),
        other => other,
    })
}

/// Whether another process has locked a file, or has changed it since `before`.
fn is_changing(path: &Path, before: &fs::Metadata) -> bool {
    let size_and_time = |metadata: &fs::Metadata| (metadata.len(), metadata.modified().ok());
    let Ok(file) = fs::File::open(path) else { return false };
    let is_locked = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    is_locked || file.metadata().is_ok_and(|now| size_and_time(&now) != size_and_time(before))
}

fn verify_contents(path: &Path, check_record: RecordCheck) -> Result<StoreSummary, StoreError> {
    let source = StoreSource::open(path, false)?;
    let bytes = source.file.file_len().map_err(|error| StoreError::from_io(path, error))?;
    let database = source.database()?;
    let transaction = source.catch_damage(|| Ok(database.begin_read()?))?;
    let (version, epoch) = source.version_and_epoch(&transaction)?;
    let mut records: BTreeMap<&'static str, u64> = Table::ALL.map(|table| (table.name(), 0)).into();
    let mut applications = BTreeSet::new();
    let snapshot = Snapshot::new(source, transaction, epoch);
    snapshot.for_each_record(|table, key, value| {
        *records.entry(table.name()).or_default() += 1;
        if table == Table::Applications {
            applications.insert(key.to_owned());
        }
        check_record(table, key, value, &applications)
            .map_err(|reason| StoreError::damaged(path, record_location(table, key), reason))
    })?;
    Ok(StoreSummary { version, epoch, bytes, records })
}

/// Why a backup was not written.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The lines are not those of a backup.
    #[error("backup: line {line}: {reason}; expected {expected}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The reason.
        reason: String,
        /// The expected contents.
        expected: &'static str,
    },
    /// The file cannot be written, or its verification failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes the backup in `lines` as a store at `path`, with mode 0600. The file appears only if it is complete and verified.
///
/// # Errors
/// [`BackupError`]: the lines are not a complete backup, or the file cannot be written or verified. Without `replace`, an
/// existing file is an error.
pub fn write_backup(
    lines: impl Read,
    path: &Path,
    replace: bool,
    check_record: RecordCheck,
) -> Result<StoreSummary, BackupError> {
    let mut lines =
        LineReader { input: std::io::BufReader::new(lines), line_number: 0, digest: Context::new(&SHA256) };
    let mut line_error = None;
    let built = build_file(path, |transaction| {
        fill_store(&mut lines, path, transaction).map_err(|error| match error {
            BackupError::Store(error) => error,
            other => {
                line_error = Some(other);
                StoreError::Closed
            }
        })
    });
    let temporary = match (built, line_error) {
        (_, Some(error)) => return Err(error),
        (built, None) => built?,
    };
    let contents = verify(temporary.path(), check_record)?;
    publish(temporary, path, replace)?;
    Ok(contents)
}

/// Reads the lines of a backup, and computes their checksum.
struct LineReader<R> {
    input: std::io::BufReader<R>,
    line_number: u64,
    digest: Context,
}

impl<R: Read> LineReader<R> {
    fn line_error(&self, reason: impl ToString, expected: &'static str) -> BackupError {
        BackupError::Line { line: self.line_number, reason: reason.to_string(), expected }
    }

    /// The next line, and the checksum of the lines before it.
    fn next_line(&mut self) -> Result<(BackupLine, String), BackupError> {
        const EXPECTED: &str = "a line of a backup, and the number of records as the last line";
        self.line_number += 1;
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes);
        read.map_err(|error| self.line_error(error, EXPECTED))?;
        if bytes.last() != Some(&b'\n') {
            return Err(self.line_error("the line is incomplete", EXPECTED));
        }
        let checksum_before = hex(&self.digest.clone().finish());
        self.digest.update(&bytes);
        let line = serde_json::from_slice(&bytes).map_err(|error| self.line_error(error, EXPECTED))?;
        Ok((line, checksum_before))
    }
}

fn fill_store<R: Read>(
    lines: &mut LineReader<R>,
    path: &Path,
    transaction: &WriteTransaction,
) -> Result<(), BackupError> {
    let to_store_error =
        |error: redb::Error| StoreError::File { path: path.to_owned(), error: Arc::new(error) };
    match lines.next_line()?.0 {
        BackupLine::Header { version: BACKUP_VERSION, epoch } => {
            let mut numbers =
                transaction.open_table(NUMBERS_TABLE).map_err(|error| to_store_error(error.into()))?;
            for (key, value) in [("epoch", epoch), (RESTORED_KEY, 1)] {
                numbers.insert(key, value).map_err(|error| to_store_error(error.into()))?;
            }
        }
        BackupLine::Header { version, .. } => {
            return Err(lines.line_error(format_args!("version {version}"), "version 1 of the format"));
        }
        _ => return Err(lines.line_error("not a header", "the version of the format in the first line")),
    }
    let mut count = 0;
    loop {
        let (table, key, value) = match lines.next_line()? {
            (BackupLine::Record { table, key, value }, _) => (table, key, value),
            (BackupLine::Trailer { records, sha256 }, before) => {
                if (records, &sha256) == (count, &before) {
                    return Ok(());
                }
                let reason = format_args!("{records} records with the checksum {sha256}").to_string();
                return Err(lines
                    .line_error(reason, "the number of the records and the checksum of the lines before"));
            }
            (BackupLine::Header { .. }, _) => return Err(lines.line_error("a second header", "a record")),
        };
        count += 1;
        let Some(store_table) = Table::ALL.into_iter().find(|known| known.name() == table) else {
            return Err(
                lines.line_error(format_args!("unknown table `{table}`"), "a table of this version of Weir")
            );
        };
        let mut table =
            transaction.open_table(store_table.definition()).map_err(|error| to_store_error(error.into()))?;
        table.insert(key.as_str(), value.as_bytes()).map_err(|error| to_store_error(error.into()))?;
    }
}

const _: () = assert!(VERSION == 1, "a backup has the version of the store that its receiver builds");
