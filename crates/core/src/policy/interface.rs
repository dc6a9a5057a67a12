//! The trait that all policies for one switch implement, and the events that they receive.

use super::error::{PolicyError, PolicyFailure};
use super::timing::Timing;
use crate::allocation::Allocation;
use crate::model::{CoflowKey, CommonRateKind, Knowledge, Network, Slot, View};

/// Wake-ups are at least this far in the future, in seconds. Rounding cannot repeat a schedule without end.
pub const MIN_WAKEUP_SECONDS: f64 = 1e-6;

/// A change since the last schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A coflow was released. Its flows whose data exists are live.
    CoflowReleased(Slot),
    /// A flow of a coflow became live after the release of the coflow.
    FlowLive(Slot, u32),
    /// A flow lost its data for a while, or lost its progress. The flow may be live or waiting.
    FlowInterrupted(Slot, u32),
    /// A flow completed.
    FlowCompleted(Slot, u32),
    /// All flows of a coflow have completed. The slot becomes vacant after this event.
    ///
    /// If some flows of the coflow have not completed, its flows are replaced, such as after the failure of a cable. Then
    /// [`Event::CoflowReleased`] follows for the same slot.
    CoflowCompleted(Slot),
    /// The capacity of a port or a trunk changed.
    CapacityChanged,
}

/// How a policy works on a network with trunks. In the order of precedence: a tree has the first value of any leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrunkSupport {
    /// The policy decides as if all ports were on one switch, and its rates are reduced where a trunk is oversubscribed.
    DecidesAtPorts,
    /// The policy decides over trunks as over ports.
    Decides,
    /// The policy leaves rates to the transport, which shares trunks too.
    Transport,
}

/// What a link needs in order to serve flows as the policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkService {
    /// The rates, queues or connections of every schedule.
    #[default]
    Decisions,
    /// The order of coflows, which stays until coflows arrive or complete: the link serves them by strict priority.
    InOrder,
    /// Nothing: the link shares its capacity max-min between all flows, as under TCP.
    MaxMin,
}

/// What a policy requires of the paths of flows between regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Routing {
    /// Parts of flows take detours through a third region ([`crate::wide_area::detour`]).
    pub detours: bool,
    /// Flows of a coflow to different ports of a region remain separate.
    pub separate_receivers: bool,
}

/// An algorithm that sets the rates of flows, or assigns flows to queues and leaves the rates to the transport.
///
/// A policy is deterministic and has no clock: the same calls in the same order return the same results.
pub trait Policy: Send {
    /// The knowledge of flows that the policy's views give.
    type Knowledge: Knowledge;

    /// What sets the rates of flows over trunks.
    fn trunk_support(&self) -> TrunkSupport {
        TrunkSupport::Decides
    }

    /// What a link needs in order to serve flows as the policy decides. Policy trees and relays accept policies by it.
    fn link_service(&self) -> LinkService {
        LinkService::Decisions
    }

    /// The paths that the policy requires between regions.
    fn routing(&self) -> Routing {
        Routing::default()
    }

    /// What happens at once, and what waits for the next multiple of the interval.
    fn timing(&self) -> Timing {
        Timing::central("a coordinator sets the rates of all flows")
    }

    /// Whether decisions depend on this key of coflows.
    fn uses(&self, key: CoflowKey) -> bool {
        let _ = key;
        false
    }

    /// Receives one change. Called once after each change, before the next [`Policy::schedule`] or [`Policy::reassign`].
    fn on_event(&mut self, event: Event, view: &mut View<'_, Self::Knowledge>) {
        let _ = (event, view);
    }

