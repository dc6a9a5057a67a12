//! Pilots: flows that complete early, so that their sizes estimate those of other flows.

use std::fmt;
use std::str::FromStr;

use super::Constants;
use super::estimate::Samples;
use crate::allocation::Allocation;
use crate::model::{Coflow, FlowState, SizesEstimated, Slot, View};
use crate::solve::ResidualCapacity;
use crate::units::Time;

/// The time from which on a coflow serves pilots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PilotTime {
    /// A multiple of the median of earlier coflows.
    Median,
    /// A time.
    Fixed(Time),
}

impl fmt::Display for PilotTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PilotTime::Median => f.write_str("median"),
            PilotTime::Fixed(time) => time.fmt(f),
        }
    }
}

impl FromStr for PilotTime {
    type Err = <Time as FromStr>::Err;

    fn from_str(text: &str) -> Result<PilotTime, Self::Err> {
        if text == "median" { Ok(PilotTime::Median) } else { text.parse().map(PilotTime::Fixed) }
    }
}

/// No flow.
const NO_FLOW: u32 = u32::MAX;

/// The flows of a coflow by receiver, and the pilot of each receiver. Empty before the first pilot.
#[derive(Debug, Default)]
pub(super) struct Pilots {
    /// The first flow of each receiver in `flows`, and the end of the last receiver's flows.
    starts: Vec<u32>,
    flows: Vec<u32>,
    pilots: Vec<u32>,
    /// Receivers that may have too few completed flows, in order.
    candidates: Vec<u32>,
    /// Whether `candidates` lacks no such receiver.
    has_all_candidates: bool,
}

impl Pilots {
    /// Checks all receivers again, because the required number of completed flows may have grown.
    pub fn reset_candidates(&mut self) {
        self.has_all_candidates = false;
    }

    /// Removes and returns the candidates; flows have to be indexed. O(receivers) after a reset.
    fn take_candidates(&mut self) -> Vec<u32> {
        let mut candidates = std::mem::take(&mut self.candidates);
        if !std::mem::replace(&mut self.has_all_candidates, true) {
            candidates.clear();
            // A receiver of one flow needs no pilot.
            let receivers = 0..self.pilots.len() as u32;
            candidates.extend(receivers.filter(|&receiver| self.flows_to(receiver as usize).len() >= 2));
        }
        candidates
    }

    /// Sorts the flows by receiver, once. O(flows).
    fn index_flows(&mut self, coflow: &Coflow) {
        if !self.starts.is_empty() {
            return;
        }
        let receivers = coflow.receivers().len();
        self.flows = (0..coflow.width() as u32).collect();
        self.flows.sort_by_key(|&flow| coflow.receiver_index(flow));
        let start =
            |receiver| self.flows.partition_point(|&flow| coflow.receiver_index(flow) < receiver) as u32;
        self.starts = (0..=receivers).map(start).collect();
        self.pilots = vec![NO_FLOW; receivers];
    }

    fn flows_to(&self, receiver: usize) -> &[u32] {
        &self.flows[self.starts[receiver] as usize..self.starts[receiver + 1] as usize]
    }
}

/// The number of completed flows that a receiver with this number of flows needs. `spread` is the relative variance inside
/// receivers and its degrees of freedom.
pub(super) fn required_samples(spread: Option<(f64, u32)>, flows: usize, constants: &Constants) -> u32 {
    match spread {
        None => 1,
        Some((variance, _)) if variance > constants.low_variance => {
            let max_samples = constants.max_samples.min(flows as f64 * constants.max_sampled_share);
            // Below the target, or with two flows, one completed flow is enough.
            ((variance / constants.target_variance).min(max_samples) as u32).max(1)
        }
        Some((_, degrees)) if f64::from(degrees) < constants.trusted_degrees => 2,
        Some(_) => 1,
    }
}

/// The pilots of one coflow in a schedule, in memory that is used again.
#[derive(Debug, Default)]
pub(super) struct PilotRates {
    chosen: Vec<u32>,
    /// By link: number of pilots.
    counts: Vec<u32>,
}

impl PilotRates {
    /// Chooses a pilot for each receiver with fewer completed flows than `required_samples` returns for its number of flows.
    ///
    /// O(receivers with too few completed flows), and O(flows to the receiver) for each receiver whose last pilot has no capacity.
    pub fn choose(
        &mut self,
        slot: Slot,
        pilots: &mut Pilots,
        samples: &Samples,
        required_samples: impl Fn(usize) -> u32,
        residual: &ResidualCapacity,
        view: &View<'_, SizesEstimated>,
    ) {
        self.chosen.clear();
        self.counts.resize(view.fabric().links(), 0);
        let coflow = view.coflow(slot);
        pilots.index_flows(coflow);
        let mut candidates = pilots.take_candidates();
        candidates.retain(|&receiver| {
            let receiver = receiver as usize;
            let flows = pilots.flows_to(receiver);
            if samples.count(receiver) >= required_samples(flows.len()) {
                return false;
            }
            let load = &coflow.receivers()[receiver];
            if load.live_flow_count < 2 || !residual.open_links().contains(load.link as usize) {
                return true;
            }
            let has_capacity = |&flow: &u32| {
                coflow.flow_state(flow) == FlowState::Live && residual.flow_residual(coflow, flow) > 0.0
            };
            let last = pilots.pilots[receiver];
            let pilot = if last != NO_FLOW && has_capacity(&last) {
                Some(last)
            } else {
                let rank =
                    |flow: u32| (self.counts[coflow.flow_port_links(flow).0], -view.sent_bytes(slot, flow));
                let ranked = flows.iter().copied().filter(has_capacity).map(|flow| (rank(flow), flow));
                let first = ranked.min_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
                first.map(|(_, flow)| flow)
            };
            if let Some(pilot) = pilot {
                pilots.pilots[receiver] = pilot;
                coflow.flow_links(pilot).for_each(|link| self.counts[link] += 1);
                self.chosen.push(pilot);
            }
            true
        });
        pilots.candidates = candidates;
    }

    /// Gives the chosen pilots one common rate, and then, in the order of receivers, the residual capacity of their links.
    pub fn assign(
        &mut self,
        slot: Slot,
        residual: &mut ResidualCapacity,
        view: &View<'_, SizesEstimated>,
        out: &mut Allocation,
    ) {
        let coflow = view.coflow(slot);
        let links = || self.chosen.iter().flat_map(|&flow| coflow.flow_links(flow));
        let rates = links().map(|link| residual.residuals()[link] / f64::from(self.counts[link]));
        let rate = rates.fold(f64::INFINITY, f64::min);
        for &flow in &self.chosen {
            coflow.flow_links(flow).for_each(|link| self.counts[link] = 0);
            residual.subtract_flow_rate(coflow, flow, rate);
        }
        for &flow in &self.chosen {
            let more = residual.flow_residual(coflow, flow);
            residual.subtract_flow_rate(coflow, flow, more);
            out.add_flow_rate(slot, flow, rate + more);
        }
    }
}
