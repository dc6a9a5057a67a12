//! The interface through which policies read the network.
//!
//! The type parameter states the knowledge of the policy: sizes are methods of [`View`] only with [`SizesKnown`], so a
//! policy without size knowledge cannot read sizes.

use std::marker::PhantomData;

use super::Slot;
use super::coflow::{Coflow, CommonRateKind, FlowState, LinkLoad};
use super::fabric::Fabric;
use super::link_history::LinkHistory;
use super::network::Network;

/// The knowledge of flows that a policy uses.
pub trait Knowledge: sealed::Sealed + 'static {
    /// How common rates are counted.
    const COMMON_RATE_KIND: CommonRateKind;
}

/// The bytes that flows have sent, including the lengths of completed flows.
#[derive(Debug, Clone, Copy)]
pub enum SizesUnknown {}

/// The bytes that flows have sent, as with [`SizesUnknown`], and the sizes that the policy itself estimated.
#[derive(Debug, Clone, Copy)]
pub enum SizesEstimated {}

/// The sizes of all flows from the start (clairvoyant).
#[derive(Debug, Clone, Copy)]
pub enum SizesKnown {}

impl Knowledge for SizesUnknown {
    const COMMON_RATE_KIND: CommonRateKind = CommonRateKind::EqualRates;
}

impl Knowledge for SizesEstimated {
    const COMMON_RATE_KIND: CommonRateKind = CommonRateKind::EstimatedRates;
}

impl Knowledge for SizesKnown {
    const COMMON_RATE_KIND: CommonRateKind = CommonRateKind::ProportionalRates;
}

/// Knowledge of remaining bytes, actual or estimated.
pub trait SizesOrEstimates: Knowledge {}

impl SizesOrEstimates for SizesEstimated {}
impl SizesOrEstimates for SizesKnown {}

/// Knowledge of the bytes that all flows of a coflow have sent. With estimated sizes, the total is not exact.
pub trait TotalsKnown: Knowledge {}

impl TotalsKnown for SizesUnknown {}
impl TotalsKnown for SizesKnown {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::SizesUnknown {}
    impl Sealed for super::SizesEstimated {}
    impl Sealed for super::SizesKnown {}
}

/// The network at one time, read with knowledge `K`. Rates are in bytes per second, times in seconds.
pub struct View<'a, K: Knowledge> {
    network: &'a mut Network,
    now: f64,
    knowledge: PhantomData<K>,
}

/// A network that was moved out of a [`View`], with the same knowledge: see [`View::lend`].
pub struct LentNetwork<K: Knowledge> {
    network: Network,
    now: f64,
    knowledge: PhantomData<K>,
}

impl<K: Knowledge> LentNetwork<K> {
    /// The view of the network.
    pub fn view(&mut self) -> View<'_, K> {
        View::new(&mut self.network, self.now)
    }
}

