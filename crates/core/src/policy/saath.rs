//! Saath: online coflow scheduling by all-or-none, per-flow queue thresholds and least contention first (LCoF).
//!
//! Source: Jajoo et al., "Saath: Speeding up CoFlows by Exploiting the Spatial Dimension", CoNEXT '17.
//! [`Saath::schedule`] implements section 4.2 (Fig. 7, D1-D5). [`Saath::queue_of`] implements the re-queueing of
//! section 4.3, by the median of completed flows; the wait for data is from section 4.3 too. Waves and DAGs of section
//! 4.3 are part of the workload: parents delay the release of their children, and
//! [`crate::model::Workload::merge_stages`] makes one coflow of each stage and wave.
//!
//! Choices that the paper leaves open, and the effect of the alternatives:
//!
//! - *Contention* (k_c) counts the other coflows that share a port "when that CoFlow is scheduled at all of its
//!   ports". The paper does not say whether coflows of other queues count. Here only coflows of the same queue count,
//!   because contention orders only coflows of one queue. `contention=all` counts every active coflow.
//! - *Available bandwidth* (line 7) at a port: any residual capacity is enough. Two coflows can then share a port,
//!   the second at a lower rate. `available=full` admits a coflow only at ports that no other coflow was admitted to.
//!   Its rates are always high, but more coflows depend on work conservation. Trunks between switches carry many ports, so there the
//!   coflow only needs the rate that it would have alone. Between regions, links count as ports do.
//! - *t* in the deadline d C_q t (D5) is "the minimum time a CoFlow needs to spend in the queue based on the queue
//!   threshold". Here t is (Q_hi - Q_lo) / port rate: the time that the bytes of the queue take through one port, and
//!   the maximum delay that one coflow ahead in a FIFO can cause at the port. The last queue has no upper threshold,
//!   and uses the next threshold of the series. Between regions, where ports limit no flow, the rate is that of the fastest
//!   link at its mean bandwidth.
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
//! - *Work conservation* runs after each queue, as in Fig. 7, for the coflows of the queue that were not admitted. Each
//!   flow, in the order of ports, takes the residual capacity of both of its ports. Fig. 7 says "for f in c" without an
//!   order, and the order affects the mean. The simulator numbers ports in the order in which coflows list them.
//! - *Backfilling* serves missed coflows, as D4 says. Over several links, all-or-none gives all flows the rate of the most loaded
//!   link, and other links of an admitted coflow are unused. With `backfill=all`, admitted coflows take part in work conservation too,
//!   after all queues and on top of their equal rates (docs/results/fabrics.md).
//! - *Re-queueing* (4.3) is described for failures, stragglers and skew, but the rule depends only on whether some
//!   flows have completed. So it applies to every coflow after its first completed flow, as long as some flow has
//!   sent less than the median. When no flow has sent less, the median was too short. The estimated remainder would
//!   be zero or negative, which would move the coflow to the first queue although its longest flows remain. Eq. 1 on
//!   the bytes sent then applies again. This is `requeue=on`. It is not the default, since it makes the mean completion time
//!   longer on the public trace and on most generated workloads (docs/results/saath.md, docs/results/weir.md).
//!   `per-flow=off` disables estimates, because its thresholds are not for single flows.
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
use super::{Event, Params, ParamsError, Policy, Reaction, Timing};
use crate::allocation::{Allocation, CommonRate, OrderCriterion, Rule};
use crate::model::{BitSet, Coflow, SizesUnknown, Slot, View};
use crate::ordered_f64::OrderedF64;
use crate::rounding;
use crate::solve::{Contention, ResidualCapacity, residual::SavedResidual};

/// Which coflows count as contending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentionScope {
    SameQueue,
    AllCoflows,
}

/// Lengths of completed flows in bytes; two heaps give the median.
#[derive(Debug, Default)]
struct CompletedLengths {
    lower_half: BinaryHeap<OrderedF64>,
    upper_half: BinaryHeap<Reverse<OrderedF64>>,
}

