//! Philae: shortest coflow first, with the size of a coflow estimated from a sample of its flows.
//!
//! Source: Jajoo, Hu and Lin, "A Case for Sampling Based Learning Techniques in Coflow Scheduling", IEEE/ACM ToN
//! 2023; a first version is "Your coflow has many flows: sampling them for fun and speed", USENIX ATC '19.
//!
//! # Problem
//!
//! Aalo and Saath learn the size of a coflow from the bytes that it has sent: a large coflow moves through several queues, and delays
//! others on its way.
//!
//! # Idea
//!
//! A coflow has many flows. A few *pilot* flows are served first, and the mean of their sizes estimates the mean size of all flows. Then
//! the shortest coflow goes first, where the length of a coflow depends on its estimated size and on its contention.
//!
//! # Algorithm
//!
//! 1. *Thin* coflows, of at most `thin` flows, are not sampled. They are served first, in the order of release.
//! 2. *Sampling*: of every other coflow, `pilots` of its flows (1 %), and at least one, are pilots. Pilots are served next, coflow by
//!    coflow in the order of release. The other flows of the coflow wait.
//! 3. *Sampled* coflows, all pilots of which have completed, are served in ascending order of estimated size times contention: the
//!    mean size of the pilots times the number of flows, less the bytes sent; times the number of coflows that share a link with it.
//! 4. *Rates*: the flows of a thin or sampled coflow have equal rates, if every link has residual capacity. A pilot takes the residual
//!    capacity of its links.
//! 5. *Work conservation*: residual capacity goes to all coflows in the same order, flow by flow.
//!
//! # Choices
//!
//! The abstract states the sampling of flows, the estimate by the mean, and the order by learned size and contention. The details below
//! are this project's choices: only the abstract and the introduction were at hand, and no implementation was compared.
//!
//! - *Number of pilots* (1 %) and the *threshold of thin coflows* (7 flows) are parameters.
//! - *Which flows*: pilots are spread over the least busy ports. Busy is a sending port, and then a receiving port, with many pilots
//!   of all coflows.
//! - *Remaining size*: the bytes sent are subtracted, as for SRTF. `order=size` leaves out the contention. On generated workloads
//!   (preset `facebook`, seeds 1 to 5), the mean times of both orders differ by less than 0.1 %.
//! - *Estimates are final*: only pilots are samples. Among the other flows, the smallest complete first, which would bias the mean. A
//!   coflow whose flows are replaced, since a cable failed, takes all flows with bytes that have completed as its sample. Without
//!   any, it chooses pilots again.
//! - *Priority queues* over estimated sizes, by which an implementation orders coflows, are left out: the order is exact. The queue in
//!   the output of `weir explain` is the step of the algorithm, from 0.
//! - *A pilot that loses its data* is replaced by another live flow.
//!
//! # Limits
//!
//! - Thin coflows of large flows delay all others, since their sizes stay unknown.
//! - The mean over all flows does not tell how the bytes are spread over receivers.
//! - A large coflow can wait without limit while small coflows continue to arrive.

use super::coflow_order::{SortedCoflows, assign_equal_rates};
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Rule};
use crate::model::{BitSet, Coflow, FlowState, SizesUnknown, Slot, View};
use crate::solve::{Contention, ResidualCapacity};

/// The steps of the algorithm that a coflow can be at, in the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Phase {
    Thin,
    #[default]
    Sampling,
    Sampled,
}

/// A flow that is served for its size, and its ports.
#[derive(Debug, Clone, Copy)]
struct Pilot {
    flow: u32,
    src: u32,
    dst: u32,
}

/// State of one coflow.
#[derive(Debug, Default)]
struct CoflowState {
    phase: Phase,
    /// Sampling: the pilots that have not completed.
    pilots: Vec<Pilot>,
    /// Number of pilots that have completed, and their bytes.
    sample_count: usize,
    sample_bytes: f64,
}