    /// Computes the allocation. The caller clears `out` before the call, except for its queues.
    fn schedule(&mut self, view: &mut View<'_, Self::Knowledge>, out: &mut Allocation);

    /// Reassigns capacity between two schedules, as hosts and switches do without the coordinator: queues, orders, weights and
    /// connections stay. Called only if [`Policy::timing`] lets something happen at once; `out` as in [`Policy::schedule`].
    fn reassign(&mut self, view: &mut View<'_, Self::Knowledge>, out: &mut Allocation) {
        self.schedule(view, out);
    }

    /// The latest time of the next schedule, in seconds, if no event occurs before; infinite if none is needed.
    ///
    /// The returned time is after [`View::now`]. It may be too early, but never too late. Called after each schedule, when the rates of the
    /// schedule apply.
    fn next_wakeup(&mut self, view: &mut View<'_, Self::Knowledge>, allocation: &Allocation) -> f64 {
        let _ = (view, allocation);
        f64::INFINITY
    }

    /// Why the policy cannot decide any more, such as an error of a program that decides for it. Called after every other call if the
    /// policy is checked ([`AnyPolicy::checked`](super::AnyPolicy::checked)), whose next schedule then fails.
    fn failure(&self) -> Option<PolicyFailure> {
        None
    }
}

/// Who decides: the coordinator, or hosts and switches between two schedules of the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy {
    /// The coordinator.
    Coordinator,
    /// Hosts and switches.
    Hosts,
}

/// A [`Policy`] behind a type that does not name its knowledge: the methods create the [`View`] of that knowledge.
pub trait PolicyObject: Send {
    /// How common rates are counted, by the knowledge of sizes.
    fn common_rate_kind(&self) -> CommonRateKind;

    /// See [`Policy::trunk_support`].
    fn trunk_support(&self) -> TrunkSupport;

    /// See [`Policy::link_service`].
    fn link_service(&self) -> LinkService;

    /// See [`Policy::routing`].
    fn routing(&self) -> Routing;

    /// See [`Policy::timing`].
    fn timing(&self) -> Timing;

    /// See [`Policy::uses`].
    fn uses(&self, key: CoflowKey) -> bool;

    /// See [`Policy::on_event`].
    fn on_event(&mut self, event: Event, network: &mut Network, now: f64);

    /// [`Policy::schedule`] or [`Policy::reassign`].
    fn decide(&mut self, by: DecidedBy, network: &mut Network, now: f64, out: &mut Allocation);

    /// See [`Policy::next_wakeup`].
    fn next_wakeup(&mut self, network: &mut Network, now: f64, allocation: &Allocation) -> f64;

    /// See [`Policy::failure`].
    fn failure(&self) -> Option<PolicyFailure>;

    /// The first invalid decision, if the policy is checked; see [`AnyPolicy::checked`](super::AnyPolicy::checked).
    fn error(&self) -> Option<&PolicyError> {
        None
    }
}

impl<P: Policy> PolicyObject for P {
    fn common_rate_kind(&self) -> CommonRateKind {
        P::Knowledge::COMMON_RATE_KIND
    }

    fn trunk_support(&self) -> TrunkSupport {
        Policy::trunk_support(self)
    }

    fn link_service(&self) -> LinkService {
        Policy::link_service(self)
    }

    fn routing(&self) -> Routing {
        Policy::routing(self)
    }

    fn timing(&self) -> Timing {
        Policy::timing(self)
    }

    fn uses(&self, key: CoflowKey) -> bool {
        Policy::uses(self, key)
    }

    fn on_event(&mut self, event: Event, network: &mut Network, now: f64) {
        Policy::on_event(self, event, &mut View::new(network, now));
    }

    fn decide(&mut self, by: DecidedBy, network: &mut Network, now: f64, out: &mut Allocation) {
        let view = &mut View::new(network, now);
        match by {
            DecidedBy::Coordinator => self.schedule(view, out),
            DecidedBy::Hosts => self.reassign(view, out),
        }
    }

    fn next_wakeup(&mut self, network: &mut Network, now: f64, allocation: &Allocation) -> f64 {
        Policy::next_wakeup(self, &mut View::new(network, now), allocation)
    }

    fn failure(&self) -> Option<PolicyFailure> {
        Policy::failure(self)
    }
}
