//! Saath: queues by the bytes of flows, least contention first, all-or-none, deadlines.

use super::regions::RegionNetwork;
use super::{Coflow, Flow, FlowPhase, Policy, RATE_TOLERANCE, ReferenceSimulator, TOLERANCE, Variant};
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(super) struct SaathParameters {
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
    local: bool,
}

impl SaathParameters {
    pub(super) fn serves_locally(&self) -> bool {
        self.local
    }

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
    pub(super) fn next_queue_change(&self, c: &Coflow, now: f64) -> f64 {
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

impl ReferenceSimulator<'_> {
    /// The rate of the fastest link that can limit a flow: a port, or a link between regions at mean bandwidth.
    fn fastest_link_rate(&self) -> f64 {
        self.regions.map_or(1.0, RegionNetwork::fastest_mean_bandwidth)
    }

    pub(super) fn schedule_saath(&mut self, saath: &SaathParameters, left: &mut [f64]) {
        let active = self.active();
        for &c in &active {
            let queue = saath.queue_of(&self.coflows[c]);
            if self.coflows[c].queue != Some(queue) {
                self.coflows[c].queue = Some(queue);
                let waiting = active.iter().filter(|&&o| self.coflows[o].queue == Some(queue)).count();
                let lower = if queue == 0 { 0.0 } else { saath.upper_threshold(queue - 1) };
                let mut t = (saath.upper_threshold(queue) - lower) / self.fastest_link_rate();
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
                o != c && self.contend(c, o) && (saath.contention_all || self.coflows[o].queue == Some(queue))
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
        self.order = turns.iter().map(|turn| turn.2).collect();
        self.admitted.clear();
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
                let available = !coflow.has_waiting_flows()
                    && self.is_open(c, left)
                    && (!saath.require_full_ports || self.has_full_ports(c, left));
                if !available {
                    missed.push(c);
                    continue;
                }
                let rate = self.assign_equal_rates(c, left);
                self.admitted.push((c, rate));
            }
            if saath.conserve_work {
                for c in missed {
                    self.backfill(c, left);
                }
            }
        }
        self.backfill_admitted(saath, left);
    }

    /// Whether no port of a coflow is in use, and no trunk lowers the rate that the coflow would have alone. Between regions, links count
    /// as ports do, and ports do not count.
    fn has_full_ports(&self, c: usize, left: &[f64]) -> bool {
        let mut links = self.coflows[c].live_flows().flat_map(Flow::links);
        let is_port = |link: usize| link < 2 * self.workload.ports as usize;
        links.all(|link| is_port(link) == self.regions.is_some() || left[link] >= self.links[link])
            && (self.regions.is_some()
                || self.max_equal_rate(c, left) >= self.max_equal_rate(c, &self.links) - TOLERANCE)
    }

    /// Between two schedules, admitted coflows keep their rates, and the others take the residual capacity in the last order.
    pub(super) fn continue_saath(&mut self, saath: &SaathParameters, left: &mut [f64]) {
        for (c, rate) in self.admitted.clone() {
            for flow in self.coflows[c].flows.iter_mut().filter(|f| f.phase == FlowPhase::Live) {
                flow.take_rate(rate, left);
            }
        }
        for c in self.order.clone() {
            let is_admitted = self.admitted.iter().any(|&(other, _)| other == c);
            if !is_admitted && (saath.conserve_work || !saath.all_or_none) {
                self.backfill(c, left);
            }
        }
        self.backfill_admitted(saath, left);
    }

    fn backfill_admitted(&mut self, saath: &SaathParameters, left: &mut [f64]) {
        for (c, _) in self.admitted.clone().into_iter().filter(|_| saath.backfill_all) {
            self.backfill(c, left);
        }
    }
}

/// Random combinations of all Saath options. No sum of sizes equals a threshold.
pub(super) fn any_variants() -> impl Strategy<Value = Vec<Variant>> {
    let switches = prop::collection::vec(prop::bool::weighted(0.75), 10);
    (switches, prop::sample::select(vec![0.31, 1.07, 2.03, f64::INFINITY]), 0.9f64..4.0).prop_map(
        |(on, d, start)| {
            let start = (start * 1e6).round() / 1e6;
            let on_off = |on: bool| if on { "on" } else { "off" };
            let name = format!(
                "saath:start={start}B:growth=2:queues=4:d={d}:all-or-none={}:per-flow={}:lcof={}:requeue={}:\
                 work-conservation={}:contention={}:available={}:time={}:backfill={}:local={}",
                on_off(on[0]),
                on_off(on[1]),
                on_off(on[2]),
                on_off(on[3]),
                on_off(on[4]),
                if on[5] { "queue" } else { "all" },
                if on[6] { "any" } else { "full" },
                if on[7] { "total" } else { "flow" },
                if on[8] { "missed" } else { "all" },
                on_off(!on[9]),
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
                local: !on[9],
            };
            vec![(name, Policy::Saath(saath))]
        },
    )
}
