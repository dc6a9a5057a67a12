//! What a policy is shown. Knowledge is a type: sizes are there for policies that know them, and for a
//! policy that does not they are no part of what it was given.

use std::marker::PhantomData;

use super::Slot;
use super::coflow::{Coflow, FlowState, PortLoad};
use super::fabric::Fabric;
use super::network::Network;

/// How much a policy knows of flows.
pub trait Knowledge: sealed::Sealed + 'static {}

/// Knows what flows have sent, and how long those were that are done.
#[derive(Debug, Clone, Copy)]
pub enum Blind {}

/// Knows the sizes of all flows from the start (clairvoyant).
#[derive(Debug, Clone, Copy)]
pub enum Sizes {}

impl Knowledge for Blind {}
impl Knowledge for Sizes {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Blind {}
    impl Sealed for super::Sizes {}
}

/// The network at one moment, as seen with knowledge `K`. Rates are in bytes per second, times in seconds.
pub struct View<'a, K: Knowledge> {
    network: &'a mut Network,
    now: f64,
    knowledge: PhantomData<K>,
}

impl<'a, K: Knowledge> View<'a, K> {
    pub(crate) fn new(network: &'a mut Network, now: f64) -> View<'a, K> {
        View { network, now, knowledge: PhantomData }
    }

    /// The moment.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// The ports.
    pub fn fabric(&self) -> &Fabric {
        self.network.fabric()
    }

    /// The coflows under way, in order of release.
    pub fn active(&self) -> &[Slot] {
        self.network.active()
    }

    /// One more than the highest slot in use.
    pub fn slots(&self) -> usize {
        self.network.slots()
    }

    /// A coflow under way.
    pub fn coflow(&self, slot: Slot) -> &Coflow {
        self.network.coflow(slot)
    }

    /// Whether a flow of the coflow released as number `seq` is live; the slot may hold another coflow by now, and the
    /// coflow fewer flows.
    pub fn is_live(&self, slot: Slot, seq: u64, flow: u32) -> bool {
        let is = |c: &Coflow| c.seq == seq && (flow as usize) < c.width() && c.state(flow) == FlowState::Live;
        self.network.get(slot).is_some_and(is)
    }

    /// Bytes a flow has sent.
    pub fn attained(&self, slot: Slot, flow: u32) -> f64 {
        self.network.attained(slot, flow, self.now)
    }

    /// The flows whose own rate the last schedule set or changed; for [`crate::policy::Policy::wake`].
    pub fn changed(&self) -> &[(Slot, u32)] {
        self.network.changed()
    }

    /// The rate in force of a flow.
    pub fn rate(&self, slot: Slot, flow: u32) -> f64 {
        self.network.rate(slot, flow)
    }

    /// Bytes all flows of a coflow have sent, where the hosts report that.
    pub fn sent(&self, slot: Slot) -> f64 {
        self.network.coflow(slot).sent(self.now)
    }
}

impl View<'_, Blind> {
    /// Bytes that all flows of a coflow have sent, done or not.
    pub fn total(&self, slot: Slot) -> f64 {
        self.network.total(slot, self.now)
    }

    /// The most that any flow of a coflow has sent, done or not (Saath's m_c), in bytes.
    pub fn furthest(&mut self, slot: Slot) -> f64 {
        self.network.furthest(slot, self.now)
    }

    /// The least that any flow of a coflow has sent that is not done, in bytes, and the rate at which it sends; its data may
    /// not be there.
    pub fn least(&mut self, slot: Slot) -> Option<(f64, f64)> {
        self.network.least(slot, self.now)
    }
}

impl View<'_, Sizes> {
    /// Bytes that a flow has left.
    pub fn remaining(&self, slot: Slot, flow: u32) -> f64 {
        let size = self.network.coflow(slot).flows[flow as usize].size;
        (size - self.network.attained(slot, flow, self.now)).max(0.0)
    }

    /// The size of a flow in bytes.
    pub fn size(&self, slot: Slot, flow: u32) -> f64 {
        self.network.coflow(slot).flows[flow as usize].size
    }

    /// What a coflow's live flows have left, by sending and by receiving port.
    pub fn loads(&self, slot: Slot) -> Loads<'_> {
        let coflow = self.network.coflow(slot);
        Loads { senders: coflow.senders(), receivers: coflow.receivers(), level: coflow.level(self.now) }
    }

    /// The time in which what a coflow's live flows have left ends on idle ports, in seconds (Varys's Γ, the effective
    /// bottleneck); infinite if a port it needs is down. O(ports of the coflow).
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

    /// The most that a live flow of a coflow has left, in bytes. O(flows of the coflow).
    pub fn longest_left(&self, slot: Slot) -> f64 {
        let coflow = self.network.coflow(slot);
        coflow.live_flows().map(|flow| self.remaining(slot, flow)).fold(0.0, f64::max)
    }

    /// Bytes that all live flows of a coflow have left.
    pub fn left(&self, slot: Slot) -> f64 {
        self.loads(slot).send().map(|(_, bytes)| bytes).sum()
    }
}

/// Bytes left at the ports of one coflow.
#[derive(Clone, Copy)]
pub struct Loads<'a> {
    senders: &'a [PortLoad],
    receivers: &'a [PortLoad],
    level: f64,
}

impl<'a> Loads<'a> {
    /// Port and bytes left to send there, for ports with live flows.
    #[inline]
    pub fn send(self) -> impl Iterator<Item = (usize, f64)> + 'a {
        Loads::side(self.senders, self.level)
    }

    /// Port and bytes left to receive there, for ports with live flows.
    #[inline]
    pub fn recv(self) -> impl Iterator<Item = (usize, f64)> + 'a {
        Loads::side(self.receivers, self.level)
    }

    /// Bytes left to receive at a port; none without live flows there. O(log ports of the coflow).
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
