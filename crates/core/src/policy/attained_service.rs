//! The attained service of a coflow: the maximum over its links of the time that the bytes which the link has carried for the coflow
//! take at full capacity.
//!
//! Policies order coflows by *levels* of attained service, so that coflows with nearly equal service do not take turns at each schedule.

use crate::model::{Knowledge, Slot, View};
use crate::rounding;

/// The bytes of the first level on the fastest link, unless the interval is longer: about the ten packets that TCP sends at once
/// (RFC 6928). Nothing is decided inside a level, so these bytes are sent in the order of release.
pub(super) const FIRST_LEVEL_BYTES: f64 = 16e3;

/// The growth from the start of a level to its end.
pub(super) const LEVEL_GROWTH: f64 = 0.25;

/// The levels: the first one starts at 0, the second one at `first_seconds`, and each later one at (1 + `growth`) times the start of the
/// level before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Levels {
    pub first_seconds: f64,
    pub growth: f64,
    /// The minimum time between schedules for one level, as a part of the level. The attained service of a coflow whose flows lost
    /// their progress falls behind its level, and the predicted growth is an estimate.
    pub min_wait: f64,
}

impl Levels {
    /// The levels of a network. The first one is an interval long, since nothing is decided inside an interval, or the time of
    /// `first_bytes` on the fastest link.
    pub fn new<K: Knowledge>(view: &View<'_, K>, first_bytes: f64, growth: f64) -> Levels {
        let first_seconds = view.interval().max(first_bytes / view.fabric().fastest_link_rate());
        Levels { first_seconds, growth, min_wait: 0.02 }
    }
}

/// The attained service of one coflow, which never decreases.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AttainedService {
    seconds: f64,
    /// The number of the level, 0 for the first one, and its end.
    level: usize,
    next_level_seconds: f64,
}

impl AttainedService {
    pub fn new(levels: Levels) -> AttainedService {
        AttainedService { next_level_seconds: levels.first_seconds, ..AttainedService::default() }
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The number of the level, from 0.
    pub fn level(&self) -> usize {
        self.level
    }

    /// Records the attained service.
    pub fn raise(&mut self, seconds: f64, levels: Levels) {
        self.seconds = self.seconds.max(seconds);
        while self.is_next_level(self.seconds) {
            self.level += 1;
            self.next_level_seconds *= 1.0 + levels.growth;
        }
    }

    /// Keeps the present level, because the attained service is no longer known.
    pub fn keep_level(&mut self) {
        self.next_level_seconds = f64::INFINITY;
    }

    /// Whether the next level has started if the attained service is `seconds`.
    pub fn is_next_level(&self, seconds: f64) -> bool {
        seconds >= self.next_level_seconds * (1.0 - rounding::ATTAINED)
    }

    /// The time until the next level, in seconds, if the attained service is `seconds` and grows by `growth` seconds a second.
    pub fn time_to_next_level(&self, seconds: f64, growth: f64, levels: Levels) -> f64 {
        // The attained service cannot grow faster than by one second a second.
        let time = (self.next_level_seconds - seconds) / growth.min(1.0);
        time.max(levels.min_wait * self.next_level_seconds)
    }
}

/// The bytes that each link has carried for one coflow, in memory that is used again.
#[derive(Debug, Default)]
pub(super) struct CarriedBytes {
    by_link: Vec<f64>,
}

impl CarriedBytes {
    /// The attained service of a coflow in seconds, on links with these capacities in bytes per second. Links without capacity do not
    /// count. O(links of all flows).
    pub fn attained_seconds<K: Knowledge>(
        &mut self,
        slot: Slot,
        capacities: &[f64],
        view: &View<'_, K>,
    ) -> f64 {
        let (coflow, fabric) = (view.coflow(slot), view.fabric());
        self.by_link.clear();
        self.by_link.resize(fabric.links(), 0.0);
        // The flows of a sender follow one another. Their sum stays in a register.
        let (mut sender, mut sender_bytes) = (0, 0.0);
        for flow in 0..coflow.width() as u32 {
            let bytes = view.sent_bytes(slot, flow);
            let (src, dst) = coflow.flow_port_links(flow);
            if src != sender {
                self.by_link[sender] += sender_bytes;
                (sender, sender_bytes) = (src, 0.0);
            }
            sender_bytes += bytes;
            self.by_link[dst] += bytes;
            coflow.flow_trunks(flow).iter().for_each(|&trunk| self.by_link[trunk as usize] += bytes);
        }
        self.by_link[sender] += sender_bytes;
        let seconds = self.by_link.iter().zip(capacities).map(|(bytes, rate)| bytes / rate);
        seconds.filter(|seconds| seconds.is_finite()).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attained_service_level_rounds_down() {
        let levels = Levels { first_seconds: 0.008, growth: 0.25, min_wait: 0.02 };
        let mut attained = AttainedService::new(levels);
        attained.raise(0.007, levels);
        assert_eq!(attained.level(), 0);
        attained.raise(0.009, levels);
        assert_eq!(attained.level(), 1);
        // The third and the fourth level start at 0.008 * 1.25 = 0.01 and 0.008 * 1.25^2 = 0.0125.
        attained.raise(0.0126, levels);
        assert_eq!(attained.level(), 3);
    }
}
