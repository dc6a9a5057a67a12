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
//!
//! A coflow leaves its queue when its total reaches the threshold. FIFO is by the order of release of the coflows, not by when
//! they came into the queue. What a flow sent before it started anew stays in the total, which only grows.

use super::thresholds::Thresholds;
use super::{Params, ParamsError, Policy};
use crate::allocation::{Allocation, Inside, Queues, Receivers, Rule, Weights};
use crate::model::{Blind, View};

/// D-CLAS.
pub struct Aalo {
    thresholds: Thresholds,
    queues: Queues,
}

impl Aalo {
    pub(super) fn read(params: &mut Params) -> Result<Aalo, ParamsError> {
        let thresholds = Thresholds::read(params)?;
        let queues = queues(thresholds.queues(), params)?;
        Ok(Aalo { thresholds, queues })
    }
}

/// What ports do with so many queues.
pub(super) fn queues(count: usize, params: &mut Params) -> Result<Queues, ParamsError> {
    let strict = params.choice("sharing", &[("weighted", false), ("strict", true)])?;
    let receivers = params.choice("at", &[("senders", Receivers::Transport), ("both", Receivers::Queues)])?;
    let weights = if strict {
        Weights::Strict(count)
    } else {
        Weights::Weighted((1..=count).rev().map(|weight| weight as f64).collect())
    };
    Ok(Queues { weights, inside: Inside::Fifo, receivers })
}

impl Policy for Aalo {
    type Knows = Blind;

    /// O(coflows).
    fn schedule(&mut self, view: &mut View<'_, Blind>, out: &mut Allocation) {
        if out.queues().is_none() {
            out.set_queues(self.queues.clone());
        }
        for &slot in view.active() {
            out.set_class(slot, self.thresholds.by_sent(view.sent(slot)));
            out.set_rule(slot, Rule::Transport);
        }
    }

    /// When the next coflow reaches a threshold at the rates that were reported.
    fn wake(&mut self, view: &mut View<'_, Blind>, allocation: &Allocation) -> f64 {
        let reached = view.active().iter().map(|&slot| {
            let queue = allocation.class(slot);
            let (sent, rate) = (view.sent(slot), view.coflow(slot).sending());
            if queue + 1 == self.thresholds.queues() || rate <= 0.0 {
                return f64::INFINITY;
            }
            view.now() + (self.thresholds.upper(queue) - sent).max(0.0) / rate
        });
        reached.fold(f64::INFINITY, f64::min)
    }
}
