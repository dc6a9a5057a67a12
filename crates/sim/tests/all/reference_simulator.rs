//! The engine against a reference simulator, written directly from the definitions of the policies. Every
//! flow has its bytes and rate, and every schedule is computed from scratch.

use std::sync::Arc;

use crate::cables::any_failures;
use crate::common::{WorkloadFeatures, any_workload, cases, is_near, options};
use crate::trunks::any_workload_with_trunks;
use proptest::prelude::*;
use weir_core::model::topology::CableEvent;
use weir_core::model::{CoflowSpec, PortSide, Trunks, Workload, WorkloadChange};
use weir_core::policy;
use weir_sim::{NetworkModel, NoObserver, ReplayOptions, replay};

/// Residual port capacity below this is rounding error.
const TOLERANCE: f64 = 1e-9;
/// Events closer than this are simultaneous.
const RATE_TOLERANCE: f64 = 1e-9;

#[derive(Debug, Clone, Copy, PartialEq)]
enum FlowPhase {
    Unreleased,
    Waiting,
    Live,
    Completed,
}

#[derive(Debug, Clone)]
struct Flow {
    /// Its links: the sending side of a port, the receiving side, and trunks. Links are numbered in this order.
    src: usize,
    dst: usize,
    trunks: Vec<usize>,
    size: f64,
    sent_bytes: f64,
    rate: f64,
    phase: FlowPhase,
    /// Time at which its data is available; before the coflow's release, the delay after the release.
    available_at: f64,
    withheld_until: f64,
    end: f64,
}

impl Flow {
    fn links(&self) -> impl Iterator<Item = usize> {
        [self.src, self.dst].into_iter().chain(self.trunks.iter().copied())
    }

    fn take_rate(&mut self, rate: f64, left: &mut [f64]) {
        self.rate += rate;
        self.links().for_each(|link| left[link] -= rate);
    }
}

#[derive(Debug, Clone)]
struct Coflow {
    arrival: f64,
    deadline: f64,
    /// In service order: by trunks, then by ports; a second flow over the same links comes in a second round of its
    /// sender.
    flows: Vec<Flow>,
    /// Indices in the workload.
    spec_order: Vec<usize>,
    parents: Vec<usize>,
    release_number: Option<usize>,
    end: Option<f64>,
    queue: Option<usize>,
    deadline_at: f64,
    completed_lengths: Vec<f64>,
    admitted: Option<bool>,
    /// Bytes that restarted flows had sent before.
    lost_bytes: f64,
}

impl Coflow {
    fn live_flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|f| f.phase == FlowPhase::Live)
    }

    fn has_waiting_flows(&self) -> bool {
        self.flows.iter().any(|f| f.phase == FlowPhase::Waiting)
    }

    fn remaining_over(&self, link: usize) -> f64 {
        self.live_flows().filter(|f| f.links().any(|l| l == link)).map(|f| f.size - f.sent_bytes).sum()
    }

    fn live_count_over(&self, link: usize) -> usize {
        self.live_flows().filter(|f| f.links().any(|l| l == link)).count()
    }

    fn shares_link(&self, other: &Coflow) -> bool {
        self.live_flows().flat_map(Flow::links).any(|link| other.live_count_over(link) > 0)
    }
}

#[derive(Debug, Clone)]
struct SaathParameters {
    start: f64,
    growth: f64,
    queues: usize,
    d: f64,
    all_or_none: bool,
    per_flow: bool,
    lcof: bool,
    conserve_work: bool,
    backfill_all: bool,
    requeue: bool,
    contention_all: bool,
    require_full_ports: bool,
    time_per_flow: bool,
}

impl SaathParameters {
    fn upper_threshold(&self, queue: usize) -> f64 {
        self.start * self.growth.powi(queue as i32)
    }

    fn queue_by(&self, is_past: impl Fn(f64) -> bool) -> usize {
        (0..self.queues - 1).find(|&q| !is_past(self.upper_threshold(q))).unwrap_or(self.queues - 1)
    }

    /// Remaining bytes of the least advanced flow if its length is the median of the completed flows.
    fn estimate(&self, c: &Coflow) -> Option<(f64, f64)> {
        if !self.requeue || !self.per_flow || c.completed_lengths.is_empty() {
            return None;
        }
        let mut lengths = c.completed_lengths.clone();
        lengths.sort_by(f64::total_cmp);
        let n = lengths.len();
        let median = (lengths[(n - 1) / 2] + lengths[n / 2]) / 2.0;
        let unfinished = c.flows.iter().filter(|f| f.phase != FlowPhase::Completed);
        let least = unfinished.map(|f| f.sent_bytes).fold(f64::INFINITY, f64::min);
        (least < median - RATE_TOLERANCE).then_some((median, median - least))
    }

    fn max_sent(c: &Coflow) -> f64 {
        c.flows.iter().map(|f| f.sent_bytes).fold(0.0, f64::max)
    }

    fn queue_of(&self, c: &Coflow) -> usize {
        let width = c.flows.len() as f64;
        if !self.per_flow {
            let total: f64 = c.flows.iter().map(|f| f.sent_bytes).sum();
            return self.queue_by(|upper| total >= upper * (1.0 - 1e-12));
        }
        match self.estimate(c) {
            Some((_, left)) => self.queue_by(|upper| left * width > upper * (1.0 + 1e-12)),
            None => self.queue_by(|upper| Self::max_sent(c) * width >= upper * (1.0 - 1e-12)),
        }
    }

