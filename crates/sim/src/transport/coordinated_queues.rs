//! Queues with FIFO by coflow inside, at all links: Aalo with coordinated links (`at=both`).
//!
//! Coflow by coflow, each flow gets the minimum of its even shares of its links. Each queue first divides its weighted share
//! of every link; then all coflows, in the order of queues, divide the residual capacity. Under strict priority, only the
//! second step applies.
//!
//! A change at one link changes the residual capacity of many others, so an update computes all rates. Two properties make
//! it fast. Flows of one sender over the same trunks, a *row*, have a common limit apart from their receivers, and a row's
//! rates are subtracted from its links at once. Flows are adjacent in memory in the order in which an update visits them.

use std::ops::Range;
use std::sync::Arc;

use weir_core::allocation::{Allocation, InterQueueSharing, QueueDiscipline};
use weir_core::model::{Coflow, CompletedFlow, Goodput, Network, Slot};

use super::{SentProgress, Transport, order_by_class};

/// No entry.
const NONE: u32 = u32::MAX;

/// Number of flows that one comparison covers.
const CHUNK: usize = 16;

/// Flows of one sender over the same trunks.
#[derive(Debug, Clone)]
struct Row {
    /// The sender and the trunks, as a range of [`CoflowFlows::row_links`].
    links: Range<usize>,
    entries: Range<usize>,
}

/// The live flows of one coflow: one entry a flow, by row.
#[derive(Debug, Default)]
struct CoflowFlows {
    /// The coflow's sequence number, because slots are reused.
    seq: Option<u64>,
    rows: Vec<Row>,
    row_links: Vec<u32>,
    // By entry. Entries between rows are unused, because flows have ended.
    flows: Vec<u32>,
    receiver_links: Vec<u32>,
    remaining_bytes: Vec<f64>,
    rates: Vec<f64>,
    /// By flow: its entry, or [`NONE`].
    entry_of_flow: Vec<u32>,
    /// Flows that started since the last update, and their remaining bytes.
    started: Vec<(u32, f64)>,
    /// Bytes sent by all flows until the last update, and their rate since.
    sent_bytes: f64,
    total_rate: f64,
    /// The end of the first flow; infinite if no flow ends.
    next_end: f64,
}

impl CoflowFlows {
    fn new(coflow: &Coflow) -> CoflowFlows {
        CoflowFlows {
            seq: Some(coflow.seq),
            entry_of_flow: vec![NONE; coflow.width()],
            next_end: f64::INFINITY,
            ..CoflowFlows::default()
        }
    }

    /// Adds the started flows to the rows, and removes unused entries. O(live flows log live flows).
    fn build_rows(&mut self, coflow: &Coflow, ports: usize) {
        let mut flows = std::mem::take(&mut self.started);
        for row in &self.rows {
            let entries = row.entries.clone();
            flows.extend(entries.map(|entry| (self.flows[entry], self.remaining_bytes[entry])));
        }
        // Flows are numbered by path, then by sender.
        flows.sort_unstable_by_key(|&(flow, _)| flow);
        self.rows.clear();
        self.row_links.clear();
        self.flows.clear();
        self.receiver_links.clear();
        self.remaining_bytes.clear();
        let links = |flow: u32| (coflow.flow_ports(flow).0, coflow.flow_trunks(flow));
        for row in flows.chunk_by(|a, b| links(a.0) == links(b.0)) {
            let (src, trunks) = links(row[0].0);
            let (first_link, first) = (self.row_links.len(), self.flows.len());
            self.row_links.push(src);
            self.row_links.extend(trunks.iter().map(|trunk| 2 * ports as u32 + trunk));
            self.rows
                .push(Row { links: first_link..self.row_links.len(), entries: first..first + row.len() });
            for &(flow, remaining_bytes) in row {
                self.entry_of_flow[flow as usize] = self.flows.len() as u32;
                self.flows.push(flow);
                self.receiver_links.push(ports as u32 + coflow.flow_ports(flow).1);
                self.remaining_bytes.push(remaining_bytes);
            }
        }
        self.rates.clear();
        self.rates.resize(self.flows.len(), 0.0);
    }