impl<'a, K: Knowledge> View<'a, K> {
    pub(crate) fn new(network: &'a mut Network, now: f64) -> View<'a, K> {
        View { network, now, knowledge: PhantomData }
    }

    /// Moves the network out of the view, for a policy that calls a program which cannot borrow it, such as an interpreter. The view is
    /// that of an empty network until [`View::restore`], which has to follow before the policy returns. O(1).
    pub fn lend(&mut self) -> LentNetwork<K> {
        let network = std::mem::replace(self.network, Network::empty());
        LentNetwork { network, now: self.now, knowledge: PhantomData }
    }

    /// Moves the network of [`View::lend`] back.
    pub fn restore(&mut self, lent: LentNetwork<K>) {
        *self.network = lent.network;
    }

    /// The current time in seconds.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// The minimum time between schedules, in seconds; 0: a schedule at every change.
    pub fn interval(&self) -> f64 {
        self.network.interval()
    }

    /// Whether hosts have served a coflow since the last schedule: see [`Timing`](crate::policy::Timing).
    pub fn was_served_by_hosts(&self, slot: Slot) -> bool {
        self.network.was_served_by_hosts(slot)
    }

    /// The ports and their capacities.
    pub fn fabric(&self) -> &Fabric {
        self.network.fabric()
    }

    /// Past measurements of the links from `Fabric::first_limiting_link` on; their capacities at the start if nothing was measured.
    pub fn link_history(&self) -> &LinkHistory {
        self.network.link_history()
    }

    /// The part of a link's capacity that the deciding leaf of a policy tree has; 1 without a tree.
    pub(crate) fn link_fraction(&self, link: usize) -> f64 {
        self.network.link_fraction(link)
    }

    /// The active coflows, in order of release.
    pub fn active_coflows(&self) -> &[Slot] {
        self.network.active_coflows()
    }

    /// Number of slots: one more than the highest slot that was ever in use.
    pub fn slots(&self) -> usize {
        self.network.slots()
    }

    /// An active coflow.
    pub fn coflow(&self, slot: Slot) -> &Coflow {
        self.network.coflow(slot)
    }

    /// Whether a flow of the coflow with release number `seq` is live. The slot may hold another coflow, and the
    /// coflow fewer flows.
    pub fn is_live(&self, slot: Slot, seq: u64, flow: u32) -> bool {
        let is =
            |c: &Coflow| c.seq == seq && (flow as usize) < c.width() && c.flow_state(flow) == FlowState::Live;
        self.network.get(slot).is_some_and(is)
    }

    /// Bytes that a flow has sent.
    pub fn sent_bytes(&self, slot: Slot, flow: u32) -> f64 {
        self.network.sent_bytes(slot, flow, self.now)
    }

    /// Flows whose own rate the last schedule set or changed; for [`crate::policy::Policy::next_wakeup`].
    pub fn changed_flows(&self) -> &[(Slot, u32)] {
        self.network.changed_flows()
    }

    /// The applied rate of a flow.
    pub fn rate(&self, slot: Slot, flow: u32) -> f64 {
        self.network.rate(slot, flow)
    }

    /// Writes the total applied rate of each coflow to `rates`, by slot, in bytes per second; for
    /// [`crate::policy::Policy::next_wakeup`]. O(slots + flows with own rates + senders of all coflows).
    pub fn coflow_rates(&self, rates: &mut Vec<f64>) {
        self.network.coflow_rates(rates);
    }

    /// Bytes that all flows of a coflow have sent, if hosts report it.
    pub fn reported_sent_bytes(&self, slot: Slot) -> f64 {
        self.network.coflow(slot).reported_sent_bytes(self.now)
    }
}

impl<K: TotalsKnown> View<'_, K> {
    /// Bytes that all flows of a coflow have sent, including completed flows. O(flows with own rates) if sizes are unknown; otherwise
    /// O(senders of the coflow) in a schedule, and O(flows of the coflow) while one of them waits for data.
    pub fn total_sent_bytes(&self, slot: Slot) -> f64 {
        self.network.total_sent_bytes(slot, self.now)
    }
}

impl View<'_, SizesUnknown> {
    /// The maximum number of bytes that a flow of a coflow has sent, including completed flows (Saath's m_c).
    pub fn max_sent_bytes(&mut self, slot: Slot) -> f64 {
        self.network.max_sent_bytes(slot, self.now)
    }

    /// The minimum number of bytes that an incomplete flow of a coflow has sent, and the rate of that flow. The flow
    /// may wait for data.
    pub fn min_sent_bytes(&mut self, slot: Slot) -> Option<(f64, f64)> {
        self.network.min_sent_bytes(slot, self.now)
    }
}

impl<K: SizesOrEstimates> View<'_, K> {
    /// Remaining bytes of a coflow's live flows, by link.
    pub fn remaining_loads(&self, slot: Slot) -> RemainingLoads<'_> {
        self.network.coflow(slot).remaining_loads(self.now)
    }

    /// Seconds in which the remaining bytes of a coflow's live flows complete on idle links (Varys's Γ, the effective
    /// bottleneck). Infinite if a link of a live flow is down. O(links of the coflow).
    pub fn effective_bottleneck(&self, slot: Slot) -> f64 {
        let (loads, fabric) = (self.remaining_loads(slot), self.network.fabric());
        match fabric.common_capacity() {
            Some(capacity) => loads.max_bytes() / capacity,
            None => longest_seconds(loads.by_link(), fabric.capacities()),
        }
    }
}

impl View<'_, SizesEstimated> {
    /// Sets the estimated sizes of a coflow's live flows, in a schedule.
    ///
    /// `estimate` receives a flow, the position of its receiving port in [`Coflow::receivers`], and the bytes that the flow has
    /// sent. It returns a size above these bytes; with any other result, the flow has outgrown its estimate. Before the first call, all
    /// flows of the coflow have one estimate, [`Fabric::default_estimate`]. O(live flows of the coflow).
    pub fn set_estimates(&mut self, slot: Slot, estimate: impl FnMut(u32, u32, f64) -> f64) {
        self.network.set_estimates(slot, self.now, estimate);
    }

    /// Sets the estimated sizes of those live flows of a coflow that have sent their whole estimates, in a schedule. `estimate` is as for
    /// [`View::set_estimates`]. O(1) without such flows; at worst O(live flows of the coflow).
    pub fn raise_estimates(&mut self, slot: Slot, estimate: impl FnMut(u32, u32, f64) -> f64) {
        self.network.raise_estimates(slot, self.now, estimate);
    }

    /// Whether a flow of a coflow may have sent its whole estimate, in a schedule. Such a flow has no rate in
    /// [`crate::allocation::CommonRate::CompleteTogether`], so raise its estimate before MADD.
    pub fn has_outgrown_flows(&self, slot: Slot) -> bool {
        self.network.coflow(slot).has_outgrown_flows(self.now)
    }

    /// The time at which the flows of a coflow without own rates have sent their whole estimates at the common rate, in seconds;
    /// infinite if the coflow has no common rate.
    pub fn estimates_end_at(&self, slot: Slot) -> f64 {
        self.network.coflow(slot).estimates_end_at()
    }

    /// The time until the first of these flows of a coflow has sent its estimate at its present rate, in seconds; for
    /// [`crate::policy::Policy::next_wakeup`]. Infinite if none of them sends.
    pub fn time_to_estimated_end(&self, slot: Slot, flows: impl Iterator<Item = u32>) -> f64 {
        self.network.time_to_estimated_end(slot, flows, self.now)
    }
}

