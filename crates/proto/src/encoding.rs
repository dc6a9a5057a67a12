//! Encodes and decodes orders and reports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::order::{
    Demand, FlowKey, FlowProgress, Limit, Mark, ObservedConnections, Order, OrderedRate, Queues, Report,
    UdpFlow, UdpMeasurement, is_id,
};
use crate::{
    Conflict, MAX_APPLICATIONS, MAX_CONFLICTS, MAX_FLOWS_PER_HOST, MAX_OBSERVED, MAX_QUEUES,
    MAX_REPORTED_FLOWS, MAX_UDP_FLOWS, Refusals, Restored, wire,
};

/// Why a message is not a valid order or report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A list is too long.
    #[error("{count} {list}: expected at most {max}")]
    TooMany {
        /// The entries of the list.
        list: &'static str,
        /// Their number.
        count: usize,
        /// The maximum number.
        max: usize,
    },
    /// Two lists that belong together have different lengths.
    #[error("{count} {list}: expected {expected}, the length of the list that belongs to it")]
    LengthMismatch {
        /// The entries of the list.
        list: &'static str,
        /// Their number.
        count: usize,
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
    #[error("class {class} of an application: expected 1 to {class_count}, the number of classes")]
    Class {
        /// The class.
        class: u32,
        /// The number of classes.
        class_count: usize,
    },
    /// The class of an arrival is out of range.
    #[error("mark {0} of a UDP measurement: expected 1 to 63")]
    Mark(u8),
    /// A class refers to a queue that does not exist.
    #[error("queue {queue} of a class: expected one below {queue_count}")]
    Queue {
        /// The queue.
        queue: u32,
        /// The number of queues.
        queue_count: usize,
    },
}

fn check_equal_lengths(list: &'static str, count: usize, expected: usize) -> Result<(), MessageError> {
    if count == expected { Ok(()) } else { Err(MessageError::LengthMismatch { list, count, expected }) }
}

fn check_max_length(list: &'static str, count: usize, max: usize) -> Result<(), MessageError> {
    if count <= max { Ok(()) } else { Err(MessageError::TooMany { list, count, max }) }
}

/// Checks that numbers are strictly increasing.
fn check_increasing(list: &'static str, numbers: &[u32]) -> Result<(), MessageError> {
    let is_increasing = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if is_increasing { Ok(()) } else { Err(MessageError::Unsorted(list)) }
}

/// Encodes keys, which are sorted.
fn encode_flow_keys<'a>(keys: impl Iterator<Item = &'a FlowKey>) -> wire::Flows {
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

fn decode_flow_keys(flows: Option<wire::Flows>, max: usize) -> Result<Vec<FlowKey>, MessageError> {
    let wire::Flows { coflows, counts, places } = flows.unwrap_or_default();
    check_max_length("flows", places.len(), max)?;
    let ids = || coflows.split(' ').filter(|_| !coflows.is_empty());
    check_equal_lengths("counts of flows", counts.len(), ids().count())?;
    check_equal_lengths("places of flows", places.len(), counts.iter().map(|&count| count as usize).sum())?;
    let mut keys = Vec::with_capacity(places.len());
    let (mut remaining, mut last) = (&places[..], "");
    for (id, &count) in ids().zip(&counts) {
        if !is_id(id) {
            return Err(MessageError::Id);
        }
        if count == 0 || id <= last {
            return Err(MessageError::Unsorted("coflows"));
        }
        last = id;
        let (own_indices, others) = remaining.split_at(count as usize);
        remaining = others;
        check_increasing("places of flows", own_indices)?;
        let coflow: Arc<str> = id.into();
        keys.extend(own_indices.iter().map(|&flow| FlowKey { coflow: Arc::clone(&coflow), flow }));
    }
    Ok(keys)
}

/// An address as 16 bytes; IPv4 is mapped.
fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

/// Pairs of applications and hosts, as encoded: the names, the number of hosts of each, and the addresses.
struct EncodedPeers {
    applications: String,
    peer_counts: Vec<u32>,
    addresses: Vec<u8>,
}

impl EncodedPeers {
    /// Encodes a list that is sorted by application and address.
    fn encode<T>(list: &[T], key: impl Fn(&T) -> (&str, IpAddr)) -> EncodedPeers {
        let by_application = || list.chunk_by(|a, b| key(a).0 == key(b).0);
        EncodedPeers {
            applications: by_application().map(|group| key(&group[0]).0).collect::<Vec<_>>().join(" "),
            peer_counts: by_application().map(|some| some.len() as u32).collect(),
            addresses: list.iter().flat_map(|entry| to_ipv6(key(entry).1).octets()).collect(),
        }
    }

    /// Decodes `count` pairs, and checks that they are sorted and unique.
    fn decode(self, list_name: &'static str, count: usize) -> Result<Vec<(Arc<str>, IpAddr)>, MessageError> {
        let EncodedPeers { applications, peer_counts: counts, addresses } = self;
        check_max_length(list_name, count, MAX_OBSERVED)?;
        let names = || applications.split(' ').filter(|_| !applications.is_empty());
        check_equal_lengths("counts of hosts", counts.len(), names().count())?;
        check_equal_lengths("hosts", count, counts.iter().map(|&count| count as usize).sum())?;
        check_equal_lengths("bytes of addresses", addresses.len(), 16 * count)?;
        let mut addresses = addresses.as_chunks::<16>().0.iter();
        let mut list: Vec<(Arc<str>, IpAddr)> = Vec::with_capacity(count);
        for (name, count) in names().zip(counts) {
            if !is_id(name) {
                return Err(MessageError::Id);
            }
            let name: Arc<str> = name.into();
            let own_addresses = addresses.by_ref().take(count as usize);
            list.extend(
                own_addresses.map(|&address| (Arc::clone(&name), Ipv6Addr::from(address).to_canonical())),
            );
        }
        if list.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(MessageError::Unsorted(list_name));
        }
        Ok(list)
    }
}

