//! Encodes orders and reports, and decodes and validates them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use weir_core::model::ServiceNames;

use crate::order::{
    BandwidthLimit, Demand, FlowKey, FlowProgress, Limit, Mark, ObservedConnections, Order, OrderedRate,
    Queues, RateBounds, Report, SenderState, UdpControl, UdpFlow, UdpLimit, UdpMeasurement,
    UnclassifiedShare, UnscheduledReason, is_id,
};
use crate::{
    ApplicationTraffic, Conflict, MAX_APPLICATIONS, MAX_CONFLICTS, MAX_FLOWS_PER_HOST, MAX_HOST_NETWORKS,
    MAX_LABELS, MAX_OBSERVED, MAX_QUEUES, MAX_REPORTED_FLOWS, MAX_SWITCH_PORTS, MAX_TRAFFIC_RULES,
    MAX_UDP_FLOWS, MatchingOrder, MatchingReport, Network, RefusedOrders, RestoredObjects, wire,
};

/// Why a message is not a valid order or report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A list is too long.
    #[error("{list}: {count} entries; expected at most {max}")]
    TooMany {
        /// The name of the list.
        list: &'static str,
        /// The number of entries.
        count: usize,
        /// The maximum number of entries.
        max: usize,
    },
    /// Two lists that belong together have different lengths.
    #[error("{list}: {count} entries; expected {expected}, as many as the list that belongs to it")]
    LengthMismatch {
        /// The name of the list.
        list: &'static str,
        /// The number of entries.
        count: usize,
        /// The number of entries of the other list.
        expected: usize,
    },
    /// A label is invalid, or its name occurs twice.
    #[error("labels: expected distinct names, and names and values of {rule}", rule = ServiceNames::NAME_RULE)]
    Label,
    /// An index into another list is too high.
    #[error("{list}: index {index} is out of range; expected less than {count}")]
    IndexOutOfRange {
        /// The name of the list with the index.
        list: &'static str,
        /// The index.
        index: u32,
        /// The number of entries of the other list.
        count: usize,
    },
    /// An id is invalid.
    #[error(
        "id of a coflow or application is invalid; expected 1 to 128 printable ASCII characters without spaces"
    )]
    Id,
    /// A generation in an order is 0.
    #[error("generation of an ordered coflow is 0; expected the number of its registration, above 0")]
    Generation,
    /// The prefix of a network is longer than its address.
    #[error("prefix length {0}; expected at most 32 for IPv4, and 128 for IPv6")]
    PrefixLength(u8),
    /// A list is not sorted, or contains an entry twice.
    #[error("{0}: not sorted; expected increasing entries, each once")]
    Unsorted(&'static str),
    /// A conflict is invalid.
    #[error(
        "conflict is invalid; expected an interface name of 1 to 15 bytes, a reason from 1 to 7 and a detail of at most 200 bytes"
    )]
    Conflict,
    /// What packets without a class get is out of range.
    #[error(
        "share of packets without a class is invalid; expected a fraction from 0.001 to 0.999, and a finite weight above 0"
    )]
    UnclassifiedShare,
    /// A weight is not positive and finite.
    #[error("weight of a queue is invalid; expected a finite number above 0")]
    Weight,
    /// The class of an application is out of range.
    #[error(
        "class {class} of an application is out of range; expected 0 to {class_count}, the number of classes"
    )]
    Class {
        /// The class.
        class: u32,
        /// The number of classes.
        class_count: usize,
    },
    /// A field is invalid.
    #[error("{field} is invalid; expected {expected}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// The mark of a UDP flow is out of range.
    #[error("mark {0} of a UDP flow is out of range; expected 1 to 63")]
    Mark(u8),
    /// A class refers to a queue that does not exist.
    #[error(
        "queue {queue} of a class does not exist; expected less than {queue_count}, the number of queues"
    )]
    Queue {
        /// The queue.
        queue: u32,
        /// The number of queues.
        queue_count: usize,
    },
}

pub(crate) fn check_equal_lengths(
    list: &'static str,
    count: usize,
    expected: usize,
) -> Result<(), MessageError> {
    if count == expected { Ok(()) } else { Err(MessageError::LengthMismatch { list, count, expected }) }
}

pub(crate) fn check_max_length(list: &'static str, count: usize, max: usize) -> Result<(), MessageError> {
    if count <= max { Ok(()) } else { Err(MessageError::TooMany { list, count, max }) }
}

/// The number of entries that counts assign.
pub(crate) fn sum(counts: &[u32]) -> usize {
    counts.iter().map(|&count| count as usize).sum()
}

/// Checks that indices into another list of `count` entries are below `count` and strictly increasing.
fn check_indices(list: &'static str, indices: &[u32], count: usize) -> Result<(), MessageError> {
    check_increasing(list, indices)?;
    match indices.last() {
        Some(&index) if index as usize >= count => Err(MessageError::IndexOutOfRange { list, index, count }),
        _ => Ok(()),
    }
}

/// Checks that numbers are strictly increasing.
pub(crate) fn check_increasing(list: &'static str, numbers: &[u32]) -> Result<(), MessageError> {
    let is_increasing = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    if is_increasing { Ok(()) } else { Err(MessageError::Unsorted(list)) }
}

