//! Aalo: discretized coflow-aware least-attained service (D-CLAS), without knowledge of sizes.
//!
//! Chowdhury and Stoica, "Efficient Coflow Scheduling Without Prior Knowledge", SIGCOMM '15, sections 4 and 5. K queues by
//! the bytes that all flows of a coflow have sent together; thresholds S, S E, S E^2, ... (10 MB, E = 10, K = 10); coflows FIFO inside a
//! queue; queues share a port by weights K, K - 1, ..., 1, which keeps lower queues from starving.
//!
//! What the coordinator knows are the totals; who sends is decided at each port. Three readings are in use, and results
//! differ much between them; Saath (CoNEXT '17) does not say which one it compares with:
//!
//! - `at=senders` (default): every sending port serves its own queues, as the agents of the paper do. Each queue gives its
//!   share to its first coflow, evenly over that coflow's flows at the port; the receiving side shares what arrives as
//!   TCP would. A sender passes on what a busy receiver does not take, to other receivers and then down its queues.
//! - `at=both`: receiving ports keep the same queues, as if everything was coordinated: coflow by coflow, each flow
//!   gets the smaller of its even shares of both ports. This is what CoflowSim does (with strict priority).
//! - `sharing=strict` instead of `weighted`, with either: a queue only gets what those before it leave. Section 2.2 of Saath
//!   describes ports that go "from the highest to lowest priority queues", which is `at=senders:sharing=strict`.
//! - `sharing=turns`, with either: weights in time, not in bandwidth. One queue after the other that has a coflow goes before all
//!   others, for `turn` (8 ms) times its weight; the others get what it leaves, strictly. Nobody has written so; it is what weights
//!   come to where a port cannot divide an interval, and it is an experiment about what Saath compares with. All ports have the same turn, and
//!   what `weir explain` calls a queue is then the place in that order.
//!
//! A coflow leaves its queue when its total reaches the threshold. FIFO is by the order of release of the coflows, not by when
//! they came into the queue. What a flow sent before it started anew stays in the total, which only grows.

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

/// What ports do with so many queues.
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

/// Whose turn it is.
struct Turns {
    /// That of the last queue, in seconds.
    length: f64,
    /// How many coflows each queue has.
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

    /// The next queue that has a coflow, if the turn of this one is over. O(queues).
    fn pass_on(&mut self, now: f64) {
        let count = self.coflows.len();
        // What is early by a rounding error is on time.
        if now < self.ends - 1e-9 && self.coflows[self.first] > 0 {
            return;
        }
        let mut next = (1..=count).map(|step| (self.first + step) % count);
        if let Some(queue) = next.find(|&queue| self.coflows[queue] > 0) {
            self.first = queue;
            self.ends = now + self.length * weight(queue, count);
        }
    }

    /// The place of a queue among all, by priority.
    fn place(&self, queue: usize) -> usize {
        if queue == self.first { 0 } else { queue + usize::from(queue < self.first) }
    }

    /// The queue that has this place.
    fn queue(&self, place: usize) -> usize {
        if place == 0 { self.first } else { place - usize::from(place <= self.first) }
    }

    /// When another queue's turn comes.
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

    /// When the next coflow reaches a threshold at the rates that were reported, or a turn is over.
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
