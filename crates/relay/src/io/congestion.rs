//! Chooses the congestion control of the connections with another relay.
//!
//! BBR keeps its rate on long or lossy paths, where CUBIC with one connection does not. The kernel paces each of its connections with
//! timers; on short paths without loss, CUBIC needs less than half the processor time for each byte. Where BBR is not permitted, a relay
//! uses [several connections](super::connection_count).

use std::net::TcpStream;
use std::time::Duration;

use super::socket::{ConnectionInfo, congestion_control};

/// The congestion control of a connection at its start, and of short paths without loss.
pub(crate) const SHORT_PATH: &str = "cubic";

/// The congestion control of other paths.
pub(crate) const LONG_PATH: &str = "bbr";

/// Paths with a longer round-trip time are long.
const MAX_SHORT_ROUND_TRIP: Duration = Duration::from_millis(2);

/// Paths on which loss limits CUBIC to a lower rate count as long, in bytes per second.
const MIN_RATE: f64 = 125e6;

/// The number of segments that decide about loss.
const MIN_SEGMENTS: u64 = 1000;

/// The bytes of a segment.
const SEGMENT_BYTES: f64 = 1448.0;

/// Whether the path of a connection needs [`LONG_PATH`].
pub(crate) fn is_long(info: &ConnectionInfo) -> bool {
    let segments = info.segments.max(MIN_SEGMENTS);
    info.min_round_trip > MAX_SHORT_ROUND_TRIP
        || lossy_rate(segments, info.retransmitted_segments, info.min_round_trip) < MIN_RATE
}

/// The rate of a connection that is limited by its loss, in bytes per second. With loss `p`, CUBIC on a short path sends as Reno does:
/// 1.2 / √p segments in a round trip (RFC 9438, section 4.3). On long paths it sends more.
pub(crate) fn lossy_rate(segments: u64, retransmitted_segments: u64, round_trip: Duration) -> f64 {
    if retransmitted_segments == 0 || round_trip.is_zero() {
        return f64::INFINITY;
    }
    let lost = retransmitted_segments as f64 / segments.max(1) as f64;
    1.2 * SEGMENT_BYTES / (round_trip.as_secs_f64() * lost.sqrt())
}

/// Whether a connection keeps its rate despite loss: it uses a version of BBR.
pub(crate) fn bears_loss(stream: &TcpStream) -> bool {
    congestion_control(stream).is_some_and(|name| name.starts_with(LONG_PATH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_where_cubic_is_slow_are_long() {
        let is_long = |microseconds, segments, retransmitted_segments| {
            let min_round_trip = Duration::from_micros(microseconds);
            is_long(&ConnectionInfo {
                segments,
                retransmitted_segments,
                min_round_trip,
                ..ConnectionInfo::default()
            })
        };
        assert!(!is_long(0, 0, 0));
        assert!(!is_long(1000, 1_000_000, 190));
        assert!(is_long(3000, 0, 0));
        assert!(is_long(1000, 1_000_000, 195));
        assert!(is_long(1000, 10, 1));
    }
}
