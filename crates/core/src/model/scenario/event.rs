//! Failures, repairs and rate changes of cables at fixed times.

use std::collections::BTreeSet;

use super::{Place, Scenario, ScenarioError, wrong};
use crate::model::topology::{LinkId, Topology};
use crate::units::{Rate, Time};

/// The new state of a cable, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The cable fails. Its connections take another path, if one exists.
    Down,
    /// The cable is repaired.
    Up,
    /// The rate changes now, or when the cable is repaired.
    Rate(Rate),
}

impl Change {
    /// Name of the change.
    pub fn name(self) -> &'static str {
        match self {
            Change::Down => "down",
            Change::Up => "up",
            Change::Rate(_) => "rate",
        }
    }

    /// Whether the change affects which links are up.
    pub fn reroutes(self) -> bool {
        !matches!(self, Change::Rate(_))
    }
}

/// A change of a cable at a fixed time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// Time of the change.
    pub at: Time,
    /// One of the cable's two links.
    pub cable: LinkId,
    /// The change of both links.
    pub change: Change,
}

impl Scenario {
    /// Maximum number of events.
    pub const MAX_EVENTS: usize = 1_000;

    /// Maximum number of path computations: one for each connection at the start, and again after each failure or
    /// repair of cables.
    pub const MAX_PATHS: u64 = 1 << 26;

    pub(super) fn check_events(&self, connections: u64) -> Result<(), ScenarioError> {
        if self.events.len() > Scenario::MAX_EVENTS {
            let most = format!("at most {} events", Scenario::MAX_EVENTS);
            return Err(wrong(Place::Scenario, "event", self.events.len(), most));
        }
        let mut down = BTreeSet::new();
        let mut last = Time::ZERO;
        let (mut times, mut rerouted) = (1, None);
        for (number, event) in self.events.iter().enumerate() {
            let place = Place::Event(number);
            let cable = event.cable.0 / 2;
            if event.cable.index() >= self.topology.links().len() {
                return Err(wrong(place, "cable", event.cable.0, "a cable of the fabric"));
            }
            if event.at < last || event.at >= self.end {
                let expected = format!("events in order, from {last} on and before {}", self.end);
                return Err(wrong(place, "at", event.at, expected));
            }
            last = event.at;
            let fits = match event.change {
                Change::Down => down.insert(cable),
                Change::Up => down.remove(&cable),
                Change::Rate(rate) => {
                    if !(Topology::MIN_RATE..=Topology::MAX_RATE).contains(&rate) {
                        let expected = format!("{} to {}", Topology::MIN_RATE, Topology::MAX_RATE);
                        return Err(wrong(place, "rate", rate, expected));
                    }
                    true
                }
            };
            if !fits {
                let other = if event.change == Change::Down { "up" } else { "down" };
                let expected = format!("a cable that is {other} by then");
                return Err(wrong(place, "change", event.change.name(), expected));
            }
            if event.change.reroutes() && rerouted != Some(event.at) {
                (times, rerouted) = (times + 1, Some(event.at));
                if connections.saturating_mul(times) > Scenario::MAX_PATHS {
                    let expected = format!(
                        "at most {} paths looked for, {connections} each time that cables go down or come up",
                        Scenario::MAX_PATHS
                    );
                    return Err(wrong(place, "change", event.change.name(), expected));
                }
            }
        }
        Ok(())
    }
}
