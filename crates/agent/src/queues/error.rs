//! Why queues could not be read or changed.

use std::io;

use super::actual_queues::ParseError;
use super::desired_queues::DesiredError;
use super::interface::Interface;
use crate::batch::BatchError;

/// Why queues could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// `ip` or `tc` failed.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// `ip` or `tc` printed something unexpected.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The desired queues cannot be configured.
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// A root queueing discipline of another process that the agent could not restore.
    #[error(
        "{interface} has a root queue `{kind}` of another process, which the agent cannot restore; expected the kernel's default, \
         pfifo, bfifo, or mq over these; help: `tc qdisc del dev {interface} root` removes it"
    )]
    ForeignRoot {
        /// The interface.
        interface: Interface,
        /// The kind of the root queueing discipline.
        kind: String,
    },
    /// No interface has this name.
    #[error("no interface is named {0}")]
    MissingInterface(Interface),
    /// Another process keeps the queues of the interface.
    #[error("the queues of {interface} are kept by {holder}; help: stop it first")]
    Locked {
        /// The interface.
        interface: Interface,
        /// The other process.
        holder: String,
    },
    /// The queues of an interface could not be locked.
    #[error("the queues of {interface} cannot be locked: {error}")]
    Lock {
        /// The interface.
        interface: Interface,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A file or folder with a record could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
}
