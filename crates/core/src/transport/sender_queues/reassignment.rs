//! Reassigns the senders' capacity that overloaded links do not accept.

use crate::model::{BitSet, Goodput, Network, Slot};
use crate::solve::ResidualCapacity;

use super::super::Transport;
use super::{NONE, SenderQueues};

/// Flows with reassigned capacity.
#[derive(Debug, Default)]
pub(super) struct Reassignment {
    /// Entries by number. Entries of flows that no longer have reassigned capacity are vacant.
    flows: Vec<ReassignedFlow>,
    vacant_entries: Vec<u32>,
    /// The entries of the last update, in order; entries of flows that have ended since are vacant.
    ordered_entries: Vec<u32>,
    /// The end of the first of the flows, if none is removed before.
    next_completion: f64,
    /// Number of updates.
    update_number: u64,
    residual: ResidualCapacity,
    assigned_rates: Vec<(Slot, u32, f64)>,
    entry_buffer: Vec<u32>,
}

/// A flow with reassigned capacity.
#[derive(Debug, Clone, Copy)]
struct ReassignedFlow {
    /// The slot, or [`NONE`] if the entry is vacant.
    slot: Slot,
    flow: u32,
    /// The flow's group.
    group: u32,
    rate: f64,
    /// The reassigned rate plus the group's rate.
    total_rate: f64,
    /// The time from which reassigned bytes are not included in the flow's `end` yet.
    counted_until: f64,
    update_number: u64,
    completion: f64,
}

impl Reassignment {
    /// The reassigned rate of an entry; 0 for [`NONE`].
    pub fn rate(&self, number: u32) -> f64 {
        self.flows.get(number as usize).map_or(0.0, |passed| passed.rate)
    }

    /// The reassigned bytes of an entry until `now` that are not included in its flow's `end` yet; 0 for [`NONE`].
    pub fn pending_bytes(&self, number: u32, now: f64) -> f64 {
        self.flows.get(number as usize).map_or(0.0, |passed| passed.rate * (now - passed.counted_until))
    }

    /// Returns the same bytes, and marks them as included in the flow's `end`.
    fn take_pending_bytes(&mut self, number: u32, now: f64) -> f64 {
        let got = self.pending_bytes(number, now);
        if let Some(passed) = self.flows.get_mut(number as usize) {
            passed.counted_until = now;
        }
        got
    }

    /// Records that the flow of an entry moved to another group.
    pub fn set_group(&mut self, number: u32, group: u32) {
        if let Some(passed) = self.flows.get_mut(number as usize) {
            passed.group = group;
        }
    }

    /// The end of the first flow with reassigned capacity, or an earlier time if flows were removed since the last update.
    pub fn next_completion(&self) -> f64 {
        self.next_completion
    }

    /// The `index`-th flow of the last update with reassigned capacity, and its end; `None` if it has been removed since.
    pub fn flow_completion(&self, index: usize) -> Option<(Slot, u32, f64)> {
        let ReassignedFlow { slot, flow, completion: end, .. } =
            self.flows[self.ordered_entries[index] as usize];
        (slot != NONE).then_some((slot, flow, end))
    }

    /// The number of flows with reassigned capacity at the last update.
    pub fn len(&self) -> usize {
        self.ordered_entries.len()
    }

    /// Creates an entry for a flow without one.
    fn add_flow(&mut self, slot: Slot, flow: u32, group: u32, since: f64) -> u32 {
        let new_flow = ReassignedFlow {
            slot,
            flow,
            group,
            rate: 0.0,
            total_rate: 0.0,
            counted_until: since,
            update_number: 0,
            completion: 0.0,
        };
        match self.vacant_entries.pop() {
            Some(number) => {
                self.flows[number as usize] = new_flow;
                number
            }
            None => {
                self.flows.push(new_flow);
                self.flows.len() as u32 - 1
            }
        }
    }

    fn remove_entry(&mut self, number: u32) {
        self.flows[number as usize].slot = NONE;
        self.vacant_entries.push(number);
    }
}

impl SenderQueues {
    /// Reassigns the residual capacity.
    #[inline(never)]
    pub(super) fn reassign_residual(&mut self, network: &Network) {
        self.reassignment.update_number += 1;
        let update_number = self.reassignment.update_number;
        let mut assigned_rates = std::mem::take(&mut self.reassignment.assigned_rates);
        assigned_rates.clear();
        match self.goodput.clone() {
            Some(goodput) => self.fill_within_goodput(&goodput, &mut assigned_rates, network),
            None => {
                let residual = &mut self.reassignment.residual;
                residual.set_residuals(network.fabric(), &self.residuals);
                for &(_, slot) in &self.coflow_order {
                    if residual.is_exhausted() {
                        break;
                    }
                    residual.fill_flows(network.coflow(slot), |flow, rate| {
                        assigned_rates.push((slot, flow, rate));
                    });
                }
            }
        }
        let entry_buffer = std::mem::take(&mut self.reassignment.entry_buffer);
        let previous_entries = std::mem::replace(&mut self.reassignment.ordered_entries, entry_buffer);
        let mut unvisited = previous_entries.iter();
        let mut next_completion = f64::INFINITY;
        for &(slot, flow, rate) in &assigned_rates {
            self.coflows[slot as usize].total_rate += rate;
            let number = self.find_or_add_entry(slot, flow, &mut unvisited);
            self.reassignment.ordered_entries.push(number);
            let passed = &mut self.reassignment.flows[number as usize];
            let total = rate + self.groups.rate(passed.group);
            passed.update_number = update_number;
            if passed.rate != rate {
                self.add_pending_bytes(slot, flow);
                self.reassignment.flows[number as usize].rate = rate;
            }
            if self.reassignment.flows[number as usize].total_rate != total {
                let now = self.groups.last_time();
                let end = now + self.remaining_bytes(slot, flow, now) / total;
                let passed = &mut self.reassignment.flows[number as usize];
                (passed.total_rate, passed.completion) = (total, end);
            }
            next_completion = next_completion.min(self.reassignment.flows[number as usize].completion);
        }
        self.reassignment.next_completion = next_completion;
        self.reassignment.assigned_rates = assigned_rates;
        for &number in &previous_entries {
            let passed = self.reassignment.flows[number as usize];
            if passed.slot != NONE && passed.update_number != update_number {
                let ReassignedFlow { slot, flow, .. } = passed;
                self.add_pending_bytes(slot, flow);
                self.remove_reassigned(slot, flow);
                let f = self.coflows[slot as usize].flows[flow as usize];
                self.groups.add_flow(f.group, (f.end_count, slot, flow));
            }
        }
        self.reassignment.entry_buffer = previous_entries;
        self.reassignment.entry_buffer.clear();
    }

