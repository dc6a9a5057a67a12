//! The one trait of all policies, and the table that finds them by name.

use crate::allocation::Allocation;
use crate::model::{Blind, Knowledge, Sizes, Slot, View};

mod params;
mod saath;

pub use params::{Params, ParamsError};

/// What happened since the last schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A coflow was released; the flows whose data is there are live.
    Released(Slot),
    /// A coflow's flow became live later than its coflow.
    FlowLive(Slot, u32),
    /// A live flow lost its data for a while, or all that it had sent.
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

    /// Hears of a change. Called after it, once for each, before the next [`Policy::schedule`].
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

/// A policy of either knowledge.
pub enum AnyPolicy {
    /// Sees what was sent.
    Blind(Box<dyn Policy<Knows = Blind>>),
    /// Sees sizes.
    Sizes(Box<dyn Policy<Knows = Sizes>>),
}

/// A line of the table of policies.
pub struct Entry {
    /// The name to ask for it by.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Its parameters: `key=value` with the default, and what it means.
    pub params: &'static [(&'static str, &'static str)],
    build: fn(&mut Params) -> Result<AnyPolicy, ParamsError>,
}

/// All policies, by name.
pub const TABLE: &[Entry] = &[Entry {
    name: "saath",
    about: "all-or-none, least contention first (CoNEXT '17); sizes unknown",
    params: &[],
    build: |p| Ok(AnyPolicy::Blind(Box::new(saath::Saath::read(p)?))),
}];

/// Builds the policy that `spec` names: `name` or `name:key=value:key=value`.
///
/// # Errors
/// An unknown name, parameter or value; says what is known.
pub fn build(spec: &str) -> Result<AnyPolicy, ParamsError> {
    let mut params = Params::parse(spec)?;
    let entry = TABLE.iter().find(|e| e.name == params.name()).ok_or_else(|| ParamsError::UnknownPolicy {
        name: params.name().to_owned(),
        known: TABLE.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
    })?;
    let policy = (entry.build)(&mut params)?;
    params.finish()?;
    Ok(policy)
}
