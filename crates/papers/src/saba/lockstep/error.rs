//! Errors of running jobs and of sharing links.

use weir_core::saba::controller::ControllerError;
use weir_core::solve::wfq::WfqError;
use weir_sim::ReplayError;
use weir_sim::jobs::AddJobsError;

/// The reason why links cannot be shared in this way.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SharingError {
    /// Saba's controller returned an error.
    #[error("Saba's controller: {0}")]
    Controller(#[from] ControllerError),
    /// A job has no model, and C_saba of 1 reserves no queue for it.
    #[error(
        "job {job} has no model, and a C_saba of 1 reserves no queue for such jobs; expected C_saba below 1"
    )]
    NoQueueForJob {
        /// The job's index.
        job: usize,
    },
    /// The solver returned an error.
    #[error("rates: {0}")]
    Rates(#[from] WfqError),
}

/// The reason why jobs did not complete.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LockstepError {
    /// A job has a server that does not exist, or has a server twice.
    #[error("job {job}: server {server} does not exist or occurs twice; expected each once, from 0 to {}", .servers.saturating_sub(1))]
    InvalidServer {
        /// The job's index.
        job: usize,
        /// The server.
        server: u32,
        /// Number of servers.
        servers: u32,
    },
    /// A server on a network with paths does not have exactly one link.
    #[error("job {job}: server {server} has {links} links; expected one")]
    WrongLinkCount {
        /// The job's index.
        job: usize,
        /// The server.
        server: u32,
        /// Number of its links.
        links: usize,
    },
    /// The network was made for another number of jobs.
    #[error("{jobs} jobs on a network for {expected} jobs; expected equal numbers")]
    WrongJobCount {
        /// Number of jobs.
        jobs: usize,
        /// The expected number of jobs.
        expected: usize,
    },
    /// There are too many jobs or links.
    #[error("too many {kind} ({count}); expected at most {max}")]
    TooMany {
        /// The counted objects.
        kind: &'static str,
        /// Their number.
        count: u64,
        /// The maximum number.
        max: u64,
    },
    /// The jobs cannot be coflows of one workload.
    #[error(transparent)]
    Jobs(#[from] AddJobsError),
    /// The replay of the jobs has no outcome.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The links cannot be shared in this way.
    #[error(transparent)]
    Sharing(#[from] SharingError),
}
