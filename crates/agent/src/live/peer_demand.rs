//! Predicts the demand of all connections of an application with another host, and holds their limit.
//!
//! - *Short connections* close before they have been measured for a full period, or shortly after. Their bytes count in the rate of the
//!   peer. For [`RECENT_PERIODS`] periods after such bytes, the rate of the peer decides the demand, as that of one connection would
//!   ([`DemandEstimator`]): the sum over its connections lacks those bytes.
//! - *Backlog.* A peer is backlogged in a period if a connection that has not been measured is backlogged at its end.
//! - *Token bucket.* Connections start without pacing, so short ones send more than their pacing rates. The bytes of all connections take
//!   tokens from a bucket, which fills at the limit. A debt comes off the rates of the next second. Over some seconds, the connections send
//!   at the limit, unless the first ten packets of each alone exceed it: the kernel never paces these.
//! - *Start rate.* New connections are paced only if the peer uses its limit, or was in debt and the bucket is not full again. The limit of
//!   any other peer says nothing of the link: it is the lower bound of a peer without traffic, however free the link is.
//! - *Quiet peers*, without an open connection and recent bytes, have no demand: the coordinator need not store them. They are known for
//!   [`LINGER`], and until the bucket is full. Until then their last limit applies, also to new connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_core::netshare::{BottleneckDetector, DemandEstimator, FlowDemand};
use weir_core::units::Rate;
use weir_proto::Demand;

use crate::traffic::ApplicationId;

/// How long an application counts as connected to a peer after their last connection.
pub const LINGER: Duration = Duration::from_secs(1);

/// The periods after bytes of short connections in which the rate of the peer decides, as many as a prediction uses.
pub const RECENT_PERIODS: usize = 5;

/// The size of the bucket: 100 ms at the limit, as for UDP (`bpf/throttle.c`), and one packet of the largest size, which leaves at once.
const BURST_SECS: f64 = 0.1;
const BURST_BYTES: f64 = 65_536.0;

/// The time over which a debt comes off.
const DEBT_SECS: f64 = 1.0;

/// The least fraction of the limit that a debt leaves.
const MIN_LIMIT_FRACTION: f64 = 0.1;

/// How much more than in the last periods short connections may send, before the rates of other connections are reduced.
const SHORT_HEADROOM: f64 = 1.1;

/// A start rate has one entry for each of these: the number of an application in the maps of the kernel, of which it has one for each of
/// its cgroups and ports, and the remote address of a socket. The address of a service is that of several hosts.
pub type StartKey = (ApplicationId, IpAddr);

/// The connections of an application with another host.
#[derive(Debug)]
pub struct PeerDemand {
    /// When a connection was last seen.
    last_seen: BTreeMap<StartKey, Instant>,
    /// The limit of the coordinator, in bytes of packets with headers per second; infinite without one.
    limit: f64,
    /// The highest limits since the last measurement, and in the period before it: acknowledgements come later than the bytes.
    max_limits: [f64; 2],
    /// Whether a connection was open at the last measurement.
    has_open: bool,
    /// The rate of all connections in the last period, in bytes of packets with headers per second.
    rate: f64,
    /// The sum of the limited demands of measured connections. None if no open connection has been measured.
    limited_demand: Option<f64>,
    /// Whether the connections want to send more.
    wants_more: bool,
    /// Whether a connection that has not been measured is backlogged.
    is_backlogged: bool,
    bottleneck: BottleneckDetector,
    /// The rates of all connections together.
    total: DemandEstimator,
    /// The rates of connections before they have been measured for a full period, in the last periods, the latest first.
    short_rates: [f64; RECENT_PERIODS],
    /// The numbers of these connections at the ends of the last periods, the latest first.
    new_counts: [usize; RECENT_PERIODS],
    /// Whether bytes that no measured connection accounts for were sent in each of these periods.
    has_short_bytes: [bool; RECENT_PERIODS],
    /// Bytes since the last measurement, of packets with headers: of connections that have not been measured, and of others that closed.
    short_bytes: f64,
    closed_bytes: f64,
    /// Whether the peer was known at an earlier measurement.
    is_known: bool,
    /// Consecutive periods up to the last one in which the peer was not quiet, up to [`RECENT_PERIODS`].
    active_periods: usize,
    /// The tokens in the bucket; negative for a debt, and infinite without a limit.
    token_bytes: f64,
    /// Whether the peer was in debt, and its bucket has not been full since.
    is_repaying: bool,
}

impl PeerDemand {
    /// A peer whose first connection [opens or is found](PeerDemand::see).
    pub fn new() -> PeerDemand {
        PeerDemand {
            last_seen: BTreeMap::new(),
            limit: f64::INFINITY,
            max_limits: [f64::INFINITY; 2],
            has_open: false,
            rate: 0.0,
            limited_demand: None,
            wants_more: false,
            is_backlogged: false,
            bottleneck: BottleneckDetector::new(),
            total: DemandEstimator::new(),
            short_rates: [0.0; RECENT_PERIODS],
            new_counts: [0; RECENT_PERIODS],
            has_short_bytes: [false; RECENT_PERIODS],
            short_bytes: 0.0,
            closed_bytes: 0.0,
            is_known: false,
            active_periods: 0,
            token_bytes: f64::INFINITY,
            is_repaying: false,
        }
    }

    /// Records that a connection is open, opens or closes.
    pub fn see(&mut self, start: StartKey, now: Instant) {
        self.last_seen.insert(start, now);
    }

