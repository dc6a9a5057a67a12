//! Saath: online coflow scheduling by all-or-none, per-flow queue thresholds and least contention first.
//!
//! Source: Jajoo et al., "Saath: Speeding up CoFlows by Exploiting the Spatial Dimension", CoNEXT '17.
//! [`Saath::schedule`] implements section 4.2 (Fig. 7, D1-D5). [`Saath::queue_of`] implements the re-queueing of
//! section 4.3, by the median of completed flows; the wait for data is from section 4.3 too. The workload models one
//! coflow per stage ([`crate::model::Workload::per_stage`]), waves and DAGs: parents delay the release of their
//! children.
//!
//! Choices that the paper leaves open, and the effect of the alternatives:
//!
//! - *Contention* (k_c) counts the other coflows that share a port "when that CoFlow is scheduled at all of its
//!   ports". The paper does not say whether coflows of other queues count. Here only coflows of the same queue count,
//!   because contention orders only coflows of one queue. `contention=all` counts every active coflow.
//! - *Available bandwidth* (line 7) at a port: any residual capacity is enough. Two coflows can then share a port,
//!   the second at a lower rate. `available=full` admits a coflow only at ports that no other coflow was admitted to.
//!   Its rates are always high, but more coflows depend on work conservation.
//! - *t* in the deadline d C_q t (D5) is "the minimum time a CoFlow needs to spend in the queue based on the queue
//!   threshold". Here t is (Q_hi - Q_lo) / port rate: the time that the bytes of the queue take through one port, and
//!   the maximum delay that one coflow ahead in a FIFO can cause at the port. The last queue has no upper threshold,
//!   and uses the next threshold of the series.
//! - *t* with `time=flow` is divided by the number of flows N_c: the time to the per-flow threshold at full rate.
//!   Deadlines are then N_c times earlier, and in workloads with wide coflows expired deadlines decide most of the
//!   order.
//! - *Priority of expired deadlines*: coflows with expired deadlines go before all queues, in the order of deadlines,
//!   all-or-none.
//! - *C_q* counts every coflow of the queue, including the coflow that enters the queue, and including coflows that
//!   wait for data.
//! - *At a threshold*, Eq. 1 puts a coflow in both queues. Here a coflow leaves a queue when it reaches the
//!   threshold, as in Fig. 5. Under the estimate of section 4.3, a coflow enters a queue when the estimated remainder
//!   falls to the threshold. The other choice would differ only for an instant.
//! - *Ties* in contention go to the coflow that was released first, as in the FIFO that LCoF replaces.
//! - *Work conservation* runs after each queue, as in Fig. 7, for the coflows of the queue that were not admitted.
//!   Each flow, in the order of ports, takes the residual capacity of both of its ports. Fig. 7 says "for f in c",
//!   and the order of flows matters: docs/results/saath.md, "The order of flows", gives the mean and the speedups of
//!   other orders. The simulator numbers ports in the order in which coflows list them.
//! - *Re-queueing* (4.3) is described for failures, stragglers and skew, but the rule depends only on whether some
//!   flows have completed. So it applies to every coflow after its first completed flow, as long as some flow has
//!   sent less than the median. When no flow has sent less, the median was too short. The estimated remainder would
//!   be zero or negative, which would move the coflow to the first queue although its longest flows remain. Eq. 1 on
//!   the bytes sent then applies again. `requeue=off` disables estimates. So does `per-flow=off`, because its
//!   thresholds are not for single flows.
//! - *Unfinished flows* of the estimate are all flows that have not completed, including flows that wait for data.
//!   Without the waiting flows, a coflow whose last flow has no data yet would appear close to its end.
//! - *Restarted flows* count as if they had sent nothing, by flow and in total. Their coflow may return to a higher
//!   queue.
//! - *Missing data* (4.3): a coflow in which a flow waits for data is excluded from all-or-none. Its other flows take
//!   part in work conservation, because their ports would idle otherwise. ("The coordinator only schedules the
//!   CoFlows that have enough data" could also mean that none of its flows are scheduled.) In the paper, a port waits
//!   for as much data as it sends in an interval; here the data of a flow exists completely or not at all.
//! - *Without all-or-none* (the ablation of Fig. 10), a coflow at its turn serves its flows in the order of ports,
//!   each with the residual capacity of both of its ports.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::thresholds::Thresholds;
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Common, Rule, Standing};
use crate::model::{Blind, Coflow, Mask, Slot, View};
use crate::order::Key;
use crate::solve::{Contention, Residual, residual::Saved};

