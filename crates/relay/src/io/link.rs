//! The connections with another relay, and the state of the path to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_tls::LogLimit;

use super::lane::Lane;
use super::pacer::Pacer;
use super::parallel::Parallel;
use super::reverse_queue::ReverseQueue;
use super::token::Token;
use crate::hello::{Hello, VERSION};
use crate::relay::PathCounters;

/// How long a link counts as one with data after the last payload byte.
const ACTIVITY: Duration = Duration::from_secs(2);

/// Detours avoid a relay that has sent nothing for this long, in addition to the round-trip time: two heartbeats, and the time to send
/// a lost one again.
const DETOUR_SILENCE: Duration = Duration::from_millis(500);

/// The wait after a first failed attempt.
pub(super) const MIN_WAIT: Duration = Duration::from_millis(100);

/// How long a lowest round-trip time counts: a path may change. As long as the kernel's (`tcp_min_rtt_wlen`), since a path may have a queue
/// for minutes.
const MIN_ROUND_TRIP_AGE: Duration = Duration::from_secs(300);

/// Round-trip times of heartbeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// The lowest time.
    pub(crate) min: Duration,
    min_time: Duration,
    /// The smoothed time.
    pub(crate) smoothed: Duration,
}

impl RoundTrip {
    pub(super) fn add(&mut self, sample: Duration, now: Duration) {
        if self.smoothed.is_zero() || sample <= self.min || now > self.min_time + MIN_ROUND_TRIP_AGE {
            (self.min, self.min_time) = (sample, now);
        }
        self.smoothed = if self.smoothed.is_zero() { sample } else { (self.smoothed * 7 + sample) / 8 };
    }
}

/// The state of the path to another relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// The name of the other relay.
    pub name: Arc<str>,
    /// Whether all connections are established.
    pub is_up: bool,
    /// The bytes per second that the path delivered while data waited, since the last report: at least 1, or 0 if data never waited.
    pub rate: u64,
    /// The smoothed rate while data waited, in bytes per second; 0 if data never waited since the connections began.
    pub smoothed_rate: u64,
    /// How often established connections have failed.
    pub failures: u64,
    /// The lowest round-trip time; 0 if unknown.
    pub min_round_trip: Duration,
    /// The smoothed round-trip time; 0 if unknown.
    pub round_trip: Duration,
    /// Segments sent since the connections began.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Bytes of messages since the relay started.
    pub counters: PathCounters,
    /// The number of connections over which this relay sends data; 0 while the link is down.
    pub connections: usize,
    /// The pacing rate of these connections, in bytes per second; none if it is not limited.
    pub pacing_rate: Option<u64>,
    /// Why the last attempt of this relay to connect failed; none while the link is up.
    pub failure: Option<String>,
}

/// The connections with another relay.
pub(super) struct Link {
    pub(super) name: Arc<str>,
    pub(super) address: SocketAddr,
    pub(super) session: u64,
    /// The version that both relays speak.
    pub(super) version: u32,
    pub(super) bulk: Option<Token>,
    pub(super) express: Option<Token>,
    pub(super) is_up: bool,
    pub(super) last_heard: Duration,
    pub(super) next_dial: Duration,
    pub(super) failure: Option<String>,
    pub(super) logged_failures: LogLimit,
    pub(super) wait: Duration,
    pub(super) next_heartbeat: Duration,
    /// Payload bytes in both directions at the last step.
    payload_bytes: u64,
    /// When data began to flow, and until when the link counts as one with data.
    activity: (Duration, Duration),
    pub(super) round_trip: RoundTrip,
    pub(super) reverse_queue: ReverseQueue,
    pub(super) pacer: Pacer,
    pub(super) is_long: bool,
    pub(super) parallel: Parallel,
    pub(super) failures: u64,
}

impl Link {
    pub(super) fn new(name: Arc<str>, address: SocketAddr) -> Link {
        Link {
            name,
            address,
            session: 0,
            version: VERSION,
            bulk: None,
            express: None,
            is_up: false,
            last_heard: Duration::ZERO,
            next_dial: Duration::ZERO,
            failure: None,
            logged_failures: LogLimit::default(),
            wait: MIN_WAIT,
            next_heartbeat: Duration::ZERO,
            payload_bytes: 0,
            activity: (Duration::ZERO, Duration::ZERO),
            round_trip: RoundTrip::default(),
            reverse_queue: ReverseQueue::default(),
            pacer: Pacer::default(),
            is_long: false,
            parallel: Parallel::default(),
            failures: 0,
        }
    }

    /// Whether the path carries as much as it can.
    pub(super) fn is_full(&self) -> bool {
        self.pacer.is_full()
    }

    /// Notes the payload bytes in both directions until now, and whether bytes wait. Returns whether the link has data.
    pub(super) fn update_activity(&mut self, payload_bytes: u64, is_backlogged: bool, now: Duration) -> bool {
        let is_active = now < self.activity.1;
        let is_equal = std::mem::replace(&mut self.payload_bytes, payload_bytes) == payload_bytes;
        if is_equal && !is_backlogged {
            return is_active;
        }
        if !is_active {
            (self.activity.0, self.next_heartbeat) = (now, now);
        }
        self.activity.1 = now + ACTIVITY;
        true
    }

    /// Whether an answer to a heartbeat of a link with data is overdue.
    pub(super) fn is_silent(&self, now: Duration) -> bool {
        now > self.last_heard.max(self.activity.0) + DETOUR_SILENCE + self.round_trip.smoothed
    }

    /// The bulk and the express connection.
    pub(super) fn lanes(&self) -> Option<(Token, Token)> {
        Some((self.bulk?, self.express?))
    }
}

/// A connection whose first line has not been read.
pub(super) struct Unidentified {
    pub(super) lane: Lane,
    /// What this relay dialed; none for an accepted connection.
    pub(super) dialed: Option<Hello>,
    pub(super) is_connected: bool,
    pub(super) deadline: Duration,
}
