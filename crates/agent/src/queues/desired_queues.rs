//! Computes the classes and filters that an interface should have.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use weir_core::model::LinkBudget;
use weir_core::netshare::shares_with_minima;
use weir_core::units::Rate;
use weir_proto::{QUEUED_LINK_RATES, RateBounds};

use super::ids;
use crate::htb::{HtbClass, MAX_SERVICES, dscp};

/// Why queues cannot be configured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DesiredError {
    /// The rate of the link is out of range.
    #[error("link rate {0} is out of range; expected 8kbit to 100Gbit{help}", help = link_rate_help(*.0))]
    LinkRate(Rate),
    /// There are too many queues, or none.
    #[error("{0} queues; expected 1 to {max}, since each needs its own mark (DSCP)", max = MAX_SERVICES)]
    QueueCount(usize),
    /// A weight is not positive and finite, or is too large relative to the lowest.
    #[error(
        "weight {value} of queue {queue} is invalid; expected a finite number above zero, and at most 1e6 times the lowest weight"
    )]
    Weight {
        /// The queue, from 0.
        queue: usize,
        /// The weight.
        value: f64,
    },
    /// Too many classes, or none.
    #[error("{0} classes; expected 1 to {max}, since each needs its own mark (DSCP)", max = MAX_SERVICES)]
    ClassCount(usize),
    /// A class refers to a queue that does not exist.
    #[error("class {class} refers to queue {queue}, which does not exist; expected a number below {queues}")]
    UnknownQueue {
        /// The class, from 1.
        class: usize,
        /// The queue, from 0.
        queue: u32,
        /// The number of queues.
        queues: usize,
    },
    /// The number of a limited flow is out of range.
    #[error("limited flow {0}: the number is out of range; expected less than {max}", max = ids::MAX_LIMITED_FLOWS)]
    FlowNumber(u16),
    /// The rate of a limited flow is too low, or exceeds the link.
    #[error(
        "limited flow {flow}: rate {rate} is out of range; expected 8bit or more, and at most the link ({link})"
    )]
    FlowRate {
        /// The limited flow.
        flow: u16,
        /// The flow's rate.
        rate: Rate,
        /// The rate of the link.
        link: Rate,
    },
}

/// How to use a faster card.
fn link_rate_help(link: Rate) -> &'static str {
    let is_too_fast = link.get() > *QUEUED_LINK_RATES.end();
    if is_too_fast {
        "; help: `--rate 100Gbit`, or `--port` of a switch, uses a part of the card"
    } else {
        ""
    }
}

/// The part of what services are guaranteed that limited flows may take from them.
const MAX_LIMITED_FRACTION: f64 = 0.98;

/// How the queues of a link share it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares<'a> {
    /// The parts of the link.
    pub budget: LinkBudget,
    /// The weight of each queue.
    pub weights: &'a [f64],
    /// The minimum and maximum rate of each queue; empty if no queue has one.
    pub rate_bounds: &'a [RateBounds],
    /// The weight at which packets without a class borrow unused bandwidth.
    pub unclassified_weight: f64,
}

impl<'a> Shares<'a> {
    /// Queues with these weights, and packets without a class as another queue of weight 1.
    pub fn by_weight(weights: &'a [f64]) -> Shares<'a> {
        Shares { budget: LinkBudget::DEFAULT, weights, rate_bounds: &[], unclassified_weight: 1.0 }
    }
}

/// A UDP flow with a separate class, whose rate is the maximum, and guaranteed as far as services leave room.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitedFlow {
    /// The source of its packets.
    pub source: SocketAddr,
    /// The destination of its packets, of the same family.
    pub destination: SocketAddr,
    /// The rate, which includes headers (whole frames).
    pub rate: Rate,
}

/// A desired class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DesiredClass {
    /// The parent class; none for the class of the whole link.
    pub parent: Option<u16>,
    /// The parameters. The class of the whole link has no queue.
    pub class: HtbClass,
}

/// A match of a u32 filter: 32 bits of a packet under a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct U32Match {
    /// The offset from the start of the IP header, in bytes.
    pub offset: u16,
    /// The value.
    pub value: u32,
    /// The bits that are compared.
    pub mask: u32,
}

/// A desired filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The packet has to match all of these.
    pub matches: Vec<U32Match>,
    /// The class of matching packets.
    pub class: u16,
}

