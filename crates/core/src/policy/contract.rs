//! The trait of all policies for one switch, and the events that they receive.

use crate::allocation::Allocation;
use crate::model::{Knowledge, Slot, View};

/// A change since the last schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A coflow was released; its flows whose data exists are live.
    Released(Slot),
    /// A coflow's flow became live later than its coflow.
    FlowLive(Slot, u32),
    /// A flow lost its data for a while, or the progress that it had made, whether it is live or not.
    FlowHeld(Slot, u32),
    /// A flow ended.
    FlowDone(Slot, u32),
    /// All flows of a coflow are done: its slot is about to be vacant.
    Done(Slot),
    /// The capacity of a port changed.
    PortChanged,
}

/// Decides which flows get which rates, or leaves rates to queues.
///
/// A policy is deterministic and has no clock: the same calls in the same order return the same results.
pub trait Policy: Send {
    /// The knowledge of flows that its views have.
    type Knows: Knowledge;

    /// Receives a change. Called once after each change, before the next [`Policy::schedule`].
    fn on(&mut self, event: Event, view: &mut View<'_, Self::Knows>) {
        let _ = (event, view);
    }

    /// Fills in the allocation, which was cleared except for its queues.
    fn schedule(&mut self, view: &mut View<'_, Self::Knows>, out: &mut Allocation);

    /// The time of the next schedule if there is no event before; infinite if none is needed. May be early, not late. Called
    /// after each schedule, with its rates in force.
    fn wake(&mut self, view: &mut View<'_, Self::Knows>, allocation: &Allocation) -> f64 {
        let _ = (view, allocation);
        f64::INFINITY
    }
}
