//! Control-plane state machine: applies requests and reports, and computes orders. Sans-I/O: callers pass the time.
//!
//! Saath, section 5: frameworks register, update and deregister coflows. At every interval, hosts report the bytes sent and
//! the completed flows. The coordinator computes the next schedule from the reports of the last interval, and sends it as
//! orders. The paper leaves these points open:
//!
//! - *Plausibility.* A host's reports about its own flows are accepted up to the rate of its link. Decreasing bytes and
//!   bytes above that rate are counted in [`RejectedEntries`]; the rest of the report is applied.
//! - *Estimated progress.* Agents report a flow only when it deviates from its last order, so a flow without a report
//!   is assumed to send at its ordered rate.
//! - *Available data* (4.3). A flow has data if its host reports it as ready: a program has handed over a connection, and has
//!   written data that the connection has not sent. The paper waits for as much data as a port sends in an interval. A flow without
//!   reported progress has no data, whatever its host reports. Programs hand over connections shortly after the registration,
//!   so an unreported flow counts as having data for one lease. After the lease it frees its ports, since the program that
//!   registered it may have died.
//! - *Demand.* A flow whose program writes less than the rate of the flow is limited to the demand of its program, and a tenth more. The
//!   policy decides without the limit, and the capacity that becomes free goes to other coflows in the order of the policy
//!   ([`Engine::set_flow_max_rate`]).
//! - *Payload.* The engine counts payload, as frameworks and hosts do. Links and orders count whole packets, which
//!   include headers.
//! - *Links between switches.* With a topology, policies decide over trunks as in the simulator. The hash by which switches
//!   select paths is unknown, so each flow counts as divided evenly among its shortest paths ([`Trunks::even_split`]).
//! - *No zero rate.* A flow without a rate in the schedule, or with a very low one, gets its share of [`Settings::reserve`] of its links,
//!   which only flows with a connection divide. The engine does not schedule this reserve, so connections stay alive and no link exceeds
//!   its capacity. A gated flow is paused instead: its program writes only while it may (the paper's `datasend()`), or the kernel keeps its
//!   data in its socket.
//! - *No limit without competition.* A TCP flow that competes with no other coflow and no service is unlimited, whatever the policy
//!   decides: a limit would delay it, and no flow waits for the unused bandwidth. UDP flows keep their rates, from which their progress is
//!   estimated.
//! - *Failed links.* Flows without a path wait as flows without data (`failed_links.rs`).
//! - *Pauses.* Operators turn hosts and services to plain TCP, or let schedules run in shadow mode (`pause.rs`).
//! - *Leases.* Each order carries the epoch of its coordinator, a sequence number and a lease. A host gets an order when one of
//!   its flows, queues or limits changes, and at least once every quarter of the lease and every second. A host that confirms
//!   none of the recent orders gets a full order. The flows of a host without a report for one lease count as flows without data
//!   until the host reports again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_core::engine::{Engine, Links};
use weir_core::model::{
    CoflowSpec, Fabric, FlowSpec, FlowState, LinkBudget, PortSide, ServiceNames, Slot, Topology, Trunks,
};
use weir_core::policy::AnyPolicy;
use weir_core::tree::TreeError;
use weir_core::units::{Bytes, Rate, Time};
use weir_proto::{FRAME_BYTES, MAX_FLOWS_PER_HOST, NetworkTable, PAYLOAD_BYTES, estimate_sent_bytes, is_id};

use crate::coflow_status::Phase;
use crate::order_state::OrderState;
use crate::quota::{CoflowUsage, UsageByService};
use crate::values::WEIGHT_RANGE;

mod agent_names;
mod allocator;
mod bandwidth;
mod connection_counts;
mod contention;
mod division_size;
mod failed_links;
mod flow_demands;
mod history;
mod link_rates;
mod matching;
mod observed_connections;
mod outline;
mod pause;
mod recorded_workload;
mod rejected_entries;
mod reports;
mod request;
mod schedule;
mod service_division;
mod service_flow;
mod service_weights;
mod slots;
mod status;
mod udp_demands;
mod udp_measurements;

use link_rates::LinkRates;

pub use agent_names::AgentNames;
pub use allocator::{FlowPeer, WeightedFlow};
pub use bandwidth::{CarriedLimit, LimitTaken};
pub use connection_counts::ConnectionPredictor;
pub use division_size::DivisionSize;
pub use history::Decision;
pub use matching::{LivePolicy, MatchingMessages};
pub use outline::CoflowOutline;
pub use pause::{HostPause, PauseMode, Pauses};
pub use recorded_workload::{RecordedCoflow, RecordedFlow, RecordedPage};
pub use rejected_entries::RejectedEntries;
pub(crate) use request::join_names;
pub use request::{Refusal, Registration, Transfer, UnknownName};
pub use service_weights::ServiceWeights;
pub use status::{CoflowStatus, FlowAllocation, FlowStatus, HostStatus};
pub use weir_proto::{
    ApplicationTraffic, Conflict, Demand, FlowKey, FlowProgress, Limit, Mark, ObservedConnections, Order,
    OrderedRate, Queues, RefusedOrders, Report, RestoredObjects, SenderState, UdpControl, UdpFlow, UdpLimit,
    UdpMeasurement, UnscheduledReason,
};

/// Size of a flow with an unknown size, in bytes: more than any flow sends, and small enough for sums of sizes.
const UNKNOWN_SIZE_BYTES: f64 = 1e18;

/// Parameters of the control plane.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Seconds between two schedules.
    pub interval: f64,
    /// Duration of an order's lease, in seconds. A host receives orders if its last report is at most one lease old.
    pub lease: f64,
    /// Fraction of every port that flows without a rate share, 0 to 1.
    pub reserve: f64,
    /// The parts of every link.
    pub budget: LinkBudget,
    /// Time after its completion for which a coflow is kept, in seconds. Clients may deregister it earlier.
    pub keep_completed: f64,
    /// Maximum number of coflows, active or completed. A registration above it is refused. Those between regions have a separate limit of
    /// the same size, as for flows.
    pub max_coflows: usize,
    /// Maximum number of flows of all coflows. A registration or update above it is refused.
    pub max_flows: usize,
    /// Maximum number of flows that one host sends, which bounds the size of an order. A request above it is refused.
    pub max_flows_per_host: usize,
    /// Maximum memory for coflows that are no longer registered, in bytes: [`ControlPlane::ended_coflows`].
    pub max_workload_bytes: usize,
}

