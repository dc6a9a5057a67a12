//! Several connections for the data to another relay, where BBR is not permitted.
//!
//! A link has one bulk connection. The relay at each end may dial additional ones for the data that it sends, as many as
//! [`ConnectionCount`](super::connection_count::ConnectionCount) chooses. Receivers put messages in order, since detours reorder them, too.
//!
//! A connection that is no longer needed is shut down after its last message, and closed when the other relay has read all of it. If an
//! additional connection fails otherwise, its messages are lost, so the link fails.

use std::time::Duration;

use super::connection_count::{ConnectionCount, MAX_CONNECTIONS};
use super::socket::ConnectionInfo;
use super::token::Token;
use crate::message::MAX_PAYLOAD_BYTES;

/// The maximum number of connections to one relay that are being established: a relay accepts few at a time.
const MAX_DIALED: usize = 8;

/// The maximum number of connections that the other relay may have dialed: those that it uses, and as many that it closes.
pub(super) const MAX_ACCEPTED: usize = 2 * MAX_CONNECTIONS;

/// The maximum of the bytes in the kernel that it has not sent, on all bulk connections. Less would need more calls per byte.
pub(super) const UNSENT_BYTES: u32 = 256 << 10;

/// On slow paths, messages and unsent bytes of all bulk connections take at most this time, since data of a higher priority waits for
/// them.
const MAX_MESSAGE_TIME: Duration = Duration::from_millis(20);

/// The lowest limit of messages and unsent bytes on all connections, and on one of several. It bounds the number of connections.
const MIN_MESSAGE_BYTES: u32 = 16 << 10;
const MIN_PART_BYTES: u32 = 4 << 10;

/// The connections for data with another relay, next to the bulk connection.
#[derive(Debug)]
pub(super) struct Parallel {
    /// Whether this relay measures if several connections are faster.
    pub(super) is_useful: bool,
    pub(super) count: ConnectionCount,
    /// This relay sends data over them.
    pub(super) additional: Vec<Token>,
    /// This relay closes them after their last message. The flag: the connection is shut down for writing.
    pub(super) closing: Vec<(Token, bool)>,
    /// The other relay sends data over them.
    pub(super) accepted: Vec<Token>,
    /// The sums of connections that were closed.
    pub(super) closed: ConnectionInfo,
    pub(super) next_dial: Duration,
    /// Whether data waited for all connections when this relay last wrote.
    pub(super) is_backlogged: bool,
    /// The pacing rate of all connections in bytes per second, and the maximum length of messages on all connections.
    pub(super) pacing_rate: Option<u64>,
    pub(super) message_bytes: u32,
    /// The number of connections that these limits are divided by.
    pub(super) divisor: usize,
}

impl Default for Parallel {
    fn default() -> Parallel {
        Parallel {
            is_useful: false,
            count: ConnectionCount::default(),
            additional: Vec::new(),
            closing: Vec::new(),
            accepted: Vec::new(),
            closed: ConnectionInfo::default(),
            next_dial: Duration::ZERO,
            is_backlogged: false,
            pacing_rate: None,
            message_bytes: MAX_PAYLOAD_BYTES,
            divisor: 1,
        }
    }
}

impl Parallel {
    /// The number of connections over which this relay sends data.
    pub(super) fn len(&self) -> usize {
        1 + self.additional.len()
    }

    /// The connections over which this relay sends data, but the bulk one.
    pub(super) fn additional(&self) -> impl Iterator<Item = Token> {
        self.additional.iter().copied()
    }

    /// The number of connections over which data arrives.
    pub(super) fn receiving(&self) -> usize {
        1 + self.accepted.len()
    }

    /// The number of connections to dial now, if data needs `count` and `dialed` are being established. The other relay may keep those
    /// open that this one has shut down; it accepts no more than [`MAX_ACCEPTED`].
    pub(super) fn missing(&self, count: usize, dialed: usize) -> usize {
        let free = MAX_ACCEPTED.saturating_sub(self.additional.len() + self.closing.len() + dialed);
        count.saturating_sub(self.len()).min(MAX_DIALED).saturating_sub(dialed).min(free)
    }

    /// An additional connection by its position.
    pub(super) fn get(&self, index: usize) -> Option<Token> {
        self.additional.get(index).copied()
    }

    /// All connections but the bulk one.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        let closing = self.closing.iter().map(|(token, _)| token);
        self.additional.iter().chain(closing).chain(&self.accepted).copied()
    }
}

