//! What an interface should have.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use weir_core::units::Rate;

use super::ids;
use crate::htb::{Class, MAX_SERVICES, dscp};

/// Why there can be no such queues.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DesiredError {
    /// The link.
    #[error("a link of {0}: expected 8kbit to 100Gbit")]
    Link(Rate),
    /// Too many queues, or none.
    #[error("{0} queues: expected 1 to {most}, since each has a mark (DSCP) of its own", most = MAX_SERVICES)]
    Queues(usize),
    /// A weight.
    #[error(
        "weight {value} of queue {queue}: expected a finite number above zero, and at most 1e6 times the least"
    )]
    Weight {
        /// Whose, from 0 on.
        queue: usize,
        /// Which.
        value: f64,
    },
    /// Too many classes, or none.
    #[error("{0} classes: expected 1 to {most}, since each has a mark (DSCP) of its own", most = MAX_SERVICES)]
    Classes(usize),
    /// A class that has no queue.
    #[error("class {class} has queue {queue}: expected one below {queues}")]
    NoQueue {
        /// Whose, from 1 on.
        class: usize,
        /// Which, from 0 on.
        queue: u32,
        /// How many there are.
        queues: usize,
    },
    /// The number of a limited flow.
    #[error("limited flow {0}: expected numbers below {most}", most = ids::MAX_LIMITED)]
    Number(u16),
    /// The rate of a limited flow.
    #[error(
        "limited flow {flow} has rate {rate}: expected 8bit or more, and at most 99 % of the link ({link}) for all together"
    )]
    Limits {
        /// The first that does not fit.
        flow: u16,
        /// Its rate.
        rate: Rate,
        /// The link's.
        link: Rate,
    },
}

/// A flow of UDP packets with a class of its own: no more than the rate, and no less if it wants it. IPv4 only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limited {
    /// Where its packets come from.
    pub from: SocketAddrV4,
    /// Where they go.
    pub to: SocketAddrV4,
    /// Its rate, of whole frames.
    pub rate: Rate,
}

/// A class that there should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The class that it is in; none for that of the whole link.
    pub parent: Option<u16>,
    /// Its numbers. That of the whole link has no queue of its own.
    pub class: Class,
}

/// What 32 bits of a packet have to be, as u32 filters have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Where, in bytes from the IP header on.
    pub at: u16,
    /// What they are.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

/// A filter that there should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// All of these.
    pub keys: Vec<Key>,
    /// The class of such packets.
    pub to: u16,
}

/// The queues that an interface should have.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    classes: BTreeMap<u16, Want>,
    filters: BTreeMap<(u16, u16), Filter>,
}

impl Desired {
    /// One queue for each weight on a link, for packets with the mark [`dscp`] of its number, and one for the others. Limited
    /// flows have their rates for sure, and the queues share what is left. `segments` is how many a packet has at most, before the
    /// card cuts it.
    ///
    /// # Errors
    /// Numbers that the kernel cannot have, or that promise more than there is.
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
        // Of all sizes only ratios count, and sums of these stay finite.
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

    /// The same queues, but each class of packets has the one that it is given here, from 0 on: several may share one. Classes are
    /// those with the marks from 1 on.
    ///
    /// # Errors
    /// Too many classes, or a queue that is not there.
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

/// The part of the link that limited flows leave.
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

/// The filters that lead packets with the mark of a class to a queue, both counted from 0.
fn by_mark(class: usize, queue: u16) -> [((u16, u16), Filter); 2] {
    let (node, mark) = (class as u16 + 1, u32::from(dscp(class)) << 2);
    let by = |shift: u32| Filter {
        keys: vec![Key { at: 0, value: mark << shift, mask: 0xfc << shift }],
        to: ids::QUEUES + queue,
    };
    // IPv4 has it in the second byte, IPv6 four bits earlier.
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
        // Behind a header without options.
        key(20, ports, all),
    ];
    Filter { keys, to }
}

/// Rates as `tc` prints them, so that what is read again is what was written.
fn settled(class: Class) -> Class {
    Class { rate: printed(class.rate), ceil: printed(class.ceil), ..class }
}

/// The next rate below that `tc` prints in full: whole bytes, and 1,000 in the unit that it chooses are the least that it
/// goes on with to the next, so there are four digits or more.
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
