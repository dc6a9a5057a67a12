//! Why a replay has no outcome.

use weir_core::model::WorkloadError;
use weir_core::solve::Levels;
use weir_core::tree::TreeError;

/// Why a replay has no outcome.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// The workload contradicts itself.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The policy tree has no place for a service or an application of the workload.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The policy leaves rates to plain TCP, and the table of flows between ports does not support so many ports.
    #[error("max-min between flows (`fair`) supports up to {most} ports: the workload has {0}", most = Levels::MAX_PORTS)]
    Ports(usize),
    /// The policy leaves rates to queues of ports, on a network with links between switches.
    #[error(
        "it leaves rates to queues of ports, which are not supported over links between switches: expected a policy that sets rates, or `fair`"
    )]
    Queues,
    /// A network with fewer hosts than the workload has ports.
    #[error("the workload has {ports} ports: expected at most the network's {hosts} hosts")]
    Hosts {
        /// How many ports.
        ports: usize,
        /// How many hosts.
        hosts: usize,
    },
    /// Some coflows cannot complete: their ports failed for good.
    #[error(
        "nothing moves after {at:.3} s and not all coflows are done, {left} of them left, the first coflow {id}: \
         do its ports have capacity?"
    )]
    Stalled {
        /// When, in seconds.
        at: f64,
        /// How many coflows are not done.
        left: usize,
        /// The first of them.
        id: u64,
    },
    /// The observer asked to stop.
    #[error("interrupted after {done} of {coflows} coflows")]
    Interrupted {
        /// Coflows done by then.
        done: usize,
        /// Coflows in all.
        coflows: usize,
    },
}
