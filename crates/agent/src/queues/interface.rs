//! An interface of this machine, in the network namespace that the calling thread is in.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use nix::net::if_::{if_indextoname, if_nametoindex};
use serde::{Deserialize, Serialize};

use super::actual::{Actual, ParseError, Root};
use super::change::{Change, changes};
use super::desired::{Desired, DesiredError};
use super::ids;
use crate::batch::{BatchError, ask, feed};

/// Where is remembered what was there; the system empties it when it starts, and has no queues of ours then. No bed of the
/// testbed can have this name.
const PLACE: &str = "/run/weir/agent-queues";

/// What keeps queues from being changed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// `ip` or `tc`.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// What they print.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// Queues that cannot exist.
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// Somebody's root queue that could not be put back.
    #[error(
        "{interface} has a root queue `{kind}` that somebody set up and that could not be put back: expected the kernel's own, \
         pfifo or bfifo; `tc qdisc del dev {interface} root` removes it"
    )]
    Root {
        /// Where.
        interface: Interface,
        /// Its kind.
        kind: String,
    },
    /// The files of what was there.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
}

/// The name of an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interface(String);

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Interface, String> {
        // Less than the kernel takes, since programs are told it as a word among others.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if first && text.len() < 16 && text.chars().all(plain) {
            return Ok(Interface(text.to_owned()));
        }
        Err(format!(
            "`{text}` is no name of an interface: expected 1 to 15 letters, digits, `_`, `-`, `.` or `@`, beginning with one of the first three"
        ))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which root queueing disciplines of other processes the agent may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Those that [`Interface::restore`] can set up again: the kernel's default, `pfifo` and `bfifo`.
    Restorable,
    /// The kernel's default only. A queueing discipline that appears in place of the agent's is another process's decision.
    KernelDefault,
}

/// The root queue before ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Remembered {
    /// What the kernel gives by itself, which is back once ours is gone.
    Default,
    /// A simple one.
    Fifo {
        /// `pfifo` or `bfifo`.
        kind: String,
        /// Its handle's number.
        handle: u16,
        /// What waits at most, in packets or bytes.
        limit: u32,
    },
}

#[derive(Deserialize)]
struct Rooted {
    dev: String,
    handle: String,
    #[serde(default)]
    root: bool,
}

impl Interface {
    /// The number of the interface with this name; none if no interface has the name.
    pub fn index(&self) -> Option<u32> {
        if_nametoindex(self.0.as_str()).ok()
    }

    /// The present name of the interface with a number; none if it does not exist, or has a name that `tc` cannot be given.
    pub fn with_index(index: u32) -> Option<Interface> {
        if_indextoname(index).ok()?.to_str().ok()?.parse().ok()
    }

