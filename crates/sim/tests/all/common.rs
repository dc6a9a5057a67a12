//! Small workloads, fixed and random, and their replays.

#[path = "../../../core/tests/all/common.rs"]
mod seeded;

use proptest::prelude::*;
use weir_core::model::{Change, CoflowSpec, FlowSpec, Names, Side, TimedEvent, Workload};
use weir_core::policy;
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::{NoObserver, Observer, Options, Outcome, ReplayError, replay};

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
    Workload { ports, coflows, events: Vec::new(), names: Names::default() }
}

pub fn event(at: f64, what: Change) -> TimedEvent {
    TimedEvent { at: time(at), what }
}

/// Ports of `rate` bytes/s, an interval in seconds.
pub fn options(rate: f64, interval: f64) -> Options {
    Options {
        port_rate: Rate::new(rate).expect("a rate"),
        interval: time(interval),
        keep_flows: true,
        behind: None,
    }
}

/// A replay on ports of 1 byte/s without an interval.
pub fn run(workload: &Workload, policy: &str) -> Outcome {
    run_with(workload, policy, 1.0, 0.0, &mut NoObserver).unwrap_or_else(|e| panic!("{policy}: {e}"))
}

pub fn run_with(
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
pub fn ccts(workload: &Workload, policy: &str) -> Vec<f64> {
    run(workload, policy).ccts()
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * 1f64.max(a.abs()).max(b.abs())
}

#[track_caller]
pub fn assert_near(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    let equal =
        found.len() == expected.len() && found.iter().zip(expected).all(|(&a, &b)| near(a, b, tolerance));
    assert!(equal, "{what}: found {found:?}, expected {expected:?}");
}

/// CCTs of a policy on ports of 1 byte/s, exact to 1e-9.
#[track_caller]
pub fn check(workload: &Workload, policy: &str, expected: &[f64]) {
    assert_near(&ccts(workload, policy), expected, 1e-9, policy);
}

/// A schedule: its start time, and the coflow, flow and rate of every live flow.
pub type Schedule = (f64, Vec<(usize, usize, f64)>);

/// Integral of each flow's rate until the flow ends.
pub fn moved(all: &Workload, schedules: &[Schedule], outcome: &Outcome) -> Vec<Vec<f64>> {
    let mut sent: Vec<Vec<f64>> = all.coflows.iter().map(|c| vec![0.0; c.flows.len()]).collect();
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
pub fn all_is_sent(all: &Workload, schedules: &[Schedule], outcome: &Outcome) -> Result<(), TestCaseError> {
    for (sent, coflow) in moved(all, schedules, outcome).iter().zip(&all.coflows) {
        for (&sent, flow) in sent.iter().zip(&coflow.flows) {
            prop_assert!(near(sent, flow.bytes.get(), 1e-6), "{} of {}", sent, flow.bytes.get());
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
    "saath:start=2B:growth=2:queues=4:requeue=off",
    "saath:start=2B:growth=2:queues=4:contention=all",
    "saath:start=2B:growth=2:queues=4:available=full",
    "saath:start=2B:growth=2:queues=4:time=flow:d=0.5",
    "saath:start=2B:growth=2:queues=4:work-conservation=off",
    "saath:start=2B:growth=2:queues=4:d=inf",
    "saath",
];

/// Configuration for `cases` cases, as in the core's tests, with a bound on the shrinking of whole replays.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { max_shrink_iters: 4000, ..seeded::cases(cases) }
}

/// Features of random workloads.
#[derive(Debug, Clone, Copy)]
pub struct Kinds {
    /// Sizes and times that are all distinct.
    pub generic: bool,
    /// Sizes of zero.
    pub empty: bool,
    /// Flows whose data arrives after their coflow, and data that is temporarily unavailable.
    pub late: bool,
    pub restarts: bool,
    pub ports: bool,
    pub deadlines: bool,
    pub parents: bool,
}

impl Kinds {
    pub const PLAIN: Kinds = Kinds {
        generic: false,
        empty: false,
        late: false,
        restarts: false,
        ports: false,
        deadlines: false,
        parents: false,
    };
    pub const ALL: Kinds = Kinds {
        generic: false,
        empty: true,
        late: true,
        restarts: true,
        ports: true,
        deadlines: true,
        parents: true,
    };

    pub fn generic(self) -> Kinds {
        Kinds { generic: true, ..self }
    }
}

/// A number up to `most`. With `generic`, some have many digits.
fn number(generic: bool, most: u32) -> BoxedStrategy<f64> {
    if generic {
        (0.05..f64::from(most)).boxed()
    } else {
        prop_oneof![4 => (1..=most).prop_map(f64::from), 1 => (1..=4 * most).prop_map(|n| f64::from(n) / 4.0)]
            .boxed()
    }
}

fn side() -> impl Strategy<Value = Side> {
    prop::sample::select(vec![Side::Send, Side::Receive, Side::Both])
}

type FlowDraft = (u32, u32, f64, bool, f64);
type CoflowDraft = (f64, f64, Vec<FlowDraft>, Option<f64>, Option<usize>);

fn flow_draft(ports: u32, kinds: Kinds) -> impl Strategy<Value = FlowDraft> {
    let release = if kinds.late {
        prop_oneof![3 => Just(0.0), 1 => number(kinds.generic, 6)].boxed()
    } else {
        Just(0.0).boxed()
    };
    let empty = prop::bool::weighted(if kinds.empty { 0.1 } else { 0.0 });
    (0..ports, 0..ports, number(kinds.generic, 8), empty, release)
}

fn coflow_draft(ports: u32, kinds: Kinds) -> impl Strategy<Value = CoflowDraft> {
    let deadline = if kinds.deadlines {
        prop_oneof![Just(None), number(kinds.generic, 20).prop_map(Some)].boxed()
    } else {
        Just(None).boxed()
    };
    let parent = if kinds.parents {
        prop_oneof![4 => Just(None), 1 => (0usize..8).prop_map(Some)].boxed()
    } else {
        Just(None).boxed()
    };
    (
        prop_oneof![1 => Just(0.0), 3 => number(kinds.generic, 20)],
        prop::sample::select(vec![1.0, 1.0, 2.0, 5.0]),
        prop::collection::vec(flow_draft(ports, kinds), 1..7),
        deadline,
        parent,
    )
}

#[derive(Debug, Clone)]
enum EventDraft {
    Port(u32, Side, f64),
    Restart(usize, usize),
    Late(usize, usize, f64),
}

fn event_draft(ports: u32, kinds: Kinds) -> BoxedStrategy<EventDraft> {
    let mut all: Vec<BoxedStrategy<EventDraft>> = Vec::new();
    if kinds.ports {
        let factor = prop::sample::select(vec![0.0, 0.25, 0.5, 1.0]);
        all.push((0..ports, side(), factor).prop_map(|(p, s, f)| EventDraft::Port(p, s, f)).boxed());
    }
    if kinds.restarts {
        all.push((0usize..8, 0usize..8).prop_map(|(c, f)| EventDraft::Restart(c, f)).boxed());
    }
    if kinds.late {
        let late = (0usize..8, 0usize..8, number(kinds.generic, 6));
        all.push(late.prop_map(|(c, f, d)| EventDraft::Late(c, f, d)).boxed());
    }
    prop::strategy::Union::new(all).boxed()
}

/// Workloads on 2 to 8 ports, of up to 8 coflows of up to 6 flows. All ports have recovered at the end.
pub fn workloads(kinds: Kinds) -> BoxedStrategy<Workload> {
    let drafts = (2u32..=8).prop_flat_map(move |ports| {
        let events = if kinds.ports || kinds.restarts || kinds.late {
            prop::collection::vec((number(kinds.generic, 25), event_draft(ports, kinds)), 0..5).boxed()
        } else {
            Just(Vec::new()).boxed()
        };
        (Just(ports), prop::collection::vec(coflow_draft(ports, kinds), 1..=8), events)
    });
    drafts.prop_map(|(ports, coflows, events)| assemble(ports, &coflows, &events)).boxed()
}

fn assemble(ports: u32, drafts: &[CoflowDraft], events: &[(f64, EventDraft)]) -> Workload {
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
                src,
                dst,
                bytes: bytes(if empty { 0.0 } else { size }),
                release: time(release),
            })
            .collect();
        all.coflows.push(c);
    }
    let mut last = 0.0f64;
    for (at, draft) in events {
        last = last.max(*at);
        let what = match *draft {
            EventDraft::Port(port, side, factor) => Change::PortRate { port, side, factor },
            EventDraft::Restart(c, f) => {
                let coflow = c % drafts.len();
                Change::Restart { coflow, flow: f % drafts[coflow].2.len() }
            }
            EventDraft::Late(c, f, delay) => {
                let coflow = c % drafts.len();
                Change::Late { coflow, flow: f % drafts[coflow].2.len(), until: time(at + delay) }
            }
        };
        all.events.push(event(*at, what));
    }
    if events.iter().any(|(_, draft)| matches!(draft, EventDraft::Port(..))) {
        for port in 0..ports {
            all.events.push(event(last + 3.7, Change::PortRate { port, side: Side::Both, factor: 1.0 }));
        }
    }
    all.events.sort_by(|a, b| a.at.get().total_cmp(&b.at.get()));
    all
}