/// The longest time between two orders to a host, in seconds. Agents end a stream after two seconds without an order.
const MAX_ORDER_GAP: f64 = 1.0;

impl Settings {
    /// Checks the limit of coflows for one more.
    pub(crate) fn check_coflows(&self, usage: CoflowUsage) -> Result<(), Refusal> {
        if usage.coflows < self.max_coflows {
            return Ok(());
        }
        Err(Refusal::LimitReached { objects: "coflows", max: self.max_coflows })
    }

    /// Checks the limit of flows for those that replace `former` flows. Fewer flows are always within the limit.
    pub(crate) fn check_flows(&self, usage: CoflowUsage, former: usize, flows: usize) -> Result<(), Refusal> {
        if flows <= former || usage.flows - former + flows <= self.max_flows {
            return Ok(());
        }
        Err(Refusal::LimitReached { objects: "flows", max: self.max_flows })
    }

    /// Time from an order to its renewal, in seconds. An order is renewed at least four times per lease, so two consecutive
    /// lost renewals do not end the lease.
    fn renewal_interval(&self) -> f64 {
        (self.lease / 4.0).min(MAX_ORDER_GAP)
    }

    /// Time after which an unconfirmed order counts as lost, in seconds. An order, the next report and the next schedule take
    /// three intervals if none of them is late.
    fn confirmation_timeout(&self) -> f64 {
        self.renewal_interval().max(3.0 * self.interval)
    }
}

impl Default for Settings {
    /// The interval of the Saath paper (8 ms), and a lease of ten intervals.
    fn default() -> Settings {
        Settings {
            interval: 0.008,
            lease: 0.08,
            reserve: 0.01,
            budget: LinkBudget::DEFAULT,
            keep_completed: 600.0,
            max_coflows: 100_000,
            max_flows: 10_000_000,
            max_flows_per_host: MAX_FLOWS_PER_HOST,
            max_workload_bytes: 64_000_000,
        }
    }
}

/// Capacity of a host's link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// From the host to the network.
    pub send: Rate,
    /// From the network to the host.
    pub recv: Rate,
}

/// The links that a control plane schedules.
#[derive(Debug, Clone)]
pub struct NetworkLinks {
    /// Links of hosts, by host number. A slot without a host has a rate of zero.
    hosts: Vec<Link>,
    /// The highest rate of hosts that join, in bytes per second.
    max_slot_rate: f64,
    /// Links between switches; none if no link between switches can limit flows.
    trunks: Option<Trunks>,
}

impl NetworkLinks {
    /// Hosts with these links, under one switch.
    pub fn one_switch(hosts: &[Link]) -> NetworkLinks {
        NetworkLinks { hosts: hosts.to_vec(), max_slot_rate: 0.0, trunks: None }
    }

    /// Hosts with these links, and the links between the switches of a topology with these hosts, and those of slots.
    pub fn with_topology(hosts: &[Link], topology: Topology) -> NetworkLinks {
        debug_assert!(hosts.len() <= topology.hosts(), "the topology contains the hosts");
        let trunks = Trunks::even_split(topology);
        let trunks = Some(trunks).filter(|trunks| trunks.links() > 0);
        NetworkLinks { trunks, ..NetworkLinks::one_switch(hosts) }
    }

    /// Adds slots for hosts that join, whose links have at most a rate in bytes per second.
    #[must_use]
    pub fn with_slots(mut self, count: usize, max_rate: f64) -> NetworkLinks {
        let free = Link { send: Rate::ZERO, recv: Rate::ZERO };
        self.hosts.extend(std::iter::repeat_n(free, count));
        NetworkLinks { max_slot_rate: max_rate, ..self }
    }

    /// Links of hosts, by host number.
    pub fn host_links(&self) -> &[Link] {
        &self.hosts
    }

    /// The names and capacities of the link groups between switches that the links of hosts can fill.
    pub fn contended_trunks(&self) -> Vec<(String, Rate)> {
        let Some(mut trunks) = self.trunks.clone() else { return Vec::new() };
        let contended = trunks.contended_trunks();
        let contended = (0..trunks.links()).filter(|&trunk| contended.contains(trunk));
        let capacity = |trunk: usize| Rate::new(trunks.capacities()[trunk]).unwrap_or(Rate::ZERO);
        contended.map(|trunk| (trunks.link_name(trunk), capacity(trunk))).collect()
    }

    /// Capacities in bytes per second, including headers: of hosts' links for sending, then for receiving, then of trunks.
    fn capacities(&self) -> Vec<f64> {
        let send = self.hosts.iter().map(|link| link.send.get());
        let recv = self.hosts.iter().map(|link| link.recv.get());
        let trunks = self.trunks.iter().flat_map(Trunks::capacities);
        send.chain(recv).chain(trunks.copied()).collect()
    }
}

/// A host or a switch, and the orders sent to it. The fields about flows are used for hosts only.
#[derive(Debug, Default)]
struct Host {
    /// Time of the last report; `None` before the first.
    last_report_at: Option<f64>,
    /// Whether schedules include its flows.
    present: bool,
    /// Whether it receives orders.
    receives_orders: bool,
    orders: OrderState,
    /// Flows that the next order removes: earlier orders gave the agent their rates.
    flows_to_remove: Vec<FlowKey>,
    /// Reported flows that are not scheduled, for the next order; at most [`weir_proto::MAX_REPORTED_FLOWS`].
    unscheduled: BTreeMap<FlowKey, UnscheduledReason>,
    /// Number of flows that it sends, active or completed.
    flow_count: usize,
    /// Number of flows that it receives, active or completed.
    received_flow_count: usize,
    /// Queues of its links by link number, each with whether an order with the queues was sent.
    queues: BTreeMap<u32, (Queues, bool)>,
    /// The traffic of applications at it, and whether an order with the traffic was sent.
    traffic: (Vec<ApplicationTraffic>, bool),
    /// The limit of its sending rate.
    bandwidth: bandwidth::HostBandwidth,
    /// Observed connections of the host.
    observed: observed_connections::ObservedOfHost,
    /// Limits of these connections.
    limits: allocator::Limits,
    /// Totals of refused orders in its last report.
    refused_orders: RefusedOrders,
    /// Totals of restored kernel objects in its last report.
    restored_objects: RestoredObjects,
    /// The conflicts in its last report.
    conflicts: Vec<Conflict>,
    /// The pause that applies to it.
    pause: Option<HostPause>,
    /// The links that its agent has reported as down, rising.
    links_down: Vec<u32>,
}

