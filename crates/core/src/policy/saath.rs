//! Saath: online coflow scheduling by all-or-none, per-flow queue thresholds and least contention first.
//!
//! Jajoo et al., "Saath: Speeding up CoFlows by Exploiting the Spatial Dimension", CoNEXT '17. Section 4.2
//! (Fig. 7, D1-D5) is [`Saath::schedule`]; section 4.3 is the re-queueing by the median of finished flows
//! ([`Saath::queue_of`]) and the wait for data. One coflow a stage is a matter of the workload
//! ([`crate::model::Workload::per_stage`]), and so are waves and DAGs: parents hold back their children.
//!
//! What the paper leaves open, what is done here, and what the other choice would do:
//!
//! - *Contention* (k_c) counts the other coflows that share a port "when that CoFlow is scheduled at all of
//!   its ports". Whether coflows of other queues count is not said. Here: those of its own queue, since
//!   only their order is decided by it. `contention=all` counts every coflow under way.
//! - *Available bandwidth* (line 7) at a port: any that is left, here; so two coflows can share a port, the second
//!   at a lower rate. `available=full` admits a coflow only where nobody else was admitted: rates are all high,
//!   and more coflows fall to work conservation.
//! - *t* in the deadline d C_q t (D5), "the minimum time a CoFlow needs to spend in the queue based on the queue
//!   threshold". Here: (Q_hi - Q_lo) / port rate, the time that the queue's bytes take through one port, which is
//!   what a coflow ahead in a FIFO can at most cost the port. `time=flow` divides it by the number of flows N_c,
//!   the time at which the per-flow threshold is reached at full rate: deadlines come N_c times earlier,
//!   and with wide coflows most of the order is then decided by expired deadlines. The last queue has no upper
//!   threshold; the next one in the series stands in.
//! - *Priority of expired deadlines*: they go before all queues, in the order of their deadlines, all-or-none.
//! - *C_q* counts every coflow of the queue, the one that comes into it among them, with or without data.
//! - *At a threshold* Eq. 1 has a coflow in both queues. Here it leaves a queue when it reaches the threshold, as in Fig. 5; by
//!   the estimate of 4.3 it comes back into one when what is left is down to it. The other choice would hold only for an instant.
//! - *Ties* in contention go to the earlier coflow, as in the FIFO that LCoF replaces.
//! - *Work conservation* runs after each queue, as in Fig. 7, over what that queue missed, flow by flow in the
//!   order of ports: each gets all that its two ports have left. Fig. 7 says "for f in c", and the order matters: what others would do to
//!   the mean and to speedups is in docs/results/saath.md, "The order of flows". The simulator numbers ports as coflows list them.
//! - *Re-queueing* (4.3) is described for failures, stragglers and skew, but its rule asks only whether some flows are
//!   done; so it holds for every coflow from its first finished flow on, as long as some flow has sent less than the
//!   median. Once none has, the estimate has proved too short: what it leaves is not positive, which would put the coflow in
//!   the first queue with its longest flows to come. Then Eq. 1 on what was sent holds again. `requeue=off` never estimates,
//!   nor does `per-flow=off`, whose thresholds are not for single flows.
//! - *Unfinished flows* of the estimate are all that are not done, those that wait for their data too. Without them a coflow whose
//!   last flow is still to come would be taken for one that is about to end.
//! - *Flows that start anew* have sent nothing, by flow or in total, so that their coflow may come back to a higher queue.
//! - *Data that is not there* (4.3): a coflow that waits for some flow's data is left out of all-or-none; its
//!   other flows take part in work conservation, whose ports would else idle. ("The coordinator only schedules the
//!   CoFlows that have enough data" could also mean none of them.) The paper's ports wait for as much data as they send in an
//!   interval; here a flow's data is there as a whole or not at all.
//! - A coflow *without all-or-none* (the ablation of Fig. 10) serves its flows in order of ports with all that is left,
//!   in the coflow's turn.

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

/// Lengths of finished flows, for their median.
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

/// What Saath keeps of a coflow.
#[derive(Debug, Default)]
struct State {
    /// Its queue; `None` before its first schedule.
    queue: Option<usize>,
    /// When it has waited long enough in this queue.
    deadline: f64,
    /// When it may have to change its queue if nothing happens; perhaps too early.
    leaves_at: f64,
    /// Whether something happened that may change its queue.
    stale: bool,
    /// Whether its queue goes by the estimate of what it has left, not by what it has sent.
    estimating: bool,
    /// Whether its deadline had passed when it was sorted last.
    expired: bool,
    lengths: Lengths,
}

/// The policy.
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
    /// Whether `order` is still the order.
    sorted: bool,
    residual: Residual,
    order: Vec<Turn>,
    missed: Vec<Slot>,
    /// The steps of the schedule in force, and what was left of the ports before the first of them.
    steps: Vec<Step>,
    saved: Vec<Saved>,
    /// The step at work, and whether all before it were those of the schedule before.
    step: usize,
    repeating: bool,
    /// Coflows with live flows more or fewer since the last schedule.
    changed: Mask,
    ports_changed: bool,
    /// By slot: the rate of all its flows.
    sending: Vec<f64>,
}

/// Whether it is time; what is early by a rounding error is on time.
fn reached(time: f64, now: f64) -> bool {
    time <= now * (1.0 + 1e-14) + 1e-9
}

/// A coflow's place in the order of one schedule.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Queue + 1, or 0 with an expired deadline.
    group: usize,
    /// Contention, or the deadline among the expired.
    rank: f64,
    seq: u64,
    slot: Slot,
}

