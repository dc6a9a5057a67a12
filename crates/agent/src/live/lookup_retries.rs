//! Connections whose lookup failed, which wait for another one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::peer_addresses::{Lookup, MAX_BATCH, MAX_WANTED};
use crate::traffic::ConnectionEnds;

/// The time from a failed lookup to the next one of its connections. It doubles with each of these that has no answer.
pub const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The longest delay is `MIN_RETRY_DELAY` doubled this often: 16 s. An address is wrong for that time at most once the kernel answers.
const MAX_DOUBLINGS: u32 = 4;

/// The connections that wait for another lookup, at most [`MAX_WANTED`]. Others keep the remote addresses of their sockets.
#[derive(Debug, Default)]
pub struct Retries {
    connections: VecDeque<(u64, ConnectionEnds)>,
    /// The number of lookups since the last one with an answer.
    failures: u32,
    /// The earliest time of the next lookup.
    not_before: Option<Instant>,
}

impl Retries {
    /// Adds connections whose lookup had no answer for them.
    pub fn add(&mut self, connections: impl Iterator<Item = (u64, ConnectionEnds)>, now: Instant) {
        if self.connections.is_empty() {
            self.not_before = Some(now + self.delay());
        }
        let space = MAX_WANTED.saturating_sub(self.connections.len());
        self.connections.extend(connections.take(space));
    }

    /// Whether connections wait for a lookup that may begin.
    pub fn is_due(&self, now: Instant) -> bool {
        !self.connections.is_empty() && self.not_before.is_none_or(|time| now >= time)
    }

    /// Removes the connections of the next lookup.
    pub fn take_batch(&mut self) -> Lookup {
        self.connections.drain(..self.connections.len().min(MAX_BATCH)).collect()
    }

    /// Records whether a lookup of these connections had an answer. The next one follows at once if it had.
    pub fn record_result(&mut self, has_answer: bool, now: Instant) {
        self.failures = if has_answer { 0 } else { self.failures.saturating_add(1) };
        self.not_before = (!has_answer).then(|| now + self.delay());
    }

    /// Keeps connections that are still needed, by their sockets.
    pub fn retain(&mut self, is_needed: impl Fn(u64) -> bool) {
        self.connections.retain(|(socket, _)| is_needed(*socket));
    }

    fn delay(&self) -> Duration {
        MIN_RETRY_DELAY * (1 << self.failures.min(MAX_DOUBLINGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(count: u64) -> impl Iterator<Item = (u64, ConnectionEnds)> {
        let ends = ConnectionEnds { local: ([10, 0, 0, 1], 1).into(), remote: ([10, 96, 0, 1], 80).into() };
        (0..count).map(move |socket| (socket, ends))
    }

    #[test]
    fn delay_doubles_until_the_kernel_answers() {
        let (mut retries, mut now) = (Retries::default(), Instant::now());
        retries.add(connections(1), now);
        for seconds in [1, 2, 4, 8, 16, 16] {
            let due = now + Duration::from_secs(seconds);
            assert!(!retries.is_due(due - Duration::from_millis(1)) && retries.is_due(due), "{seconds} s");
            now = due;
            let lookup = retries.take_batch();
            retries.record_result(false, now);
            retries.add(lookup.into_iter(), now);
        }
        now += Duration::from_secs(16);
        retries.take_batch();
        retries.record_result(true, now);
        retries.add(connections(1), now);
        assert!(!retries.is_due(now) && retries.is_due(now + MIN_RETRY_DELAY));
    }

    #[test]
    fn further_batches_follow_an_answer_at_once() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        retries.add(connections(MAX_BATCH as u64 + 1), now);
        assert_eq!(retries.take_batch().len(), MAX_BATCH);
        retries.record_result(true, now);
        assert!(retries.is_due(now));
        assert_eq!(retries.take_batch().len(), 1);
        assert!(!retries.is_due(now + MIN_RETRY_DELAY));
    }

    #[test]
    fn number_of_connections_is_limited() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        (0..2).for_each(|_| retries.add(connections(MAX_WANTED as u64 - 1), now));
        assert_eq!(retries.connections.len(), MAX_WANTED);
    }
}
