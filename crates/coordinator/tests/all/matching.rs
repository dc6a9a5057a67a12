//! Tests of `policy = "django"`: the control plane as the tracker, and agents that decide as receivers.
//!
//! Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21, sections 4 and 5.1.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_agent::lease::{FlowLimit, LeaseState, RefusalReason};
use weir_agent::matching::Matching;
use weir_coordinator::config;
use weir_coordinator::control_plane::{
    ConnectionPredictor, ControlPlane, FlowKey, FlowProgress, LivePolicy, Order, OrderedRate, Registration,
    Report, SenderState, Settings,
};
use weir_core::django::{BufferPredictor, ConnectionCount, CountSettings};
use weir_core::model::ServiceNames;
use weir_core::policy::{build, django_settings};
use weir_core::solve::connections::{Connection, ConnectionSolver};
use weir_core::units::Rate;
use weir_proto::{ConnectionChange, FlowSegments, MatchingOrder, MatchingReport, Question};

use crate::campaign::seeds;
use crate::small_cluster::{HOSTS, INTERVAL, LINK_RATE, equal_links, registration};

/// The number of connections of each host.
const CONNECTIONS: usize = 3;

fn matching_plane(epoch: u64) -> ControlPlane {
    let settings = django_settings(&format!("django:connections={CONNECTIONS}")).unwrap().unwrap();
    let policy = LivePolicy::matching(settings);
    ControlPlane::new(equal_links(), policy, ServiceNames::default(), Settings::default(), epoch).unwrap()
}

/// A coflow whose generation is unique.
fn generation(number: u64, flows: &[(u32, u32, f64)]) -> Registration {
    Registration { generation: number, ..registration(flows) }
}

fn key(coflow: &str, generation: u64, flow: u32) -> FlowKey {
    FlowKey { coflow: coflow.into(), generation, flow }
}

fn gated(key: FlowKey, sent: u64, state: SenderState) -> FlowProgress {
    FlowProgress { gated: true, ..FlowProgress::new(key, sent, state) }
}

/// The hosts report, each with its flows and its part, and get their next orders.
struct Bed {
    plane: ControlPlane,
    now: f64,
}

impl Bed {
    fn step(
        &mut self,
        reports: [(Vec<FlowProgress>, Option<MatchingReport>); HOSTS as usize],
    ) -> BTreeMap<u32, Order> {
        for (host, (flows, matching)) in (0..).zip(reports) {
            let applied = (1, self.plane.host_statuses()[host as usize].ordered_seq);
            let report = Report { applied, flows, matching, ..Report::default() };
            self.plane.report(host, &report, self.now);
        }
        let orders = self.plane.tick(self.now).into_iter().collect();
        self.now += INTERVAL;
        orders
    }
}

/// A report of a host without news.
fn idle() -> (Vec<FlowProgress>, Option<MatchingReport>) {
    let matching = MatchingReport {
        vacant_uplink: LINK_RATE as u64,
        vacant_downlink: LINK_RATE as u64,
        ..MatchingReport::default()
    };
    (Vec::new(), Some(matching))
}

fn deciding(
    questions: Vec<Question>,
    changes: Vec<ConnectionChange>,
) -> (Vec<FlowProgress>, Option<MatchingReport>) {
    let (flows, matching) = idle();
    (flows, matching.map(|matching| MatchingReport { questions, changes, ..matching }))
}

fn rate_of(order: Option<&Order>, key: &FlowKey) -> Option<OrderedRate> {
    order?.flows.iter().find(|(flow, _)| flow == key).map(|(_, rate)| *rate)
}

