//! Encodes and decodes orders and reports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::order::{
    Arrival, Demand, FlowKey, FlowProgress, Found, Limit, Mark, Order, Pace, Queues, Report, Way, is_id,
};
use crate::{
    Conflict, MAX_APPLICATIONS, MAX_CONFLICTS, MAX_FLOWS, MAX_FOUND, MAX_QUEUES, MAX_SEEN, MAX_WAYS,
    Refusals, Restored, wire,
};

/// Why a message is not a valid order or report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A list is too long.
    #[error("{found} {what}: expected at most {most}")]
    Many {
        /// The entries of the list.
        what: &'static str,
        /// Their number.
        found: usize,
        /// The maximum number.
        most: usize,
    },
    /// Two lists that belong together have different lengths.
    #[error("{found} {what}: expected {expected}, as many as the list beside has")]
    Uneven {
        /// The entries of the list.
        what: &'static str,
        /// Their number.
        found: usize,
        /// The number of entries of the other list.
        expected: usize,
    },
    /// An id is invalid.
    #[error("an id of a coflow or an application: expected 1 to 128 printable characters without spaces")]
    Id,
    /// A list is not sorted, or contains an entry twice.
    #[error("{0} out of order: expected each once, in order")]
    Unsorted(&'static str),
    /// A conflict is invalid.
    #[error(
        "a conflict: expected an interface's name of 1 to 15 bytes, a reason from 1 to 5 and at most 200 bytes of text"
    )]
    Conflict,
    /// A weight is not positive and finite.
    #[error("a weight: expected a finite number above 0")]
    Weight,
    /// The class of an application is out of range.
    #[error("class {class} of an application: expected 1 to {most}, as many as there are")]
    Class {
        /// The class.
        class: u32,
        /// The number of classes.
        most: usize,
    },
    /// The class of an arrival is out of range.
    #[error("class {0} of what arrives: expected 1 to 63")]
    Mark(u8),
    /// A class refers to a queue that does not exist.
    #[error("queue {queue} of a class: expected one below {queues}")]
    Queue {
        /// The queue.
        queue: u32,
        /// The number of queues.
        queues: usize,
    },
}

fn even(what: &'static str, found: usize, expected: usize) -> Result<(), Malformed> {
    if found == expected { Ok(()) } else { Err(Malformed::Uneven { what, found, expected }) }
}

fn limit(what: &'static str, found: usize, most: usize) -> Result<(), Malformed> {
    if found <= most { Ok(()) } else { Err(Malformed::Many { what, found, most }) }
}

/// Checks that numbers are strictly increasing.
fn rising(what: &'static str, numbers: &[u32]) -> Result<(), Malformed> {
    let rise = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if rise { Ok(()) } else { Err(Malformed::Unsorted(what)) }
}

/// Encodes keys, which are sorted.
fn pack<'a>(keys: impl Iterator<Item = &'a FlowKey>) -> wire::Flows {
    let mut flows = wire::Flows::default();
    let mut last: Option<&str> = None;
    for key in keys {
        match flows.counts.last_mut() {
            Some(count) if last == Some(&*key.coflow) => *count += 1,
            _ => {
                if last.is_some() {
                    flows.coflows.push(' ');
                }
                flows.coflows.push_str(&key.coflow);
                flows.counts.push(1);
                last = Some(&key.coflow);
            }
        }
        flows.places.push(key.flow);
    }
    flows
}

