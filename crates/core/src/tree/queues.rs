//! Division of a queue's part of a side between the leaves that share the queue: max-min between their flows, as a
//! FIFO queue with TCP shares.

use super::leaf::Leaf;
use super::maxmin::{Bound, fill_level, part_at_level};

/// The leaves at a side, and the queues of those that share queues.
#[derive(Debug, Default)]
pub(super) struct QueueScratch {
    /// By leaf at the side, if the tree has shared queues: the position of the first leaf in the same queue.
    first_in_queue: Vec<u32>,
    /// Weights and claims of the queues of a service, and their parts.
    pub(super) weights: Vec<f64>,
    pub(super) claims: Vec<f64>,
    pub(super) parts: Vec<f64>,
    /// The numbers of these queues.
    numbers: Vec<u16>,
}

/// A side, and the limits of its flows.
#[derive(Clone, Copy)]
pub(super) struct SideFlows<'a> {
    pub(super) leaves: &'a [Leaf],
    pub(super) side: usize,
    /// The bounds from which the claims of `fair` leaves were computed; none if claims are infinite.
    pub(super) bound: Option<Bound>,
}

impl SideFlows<'_> {
    /// The level to which the flows of these leaves fill `part`.
    pub(super) fn level(&self, members: &[u32], part: f64) -> f64 {
        fill_level(part, &self.limits(members))
    }

    /// For each class of flows of these leaves: the number of flows, and the limit of a flow.
    fn limits(&self, members: &[u32]) -> Vec<(f64, f64)> {
        let mut limits = Vec::new();
        for &leaf in members {
            self.leaves[leaf as usize].add_flow_limits(self.side, self.bound, &mut limits);
        }
        limits
    }

    /// Appends the parts of the leaves of one queue to `out`.
    fn divide_queue(&self, members: &[u32], part: f64, out: &mut Vec<f64>) {
        if let [_] = members {
            out.push(part);
            return;
        }
        let all = self.limits(members);
        let level = fill_level(part, &all);
        let max_limit = all.iter().map(|&(_, limit)| limit).fold(0.0, f64::max);
        out.extend(members.iter().map(|&leaf| part_at_level(level, max_limit, &self.limits(&[leaf]))));
    }
}

impl QueueScratch {
    /// Prepares the division of a side.
    pub(super) fn clear(&mut self) {
        self.first_in_queue.clear();
    }

    /// Notes that each of the next `count` leaves at the side has a separate queue.
    pub(super) fn add_separate_queues(&mut self, count: usize) {
        let first = self.first_in_queue.len() as u32;
        self.first_in_queue.extend(first..first + count as u32);
    }

    /// The positions of the leaves at the side that are in the same queue as the leaf at `position`.
    pub(super) fn positions_in_queue(&self, position: usize) -> impl Iterator<Item = usize> + '_ {
        let queue = self.first_in_queue.get(position).copied();
        (0..self.first_in_queue.len()).filter(move |&other| self.first_in_queue.get(other).copied() == queue)
    }

    /// Collects the queues of `members`, leaves of one service in the queues `queue_by_leaf` with the weights `weights` and
    /// the claims `claims`. The caller then divides the service's part by these weights and claims.
    pub(super) fn collect_queues(&mut self, queue_by_leaf: &[u16], weights: &[f64], claims: &[f64]) {
        self.numbers.clear();
        self.weights.clear();
        self.claims.clear();
        let offset = self.first_in_queue.len();
        for (at, (&queue, (&weight, &claim))) in
            queue_by_leaf.iter().zip(weights.iter().zip(claims)).enumerate()
        {
            let first = queue_by_leaf.iter().position(|&other| other == queue).unwrap_or(at);
            self.first_in_queue.push((offset + first) as u32);
            match self.numbers.iter().position(|&number| number == queue) {
                Some(place) => self.claims[place] += claim,
                None => {
                    self.numbers.push(queue);
                    self.weights.push(weight);
                    self.claims.push(claim);
                }
            }
        }
    }

    /// Writes the parts of `members`, the leaves of [`QueueScratch::collect_queues`], to `out`. [`QueueScratch::parts`]
    /// has the parts of their queues.
    pub(super) fn divide_queues(
        &self,
        flows: SideFlows<'_>,
        members: &[u32],
        queue_by_leaf: &[u16],
        out: &mut Vec<f64>,
    ) {
        out.clear();
        out.resize(members.len(), 0.0);
        let mut parts = Vec::new();
        for (&number, &part) in self.numbers.iter().zip(&self.parts) {
            let positions: Vec<usize> =
                (0..members.len()).filter(|&at| queue_by_leaf[at] == number).collect();
            let in_queue: Vec<u32> = positions.iter().map(|&at| members[at]).collect();
            parts.clear();
            flows.divide_queue(&in_queue, part, &mut parts);
            positions.iter().zip(&parts).for_each(|(&at, &part)| out[at] = part);
        }
    }
}