    fn entry(&self, flow: u32) -> Option<usize> {
        self.entry_of_flow.get(flow as usize).filter(|entry| **entry != NONE).map(|&entry| entry as usize)
    }

    /// Whether flows have started, or most entries are unused.
    fn needs_new_rows(&self, coflow: &Coflow) -> bool {
        !self.started.is_empty() || 2 * coflow.live_count() < self.flows.len()
    }

    /// Counts, by link, the flows whose links all have capacity. Returns whether there are any.
    fn count_open_flows(&self, shares: &mut [LinkShare]) -> bool {
        let mut total = 0;
        for row in &self.rows {
            let links = &self.row_links[row.links.clone()];
            if links.iter().any(|&link| shares[link as usize].rate == 0.0) {
                continue;
            }
            let row_count = count_open_receivers(&self.receiver_links[row.entries.clone()], shares);
            links.iter().for_each(|&link| shares[link as usize].flow_count += row_count);
            total += row_count;
        }
        total > 0
    }

    /// Adds the minimum of the even shares of a flow's links to its rate.
    fn add_rates(&mut self, shares: &mut [LinkShare]) {
        for row in &self.rows {
            let links = &self.row_links[row.links.clone()];
            let limit = links.iter().map(|&link| shares[link as usize].rate).fold(f64::INFINITY, f64::min);
            if limit == 0.0 {
                continue;
            }
            let rates = &mut self.rates[row.entries.clone()];
            let row_rate = add_row_rates(rates, &self.receiver_links[row.entries.clone()], limit, shares);
            self.total_rate += row_rate;
            links.iter().for_each(|&link| shares[link as usize].used += row_rate);
        }
    }

    /// Adds the bytes sent in `seconds`, and resets the rates.
    fn advance(&mut self, seconds: f64) {
        self.sent_bytes += self.total_rate * seconds;
        self.total_rate = 0.0;
        for (remaining_bytes, rate) in self.remaining_bytes.iter_mut().zip(&mut self.rates) {
            *remaining_bytes -= *rate * seconds;
            *rate = 0.0;
        }
    }

    /// Computes the end of the first flow at the present rates, which apply from `since` on.
    fn find_next_end(&mut self, since: f64) {
        let mut seconds = f64::MAX;
        // A product is cheaper than a quotient, and few chunks have a flow that ends earlier than all before. The rates of
        // unused entries are 0.
        let chunks = self.remaining_bytes.chunks(CHUNK).zip(self.rates.chunks(CHUNK));
        for (remaining_bytes, rates) in chunks {
            let flows = || remaining_bytes.iter().zip(rates);
            if !flows().fold(false, |any, (left, rate)| any | (*left < seconds * rate)) {
                continue;
            }
            for (left, rate) in flows().filter(|(_, rate)| **rate > 0.0) {
                seconds = seconds.min(left.max(0.0) / rate);
            }
        }
        self.next_end = if seconds < f64::MAX { since + seconds } else { f64::INFINITY };
    }

    /// The end of a flow at its present rate, which applies from `since` on.
    fn end_of(&self, entry: usize, since: f64) -> f64 {
        since + self.remaining_bytes[entry].max(0.0) / self.rates[entry]
    }

    /// Ends a flow that has sent its bytes.
    fn complete_flow(&mut self, flow: u32) {
        let Some(entry) = self.entry(flow) else { return };
        // Count the bytes at the end of this flow; the next count may be later.
        self.sent_bytes += self.remaining_bytes[entry];
        self.total_rate -= self.rates[entry];
        self.remove_entry(entry);
    }

    /// Removes a flow of a row.
    fn remove_entry(&mut self, entry: usize) {
        let at = self.rows.partition_point(|row| row.entries.end <= entry);
        let row = &mut self.rows[at].entries;
        row.end -= 1;
        let last = row.end;
        if row.start == row.end {
            self.rows.remove(at);
        }
        self.entry_of_flow[self.flows[entry] as usize] = NONE;
        if entry != last {
            self.entry_of_flow[self.flows[last] as usize] = entry as u32;
            self.flows[entry] = self.flows[last];
            self.receiver_links[entry] = self.receiver_links[last];
            self.remaining_bytes[entry] = self.remaining_bytes[last];
            self.rates[entry] = self.rates[last];
        }
        self.rates[last] = 0.0;
    }
}