fn unpack(flows: Option<wire::Flows>, most: usize) -> Result<Vec<FlowKey>, Malformed> {
    let wire::Flows { coflows, counts, places } = flows.unwrap_or_default();
    limit("flows", places.len(), most)?;
    let ids = || coflows.split(' ').filter(|_| !coflows.is_empty());
    even("counts of flows", counts.len(), ids().count())?;
    even("places of flows", places.len(), counts.iter().map(|&count| count as usize).sum())?;
    let mut keys = Vec::with_capacity(places.len());
    let (mut rest, mut last) = (&places[..], "");
    for (id, &count) in ids().zip(&counts) {
        if !is_id(id) {
            return Err(Malformed::Id);
        }
        if count == 0 || id <= last {
            return Err(Malformed::Unsorted("coflows"));
        }
        last = id;
        let (mine, others) = rest.split_at(count as usize);
        rest = others;
        rising("places of flows", mine)?;
        let coflow: Arc<str> = id.into();
        keys.extend(mine.iter().map(|&flow| FlowKey { coflow: Arc::clone(&coflow), flow }));
    }
    Ok(keys)
}

/// An address as 16 bytes; IPv4 is mapped.
fn six(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

/// Pairs of applications and hosts, as encoded: the names, the number of hosts of each, and the addresses.
struct Peers {
    applications: String,
    counts: Vec<u32>,
    addresses: Vec<u8>,
}

impl Peers {
    /// Encodes a list that is sorted by application and address.
    fn pack<T>(list: &[T], of: impl Fn(&T) -> (&str, IpAddr)) -> Peers {
        let by_application = || list.chunk_by(|a, b| of(a).0 == of(b).0);
        Peers {
            applications: by_application().map(|some| of(&some[0]).0).collect::<Vec<_>>().join(" "),
            counts: by_application().map(|some| some.len() as u32).collect(),
            addresses: list.iter().flat_map(|one| six(of(one).1).octets()).collect(),
        }
    }

    /// Decodes `count` pairs, and checks that they are sorted and unique.
    fn unpack(self, what: &'static str, count: usize) -> Result<Vec<(Arc<str>, IpAddr)>, Malformed> {
        let Peers { applications, counts, addresses } = self;
        limit(what, count, MAX_FOUND)?;
        let names = || applications.split(' ').filter(|_| !applications.is_empty());
        even("counts of hosts", counts.len(), names().count())?;
        even("hosts", count, counts.iter().map(|&count| count as usize).sum())?;
        even("bytes of addresses", addresses.len(), 16 * count)?;
        let mut addresses = addresses.as_chunks::<16>().0.iter();
        let mut list: Vec<(Arc<str>, IpAddr)> = Vec::with_capacity(count);
        for (name, count) in names().zip(counts) {
            if !is_id(name) {
                return Err(Malformed::Id);
            }
            let name: Arc<str> = name.into();
            let mine = addresses.by_ref().take(count as usize);
            list.extend(mine.map(|&address| (Arc::clone(&name), Ipv6Addr::from(address).to_canonical())));
        }
        if list.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Malformed::Unsorted(what));
        }
        Ok(list)
    }
}

/// Checks the name and class of an application; `most` is the number of classes.
fn classified(name: &str, class: u32, most: usize) -> Result<(Arc<str>, u32), Malformed> {
    if !is_id(name) {
        return Err(Malformed::Id);
    }
    if class == 0 || class as usize > most {
        return Err(Malformed::Class { class, most });
    }
    Ok((name.into(), class))
}

/// Encodes arrivals. An empty list takes no bytes.
fn pack_arrivals(arrivals: &[Arrival]) -> Option<wire::Arrivals> {
    let ends = |arrival: &Arrival| [arrival.way.from.octets(), arrival.way.to.octets()];
    (!arrivals.is_empty()).then(|| wire::Arrivals {
        ends: arrivals.iter().flat_map(ends).flatten().collect(),
        marks: arrivals.iter().map(|arrival| arrival.way.mark.get()).collect(),
        rates: arrivals.iter().map(|arrival| arrival.rate).collect(),
    })
}

