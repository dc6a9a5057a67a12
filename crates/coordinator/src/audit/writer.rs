//! The thread that writes entries.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};
use std::{io, thread};

use tracing::{error, info};
use weir_core::timestamp;
use weir_tls::LogLimit;

use super::file::AuditFile;
use super::{Entry, Message, Outcome, Shared};

/// Time after the last entry about an identity and status before the number of its suppressed refusals has an entry.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(10);

/// Bytes of lines after which a batch is written, even if more entries wait.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// The paths of objects that frameworks register. Without a file, changes of them have no line.
const REGISTRATION_PATHS: [&str; 3] = ["/v1/coflows/", "/v1/applications/", "/v1/connections/"];

pub(super) struct Writer {
    /// Without a file, lines are those of the coordinator's log.
    file: Option<AuditFile>,
    shared: Arc<Shared>,
    log_limit: LogLimit,
    /// The lost entries that the log has stated.
    logged_lost: u64,
    /// Lines that are not written yet, and their number.
    batch: (Vec<u8>, u64),
}

impl Writer {
    pub fn new(file: Option<AuditFile>, shared: Arc<Shared>) -> Writer {
        Writer { file, shared, log_limit: LogLimit::default(), logged_lost: 0, batch: (Vec::new(), 0) }
    }

    /// Starts the thread, which ends when the sender of messages is dropped.
    pub fn start(mut self, messages: Receiver<Message>) -> io::Result<()> {
        let run = move || while self.write_next(&messages) {};
        thread::Builder::new().name("weir-audit".to_owned()).spawn(run).map(drop)
    }

    /// Writes the next batch of entries. Returns whether more can follow.
    fn write_next(&mut self, messages: &Receiver<Message>) -> bool {
        let mut next = match messages.recv_timeout(SUMMARY_INTERVAL) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.add_suppressed(Duration::ZERO);
                self.write_batch();
                return false;
            }
        };
        let mut flushed = Vec::new();
        while let Some(message) = next {
            match message {
                Message::Entry(entry) => self.add(&entry),
                Message::Flush(done) => flushed.push(done),
            }
            next = if self.batch.0.len() < MAX_BATCH_BYTES { messages.try_recv().ok() } else { None };
        }
        self.add_suppressed(if flushed.is_empty() { SUMMARY_INTERVAL } else { Duration::ZERO });
        self.write_batch();
        for done in flushed {
            // The caller may have stopped waiting.
            let _ = done.try_send(());
        }
        true
    }

    /// Adds the numbers of suppressed refusals of pairs without an entry for `interval`.
    fn add_suppressed(&mut self, interval: Duration) {
        let due = self.shared.refusals(|refusals, now| refusals.take_suppressed(now, interval));
        for ((identity, status), suppressed) in due {
            self.add(&Entry {
                time: timestamp::format(SystemTime::now()),
                identity,
                peer: None,
                action: None,
                object: None,
                outcome: Outcome::Suppressed { status, suppressed },
            });
        }
    }

    fn add(&mut self, entry: &Entry) {
        if self.file.is_none() && entry.is_registration() {
            return;
        }
        match serde_json::to_string(entry) {
            Ok(line) if self.file.is_some() => {
                self.batch.0.extend_from_slice(line.as_bytes());
                self.batch.0.push(b'\n');
                self.batch.1 += 1;
            }
            Ok(line) => {
                info!(target: "audit", "{line}");
                self.shared.counts.written.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                error!(%error, "entry of the audit log cannot be serialized");
                self.shared.counts.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn write_batch(&mut self) {
        let (lines, count) = std::mem::take(&mut self.batch);
        let Some(file) = self.file.as_mut() else { return };
        let mut reason = "entries arrived faster than they were written".to_owned();
        if count > 0 {
            let (written, result) = file.append(&lines);
            self.shared.counts.written.fetch_add(written, Ordering::Relaxed);
            self.shared.counts.lost.fetch_add(count - written, Ordering::Relaxed);
            if let Err(error) = result {
                reason = error.to_string();
            }
        }
        let lost = self.shared.counts.lost.load(Ordering::Relaxed);
        if lost == self.logged_lost {
            return;
        }
        self.logged_lost = lost;
        let text = format!("audit log: {lost} entries lost since the start: {reason}");
        if self.log_limit.permits("", &text, self.shared.start.elapsed()) {
            error!(file = %file.path().display(), "{text}");
        }
    }
}

impl Entry {
    /// Whether this is an applied change of an object that a framework registers.
    fn is_registration(&self) -> bool {
        let is_registered = |object: &String| REGISTRATION_PATHS.iter().any(|path| object.starts_with(path));
        matches!(self.outcome, Outcome::Accepted { .. }) && self.object.as_ref().is_some_and(is_registered)
    }
}
