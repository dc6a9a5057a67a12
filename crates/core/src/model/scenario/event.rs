//! Failures, repairs and rate changes of cables at fixed times.

use std::collections::BTreeSet;

use super::{ErrorLocation, Scenario, ScenarioError, scenario_error};
use crate::model::topology::{LinkId, Topology};
use crate::units::{Rate, Time};

/// The new state of a cable, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CableChange {
    /// The cable fails. Its connections take another path, if one exists.
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

impl Scenario {
    /// Maximum number of events.
    pub const MAX_EVENTS: usize = 1_000;

    /// Maximum number of path computations: one for each connection at the start, and again after each failure or
    /// repair of cables.
    pub const MAX_PATHS: u64 = 1 << 26;

    pub(super) fn check_events(&self, connections: u64) -> Result<(), ScenarioError> {
        if self.events.len() > Scenario::MAX_EVENTS {
            let most = format!("at most {} events", Scenario::MAX_EVENTS);
            return Err(scenario_error(ErrorLocation::Scenario, "event", self.events.len(), most));
        }
        let mut down = BTreeSet::new();
        let mut last = Time::ZERO;
        let (mut route_computations, mut last_reroute) = (1, None);
        for (number, event) in self.events.iter().enumerate() {
            let place = ErrorLocation::Event(number);
            let cable = event.cable.0 / 2;
            if event.cable.index() >= self.topology.links().len() {
                return Err(scenario_error(place, "cable", event.cable.0, "a cable of the fabric"));
            }
            if event.time < last || event.time >= self.end {
                let expected = format!("events in order, from {last} on and before {}", self.end);
                return Err(scenario_error(place, "at", event.time, expected));
            }
            last = event.time;
            let fits = match event.change {
                CableChange::Down => down.insert(cable),
                CableChange::Up => down.remove(&cable),
                CableChange::Rate(rate) => {
                    if !(Topology::MIN_RATE..=Topology::MAX_RATE).contains(&rate) {
                        let expected = format!("{} to {}", Topology::MIN_RATE, Topology::MAX_RATE);
                        return Err(scenario_error(place, "rate", rate, expected));
                    }
                    true
                }
            };
            if !fits {
                let other = if event.change == CableChange::Down { "up" } else { "down" };
                let expected = format!("a cable that is {other} at that time");
                return Err(scenario_error(place, "change", event.change.name(), expected));
            }
            if event.change.changes_routes() && last_reroute != Some(event.time) {
                (route_computations, last_reroute) = (route_computations + 1, Some(event.time));
                if connections.saturating_mul(route_computations) > Scenario::MAX_PATHS {
                    let expected = format!(
                        "at most {} path computations: {connections} for each time at which cables fail or are repaired",
                        Scenario::MAX_PATHS
                    );
                    return Err(scenario_error(place, "change", event.change.name(), expected));
                }
            }
        }
        Ok(())
    }
}
