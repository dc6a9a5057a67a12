//! Aalo: queues by the bytes that coflows have sent, at senders or at all links.

use super::incast::GoodputCurve;
use super::{Coflow, FlowPhase, Policy, RATE_TOLERANCE, ReferenceSimulator, TOLERANCE, Variant};
use proptest::prelude::*;

/// Queues by the bytes that coflows have sent.
#[derive(Debug, Clone)]
pub(super) struct AaloParameters {
    start: f64,
    growth: f64,
    queues: usize,
    at: ControlledPorts,
    /// Queues by the sizes of coflows: `aalo+`.
    known_sizes: bool,
    /// Queues take turns with the highest priority: the length of the last queue's turn.
    turn: Option<f64>,
}

/// The queue that has the turn, the end of the turn, and whether other queues contain coflows.
#[derive(Debug, Default)]
pub(super) struct AaloTurn {
    queue: Option<usize>,
    ends_at: f64,
    has_others: bool,
}

impl AaloTurn {
    /// The end of the turn, if it matters.
    pub(super) fn end(&self) -> f64 {
        if self.has_others { self.ends_at } else { f64::INFINITY }
    }

    /// Lets the next of the queues with coflows have the turn, if the turn has ended or its queue is empty.
    fn advance(&mut self, queues: &[usize], count: usize, length: impl Fn(usize) -> f64, now: f64) {
        let is_over = self.ends_at <= now + RATE_TOLERANCE;
        if is_over || self.queue.is_none_or(|queue| !queues.contains(&queue)) {
            let first = self.queue.map_or(0, |queue| queue + 1);
            let next = (0..count).map(|step| (first + step) % count).find(|queue| queues.contains(queue));
            if let Some(queue) = next {
                (self.queue, self.ends_at) = (Some(queue), now + length(queue));
            }
        }
        self.has_others = queues.iter().any(|&queue| Some(queue) != self.queue);
    }
}

/// Ports with queues.
#[derive(Debug, Clone, Copy)]
pub(super) enum ControlledPorts {
    /// All links. Unless `strict`, each queue first divides its weighted share.
    All {
        strict: bool,
    },
    Senders {
        strict: bool,
    },
}

impl AaloParameters {
    pub(super) fn knows_sizes(&self) -> bool {
        self.known_sizes
    }

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
        if self.known_sizes {
            let size: f64 = c.flows.iter().map(|f| f.size).sum();
            let fits = |q: &usize| size <= self.upper_threshold(*q) * (1.0 + 1e-12);
            return (0..self.queues - 1).find(fits).unwrap_or(self.queues - 1);
        }
        let below = |q: &usize| Self::sent_bytes(c) < self.upper_threshold(*q) * (1.0 - 1e-12);
        (0..self.queues - 1).find(below).unwrap_or(self.queues - 1)
    }

    /// Time at which a coflow reaches the next threshold at the current rates.
    pub(super) fn next_queue_change(&self, c: &Coflow, now: f64) -> f64 {
        if self.known_sizes {
            return f64::INFINITY;
        }
        let rate: f64 = c.live_flows().map(|f| f.rate).sum();
        (0..self.queues - 1)
            .map(|q| self.upper_threshold(q) - Self::sent_bytes(c))
            .filter(|left| *left > RATE_TOLERANCE && rate > 0.0)
            .fold(f64::INFINITY, |next, left| next.min(now + left / rate))
    }
}

impl ReferenceSimulator<'_> {
    /// The coordinator changes queues. A coflow that it does not know yet is in the first queue.
    pub(super) fn schedule_aalo(&mut self, aalo: &AaloParameters, by_coordinator: bool, left: &mut [f64]) {
        for c in self.active().into_iter().filter(|_| by_coordinator) {
            self.coflows[c].queue = Some(aalo.queue_of(&self.coflows[c]));
        }
        let queues: Vec<usize> =
            self.active().into_iter().map(|c| self.coflows[c].queue.unwrap_or(0)).collect();
        if let Some(turn) = aalo.turn.filter(|_| by_coordinator) {
            self.aalo_turn.advance(&queues, aalo.queues, |queue| turn * aalo.queue_weight(queue), self.now);
        }
        // The sort is stable: active coflows are in order of release.
        let mut order: Vec<(usize, usize)> = queues.into_iter().zip(self.active()).collect();
        order.sort_by_key(|&(queue, _)| (Some(queue) != self.aalo_turn.queue, queue));
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
                self.limit_to_links(ports, self.goodput);
                for flow in self.coflows.iter().flat_map(Coflow::live_flows) {
                    flow.links().for_each(|link| left[link] -= flow.rate);
                }
                // Work conservation: later coflows use the residual capacity of the senders.
                for (_, c) in order {
                    match self.goodput {
                        Some(goodput) => self.backfill_within_goodput(c, goodput, left),
                        None => self.backfill(c, left),
                    }
                }
            }
        }
    }

    /// Gives each flow in turn the residual capacity of its sender and trunks, as far as its receiver carries it with one more
    /// sending flow.
    fn backfill_within_goodput(&mut self, c: usize, goodput: &GoodputCurve, left: &mut [f64]) {
        for f in 0..self.coflows[c].flows.len() {
            let flow = &self.coflows[c].flows[f];
            if flow.phase != FlowPhase::Live {
                continue;
            }
            let receiver = flow.dst;
            let senders = self.coflows.iter().flat_map(Coflow::live_flows);
            let senders = senders.filter(|other| other.dst == receiver && other.rate > 0.0);
            let (mut count, mut received) = (usize::from(flow.rate == 0.0), 0.0);
            for other in senders {
                count += 1;
                received += other.rate;
            }
            let before_receiver = flow.links().filter(|&link| link != receiver).map(|link| left[link]);
            let before_receiver = before_receiver.fold(f64::INFINITY, f64::min);
            let rate = before_receiver.min(self.links[receiver] * goodput.share(count) - received);
            if rate > TOLERANCE {
                self.coflows[c].flows[f].take_rate(rate, left);
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

/// `aalo` or `aalo+` with queues at all links and at senders.
pub(super) fn any_variants(policy: &'static str) -> impl Strategy<Value = Vec<Variant>> {
    (0.9f64..4.0, 1usize..=5, 0..3usize).prop_map(move |(start, queues, sharing)| {
        let known_sizes = policy == "aalo+";
        let strict = sharing > 0;
        let turn = (sharing == 2 && !known_sizes).then_some(0.53);
        let sharing = match turn {
            Some(turn) => format!(":sharing=turns:turn={turn}s"),
            None if strict => ":sharing=strict".to_owned(),
            None => String::new(),
        };
        let variant = |at_links: &str, at| {
            let name = format!("{policy}:start={start}B:growth=2:queues={queues}{at_links}{sharing}");
            (name, Policy::Aalo(AaloParameters { start, growth: 2.0, queues, at, known_sizes, turn }))
        };
        vec![
            variant(":at=both", ControlledPorts::All { strict }),
            variant("", ControlledPorts::Senders { strict }),
        ]
    })
}
