//! Defines the failures of commands, and their exit codes.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;

#[cfg(all(feature = "live", target_os = "linux"))]
use weir_agent::traffic::TrafficError;
#[cfg(feature = "live")]
use weir_client::CoordinatorError;
use weir_core::policy::ParamsError;
use weir_fields::FileError;
use weir_sim::ReplayError;
use weir_trace::WriteError;
use weir_trace::generate::WorkloadSpecError;

use crate::interrupt;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code: 1 for a failure, 2 for wrong usage or invalid input, above 128 for a signal.
    pub exit_code: u8,
    /// The message; empty if the reader of the output has closed it.
    pub message: String,
    /// The parts of the message, for programs that need them.
    pub input: Option<Box<InvalidInput>>,
}

/// The parts of a message about invalid input.
#[derive(Debug)]
pub enum InvalidInput {
    /// An error in a file, whose message is that of the failure.
    File(FileError),
    /// An invalid value of an option, or of a parameter of a policy.
    Value {
        /// The name of the option or of the parameter, such as `path-seed`.
        name: String,
        /// The value.
        value: String,
        /// The expected value; `None` if the message does not state one.
        expected: Option<String>,
    },
}

impl Failure {
    fn new(exit_code: u8, message: impl Display) -> Failure {
        Failure { exit_code, message: message.to_string(), input: None }
    }

    /// The command failed.
    pub fn runtime(message: impl Display) -> Failure {
        Failure::new(1, message)
    }

    /// Wrong usage, or invalid input.
    pub fn input(message: impl Display) -> Failure {
        Failure::new(2, message)
    }

    /// Invalid input with this message: `name`, an option without its hyphens or a parameter, has the wrong `value`.
    pub fn invalid_value(
        name: &str,
        value: impl Display,
        expected: Option<&str>,
        message: impl Display,
    ) -> Failure {
        let (name, value) = (name.to_owned(), value.to_string());
        let input = InvalidInput::Value { name, value, expected: expected.map(str::to_owned) };
        Failure { input: Some(Box::new(input)), ..Failure::input(message) }
    }

    /// An option, without its hyphens, has the wrong value. `problem` describes the fault.
    pub fn option(
        option: &str,
        value: impl Display,
        problem: impl Display,
        expected: impl Display,
    ) -> Failure {
        let expected = expected.to_string();
        let message = format!("--{option}: {problem}; expected {expected}");
        Failure::invalid_value(option, value, Some(&expected), message)
    }

    /// An output could not be written.
    pub fn output(path: &Path, error: &io::Error) -> Failure {
        let message = format!("{}: cannot be written: {error}", path.display());
        if interrupt::is_requested() { Failure::interrupted(message) } else { Failure::runtime(message) }
    }

    /// A signal stopped the command.
    pub fn interrupted(message: impl Display) -> Failure {
        Failure::new(interrupt::exit_code(), message)
    }

    /// This failure, with the message and the exit code of an earlier one before it, if there is one.
    pub fn after(self, earlier: Option<Failure>) -> Failure {
        match earlier {
            None => self,
            Some(Failure { exit_code, message, .. }) => {
                Failure::new(exit_code, format_args!("{message}\nweir: {}", self.message))
            }
        }
    }

    /// Whether a signal stopped the command.
    pub fn is_interruption(&self) -> bool {
        self.exit_code > 128
    }

    /// Fails if a signal has asked to stop; for work that writes its results at its end.
    ///
    /// # Errors
    /// If a signal has arrived.
    pub fn check_interrupt() -> Result<(), Failure> {
        if interrupt::is_requested() {
            return Err(Failure::interrupted("interrupted; nothing was written"));
        }
        Ok(())
    }