    /// Next time at which a coflow's queue may change at the current rates: when a flow, or the whole coflow,
    /// reaches a threshold.
    fn next_queue_change(&self, c: &Coflow, now: f64) -> f64 {
        let width = c.flows.len() as f64;
        let mut next = f64::INFINITY;
        let mut at = |left: f64, rate: f64| {
            if left > RATE_TOLERANCE && rate > 0.0 {
                next = f64::min(next, now + left / rate);
            }
        };
        for queue in 0..self.queues {
            let upper = self.upper_threshold(queue);
            if !self.per_flow {
                at(
                    upper - c.flows.iter().map(|f| f.sent_bytes).sum::<f64>(),
                    c.live_flows().map(|f| f.rate).sum(),
                );
                continue;
            }
            for flow in c.live_flows() {
                at(upper / width - flow.sent_bytes, flow.rate);
                if let Some((median, _)) = self.estimate(c) {
                    at(median - upper / width - flow.sent_bytes, flow.rate);
                    at(median - flow.sent_bytes, flow.rate);
                }
            }
        }
        next
    }
}

/// Queues by the bytes that coflows have sent.
#[derive(Debug, Clone)]
struct AaloParameters {
    start: f64,
    growth: f64,
    queues: usize,
    at: ControlledPorts,
}

/// Ports with queues.
#[derive(Debug, Clone, Copy)]
enum ControlledPorts {
    /// All links. Unless `strict`, each queue first divides its weighted share.
    All {
        strict: bool,
    },
    Senders {
        strict: bool,
    },
}

impl AaloParameters {
    fn upper_threshold(&self, queue: usize) -> f64 {
        self.start * self.growth.powi(queue as i32)
    }

    fn queue_weight(&self, queue: usize) -> f64 {
        (self.queues - queue) as f64
    }

    fn sent_bytes(c: &Coflow) -> f64 {
        c.lost_bytes + c.flows.iter().map(|f| f.sent_bytes).sum::<f64>()
    }

    fn queue_of(&self, c: &Coflow) -> usize {
        let below = |q: &usize| Self::sent_bytes(c) < self.upper_threshold(*q) * (1.0 - 1e-12);
        (0..self.queues - 1).find(below).unwrap_or(self.queues - 1)
    }

    /// Time at which a coflow reaches the next threshold at the current rates.
    fn next_queue_change(&self, c: &Coflow, now: f64) -> f64 {
        let rate: f64 = c.live_flows().map(|f| f.rate).sum();
        (0..self.queues - 1)
            .map(|q| self.upper_threshold(q) - Self::sent_bytes(c))
            .filter(|left| *left > RATE_TOLERANCE && rate > 0.0)
            .fold(f64::INFINITY, |next, left| next.min(now + left / rate))
    }
}

#[derive(Debug, Clone)]
enum Policy {
    Saath(SaathParameters),
    Varys {
        deadlines: bool,
    },
    /// MADD and backfilling in an order of coflows.
    Ordered(SortKey),
    Aalo(AaloParameters),
    /// Max-min between all flows over all links.
    Fair,
}

/// The key by which coflows are served in ascending order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SortKey {
    Release,
    Bytes,
    LongestFlow,
    Width,
    RemainingBytes,
    LongestRemainingFlow,
    Bottleneck,
    /// The bottleneck, times the number of coflows that share a link.
    AddedWaiting,
}

/// The policies that serve coflows in the order of a key.
const ORDERED_POLICIES: [(&str, SortKey); 7] = [
    ("fifo", SortKey::Release),
    ("scf", SortKey::Bytes),
    ("scf:by=length", SortKey::LongestFlow),
    ("ncf", SortKey::Width),
    ("lcf", SortKey::RemainingBytes),
    ("srtf:time=flow", SortKey::LongestRemainingFlow),
    ("lwtf", SortKey::AddedWaiting),
];

/// The trunks from a time on.
#[derive(Debug, Clone)]
pub struct Epoch {
    pub time: f64,
    pub capacities: Vec<f64>,
    /// By coflow and flow of the workload: the trunks of its path.
    pub paths: Vec<Vec<Vec<u32>>>,
}

struct ReferenceSimulator<'a> {
    workload: &'a Workload,
    policy: Policy,
    interval: f64,
    now: f64,
    coflows: Vec<Coflow>,
    links: Vec<f64>,
    released: usize,
    next_event: usize,
    /// Changes of trunks, in the order of time, and the number of those that have happened.
    epochs: Vec<Epoch>,
    next_epoch: usize,
    /// Whether two coflows ever had equal deadlines (Saath) or remaining times (Varys) except for rounding
    /// errors, which then decided their order.
    has_ties: bool,
}

/// The flows of a coflow by trunks, then by ports; a second flow over the same links comes in a second round of its sender.
fn service_order(spec: &CoflowSpec, paths: &[Vec<u32>], port_position: impl Fn(u32) -> usize) -> Vec<usize> {
    let mut round = vec![0; spec.flows.len()];
    for (i, flow) in spec.flows.iter().enumerate() {
        let is_same =
            |&j: &usize| (spec.flows[j].src, spec.flows[j].dst, &paths[j]) == (flow.src, flow.dst, &paths[i]);
        round[i] = (0..i).filter(is_same).count();
    }
    let mut places: Vec<usize> = (0..spec.flows.len()).collect();
    places.sort_by_key(|&i| {
        let (src, dst) = (port_position(spec.flows[i].src), port_position(spec.flows[i].dst));
        (paths[i].clone(), src, round[i], dst)
    });
    places
}

