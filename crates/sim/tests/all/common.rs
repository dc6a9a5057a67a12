//! Small workloads, fixed and random, and their replays.

#[path = "../../../core/tests/all/common.rs"]
mod core_common;

use std::sync::Arc;

use proptest::prelude::*;
use weir_core::model::{
    CoflowSpec, FlowSpec, Goodput, PortSide, ServiceNames, TimedEvent, Topology, TopologyTemplate, Trunks,
    Workload, WorkloadChange,
};
use weir_core::policy;
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::{NetworkModel, NoObserver, Observer, Outcome, ReplayError, ReplayOptions, Snapshot, replay};

/// Saba with queues that applications share; one of the three queues is reserved.
pub const SHARED_QUEUES: &str = "saba:slowdown=4/2/1.5/1.1:levels=3:queues=3:share=0.8";

pub fn bytes(value: f64) -> Bytes {
    Bytes::new(value).expect("a size")
}

pub fn time(value: f64) -> Time {
    Time::new(value).expect("a time")
}

/// A coflow of flows `(from, to, bytes)`.
pub fn coflow(id: u64, arrival: f64, flows: &[(u32, u32, f64)]) -> CoflowSpec {
    let flows = flows.iter().map(|&(src, dst, size)| FlowSpec::new(src, dst, bytes(size))).collect();
    CoflowSpec::new(id, time(arrival), flows)
}

pub fn workload(ports: u32, coflows: Vec<CoflowSpec>) -> Workload {
    Workload { ports, coflows, events: Vec::new(), names: ServiceNames::default() }
}

pub fn timed_event(at: f64, what: WorkloadChange) -> TimedEvent {
    TimedEvent { time: time(at), change: what }
}

/// Ports of `rate` bytes/s, an interval in seconds.
pub fn options(rate: f64, interval: f64) -> ReplayOptions {
    ReplayOptions {
        port_rate: Rate::new(rate).expect("a rate"),
        interval: time(interval),
        keep_flow_ends: true,
        keep_link_use: true,
        ..ReplayOptions::default()
    }
}

/// Leaves and spines; hosts and, without oversubscription, uplinks of 1 byte/s per host and spine. With an oversubscription below
/// 1, links between switches carry more than ports.
pub fn leaf_spine(spines: u32, leaves: u32, hosts: u32, oversubscription: f64) -> Topology {
    let rate = Rate::new(1.0).unwrap();
    TopologyTemplate::LeafSpine { spines, leaves, hosts, rate, oversubscription }.build().unwrap()
}

pub fn options_over(trunks: &Trunks, interval: f64) -> ReplayOptions {
    let network = NetworkModel { trunks: Some(Arc::new(trunks.clone())), ..NetworkModel::default() };
    ReplayOptions { network, ..options(1.0, interval) }
}

pub fn replay_with_options(all: &Workload, policy: &str, options: &ReplayOptions) -> Outcome {
    let built = policy::build(policy).unwrap();
    replay(all, built, options, &mut NoObserver).unwrap_or_else(|error| panic!("{policy}: {error}"))
}

/// A replay on ports of 1 byte/s without an interval.
pub fn replay_at_unit_rate(workload: &Workload, policy: &str) -> Outcome {
    replay_with(workload, policy, 1.0, 0.0, &mut NoObserver).unwrap_or_else(|e| panic!("{policy}: {e}"))
}

pub fn replay_with(
    workload: &Workload,
    policy: &str,
    rate: f64,
    interval: f64,
    observer: &mut dyn Observer,
) -> Result<Outcome, ReplayError> {
    let built = policy::build(policy).unwrap_or_else(|e| panic!("{e}"));
    replay(workload, built, &options(rate, interval), observer)
}

/// CCTs on ports of 1 byte/s without an interval.
pub fn replay_ccts(workload: &Workload, policy: &str) -> Vec<f64> {
    replay_at_unit_rate(workload, policy).ccts()
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn is_near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * 1f64.max(a.abs()).max(b.abs())
}

#[track_caller]
pub fn assert_near(found: &[f64], expected: &[f64], tolerance: f64, context: &str) {
    let equal =
        found.len() == expected.len() && found.iter().zip(expected).all(|(&a, &b)| is_near(a, b, tolerance));
    assert!(equal, "{context}: found {found:?}, expected {expected:?}");
}

/// CCTs of a policy on ports of 1 byte/s, exact to 1e-9.
#[track_caller]
pub fn check_ccts(workload: &Workload, policy: &str, expected: &[f64]) {
    assert_near(&replay_ccts(workload, policy), expected, 1e-9, policy);
}