impl Host {
    /// A host or switch whose next order is a full order.
    fn new() -> Host {
        let mut host = Host { traffic: (Vec::new(), true), ..Host::default() };
        host.orders.needs_full_order = true;
        host
    }

    /// Seconds since the last report; infinite before the first.
    fn time_since_report(&self, now: f64) -> f64 {
        self.last_report_at.map_or(f64::INFINITY, |reported_at| now - reported_at)
    }
}

#[derive(Debug, Clone)]
struct Flow {
    transfer: Transfer,
    /// Index of the flow in the engine's coflow.
    engine_index: u32,
    /// Bytes sent by the last report, and the time of the report; `None` before the first report.
    last_report: Option<(f64, f64)>,
    /// The bytes of the last report, also if they were rejected.
    reported_bytes: u64,
    /// Bytes sent at the time `estimated_at`: the reported bytes, plus the estimated progress since the report.
    sent_bytes: f64,
    estimated_at: f64,
    is_completed: bool,
    /// Time until which the flow counts as having data without a report; `None` after a report.
    grace_end: Option<f64>,
    /// The rate in the last order; `None` before the first order with this flow.
    ordered_rate: Option<OrderedRate>,
    /// Whether an order can pause it, by the last report.
    is_gated: bool,
    /// Whether it uses UDP, by the last report.
    is_udp: bool,
    /// Its state by the last report.
    state: SenderState,
    /// What its program writes by the last report, in bytes per second, if that is less than the rate of the flow.
    demand: Option<u64>,
    /// The bytes that its agent counts and that do not count here: those before the flow was registered again.
    sent_before_restart: u64,
    /// Estimated progress since the last report of more bytes, or of new data: the seconds in which an order allowed it, and the bytes.
    unconfirmed_seconds: f64,
    unconfirmed_bytes: f64,
    /// Until when the flow counts as one without data, since the reports show no progress.
    stuck_until: f64,
    /// Whether its receiver has opened a connection for it; always true without matching.
    is_open: bool,
    /// The pause that applies to it.
    pause: Option<PauseMode>,
    /// Whether its host, the receiver, or all paths between them have no link that is up.
    is_cut_off: bool,
    /// The rate that the schedule would order, in shadow mode.
    shadow_rate: Option<OrderedRate>,
}

/// A flow whose agent reports no more bytes for this time, in seconds, counts as a flow without data. Agents report open flows once a
/// second, and report an idle or stuck flow themselves.
const MAX_UNCONFIRMED_SECONDS: f64 = 3.0;

/// How long it counts as such a flow, in seconds. Without an end, a flow that was paused meanwhile could never report progress.
const STUCK_SECONDS: f64 = 30.0;

/// Estimated progress in that time below which a flow is not stuck, in bytes: agents do not report smaller deviations.
const MIN_UNCONFIRMED_BYTES: f64 = 131_072.0;

impl Flow {
    /// A flow without progress, which counts as having data until `grace_end`.
    fn new(transfer: Transfer, grace_end: f64) -> Flow {
        Flow {
            transfer,
            engine_index: 0,
            last_report: None,
            reported_bytes: 0,
            sent_bytes: 0.0,
            estimated_at: 0.0,
            is_completed: false,
            grace_end: Some(grace_end),
            ordered_rate: None,
            is_gated: false,
            is_udp: false,
            state: SenderState::Ready,
            demand: None,
            sent_before_restart: 0,
            unconfirmed_seconds: 0.0,
            unconfirmed_bytes: 0.0,
            stuck_until: 0.0,
            is_open: true,
            pause: None,
            is_cut_off: false,
            shadow_rate: None,
        }
    }

    /// The last ordered rate; `None` if the host receives no orders.
    fn applied_rate(&self, hosts: &[Host]) -> Option<OrderedRate> {
        self.ordered_rate.filter(|_| hosts[self.transfer.src as usize].receives_orders)
    }

    /// Whether the flow has data to send: a program has handed over a connection with data, or may still do so in the grace period.
    fn has_data(&self, now: f64) -> bool {
        match self.grace_end {
            Some(end) => now <= end,
            None => self.state == SenderState::Ready && now >= self.stuck_until,
        }
    }

    /// Whether the flow has data, and schedules count it as a flow that may send it.
    fn sends(&self, now: f64) -> bool {
        self.is_open && !self.is_left_out() && self.has_data(now)
    }

    /// Whether the flow has a connection, or a program may still hand one over in the grace period.
    fn may_send(&self, now: f64) -> bool {
        match self.grace_end {
            Some(end) => now <= end,
            None => matches!(self.state, SenderState::Ready | SenderState::Idle),
        }
    }

    /// The bytes that the flow sends at its ordered rate from the last call until `now`, which the reports have not confirmed.
    fn advance_estimate(&mut self, now: f64) -> f64 {
        let seconds = now - std::mem::replace(&mut self.estimated_at, now);
        let may_progress = self.has_data(now) && !self.is_cut_off;
        let (bytes, unconfirmed_bytes) = match self.ordered_rate.filter(|_| may_progress) {
            Some(OrderedRate::Rate(rate) | OrderedRate::Reserve(rate)) => {
                let bytes = estimate_sent_bytes(rate, seconds);
                (bytes, bytes)
            }
            // Agents report all bytes of TCP flows without a rate.
            Some(OrderedRate::Unlimited) if !self.is_udp => (0.0, MIN_UNCONFIRMED_BYTES * seconds),
            _ => return 0.0,
        };
        self.unconfirmed_bytes += unconfirmed_bytes;
        self.unconfirmed_seconds += seconds;
        if self.unconfirmed_bytes > MIN_UNCONFIRMED_BYTES
            && self.unconfirmed_seconds > MAX_UNCONFIRMED_SECONDS
        {
            self.confirm_progress();
            self.stuck_until = now + STUCK_SECONDS;
        }
        bytes
    }

