//! Django's state machines in a network that delays, reorders and loses their messages: theorem 4.2, "Django is deadlock-free".
//! Hosts and the tracker may restart.
//!
//! Rates are those of TCP with senders that serve coflows in order ([`ConnectionSolver`]), in steps of a quarter of an interval.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_core::django::{
    CandidateRequest, Change, FlowKey, Params, Receiver, ReducerKey, Request, Sender, Tracker,
};
use weir_core::solve::connections::{Connection, ConnectionSolver};

use crate::common::config_with_cases;

/// The time between two schedules of a host. Links carry a byte in this time.
const INTERVAL: f64 = 1.0;
const STEP: f64 = INTERVAL / 4.0;

/// The time after which a receiver repeats a message.
const TIMEOUT: f64 = 20.0;

/// No replay needs more time.
const MAX_TIME: f64 = 50_000.0;

/// A flow of a case.
#[derive(Debug, Clone)]
struct CaseFlow {
    key: FlowKey,
    src: usize,
    dst: usize,
    bytes: f64,
    start: f64,
}

#[derive(Debug, Clone)]
struct Case {
    hosts: usize,
    connections: usize,
    /// The longest time that a message takes, in intervals.
    max_delay: f64,
    /// The fraction of messages that are lost.
    loss: f64,
    /// The seed of delays and losses.
    seed: u64,
    /// The interval and the state machine of each restart.
    restarts: Vec<(u32, Machine)>,
    flows: Vec<CaseFlow>,
}

/// A state machine; hosts by number.
#[derive(Debug, Clone, Copy)]
enum Machine {
    Tracker,
    Sender(usize),
    Receiver(usize),
}

fn any_machine(hosts: usize) -> impl Strategy<Value = Machine> {
    prop_oneof![
        Just(Machine::Tracker),
        (0..hosts).prop_map(Machine::Sender),
        (0..hosts).prop_map(Machine::Receiver)
    ]
}

fn any_case(loss: f64, max_restarts: usize) -> impl Strategy<Value = Case> {
    (2..6usize, 1..9usize, prop::sample::select(vec![0.0, 0.5, 2.0, 5.0])).prop_flat_map(
        move |(hosts, connections, max_delay)| {
            let flow = (0..hosts, 1..30u32);
            let reducer = (0..hosts, prop::collection::vec(flow, 1..6));
            let coflow = (0..20u32, prop::collection::vec(reducer, 1..4));
            let restart = (0..60u32, any_machine(hosts));
            let restarts = prop::collection::vec(restart, 0..=max_restarts);
            (prop::collection::vec(coflow, 1..6), any::<u64>(), restarts).prop_map(
                move |(coflows, seed, restarts)| {
                    let flows = flows_of(&coflows);
                    Case { hosts, connections, max_delay, loss, seed, restarts, flows }
                },
            )
        },
    )
}

/// A coflow: its start, and its reducers with their host and flows (the sending host, and bytes).
type CaseCoflow = (u32, Vec<(usize, Vec<(usize, u32)>)>);

fn flows_of(coflows: &[CaseCoflow]) -> Vec<CaseFlow> {
    let mut flows = Vec::new();
    for (coflow, (start, reducers)) in (0..).zip(coflows) {
        for (reducer, (dst, sources)) in (0..).zip(reducers) {
            for (flow, &(src, bytes)) in (0..).zip(sources) {
                let key = FlowKey { reducer: ReducerKey { coflow, reducer }, flow };
                let (bytes, start) = (f64::from(bytes), f64::from(*start));
                flows.push(CaseFlow { key, src, dst: *dst, bytes, start });
            }
        }
    }
    flows
}