fn unpack_arrivals(arrivals: Option<wire::Arrivals>) -> Result<Vec<Arrival>, Malformed> {
    let wire::Arrivals { ends, marks, rates } = arrivals.unwrap_or_default();
    limit("arrivals", rates.len(), MAX_WAYS)?;
    even("bytes of their ends", ends.len(), 8 * rates.len())?;
    even("classes of what arrives", marks.len(), rates.len())?;
    let arrival = |((&[a, b, c, d, e, f, g, h], mark), rate): ((&[u8; 8], u8), u64)| {
        let mark = Mark::new(mark).ok_or(Malformed::Mark(mark))?;
        let way = Way { from: Ipv4Addr::new(a, b, c, d), to: Ipv4Addr::new(e, f, g, h), mark };
        Ok(Arrival { way, rate })
    };
    let columns = ends.as_chunks::<8>().0.iter().zip(marks).zip(rates);
    let arrivals: Vec<Arrival> = columns.map(arrival).collect::<Result<_, _>>()?;
    if arrivals.windows(2).any(|pair| pair[0].way >= pair[1].way) {
        return Err(Malformed::Unsorted("arrivals"));
    }
    Ok(arrivals)
}

/// Microseconds, rounded up, and at most `u32::MAX`.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u32::MAX)
}

impl wire::Up {
    /// Encodes the first message of an agent, with the number of its host or switch.
    pub fn hello(host: u32) -> wire::Up {
        wire::Up { what: Some(wire::up::What::Hello(wire::Hello { host })) }
    }

    /// Encodes a report.
    pub fn report(report: &Report) -> wire::Up {
        wire::Up { what: Some(wire::up::What::Report(report.into())) }
    }
}

impl wire::Down {
    /// Encodes the first message of a coordinator: the report interval, and whether to report UDP arrivals and demands.
    pub fn welcome(interval: Duration, arrivals: bool, demands: bool) -> wire::Down {
        let welcome = wire::Welcome { interval_us: micros(interval), arrivals, demands };
        wire::Down { what: Some(wire::down::What::Welcome(welcome)) }
    }

    /// Encodes an order.
    pub fn order(order: &Order) -> wire::Down {
        wire::Down { what: Some(wire::down::What::Order(order.into())) }
    }
}

impl wire::Welcome {
    /// The report interval.
    pub fn interval(&self) -> Duration {
        Duration::from_micros(u64::from(self.interval_us))
    }
}

impl From<&Report> for wire::Report {
    fn from(report: &Report) -> wire::Report {
        let closed = (0u32..).zip(&report.flows).filter(|(_, seen)| seen.closed);
        let peers = Peers::pack(&report.found, |found| (&found.application, found.peer));
        let any_demand = report.found.iter().any(|found| found.demand != Demand::Unknown);
        let demands = report.found.iter().filter(|_| any_demand).map(|found| found.demand.into());
        wire::Report {
            epoch: report.obeys.0,
            seq: report.obeys.1,
            flows: Some(pack(report.flows.iter().map(|seen| &seen.key))),
            sent: report.flows.iter().map(|seen| seen.sent).collect(),
            closed: closed.map(|(at, _)| at).collect(),
            applications: peers.applications,
            peers: peers.counts,
            addresses: peers.addresses,
            open: report.found.iter().map(|found| found.open).collect(),
            carried: report.found.iter().map(|found| found.sent).collect(),
            arrivals: pack_arrivals(&report.arrivals),
            refusals: Some(report.refusals).filter(|refusals| *refusals != Refusals::default()),
            demands: demands.collect(),
            restored: Some(report.restored).filter(|restored| *restored != Restored::default()),
            conflicts: report.conflicts.iter().map(wire::Conflict::from).collect(),
        }
    }
}

impl TryFrom<wire::Report> for Report {
    type Error = Malformed;