/// Checks the name and class of an application; `most` is the number of classes.
fn check_application_class(
    name: &str,
    class: u32,
    class_count: usize,
) -> Result<(Arc<str>, u32), MessageError> {
    if !is_id(name) {
        return Err(MessageError::Id);
    }
    if class == 0 || class as usize > class_count {
        return Err(MessageError::Class { class, class_count });
    }
    Ok((name.into(), class))
}

/// Encodes arrivals. An empty list takes no bytes.
fn encode_udp_measurements(arrivals: &[UdpMeasurement]) -> Option<wire::Arrivals> {
    let addresses = |arrival: &UdpMeasurement| [arrival.flow.src.octets(), arrival.flow.dst.octets()];
    (!arrivals.is_empty()).then(|| wire::Arrivals {
        ends: arrivals.iter().flat_map(addresses).flatten().collect(),
        marks: arrivals.iter().map(|arrival| arrival.flow.mark.get()).collect(),
        rates: arrivals.iter().map(|arrival| arrival.rate).collect(),
    })
}

fn decode_udp_measurements(arrivals: Option<wire::Arrivals>) -> Result<Vec<UdpMeasurement>, MessageError> {
    let wire::Arrivals { ends, marks, rates } = arrivals.unwrap_or_default();
    check_max_length("arrivals", rates.len(), MAX_UDP_FLOWS)?;
    check_equal_lengths("bytes of their ends", ends.len(), 8 * rates.len())?;
    check_equal_lengths("classes of what arrives", marks.len(), rates.len())?;
    let to_measurement = |((&[a, b, c, d, e, f, g, h], mark), rate): ((&[u8; 8], u8), u64)| {
        let mark = Mark::new(mark).ok_or(MessageError::Mark(mark))?;
        let way = UdpFlow { src: Ipv4Addr::new(a, b, c, d), dst: Ipv4Addr::new(e, f, g, h), mark };
        Ok(UdpMeasurement { flow: way, rate })
    };
    let columns = ends.as_chunks::<8>().0.iter().zip(marks).zip(rates);
    let arrivals: Vec<UdpMeasurement> = columns.map(to_measurement).collect::<Result<_, _>>()?;
    if arrivals.windows(2).any(|pair| pair[0].flow >= pair[1].flow) {
        return Err(MessageError::Unsorted("arrivals"));
    }
    Ok(arrivals)
}

/// Microseconds, rounded up, and at most `u32::MAX`.
fn to_micros_rounding_up(time: Duration) -> u32 {
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
    pub fn welcome(interval: Duration, wants_udp_measurements: bool, wants_demands: bool) -> wire::Down {
        let welcome = wire::Welcome {
            interval_us: to_micros_rounding_up(interval),
            arrivals: wants_udp_measurements,
            demands: wants_demands,
        };
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
        let peers = EncodedPeers::encode(&report.observed, |found| (&found.application, found.peer));
        let any_demand = report.observed.iter().any(|found| found.demand != Demand::Unknown);
        let demands = report.observed.iter().filter(|_| any_demand).map(|found| found.demand.into());
        wire::Report {
            epoch: report.applied.0,
            seq: report.applied.1,
            flows: Some(encode_flow_keys(report.flows.iter().map(|seen| &seen.key))),
            sent: report.flows.iter().map(|seen| seen.sent).collect(),
            closed: closed.map(|(at, _)| at).collect(),
            applications: peers.applications,
            peers: peers.peer_counts,
            addresses: peers.addresses,
            open: report.observed.iter().map(|found| found.open_connections).collect(),
            carried: report.observed.iter().map(|found| found.sent_bytes).collect(),
            arrivals: encode_udp_measurements(&report.udp_measurements),
            refusals: Some(report.refused_orders).filter(|refusals| *refusals != Refusals::default()),
            demands: demands.collect(),
            restored: Some(report.restored_objects).filter(|restored| *restored != Restored::default()),
            conflicts: report.conflicts.iter().map(wire::Conflict::from).collect(),
        }
    }
}

