//! The thread that writes changes, and opens the store again after a failed write.
//!
//! After a failed write, redb refuses all access until the file has been opened again. The thread opens it at once, for reading, and
//! refuses changes. It then tries to write again, at intervals from [`FIRST_RETRY`] to [`MAX_RETRY`], without an end: space on a disk
//! returns without a notice. Opening verifies the whole file, so an attempt first checks the disk with a small file.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redb::{Database, ReadableDatabase, WriteTransaction};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tracing::{error, info};

use super::numbers::{StartNumbers, StoredNumbers};
use super::{
    Change, MAX_QUEUED_CHANGES, OpenDatabase, RefusedChange, SharedDatabase, StoreError, Table, epoch_file,
    folder,
};

/// The time from a failed write to the first attempt to write again, and the longest time between two attempts.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(2);

/// The size of the file that checks the disk: more than small changes need.
const PROBE_BYTES: usize = 256 << 10;

/// The shortest time between two log lines about failed writes. A disk that is nearly full can fail many times a second.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Whether the store can be written, and counts of failures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Why changes are refused; `None` while the store can be written.
    pub failure: Option<Arc<str>>,
    /// Number of failed writes since the start. Changes that are refused between a failed write and the next attempt do not count.
    pub failed_writes: u64,
    /// Number of times since the start that the store could be written again.
    pub recoveries: u64,
}

/// The status, which the writer and all handles share.
#[derive(Debug, Clone, Default)]
pub struct SharedStatus(Arc<StdMutex<StoreStatus>>);

impl SharedStatus {
    pub fn lock(&self) -> MutexGuard<'_, StoreStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn record_failure(&self, reason: &str) {
        let mut status = self.lock();
        status.failed_writes += 1;
        status.failure = Some(reason.into());
    }
}

/// A later attempt to write.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Instant,
    delay: Duration,
}

/// The epoch whose changes are written.
#[derive(Debug)]
pub struct WriterEpoch {
    pub numbers: StartNumbers,
    /// The epoch in the store when this process last read or wrote it. Another one means that another coordinator has opened the store
    /// since then.
    pub stored_epoch: Option<u64>,
    /// An epoch whose write has failed: it may be in the store.
    pub failed_epoch: Option<u64>,
}

/// The state of the thread.
pub struct Writer {
    pub path: Arc<Path>,
    pub database: SharedDatabase,
    pub status: SharedStatus,
    pub epoch: Arc<Mutex<WriterEpoch>>,
    /// The next attempt, while the store cannot be written.
    retry: Option<Retry>,
    last_log: Option<Instant>,
}

impl Writer {
    pub fn new(
        path: Arc<Path>,
        database: SharedDatabase,
        status: SharedStatus,
        epoch: Arc<Mutex<WriterEpoch>>,
    ) -> Writer {
        let has_failed = status.lock().failure.is_some();
        let retry = has_failed.then(|| Retry { at: Instant::now() + FIRST_RETRY, delay: FIRST_RETRY });
        Writer { path, database, status, epoch, retry, last_log: None }
    }

    /// Writes changes until all handles of the store are dropped.
    pub fn run(mut self, clock: &Runtime, mut receiver: mpsc::Receiver<Change>) {
        let mut changes = Vec::new();
        loop {
            if self.retry.is_some_and(|retry| retry.at <= Instant::now()) {
                self.try_to_recover();
            }
            let receive = receiver.recv_many(&mut changes, MAX_QUEUED_CHANGES);
            let received = match self.retry {
                None => clock.block_on(receive),
                Some(retry) => {
                    let wait = retry.at.saturating_duration_since(Instant::now());
                    match clock.block_on(async { timeout(wait, receive).await }) {
                        Ok(received) => received,
                        Err(_) => continue,
                    }
                }
            };
            if received == 0 {
                return;
            }
            self.apply(&mut changes);
        }
    }

    /// Writes the changes of the current epoch, refuses the others, and answers all. Waits while the epoch is being raised.
    fn apply(&mut self, changes: &mut Vec<Change>) {
        let shared = Arc::clone(&self.epoch);
        let current = shared.blocking_lock();
        for change in changes.extract_if(.., |change| change.epoch != current.numbers.epoch) {
            let _ = change.result.send(Err(RefusedChange::Superseded));
        }
        let result = if changes.is_empty() { Ok(()) } else { self.write(changes) };
        for change in changes.drain(..) {
            // The caller may have been cancelled.
            let _ = change.result.send(result.clone().map_err(RefusedChange::Unwritable));
        }
    }

