//! Errors of a replay.

use weir_core::model::WorkloadError;
use weir_core::policy::PolicyError;
use weir_core::tree::TreeError;

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
    #[error(
        "no flow can send after {time:.3} s; incomplete: coflow {id}{}; {}",
        match .incomplete { 1 => String::new(), more => format!(" and {} more", more - 1) },
        match .links[..] {
            [] => "all its links have capacity, but the policy assigns no rate; help: report this error of the policy".to_owned(),
            _ => format!("without capacity: {}; help: check that links recover", .links.join(", ")),
        }
    )]
    Stalled {
        /// The time, in seconds.
        time: f64,
        /// Number of coflows that have not completed.
        incomplete: usize,
        /// The id of the first of them.
        id: u64,
        /// Names of links without capacity that the incomplete coflows need, up to [`ReplayError::MAX_LINKS`].
        links: Vec<String>,
    },
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

impl ReplayError {
    /// Maximum number of links in [`ReplayError::Stalled`].
    pub const MAX_LINKS: usize = 8;
}