/// Which coflows count as contending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Queue,
    All,
}

/// Lengths of completed flows in bytes; two heaps give the median.
#[derive(Debug, Default)]
struct Lengths {
    lower: BinaryHeap<Key>,
    upper: BinaryHeap<Reverse<Key>>,
}

impl Lengths {
    fn add(&mut self, length: f64) {
        match self.lower.peek() {
            Some(middle) if Key(length) > *middle => self.upper.push(Reverse(Key(length))),
            _ => self.lower.push(Key(length)),
        }
        if self.lower.len() > self.upper.len() + 1 {
            self.upper.extend(self.lower.pop().map(Reverse));
        } else if self.upper.len() > self.lower.len() {
            self.lower.extend(self.upper.pop().map(|Reverse(key)| key));
        }
    }

    fn median(&self) -> Option<f64> {
        let low = self.lower.peek()?.0;
        match self.upper.peek() {
            Some(Reverse(high)) if self.upper.len() == self.lower.len() => Some((low + high.0) / 2.0),
            _ => Some(low),
        }
    }
}

/// State of one coflow.
#[derive(Debug, Default)]
struct State {
    /// The queue; `None` before the first schedule.
    queue: Option<usize>,
    /// Time at which the deadline in this queue expires, in seconds.
    deadline: f64,
    /// Earliest time of the next change of queue if no event occurs, in seconds. May be too early.
    leaves_at: f64,
    /// Whether a flow has completed since the queue was computed, so that the estimate may differ.
    stale: bool,
    /// Whether the queue is based on the estimated remainder, not on the bytes sent.
    estimating: bool,
    /// Whether the deadline had expired at the last sort.
    expired: bool,
    lengths: Lengths,
}

/// The scheduler of Saath.
pub struct Saath {
    thresholds: Thresholds,
    deadline_factor: f64,
    all_or_none: bool,
    per_flow: bool,
    least_contention: bool,
    conserve: bool,
    requeue: bool,
    contention: Scope,
    full_ports: bool,
    time_per_flow: bool,
    states: Vec<State>,
    rivals: Contention,
    members: Vec<Mask>,
    /// Whether `order` is still valid.
    sorted: bool,
    residual: Residual,
    order: Vec<Turn>,
    missed: Vec<Slot>,
    /// The steps of the last schedule, and the saved residual capacities before the steps.
    steps: Vec<Step>,
    saved: Vec<Saved>,
    /// The next step, and whether all steps so far repeat the last schedule.
    step: usize,
    repeating: bool,
    /// Coflows that were released, or whose live flows changed, since the last schedule.
    changed: Mask,
    ports_changed: bool,
    /// By slot: total rate of the flows in bytes per second.
    sending: Vec<f64>,
}

/// Whether `time` has come. Tolerates times that are early by a rounding error.
fn reached(time: f64, now: f64) -> bool {
    time <= now * (1.0 + 1e-14) + 1e-9
}

/// A coflow's place in the order of one schedule.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Queue + 1, or 0 if the deadline has expired.
    group: usize,
    /// Contention; the deadline in group 0.
    rank: f64,
    seq: u64,
    slot: Slot,
}

/// A step of a schedule: the admission test of one coflow, or its share of work conservation.
#[derive(Debug, Clone, Copy)]
struct Step {
    slot: Slot,
    admit: bool,
    /// The common rate at which the coflow was admitted, in bytes per second.
    admitted: Option<f64>,
    /// Number of flows with their own rates before the step.
    flows_before: usize,
    /// Index in `Saath::saved` of the residual capacities before the step; not saved from `Saath::SAVED` on.
    saved: usize,
}

impl Saath {
    /// Maximum number of saved residual capacities from which a schedule can resume.
    const SAVED: usize = 32;

