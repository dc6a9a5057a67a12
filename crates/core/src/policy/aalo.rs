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
//! A coflow starts at once in the first queue. The coordinator, which knows the totals, moves a coflow at the first schedule after
//! its total has reached the threshold. FIFO is by the release of the coflows, not by the
//! time at which they entered the queue. If a flow restarts, the bytes that it sent before stay in the total, so the
//! total never decreases.

use super::thresholds::Thresholds;
use super::{Params, ParamsError, Policy, Reaction, Timing, TrunkSupport};
use crate::allocation::{
    Allocation, InterQueueSharing, IntraQueueSharing, QueueDiscipline, ReceiverMode, Rule,
};
use crate::model::{SizesUnknown, Slot, View};
use crate::rounding;
use crate::units::Time;

/// D-CLAS.
pub struct Aalo {
    thresholds: Thresholds,
    queue_discipline: QueueDiscipline,
    queue_turns: Option<QueueTurns>,
    /// By slot: the coflow, by its number in the order of release, and its queue since the last schedule.
    queues: Vec<(u64, usize)>,
}

impl Aalo {
    pub(super) fn from_params(params: &mut Params) -> Result<Aalo, ParamsError> {
        let thresholds = Thresholds::from_params(params)?;
        let count = thresholds.queue_count();
        let sharing = params.take_choice(
            "sharing",
            &[
                ("weighted", PortSharing::Weighted),
                ("strict", PortSharing::Strict),
                ("turns", PortSharing::Turns),
            ],
        )?;
        let turns = match sharing {
            PortSharing::Turns => Some(QueueTurns::from_params(count, params)?),
            PortSharing::Weighted | PortSharing::Strict => {
                params.reject_without("turn", "sharing=turns")?;
                None
            }
        };
        Ok(Aalo {
            thresholds,
            queue_discipline: queue_discipline(count, sharing, params)?,
            queue_turns: turns,
            queues: Vec::new(),
        })
    }

    /// The queue of a coflow since the last schedule; the first queue if the coflow is new.
    fn present_queue(&self, slot: Slot, seq: u64) -> usize {
        self.queues.get(slot as usize).filter(|&&(of, _)| of == seq).map_or(0, |&(_, queue)| queue)
    }

    /// Puts all coflows in their present queues.
    fn assign_classes(&self, view: &View<'_, SizesUnknown>, out: &mut Allocation) {
        if out.queue_discipline().is_none() {
            out.set_queue_discipline(self.queue_discipline.clone());
        }
        for &slot in view.active_coflows() {
            let queue = self.present_queue(slot, view.coflow(slot).seq);
            let class = self.queue_turns.as_ref().map_or(queue, |turns| turns.priority_of_queue(queue));
            out.set_class(slot, class);
            out.set_rule(slot, Rule::Transport);
        }
    }
}

/// How queues share a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortSharing {
    Weighted,
    Strict,
    Turns,
}

/// The queue configuration of a port with `count` queues.
pub(super) fn queue_discipline(
    count: usize,
    sharing: PortSharing,
    params: &mut Params,
) -> Result<QueueDiscipline, ParamsError> {
    let receivers = params
        .take_choice("at", &[("senders", ReceiverMode::Transport), ("both", ReceiverMode::SameQueues)])?;
    let weights = match sharing {
        PortSharing::Weighted => {
            InterQueueSharing::Weighted((0..count).map(|queue| queue_weight(queue, count)).collect())
        }
        PortSharing::Strict | PortSharing::Turns => InterQueueSharing::StrictPriority(count),
    };
    Ok(QueueDiscipline {
        inter_queue: weights,
        intra_queue: IntraQueueSharing::Fifo,
        receiver_mode: receivers,
    })
}

fn queue_weight(queue: usize, count: usize) -> f64 {
    (count - queue) as f64
}

/// State of `sharing=turns`: the queue that has the turn, and its end.
struct QueueTurns {
    /// Length of the last queue's turn, in seconds.
    base_turn_seconds: f64,
    /// Number of coflows by queue.
    coflow_counts: Vec<usize>,
    current_queue: usize,
    turn_ends_at: f64,
}

