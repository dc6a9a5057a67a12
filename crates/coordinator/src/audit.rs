//! Audit log: who changed what, from which value to which, and which requests were refused, as lines of JSON.
//!
//! One thread writes the lines, so no request and no schedule waits for the disk. Its queue is bounded: entries that find it full,
//! and entries that cannot be written, are counted as lost and do not refuse changes. Refusals have a limit for each identity and
//! status, before the queue, so that a flood of them displaces no other entry; the log states the number of suppressed ones.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::{Value, json};
use weir_core::timestamp;

use crate::identity::Identity;
use crate::store::hex;

mod file;
mod refusal_limit;
mod writer;

use file::AuditFile;
use refusal_limit::RefusalLimit;
use writer::Writer;

/// Maximum number of entries that wait for the thread.
const MAX_QUEUED_ENTRIES: usize = 8192;

/// Maximum length of a request's path and of a problem's detail in an entry, in characters. An id has at most 384 with escapes.
const MAX_TEXT_CHARS: usize = 512;

/// Maximum length of a value in an entry, in bytes. Longer values are replaced by their length and checksum.
const MAX_VALUE_BYTES: usize = 16 << 10;

/// A request to change something, and its client.
#[derive(Debug, Clone)]
pub struct Actor {
    identity: Arc<Identity>,
    peer: SocketAddr,
    /// The `operationId` of the request in `/openapi.json`.
    action: String,
    /// The path of the request.
    object: String,
}

/// A line of the log.
#[derive(Debug, Serialize)]
struct Entry {
    time: String,
    identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What became of a request.
#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
enum Outcome {
    /// The change was applied and stored.
    Accepted { before: Value, after: Value },
    /// The request changed nothing. `suppressed`: earlier refusals of this identity and status that have no entry.
    Refused {
        status: u16,
        detail: String,
        #[serde(skip_serializing_if = "is_zero")]
        suppressed: u64,
    },
    /// Refusals that have no entry, since the last entry about this identity and status.
    Suppressed { status: u16, suppressed: u64 },
}

/// Signature that serde requires.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What the thread receives.
enum Message {
    Entry(Box<Entry>),
    /// Send a unit once all earlier entries are written.
    Flush(SyncSender<()>),
}

/// Numbers of entries since the start.
#[derive(Debug, Default)]
struct EntryCounts {
    written: AtomicU64,
    lost: AtomicU64,
}

/// State of the log and of its thread.
#[derive(Debug)]
struct Shared {
    start: Instant,
    refusals: Mutex<RefusalLimit>,
    counts: EntryCounts,
}

impl Shared {
    fn refusals<T>(&self, call: impl FnOnce(&mut RefusalLimit, Duration) -> T) -> T {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        call(&mut refusals, self.start.elapsed())
    }
}

/// The audit log. Its thread ends when it is dropped.
pub struct AuditLog {
    messages: SyncSender<Message>,
    shared: Arc<Shared>,
}

impl Actor {
    /// A request for the path `object`; `action` is its `operationId`.
    pub fn new(identity: Arc<Identity>, peer: SocketAddr, action: String, object: &str) -> Actor {
        Actor { identity, peer, action, object: shortened(object) }
    }

    /// The identity of the client.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    fn entry(&self, outcome: Outcome) -> Entry {
        Entry {
            time: timestamp::format(SystemTime::now()),
            identity: identity_name(&self.identity),
            peer: Some(self.peer),
            action: Some(self.action.clone()),
            object: Some(self.object.clone()),
            outcome,
        }
    }
}

/// The name of an identity in the log.
pub(crate) fn identity_name(identity: &Identity) -> String {
    match identity {
        Identity::Local => "plain text".to_owned(),
        proven => proven.to_string(),
    }
}

impl AuditLog {
    /// Starts the thread. Without a file, entries except registrations are lines of the coordinator's log.
    ///
    /// # Errors
    /// The file cannot be opened for appending, or the operating system cannot create a thread.
    pub fn start(path: Option<&Path>) -> io::Result<AuditLog> {
        let file = path.map(AuditFile::open).transpose()?;
        let (messages, receiver) = sync_channel(MAX_QUEUED_ENTRIES);
        let shared = Arc::new(Shared {
            start: Instant::now(),
            refusals: Mutex::default(),
            counts: EntryCounts::default(),
        });
        Writer::new(file, Arc::clone(&shared)).start(receiver)?;
        Ok(AuditLog { messages, shared })
    }

    /// Notes the state that the coordinator starts with: an edited configuration may have changed the policy or weights.
    pub fn note_start(&self, state: Value) {
        self.send(Entry {
            time: timestamp::format(SystemTime::now()),
            identity: "coordinator".to_owned(),
            peer: None,
            action: Some("start".into()),
            object: None,
            outcome: Outcome::Accepted { before: Value::Null, after: bounded(state) },
        });
    }

    /// Notes an applied change, or a read of the whole store.
    pub fn note_accepted(&self, actor: &Actor, before: Value, after: Value) {
        self.send(actor.entry(Outcome::Accepted { before: bounded(before), after: bounded(after) }));
    }

    /// Notes a refused request, within the limit of refusals.
    pub fn note_refused(&self, actor: &Actor, status: u16, detail: &str) {
        let key = (identity_name(&actor.identity), status);
        if let Some(suppressed) = self.shared.refusals(|refusals, now| refusals.admit(key, now)) {
            self.send(actor.entry(Outcome::Refused { status, detail: shortened(detail), suppressed }));
        }
    }

    /// Number of entries written since the start.
    pub fn written(&self) -> u64 {
        self.shared.counts.written.load(Ordering::Relaxed)
    }

    /// Number of entries lost since the start.
    pub fn lost(&self) -> u64 {
        self.shared.counts.lost.load(Ordering::Relaxed)
    }

    /// Waits until the thread has written all entries and the numbers of suppressed refusals, at most for `timeout`. Call this from a
    /// thread that may block.
    pub fn flush(&self, timeout: Duration) {
        let (done, receiver) = sync_channel(1);
        if self.messages.try_send(Message::Flush(done)).is_ok() {
            // A timeout leaves the entries to the thread.
            let _ = receiver.recv_timeout(timeout);
        }
    }

    fn send(&self, entry: Entry) {
        match self.messages.try_send(Message::Entry(Box::new(entry))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.shared.counts.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The first characters of a text from a request.
fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

/// The value, or the length and checksum of its text if it is long.
fn bounded(value: Value) -> Value {
    let text = value.to_string();
    if text.len() <= MAX_VALUE_BYTES { value } else { fingerprint(&text) }
}

/// The length and SHA-256 of a text.
pub fn fingerprint(text: &str) -> Value {
    json!({ "length": text.len(), "sha256": hex(&digest(&SHA256, text.as_bytes())) })
}