/// Table 1: each message, from the registration to the completion of a flow.
#[test]
fn flows_send_from_send_start_to_send_pause_and_from_send_recovery_on() {
    let mut bed = Bed { plane: matching_plane(1), now: 0.0 };
    let first = bed.step([idle(), idle(), idle(), idle()]);
    let part = first[&2].matching.as_ref().expect("a full order begins the part of a host");
    assert_eq!((part.max_connections, part.alpha, part.beta), (CONNECTIONS as u32, 0.1, 0.7));
    bed.plane.register("a", generation(7, &[(0, 2, 5e5), (1, 2, 3e5)]), bed.now).unwrap();
    let flows = [key("a", 7, 0), key("a", 7, 1)];
    let ready = |flow: usize, sent| (vec![gated(flows[flow].clone(), sent, SenderState::Ready)], idle().1);
    let orders = bed.step([ready(0, 0), ready(1, 0), idle(), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flows[0]), Some(OrderedRate::Paused));
    let part = orders[&2].matching.as_ref().unwrap();
    let known: Vec<_> =
        part.flows.iter().map(|flow| (flow.coflow, flow.flow, flow.remaining_bytes, flow.version)).collect();
    assert_eq!((known, &part.coflows), (vec![(7, 0, 500_000, 0), (7, 1, 300_000, 0)], &vec![(7, 800_000)]));

    // REQ_CANDIDATE: both uplinks are idle, so the flow with more bytes is first.
    let question = Question { coflow: 7, number: 4, is_prioritized: true };
    let orders = bed.step([idle(), idle(), deciding(vec![question], Vec::new()), idle()]);
    let answer = &orders[&2].matching.as_ref().unwrap().answers[0];
    assert_eq!((answer.coflow, answer.number, &answer.candidates[..]), (7, 4, &[0, 1][..]));

    // REPLY_CHOSEN leads to SEND_START.
    let change = |version| vec![ConnectionChange { coflow: 7, flow: 0, version }];
    let orders = bed.step([idle(), idle(), deciding(Vec::new(), change(1)), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flows[0]), Some(OrderedRate::Unlimited));
    assert_eq!(rate_of(orders.get(&1), &flows[1]), None);
    // The order confirms the change.
    assert_eq!(orders[&2].matching.as_ref().unwrap().flows[0].version, 1);
    // SEND_PAUSE, and an older change that arrives late.
    let orders = bed.step([ready(0, 1000), idle(), deciding(Vec::new(), change(2)), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flows[0]), Some(OrderedRate::Paused));
    let orders = bed.step([idle(), idle(), deciding(Vec::new(), change(1)), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flows[0]), None);
    // SEND_RECOVERY.
    let orders = bed.step([idle(), idle(), deciding(Vec::new(), change(3)), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flows[0]), Some(OrderedRate::Unlimited));
    // The receiver learns of the completion, and of a flow whose program has no data.
    let completed = vec![gated(flows[0].clone(), 500_000, SenderState::Completed)];
    let without_data = vec![gated(flows[1].clone(), 0, SenderState::Idle)];
    let orders = bed.step([(completed, idle().1), (without_data, idle().1), idle(), idle()]);
    let part = orders[&2].matching.as_ref().unwrap();
    assert_eq!(part.flows.iter().map(|flow| flow.remaining_bytes).collect::<Vec<_>>(), [0, 0]);
    let orders = bed.step([idle(), ready(1, 0), idle(), idle()]);
    assert_eq!(orders[&2].matching.as_ref().unwrap().flows[0].remaining_bytes, 300_000);
    let counts = bed.plane.matching_messages().unwrap().by_name();
    let expected = [
        ("REQ_CANDIDATE", 1),
        ("REPLY_CHOSEN", 2),
        ("SEND_START", 1),
        ("SEND_PAUSE", 1),
        ("SEND_RECOVERY", 1),
    ];
    assert_eq!(counts, expected);
}