    /// Records that the flow has sent bytes, or has new data.
    fn confirm_progress(&mut self) {
        (self.unconfirmed_seconds, self.unconfirmed_bytes, self.stuck_until) = (0.0, 0.0, 0.0);
    }
}

#[derive(Debug)]
struct Coflow {
    registration: Registration,
    /// The flows of the first registration, if an update replaced them.
    first_flows: Option<Vec<Transfer>>,
    /// Slot in the engine; `None` once the coflow has completed.
    slot: Option<Slot>,
    /// Time of the registration. Infinitely long ago for a coflow of the store: an earlier coordinator registered it.
    registered_at: f64,
    completed_at: Option<f64>,
    /// Whether it has completed, and orders have removed the rates of its flows.
    are_rates_removed: bool,
    flows: Vec<Flow>,
    /// The indices of the flows, sorted by their senders.
    by_sender: Vec<u32>,
    /// Bytes sent, summed over all flows.
    sent_bytes: f64,
    /// The recorded decision that is in force.
    decision: Option<Decision>,
}

impl Coflow {
    fn phase(&self) -> Phase {
        if self.slot.is_some() { Phase::Active } else { Phase::Completed }
    }

    fn set_flows(&mut self, flows: Vec<Flow>) {
        self.by_sender = (0..flows.len() as u32).collect();
        self.by_sender.sort_by_key(|&flow| flows[flow as usize].transfer.src);
        self.flows = flows;
    }

    /// The indices of the flows that a host sends. O(log flows).
    fn flows_from(&self, host: u32) -> &[u32] {
        let sender = |flow: &u32| self.flows[*flow as usize].transfer.src;
        let start = self.by_sender.partition_point(|flow| sender(flow) < host);
        let end = self.by_sender.partition_point(|flow| sender(flow) <= host);
        &self.by_sender[start..end]
    }

    /// The key of a flow of this coflow.
    fn flow_key(&self, id: &Arc<str>, flow: u32) -> FlowKey {
        FlowKey { coflow: Arc::clone(id), generation: self.registration.generation, flow }
    }

    /// Whether a registration equals that of this coflow, with the current flows or with the first ones. A client that did
    /// not receive the answer to its registration repeats the registration, possibly after an update. A repeated registration
    /// has the generation of the first one.
    fn matches(&self, other: &Registration) -> bool {
        let Registration { generation: _, service, application, weight, deadline, flows } = other;
        let own = &self.registration;
        (&own.service, &own.application, own.weight, own.deadline)
            == (service, application, *weight, *deadline)
            && (own.flows == *flows || self.first_flows.as_ref() == Some(flows))
    }
}

/// Engine and coflows for a new policy.
struct PreparedPolicy {
    engine: Engine,
    /// See [`ControlPlane::needs_sizes`].
    needs_sizes: bool,
    /// Active coflows in the order in which they were registered.
    coflows: Vec<(Arc<str>, CoflowSpec)>,
}

/// An invalid decision of a policy of another crate, which ends its decisions.
#[derive(Debug)]
struct PolicyFailure {
    message: String,
    /// Whether [`ControlPlane::take_policy_error`] has returned the message.
    is_reported: bool,
}

/// The control plane.
pub struct ControlPlane {
    settings: Settings,
    epoch: u64,
    /// See [`ControlPlane::with_first_generation`].
    first_generation: u64,
    /// The names of hosts and switches.
    agent_names: AgentNames,
    names: ServiceNames,
    engine: Engine,
    /// The time of the next schedule if no event occurs before.
    next_wakeup: f64,
    /// The first invalid decision of the policy.
    policy_error: Option<PolicyFailure>,
    /// Whether the policy reads sizes of flows.
    needs_sizes: bool,
    /// Links by host number, and between switches. Switches have the numbers after the hosts and no entry.
    links: NetworkLinks,
    /// The rates of hosts' links in the configuration and in the options of agents.
    link_rates: LinkRates,
    hosts: Vec<Host>,
    coflows: BTreeMap<Arc<str>, Coflow>,
    /// Ids of active coflows by their slot in the engine.
    id_by_slot: Vec<Option<Arc<str>>>,
    /// Coflows and flows of each service.
    usage: UsageByService,
    rejected_entries: RejectedEntries,
    /// Sum of the orders refused by all agents.
    refused_orders: RefusedOrders,
    /// Sum of the kernel objects restored by all agents.
    restored_objects: RestoredObjects,
    /// Number of schedules since the start.
    schedule_count: u64,
    /// See [`ControlPlane::has_changed_flows`].
    has_changed_flows: bool,
    /// Coflows that completed since the last call of [`ControlPlane::take_completed`]; at most [`Settings::max_coflows`].
    completed: Vec<Arc<str>>,
    /// The hosts of addresses and networks.
    addresses: Arc<NetworkTable<u32>>,
    /// UDP measurements for senders; `None` if UDP is not limited.
    udp_measurements: Option<udp_measurements::UdpMeasurements>,
    /// Number of limits of UDP in orders since the start.
    ordered_udp_limits: u64,
    /// Matches senders and receivers; `None` if the engine decides.
    matching: Option<matching::Matching>,
    /// Decides the number of connections of hosts under `django`, if it follows the loss.
    connection_predictor: Option<ConnectionPredictor>,
    /// Allocator for observed connections; `None` without central allocation.
    allocator: Option<allocator::Allocator>,
    /// Decisions of the last minutes that are no longer in force.
    history: history::History,
    ended_coflows: recorded_workload::EndedCoflows,
    /// What operators have paused.
    pauses: Pauses,
    /// The hosts whose link is down.
    cut_off_hosts: BTreeSet<u32>,
    /// Whether reports of links have changed since the last call of [`ControlPlane::take_link_reports`].
    has_new_link_reports: bool,
    now: f64,
}