impl ReferenceSimulator<'_> {
    fn new<'a>(
        workload: &'a Workload,
        trunks: Option<&Trunks>,
        policy: Policy,
        interval: f64,
    ) -> ReferenceSimulator<'a> {
        let order = crate::ports::port_positions(workload);
        let port_position = |port: u32| order[port as usize];
        let ports = workload.ports as usize;
        let mut routes = trunks.cloned();
        let coflows = workload.coflows.iter().enumerate().map(|(index, spec)| {
            let mut paths: Vec<Vec<u32>> = vec![Vec::new(); spec.flows.len()];
            for ((i, path), flow) in (0..).zip(&mut paths).zip(&spec.flows) {
                routes.iter_mut().for_each(|routes| routes.compute_path(flow.src, flow.dst, index, i, path));
            }
            let places = service_order(spec, &paths, port_position);
            let flow = |&i: &usize| Flow {
                src: spec.flows[i].src as usize,
                dst: ports + spec.flows[i].dst as usize,
                trunks: paths[i].iter().map(|&trunk| 2 * ports + trunk as usize).collect(),
                size: spec.flows[i].bytes.get(),
                sent_bytes: 0.0,
                rate: 0.0,
                phase: FlowPhase::Unreleased,
                available_at: spec.flows[i].data_delay.get(),
                withheld_until: 0.0,
                end: 0.0,
            };
            Coflow {
                arrival: spec.arrival.get(),
                deadline: spec.deadline.map_or(f64::INFINITY, |d| d.get()),
                flows: places.iter().map(flow).collect(),
                spec_order: places,
                parents: spec.parents.clone(),
                release_number: None,
                end: None,
                queue: None,
                deadline_at: f64::INFINITY,
                completed_lengths: Vec::new(),
                admitted: None,
                lost_bytes: 0.0,
            }
        });
        let coflows: Vec<Coflow> = coflows.collect();
        let capacities = trunks.map_or(&[][..], Trunks::capacities);
        ReferenceSimulator {
            workload,
            policy,
            interval,
            now: 0.0,
            coflows,
            links: std::iter::repeat_n(1.0, 2 * ports).chain(capacities.iter().copied()).collect(),
            released: 0,
            next_event: 0,
            epochs: Vec::new(),
            next_epoch: 0,
            has_ties: false,
        }
    }

    /// Active coflows in the order of their release.
    fn active(&self) -> Vec<usize> {
        let mut active: Vec<usize> = (0..self.coflows.len())
            .filter(|&c| self.coflows[c].release_number.is_some() && self.coflows[c].end.is_none())
            .collect();
        active.sort_by_key(|&c| self.coflows[c].release_number);
        active
    }

    /// Release time of a coflow; unknown while a parent is active.
    fn release_time(&self, c: usize) -> f64 {
        let parents = &self.coflows[c].parents;
        let ends = parents.iter().map(|&p| self.coflows[p].end.unwrap_or(f64::INFINITY));
        ends.fold(self.coflows[c].arrival, f64::max)
    }

    fn next_schedule_time(&self, at: f64) -> f64 {
        if self.interval == 0.0 || at.is_infinite() {
            return at;
        }
        ((at - self.slack()) / self.interval).ceil() * self.interval
    }

    /// Events within this distance of a schedule are part of it.
    fn slack(&self) -> f64 {
        (1e-6 * self.interval).clamp(RATE_TOLERANCE, 1e-8)
    }

    /// Runs the replay. Returns all completion times, and whether rounding may have decided an order.
    fn run(mut self) -> (Vec<f64>, bool) {
        for _ in 0..200_000 {
            if self.coflows.iter().all(|c| c.end.is_some()) {
                return (self.coflows.iter().map(|c| c.end.unwrap() - c.arrival).collect(), self.has_ties);
            }
            let (mut soon, mut wake) = (f64::INFINITY, f64::INFINITY);
            for c in 0..self.coflows.len() {
                let coflow = &self.coflows[c];
                if coflow.end.is_some() {
                    continue;
                }
                if coflow.release_number.is_none() {
                    soon = soon.min(self.release_time(c));
                    continue;
                }
                for flow in &coflow.flows {
                    soon = match flow.phase {
                        FlowPhase::Live if flow.rate > 0.0 => {
                            soon.min(self.now + (flow.size - flow.sent_bytes) / flow.rate)
                        }
                        FlowPhase::Waiting => soon.min(flow.available_at),
                        _ => soon,
                    };
                }
                wake = wake.min(self.next_wakeup(coflow));
            }
            if self.next_schedule_time(wake) <= self.now {
                // A threshold that this schedule missed by rounding waits for the next one.
                wake = self.now + self.interval.max(RATE_TOLERANCE);
            }
            let soon = soon.min(wake);
            let event = self.workload.events.get(self.next_event).map_or(f64::INFINITY, |e| e.time.get());
            let epoch = self.epochs.get(self.next_epoch).map_or(f64::INFINITY, |epoch| epoch.time);
            let next = self.next_schedule_time(soon).min(event).min(epoch).max(self.now);
            assert!(next.is_finite(), "no event after {}", self.now);
            self.advance(next);
            self.process_events();
            while self.next_epoch < self.epochs.len()
                && self.epochs[self.next_epoch].time <= self.now + self.slack()
            {
                self.begin_epoch(self.next_epoch);
                self.next_epoch += 1;
            }
            self.schedule();
        }
        panic!("the reference simulator makes no progress after {}", self.now);
    }

    fn next_wakeup(&self, c: &Coflow) -> f64 {
        match &self.policy {
            Policy::Saath(saath) => {
                let expires = if c.deadline_at > self.now { c.deadline_at } else { f64::INFINITY };
                saath.next_queue_change(c, self.now).min(expires)
            }
            Policy::Varys { .. } | Policy::Ordered(_) | Policy::Fair => f64::INFINITY,
            Policy::Aalo(aalo) => aalo.next_queue_change(c, self.now),
        }
    }

    /// Advances all flows to `next`. Flows that complete earlier keep their own completion time.
    fn advance(&mut self, next: f64) {
        let (from, slack) = (self.now, self.slack());
        for coflow in &mut self.coflows {
            let mut ended: Vec<(f64, usize)> = Vec::new();
            for (place, flow) in coflow.flows.iter_mut().enumerate() {
                if flow.phase != FlowPhase::Live {
                    continue;
                }
                let end = from + (flow.size - flow.sent_bytes) / flow.rate;
                if flow.rate > 0.0 && end <= next + slack {
                    (flow.phase, flow.sent_bytes, flow.end, flow.rate) =
                        (FlowPhase::Completed, flow.size, end, 0.0);
                    ended.push((end, place));
                } else {
                    flow.sent_bytes += flow.rate * (next - from);
                }
            }
            coflow.completed_lengths.extend(ended.iter().map(|&(_, place)| coflow.flows[place].size));
        }
        self.now = next;
        self.complete_coflows();
    }

    fn complete_coflows(&mut self) {
        for coflow in self.coflows.iter_mut().filter(|c| c.release_number.is_some() && c.end.is_none()) {
            if coflow.flows.iter().all(|f| f.phase == FlowPhase::Completed) {
                coflow.end = Some(coflow.flows.iter().map(|f| f.end).fold(coflow.arrival, f64::max));
            }
        }
    }

    /// Applies arrivals, data and events until now.
    /// Changes trunks, and moves incomplete flows to their present paths.
    fn begin_epoch(&mut self, number: usize) {
        let Epoch { capacities, paths, .. } = self.epochs[number].clone();
        let ports = self.workload.ports as usize;
        self.links.truncate(2 * ports);
        self.links.extend(capacities);
        let order = crate::ports::port_positions(self.workload);
        for ((coflow, spec), paths) in self.coflows.iter_mut().zip(&self.workload.coflows).zip(&paths) {
            let trunks = |i: usize| -> Vec<usize> {
                paths[i].iter().map(|&trunk| 2 * ports + trunk as usize).collect()
            };
            let moves = coflow.flows.iter().zip(&coflow.spec_order);
            let mut moves = moves.filter(|(flow, _)| flow.phase != FlowPhase::Completed);
            if !moves.any(|(flow, &i)| flow.trunks != trunks(i)) {
                continue;
            }
            let mut by_spec = vec![None; spec.flows.len()];
            for (flow, &i) in coflow.flows.iter().zip(&coflow.spec_order) {
                by_spec[i] = Some(Flow { trunks: trunks(i), ..flow.clone() });
            }
            coflow.spec_order = service_order(spec, paths, |port| order[port as usize]);
            coflow.flows = coflow.spec_order.iter().map(|&i| by_spec[i].clone().unwrap()).collect();
        }
    }

    fn process_events(&mut self) {
        let now = self.now + self.slack();
        loop {
            // Data before events: an event at the same time overrides data arrivals.
            for coflow in &mut self.coflows {
                for flow in
                    coflow.flows.iter_mut().filter(|f| f.phase == FlowPhase::Waiting && f.available_at <= now)
                {
                    flow.phase = FlowPhase::Live;
                    if flow.size == 0.0 {
                        (flow.phase, flow.end) = (FlowPhase::Completed, flow.available_at);
                    }
                }
            }
            self.complete_coflows();
            // One release per iteration: a coflow without bytes completes at once, and may release another
            // one before the next.
            let ready = (0..self.coflows.len())
                .filter(|&c| self.coflows[c].release_number.is_none() && self.release_time(c) <= now)
                .min_by(|&a, &b| self.release_time(a).total_cmp(&self.release_time(b)));
            if let Some(c) = ready {
                let at = self.release_time(c);
                let coflow = &mut self.coflows[c];
                (coflow.arrival, coflow.release_number) = (at, Some(self.released));
                coflow.deadline += at;
                self.released += 1;
                for flow in &mut coflow.flows {
                    flow.phase = FlowPhase::Waiting;
                    flow.available_at = (flow.available_at + at).max(flow.withheld_until);
                }
            } else if let Some(event) = self.workload.events.get(self.next_event)
                && event.time.get() <= now
            {
                self.apply_event(event.change);
                self.next_event += 1;
            } else {
                return;
            }
        }
    }

    fn apply_event(&mut self, change: WorkloadChange) {
        match change {
            WorkloadChange::PortRate { port, side, factor } => {
                if side != PortSide::Receive {
                    self.links[port as usize] = factor;
                }
                if side != PortSide::Send {
                    self.links[(self.workload.ports + port) as usize] = factor;
                }
            }
            WorkloadChange::RestartFlow { coflow, flow } => {
                let coflow = &mut self.coflows[coflow];
                let place = coflow.spec_order.iter().position(|&p| p == flow).unwrap();
                let flow = &mut coflow.flows[place];
                if matches!(flow.phase, FlowPhase::Live | FlowPhase::Waiting) {
                    coflow.lost_bytes += flow.sent_bytes;
                    flow.sent_bytes = 0.0;
                }
            }
            WorkloadChange::DelayFlow { coflow, flow, until } => {
                let coflow = &mut self.coflows[coflow];
                let place = coflow.spec_order.iter().position(|&p| p == flow).unwrap();
                let flow = &mut coflow.flows[place];
                match flow.phase {
                    FlowPhase::Unreleased => flow.withheld_until = flow.withheld_until.max(until.get()),
                    FlowPhase::Waiting | FlowPhase::Live => {
                        flow.phase = FlowPhase::Waiting;
                        flow.available_at = flow.available_at.max(until.get());
                    }
                    FlowPhase::Completed => {}
                }
            }
        }
    }

    fn schedule(&mut self) {
        for flow in self.coflows.iter_mut().flat_map(|c| &mut c.flows) {
            flow.rate = 0.0;
        }
        let mut left = self.links.clone();
        match self.policy.clone() {
            Policy::Saath(saath) => self.schedule_saath(&saath, &mut left),
            Policy::Varys { deadlines } => self.schedule_varys(deadlines, &mut left),
            Policy::Ordered(key) => self.schedule_ordered(key, &mut left),
            Policy::Aalo(aalo) => self.schedule_aalo(&aalo, &mut left),
            Policy::Fair => self.schedule_fair(),
        }
    }

    /// Gives each flow in turn the residual capacity of its links.
    fn backfill(&mut self, c: usize, left: &mut [f64]) {
        for flow in self.coflows[c].flows.iter_mut().filter(|f| f.phase == FlowPhase::Live) {
            let rate = flow.links().map(|link| left[link]).fold(f64::INFINITY, f64::min);
            if rate > TOLERANCE {
                flow.take_rate(rate, left);
            }
        }
    }

    fn schedule_saath(&mut self, saath: &SaathParameters, left: &mut [f64]) {
        let active = self.active();
        for &c in &active {
            let queue = saath.queue_of(&self.coflows[c]);
            if self.coflows[c].queue != Some(queue) {
                self.coflows[c].queue = Some(queue);
                let waiting = active.iter().filter(|&&o| self.coflows[o].queue == Some(queue)).count();
                let lower = if queue == 0 { 0.0 } else { saath.upper_threshold(queue - 1) };
                let mut t = saath.upper_threshold(queue) - lower;
                if saath.time_per_flow {
                    t /= self.coflows[c].flows.len() as f64;
                }
                self.coflows[c].deadline_at = self.now + saath.d * waiting as f64 * t;
            }
        }
        let mut turns: Vec<(usize, f64, usize)> = Vec::new();
        for &c in &active {
            let coflow = &self.coflows[c];
            let queue = coflow.queue.unwrap();
            let contention = active.iter().filter(|&&o| {
                o != c
                    && coflow.shares_link(&self.coflows[o])
                    && (saath.contention_all || self.coflows[o].queue == Some(queue))
            });
            turns.push(if coflow.deadline_at <= self.now + RATE_TOLERANCE {
                (0, coflow.deadline_at, c)
            } else if saath.lcof {
                (queue + 1, contention.count() as f64, c)
            } else {
                (queue + 1, 0.0, c)
            });
        }
        let expired: Vec<f64> = turns.iter().filter(|turn| turn.0 == 0).map(|turn| turn.1).collect();
        self.has_ties |=
            (1..expired.len()).any(|i| expired[..i].iter().any(|e| (e - expired[i]).abs() < RATE_TOLERANCE));
        // The sort is stable: active coflows are in order of release.
        turns.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut admitted = Vec::new();
        for group in 0..=saath.queues {
            let mut missed = Vec::new();
            for &(_, _, c) in turns.iter().filter(|turn| turn.0 == group) {
                let coflow = &self.coflows[c];
                if coflow.live_flows().count() == 0 {
                    continue;
                }
                if !saath.all_or_none {
                    self.backfill(c, left);
                    continue;
                }
                let is_available =
                    |left: f64, whole: f64| left > TOLERANCE && (!saath.require_full_ports || left >= whole);
                let available = !coflow.has_waiting_flows()
                    && coflow
                        .live_flows()
                        .all(|f| f.links().all(|link| is_available(left[link], self.links[link])));
                if !available {
                    missed.push(c);
                    continue;
                }
                admitted.push(c);
                let links = coflow.live_flows().flat_map(Flow::links);
                let rates = links.map(|link| left[link] / coflow.live_count_over(link) as f64);
                let rate = rates.fold(f64::INFINITY, f64::min);
                for flow in self.coflows[c].flows.iter_mut().filter(|f| f.phase == FlowPhase::Live) {
                    flow.take_rate(rate, left);
                }
            }
            if saath.conserve_work {
                for c in missed {
                    self.backfill(c, left);
                }
            }
        }
        for c in admitted.into_iter().filter(|_| saath.backfill_all) {
            self.backfill(c, left);
        }
    }

    /// Minimum completion time of a coflow on the residual capacity.
    fn min_completion_seconds(&self, c: usize, left: &[f64]) -> f64 {
        let coflow = &self.coflows[c];
        let links = coflow.live_flows().flat_map(Flow::links);
        links.map(|link| coflow.remaining_over(link) / left[link]).fold(0.0, f64::max)
    }

    /// Whether all links of a coflow's live flows have residual capacity.
    fn is_open(&self, c: usize, left: &[f64]) -> bool {
        self.coflows[c].live_flows().all(|f| f.links().all(|link| left[link] > TOLERANCE))
    }

    fn assign_madd(&mut self, c: usize, min_seconds: f64, left: &mut [f64]) {
        if !self.is_open(c, left) {
            return;
        }
        let seconds = self.min_completion_seconds(c, left).max(min_seconds);
        for flow in self.coflows[c].flows.iter_mut().filter(|f| f.phase == FlowPhase::Live) {
            flow.take_rate((flow.size - flow.sent_bytes) / seconds, left);
        }
    }

    fn schedule_varys(&mut self, deadlines: bool, left: &mut [f64]) {
        let active = self.active();
        if deadlines {
            let kept: Vec<usize> =
                active.iter().copied().filter(|&c| self.coflows[c].admitted == Some(true)).collect();
            for c in kept {
                self.assign_madd(c, self.coflows[c].deadline - self.now, left);
            }
            for &c in &active {
                if self.coflows[c].admitted.is_some() || self.coflows[c].deadline.is_infinite() {
                    continue;
                }
                let seconds = self.coflows[c].deadline - self.now;
                let fits =
                    self.is_open(c, left) && self.min_completion_seconds(c, left) <= seconds * (1.0 + 1e-12);
                self.coflows[c].admitted = Some(fits);
                if fits {
                    self.assign_madd(c, seconds, left);
                }
            }
        }
        let order = self.sort(SortKey::Bottleneck);
        for &c in &order {
            if self.coflows[c].admitted.is_none() {
                self.assign_madd(c, 0.0, left);
            }
        }
        for rejected in [false, true] {
            for &c in &order {
                if (self.coflows[c].admitted == Some(false)) == rejected {
                    self.backfill(c, left);
                }
            }
        }
    }

    /// The active coflows in the order of a key, and of their release if keys are equal.
    fn sort(&mut self, key: SortKey) -> Vec<usize> {
        let active = self.active();
        let key_of = |c: usize| {
            let coflow = &self.coflows[c];
            let remaining = || coflow.live_flows().map(|f| f.size - f.sent_bytes);
            match key {
                SortKey::Release => 0.0,
                SortKey::Bytes => coflow.flows.iter().map(|f| f.size).sum(),
                SortKey::LongestFlow => coflow.flows.iter().map(|f| f.size).fold(0.0, f64::max),
                SortKey::Width => coflow.flows.len() as f64,
                SortKey::RemainingBytes => remaining().sum(),
                SortKey::LongestRemainingFlow => remaining().fold(0.0, f64::max),
                SortKey::Bottleneck => self.min_completion_seconds(c, &self.links),
                SortKey::AddedWaiting => {
                    let others = active.iter().filter(|&&o| o != c && coflow.shares_link(&self.coflows[o]));
                    self.min_completion_seconds(c, &self.links) * others.count() as f64
                }
            }
        };
        let mut order: Vec<(f64, usize)> = active.iter().map(|&c| (key_of(c), c)).collect();
        // The sort is stable: active coflows are in order of release.
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        if ![SortKey::Release, SortKey::Width].contains(&key) {
            self.has_ties |=
                order.windows(2).any(|two| two[1].0 > 0.0 && two[1].0 - two[0].0 < RATE_TOLERANCE);
        }
        order.into_iter().map(|(_, c)| c).collect()
    }

    fn schedule_ordered(&mut self, key: SortKey, left: &mut [f64]) {
        let order = self.sort(key);
        order.iter().for_each(|&c| self.assign_madd(c, 0.0, left));
        order.iter().for_each(|&c| self.backfill(c, left));
    }

    fn schedule_fair(&mut self) {
        let flows = self.coflows.iter_mut().flat_map(|c| &mut c.flows);
        flows.filter(|f| f.phase == FlowPhase::Live).for_each(|f| f.rate = f64::INFINITY);
        self.limit_to_links(0);
    }

    fn schedule_aalo(&mut self, aalo: &AaloParameters, left: &mut [f64]) {
        // The sort is stable: active coflows are in order of release.
        let mut order: Vec<(usize, usize)> =
            self.active().into_iter().map(|c| (aalo.queue_of(&self.coflows[c]), c)).collect();
        order.sort_by_key(|turn| turn.0);
        match aalo.at {
            ControlledPorts::All { strict } => {
                if !strict {
                    self.share_by_weight(&order, left, aalo);
                }
                self.share_coordinated(&order, left);
            }
            ControlledPorts::Senders { strict } => {
                let ports = self.workload.ports as usize;
                for (src, &rate) in left[..ports].iter().enumerate() {
                    self.offer_rates(src, rate, &order, strict, aalo);
                }
                self.limit_to_links(ports);
                for flow in self.coflows.iter().flat_map(Coflow::live_flows) {
                    flow.links().for_each(|link| left[link] -= flow.rate);
                }
                // Work conservation: later coflows use the residual capacity of the senders.
                for (_, c) in order {
                    self.backfill(c, left);
                }
            }
        }
    }

    /// One sender: each queue's share goes to the first coflow with a flow there, evenly over its flows.
    fn offer_rates(
        &mut self,
        src: usize,
        rate: f64,
        order: &[(usize, usize)],
        strict: bool,
        aalo: &AaloParameters,
    ) {
        let mut served: Vec<(usize, usize)> =
            order.iter().copied().filter(|&(_, c)| self.coflows[c].live_count_over(src) > 0).collect();
        served.dedup_by_key(|turn| turn.0);
        if strict {
            served.truncate(1);
        }
        let total: f64 = served.iter().map(|&(queue, _)| aalo.queue_weight(queue)).sum();
        for (queue, c) in served {
            let coflow = &mut self.coflows[c];
            let even = rate * aalo.queue_weight(queue) / total / coflow.live_count_over(src) as f64;
            for flow in coflow.flows.iter_mut().filter(|f| f.phase == FlowPhase::Live && f.src == src) {
                flow.rate = even;
            }
        }
    }

    /// The links from `first` on, max-min: all rates rise together, up to the offers or until a link is full.
    fn limit_to_links(&mut self, first: usize) {
        let flows = self.coflows.iter_mut().flat_map(|c| &mut c.flows);
        let mut open: Vec<(f64, &mut Flow)> =
            flows.filter(|f| f.phase == FlowPhase::Live && f.rate > 0.0).map(|f| (f.rate, f)).collect();
        open.iter_mut().for_each(|(_, flow)| flow.rate = 0.0);
        let mut left = self.links.clone();
        let links = |flow: &Flow| -> Vec<usize> { flow.links().filter(|&link| link >= first).collect() };
        while !open.is_empty() {
            let mut counts = vec![0.0; left.len()];
            open.iter().for_each(|(_, flow)| links(flow).iter().for_each(|&link| counts[link] += 1.0));
            let shares =
                left.iter().zip(&counts).filter(|(_, count)| **count > 0.0).map(|(l, n)| (l / n).max(0.0));
            let step = shares
                .chain(open.iter().map(|(offer, flow)| offer - flow.rate))
                .fold(f64::INFINITY, f64::min);
            for (_, flow) in &mut open {
                flow.rate += step;
                links(flow).iter().for_each(|&link| left[link] -= step);
            }
            open.retain(|(offer, flow)| {
                flow.rate < offer - TOLERANCE / 10.0
                    && links(flow).iter().all(|&link| left[link] > TOLERANCE / 10.0)
            });
        }
    }

    /// Each queue's weighted share of every link, among the queues with a flow there, goes to its coflows.
    fn share_by_weight(&mut self, order: &[(usize, usize)], left: &mut [f64], aalo: &AaloParameters) {
        let links = self.links.clone();
        let has_flow = |simulator: &Self, queue: usize, link: usize| {
            let coflows = order.iter().filter(|turn| turn.0 == queue).map(|&(_, c)| &simulator.coflows[c]);
            coflows.flat_map(Coflow::live_flows).any(|flow| flow.links().any(|other| other == link))
        };
        for coflows in order.chunk_by(|a, b| a.0 == b.0) {
            let weight = aalo.queue_weight(coflows[0].0);
            let mut shares: Vec<f64> = Vec::new();
            for (link, &capacity) in links.iter().enumerate() {
                let queues = (0..aalo.queues).filter(|&queue| has_flow(self, queue, link));
                let total: f64 = queues.map(|queue| aalo.queue_weight(queue)).sum();
                shares.push(if total > 0.0 { capacity * weight / total } else { 0.0 });
            }
            let before = shares.clone();
            self.share_coordinated(coflows, &mut shares);
            for (left, (before, after)) in left.iter_mut().zip(before.iter().zip(&shares)) {
                *left -= before - after;
            }
        }
    }

    fn share_coordinated(&mut self, order: &[(usize, usize)], left: &mut [f64]) {
        for &(_, c) in order {
            // Each flow gets the smaller of its even shares, among flows whose other port has residual
            // capacity.
            let open: Vec<usize> = (0..self.coflows[c].flows.len())
                .filter(|&f| {
                    let flow = &self.coflows[c].flows[f];
                    flow.phase == FlowPhase::Live && flow.links().all(|link| left[link] > TOLERANCE)
                })
                .collect();
            let flows = self.coflows[c].flows.clone();
            let rates: Vec<f64> = open
                .iter()
                .map(|&f| {
                    let count = |link| open.iter().filter(|&&g| flows[g].links().any(|l| l == link)).count();
                    flows[f].links().map(|link| left[link] / count(link) as f64).fold(f64::INFINITY, f64::min)
                })
                .collect();
            for (f, rate) in open.into_iter().zip(rates) {
                self.coflows[c].flows[f].take_rate(rate, left);
            }
        }
    }
}