/// A step of a schedule: a coflow is admitted or not, or served by work conservation.
#[derive(Debug, Clone, Copy)]
struct Step {
    slot: Slot,
    admit: bool,
    /// The rate at which it was admitted.
    admitted: Option<f64>,
    /// How many flows had rates of their own before it.
    flows_before: usize,
    /// The state of the ports before it, among those that are kept.
    saved: usize,
}

impl Saath {
    /// How many states of the ports are kept, to go on from.
    const SAVED: usize = 32;

    /// Reads the parameters.
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

    /// D3 and section 4.3: the queue of a coflow now.
    fn queue_of(&self, slot: Slot, estimate: Option<(f64, f64)>, view: &mut View<'_, Blind>) -> usize {
        let width = view.coflow(slot).width() as f64;
        match estimate {
            Some((left, _)) => self.thresholds.by_left(left * width),
            None if self.per_flow => self.thresholds.by_sent(view.furthest(slot) * width),
            None => self.thresholds.by_sent(view.total(slot)),
        }
    }

    /// What the least advanced of the unfinished flows has left if it is as long as the median of those that are done, in bytes,
    /// and how fast that shrinks. `None` while no flow is done, or if that one has sent as much.
    fn estimate(&self, slot: Slot, view: &mut View<'_, Blind>) -> Option<(f64, f64)> {
        if !self.requeue || !self.per_flow {
            return None;
        }
        let median = self.states[slot as usize].lengths.median()?;
        let (sent, rate) = view.least(slot)?;
        // Under all-or-none the others have often sent just as much as the one that is done: no estimate at all, whichever
        // way rounding goes.
        (sent < median * (1.0 - 1e-9)).then_some((median - sent, rate))
    }

    /// D5: how long a coflow may stay in a queue.
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
                // It still goes by what it has sent, and when that changes its queue is known.
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

    /// Orders the coflows, if anything that the order depends on has changed. O(coflows x (words of a slot mask + log coflows)).
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

    /// Line 7: whether all ports of a coflow are available.
    fn available(&self, coflow: &Coflow) -> bool {
        !coflow.lacks_data()
            && if self.full_ports { self.residual.admits_alone(coflow) } else { self.residual.admits(coflow) }
    }

    /// Lines 6-13 for one coflow.
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

    /// Lines 18-23.
    fn work_conservation(&mut self, view: &View<'_, Blind>, out: &mut Allocation) {
        let mut missed = std::mem::take(&mut self.missed);
        for slot in missed.drain(..) {
            if self.conserve && self.begin_step(slot, false, out) {
                self.residual.fill(view.coflow(slot), |flow, rate| out.add_flow(slot, flow, rate));
            }
        }
        self.missed = missed;
    }

    /// Begins a step of a schedule and says whether it has to be worked out. As long as the steps are those of the schedule
    /// before, of coflows that have not changed, their outcomes are too, and nothing is left to do.
    fn begin_step(&mut self, slot: Slot, admit: bool, out: &mut Allocation) -> bool {
        let at = self.step;
        if self.repeating {
            let same = self.steps.get(at).is_some_and(|step| (step.slot, step.admit) == (slot, admit));
            // To stop at the next step there has to be a way back to it.
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
            // Nobody got anything: the ports are as they were.
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

    /// Goes back to where the schedule before was at this step.
    fn stop_repeating(&mut self, out: &mut Allocation) {
        self.repeating = false;
        match self.steps.get(self.step) {
            Some(step) => {
                self.residual.restore(&self.saved[step.saved]);
                out.keep_flows(step.flows_before);
            }
            // All of it holds, and it left what is left.
            None => out.keep_all_flows(),
        }
    }

    /// When each coflow's queue may change at the rates in force.
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

    /// A flow of a coflow that goes by what it has sent is at `sent` bytes and goes on at `rate`.
    fn predict_by_sent(&mut self, slot: Slot, sent: f64, rate: f64, view: &View<'_, Blind>) {
        let width = view.coflow(slot).width() as f64;
        let state = &mut self.states[slot as usize];
        let queue = state.queue.unwrap_or(0);
        if queue + 1 < self.thresholds.queues() {
            let until = (self.thresholds.upper(queue) / width - sent).max(0.0) / rate;
            state.leaves_at = state.leaves_at.min(view.now() + until);
        }
    }

    /// How long the estimate keeps a coflow in its queue, or is one at all.
    fn until_estimate_leaves(&self, slot: Slot, view: &mut View<'_, Blind>) -> f64 {
        let Some((left, shrinking)) = self.estimate(slot, view) else { return 0.0 };
        let queue = self.states[slot as usize].queue.unwrap_or(0);
        let width = view.coflow(slot).width() as f64;
        // In the first queue the estimate holds until it is used up, and what was sent counts again.
        let upper = if queue == 0 { 0.0 } else { self.thresholds.upper(queue - 1) / width };
        if shrinking > 0.0 { (left - upper).max(0.0) / shrinking } else { f64::INFINITY }
    }

    /// The same without per-flow thresholds, where all flows of a coflow add up.
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
                // It may have lost what it had sent.
                self.states[slot as usize].leaves_at = f64::NEG_INFINITY;
                self.changed.insert(slot as usize);
            }
            Event::FlowDone(slot, flow) => {
                self.changed.insert(slot as usize);
                if self.requeue {
                    let length = view.attained(slot, flow);
                    let state = &mut self.states[slot as usize];
                    state.stale = true;
                    // A flow without bytes says nothing about the others, whether it ends at its release or later.
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

    /// Fig. 7. O(coflows x their ports) at worst; from the first coflow on of which anything changed.
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
