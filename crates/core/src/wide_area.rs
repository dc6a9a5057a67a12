//! Policies for a wide area: the order of coflows on the links between regions, and the paths of their bytes.
//!
//! A [`Policy`] orders the coflows whenever one arrives or ends. It knows sizes and past measurements of bandwidth
//! ([`LinkHistory`]), but not the present bandwidth. The engine ([`crate::policy`]) or the relays of an overlay enforce its
//! decision: every link serves coflows in that order, and preempts later ones ("fully preemptive per link").
//!
//! Two mechanisms work with every policy: [`detour`] chooses paths, and [`flow_groups`] orders the flows of one coflow.
//! [`relays`] converts a decision, paths and orders to instructions for the relays of an overlay.
//!
//! [`build`] builds the policies of an overlay. [`crate::policy::POLICIES`] has those that the engine schedules on any network.

pub mod detour;
pub mod estimate;
pub mod flow_groups;
mod mrtf;
mod plain;
pub mod relays;
mod siphon;

use crate::model::LinkHistory;
use crate::policy::params::{Params, ParamsError};

pub use mrtf::Mrtf;
pub use siphon::Siphon;

/// A coflow with remaining bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingCoflow {
    /// The number of coflows that arrived before it.
    pub seq: u64,
    /// Its remaining bytes by link, all above 0. A byte that crosses a relay counts at both of its links.
    pub remaining_bytes: Vec<(u32, f64)>,
}

/// The order in which links serve coflows.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceOrder {
    /// Coflow by coflow; indices into the list of waiting coflows.
    InOrder(Vec<usize>),
    /// No order: all flows share each link max-min.
    MaxMin,
}

/// Decides the order of service.
///
/// A policy has no clock and no randomness except its seed: the same calls in the same order return the same results.
pub trait Policy: Send {
    /// The order of service from now on. Called when a coflow arrives or ends. `waiting` is in the order of arrival.
    fn decide_order(&mut self, waiting: &[WaitingCoflow], past: &LinkHistory) -> ServiceOrder;
}

/// The mechanisms that are combined with a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mechanisms {
    /// Detours relieve bottlenecks ([`detour`]).
    pub detours: bool,
    /// Inside a coflow the largest flow group is served first ([`flow_groups`]).
    pub largest_group_first: bool,
}

/// A policy and its mechanisms.
pub struct WideAreaPolicy {
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// Its mechanisms.
    pub mechanisms: Mechanisms,
}

/// Builds the policy that `spec` describes: `name` or `name:key=value:key=value`.
///
/// # Errors
/// For an unknown name, parameter or value. The error lists the valid ones.
pub fn build(spec: &str) -> Result<WideAreaPolicy, ParamsError> {
    let mut params = Params::parse(spec)?;
    let policy: Box<dyn Policy> = match params.name() {
        "siphon" => Box::new(Siphon::from_params(&mut params)?),
        "mrtf" => Box::new(Mrtf),
        "fifo" => Box::new(plain::Fifo),
        "fair" => Box::new(plain::Fair),
        name => {
            let known = "siphon, mrtf, fifo, fair".to_owned();
            return Err(ParamsError::UnknownPolicy { name: name.to_owned(), known });
        }
    };
    let detours = params.take_switch("detours", false)?;
    // If all flows share, there are no turns inside a coflow either.
    let largest_group_first = params.name() != "fair" && params.take_switch("groups", false)?;
    params.reject_unknown()?;
    Ok(WideAreaPolicy { policy, mechanisms: Mechanisms { detours, largest_group_first } })
}
