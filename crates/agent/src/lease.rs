//! Orders of a coordinator, kept as long as they hold. No clock, thread or socket: calls bring the time.
//!
//! An order is believed as a whole or not at all, and one that is refused changes nothing but a count. What holds:
//!
//! - *One master.* An order of an older epoch is refused, and so is one that was there already. A newer epoch begins with an order that
//!   names everything, and so does whatever comes after a gap: what is left out goes on as before only if nothing was lost.
//! - *No nonsense.* A rate is above zero and at most what the link carries, a lease ends, interfaces are those of this host.
//! - *Nothing for ever.* When the lease is over, all flows are free: they go as the transport lets them. Weights of queues stay,
//!   as they keep nobody from a link that is idle, and are all that is guaranteed then.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_core::units::Rate;

use crate::htb::MOST_SERVICES;

/// The longest lease, in seconds.
pub const LONGEST: f64 = 60.0;

/// The most flows of a host at a time.
pub const MOST_FLOWS: usize = 1 << 20;

/// What is to be done with a flow, as it came: nothing is checked yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Told {
    /// At most so many bytes per second, over the interface of this number.
    Rate {
        /// The interface, by its place in what [`Keeper::new`] was given.
        interface: usize,
        /// The rate.
        rate: f64,
    },
    /// As fast as the transport goes.
    Free,
    /// Nothing any more.
    Gone,
}

/// An order, as it came. `K` says which flow is meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Order<K> {
    /// Which coordinator decided: of two, the one with the higher number is right.
    pub epoch: u64,
    /// Which of its decisions this is; rises by one from an order to the next.
    pub seq: u64,
    /// How many seconds it holds without another.
    pub lease: f64,
    /// Whether flows that are not named are gone; otherwise they go on as they were told before.
    pub whole: bool,
    /// In order of keys, each once.
    pub flows: Vec<(K, Told)>,
    /// Weights of the queues of interfaces, for those whose weights change.
    pub weights: Vec<(usize, Vec<f64>)>,
}

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
    #[error("a lease that is not above 0 s, or is above {LONGEST} s")]
    Lease,
    /// Flows that are not in order, or twice.
    #[error("flows out of order: expected each once, in order")]
    Unsorted,
    /// Too many flows.
    #[error("more than {MOST_FLOWS} flows")]
    Flows,
    /// An interface that this host does not have.
    #[error("an interface that is not there")]
    Interface,
    /// A rate.
    #[error("a rate that is not above zero, or is above that of the link")]
    Rate,
    /// Weights.
    #[error("weights that are not 1 to {MOST_SERVICES} finite numbers above zero")]
    Weights,
}

/// How many orders were refused, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals {
    /// See [`Refused::Older`].
    pub older: u64,
    /// See [`Refused::Repeated`].
    pub repeated: u64,
    /// See [`Refused::Gap`].
    pub gap: u64,
    /// See [`Refused::Lease`].
    pub lease: u64,
    /// See [`Refused::Unsorted`].
    pub unsorted: u64,
    /// See [`Refused::Flows`].
    pub flows: u64,
    /// See [`Refused::Interface`].
    pub interface: u64,
    /// See [`Refused::Rate`].
    pub rate: u64,
    /// See [`Refused::Weights`].
    pub weights: u64,
}

impl Refusals {
    fn count(&mut self, why: Refused) {
        let count = match why {
            Refused::Older => &mut self.older,
            Refused::Repeated => &mut self.repeated,
            Refused::Gap => &mut self.gap,
            Refused::Lease => &mut self.lease,
            Refused::Unsorted => &mut self.unsorted,
            Refused::Flows => &mut self.flows,
            Refused::Interface => &mut self.interface,
            Refused::Rate => &mut self.rate,
            Refused::Weights => &mut self.weights,
        };
        *count += 1;
    }
}

/// How a flow is paced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At most at the rate, over the interface of this number.
    Rate {
        /// The interface.
        interface: usize,
        /// The rate: above zero, and at most that of the link.
        rate: Rate,
    },
    /// As the transport goes.
    Free,
}