/// A message between hosts and the tracker.
#[derive(Debug, Clone)]
enum Message {
    /// A request of a receiver, with the residual capacity of its downlink.
    Request(usize, Request, f64),
    /// An answer of the tracker to a host: the reducer, the number of the request, and flows.
    Candidates(usize, ReducerKey, u32, Vec<u32>),
    /// From the tracker to the sender.
    Change(usize, Change),
    /// From the sender to the tracker, and from there to the receiver.
    Acknowledgement(Change),
    ForwardedAcknowledgement(Change),
    /// Reports of hosts in each interval: the residual capacity of an uplink, remaining bytes of flows, and completed flows.
    VacantUplink(usize, f64),
    RemainingBytes(FlowKey, f64),
    Completion(FlowKey),
    /// The remaining bytes of a coflow, for a host.
    CoflowBytes(usize, u64, f64),
}

impl Message {
    /// Whether only a time-out repeats the message. The next interval repeats the others.
    fn is_repeated_late(&self) -> bool {
        !matches!(
            self,
            Message::VacantUplink(..)
                | Message::RemainingBytes(..)
                | Message::Completion(_)
                | Message::CoflowBytes(..)
        )
    }
}

#[derive(Debug)]
struct Flow {
    spec: CaseFlow,
    left: f64,
    rate: f64,
    is_added: bool,
}

impl Flow {
    fn is_active(&self) -> bool {
        self.is_added && self.left > 0.0
    }
}

struct Network<'a> {
    case: &'a Case,
    flows: Vec<Flow>,
    tracker: Tracker,
    receivers: Vec<Receiver>,
    senders: Vec<Sender>,
    vacant_downlinks: Vec<f64>,
    /// Messages with the time of their arrival.
    in_flight: Vec<(f64, Message)>,
    random_state: u64,
    /// The times at which messages were lost that only a time-out repeats, and at which state machines restarted.
    losses: Vec<f64>,
    solver: ConnectionSolver,
    now: f64,
}

fn new_receiver(case: &Case) -> Receiver {
    Receiver::new(Params::default(), case.connections, 1.0, TIMEOUT)
}

fn new_tracker(case: &Case) -> Tracker {
    Tracker::new(Params::default(), case.connections, &vec![1.0; case.hosts])
}

