//! Reduces the rates of a policy to what programs write, and to what receiving ports (incast) or links between switches carry.
//!
//! Policies decide as if flows use their full rate, and ports carry their full rate and are the only limit. The *carried* rates are a
//! second allocation, the one that applies. Flows with a reduced rate have individual rates in it.

mod demands;
mod receivers;
mod trunks;

use crate::allocation::{Allocation, CommonRate, FlowRate};
use crate::model::topology::CableChange;
use crate::model::{Coflow, LinkId, Network, Slot, Trunks};

pub(crate) use demands::DemandLimit;
pub(crate) use receivers::GoodputLimit;
pub(crate) use trunks::TrunkLimit;

/// A limit of the network in addition to ports.
pub(crate) trait CapacityLimit: Send {
    /// Computes the load of a decision from `now` on; returns whether it exceeds the capacity.
    fn exceeds_capacity(&mut self, decided: &Allocation, network: &Network, now: f64) -> bool;

    /// Stores the carried rates in `carried`. Requires that [`CapacityLimit::exceeds_capacity`] returned true for the same
    /// decision.
    fn reduce_rates(
        &mut self,
        decided: &SortedDecision<'_>,
        network: &Network,
        now: f64,
        carried: &mut Allocation,
    );

    /// Discards cached counts of a coflow whose live flows changed, possibly without a change of their number.
    fn drop_cached_flows(&mut self, slot: Slot) {
        let _ = slot;
    }

    /// Discards what belongs to the flows of a coflow: they were replaced, or the coflow was removed.
    fn drop_flows(&mut self, slot: Slot) {
        let _ = slot;
    }

    /// Receives the new capacities of all trunks, in bytes per second.
    fn set_trunk_capacities(&mut self, capacities: &[f64]) {
        let _ = capacities;
    }

    /// The trunks, if this limit has any.
    fn trunks(&self) -> Option<&Trunks> {
        None
    }

    /// The trunks that a flow of a coflow with a rate crosses.
    fn flow_trunks(&self, slot: Slot, flow: u32) -> &[u32] {
        let _ = (slot, flow);
        &[]
    }

    /// Changes cables. Returns the trunks with the changes, if this limit has any.
    fn change_cables(&mut self, changes: &[(LinkId, CableChange)]) -> Option<&Trunks> {
        let _ = changes;
        None
    }
}

/// Computes the carried allocation from the decided one.
pub(crate) struct CapacityLimiter<L: CapacityLimit + ?Sized = dyn CapacityLimit> {
    carried: Allocation,
    /// Whether the rates in force are not those that were decided.
    reduced: bool,
    /// Flows with rates of their own, in memory that is used again.
    own: Vec<FlowRate>,
    what: Box<L>,
}

impl<L: CapacityLimit + ?Sized> CapacityLimiter<L> {
    pub(crate) fn new(what: Box<L>) -> CapacityLimiter<L> {
        CapacityLimiter { what, carried: Allocation::default(), reduced: false, own: Vec::new() }
    }

    /// Whether the rates in force are not those that were decided.
    pub(crate) fn reduces_rates(&self) -> bool {
        self.reduced
    }

    /// See [`CapacityLimit::drop_cached_flows`].
    pub(crate) fn drop_cached_flows(&mut self, slot: Slot) {
        self.what.drop_cached_flows(slot);
    }

    /// See [`CapacityLimit::drop_flows`].
    pub(crate) fn drop_flows(&mut self, slot: Slot) {
        self.what.drop_flows(slot);
    }

    /// See [`CapacityLimit::set_trunk_capacities`].
    pub(crate) fn set_trunk_capacities(&mut self, capacities: &[f64]) {
        self.what.set_trunk_capacities(capacities);
    }

    /// The limit.
    pub(crate) fn limit(&self) -> &L {
        &self.what
    }

    /// The limit, to change it.
    pub(crate) fn limit_mut(&mut self) -> &mut L {
        &mut self.what
    }

    /// See [`CapacityLimit::change_cables`].
    pub(crate) fn change_cables(&mut self, changes: &[(LinkId, CableChange)]) -> Option<&Trunks> {
        self.what.change_cables(changes)
    }

    /// The allocation in force from `now` on. The cost is that of [`CapacityLimit::exceeds_capacity`]. If the load exceeds
    /// the capacity, add n log n for n flows with individual rates, and the cost of [`CapacityLimit::reduce_rates`].
    pub(crate) fn limit_rates<'a>(
        &'a mut self,
        decided: &'a Allocation,
        network: &Network,
        now: f64,
    ) -> &'a Allocation {
        let reduces = self.what.exceeds_capacity(decided, network, now);
        if !reduces && !self.reduced {
            return decided;
        }
        self.reduced = reduces;
        self.carried.start_decision(network.slots());
        if reduces {
            self.own.clear();
            self.own.extend_from_slice(decided.flow_rates());
            self.own.sort_by_key(|own| (own.slot, own.flow));
            let decided = SortedDecision { whole: decided, own: &self.own };
            self.what.reduce_rates(&decided, network, now, &mut self.carried);
        } else {
            copy(decided, network, &mut self.carried);
        }
        self.carried.drop_unkept_flows();
        &self.carried
    }
}

/// A decision, with its flows with individual rates sorted by coflow and flow.
pub(crate) struct SortedDecision<'a> {
    whole: &'a Allocation,
    own: &'a [FlowRate],
}

impl SortedDecision<'_> {
    /// A coflow's common rate, and its flows with rates of their own.
    fn of(&self, slot: Slot) -> (CommonRate, &[FlowRate]) {
        let first = self.own.partition_point(|own| own.slot < slot);
        let own = &self.own[first..self.own.partition_point(|own| own.slot <= slot)];
        (self.whole.common(slot), own)
    }
}

/// The rate of a live flow by its coflow's common one.
fn common_rate(coflow: &Coflow, common: CommonRate, flow: u32, now: f64) -> f64 {
    match common {
        CommonRate::None => 0.0,
        CommonRate::Equal(rate) => rate,
        CommonRate::CompleteTogether(seconds) => coflow.remaining_bytes(flow, now) / seconds,
    }
}

/// Copies the decision into `carried`. Entries that the decision keeps from the one before were not in force. The next
/// decision may be in force directly, so the order must be the same.
fn copy(decided: &Allocation, network: &Network, carried: &mut Allocation) {
    for &slot in network.active_coflows() {
        carried.set_common(slot, decided.common(slot));
    }
    for own in decided.flow_rates() {
        carried.add_flow_rate(own.slot, own.flow, own.rate);
    }
}

/// What each live flow of a coflow gets by a decision, with those that get nothing; `own` is what its flows have on top.
fn rates<'a>(
    coflow: &'a Coflow,
    common: CommonRate,
    own: &'a [FlowRate],
    now: f64,
) -> impl Iterator<Item = (u32, f64)> + 'a {
    let mut own = own.iter().peekable();
    coflow.live_flows().map(move |flow| {
        let more = own.next_if(|own| own.flow == flow).map_or(0.0, |own| own.rate);
        (flow, common_rate(coflow, common, flow, now) + more)
    })
}