/// The queues that an interface should have.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredQueues {
    classes: BTreeMap<u16, DesiredClass>,
    filters: BTreeMap<(u16, u16), Filter>,
    max_segments: Option<u32>,
}

impl DesiredQueues {
    /// Creates a queue for each weight on a link, and one for packets without a mark. Packets with the mark [`dscp`] of a queue's number
    /// use that queue. The rates of limited flows are taken from those of the queues, down to their minima; beyond 98 % of this
    /// capacity, limited flows borrow. `segments` is the maximum number of segments of a packet before the card splits it.
    ///
    /// # Errors
    /// If the link, a weight, or the number or rate of a limited flow is out of range.
    pub fn new(
        link: Rate,
        segments: u32,
        shares: &Shares<'_>,
        limited: &BTreeMap<u16, LimitedFlow>,
    ) -> Result<DesiredQueues, DesiredError> {
        let &Shares { budget, weights, rate_bounds, unclassified_weight } = shares;
        if !QUEUED_LINK_RATES.contains(&link.get()) {
            return Err(DesiredError::LinkRate(link));
        }
        if !(1..=MAX_SERVICES).contains(&weights.len()) {
            return Err(DesiredError::QueueCount(weights.len()));
        }
        let is_valid = |weight: f64| weight.is_finite() && weight > 0.0;
        let min_weight = weights.iter().copied().filter(|&w| is_valid(w)).fold(f64::INFINITY, f64::min);
        if let Some(queue) = weights.iter().position(|&weight| !is_valid(weight) || weight / min_weight > 1e6)
        {
            return Err(DesiredError::Weight { queue, value: weights[queue] });
        }
        // Only ratios count, and the sum of normalized weights stays finite.
        let weights: Vec<f64> = weights.iter().map(|weight| weight / min_weight).collect();
        let unclassified_weight = unclassified_weight / min_weight;
        let services = budget.services(link).get();
        let minima = queue_minima(rate_bounds, weights.len(), services);
        let limited_fraction = guaranteed_fraction(link, limited, services - minima.iter().sum::<f64>())?;
        let limited_sum: f64 = limited.values().map(|flow| flow.rate.get() * limited_fraction).sum();
        let rates = shares_with_minima(&weights, &minima, services - limited_sum);
        let link_class = round_rates(HtbClass::for_link(budget.shaped(link), segments));
        let mut classes =
            BTreeMap::from([(ids::LINK_CLASS, DesiredClass { parent: None, class: link_class })]);
        let child_class =
            |class: HtbClass| DesiredClass { parent: Some(ids::LINK_CLASS), class: round_rates(class) };
        let guaranteed = HtbClass::guaranteed(link, segments, &budget, &rates, &weights, unclassified_weight);
        for (number, class) in guaranteed.into_iter().enumerate() {
            let minor = match number < weights.len() {
                true => ids::FIRST_QUEUE_CLASS + number as u16,
                false => ids::DEFAULT_CLASS,
            };
            let max = rate_bounds.get(number).and_then(|bounds| bounds.max);
            let class = max.map_or(class, |max| class.with_max(max as f64, segments));
            classes.insert(minor, child_class(class));
        }
        let mut filters: BTreeMap<(u16, u16), Filter> =
            (0..weights.len()).flat_map(|number| mark_filters(number, number as u16)).collect();
        for (&number, flow) in limited {
            let minor = ids::FIRST_LIMITED_CLASS + number;
            let ceil = (flow.rate.get() * 8.0) as u64;
            let rate = (flow.rate.get() * 8.0 * limited_fraction) as u64;
            let ceil = ceil.min(link_class.ceil);
            classes.insert(minor, child_class(HtbClass { rate: rate.min(ceil), ceil, ..link_class }));
            let preference = match flow.destination {
                SocketAddr::V4(_) => ids::IPV4_FLOW_FILTER_PREF,
                SocketAddr::V6(_) => ids::IPV6_FLOW_FILTER_PREF,
            };
            filters.insert((preference, number + 1), flow_filter(flow, minor));
        }
        let control_class = child_class(HtbClass::control(link, segments, &budget));
        if control_class.class.rate > 8 {
            classes.insert(ids::CONTROL_CLASS, control_class);
        }
        Ok(DesiredQueues { classes, filters, max_segments: None })
    }