impl ControlPlane {
    /// A control plane for hosts with these links. Agents refuse orders with a lower epoch than that of their last order.
    ///
    /// # Errors
    /// The policy tree has no leaf for one of the names.
    pub fn new(
        links: NetworkLinks,
        policy: impl Into<LivePolicy>,
        names: ServiceNames,
        settings: Settings,
        epoch: u64,
    ) -> Result<ControlPlane, TreeError> {
        let LivePolicy { engine: policy, matching } = policy.into();
        let needs_sizes = matching.is_some() || policy.needs_sizes();
        let engine = build_engine(&links, policy, &names, &settings)?;
        let hosts = std::iter::repeat_with(Host::new).take(links.hosts.len()).collect();
        let mut control_plane = ControlPlane {
            settings,
            epoch,
            first_generation: 1,
            agent_names: AgentNames::numbered(links.hosts.len()),
            names,
            engine,
            next_wakeup: 0.0,
            policy_error: None,
            needs_sizes,
            link_rates: LinkRates::new(links.hosts.clone()),
            links,
            hosts,
            coflows: BTreeMap::new(),
            id_by_slot: Vec::new(),
            usage: UsageByService::default(),
            rejected_entries: RejectedEntries::default(),
            refused_orders: RefusedOrders::default(),
            restored_objects: RestoredObjects::default(),
            schedule_count: 0,
            has_changed_flows: false,
            completed: Vec::new(),
            addresses: Arc::default(),
            udp_measurements: None,
            ordered_udp_limits: 0,
            matching: None,
            connection_predictor: None,
            allocator: None,
            history: history::History::default(),
            ended_coflows: recorded_workload::EndedCoflows::default(),
            pauses: Pauses::default(),
            cut_off_hosts: BTreeSet::new(),
            has_new_link_reports: false,
            now: 0.0,
        };
        control_plane.start_matching(matching);
        Ok(control_plane)
    }

    /// Adds switches, numbered after the hosts, with the host at each port; none where the cable leads to another switch. Agents of
    /// switches report no flows. Their orders contain queues only.
    pub fn with_switches(mut self, hosts_at_ports: Vec<Vec<Option<u32>>>) -> ControlPlane {
        self.hosts.extend(std::iter::repeat_with(Host::new).take(hosts_at_ports.len()));
        self.link_rates.set_switches(hosts_at_ports);
        self.agent_names = AgentNames::numbered(self.hosts.len());
        self
    }

    /// Sets the names of all hosts and switches. Default: [`AgentNames::numbered`].
    pub fn with_agent_names(mut self, agent_names: AgentNames) -> ControlPlane {
        debug_assert_eq!(agent_names.count(), self.hosts.len(), "each host, slot and switch has an entry");
        self.agent_names = agent_names;
        self
    }

    /// The names of hosts and switches.
    pub fn agent_names(&self) -> &AgentNames {
        &self.agent_names
    }

    /// Sets the lowest generation of the store. A flow of a lower generation that no order names was registered in an earlier store,
    /// which was lost: agents count it for the coflow that its framework registers again.
    pub fn with_first_generation(mut self, first_generation: u64) -> ControlPlane {
        self.first_generation = first_generation;
        self
    }

    /// See [`ControlPlane::with_first_generation`].
    pub fn first_generation(&self) -> u64 {
        self.first_generation
    }

    /// The parameters of this control plane.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    // Requests of frameworks.

    /// Registers a coflow. Returns `false` if the coflow is already registered with the same body, even if it was updated since: then
    /// its lost flows start again, and nothing else changes.
    ///
    /// # Errors
    /// [`Refusal`]: the id is invalid or used by a coflow with another body, the weight is outside of
    /// 1e-9 to 1e9, a flow is invalid, a name is unknown, or a limit of [`Settings`] is exceeded.
    pub fn register(&mut self, id: &str, registration: Registration, now: f64) -> Result<bool, Refusal> {
        if !is_id(id) {
            return Err(Refusal::InvalidId(id.chars().take(128).collect()));
        }
        if let Some(existing) = self.coflows.get(id) {
            if !existing.matches(&registration) {
                return Err(Refusal::IdTaken(id.to_owned()));
            }
            self.advance_to(now);
            self.restart_lost_flows(id);
            return Ok(false);
        }
        if !WEIGHT_RANGE.contains(&registration.weight) {
            return Err(Refusal::InvalidWeight(registration.weight));
        }
        self.check_flows(&registration.flows, &[])?;
        self.settings.check_coflows(self.usage.total())?;
        let spec = self.build_spec(&registration)?;
        self.advance_to(now);
        let grace_end = self.new_grace_end();
        let new_flow = |&flow| self.new_flow(flow, spec.service, grace_end);
        let flows = registration.flows.iter().map(new_flow).collect();
        let id: Arc<str> = id.into();
        let mut coflow = Coflow {
            registration,
            first_flows: None,
            slot: None,
            registered_at: self.now,
            completed_at: None,
            are_rates_removed: false,
            flows: Vec::new(),
            by_sender: Vec::new(),
            sent_bytes: 0.0,
            decision: None,
        };
        coflow.set_flows(flows);
        self.count_coflow(&coflow, true);
        self.coflows.insert(Arc::clone(&id), coflow);
        self.add_to_engine(&id, &spec);
        Ok(true)
    }

    /// Registers a coflow from the store. `first_flows` are those of its first registration, if an update replaced them.
    ///
    /// # Errors
    /// Those of [`ControlPlane::register`].
    pub fn restore(
        &mut self,
        id: &str,
        registration: Registration,
        first_flows: Option<Vec<Transfer>>,
        now: f64,
    ) -> Result<(), Refusal> {
        self.register(id, registration, now)?;
        let coflow = self.coflows.get_mut(id).expect("`register` accepted the coflow, so it is in the map");
        (coflow.first_flows, coflow.registered_at) = (first_flows, f64::NEG_INFINITY);
        Ok(())
    }

