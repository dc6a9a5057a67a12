//! The trait of all policies for one switch, and the events that they receive.

use crate::allocation::Allocation;
use crate::model::{Knowledge, Slot, View};

/// What happened since the last schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A coflow was released; the flows whose data is there are live.
    Released(Slot),
    /// A coflow's flow became live later than its coflow.
    FlowLive(Slot, u32),
    /// A flow lost its data for a while, or, live or not, all that it had sent.
    FlowHeld(Slot, u32),
    /// A flow ended.
    FlowDone(Slot, u32),
    /// All flows of a coflow are done: its slot is about to be vacant.
    Done(Slot),
    /// The capacity of a port changed.
    PortChanged,
}

/// Decides who gets how much.
///
/// A policy has no clock and no randomness of its own: the same events and questions in the same order get
/// the same answers.
pub trait Policy: Send {
    /// What it knows of flows.
    type Knows: Knowledge;

    /// Receives a change. Called once after each change, before the next [`Policy::schedule`].
    fn on(&mut self, event: Event, view: &mut View<'_, Self::Knows>) {
        let _ = (event, view);
    }

    /// Fills in the allocation, which was cleared (queues stay from one to the next).
    fn schedule(&mut self, view: &mut View<'_, Self::Knows>, out: &mut Allocation);

    /// The time at which to ask for the next schedule even if nothing happens; infinite if never. May be too early,
    /// not too late. Called after each schedule, with its rates in force.
    fn wake(&mut self, view: &mut View<'_, Self::Knows>, allocation: &Allocation) -> f64 {
        let _ = (view, allocation);
        f64::INFINITY
    }
}