#[test]
fn connection_ends_with_its_data_and_with_its_sender() {
    let mut bed = Bed { plane: matching_plane(1), now: 0.0 };
    bed.step([idle(), idle(), idle(), idle()]);
    bed.plane.register("a", generation(1, &[(0, 2, 5e5)]), bed.now).unwrap();
    let flow = key("a", 1, 0);
    let report = |state| (vec![gated(flow.clone(), 0, state)], idle().1);
    bed.step([report(SenderState::Ready), idle(), idle(), idle()]);
    let open = |version| deciding(Vec::new(), vec![ConnectionChange { coflow: 1, flow: 0, version }]);
    let orders = bed.step([idle(), idle(), open(1), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flow), Some(OrderedRate::Unlimited));
    // Without data, the flow has no connection, and when it has data again, it waits for one.
    let orders = bed.step([report(SenderState::Idle), idle(), idle(), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flow), Some(OrderedRate::Paused));
    let orders = bed.step([report(SenderState::Ready), idle(), idle(), idle()]);
    assert_eq!(orders[&2].matching.as_ref().unwrap().flows[0].version, 2);
    let orders = bed.step([idle(), idle(), open(3), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flow), Some(OrderedRate::Unlimited));
    // Another host sends the flow.
    bed.plane.update("a", &generation(1, &[(1, 2, 5e5)]).flows, bed.now).unwrap();
    let orders = bed.step([idle(), report(SenderState::Ready), idle(), idle()]);
    assert_eq!(rate_of(orders.get(&0), &flow), Some(OrderedRate::Removed));
    assert_eq!(rate_of(orders.get(&1), &flow), Some(OrderedRate::Paused));
    assert_eq!(orders[&2].matching.as_ref().unwrap().flows[0].version, 0);
}

#[test]
fn bytes_of_huge_coflows_do_not_overflow() {
    let mut bed = Bed { plane: matching_plane(1), now: 0.0 };
    bed.step([idle(), idle(), idle(), idle()]);
    bed.plane.register("a", generation(1, &[(0, 2, 1.8e19), (1, 2, 1.8e19)]), bed.now).unwrap();
    let orders = bed.step([idle(), idle(), idle(), idle()]);
    assert_eq!(orders[&2].matching.as_ref().unwrap().coflows, [(1, u64::MAX)]);
}

#[test]
fn flows_to_a_host_without_an_agent_wait_for_two_leases_at_most() {
    let mut bed = Bed { plane: matching_plane(1), now: 0.0 };
    bed.plane.register("a", generation(1, &[(0, 2, 5e5)]), 0.0).unwrap();
    let flow = key("a", 1, 0);
    let mut freed_at = None;
    while freed_at.is_none() && bed.now < 1.0 {
        let applied = (1, bed.plane.host_statuses()[0].ordered_seq);
        let flows = vec![gated(flow.clone(), 0, SenderState::Ready)];
        bed.plane.report(0, &Report { applied, flows, matching: idle().1, ..Report::default() }, bed.now);
        let orders: BTreeMap<u32, Order> = bed.plane.tick(bed.now).into_iter().collect();
        if rate_of(orders.get(&0), &flow) == Some(OrderedRate::Unlimited) {
            freed_at = Some(bed.now);
        }
        bed.now += INTERVAL;
    }
    let lease = Settings::default().lease;
    let freed_at = freed_at.expect("the flow sends");
    assert!((2.0 * lease..2.0 * lease + 2.0 * INTERVAL).contains(&freed_at), "{freed_at}");
}

#[test]
fn another_policy_ends_the_part_of_all_hosts() {
    let mut bed = Bed { plane: matching_plane(1), now: 0.0 };
    bed.step([idle(), idle(), idle(), idle()]);
    bed.plane.register("a", generation(1, &[(0, 2, 5e5)]), bed.now).unwrap();
    let ready = || (vec![gated(key("a", 1, 0), 0, SenderState::Ready)], idle().1);
    let orders = bed.step([ready(), idle(), idle(), idle()]);
    assert_eq!(rate_of(orders.get(&0), &key("a", 1, 0)), Some(OrderedRate::Paused));
    bed.plane.set_policy(build("saath").unwrap(), bed.now).unwrap();
    let orders = bed.step([ready(), idle(), idle(), idle()]);
    assert!(orders.values().all(|order| order.is_full && order.matching.is_none()) && orders.len() == 4);
    assert_eq!(rate_of(orders.get(&0), &key("a", 1, 0)), Some(OrderedRate::Unlimited));
    // And back.
    bed.plane.set_policy(LivePolicy::matching(django_settings("django").unwrap().unwrap()), bed.now).unwrap();
    let orders = bed.step([ready(), idle(), idle(), idle()]);
    let part = orders[&2].matching.as_ref().unwrap();
    assert_eq!((part.max_connections, part.flows.len()), (11, 1));
    let mut without_size = generation(2, &[(0, 1, 1.0)]);
    without_size.flows[0].bytes = None;
    assert!(bed.plane.register("b", without_size, bed.now).is_err(), "Django needs sizes");
}

