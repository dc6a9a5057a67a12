//! Defines the requests of frameworks, and the reasons for which the control plane refuses them.

use weir_core::model::ServiceNames;
use weir_core::tree::TreeError;
use weir_core::units::{Bytes, Time};

use crate::quota::QuotaReached;
use crate::values::expected_weight;

/// A coflow as its framework registers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// Its number, above 0. A coflow that is registered again after its removal has a higher one, so that the bytes of flows of the
    /// removed coflow do not count for the new one.
    pub generation: u64,
    /// The service that it belongs to.
    pub service: String,
    /// An application of that service.
    pub application: String,
    /// Its weight for weighted policies, from 1e-9 to 1e9.
    pub weight: f64,
    /// Time after its registration by which it has to complete; `None` without a deadline.
    pub deadline: Option<Time>,
    /// Its flows, at least one.
    pub flows: Vec<Transfer>,
}

/// One flow of a coflow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// The host that sends, by its number.
    pub src: u32,
    /// The host that receives.
    pub dst: u32,
    /// Size; `None` if it is unknown.
    pub bytes: Option<Bytes>,
}

/// The maximum number of names that an error lists.
const MAX_LISTED_NAMES: usize = 20;

/// A service or application that is not in the configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} `{name}` is unknown; expected {expected}")]
pub struct UnknownName {
    /// `service` or `application`.
    pub field: &'static str,
    /// The unknown name.
    pub name: String,
    /// The known names.
    pub expected: String,
}

impl UnknownName {
    /// Returns the number of a service.
    ///
    /// # Errors
    /// If the service is not in the configuration.
    pub fn check_service(names: &ServiceNames, service: &str) -> Result<u32, UnknownName> {
        names.service_number(service).ok_or_else(|| {
            let services = (0..names.services() as u32).map(|number| names.service(number));
            let expected = format!("a service of the configuration: {}", join_names(services));
            UnknownName { field: "service", name: service.to_owned(), expected }
        })
    }

    /// Returns the numbers of a service and of one of its applications.
    ///
    /// # Errors
    /// If one of them is not in the configuration.
    pub fn check(names: &ServiceNames, service: &str, application: &str) -> Result<(u32, u32), UnknownName> {
        let number = UnknownName::check_service(names, service)?;
        names.find(service, application).ok_or_else(|| {
            let known = join_names(names.applications(number).iter().map(String::as_str));
            let expected = format!("an application of service `{service}`: {known}");
            UnknownName { field: "application", name: application.to_owned(), expected }
        })
    }
}

/// Names in alphabetical order, at most [`MAX_LISTED_NAMES`] of them.
pub(crate) fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(MAX_LISTED_NAMES);
    names.truncate(MAX_LISTED_NAMES);
    let list = names.join(", ");
    if more == 0 { list } else { format!("{list} and {more} more") }
}

/// Why a request was refused. A refused request changes nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The id belongs to a coflow with another body.
    #[error("coflow `{0}` is registered with another body; expected the same body, or another id")]
    IdTaken(String),
    /// No coflow has the id.
    #[error("coflow `{0}` is not registered; expected the id of a registered coflow")]
    UnknownCoflow(String),
    /// The id has invalid characters or an invalid length.
    #[error("coflow id `{0}` is invalid; expected 1 to 128 printable characters without spaces")]
    InvalidId(String),
    /// A coflow without flows.
    #[error("no flows; expected at least one flow")]
    NoFlows,
    /// A host number out of range.
    #[error("flow {flow}: host {host} is unknown; expected 0 to {last_host}")]
    UnknownHost {
        /// Index of the flow in the request.
        flow: usize,
        /// The host's number.
        host: u32,
        /// The last host number.
        last_host: u32,
    },
    /// A flow of unknown size, under a policy that needs sizes.
    #[error("flow {0}: unknown size; expected `bytes`, which the policy needs for every flow")]
    UnknownSize(usize),
    /// A weight outside of 1e-9 to 1e9.
    #[error("weight {0:e} is out of range; expected {expected}", expected = expected_weight())]
    InvalidWeight(f64),
    /// An unknown service or application.
    #[error(transparent)]
    UnknownName(#[from] UnknownName),
    /// A policy tree has no leaf for a service or an application.
    #[error(transparent)]
    NoTreeLeaf(#[from] TreeError),
    /// The quota of a service is reached.
    #[error(transparent)]
    QuotaReached(#[from] QuotaReached),
    /// A limit is reached.
    #[error("too many {objects}; expected at most {max}")]
    LimitReached {
        /// The counted objects.
        objects: &'static str,
        /// The limit.
        max: usize,
    },
}