impl Network<'_> {
    fn new(case: &Case) -> Network<'_> {
        let flow =
            |spec: &CaseFlow| Flow { spec: spec.clone(), left: spec.bytes, rate: 0.0, is_added: false };
        Network {
            case,
            flows: case.flows.iter().map(flow).collect(),
            tracker: new_tracker(case),
            receivers: (0..case.hosts).map(|_| new_receiver(case)).collect(),
            senders: (0..case.hosts).map(|_| Sender::default()).collect(),
            vacant_downlinks: vec![1.0; case.hosts],
            in_flight: Vec::new(),
            random_state: case.seed,
            losses: Vec::new(),
            solver: ConnectionSolver::default(),
            now: 0.0,
        }
    }

    fn add_flows(&mut self) {
        for flow in self.flows.iter_mut().filter(|flow| !flow.is_added && flow.spec.start <= self.now) {
            let CaseFlow { key, src, dst, bytes, .. } = flow.spec;
            flow.is_added = true;
            self.tracker.add_flow(key, src as u32, bytes);
            self.receivers[dst].add_flow(key, bytes);
            self.senders[src].add_flow(key);
            let coflow = key.reducer.coflow;
            self.receivers[dst].set_coflow_bytes(coflow, self.tracker.remaining_bytes(coflow));
        }
    }

    fn restart(&mut self, machine: Machine) {
        self.losses.push(self.now);
        let active = self.flows.iter().filter(|flow| flow.is_active());
        match machine {
            Machine::Tracker => {
                self.tracker = new_tracker(self.case);
                active.for_each(|flow| self.tracker.add_flow(flow.spec.key, flow.spec.src as u32, flow.left));
                for change in self.receivers.iter().flat_map(Receiver::changes) {
                    self.tracker.forward(change, &mut 0.0);
                }
            }
            Machine::Sender(host) => {
                self.senders[host] = Sender::default();
                let own = active.filter(|flow| flow.spec.src == host);
                own.for_each(|flow| self.senders[host].add_flow(flow.spec.key));
            }
            Machine::Receiver(host) => {
                let mut receiver = new_receiver(self.case).with_first_version(200 * self.now as u32);
                for flow in active.filter(|flow| flow.spec.dst == host) {
                    receiver.add_flow(flow.spec.key, flow.left);
                    self.tracker.add_flow(flow.spec.key, flow.spec.src as u32, flow.left);
                }
                for change in receiver.changes() {
                    self.tracker.forward(change, &mut 0.0);
                }
                // The next schedule sends these changes to the senders too.
                self.receivers[host] = receiver;
            }
        }
    }

    /// The next number of SplitMix64, from 0 to 1.
    fn random_fraction(&mut self) -> f64 {
        self.random_state = self.random_state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random_state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn send(&mut self, message: Message) {
        let delay = self.random_fraction() * self.case.max_delay;
        if self.random_fraction() >= self.case.loss {
            self.in_flight.push((self.now + delay, message));
        } else if message.is_repeated_late() {
            self.losses.push(self.now);
        }
    }

    /// Lets each host run its schedulers and report.
    fn schedule(&mut self) {
        for host in 0..self.case.hosts {
            let vacant = self.vacant_downlinks[host];
            for flow in self.flows.iter().filter(|flow| flow.is_active() && flow.spec.dst == host) {
                self.receivers[host].record_progress(flow.spec.key, flow.left, flow.rate, self.now);
            }
            let mut requests = Vec::new();
            self.receivers[host].schedule(vacant, self.now, &mut requests);
            requests.into_iter().for_each(|request| self.send(Message::Request(host, request, vacant)));
            self.report(host);
        }
    }

    fn report(&mut self, host: usize) {
        let own = || self.flows.iter().filter(|flow| flow.is_added && flow.spec.src == host);
        let used: f64 = own().map(|flow| flow.rate).sum();
        let progress = own().map(|flow| match flow.is_active() {
            true => Message::RemainingBytes(flow.spec.key, flow.left),
            false => Message::Completion(flow.spec.key),
        });
        let received = self.flows.iter().filter(|flow| flow.is_active() && flow.spec.dst == host);
        let coflows: BTreeMap<u64, f64> = received
            .map(|flow| flow.spec.key.reducer.coflow)
            .map(|coflow| (coflow, self.tracker.remaining_bytes(coflow)))
            .collect();
        let bytes = coflows.into_iter().map(|(coflow, bytes)| Message::CoflowBytes(host, coflow, bytes));
        let vacant = Message::VacantUplink(host, (1.0 - used).max(0.0));
        let messages: Vec<Message> = progress.chain(bytes).chain([vacant]).collect();
        messages.into_iter().for_each(|message| self.send(message));
    }

    /// Delivers the messages that have arrived, in the order of their arrival, and those that they cause without delay.
    fn deliver(&mut self) {
        loop {
            let arrived = self.in_flight.iter().enumerate().filter(|(_, (at, _))| *at <= self.now);
            let Some((first, _)) = arrived.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b)) else { return };
            let (_, message) = self.in_flight.remove(first);
            self.receive(message);
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Request(host, Request::Candidates(request), _) => {
                let CandidateRequest { reducer, number, .. } = request;
                let flows = self.tracker.candidates(&request);
                self.send(Message::Candidates(host, reducer, number, flows));
            }
            Message::Request(_, Request::Change(change), vacant) => {
                if let Some(sender) = self.tracker.forward(change, &mut vacant.clone()) {
                    self.send(Message::Change(sender as usize, change));
                }
            }
            Message::Candidates(host, reducer, number, flows) => {
                let (vacant, mut requests) = (self.vacant_downlinks[host], Vec::new());
                self.receivers[host].on_candidates(reducer, number, &flows, vacant, self.now, &mut requests);
                requests.into_iter().for_each(|request| self.send(Message::Request(host, request, vacant)));
            }
            Message::Change(host, change) => {
                if let Some(newest) = self.senders[host].apply(change) {
                    self.send(Message::Acknowledgement(newest));
                }
            }
            Message::Acknowledgement(change) => self.send(Message::ForwardedAcknowledgement(change)),
            Message::ForwardedAcknowledgement(change) => {
                self.receivers.iter_mut().for_each(|receiver| receiver.on_acknowledged(change));
            }
            Message::VacantUplink(host, vacant) => self.tracker.record_vacant_uplink(host as u32, vacant),
            Message::RemainingBytes(flow, bytes) => self.tracker.record_remaining_bytes(flow, bytes),
            Message::Completion(flow) => self.tracker.remove_flow(flow),
            Message::CoflowBytes(host, coflow, bytes) => self.receivers[host].set_coflow_bytes(coflow, bytes),
        }
    }

    /// Sets the rates of all flows. Returns their sum.
    fn set_rates(&mut self) -> f64 {
        let mut bytes: BTreeMap<u64, f64> = BTreeMap::new();
        for flow in self.flows.iter().filter(|flow| flow.is_active()) {
            *bytes.entry(flow.spec.key.reducer.coflow).or_default() += flow.left;
        }
        let mut order: Vec<u64> = bytes.keys().copied().collect();
        order.sort_by(|a, b| bytes[a].total_cmp(&bytes[b]));
        let senders = &self.senders;
        let is_open = |flow: &Flow| flow.is_active() && senders[flow.spec.src].is_open(flow.spec.key);
        let rank = |coflow| order.iter().position(|&other| other == coflow).unwrap() as u32;
        let connections: Vec<Connection> = self
            .flows
            .iter()
            .filter(|flow| is_open(flow))
            .map(|Flow { spec, .. }| Connection {
                src: spec.src as u32,
                dst: spec.dst as u32,
                rank: rank(spec.key.reducer.coflow),
            })
            .collect();
        let links = vec![1.0; self.case.hosts];
        let mut rates = Vec::new();
        self.solver.compute_rates(&links, &links, &connections, &mut rates);
        let mut next = rates.iter().copied();
        self.vacant_downlinks = links;
        for flow in &mut self.flows {
            let is_open = flow.is_active() && self.senders[flow.spec.src].is_open(flow.spec.key);
            flow.rate = if is_open { next.next().unwrap() } else { 0.0 };
            let vacant = &mut self.vacant_downlinks[flow.spec.dst];
            *vacant = (*vacant - flow.rate).max(0.0);
        }
        rates.iter().sum()
    }

    /// Sends for a step. Both ends know at once that a flow has completed.
    fn advance(&mut self) {
        self.now += STEP;
        for flow in self.flows.iter_mut().filter(|flow| flow.rate > 0.0) {
            flow.left -= flow.rate * STEP;
            if flow.left <= 1e-9 {
                (flow.left, flow.rate) = (0.0, 0.0);
                self.receivers[flow.spec.dst].remove_flow(flow.spec.key);
                self.senders[flow.spec.src].remove_flow(flow.spec.key);
            }
        }
    }

    /// Runs until all flows have completed. No pause of the whole network may be longer than the messages for a connection take,
    /// and a time-out for each one that was lost.
    fn run(&mut self) -> Result<(), TestCaseError> {
        let max_delay = self.case.max_delay;
        let mut sent_at = 0.0;
        while self.flows.iter().any(|flow| !flow.is_added || flow.left > 0.0) {
            self.add_flows();
            if (self.now / INTERVAL).fract() == 0.0 {
                let due = |(interval, _): &&(u32, Machine)| f64::from(*interval) * INTERVAL == self.now;
                let due: Vec<_> = self.case.restarts.iter().filter(due).collect();
                due.into_iter().for_each(|&(_, machine)| self.restart(machine));
                self.schedule();
            }
            self.deliver();
            let rate = self.set_rates();
            if rate > 0.0 || !self.flows.iter().any(Flow::is_active) {
                sent_at = self.now;
            }
            for receiver in &self.receivers {
                prop_assert!(receiver.open_count() <= self.case.connections);
            }
            let first_recent = sent_at - TIMEOUT - INTERVAL - 2.0 * max_delay;
            let old_losses = self.losses.partition_point(|&lost_at| lost_at < first_recent);
            let losses = (self.losses.len() - old_losses) as f64;
            let max_pause =
                2.0 * INTERVAL + 6.0 * max_delay + losses * (TIMEOUT + INTERVAL + 2.0 * max_delay);
            prop_assert!(self.now - sent_at <= max_pause, "nothing sends from {sent_at} to {}", self.now);
            prop_assert!(self.now < MAX_TIME, "flows do not complete");
            self.advance();
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config_with_cases(1000))]

    #[test]
    fn late_messages_never_stop_the_network(case in any_case(0.0, 0)) {
        Network::new(&case).run()?;
    }

    #[test]
    fn a_lost_message_stops_the_network_for_a_time_out_at_most(case in any_case(0.3, 0)) {
        Network::new(&case).run()?;
    }

    #[test]
    fn a_restart_stops_the_network_for_a_time_out_at_most(case in any_case(0.1, 5)) {
        Network::new(&case).run()?;
    }
}

