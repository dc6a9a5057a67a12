//! Runs the agent: applies the coordinator's rates to handed-over sockets, its queues to interfaces, and its classes to
//! applications.
//!
//! - [`endpoint`] builds the endpoint of the coordinator; `coordinator_stream` keeps a stream to it open.
//! - `report_timer` computes when in an interval the agent reports.
//! - `local_socket` receives the sockets of flows from programs.
//! - `flows` paces these sockets, and measures their progress.
//! - `link_counters` reads what interfaces have sent and received, for [`crate::matching`].
//! - `program_demand` finds flows whose programs write less than the rates of the flows.
//! - `end_events` notices the ends of connections between two measurements.
//! - `gates` pushes to programs which of their flows may send.
//! - `socket` sets and reads socket options.
//! - [`load_generator`] simulates many agents to measure coordinators.
//! - `observed_connections` counts the connections of applications, and sets the classes of their packets.
//! - `ordered_traffic` applies the traffic of applications that orders name, and reports conflicts.
//! - `demands` predicts the demands of these connections, and divides limits between them.
//! - `peer_addresses` finds the hosts of these connections behind addresses of services.
//! - `lookup_retries` repeats lookups of these hosts that failed.
//! - `peer_demand` does the former for all connections of an application with another host together, also for short ones.
//! - `throttle` measures UDP that arrives, and limits UDP that is sent by the rate at which it arrives at other hosts.
//! - [`watchdog`] is a second process that removes pacing rates if this process is killed or hangs.
//! - `metrics` shows queues and orders to Prometheus.
//! - `interfaces` applies ordered queues to interfaces, and restores queues that another process removed.
//!
//! The end of a flow is reported at once: at `done`, when its connection ends, or at the time at which the rest of its data should have
//! been sent.
//!
//! Once an interval, one thread reads the bytes sent, sets the pacing rates that differ, and reports the flows that deviate from
//! the coordinator's estimate. While no coordinator is connected, it continues to measure; when the lease ends, it removes all
//! rates. Other threads change interfaces, since a change takes longer than an interval.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};
use weir_core::units::Rate;
use weir_metrics::MetricsTls;
use weir_proto::{BandwidthLimit, FlowKey, MAX_CONFLICTS, OrderedRate, Queues, Report, UdpControl};

use crate::lease::{LeaseState, RefusalReason};
use crate::matching::Matching;
use crate::queues::{Interface, InterfaceLock, LimitedFlow};
use crate::report_delta::{ReportHistory, max_report_interval};
use crate::traffic::{
    BYTE_CHECK_INTERVAL, ByteCheck, SocketLeases, SocketRates, Traffic, monotonic_now, read_sent_bytes,
};

mod coordinator_stream;
mod demands;
mod end_events;
pub mod endpoint;
mod flows;
mod gates;
mod interface_addresses;
mod interfaces;
mod link_counters;
pub mod load_generator;
mod local_socket;
mod lookup_retries;
mod metrics;
mod observed_connections;
mod ordered_traffic;
mod peer_addresses;
mod peer_demand;
mod program_demand;
mod report_timer;
mod socket;
mod throttle;
mod tunnel_ports;
pub mod watchdog;

use coordinator_stream::{AgentIdentity, StreamEvent};
use endpoint::CoordinatorEndpoint;
use flows::{Flows, HandedOver};
use interfaces::Machine;
use metrics::AgentMetrics;
use observed_connections::Applications;
use ordered_traffic::OrderedTraffic;
use report_timer::ReportTimer;
use throttle::UdpOrder;
use watchdog::Watchdog;

pub use socket::raise_file_limit;
pub use weir_proto::{MAX_LABELS, Network, is_label_part};

/// How often the agent measures and sets rates before a coordinator has sent its interval.
const DEFAULT_INTERVAL: Duration = Duration::from_millis(8);

/// How often the agent reports open flows again, and ended flows that the coordinator has not confirmed.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);

/// How long queues of an earlier agent stay after the first order if no order names queues: the coordinator orders queues of applications
/// after it has received their connections from this agent.
const INHERITED_QUEUES_TIME: Duration = Duration::from_secs(2);