    /// Replaces the flows of a coflow, for migrated and restarted tasks (Saath, section 5).
    /// Flows with the same index and hosts continue.
    ///
    /// # Errors
    /// [`Refusal`]: the coflow is unknown, a flow is invalid, or a limit of [`Settings`] is exceeded. The coflow is
    /// unchanged.
    pub fn update(&mut self, id: &str, flows: &[Transfer], now: f64) -> Result<(), Refusal> {
        let (registration, spec) = self.build_update(id, flows)?;
        self.advance_to(now);
        let (id, mut coflow) =
            self.coflows.remove_entry(id).ok_or_else(|| Refusal::UnknownCoflow(id.to_owned()))?;
        self.count_coflow(&coflow, false);
        let mut old_flows = std::mem::take(&mut coflow.flows);
        for (index, old) in old_flows.iter().enumerate() {
            let hosts_of = |t: &Transfer| (t.src, t.dst);
            if flows.get(index).is_none_or(|new| hosts_of(new) != hosts_of(&old.transfer))
                && old.ordered_rate.is_some()
            {
                let key = coflow.flow_key(&id, index as u32);
                self.hosts[old.transfer.src as usize].flows_to_remove.push(key);
            }
        }
        let grace_end = self.new_grace_end();
        let new_flow = |(index, &transfer): (usize, &Transfer)| match old_flows.get_mut(index) {
            Some(old) if (old.transfer.src, old.transfer.dst) == (transfer.src, transfer.dst) => {
                Flow { transfer, ..old.clone() }
            }
            _ => self.new_flow(transfer, spec.service, grace_end),
        };
        coflow.set_flows(flows.iter().enumerate().map(new_flow).collect());
        self.count_coflow(&coflow, true);
        coflow.sent_bytes = coflow.flows.iter().map(|flow| flow.sent_bytes).sum();
        let old_registration = std::mem::replace(&mut coflow.registration, registration);
        coflow.first_flows.get_or_insert(old_registration.flows);
        let (slot, sent) = (coflow.slot, coflow.sent_bytes);
        coflow.completed_at = None;
        self.coflows.insert(Arc::clone(&id), coflow);
        match slot {
            Some(slot) => {
                self.engine.correct_overdue_flows_of(slot, self.overdue_bytes(), self.now);
                self.engine.replace_flows(slot, &spec, self.now);
                self.engine.record_coflow_report(slot, sent, 0.0, self.now);
                self.index_flows(&id, slot);
                self.remove_if_completed(&id);
            }
            None => self.add_to_engine(&id, &spec),
        }
        Ok(())
    }

    /// Checks an update without applying it.
    ///
    /// # Errors
    /// Those of [`ControlPlane::update`].
    pub fn check_update(&self, id: &str, flows: &[Transfer]) -> Result<(), Refusal> {
        self.build_update(id, flows).map(drop)
    }

    /// Registration and engine spec of a coflow with new flows.
    fn build_update(&self, id: &str, flows: &[Transfer]) -> Result<(Registration, CoflowSpec), Refusal> {
        let coflow = self.coflows.get(id).ok_or_else(|| Refusal::UnknownCoflow(id.to_owned()))?;
        self.check_flows(flows, &coflow.flows)?;
        let registration = Registration { flows: flows.to_vec(), ..coflow.registration.clone() };
        let spec = self.build_spec(&registration)?;
        Ok((registration, spec))
    }

    /// Removes a coflow, active or completed. Returns the orders that remove its flows from agents: hosts, and the sequence number of the
    /// next order to each.
    ///
    /// # Errors
    /// [`Refusal::UnknownCoflow`]: no coflow has this id.
    pub fn deregister(&mut self, id: &str, now: f64) -> Result<Vec<(u32, u64)>, Refusal> {
        let (id, coflow) = self.remove(id, now)?;
        self.record_ended(&id, &coflow);
        let order = |host: u32| (host, self.hosts[host as usize].orders.ordered_seq + 1);
        Ok(self.ordered_senders(&coflow).into_iter().map(order).collect())
    }

    /// Removes a coflow whose registration is withdrawn: it is no part of the workload.
    ///
    /// # Errors
    /// [`Refusal::UnknownCoflow`]: no coflow has this id.
    pub fn withdraw(&mut self, id: &str, now: f64) -> Result<(), Refusal> {
        self.remove(id, now).map(drop)
    }

    /// The hosts that have received rates of flows of a coflow.
    fn ordered_senders(&self, coflow: &Coflow) -> BTreeSet<u32> {
        let senders = coflow.flows.iter().filter(|flow| flow.applied_rate(&self.hosts).is_some());
        senders.map(|flow| flow.transfer.src).collect()
    }

    fn remove(&mut self, id: &str, now: f64) -> Result<(Arc<str>, Coflow), Refusal> {
        self.advance_to(now);
        let (id, mut coflow) =
            self.coflows.remove_entry(id).ok_or_else(|| Refusal::UnknownCoflow(id.to_owned()))?;
        self.count_coflow(&coflow, false);
        self.has_changed_flows = true;
        if let Some(slot) = coflow.slot {
            self.engine.withdraw_coflow(slot, self.now);
            self.id_by_slot[slot as usize] = None;
        }
        self.queue_removals(&id, &coflow);
        self.history.end(coflow.decision.take(), self.now);
        Ok((id, coflow))
    }

    /// Whether hosts have reported these or later orders as applied. Hosts that receive no orders do not count.
    pub fn have_applied(&self, orders: &[(u32, u64)]) -> bool {
        orders.iter().all(|&(host, seq)| {
            let host = &self.hosts[host as usize];
            !host.receives_orders || host.orders.applied_seq >= seq
        })
    }

    /// Replaces the policy. Active coflows continue with the bytes that they have sent.
    ///
    /// # Errors
    /// [`Refusal`]: the policy needs sizes and one flow has an unknown size, or a policy tree has no leaf for a service or
    /// an application. The policy is unchanged.
    pub fn set_policy(&mut self, policy: impl Into<LivePolicy>, now: f64) -> Result<(), Refusal> {
        self.advance_to(now);
        let policy = policy.into();
        let matching = policy.matching;
        let prepared = self.prepare_policy(policy)?;
        self.start_matching(matching);
        self.replace_engine(prepared);
        Ok(())
    }