impl CompletedLengths {
    fn add(&mut self, length: f64) {
        match self.lower_half.peek() {
            Some(middle) if OrderedF64(length) > *middle => self.upper_half.push(Reverse(OrderedF64(length))),
            _ => self.lower_half.push(OrderedF64(length)),
        }
        if self.lower_half.len() > self.upper_half.len() + 1 {
            self.upper_half.extend(self.lower_half.pop().map(Reverse));
        } else if self.upper_half.len() > self.lower_half.len() {
            self.lower_half.extend(self.upper_half.pop().map(|Reverse(key)| key));
        }
    }

    fn median(&self) -> Option<f64> {
        let low = self.lower_half.peek()?.0;
        match self.upper_half.peek() {
            Some(Reverse(high)) if self.upper_half.len() == self.lower_half.len() => {
                Some((low + high.0) / 2.0)
            }
            _ => Some(low),
        }
    }
}

/// State of one coflow.
#[derive(Debug, Default)]
struct CoflowState {
    /// The queue; `None` before the first schedule.
    queue: Option<usize>,
    /// Time at which the deadline in this queue expires, in seconds.
    deadline: f64,
    /// Earliest time of the next change of queue if no event occurs, in seconds. May be too early.
    queue_change_at: f64,
    /// Whether a flow has completed since the queue was computed, so that the estimate may differ.
    estimate_stale: bool,
    /// Whether the queue is based on the estimated remainder, not on the bytes sent.
    estimating: bool,
    /// Whether the deadline had expired at the last sort.
    expired: bool,
    lengths: CompletedLengths,
}

impl CoflowState {
    /// Whether the queue changes with the next schedule, because the time of its change has passed without one.
    fn awaits_queue_change(&self, now: f64) -> bool {
        self.queue_change_at > f64::NEG_INFINITY && rounding::is_due(self.queue_change_at, now)
    }

    fn add_length(&mut self, bytes: f64) {
        // A flow without bytes has no length to learn from, whether it completes at its release or later.
        if bytes > 0.0 {
            self.lengths.add(bytes);
        }
    }
}

/// The scheduler of Saath.
pub struct Saath {
    thresholds: Thresholds,
    deadline_factor: f64,
    all_or_none: bool,
    per_flow: bool,
    least_contention: bool,
    work_conservation: bool,
    backfills_admitted: bool,
    requeue: bool,
    contention_scope: ContentionScope,
    requires_full_ports: bool,
    time_per_flow: bool,
    /// Whether hosts serve the next flow between two schedules.
    serves_locally: bool,
    /// If they do: the coflows that the last schedule admitted, and their common rates.
    admitted_rates: Vec<(Slot, f64)>,
    states: Vec<CoflowState>,
    contention: Contention,
    queue_members: Vec<BitSet>,
    /// Whether `order` is still valid.
    order_valid: bool,
    residual: ResidualCapacity,
    order: Vec<OrderEntry>,
    not_admitted: Vec<Slot>,
    /// Admitted coflows, if they are backfilled.
    admitted: Vec<Slot>,
    /// The steps of the last schedule, and the residual capacities that were saved before them.
    steps: Vec<ScheduleStep>,
    saved_residuals: Vec<SavedResidual>,
    /// The next step, and whether all steps so far repeat the last schedule.
    next_step: usize,
    repeating: bool,
    /// Coflows that were released, or whose live flows changed, since the last schedule.
    changed_coflows: BitSet,
    ports_changed: bool,
    /// By slot: total rate of the flows in bytes per second.
    coflow_rates: Vec<f64>,
}

/// A coflow's place in the order of one schedule.
#[derive(Debug, Clone, Copy)]
struct OrderEntry {
    /// Queue + 1, or 0 if the deadline has expired.
    group: usize,
    /// Contention; the deadline in group 0.
    rank: f64,
    seq: u64,
    slot: Slot,
}

