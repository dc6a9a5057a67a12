//! Lease state: keeps the orders of a coordinator while their lease holds. Sans-I/O: callers pass the time.
//!
//! An order is accepted or refused as a whole. A refused order leaves the state unchanged, and is counted. Invariants:
//!
//! - *One coordinator.* Orders of an older epoch and duplicates are refused. An epoch begins with a complete order, and so does the
//!   sequence after a gap: what an order does not name stays unchanged only if no order was lost.
//! - *Valid input only.* A rate is above zero and at most that of the fastest link. A lease is above zero and at most [`LONGEST`].
//!   Interfaces are those of this host.
//! - *Nothing holds forever.* When the lease ends, flows and connections of applications are plain TCP, without a rate. Weights hold for
//!   [`WEIGHTS`] after the last order. Guaranteed weights then stay until another order, since other queues can use their unused
//!   bandwidth. For other weights, all packets then share one queue, as without weights.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_core::units::Rate;
pub use weir_proto::MAX_LEASE as LONGEST;
use weir_proto::{FlowKey, Limit, MAX_FLOWS, MAX_FOUND, Order, Pace, Queues, Refusals};

use crate::htb::MAX_SERVICES;

/// How long weights that are not guaranteed hold after the last order. The lease applies if it is longer.
pub const WEIGHTS: Duration = Duration::from_secs(30);

/// Why an order is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The epoch is older: another coordinator has taken over.
    #[error("an older epoch")]
    Older,
    /// This order, or a later one, has been accepted already.
    #[error("an order that was there already")]
    Repeated,
    /// An earlier order is missing.
    #[error("orders before it are missing: expected one that names everything")]
    Gap,
    /// The lease is zero, or above [`LONGEST`].
    #[error("a lease that is not above 0 s, or is above {} s", LONGEST.as_secs())]
    Lease,
    /// Flows or limits are not sorted, or occur twice.
    #[error("flows out of order: expected each once, in order")]
    Unsorted,
    /// More flows than [`MAX_FLOWS`].
    #[error("more than {MAX_FLOWS} flows")]
    Flows,
    /// An interface that this host or switch does not have.
    #[error(
        "an interface that is not there: expected as many as this host or switch has by the coordinator's configuration"
    )]
    Interface,
    /// A rate is zero, or above that of all links.
    #[error(
        "a rate that is not above zero, or is above that of every link: expected links as the coordinator's configuration has them"
    )]
    Rate,
    /// Weights are not 1 to [`MAX_SERVICES`] positive finite numbers.
    #[error("weights that are not 1 to {MAX_SERVICES} finite numbers above zero")]
    Weights,
    /// More classes than [`MAX_SERVICES`], none, a class without a queue, or an application whose class does not exist.
    #[error("classes that are not 1 to {MAX_SERVICES}, each with a queue that is there")]
    Classes,
    /// More limits of applications than [`MAX_FOUND`].
    #[error("limits for more than {MAX_FOUND} applications with other hosts")]
    Limits,
}

/// Counts a refused order.
fn count(refusals: &mut Refusals, why: Refused) {
    let count = match why {
        Refused::Older => &mut refusals.older,
        Refused::Repeated => &mut refusals.repeated,
        Refused::Gap => &mut refusals.gap,
        Refused::Lease => &mut refusals.lease,
        Refused::Unsorted => &mut refusals.unsorted,
        Refused::Flows => &mut refusals.flows,
        Refused::Interface => &mut refusals.interface,
        Refused::Rate => &mut refusals.rate,
        Refused::Weights => &mut refusals.weights,
        Refused::Classes => &mut refusals.classes,
        Refused::Limits => &mut refusals.limits,
    };
    *count += 1;
}

/// The orders of one host or switch, and their lease.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseState {
    links: Vec<Rate>,
    /// Epoch and sequence number of the last accepted order; zeros before the first.
    obeys: (u64, u64),
    ends: Option<Duration>,
    lease: Duration,
    rates: BTreeMap<FlowKey, u64>,
    limits: BTreeMap<Peer, u64>,
    queues: BTreeMap<u32, Queues>,
    refusals: Refusals,
}

/// An application, and the address of another host.
pub type Peer = (Arc<str>, IpAddr);

impl LeaseState {
    /// For a host whose link has this rate, or a switch whose ports have these.
    pub fn new(links: Vec<Rate>) -> LeaseState {
        let (rates, limits, queues) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (ends, lease) = (None, Duration::ZERO);
        LeaseState { links, obeys: (0, 0), ends, lease, rates, limits, queues, refusals: Refusals::default() }
    }

    /// Accepts or refuses an order. The time `now` counts from any point and is monotonic. O(f log F) for f flows in the order and F known
    /// flows, and O(F) in addition for a complete order.
    ///
    /// # Errors
    /// Why the order is refused. The state stays unchanged, except for the count.
    pub fn accept(&mut self, order: Order, now: Duration) -> Result<(), Refused> {
        self.check(&order).inspect_err(|&why| count(&mut self.refusals, why))?;
        if order.whole {
            self.rates.clear();
            self.limits.clear();
        }
        for (key, pace) in order.flows {
            match pace {
                Pace::Rate(rate) => self.rates.insert(key, rate),
                Pace::Free | Pace::Gone => self.rates.remove(&key),
            };
        }
        for Limit { application, peer, pace } in order.limits {
            match pace {
                Pace::Rate(rate) => self.limits.insert((application, peer), rate),
                Pace::Free | Pace::Gone => self.limits.remove(&(application, peer)),
            };
        }
        self.queues.extend(order.queues);
        self.obeys = (order.epoch, order.seq);
        (self.ends, self.lease) = (Some(now.saturating_add(order.lease)), order.lease);
        Ok(())
    }