    /// What it has now.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn read(&self) -> Result<Actual, QueueError> {
        let dev = self.0.as_str();
        let qdiscs = ask("tc", &["-j", "qdisc", "show", "dev", dev])?;
        let ours = Actual::parse(&qdiscs, "", "")?.root == Root::Ours;
        if !ours {
            return Ok(Actual::parse(&qdiscs, "", "")?);
        }
        let classes = ask("tc", &["-d", "class", "show", "dev", dev])?;
        let filters = ask("tc", &["filter", "show", "dev", dev, "parent", &format!("{:x}:", ids::ROOT)])?;
        Ok(Actual::parse(&qdiscs, &classes, &filters)?)
    }

    /// What would be changed, as commands, a line each. Changes nothing.
    ///
    /// # Errors
    /// As [`Interface::reconcile`], where any root queueing discipline that can be restored may be replaced.
    pub fn commands(&self, desired: &Desired) -> Result<String, QueueError> {
        let actual = self.read()?;
        self.before(&actual.root, Replace::Restorable)?;
        let command = |change: &Change| format!("tc {}\n", change.line(&self.0));
        Ok(changes(desired, &actual).iter().map(command).collect())
    }

    /// Makes it have what it should, in one batch, and says by which changes. What is in its queues stays there, unless the queue
    /// itself goes.
    ///
    /// # Errors
    /// If that cannot be done. Then some of it may be done, which the next time finds; a root queue that could not be put
    /// back is not touched.
    pub fn reconcile(&self, desired: &Desired, replace: Replace) -> Result<Vec<Change>, QueueError> {
        let one = lock()?;
        let actual = self.read()?;
        let known = self.file()?.exists();
        let replace = if known { Replace::KernelDefault } else { replace };
        let before = self.before(&actual.root, replace)?;
        let list = changes(desired, &actual);
        // What was there before the agent's first configuration stays remembered when its queues are restored.
        if let Some(before) = before.filter(|_| !known) {
            self.remember(&before)?;
        }
        if !list.is_empty() {
            let lines: String = list.iter().map(|change| format!("{}\n", change.line(&self.0))).collect();
            batch(&lines, &one)?;
        }
        Ok(list)
    }

    /// Removes the filters that lead UDP flows into classes with their rates: their packets share the queue of packets without a class.
    ///
    /// # Errors
    /// If another process has the lock's folder deleted, or `tc` cannot be run. It is no error if there are no such filters.
    pub fn drop_flow_filters(&self) -> Result<(), QueueError> {
        let one = lock()?;
        if self.read()?.root == Root::Ours {
            let (dev, parent, preference) = (&self.0, ids::ROOT, ids::BY_FLOW);
            let line = format!("filter del dev {dev} parent {parent:x}: protocol ip prio {preference}\n");
            // It fails if there are none.
            let _ = batch(&line, &one);
        }
        Ok(())
    }

    /// Puts back what was there before; the answer is whether something of ours was.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn restore(&self) -> Result<bool, QueueError> {
        let one = lock()?;
        self.put_back(&one)
    }

    fn put_back(&self, one: &File) -> Result<bool, QueueError> {
        let path = self.file()?;
        let ours = self.read()?.root == Root::Ours;
        if ours {
            let dev = &self.0;
            // A file that is not there, or not ours any more, must not keep our queues where they are.
            let before = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
            let line = match before {
                Some(Remembered::Fifo { kind, handle, limit }) => {
                    format!("qdisc replace dev {dev} root handle {handle:x}: {kind} limit {limit}\n")
                }
                Some(Remembered::Default) | None => format!("qdisc del dev {dev} root\n"),
            };
            batch(&line, one)?;
        }
        forget(&path)?;
        Ok(ours)
    }

    /// What will have to be put back; none if it is known already.
    fn before(&self, root: &Root, replace: Replace) -> Result<Option<Remembered>, QueueError> {
        match root.clone() {
            Root::Ours => Ok(None),
            Root::Default => Ok(Some(Remembered::Default)),
            Root::Fifo { kind, handle, limit } if replace == Replace::Restorable => {
                Ok(Some(Remembered::Fifo { kind, handle, limit }))
            }
            Root::Fifo { kind, .. } | Root::Other(kind) => {
                Err(QueueError::Root { interface: self.clone(), kind })
            }
        }
    }

    /// Writes it all at once, before anything is changed.
    fn remember(&self, before: &Remembered) -> Result<(), QueueError> {
        let path = self.file()?;
        let new = path.with_extension("new");
        let text = serde_json::to_vec(before).map_err(|error| file(&path, error.into()))?;
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(|error| file(&path, error))
    }

    /// By number, which stays when an interface is renamed. Interfaces of different namespaces have the same numbers.
    fn file(&self) -> Result<PathBuf, QueueError> {
        let number = self.index().unwrap_or(0);
        Ok(Path::new(PLACE).join(format!("{}{number}.json", prefix()?)))
    }
}

/// Puts back what was there at all interfaces of this namespace; the answer is at which something of ours was.
///
/// # Errors
/// If that cannot be done.
pub fn cleanup() -> Result<Vec<Interface>, QueueError> {
    let text = ask("tc", &["-j", "qdisc", "show"])?;
    let all: Vec<Rooted> = serde_json::from_str(&text).map_err(|_| ParseError {
        line: text.chars().take(200).collect(),
        expected: "a JSON array of queues, each with its interface",
    })?;
    let root = format!("{:x}:", ids::ROOT);
    let ours = all.into_iter().filter(|queue| queue.root && queue.handle == root);
    let one = lock()?;
    let mut done = Vec::new();
    for queue in ours {
        let interface = Interface(queue.dev);
        if interface.put_back(&one)? {
            done.push(interface);
        }
    }
    // What is left is of interfaces that are gone, or that somebody else cleaned.
    let (place, prefix) = (Path::new(PLACE), prefix()?);
    for entry in fs::read_dir(place).map_err(|error| file(place, error))? {
        let path = entry.map_err(|error| file(place, error))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix)) {
            forget(&path)?;
        }
    }
    Ok(done)
}

/// What the files of this namespace begin with: its number, as long as it lives. A namespace that has the number later has
/// other queues, and what its interfaces have is written before it is read.
fn prefix() -> Result<String, QueueError> {
    let path = Path::new("/proc/thread-self/ns/net");
    let number = fs::metadata(path).map_err(|error| file(path, error))?.ino();
    Ok(format!("{number}-"))
}

/// One at a time; ends with the file that is answered.
fn lock() -> Result<File, QueueError> {
    let place = Path::new(PLACE);
    let failed = |error| file(place, error);
    fs::create_dir_all(place).map_err(failed)?;
    let folder = File::open(place).map_err(failed)?;
    folder.lock().map_err(failed)?;
    Ok(folder)
}

fn forget(path: &Path) -> Result<(), QueueError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file(path, error)),
        _ => Ok(()),
    }
}

fn batch(lines: &str, one: &File) -> Result<(), QueueError> {
    let mut command = Command::new("tc");
    // A batch half done is worse than one that Ctrl-C waits for. If this process is killed, the batch goes on, and whoever comes next has
    // to wait for its end: it has the lock in place of the output, of which it has none.
    let held = one.try_clone().map_err(|error| file(Path::new(PLACE), error))?;
    command.process_group(0).stdout(held);
    Ok(feed(command, "tc", String::new, lines)?)
}

fn file(path: &Path, error: io::Error) -> QueueError {
    QueueError::File { path: path.display().to_string(), error }
}