impl QueueTurns {
    fn from_params(count: usize, params: &mut Params) -> Result<QueueTurns, ParamsError> {
        let interval = Time::from_valid(8e-3);
        let length =
            params.take_value("turn", interval, |t: &Time| t.get() > 0.0, "a time above 0 such as 8ms")?;
        Ok(QueueTurns {
            base_turn_seconds: length.get(),
            coflow_counts: vec![0; count],
            current_queue: count - 1,
            turn_ends_at: 0.0,
        })
    }

    /// Passes the turn to the next queue with coflows, if the current turn has ended or its queue is empty.
    /// O(queues).
    fn advance_turn(&mut self, now: f64) {
        let count = self.coflow_counts.len();
        if !rounding::is_due(self.turn_ends_at, now) && self.coflow_counts[self.current_queue] > 0 {
            return;
        }
        let mut next = (1..=count).map(|step| (self.current_queue + step) % count);
        if let Some(queue) = next.find(|&queue| self.coflow_counts[queue] > 0) {
            self.current_queue = queue;
            self.turn_ends_at = now + self.base_turn_seconds * queue_weight(queue, count);
        }
    }

    /// The position of a queue in the current priority order.
    fn priority_of_queue(&self, queue: usize) -> usize {
        if queue == self.current_queue { 0 } else { queue + usize::from(queue < self.current_queue) }
    }

    /// The queue at a position of the current priority order.
    fn queue_at_priority(&self, place: usize) -> usize {
        if place == 0 { self.current_queue } else { place - usize::from(place <= self.current_queue) }
    }

    /// End of the current turn in seconds; infinite if no other queue contains coflows.
    fn next_turn_end(&self) -> f64 {
        let others =
            self.coflow_counts.iter().enumerate().any(|(queue, n)| queue != self.current_queue && *n > 0);
        if others { self.turn_ends_at } else { f64::INFINITY }
    }
}

impl Policy for Aalo {
    type Knowledge = SizesUnknown;

    fn timing(&self) -> Timing {
        Timing {
            start: Reaction::AtOnce,
            completion: Reaction::AtOnce,
            at_interval: "changes of queues",
            source: "Saath 2.2: ports serve their queues, the coordinator assigns coflows to queues",
        }
    }

    fn trunk_support(&self) -> TrunkSupport {
        TrunkSupport::Transport
    }

    /// O(coflows).
    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        self.queues.resize(view.slots(), (u64::MAX, 0));
        for &slot in view.active_coflows() {
            let queue = self.thresholds.queue_by_sent_bytes(view.reported_sent_bytes(slot));
            self.queues[slot as usize] = (view.coflow(slot).seq, queue);
        }
        if let Some(turns) = &mut self.queue_turns {
            turns.coflow_counts.fill(0);
            for &slot in view.active_coflows() {
                turns.coflow_counts[self.queues[slot as usize].1] += 1;
            }
            turns.advance_turn(view.now());
        }
        self.assign_classes(view, out);
    }

    /// O(coflows).
    fn reassign(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        self.assign_classes(view, out);
    }

    /// The earliest time at which a coflow reaches its threshold at the reported rates, or the current turn ends.
    fn next_wakeup(&mut self, view: &mut View<'_, SizesUnknown>, allocation: &Allocation) -> f64 {
        let reached = view.active_coflows().iter().map(|&slot| {
            let place = allocation.class(slot);
            let queue = self.queue_turns.as_ref().map_or(place, |turns| turns.queue_at_priority(place));
            let (sent, rate) = (view.reported_sent_bytes(slot), view.coflow(slot).reported_rate());
            view.now() + self.thresholds.seconds_to_next_queue(queue, sent, rate)
        });
        let over = self.queue_turns.as_ref().map_or(f64::INFINITY, QueueTurns::next_turn_end);
        reached.fold(over, f64::min)
    }
}