    fn try_from(report: wire::Report) -> Result<Report, Malformed> {
        let keys = unpack(report.flows, MAX_SEEN)?;
        even("counts of bytes", report.sent.len(), keys.len())?;
        rising("closed flows", &report.closed)?;
        if let Some(&last) = report.closed.last() {
            limit("as the index of a closed flow", last as usize + 1, keys.len())?;
        }
        let seen = |(key, sent)| FlowProgress { key, sent, closed: false };
        let mut flows: Vec<FlowProgress> = keys.into_iter().zip(report.sent).map(seen).collect();
        for at in report.closed {
            flows[at as usize].closed = true;
        }
        let (applications, counts, addresses) = (report.applications, report.peers, report.addresses);
        let peers =
            Peers { applications, counts, addresses }.unpack("connections found", report.open.len())?;
        even("counts of bytes", report.carried.len(), peers.len())?;
        // An agent that was not asked for demands sends no list.
        let mut demands = report.demands;
        if demands.is_empty() {
            demands.resize(peers.len(), 0);
        }
        even("demands", demands.len(), peers.len())?;
        let columns = peers.into_iter().zip(report.open).zip(report.carried).zip(demands);
        let found = columns.map(|((((application, peer), open), sent), demand)| Found {
            application,
            peer,
            open,
            sent,
            demand: demand.into(),
        });
        let found = found.collect();
        let arrivals = unpack_arrivals(report.arrivals)?;
        let refusals = report.refusals.unwrap_or_default();
        let restored = report.restored.unwrap_or_default();
        limit("conflicts", report.conflicts.len(), MAX_CONFLICTS)?;
        let conflicts = report.conflicts.into_iter().map(Conflict::try_from).collect::<Result<_, _>>()?;
        Ok(Report {
            obeys: (report.epoch, report.seq),
            flows,
            found,
            arrivals,
            refusals,
            restored,
            conflicts,
        })
    }
}

impl From<Pace> for u64 {
    fn from(pace: Pace) -> u64 {
        match pace {
            Pace::Gone => 0,
            Pace::Free => 1,
            Pace::Rate(rate) => rate.saturating_add(1),
        }
    }
}

impl From<u64> for Pace {
    fn from(code: u64) -> Pace {
        match code {
            0 => Pace::Gone,
            1 => Pace::Free,
            rate => Pace::Rate(rate - 1),
        }
    }
}

impl From<Demand> for u64 {
    fn from(demand: Demand) -> u64 {
        match demand {
            Demand::Unknown => 0,
            Demand::All => 1,
            Demand::Rate(rate) => rate.saturating_add(2),
        }
    }
}

impl From<u64> for Demand {
    fn from(code: u64) -> Demand {
        match code {
            0 => Demand::Unknown,
            1 => Demand::All,
            rate => Demand::Rate(rate - 2),
        }
    }
}

impl From<&Order> for wire::Order {
    fn from(order: &Order) -> wire::Order {
        let classes = || order.queues.iter().flat_map(|(_, queues)| &queues.classes);
        let peers = Peers::pack(&order.limits, |limit| (&limit.application, limit.peer));
        let guaranteed = (0u32..).zip(&order.queues).filter(|(_, (_, queues))| queues.guaranteed);
        wire::Order {
            epoch: order.epoch,
            seq: order.seq,
            lease_us: micros(order.lease),
            whole: order.whole,
            flows: Some(pack(order.flows.iter().map(|(key, _)| key))),
            paces: order.flows.iter().map(|(_, pace)| u64::from(*pace)).collect(),
            interfaces: order.queues.iter().map(|(interface, _)| *interface).collect(),
            queues: order.queues.iter().map(|(_, queues)| queues.weights.len() as u32).collect(),
            weights: order.queues.iter().flat_map(|(_, queues)| &queues.weights).copied().collect(),
            classed: order.queues.iter().map(|(_, queues)| queues.classes.len() as u32).collect(),
            applications: classes().map(|(name, _)| &**name).collect::<Vec<_>>().join(" "),
            classes: classes().map(|(_, class)| *class).collect(),
            known: order.queues.iter().map(|(_, queues)| queues.queue_of.len() as u32).collect(),
            queue_of: order.queues.iter().flat_map(|(_, queues)| &queues.queue_of).copied().collect(),
            arrivals: pack_arrivals(&order.arrivals),
            limited: peers.applications,
            limited_peers: peers.counts,
            limited_addresses: peers.addresses,
            limits: order.limits.iter().map(|limit| limit.pace.into()).collect(),
            guaranteed: guaranteed.map(|(at, _)| at).collect(),
        }
    }
}

