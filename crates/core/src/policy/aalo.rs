//! Aalo: discretized coflow-aware least-attained service (D-CLAS), without knowledge of sizes.
//!
//! Source: Chowdhury and Stoica, "Efficient Coflow Scheduling Without Prior Knowledge", SIGCOMM '15, sections 4 and
//! 5.
//!
//! - A coflow is in one of K queues, by the bytes that all of its flows have sent in total. The thresholds are `S`,
//!   `S E`, `S E^2`, ... (S = 10 MB, E = 10, K = 10).
//! - Inside a queue, coflows are FIFO.
//! - Queues share a port by weights K, K - 1, ..., 1, which prevents starvation of the lower queues.
//!
//! The coordinator knows the totals; each port decides which flows send. Implementations differ in how ports serve
//! the queues, and the results differ much. Saath (CoNEXT '17) does not say which variant it compares with:
//!
//! - `at=senders` (default): every sending port serves its own queues, as the agents of the paper do. Each queue
//!   gives its share to its first coflow, evenly over the flows of that coflow at the port. Receiving ports share the
//!   arriving traffic as TCP does. If a busy receiver cannot take its share, the sender offers the unused bandwidth
//!   to other receivers and then to the next queues.
//! - `at=both`: receiving ports keep the same queues, as if all ports were coordinated. Coflow by coflow, each flow
//!   gets the smaller of its even shares of the two ports. CoflowSim does this (with strict priority).
//! - `sharing=strict` instead of `weighted`, with either `at`: a queue gets only the residual capacity of the queues
//!   before it. Section 2.2 of Saath describes ports that go "from the highest to lowest priority queues", which is
//!   `at=senders:sharing=strict`.
//! - `sharing=turns`, with either `at`: weights in time instead of bandwidth. The queues that contain coflows take
//!   turns. During its turn, which lasts `turn` (8 ms) times the weight, a queue has priority over all others; the
//!   other queues share the residual capacity by strict priority. All ports have the same turn. In this mode, the
//!   queue in the output of `weir explain` is the position in the current order. No paper describes this variant: it
//!   models ports that cannot divide an interval, and is an experiment about Saath's baseline.
//!
//! A coflow leaves its queue when its total reaches the threshold. FIFO is by the release of the coflows, not by the
//! time at which they entered the queue. If a flow restarts, the bytes that it sent before stay in the total, so the
//! total never decreases.

use super::thresholds::Thresholds;
use super::{Params, ParamsError, Policy};
use crate::allocation::{Allocation, Inside, Queues, Receivers, Rule, Weights};
use crate::model::{Blind, View};
use crate::units::Time;

/// D-CLAS.
pub struct Aalo {
    thresholds: Thresholds,
    queues: Queues,
    turns: Option<Turns>,
}

impl Aalo {
    pub(super) fn read(params: &mut Params) -> Result<Aalo, ParamsError> {
        let thresholds = Thresholds::read(params)?;
        let count = thresholds.queues();
        let sharing = params.choice(
            "sharing",
            &[("weighted", Sharing::Weighted), ("strict", Sharing::Strict), ("turns", Sharing::Turns)],
        )?;
        let turns = match sharing {
            Sharing::Turns => Some(Turns::read(count, params)?),
            Sharing::Weighted | Sharing::Strict => None,
        };
        Ok(Aalo { thresholds, queues: queues(count, sharing, params)?, turns })
    }
}

/// How queues share a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    Weighted,
    Strict,
    Turns,
}

/// The queue configuration of a port with `count` queues.
pub(super) fn queues(count: usize, sharing: Sharing, params: &mut Params) -> Result<Queues, ParamsError> {
    let receivers = params.choice("at", &[("senders", Receivers::Transport), ("both", Receivers::Queues)])?;
    let weights = match sharing {
        Sharing::Weighted => Weights::Weighted((0..count).map(|queue| weight(queue, count)).collect()),
        Sharing::Strict | Sharing::Turns => Weights::Strict(count),
    };
    Ok(Queues { weights, inside: Inside::Fifo, receivers })
}

fn weight(queue: usize, count: usize) -> f64 {
    (count - queue) as f64
}

/// State of `sharing=turns`: the queue that has the turn, and its end.
struct Turns {
    /// Length of the last queue's turn, in seconds.
    length: f64,
    /// Number of coflows by queue.
    coflows: Vec<usize>,
    first: usize,
    ends: f64,
}

impl Turns {
    fn read(count: usize, params: &mut Params) -> Result<Turns, ParamsError> {
        let interval = Time::of(8e-3);
        let length =
            params.take_with("turn", interval, |t: &Time| t.get() > 0.0, "a time above 0 such as 8ms")?;
        Ok(Turns { length: length.get(), coflows: vec![0; count], first: count - 1, ends: 0.0 })
    }

    /// Passes the turn to the next queue with coflows, if the current turn has ended or its queue is empty.
    /// O(queues).
    fn pass_on(&mut self, now: f64) {
        let count = self.coflows.len();
        // Tolerates wake-ups that are early by a rounding error.
        if now < self.ends - 1e-9 && self.coflows[self.first] > 0 {
            return;
        }
        let mut next = (1..=count).map(|step| (self.first + step) % count);
        if let Some(queue) = next.find(|&queue| self.coflows[queue] > 0) {
            self.first = queue;
            self.ends = now + self.length * weight(queue, count);
        }
    }

    /// The position of a queue in the current priority order.
    fn place(&self, queue: usize) -> usize {
        if queue == self.first { 0 } else { queue + usize::from(queue < self.first) }
    }

    /// The queue at a position of the current priority order.
    fn queue(&self, place: usize) -> usize {
        if place == 0 { self.first } else { place - usize::from(place <= self.first) }
    }

    /// End of the current turn in seconds; infinite if no other queue contains coflows.
    fn over(&self) -> f64 {
        let others = self.coflows.iter().enumerate().any(|(queue, n)| queue != self.first && *n > 0);
        if others { self.ends } else { f64::INFINITY }
    }
}

impl Policy for Aalo {
    type Knows = Blind;

    /// O(coflows).
    fn schedule(&mut self, view: &mut View<'_, Blind>, out: &mut Allocation) {
        if out.queues().is_none() {
            out.set_queues(self.queues.clone());
        }
        if let Some(turns) = &mut self.turns {
            turns.coflows.fill(0);
            for &slot in view.active() {
                turns.coflows[self.thresholds.by_sent(view.sent(slot))] += 1;
            }
            turns.pass_on(view.now());
        }
        for &slot in view.active() {
            let queue = self.thresholds.by_sent(view.sent(slot));
            out.set_class(slot, self.turns.as_ref().map_or(queue, |turns| turns.place(queue)));
            out.set_rule(slot, Rule::Transport);
        }
    }

    /// The earliest time at which a coflow reaches its threshold at the reported rates, or the current turn ends.
    fn wake(&mut self, view: &mut View<'_, Blind>, allocation: &Allocation) -> f64 {
        let reached = view.active().iter().map(|&slot| {
            let place = allocation.class(slot);
            let queue = self.turns.as_ref().map_or(place, |turns| turns.queue(place));
            let (sent, rate) = (view.sent(slot), view.coflow(slot).sending());
            if queue + 1 == self.thresholds.queues() || rate <= 0.0 {
                return f64::INFINITY;
            }
            view.now() + (self.thresholds.upper(queue) - sent).max(0.0) / rate
        });
        let over = self.turns.as_ref().map_or(f64::INFINITY, Turns::over);
        reached.fold(over, f64::min)
    }
}