/// The sums over several connections, their lowest round-trip time, and the mean of the others.
pub(super) fn sum(infos: impl Iterator<Item = ConnectionInfo>) -> ConnectionInfo {
    let (mut sum, mut count) = (ConnectionInfo::default(), 0);
    for info in infos {
        let min = if count == 0 { info.min_round_trip } else { sum.min_round_trip.min(info.min_round_trip) };
        count += 1;
        sum = ConnectionInfo {
            round_trip: sum.round_trip + info.round_trip,
            min_round_trip: min,
            ..add(&sum, &info)
        };
    }
    ConnectionInfo { round_trip: sum.round_trip / count.max(1), ..sum }
}

/// Adds the counters.
pub(super) fn add(first: &ConnectionInfo, second: &ConnectionInfo) -> ConnectionInfo {
    ConnectionInfo {
        segments: first.segments + second.segments,
        retransmitted_segments: first.retransmitted_segments + second.retransmitted_segments,
        acked_bytes: first.acked_bytes + second.acked_bytes,
        ..*first
    }
}

/// The maximum length of messages on a path with this rate, in bytes per second; 0 if it is unknown.
pub(super) fn message_bytes(rate: u64) -> u32 {
    if rate == 0 {
        return MAX_PAYLOAD_BYTES;
    }
    let bytes = rate as f64 * MAX_MESSAGE_TIME.as_secs_f64();
    (bytes as u32).clamp(MIN_MESSAGE_BYTES, MAX_PAYLOAD_BYTES)
}

/// The maximum number of connections on a path with this maximum length of messages.
pub(super) fn max_connections(message_bytes: u32) -> usize {
    MAX_CONNECTIONS.min((message_bytes / MIN_PART_BYTES) as usize)
}

/// The limit of each of several connections.
pub(super) fn part_bytes(bytes: u32, connections: usize) -> u32 {
    bytes.min((bytes / connections as u32).max(MIN_PART_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_on_slow_paths() {
        assert_eq!(message_bytes(0), MAX_PAYLOAD_BYTES);
        assert_eq!(message_bytes(125_000_000), MAX_PAYLOAD_BYTES);
        assert_eq!(message_bytes(5_000_000), 100_000);
        assert_eq!(message_bytes(1_000), MIN_MESSAGE_BYTES);
    }

    #[test]
    fn limits_of_several_connections_together_are_those_of_one() {
        for rate in [0, 1_000, 1_250_000, 5_000_000, 30_000_000, 125_000_000] {
            let bytes = message_bytes(rate);
            let min_bytes = u64::from(MIN_MESSAGE_BYTES);
            assert!(rate == 0 || u64::from(bytes) <= (rate / 50).max(min_bytes), "{rate}: {bytes}");
            assert_eq!(part_bytes(bytes, 1), bytes);
            for connections in 1..=MAX_CONNECTIONS {
                let used = connections.min(max_connections(bytes));
                assert!(part_bytes(bytes, used) * used as u32 <= bytes, "{rate}, {connections}");
                let unsent = bytes.min(UNSENT_BYTES);
                assert!(part_bytes(unsent, used) * used as u32 <= unsent, "{rate}, {connections}");
            }
        }
        assert_eq!(part_bytes(UNSENT_BYTES, 32), 8 << 10);
        assert_eq!(
            [1_000, 1_250_000, 6_600_000, 0].map(|rate| max_connections(message_bytes(rate))),
            [4, 6, 32, 32]
        );
    }

    #[test]
    fn relay_dials_no_more_connections_than_the_other_accepts() {
        let mut parallel = Parallel::default();
        assert_eq!(parallel.missing(32, 0), MAX_DIALED);
        assert_eq!(parallel.missing(32, 3), MAX_DIALED - 3);
        assert_eq!(parallel.missing(1, 2), 0);
        // The other relay does not close connections that this one has shut down.
        let (mut token, mut most) = (0, 0);
        for _ in 0..10 {
            while parallel.missing(MAX_CONNECTIONS, 0) > 0 {
                token += 1;
                parallel.additional.push(token);
            }
            most = most.max(parallel.additional.len() + parallel.closing.len());
            let unused = std::mem::take(&mut parallel.additional);
            parallel.closing.extend(unused.into_iter().map(|token| (token, true)));
        }
        assert_eq!(most, MAX_ACCEPTED);
    }

    #[test]
    fn sums_have_the_lowest_round_trip_time_and_the_mean() {
        let info = |milliseconds, acked_bytes| ConnectionInfo {
            acked_bytes,
            round_trip: Duration::from_millis(2 * milliseconds),
            min_round_trip: Duration::from_millis(milliseconds),
            ..ConnectionInfo::default()
        };
        let total = sum([info(30, 1), info(10, 2)].into_iter());
        assert_eq!(total.acked_bytes, 3);
        assert_eq!(total.min_round_trip, Duration::from_millis(10));
        assert_eq!(total.round_trip, Duration::from_millis(40));
        assert_eq!(sum(std::iter::empty()), ConnectionInfo::default());
    }
}