/// Loses the packets for which a buffer has no room, and marks none.
#[derive(Debug)]
struct Room;

impl BufferPredictor for Room {
    fn predict_buffer(&self, loss: f64, connections: u32) -> u32 {
        ((1.0 - loss) * f64::from(connections)).round() as u32
    }
}

/// A plane whose hosts begin with [`CONNECTIONS`], and change that with windows of ten intervals.
fn predicting_plane() -> ControlPlane {
    let settings = CountSettings {
        window: 9.5 * INTERVAL,
        min_segments: 100,
        min_loss: 0.001,
        growth_windows: 3,
        marking_threshold: 0,
        max_connections: 5,
    };
    matching_plane(1).with_connection_predictor(ConnectionPredictor { buffers: Arc::new(Room), settings })
}

/// What a host sends in an interval with these losses, in percent.
fn sending(flows: &[(u32, u32)]) -> (Vec<FlowProgress>, Option<MatchingReport>) {
    let to_segments = |&(flow, retransmitted)| FlowSegments { coflow: 7, flow, segments: 100, retransmitted };
    let segments = flows.iter().map(to_segments).collect();
    (Vec::new(), idle().1.map(|matching| MatchingReport { segments, ..matching }))
}

/// Three flows each to hosts 2 and 3; those to host 2 lose packets.
#[test]
fn number_of_connections_of_each_host_follows_the_loss_of_the_flows_to_it() {
    let mut bed = Bed { plane: predicting_plane(), now: 0.0 };
    bed.step([idle(), idle(), idle(), idle()]);
    let flows = [(0, 2, 1e9), (1, 2, 1e9), (0, 3, 1e9), (1, 3, 1e9), (0, 2, 1e9), (0, 3, 1e9)];
    bed.plane.register("a", generation(7, &flows), bed.now).unwrap();
    let ready = |flows: &[u32]| {
        let progress = |&flow| gated(key("a", 7, flow), 0, SenderState::Ready);
        (flows.iter().map(progress).collect(), idle().1)
    };
    bed.step([ready(&[0, 2, 4, 5]), ready(&[1, 3]), idle(), idle()]);
    let open = |flows: [u32; 3]| {
        let change = |flow| ConnectionChange { coflow: 7, flow, version: 1 };
        deciding(Vec::new(), flows.map(change).to_vec())
    };
    bed.step([idle(), idle(), open([0, 1, 4]), open([2, 3, 5])]);
    let mut orders = [Vec::new(), Vec::new()];
    while bed.now < 55.0 * INTERVAL {
        // Host 1 has no say in the flow from host 0 to host 3.
        let reports = [sending(&[(0, 34), (2, 0), (4, 34), (5, 0)]), sending(&[(1, 34), (2, 100), (3, 0)])];
        let [first, second] = reports;
        for (host, order) in bed.step([first, second, idle(), idle()]) {
            if let Some(part) = order.matching.filter(|_| host >= 2) {
                orders[host as usize - 2].push(part.max_connections);
            }
        }
    }
    // A loss of a third of three connections: room for two. Then the flow that the receiver does not close has the same loss.
    for numbers in &mut orders {
        numbers.dedup();
    }
    assert_eq!(orders, [vec![2], vec![4]]);
    let counts: Vec<_> = bed.plane.host_statuses().iter().map(|host| host.max_connections).collect();
    assert_eq!(counts, [Some(3), Some(3), Some(2), Some(4)]);
    // Another policy, and back.
    bed.plane.set_policy(build("saath").unwrap(), bed.now).unwrap();
    assert!(bed.plane.host_statuses().iter().all(|host| host.max_connections.is_none()));
    bed.plane.set_policy(LivePolicy::matching(django_settings("django").unwrap().unwrap()), bed.now).unwrap();
    let orders = bed.step([idle(), idle(), idle(), idle()]);
    assert_eq!(orders[&2].matching.as_ref().unwrap().max_connections, 11);
}

