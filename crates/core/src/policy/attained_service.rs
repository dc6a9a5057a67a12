//! The attained service of a coflow: the maximum over its links of the time that the bytes which the link has carried for the coflow
//! take at full capacity.
//!
//! Policies order coflows by *levels* of attained service, so that coflows with nearly equal service do not take turns at each schedule.

/// The levels: the first one starts at 0, the second one at `first_seconds`, and each later one at (1 + `growth`) times the start of the
/// level before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Levels {
    pub first_seconds: f64,
    pub growth: f64,
    /// The minimum time between schedules for one level, as a part of the level. The attained service of a coflow whose flows lost
    /// their progress falls behind its level, and the predicted growth is an estimate.
    pub min_wait: f64,
}

/// The attained service of one coflow, which never decreases.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AttainedService {
    seconds: f64,
    /// The level: from `level_seconds`, 0 for the first level, to `next_level_seconds`.
    level_seconds: f64,
    next_level_seconds: f64,
}

impl AttainedService {
    pub fn new(levels: Levels) -> AttainedService {
        AttainedService { next_level_seconds: levels.first_seconds, ..AttainedService::default() }
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The start of the level, in seconds.
    pub fn level_seconds(&self) -> f64 {
        self.level_seconds
    }

    /// Records the attained service.
    pub fn raise(&mut self, seconds: f64, levels: Levels) {
        self.seconds = self.seconds.max(seconds);
        while self.is_next_level(self.seconds) {
            self.level_seconds = self.next_level_seconds;
            self.next_level_seconds *= 1.0 + levels.growth;
        }
    }

    /// Keeps the present level, because the attained service is no longer known.
    pub fn keep_level(&mut self) {
        self.next_level_seconds = f64::INFINITY;
    }

    /// Whether the next level has started if the attained service is `seconds`.
    pub fn is_next_level(&self, seconds: f64) -> bool {
        // Sums over the links of flows with the default estimate are exact to about a byte.
        seconds >= self.next_level_seconds * (1.0 - 1e-6)
    }

    /// The time until the next level, in seconds, if the attained service is `seconds` and grows by `growth` seconds a second.
    pub fn time_to_next_level(&self, seconds: f64, growth: f64, levels: Levels) -> f64 {
        // The attained service cannot grow faster than by one second a second.
        let time = (self.next_level_seconds - seconds) / growth.min(1.0);
        time.max(levels.min_wait * self.next_level_seconds)
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
        assert_eq!(attained.level_seconds(), 0.0);
        attained.raise(0.009, levels);
        assert_eq!(attained.level_seconds(), 0.008);
        // The next level starts at 0.008 * 1.25^2 = 0.0125.
        attained.raise(0.0126, levels);
        assert_eq!(attained.level_seconds(), 0.0125);
    }
}