impl CoflowState {
    /// The estimated size of all flows, in bytes.
    fn estimated_bytes(&self, coflow: &Coflow) -> f64 {
        self.sample_bytes / self.sample_count as f64 * coflow.width() as f64
    }
}

/// The scheduler of Philae.
pub struct Philae {
    pilot_share: f64,
    thin_width: usize,
    uses_contention: bool,
    states: Vec<CoflowState>,
    contention: Contention,
    /// Number of pilots by sending and by receiving port.
    pilots_by_port: [Vec<u32>; 2],
    order: SortedCoflows,
    residual: ResidualCapacity,
}

impl Philae {
    pub(super) fn from_params(params: &mut Params) -> Result<Philae, ParamsError> {
        let is_share = |share: &f64| *share > 0.0 && *share <= 1.0;
        Ok(Philae {
            pilot_share: params.take_value("pilots", 0.01, is_share, "a number above 0, up to 1")?,
            thin_width: params.take_value("thin", 7, |_| true, "a number of flows")?,
            uses_contention: params.take_choice("order", &[("contention", true), ("size", false)])?,
            states: Vec::new(),
            contention: Contention::default(),
            pilots_by_port: Default::default(),
            order: SortedCoflows::default(),
            residual: ResidualCapacity::default(),
        })
    }

    /// Starts a coflow at step 1, 2 or 3.
    fn release(&mut self, slot: Slot, view: &View<'_, SizesUnknown>) {
        self.pilots_by_port.iter_mut().for_each(|counts| counts.resize(view.fabric().ports(), 0));
        self.states.resize_with(view.slots(), CoflowState::default);
        self.remove_pilots(slot, |_| true);
        let coflow = view.coflow(slot);
        let mut state = CoflowState::default();
        if coflow.width() <= self.thin_width {
            state.phase = Phase::Thin;
        } else if coflow.released_at < view.now() && coflow.completed_count() > 0 {
            // Its flows were replaced. At the release, only flows that take no time have completed, and none of them is a pilot.
            for flow in coflow.completed_flows() {
                let bytes = view.sent_bytes(slot, flow);
                // A flow without bytes is never a pilot.
                state.sample_count += usize::from(bytes > 0.0);
                state.sample_bytes += bytes;
            }
            state.phase = if state.sample_count > 0 { Phase::Sampled } else { Phase::Sampling };
        }
        self.states[slot as usize] = state;
    }

    /// The flows for which `is_removed` returns true are no longer pilots.
    fn remove_pilots(&mut self, slot: Slot, is_removed: impl Fn(u32) -> bool) {
        let Philae { states, pilots_by_port: [at_senders, at_receivers], .. } = self;
        states[slot as usize].pilots.retain(|&Pilot { flow, src, dst }| {
            let is_kept = !is_removed(flow);
            at_senders[src as usize] -= u32::from(!is_kept);
            at_receivers[dst as usize] -= u32::from(!is_kept);
            is_kept
        });
    }

    /// Step 2: chooses pilots among the live flows. O(flows) for each missing pilot.
    fn choose_pilots(&mut self, slot: Slot, view: &View<'_, SizesUnknown>) {
        let coflow = view.coflow(slot);
        let Philae { states, pilots_by_port: [at_senders, at_receivers], .. } = self;
        let state = &mut states[slot as usize];
        let mut chosen = BitSet::empty(coflow.width());
        state.pilots.iter().for_each(|pilot| chosen.insert(pilot.flow as usize));
        let needed = (self.pilot_share * coflow.width() as f64).ceil() as usize;
        while state.sample_count + state.pilots.len() < needed {
            let flows = (0..coflow.width() as u32).filter(|&flow| coflow.flow_state(flow) == FlowState::Live);
            let others = flows.filter(|&flow| !chosen.contains(flow as usize));
            let pilots = others.map(|flow| {
                let (src, dst) = coflow.flow_ports(flow);
                Pilot { flow, src, dst }
            });
            let busy = |pilot: &Pilot| (at_senders[pilot.src as usize], at_receivers[pilot.dst as usize]);
            let Some(pilot) = pilots.min_by_key(busy) else { return };
            at_senders[pilot.src as usize] += 1;
            at_receivers[pilot.dst as usize] += 1;
            chosen.insert(pilot.flow as usize);
            state.pilots.push(pilot);
        }
    }

