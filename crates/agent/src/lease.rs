//! Lease state: keeps the orders of a coordinator while their lease holds. Sans-I/O: callers pass the time.
//!
//! An order is accepted or refused as a whole. A refused order leaves the state unchanged, and is counted. Invariants:
//!
//! - *One coordinator.* Orders of an older epoch and duplicates are refused. An epoch begins with a full order, and so does the
//!   sequence after a gap: a partial order leaves unnamed entries unchanged, which is valid only if no order was lost.
//! - *Valid input only.* A rate is above zero and at most that of the fastest link. A lease is above zero and at most
//!   [`MAX_LEASE`]. Links are those of this host or switch.
//! - *Nothing holds forever.* When the lease ends, flows and connections of applications are plain TCP, without a rate.
//!   Guaranteed weights stay until another order, since other queues can use their unused bandwidth. Other weights hold for
//!   [`WEIGHT_LEASE`] after the last order, or for the lease if that is longer; then all packets share one queue. Classes and the
//!   ordered traffic of applications stay until another order: they only select queues.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_core::units::Rate;
pub use weir_proto::MAX_LEASE;
use weir_proto::{
    ApplicationTraffic, BandwidthLimit, FlowKey, Limit, MAX_FLOWS_PER_HOST, MAX_OBSERVED, Order, OrderedRate,
    Queues, RefusedOrders,
};

use crate::htb::MAX_SERVICES;

/// How long weights that are not guaranteed hold after the last order. The lease applies if it is longer.
pub const WEIGHT_LEASE: Duration = Duration::from_secs(30);

/// How long a limit of the host's bandwidth holds after the last order. The lease applies if it is longer. Leases are too short for a
/// limit: a late order must not change the rate during a measurement.
pub const BANDWIDTH_LIMIT_LEASE: Duration = Duration::from_secs(10);

/// Why an order is refused. Each message completes "order N is refused: ...".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// The epoch is older: another coordinator has taken over.
    #[error("the epoch is stale; another coordinator has taken over")]
    StaleEpoch,
    /// This order, or a later one, has been accepted already.
    #[error("this order, or a later one, has been accepted already")]
    Duplicate,
    /// An earlier order is missing.
    #[error("earlier orders are missing; waiting for a full order")]
    Gap,
    /// The lease is zero, or above [`MAX_LEASE`].
    #[error("the lease is out of range; expected more than 0 s, and at most {} s", MAX_LEASE.as_secs())]
    Lease,
    /// Flows or limits are not sorted, or occur twice.
    #[error("flows or limits are not sorted; expected each once, in ascending order")]
    Unsorted,
    /// More flows than [`MAX_FLOWS_PER_HOST`].
    #[error("too many flows; expected at most {MAX_FLOWS_PER_HOST} per host")]
    Flows,
    /// A link that this host or switch does not have.
    #[error(
        "a link does not exist; expected as many links in the agent's options as in the coordinator's configuration"
    )]
    Interface,
    /// A rate is zero, or above that of all links.
    #[error(
        "a rate is zero, or above that of all links; expected the same link rates in the agent's options and the coordinator's configuration"
    )]
    Rate,
    /// Weights are not 1 to [`MAX_SERVICES`] positive finite numbers.
    #[error("the weights are invalid; expected 1 to {MAX_SERVICES} finite numbers above zero")]
    Weights,
    /// More classes than [`MAX_SERVICES`], none, a class without a queue, or an application whose class does not exist.
    #[error("the classes are invalid; expected 1 to {MAX_SERVICES}, each with an existing queue")]
    Classes,
    /// More limits of applications than [`MAX_OBSERVED`].
    #[error("too many limits; expected at most {MAX_OBSERVED} pairs of an application and a peer")]
    Limits,
}

/// Counts a refused order.
fn count_refusal(refusals: &mut RefusedOrders, reason: RefusalReason) {
    let count = match reason {
        RefusalReason::StaleEpoch => &mut refusals.stale_epoch,
        RefusalReason::Duplicate => &mut refusals.duplicate,
        RefusalReason::Gap => &mut refusals.gap,
        RefusalReason::Lease => &mut refusals.lease,
        RefusalReason::Unsorted => &mut refusals.unsorted,
        RefusalReason::Flows => &mut refusals.flows,
        RefusalReason::Interface => &mut refusals.interface,
        RefusalReason::Rate => &mut refusals.rate,
        RefusalReason::Weights => &mut refusals.weights,
        RefusalReason::Classes => &mut refusals.classes,
        RefusalReason::Limits => &mut refusals.limits,
    };
    *count += 1;
}