/// A step of a schedule: the admission test of one coflow, or its share of work conservation.
#[derive(Debug, Clone, Copy)]
struct ScheduleStep {
    slot: Slot,
    is_admission: bool,
    /// The common rate at which the coflow was admitted, in bytes per second.
    admitted_rate: Option<f64>,
    /// Number of flows with their own rates before the step.
    flows_before: usize,
    /// Index in `Saath::saved_residuals` of the residual capacities before the step; not saved from `Saath::MAX_SAVED` on.
    saved_index: usize,
}

impl Saath {
    /// Maximum number of saved residual capacities from which a schedule can resume.
    const MAX_SAVED: usize = 32;

    pub(super) fn from_params(params: &mut Params) -> Result<Saath, ParamsError> {
        let thresholds = Thresholds::from_params(params)?;
        Ok(Saath {
            queue_members: vec![BitSet::default(); thresholds.queue_count()],
            thresholds,
            deadline_factor: params.take_value(
                "d",
                2.0,
                |d: &f64| *d > 0.0,
                "a number above 0 (`inf` for no deadlines)",
            )?,
            all_or_none: params.take_switch("all-or-none", true)?,
            per_flow: params.take_switch("per-flow", true)?,
            least_contention: params.take_switch("lcof", true)?,
            work_conservation: params.take_switch("work-conservation", true)?,
            backfills_admitted: params.take_choice("backfill", &[("missed", false), ("all", true)])?,
            requeue: params.take_switch("requeue", false)?,
            contention_scope: params.take_choice(
                "contention",
                &[("queue", ContentionScope::SameQueue), ("all", ContentionScope::AllCoflows)],
            )?,
            requires_full_ports: params.take_choice("available", &[("any", false), ("full", true)])?,
            time_per_flow: params.take_choice("time", &[("total", false), ("flow", true)])?,
            serves_locally: params.take_switch("local", false)?,
            admitted_rates: Vec::new(),
            states: Vec::new(),
            contention: Contention::default(),
            order_valid: false,
            residual: ResidualCapacity::default(),
            order: Vec::new(),
            not_admitted: Vec::new(),
            admitted: Vec::new(),
            steps: Vec::new(),
            saved_residuals: Vec::new(),
            next_step: 0,
            repeating: false,
            changed_coflows: BitSet::default(),
            ports_changed: false,
            coflow_rates: Vec::new(),
        })
    }

    /// The current queue of a coflow (D3 and section 4.3).
    fn queue_of(&self, slot: Slot, estimate: Option<(f64, f64)>, view: &mut View<'_, SizesUnknown>) -> usize {
        let width = view.coflow(slot).width() as f64;
        match estimate {
            Some((left, _)) => self.thresholds.queue_by_remaining_bytes(left * width),
            None if self.per_flow => self.thresholds.queue_by_sent_bytes(view.max_sent_bytes(slot) * width),
            None => self.thresholds.queue_by_sent_bytes(view.total_sent_bytes(slot)),
        }
    }

    /// Estimates the remainder of the least advanced unfinished flow, if its length is the median of the completed
    /// flows.
    ///
    /// Returns the remainder in bytes, and the rate at which it shrinks. `None` if no flow has completed, or if that
    /// flow has sent the median.
    fn estimate(&self, slot: Slot, view: &mut View<'_, SizesUnknown>) -> Option<(f64, f64)> {
        if !self.requeue || !self.per_flow {
            return None;
        }
        let median = self.states[slot as usize].lengths.median()?;
        let (sent, rate) = view.min_sent_bytes(slot)?;
        // Under all-or-none, the other flows have often sent exactly as much as the completed flow. The tolerance
        // makes the result (no estimate) independent of rounding.
        (sent < median * (1.0 - rounding::TIE)).then_some((median - sent, rate))
    }