    /// Continues with another engine.
    fn replace_engine(&mut self, PreparedPolicy { engine, needs_sizes, coflows }: PreparedPolicy) {
        (self.engine, self.needs_sizes, self.next_wakeup) = (engine, needs_sizes, self.now);
        self.policy_error = None;
        self.id_by_slot.clear();
        for (id, spec) in &coflows {
            self.add_to_engine(id, spec);
        }
    }

    /// Checks a change of the policy without applying it.
    ///
    /// # Errors
    /// Those of [`ControlPlane::set_policy`].
    pub fn check_policy(&self, policy: impl Into<LivePolicy>) -> Result<(), Refusal> {
        self.prepare_policy(policy.into()).map(drop)
    }

    /// Engine and active coflows for a new policy.
    fn prepare_policy(&self, policy: LivePolicy) -> Result<PreparedPolicy, Refusal> {
        let LivePolicy { engine: policy, matching } = policy;
        let needs_sizes = matching.is_some() || policy.needs_sizes();
        for coflow in self.coflows.values().filter(|coflow| coflow.slot.is_some()) {
            if needs_sizes && let Some(flow) = coflow.flows.iter().position(|f| f.transfer.bytes.is_none()) {
                return Err(Refusal::UnknownSize(flow));
            }
        }
        let engine = build_engine(&self.links, policy, &self.names, &self.settings)?;
        let order: Vec<Slot> = self.engine.network().active_coflows().to_vec();
        let ids: Vec<Arc<str>> =
            order.iter().filter_map(|&slot| self.id_by_slot[slot as usize].clone()).collect();
        let id_and_spec = |id: Arc<str>| {
            let spec = self.build_spec(&self.coflows[&id].registration)?;
            Ok((id, spec))
        };
        let coflows = ids.into_iter().map(id_and_spec).collect::<Result<_, Refusal>>()?;
        Ok(PreparedPolicy { engine, needs_sizes, coflows })
    }

    /// Sets the queues of a link: link 0 of a host, or any link of a switch. The next order contains the queues if they
    /// changed; full orders contain all queues. Ignores a host that does not exist.
    pub fn set_queues(&mut self, host: u32, link: u32, queues: Queues) {
        let Some(host_entry) = self.hosts.get_mut(host as usize) else { return };
        if host_entry.queues.get(&link).is_none_or(|(last, _)| *last != queues) {
            host_entry.queues.insert(link, (queues, false));
        }
    }

    /// Sets the classes of applications at the link of a host whose queues were set before, and keeps the queues. No effect on other hosts.
    pub fn set_classes(&mut self, host: u32, class_of_application: &[(Arc<str>, u32)]) {
        let Some(host_entry) = self.hosts.get_mut(host as usize) else { return };
        if let Some((queues, is_ordered)) = host_entry.queues.get_mut(&0)
            && queues.class_of_application != class_of_application
        {
            queues.class_of_application = class_of_application.to_vec();
            *is_ordered = false;
        }
    }

    /// Sets the traffic of applications at a host, sorted by application. The next order contains the traffic if it changed; full orders
    /// contain all traffic. Ignores a host that does not exist.
    pub fn set_traffic(&mut self, host: u32, traffic: Vec<ApplicationTraffic>) {
        let Some(host_entry) = self.hosts.get_mut(host as usize) else { return };
        if host_entry.traffic.0 != traffic {
            host_entry.traffic = (traffic, false);
        }
    }

    /// Checks the flows of a request that replaces `old_flows`.
    fn check_flows(&self, flows: &[Transfer], old_flows: &[Flow]) -> Result<(), Refusal> {
        if flows.is_empty() {
            return Err(Refusal::NoFlows);
        }
        self.settings.check_flows(self.usage.total(), old_flows.len(), flows.len())?;
        let last_host = self.links.hosts.len() as u32 - 1;
        for (flow, transfer) in flows.iter().enumerate() {
            if let Some(&host) = [transfer.src, transfer.dst].iter().find(|&&host| host > last_host) {
                return Err(Refusal::UnknownHost { flow, host, last_host });
            }
            if self.needs_sizes && transfer.bytes.is_none() {
                return Err(Refusal::UnknownSize(flow));
            }
        }
        let mut counts_by_sender: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        flows.iter().for_each(|flow| counts_by_sender.entry(flow.src).or_default().0 += 1);
        old_flows.iter().for_each(|flow| counts_by_sender.entry(flow.transfer.src).or_default().1 += 1);
        for (src, (added, removed)) in counts_by_sender {
            if added > removed
                && self.hosts[src as usize].flow_count - removed + added > self.settings.max_flows_per_host
            {
                return Err(Refusal::LimitReached {
                    objects: "flows of a host",
                    max: self.settings.max_flows_per_host,
                });
            }
        }
        Ok(())
    }

    /// Adds a coflow and its flows to the counts, or removes them if `is_added` is false.
    fn count_coflow(&mut self, coflow: &Coflow, is_added: bool) {
        let (service, flows) = (&coflow.registration.service, &coflow.flows);
        if is_added {
            self.usage.add(service, flows.len());
        } else {
            self.usage.remove(service, flows.len());
        }
        for flow in flows {
            let change = |count: &mut usize| *count = if is_added { *count + 1 } else { *count - 1 };
            change(&mut self.hosts[flow.transfer.src as usize].flow_count);
            change(&mut self.hosts[flow.transfer.dst as usize].received_flow_count);
        }
    }

    /// The engine's spec of a registration; unknown sizes become [`UNKNOWN_SIZE_BYTES`].
    fn build_spec(&self, registration: &Registration) -> Result<CoflowSpec, Refusal> {
        let Registration { service, application, weight, deadline, flows, .. } = registration;
        let (service, application) = UnknownName::check(&self.names, service, application)?;
        let unknown_size = Bytes::new(UNKNOWN_SIZE_BYTES).expect("1e18 is a valid size");
        let to_flow_spec = |t: &Transfer| FlowSpec::new(t.src, t.dst, t.bytes.unwrap_or(unknown_size));
        let spec = CoflowSpec::new(0, Time::ZERO, flows.iter().map(to_flow_spec).collect());
        Ok(CoflowSpec { weight: *weight, deadline: *deadline, service, application, ..spec })
    }