    /// Writes changes in one transaction. Returns why they are refused.
    fn write(&mut self, changes: &[Change]) -> Result<(), Arc<str>> {
        if let Some(failure) = &self.status.lock().failure {
            return Err(Arc::clone(failure));
        }
        let written =
            self.database.with(|open| open.source.catch_damage(|| write_changes(&open.database, changes)));
        written.map_err(|error| {
            let reason: Arc<str> = error.reason().into();
            self.fail(&reason);
            reason
        })
    }

    /// Refuses changes from now on, and opens the store for reading.
    fn fail(&mut self, reason: &Arc<str>) {
        self.status.record_failure(reason);
        self.retry = Some(Retry { at: Instant::now() + FIRST_RETRY, delay: FIRST_RETRY });
        if self.last_log.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            self.last_log = Some(Instant::now());
            let path = self.path.display();
            error!(%path, reason = &**reason, "the store cannot be written; changes are refused until it can");
        }
        self.reopen();
    }

    /// Opens the store for reading, after the former database has been closed: it locks the file.
    fn reopen(&self) {
        self.database.close();
        match OpenDatabase::open(&self.path) {
            Ok(open) => self.database.set(open),
            Err(error) => self.status.lock().failure = Some(error.reason().into()),
        }
    }

    /// Tries to write. On failure, another attempt follows later.
    fn try_to_recover(&mut self) {
        let result = match probe_disk(&self.path) {
            Err(error) => Err(error.to_string()),
            Ok(()) => self.open_for_writing().inspect_err(|_| self.reopen()),
        };
        let mut status = self.status.lock();
        match result {
            Ok(()) => {
                status.failure = None;
                status.recoveries += 1;
                self.retry = None;
                info!(path = %self.path.display(), "the store can be written again");
            }
            Err(reason) => {
                status.failure = Some(reason.into());
                let delay = self.retry.map_or(FIRST_RETRY, |retry| (2 * retry.delay).min(MAX_RETRY));
                self.retry = Some(Retry { at: Instant::now() + delay, delay });
            }
        }
    }

    /// Opens the store again, and writes the numbers of this start, which may not have been written yet.
    fn open_for_writing(&self) -> Result<(), String> {
        let mut current = self.epoch.blocking_lock();
        self.database.close();
        let open = OpenDatabase::open(&self.path).map_err(|error| error.reason())?;
        let stored = open.numbers().map_err(|error| error.reason())?;
        if stored.epoch != current.stored_epoch && stored.epoch != current.failed_epoch {
            return Err("another coordinator has opened the store since the failed write".to_owned());
        }
        open.make_writable(&current.numbers).map_err(|error| error.reason())?;
        current.stored_epoch = Some(current.numbers.epoch);
        // The store has the epoch, so a failure only means that a later start on a full disk uses the clock.
        let _ = epoch_file::write(&epoch_file::epoch_path(&self.path), current.numbers.epoch);
        self.database.set(open);
        Ok(())
    }
}

impl OpenDatabase {
    /// The numbers in the store.
    pub fn numbers(&self) -> Result<StoredNumbers, StoreError> {
        self.source.catch_damage(|| StoredNumbers::read(&self.database.begin_read()?))
    }

    /// Applies the changes that opening the store has staged, and writes the numbers of a start.
    pub fn make_writable(&self, numbers: &StartNumbers) -> Result<(), StoreError> {
        self.source.file.apply().map_err(|error| StoreError::from_io(&self.source.path, error))?;
        self.source.catch_damage(|| numbers.write(&self.database))
    }
}

/// Checks that the file system of a store has space, and can be written.
fn probe_disk(store: &Path) -> io::Result<()> {
    // The store may be a symbolic link to another disk.
    let mut probe = tempfile::tempfile_in(folder(&store.canonicalize()?))?;
    probe.write_all(&vec![0; PROBE_BYTES])?;
    probe.sync_data()
}

fn write_changes(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let mut transaction: WriteTransaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    for table in Table::ALL {
        let mut table_changes = changes.iter().filter(|change| change.affects(table)).peekable();
        if table_changes.peek().is_none() {
            continue;
        }
        let mut table = transaction.open_table(table.definition())?;
        for change in table_changes {
            match &change.value {
                Some(value) => table.insert(change.key.as_str(), value.as_slice())?,
                None => table.remove(change.key.as_str())?,
            };
        }
    }
    Ok(transaction.commit()?)
}
