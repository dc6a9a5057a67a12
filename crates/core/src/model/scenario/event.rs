//! Checks of the cable events of a scenario.

use super::{ErrorLocation, Scenario, ScenarioError, scenario_error};
use crate::model::topology::{CableEvent, CableEventError};

impl Scenario {
    /// Maximum number of path computations: one for each connection at the start, and again after each failure or
    /// repair of cables.
    pub const MAX_PATHS: u64 = 1 << 26;

    pub(super) fn check_events(&self, connections: u64) -> Result<(), ScenarioError> {
        if self.events.len() > CableEvent::MAX_EVENTS {
            let most = format!("at most {} events", CableEvent::MAX_EVENTS);
            return Err(scenario_error(ErrorLocation::Scenario, "event", self.events.len(), most));
        }
        CableEvent::check(&self.events, &self.topology).map_err(|error| {
            let CableEventError { event, field, value, expected } = error;
            scenario_error(ErrorLocation::Event(event), field, value, expected)
        })?;
        let (mut route_computations, mut last_reroute) = (1, None);
        for (number, event) in self.events.iter().enumerate() {
            let place = ErrorLocation::Event(number);
            if event.time >= self.end {
                let expected = format!("a time before {}", self.end);
                return Err(scenario_error(place, "at", event.time, expected));
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