/// A flow of 100 bytes, of a reducer with this number in coflow 0.
fn flow(reducer: u32, flow: u32) -> FlowKey {
    FlowKey { reducer: ReducerKey { coflow: 0, reducer }, flow }
}

/// Opens connections to all flows of two reducers. Lines 4 and 5 give the second reducer one more in each interval.
fn receiver_with_open_connections(max_connections: usize) -> Receiver {
    let params = Params { eta: 1.0, ..Params::default() };
    let mut receiver = Receiver::new(params, max_connections, 1.0, TIMEOUT);
    let keys = (0..2).flat_map(|reducer| (0..4).map(move |at| flow(reducer, at)));
    keys.for_each(|key| receiver.add_flow(key, 100.0));
    for time in 0..4 {
        let (now, mut out) = (f64::from(time), Vec::new());
        receiver.schedule(1.0, now, &mut out);
        while let Some(request) = out.pop() {
            let Request::Candidates(CandidateRequest { reducer, number, .. }) = request else { continue };
            receiver.on_candidates(reducer, number, &[0, 1, 2, 3], 1.0, now, &mut out);
        }
    }
    receiver
}

/// Algorithm 3, lines 5 to 12, with one list of candidates for several connections.
#[test]
fn one_list_of_candidates_opens_all_missing_connections() {
    // floor(0.7 x 4) = 2 connections for the prioritized reducer.
    let mut receiver = Receiver::new(Params::default(), 4, 1.0, TIMEOUT);
    (0..4).for_each(|at| receiver.add_flow(flow(0, at), 100.0));
    let opened = |out: &[Request]| -> Vec<u32> {
        let changes = out.iter().filter_map(|request| match request {
            Request::Change(change) if change.is_open() => Some(change.flow.flow),
            _ => None,
        });
        changes.collect()
    };
    let mut out = Vec::new();
    receiver.schedule(1.0, 0.0, &mut out);
    let [Request::Candidates(CandidateRequest { reducer, number, is_prioritized: true, .. })] = out[..]
    else {
        panic!("{out:?}");
    };
    out.clear();
    receiver.on_candidates(reducer, number, &[3, 1, 0, 2], 1.0, 0.0, &mut out);
    assert_eq!(opened(&out), [3, 1]);
    assert_eq!(out.len(), 2, "no other request: {out:?}");

    // A shorter list is followed by another request, and an empty one ends the search.
    receiver.set_limits(Params { beta: 1.0, ..Params::default() }, 4);
    out.clear();
    receiver.schedule(0.0, 1.0, &mut out);
    let requests = |out: &[Request]| -> Vec<u32> {
        let numbers = out.iter().filter_map(|request| match request {
            Request::Candidates(request) => Some(request.number),
            Request::Change(_) => None,
        });
        numbers.collect()
    };
    let [second] = requests(&out)[..] else { panic!("{out:?}") };
    out.clear();
    receiver.on_candidates(reducer, second, &[3, 2], 1.0, 1.0, &mut out);
    assert_eq!(opened(&out), [2]);
    let [third] = requests(&out)[..] else { panic!("{out:?}") };
    out.clear();
    receiver.on_candidates(reducer, third, &[], 1.0, 1.0, &mut out);
    assert!(out.is_empty(), "{out:?}");
    assert_eq!(receiver.open_count(), 3);
}

