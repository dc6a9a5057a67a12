//! Predicts the demand of all connections of an application with another host, and holds their limit.
//!
//! - *Short connections* close before they have been measured for a full period, or shortly after. Their bytes count in the rate of the
//!   peer. For [`RECENT_PERIODS`] periods after such bytes, the rate of the peer decides the demand, as that of one connection would
//!   ([`DemandEstimator`]): the sum over its connections lacks those bytes.
//! - *Backlog.* A peer is backlogged in a period if a connection is backlogged at its end.
//! - *Retention.* A peer is known for [`RETENTION`] after its last connection, so that its next one starts within its limit.
//! - *Excess.* The kernel sends the first ten packets of a connection without pacing, so short connections send more than their pacing
//!   rates. Bytes of all connections beyond the limit and a burst come off the rates of the next second, like the debt of a token bucket.
//!   Over some seconds, they send at the limit, unless ten packets of each connection alone exceed it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_core::netshare::{BottleneckDetector, DemandEstimator, FlowDemand};
use weir_core::units::Rate;
use weir_proto::Demand;

use crate::traffic::ApplicationId;

/// How long a peer is known after its last connection.
pub const RETENTION: Duration = Duration::from_secs(1);

/// The periods after bytes of short connections in which the rate of the peer decides, as many as a prediction uses.
const RECENT_PERIODS: usize = 5;

/// The bytes beyond the limit that do not count as excess: 100 ms at the limit, as for UDP (`bpf/throttle.c`), and one packet of the
/// largest size, which leaves at once.
const BURST_SECS: f64 = 0.1;
const BURST_BYTES: f64 = 65_536.0;

/// The time over which the excess comes off.
const EXCESS_SECS: f64 = 1.0;

/// The least fraction of the limit that the excess leaves.
const MIN_LIMIT_FRACTION: f64 = 0.1;

/// How much more than in the last periods short connections may send, before the rates of other connections are reduced.
const SHORT_HEADROOM: f64 = 1.1;

/// The connections of an application with another host.
#[derive(Debug)]
pub struct PeerDemand {
    /// When a connection was last seen, by the numbers of the application in the maps of the kernel: one for each of its cgroups and ports.
    last_seen: BTreeMap<ApplicationId, Instant>,
    /// The limit of the coordinator, in bytes of packets with headers per second.
    pub limit: Option<u64>,
    /// Whether a connection has opened or closed since start rates were last computed.
    pub has_events: bool,
    /// The rate of all connections in the last period, in bytes of packets with headers per second.
    rate: f64,
    /// The sum of the limited demands of measured connections. None if no open connection has been measured.
    limited_demand: Option<f64>,
    /// Whether the connections want to send more.
    wants_more: bool,
    /// Whether a connection is backlogged.
    is_backlogged: bool,
    bottleneck: BottleneckDetector,
    /// The rates of all connections together.
    total: DemandEstimator,
    /// The rates of connections before they have been measured for a full period, in the last periods, the latest first.
    short_rates: [f64; RECENT_PERIODS],
    /// Whether bytes that no measured connection accounts for were sent in each of these periods.
    has_short_bytes: [bool; RECENT_PERIODS],
    /// Bytes since the last measurement, of packets with headers: of connections that have not been measured, and of others that closed.
    short_bytes: f64,
    closed_bytes: f64,
    /// Whether the peer was known at an earlier measurement.
    is_known: bool,
    /// Bytes beyond the limit that have yet to come off.
    excess_bytes: f64,
}

impl PeerDemand {
    /// A peer whose first connection [opens or is found](PeerDemand::see).
    pub fn new() -> PeerDemand {
        PeerDemand {
            last_seen: BTreeMap::new(),
            limit: None,
            has_events: true,
            rate: 0.0,
            limited_demand: None,
            wants_more: false,
            is_backlogged: false,
            bottleneck: BottleneckDetector::new(),
            total: DemandEstimator::new(),
            short_rates: [0.0; RECENT_PERIODS],
            has_short_bytes: [false; RECENT_PERIODS],
            short_bytes: 0.0,
            closed_bytes: 0.0,
            is_known: false,
            excess_bytes: 0.0,
        }
    }

    /// Records that a connection is open, opens or closes.
    pub fn see(&mut self, application: ApplicationId, now: Instant) {
        self.last_seen.insert(application, now);
    }

    /// The numbers of the application in the maps of the kernel of which a connection is open, or was so a short time ago.
    pub fn applications(&self) -> impl Iterator<Item = ApplicationId> {
        self.last_seen.keys().copied()
    }