impl View<'_, SizesKnown> {
    /// Remaining bytes of a flow.
    pub fn remaining_bytes(&self, slot: Slot, flow: u32) -> f64 {
        let size = self.network.coflow(slot).flows[flow as usize].size;
        (size - self.network.sent_bytes(slot, flow, self.now)).max(0.0)
    }

    /// The size of a flow in bytes.
    pub fn flow_size(&self, slot: Slot, flow: u32) -> f64 {
        self.network.coflow(slot).flows[flow as usize].size
    }

    /// Bytes of all flows of a coflow, from its specification.
    pub fn total_bytes(&self, slot: Slot) -> f64 {
        self.network.coflow(slot).total_bytes
    }

    /// Bytes of the longest flow of a coflow, from its specification.
    pub fn longest_flow_bytes(&self, slot: Slot) -> f64 {
        self.network.coflow(slot).longest_flow_bytes
    }

    /// The maximum remaining bytes of a live flow of a coflow. O(flows of the coflow).
    pub fn max_remaining_bytes(&self, slot: Slot) -> f64 {
        let coflow = self.network.coflow(slot);
        coflow.live_flows().map(|flow| self.remaining_bytes(slot, flow)).fold(0.0, f64::max)
    }

    /// Remaining bytes of all live flows of a coflow.
    pub fn total_remaining_bytes(&self, slot: Slot) -> f64 {
        let loads = self.remaining_loads(slot);
        self.network.coflow(slot).senders().iter().map(|load| loads.of(load)).sum()
    }
}

impl Coflow {
    /// Remaining bytes of the live flows by link, actual or estimated. Not with equal rates.
    pub(crate) fn remaining_loads(&self, now: f64) -> RemainingLoads<'_> {
        RemainingLoads { links: self.links(), share: self.remaining_share(now) }
    }
}

/// The maximum of the times in which links carry these bytes.
///
/// Links of the same capacity in a row need one division: that of their maximum.
#[inline]
fn longest_seconds(loads: impl Iterator<Item = (usize, f64)>, capacities: &[f64]) -> f64 {
    let (mut seconds, mut max_bytes, mut capacity) = (0.0f64, 0.0f64, f64::INFINITY);
    for (link, bytes) in loads {
        if capacities[link] != capacity {
            seconds = seconds.max(max_bytes / capacity);
            (max_bytes, capacity) = (bytes, capacities[link]);
        } else {
            max_bytes = max_bytes.max(bytes);
        }
    }
    seconds.max(max_bytes / capacity)
}

/// Remaining bytes at the links of one coflow.
#[derive(Clone, Copy)]
pub struct RemainingLoads<'a> {
    links: &'a [LinkLoad],
    /// The remaining share of the bases.
    share: f64,
}

impl<'a> RemainingLoads<'a> {
    /// Link and remaining bytes, for links with live flows.
    #[inline]
    pub fn by_link(self) -> impl Iterator<Item = (usize, f64)> + 'a {
        let live = self.links.iter().filter(|load| load.live_flow_count > 0);
        live.map(move |load| (load.link as usize, self.of(load)))
    }

    /// The maximum over the links. O(links), in four independent lanes.
    fn max_bytes(self) -> f64 {
        let mut max = [0.0; 4];
        let higher = |a: f64, b: f64| if a > b { a } else { b };
        let fours = self.links.chunks_exact(4);
        // Without live flows, the sum is 0.
        let rest = fours.remainder().iter().map(|load| load.base_sum).fold(0.0, higher);
        for four in fours {
            (0..4).for_each(|lane| max[lane] = higher(max[lane], four[lane].base_sum));
        }
        max.into_iter().fold(rest, higher) * self.share
    }

    /// Bytes that remain to cross a link of the coflow.
    #[inline]
    pub fn of(self, load: &LinkLoad) -> f64 {
        load.base_sum.max(0.0) * self.share
    }
}