/// An opened connection takes the residual capacity of both ends.
#[test]
fn opened_connections_of_a_report_share_the_residual_capacity_of_the_downlink() {
    let mut tracker = tracker_with_vacancies(Params::default(), 8, [5.0, 4.0, 1.0]);
    let mut vacant_downlink = 6.0;
    let mut open = |number| {
        tracker.forward(Change { flow: flow(0, number), version: 1 }, &mut vacant_downlink);
        vacant_downlink
    };
    assert_eq!([open(0), open(1), open(2)], [1.0, 0.0, 0.0]);
    // Host 1 has 3 left, host 2 has its 1, and host 0 nothing.
    let others = |number| FlowKey { reducer: ReducerKey { coflow: 1, reducer: 0 }, flow: number };
    (0..3).for_each(|host| tracker.add_flow(others(host), host, 1.0));
    let reducer = ReducerKey { coflow: 1, reducer: 0 };
    let request =
        CandidateRequest { reducer, number: 1, is_prioritized: true, downlink: 10.0, vacant_downlink: 0.0 };
    assert_eq!(tracker.candidates(&request), [1, 2, 0]);
}

#[test]
fn fewer_connections_close_those_of_the_last_reducers_first() {
    let mut receiver = receiver_with_open_connections(8);
    let open = |receiver: &Receiver| -> Vec<FlowKey> {
        receiver.changes().filter(|change| change.is_open()).map(|change| change.flow).collect()
    };
    let first: Vec<FlowKey> = (0..4).map(|at| flow(0, at)).collect();
    assert!(receiver.open_count() > 4, "{:?}", open(&receiver));
    receiver.set_limits(Params::default(), 4);
    receiver.schedule(0.0, 10.0, &mut Vec::new());
    assert_eq!(open(&receiver), first);
    receiver.set_limits(Params::default(), 2);
    receiver.schedule(0.0, 11.0, &mut Vec::new());
    assert_eq!(open(&receiver), first[2..]);
}

