//! Programs of applications: the connections of a program end a lease after its stream.
//!
//! A program that ends without closing its connections (it was killed, or its host failed) would shape queues for ever. So a program
//! keeps a stream open, over which it also learns its application's level.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long connections of a program remain open without a stream: enough to connect again after a restart of the coordinator or a
/// short interruption of the network.
pub const PROGRAM_LEASE: Duration = Duration::from_secs(10);

/// An application's id, and the id of one of its programs.
pub(super) type ProgramKey = (String, String);

/// Whether a program is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// This number of open streams, at least one.
    Connected(usize),
    /// No stream. The connections end at this time.
    Until(Instant),
}

/// All programs with an open stream, or whose lease has not ended.
#[derive(Debug, Default)]
pub(super) struct Programs(BTreeMap<ProgramKey, Presence>);

impl Programs {
    /// A stream of a program opens.
    pub fn connect(&mut self, key: ProgramKey) {
        let presence = self.0.entry(key).or_insert(Presence::Connected(0));
        *presence = match *presence {
            Presence::Connected(streams) => Presence::Connected(streams + 1),
            Presence::Until(_) => Presence::Connected(1),
        };
    }

    /// A stream of a program ends. After the last one, a lease begins.
    pub fn disconnect(&mut self, key: &ProgramKey, now: Instant) {
        let Some(presence) = self.0.get_mut(key) else { return };
        if let Presence::Connected(streams) = presence {
            *presence = if *streams > 1 {
                Presence::Connected(*streams - 1)
            } else {
                Presence::Until(now + PROGRAM_LEASE)
            };
        }
    }

    /// Begins or prolongs the lease of a program without a stream.
    pub fn begin_lease(&mut self, key: ProgramKey, now: Instant) {
        let presence = self.0.entry(key).or_insert(Presence::Until(now + PROGRAM_LEASE));
        if let Presence::Until(end) = presence {
            *end = now + PROGRAM_LEASE;
        }
    }

    /// The time until the connections of a program end; `None` while it has a stream.
    pub fn remaining(&self, key: &ProgramKey, now: Instant) -> Option<Duration> {
        match self.0.get(key)? {
            Presence::Connected(_) => None,
            Presence::Until(end) => Some(end.saturating_duration_since(now)),
        }
    }

    /// Removes and returns the programs whose lease has ended. O(programs).
    pub fn take_ended(&mut self, now: Instant) -> Vec<ProgramKey> {
        let has_ended = |presence: &mut Presence| matches!(*presence, Presence::Until(end) if end <= now);
        self.0.extract_if(.., |_, presence| has_ended(presence)).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ProgramKey {
        ("sort".to_owned(), "p1".to_owned())
    }

    #[test]
    fn a_lease_begins_after_the_last_stream() {
        let (mut programs, start) = (Programs::default(), Instant::now());
        programs.connect(key());
        programs.connect(key());
        programs.disconnect(&key(), start);
        assert_eq!(programs.take_ended(start + 2 * PROGRAM_LEASE), []);
        programs.disconnect(&key(), start);
        assert_eq!(programs.remaining(&key(), start), Some(PROGRAM_LEASE));
        assert_eq!(programs.take_ended(start + PROGRAM_LEASE - Duration::from_millis(1)), []);
        assert_eq!(programs.take_ended(start + PROGRAM_LEASE), [key()]);
        assert_eq!(programs.take_ended(start + PROGRAM_LEASE), []);
    }

    #[test]
    fn new_connections_prolong_a_lease_and_a_stream_ends_it() {
        let (mut programs, start) = (Programs::default(), Instant::now());
        programs.begin_lease(key(), start);
        programs.begin_lease(key(), start + PROGRAM_LEASE / 2);
        assert_eq!(programs.remaining(&key(), start + PROGRAM_LEASE / 2), Some(PROGRAM_LEASE));
        programs.connect(key());
        programs.begin_lease(key(), start);
        assert_eq!(
            (programs.remaining(&key(), start), programs.take_ended(start + PROGRAM_LEASE)),
            (None, vec![])
        );
    }
}