    /// Sets the limit of the last order, in bytes of packets with headers per second. The limit of a peer that was quiet stays until the
    /// coordinator has had the time to order another one.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        if limit.is_none() && self.is_repaying && self.active_periods < RECENT_PERIODS {
            return;
        }
        self.limit = limit.map_or(f64::INFINITY, |limit| limit as f64);
        self.max_limits[0] = self.max_limits[0].max(self.limit);
    }

    /// Removes the limit: the lease of orders has ended.
    pub fn remove_limit(&mut self) {
        self.is_repaying = false;
        self.set_limit(None);
    }

    /// Whether the peer has a limit.
    pub fn is_limited(&self) -> bool {
        self.limit.is_finite()
    }

    /// The start rates that apply to connections which are open, or were so a short time ago.
    pub fn start_keys(&self) -> impl Iterator<Item = StartKey> {
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
        (self.wants_more, self.is_backlogged, self.has_open) = (false, false, false);
        self.new_counts.rotate_right(1);
        self.new_counts[0] = 0;
    }

    /// Records that a connection is open at a measurement.
    pub fn see_open(&mut self, start: StartKey, now: Instant) {
        self.see(start, now);
        self.has_open = true;
    }

    /// Adds an open connection: its rate in the period, if it has been measured for all of it.
    pub fn add_connection(&mut self, rate: Option<f64>, estimator: &DemandEstimator, is_backlogged: bool) {
        self.rate += rate.unwrap_or(0.0);
        let Some(demand) = estimator.demand() else {
            self.is_backlogged |= is_backlogged;
            self.new_counts[0] += 1;
            return;
        };
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
        self.active_periods = if self.is_quiet() { 0 } else { RECENT_PERIODS.min(self.active_periods + 1) };
        self.rate += (short_bytes + closed_bytes) / period_secs;
        let limit = self.is_limited().then(|| to_rate(self.limit));
        self.total.add_measurement(to_rate(self.rate), limit, self.is_backlogged);
        self.wants_more |= self.is_total_decisive() && self.total.wants_more();
        self.bottleneck.add_period(to_rate(self.rate), limit, self.wants_more);
        self.update_tokens(period_secs);
    }

    fn update_tokens(&mut self, period_secs: f64) {
        // A lower limit applies from the next acknowledgement on. Bytes that were sent before still arrive then.
        let max_limit = self.max_limits[0].max(self.max_limits[1]);
        self.max_limits = [self.limit, self.max_limits[0]];
        let max_debt = (1.0 - MIN_LIMIT_FRACTION) * self.limit * DEBT_SECS;
        let burst_bytes = BURST_SECS * self.limit + BURST_BYTES;
        let token_bytes = self.token_bytes + (max_limit - self.rate) * period_secs;
        self.token_bytes = token_bytes.clamp(-max_debt, burst_bytes);
        self.is_repaying = self.token_bytes < 0.0 || self.is_repaying && self.token_bytes < burst_bytes;
    }

    /// The limit for the connections, reduced by a debt. Infinite without a limit.
    pub fn rate_to_divide(&self) -> f64 {
        self.limit + self.token_bytes.min(0.0) / DEBT_SECS
    }

    /// Whether new connections are paced.
    pub fn needs_start_rate(&self) -> bool {
        self.is_limited() && (self.is_repaying || self.total.wants_more())
    }

    /// The highest number of connections that had not been measured, at the ends of the last periods.
    pub fn max_new_count(&self) -> usize {
        self.new_counts.into_iter().max().unwrap_or(0)
    }

    /// Whether no connection is open, and none that closed has sent bytes recently.
    fn is_quiet(&self) -> bool {
        !self.has_open && !self.has_short_bytes.contains(&true)
    }

    /// The rate that connections before their first measurement are expected to send, by the last periods.
    pub fn short_demand(&self) -> f64 {
        SHORT_HEADROOM * self.short_rates.iter().sum::<f64>() / RECENT_PERIODS as f64
    }

    /// Whether the sum of the demands of measured connections lacks those of others.
    fn is_total_decisive(&self) -> bool {
        self.limited_demand.is_none() || self.has_short_bytes.contains(&true)
    }

    /// Forgets start rates without a recent connection, and returns whether the peer is still known.
    pub fn retain_recent(&mut self, now: Instant) -> bool {
        let is_recent = |last_seen: &Instant| now.saturating_duration_since(*last_seen) < LINGER;
        if !self.is_repaying || self.last_seen.values().any(is_recent) {
            self.last_seen.retain(|_, last_seen| is_recent(last_seen));
        }
        !self.last_seen.is_empty()
    }

    /// The demand of all connections. Unknown for a quiet peer.
    pub fn demand(&self) -> Demand {
        if self.is_quiet() {
            return Demand::Unknown;
        }
        let Some(total_demand) = self.total.demand() else { return Demand::Unknown };
        match (self.bottleneck.demand(), total_demand) {
            (FlowDemand::Unlimited, _) if self.wants_more => Demand::Unlimited,
            (FlowDemand::Rate(rate), _) if self.wants_more => Demand::Rate(rate.get().max(self.rate) as u64),
            (_, FlowDemand::Rate(rate)) if self.is_total_decisive() => Demand::Rate(rate.get() as u64),
            _ => Demand::Rate(self.limited_demand.unwrap_or(self.rate) as u64),
        }
    }
}

/// The rate of a number of bytes per second; zero for one that is no rate.
pub fn to_rate(rate: f64) -> Rate {
    Rate::new(rate).unwrap_or(Rate::ZERO)
}
