//! Coflows in a wide area: their order on the links between regions, and the paths of their bytes.
//!
//! Policies decide the order: they know sizes and past measurements of bandwidth ([`LinkHistory`](crate::model::LinkHistory)), but not
//! the present bandwidth. The engine or the relays of an overlay ([`crate::wide_area_policy`]) enforce it: every link serves coflows in
//! that order, and preempts later ones ("fully preemptive per link").
//!
//! Two mechanisms work with every policy: [`detour`] chooses paths, and [`flow_groups`] orders the flows of one coflow.
//! [`relays`] converts a decision, paths and orders to instructions for the relays of an overlay.

pub mod detour;
pub mod estimate;
pub mod flow_groups;
pub(crate) mod mrtf;
pub mod relays;
mod siphon;

use crate::solve::montecarlo::SearchCoflow;

pub use siphon::Siphon;

/// A coflow with remaining bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingCoflow {
    /// The number of coflows that arrived before it.
    pub seq: u64,
    /// Its remaining bytes by link, all above 0. A byte that crosses a relay counts at both of its links.
    pub remaining_bytes: Vec<(u32, f64)>,
}

impl WaitingCoflow {
    fn for_search(&self) -> SearchCoflow<'_> {
        SearchCoflow { key: self.seq, remaining_bytes: &self.remaining_bytes }
    }
}

/// The order in which links serve coflows.
#[derive(Debug, Clone, PartialEq)]
pub enum ServiceOrder {
    /// Coflow by coflow; indices into the list of waiting coflows.
    InOrder(Vec<usize>),
    /// No order: all flows share each link max-min.
    MaxMin,
}