/// The configuration of an agent.
#[derive(Clone)]
pub struct Settings {
    /// The coordinator's address, and the certificate for it.
    pub coordinator: CoordinatorEndpoint,
    /// The name of this host or switch at the coordinator.
    pub name: String,
    /// The link of a host, or the links of a switch in the coordinator's order.
    pub links: Vec<Link>,
    /// The networks of a host's pods.
    pub networks: Vec<Network>,
    /// The labels of a host, which tell its position, by name.
    pub labels: BTreeMap<String, String>,
    /// The path of the Unix socket for programs; none to accept no programs.
    pub local_socket: Option<PathBuf>,
    /// How to start a watchdog for the sockets of programs; none for a switch, and with `dry_run`.
    pub watchdog: Option<watchdog::WatchdogCommand>,
    /// Whether BPF programs may pause sockets of programs and end their rates. Without them, waiting flows send at low rates.
    pub has_socket_programs: bool,
    /// Whether to print the `tc` commands instead of running them.
    pub dry_run: bool,
}

/// A link of a host or switch.
#[derive(Debug, Clone)]
pub struct Link {
    /// The rate of the link. Orders with higher rates are refused.
    pub rate: Rate,
    /// The interfaces of this link, which get the ordered queues. Several interfaces share the rate evenly.
    pub interfaces: Vec<Interface>,
}

/// The state of the agent. The loop and the connections of programs share it.
struct AgentState {
    lease: LeaseState,
    /// When the first order was accepted.
    first_order: Option<Instant>,
    /// Why the last order was refused; none if it was accepted.
    last_refusal: Option<RefusalReason>,
    flows: Flows,
    matching: Matching,
    history: ReportHistory,
    /// The applications that the agent observes, if it observes any.
    applications: Option<Applications>,
    /// The start of programs for ordered traffic, and its conflicts.
    ordered_traffic: OrderedTraffic,
    /// Whether this agent cannot measure or limit UDP, and has not logged that yet.
    is_udp_control_unavailable: bool,
    /// Whether weights that are not guaranteed held at the last check.
    had_valid_weights: bool,
    /// Receives the desired state of the links when it changes.
    desired_links: watch::Sender<DesiredLinks>,
    /// The conflicts of interfaces, the number of restored objects, and the present names.
    interfaces: interfaces::InterfaceStatus,
    /// The locks of the queues of interfaces.
    queue_locks: Vec<InterfaceLock>,
    watchdog: Option<Watchdog>,
    /// Signals a change that the agent reports before the next tick.
    report_wake: Arc<Notify>,
    /// Whether a watchdog could not be started. The failure is logged once.
    has_watchdog_failed: bool,
    /// Whether the agent is a host's, and has interfaces.
    is_link_shaped: bool,
    /// The address of the last coordinator.
    coordinator: Option<SocketAddr>,
    /// Whether a stream to a coordinator is open.
    is_connected: bool,
    /// Wakes the main loop after the end of a flow.
    flow_end: Arc<Notify>,
    /// The rates of links in its configuration, in bytes per second; 0 if not configured.
    link_rates: Vec<u64>,
    start_time: Instant,
}

/// The desired state of interfaces.
#[derive(Debug, Clone, Default, PartialEq)]
struct DesiredLinks {
    /// The queues of links.
    queues: BTreeMap<u32, Queues>,
    /// The classes of UDP flows, at a host's link.
    limited_flows: BTreeMap<u16, LimitedFlow>,
    /// The address of the last coordinator.
    coordinator: Option<SocketAddr>,
    /// The rates of links in its configuration, in bytes per second; 0 if not configured.
    link_rates: Vec<u64>,
    /// The limit of what a host sends.
    bandwidth_limit: Option<BandwidthLimit>,
    /// Whether queues of an earlier agent end if no order names queues.
    ends_inherited_queues: bool,
    /// Whether the last order ends all queues.
    without_queues: bool,
}