    /// The maximum time of a coflow in a queue, in seconds (D5).
    fn max_queue_time(&self, queue: usize, coflow: &Coflow, link_rate: f64) -> f64 {
        let lower = if queue == 0 { 0.0 } else { self.thresholds.upper_threshold(queue - 1) };
        let mut time = (self.thresholds.upper_threshold(queue) - lower) / link_rate;
        if self.time_per_flow {
            time /= coflow.width() as f64;
        }
        let waiting = self.queue_members[queue].iter().count() as f64;
        self.deadline_factor * waiting * time
    }

    /// Learns the lengths of flows that completed before the policy knew their coflow, such as flows inside a region.
    fn add_completed_lengths(&mut self, slot: Slot, view: &View<'_, SizesUnknown>) {
        let coflow = view.coflow(slot);
        if !self.requeue || coflow.completed_count() == 0 {
            return;
        }
        for flow in coflow.completed_flows() {
            self.states[slot as usize].add_length(view.sent_bytes(slot, flow));
        }
    }

    fn assign_queues(&mut self, view: &mut View<'_, SizesUnknown>) {
        let now = view.now();
        for i in 0..view.active_coflows().len() {
            let slot = view.active_coflows()[i];
            let state = &mut self.states[slot as usize];
            self.order_valid &= !rounding::is_due(state.deadline, now) || state.expired;
            let due = rounding::is_due(state.queue_change_at, now);
            if state.queue.is_some() && !state.estimate_stale && !due {
                continue;
            }
            state.estimate_stale = false;
            let (before, estimated) = (state.queue, state.estimating);
            let estimate = self.estimate(slot, view);
            self.states[slot as usize].estimating = estimate.is_some();
            if before.is_some() && !due && !estimated && estimate.is_none() {
                // The queue is still based on the bytes sent, and `queue_change_at` is the time of its next change.
                continue;
            }
            let queue = self.queue_of(slot, estimate, view);
            if estimated != estimate.is_some() {
                self.states[slot as usize].queue_change_at = f64::NEG_INFINITY;
            }
            if before == Some(queue) {
                if due {
                    self.states[slot as usize].queue_change_at = f64::NEG_INFINITY;
                }
                continue;
            }
            if let Some(before) = before {
                self.queue_members[before].remove(slot as usize);
            }
            self.queue_members[queue].insert(slot as usize);
            let max_wait = self.max_queue_time(queue, view.coflow(slot), view.fabric().fastest_link_rate());
            let state = &mut self.states[slot as usize];
            state.queue = Some(queue);
            state.deadline = now + max_wait;
            state.expired = false;
            state.queue_change_at = f64::NEG_INFINITY;
            self.order_valid = false;
        }
    }

    /// Sorts the coflows, if an input of the order has changed. O(coflows x (words of a slot mask + log coflows)).
    fn sort_coflows(&mut self, view: &View<'_, SizesUnknown>) {
        if self.order_valid {
            return;
        }
        self.order_valid = true;
        self.order.clear();
        for &slot in view.active_coflows() {
            let state = &mut self.states[slot as usize];
            state.expired = rounding::is_due(state.deadline, view.now());
            let queue = state.queue.expect("`assign_queues` gives every active coflow a queue");
            let rivals = self.contention.contenders(slot);
            let (group, rank) = if state.expired {
                (0, state.deadline)
            } else if !self.least_contention {
                (queue + 1, 0.0)
            } else {
                let contention = match self.contention_scope {
                    ContentionScope::SameQueue => rivals.intersection_count(&self.queue_members[queue]),
                    ContentionScope::AllCoflows => rivals.iter().count() as u32,
                };
                (queue + 1, f64::from(contention))
            };
            self.order.push(OrderEntry { group, rank, seq: view.coflow(slot).seq, slot });
        }
        self.order.sort_unstable_by(|a, b| {
            a.group.cmp(&b.group).then(a.rank.total_cmp(&b.rank)).then(a.seq.cmp(&b.seq))
        });
    }

