//! The flows of one coflow, their rates and the bytes that they have left.
//!
//! Rows and receivers count the bytes that a flow limited by them has sent, so that only flows whose limit changes are visited. A flow
//! is in the queue of its row or of its receiver, by the bytes that either can send until the flow ends: it ends no earlier than
//! that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::matrix::FlowMatrix;
use super::shares::{Buffers, Shares};
use crate::model::{BitSet, Coflow, CompletedFlow, Slot};
use crate::ordered_f64::OrderedF64;
use crate::rounding;

/// Number of queues that one comparison covers.
const CHUNK: usize = 16;

/// The flows of one coflow.
#[derive(Debug, Default)]
pub(super) struct CoflowFlows {
    /// The coflow's sequence number, because slots are reused, and the layout of its flows.
    pub seq: Option<u64>,
    pub layout: Option<u64>,
    /// Its links, and those with live flows at the last update.
    pub links: BitSet,
    pub live_links: BitSet,
    pub matrix: FlowMatrix,
    /// The shares of its queue, and those of the residual capacity.
    pub shares: [Shares; 2],
    /// Number of changes of the live flows.
    version: u64,
    /// By flow: its bytes, and what its limits had counted before they limited it.
    end_counts: Vec<f64>,
    /// By receiver: the part of the rates of its flows that it carries.
    pub goodputs: Vec<f64>,
    /// By row, then by receiver: flows, by a count at which they end at the earliest.
    queues: Vec<BinaryHeap<Reverse<(OrderedF64, u32)>>>,
    /// By queue: the first count, or a lower one.
    first_ends: Vec<f64>,
    /// Flows that started since the last update, and their remaining bytes.
    pub started: Vec<(u32, f64)>,
    /// Whether rates have changed since the search for the next end.
    pub is_stale: bool,
    /// Bytes sent by all flows until `time`, and their rate since.
    pub sent_bytes: f64,
    pub total_rate: f64,
    pub time: f64,
    /// The end of the first flow; infinite if no flow ends.
    pub next_end: f64,
    next_flow: u32,
}

impl CoflowFlows {
    pub fn new(coflow: &Coflow) -> CoflowFlows {
        let (matrix, links) = (FlowMatrix::new(coflow), coflow.links().len());
        let mut flows = CoflowFlows {
            seq: Some(coflow.seq),
            layout: Some(coflow.layout()),
            shares: [Shares::new(&matrix, links), Shares::new(&matrix, links)],
            end_counts: vec![0.0; coflow.width()],
            goodputs: vec![1.0; matrix.receiver_count],
            queues: vec![BinaryHeap::new(); matrix.rows.len() + matrix.receiver_count],
            first_ends: vec![f64::INFINITY; matrix.rows.len() + matrix.receiver_count],
            next_end: f64::INFINITY,
            matrix,
            ..CoflowFlows::default()
        };
        coflow.links().iter().for_each(|load| flows.links.insert(load.link as usize));
        flows
    }

    /// The rate at which a live flow is sent, of which its receiver may carry a part.
    fn sent_rate(&self, flow: u32) -> f64 {
        let (row, receiver) = self.matrix.place(flow);
        let receiver = self.matrix.rows.len() + receiver;
        self.shares.iter().map(|of| of.levels[row].min(of.levels[receiver])).sum()
    }

    /// The rate of a flow; 0 if it is not live.
    pub fn rate(&self, flow: u32) -> f64 {
        match self.matrix.is_live(flow) {
            true => self.goodputs[self.matrix.place(flow).1] * self.sent_rate(flow),
            false => 0.0,
        }
    }

    /// What the limits of a flow have counted until `time`.
    fn sent_count(&self, flow: u32) -> f64 {
        self.shares.iter().map(|of| of.sent_counts[of.limit(&self.matrix, flow)]).sum()
    }

    /// The bytes that a flow has left at `at`.
    pub fn remaining_bytes(&self, flow: u32, at: f64) -> f64 {
        if let Some(started) = self.started.iter().find(|started| started.0 == flow) {
            return started.1.max(0.0);
        }
        if !self.matrix.is_live(flow) {
            return 0.0;
        }
        let sent_bytes = self.goodputs[self.matrix.place(flow).1] * self.sent_count(flow);
        (self.end_counts[flow as usize] - sent_bytes - self.rate(flow) * (at - self.time)).max(0.0)
    }

