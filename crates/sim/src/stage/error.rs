//! Why jobs cannot be run, or cannot share links.

use weir_core::saba::controller::ControllerError;
use weir_core::solve::wfq::WfqError;

/// Why links cannot be shared in this way.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SharingError {
    /// The controller refused something.
    #[error("Saba's controller: {0}")]
    Controller(#[from] ControllerError),
    /// A job without a model, where Saba has all of each port.
    #[error("job {job} has no model, and C_saba is 1: expected C_saba below 1, which leaves it a queue")]
    Reserved {
        /// The job's position.
        job: usize,
    },
    /// An order of transfers on a network that gives rates to single flows.
    #[error("priorities between transfers: expected a network on which their flows go in lockstep")]
    Order,
    /// The solver refused something.
    #[error("rates: {0}")]
    Rates(#[from] WfqError),
}

/// Why jobs did not complete.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClusterError {
    /// A server that does not exist, or that a job has twice.
    #[error("job {job}: server `{server}`: expected each once, from 0 to {}", .servers.saturating_sub(1))]
    Server {
        /// The job's position.
        job: usize,
        /// The server.
        server: u32,
        /// How many there are.
        servers: u32,
    },
    /// A server with more or fewer links than one, on a network with paths.
    #[error("job {job}: server `{server}` has {links} links: expected one")]
    Links {
        /// The job's position.
        job: usize,
        /// The server.
        server: u32,
        /// How many it has.
        links: usize,
    },
    /// More or fewer jobs than the network was laid out for.
    #[error("{jobs} jobs on a network laid out for {expected}: expected as many")]
    Jobs {
        /// How many there are.
        jobs: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Too many jobs or links to lay out.
    #[error("{what}: {count}: expected at most {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
        /// How many there may be.
        most: u64,
    },
    /// The caller asked to stop.
    #[error("interrupted at {now:.3} s")]
    Interrupted {
        /// The simulated time, in seconds.
        now: f64,
    },
    /// No link on the path of the remaining bytes has capacity.
    #[error("at {now} s nothing moves and job {job} is not done: expected links that carry something")]
    Stalled {
        /// The first incomplete job.
        job: usize,
        /// The simulated time, in seconds.
        now: f64,
    },
    /// The links cannot be shared in this way.
    #[error(transparent)]
    Sharing(#[from] SharingError),
}
