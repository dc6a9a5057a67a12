//! Simulation of the control plane, agents and the messages between them, replayable by seed.
//!
//! Messages are lost, delayed, duplicated and reordered; hosts and coordinators stop and restart. Agents report all of their
//! flows each time, or only changes over streams, as real agents do. A stream loses no messages before it ends.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::campaign::seeds;
use crate::small_cluster::{
    HOSTS, INTERVAL, LINK_RATE, address, control_plane, equal_links, flow_key, oversubscribed_links,
    registration, throttling_plane,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_agent::lease::{FlowLimit, LeaseState, RefusalReason};
use weir_agent::report_delta::{OpenFlow, ReportDelta, ReportHistory, max_report_interval};
use weir_coordinator::control_plane::{
    ControlPlane, Demand, FlowKey, FlowProgress, Mark, ObservedConnections, Order, OrderedRate, Registration,
    RejectedEntries, Report, SenderState, ServiceWeights, Settings, UdpFlow, UdpMeasurement,
};
use weir_core::units::Rate;

/// A host: its agent's lease state, and the bytes that its flows have sent.
struct Host {
    lease_state: LeaseState,
    sent_bytes: BTreeMap<FlowKey, f64>,
    is_down: bool,
    /// Unreported changes, with [`Transport::Streams`].
    report_delta: ReportDelta,
    report_history: ReportHistory,
    /// Whether the agent's stream is open, with [`Transport::Streams`].
    is_connected: bool,
}

impl Host {
    fn new() -> Host {
        Host {
            lease_state: LeaseState::new(vec![Rate::new(LINK_RATE).unwrap()]),
            sent_bytes: BTreeMap::new(),
            is_down: false,
            report_delta: ReportDelta::default(),
            report_history: ReportHistory::default(),
            is_connected: false,
        }
    }
}

struct Simulation {
    random: ChaCha8Rng,
    hosts: Vec<Host>,
    /// Messages in transit, each with the step of its arrival.
    orders: VecDeque<(u64, u32, Order)>,
    reports: VecDeque<(u64, u32, Report)>,
    coflows: BTreeMap<String, Registration>,
    transport: Transport,
    fabric: Fabric,
}

/// Network of the hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fabric {
    OneSwitch,
    /// That of [`oversubscribed_links`].
    TwoLeaves,
}

/// Transport of messages.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Transport {
    /// Single messages with the host's whole state, which may be lost, delayed, duplicated or reordered.
    Datagrams,
    /// Streams, as agents use: messages are delayed and in order. If a stream ends, its messages in transit are lost.
    Streams,
}

/// Interval after which unconfirmed changes are reported again, in steps: one second.
const REPEAT_STEPS: u64 = 125;

/// Sending and receiving sides of hosts, uplinks and downlinks of leaves.
const LINK_KINDS: usize = 4;