    pub(super) fn read(params: &mut Params) -> Result<Saath, ParamsError> {
        let thresholds = Thresholds::read(params)?;
        Ok(Saath {
            members: vec![Mask::default(); thresholds.queues()],
            thresholds,
            deadline_factor: params.take_with(
                "d",
                2.0,
                |d: &f64| *d > 0.0,
                "a number above 0 (`inf` for no deadlines)",
            )?,
            all_or_none: params.switch("all-or-none", true)?,
            per_flow: params.switch("per-flow", true)?,
            least_contention: params.switch("lcof", true)?,
            conserve: params.switch("work-conservation", true)?,
            requeue: params.switch("requeue", true)?,
            contention: params.choice("contention", &[("queue", Scope::Queue), ("all", Scope::All)])?,
            full_ports: params.choice("available", &[("any", false), ("full", true)])?,
            time_per_flow: params.choice("time", &[("total", false), ("flow", true)])?,
            states: Vec::new(),
            rivals: Contention::default(),
            sorted: false,
            residual: Residual::default(),
            order: Vec::new(),
            missed: Vec::new(),
            steps: Vec::new(),
            saved: Vec::new(),
            step: 0,
            repeating: false,
            changed: Mask::default(),
            ports_changed: false,
            sending: Vec::new(),
        })
    }

    /// The current queue of a coflow (D3 and section 4.3).
    fn queue_of(&self, slot: Slot, estimate: Option<(f64, f64)>, view: &mut View<'_, Blind>) -> usize {
        let width = view.coflow(slot).width() as f64;
        match estimate {
            Some((left, _)) => self.thresholds.by_left(left * width),
            None if self.per_flow => self.thresholds.by_sent(view.furthest(slot) * width),
            None => self.thresholds.by_sent(view.total(slot)),
        }
    }

    /// Estimates the remainder of the least advanced unfinished flow, if its length is the median of the completed
    /// flows.
    ///
    /// Returns the remainder in bytes, and the rate at which it shrinks. `None` if no flow has completed, or if that
    /// flow has sent the median.
    fn estimate(&self, slot: Slot, view: &mut View<'_, Blind>) -> Option<(f64, f64)> {
        if !self.requeue || !self.per_flow {
            return None;
        }
        let median = self.states[slot as usize].lengths.median()?;
        let (sent, rate) = view.least(slot)?;
        // Under all-or-none, the other flows have often sent exactly as much as the completed flow. The tolerance
        // makes the result (no estimate) independent of rounding.
        (sent < median * (1.0 - 1e-9)).then_some((median - sent, rate))
    }

    /// The maximum time of a coflow in a queue, in seconds (D5).
    fn patience(&self, queue: usize, coflow: &Coflow, port_rate: f64) -> f64 {
        let lower = if queue == 0 { 0.0 } else { self.thresholds.upper(queue - 1) };
        let mut time = (self.thresholds.upper(queue) - lower) / port_rate;
        if self.time_per_flow {
            time /= coflow.width() as f64;
        }
        let waiting = self.members[queue].iter().count() as f64;
        self.deadline_factor * waiting * time
    }

    fn assign_queues(&mut self, view: &mut View<'_, Blind>) {
        let now = view.now();
        for i in 0..view.active().len() {
            let slot = view.active()[i];
            let state = &mut self.states[slot as usize];
            self.sorted &= !reached(state.deadline, now) || state.expired;
            let due = reached(state.leaves_at, now);
            if state.queue.is_some() && !state.stale && !due {
                continue;
            }
            state.stale = false;
            let (before, estimated) = (state.queue, state.estimating);
            let estimate = self.estimate(slot, view);
            self.states[slot as usize].estimating = estimate.is_some();
            if before.is_some() && !due && !estimated && estimate.is_none() {
                // The queue is still based on the bytes sent, and `leaves_at` gives its next change.
                continue;
            }
            let queue = self.queue_of(slot, estimate, view);
            if estimated != estimate.is_some() {
                self.states[slot as usize].leaves_at = f64::NEG_INFINITY;
            }
            if before == Some(queue) {
                if due {
                    self.states[slot as usize].leaves_at = f64::NEG_INFINITY;
                }
                continue;
            }
            if let Some(before) = before {
                self.members[before].remove(slot as usize);
            }
            self.members[queue].insert(slot as usize);
            let patience = self.patience(queue, view.coflow(slot), view.fabric().nominal());
            let state = &mut self.states[slot as usize];
            state.queue = Some(queue);
            state.deadline = now + patience;
            state.expired = false;
            state.leaves_at = f64::NEG_INFINITY;
            self.sorted = false;
        }
    }

