//! Computes the classes and filters that an interface should have.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use weir_core::units::Rate;

use super::ids;
use crate::htb::{Class, MAX_SERVICES, dscp};

/// Why queues cannot be configured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DesiredError {
    /// The rate of the link is out of range.
    #[error("a link of {0}: expected 8kbit to 100Gbit")]
    Link(Rate),
    /// There are too many queues, or none.
    #[error("{0} queues: expected 1 to {most}, since each has a mark (DSCP) of its own", most = MAX_SERVICES)]
    Queues(usize),
    /// A weight is not positive and finite, or is too large relative to the lowest.
    #[error(
        "weight {value} of queue {queue}: expected a finite number above zero, and at most 1e6 times the least"
    )]
    Weight {
        /// The queue, from 0.
        queue: usize,
        /// The weight.
        value: f64,
    },
    /// Too many classes, or none.
    #[error("{0} classes: expected 1 to {most}, since each has a mark (DSCP) of its own", most = MAX_SERVICES)]
    Classes(usize),
    /// A class refers to a queue that does not exist.
    #[error("class {class} has queue {queue}: expected one below {queues}")]
    NoQueue {
        /// The class, from 1.
        class: usize,
        /// The queue, from 0.
        queue: u32,
        /// The number of queues.
        queues: usize,
    },
    /// The number of a limited flow is out of range.
    #[error("limited flow {0}: expected numbers below {most}", most = ids::MAX_LIMITED)]
    Number(u16),
    /// The rate of a limited flow is too low, or exceeds the rest of the link.
    #[error(
        "limited flow {flow} has rate {rate}: expected 8bit or more, and at most 99 % of the link ({link}) for all together"
    )]
    Limits {
        /// The first limited flow that does not fit.
        flow: u16,
        /// The flow's rate.
        rate: Rate,
        /// The rate of the link.
        link: Rate,
    },
}

/// A UDP flow with a separate class: its rate is guaranteed, and the maximum. IPv4 only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limited {
    /// The source of its packets.
    pub from: SocketAddrV4,
    /// The destination of its packets.
    pub to: SocketAddrV4,
    /// The rate, which includes headers (whole frames).
    pub rate: Rate,
}

/// A desired class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The parent class; none for the class of the whole link.
    pub parent: Option<u16>,
    /// The parameters. The class of the whole link has no queue.
    pub class: Class,
}

/// A match of a u32 filter: 32 bits of a packet under a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The offset from the start of the IP header, in bytes.
    pub at: u16,
    /// The value.
    pub value: u32,
    /// The bits that are compared.
    pub mask: u32,
}

/// A desired filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The packet has to match all of these.
    pub keys: Vec<Key>,
    /// The class of matching packets.
    pub to: u16,
}

/// The queues that an interface should have.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    classes: BTreeMap<u16, Want>,
    filters: BTreeMap<(u16, u16), Filter>,
}

impl Desired {
    /// Creates a queue for each weight on a link, and one for packets without a mark. Packets with the mark [`dscp`] of a queue's number
    /// use that queue. The rates of limited flows are guaranteed, and the queues share the rest. `segments` is the maximum number of
    /// segments of a packet before the card splits it.
    ///
    /// # Errors
    /// If the link, a weight, or the number or rate of a limited flow is out of range, or limited flows take more than 99 % of the link.
    pub fn new(
        link: Rate,
        segments: u32,
        weights: &[f64],
        limited: &BTreeMap<u16, Limited>,
    ) -> Result<Desired, DesiredError> {
        if !(1e3..=12.5e9).contains(&link.get()) {
            return Err(DesiredError::Link(link));
        }
        if !(1..=MAX_SERVICES).contains(&weights.len()) {
            return Err(DesiredError::Queues(weights.len()));
        }
        let good = |weight: f64| weight.is_finite() && weight > 0.0;
        let least = weights.iter().copied().filter(|&w| good(w)).fold(f64::INFINITY, f64::min);
        if let Some(queue) = weights.iter().position(|&weight| !good(weight) || weight / least > 1e6) {
            return Err(DesiredError::Weight { queue, value: weights[queue] });
        }
        // Only ratios count, and the sum of normalized weights stays finite.
        let weights: Vec<f64> = weights.iter().map(|weight| weight / least).collect();
        let left = left(link, limited)?;
        let whole = settled(Class::whole(link, segments));
        let mut classes = BTreeMap::from([(ids::WHOLE, Want { parent: None, class: whole })]);
        let inside = |class: Class| Want { parent: Some(ids::WHOLE), class: settled(class) };
        for (number, class) in Class::weighted(link, segments, &weights).into_iter().enumerate() {
            let rate = (class.rate as f64 * left) as u64;
            let minor = if number < weights.len() { ids::QUEUES + number as u16 } else { ids::REST };
            classes.insert(minor, inside(Class { rate, ..class }));
        }
        let mut filters: BTreeMap<(u16, u16), Filter> =
            (0..weights.len()).flat_map(|number| by_mark(number, number as u16)).collect();
        for (&number, flow) in limited {
            let minor = ids::LIMITED + number;
            let rate = (flow.rate.get() * 8.0) as u64;
            classes.insert(minor, inside(Class { rate, ceil: rate, ..whole }));
            filters.insert((ids::BY_FLOW, number + 1), by_flow(flow, minor));
        }
        Ok(Desired { classes, filters })
    }

