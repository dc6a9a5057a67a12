//! What frameworks ask for, and why they are refused.

use weir_core::tree::TreeError;
use weir_core::units::{Bytes, Time};

/// A coflow as its framework registers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// The service and the application that it belongs to.
    pub service: String,
    /// An application of that service.
    pub application: String,
    /// Its importance to weighted policies; finite and above zero.
    pub weight: f64,
    /// How long after its registration it has to be done, if it says.
    pub deadline: Option<Time>,
    /// At least one.
    pub flows: Vec<Transfer>,
}

/// One flow of a coflow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// The host that sends, by its number.
    pub src: u32,
    /// The host that receives.
    pub dst: u32,
    /// How much, if that is known.
    pub bytes: Option<Bytes>,
}

/// Why a request was not carried out; nothing of it was.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The id is taken by another coflow.
    #[error("coflow `{0}` is registered with another body: expected the same, or another id")]
    Taken(String),
    /// No coflow has the id.
    #[error("coflow `{0}` is not registered")]
    Unknown(String),
    /// An id that is none.
    #[error("`{0}` names a coflow: expected 1 to 128 printable characters without spaces")]
    Id(String),
    /// A coflow without flows.
    #[error("no flows: expected at least one flow")]
    Empty,
    /// A host that is not there.
    #[error("flow {flow}: host {host}: expected 0 to {last}")]
    Host {
        /// The place of the flow in the request.
        flow: usize,
        /// The host's number.
        host: u32,
        /// The last that there is.
        last: u32,
    },
    /// A flow whose size the policy has to know.
    #[error("flow {0}: no bytes: the policy goes by sizes, so expected every flow's")]
    Size(usize),
    /// A weight that is none.
    #[error("weight {0}: expected a finite number above 0")]
    Weight(f64),
    /// A service or application that has no place.
    #[error(
        "application `{application}` of service `{service}` is unknown: expected one of the configuration"
    )]
    Nameless {
        /// The service.
        service: String,
        /// The application.
        application: String,
    },
    /// A policy tree that has no place for a service or an application.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// More than is kept.
    #[error("{what}: expected at most {most} at once")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many.
        most: usize,
    },
}