/// The names or ids of a list, which have a space between two.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(' ').filter(|_| !list.is_empty())
}

/// Encodes sorted keys.
fn encode_flow_keys<'a>(keys: impl Iterator<Item = &'a FlowKey>) -> wire::FlowKeys {
    let mut flows = wire::FlowKeys::default();
    let mut last: Option<(&str, u64)> = None;
    for key in keys {
        let coflow = (&*key.coflow, key.generation);
        match flows.flow_counts.last_mut() {
            Some(count) if last == Some(coflow) => *count += 1,
            _ => {
                if last.is_some() {
                    flows.coflows.push(' ');
                }
                flows.coflows.push_str(&key.coflow);
                flows.flow_counts.push(1);
                flows.generations.push(key.generation);
                last = Some(coflow);
            }
        }
        flows.flow_indices.push(key.flow);
    }
    flows
}

fn decode_flow_keys(flows: Option<wire::FlowKeys>, max: usize) -> Result<Vec<FlowKey>, MessageError> {
    let wire::FlowKeys { coflows, flow_counts, flow_indices, generations } = flows.unwrap_or_default();
    check_max_length("flows", flow_indices.len(), max)?;
    check_equal_lengths("flow counts", flow_counts.len(), names(&coflows).count())?;
    check_equal_lengths("flow indices", flow_indices.len(), sum(&flow_counts))?;
    check_equal_lengths("generations", generations.len(), flow_counts.len())?;
    let mut keys = Vec::with_capacity(flow_indices.len());
    let (mut remaining, mut last) = (&flow_indices[..], ("", 0));
    for ((id, &count), generation) in names(&coflows).zip(&flow_counts).zip(generations) {
        if !is_id(id) {
            return Err(MessageError::Id);
        }
        if count == 0 || (id, generation) <= last {
            return Err(MessageError::Unsorted("coflows"));
        }
        last = (id, generation);
        let (own_indices, others) = remaining.split_at(count as usize);
        remaining = others;
        check_increasing("flow indices", own_indices)?;
        let coflow: Arc<str> = id.into();
        keys.extend(own_indices.iter().map(|&flow| FlowKey {
            coflow: Arc::clone(&coflow),
            generation,
            flow,
        }));
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

/// The encoding of pairs of applications and peers.
struct EncodedPeers {
    /// The names, with a space between two.
    applications: String,
    /// The number of peers of each application.
    peer_counts: Vec<u32>,
    /// 16 bytes for each peer.
    addresses: Vec<u8>,
}

impl EncodedPeers {
    /// Encodes a list that is sorted by application and address.
    fn encode<T>(list: &[T], key: impl Fn(&T) -> (&str, IpAddr)) -> EncodedPeers {
        let by_application = || list.chunk_by(|a, b| key(a).0 == key(b).0);
        EncodedPeers {
            applications: by_application().map(|group| key(&group[0]).0).collect::<Vec<_>>().join(" "),
            peer_counts: by_application().map(|group| group.len() as u32).collect(),
            addresses: list.iter().flat_map(|entry| to_ipv6(key(entry).1).octets()).collect(),
        }
    }

    /// Decodes `count` pairs, and checks that they are sorted and unique. Errors name the list `list_name`.
    fn decode(self, list_name: &'static str, count: usize) -> Result<Vec<(Arc<str>, IpAddr)>, MessageError> {
        let EncodedPeers { applications, peer_counts, addresses } = self;
        check_max_length(list_name, count, MAX_OBSERVED)?;
        check_equal_lengths("peer counts", peer_counts.len(), names(&applications).count())?;
        check_equal_lengths(list_name, count, sum(&peer_counts))?;
        check_equal_lengths("bytes of addresses", addresses.len(), 16 * count)?;
        let mut addresses = addresses.as_chunks::<16>().0.iter();
        let mut list: Vec<(Arc<str>, IpAddr)> = Vec::with_capacity(count);
        for (name, peer_count) in names(&applications).zip(peer_counts) {
            if !is_id(name) {
                return Err(MessageError::Id);
            }
            let name: Arc<str> = name.into();
            let own_addresses = addresses.by_ref().take(peer_count as usize);
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

/// Checks the name of an application and its class, or [`Queues::UNMARKED`]; `class_count` is the number of classes of its interface.
fn check_application_class(
    name: &str,
    class: u32,
    class_count: usize,
) -> Result<(Arc<str>, u32), MessageError> {
    if !is_id(name) {
        return Err(MessageError::Id);
    }
    if class as usize > class_count {
        return Err(MessageError::Class { class, class_count });
    }
    Ok((name.into(), class))
}

/// Encodes rates of UDP flows. An empty list takes no bytes.
fn encode_udp_rates(flow_rates: impl Iterator<Item = (UdpFlow, u64)>) -> Option<wire::UdpRates> {
    let mut encoded = wire::UdpRates::default();
    for (flow, rate) in flow_rates {
        encoded
            .addresses
            .extend([flow.src, flow.dst].map(|address| to_ipv6(address).octets()).as_flattened());
        encoded.marks.push(flow.mark.get());
        encoded.rates.push(rate);
    }
    (!encoded.rates.is_empty()).then_some(encoded)
}

fn encode_udp_measurements(measurements: &[UdpMeasurement]) -> Option<wire::UdpRates> {
    encode_udp_rates(measurements.iter().map(|&UdpMeasurement { flow, rate }| (flow, rate)))
}

fn decode_udp_rates<T>(
    list: &'static str,
    rates: Option<wire::UdpRates>,
    to_entry: impl Fn(UdpFlow, u64) -> T,
) -> Result<Vec<T>, MessageError> {
    let wire::UdpRates { addresses, marks, rates } = rates.unwrap_or_default();
    check_max_length(list, rates.len(), MAX_UDP_FLOWS)?;
    check_equal_lengths("bytes of addresses", addresses.len(), 32 * rates.len())?;
    check_equal_lengths("marks", marks.len(), rates.len())?;
    let to_flow = |(&[src, dst], mark): (&[[u8; 16]; 2], u8)| {
        let mark = Mark::new(mark).ok_or(MessageError::Mark(mark))?;
        let [src, dst] = [src, dst].map(|address| Ipv6Addr::from(address).to_canonical());
        Ok(UdpFlow { src, dst, mark })
    };
    let pairs = addresses.as_chunks::<16>().0.as_chunks::<2>().0;
    let flows = pairs.iter().zip(marks).map(to_flow);
    let flows: Vec<UdpFlow> = flows.collect::<Result<_, MessageError>>()?;
    if flows.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(MessageError::Unsorted(list));
    }
    Ok(flows.into_iter().zip(rates).map(|(flow, rate)| to_entry(flow, rate)).collect())
}

fn decode_udp_measurements(
    measurements: Option<wire::UdpRates>,
) -> Result<Vec<UdpMeasurement>, MessageError> {
    decode_udp_rates("UDP measurements", measurements, |flow, rate| UdpMeasurement { flow, rate })
}

fn decode_udp_limits(limits: Option<wire::UdpRates>) -> Result<Vec<UdpLimit>, MessageError> {
    let limits = decode_udp_rates("UDP limits", limits, |flow, rate| UdpLimit { flow, rate })?;
    if limits.iter().any(|limit| limit.rate == 0) {
        return Err(MessageError::Invalid { field: "limit of UDP", expected: "a rate above 0" });
    }
    Ok(limits)
}

/// Microseconds, rounded up, and at most `u32::MAX`.
pub(crate) fn to_micros_rounding_up(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u32::MAX)
}

/// Whether a text is a valid name or value of a label.
pub fn is_label_part(text: &str) -> bool {
    ServiceNames::is_name(text)
}

impl wire::AgentMessage {
    /// Encodes the first message of an agent, with the name of its host or switch, the rates of its links in bytes per second, and the
    /// first [`MAX_HOST_NETWORKS`] of its networks and addresses.
    pub fn hello(name: &str, link_rates: Vec<u64>, networks: &[Network]) -> wire::AgentMessage {
        let networks = &networks[..networks.len().min(MAX_HOST_NETWORKS)];
        let addresses = networks.iter().flat_map(|network| to_ipv6(network.address()).octets()).collect();
        let prefix_lengths = networks.iter().map(Network::prefix_length).collect();
        let labels = Vec::new();
        let hello = wire::Hello { name: name.to_owned(), link_rates, addresses, prefix_lengths, labels };
        wire::AgentMessage { body: Some(wire::agent_message::Body::Hello(hello)) }
    }

    /// The same first message with the labels of the host. Other messages stay unchanged.
    #[must_use]
    pub fn with_labels(mut self, labels: &BTreeMap<String, String>) -> wire::AgentMessage {
        if let Some(wire::agent_message::Body::Hello(hello)) = &mut self.body {
            let label =
                |(name, value): (&String, &String)| wire::Label { name: name.clone(), value: value.clone() };
            hello.labels = labels.iter().map(label).collect();
        }
        self
    }

    /// Encodes a report.
    pub fn report(report: &Report) -> wire::AgentMessage {
        wire::AgentMessage { body: Some(wire::agent_message::Body::Report(report.into())) }
    }
}

impl wire::Hello {
    /// The labels of the host, by name.
    ///
    /// # Errors
    /// [`MessageError`]: too many labels, or an invalid or repeated one.
    pub fn labels_by_name(&self) -> Result<BTreeMap<String, String>, MessageError> {
        check_max_length("labels", self.labels.len(), MAX_LABELS)?;
        let labels: BTreeMap<String, String> =
            self.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect();
        let are_names = labels.iter().all(|(name, value)| is_label_part(name) && is_label_part(value));
        if are_names && labels.len() == self.labels.len() { Ok(labels) } else { Err(MessageError::Label) }
    }

    /// The networks of the host, and the addresses of its interfaces.
    ///
    /// # Errors
    /// [`MessageError`]: too many of them, a part of an address, or a prefix that is longer than its address.
    pub fn networks(&self) -> Result<Vec<Network>, MessageError> {
        let addresses = self.addresses.as_chunks::<16>().0;
        check_max_length("addresses", addresses.len(), MAX_HOST_NETWORKS)?;
        check_equal_lengths("bytes of addresses", self.addresses.len(), 16 * addresses.len())?;
        check_equal_lengths("prefix lengths", self.prefix_lengths.len(), addresses.len())?;
        let networks = addresses.iter().zip(&self.prefix_lengths).map(|(&octets, &length)| {
            Network::of(IpAddr::from(octets), length).ok_or(MessageError::PrefixLength(length))
        });
        networks.collect()
    }
}

impl wire::CoordinatorMessage {
    /// Encodes the first message of a coordinator: the report interval, the lowest generation of its store, the number of the host or
    /// switch, the configured rates of its links in bytes per second, 0 if not configured, how UDP is limited, and whether the agent has
    /// to report demands.
    pub fn welcome(
        interval: Duration,
        first_generation: u64,
        number: u32,
        link_rates: Vec<u64>,
        udp_control: Option<UdpControl>,
        wants_demands: bool,
    ) -> wire::CoordinatorMessage {
        let udp_control = match udp_control {
            None => wire::UdpControl::Unspecified,
            Some(UdpControl::Throttling) => wire::UdpControl::Throttling,
            Some(UdpControl::Allocation) => wire::UdpControl::Allocation,
        };
        let welcome = wire::Welcome {
            report_interval_us: to_micros_rounding_up(interval),
            udp_control: udp_control.into(),
            wants_demands,
            link_rates,
            first_generation,
            number,
        };
        wire::CoordinatorMessage { body: Some(wire::coordinator_message::Body::Welcome(welcome)) }
    }

    /// Encodes an order.
    pub fn order(order: &Order) -> wire::CoordinatorMessage {
        wire::CoordinatorMessage { body: Some(wire::coordinator_message::Body::Order(order.into())) }
    }
}

impl wire::Welcome {
    /// The report interval.
    pub fn interval(&self) -> Duration {
        Duration::from_micros(u64::from(self.report_interval_us))
    }

    /// How UDP is limited; none if it is not, or in a way that this version does not know.
    pub fn control_of_udp(&self) -> Option<UdpControl> {
        match self.udp_control() {
            wire::UdpControl::Unspecified => None,
            wire::UdpControl::Throttling => Some(UdpControl::Throttling),
            wire::UdpControl::Allocation => Some(UdpControl::Allocation),
        }
    }
}

/// The indices of the flows with a property.
fn indices<T>(flows: &[T], has_property: impl Fn(&T) -> bool) -> Vec<u32> {
    (0u32..).zip(flows).filter(|(_, flow)| has_property(flow)).map(|(index, _)| index).collect()
}

fn flows_in_state(flows: &[FlowProgress], state: SenderState) -> Vec<u32> {
    indices(flows, |progress| progress.state == state)
}

/// Sets the state of the flows with these indices, which have to be in no other list of states.
fn set_state(
    flows: &mut [FlowProgress],
    list: &'static str,
    indices: &[u32],
    state: SenderState,
) -> Result<(), MessageError> {
    check_indices(list, indices, flows.len())?;
    for &index in indices {
        if std::mem::replace(&mut flows[index as usize].state, state) != SenderState::Ready {
            return Err(MessageError::Invalid {
                field: "state of a reported flow",
                expected: "at most one of completed, idle and lost",
            });
        }
    }
    Ok(())
}

impl From<&Report> for wire::Report {
    fn from(report: &Report) -> wire::Report {
        let observed = &report.observed;
        let peers = EncodedPeers::encode(observed, |entry| (&entry.application, entry.peer));
        let any_demand = observed.iter().any(|entry| entry.demand != Demand::Unknown);
        let demands = observed.iter().filter(|_| any_demand).map(|entry| entry.demand.into());
        wire::Report {
            applied_epoch: report.applied.0,
            applied_seq: report.applied.1,
            flows: Some(encode_flow_keys(report.flows.iter().map(|progress| &progress.key))),
            sent_bytes: report.flows.iter().map(|progress| progress.sent).collect(),
            completed_flows: flows_in_state(&report.flows, SenderState::Completed),
            idle_flows: flows_in_state(&report.flows, SenderState::Idle),
            lost_flows: flows_in_state(&report.flows, SenderState::Lost),
            gated_flows: indices(&report.flows, |progress| progress.gated),
            udp_flows: indices(&report.flows, |progress| progress.udp),
            limited_flows: indices(&report.flows, |progress| progress.demand.is_some()),
            demands: report.flows.iter().filter_map(|progress| progress.demand).collect(),
            observed_applications: peers.applications,
            observed_peer_counts: peers.peer_counts,
            observed_addresses: peers.addresses,
            observed_connections: observed.iter().map(|entry| entry.open_connections).collect(),
            observed_sent_bytes: observed.iter().map(|entry| entry.sent_bytes).collect(),
            udp_measurements: encode_udp_measurements(&report.udp_measurements),
            refused_orders: Some(report.refused_orders).filter(|counts| *counts != RefusedOrders::default()),
            observed_demands: demands.collect(),
            restored_objects: Some(report.restored_objects)
                .filter(|counts| *counts != RestoredObjects::default()),
            conflicts: report.conflicts.iter().map(wire::Conflict::from).collect(),
            bandwidth_limit: encode_bandwidth_limit(report.bandwidth_limit),
            matching: report.matching.as_ref().map(Into::into),
            links_down: report.links_down.clone(),
        }
    }
}

impl TryFrom<wire::Report> for Report {
    type Error = MessageError;

    fn try_from(report: wire::Report) -> Result<Report, MessageError> {
        let keys = decode_flow_keys(report.flows, MAX_REPORTED_FLOWS)?;
        check_equal_lengths("sent bytes", report.sent_bytes.len(), keys.len())?;
        let to_progress = |(key, sent)| FlowProgress::new(key, sent, SenderState::Ready);
        let mut flows: Vec<FlowProgress> = keys.into_iter().zip(report.sent_bytes).map(to_progress).collect();
        set_state(&mut flows, "completed flows", &report.completed_flows, SenderState::Completed)?;
        set_state(&mut flows, "idle flows", &report.idle_flows, SenderState::Idle)?;
        set_state(&mut flows, "lost flows", &report.lost_flows, SenderState::Lost)?;
        check_indices("gated flows", &report.gated_flows, flows.len())?;
        for index in report.gated_flows {
            flows[index as usize].gated = true;
        }
        check_indices("flows over UDP", &report.udp_flows, flows.len())?;
        for index in report.udp_flows {
            flows[index as usize].udp = true;
        }
        check_indices("limited flows", &report.limited_flows, flows.len())?;
        check_equal_lengths("demands of flows", report.demands.len(), report.limited_flows.len())?;
        for (index, demand) in report.limited_flows.into_iter().zip(report.demands) {
            flows[index as usize].demand = Some(demand);
        }
        let peers = EncodedPeers {
            applications: report.observed_applications,
            peer_counts: report.observed_peer_counts,
            addresses: report.observed_addresses,
        };
        let peers = peers.decode("observed connections", report.observed_connections.len())?;
        check_equal_lengths("sent bytes", report.observed_sent_bytes.len(), peers.len())?;
        // An agent that does not have to report demands sends no list.
        let mut demands = report.observed_demands;
        if demands.is_empty() {
            demands.resize(peers.len(), 0);
        }
        check_equal_lengths("demands", demands.len(), peers.len())?;
        let columns =
            peers.into_iter().zip(report.observed_connections).zip(report.observed_sent_bytes).zip(demands);
        let to_observed = |((((application, peer), open_connections), sent_bytes), demand)| {
            let demand = Demand::from(demand);
            ObservedConnections { application, peer, open_connections, sent_bytes, demand }
        };
        let observed = columns.map(to_observed).collect();
        let udp_measurements = decode_udp_measurements(report.udp_measurements)?;
        check_max_length("conflicts", report.conflicts.len(), MAX_CONFLICTS)?;
        let conflicts = report.conflicts.into_iter().map(Conflict::try_from).collect::<Result<_, _>>()?;
        check_max_length("links that are down", report.links_down.len(), MAX_SWITCH_PORTS)?;
        check_increasing("links that are down", &report.links_down)?;
        Ok(Report {
            applied: (report.applied_epoch, report.applied_seq),
            flows,
            observed,
            udp_measurements,
            refused_orders: report.refused_orders.unwrap_or_default(),
            restored_objects: report.restored_objects.unwrap_or_default(),
            conflicts,
            bandwidth_limit: decode_bandwidth_limit(report.bandwidth_limit)?,
            matching: report.matching.map(MatchingReport::try_from).transpose()?,
            links_down: report.links_down,
        })
    }
}

impl From<OrderedRate> for u64 {
    fn from(rate: OrderedRate) -> u64 {
        match rate {
            OrderedRate::Removed => 0,
            OrderedRate::Unlimited => 1,
            OrderedRate::Paused => 2,
            OrderedRate::Rate(rate) | OrderedRate::Reserve(rate) => rate.saturating_add(2),
        }
    }
}

/// Decodes a rate that is no share of the reserve.
impl From<u64> for OrderedRate {
    fn from(code: u64) -> OrderedRate {
        match code {
            0 => OrderedRate::Removed,
            1 => OrderedRate::Unlimited,
            2 => OrderedRate::Paused,
            rate => OrderedRate::Rate(rate - 2),
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

impl From<UnscheduledReason> for wire::UnscheduledReason {
    fn from(reason: UnscheduledReason) -> wire::UnscheduledReason {
        match reason {
            UnscheduledReason::UnknownCoflow => wire::UnscheduledReason::UnknownCoflow,
            UnscheduledReason::UnknownFlow => wire::UnscheduledReason::UnknownFlow,
            UnscheduledReason::ForeignFlow => wire::UnscheduledReason::ForeignFlow,
            UnscheduledReason::FormerRegistration => wire::UnscheduledReason::FormerRegistration,
            UnscheduledReason::Completed => wire::UnscheduledReason::Completed,
        }
    }
}

fn decode_unscheduled_reason(reason: i32) -> Result<UnscheduledReason, MessageError> {
    match wire::UnscheduledReason::try_from(reason) {
        Ok(wire::UnscheduledReason::UnknownCoflow) => Ok(UnscheduledReason::UnknownCoflow),
        Ok(wire::UnscheduledReason::UnknownFlow) => Ok(UnscheduledReason::UnknownFlow),
        Ok(wire::UnscheduledReason::ForeignFlow) => Ok(UnscheduledReason::ForeignFlow),
        Ok(wire::UnscheduledReason::FormerRegistration) => Ok(UnscheduledReason::FormerRegistration),
        Ok(wire::UnscheduledReason::Completed) => Ok(UnscheduledReason::Completed),
        Ok(wire::UnscheduledReason::Unspecified) | Err(_) => Err(MessageError::Invalid {
            field: "reason of an unscheduled flow",
            expected: "a reason of the enumeration, not unspecified",
        }),
    }
}

impl From<&Order> for wire::Order {
    fn from(order: &Order) -> wire::Order {
        let queues = || order.queues.iter().map(|(_, queues)| queues);
        let classes = || queues().flat_map(|queues| &queues.class_of_application);
        let peers = EncodedPeers::encode(&order.limits, |limit| (&limit.application, limit.peer));
        let reasons = order.unscheduled.iter();
        let guaranteed_interfaces = (0u32..).zip(queues()).filter(|(_, queues)| queues.guaranteed);
        let (queue_min_rates, queue_max_rates) = encode_rate_bounds(&order.queues);
        wire::Order {
            epoch: order.epoch,
            seq: order.seq,
            lease_us: to_micros_rounding_up(order.lease),
            is_full: order.is_full,
            is_early: order.is_early,
            flows: Some(encode_flow_keys(order.flows.iter().map(|(key, _)| key))),
            rates: order.flows.iter().map(|(_, rate)| u64::from(*rate)).collect(),
            interfaces: order.queues.iter().map(|(interface, _)| *interface).collect(),
            queue_counts: queues().map(|queues| queues.weights.len() as u32).collect(),
            weights: queues().flat_map(|queues| &queues.weights).copied().collect(),
            application_counts: queues().map(|queues| queues.class_of_application.len() as u32).collect(),
            applications: classes().map(|(name, _)| &**name).collect::<Vec<_>>().join(" "),
            application_classes: classes().map(|(_, class)| *class).collect(),
            class_counts: queues().map(|queues| queues.queue_of_class.len() as u32).collect(),
            queue_of_class: queues().flat_map(|queues| &queues.queue_of_class).copied().collect(),
            udp_measurements: encode_udp_measurements(&order.udp_measurements),
            udp_limits: encode_udp_rates(order.udp_limits.iter().map(|limit| (limit.flow, limit.rate))),
            limited_applications: peers.applications,
            limited_peer_counts: peers.peer_counts,
            limited_addresses: peers.addresses,
            limit_rates: order.limits.iter().map(|limit| limit.rate.into()).collect(),
            guaranteed_interfaces: guaranteed_interfaces.map(|(index, _)| index).collect(),
            unclassified_shares: queues().map(|queues| queues.unclassified.fraction).collect(),
            unclassified_weights: queues().map(|queues| queues.unclassified.weight).collect(),
            reserve_flows: indices(&order.flows, |(_, rate)| matches!(rate, OrderedRate::Reserve(_))),
            unscheduled_flows: (!order.unscheduled.is_empty())
                .then(|| encode_flow_keys(order.unscheduled.iter().map(|(key, _)| key))),
            unscheduled_reasons: reasons
                .map(|&(_, reason)| wire::UnscheduledReason::from(reason).into())
                .collect(),
            queue_min_rates,
            queue_max_rates,
            traffic: order.traffic.as_deref().map(encode_traffic),
            bandwidth_limit: encode_bandwidth_limit(order.bandwidth_limit),
            matching: order.matching.as_ref().map(Into::into),
            without_queues: order.without_queues,
        }
    }
}

/// The minimum and maximum rates of all queues, or empty lists if no queue has one.
fn encode_rate_bounds(queues: &[(u32, Queues)]) -> (Vec<u64>, Vec<u64>) {
    if queues.iter().all(|(_, queues)| queues.rate_bounds.is_empty()) {
        return (Vec::new(), Vec::new());
    }
    let bounds_of = |queues: &Queues| {
        let missing = queues.weights.len() - queues.rate_bounds.len().min(queues.weights.len());
        let bounds = queues.rate_bounds.iter().copied();
        bounds.chain(std::iter::repeat_n(RateBounds::default(), missing)).collect::<Vec<_>>()
    };
    let bounds = queues.iter().flat_map(|(_, queues)| bounds_of(queues));
    bounds.map(|bounds| (bounds.min, bounds.max.unwrap_or(0))).unzip()
}

/// The bounds of all queues in the order of `weights`, or none without bounds.
fn decode_rate_bounds(order: &wire::Order) -> Result<Option<Vec<RateBounds>>, MessageError> {
    let (min_rates, max_rates) = (&order.queue_min_rates, &order.queue_max_rates);
    if min_rates.is_empty() && max_rates.is_empty() {
        return Ok(None);
    }
    check_equal_lengths("minimum rates of queues", min_rates.len(), order.weights.len())?;
    check_equal_lengths("maximum rates of queues", max_rates.len(), order.weights.len())?;
    let bounds = |(&min, &max): (&u64, &u64)| RateBounds { min, max: (max > 0).then_some(max) };
    Ok(Some(min_rates.iter().zip(max_rates).map(bounds).collect()))
}

fn encode_bandwidth_limit(limit: Option<BandwidthLimit>) -> u32 {
    limit.map_or(0, BandwidthLimit::millionths)
}

fn decode_bandwidth_limit(millionths: u32) -> Result<Option<BandwidthLimit>, MessageError> {
    if millionths == 0 {
        return Ok(None);
    }
    let limit = BandwidthLimit::from_millionths(millionths);
    let invalid =
        MessageError::Invalid { field: "limit of bandwidth", expected: "0 to 1,000,000 millionths" };
    limit.map(Some).ok_or(invalid)
}

fn encode_traffic(traffic: &[ApplicationTraffic]) -> wire::TrafficRules {
    let join = |names: Vec<&str>| names.join(" ");
    wire::TrafficRules {
        applications: join(traffic.iter().map(|entry| &*entry.application).collect()),
        cgroup_counts: traffic.iter().map(|entry| entry.cgroups.len() as u32).collect(),
        cgroups: join(traffic.iter().flat_map(|entry| &entry.cgroups).map(String::as_str).collect()),
        port_counts: traffic.iter().map(|entry| entry.ports.len() as u32).collect(),
        ports: traffic.iter().flat_map(|entry| &entry.ports).map(|&port| port.into()).collect(),
    }
}

fn decode_traffic(rules: wire::TrafficRules) -> Result<Vec<ApplicationTraffic>, MessageError> {
    let wire::TrafficRules { applications, cgroup_counts, cgroups, port_counts, ports } = rules;
    let application_count = names(&applications).count();
    check_max_length("applications with traffic", application_count, MAX_APPLICATIONS)?;
    check_equal_lengths("cgroup counts", cgroup_counts.len(), application_count)?;
    check_equal_lengths("port counts", port_counts.len(), application_count)?;
    check_equal_lengths("cgroups", names(&cgroups).count(), sum(&cgroup_counts))?;
    check_equal_lengths("ports", ports.len(), sum(&port_counts))?;
    check_max_length("cgroups and ports", sum(&cgroup_counts) + ports.len(), MAX_TRAFFIC_RULES)?;
    let to_port = |port: u32| {
        let port = u16::try_from(port).ok().filter(|&port| port > 0);
        port.ok_or(MessageError::Invalid { field: "port of an application", expected: "1 to 65535" })
    };
    let (mut cgroups, mut ports) = (names(&cgroups), ports.into_iter());
    let mut traffic: Vec<ApplicationTraffic> = Vec::with_capacity(application_count);
    for ((name, cgroup_count), port_count) in names(&applications).zip(cgroup_counts).zip(port_counts) {
        if !is_id(name) {
            return Err(MessageError::Id);
        }
        if traffic.last().is_some_and(|last| *last.application >= *name) {
            return Err(MessageError::Unsorted("applications with traffic"));
        }
        traffic.push(ApplicationTraffic {
            application: name.into(),
            cgroups: cgroups.by_ref().take(cgroup_count as usize).map(str::to_owned).collect(),
            ports: ports.by_ref().take(port_count as usize).map(to_port).collect::<Result<_, _>>()?,
        });
    }
    Ok(traffic)
}

/// Checks the lengths of the lists of queues, and that interfaces are sorted.
fn check_queue_lists(order: &wire::Order) -> Result<(), MessageError> {
    let interface_count = order.interfaces.len();
    check_max_length("interfaces", interface_count, MAX_QUEUES)?;
    check_max_length("weights", order.weights.len(), MAX_QUEUES)?;
    check_increasing("interfaces", &order.interfaces)?;
    check_equal_lengths("queue counts", order.queue_counts.len(), interface_count)?;
    check_equal_lengths("weights", order.weights.len(), sum(&order.queue_counts))?;
    check_max_length("application classes", order.application_classes.len(), MAX_APPLICATIONS)?;
    check_equal_lengths("application counts", order.application_counts.len(), interface_count)?;
    let application_count = sum(&order.application_counts);
    check_equal_lengths("application classes", order.application_classes.len(), application_count)?;
    let name_count = names(&order.applications).count();
    check_equal_lengths("application names", name_count, order.application_classes.len())?;
    check_max_length("queues of classes", order.queue_of_class.len(), MAX_QUEUES)?;
    check_equal_lengths("class counts", order.class_counts.len(), interface_count)?;
    check_equal_lengths("queues of classes", order.queue_of_class.len(), sum(&order.class_counts))?;
    check_equal_lengths("unclassified shares", order.unclassified_shares.len(), interface_count)?;
    check_equal_lengths("unclassified weights", order.unclassified_weights.len(), interface_count)
}

/// Decodes the queues of interfaces, without their guarantees.
fn decode_queues(order: &wire::Order) -> Result<Vec<(u32, Queues)>, MessageError> {
    check_queue_lists(order)?;
    if !order.weights.iter().all(|weight| weight.is_finite() && *weight > 0.0) {
        return Err(MessageError::Weight);
    }
    let mut rate_bounds = decode_rate_bounds(order)?.map(Vec::into_iter);
    let mut weights = order.weights.iter().copied();
    let mut queue_of_class = order.queue_of_class.iter().copied();
    let mut classes = names(&order.applications).zip(order.application_classes.iter().copied());
    let mut decode_interface = |(at, &interface): (usize, &u32)| {
        let (fraction, weight) = (order.unclassified_shares[at], order.unclassified_weights[at]);
        let unclassified = UnclassifiedShare { fraction, weight };
        if !unclassified.is_valid() {
            return Err(MessageError::UnclassifiedShare);
        }
        let weights: Vec<f64> = weights.by_ref().take(order.queue_counts[at] as usize).collect();
        let queue_of_class: Vec<u32> =
            queue_of_class.by_ref().take(order.class_counts[at] as usize).collect();
        if let Some(&queue) = queue_of_class.iter().find(|&&queue| queue as usize >= weights.len()) {
            return Err(MessageError::Queue { queue, queue_count: weights.len() });
        }
        let own_classes = classes.by_ref().take(order.application_counts[at] as usize);
        let class_of_application = own_classes
            .map(|(name, class)| check_application_class(name, class, queue_of_class.len()))
            .collect::<Result<Vec<_>, MessageError>>()?;
        if class_of_application.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(MessageError::Unsorted("applications"));
        }
        let rate_bounds: Vec<RateBounds> =
            rate_bounds.iter_mut().flat_map(|bounds| bounds.by_ref().take(weights.len())).collect();
        let has_bounds = rate_bounds.iter().any(|bounds| *bounds != RateBounds::default());
        let queues = Queues {
            weights,
            queue_of_class,
            class_of_application,
            guaranteed: false,
            unclassified,
            rate_bounds: if has_bounds { rate_bounds } else { Vec::new() },
        };
        Ok((interface, queues))
    };
    order.interfaces.iter().enumerate().map(&mut decode_interface).collect()
}

/// Decodes changed rates. `reserve_flows` are the indices of those that are shares of the reserve.
fn decode_flows(
    flows: Option<wire::FlowKeys>,
    rates: Vec<u64>,
    reserve_flows: &[u32],
) -> Result<Vec<(FlowKey, OrderedRate)>, MessageError> {
    let keys = decode_flow_keys(flows, MAX_FLOWS_PER_HOST)?;
    if keys.iter().any(|key| key.generation == 0) {
        return Err(MessageError::Generation);
    }
    check_equal_lengths("rates", rates.len(), keys.len())?;
    check_indices("flows of the reserve", reserve_flows, keys.len())?;
    let mut flows: Vec<(FlowKey, OrderedRate)> =
        keys.into_iter().zip(rates.into_iter().map(OrderedRate::from)).collect();
    for &index in reserve_flows {
        let rate = &mut flows[index as usize].1;
        let OrderedRate::Rate(share) = *rate else {
            return Err(MessageError::Invalid { field: "share of the reserve", expected: "a rate" });
        };
        *rate = OrderedRate::Reserve(share);
    }
    Ok(flows)
}

fn decode_unscheduled(
    flows: Option<wire::FlowKeys>,
    reasons: Vec<i32>,
) -> Result<Vec<(FlowKey, UnscheduledReason)>, MessageError> {
    let keys = decode_flow_keys(flows, MAX_REPORTED_FLOWS)?;
    check_equal_lengths("reasons of unscheduled flows", reasons.len(), keys.len())?;
    let reasons = reasons.into_iter().map(decode_unscheduled_reason);
    keys.into_iter().zip(reasons).map(|(key, reason)| Ok((key, reason?))).collect()
}

fn decode_limits(peers: EncodedPeers, rates: Vec<u64>) -> Result<Vec<Limit>, MessageError> {
    let peers = peers.decode("limits", rates.len())?;
    let to_limit = |((application, peer), rate): ((Arc<str>, IpAddr), u64)| {
        let rate = OrderedRate::from(rate);
        let is_valid = rate != OrderedRate::Paused;
        is_valid.then_some(Limit { application, peer, rate }).ok_or(MessageError::Invalid {
            field: "rate of a limit",
            expected: "a rate, unlimited or removed",
        })
    };
    peers.into_iter().zip(rates).map(to_limit).collect()
}

impl TryFrom<wire::Order> for Order {
    type Error = MessageError;

    fn try_from(order: wire::Order) -> Result<Order, MessageError> {
        let mut queues = decode_queues(&order)?;
        check_indices("guaranteed interfaces", &order.guaranteed_interfaces, queues.len())?;
        for index in order.guaranteed_interfaces {
            queues[index as usize].1.guaranteed = true;
        }
        let peers = EncodedPeers {
            applications: order.limited_applications,
            peer_counts: order.limited_peer_counts,
            addresses: order.limited_addresses,
        };
        Ok(Order {
            epoch: order.epoch,
            seq: order.seq,
            lease: Duration::from_micros(u64::from(order.lease_us)),
            is_full: order.is_full,
            is_early: order.is_early,
            flows: decode_flows(order.flows, order.rates, &order.reserve_flows)?,
            queues,
            udp_measurements: decode_udp_measurements(order.udp_measurements)?,
            udp_limits: decode_udp_limits(order.udp_limits)?,
            limits: decode_limits(peers, order.limit_rates)?,
            unscheduled: decode_unscheduled(order.unscheduled_flows, order.unscheduled_reasons)?,
            traffic: order.traffic.map(decode_traffic).transpose()?,
            bandwidth_limit: decode_bandwidth_limit(order.bandwidth_limit)?,
            matching: order.matching.map(MatchingOrder::try_from).transpose()?,
            without_queues: order.without_queues,
        })
    }
}