    /// Sorts the coflows, if an input of the order has changed. O(coflows x (words of a slot mask + log coflows)).
    fn sort(&mut self, view: &View<'_, Blind>) {
        if self.sorted {
            return;
        }
        self.sorted = true;
        self.order.clear();
        for &slot in view.active() {
            let state = &mut self.states[slot as usize];
            state.expired = reached(state.deadline, view.now());
            let queue = state.queue.expect("`assign_queues` gives every active coflow a queue");
            let rivals = self.rivals.rivals(slot);
            let (group, rank) = if state.expired {
                (0, state.deadline)
            } else if !self.least_contention {
                (queue + 1, 0.0)
            } else {
                let contention = match self.contention {
                    Scope::Queue => rivals.overlap(&self.members[queue]),
                    Scope::All => rivals.iter().count() as u32,
                };
                (queue + 1, f64::from(contention))
            };
            self.order.push(Turn { group, rank, seq: view.coflow(slot).seq, slot });
        }
        self.order.sort_unstable_by(|a, b| {
            a.group.cmp(&b.group).then(a.rank.total_cmp(&b.rank)).then(a.seq.cmp(&b.seq))
        });
    }

    fn standing(&self, turn: Turn) -> Standing {
        match turn.group {
            0 => Standing::Overdue,
            _ if self.least_contention => Standing::Contention(turn.rank as u32),
            _ => Standing::Unsaid,
        }
    }

    /// Whether all ports of a coflow are available (Fig. 7, line 7).
    fn available(&self, coflow: &Coflow) -> bool {
        !coflow.lacks_data()
            && if self.full_ports { self.residual.admits_alone(coflow) } else { self.residual.admits(coflow) }
    }

    /// Admits one coflow, or leaves it to work conservation (Fig. 7, lines 6-13).
    fn admit(&mut self, slot: Slot, view: &View<'_, Blind>, out: &mut Allocation) {
        out.set_class(
            slot,
            self.states[slot as usize].queue.expect("`assign_queues` gives every active coflow a queue"),
        );
        let coflow = view.coflow(slot);
        if coflow.live() == 0 {
            out.set_rule(slot, Rule::LacksData);
            return;
        }
        if !self.all_or_none {
            out.set_rule(slot, Rule::InOrder);
            if self.begin_step(slot, false, out) {
                self.residual.fill(coflow, |flow, rate| out.add_flow(slot, flow, rate));
            }
            return;
        }
        let admitted = if self.begin_step(slot, true, out) {
            let admitted = self.available(coflow).then(|| self.residual.equal_rate(coflow));
            if let Some(rate) = admitted {
                self.residual.take_equal(coflow, rate);
            }
            self.steps[self.step - 1].admitted = admitted;
            admitted
        } else {
            self.steps[self.step - 1].admitted
        };
        match admitted {
            Some(rate) => {
                out.set_common(slot, Common::Each(rate));
                out.set_rule(slot, Rule::AllOrNone);
            }
            None => {
                out.set_rule(slot, if self.conserve { Rule::WorkConservation } else { Rule::None });
                self.missed.push(slot);
            }
        }
    }

    /// Serves the coflows of a queue that were not admitted (Fig. 7, lines 18-23).
    fn work_conservation(&mut self, view: &View<'_, Blind>, out: &mut Allocation) {
        let mut missed = std::mem::take(&mut self.missed);
        for slot in missed.drain(..) {
            if self.conserve && self.begin_step(slot, false, out) {
                self.residual.fill(view.coflow(slot), |flow, rate| out.add_flow(slot, flow, rate));
            }
        }
        self.missed = missed;
    }