    /// Adds bytes of packets with headers that a connection has sent since the last measurement: one that has not been measured for a full
    /// period yet, or one that closed after it was measured.
    pub fn add_bytes(&mut self, bytes: f64, was_measured: bool) {
        *(if was_measured { &mut self.closed_bytes } else { &mut self.short_bytes }) += bytes;
    }

    /// Starts a measurement, before [`PeerDemand::add_connection`].
    pub fn begin_measurement(&mut self) {
        (self.rate, self.limited_demand) = (0.0, None);
        (self.wants_more, self.is_backlogged) = (false, false);
    }

    /// Adds an open connection: its rate in the period, if it has been measured for all of it.
    pub fn add_connection(&mut self, rate: Option<f64>, estimator: &DemandEstimator, is_backlogged: bool) {
        self.is_backlogged |= is_backlogged;
        self.rate += rate.unwrap_or(0.0);
        let Some(demand) = estimator.demand() else { return };
        self.wants_more |= estimator.wants_more();
        let limited_demand = self.limited_demand.get_or_insert_default();
        if let FlowDemand::Rate(rate) = demand {
            *limited_demand += rate.get();
        }
    }

    /// Ends the measurement of a period. Its first period is not a full one.
    pub fn end_measurement(&mut self, period_secs: f64) {
        let [short_bytes, closed_bytes] = [&mut self.short_bytes, &mut self.closed_bytes].map(std::mem::take);
        if !std::mem::replace(&mut self.is_known, true) || period_secs <= 0.0 {
            return;
        }
        self.short_rates.rotate_right(1);
        self.short_rates[0] = short_bytes / period_secs;
        self.has_short_bytes.rotate_right(1);
        self.has_short_bytes[0] = short_bytes + closed_bytes > 0.0;
        self.rate += (short_bytes + closed_bytes) / period_secs;
        let limit = self.limit.map(|limit| to_rate(limit as f64));
        self.total.add_measurement(to_rate(self.rate), limit, self.is_backlogged);
        self.wants_more |= self.is_total_decisive() && self.total.wants_more();
        self.bottleneck.add_period(to_rate(self.rate), limit, self.wants_more);
        self.update_excess(period_secs);
    }

    fn update_excess(&mut self, period_secs: f64) {
        let limit = self.limit.map_or(f64::INFINITY, |limit| limit as f64);
        let added_bytes = (self.rate - limit) * period_secs;
        let max_bytes = burst_bytes(limit) + (1.0 - MIN_LIMIT_FRACTION) * limit * EXCESS_SECS;
        self.excess_bytes = (self.excess_bytes + added_bytes).clamp(0.0, max_bytes);
    }

    /// The limit for the connections, without what comes off for an earlier excess. Infinite without a limit.
    pub fn rate_to_divide(&self) -> f64 {
        let limit = self.limit.map_or(f64::INFINITY, |limit| limit as f64);
        let excess_bytes = (self.excess_bytes - burst_bytes(limit)).max(0.0);
        limit - excess_bytes / EXCESS_SECS
    }

    /// The rate that connections before their first measurement are expected to send, by the last periods.
    pub fn short_demand(&self) -> f64 {
        SHORT_HEADROOM * self.short_rates.iter().sum::<f64>() / RECENT_PERIODS as f64
    }

    /// Whether the sum of the demands of measured connections lacks those of others.
    fn is_total_decisive(&self) -> bool {
        self.limited_demand.is_none() || self.has_short_bytes.contains(&true)
    }

    /// Forgets numbers of the application without a recent connection, and returns whether any is left.
    pub fn retain_recent(&mut self, now: Instant) -> bool {
        self.last_seen.retain(|_, last_seen| now.saturating_duration_since(*last_seen) < RETENTION);
        !self.last_seen.is_empty()
    }

    /// The demand of all connections.
    pub fn demand(&self) -> Demand {
        let Some(total_demand) = self.total.demand() else { return Demand::Unknown };
        match (self.bottleneck.demand(), total_demand) {
            (FlowDemand::Unlimited, _) if self.wants_more => Demand::Unlimited,
            (FlowDemand::Rate(rate), _) if self.wants_more => Demand::Rate(rate.get().max(self.rate) as u64),
            (_, FlowDemand::Rate(rate)) if self.is_total_decisive() => Demand::Rate(rate.get() as u64),
            _ => Demand::Rate(self.limited_demand.unwrap_or(self.rate) as u64),
        }
    }
}

/// The bytes beyond a limit that do not count as excess.
fn burst_bytes(limit: f64) -> f64 {
    BURST_SECS * limit + BURST_BYTES
}

/// The rate of a number of bytes per second; zero for one that is no rate.
pub fn to_rate(rate: f64) -> Rate {
    Rate::new(rate).unwrap_or(Rate::ZERO)
}
