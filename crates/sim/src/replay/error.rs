//! Errors of a replay.

use std::fmt;

use weir_core::model::WorkloadError;
use weir_core::policy::PolicyError;
use weir_core::tree::TreeError;
use weir_core::units::{Bytes, Time};

use crate::outcome::{Stall, StalledCoflow};

/// The reason why a replay has no outcome.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// The workload is inconsistent.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The policy tree does not cover a service or an application of the workload.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The network has fewer hosts than the workload has ports.
    #[error("the workload has {ports} ports; expected at most the network's {hosts} hosts")]
    TooFewHosts {
        /// Number of ports.
        ports: usize,
        /// Number of hosts.
        hosts: usize,
    },
    /// Some coflows cannot complete, because links failed permanently.
    #[error("{0}")]
    Stalled(Stall),
    /// A decision of a policy of another crate is invalid.
    #[error("{}", .error.message(.subjects))]
    Policy {
        /// The invalid decision.
        error: PolicyError,
        /// The coflow and the links that it is about.
        subjects: Vec<String>,
    },
    /// The policy needs regions.
    #[error("`detours=on` is for links between regions; expected a network with regions")]
    DetoursWithoutRegions,
    /// Bandwidth changed too often.
    #[error(
        "bandwidth changes more than {max} times until {time:.0} s; expected a longer time between changes"
    )]
    TooManyBandwidthChanges {
        /// The time, in seconds.
        time: f64,
        /// The limit.
        max: u64,
    },
    /// The observer stopped the replay.
    #[error("interrupted after {completed} of {total} coflows")]
    Interrupted {
        /// Number of completed coflows.
        completed: usize,
        /// Number of all coflows.
        total: usize,
    },
}

/// The maximum number of links and of coflows that are listed.
const MAX_LISTED: usize = 8;

/// The first names of a list, and the number of the others.
fn list_first(names: &[String]) -> String {
    let shown = names[..names.len().min(MAX_LISTED)].join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        others => format!("{shown} and {others} more"),
    }
}

impl StalledCoflow {
    /// Why the coflow cannot complete.
    pub fn reason(&self) -> String {
        match (&self.links[..], &self.parents[..]) {
            ([], []) => "all its links have capacity, but the policy assigns no rate".to_owned(),
            ([], parents) => {
                let parents: Vec<String> = parents.iter().map(|id| format!("coflow {id}")).collect();
                format!("waits for {}", list_first(&parents))
            }
            (links, _) => format!("without capacity: {}", list_first(links)),
        }
    }
}

impl Stall {
    /// When and why the replay stalled, as one line.
    pub fn summary(&self) -> String {
        let is_unexplained = |coflow: &StalledCoflow| coflow.links.is_empty() && coflow.parents.is_empty();
        let help = match self.coflows.iter().any(is_unexplained) {
            true => "report this error of the policy",
            false => "check that links recover",
        };
        let nanoseconds = (self.time * 1e9).round();
        let time = Time::new(nanoseconds / 1e9).unwrap_or(Time::ZERO);
        format!("no flow can send after {time}; help: {help}")
    }

    /// Writes a line for each of the first coflows.
    ///
    /// # Errors
    /// If the text cannot be written.
    pub fn fmt_coflows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for coflow in self.coflows.iter().take(MAX_LISTED) {
            let remaining = Bytes::new(coflow.remaining_bytes.ceil()).unwrap_or(Bytes::ZERO);
            write!(f, "\n  coflow {}: {remaining} left; {}", coflow.id, coflow.reason())?;
        }
        match self.coflows.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            others => write!(f, "\n  {others} more coflows"),
        }
    }
}

impl fmt::Display for Stall {
    /// The summary, and a line for each of the first coflows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        self.fmt_coflows(f)
    }
}