/// The state of the agent, shared between tasks.
#[derive(Clone)]
struct SharedState(Arc<Mutex<AgentState>>);

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, AgentState> {
        // No task leaves the state half changed, so it stays valid after a panic of another task.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl AgentState {
    /// For an agent before its first order.
    fn new(
        settings: &Settings,
        queue_locks: Vec<InterfaceLock>,
        traffic: Option<Traffic>,
        desired_links: watch::Sender<DesiredLinks>,
    ) -> AgentState {
        // A switch has no programs.
        let shaped_link = settings
            .links
            .first()
            .filter(|link| settings.local_socket.is_some() && !link.interfaces.is_empty());
        let link = settings.links.first().map_or(Rate::ZERO, |link| link.rate);
        AgentState {
            lease: LeaseState::new(settings.links.iter().map(|link| link.rate).collect()),
            first_order: None,
            last_refusal: None,
            flows: Flows::new(start_leases(settings)),
            matching: Matching::new(link),
            history: ReportHistory::default(),
            is_udp_control_unavailable: settings.local_socket.is_some()
                && (traffic.is_none() || shaped_link.is_none()),
            ordered_traffic: OrderedTraffic::new(settings),
            applications: traffic.map(|traffic| Applications::new(traffic, link)),
            had_valid_weights: false,
            desired_links,
            interfaces: interfaces::InterfaceStatus::default(),
            queue_locks,
            has_watchdog_failed: false,
            report_wake: Arc::default(),
            watchdog: settings.watchdog.clone().map(|start| {
                let interfaces = settings.links.iter().flat_map(|link| link.interfaces.clone());
                Watchdog::new(start, &interfaces.collect::<Vec<_>>())
            }),
            is_link_shaped: shaped_link.is_some(),
            coordinator: None,
            is_connected: false,
            flow_end: Arc::default(),
            link_rates: Vec::new(),
            start_time: Instant::now(),
        }
    }

    fn now(&self) -> Duration {
        self.start_time.elapsed()
    }

    /// Sets the ordered rates on all sockets that differ.
    fn set_pacing_rates(&mut self) {
        let now = self.now();
        self.flows.apply_limits(&self.lease, now);
    }

    /// Lets this host decide as a receiver, and divide its uplink as a sender, if it takes part in matching.
    fn update_matching(&mut self) {
        if self.matching.is_active() {
            let counters = link_counters::read(self.interfaces.names.iter().map(|(_, name)| name));
            let fraction = self.lease.bandwidth_limit(self.now()).map_or(1.0, BandwidthLimit::fraction);
            let link = self.lease.max_link_rate();
            self.matching.update(counters, fraction * link, self.now());
        }
        let now = self.now();
        let is_matched = self.matching.is_active() && self.lease.is_lease_valid(now);
        let rates = match is_matched {
            true => self.matching.residual_rates(self.flows.unlimited_flows(&self.lease, now), now),
            false => BTreeMap::new(),
        };
        self.flows.set_residual_rates(&rates);
    }

    /// Sends the desired state of interfaces if it has changed.
    fn publish_desired_links(&self) {
        let limited_flows = if self.is_link_shaped { self.flows.limited_flows() } else { BTreeMap::new() };
        let queues = self.lease.queues(self.now());
        let bandwidth_limit = self.lease.bandwidth_limit(self.now());
        let ends_inherited_queues =
            self.first_order.is_some_and(|first| first.elapsed() >= INHERITED_QUEUES_TIME);
        let without_queues = self.lease.without_queues();
        self.desired_links.send_if_modified(|last| {
            let is_changed = last.queues != *queues
                || last.limited_flows != limited_flows
                || last.coordinator != self.coordinator
                || last.link_rates != self.link_rates
                || last.bandwidth_limit != bandwidth_limit
                || last.ends_inherited_queues != ends_inherited_queues
                || last.without_queues != without_queues;
            if is_changed {
                *last = DesiredLinks {
                    queues: queues.into_owned(),
                    limited_flows,
                    coordinator: self.coordinator,
                    link_rates: self.link_rates.clone(),
                    bandwidth_limit,
                    ends_inherited_queues,
                    without_queues,
                };
            }
            is_changed
        });
    }

    /// The rates of a socket, if its connection has one by a limit.
    fn limited_rates(&self, socket: &OwnedFd) -> Option<SocketRates> {
        self.applications.as_ref()?.traffic.socket_rates(socket)
    }

    fn open_flow(
        &mut self,
        coflow: Arc<str>,
        flow: u32,
        handed_over: HandedOver,
    ) -> Result<(), flows::SocketRefusal> {
        // Without an order for the coflow, the socket waits for its generation.
        let generation = self.lease.newest_generation(&coflow).unwrap_or(0);
        let key = FlowKey { coflow, generation, flow };
        let now = self.now();
        let is_waiting = !self.lease.names_flow(&key);
        self.flows.is_matched = self.matching.is_active();
        self.flows.open(key, handed_over, &self.lease, now, self.is_link_shaped)?;
        self.update_watchdog();
        if is_waiting {
            self.report_wake.notify_one();
        }
        Ok(())
    }

    /// The next message to push to a program; none if it has all.
    fn next_push(&mut self, program_id: u64) -> Option<String> {
        let lease_end = self.lease.lease_end().unwrap_or_default();
        let remaining = lease_end.saturating_sub(self.now());
        self.flows.gates.next_message(program_id, lease_end, remaining)
    }

    /// Records whether the sender of a gated flow has data, and lets the agent report a change at once.
    fn set_data(&mut self, coflow: &Arc<str>, flow: u32, program_id: u64, has_data: bool) {
        if self.flows.set_data(coflow, flow, program_id, has_data) {
            self.report_wake.notify_one();
        }
    }

    fn mark_done(
        &mut self,
        coflow: &Arc<str>,
        flow: u32,
        program_id: u64,
    ) -> Result<(), flows::SocketRefusal> {
        self.flows.mark_done(coflow, flow, program_id)?;
        self.flow_end.notify_one();
        Ok(())
    }

    /// The work of each interval: measures flows, and sets what follows from orders, measurements and the lease.
    fn measure_and_enforce(&mut self) {
        self.flows.measure();
        self.update_matching();
        self.set_pacing_rates();
        self.update_watchdog();
        // Queues change with orders, or when weights end. A switch with many ports does not compute them each time.
        let has_valid_weights = self.lease.are_weights_valid(self.now());
        if self.is_link_shaped || has_valid_weights != self.had_valid_weights {
            self.had_valid_weights = has_valid_weights;
            self.publish_desired_links();
        }
        if let Some(applications) = &mut self.applications {
            applications.update(self.lease.limits(self.start_time.elapsed()), Instant::now());
        }
    }

    /// Sends new sockets to the watchdog, and the end of the lease to it and the kernel.
    fn update_watchdog(&mut self) {
        let now = self.now();
        match self.watchdog.as_mut().map_or(Ok(false), Watchdog::ensure_running) {
            Ok(true) => self.flows.queue_all_handovers(),
            Ok(false) => {}
            Err(error) if self.has_watchdog_failed => drop(error),
            Err(error) => {
                self.has_watchdog_failed = true;
                tracing::warn!(
                    "watchdog cannot be started: {error}; sockets keep their rates if this agent is killed"
                );
            }
        }
        self.flows.hand_over_sockets(self.watchdog.as_mut());
        let Some(remaining) = self.lease.lease_end().and_then(|end| end.checked_sub(now)) else { return };
        let lease_end = monotonic_now() + remaining;
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.renew_lease(lease_end, self.lease.lease());
        }
        if let Err(error) = self.flows.renew_lease(lease_end) {
            tracing::warn!("the kernel cannot pause sockets or end their rates: {error}");
            // The agent sets the rates again that this ends.
            let _ = self.flows.stop_leases();
        }
    }

    /// Prepares for a new stream to a coordinator, which may limit UDP and request demands.
    fn begin_stream(
        &mut self,
        coordinator: SocketAddr,
        first_generation: u64,
        link_rates: Vec<u64>,
        udp_control: Option<UdpControl>,
        wants_demands: bool,
    ) {
        self.lease.set_first_generation(first_generation);
        (self.coordinator, self.link_rates, self.is_connected) = (Some(coordinator), link_rates, true);
        self.publish_desired_links();
        self.report_all();
        self.ordered_traffic.begin_stream(udp_control, wants_demands);
        if let Some(applications) = &mut self.applications {
            applications.begin_stream(wants_demands);
            applications.udp_throttling.begin_stream(&mut applications.traffic, udp_control, Instant::now());
        }
    }

    fn apply_order(&mut self, mut order: weir_proto::Order) {
        let ended = order.flows.iter().filter(|(_, rate)| *rate == OrderedRate::Removed);
        let ended_flows: Vec<FlowKey> = ended.map(|(key, _)| key.clone()).collect();
        let (now, udp_order) = (self.now(), UdpOrder::take(&mut order));
        let unscheduled = std::mem::take(&mut order.unscheduled);
        let has_limits = order.is_full || !order.limits.is_empty();
        let names_flows = order.is_full || !order.flows.is_empty();
        let names_traffic = order.traffic.is_some();
        let has_traffic = order.is_full || names_traffic;
        let (matching, is_full, lease) = (order.matching.take(), order.is_full, order.lease);
        let (epoch, seq) = (order.epoch, order.seq);
        let (last_epoch, last_seq) = self.lease.applied();
        let was_without_queues = self.lease.without_queues();
        let refusal = self.lease.accept(order, now).err();
        match refusal {
            None => {
                self.first_order.get_or_insert_with(Instant::now);
                ended_flows.iter().for_each(|key| self.flows.report_delta.confirm_end(key));
                self.flows.set_unscheduled(unscheduled);
                self.matching.apply(matching, is_full, lease, now);
                if self.matching.has_requests() {
                    self.report_wake.notify_one();
                }
                if names_flows {
                    self.flows.join_generations(&self.lease);
                }
                if has_traffic {
                    self.set_ordered_traffic();
                    self.ordered_traffic.record_order(names_traffic);
                    self.log_missing_udp_control(false);
                }
                if let Some(applications) = &mut self.applications {
                    if self.lease.without_queues() != was_without_queues {
                        applications.set_without_classes(!was_without_queues);
                    }
                    if has_limits {
                        applications.mark_limits_changed();
                    }
                    applications.udp_throttling.apply_order(
                        &mut applications.traffic,
                        &udp_order,
                        Instant::now(),
                    );
                }
            }
            // An order after a refused one has a gap before it. Identical refusals in a row are logged once.
            Some(RefusalReason::Gap) if self.last_refusal.is_some() => {}
            Some(_) if self.last_refusal == refusal => {}
            Some(reason) => tracing::warn!(
                "order {seq} of epoch {epoch} is refused: {reason}; the last accepted order is {last_seq} of epoch {last_epoch}"
            ),
        }
        self.last_refusal =
            if refusal == Some(RefusalReason::Gap) { self.last_refusal.or(refusal) } else { refusal };
        // The kernel ends rates whose lease it does not know.
        self.update_watchdog();
        self.set_pacing_rates();
        self.publish_desired_links();
    }

    /// Reports everything again, since a new coordinator has received none of it.
    fn report_all(&mut self) {
        self.history = ReportHistory::default();
        self.flows.report_delta.report_all();
        if let Some(applications) = &mut self.applications {
            applications.report_all();
        }
    }

    /// Sends the next report if it is due. While the previous report is not sent, changes wait for the next one.
    fn send_report(&mut self, reports: Option<&mpsc::Sender<Report>>, interval: Duration) {
        if let Some(Ok(permit)) = reports.map(|reports| reports.try_reserve())
            && let Some(report) = self.next_report(interval, Instant::now())
        {
            self.matching.confirm_report();
            permit.send(report);
        }
    }

    /// The report to send now; none if nothing has changed and the last report is recent.
    fn next_report(&mut self, interval: Duration, now: Instant) -> Option<Report> {
        let observed = self.applications.as_mut().map(|known| known.take_changes(now)).unwrap_or_default();
        let udp_measurements = self
            .applications
            .as_mut()
            .map(|known| known.udp_throttling.take_measurements())
            .unwrap_or_default();
        let (applied, refusals) = (self.lease.applied(), self.lease.refusals());
        let elapsed = self.now();
        let mut restored = self.applications.as_ref().map(|known| known.restored()).unwrap_or_default();
        restored.queues += self.interfaces.restored;
        let mut conflicts = self.interfaces.conflicts.clone();
        conflicts.extend(self.ordered_traffic.reported_conflicts().iter().cloned());
        conflicts.extend(self.applications.iter().flat_map(|known| known.conflicts()).cloned());
        conflicts.truncate(MAX_CONFLICTS);
        let flows = self.flows.take_changes(&self.lease, elapsed);
        let mut report = Report {
            applied,
            flows,
            observed,
            udp_measurements,
            refused_orders: refusals,
            restored_objects: restored,
            conflicts,
            bandwidth_limit: self.interfaces.bandwidth_limit,
            // Without a valid order, the host decides nothing: flows to it are free.
            matching: self.matching.report().filter(|_| self.lease.is_lease_valid(elapsed)),
            links_down: self.interfaces.links_down.clone(),
        };
        let max_interval = max_report_interval(self.lease.lease(), interval);
        let is_due = self.history.is_due(&report, max_interval, elapsed);
        if !is_due && !self.matching.has_news() {
            return None;
        }
        match &mut report.matching {
            Some(matching) => matching.segments = self.flows.take_segments(),
            None => self.flows.discard_segments(),
        }
        Some(report)
    }
}