/// A schedule: its start time, and the coflow, flow and rate of every live flow.
pub type Schedule = (f64, Vec<(usize, usize, f64)>);

/// Records schedules, and checks that links carry at most their capacity and receiving ports at most their goodput.
#[derive(Default)]
pub struct CapacityChecker {
    pub goodput: Option<Arc<Goodput>>,
    pub schedules: Vec<Schedule>,
    pub violation: Option<String>,
}

impl Observer for CapacityChecker {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let ports = snapshot.fabric().ports();
        // Between regions, ports limit no flow.
        let limits = snapshot.fabric().limits().chain(std::iter::repeat(0.0));
        let limits = snapshot.link_capacities().zip(limits).map(|(capacity, limit)| capacity.max(limit));
        let mut links: Vec<(f64, usize, f64)> = limits.map(|limit| (limit, 0, 0.0)).collect();
        let mut rates = Vec::new();
        for &slot in snapshot.active() {
            let coflow = snapshot.coflow(slot);
            for flow in coflow.live_flows() {
                let rate = snapshot.rate(slot, flow);
                rates.push((coflow.workload_index, coflow.spec_index(flow) as usize, rate));
                for link in snapshot.flow_links(slot, flow) {
                    let (_, senders, load) = &mut links[link];
                    *senders += usize::from(rate > 0.0);
                    *load += rate;
                }
            }
        }
        let now = snapshot.now();
        self.schedules.push((now, rates));
        for (link, &(limit, senders, load)) in links.iter().enumerate() {
            let goodput = self.goodput.as_ref().filter(|_| (ports..2 * ports).contains(&link));
            let limit = limit * goodput.map_or(1.0, |goodput| goodput.utilization(senders));
            if load > limit + 1e-9 {
                self.violation =
                    Some(format!("at {now}: link {link} carries {load} of {senders} flows, above {limit}"));
            }
        }
        self.violation.is_none() && self.schedules.len() < 20_000
    }
}

/// Integral of each flow's rate until the flow ends.
pub fn integrated_bytes(workload: &Workload, schedules: &[Schedule], outcome: &Outcome) -> Vec<Vec<f64>> {
    let mut sent: Vec<Vec<f64>> = workload.coflows.iter().map(|c| vec![0.0; c.flows.len()]).collect();
    for (at, (from, rates)) in schedules.iter().enumerate() {
        let to = schedules.get(at + 1).map_or(f64::INFINITY, |next| next.0);
        for &(coflow, flow, rate) in rates {
            let end = outcome.coflows[coflow].flow_ends[flow].min(to);
            sent[coflow][flow] += rate * (end - from).max(0.0);
        }
    }
    sent
}

/// Checks that the integrated rates equal the bytes of every flow.
pub fn check_all_sent_bytes(
    workload: &Workload,
    schedules: &[Schedule],
    outcome: &Outcome,
) -> Result<(), TestCaseError> {
    for (sent, coflow) in integrated_bytes(workload, schedules, outcome).iter().zip(&workload.coflows) {
        for (&sent, flow) in sent.iter().zip(&coflow.flows) {
            prop_assert!(is_near(sent, flow.bytes.get(), 1e-6), "{} of {}", sent, flow.bytes.get());
        }
    }
    Ok(())
}

/// All policies, and all variants with different decisions. Sizes here are a few bytes, so thresholds are as
/// small.
pub const POLICIES: &[&str] = &[
    "fair",
    "pfp",
    "fifo",
    "scf",
    "scf:by=length",
    "ncf",
    "ncf:by=endpoints",
    "lcf",
    "srtf",
    "srtf:time=flow",
    "lwtf",
    "varys",
    "varys:deadlines=on",
    "sincronia",
    "aalo:start=2B:growth=2:queues=4",
    "aalo:start=2B:growth=2:queues=4:sharing=strict",
    "aalo:start=2B:growth=2:queues=4:at=both",
    "aalo:start=2B:growth=2:queues=4:at=both:sharing=strict",
    "aalo:start=2B:growth=2:queues=4:sharing=turns:turn=0.5s",
    "aalo:start=2B:growth=2:queues=4:at=both:sharing=turns:turn=0.5s",
    "aalo+:start=2B:growth=2:queues=4",
    "django:connections=1",
    "django:connections=4",
    "saath:start=2B:growth=2:queues=4",
    "saath:start=2B:growth=2:queues=4:all-or-none=off",
    "saath:start=2B:growth=2:queues=4:per-flow=off",
    "saath:start=2B:growth=2:queues=4:lcof=off",
    "saath:start=2B:growth=2:queues=4:per-flow=off:lcof=off",
    "saath:start=2B:growth=2:queues=4:requeue=on",
    "saath:start=2B:growth=2:queues=4:contention=all",
    "saath:start=2B:growth=2:queues=4:available=full",
    "saath:start=2B:growth=2:queues=4:time=flow:d=0.5",
    "saath:start=2B:growth=2:queues=4:work-conservation=off",
    "saath:start=2B:growth=2:queues=4:d=inf",
    "saath",
    "philae",
    "philae:thin=1:pilots=0.5",
    "philae:thin=0:order=size",
    "gittins",
    "gittins:prior=0.1",
    "gittins:index=las",
    "weir",
    "weir:turns=0:pilots=0s",
    "weir:turns=0.3:pilots=0s",
    "weir:turns=0:sizes=known",
    "weir:sizes=known",
    "weir:prior=on",
    "siphon:samples=20",
    "mrtf",
    "mrtf:groups=on",
];

