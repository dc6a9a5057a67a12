//! The engine against a reference simulator, written directly from the definitions of the policies. Every
//! flow has its bytes and rate, and every schedule is computed from scratch.

use crate::common::{Kinds, cases, near, run_with, workloads};
use proptest::prelude::*;
use weir_core::model::{Change, Side, Workload};
use weir_sim::NoObserver;

/// Residual port capacity below this is rounding error.
const DUST: f64 = 1e-9;
/// Events closer than this are simultaneous.
const EPS: f64 = 1e-9;

#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Unborn,
    Waiting,
    Live,
    Done,
}

#[derive(Debug, Clone)]
struct Flow {
    src: usize,
    dst: usize,
    size: f64,
    sent: f64,
    rate: f64,
    at: At,
    /// Time at which its data is available; before the coflow's release, the delay after the release.
    there: f64,
    not_before: f64,
    end: f64,
}

#[derive(Debug, Clone)]
struct Coflow {
    arrival: f64,
    deadline: f64,
    /// In service order: by ports; a second flow between the same two ports comes in a second round of its
    /// sender.
    flows: Vec<Flow>,
    /// Indices in the workload.
    places: Vec<usize>,
    parents: Vec<usize>,
    seq: Option<usize>,
    end: Option<f64>,
    queue: Option<usize>,
    expires: f64,
    lengths: Vec<f64>,
    admitted: Option<bool>,
    /// Bytes that restarted flows had sent before.
    lost: f64,
}

impl Coflow {
    fn live(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|f| f.at == At::Live)
    }

    fn lacks_data(&self) -> bool {
        self.flows.iter().any(|f| f.at == At::Waiting)
    }

    fn left_at(&self, port: usize, sends: bool) -> f64 {
        self.live().filter(|f| (if sends { f.src } else { f.dst }) == port).map(|f| f.size - f.sent).sum()
    }

    fn live_at(&self, port: usize, sends: bool) -> usize {
        self.live().filter(|f| (if sends { f.src } else { f.dst }) == port).count()
    }
}

#[derive(Debug, Clone)]
struct Saath {
    start: f64,
    growth: f64,
    queues: usize,
    d: f64,
    all_or_none: bool,
    per_flow: bool,
    lcof: bool,
    conserve: bool,
    requeue: bool,
    contention_all: bool,
    full: bool,
    time_per_flow: bool,
}

impl Saath {
    fn upper(&self, queue: usize) -> f64 {
        self.start * self.growth.powi(queue as i32)
    }

    fn by(&self, past: impl Fn(f64) -> bool) -> usize {
        (0..self.queues - 1).find(|&q| !past(self.upper(q))).unwrap_or(self.queues - 1)
    }

    /// Remaining bytes of the least advanced flow if its length is the median of the completed flows.
    fn estimate(&self, c: &Coflow) -> Option<(f64, f64)> {
        if !self.requeue || !self.per_flow || c.lengths.is_empty() {
            return None;
        }
        let mut lengths = c.lengths.clone();
        lengths.sort_by(f64::total_cmp);
        let n = lengths.len();
        let median = (lengths[(n - 1) / 2] + lengths[n / 2]) / 2.0;
        let unfinished = c.flows.iter().filter(|f| f.at != At::Done);
        let least = unfinished.map(|f| f.sent).fold(f64::INFINITY, f64::min);
        (least < median - EPS).then_some((median, median - least))
    }

    fn furthest(c: &Coflow) -> f64 {
        c.flows.iter().map(|f| f.sent).fold(0.0, f64::max)
    }

    fn queue_of(&self, c: &Coflow) -> usize {
        let width = c.flows.len() as f64;
        if !self.per_flow {
            let total: f64 = c.flows.iter().map(|f| f.sent).sum();
            return self.by(|upper| total >= upper * (1.0 - 1e-12));
        }
        match self.estimate(c) {
            Some((_, left)) => self.by(|upper| left * width > upper * (1.0 + 1e-12)),
            None => self.by(|upper| Self::furthest(c) * width >= upper * (1.0 - 1e-12)),
        }
    }