/// The kernel objects that remain when an agent stops.
pub struct KernelState {
    /// The programs and maps for the traffic of applications.
    pub traffic: Option<Traffic>,
    /// The interfaces that may have queues of the agent's, by their present names.
    pub interfaces: Vec<Interface>,
    /// The locks of the queues of interfaces.
    pub queue_locks: Vec<InterfaceLock>,
}

/// Where an agent serves metrics: a listener, and TLS or plain text.
pub type MetricsServer = (TcpListener, Option<MetricsTls>);

/// Serves metrics, if they have a listener.
async fn serve_metrics(
    metrics: Option<MetricsServer>,
    shared: &SharedState,
    coordinator: &CoordinatorEndpoint,
) {
    let Some((listener, tls)) = metrics else { return std::future::pending().await };
    let last = Arc::default();
    let source = AgentMetrics { shared: shared.clone(), coordinator: coordinator.clone(), last };
    match weir_metrics::serve(listener, tls, source).await {}
}

/// Runs an agent until `stop`. All sockets are then unpaced; interfaces and the traffic of applications stay unchanged. `queue_locks` are
/// those of the interfaces that exist now.
///
/// # Errors
/// If the socket for programs cannot be opened.
pub async fn run(
    settings: Settings,
    queue_locks: Vec<InterfaceLock>,
    traffic: Option<Traffic>,
    metrics: Option<MetricsServer>,
    stop: impl Future<Output = ()>,
) -> (KernelState, io::Result<()>) {
    let local_socket =
        match settings.local_socket.as_deref().map(local_socket::LocalSocketServer::open).transpose() {
            Ok(local_socket) => local_socket,
            Err(error) => return (KernelState { traffic, interfaces: Vec::new(), queue_locks }, Err(error)),
        };
    socket::raise_file_limit();
    let (desired_sender, desired_updates) = watch::channel(DesiredLinks::default());
    let host = AgentState::new(&settings, queue_locks, traffic, desired_sender);
    let shared = SharedState(Arc::new(Mutex::new(host)));
    let (event_sender, mut events) = mpsc::channel(16);
    let identity = AgentIdentity {
        name: settings.name.clone(),
        link_rates: settings.links.iter().map(|link| link.rate.get() as u64).collect(),
        interfaces: settings.links.iter().flat_map(|link| link.interfaces.clone()).collect(),
        networks: settings.networks.clone(),
        labels: settings.labels.clone(),
    };
    let result = tokio::select! {
        ended = serve_programs(local_socket, shared.clone()) => ended,
        () = coordinator_stream::keep_open(&settings.coordinator, &identity, event_sender) => Ok(()),
        () = run_main_loop(&shared, &mut events) => Ok(()),
        () = manage_interfaces(&shared, &settings, desired_updates) => Ok(()),
        () = restore_programs(&shared) => Ok(()),
        () = check_bytes(&shared) => Ok(()),
        () = resume_events(&shared) => Ok(()),
        () = restore_order(&shared) => Ok(()),
        () = ordered_traffic::manage(&shared) => Ok(()),
        () = sweep_sockets(&shared) => Ok(()),
        () = serve_metrics(metrics, &shared, &settings.coordinator) => Ok(()),
        () = stop => Ok(()),
    };
    let mut host = shared.lock();
    host.flows.remove_rates();
    host.watchdog = None;
    if let Err(error) = host.flows.stop_leases() {
        tracing::warn!("programs of leases cannot be removed: {error}");
    }
    let traffic = host.applications.take().map(|applications| applications.traffic);
    let names = std::mem::take(&mut host.interfaces.names);
    let interfaces = names.into_iter().map(|(_, name)| name).collect();
    (KernelState { traffic, interfaces, queue_locks: std::mem::take(&mut host.queue_locks) }, result)
}