    /// Assigns residual capacity, with receivers whose capacity depends on the number of their flows: each flow that did not
    /// send before adds one. A flow without a rate leaves the capacity of its sender to later flows.
    fn fill_within_goodput(
        &self,
        goodput: &Goodput,
        assigned_rates: &mut Vec<(Slot, u32, f64)>,
        network: &Network,
    ) {
        let fabric = network.fabric();
        let tolerance = fabric.rounding_tolerance();
        let mut residuals = self.residuals.clone();
        // By link, for receivers: the number of sending flows, and their total rate.
        let mut receivers: Vec<Option<(usize, f64)>> = vec![None; fabric.links()];
        let mut open_links = BitSet::empty(fabric.links());
        for (link, residual) in residuals.iter().enumerate() {
            let is_open = match fabric.receivers().contains(link) {
                true => self.capacities[link] > 0.0,
                false => *residual > tolerance,
            };
            if is_open {
                open_links.insert(link);
            }
        }
        for &(_, slot) in &self.coflow_order {
            if !open_links.intersects(fabric.senders()) {
                break;
            }
            let coflow = network.coflow(slot);
            coflow.visit_open_flows(&mut open_links, |flow, src, dst| {
                let offered = || (self.connection_count(dst), self.loads[dst]);
                let (count, total_rate) = receivers[dst].get_or_insert_with(offered);
                let residual =
                    |count, total_rate| self.capacities[dst] * goodput.utilization(count) - total_rate;
                let new_count = *count + usize::from(self.base_rate(slot, flow) == 0.0);
                let trunks = coflow.flow_trunks(flow);
                let before_receiver =
                    trunks.iter().fold(residuals[src], |min, &at| min.min(residuals[at as usize]));
                let rate = before_receiver.min(residual(new_count, *total_rate));
                // A rate in the order of rounding errors counts as 0.
                if rate > tolerance {
                    residuals[src] -= rate;
                    trunks.iter().for_each(|&trunk| residuals[trunk as usize] -= rate);
                    (*count, *total_rate) = (new_count, *total_rate + rate);
                    assigned_rates.push((slot, flow, rate));
                }
                let is_full = [*count, *count + 1].iter().all(|&n| residual(n, *total_rate) <= tolerance);
                (residuals[src] <= tolerance, is_full)
            });
        }
    }

    /// The entry of a flow with reassigned capacity. Usually it is the next entry of the last update, which avoids an access
    /// to the flow.
    fn find_or_add_entry(&mut self, slot: Slot, flow: u32, unvisited: &mut std::slice::Iter<'_, u32>) -> u32 {
        let is_outdated = |number: u32| {
            let passed = &self.reassignment.flows[number as usize];
            passed.slot == NONE || passed.update_number == self.reassignment.update_number
        };
        while unvisited.as_slice().first().is_some_and(|&number| is_outdated(number)) {
            unvisited.next();
        }
        let next = unvisited.as_slice().first().copied();
        let is_this_flow = |number: &u32| {
            let passed = &self.reassignment.flows[*number as usize];
            passed.slot == slot && passed.flow == flow
        };
        if let Some(number) = next.filter(is_this_flow) {
            unvisited.next();
            return number;
        }
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        if f.reassignment_entry == NONE {
            f.reassignment_entry = self.reassignment.add_flow(slot, flow, f.group, self.groups.last_time());
        } else if let Some(at) =
            unvisited.as_slice().iter().take(8).position(|&next| next == f.reassignment_entry)
        {
            // Skip entries of flows that have no reassigned capacity any more.
            unvisited.nth(at);
        }
        f.reassignment_entry
    }

    /// Includes the bytes reassigned to a flow until now, the time of the last count, in its `end`.
    fn add_pending_bytes(&mut self, slot: Slot, flow: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        f.end_count -= self.reassignment.take_pending_bytes(f.reassignment_entry, self.groups.last_time());
    }

    /// Removes the entry of a flow.
    pub(super) fn remove_reassigned(&mut self, slot: Slot, flow: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        if f.reassignment_entry != NONE {
            self.reassignment.remove_entry(std::mem::replace(&mut f.reassignment_entry, NONE));
        }
    }
}
