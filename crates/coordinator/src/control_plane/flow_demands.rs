//! Limits flows whose programs write less than the rate of the flow, so that others get the rest.

use weir_core::model::Slot;

use super::schedule::MIN_RATE_FRACTION;
use super::{ControlPlane, Flow, NetworkLinks, Settings};

/// How much more than its demand a limited flow gets, so that its program can write more: a tenth, as in NetShare (section 3.3).
const GROWTH_FRACTION: f64 = 0.1;

/// The least that it gets in addition, as a fraction of its slowest link: with a very low rate, packets would wait for each other.
const MIN_GROWTH: f64 = 0.005;

impl Flow {
    /// The rate that the flow gets at most, in bytes of payload per second, if its program writes less than it may.
    pub(super) fn max_rate(&self, links: &NetworkLinks, settings: &Settings) -> Option<f64> {
        let demand = self.demand? as f64;
        let (src, dst) = (self.transfer.src as usize, self.transfer.dst as usize);
        let slowest = links.hosts[src].send.get().min(links.hosts[dst].recv.get());
        // A flow with a lower rate shares the reserve, or is paused.
        let slow_fraction = MIN_RATE_FRACTION * settings.budget.reserve_fraction(settings.reserve);
        let min_growth = slowest * MIN_GROWTH.max(2.0 * slow_fraction);
        let max_rate = demand + (GROWTH_FRACTION * demand).max(min_growth);
        // A higher one limits nothing, and would make schedules slower.
        (max_rate < slowest).then_some(max_rate)
    }
}

impl ControlPlane {
    /// Limits a flow in the engine to a maximum rate, or ends the limit. If the flow has a limit before or after, but not both, an early
    /// schedule lets others use its links, or serves it.
    pub(super) fn set_max_rate(&mut self, slot: Slot, index: u32, max_rate: Option<f64>) {
        let was_limited = self.engine.flow_max_rate(slot, index).is_some();
        self.engine.set_flow_max_rate(slot, index, max_rate);
        self.has_changed_flows |= was_limited != max_rate.is_some();
    }
}
