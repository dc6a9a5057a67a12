//! Policies for a wide area: the order of coflows on the links between regions, and the paths of their bytes.
//!
//! A [`Policy`] orders the coflows whenever one arrives or ends, under a policy tree also when one has no more bytes
//! for a link. It knows sizes and past measurements of bandwidth ([`BandwidthHistory`]), but not the present bandwidth.
//! The simulator, or the relays of an overlay, enforce its decision: every link and every relay serves coflows in that
//! order, and preempts later ones ("fully preemptive per link").
//!
//! Two mechanisms work with every policy: [`detour`] chooses paths, and [`flow_groups`] orders the flows of one coflow.
//! [`relays`] converts a decision, paths and orders to instructions for the relays of an overlay.
//!
//! [`POLICIES`] lists the policies by name, as [`crate::policy::POLICIES`] does for those of one switch.

pub mod detour;
pub mod estimate;
pub mod flow_groups;
mod mrtf;
mod plain;
pub mod relays;
mod siphon;
mod tree;

use crate::model::BandwidthHistory;
use crate::policy;
use crate::policy::params::{Params, ParamsError};
use crate::policy::policy_table::{PolicyEntry, build_from};

pub use siphon::Siphon;

/// A coflow with remaining bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingCoflow {
    /// The number of coflows that arrived before it.
    pub seq: u64,
    /// Its leaf in a policy tree ([`WideAreaPolicy::leaf_of_application`]); 0 without one.
    pub leaf: u32,
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
    /// Each entry has a share of every link, and its coflows take turns in it. Entries earlier in the list get unused
    /// bandwidth first.
    Weighted(Vec<LeafShare>),
}

/// The share of some coflows.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafShare {
    /// The coflows, as indices into the list of waiting coflows.
    pub coflows: Vec<usize>,
    /// The coflows in the order of service; none if they share max-min.
    pub order: Option<Vec<usize>>,
    /// Their fraction of each link. The fractions of a link sum to 1, or to 0 if no coflow has bytes for it.
    pub link_fractions: Vec<f64>,
}

/// Decides the order of service.
///
/// A policy has no clock and no randomness except its seed: the same calls in the same order return the same results.
pub trait Policy: Send {
    /// The order of service from now on. Called when a coflow arrives or ends, and after [`ServiceOrder::Weighted`] also
    /// when a coflow has no more bytes for a link. `waiting` is in the order of arrival.
    fn decide_order(&mut self, waiting: &[WaitingCoflow], past: &BandwidthHistory) -> ServiceOrder;
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
    /// By leaf.
    with: Vec<Mechanisms>,
    /// By service and application; empty if there is one leaf.
    leaf_of: Vec<Vec<u32>>,
}

impl WideAreaPolicy {
    /// The leaf of an application's coflows; service, application and leaf are numbers.
    pub fn leaf_of_application(&self, service: u32, application: u32) -> u32 {
        self.leaf_of.get(service as usize).map_or(0, |leaves| leaves[application as usize])
    }

    /// The mechanisms of a leaf.
    pub fn mechanisms(&self, leaf: u32) -> Mechanisms {
        self.with[leaf as usize]
    }
}

const DETOURS: (&str, &str) = ("detours=off", "relieve bottlenecks by paths through a third region (3.3)");

const GROUPS: (&str, &str) =
    ("groups=off", "inside a coflow, the largest flow group first (3.2): all flows to one port");

fn scheme(policy: impl Policy + 'static, params: &mut Params) -> Result<WideAreaPolicy, ParamsError> {
    let mut scheme = shared(policy, params)?;
    scheme.with[0].largest_group_first = params.take_switch("groups", false)?;
    Ok(scheme)
}

/// For a policy under which all flows share there are no turns inside a coflow either.
fn shared(policy: impl Policy + 'static, params: &mut Params) -> Result<WideAreaPolicy, ParamsError> {
    let with = Mechanisms { detours: params.take_switch("detours", false)?, largest_group_first: false };
    Ok(WideAreaPolicy { policy: Box::new(policy), with: vec![with], leaf_of: Vec::new() })
}

/// All policies for a wide area, by name.
pub const POLICIES: &[PolicyEntry<WideAreaPolicy>] = &[
    PolicyEntry {
        name: "siphon",
        description: "Monte Carlo over orders of coflows under uncertain bandwidth (ATC '18); needs flow sizes and past bandwidth",
        params: &[
            (
                "depth=3",
                "d: number of coflows of an order that are searched, 1 to 4; MRTF at median bandwidth orders the others",
            ),
            ("breadth=10", "number of candidate coflows, the first by MRTF, 1 to 16"),
            ("samples=1000", "maximum number of rounds of a simulation, 1 to 100000"),
            (
                "confidence=0.95",
                "confidence level at which branches are closed and rounds end; 1 simulates all",
            ),
            (
                "choose=wins",
                "the chosen order: with the lowest cost in most rounds (`wins`), or with the lowest mean cost (`mean`)",
            ),
            ("reuse=on", "keep branches closed that an arrival or a completion does not change"),
            ("seed=1", "seed of the random bandwidths"),
            ("threads=1", "number of threads of a simulation, 1 to 64; it does not change the result"),
            DETOURS,
            GROUPS,
        ],
        build: |p| scheme(Siphon::from_params(p)?, p),
    },
    PolicyEntry {
        name: "mrtf",
        description: "minimum remaining time first, at median bandwidth; needs flow sizes and past bandwidth",
        params: &[DETOURS, GROUPS],
        build: |p| scheme(mrtf::Mrtf, p),
    },
    PolicyEntry {
        name: "fifo",
        description: "coflows in order of arrival",
        params: &[DETOURS, GROUPS],
        build: |p| scheme(plain::Fifo, p),
    },
    PolicyEntry {
        name: "fair",
        description: "per-flow max-min at every link, as TCP shares; sizes unknown",
        params: &[DETOURS],
        build: |p| shared(plain::Fair, p),
    },
];

/// Builds the policy that `spec` describes: `name` or `name:key=value:key=value`.
///
/// # Errors
/// For an unknown name, parameter or value, and for a policy for one switch. The error lists the valid ones.
pub fn build(spec: &str) -> Result<WideAreaPolicy, ParamsError> {
    build_from(POLICIES, spec).map_err(|error| match error {
        ParamsError::UnknownPolicy { name, known }
            if policy::POLICIES.iter().any(|entry| entry.name == name) =>
        {
            ParamsError::NotForWideArea { name, known }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::POLICIES;
    use crate::policy;
    use crate::policy::policy_table::WIDE_AREA_POLICIES;

    #[test]
    fn wide_area_only_lists_every_policy_that_one_switch_lacks() {
        let is_for_switch = |name: &str| policy::POLICIES.iter().any(|entry| entry.name == name);
        let only: Vec<&str> =
            POLICIES.iter().map(|entry| entry.name).filter(|name| !is_for_switch(name)).collect();
        assert_eq!(only, WIDE_AREA_POLICIES);
    }
}