    /// Maps each class of packets to a queue, from 0; several classes may share a queue. Class n is that of packets with the mark n + 1.
    ///
    /// # Errors
    /// If there are too many classes or none, or a queue does not exist.
    pub fn with_classes(mut self, queue_of: &[u32]) -> Result<Desired, DesiredError> {
        if !(1..=MAX_SERVICES).contains(&queue_of.len()) {
            return Err(DesiredError::Classes(queue_of.len()));
        }
        let queues = self.classes.range(ids::QUEUES..ids::REST).count();
        if let Some(class) = queue_of.iter().position(|&queue| queue as usize >= queues) {
            return Err(DesiredError::NoQueue { class: class + 1, queue: queue_of[class], queues });
        }
        self.filters.retain(|(preference, _), _| !matches!(*preference, ids::BY_MARK | ids::BY_MARK6));
        let marked = queue_of.iter().enumerate().flat_map(|(class, &queue)| by_mark(class, queue as u16));
        self.filters.extend(marked);
        Ok(self)
    }

    /// Classes by number.
    pub fn classes(&self) -> &BTreeMap<u16, Want> {
        &self.classes
    }

    /// Filters by preference and number.
    pub fn filters(&self) -> &BTreeMap<(u16, u16), Filter> {
        &self.filters
    }
}

/// The fraction of the link that limited flows do not use.
fn left(link: Rate, limited: &BTreeMap<u16, Limited>) -> Result<f64, DesiredError> {
    let mut left = link.get();
    for (&flow, &Limited { rate, .. }) in limited {
        if flow >= ids::MAX_LIMITED {
            return Err(DesiredError::Number(flow));
        }
        left -= rate.get();
        if rate.get() < 1.0 || left < link.get() * 0.01 {
            return Err(DesiredError::Limits { flow, rate, link });
        }
    }
    Ok(left / link.get())
}

/// The filters that map packets with the mark of a class to a queue. Class and queue count from 0.
fn by_mark(class: usize, queue: u16) -> [((u16, u16), Filter); 2] {
    let (node, mark) = (class as u16 + 1, u32::from(dscp(class)) << 2);
    let by = |shift: u32| Filter {
        keys: vec![Key { at: 0, value: mark << shift, mask: 0xfc << shift }],
        to: ids::QUEUES + queue,
    };
    // The DSCP is in the second byte of an IPv4 header, and starts four bits earlier in an IPv6 header.
    [((ids::BY_MARK, node), by(16)), ((ids::BY_MARK6, node), by(20))]
}

fn by_flow(flow: &Limited, to: u16) -> Filter {
    const UDP: u32 = 17;
    let key = |at, value, mask| Key { at, value, mask };
    let ports = u32::from(flow.from.port()) << 16 | u32::from(flow.to.port());
    let all = u32::MAX;
    let keys = vec![
        key(8, UDP << 16, 0xff << 16),
        key(12, u32::from(*flow.from.ip()), all),
        key(16, u32::from(*flow.to.ip()), all),
        // The offset of the ports after an IP header without options.
        key(20, ports, all),
    ];
    Filter { keys, to }
}

/// Rounds rates to values that `tc` prints in full, so that the rate read back equals the rate that was set.
fn settled(class: Class) -> Class {
    Class { rate: printed(class.rate), ceil: printed(class.ceil), ..class }
}

/// The next lower rate that `tc` prints in full: whole bytes, and whole multiples of the unit that `tc` chooses. `tc` changes to the next
/// unit at 1,000,000 of a unit, so at least four digits remain.
fn printed(rate: u64) -> u64 {
    let mut unit = 8;
    if rate >= 1_000_000 {
        unit = 1000;
        while rate / unit >= 1_000_000 {
            unit *= 1000;
        }
    }
    rate.max(8) / unit * unit
}