/// How often the agent looks for programs and maps that another process removed.
const INSPECTION_INTERVAL: Duration = Duration::from_millis(250);

/// Restores programs and maps that another process removed.
async fn restore_programs(shared: &SharedState) {
    let mut ticker = ticker(INSPECTION_INTERVAL);
    loop {
        ticker.tick().await;
        let inspection = shared.lock().applications.as_ref().map(|known| known.traffic.inspection());
        // An order can start the programs.
        let Some(inspection) = inspection else { continue };
        if spawn_blocking(move || inspection.is_intact()).await.is_ok_and(|is_intact| !is_intact)
            && let Some(applications) = &mut shared.lock().applications
        {
            applications.repair();
        }
    }
}

/// Compares the bytes of marks with those of their queues.
async fn check_bytes(shared: &SharedState) {
    let (mut ticker, mut check) = (ticker(BYTE_CHECK_INTERVAL), ByteCheck::default());
    loop {
        ticker.tick().await;
        let marked = shared.lock().applications.as_ref().map(|known| known.traffic.marked_bytes());
        let Some(Ok(marked)) = marked else { continue };
        // An interface that cannot be read has another conflict, and is not compared.
        let Ok(readings) = spawn_blocking(move || read_sent_bytes(marked)).await else { return };
        let conflicts = check.compare(readings.unwrap_or_default());
        if let Some(applications) = &mut shared.lock().applications {
            applications.set_byte_conflicts(conflicts);
        }
    }
}