/// The orders of one host or switch, and their lease.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseState {
    link_rates: Vec<Rate>,
    /// Epoch and sequence number of the last accepted order; zeros before the first.
    applied: (u64, u64),
    lease_end: Option<Duration>,
    lease: Duration,
    /// The ordered flows.
    flows: BTreeMap<FlowKey, FlowLimit>,
    /// The lowest generation of the coordinator's store.
    first_generation: u64,
    limits: BTreeMap<ApplicationPeer, u64>,
    queues: BTreeMap<u32, Queues>,
    traffic: Vec<ApplicationTraffic>,
    bandwidth_limit: Option<BandwidthLimit>,
    /// See [`Order::without_queues`].
    without_queues: bool,
    refusals: RefusedOrders,
}

/// What a flow may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowLimit {
    /// As plain TCP.
    #[default]
    Unlimited,
    /// At most this many bytes of packets with headers per second.
    Rate(u64),
    /// At most this many, and nothing for flows that can be paused: a share of the reserve.
    Reserve(u64),
    /// Nothing. Only for flows that can be paused.
    Paused,
}

/// An application, and the address of another host.
pub type ApplicationPeer = (Arc<str>, IpAddr);

impl LeaseState {
    /// For a host whose link has this rate, or a switch whose ports have these rates.
    pub fn new(link_rates: Vec<Rate>) -> LeaseState {
        let (flows, limits, queues) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (lease_end, lease) = (None, Duration::ZERO);
        LeaseState {
            link_rates,
            applied: (0, 0),
            lease_end,
            lease,
            flows,
            first_generation: 0,
            limits,
            queues,
            traffic: Vec::new(),
            bandwidth_limit: None,
            without_queues: false,
            refusals: RefusedOrders::default(),
        }
    }

    /// Accepts or refuses an order. The time `now` counts from any point and is monotonic. O(f log F) for f flows in the order and F known
    /// flows, and O(F) in addition for a full order.
    ///
    /// # Errors
    /// Why the order is refused. The state stays unchanged, except for the count of refusals.
    pub fn accept(&mut self, order: Order, now: Duration) -> Result<(), RefusalReason> {
        self.check(&order).inspect_err(|&reason| count_refusal(&mut self.refusals, reason))?;
        if order.is_full {
            self.flows.clear();
            self.limits.clear();
        }
        for (key, ordered_rate) in order.flows {
            match ordered_rate {
                OrderedRate::Rate(rate) => self.flows.insert(key, FlowLimit::Rate(rate)),
                OrderedRate::Reserve(rate) => self.flows.insert(key, FlowLimit::Reserve(rate)),
                OrderedRate::Unlimited => self.flows.insert(key, FlowLimit::Unlimited),
                OrderedRate::Paused => self.flows.insert(key, FlowLimit::Paused),
                OrderedRate::Removed => self.flows.remove(&key),
            };
        }
        for Limit { application, peer, rate } in order.limits {
            match rate {
                OrderedRate::Rate(rate) => self.limits.insert((application, peer), rate),
                _ => self.limits.remove(&(application, peer)),
            };
        }
        self.without_queues = order.without_queues;
        if self.without_queues {
            self.queues.clear();
        }
        self.queues.extend(order.queues);
        // A full order without traffic is also that of a coordinator that does not know of it.
        if order.is_full || order.traffic.is_some() {
            self.traffic = order.traffic.unwrap_or_default();
        }
        self.bandwidth_limit = order.bandwidth_limit;
        self.applied = (order.epoch, order.seq);
        (self.lease_end, self.lease) = (Some(now.saturating_add(order.lease)), order.lease);
        Ok(())
    }

