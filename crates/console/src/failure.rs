//! What ends a command early, and the exit code that says so.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;

#[cfg(feature = "live")]
use weir_client::CoordinatorError;
use weir_sim::ReplayError;
use weir_sim::stage::cluster::ClusterError;
use weir_sim::stage::sharing::SharingError;
use weir_sim::wide_area::WideAreaReplayError;
use weir_trace::generate::SpecError;
use weir_trace::{TraceError, WriteError};

use crate::interrupt;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// 1 could not be done, 2 wrong usage or bad input, above 128 stopped by a signal.
    pub code: u8,
    /// What to say; nothing if whoever reads has gone.
    pub message: String,
}

impl Failure {
    /// It could not be done.
    pub fn undone(message: impl Display) -> Failure {
        Failure { code: 1, message: message.to_string() }
    }

    /// It was asked for wrongly, or the input is bad.
    pub fn input(message: impl Display) -> Failure {
        Failure { code: 2, message: message.to_string() }
    }

    /// An output did not take what was written.
    pub fn output(path: &Path, error: &io::Error) -> Failure {
        let message = format!("{}: cannot be written: {error}", path.display());
        if interrupt::asked() { Failure::interrupted(message) } else { Failure::undone(message) }
    }

    /// Somebody asked to stop.
    pub fn interrupted(message: impl Display) -> Failure {
        Failure { code: interrupt::exit_code(), message: message.to_string() }
    }

    /// Goes on unless somebody asked to stop; for work whose results are written at its end.
    ///
    /// # Errors
    /// If somebody did.
    pub fn unless_asked() -> Result<(), Failure> {
        if interrupt::asked() {
            return Err(Failure::interrupted("interrupted; nothing was written"));
        }
        Ok(())
    }

    /// Simulated jobs have no outcome.
    pub fn jobs(error: &ClusterError) -> Failure {
        match error {
            ClusterError::Interrupted { .. } => {
                Failure::interrupted(format_args!("{error}; nothing was written"))
            }
            ClusterError::TooMany { .. } | ClusterError::Sharing(SharingError::Controller(_)) => {
                Failure::input(error)
            }
            _ => Failure::undone(error),
        }
    }

    /// A replay under `policy` has no outcome.
    pub fn replay(policy: &str, error: &ReplayError) -> Failure {
        let message = format!("{policy}: {error}");
        match error {
            ReplayError::Workload(_)
            | ReplayError::Tree(_)
            | ReplayError::Ports(_)
            | ReplayError::Queues
            | ReplayError::Hosts { .. } => Failure::input(message),
            ReplayError::Interrupted { .. } => {
                Failure::interrupted(format_args!("{message}; nothing was written"))
            }
            ReplayError::Stalled { .. } => Failure::undone(message),
        }
    }

    /// A replay over a wide area under `policy` has no outcome.
    pub fn wide_area(policy: &str, error: &WideAreaReplayError) -> Failure {
        let message = format!("{policy}: {error}");
        match error {
            WideAreaReplayError::Interrupted { .. } => {
                Failure::interrupted(format_args!("{message}; nothing was written"))
            }
            _ => Failure::input(message),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        Failure::input(error)
    }
}

#[cfg(feature = "live")]
impl From<CoordinatorError> for Failure {
    fn from(error: CoordinatorError) -> Failure {
        match error {
            CoordinatorError::Elsewhere(_) | CoordinatorError::File { .. } => Failure::input(error),
            _ => Failure::undone(error),
        }
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Failure {
        Failure::input(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        match error {
            WriteError::Io(error) => error.into(),
            other => Failure::undone(other),
        }
    }
}

impl From<io::Error> for Failure {
    /// Of the standard output. A reader that has seen enough, as `head` does, is no failure to speak of.
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { code: 0, message: String::new() };
        }
        Failure::undone(format_args!("standard output: cannot be written: {error}"))
    }
}