    /// Next time at which a coflow's queue may change at the current rates: when a flow, or the whole coflow,
    /// reaches a threshold.
    fn changes(&self, c: &Coflow, now: f64) -> f64 {
        let width = c.flows.len() as f64;
        let mut next = f64::INFINITY;
        let mut at = |left: f64, rate: f64| {
            if left > EPS && rate > 0.0 {
                next = f64::min(next, now + left / rate);
            }
        };
        for queue in 0..self.queues {
            let upper = self.upper(queue);
            if !self.per_flow {
                at(upper - c.flows.iter().map(|f| f.sent).sum::<f64>(), c.live().map(|f| f.rate).sum());
                continue;
            }
            for flow in c.live() {
                at(upper / width - flow.sent, flow.rate);
                if let Some((median, _)) = self.estimate(c) {
                    at(median - upper / width - flow.sent, flow.rate);
                    at(median - flow.sent, flow.rate);
                }
            }
        }
        next
    }
}

/// Queues by the bytes that coflows have sent.
#[derive(Debug, Clone)]
struct Aalo {
    start: f64,
    growth: f64,
    queues: usize,
    at: Ports,
}

/// Ports with queues.
#[derive(Debug, Clone, Copy)]
enum Ports {
    /// Both sides, in strict priority order.
    All,
    Senders {
        strict: bool,
    },
}

impl Aalo {
    fn upper(&self, queue: usize) -> f64 {
        self.start * self.growth.powi(queue as i32)
    }

    fn weight(&self, queue: usize) -> f64 {
        (self.queues - queue) as f64
    }

    fn sent(c: &Coflow) -> f64 {
        c.lost + c.flows.iter().map(|f| f.sent).sum::<f64>()
    }

    fn queue_of(&self, c: &Coflow) -> usize {
        let below = |q: &usize| Self::sent(c) < self.upper(*q) * (1.0 - 1e-12);
        (0..self.queues - 1).find(below).unwrap_or(self.queues - 1)
    }

    /// Time at which a coflow reaches the next threshold at the current rates.
    fn changes(&self, c: &Coflow, now: f64) -> f64 {
        let rate: f64 = c.live().map(|f| f.rate).sum();
        (0..self.queues - 1)
            .map(|q| self.upper(q) - Self::sent(c))
            .filter(|left| *left > EPS && rate > 0.0)
            .fold(f64::INFINITY, |next, left| next.min(now + left / rate))
    }
}

#[derive(Debug, Clone)]
enum Policy {
    Saath(Saath),
    Varys { deadlines: bool },
    Aalo(Aalo),
}

struct World<'a> {
    workload: &'a Workload,
    policy: Policy,
    interval: f64,
    now: f64,
    coflows: Vec<Coflow>,
    send: Vec<f64>,
    recv: Vec<f64>,
    released: usize,
    next_event: usize,
    /// Whether two coflows ever had equal deadlines (Saath) or remaining times (Varys) except for rounding
    /// errors, which then decided their order.
    tied: bool,
}