    /// Checks an order without changing the state.
    fn check(&self, order: &Order) -> Result<(), RefusalReason> {
        let (epoch, seq) = self.applied;
        if order.epoch < epoch {
            return Err(RefusalReason::StaleEpoch);
        }
        if order.epoch == epoch && order.seq <= seq {
            return Err(RefusalReason::Duplicate);
        }
        let is_next = self.lease_end.is_some() && order.epoch == epoch && order.seq - seq == 1;
        if !order.is_full && !is_next {
            return Err(RefusalReason::Gap);
        }
        if order.lease.is_zero() || order.lease > MAX_LEASE {
            return Err(RefusalReason::Lease);
        }
        let known_flows = if order.is_full { 0 } else { self.flows.len() };
        if order.flows.len() > MAX_FLOWS_PER_HOST - known_flows {
            return Err(RefusalReason::Flows);
        }
        if order.flows.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(RefusalReason::Unsorted);
        }
        let has_limit =
            |limit: &Limit| self.limits.contains_key(&(Arc::clone(&limit.application), limit.peer));
        let (mut limit_count, mut removed_count) = (if order.is_full { 0 } else { self.limits.len() }, 0);
        for limit in &order.limits {
            let existed = !order.is_full && has_limit(limit);
            match limit.rate {
                OrderedRate::Rate(_) => limit_count += usize::from(!existed),
                _ => removed_count += usize::from(existed),
            }
        }
        // Entries may still be duplicates here, so each counts; the order of the list is checked next.
        if limit_count > MAX_OBSERVED + removed_count || order.limits.len() > 2 * MAX_OBSERVED {
            return Err(RefusalReason::Limits);
        }
        let limit_key = |limit: &Limit| (Arc::clone(&limit.application), limit.peer);
        if order.limits.windows(2).any(|pair| limit_key(&pair[0]) >= limit_key(&pair[1])) {
            return Err(RefusalReason::Unsorted);
        }
        let max_link_rate = self.max_link_rate();
        let flow_rates = order.flows.iter().map(|(_, rate)| *rate);
        for ordered_rate in flow_rates.chain(order.limits.iter().map(|limit| limit.rate)) {
            if let OrderedRate::Rate(rate) | OrderedRate::Reserve(rate) = ordered_rate
                && (rate == 0 || rate as f64 > max_link_rate)
            {
                return Err(RefusalReason::Rate);
            }
        }
        for (interface, queues) in &order.queues {
            let Queues { weights, queue_of_class, class_of_application, unclassified, .. } = queues;
            if *interface as usize >= self.link_rates.len() {
                return Err(RefusalReason::Interface);
            }
            let is_valid = |weight: &f64| weight.is_finite() && *weight > 0.0;
            if !(1..=MAX_SERVICES).contains(&weights.len())
                || !weights.iter().all(is_valid)
                || !unclassified.is_valid()
            {
                return Err(RefusalReason::Weights);
            }
            let has_queue = queue_of_class.iter().all(|&queue| (queue as usize) < weights.len());
            let class_count = queue_of_class.len();
            let has_class = class_of_application.iter().all(|&(_, class)| class as usize <= class_count);
            if !(1..=MAX_SERVICES).contains(&class_count) || !has_queue || !has_class {
                return Err(RefusalReason::Classes);
            }
        }
        Ok(())
    }

    /// Epoch and sequence number of the last accepted order, as reported to the coordinator; zeros before the first.
    pub fn applied(&self) -> (u64, u64) {
        self.applied
    }

    /// The end of the lease unless another order arrives; none before the first order.
    pub fn lease_end(&self) -> Option<Duration> {
        self.lease_end
    }

    /// The lease of the last accepted order; zero before the first.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// What a flow may send at a time. Unlimited if no order names the flow, or the lease has ended.
    pub fn flow_limit(&self, key: &FlowKey, now: Duration) -> FlowLimit {
        self.flows.get(key).copied().filter(|_| self.is_lease_valid(now)).unwrap_or_default()
    }

    /// The rate of the fastest link, in bytes per second.
    pub fn max_link_rate(&self) -> f64 {
        self.link_rates.iter().map(|link| link.get()).fold(0.0, f64::max)
    }

    /// Whether the orders name a flow, also after the end of the lease: the coordinator knows it, and it has not completed.
    pub fn names_flow(&self, key: &FlowKey) -> bool {
        self.flows.contains_key(key)
    }

    /// Whether a valid order limits a flow, so that flows of this host may wait.
    pub fn has_limited_flows(&self, now: Duration) -> bool {
        self.is_lease_valid(now) && self.flows.values().any(|limit| *limit != FlowLimit::Unlimited)
    }

    /// All flows that have a rate at a time, sorted by key.
    pub fn rates(&self, now: Duration) -> impl Iterator<Item = (&FlowKey, u64)> {
        let flows = self.is_lease_valid(now).then_some(&self.flows).into_iter().flatten();
        flows.filter_map(|(key, limit)| match limit {
            FlowLimit::Rate(rate) | FlowLimit::Reserve(rate) => Some((key, *rate)),
            FlowLimit::Unlimited | FlowLimit::Paused => None,
        })
    }

    /// Sets the lowest generation of the coordinator's store.
    pub fn set_first_generation(&mut self, first_generation: u64) {
        self.first_generation = first_generation;
    }

    /// The generation that a flow belongs to by the orders, if it differs from that of its key. A flow without a generation (0) was
    /// handed over before an order named its coflow. A flow of an earlier store that was lost continues in the coflow that its
    /// framework registered again. All other flows stay with their registration, also after its removal.
    pub fn new_generation(&self, key: &FlowKey) -> Option<u64> {
        if key.generation != 0 && (key.generation >= self.first_generation || self.knows_registration(key)) {
            return None;
        }
        let newest = self.newest_generation(&key.coflow)?;
        (key.generation == 0 || newest >= self.first_generation).then_some(newest)
    }

    /// The newest generation of a coflow in the orders, also after the end of the lease.
    pub fn newest_generation(&self, coflow: &Arc<str>) -> Option<u64> {
        let last = FlowKey { coflow: Arc::clone(coflow), generation: u64::MAX, flow: u32::MAX };
        let newest = self.flows.range(..=last).next_back().map(|(key, _)| key)?;
        (newest.coflow == *coflow).then_some(newest.generation)
    }

    /// Whether orders name a flow of the same registration.
    fn knows_registration(&self, key: &FlowKey) -> bool {
        let flow = |flow| FlowKey { flow, ..key.clone() };
        self.flows.range(flow(0)..=flow(u32::MAX)).next().is_some()
    }

    /// The limit of all connections of each application with each other host at a time, in bytes per second. Connections without an entry
    /// are not paced. None if the lease has ended.
    pub fn limits(&self, now: Duration) -> Option<&BTreeMap<ApplicationPeer, u64>> {
        self.is_lease_valid(now).then_some(&self.limits)
    }

    /// The queues of all links that have ordered queues, at a time.
    pub fn queues(&self, now: Duration) -> Cow<'_, BTreeMap<u32, Queues>> {
        if self.are_weights_valid(now) {
            return Cow::Borrowed(&self.queues);
        }
        let without_weights = |queues: &Queues| match queues.guaranteed {
            true => queues.clone(),
            false => Queues {
                weights: vec![1.0],
                queue_of_class: vec![0; queues.queue_of_class.len()],
                rate_bounds: Vec::new(),
                ..queues.clone()
            },
        };
        Cow::Owned(
            self.queues.iter().map(|(&interface, queues)| (interface, without_weights(queues))).collect(),
        )
    }

    /// Whether the last order ends the queues of all links and the classes of applications.
    pub fn without_queues(&self) -> bool {
        self.without_queues
    }

    /// The ordered traffic of applications. It stays after the end of the lease, as the classes of applications do.
    pub fn traffic(&self) -> &[ApplicationTraffic] {
        &self.traffic
    }

    /// Whether weights that are not guaranteed hold.
    pub fn are_weights_valid(&self, now: Duration) -> bool {
        self.is_recent(WEIGHT_LEASE, now)
    }

    /// The limit of what the host sends at a time.
    pub fn bandwidth_limit(&self, now: Duration) -> Option<BandwidthLimit> {
        self.bandwidth_limit.filter(|_| self.is_recent(BANDWIDTH_LIMIT_LEASE, now))
    }

    /// Whether the last order arrived within a time, or within its lease if that is longer.
    fn is_recent(&self, time: Duration, now: Duration) -> bool {
        self.lease_end.is_some_and(|end| now + self.lease < end + time.max(self.lease))
    }

    /// The number of refused orders by reason, as reported to the coordinator.
    pub fn refusals(&self) -> RefusedOrders {
        self.refusals
    }

    /// Whether the last order holds.
    pub fn is_lease_valid(&self, now: Duration) -> bool {
        self.lease_end.is_some_and(|end| now < end)
    }
}
