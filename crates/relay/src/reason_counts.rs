//! Counts events by the reason of a `reset` line.

use weir_flow::Reason;

/// Counters by reason, since the relay started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReasonCounts([u64; Reason::ALL.len()]);

impl ReasonCounts {
    /// Counts one event.
    pub fn add(&mut self, reason: Reason) {
        if let Some(at) = Reason::ALL.iter().position(|&known| known == reason) {
            self.0[at] += 1;
        }
    }

    /// The number of events with a reason.
    pub fn get(&self, reason: Reason) -> u64 {
        self.iter().find(|&(known, _)| known == reason).map_or(0, |(_, count)| count)
    }

    /// All counters.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(self.0)
    }
}
