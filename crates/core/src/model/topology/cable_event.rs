//! Failures, repairs and rate changes of cables at fixed times.

use std::collections::BTreeSet;

use super::{LinkId, Topology};
use crate::units::{Rate, Time};

/// The new state of a cable, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CableChange {
    /// The cable fails. Its flows take another path, if one exists.
    Down,
    /// The cable is repaired.
    Up,
    /// The rate changes now, or when the cable is repaired.
    Rate(Rate),
}

impl CableChange {
    /// Name of the change.
    pub fn name(self) -> &'static str {
        match self {
            CableChange::Down => "down",
            CableChange::Up => "up",
            CableChange::Rate(_) => "rate",
        }
    }

    /// Whether the change affects which links are up.
    pub fn changes_routes(self) -> bool {
        !matches!(self, CableChange::Rate(_))
    }
}

/// A change of a cable at a fixed time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CableEvent {
    /// Time of the change.
    pub time: Time,
    /// One of the cable's two links.
    pub cable: LinkId,
    /// The change of both links.
    pub change: CableChange,
}

/// Why an event is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CableEventError {
    /// The position of the event.
    pub event: usize,
    /// The field.
    pub field: &'static str,
    /// The rejected value.
    pub value: String,
    /// The accepted values.
    pub expected: String,
}

impl CableEvent {
    /// Maximum number of events of a network.
    pub const MAX_EVENTS: usize = 1_000;

    /// Checks events of the cables of `topology`: they are in order, and a cable fails only if it is up.
    ///
    /// # Errors
    /// The first invalid event.
    pub fn check(events: &[CableEvent], topology: &Topology) -> Result<(), CableEventError> {
        let mut down = BTreeSet::new();
        let mut last = Time::ZERO;
        for (number, event) in events.iter().enumerate() {
            let refuse = |field, value: String, expected: String| {
                Err(CableEventError { event: number, field, value, expected })
            };
            let cable = event.cable.0 / 2;
            if event.cable.index() >= topology.links().len() {
                return refuse("cable", event.cable.0.to_string(), "a cable of the fabric".to_owned());
            }
            if event.time < last {
                return refuse("at", event.time.to_string(), format!("events in order, from {last} on"));
            }
            last = event.time;
            let fits = match event.change {
                CableChange::Down => down.insert(cable),
                CableChange::Up => down.remove(&cable),
                CableChange::Rate(rate) => {
                    if !(Topology::MIN_RATE..=Topology::MAX_RATE).contains(&rate) {
                        let expected = format!("{} to {}", Topology::MIN_RATE, Topology::MAX_RATE);
                        return refuse("rate", rate.to_string(), expected);
                    }
                    true
                }
            };
            if !fits {
                let other = if event.change == CableChange::Down { "up" } else { "down" };
                let expected = format!("a cable that is {other} at that time");
                return refuse("change", event.change.name().to_owned(), expected);
            }
        }
        Ok(())
    }
}
