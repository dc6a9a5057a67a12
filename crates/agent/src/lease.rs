//! Orders of a coordinator, kept as long as they hold. No clock, thread or socket: calls bring the time.
//!
//! An order is believed as a whole or not at all, and one that is refused changes nothing but a count. What holds:
//!
//! - *One master.* An order of an older epoch is refused, and so is one that was there already. A newer epoch begins with an order that
//!   names everything, and so does whatever comes after a gap: what is left out goes on as before only if nothing was lost.
//! - *No nonsense.* A rate is above zero and at most what a link carries, a lease ends, interfaces are those of this host.
//! - *Nothing for ever.* When the lease is over, all flows are free: they go as the transport lets them, and so do the connections of
//!   applications. Weights hold for [`WEIGHTS`] after the last order. Then those that were promised to somebody stay until others are
//!   ordered, as they keep nobody from a link that is idle; of others all packets share one queue, as if nobody had weighed them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_core::units::Rate;
pub use weir_proto::MAX_LEASE as LONGEST;
use weir_proto::{FlowKey, Limit, MAX_FLOWS, MAX_FOUND, Order, Pace, Queues, Refusals};

use crate::htb::MAX_SERVICES;

/// How long weights hold that nobody was promised, from the last order on; as long as its lease if that is longer.
pub const WEIGHTS: Duration = Duration::from_secs(30);

/// Why an order is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another coordinator has taken over.
    #[error("an older epoch")]
    Older,
    /// This order, or one after it, was there already.
    #[error("an order that was there already")]
    Repeated,
    /// Something is missing before it.
    #[error("orders before it are missing: expected one that names everything")]
    Gap,
    /// Its lease.
    #[error("a lease that is not above 0 s, or is above {} s", LONGEST.as_secs())]
    Lease,
    /// Flows that are not in order, or twice.
    #[error("flows out of order: expected each once, in order")]
    Unsorted,
    /// Too many flows.
    #[error("more than {MAX_FLOWS} flows")]
    Flows,
    /// An interface that this host does not have.
    #[error(
        "an interface that is not there: expected as many as this host or switch has by the coordinator's configuration"
    )]
    Interface,
    /// A rate.
    #[error(
        "a rate that is not above zero, or is above that of every link: expected links as the coordinator's configuration has them"
    )]
    Rate,
    /// Weights.
    #[error("weights that are not 1 to {MAX_SERVICES} finite numbers above zero")]
    Weights,
    /// Classes, of applications or with their queues.
    #[error("classes that are not 1 to {MAX_SERVICES}, each with a queue that is there")]
    Classes,
    /// Too many limits of applications.
    #[error("limits for more than {MAX_FOUND} applications with other hosts")]
    Limits,
}

/// Counts an order that was refused.
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

/// Keeps the orders to one host or switch.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseState {
    links: Vec<Rate>,
    /// Epoch and number of the last order that was believed; zeros before the first.
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
    /// For a host whose link carries so much, or a switch whose ports do.
    pub fn new(links: Vec<Rate>) -> LeaseState {
        let (rates, limits, queues) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (ends, lease) = (None, Duration::ZERO);
        LeaseState { links, obeys: (0, 0), ends, lease, rates, limits, queues, refusals: Refusals::default() }
    }

    /// Believes an order at a time, which counts from any point and does not go back, or refuses it. O(f log F) of f flows named
    /// and F known; one that names everything takes F besides.
    ///
    /// # Errors
    /// Why it is refused. What was in force stays so.
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

    /// Whether an order can be believed.
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
        // Each counts once before the list is known to have none twice.
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

    /// Epoch and number of the last order that was believed, as coordinators are told; zeros before the first.
    pub fn obeys(&self) -> (u64, u64) {
        self.obeys
    }

    /// When the lease is over, unless another order comes; none before the first.
    pub fn ends(&self) -> Option<Duration> {
        self.ends
    }

    /// For how long the last order that was believed holds; nothing before the first.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The rate of a flow at a time, in bytes per second; none if it goes as the transport lets it, as flows do that nobody named.
    pub fn rate(&self, key: &FlowKey, now: Duration) -> Option<u64> {
        self.rates.get(key).copied().filter(|_| self.holds(now))
    }

    /// All flows that have a rate at a time, in order.
    pub fn rates(&self, now: Duration) -> impl Iterator<Item = (&FlowKey, u64)> {
        let rates = self.holds(now).then_some(&self.rates).into_iter().flatten();
        rates.map(|(key, rate)| (key, *rate))
    }

    /// What all connections of each application with each other host may send at a time, in bytes per second; those that are not there are
    /// free.
    pub fn limits(&self, now: Duration) -> Option<&BTreeMap<Peer, u64>> {
        self.holds(now).then_some(&self.limits)
    }

    /// The queues of all interfaces that have some, as they are to be at a time.
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

    /// Whether weights hold that nobody was promised.
    pub fn weigh(&self, now: Duration) -> bool {
        self.ends.is_some_and(|ends| now + self.lease < ends + WEIGHTS.max(self.lease))
    }

    /// What was refused so far, as coordinators are told.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    fn holds(&self, now: Duration) -> bool {
        self.ends.is_some_and(|ends| now < ends)
    }
}