    /// Adds the bytes sent until `now`.
    pub fn advance(&mut self, now: f64) {
        let seconds = now - self.time;
        if seconds == 0.0 {
            return;
        }
        for Shares { sent_counts, levels, .. } in &mut self.shares {
            for (count, level) in sent_counts.iter_mut().zip(levels) {
                // An infinite level limits no flow.
                *count += if level.is_finite() { *level * seconds } else { 0.0 };
            }
        }
        self.sent_bytes += self.total_rate * seconds;
        self.time = now;
    }

    /// Adds the started flows.
    pub fn start_flows(&mut self, now: f64) {
        if self.started.is_empty() {
            return;
        }
        self.advance(now);
        for (flow, remaining_bytes) in std::mem::take(&mut self.started) {
            self.set_live(flow, true);
            let goodput = self.goodputs[self.matrix.place(flow).1];
            self.end_counts[flow as usize] = remaining_bytes + goodput * self.sent_count(flow);
            self.enqueue(flow);
        }
    }

    fn set_live(&mut self, flow: u32, is_live: bool) {
        let (word, bit) = self.matrix.bit(flow);
        self.matrix.live[word] ^= bit;
        self.version += 1;
        self.shares.iter_mut().for_each(|of| of.count_flow(&self.matrix, flow, if is_live { 1 } else { -1 }));
    }

    /// Stops a flow. Returns the bytes that it has left.
    pub fn stop_flow(&mut self, flow: u32, now: f64) -> f64 {
        let left = self.remaining_bytes(flow, now);
        match self.started.iter().position(|started| started.0 == flow) {
            Some(at) => _ = self.started.swap_remove(at),
            None if self.matrix.is_live(flow) => self.remove_flow(flow, now),
            None => {}
        }
        left
    }

    /// Removes a live flow that ends or stops at `at`.
    fn remove_flow(&mut self, flow: u32, at: f64) {
        // Count the bytes at the end of this flow; the next count may be later.
        let rate = self.rate(flow);
        self.sent_bytes += rate * (at - self.time);
        self.total_rate -= rate;
        self.set_live(flow, false);
    }

    /// Whether the live flows have changed since a division.
    pub fn has_changed(&self, step: usize) -> bool {
        self.shares[step].version != self.version
    }

    /// Divides the capacities of a step.
    pub fn divide(&mut self, step: usize, now: f64, tolerance: f64, buffers: &mut Buffers) {
        self.advance(now);
        let shares = &mut self.shares[step];
        shares.version = self.version;
        let (matrix, goodputs, end_counts) = (&self.matrix, &self.goodputs, &mut self.end_counts);
        self.is_stale |= shares.divide(matrix, tolerance, buffers, |flow, from, to| {
            end_counts[flow as usize] += goodputs[matrix.place(flow).1] * (to - from);
        });
    }

    /// The receiver of each live flow, and the rate at which it is sent.
    pub fn sent_rates(&self) -> impl Iterator<Item = (usize, f64)> {
        self.matrix.live_flows().map(|flow| (self.matrix.place(flow).1, self.sent_rate(flow)))
    }

    /// Sets the part of the rates that each receiver carries. O(flows) if one has changed.
    pub fn set_goodputs(&mut self, goodputs: impl Iterator<Item = f64>, now: f64) {
        let goodputs: Vec<f64> = goodputs.collect();
        if goodputs == self.goodputs {
            return;
        }
        self.advance(now);
        self.is_stale = true;
        for flow in self.matrix.live_flows() {
            let receiver = self.matrix.place(flow).1;
            self.end_counts[flow as usize] +=
                (goodputs[receiver] - self.goodputs[receiver]) * self.sent_count(flow);
        }
        self.goodputs = goodputs;
    }

    /// The bytes that a row or receiver has counted, and their rate.
    #[inline]
    fn side(&self, side: usize) -> (f64, f64) {
        let [first, second] = &self.shares;
        (first.sent_counts[side] + second.sent_counts[side], first.levels[side] + second.levels[side])
    }