/// A link while the flows of one coflow divide its capacity.
#[derive(Debug, Clone, Copy, Default)]
struct LinkShare {
    /// Number of flows that divide the capacity.
    flow_count: u32,
    /// The even share of each flow; 0 without capacity.
    rate: f64,
    /// The sum of the rates of the flows.
    used: f64,
}

/// Counts the flows of a row to receivers with capacity, at each receiver and in total.
// Separate functions keep the sums of the inner loops in registers.
#[inline(never)]
fn count_open_receivers(links: &[u32], shares: &mut [LinkShare]) -> u32 {
    let mut count = 0;
    for link in links {
        let receiver = &mut shares[*link as usize];
        let is_open = u32::from(receiver.rate > 0.0);
        receiver.flow_count += is_open;
        count += is_open;
    }
    count
}

/// Adds to the rate of each flow of a row the share of its receiver, at most `limit`. Returns the sum of the added rates.
#[inline(never)]
fn add_row_rates(rates: &mut [f64], links: &[u32], limit: f64, shares: &mut [LinkShare]) -> f64 {
    let mut sum = 0.0;
    for (rate, link) in rates.iter_mut().zip(links) {
        let receiver = &mut shares[*link as usize];
        let share = if receiver.rate < limit { receiver.rate } else { limit };
        *rate += share;
        receiver.used += share;
        sum += share;
    }
    sum
}

/// A transport with the same queues at all links.
pub(super) struct CoordinatedQueues {
    weights: InterQueueSharing,
    coflows: Vec<CoflowFlows>,
    /// Coflows by class, then by release.
    coflow_order: Vec<(usize, Slot)>,
    /// Coflows with a rate, in the order in which they got it.
    coflows_with_rate: Vec<Slot>,
    last_time: f64,
    next_end: f64,
    /// By link: capacity that no flow uses, while a queue's share is divided. Empty while the residual capacity itself is
    /// divided.
    residuals: Vec<f64>,
    /// By link.
    shares: Vec<LinkShare>,
    goodput: Option<Arc<Goodput>>,
}

impl CoordinatedQueues {
    pub(super) fn new(queues: &QueueDiscipline, goodput: Option<Arc<Goodput>>) -> CoordinatedQueues {
        CoordinatedQueues {
            weights: queues.inter_queue.clone(),
            coflows: Vec::new(),
            coflow_order: Vec::new(),
            coflows_with_rate: Vec::new(),
            last_time: 0.0,
            next_end: f64::INFINITY,
            residuals: Vec::new(),
            shares: Vec::new(),
            goodput,
        }
    }

    /// The state of the coflow in a slot, which is new if the slot contained another coflow.
    fn prepare_coflow(&mut self, slot: Slot, coflow: &Coflow) -> &mut CoflowFlows {
        if slot as usize >= self.coflows.len() {
            self.coflows.resize_with(slot as usize + 1, CoflowFlows::default);
        }
        let flows = &mut self.coflows[slot as usize];
        if flows.seq != Some(coflow.seq) {
            *flows = CoflowFlows::new(coflow);
        }
        flows
    }

    /// Adds the bytes sent until `now`, and resets the rates.
    fn advance(&mut self, now: f64) {
        for slot in self.coflows_with_rate.drain(..) {
            self.coflows[slot as usize].advance(now - self.last_time);
        }
        self.last_time = now;
    }

    /// Divides each queue's weighted share of every link, and then, in the order of coflows, the residual capacity.
    fn divide_links(&mut self, network: &Network, tolerance: f64) {
        let order = std::mem::take(&mut self.coflow_order);
        if let InterQueueSharing::Weighted(weights) = self.weights.clone() {
            let totals = total_weights(&order, &weights, network);
            for coflows in order.chunk_by(|a, b| a.0 == b.0) {
                let weight = weights[coflows[0].0];
                let share = |(capacity, total): (f64, &f64)| {
                    if *total > 0.0 { capacity * weight / total } else { 0.0 }
                };
                let mut shares: Vec<f64> =
                    network.fabric().link_capacities().zip(&totals).map(share).collect();
                for &(_, slot) in coflows {
                    self.share_evenly(slot, &mut shares, network, tolerance);
                }
            }
        }
        let mut residuals = std::mem::take(&mut self.residuals);
        for &(_, slot) in &order {
            self.share_evenly(slot, &mut residuals, network, tolerance);
        }
        self.residuals = residuals;
        self.coflow_order = order;
    }