    fn order_criterion(&self, turn: OrderEntry) -> OrderCriterion {
        match turn.group {
            0 => OrderCriterion::DeadlineExpired,
            _ if self.least_contention => OrderCriterion::Contention(turn.rank as u32),
            _ => OrderCriterion::Constant,
        }
    }

    /// Whether all ports of a coflow are available (Fig. 7, line 7).
    fn ports_available(&self, coflow: &Coflow) -> bool {
        !coflow.has_waiting_flows()
            && if self.requires_full_ports {
                self.residual.admits_at_full_capacity(coflow)
            } else {
                self.residual.admits(coflow)
            }
    }

    /// Admits one coflow, or leaves it to work conservation (Fig. 7, lines 6-13).
    fn admit_coflow(&mut self, slot: Slot, view: &View<'_, SizesUnknown>, out: &mut Allocation) {
        out.set_class(
            slot,
            self.states[slot as usize].queue.expect("`assign_queues` gives every active coflow a queue"),
        );
        let coflow = view.coflow(slot);
        if coflow.live_count() == 0 {
            out.set_rule(slot, Rule::WaitingForData);
            return;
        }
        if !self.all_or_none {
            out.set_rule(slot, Rule::InOrder);
            if self.begin_step(slot, false, out) {
                self.residual.fill_flows(coflow, |flow, rate| out.add_flow_rate(slot, flow, rate));
            }
            return;
        }
        let admitted = if self.begin_step(slot, true, out) {
            let admitted = self.ports_available(coflow).then(|| self.residual.max_equal_rate(coflow));
            if let Some(rate) = admitted {
                self.residual.subtract_equal_rates(coflow, rate);
            }
            self.steps[self.next_step - 1].admitted_rate = admitted;
            admitted
        } else {
            self.steps[self.next_step - 1].admitted_rate
        };
        match admitted {
            Some(rate) => {
                out.set_common(slot, CommonRate::Equal(rate));
                out.set_rule(slot, Rule::AllOrNone);
                if self.backfills_admitted {
                    self.admitted.push(slot);
                }
            }
            None => {
                out.set_rule(
                    slot,
                    if self.work_conservation { Rule::WorkConservation } else { Rule::NotAdmitted },
                );
                self.not_admitted.push(slot);
            }
        }
    }

    /// Serves the coflows of a queue that were not admitted (Fig. 7, lines 18-23).
    fn conserve_work(&mut self, view: &View<'_, SizesUnknown>, out: &mut Allocation) {
        let mut missed = std::mem::take(&mut self.not_admitted);
        for slot in missed.drain(..) {
            if self.work_conservation && self.begin_step(slot, false, out) {
                self.residual.fill_flows(view.coflow(slot), |flow, rate| out.add_flow_rate(slot, flow, rate));
            }
        }
        self.not_admitted = missed;
    }

    /// Serves the admitted coflows again, on top of their equal rates (`backfill=all`).
    fn backfill_admitted(&mut self, view: &View<'_, SizesUnknown>, out: &mut Allocation) {
        let mut admitted = std::mem::take(&mut self.admitted);
        for slot in admitted.drain(..) {
            if self.begin_step(slot, false, out) {
                self.residual.fill_flows(view.coflow(slot), |flow, rate| out.add_flow_rate(slot, flow, rate));
            }
        }
        self.admitted = admitted;
    }