    /// The failure for an error in a replay under `policy`.
    pub fn from_replay_error(policy: &str, error: &ReplayError) -> Failure {
        let message = format!("{policy}: {error}");
        match error {
            ReplayError::DetoursWithoutRegions => Failure::invalid_value(POLICIES, policy, None, message),
            ReplayError::Workload(_)
            | ReplayError::Tree(_)
            | ReplayError::TooFewHosts { .. }
            | ReplayError::TooManyBandwidthChanges { .. } => Failure::input(message),
            ReplayError::Interrupted { .. } => {
                Failure::interrupted(format_args!("{message}; nothing was written"))
            }
            ReplayError::Stalled(_) => Failure::runtime(message),
            // The error names the policy, or that of a leaf of the tree.
            ReplayError::Policy { .. } => Failure::runtime(error),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let failure = Failure::input(&error);
        Failure { input: Some(Box::new(InvalidInput::File(error))), ..failure }
    }
}

/// The option that lists policies.
const POLICIES: &str = "policies";

impl From<ParamsError> for Failure {
    fn from(error: ParamsError) -> Failure {
        let message = error.to_string();
        let (name, value, expected) = match error {
            ParamsError::UnknownPolicy { name, known } => {
                (POLICIES.to_owned(), name, Some(format!("one of {known}")))
            }
            ParamsError::UnknownKey { key, known, .. } => (POLICIES.to_owned(), key, Some(known)),
            ParamsError::HasNoEffect { key, value, required, .. } => {
                (key, value, Some(format!("`{required}` too")))
            }
            ParamsError::MissingValue { part, .. } => {
                (POLICIES.to_owned(), part, Some("`key=value`".to_owned()))
            }
            ParamsError::Unsuitable { name, expected, .. } => (POLICIES.to_owned(), name, Some(expected)),
            ParamsError::Refused { policy, .. } => (POLICIES.to_owned(), policy, None),
            ParamsError::InvalidValue { key, value, expected, .. } => (key, value, Some(expected)),
        };
        Failure::invalid_value(&name, value, expected.as_deref(), message)
    }
}

#[cfg(feature = "live")]
impl From<CoordinatorError> for Failure {
    fn from(error: CoordinatorError) -> Failure {
        match error {
            CoordinatorError::PlaintextToRemoteHost(_)
            | CoordinatorError::File { .. }
            | CoordinatorError::NotTheApi { .. } => Failure::input(error),
            CoordinatorError::TlsRequired { .. } => {
                Failure::input(format_args!("{error}; help: add --certificate, --key and --authority"))
            }
            CoordinatorError::Unreachable { .. } => Failure::runtime(format_args!(
                "{error}; help: start the coordinator (`weir serve`), or set --coordinator to the address `api` of its configuration"
            )),
            _ => Failure::runtime(error),
        }
    }
}

#[cfg(all(feature = "live", target_os = "linux"))]
impl From<TrafficError> for Failure {
    fn from(error: TrafficError) -> Failure {
        match error {
            TrafficError::Overlap(..) | TrafficError::NotEthernet { .. } => Failure::input(error),
            _ => Failure::runtime(error),
        }
    }
}

impl From<WorkloadSpecError> for Failure {
    fn from(error: WorkloadSpecError) -> Failure {
        Failure::input(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        match error {
            WriteError::Io(error) => error.into(),
            other => Failure::runtime(other),
        }
    }
}

impl From<io::Error> for Failure {
    /// An error of the standard output. A reader that closes it early, such as `head`, is no failure.
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::new(0, "");
        }
        Failure::runtime(format_args!("standard output: cannot be written: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use weir_core::policy::{InvalidDecision, PolicyError};

    use super::*;

    #[test]
    fn invalid_decision_of_a_policy_is_a_failure_with_its_message() {
        let error = PolicyError {
            policy: "own".to_owned(),
            time: 0.5,
            slot: Some(0),
            links: vec![1],
            reason: InvalidDecision::FlowRate(-1.0),
        };
        let subjects = vec!["coflow 7".to_owned(), "port 3 (receiving)".to_owned()];
        let failure = Failure::from_replay_error("own", &ReplayError::Policy { error, subjects });
        assert_eq!(failure.exit_code, 1);
        let expected = "policy `own` at 500ms: coflow 7, port 3 (receiving): the rate of a flow is -1 B/s; expected a rate \
                        above 0";
        assert_eq!(failure.message, expected);
    }
}
