//! Chooses the congestion control of the connections with another relay.
//!
//! BBR keeps its rate on long or lossy paths, where CUBIC with one connection does not. The kernel paces each of its connections with
//! timers; on short paths without loss, CUBIC needs less than half the processor time for each byte.

use std::time::Duration;

use super::socket::ConnectionInfo;

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

/// Whether the path of a connection needs [`LONG_PATH`]. With loss `p`, CUBIC on a short path sends as Reno does: 1.2 / √p segments in
/// a round trip (RFC 9438, section 4.3).
pub(crate) fn is_long(info: &ConnectionInfo) -> bool {
    let lost = info.retransmitted_segments as f64 / info.segments.max(MIN_SEGMENTS) as f64;
    let round_trip = info.min_round_trip.as_secs_f64();
    info.min_round_trip > MAX_SHORT_ROUND_TRIP || 1.2 * SEGMENT_BYTES < MIN_RATE * round_trip * lost.sqrt()
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