    /// Records the completion of a flow. The last pilot ends the sampling.
    fn complete_flow(&mut self, slot: Slot, flow: u32, view: &View<'_, SizesUnknown>) {
        if self.states[slot as usize].pilots.iter().all(|pilot| pilot.flow != flow) {
            return;
        }
        self.remove_pilots(slot, |pilot| pilot == flow);
        let state = &mut self.states[slot as usize];
        state.sample_count += 1;
        state.sample_bytes += view.sent_bytes(slot, flow);
        if state.pilots.is_empty() {
            state.phase = Phase::Sampled;
        }
    }

    /// The key of a coflow within its phase.
    fn key(&self, slot: Slot, view: &View<'_, SizesUnknown>) -> f64 {
        let state = &self.states[slot as usize];
        if state.phase != Phase::Sampled {
            return 0.0;
        }
        let remaining = (state.estimated_bytes(view.coflow(slot)) - view.total_sent_bytes(slot)).max(0.0);
        let contenders = self.contention.contenders(slot).iter().count();
        if self.uses_contention { remaining * contenders as f64 } else { remaining }
    }

    /// Steps 2 and 4 for one coflow.
    fn assign_rates(&mut self, slot: Slot, view: &View<'_, SizesUnknown>, out: &mut Allocation) {
        if self.states[slot as usize].phase != Phase::Sampling {
            assign_equal_rates(slot, &mut self.residual, view, out);
            return;
        }
        let coflow = view.coflow(slot);
        for &Pilot { flow, .. } in &self.states[slot as usize].pilots {
            let rate = self.residual.flow_residual(coflow, flow);
            if rate > 0.0 {
                self.residual.subtract_flow_rate(coflow, flow, rate);
                out.add_flow_rate(slot, flow, rate);
            }
        }
        out.set_rule(slot, Rule::WorkConservation);
    }
}

impl Policy for Philae {
    type Knowledge = SizesUnknown;

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesUnknown>) {
        self.contention.on_event(event, view);
        match event {
            Event::CoflowReleased(slot) => self.release(slot, view),
            Event::FlowCompleted(slot, flow) => self.complete_flow(slot, flow, view),
            Event::CoflowCompleted(slot) => {
                self.remove_pilots(slot, |_| true);
                self.states[slot as usize] = CoflowState::default();
            }
            Event::FlowLive(..) | Event::FlowInterrupted(..) | Event::CapacityChanged => {}
        }
    }

    /// O(coflows x links of each), and the choice of pilots.
    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        self.contention.update_overlaps(view);
        // Before any choice of pilots: the port of a flow that lost its data is not busy.
        for &slot in view.active_coflows() {
            let coflow = view.coflow(slot);
            self.remove_pilots(slot, |flow| coflow.flow_state(flow) != FlowState::Live);
        }
        for &slot in view.active_coflows() {
            let phase = self.states[slot as usize].phase;
            out.set_class(slot, phase as usize);
            if phase == Phase::Sampling && view.coflow(slot).live_count() > 0 {
                self.choose_pilots(slot, view);
            }
        }
        let mut order = std::mem::take(&mut self.order);
        order.sort(view, out, |slot| self.key(slot, view));
        self.residual.reset(view.fabric());
        for slot in order.slots() {
            self.assign_rates(slot, view, out);
        }
        order.backfill(&mut self.residual, view, out);
        self.order = order;
    }
}

#[cfg(test)]
mod tests;