/// Configuration for `cases` cases, as in the core's tests, with a bound on the shrinking of whole replays.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { max_shrink_iters: 4000, ..core_common::config_with_cases(cases) }
}

/// Features of random workloads.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadFeatures {
    /// Sizes and times that are all distinct.
    pub distinct_values: bool,
    /// Sizes of zero.
    pub empty_flows: bool,
    /// Flows whose data arrives after their coflow, and data that is temporarily unavailable.
    pub late_data: bool,
    pub restarts: bool,
    pub port_changes: bool,
    pub deadlines: bool,
    pub parents: bool,
}

impl WorkloadFeatures {
    pub const PLAIN: WorkloadFeatures = WorkloadFeatures {
        distinct_values: false,
        empty_flows: false,
        late_data: false,
        restarts: false,
        port_changes: false,
        deadlines: false,
        parents: false,
    };
    pub const ALL: WorkloadFeatures = WorkloadFeatures {
        distinct_values: false,
        empty_flows: true,
        late_data: true,
        restarts: true,
        port_changes: true,
        deadlines: true,
        parents: true,
    };

    pub const fn with_distinct_values(self) -> WorkloadFeatures {
        WorkloadFeatures { distinct_values: true, ..self }
    }
}

/// A number up to `max`. With `generic`, some have many digits.
fn positive_number(generic: bool, max: u32) -> BoxedStrategy<f64> {
    if generic {
        (0.05..f64::from(max)).boxed()
    } else {
        prop_oneof![4 => (1..=max).prop_map(f64::from), 1 => (1..=4 * max).prop_map(|n| f64::from(n) / 4.0)]
            .boxed()
    }
}

fn any_side() -> impl Strategy<Value = PortSide> {
    prop::sample::select(vec![PortSide::Send, PortSide::Receive, PortSide::Both])
}

type FlowTemplate = (u32, u32, f64, bool, f64);
type CoflowTemplate = (f64, f64, Vec<FlowTemplate>, Option<f64>, Option<usize>);

fn any_flow(ports: u32, kinds: WorkloadFeatures) -> impl Strategy<Value = FlowTemplate> {
    let release = if kinds.late_data {
        prop_oneof![3 => Just(0.0), 1 => positive_number(kinds.distinct_values, 6)].boxed()
    } else {
        Just(0.0).boxed()
    };
    let empty = prop::bool::weighted(if kinds.empty_flows { 0.1 } else { 0.0 });
    (0..ports, 0..ports, positive_number(kinds.distinct_values, 8), empty, release)
}

fn any_coflow(ports: u32, kinds: WorkloadFeatures) -> impl Strategy<Value = CoflowTemplate> {
    let deadline = if kinds.deadlines {
        prop_oneof![Just(None), positive_number(kinds.distinct_values, 20).prop_map(Some)].boxed()
    } else {
        Just(None).boxed()
    };
    let parent = if kinds.parents {
        prop_oneof![4 => Just(None), 1 => (0usize..8).prop_map(Some)].boxed()
    } else {
        Just(None).boxed()
    };
    (
        prop_oneof![1 => Just(0.0), 3 => positive_number(kinds.distinct_values, 20)],
        prop::sample::select(vec![1.0, 1.0, 2.0, 5.0]),
        prop::collection::vec(any_flow(ports, kinds), 1..7),
        deadline,
        parent,
    )
}

#[derive(Debug, Clone)]
enum EventTemplate {
    Port(u32, PortSide, f64),
    Restart(usize, usize),
    Late(usize, usize, f64),
}