/// How often the agent restores the events of connections that another program has replaced, and the order of its programs. Another owner
/// that insists on being the first one is not disturbed more often.
const RESUME_INTERVAL: Duration = Duration::from_secs(10);

/// Attaches programs of interfaces again before those of other owners.
async fn restore_order(shared: &SharedState) {
    let mut ticker = ticker(RESUME_INTERVAL);
    loop {
        ticker.tick().await;
        let check = shared.lock().applications.as_ref().map(|known| known.traffic.order_check());
        let Some(check) = check else { continue };
        let Ok(changes) = spawn_blocking(move || check.run()).await else { return };
        if let Some(applications) = &mut shared.lock().applications {
            applications.apply_order(changes);
        }
    }
}

/// Restores the events of connections that another program has replaced.
async fn resume_events(shared: &SharedState) {
    let mut ticker = ticker(RESUME_INTERVAL);
    loop {
        ticker.tick().await;
        let sweep = shared.lock().applications.as_ref().and_then(|known| known.traffic.resume_sweep());
        if let Some(sweep) = sweep
            && let Ok(Ok(count @ 1..)) = spawn_blocking(move || sweep.run()).await
        {
            tracing::warn!(
                "restored the events of {count} connections that another sockops program had replaced"
            );
        }
    }
}