impl World<'_> {
    fn new(workload: &Workload, policy: Policy, interval: f64) -> World<'_> {
        let order = crate::ports::places(workload);
        let place = |port: u32| order[port as usize];
        let coflows = workload.coflows.iter().map(|spec| {
            let mut round = vec![0; spec.flows.len()];
            for (i, flow) in spec.flows.iter().enumerate() {
                let before = &spec.flows[..i];
                round[i] = before.iter().filter(|f| (f.src, f.dst) == (flow.src, flow.dst)).count();
            }
            let mut places: Vec<usize> = (0..spec.flows.len()).collect();
            places.sort_by_key(|&i| (place(spec.flows[i].src), round[i], place(spec.flows[i].dst)));
            let flow = |&i: &usize| Flow {
                src: spec.flows[i].src as usize,
                dst: spec.flows[i].dst as usize,
                size: spec.flows[i].bytes.get(),
                sent: 0.0,
                rate: 0.0,
                at: At::Unborn,
                there: spec.flows[i].release.get(),
                not_before: 0.0,
                end: 0.0,
            };
            Coflow {
                arrival: spec.arrival.get(),
                deadline: spec.deadline.map_or(f64::INFINITY, |d| d.get()),
                flows: places.iter().map(flow).collect(),
                places,
                parents: spec.parents.clone(),
                seq: None,
                end: None,
                queue: None,
                expires: f64::INFINITY,
                lengths: Vec::new(),
                admitted: None,
                lost: 0.0,
            }
        });
        let ports = workload.ports as usize;
        World {
            workload,
            policy,
            interval,
            now: 0.0,
            coflows: coflows.collect(),
            send: vec![1.0; ports],
            recv: vec![1.0; ports],
            released: 0,
            next_event: 0,
            tied: false,
        }
    }

    /// Active coflows in the order of their release.
    fn active(&self) -> Vec<usize> {
        let mut active: Vec<usize> = (0..self.coflows.len())
            .filter(|&c| self.coflows[c].seq.is_some() && self.coflows[c].end.is_none())
            .collect();
        active.sort_by_key(|&c| self.coflows[c].seq);
        active
    }

    /// Release time of a coflow; unknown while a parent is active.
    fn release_time(&self, c: usize) -> f64 {
        let parents = &self.coflows[c].parents;
        let ends = parents.iter().map(|&p| self.coflows[p].end.unwrap_or(f64::INFINITY));
        ends.fold(self.coflows[c].arrival, f64::max)
    }

    fn tick(&self, at: f64) -> f64 {
        if self.interval == 0.0 || at.is_infinite() {
            return at;
        }
        ((at - self.slack()) / self.interval).ceil() * self.interval
    }

    /// Events within this distance of a schedule are part of it.
    fn slack(&self) -> f64 {
        (1e-6 * self.interval).clamp(EPS, 1e-8)
    }

    /// Runs the replay. Returns all completion times, and whether rounding may have decided an order.
    fn run(mut self) -> (Vec<f64>, bool) {
        for _ in 0..200_000 {
            if self.coflows.iter().all(|c| c.end.is_some()) {
                return (self.coflows.iter().map(|c| c.end.unwrap() - c.arrival).collect(), self.tied);
            }
            let (mut soon, mut wake) = (f64::INFINITY, f64::INFINITY);
            for c in 0..self.coflows.len() {
                let coflow = &self.coflows[c];
                if coflow.end.is_some() {
                    continue;
                }
                if coflow.seq.is_none() {
                    soon = soon.min(self.release_time(c));
                    continue;
                }
                for flow in &coflow.flows {
                    soon = match flow.at {
                        At::Live if flow.rate > 0.0 => {
                            soon.min(self.now + (flow.size - flow.sent) / flow.rate)
                        }
                        At::Waiting => soon.min(flow.there),
                        _ => soon,
                    };
                }
                wake = wake.min(self.wake(coflow));
            }
            if self.tick(wake) <= self.now {
                // A threshold that this schedule missed by rounding waits for the next one.
                wake = self.now + self.interval.max(EPS);
            }
            let soon = soon.min(wake);
            let event = self.workload.events.get(self.next_event).map_or(f64::INFINITY, |e| e.at.get());
            let next = self.tick(soon).min(event).max(self.now);
            assert!(next.is_finite(), "nothing happens after {}", self.now);
            self.advance(next);
            self.happen();
            self.schedule();
        }
        panic!("the naive simulator gets nowhere after {}", self.now);
    }

    fn wake(&self, c: &Coflow) -> f64 {
        match &self.policy {
            Policy::Saath(saath) => {
                let expires = if c.expires > self.now { c.expires } else { f64::INFINITY };
                saath.changes(c, self.now).min(expires)
            }
            Policy::Varys { .. } => f64::INFINITY,
            Policy::Aalo(aalo) => aalo.changes(c, self.now),
        }
    }

    /// Advances all flows to `next`. Flows that complete earlier keep their own completion time.
    fn advance(&mut self, next: f64) {
        let (from, slack) = (self.now, self.slack());
        for coflow in &mut self.coflows {
            let mut ended: Vec<(f64, usize)> = Vec::new();
            for (place, flow) in coflow.flows.iter_mut().enumerate() {
                if flow.at != At::Live {
                    continue;
                }
                let end = from + (flow.size - flow.sent) / flow.rate;
                if flow.rate > 0.0 && end <= next + slack {
                    (flow.at, flow.sent, flow.end, flow.rate) = (At::Done, flow.size, end, 0.0);
                    ended.push((end, place));
                } else {
                    flow.sent += flow.rate * (next - from);
                }
            }
            coflow.lengths.extend(ended.iter().map(|&(_, place)| coflow.flows[place].size));
        }
        self.now = next;
        self.complete();
    }

    fn complete(&mut self) {
        for coflow in self.coflows.iter_mut().filter(|c| c.seq.is_some() && c.end.is_none()) {
            if coflow.flows.iter().all(|f| f.at == At::Done) {
                coflow.end = Some(coflow.flows.iter().map(|f| f.end).fold(coflow.arrival, f64::max));
            }
        }
    }

    /// Applies arrivals, data and events until now.
    fn happen(&mut self) {
        let now = self.now + self.slack();
        loop {
            // Data before events: an event at the same time overrides data arrivals.
            for coflow in &mut self.coflows {
                for flow in coflow.flows.iter_mut().filter(|f| f.at == At::Waiting && f.there <= now) {
                    flow.at = At::Live;
                    if flow.size == 0.0 {
                        (flow.at, flow.end) = (At::Done, flow.there);
                    }
                }
            }
            self.complete();
            // One release per iteration: a coflow without bytes completes at once, and may release another
            // one before the next.
            let ready = (0..self.coflows.len())
                .filter(|&c| self.coflows[c].seq.is_none() && self.release_time(c) <= now)
                .min_by(|&a, &b| self.release_time(a).total_cmp(&self.release_time(b)));
            if let Some(c) = ready {
                let at = self.release_time(c);
                let coflow = &mut self.coflows[c];
                (coflow.arrival, coflow.seq) = (at, Some(self.released));
                coflow.deadline += at;
                self.released += 1;
                for flow in &mut coflow.flows {
                    flow.at = At::Waiting;
                    flow.there = (flow.there + at).max(flow.not_before);
                }
            } else if let Some(event) = self.workload.events.get(self.next_event)
                && event.at.get() <= now
            {
                self.event(event.what);
                self.next_event += 1;
            } else {
                return;
            }
        }
    }

    fn event(&mut self, change: Change) {
        match change {
            Change::PortRate { port, side, factor } => {
                if side != Side::Receive {
                    self.send[port as usize] = factor;
                }
                if side != Side::Send {
                    self.recv[port as usize] = factor;
                }
            }
            Change::Restart { coflow, flow } => {
                let coflow = &mut self.coflows[coflow];
                let place = coflow.places.iter().position(|&p| p == flow).unwrap();
                let flow = &mut coflow.flows[place];
                if matches!(flow.at, At::Live | At::Waiting) {
                    coflow.lost += flow.sent;
                    flow.sent = 0.0;
                }
            }
            Change::Late { coflow, flow, until } => {
                let coflow = &mut self.coflows[coflow];
                let place = coflow.places.iter().position(|&p| p == flow).unwrap();
                let flow = &mut coflow.flows[place];
                match flow.at {
                    At::Unborn => flow.not_before = flow.not_before.max(until.get()),
                    At::Waiting | At::Live => {
                        flow.at = At::Waiting;
                        flow.there = flow.there.max(until.get());
                    }
                    At::Done => {}
                }
            }
        }
    }

    fn schedule(&mut self) {
        for flow in self.coflows.iter_mut().flat_map(|c| &mut c.flows) {
            flow.rate = 0.0;
        }
        let (mut send, mut recv) = (self.send.clone(), self.recv.clone());
        match self.policy.clone() {
            Policy::Saath(saath) => self.saath(&saath, &mut send, &mut recv),
            Policy::Varys { deadlines } => self.varys(deadlines, &mut send, &mut recv),
            Policy::Aalo(aalo) => self.aalo(&aalo, &mut send, &mut recv),
        }
    }

    /// Gives each flow in turn the residual capacity of its two ports.
    fn fill(&mut self, c: usize, send: &mut [f64], recv: &mut [f64]) {
        for flow in self.coflows[c].flows.iter_mut().filter(|f| f.at == At::Live) {
            let rate = send[flow.src].min(recv[flow.dst]);
            if rate > DUST {
                flow.rate += rate;
                send[flow.src] -= rate;
                recv[flow.dst] -= rate;
            }
        }
    }

    fn saath(&mut self, saath: &Saath, send: &mut [f64], recv: &mut [f64]) {
        let active = self.active();
        for &c in &active {
            let queue = saath.queue_of(&self.coflows[c]);
            if self.coflows[c].queue != Some(queue) {
                self.coflows[c].queue = Some(queue);
                let waiting = active.iter().filter(|&&o| self.coflows[o].queue == Some(queue)).count();
                let lower = if queue == 0 { 0.0 } else { saath.upper(queue - 1) };
                let mut t = saath.upper(queue) - lower;
                if saath.time_per_flow {
                    t /= self.coflows[c].flows.len() as f64;
                }
                self.coflows[c].expires = self.now + saath.d * waiting as f64 * t;
            }
        }
        let blocks =
            |a: &Coflow, b: &Coflow| a.live().any(|f| b.live().any(|g| f.src == g.src || f.dst == g.dst));
        let mut turns: Vec<(usize, f64, usize)> = Vec::new();
        for &c in &active {
            let coflow = &self.coflows[c];
            let queue = coflow.queue.unwrap();
            let contention = active.iter().filter(|&&o| {
                o != c
                    && blocks(coflow, &self.coflows[o])
                    && (saath.contention_all || self.coflows[o].queue == Some(queue))
            });
            turns.push(if coflow.expires <= self.now + EPS {
                (0, coflow.expires, c)
            } else if saath.lcof {
                (queue + 1, contention.count() as f64, c)
            } else {
                (queue + 1, 0.0, c)
            });
        }
        let expired: Vec<f64> = turns.iter().filter(|turn| turn.0 == 0).map(|turn| turn.1).collect();
        self.tied |= (1..expired.len()).any(|i| expired[..i].iter().any(|e| (e - expired[i]).abs() < EPS));
        // The sort is stable: active coflows are in order of release.
        turns.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for group in 0..=saath.queues {
            let mut missed = Vec::new();
            for &(_, _, c) in turns.iter().filter(|turn| turn.0 == group) {
                let coflow = &self.coflows[c];
                if coflow.live().count() == 0 {
                    continue;
                }
                if !saath.all_or_none {
                    self.fill(c, send, recv);
                    continue;
                }
                let free = |left: f64, whole: f64| left > DUST && (!saath.full || left >= whole);
                let available = !coflow.lacks_data()
                    && coflow
                        .live()
                        .all(|f| free(send[f.src], self.send[f.src]) && free(recv[f.dst], self.recv[f.dst]));
                if !available {
                    missed.push(c);
                    continue;
                }
                let rate = coflow.live().fold(f64::INFINITY, |rate, f| {
                    rate.min(send[f.src] / coflow.live_at(f.src, true) as f64)
                        .min(recv[f.dst] / coflow.live_at(f.dst, false) as f64)
                });
                for flow in self.coflows[c].flows.iter_mut().filter(|f| f.at == At::Live) {
                    flow.rate = rate;
                    send[flow.src] -= rate;
                    recv[flow.dst] -= rate;
                }
            }
            if saath.conserve {
                for c in missed {
                    self.fill(c, send, recv);
                }
            }
        }
    }

    /// Minimum completion time of a coflow on the residual port capacity.
    fn least_time(&self, c: usize, send: &[f64], recv: &[f64]) -> f64 {
        let coflow = &self.coflows[c];
        let at = |f: &Flow| {
            (coflow.left_at(f.src, true) / send[f.src]).max(coflow.left_at(f.dst, false) / recv[f.dst])
        };
        coflow.live().map(at).fold(0.0, f64::max)
    }

    fn madd(&mut self, c: usize, least: f64, send: &mut [f64], recv: &mut [f64]) {
        let open = self.coflows[c].live().all(|f| send[f.src] > DUST && recv[f.dst] > DUST);
        if !open {
            return;
        }
        let seconds = self.least_time(c, send, recv).max(least);
        for flow in self.coflows[c].flows.iter_mut().filter(|f| f.at == At::Live) {
            let rate = (flow.size - flow.sent) / seconds;
            flow.rate += rate;
            send[flow.src] -= rate;
            recv[flow.dst] -= rate;
        }
    }

    fn varys(&mut self, deadlines: bool, send: &mut [f64], recv: &mut [f64]) {
        let active = self.active();
        if deadlines {
            let kept: Vec<usize> =
                active.iter().copied().filter(|&c| self.coflows[c].admitted == Some(true)).collect();
            for c in kept {
                self.madd(c, self.coflows[c].deadline - self.now, send, recv);
            }
            for &c in &active {
                if self.coflows[c].admitted.is_some() || self.coflows[c].deadline.is_infinite() {
                    continue;
                }
                let left = self.coflows[c].deadline - self.now;
                let open = self.coflows[c].live().all(|f| send[f.src] > DUST && recv[f.dst] > DUST);
                let fits = open && self.least_time(c, send, recv) <= left * (1.0 + 1e-12);
                self.coflows[c].admitted = Some(fits);
                if fits {
                    self.madd(c, left, send, recv);
                }
            }
        }
        let (all_send, all_recv) = (self.send.clone(), self.recv.clone());
        let mut order: Vec<(f64, usize)> =
            active.iter().map(|&c| (self.least_time(c, &all_send, &all_recv), c)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.tied |= order.windows(2).any(|two| two[1].0 > 0.0 && two[1].0 - two[0].0 < EPS);
        for &(_, c) in &order {
            if self.coflows[c].admitted.is_none() {
                self.madd(c, 0.0, send, recv);
            }
        }
        for rejected in [false, true] {
            for &(_, c) in &order {
                if (self.coflows[c].admitted == Some(false)) == rejected {
                    self.fill(c, send, recv);
                }
            }
        }
    }

    fn aalo(&mut self, aalo: &Aalo, send: &mut [f64], recv: &mut [f64]) {
        // The sort is stable: active coflows are in order of release.
        let mut order: Vec<(usize, usize)> =
            self.active().into_iter().map(|c| (aalo.queue_of(&self.coflows[c]), c)).collect();
        order.sort_by_key(|turn| turn.0);
        match aalo.at {
            Ports::All => self.coordinated(&order, send, recv),
            Ports::Senders { strict } => {
                for (src, &rate) in send.iter().enumerate() {
                    self.offer(src, rate, &order, strict, aalo);
                }
                for (dst, left) in recv.iter_mut().enumerate() {
                    self.take(dst, left);
                }
                for flow in self.coflows.iter().flat_map(Coflow::live) {
                    send[flow.src] -= flow.rate;
                }
                // Work conservation: later coflows use the residual capacity of the senders.
                for (_, c) in order {
                    self.fill(c, send, recv);
                }
            }
        }
    }

    /// One sender: each queue's share goes to the first coflow with a flow there, evenly over its flows.
    fn offer(&mut self, src: usize, rate: f64, order: &[(usize, usize)], strict: bool, aalo: &Aalo) {
        let mut served: Vec<(usize, usize)> =
            order.iter().copied().filter(|&(_, c)| self.coflows[c].live_at(src, true) > 0).collect();
        served.dedup_by_key(|turn| turn.0);
        if strict {
            served.truncate(1);
        }
        let total: f64 = served.iter().map(|&(queue, _)| aalo.weight(queue)).sum();
        for (queue, c) in served {
            let coflow = &mut self.coflows[c];
            let even = rate * aalo.weight(queue) / total / coflow.live_at(src, true) as f64;
            for flow in coflow.flows.iter_mut().filter(|f| f.at == At::Live && f.src == src) {
                flow.rate = even;
            }
        }
    }

    /// One receiver, max-min: from the lowest offer on, each flow gets at most an even share of the remaining
    /// capacity.
    fn take(&mut self, dst: usize, left: &mut f64) {
        let flows = self.coflows.iter_mut().flat_map(|c| &mut c.flows);
        let mut offers: Vec<&mut f64> =
            flows.filter(|f| f.at == At::Live && f.dst == dst).map(|f| &mut f.rate).collect();
        offers.sort_by(|a, b| a.total_cmp(b));
        for i in 0..offers.len() {
            *offers[i] = offers[i].min(*left / (offers.len() - i) as f64);
            *left -= *offers[i];
        }
    }

    fn coordinated(&mut self, order: &[(usize, usize)], send: &mut [f64], recv: &mut [f64]) {
        for &(_, c) in order {
            // Each flow gets the smaller of its even shares, among flows whose other port has residual
            // capacity.
            let open: Vec<usize> = (0..self.coflows[c].flows.len())
                .filter(|&f| {
                    let flow = &self.coflows[c].flows[f];
                    flow.at == At::Live && send[flow.src] > DUST && recv[flow.dst] > DUST
                })
                .collect();
            let flows = self.coflows[c].flows.clone();
            let rates: Vec<f64> = open
                .iter()
                .map(|&f| {
                    let from = open.iter().filter(|&&g| flows[g].src == flows[f].src).count() as f64;
                    let to = open.iter().filter(|&&g| flows[g].dst == flows[f].dst).count() as f64;
                    (send[flows[f].src] / from).min(recv[flows[f].dst] / to)
                })
                .collect();
            for (f, rate) in open.into_iter().zip(rates) {
                self.coflows[c].flows[f].rate = rate;
                send[flows[f].src] -= rate;
                recv[flows[f].dst] -= rate;
            }
        }
    }
}