fn any_event(ports: u32, kinds: WorkloadFeatures) -> BoxedStrategy<EventTemplate> {
    let mut all: Vec<BoxedStrategy<EventTemplate>> = Vec::new();
    if kinds.port_changes {
        let factor = prop::sample::select(vec![0.0, 0.25, 0.5, 1.0]);
        all.push((0..ports, any_side(), factor).prop_map(|(p, s, f)| EventTemplate::Port(p, s, f)).boxed());
    }
    if kinds.restarts {
        all.push((0usize..8, 0usize..8).prop_map(|(c, f)| EventTemplate::Restart(c, f)).boxed());
    }
    if kinds.late_data {
        let late = (0usize..8, 0usize..8, positive_number(kinds.distinct_values, 6));
        all.push(late.prop_map(|(c, f, d)| EventTemplate::Late(c, f, d)).boxed());
    }
    prop::strategy::Union::new(all).boxed()
}

/// Workloads on 2 to 8 ports, of up to 8 coflows of up to 6 flows. All ports have recovered at the end.
pub fn any_workload(kinds: WorkloadFeatures) -> BoxedStrategy<Workload> {
    let drafts = (2u32..=8).prop_flat_map(move |ports| {
        let events = if kinds.port_changes || kinds.restarts || kinds.late_data {
            prop::collection::vec((positive_number(kinds.distinct_values, 25), any_event(ports, kinds)), 0..5)
                .boxed()
        } else {
            Just(Vec::new()).boxed()
        };
        (Just(ports), prop::collection::vec(any_coflow(ports, kinds), 1..=8), events)
    });
    drafts.prop_map(|(ports, coflows, events)| build_workload(ports, &coflows, &events)).boxed()
}

/// Gives each flow a reducer below 3. In about half of the coflows, all flows have reducer 0.
pub fn with_any_reducers(workloads: BoxedStrategy<Workload>) -> BoxedStrategy<Workload> {
    (workloads, any_reducers()).prop_map(|(workload, reducers)| with_reducers(workload, &reducers)).boxed()
}

/// Reducers of the flows of each coflow, for [`with_reducers`].
pub fn any_reducers() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let of_coflow = prop_oneof![Just(vec![0; 6]), prop::collection::vec(0..3u32, 6)];
    prop::collection::vec(of_coflow, 8)
}

/// A workload of [`any_workload`] with these reducers, by coflow and flow.
pub fn with_reducers(mut workload: Workload, reducers: &[Vec<u32>]) -> Workload {
    for (coflow, reducers) in workload.coflows.iter_mut().zip(reducers) {
        coflow.flows.iter_mut().zip(reducers).for_each(|(flow, &reducer)| flow.reducer = reducer);
    }
    workload
}

fn build_workload(ports: u32, drafts: &[CoflowTemplate], events: &[(f64, EventTemplate)]) -> Workload {
    let mut all = workload(ports, Vec::new());
    for (index, (arrival, weight, flows, deadline, parent)) in drafts.iter().enumerate() {
        let mut c = coflow(100 + index as u64, *arrival, &[]);
        c.weight = *weight;
        c.deadline = deadline.map(time);
        // Parents precede their children, so there are no cycles.
        if let Some(parent) = parent
            && index > 0
        {
            c.parents = vec![parent % index];
        }
        c.flows = flows
            .iter()
            .map(|&(src, dst, size, empty, release)| FlowSpec {
                data_delay: time(release),
                ..FlowSpec::new(src, dst, bytes(if empty { 0.0 } else { size }))
            })
            .collect();
        all.coflows.push(c);
    }
    let mut last = 0.0f64;
    for (at, draft) in events {
        last = last.max(*at);
        let what = match *draft {
            EventTemplate::Port(port, side, factor) => WorkloadChange::PortRate { port, side, factor },
            EventTemplate::Restart(c, f) => {
                let coflow = c % drafts.len();
                WorkloadChange::RestartFlow { coflow, flow: f % drafts[coflow].2.len() }
            }
            EventTemplate::Late(c, f, delay) => {
                let coflow = c % drafts.len();
                WorkloadChange::DelayFlow {
                    coflow,
                    flow: f % drafts[coflow].2.len(),
                    until: time(at + delay),
                }
            }
        };
        all.events.push(timed_event(*at, what));
    }
    if events.iter().any(|(_, draft)| matches!(draft, EventTemplate::Port(..))) {
        for port in 0..ports {
            all.events.push(timed_event(
                last + 3.7,
                WorkloadChange::PortRate { port, side: PortSide::Both, factor: 1.0 },
            ));
        }
    }
    all.events.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
    all
}