    /// Gives each flow of a coflow the minimum of its even shares of its links' remaining `capacities`. O(flows of rows with
    /// capacity + links); receivers without capacity are not skipped.
    fn share_evenly(&mut self, slot: Slot, capacities: &mut [f64], network: &Network, tolerance: f64) {
        let (coflow, ports) = (network.coflow(slot), network.fabric().ports());
        let links = || coflow.link_loads(ports).map(|(link, _)| link);
        let is_open = coflow
            .link_loads(ports)
            .all(|(link, load)| load.live_flow_count == 0 || capacities[link] > tolerance);
        for (link, load) in coflow.link_loads(ports) {
            let rate = if capacities[link] > tolerance { f64::INFINITY } else { 0.0 };
            let flow_count = if is_open { load.live_flow_count } else { 0 };
            self.shares[link] = LinkShare { flow_count, rate, used: 0.0 };
        }
        let has_counts = is_open && coflow.live_count() > 0;
        let flows = &mut self.coflows[slot as usize];
        if !has_counts && !flows.count_open_flows(&mut self.shares) {
            return;
        }
        for link in links().filter(|&link| capacities[link] > tolerance) {
            self.shares[link].rate = capacities[link] / f64::from(self.shares[link].flow_count);
        }
        if flows.total_rate == 0.0 {
            self.coflows_with_rate.push(slot);
        }
        flows.add_rates(&mut self.shares);
        for link in links() {
            let used = self.shares[link].used;
            capacities[link] -= used;
            // A queue's share is also part of the residual capacity.
            if let Some(residual) = self.residuals.get_mut(link) {
                *residual -= used;
            }
        }
    }

    /// Reduces rates to what receivers carry with so many flows. O(flows of coflows with a rate).
    fn limit_to_goodput(&mut self, network: &Network) {
        let Some(goodput) = &self.goodput else { return };
        let ports = network.fabric().ports();
        for share in &mut self.shares[ports..2 * ports] {
            *share = LinkShare::default();
        }
        for &slot in &self.coflows_with_rate {
            let flows = &self.coflows[slot as usize];
            for (&rate, &link) in
                flows.rates.iter().zip(&flows.receiver_links).filter(|(rate, _)| **rate > 0.0)
            {
                let share = &mut self.shares[link as usize];
                share.flow_count += 1;
                share.used += rate;
            }
        }
        for &slot in &self.coflows_with_rate {
            let CoflowFlows { rates, receiver_links, total_rate, .. } = &mut self.coflows[slot as usize];
            for (rate, &link) in rates.iter_mut().zip(&*receiver_links) {
                let LinkShare { flow_count, used, .. } = self.shares[link as usize];
                let goodput_fraction = goodput.utilization(flow_count as usize);
                let capacity = network.fabric().recv_capacities()[link as usize - ports] * goodput_fraction;
                // Without a loss of capacity, the rates exceed the capacity by rounding at most.
                if goodput_fraction < 1.0 && used > capacity {
                    *total_rate -= *rate * (1.0 - capacity / used);
                    *rate *= capacity / used;
                }
            }
        }
    }

    /// Computes the end of the first flow of each coflow, and of all.
    fn find_next_end(&mut self) {
        self.next_end = f64::INFINITY;
        for &slot in &self.coflows_with_rate {
            let flows = &mut self.coflows[slot as usize];
            flows.find_next_end(self.last_time);
            self.next_end = self.next_end.min(flows.next_end);
        }
    }
}