    /// Begins a step of a schedule. Returns false if the step repeats the last schedule, so that its outcome holds.
    ///
    /// Outcomes hold as long as the steps are those of the last schedule, of coflows without changes.
    fn begin_step(&mut self, slot: Slot, admit: bool, out: &mut Allocation) -> bool {
        let at = self.next_step;
        if self.repeating {
            let same = self.steps.get(at).is_some_and(|step| (step.slot, step.is_admission) == (slot, admit));
            // A later stop has to restore the residual capacity before the next step.
            let can_restore = self.steps.get(at + 1).is_none_or(|next| next.saved_index < Saath::MAX_SAVED);
            if same && can_restore && !self.changed_coflows.contains(slot as usize) {
                self.next_step += 1;
                return false;
            }
            self.stop_repeating(out);
        }
        self.next_step += 1;
        self.steps.truncate(at);
        let before = out.flow_count();
        let saved = match self.steps.last() {
            // The last step assigned no rates, so the residual capacity is the same.
            Some(last) if last.admitted_rate.is_none() && last.flows_before == before => last.saved_index,
            last => {
                let saved = last.map_or(0, |last| last.saved_index + 1);
                if saved < Saath::MAX_SAVED {
                    if saved == self.saved_residuals.len() {
                        self.saved_residuals.push(SavedResidual::default());
                    }
                    self.residual.save(&mut self.saved_residuals[saved]);
                }
                saved
            }
        };
        self.steps.push(ScheduleStep {
            slot,
            is_admission: admit,
            admitted_rate: None,
            flows_before: before,
            saved_index: saved,
        });
        true
    }

    /// Stops repeating the last schedule: restores the residual capacity before the current step.
    fn stop_repeating(&mut self, out: &mut Allocation) {
        self.repeating = false;
        match self.steps.get(self.next_step) {
            Some(step) => {
                self.residual.restore(&self.saved_residuals[step.saved_index]);
                out.keep_flow_rates(step.flows_before);
            }
            // All steps hold, and none follows.
            None => out.keep_all_flow_rates(),
        }
    }

    /// Predicts the change of each coflow's queue at the applied rates.
    fn predict_queue_changes(&mut self, view: &mut View<'_, SizesUnknown>, out: &Allocation) {
        let now = view.now();
        if self.backfills_admitted {
            // The rate of a flow also changes with the common rate of its coflow.
            for rated in out.flow_rates().iter().filter(|rated| out.common(rated.slot) != CommonRate::None) {
                let (slot, flow) = (rated.slot, rated.flow);
                let state = &self.states[slot as usize];
                if !state.estimating && state.queue_change_at != f64::NEG_INFINITY {
                    let (sent, rate) = (view.sent_bytes(slot, flow), view.rate(slot, flow));
                    self.predict_queue_change_by_sent(slot, sent, rate, view);
                }
            }
        }
        for i in 0..view.changed_flows().len() {
            let (slot, flow) = view.changed_flows()[i];
            let state = &self.states[slot as usize];
            if !state.estimating && state.queue_change_at != f64::NEG_INFINITY {
                let (sent, rate) = (view.sent_bytes(slot, flow), view.rate(slot, flow));
                self.predict_queue_change_by_sent(slot, sent, rate, view);
            }
        }
        for i in 0..self.order.len() {
            let slot = self.order[i].slot;
            if self.states[slot as usize].awaits_queue_change(now) {
                continue;
            }
            if self.states[slot as usize].estimating {
                let until = self.seconds_until_estimate_changes(slot, view);
                self.states[slot as usize].queue_change_at = now + until;
                continue;
            }
            if self.states[slot as usize].queue_change_at == f64::NEG_INFINITY {
                self.states[slot as usize].queue_change_at = f64::INFINITY;
                for rated in out.flow_rates().iter().filter(|rated| rated.slot == slot) {
                    let sent = view.sent_bytes(slot, rated.flow);
                    self.predict_queue_change_by_sent(slot, sent, view.rate(slot, rated.flow), view);
                }
            }
            if let CommonRate::Equal(rate) = out.common(slot) {
                let sent = view.max_sent_bytes(slot);
                self.predict_queue_change_by_sent(slot, sent, rate, view);
            }
        }
    }