impl TryFrom<wire::Report> for Report {
    type Error = MessageError;

    fn try_from(report: wire::Report) -> Result<Report, MessageError> {
        let keys = decode_flow_keys(report.flows, MAX_REPORTED_FLOWS)?;
        check_equal_lengths("counts of bytes", report.sent.len(), keys.len())?;
        check_increasing("closed flows", &report.closed)?;
        if let Some(&last) = report.closed.last() {
            check_max_length("as the index of a closed flow", last as usize + 1, keys.len())?;
        }
        let to_progress = |(key, sent)| FlowProgress { key, sent, closed: false };
        let mut flows: Vec<FlowProgress> = keys.into_iter().zip(report.sent).map(to_progress).collect();
        for at in report.closed {
            flows[at as usize].closed = true;
        }
        let (applications, counts, addresses) = (report.applications, report.peers, report.addresses);
        let peers = EncodedPeers { applications, peer_counts: counts, addresses }
            .decode("connections found", report.open.len())?;
        check_equal_lengths("counts of bytes", report.carried.len(), peers.len())?;
        // An agent that was not asked for demands sends no list.
        let mut demands = report.demands;
        if demands.is_empty() {
            demands.resize(peers.len(), 0);
        }
        check_equal_lengths("demands", demands.len(), peers.len())?;
        let columns = peers.into_iter().zip(report.open).zip(report.carried).zip(demands);
        let found = columns.map(|((((application, peer), open), sent), demand)| ObservedConnections {
            application,
            peer,
            open_connections: open,
            sent_bytes: sent,
            demand: demand.into(),
        });
        let found = found.collect();
        let arrivals = decode_udp_measurements(report.arrivals)?;
        let refusals = report.refusals.unwrap_or_default();
        let restored = report.restored.unwrap_or_default();
        check_max_length("conflicts", report.conflicts.len(), MAX_CONFLICTS)?;
        let conflicts = report.conflicts.into_iter().map(Conflict::try_from).collect::<Result<_, _>>()?;
        Ok(Report {
            applied: (report.epoch, report.seq),
            flows,
            observed: found,
            udp_measurements: arrivals,
            refused_orders: refusals,
            restored_objects: restored,
            conflicts,
        })
    }
}

impl From<OrderedRate> for u64 {
    fn from(pace: OrderedRate) -> u64 {
        match pace {
            OrderedRate::Removed => 0,
            OrderedRate::Unlimited => 1,
            OrderedRate::Rate(rate) => rate.saturating_add(1),
        }
    }
}

impl From<u64> for OrderedRate {
    fn from(code: u64) -> OrderedRate {
        match code {
            0 => OrderedRate::Removed,
            1 => OrderedRate::Unlimited,
            rate => OrderedRate::Rate(rate - 1),
        }
    }
}

impl From<Demand> for u64 {
    fn from(demand: Demand) -> u64 {
        match demand {
            Demand::Unknown => 0,
            Demand::Unlimited => 1,
            Demand::Rate(rate) => rate.saturating_add(2),
        }
    }
}

impl From<u64> for Demand {
    fn from(code: u64) -> Demand {
        match code {
            0 => Demand::Unknown,
            1 => Demand::Unlimited,
            rate => Demand::Rate(rate - 2),
        }
    }
}