#[test]
fn a_restarted_receiver_closes_the_connections_of_its_predecessor() {
    let key = flow(0, 0);
    let mut tracker = Tracker::new(Params::default(), 1, &[1.0]);
    let mut sender = Sender::default();
    tracker.add_flow(key, 0, 100.0);
    sender.add_flow(key);
    let old = Change { flow: key, version: 3 };
    assert_eq!(tracker.forward(old, &mut 1.0), Some(0));
    sender.apply(old);
    assert!(sender.is_open(key));

    let mut receiver = Receiver::new(Params::default(), 1, 1.0, TIMEOUT).with_first_version(1000);
    receiver.add_flow(key, 100.0);
    tracker.add_flow(key, 0, 100.0);
    let changes: Vec<Change> = receiver.changes().collect();
    assert_eq!(changes, [Change { flow: key, version: 1000 }]);
    assert_eq!(tracker.forward(changes[0], &mut 1.0), Some(0));
    sender.apply(changes[0]);
    assert!(!sender.is_open(key));
    assert_eq!(tracker.forward(old, &mut 1.0), None, "a change of the predecessor that arrives late");
}

/// A tracker of three hosts with links of 10 and these residual capacities. Each host sends a flow of coflow 0, reducer 0.
fn tracker_with_vacancies(params: Params, max_candidates: usize, vacancies: [f64; 3]) -> Tracker {
    let mut tracker = Tracker::new(params, max_candidates, &[10.0; 3]);
    for (host, vacant) in (0..).zip(vacancies) {
        tracker.add_flow(flow(0, host), host, 100.0);
        tracker.record_vacant_uplink(host, vacant);
    }
    tracker
}