    /// Accounts for a flow at `sent` bytes and `rate`, of a coflow whose queue is based on the bytes sent.
    fn predict_queue_change_by_sent(
        &mut self,
        slot: Slot,
        sent: f64,
        rate: f64,
        view: &View<'_, SizesUnknown>,
    ) {
        let width = view.coflow(slot).width() as f64;
        let state = &mut self.states[slot as usize];
        let queue = state.queue.unwrap_or(0);
        if queue + 1 < self.thresholds.queue_count() {
            let until = (self.thresholds.upper_threshold(queue) / width - sent).max(0.0) / rate;
            state.queue_change_at = state.queue_change_at.min(view.now() + until);
        }
    }

    /// Seconds until the estimate moves a coflow to another queue, or ceases to apply.
    fn seconds_until_estimate_changes(&self, slot: Slot, view: &mut View<'_, SizesUnknown>) -> f64 {
        let Some((left, shrinking)) = self.estimate(slot, view) else { return 0.0 };
        let queue = self.states[slot as usize].queue.unwrap_or(0);
        let width = view.coflow(slot).width() as f64;
        // In the first queue, the estimate applies until the remainder is zero. Then the bytes sent decide again.
        let upper = if queue == 0 { 0.0 } else { self.thresholds.upper_threshold(queue - 1) / width };
        if shrinking > 0.0 { (left - upper).max(0.0) / shrinking } else { f64::INFINITY }
    }

    /// Predicts the change of each coflow's queue without per-flow thresholds, by the total over all flows.
    fn predict_queue_changes_by_total(&mut self, view: &View<'_, SizesUnknown>) {
        view.coflow_rates(&mut self.coflow_rates);
        for turn in &self.order {
            let state = &mut self.states[turn.slot as usize];
            if state.awaits_queue_change(view.now()) {
                continue;
            }
            let (queue, rate) = (state.queue.unwrap_or(0), self.coflow_rates[turn.slot as usize]);
            state.queue_change_at = f64::INFINITY;
            if rate > 0.0 {
                let sent = view.total_sent_bytes(turn.slot);
                state.queue_change_at = view.now() + self.thresholds.seconds_to_next_queue(queue, sent, rate);
            }
        }
    }
}

impl Policy for Saath {
    type Knowledge = SizesUnknown;