/// The median loss of each measured number of connections at each buffer.
fn measured_losses(folder: &Path) -> BTreeMap<u32, BTreeMap<u32, f64>> {
    let text = fs::read_to_string(folder.join("steady-dctcp.csv")).unwrap();
    let mut runs: BTreeMap<u32, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let (buffer, connections) = (cells[0].parse().unwrap(), cells[1].parse().unwrap());
        runs.entry(buffer).or_default().entry(connections).or_default().push(cells[6].parse().unwrap());
    }
    let median = |mut losses: Vec<f64>| {
        losses.sort_by(f64::total_cmp);
        losses[losses.len() / 2]
    };
    let medians = |runs: BTreeMap<u32, Vec<f64>>| runs.into_iter().map(|(n, all)| (n, median(all))).collect();
    runs.into_iter().map(|(buffer, runs)| (buffer, medians(runs))).collect()
}

/// The loss between measured numbers of connections.
fn interpolate(losses: &BTreeMap<u32, f64>, connections: u32) -> f64 {
    let (&below, &low) = losses.range(..=connections).next_back().expect("one connection is measured");
    match losses.range(connections..).next() {
        Some((&above, &high)) if above > below => {
            low + (high - low) * f64::from(connections - below) / f64::from(above - below)
        }
        _ => low,
    }
}

/// The loop of the measured losses, the shipped model and the number of connections.
#[test]
fn number_of_connections_by_the_shipped_model_is_about_that_of_the_theorem() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/incast");
    let text = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"django\"\n[django]\nmodel = \"steady-model.toml\"\n\
                [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n[host]\na = \"1Gbit\"\n";
    let predictor = config::parse(text, "serve.toml", &folder).unwrap().connection_model.unwrap().predictor;
    let settled = |losses: &BTreeMap<u32, f64>, first: u32| {
        let (mut count, mut numbers) = (ConnectionCount::new(first, 0.0), Vec::new());
        for window in 1..=1600 {
            let loss = interpolate(losses, count.get());
            count.record_segments(10_000, (10_000.0 * loss) as u64);
            count.record_connections(count.get(), true, 1.0);
            count.update(&predictor.settings, &*predictor.buffers, f64::from(window));
            numbers.push(count.get());
        }
        let last = &numbers[1000..];
        f64::from(last.iter().sum::<u32>()) / last.len() as f64
    };
    for (buffer, losses) in measured_losses(&folder) {
        let CountSettings { marking_threshold, max_connections, .. } = predictor.settings;
        let expected = f64::from((buffer - marking_threshold).min(max_connections));
        for first in [1, 11, 200] {
            let number = settled(&losses, first);
            eprintln!("{buffer} packets, from {first} connections: {number:.1}");
            assert!(
                (number - expected).abs() <= 0.2 * expected,
                "{buffer}, {first}: {number}, not {expected}"
            );
        }
    }
}

/// A host of a simulated cluster.
struct Host {
    lease: LeaseState,
    matching: Matching,
    sent_bytes: BTreeMap<FlowKey, f64>,
    /// What the interface has sent and received.
    counters: [f64; 2],
    is_connected: bool,
}

impl Host {
    fn new() -> Host {
        let link = Rate::new(LINK_RATE).unwrap();
        Host {
            lease: LeaseState::new(vec![link]),
            matching: Matching::new(link),
            sent_bytes: BTreeMap::new(),
            counters: [0.0; 2],
            is_connected: false,
        }
    }
}