impl TryFrom<wire::Order> for Order {
    type Error = Malformed;

    fn try_from(order: wire::Order) -> Result<Order, Malformed> {
        let keys = unpack(order.flows, MAX_FLOWS)?;
        even("paces", order.paces.len(), keys.len())?;
        limit("interfaces", order.interfaces.len(), MAX_QUEUES)?;
        limit("weights", order.weights.len(), MAX_QUEUES)?;
        rising("interfaces", &order.interfaces)?;
        even("counts of queues", order.queues.len(), order.interfaces.len())?;
        even("weights", order.weights.len(), order.queues.iter().map(|&count| count as usize).sum())?;
        if !order.weights.iter().all(|weight| weight.is_finite() && *weight > 0.0) {
            return Err(Malformed::Weight);
        }
        limit("classes of applications", order.classes.len(), MAX_APPLICATIONS)?;
        even("counts of applications", order.classed.len(), order.interfaces.len())?;
        even("classes", order.classes.len(), order.classed.iter().map(|&count| count as usize).sum())?;
        let names = || order.applications.split(' ').filter(|_| !order.applications.is_empty());
        even("names of applications", names().count(), order.classes.len())?;
        limit("queues of classes", order.queue_of.len(), MAX_QUEUES)?;
        even("counts of classes", order.known.len(), order.interfaces.len())?;
        even(
            "queues of classes",
            order.queue_of.len(),
            order.known.iter().map(|&count| count as usize).sum(),
        )?;
        let mut weights = order.weights.into_iter();
        let mut classes = names().zip(order.classes);
        let mut queue_of = order.queue_of.into_iter();
        let mut queues = Vec::with_capacity(order.interfaces.len());
        let counts = order.queues.into_iter().zip(order.known).zip(order.classed);
        for (interface, ((count, known), classed)) in order.interfaces.into_iter().zip(counts) {
            let weights: Vec<f64> = weights.by_ref().take(count as usize).collect();
            let queue_of: Vec<u32> = queue_of.by_ref().take(known as usize).collect();
            if let Some(&queue) = queue_of.iter().find(|&&queue| queue as usize >= weights.len()) {
                return Err(Malformed::Queue { queue, queues: weights.len() });
            }
            let mine = classes.by_ref().take(classed as usize);
            let classes = mine.map(|(name, class)| classified(name, class, queue_of.len()));
            let classes = classes.collect::<Result<Vec<_>, Malformed>>()?;
            if classes.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
                return Err(Malformed::Unsorted("applications"));
            }
            queues.push((interface, Queues { weights, queue_of, classes, guaranteed: false }));
        }
        rising("guaranteed interfaces", &order.guaranteed)?;
        if let Some(&last) = order.guaranteed.last() {
            limit("as the index of a guaranteed interface", last as usize + 1, queues.len())?;
        }
        for at in order.guaranteed {
            queues[at as usize].1.guaranteed = true;
        }
        let (applications, counts) = (order.limited, order.limited_peers);
        let peers = Peers { applications, counts, addresses: order.limited_addresses };
        let peers = peers.unpack("limits", order.limits.len())?;
        let limited = |((application, peer), pace): ((Arc<str>, IpAddr), u64)| Limit {
            application,
            peer,
            pace: pace.into(),
        };
        let limits = peers.into_iter().zip(order.limits).map(limited).collect();
        let arrivals = unpack_arrivals(order.arrivals)?;
        Ok(Order {
            epoch: order.epoch,
            seq: order.seq,
            lease: Duration::from_micros(u64::from(order.lease_us)),
            whole: order.whole,
            flows: keys.into_iter().zip(order.paces.into_iter().map(Pace::from)).collect(),
            queues,
            arrivals,
            limits,
        })
    }
}