/// Keeps the orders to one host.
#[derive(Debug, Clone, PartialEq)]
pub struct Keeper<K> {
    links: Vec<Rate>,
    /// Epoch and number of the last order that was believed; zeros before the first.
    obeys: (u64, u64),
    ends: Option<Duration>,
    paces: BTreeMap<K, Pace>,
    weights: BTreeMap<usize, Vec<f64>>,
    refusals: Refusals,
}

impl<K: Ord + Clone> Keeper<K> {
    /// For a host whose interfaces carry so much.
    pub fn new(links: Vec<Rate>) -> Keeper<K> {
        let (paces, weights) = (BTreeMap::new(), BTreeMap::new());
        Keeper { links, obeys: (0, 0), ends: None, paces, weights, refusals: Refusals::default() }
    }

    /// Believes an order at a time, which counts from any point and does not go back, or refuses it. O(f log F) of f flows named
    /// and F known; one that names everything takes F besides.
    ///
    /// # Errors
    /// Why it is refused. What was in force stays so.
    pub fn accept(&mut self, order: Order<K>, now: Duration) -> Result<(), Refused> {
        let lease = self.check(&order).inspect_err(|&why| self.refusals.count(why))?;
        if order.whole {
            self.paces.clear();
        }
        for (key, told) in order.flows {
            let pace = match told {
                Told::Rate { interface, rate } => {
                    Pace::Rate { interface, rate: Rate::new(rate).expect("it was checked") }
                }
                Told::Free => Pace::Free,
                Told::Gone => {
                    self.paces.remove(&key);
                    continue;
                }
            };
            self.paces.insert(key, pace);
        }
        self.weights.extend(order.weights);
        self.obeys = (order.epoch, order.seq);
        self.ends = Some(now.saturating_add(lease));
        Ok(())
    }

    /// Whether an order can be believed; the answer is how long it holds.
    fn check(&self, order: &Order<K>) -> Result<Duration, Refused> {
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
        if !(order.lease > 0.0 && order.lease <= LONGEST) {
            return Err(Refused::Lease);
        }
        let known = if order.whole { 0 } else { self.paces.len() };
        if order.flows.len() > MOST_FLOWS - known {
            return Err(Refused::Flows);
        }
        if order.flows.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(Refused::Unsorted);
        }
        for (_, told) in &order.flows {
            if let &Told::Rate { interface, rate } = told {
                let link = self.links.get(interface).ok_or(Refused::Interface)?;
                if !(rate > 0.0 && rate <= link.get()) {
                    return Err(Refused::Rate);
                }
            }
        }
        for (interface, weights) in &order.weights {
            if *interface >= self.links.len() {
                return Err(Refused::Interface);
            }
            let good = |weight: &f64| weight.is_finite() && *weight > 0.0;
            if !(1..=MOST_SERVICES).contains(&weights.len()) || !weights.iter().all(good) {
                return Err(Refused::Weights);
            }
        }
        Ok(Duration::from_secs_f64(order.lease))
    }

    /// Epoch and number of the last order that was believed, as coordinators are told; zeros before the first.
    pub fn obeys(&self) -> (u64, u64) {
        self.obeys
    }

    /// When the lease is over, unless another order comes; none before the first.
    pub fn ends(&self) -> Option<Duration> {
        self.ends
    }

    /// How a flow is paced at a time. Flows that nobody named are free.
    pub fn pace(&self, key: &K, now: Duration) -> Pace {
        if self.holds(now) { self.paces.get(key).copied().unwrap_or(Pace::Free) } else { Pace::Free }
    }

    /// All flows that have a rate at a time, in order.
    pub fn rates(&self, now: Duration) -> impl Iterator<Item = (&K, usize, Rate)> {
        let paces = self.holds(now).then_some(&self.paces).into_iter().flatten();
        paces.filter_map(|(key, pace)| match *pace {
            Pace::Rate { interface, rate } => Some((key, interface, rate)),
            Pace::Free => None,
        })
    }

    /// The weights of an interface's queues, whatever the lease; none if there are none.
    pub fn weights(&self, interface: usize) -> Option<&[f64]> {
        self.weights.get(&interface).map(Vec::as_slice)
    }

    /// What was refused so far.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    fn holds(&self, now: Duration) -> bool {
        self.ends.is_some_and(|ends| now < ends)
    }
}
