//! The interface through which policies read the network.
//!
//! The type parameter states the knowledge of the policy: sizes are methods of [`View`] only with [`Sizes`], so a
//! policy without size knowledge cannot read sizes.

use std::marker::PhantomData;

use super::Slot;
use super::coflow::{Coflow, FlowState, PortLoad};
use super::fabric::Fabric;
use super::network::Network;

/// The knowledge of flows that a policy uses.
pub trait Knowledge: sealed::Sealed + 'static {}

/// The bytes that flows have sent, including the lengths of completed flows.
#[derive(Debug, Clone, Copy)]
pub enum Blind {}

/// The sizes of all flows from the start (clairvoyant).
#[derive(Debug, Clone, Copy)]
pub enum Sizes {}

impl Knowledge for Blind {}
impl Knowledge for Sizes {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Blind {}
    impl Sealed for super::Sizes {}
}

/// The network at one time, read with knowledge `K`. Rates are in bytes per second, times in seconds.
pub struct View<'a, K: Knowledge> {
    network: &'a mut Network,
    now: f64,
    knowledge: PhantomData<K>,
}

impl<'a, K: Knowledge> View<'a, K> {
    pub(crate) fn new(network: &'a mut Network, now: f64) -> View<'a, K> {
        View { network, now, knowledge: PhantomData }
    }

    /// The current time in seconds.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// The ports and their capacities.
    pub fn fabric(&self) -> &Fabric {
        self.network.fabric()
    }

    /// The active coflows, in order of release.
    pub fn active(&self) -> &[Slot] {
        self.network.active()
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
        let is = |c: &Coflow| c.seq == seq && (flow as usize) < c.width() && c.state(flow) == FlowState::Live;
        self.network.get(slot).is_some_and(is)
    }

    /// Bytes that a flow has sent.
    pub fn attained(&self, slot: Slot, flow: u32) -> f64 {
        self.network.attained(slot, flow, self.now)
    }

    /// Flows whose own rate the last schedule set or changed; for [`crate::policy::Policy::wake`].
    pub fn changed(&self) -> &[(Slot, u32)] {
        self.network.changed()
    }

    /// The applied rate of a flow.
    pub fn rate(&self, slot: Slot, flow: u32) -> f64 {
        self.network.rate(slot, flow)
    }

    /// Bytes that all flows of a coflow have sent, if hosts report it.
    pub fn sent(&self, slot: Slot) -> f64 {
        self.network.coflow(slot).sent(self.now)
    }
}

impl View<'_, Blind> {
    /// Bytes that all flows of a coflow have sent, including completed flows.
    pub fn total(&self, slot: Slot) -> f64 {
        self.network.total(slot, self.now)
    }

    /// The maximum number of bytes that a flow of a coflow has sent, including completed flows (Saath's m_c).
    pub fn furthest(&mut self, slot: Slot) -> f64 {
        self.network.furthest(slot, self.now)
    }

    /// The minimum number of bytes that an incomplete flow of a coflow has sent, and the rate of that flow. The flow
    /// may wait for data.
    pub fn least(&mut self, slot: Slot) -> Option<(f64, f64)> {
        self.network.least(slot, self.now)
    }
}

impl View<'_, Sizes> {
    /// Remaining bytes of a flow.
    pub fn remaining(&self, slot: Slot, flow: u32) -> f64 {
        let size = self.network.coflow(slot).flows[flow as usize].size;
        (size - self.network.attained(slot, flow, self.now)).max(0.0)
    }

    /// The size of a flow in bytes.
    pub fn size(&self, slot: Slot, flow: u32) -> f64 {
        self.network.coflow(slot).flows[flow as usize].size
    }

    /// Remaining bytes of a coflow's live flows, by sending and by receiving port.
    pub fn loads(&self, slot: Slot) -> Loads<'_> {
        let coflow = self.network.coflow(slot);
        Loads { senders: coflow.senders(), receivers: coflow.receivers(), level: coflow.level(self.now) }
    }

    /// Seconds in which the remaining bytes of a coflow's live flows complete on idle ports (Varys's Γ, the effective
    /// bottleneck). Infinite if a port of a live flow is down. O(ports of the coflow).
    pub fn bottleneck(&self, slot: Slot) -> f64 {
        let (loads, fabric) = (self.loads(slot), self.network.fabric());
        let mut time = 0.0f64;
        for (port, bytes) in loads.send() {
            time = time.max(bytes / fabric.send()[port]);
        }
        for (port, bytes) in loads.recv() {
            time = time.max(bytes / fabric.recv()[port]);
        }
        time
    }

    /// Bytes of all flows of a coflow, from its specification.
    pub fn bytes(&self, slot: Slot) -> f64 {
        self.network.coflow(slot).bytes
    }

    /// Bytes of the longest flow of a coflow, from its specification.
    pub fn longest(&self, slot: Slot) -> f64 {
        self.network.coflow(slot).longest
    }

    /// The maximum remaining bytes of a live flow of a coflow. O(flows of the coflow).
    pub fn longest_left(&self, slot: Slot) -> f64 {
        let coflow = self.network.coflow(slot);
        coflow.live_flows().map(|flow| self.remaining(slot, flow)).fold(0.0, f64::max)
    }

    /// Remaining bytes of all live flows of a coflow.
    pub fn left(&self, slot: Slot) -> f64 {
        self.loads(slot).send().map(|(_, bytes)| bytes).sum()
    }
}

/// Remaining bytes at the ports of one coflow.
#[derive(Clone, Copy)]
pub struct Loads<'a> {
    senders: &'a [PortLoad],
    receivers: &'a [PortLoad],
    level: f64,
}

impl<'a> Loads<'a> {
    /// Port and bytes that remain to be sent from it, for ports with live flows.
    #[inline]
    pub fn send(self) -> impl Iterator<Item = (usize, f64)> + 'a {
        Loads::side(self.senders, self.level)
    }

    /// Port and bytes that remain to be received at it, for ports with live flows.
    #[inline]
    pub fn recv(self) -> impl Iterator<Item = (usize, f64)> + 'a {
        Loads::side(self.receivers, self.level)
    }

    /// Bytes that remain to be received at a port; 0 without live flows there. O(log ports of the coflow).
    pub(crate) fn received_at(self, port: usize) -> f64 {
        let found = self.receivers.binary_search_by_key(&port, |load| load.port as usize);
        found.map_or(0.0, |at| self.receivers[at].weight.max(0.0) * self.level)
    }

    #[inline]
    fn side(loads: &'a [PortLoad], level: f64) -> impl Iterator<Item = (usize, f64)> + 'a {
        loads
            .iter()
            .filter(|load| load.live > 0)
            .map(move |load| (load.port as usize, load.weight.max(0.0) * level))
    }
}