fn compare_with_replay(w: &Workload, name: &str, policy: &Policy) -> Result<(), TestCaseError> {
    compare_over_trunks(w, None, name, policy)
}

fn compare_over_trunks(
    w: &Workload,
    trunks: Option<&Trunks>,
    name: &str,
    policy: &Policy,
) -> Result<(), TestCaseError> {
    compare_with_failures(w, trunks, &[], &[], name, policy)
}

/// The same while cables of the topology change: `epochs` are the results of `cable_events`.
fn compare_with_failures(
    w: &Workload,
    trunks: Option<&Trunks>,
    cable_events: &[CableEvent],
    epochs: &[Epoch],
    name: &str,
    policy: &Policy,
) -> Result<(), TestCaseError> {
    for interval in [0.0, 0.37] {
        let network = NetworkModel {
            trunks: trunks.map(|trunks| Arc::new(trunks.clone())),
            cable_events: cable_events.into(),
            ..NetworkModel::default()
        };
        let options = ReplayOptions { network, ..options(1.0, interval) };
        let engine = replay(w, policy::build(name).unwrap(), &options, &mut NoObserver).unwrap().ccts();
        let mut reference = ReferenceSimulator::new(w, trunks, policy.clone(), interval);
        reference.epochs = epochs.to_vec();
        let (naive, tied) = reference.run();
        let equal = engine.iter().zip(&naive).all(|(&a, &b)| is_near(a, b, 1e-6));
        prop_assume!(equal || !tied, "rounding decides the order");
        prop_assert!(
            equal,
            "{}, interval {}: {:?}, but {:?} by the reference simulator",
            name,
            interval,
            engine,
            naive
        );
    }
    Ok(())
}