fn compare(w: &Workload, name: &str, policy: &Policy) -> Result<(), TestCaseError> {
    for interval in [0.0, 0.37] {
        let engine = run_with(w, name, 1.0, interval, &mut NoObserver).unwrap().ccts();
        let (naive, tied) = World::new(w, policy.clone(), interval).run();
        let equal = engine.iter().zip(&naive).all(|(&a, &b)| near(a, b, 1e-6));
        prop_assume!(equal || !tied, "rounding decides who goes first");
        prop_assert!(equal, "{}, interval {}: {:?}, and naively {:?}", name, interval, engine, naive);
    }
    Ok(())
}

/// Random combinations of all Saath options. No sum of sizes equals a threshold.
fn saaths() -> impl Strategy<Value = (String, Policy)> {
    let switches = prop::collection::vec(prop::bool::weighted(0.75), 9);
    (switches, prop::sample::select(vec![0.31, 1.07, 2.03, f64::INFINITY]), 0.9f64..4.0).prop_map(
        |(on, d, start)| {
            let start = (start * 1e6).round() / 1e6;
            let word = |on: bool| if on { "on" } else { "off" };
            let name = format!(
                "saath:start={start}B:growth=2:queues=4:d={d}:all-or-none={}:per-flow={}:lcof={}:requeue={}:\
                 work-conservation={}:contention={}:available={}:time={}",
                word(on[0]),
                word(on[1]),
                word(on[2]),
                word(on[3]),
                word(on[4]),
                if on[5] { "queue" } else { "all" },
                if on[6] { "any" } else { "full" },
                if on[7] { "total" } else { "flow" },
            );
            let saath = Saath {
                start,
                growth: 2.0,
                queues: 4,
                d,
                all_or_none: on[0],
                per_flow: on[1],
                lcof: on[2],
                requeue: on[3],
                conserve: on[4],
                contention_all: !on[5],
                full: !on[6],
                time_per_flow: !on[7],
            };
            (name, Policy::Saath(saath))
        },
    )
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn saath_matches_the_reference_simulator(w in workloads(Kinds::PLAIN.generic()), (name, policy) in saaths()) {
        compare(&w, &name, &policy)?;
    }

    #[test]
    fn saath_matches_the_reference_simulator_under_events(
        w in workloads(Kinds::ALL.generic()),
        (name, policy) in saaths(),
    ) {
        compare(&w, &name, &policy)?;
    }

    #[test]
    fn varys_matches_the_reference_simulator(w in workloads(Kinds::ALL.generic()), deadlines in prop::bool::ANY) {
        let name = if deadlines { "varys:deadlines=on" } else { "varys" };
        compare(&w, name, &Policy::Varys { deadlines })?;
    }

    #[test]
    fn coordinated_aalo_matches_the_reference_simulator(w in workloads(Kinds::ALL.generic()), start in 0.9f64..4.0) {
        let name = format!("aalo:start={start}B:growth=2:queues=4:at=both:sharing=strict");
        compare(&w, &name, &Policy::Aalo(Aalo { start, growth: 2.0, queues: 4, at: Ports::All }))?;
    }

    #[test]
    fn aalo_matches_the_reference_simulator(
        w in workloads(Kinds::ALL.generic()),
        start in 0.9f64..4.0,
        queues in 1usize..=5,
        strict in prop::bool::ANY,
    ) {
        let sharing = if strict { ":sharing=strict" } else { "" };
        let name = format!("aalo:start={start}B:growth=2:queues={queues}{sharing}");
        let at = Ports::Senders { strict };
        compare(&w, &name, &Policy::Aalo(Aalo { start, growth: 2.0, queues, at }))?;
    }
}