    /// Whether an order is valid here; changes nothing.
    fn check(&self, order: &Order) -> Result<(), Refused> {
        let (epoch, seq) = self.obeys;
        if order.epoch < epoch {
            return Err(Refused::Older);
        }
        if order.epoch == epoch && order.seq <= seq {
            return Err(Refused::Repeated);
        }
        let follows = self.ends.is_some() && order.epoch == epoch && order.seq - seq == 1;
        if !order.whole && !follows {
            return Err(Refused::Gap);
        }
        if order.lease.is_zero() || order.lease > LONGEST {
            return Err(Refused::Lease);
        }
        let known = if order.whole { 0 } else { self.rates.len() };
        if order.flows.len() > MAX_FLOWS - known {
            return Err(Refused::Flows);
        }
        if order.flows.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(Refused::Unsorted);
        }
        let known = |limit: &Limit| self.limits.contains_key(&(Arc::clone(&limit.application), limit.peer));
        let (mut limits, mut over) = (if order.whole { 0 } else { self.limits.len() }, 0);
        for limit in &order.limits {
            let was_there = !order.whole && known(limit);
            match limit.pace {
                Pace::Rate(_) => limits += usize::from(!was_there),
                Pace::Free | Pace::Gone => over += usize::from(was_there),
            }
        }
        // Entries may still be duplicates here, so each counts; the order of the list is checked next.
        if limits > MAX_FOUND + over || order.limits.len() > 2 * MAX_FOUND {
            return Err(Refused::Limits);
        }
        let of = |limit: &Limit| (Arc::clone(&limit.application), limit.peer);
        if order.limits.windows(2).any(|pair| of(&pair[0]) >= of(&pair[1])) {
            return Err(Refused::Unsorted);
        }
        let line = self.links.iter().map(|link| link.get()).fold(0.0, f64::max);
        let paces = order.flows.iter().map(|(_, pace)| *pace);
        for pace in paces.chain(order.limits.iter().map(|limit| limit.pace)) {
            if let Pace::Rate(rate) = pace
                && (rate == 0 || rate as f64 > line)
            {
                return Err(Refused::Rate);
            }
        }
        for (interface, Queues { weights, queue_of, classes, .. }) in &order.queues {
            if *interface as usize >= self.links.len() {
                return Err(Refused::Interface);
            }
            let good = |weight: &f64| weight.is_finite() && *weight > 0.0;
            if !(1..=MAX_SERVICES).contains(&weights.len()) || !weights.iter().all(good) {
                return Err(Refused::Weights);
            }
            let has_queue = queue_of.iter().all(|&queue| (queue as usize) < weights.len());
            let has_mark = classes.iter().all(|&(_, class)| class >= 1 && class as usize <= queue_of.len());
            if !(1..=MAX_SERVICES).contains(&queue_of.len()) || !has_queue || !has_mark {
                return Err(Refused::Classes);
            }
        }
        Ok(())
    }

    /// Epoch and sequence number of the last accepted order, as reported to the coordinator; zeros before the first.
    pub fn obeys(&self) -> (u64, u64) {
        self.obeys
    }

    /// The end of the lease unless another order arrives; none before the first order.
    pub fn ends(&self) -> Option<Duration> {
        self.ends
    }

    /// The lease of the last accepted order; zero before the first.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The rate of a flow at a time, in bytes per second. None if the flow is not paced, or no order named it.
    pub fn rate(&self, key: &FlowKey, now: Duration) -> Option<u64> {
        self.rates.get(key).copied().filter(|_| self.holds(now))
    }

    /// All flows that have a rate at a time, sorted by key.
    pub fn rates(&self, now: Duration) -> impl Iterator<Item = (&FlowKey, u64)> {
        let rates = self.holds(now).then_some(&self.rates).into_iter().flatten();
        rates.map(|(key, rate)| (key, *rate))
    }

    /// The limit of all connections of each application with each other host at a time, in bytes per second. Connections without an entry
    /// are not paced. None if the lease has ended.
    pub fn limits(&self, now: Duration) -> Option<&BTreeMap<Peer, u64>> {
        self.holds(now).then_some(&self.limits)
    }

    /// The queues of all interfaces that have some, at a time.
    pub fn queues(&self, now: Duration) -> Cow<'_, BTreeMap<u32, Queues>> {
        if self.weigh(now) {
            return Cow::Borrowed(&self.queues);
        }
        let open = |queues: &Queues| match queues.guaranteed {
            true => queues.clone(),
            false => {
                Queues { weights: vec![1.0], queue_of: vec![0; queues.queue_of.len()], ..queues.clone() }
            }
        };
        Cow::Owned(self.queues.iter().map(|(&interface, queues)| (interface, open(queues))).collect())
    }

    /// Whether weights that are not guaranteed hold.
    pub fn weigh(&self, now: Duration) -> bool {
        self.ends.is_some_and(|ends| now + self.lease < ends + WEIGHTS.max(self.lease))
    }

    /// The number of refused orders by reason, as reported to the coordinator.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    fn holds(&self, now: Duration) -> bool {
        self.ends.is_some_and(|ends| now < ends)
    }
}