impl Simulation {
    /// A simulation before its first step.
    fn new(seed: u64, transport: Transport, fabric: Fabric) -> Simulation {
        Simulation {
            random: ChaCha8Rng::seed_from_u64(seed),
            hosts: std::iter::repeat_with(Host::new).take(HOSTS as usize).collect(),
            orders: VecDeque::new(),
            reports: VecDeque::new(),
            coflows: BTreeMap::new(),
            transport,
            fabric,
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.next_u32().is_multiple_of(n)
    }

    fn send_message<T: Clone>(
        &mut self,
        queue_of: fn(&mut Simulation) -> &mut VecDeque<(u64, u32, T)>,
        step: u64,
        host: u32,
        message: T,
        is_faulty: bool,
    ) {
        if self.transport == Transport::Streams {
            let delay = if is_faulty { u64::from(self.random.next_u32() % 4) } else { 0 };
            let last = queue_of(self).iter().rev().find(|message| message.1 == host);
            let arrival_step = last.map_or(0, |message| message.0).max(step + 1 + delay);
            queue_of(self).push_back((arrival_step, host, message));
            return;
        }
        if is_faulty && self.one_in(10) {
            return;
        }
        let copies = 1 + usize::from(is_faulty && self.one_in(10));
        for _ in 0..copies {
            let late = if is_faulty { u64::from(self.random.next_u32() % 4) } else { 0 };
            queue_of(self).push_back((step + 1 + late, host, message.clone()));
        }
    }

    /// Closes a host's stream, and drops its messages in transit.
    fn close_stream(&mut self, host: u32) {
        self.hosts[host as usize].is_connected = false;
        self.orders.retain(|message| message.1 != host);
        self.reports.retain(|message| message.1 != host);
    }

    /// Falsifies a report: too many bytes, too few or none, and a flow of another host. Does not report own flows as
    /// completed early: they would continue without a rate, which no part of Weir can detect.
    fn falsify(&mut self, flows: &mut Vec<FlowProgress>) {
        for progress in flows.iter_mut().filter(|progress| progress.state != SenderState::Completed) {
            progress.sent = match self.random.next_u32() % 4 {
                0 => progress.sent,
                1 => 0,
                2 => progress.sent / 2,
                _ => u64::MAX,
            };
        }
        let is_own = |key: &FlowKey| flows.iter().any(|progress| progress.key == *key);
        let mut all = self.coflows.keys().map(|id| flow_key(id, 0));
        if let Some(key) = all.rfind(|key| !is_own(key)) {
            flows.push(FlowProgress::new(key, u64::MAX, SenderState::Completed));
        }
    }

    /// The sums of rates on the sending and receiving sides of hosts, and on the uplinks and downlinks of leaves.
    fn link_rates<'a>(
        &self,
        rates: impl Iterator<Item = (&'a FlowKey, f64)>,
    ) -> [[f64; HOSTS as usize]; LINK_KINDS] {
        let mut links = [[0.0; HOSTS as usize]; LINK_KINDS];
        for (key, rate) in rates {
            let flow = self.coflows[&*key.coflow].flows[key.flow as usize];
            links[0][flow.src as usize] += rate;
            links[1][flow.dst as usize] += rate;
            let [src_leaf, dst_leaf] = [flow.src, flow.dst].map(|host| host as usize / 2);
            if self.fabric == Fabric::TwoLeaves && src_leaf != dst_leaf {
                links[2][src_leaf] += rate;
                links[3][dst_leaf] += rate;
            }
        }
        links
    }

    fn sender_and_size(&self, key: &FlowKey) -> Option<(u32, f64)> {
        let flow = self.coflows.get(&*key.coflow)?.flows.get(key.flow as usize)?;
        Some((flow.src, flow.bytes?.get()))
    }
}

/// The capacity of a link, with tolerance for rounding.
const MAX_LINK_RATE: f64 = LINK_RATE * 1.000_01 + 100.0;

/// UDP measurements of a host for all other hosts; the rate identifies the measuring host.
fn udp_measurements(receiver: u32) -> Vec<UdpMeasurement> {
    let flow_from = |from| UdpFlow {
        src: address(from).into(),
        dst: address(receiver).into(),
        mark: Mark::new(1).unwrap(),
    };
    let others = (0..HOSTS).filter(|&from| from != receiver);
    others.map(|from| UdpMeasurement { flow: flow_from(from), rate: measured_rate(receiver) }).collect()
}

fn measured_rate(at: u32) -> u64 {
    1000 + u64::from(at)
}

fn sum(a: RejectedEntries, b: RejectedEntries) -> RejectedEntries {
    RejectedEntries {
        unknown_flow: a.unknown_flow + b.unknown_flow,
        former_generation: a.former_generation + b.former_generation,
        foreign_flow: a.foreign_flow + b.foreign_flow,
        decreasing: a.decreasing + b.decreasing,
        above_link_rate: a.above_link_rate + b.above_link_rate,
        unknown_host: a.unknown_host + b.unknown_host,
        too_many: a.too_many + b.too_many,
    }
}

fn take_arrived<T>(queue: &mut VecDeque<(u64, u32, T)>, step: u64) -> Vec<(u32, T)> {
    let (now, later): (Vec<_>, Vec<_>) = queue.drain(..).partition(|message| message.0 <= step);
    *queue = later.into();
    now.into_iter().map(|(_, host, message)| (host, message)).collect()
}

/// Runs one simulation, and checks that:
///
/// - rates ordered from present hosts never exceed the capacity of a link;
/// - no rate holds without a lease, and no lease ends while messages are delivered;
/// - epochs and sequence numbers only rise;
/// - all coflows complete, and no state remains.
///
/// `misreporting_host` falsifies its reports about bytes sent, other hosts' flows and UDP measurements. Returns the counts of
/// rejected report entries.
fn run_simulation(
    policy: &str,
    seed: u64,
    misreporting_host: Option<u32>,
    transport: Transport,
    fabric: Fabric,
) -> RejectedEntries {
    let mut simulation = Simulation::new(seed, transport, fabric);
    let links = match fabric {
        Fabric::OneSwitch => equal_links(),
        Fabric::TwoLeaves => oversubscribed_links(),
    };
    let (mut epoch, mut is_running) = (1, true);
    let mut control_plane = throttling_plane(links.clone(), policy, epoch);
    let mut ordered: Vec<BTreeMap<FlowKey, OrderedRate>> = vec![BTreeMap::new(); HOSTS as usize];
    let mut last_applied = vec![(0, 0); HOSTS as usize];
    let mut last_report_at = vec![f64::NEG_INFINITY; HOSTS as usize];
    let mut lease_end = vec![0.0; HOSTS as usize];
    let lease = Settings::default().lease;
    // Counts of all coordinators of the simulation. The last one can be new when the coflows are complete.
    let (mut rejected, mut forwarded) = (RejectedEntries::default(), 0);
    // Number of consecutive steps in which the applied rates exceeded the capacity of each link.
    let mut oversubscribed_steps = [[0; HOSTS as usize]; LINK_KINDS];
    let mut max_oversubscribed_steps = 0;
    for step in 0..4000u64 {
        let now = step as f64 * INTERVAL;
        let is_faulty = step < 600;
        if is_faulty && step % 20 == 0 {
            let width = 1 + simulation.random.next_u32() % 4;
            let flow = |random: &mut ChaCha8Rng| {
                let (src, dst) = (random.next_u32() % HOSTS, random.next_u32() % HOSTS);
                (src, dst, f64::from(1 + random.next_u32() % 200_000))
            };
            let flows: Vec<_> = (0..width).map(|_| flow(&mut simulation.random)).collect();
            let (id, requested) = (format!("c{step}"), registration(&flows));
            if is_running {
                control_plane.register(&id, requested.clone(), now).unwrap();
            }
            // A framework repeats its request until it gets an answer, and the store contains the answered requests.
            simulation.coflows.insert(id, requested);
        }
        if is_faulty && simulation.one_in(150) {
            is_running = false;
        } else if !is_running && (!is_faulty || simulation.one_in(20)) {
            epoch += 1;
            is_running = true;
            rejected = sum(rejected, control_plane.rejected_entries());
            forwarded += control_plane.forwarded_udp_measurements();
            control_plane = throttling_plane(links.clone(), policy, epoch);
            ordered = vec![BTreeMap::new(); HOSTS as usize];
            last_report_at = vec![f64::NEG_INFINITY; HOSTS as usize];
            for (id, registration) in &simulation.coflows {
                control_plane.register(id, registration.clone(), now).unwrap();
            }
        }
        for host in 0..HOSTS as usize {
            simulation.hosts[host].is_down = is_faulty
                && if simulation.hosts[host].is_down {
                    !simulation.one_in(15)
                } else {
                    simulation.one_in(200)
                };
            if transport == Transport::Datagrams {
                continue;
            }
            let ends = !is_running || simulation.hosts[host].is_down || is_faulty && simulation.one_in(100);
            if simulation.hosts[host].is_connected && ends {
                simulation.close_stream(host as u32);
            } else if !simulation.hosts[host].is_connected && !ends && (!is_faulty || simulation.one_in(5)) {
                let agent = &mut simulation.hosts[host];
                (agent.is_connected, agent.report_history) = (true, ReportHistory::default());
                agent.report_delta.report_all();
                control_plane.require_full_order(host as u32);
            }
        }

        // Agents apply orders, flows send for a step, and agents report.
        for (host, order) in take_arrived(&mut simulation.orders, step) {
            let agent = &mut simulation.hosts[host as usize];
            if agent.is_down {
                continue;
            }
            let removed = order.flows.iter().filter(|(_, rate)| *rate == OrderedRate::Removed);
            removed.for_each(|(key, _)| agent.report_delta.confirm_end(key));
            match agent.lease_state.accept(order, Duration::from_secs_f64(now)) {
                Ok(()) => lease_end[host as usize] = now + lease,
                Err(RefusalReason::StaleEpoch | RefusalReason::Duplicate | RefusalReason::Gap) => {}
                Err(reason) => panic!("{policy}, seed {seed}, step {step}: order refused: {reason}"),
            }
            assert!(
                agent.lease_state.applied() >= last_applied[host as usize],
                "the applied sequence number decreased"
            );
            last_applied[host as usize] = agent.lease_state.applied();
        }
        for (agent, end) in simulation.hosts.iter().zip(&lease_end) {
            let has_rates = agent.lease_state.rates(Duration::from_secs_f64(now)).next().is_some();
            assert!(!has_rates || now < *end, "{policy}, seed {seed}, step {step}: a rate without a lease");
            // By step 650, all delayed messages have arrived, and each host has received its current orders.
            assert!(step < 650 || now < *end, "{policy}, seed {seed}, step {step}: a lease ended");
        }
        // The applied rates are the ordered rates, except at hosts that have not received a change yet. Such rates end with their
        // lease.
        let applied_rates =
            simulation.hosts.iter().flat_map(|agent| agent.lease_state.rates(Duration::from_secs_f64(now)));
        let applied_rates = simulation.link_rates(applied_rates.map(|(key, rate)| (key, rate as f64)));
        for (steps, rate) in oversubscribed_steps.iter_mut().flatten().zip(applied_rates.as_flattened()) {
            *steps = if *rate > MAX_LINK_RATE { *steps + 1 } else { 0 };
            max_oversubscribed_steps = max_oversubscribed_steps.max(*steps);
            assert!(
                step < 650 || *steps == 0,
                "{policy}, seed {seed}, step {step}: applied rates of {rate} on a link of {LINK_RATE}"
            );
        }
        for host in 0..HOSTS {
            let own_flows: Vec<(FlowKey, f64)> = simulation
                .coflows
                .iter()
                .flat_map(|(id, registration)| {
                    (0..registration.flows.len() as u32).map(move |flow| flow_key(id, flow))
                })
                .filter_map(|key| {
                    Some((key.clone(), simulation.sender_and_size(&key).filter(|f| f.0 == host)?.1))
                })
                .collect();
            let agent = &mut simulation.hosts[host as usize];
            let mut flows = Vec::new();
            let incomplete: Vec<_> = own_flows
                .iter()
                .filter(|(key, size)| agent.sent_bytes.get(key).copied().unwrap_or(0.0) < *size)
                .map(|(key, _)| key.clone())
                .collect();
            for (key, size) in own_flows {
                if !agent.sent_bytes.contains_key(&key) {
                    agent.report_delta.open_flow(key.clone());
                }
                let equal_share = LINK_RATE / incomplete.len().max(1) as f64;
                let rate = match agent.lease_state.flow_limit(&key, Duration::from_secs_f64(now)) {
                    FlowLimit::Rate(rate) | FlowLimit::Reserve(rate) => rate as f64,
                    _ => equal_share,
                };
                let sent = agent.sent_bytes.entry(key.clone()).or_insert(0.0);
                let was_completed = *sent >= size;
                *sent = (*sent + rate * INTERVAL).min(size);
                if *sent >= size && !was_completed {
                    agent.report_delta.end_flow(key.clone(), sent.floor() as u64, SenderState::Completed);
                }
                flows.push(FlowProgress::new(
                    key,
                    sent.floor() as u64,
                    if *sent >= size { SenderState::Completed } else { SenderState::Ready },
                ));
            }
            let (applied, down) = (agent.lease_state.applied(), agent.is_down);
            let mut measurements = udp_measurements(host);
            if is_faulty && misreporting_host == Some(host) {
                simulation.falsify(&mut flows);
                // Measurements of another host's address.
                let other = address((host + 1) % HOSTS).into();
                measurements.iter_mut().for_each(|measurement| measurement.flow.dst = other);
            }
            if transport == Transport::Streams {
                let agent = &mut simulation.hosts[host as usize];
                if !agent.is_connected {
                    continue;
                }
                let now = Duration::from_secs_f64(now);
                if step % REPEAT_STEPS == u64::from(host) {
                    agent.report_delta.report_unconfirmed(|key| agent.lease_state.names_flow(key));
                }
                let lease_state = &agent.lease_state;
                let open = flows.iter().filter(|progress| progress.state != SenderState::Completed);
                let open = open.map(|FlowProgress { key, sent, state, gated, udp, demand }| {
                    let limit = lease_state.flow_limit(key, now);
                    let (is_gated, is_udp, demand) = (*gated, *udp, *demand);
                    (key, OpenFlow { sent: *sent, limit, state: *state, is_gated, is_udp, demand })
                });
                let changes = agent.report_delta.take_changes(open, |key| lease_state.names_flow(key), now);
                // UDP is measured every six steps.
                let udp_measurements = if step % 6 == 0 { measurements } else { Vec::new() };
                let report = Report { applied, flows: changes, udp_measurements, ..Report::default() };
                let max_silence_time =
                    max_report_interval(agent.lease_state.lease(), Duration::from_secs_f64(INTERVAL));
                if agent.report_history.is_due(&report, max_silence_time, now) {
                    simulation.send_message(|world| &mut world.reports, step, host, report, is_faulty);
                }
            } else if !down {
                let report = Report { applied, flows, udp_measurements: measurements, ..Report::default() };
                simulation.send_message(|world| &mut world.reports, step, host, report, is_faulty);
            }
        }

        // The coordinator applies reports and schedules.
        let reports = take_arrived(&mut simulation.reports, step);
        if !is_running {
            continue;
        }
        for (host, report) in reports {
            control_plane.report(host, &report, now);
            last_report_at[host as usize] = now;
        }
        let orders = control_plane.tick(now);
        for (rates, reported_at) in ordered.iter_mut().zip(&last_report_at) {
            if now - reported_at > lease {
                // The host gets no orders, and its last order ends with its lease.
                rates.clear();
            }
        }
        for (host, order) in orders {
            for UdpMeasurement { flow, rate } in &order.udp_measurements {
                let measuring_host = (0..HOSTS)
                    .find(|&at| flow.dst == address(at))
                    .expect("the destination is the address of a host");
                assert_eq!(
                    (flow.src, *rate),
                    (address(host).into(), measured_rate(measuring_host)),
                    "a measurement that its receiver did not send"
                );
            }
            assert!(order.udp_measurements.len() < HOSTS as usize, "a measurement was forwarded twice");
            if order.is_full {
                ordered[host as usize].clear();
            }
            for (key, rate) in &order.flows {
                match rate {
                    OrderedRate::Removed => ordered[host as usize].remove(key),
                    rate => ordered[host as usize].insert(key.clone(), *rate),
                };
            }
            if transport == Transport::Datagrams || simulation.hosts[host as usize].is_connected {
                simulation.send_message(|world| &mut world.orders, step, host, order, is_faulty);
            }
        }
        let ordered_rates = ordered.iter().flatten().filter_map(|(key, rate)| match rate {
            OrderedRate::Rate(rate) | OrderedRate::Reserve(rate) => Some((key, *rate as f64)),
            _ => None,
        });
        assert!(ordered_rates.clone().all(|(_, rate)| rate > 0.0), "a flow is ordered a rate of zero");
        let ordered_rates = simulation.link_rates(ordered_rates);
        let max_ordered_rate = ordered_rates.as_flattened().iter().copied().fold(0.0, f64::max);
        assert!(
            max_ordered_rate <= MAX_LINK_RATE,
            "{policy}, seed {seed}, step {step}: ordered rates of {max_ordered_rate} on a link of {LINK_RATE}"
        );
        if !is_faulty && simulation.coflows.keys().all(|id| control_plane.is_completed(id) == Some(true)) {
            assert_eq!(control_plane.active_coflow_count(), 0);
            let forwarded = forwarded + control_plane.forwarded_udp_measurements();
            assert!(forwarded > 0, "{policy}, seed {seed}, step {step}: no measurement was forwarded");
            // Consecutive delays at two hosts could extend the overload, but are rare.
            let longest = max_oversubscribed_steps as f64 * INTERVAL;
            assert!(
                longest <= 3.0 * lease,
                "{policy}, seed {seed}: applied rates exceeded a link for {longest} s"
            );
            return sum(rejected, control_plane.rejected_entries());
        }
    }
    panic!("{policy}, seed {seed}: {} coflows do not complete", control_plane.active_coflow_count());
}

fn run_all_policies(transport: Transport) {
    for policy in ["saath", "aalo", "fair", "varys", "sincronia", "pfp", "philae", "gittins", "weir"] {
        for seed in seeds(6, 60) {
            run_simulation(policy, seed, None, transport, Fabric::OneSwitch);
        }
    }
}

#[test]
fn all_coflows_complete_under_message_loss() {
    run_all_policies(Transport::Datagrams);
}

/// Agents report changes over streams that end and reopen.
#[test]
fn all_coflows_complete_with_delta_reports_over_streams() {
    run_all_policies(Transport::Streams);
}

/// Rates never exceed the uplinks of a leaf, which carry half as much as its hosts.
#[test]
fn ordered_rates_fit_into_oversubscribed_uplinks_under_failures() {
    for policy in ["saath", "aalo", "varys", "sincronia", "pfp", "weir"] {
        for seed in seeds(6, 60) {
            let transport = if seed % 2 == 0 { Transport::Datagrams } else { Transport::Streams };
            run_simulation(policy, seed, None, transport, Fabric::TwoLeaves);
        }
    }
}

/// A misreporting host does not reduce the capacity of others: no link is oversubscribed, and all coflows complete.
#[test]
fn misreporting_agent_is_counted_and_links_are_not_oversubscribed() {
    for policy in ["saath", "aalo", "fair", "varys", "weir"] {
        for seed in 100..104 {
            let run = |transport| run_simulation(policy, seed, Some(HOSTS - 1), transport, Fabric::OneSwitch);
            let rejected = run(Transport::Datagrams);
            assert!(
                rejected.above_link_rate > 0 && rejected.decreasing > 0 && rejected.foreign_flow > 0,
                "{policy}, seed {seed}: {rejected:?}"
            );
            // Over streams, the falsified reports contain more than the changes.
            let rejected = run(Transport::Streams);
            assert!(
                rejected.above_link_rate > 0 && rejected.foreign_flow > 0,
                "{policy}, seed {seed}: {rejected:?}"
            );
        }
    }
}

/// Demands of observed connections change at random, streams end and coordinators are replaced. Limits never exceed a link
/// and hold no longer than their lease. After messages are delivered, each host has the limits that the coordinator computed
/// for its demands.
#[test]
fn service_limits_hold_for_their_lease_under_stream_failures() {
    seeds(6, 60).for_each(run_limit_simulation);
}

/// The number of a service and its only application, and the receiving host.
type ServiceAndHost = (u32, u32);

fn allocating_plane(epoch: u64) -> ControlPlane {
    let addresses = (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    let mut plane = control_plane("fair", epoch).with_allocation(addresses);
    let service_of_application = (0..2u32).map(|service| (format!("s{service}").into(), service)).collect();
    plane.set_services(
        ServiceWeights::new(vec![1.0, 2.0], Some(&[2.0, 1.0]), service_of_application).unwrap(),
    );
    plane
}

fn observed((service, to): ServiceAndHost, demand: Option<Demand>) -> ObservedConnections {
    let open_connections = u32::from(demand.is_some());
    let (peer, demand) = (address(to).into(), demand.unwrap_or_default());
    ObservedConnections {
        application: format!("s{service}").into(),
        peer,
        open_connections,
        sent_bytes: 1,
        demand,
    }
}

fn run_limit_simulation(seed: u64) {
    let mut world = Simulation::new(seed, Transport::Streams, Fabric::OneSwitch);
    let mut demands: Vec<BTreeMap<ServiceAndHost, Demand>> = vec![BTreeMap::new(); HOSTS as usize];
    let mut reported = demands.clone();
    let (mut epoch, mut is_running) = (1, true);
    let mut plane = allocating_plane(epoch);
    let mut lease_end = vec![0.0; HOSTS as usize];
    let lease = Settings::default().lease;
    let mut applied_limit_count = 0;
    for step in 0..800u64 {
        let (now, is_faulty) = (step as f64 * INTERVAL, step < 600);
        if is_faulty && world.one_in(80) {
            is_running = false;
        } else if !is_running && (!is_faulty || world.one_in(10)) {
            (epoch, is_running) = (epoch + 1, true);
            plane = allocating_plane(epoch);
        }
        for host in 0..HOSTS {
            let index = host as usize;
            if is_faulty && world.one_in(8) {
                let peer = (world.random.next_u32() % 2, world.random.next_u32() % HOSTS);
                match world.random.next_u32() % 4 {
                    0 => demands[index].remove(&peer),
                    1 => demands[index]
                        .insert(peer, Demand::Rate(u64::from(world.random.next_u32() % 600_000))),
                    _ => demands[index].insert(peer, Demand::Unlimited),
                };
            }
            let ends = !is_running || is_faulty && world.one_in(60);
            if world.hosts[index].is_connected && ends {
                world.close_stream(host);
            } else if !world.hosts[index].is_connected && !ends {
                (world.hosts[index].is_connected, world.hosts[index].report_history) =
                    (true, ReportHistory::default());
                reported[index].clear();
                plane.require_full_order(host);
                plane.clear_observed(host);
            }
        }
        for (host, order) in take_arrived(&mut world.orders, step) {
            let lease_state = &mut world.hosts[host as usize].lease_state;
            match lease_state.accept(order, Duration::from_secs_f64(now)) {
                Ok(()) => lease_end[host as usize] = now + lease,
                Err(RefusalReason::StaleEpoch | RefusalReason::Duplicate | RefusalReason::Gap) => {}
                Err(reason) => panic!("seed {seed}, step {step}: order refused: {reason}"),
            }
        }
        for host in 0..HOSTS {
            let index = host as usize;
            let time = Duration::from_secs_f64(now);
            for &limit in world.hosts[index].lease_state.limits(time).into_iter().flat_map(BTreeMap::values) {
                applied_limit_count += 1;
                assert!(limit > 0 && limit as f64 <= LINK_RATE, "seed {seed}, step {step}: {limit}");
                assert!(now < lease_end[index], "seed {seed}, step {step}: a limit without a lease");
            }
            if !world.hosts[index].is_connected {
                continue;
            }
            let removed = reported[index].keys().filter(|peer| !demands[index].contains_key(peer));
            let mut report_delta: Vec<ObservedConnections> =
                removed.map(|&peer| observed(peer, None)).collect();
            let changed =
                demands[index].iter().filter(|(peer, demand)| reported[index].get(peer) != Some(demand));
            report_delta.extend(changed.map(|(&peer, &demand)| observed(peer, Some(demand))));
            reported[index].clone_from(&demands[index]);
            let lease_state = &world.hosts[index].lease_state;
            let report =
                Report { applied: lease_state.applied(), observed: report_delta, ..Report::default() };
            let max_silence_time =
                max_report_interval(lease_state.lease(), Duration::from_secs_f64(INTERVAL));
            if world.hosts[index].report_history.is_due(&report, max_silence_time, time) {
                world.send_message(|world| &mut world.reports, step, host, report, is_faulty);
            }
        }
        let reports = take_arrived(&mut world.reports, step);
        if !is_running {
            continue;
        }
        reports.iter().for_each(|(host, report)| plane.report(*host, report, now));
        for (host, order) in plane.tick(now) {
            if world.hosts[host as usize].is_connected {
                world.send_message(|world| &mut world.orders, step, host, order, is_faulty);
            }
        }
    }
    assert!(applied_limit_count > 1000, "seed {seed}: {applied_limit_count} limits were applied");
    // The final limits of all traffic that crosses a link.
    let (computed_limits, mut links) = (plane.limits(), [[0.0; HOSTS as usize]; 2]);
    for host in 0..HOSTS {
        let applied_limits =
            world.hosts[host as usize].lease_state.limits(Duration::from_secs_f64(800.0 * INTERVAL));
        let own_demands = demands[host as usize].iter().filter(|((_, to), _)| *to != host);
        let crossing_demands: BTreeMap<ServiceAndHost, Demand> =
            own_demands.map(|(&peer, &demand)| (peer, demand)).collect();
        assert_eq!(applied_limits.unwrap().len(), crossing_demands.len(), "seed {seed}, host {host}");
        for ((service, to), demand) in crossing_demands {
            let peer = (format!("s{service}").into(), address(to).into());
            let limit = applied_limits.unwrap()[&peer] as f64;
            let computed = computed_limits[&(host, peer.0, peer.1)] as f64;
            assert!(
                (limit - computed).abs() <= 0.011 * computed + 1.0,
                "seed {seed}: limit {limit} is applied, {computed} was computed"
            );
            if demand == Demand::Unlimited {
                links[0][host as usize] += computed;
                links[1][to as usize] += computed;
            }
        }
    }
    assert!(links.into_iter().flatten().all(|sum| sum <= 0.99 * LINK_RATE + 100.0), "seed {seed}: {links:?}");
}
