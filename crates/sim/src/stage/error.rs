//! Why jobs cannot be run, or cannot share links.

use weir_core::saba::controller::ControllerError;
use weir_core::solve::wfq::WfqError;

/// Why links cannot be shared so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SharingError {
    /// The controller refused something.
    #[error("Saba's controller: {0}")]
    Controller(#[from] ControllerError),
    /// A job that does not comply, where all of each port is Saba's.
    #[error("job {job} has no model, and C_saba is 1: expected C_saba below 1, which leaves it a queue")]
    Reserved {
        /// The job's position.
        job: usize,
    },
    /// An order where single flows have rates.
    #[error("priorities between transfers: expected a network on which their flows go in lockstep")]
    Order,
    /// The solver refused something.
    #[error("rates: {0}")]
    Rates(#[from] WfqError),
}

/// Why jobs could not be run to their ends.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClusterError {
    /// A server that is not there, or that a job has twice.
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
    /// As many jobs as the network was laid out for are expected.
    #[error("{jobs} jobs on a network laid out for {expected}: expected as many")]
    Jobs {
        /// How many there are.
        jobs: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Jobs and links that are too many to be laid out.
    #[error("{what}: {count}: expected at most {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
        /// How many there may be.
        most: u64,
    },
    /// Somebody asked to stop.
    #[error("interrupted at {now:.3} s")]
    Interrupted {
        /// When, for the jobs.
        now: f64,
    },
    /// Bytes that nothing moves.
    #[error("at {now} s nothing moves and job {job} is not done: expected links that carry something")]
    Stalled {
        /// The first of the jobs that are not done.
        job: usize,
        /// When.
        now: f64,
    },
    /// Links cannot be shared so.
    #[error(transparent)]
    Sharing(#[from] SharingError),
}