    /// Maps the streams between agents and the coordinator at this address to the class with guaranteed capacity for them.
    pub fn with_coordinator(mut self, coordinator: Option<SocketAddr>) -> DesiredQueues {
        if let Some(coordinator) = coordinator
            && self.classes.contains_key(&ids::CONTROL_CLASS)
        {
            let preference = match coordinator {
                SocketAddr::V4(_) => ids::IPV4_CONTROL_FILTER_PREF,
                SocketAddr::V6(_) => ids::IPV6_CONTROL_FILTER_PREF,
            };
            let filters = control_filters(coordinator).into_iter().zip(1..);
            self.filters.extend(filters.map(|(filter, number)| ((preference, number), filter)));
        }
        self
    }

    /// Maps each class of packets to a queue, from 0; several classes may share a queue. Class n is that of packets with the mark n + 1.
    ///
    /// # Errors
    /// If there are too many classes or none, or a queue does not exist.
    pub fn with_classes(mut self, queue_of_class: &[u32]) -> Result<DesiredQueues, DesiredError> {
        if !(1..=MAX_SERVICES).contains(&queue_of_class.len()) {
            return Err(DesiredError::ClassCount(queue_of_class.len()));
        }
        let queue_count = self.classes.range(ids::FIRST_QUEUE_CLASS..ids::CONTROL_CLASS).count();
        if let Some(class) = queue_of_class.iter().position(|&queue| queue as usize >= queue_count) {
            return Err(DesiredError::UnknownQueue {
                class: class + 1,
                queue: queue_of_class[class],
                queues: queue_count,
            });
        }
        self.filters.retain(|(preference, _), _| {
            !matches!(*preference, ids::IPV4_MARK_FILTER_PREF | ids::IPV6_MARK_FILTER_PREF)
        });
        let filters =
            queue_of_class.iter().enumerate().flat_map(|(class, &queue)| mark_filters(class, queue as u16));
        self.filters.extend(filters);
        Ok(self)
    }

    /// Limits the number of segments of packets that this host sends, before the card splits them: on a slow link, one packet of 64 KiB
    /// would delay all others.
    pub fn with_max_segments(self, max_segments: Option<u32>) -> DesiredQueues {
        DesiredQueues { max_segments, ..self }
    }

    /// The maximum number of segments of a packet that this host sends; none if the agent does not set it.
    pub fn max_segments(&self) -> Option<u32> {
        self.max_segments
    }

    /// Classes by number.
    pub fn classes(&self) -> &BTreeMap<u16, DesiredClass> {
        &self.classes
    }

    /// Filters by preference and number.
    pub fn filters(&self) -> &BTreeMap<(u16, u16), Filter> {
        &self.filters
    }
}

/// The minimum rate of each queue. If a link is too slow for all of them, they are reduced by one factor.
fn queue_minima(rate_bounds: &[RateBounds], queue_count: usize, services: f64) -> Vec<f64> {
    let minimum = |queue| rate_bounds.get(queue).map_or(0.0, |bounds: &RateBounds| bounds.min as f64);
    let minima: Vec<f64> = (0..queue_count).map(minimum).collect();
    let sum: f64 = minima.iter().sum();
    if sum <= services { minima } else { minima.iter().map(|minimum| minimum / sum * services).collect() }
}

/// The guaranteed fraction of the rates of limited flows, which take at most a part of the rate `available`, in bytes per second.
fn guaranteed_fraction(
    link: Rate,
    limited: &BTreeMap<u16, LimitedFlow>,
    available: f64,
) -> Result<f64, DesiredError> {
    for (&flow, &LimitedFlow { rate, .. }) in limited {
        if flow >= ids::MAX_LIMITED_FLOWS {
            return Err(DesiredError::FlowNumber(flow));
        }
        if rate.get() < 1.0 || rate > link {
            return Err(DesiredError::FlowRate { flow, rate, link });
        }
    }
    let sum: f64 = limited.values().map(|flow| flow.rate.get()).sum();
    Ok((MAX_LIMITED_FRACTION * available.max(0.0) / sum).min(1.0))
}

/// The offsets of the fields of a packet without IP options and extension headers, from the start of its IP header, in bytes.
struct PacketLayout {
    /// The 32 bits with the protocol, and the position of the protocol's lowest bit in them.
    protocol: (u16, u32),
    source: u16,
    destination: u16,
    ports: u16,
}