/// How often the agent lets the kernel see new sockets. Until then, the watchdog alone ends their rates.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Lets the kernel end the rates of new sockets, and ends those of earlier agents.
async fn sweep_sockets(shared: &SharedState) {
    let mut ticker = ticker(SWEEP_INTERVAL);
    loop {
        ticker.tick().await;
        let sweep = shared.lock().flows.take_sweep();
        if let Some(sweep) = sweep
            && let Ok(Err(error)) = spawn_blocking(move || sweep.run()).await
        {
            tracing::warn!("the kernel cannot end rates: {error}");
        }
    }
}

/// Loads the programs that end rates and pause sockets, if sockets can get any.
fn start_leases(settings: &Settings) -> Option<SocketLeases> {
    settings.has_socket_programs.then_some(())?;
    SocketLeases::start()
        .inspect_err(|error| {
            tracing::warn!(
                "the kernel cannot pause sockets or end their rates: {error}; waiting flows of handed-over sockets start late, and rates stay if the watchdog is killed with this agent"
            );
        })
        .ok()
}

async fn manage_interfaces(
    shared: &SharedState,
    settings: &Settings,
    desired_updates: watch::Receiver<DesiredLinks>,
) {
    let machine = match &settings.local_socket {
        Some(_) => Machine::Host,
        // A switch has no programs.
        None => Machine::Switch,
    };
    match settings.dry_run {
        true => interfaces::print_commands(&settings.links, machine, desired_updates).await,
        false => interfaces::manage(shared, &settings.links, machine, desired_updates).await,
    }
}