fn request(is_prioritized: bool, vacant_downlink: f64) -> CandidateRequest {
    let reducer = ReducerKey { coflow: 0, reducer: 0 };
    CandidateRequest { reducer, number: 1, is_prioritized, downlink: 10.0, vacant_downlink }
}

#[test]
fn algorithm_4_prefers_senders_that_prioritize_the_coflow() {
    let mut tracker = tracker_with_vacancies(Params::default(), 1, [5.0, 4.0, 4.5]);
    let smaller = |number| FlowKey { reducer: ReducerKey { coflow: 1, reducer: 0 }, flow: number };
    tracker.add_flow(smaller(0), 0, 1.0);
    tracker.add_flow(smaller(2), 2, 1.0);
    // Host 1 has 4 and the bonus of a fifth of the link, host 0 has 5 without.
    assert_eq!(tracker.candidates(&request(true, 10.0)), [1]);
    tracker.remove_flow(smaller(0));
    assert_eq!(tracker.candidates(&request(true, 10.0)), [0]);
}

#[test]
fn algorithm_4_matches_vacant_bandwidth_for_reducers_without_priority() {
    let params = Params::default();
    let mut tracker = tracker_with_vacancies(params, 8, [5.0, 4.0, 1.0]);
    tracker.record_remaining_bytes(flow(0, 1), 60.0);
    // A quarter of 8 candidates: the sender with 4, and the next one with less. The one with more bytes is first.
    assert_eq!(tracker.candidates(&request(false, 4.0)), [2, 1]);
    let change = Change { flow: flow(0, 2), version: 1 };
    assert_eq!(tracker.forward(change, &mut 4.0), Some(2));
    assert_eq!(tracker.candidates(&request(false, 4.0)), [1], "the flow from host 2 has a connection");
    let tracker = tracker_with_vacancies(Params { theta: 0.5, ..params }, 8, [5.0, 4.0, 1.0]);
    assert_eq!(tracker.candidates(&request(false, 4.0)), [] as [u32; 0]);
}

proptest! {
    /// One list for several connections opens the same ones as a list for each, as in the paper.
    #[test]
    fn candidates_are_those_of_a_request_for_each_connection(
        vacancies in prop::array::uniform3(0..=10u8),
        flows in prop::collection::vec((0..3u32, 1..=5u8), 1..12),
        max_candidates in 1..=12usize,
        vacant in 0..=20u8,
    ) {
        let mut tracker = Tracker::new(Params::default(), max_candidates, &[10.0; 3]);
        for (number, &(sender, bytes)) in (0..).zip(&flows) {
            tracker.add_flow(flow(0, number), sender, f64::from(bytes));
        }
        for (host, vacant) in (0..).zip(vacancies) {
            tracker.record_vacant_uplink(host, f64::from(vacant));
        }
        let mut vacant = f64::from(vacant);
        let list = tracker.candidates(&request(true, vacant));
        prop_assert_eq!(list.len(), flows.len().min(max_candidates));
        for number in list {
            prop_assert_eq!(tracker.candidates(&request(true, vacant))[0], number);
            tracker.forward(Change { flow: flow(0, number), version: 1 }, &mut vacant);
        }
    }
}