impl From<&Order> for wire::Order {
    fn from(order: &Order) -> wire::Order {
        let classes = || order.queues.iter().flat_map(|(_, queues)| &queues.class_of_application);
        let peers = EncodedPeers::encode(&order.limits, |limit| (&limit.application, limit.peer));
        let guaranteed = (0u32..).zip(&order.queues).filter(|(_, (_, queues))| queues.guaranteed);
        wire::Order {
            epoch: order.epoch,
            seq: order.seq,
            lease_us: to_micros_rounding_up(order.lease),
            whole: order.is_full,
            flows: Some(encode_flow_keys(order.flows.iter().map(|(key, _)| key))),
            paces: order.flows.iter().map(|(_, pace)| u64::from(*pace)).collect(),
            interfaces: order.queues.iter().map(|(interface, _)| *interface).collect(),
            queues: order.queues.iter().map(|(_, queues)| queues.weights.len() as u32).collect(),
            weights: order.queues.iter().flat_map(|(_, queues)| &queues.weights).copied().collect(),
            classed: order
                .queues
                .iter()
                .map(|(_, queues)| queues.class_of_application.len() as u32)
                .collect(),
            applications: classes().map(|(name, _)| &**name).collect::<Vec<_>>().join(" "),
            classes: classes().map(|(_, class)| *class).collect(),
            known: order.queues.iter().map(|(_, queues)| queues.queue_of_class.len() as u32).collect(),
            queue_of: order.queues.iter().flat_map(|(_, queues)| &queues.queue_of_class).copied().collect(),
            arrivals: encode_udp_measurements(&order.udp_measurements),
            limited: peers.applications,
            limited_peers: peers.peer_counts,
            limited_addresses: peers.addresses,
            limits: order.limits.iter().map(|limit| limit.rate.into()).collect(),
            guaranteed: guaranteed.map(|(at, _)| at).collect(),
        }
    }
}

impl TryFrom<wire::Order> for Order {
    type Error = MessageError;

    fn try_from(order: wire::Order) -> Result<Order, MessageError> {
        let keys = decode_flow_keys(order.flows, MAX_FLOWS_PER_HOST)?;
        check_equal_lengths("paces", order.paces.len(), keys.len())?;
        check_max_length("interfaces", order.interfaces.len(), MAX_QUEUES)?;
        check_max_length("weights", order.weights.len(), MAX_QUEUES)?;
        check_increasing("interfaces", &order.interfaces)?;
        check_equal_lengths("counts of queues", order.queues.len(), order.interfaces.len())?;
        check_equal_lengths(
            "weights",
            order.weights.len(),
            order.queues.iter().map(|&count| count as usize).sum(),
        )?;
        if !order.weights.iter().all(|weight| weight.is_finite() && *weight > 0.0) {
            return Err(MessageError::Weight);
        }
        check_max_length("classes of applications", order.classes.len(), MAX_APPLICATIONS)?;
        check_equal_lengths("counts of applications", order.classed.len(), order.interfaces.len())?;
        check_equal_lengths(
            "classes",
            order.classes.len(),
            order.classed.iter().map(|&count| count as usize).sum(),
        )?;
        let names = || order.applications.split(' ').filter(|_| !order.applications.is_empty());
        check_equal_lengths("names of applications", names().count(), order.classes.len())?;
        check_max_length("queues of classes", order.queue_of.len(), MAX_QUEUES)?;
        check_equal_lengths("counts of classes", order.known.len(), order.interfaces.len())?;
        check_equal_lengths(
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
                return Err(MessageError::Queue { queue, queue_count: weights.len() });
            }
            let own_classes = classes.by_ref().take(classed as usize);
            let classes =
                own_classes.map(|(name, class)| check_application_class(name, class, queue_of.len()));
            let classes = classes.collect::<Result<Vec<_>, MessageError>>()?;
            if classes.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
                return Err(MessageError::Unsorted("applications"));
            }
            queues.push((
                interface,
                Queues {
                    weights,
                    queue_of_class: queue_of,
                    class_of_application: classes,
                    guaranteed: false,
                },
            ));
        }
        check_increasing("guaranteed interfaces", &order.guaranteed)?;
        if let Some(&last) = order.guaranteed.last() {
            check_max_length("as the index of a guaranteed interface", last as usize + 1, queues.len())?;
        }
        for at in order.guaranteed {
            queues[at as usize].1.guaranteed = true;
        }
        let (applications, counts) = (order.limited, order.limited_peers);
        let peers = EncodedPeers { applications, peer_counts: counts, addresses: order.limited_addresses };
        let peers = peers.decode("limits", order.limits.len())?;
        let to_limit = |((application, peer), pace): ((Arc<str>, IpAddr), u64)| Limit {
            application,
            peer,
            rate: pace.into(),
        };
        let limits = peers.into_iter().zip(order.limits).map(to_limit).collect();
        let arrivals = decode_udp_measurements(order.arrivals)?;
        Ok(Order {
            epoch: order.epoch,
            seq: order.seq,
            lease: Duration::from_micros(u64::from(order.lease_us)),
            is_full: order.whole,
            flows: keys.into_iter().zip(order.paces.into_iter().map(OrderedRate::from)).collect(),
            queues,
            udp_measurements: arrivals,
            limits,
        })
    }
}