    fn timing(&self) -> Timing {
        let source = "sections 3 and 4.1: the coordinator computes the schedule at each interval, agents comply with the last one";
        let central = Timing::central(source);
        match self.serves_locally {
            true => {
                Timing { completion: Reaction::AtOnce, at_interval: "admission, queues and order", ..central }
            }
            false => central,
        }
    }

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesUnknown>) {
        self.contention.on_event(event, view);
        match event {
            Event::CoflowReleased(slot) => {
                self.states.resize_with(view.slots(), CoflowState::default);
                self.changed_coflows.insert(slot as usize);
                let state = &mut self.states[slot as usize];
                if state.queue.is_none() {
                    *state = CoflowState::default();
                    self.add_completed_lengths(slot, view);
                } else {
                    // The flows were replaced. The coflow keeps its queue and its deadline.
                    state.estimate_stale = true;
                    state.queue_change_at = f64::NEG_INFINITY;
                    self.order_valid = false;
                }
            }
            Event::FlowLive(slot, _) | Event::FlowInterrupted(slot, _) => {
                // The flow may have lost its progress.
                self.states[slot as usize].queue_change_at = f64::NEG_INFINITY;
                self.changed_coflows.insert(slot as usize);
            }
            Event::FlowCompleted(slot, flow) => {
                self.changed_coflows.insert(slot as usize);
                let is_inside_region =
                    !view.fabric().has_limiting_ports() && view.coflow(slot).flow_trunks(flow).is_empty();
                if is_inside_region {
                    // The flow sent all its bytes at once, so the predicted time of the next queue is too late.
                    self.states[slot as usize].queue_change_at = f64::NEG_INFINITY;
                }
                if self.requeue {
                    let length = view.sent_bytes(slot, flow);
                    let state = &mut self.states[slot as usize];
                    state.estimate_stale = true;
                    state.add_length(length);
                }
            }
            Event::CoflowCompleted(slot) => {
                if !view.coflow(slot).is_completed() {
                    // The flows are about to be replaced.
                    self.order_valid = false;
                    return;
                }
                if let Some(queue) = self.states[slot as usize].queue {
                    self.queue_members[queue].remove(slot as usize);
                }
                self.states[slot as usize] = CoflowState::default();
                self.order_valid = false;
                if self.serves_locally {
                    self.order.retain(|turn| turn.slot != slot);
                    self.admitted_rates.retain(|&(other, _)| other != slot);
                }
            }
            Event::CapacityChanged => self.ports_changed = true,
        }
    }

    /// Fig. 7. O(coflows x ports of each) at worst: the work starts at the first coflow that a change affects.
    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        self.assign_queues(view);
        self.order_valid &= !self.contention.update_overlaps(view);
        self.sort_coflows(view);
        self.next_step = 0;
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
                out.set_order_criterion(turn.slot, self.order_criterion(turn));
                self.admit_coflow(turn.slot, view, out);
            }
            self.conserve_work(view, out);
        }
        self.backfill_admitted(view, out);
        if self.repeating {
            self.stop_repeating(out);
        }
        self.steps.truncate(self.next_step);
        self.changed_coflows.clear();
        if self.serves_locally {
            let admitted = self.steps.iter().filter_map(|step| Some((step.slot, step.admitted_rate?)));
            self.admitted_rates.clear();
            self.admitted_rates.extend(admitted);
        }
    }

    /// `local=on`: admitted coflows keep their rates, and the flows of others take the residual capacity in the last order.
    /// O(coflows x ports of each).
    fn reassign(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        self.residual.reset(view.fabric());
        for &(slot, rate) in &self.admitted_rates {
            out.set_common(slot, CommonRate::Equal(rate));
            self.residual.subtract_equal_rates(view.coflow(slot), rate);
        }
        for turn in &self.order {
            let coflow = view.coflow(turn.slot);
            out.set_order_criterion(turn.slot, self.order_criterion(*turn));
            out.set_class(turn.slot, self.states[turn.slot as usize].queue.unwrap_or(0));
            let is_admitted = out.common(turn.slot) != CommonRate::None;
            out.set_rule(
                turn.slot,
                match (coflow.live_count(), is_admitted) {
                    (0, _) => Rule::WaitingForData,
                    (_, true) => Rule::AllOrNone,
                    (_, false) if !self.all_or_none => Rule::InOrder,
                    (_, false) => Rule::WorkConservation,
                },
            );
            if !is_admitted && (self.work_conservation || !self.all_or_none) {
                self.residual.fill_flows(coflow, |flow, rate| out.add_flow_rate(turn.slot, flow, rate));
            }
        }
        for &(slot, _) in self.admitted_rates.iter().filter(|_| self.backfills_admitted) {
            self.residual.fill_flows(view.coflow(slot), |flow, rate| out.add_flow_rate(slot, flow, rate));
        }
        // The next schedule repeats no step of the last one.
        self.steps.clear();
    }

    fn next_wakeup(&mut self, view: &mut View<'_, SizesUnknown>, allocation: &Allocation) -> f64 {
        if self.per_flow {
            self.predict_queue_changes(view, allocation);
        } else {
            self.predict_queue_changes_by_total(view);
        }
        let now = view.now();
        let next = |turn: &OrderEntry| {
            let state = &self.states[turn.slot as usize];
            let expires = if rounding::is_due(state.deadline, now) { f64::INFINITY } else { state.deadline };
            state.queue_change_at.min(expires)
        };
        self.order.iter().map(next).fold(f64::INFINITY, f64::min)
    }
}