    /// Begins a step of a schedule. Returns false if the step repeats the last schedule, so that its outcome holds.
    ///
    /// Outcomes hold as long as the steps are those of the last schedule, of coflows without changes.
    fn begin_step(&mut self, slot: Slot, admit: bool, out: &mut Allocation) -> bool {
        let at = self.step;
        if self.repeating {
            let same = self.steps.get(at).is_some_and(|step| (step.slot, step.admit) == (slot, admit));
            // A later stop has to restore the residual capacity before the next step.
            let back = self.steps.get(at + 1).is_none_or(|next| next.saved < Saath::SAVED);
            if same && back && !self.changed.contains(slot as usize) {
                self.step += 1;
                return false;
            }
            self.stop_repeating(out);
        }
        self.step += 1;
        self.steps.truncate(at);
        let before = out.decided();
        let saved = match self.steps.last() {
            // The last step assigned no rates, so the residual capacity is the same.
            Some(last) if last.admitted.is_none() && last.flows_before == before => last.saved,
            last => {
                let saved = last.map_or(0, |last| last.saved + 1);
                if saved < Saath::SAVED {
                    if saved == self.saved.len() {
                        self.saved.push(Saved::default());
                    }
                    self.residual.save(&mut self.saved[saved]);
                }
                saved
            }
        };
        self.steps.push(Step { slot, admit, admitted: None, flows_before: before, saved });
        true
    }

    /// Stops repeating the last schedule: restores the residual capacity before the current step.
    fn stop_repeating(&mut self, out: &mut Allocation) {
        self.repeating = false;
        match self.steps.get(self.step) {
            Some(step) => {
                self.residual.restore(&self.saved[step.saved]);
                out.keep_flows(step.flows_before);
            }
            // All steps hold, and none follows.
            None => out.keep_all_flows(),
        }
    }

    /// Predicts the change of each coflow's queue at the applied rates.
    fn predict_leaving(&mut self, view: &mut View<'_, Blind>, out: &Allocation) {
        let now = view.now();
        for i in 0..view.changed().len() {
            let (slot, flow) = view.changed()[i];
            let state = &self.states[slot as usize];
            if !state.estimating && state.leaves_at != f64::NEG_INFINITY {
                let (sent, rate) = (view.attained(slot, flow), view.rate(slot, flow));
                self.predict_by_sent(slot, sent, rate, view);
            }
        }
        for i in 0..self.order.len() {
            let slot = self.order[i].slot;
            if self.states[slot as usize].estimating {
                let until = self.until_estimate_leaves(slot, view);
                self.states[slot as usize].leaves_at = now + until;
                continue;
            }
            if self.states[slot as usize].leaves_at == f64::NEG_INFINITY {
                self.states[slot as usize].leaves_at = f64::INFINITY;
                for rated in out.flows().iter().filter(|rated| rated.slot == slot) {
                    let sent = view.attained(slot, rated.flow);
                    self.predict_by_sent(slot, sent, rated.rate, view);
                }
            }
            if let Common::Each(rate) = out.common(slot) {
                let sent = view.furthest(slot);
                self.predict_by_sent(slot, sent, rate, view);
            }
        }
    }

    /// Accounts for a flow at `sent` bytes and `rate`, of a coflow whose queue is based on the bytes sent.
    fn predict_by_sent(&mut self, slot: Slot, sent: f64, rate: f64, view: &View<'_, Blind>) {
        let width = view.coflow(slot).width() as f64;
        let state = &mut self.states[slot as usize];
        let queue = state.queue.unwrap_or(0);
        if queue + 1 < self.thresholds.queues() {
            let until = (self.thresholds.upper(queue) / width - sent).max(0.0) / rate;
            state.leaves_at = state.leaves_at.min(view.now() + until);
        }
    }

    /// Seconds until the estimate moves a coflow to another queue, or ceases to apply.
    fn until_estimate_leaves(&self, slot: Slot, view: &mut View<'_, Blind>) -> f64 {
        let Some((left, shrinking)) = self.estimate(slot, view) else { return 0.0 };
        let queue = self.states[slot as usize].queue.unwrap_or(0);
        let width = view.coflow(slot).width() as f64;
        // In the first queue, the estimate applies until the remainder is zero. Then the bytes sent decide again.
        let upper = if queue == 0 { 0.0 } else { self.thresholds.upper(queue - 1) / width };
        if shrinking > 0.0 { (left - upper).max(0.0) / shrinking } else { f64::INFINITY }
    }