    /// Adds a flow to the queue of its row or its receiver, whichever bounds its rate more.
    fn enqueue(&mut self, flow: u32) {
        let (row, receiver) = self.matrix.place(flow);
        let sides = [row, self.matrix.rows.len() + receiver];
        let [(row_count, row_rate), (receiver_count, receiver_rate)] = sides.map(|side| self.side(side));
        let (side, count) =
            if row_rate < receiver_rate { (sides[0], row_count) } else { (sides[1], receiver_count) };
        let end_count = self.remaining_bytes(flow, self.time) + count;
        self.queues[side].push(Reverse((OrderedF64(end_count), flow)));
        self.first_ends[side] = self.first_ends[side].min(end_count);
    }

    /// Visits the live flows that can end within `seconds`. `error` is the relative rounding error of counts. `visit` returns the seconds
    /// from then on, or `None` if it has removed the flow.
    fn visit_first_flows(
        &mut self,
        mut seconds: f64,
        error: f64,
        mut visit: impl FnMut(&mut CoflowFlows, u32) -> Option<f64>,
    ) {
        let mut kept = Vec::new();
        let is_due =
            |end: f64, count: f64, rate: f64, seconds: f64| end * (1.0 - error) - count <= seconds * rate;
        for first in (0..self.queues.len()).step_by(CHUNK) {
            let sides = first..self.queues.len().min(first + CHUNK);
            let [queue, residual] =
                self.shares.each_ref().map(|of| (&of.sent_counts[sides.clone()], &of.levels[sides.clone()]));
            let counts = queue.0.iter().zip(residual.0).map(|(a, b)| a + b);
            let rates = queue.1.iter().zip(residual.1).map(|(a, b)| a + b);
            let ends = self.first_ends[sides.clone()].iter().zip(counts).zip(rates);
            if !ends.fold(false, |any, ((&end, count), rate)| any | is_due(end, count, rate, seconds)) {
                continue;
            }
            for side in sides {
                let (count, rate) = self.side(side);
                let mut first_end = f64::INFINITY;
                while let Some(&Reverse((OrderedF64(end), flow))) = self.queues[side].peek() {
                    if !is_due(end, count, rate, seconds) {
                        first_end = end;
                        break;
                    }
                    self.queues[side].pop();
                    if !self.matrix.is_live(flow) {
                        continue;
                    }
                    if let Some(longest) = visit(self, flow) {
                        seconds = longest;
                        kept.push(flow);
                    }
                }
                self.first_ends[side] = first_end;
            }
        }
        kept.into_iter().for_each(|flow| self.enqueue(flow));
    }

    /// The time until a live flow ends.
    fn seconds_left(&self, flow: u32) -> f64 {
        let rate = self.rate(flow);
        if rate > 0.0 { self.remaining_bytes(flow, self.time) / rate } else { f64::MAX }
    }

    /// Computes the total rate and the end of the first flow, if rates have changed.
    pub fn update_rates(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let receivers = self.matrix.sender_count..;
        let used = |of: &Shares| -> f64 {
            of.used[receivers.clone()].iter().zip(&self.goodputs).map(|(used, goodput)| used * goodput).sum()
        };
        self.total_rate = self.shares.iter().map(used).sum();
        self.find_next_end();
    }

    fn find_next_end(&mut self) {
        // Most flows cannot end before the former first one.
        let mut seconds = self.seconds_left(self.next_flow);
        let bound = |seconds| seconds * (1.0 - rounding::PARTS);
        self.visit_first_flows(bound(seconds), 0.0, |flows, flow| {
            let left = flows.seconds_left(flow);
            if left < seconds {
                (seconds, flows.next_flow) = (left, flow);
            }
            Some(bound(seconds))
        });
        self.next_end = if seconds < f64::MAX { self.time + seconds } else { f64::INFINITY };
    }

    /// Ends the flows that end until `until`.
    pub fn complete_flows_until(&mut self, slot: Slot, until: f64, completed: &mut Vec<CompletedFlow>) {
        if self.next_end > until {
            return;
        }
        let first = completed.len();
        let seconds = until - self.time;
        self.visit_first_flows(seconds, rounding::PARTS, |flows, flow| {
            let completed_at = flows.time + flows.seconds_left(flow);
            if completed_at > until {
                return Some(seconds);
            }
            completed.push(CompletedFlow { slot, flow, completed_at });
            flows.remove_flow(flow, completed_at);
            None
        });
        completed[first..].sort_by_key(|flow| flow.flow);
        self.find_next_end();
    }
}