/// Accepts programs, if there is a local socket.
async fn serve_programs(
    local_socket: Option<local_socket::LocalSocketServer>,
    shared: SharedState,
) -> io::Result<()> {
    match local_socket {
        Some(local_socket) => local_socket.serve(shared).await,
        None => std::future::pending().await,
    }
}

async fn run_main_loop(shared: &SharedState, events: &mut mpsc::Receiver<StreamEvent>) {
    let (mut ticker, mut interval, mut report_timer) =
        (ticker(DEFAULT_INTERVAL), DEFAULT_INTERVAL, ReportTimer::new(0, DEFAULT_INTERVAL));
    let (mut last_repeat, mut last_tick) = (Instant::now(), Instant::now());
    let mut reports: Option<mpsc::Sender<Report>> = None;
    let mut last_report = Instant::now();
    let report_wake = Arc::clone(&shared.lock().report_wake);
    let (flow_end, mut next_end) = (Arc::clone(&shared.lock().flow_end), None);
    let end_events = shared.lock().flows.end_events_file().and_then(watch_file);
    loop {
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(StreamEvent::Started { number, report_interval, udp_control, wants_demands, coordinator, first_generation, link_rates, report_sender }) => {
                    (ticker, interval, report_timer) = (self::ticker(report_interval), report_interval, ReportTimer::new(number, report_interval));
                    reports = Some(report_sender);
                    shared.lock().begin_stream(coordinator, first_generation, link_rates, udp_control, wants_demands);
                }
                Some(StreamEvent::Order(order)) => {
                    let is_early = order.is_early;
                    shared.lock().apply_order(*order);
                    // Orders that arrive more often than once an interval must not delay the measurements.
                    if !is_early && last_tick.elapsed() < interval {
                        ticker.reset_at(report_timer.record_order(Instant::now()).into());
                    }
                }
                Some(StreamEvent::Ended) => {
                    reports = None;
                    shared.lock().is_connected = false;
                }
                None => return,
            },
            _ = ticker.tick() => {
                last_tick = Instant::now();
                let mut host = shared.lock();
                let host = &mut *host;
                host.measure_and_enforce();
                if last_repeat.elapsed() >= REPEAT_INTERVAL {
                    last_repeat = Instant::now();
                    host.flows.report_unconfirmed(&host.lease);
                }
                last_report = Instant::now();
                next_end = host.flows.next_end();
                host.send_report(reports.as_ref(), interval);
            }
            () = wait_for_end(&flow_end, next_end, end_events.as_ref()) => {
                let mut host = shared.lock();
                let has_ended = host.flows.measure_ending();
                next_end = host.flows.next_end();
                if has_ended {
                    last_report = Instant::now();
                    host.send_report(reports.as_ref(), interval);
                }
            }
            // The coordinator reads few reports of an agent per interval, so further changes wait for the tick.
            () = report_wake.notified(), if last_report.elapsed() >= interval / 4 => {
                last_report = Instant::now();
                shared.lock().send_report(reports.as_ref(), interval);
            }
        }
    }
}

/// Lets the runtime wait until a file is readable; none if it cannot.
#[expect(
    deprecated,
    reason = "the descriptor is owned until the end of the registration, which the safe function cannot know of all types"
)]
fn watch_file(file: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(file, Interest::READABLE).ok()
}

/// Waits until a program has ended a flow, the kernel signals the end of a connection, or the estimated end of a flow whose program has
/// written all data.
async fn wait_for_end(flow_end: &Notify, next_end: Option<Duration>, end_events: Option<&AsyncFd<OwnedFd>>) {
    let end_event = async {
        match end_events {
            // Without events, the next measurement finds the end.
            Some(events) => match events.readable().await {
                Ok(mut guard) => guard.clear_ready(),
                Err(_) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    };
    let estimated_end = async {
        match next_end {
            Some(next_end) => sleep(next_end).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = flow_end.notified() => {}
        () = end_event => {}
        () = estimated_end => {}
    }
}

fn ticker(period: Duration) -> tokio::time::Interval {
    let mut ticker = interval(period);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticker
}