/// Random combinations of all Saath options. No sum of sizes equals a threshold.
fn any_saath_policy() -> impl Strategy<Value = (String, Policy)> {
    let switches = prop::collection::vec(prop::bool::weighted(0.75), 10);
    (switches, prop::sample::select(vec![0.31, 1.07, 2.03, f64::INFINITY]), 0.9f64..4.0).prop_map(
        |(on, d, start)| {
            let start = (start * 1e6).round() / 1e6;
            let on_off = |on: bool| if on { "on" } else { "off" };
            let name = format!(
                "saath:start={start}B:growth=2:queues=4:d={d}:all-or-none={}:per-flow={}:lcof={}:requeue={}:\
                 work-conservation={}:contention={}:available={}:time={}:backfill={}",
                on_off(on[0]),
                on_off(on[1]),
                on_off(on[2]),
                on_off(on[3]),
                on_off(on[4]),
                if on[5] { "queue" } else { "all" },
                if on[6] { "any" } else { "full" },
                if on[7] { "total" } else { "flow" },
                if on[8] { "missed" } else { "all" },
            );
            let saath = SaathParameters {
                start,
                growth: 2.0,
                queues: 4,
                d,
                all_or_none: on[0],
                per_flow: on[1],
                lcof: on[2],
                requeue: on[3],
                conserve_work: on[4],
                backfill_all: !on[8],
                contention_all: !on[5],
                require_full_ports: !on[6],
                time_per_flow: !on[7],
            };
            (name, Policy::Saath(saath))
        },
    )
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn saath_matches_the_reference_simulator(w in any_workload(WorkloadFeatures::PLAIN.with_distinct_values()), (name, policy) in any_saath_policy()) {
        compare_with_replay(&w, &name, &policy)?;
    }

    #[test]
    fn saath_matches_the_reference_simulator_under_events(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
        (name, policy) in any_saath_policy(),
    ) {
        compare_with_replay(&w, &name, &policy)?;
    }

    #[test]
    fn saath_over_trunks_matches_the_reference_simulator(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
        (name, policy) in any_saath_policy(),
    ) {
        compare_over_trunks(&w, Some(&trunks), &name, &policy)?;
    }

    #[test]
    fn varys_over_trunks_matches_the_reference_simulator(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
        deadlines in prop::bool::ANY,
    ) {
        let name = if deadlines { "varys:deadlines=on" } else { "varys" };
        compare_over_trunks(&w, Some(&trunks), name, &Policy::Varys { deadlines })?;
    }

    #[test]
    fn policies_match_the_reference_simulator_while_cables_fail(
        case in any_failures(WorkloadFeatures { restarts: false, ..WorkloadFeatures::ALL }.with_distinct_values()),
        start in 0.9f64..4.0,
    ) {
        let compare = |name: &str, policy: &Policy| {
            compare_with_failures(&case.workload, Some(&case.trunks), &case.events, &case.epochs, name, policy)
        };
        compare("varys", &Policy::Varys { deadlines: false })?;
        compare("fair", &Policy::Fair)?;
        for (name, key) in ORDERED_POLICIES {
            compare(name, &Policy::Ordered(key))?;
        }
        let name = format!("aalo:start={start}B:growth=2:queues=4:at=both:sharing=strict");
        let at = ControlledPorts::All { strict: true };
        compare(&name, &Policy::Aalo(AaloParameters { start, growth: 2.0, queues: 4, at }))?;
    }

    #[test]
    fn ordered_policies_and_fair_match_the_reference_simulator(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
    ) {
        compare_with_replay(&w, "fair", &Policy::Fair)?;
        for (name, key) in ORDERED_POLICIES {
            compare_with_replay(&w, name, &Policy::Ordered(key))?;
        }
    }

    #[test]
    fn ordered_policies_and_fair_over_trunks_match_the_reference_simulator(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
    ) {
        compare_over_trunks(&w, Some(&trunks), "fair", &Policy::Fair)?;
        for (name, key) in ORDERED_POLICIES {
            compare_over_trunks(&w, Some(&trunks), name, &Policy::Ordered(key))?;
        }
    }

    #[test]
    fn varys_matches_the_reference_simulator(w in any_workload(WorkloadFeatures::ALL.with_distinct_values()), deadlines in prop::bool::ANY) {
        let name = if deadlines { "varys:deadlines=on" } else { "varys" };
        compare_with_replay(&w, name, &Policy::Varys { deadlines })?;
    }

    #[test]
    fn coordinated_aalo_matches_the_reference_simulator(w in any_workload(WorkloadFeatures::ALL.with_distinct_values()), start in 0.9f64..4.0) {
        for (sharing, strict) in [(":sharing=strict", true), ("", false)] {
            let name = format!("aalo:start={start}B:growth=2:queues=4:at=both{sharing}");
            let at = ControlledPorts::All { strict };
            compare_with_replay(&w, &name, &Policy::Aalo(AaloParameters { start, growth: 2.0, queues: 4, at }))?;
        }
    }

    #[test]
    fn aalo_over_trunks_matches_the_reference_simulator(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
        start in 0.9f64..4.0,
        strict in prop::bool::ANY,
    ) {
        let queues = format!("aalo:start={start}B:growth=2:queues=4");
        let sharing = if strict { ":sharing=strict" } else { "" };
        let variants = [
            (format!("{queues}:at=both{sharing}"), ControlledPorts::All { strict }),
            (format!("{queues}{sharing}"), ControlledPorts::Senders { strict }),
        ];
        for (name, at) in variants {
            let policy = Policy::Aalo(AaloParameters { start, growth: 2.0, queues: 4, at });
            compare_over_trunks(&w, Some(&trunks), &name, &policy)?;
        }
    }

    #[test]
    fn aalo_matches_the_reference_simulator(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
        start in 0.9f64..4.0,
        queues in 1usize..=5,
        strict in prop::bool::ANY,
    ) {
        let sharing = if strict { ":sharing=strict" } else { "" };
        let name = format!("aalo:start={start}B:growth=2:queues={queues}{sharing}");
        let at = ControlledPorts::Senders { strict };
        compare_with_replay(&w, &name, &Policy::Aalo(AaloParameters { start, growth: 2.0, queues, at }))?;
    }
}