/// Messages on the way of one kind: each with the step of its arrival, and its host.
type Messages<T> = VecDeque<(u64, u32, T)>;

/// A cluster whose messages are late; streams, agents and the coordinator end and start again until [`FAULTY_STEPS`].
struct Cluster {
    random: ChaCha8Rng,
    has_faults: bool,
    plane: ControlPlane,
    epoch: u64,
    is_running: bool,
    hosts: Vec<Host>,
    coflows: BTreeMap<String, Registration>,
    orders: Messages<Order>,
    reports: Messages<Report>,
    solver: ConnectionSolver,
}

/// Coflows arrive until this step.
const FAULTY_STEPS: u64 = 400;

/// By this time after the last fault, in steps, all leases of lost agents and coordinators have ended.
const RECOVERY_STEPS: u64 = 60;

impl Cluster {
    fn new(seed: u64, has_faults: bool) -> Cluster {
        Cluster {
            random: ChaCha8Rng::seed_from_u64(seed),
            has_faults,
            plane: matching_plane(1),
            epoch: 1,
            is_running: true,
            hosts: std::iter::repeat_with(Host::new).take(HOSTS as usize).collect(),
            coflows: BTreeMap::new(),
            orders: Messages::new(),
            reports: Messages::new(),
            solver: ConnectionSolver::default(),
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.next_u32().is_multiple_of(n)
    }

    /// The step at which a message of a host arrives: no message of a stream overtakes another.
    fn arrival<T>(&mut self, queue: fn(&Cluster) -> &Messages<T>, step: u64, host: u32) -> u64 {
        let delay = u64::from(self.random.next_u32() % 4);
        let last = queue(self).iter().rev().find(|message| message.1 == host).map_or(0, |message| message.0);
        last.max(step + 1 + delay)
    }

    fn add_coflow(&mut self, step: u64, now: f64) {
        let count = 1 + self.random.next_u32() % 12;
        let flow = |random: &mut ChaCha8Rng| {
            let (src, dst) = (random.next_u32() % HOSTS, random.next_u32() % HOSTS);
            (src, dst, f64::from(1 + random.next_u32() % 60_000))
        };
        let flows: Vec<_> = (0..count).map(|_| flow(&mut self.random)).collect();
        let (id, requested) = (format!("c{step}"), generation(step + 1, &flows));
        if self.is_running {
            self.plane.register(&id, requested.clone(), now).unwrap();
        }
        self.coflows.insert(id, requested);
    }

    /// Lets a coordinator, agents or streams end, or start again.
    fn break_and_repair(&mut self, step: u64, now: f64) {
        let is_faulty = self.has_faults && step < FAULTY_STEPS;
        if is_faulty && self.one_in(100) {
            self.is_running = false;
        } else if !self.is_running && (!is_faulty || self.one_in(20)) {
            (self.epoch, self.is_running) = (self.epoch + 1, true);
            self.plane = matching_plane(self.epoch);
            for (id, registration) in &self.coflows {
                self.plane.register(id, registration.clone(), now).unwrap();
            }
        }
        for host in 0..HOSTS {
            let index = host as usize;
            if is_faulty && self.one_in(150) {
                // The agent starts again; programs hand over their sockets again.
                let old = std::mem::replace(&mut self.hosts[index], Host::new());
                (self.hosts[index].sent_bytes, self.hosts[index].counters) = (old.sent_bytes, old.counters);
                self.close_stream(host);
            }
            let ends = !self.is_running || is_faulty && self.one_in(80);
            if self.hosts[index].is_connected && ends {
                self.close_stream(host);
            } else if !self.hosts[index].is_connected && !ends && (!is_faulty || self.one_in(5)) {
                self.hosts[index].is_connected = true;
                self.plane.require_full_order(host);
                self.plane.start_grace_periods(host);
            }
        }
    }

    fn close_stream(&mut self, host: u32) {
        self.hosts[host as usize].is_connected = false;
        self.orders.retain(|message| message.1 != host);
        self.reports.retain(|message| message.1 != host);
    }

    /// The flows with data, with their hosts.
    fn waiting_flows(&self) -> Vec<(FlowKey, usize, usize)> {
        let mut waiting = Vec::new();
        for (id, registration) in &self.coflows {
            for (index, flow) in (0..).zip(&registration.flows) {
                let key = key(id, registration.generation, index);
                let sent = self.hosts[flow.src as usize].sent_bytes.get(&key).copied().unwrap_or(0.0);
                if sent < flow.bytes.unwrap().get() {
                    waiting.push((key, flow.src as usize, flow.dst as usize));
                }
            }
        }
        waiting
    }

    /// The flows that send, by the orders of their hosts.
    fn sending_flows(&self, now: Duration) -> Vec<(FlowKey, usize, usize)> {
        let mut flows = self.waiting_flows();
        flows.retain(|(key, src, _)| {
            let lease = &self.hosts[*src].lease;
            // New flows wait for their first order.
            let is_new = lease.is_lease_valid(now) && !lease.names_flow(key);
            // Programs pause in place of a share of the reserve, too.
            !is_new && lease.flow_limit(key, now) == FlowLimit::Unlimited
        });
        flows
    }

    /// Lets flows send for a step, as TCP divides links.
    fn send(&mut self, now: Duration) -> usize {
        let sending = self.sending_flows(now);
        let connection = |&(_, src, dst): &(FlowKey, usize, usize)| Connection {
            src: src as u32,
            dst: dst as u32,
            rank: 0,
        };
        let connections: Vec<Connection> = sending.iter().map(connection).collect();
        let links = [LINK_RATE; HOSTS as usize];
        let mut rates = Vec::new();
        self.solver.compute_rates(&links, &links, &connections, &mut rates);
        for ((key, src, dst), rate) in sending.iter().zip(&rates) {
            let bytes = rate * INTERVAL;
            self.hosts[*src].counters[0] += bytes;
            self.hosts[*dst].counters[1] += bytes;
            *self.hosts[*src].sent_bytes.entry(key.clone()).or_insert(0.0) += bytes;
        }
        sending.len()
    }

    /// Agents apply orders.
    fn receive_orders(&mut self, step: u64, now: Duration) {
        while let Some(at) = self.orders.iter().position(|message| message.0 <= step) {
            let (_, host, mut order) = self.orders.remove(at).unwrap();
            let host = &mut self.hosts[host as usize];
            let (matching, is_full, lease) = (order.matching.take(), order.is_full, order.lease);
            match host.lease.accept(order, now) {
                Ok(()) => host.matching.apply(matching, is_full, lease, now),
                Err(RefusalReason::StaleEpoch | RefusalReason::Duplicate | RefusalReason::Gap) => {}
                Err(reason) => panic!("order refused: {reason}"),
            }
        }
    }

    /// Agents measure, decide and report.
    fn report(&mut self, step: u64, now: Duration) {
        for host in 0..HOSTS {
            let index = host as usize;
            let mut flows = Vec::new();
            for (id, registration) in &self.coflows {
                for (flow, transfer) in (0..).zip(&registration.flows).filter(|(_, flow)| flow.src == host) {
                    let key = key(id, registration.generation, flow);
                    let size = transfer.bytes.unwrap().get();
                    let sent = self.hosts[index].sent_bytes.get(&key).copied().unwrap_or(0.0).min(size);
                    let state = if sent >= size { SenderState::Completed } else { SenderState::Ready };
                    flows.push(gated(key, sent as u64, state));
                }
            }
            flows.sort_by(|a, b| a.key.cmp(&b.key));
            let agent = &mut self.hosts[index];
            agent.matching.update(agent.counters.map(|bytes| bytes as u64), LINK_RATE, now);
            if agent.is_connected {
                let matching = agent.matching.report().filter(|_| agent.lease.is_lease_valid(now));
                let applied = agent.lease.applied();
                agent.matching.confirm_report();
                let report = Report { applied, flows, matching, ..Report::default() };
                let arrival = self.arrival(|cluster| &cluster.reports, step, host);
                self.reports.push_back((arrival, host, report));
            }
        }
    }

    fn schedule(&mut self, step: u64, now: f64) {
        if !self.is_running {
            return;
        }
        while let Some(at) = self.reports.iter().position(|message| message.0 <= step) {
            let (_, host, report) = self.reports.remove(at).unwrap();
            self.plane.report(host, &report, now);
        }
        for (host, order) in self.plane.tick(now) {
            if self.hosts[host as usize].is_connected {
                let arrival = self.arrival(|cluster| &cluster.orders, step, host);
                self.orders.push_back((arrival, host, order));
            }
        }
    }
}

/// Runs a cluster until all coflows are complete, and checks that:
///
/// - all coflows complete, whatever failed before;
/// - without recent faults, no host receives over more connections than it may have;
/// - without any fault, no time in which nothing sends is longer than the messages for a connection take.
fn run_cluster(seed: u64, has_faults: bool) {
    let mut cluster = Cluster::new(seed, has_faults);
    let mut silent_steps = 0;
    let mut most_connections = 0;
    for step in 0..6000u64 {
        let now = step as f64 * INTERVAL;
        let time = Duration::from_secs_f64(now);
        if step < FAULTY_STEPS && step % 20 == 0 {
            cluster.add_coflow(step, now);
        }
        cluster.break_and_repair(step, now);
        cluster.receive_orders(step, time);
        let is_quiet = !has_faults || step >= FAULTY_STEPS + RECOVERY_STEPS;
        // Before their first order, flows of a new host are plain TCP.
        if is_quiet && step > RECOVERY_STEPS {
            let mut counts = [0; HOSTS as usize];
            cluster.sending_flows(time).iter().for_each(|(_, _, dst)| counts[*dst] += 1);
            let most = counts.into_iter().max().unwrap();
            most_connections = most_connections.max(most);
            // A connection that closes sends until its sender has the order.
            assert!(most <= 2 * CONNECTIONS, "seed {seed}, step {step}: {counts:?} connections");
        }
        silent_steps =
            if cluster.send(time) > 0 || cluster.waiting_flows().is_empty() { 0 } else { silent_steps + 1 };
        // Six messages of up to four steps each, and the waits for the next schedule.
        let longest = if has_faults { 100 } else { 40 };
        assert!(
            !is_quiet || silent_steps <= longest,
            "seed {seed}, step {step}: nothing sends for {silent_steps} steps"
        );
        cluster.report(step, time);
        cluster.schedule(step, now);
        let is_completed = |id: &String| cluster.plane.is_completed(id) == Some(true);
        if step >= FAULTY_STEPS && cluster.is_running && cluster.coflows.keys().all(is_completed) {
            return;
        }
    }
    panic!("seed {seed}: {} coflows do not complete", cluster.plane.active_coflow_count());
}

#[test]
fn late_messages_stop_no_cluster() {
    seeds(20, 300).for_each(|seed| run_cluster(seed, false));
}

#[test]
fn all_coflows_complete_after_failures_of_streams_agents_and_coordinators() {
    seeds(20, 300).for_each(|seed| run_cluster(seed, true));
}

/// An order without a part, as that of another coordinator, ends the part of a host.
#[test]
fn agents_take_part_from_a_full_order_on() {
    let mut matching = Matching::new(Rate::new(LINK_RATE).unwrap());
    let lease = Duration::from_millis(80);
    assert_eq!(matching.report(), None);
    let part = MatchingOrder { max_connections: 2, beta: 0.7, eta: 0.5, ..MatchingOrder::default() };
    matching.apply(Some(part.clone()), true, lease, Duration::ZERO);
    assert_eq!(matching.report().map(|report| report.vacant_downlink), Some(LINK_RATE as u64));
    matching.apply(None, false, lease, Duration::ZERO);
    assert!(matching.report().is_some());
    matching.apply(None, true, lease, Duration::ZERO);
    assert_eq!(matching.report(), None);
}