impl PacketLayout {
    const fn of(address: IpAddr) -> PacketLayout {
        match address {
            IpAddr::V4(_) => PacketLayout { protocol: (8, 16), source: 12, destination: 16, ports: 20 },
            IpAddr::V6(_) => PacketLayout { protocol: (4, 8), source: 8, destination: 24, ports: 40 },
        }
    }

    fn protocol_match(&self, protocol: u32) -> U32Match {
        let (offset, shift) = self.protocol;
        U32Match { offset, value: protocol << shift, mask: 0xff << shift }
    }
}

/// Matches all bits of an address.
fn address_matches(offset: u16, address: IpAddr) -> Vec<U32Match> {
    let words = match address {
        IpAddr::V4(ip) => vec![u32::from(ip)],
        IpAddr::V6(ip) => [96, 64, 32, 0].map(|shift| (u128::from(ip) >> shift) as u32).to_vec(),
    };
    let to_match = |(offset, value)| U32Match { offset, value, mask: u32::MAX };
    (offset..).step_by(4).zip(words).map(to_match).collect()
}

/// The filters of the streams between agents and a coordinator: to its address and port, and from there. Of a coordinator on this host,
/// which is reached over the loopback interface, the port alone identifies the streams that leave an interface.
fn control_filters(coordinator: SocketAddr) -> Vec<Filter> {
    const TCP: u32 = 6;
    let (address, layout) = (coordinator.ip(), PacketLayout::of(coordinator.ip()));
    let port = u32::from(coordinator.port());
    let filter = |address_matches: Vec<U32Match>, value: u32, mask: u32| {
        let port_match = U32Match { offset: layout.ports, value, mask };
        let protocol = layout.protocol_match(TCP);
        let matches = [protocol].into_iter().chain(address_matches).chain([port_match]).collect();
        Filter { matches, class: ids::CONTROL_CLASS }
    };
    if address.is_loopback() {
        return vec![filter(Vec::new(), port << 16, 0xffff << 16)];
    }
    let to_coordinator = filter(address_matches(layout.destination, address), port, 0xffff);
    let from_coordinator = filter(address_matches(layout.source, address), port << 16, 0xffff << 16);
    vec![to_coordinator, from_coordinator]
}

/// The filters that map packets with the mark of a class to a queue. Class and queue count from 0.
fn mark_filters(class: usize, queue: u16) -> [((u16, u16), Filter); 2] {
    let (node, mark) = (class as u16 + 1, u32::from(dscp(class)) << 2);
    let filter = |shift: u32| Filter {
        matches: vec![U32Match { offset: 0, value: mark << shift, mask: 0xfc << shift }],
        class: ids::FIRST_QUEUE_CLASS + queue,
    };
    // The DSCP is in the second byte of an IPv4 header, and starts four bits earlier in an IPv6 header.
    [((ids::IPV4_MARK_FILTER_PREF, node), filter(16)), ((ids::IPV6_MARK_FILTER_PREF, node), filter(20))]
}

fn flow_filter(flow: &LimitedFlow, class: u16) -> Filter {
    const UDP: u32 = 17;
    let layout = PacketLayout::of(flow.destination.ip());
    let ports = u32::from(flow.source.port()) << 16 | u32::from(flow.destination.port());
    let mut matches = vec![layout.protocol_match(UDP)];
    matches.extend(address_matches(layout.source, flow.source.ip()));
    matches.extend(address_matches(layout.destination, flow.destination.ip()));
    matches.push(U32Match { offset: layout.ports, value: ports, mask: u32::MAX });
    Filter { matches, class }
}

/// Rounds rates to values that `tc` prints in full, so that the rate read back equals the rate that was set.
fn round_rates(class: HtbClass) -> HtbClass {
    HtbClass { rate: round_to_printable(class.rate), ceil: round_to_printable(class.ceil), ..class }
}

/// The next lower rate that `tc` prints in full: whole bytes, and whole multiples of the unit that `tc` chooses. `tc` changes to the next
/// unit at 1,000,000 of a unit, so at least four digits remain.
fn round_to_printable(rate: u64) -> u64 {
    let mut unit = 8;
    if rate >= 1_000_000 {
        unit = 1000;
        while rate / unit >= 1_000_000 {
            unit *= 1000;
        }
    }
    rate.max(8) / unit * unit
}