    /// Predicts the change of each coflow's queue without per-flow thresholds, by the total over all flows.
    fn predict_leaving_by_total(&mut self, view: &mut View<'_, Blind>, out: &Allocation) {
        self.sending.clear();
        self.sending.resize(view.slots(), 0.0);
        for rated in out.flows() {
            self.sending[rated.slot as usize] += rated.rate;
        }
        for turn in &self.order {
            let state = &mut self.states[turn.slot as usize];
            let queue = state.queue.unwrap_or(0);
            let mut rate = self.sending[turn.slot as usize];
            if let Common::Each(common) = out.common(turn.slot) {
                rate += common * view.coflow(turn.slot).live() as f64;
            }
            state.leaves_at = f64::INFINITY;
            if queue + 1 < self.thresholds.queues() && rate > 0.0 {
                let left = self.thresholds.upper(queue) - view.total(turn.slot);
                state.leaves_at = view.now() + left.max(0.0) / rate;
            }
        }
    }
}

impl Policy for Saath {
    type Knows = Blind;

    fn on(&mut self, event: Event, view: &mut View<'_, Blind>) {
        self.rivals.on(event, view);
        match event {
            Event::Released(slot) => {
                self.states.resize_with(view.slots(), State::default);
                self.states[slot as usize] = State::default();
                self.changed.insert(slot as usize);
            }
            Event::FlowLive(slot, _) | Event::FlowHeld(slot, _) => {
                // The flow may have lost its progress.
                self.states[slot as usize].leaves_at = f64::NEG_INFINITY;
                self.changed.insert(slot as usize);
            }
            Event::FlowDone(slot, flow) => {
                self.changed.insert(slot as usize);
                if self.requeue {
                    let length = view.attained(slot, flow);
                    let state = &mut self.states[slot as usize];
                    state.stale = true;
                    // A flow without bytes has no length to learn from, whether it completes at its release or later.
                    if length > 0.0 {
                        state.lengths.add(length);
                    }
                }
            }
            Event::Done(slot) => {
                if let Some(queue) = self.states[slot as usize].queue {
                    self.members[queue].remove(slot as usize);
                }
                self.states[slot as usize] = State::default();
                self.sorted = false;
            }
            Event::PortChanged => self.ports_changed = true,
        }
    }

    /// Fig. 7. O(coflows x ports of each) at worst: the work starts at the first coflow that a change affects.
    fn schedule(&mut self, view: &mut View<'_, Blind>, out: &mut Allocation) {
        self.assign_queues(view);
        self.sorted &= !self.rivals.update(view);
        self.sort(view);
        self.step = 0;
        self.repeating = !std::mem::take(&mut self.ports_changed) && !self.steps.is_empty();
        if !self.repeating {
            self.residual.reset(view.fabric());
        }
        let mut at = 0;
        while at < self.order.len() {
            let group = self.order[at].group;
            while at < self.order.len() && self.order[at].group == group {
                let turn = self.order[at];
                at += 1;
                out.set_standing(turn.slot, self.standing(turn));
                self.admit(turn.slot, view, out);
            }
            self.work_conservation(view, out);
        }
        if self.repeating {
            self.stop_repeating(out);
        }
        self.steps.truncate(self.step);
        self.changed.clear();
    }

    fn wake(&mut self, view: &mut View<'_, Blind>, allocation: &Allocation) -> f64 {
        if self.per_flow {
            self.predict_leaving(view, allocation);
        } else {
            self.predict_leaving_by_total(view, allocation);
        }
        let now = view.now();
        let next = |turn: &Turn| {
            let state = &self.states[turn.slot as usize];
            let expires = if reached(state.deadline, now) { f64::INFINITY } else { state.deadline };
            state.leaves_at.min(expires)
        };
        self.order.iter().map(next).fold(f64::INFINITY, f64::min)
    }
}