/// By link: the total weight of the queues with a coflow at the link.
fn total_weights(order: &[(usize, Slot)], weights: &[f64], network: &Network) -> Vec<f64> {
    let fabric = network.fabric();
    let mut totals = vec![0.0; fabric.link_capacities().count()];
    let mut counted = vec![usize::MAX; totals.len()];
    for &(class, slot) in order {
        let loads = network.coflow(slot).link_loads(fabric.ports());
        for (link, _) in loads.filter(|(_, load)| load.live_flow_count > 0) {
            if std::mem::replace(&mut counted[link], class) != class {
                totals[link] += weights[class];
            }
        }
    }
    totals
}

impl Transport for CoordinatedQueues {
    fn start_flow(&mut self, slot: Slot, flow: u32, remaining_bytes: f64, network: &Network, _: f64) {
        let flows = self.prepare_coflow(slot, network.coflow(slot));
        flows.started.push((flow, remaining_bytes));
    }

    fn stop_flow(&mut self, slot: Slot, flow: u32, _: &Network, now: f64) -> f64 {
        let flows = &mut self.coflows[slot as usize];
        if let Some(at) = flows.started.iter().position(|&(started, _)| started == flow) {
            return flows.started.swap_remove(at).1.max(0.0);
        }
        let Some(entry) = flows.entry(flow) else { return 0.0 };
        let sent_bytes = flows.rates[entry] * (now - self.last_time);
        flows.sent_bytes += sent_bytes;
        flows.total_rate -= flows.rates[entry];
        let left = (flows.remaining_bytes[entry] - sent_bytes).max(0.0);
        flows.remove_entry(entry);
        left
    }

    fn update_rates(&mut self, network: &Network, allocation: &Allocation, now: f64) {
        self.advance(now);
        let fabric = network.fabric();
        let tolerance = 1e-9 * fabric.nominal_rate();
        self.residuals.clear();
        self.residuals.extend(fabric.link_capacities());
        self.shares.resize(self.residuals.len(), LinkShare::default());
        for &slot in network.active_coflows() {
            let coflow = network.coflow(slot);
            let flows = self.prepare_coflow(slot, coflow);
            if flows.needs_new_rows(coflow) {
                flows.build_rows(coflow, fabric.ports());
            }
        }
        order_by_class(&mut self.coflow_order, network, allocation);
        self.divide_links(network, tolerance);
        self.limit_to_goodput(network);
        self.find_next_end();
    }

    fn next_completion(&mut self) -> f64 {
        self.next_end
    }

    fn complete_flows_until(&mut self, until: f64, _: &Network, completed: &mut Vec<CompletedFlow>) {
        if self.next_end > until {
            return;
        }
        for &slot in &self.coflows_with_rate {
            let flows = &mut self.coflows[slot as usize];
            if flows.next_end > until {
                continue;
            }
            let first = completed.len();
            for entry in 0..flows.flows.len() {
                let at = flows.end_of(entry, self.last_time);
                if at <= until {
                    completed.push(CompletedFlow { slot, flow: flows.flows[entry], completed_at: at });
                }
            }
            for &CompletedFlow { flow, .. } in &completed[first..] {
                flows.complete_flow(flow);
            }
        }
        self.find_next_end();
    }

    fn flow_rate(&self, slot: Slot, flow: u32, _: &Network) -> f64 {
        let flows = self.coflows.get(slot as usize);
        flows.and_then(|flows| flows.entry(flow).map(|entry| flows.rates[entry])).unwrap_or(0.0)
    }

    fn visit_remaining_bytes(&self, network: &Network, at: f64, visit: &mut dyn FnMut(Slot, u32, f64)) {
        for &slot in network.active_coflows() {
            // A coflow without live flows may have no state.
            let Some(flows) = self.coflows.get(slot as usize) else { continue };
            for entry in flows.rows.iter().flat_map(|row| row.entries.clone()) {
                let sent_bytes = flows.rates[entry] * (at - self.last_time);
                visit(slot, flows.flows[entry], (flows.remaining_bytes[entry] - sent_bytes).max(0.0));
            }
            flows.started.iter().for_each(|&(flow, bytes)| visit(slot, flow, bytes));
        }
    }

    fn coflow_progress(&self, slot: Slot) -> Option<SentProgress> {
        let flows = self.coflows.get(slot as usize)?;
        Some(SentProgress { sent_bytes: flows.sent_bytes, rate: flows.total_rate, time: self.last_time })
    }
}