    /// Releases a coflow of `coflows` in the engine, with the progress of its flows.
    fn add_to_engine(&mut self, id: &Arc<str>, spec: &CoflowSpec) {
        let slot = self.engine.release_coflow(spec, 0, self.now, &mut Vec::new());
        self.has_changed_flows = true;
        if self.id_by_slot.len() <= slot as usize {
            self.id_by_slot.resize(slot as usize + 1, None);
        }
        self.id_by_slot[slot as usize] = Some(Arc::clone(id));
        self.index_flows(id, slot);
        let coflow = self.coflows.get_mut(id).expect("the caller passes the id of a coflow in the map");
        (coflow.slot, coflow.are_rates_removed) = (Some(slot), false);
        self.engine.record_coflow_report(slot, coflow.sent_bytes, 0.0, self.now);
        for flow in &mut coflow.flows {
            if flow.is_completed {
                self.engine.close_flow(slot, flow.engine_index, flow.sent_bytes, self.now);
            } else if flow.sent_bytes > 0.0 {
                self.engine.set_flow_sent_bytes(slot, flow.engine_index, flow.sent_bytes, self.now);
            }
            flow.is_completed |=
                self.engine.network().coflow(slot).flow_state(flow.engine_index) == FlowState::Completed;
            if !flow.sends(self.now) || !self.hosts[flow.transfer.src as usize].present {
                self.engine.set_flow_waiting(slot, flow.engine_index, self.now);
            }
        }
        self.remove_if_completed(id);
    }

    /// Stores the engine's index of each flow of a coflow, and limits its flows in the engine.
    fn index_flows(&mut self, id: &Arc<str>, slot: Slot) {
        let coflow = self.engine.network().coflow(slot);
        let flows =
            &mut self.coflows.get_mut(id).expect("the caller passes the id of a coflow in the map").flows;
        for engine_index in 0..coflow.width() as u32 {
            flows[coflow.spec_index(engine_index) as usize].engine_index = engine_index;
        }
        for flow in flows.iter().filter(|flow| !flow.is_completed) {
            let max_rate = flow.max_rate(&self.links, &self.settings);
            self.engine.set_flow_max_rate(slot, flow.engine_index, max_rate);
        }
    }

    /// Removes a coflow from the engine if all of its flows have completed.
    fn remove_if_completed(&mut self, id: &Arc<str>) {
        let coflow = self.coflows.get_mut(id).expect("the caller passes the id of a coflow in the map");
        let Some(slot) = coflow.slot else { return };
        if coflow.flows.iter().all(|flow| flow.is_completed) {
            self.engine.remove_coflow(slot, self.now);
            self.id_by_slot[slot as usize] = None;
            (coflow.slot, coflow.completed_at) = (None, Some(self.now));
            if self.completed.len() < self.settings.max_coflows {
                self.completed.push(Arc::clone(id));
            }
        }
    }

    /// Adds the flows that agents have a rate of to the next orders, as removed.
    fn queue_removals(&mut self, id: &Arc<str>, coflow: &Coflow) {
        for (index, flow) in (0u32..).zip(&coflow.flows).filter(|(_, flow)| flow.ordered_rate.is_some()) {
            let key = coflow.flow_key(id, index);
            self.hosts[flow.transfer.src as usize].flows_to_remove.push(key);
        }
    }

    /// A flow of a service without progress, which counts as having data until `grace_end`.
    fn new_flow(&self, transfer: Transfer, service: u32, grace_end: f64) -> Flow {
        let pause = self.pauses.traffic_mode(transfer.src, Some(service));
        let is_cut_off = self.is_cut_off(transfer.src, Some(transfer.dst));
        Flow { is_open: self.matching.is_none(), pause, is_cut_off, ..Flow::new(transfer, grace_end) }
    }

    /// End of the grace period of a new flow. Programs hand over connections shortly after the registration.
    fn new_grace_end(&self) -> f64 {
        self.now + self.settings.lease
    }

    /// Advances the time. Ignores a `now` before the current time, so time never decreases.
    fn advance_to(&mut self, now: f64) {
        self.now = self.now.max(now);
    }

    /// Bytes that remain of a flow that should have completed, but whose completion is not reported: what the fastest link
    /// sends in an interval.
    fn overdue_bytes(&self) -> f64 {
        self.engine.network().fabric().nominal_rate() * self.settings.interval
    }
}

/// Payload of a full packet, as a fraction of its bytes on the link.
const PAYLOAD_FRACTION: f64 = PAYLOAD_BYTES as f64 / FRAME_BYTES as f64;

/// An engine whose links have the payload capacity of `links` without the reserve.
fn build_engine(
    links: &NetworkLinks,
    policy: AnyPolicy,
    names: &ServiceNames,
    settings: &Settings,
) -> Result<Engine, TreeError> {
    let link_rates = links.hosts.iter().flat_map(|link| [link.send.get(), link.recv.get()]);
    let usable_fraction = settings.budget.coflow_payload_fraction(settings.reserve);
    let nominal_rate = link_rates.fold(links.max_slot_rate.max(1.0), f64::max) * usable_fraction;
    let fabric = Fabric::big_switch(
        links.hosts.len() as u32,
        Rate::new(nominal_rate)
            .expect("the highest of some rates times a fraction is finite and not negative"),
    );
    let trunks = links.trunks.clone().map(|trunks| trunks.scaled(usable_fraction));
    let mut engine = Engine::new(Links { trunks, ..Links::one_switch(fabric) }, policy, names)?;
    engine.set_interval(settings.interval);
    for (port, link) in links.hosts.iter().enumerate() {
        for (side, rate) in [(PortSide::Send, link.send), (PortSide::Receive, link.recv)] {
            let factor = rate.get() * usable_fraction / nominal_rate;
            if factor != 1.0 {
                engine.scale_port(port as u32, side, factor, 0.0);
            }
        }
    }
    Ok(engine)
}
