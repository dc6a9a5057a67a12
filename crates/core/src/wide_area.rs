//! Policies for a wide area: which coflow goes first on the links between regions, and by which ways bytes go.
//!
//! A [`Policy`] is asked for an order of coflows whenever one arrives or ends. It has sizes, and measurements of the past
//! ([`Past`]), not what links carry now. Who carries its decision out (the simulator; the relays of an overlay) serves
//! coflows in that order at every link and every relay, and preempts whoever is later ("fully preemptive per link").
//! [`detour`] chooses ways and [`groups`] orders the flows of one coflow; both go with every policy. [`relays`] puts all three down as what
//! the relays of an overlay have to do.
//!
//! [`TABLE`] has them by name, as [`crate::policy::TABLE`] has those for one switch.

pub mod detour;
pub mod groups;
mod mrtf;
mod plain;
pub mod relays;
mod siphon;
mod tree;

use crate::model::Past;
use crate::policy;
use crate::policy::params::{Params, ParamsError};
use crate::policy::table::{Entry, build_from};

pub use siphon::Siphon;

/// A coflow that has bytes left.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// How many came before it.
    pub seq: u64,
    /// Its leaf in a tree of policies ([`Scheme::leaf`]); 0 without one.
    pub leaf: u32,
    /// The bytes that it has left, by link, all above zero; a byte that goes by a relay counts at both of its links.
    pub left: Vec<(u32, f64)>,
}

/// Who goes first at every link.
#[derive(Debug, Clone, PartialEq)]
pub enum Turns {
    /// Coflow by coflow; places in the list of those that wait.
    InOrder(Vec<usize>),
    /// Nobody: all flows at a link share it (max-min).
    Shared,
    /// Each has a part of every link, in which its own coflows take turns; what one cannot use others have, those that come earlier
    /// in the list first.
    Divided(Vec<Share>),
}

/// What some coflows have for themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// Which, as places in the list of those that wait.
    pub coflows: Vec<usize>,
    /// The same in the order in which they go first; none if they share.
    pub order: Option<Vec<usize>>,
    /// Their part of each link; those of a link sum to 1, or to 0 if nobody has bytes for it.
    pub parts: Vec<f64>,
}

/// Decides who goes first.
///
/// It has no clock and no chance but its seed: the same questions in the same order get the same answers.
pub trait Policy: Send {
    /// Who goes first from now on. Asked when a coflow has arrived or ended, and after [`Turns::Divided`] also when one has no more bytes
    /// for a link; `waiting` is in order of arrival.
    fn turns(&mut self, waiting: &[Waiting], past: &Past) -> Turns;
}

/// What goes with a policy, for the coflows that it decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct With {
    /// Bottlenecks are relieved by detours ([`detour`]).
    pub detours: bool,
    /// Inside a coflow the largest flow group goes first ([`groups`]).
    pub groups: bool,
}

/// A policy, and what goes with it.
pub struct Scheme {
    /// Who goes first.
    pub policy: Box<dyn Policy>,
    /// By leaf.
    with: Vec<With>,
    /// By service and application; empty if there is one leaf.
    leaf_of: Vec<Vec<u32>>,
}

impl Scheme {
    /// The leaf of an application's coflows, all three by number.
    pub fn leaf(&self, service: u32, application: u32) -> u32 {
        self.leaf_of.get(service as usize).map_or(0, |leaves| leaves[application as usize])
    }

    /// What goes with the policy of a leaf.
    pub fn with(&self, leaf: u32) -> With {
        self.with[leaf as usize]
    }
}

const DETOURS: (&str, &str) = ("detours=off", "relieve bottlenecks by ways over a third region (3.3)");

const GROUPS: (&str, &str) =
    ("groups=off", "inside a coflow, the largest flow group first (3.2): all that one port waits for");

fn scheme(policy: impl Policy + 'static, params: &mut Params) -> Result<Scheme, ParamsError> {
    let mut scheme = shared(policy, params)?;
    scheme.with[0].groups = params.switch("groups", false)?;
    Ok(scheme)
}

/// For a policy under which all flows share there are no turns inside a coflow either.
fn shared(policy: impl Policy + 'static, params: &mut Params) -> Result<Scheme, ParamsError> {
    let with = With { detours: params.switch("detours", false)?, groups: false };
    Ok(Scheme { policy: Box::new(policy), with: vec![with], leaf_of: Vec::new() })
}

/// All policies for a wide area, by name.
pub const TABLE: &[Entry<Scheme>] = &[
    Entry {
        name: "siphon",
        about: "Monte Carlo over orders of coflows under uncertain bandwidth (ATC '18); knows sizes, and bandwidth of the past",
        params: &[
            ("depth=3", "d: how many coflows of an order are searched, 1 to 4; below, MRTF at medians"),
            ("breadth=10", "how many coflows are chosen from, the first by MRTF, 1 to 16"),
            ("samples=1000", "the most rounds of a simulation, 1 to 100000"),
            ("confidence=0.95", "the level at which branches are closed and rounds end; 1 simulates all"),
            (
                "choose=wins",
                "the order that wins most rounds, or that of the lowest `mean` cost, to compare with",
            ),
            ("reuse=on", "branches that an arrival or an end leaves as they are stay closed"),
            ("seed=1", "different seeds draw differently"),
            ("threads=1", "threads of a simulation, 1 to 64; the result does not depend on them"),
            DETOURS,
            GROUPS,
        ],
        build: |p| scheme(Siphon::read(p)?, p),
    },
    Entry {
        name: "mrtf",
        about: "minimum remaining time first, at median bandwidth; knows sizes, and bandwidth of the past",
        params: &[DETOURS, GROUPS],
        build: |p| scheme(mrtf::Mrtf, p),
    },
    Entry {
        name: "fifo",
        about: "coflows in order of arrival",
        params: &[DETOURS, GROUPS],
        build: |p| scheme(plain::Fifo, p),
    },
    Entry {
        name: "fair",
        about: "per-flow max-min at every link, as TCP shares; knows nothing",
        params: &[DETOURS],
        build: |p| shared(plain::Fair, p),
    },
];

/// Builds what `spec` names: `name` or `name:key=value:key=value`.
///
/// # Errors
/// An unknown name, parameter or value, or a policy for one switch; says what is known.
pub fn build(spec: &str) -> Result<Scheme, ParamsError> {
    build_from(TABLE, spec).map_err(|error| match error {
        ParamsError::UnknownPolicy { name, known }
            if policy::TABLE.iter().any(|entry| entry.name == name) =>
        {
            ParamsError::NotForWideArea { name, known }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::TABLE;
    use crate::policy;
    use crate::policy::table::WIDE_AREA_ONLY;

    #[test]
    fn wide_area_only_lists_every_policy_that_one_switch_lacks() {
        let is_for_switch = |name: &str| policy::TABLE.iter().any(|entry| entry.name == name);
        let only: Vec<&str> =
            TABLE.iter().map(|entry| entry.name).filter(|name| !is_for_switch(name)).collect();
        assert_eq!(only, WIDE_AREA_ONLY);
    }
}
