//! Rows: the flows of a sender queue over the same trunks.

use crate::model::{Network, Slot};

use super::{NONE, Offer, SenderQueues};

/// What a trunk needs of a row over it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrunkRow {
    pub number: u32,
    /// The group of the queue.
    pub queue: u32,
    /// The only other trunk of the row; without one, a link that limits no row; or [`NONE`] if there are several.
    pub other_trunk: u32,
    /// Flows at the row's rate.
    pub open_count: u32,
}

/// The flows of one queue over the same trunks: all of them on one switch. Those that no receiver limits have one rate, the smallest of
/// the queue's rate and the levels of the trunks.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The group of the queue.
    pub queue: u32,
    slot: Slot,
    /// Flows at the row's rate, and flows that their receivers limit.
    open_count: u32,
    limited_count: u32,
    trunks: Vec<u32>,
    /// By trunk: the position among its rows.
    positions: Vec<u32>,
    /// Flows with their receiving links. Those that have ended are not offered any more.
    flows: Vec<(u32, u32)>,
}

impl Row {
    /// The rate of all flows. `rate` is the row's rate, and `limit_sum` the sum of the levels of receivers that limit flows.
    pub fn total_rate(&self, rate: f64, limit_sum: f64) -> f64 {
        rate * f64::from(self.open_count) + limit_sum
    }

    fn flow_count(&self) -> u32 {
        self.open_count + self.limited_count
    }
}

impl SenderQueues {
    /// Begins to serve a coflow: offers its flows at the sender to their receivers, and adds their rows, still without a rate.
    pub(super) fn begin_queue(&mut self, queue: usize, head: (Slot, u64), index: usize, network: &Network) {
        let (slot, coflow) = (head.0, network.coflow(head.0));
        self.queues[queue].coflow = Some(head);
        let src = coflow.senders()[index].link;
        let mut flows = std::mem::take(&mut self.flow_buffer);
        coflow.visit_flows_of_sender(index, |flow, receiver| flows.push((flow, receiver)));
        if !self.rows_by_trunk.is_empty() {
            flows.sort_by_key(|&(flow, _)| coflow.flow_path(flow));
        }
        for same in flows.chunk_by(|a, b| coflow.flow_path(a.0) == coflow.flow_path(b.0)) {
            let number = self.vacant_rows.pop().unwrap_or(self.rows.len() as u32);
            if number as usize == self.rows.len() {
                self.rows.push(Row::default());
                self.row_rates.push(0.0);
                self.limit_sums.push(0.0);
                self.limiting_trunks.push(NONE);
            }
            self.limiting_trunks[number as usize] = NONE;
            let row = &mut self.rows[number as usize];
            (row.queue, row.slot) = (queue as u32, slot);
            (row.open_count, row.limited_count) = (same.len() as u32, 0);
            row.flows.extend_from_slice(same);
            row.trunks.extend_from_slice(coflow.flow_trunks(same[0].0));
            let open_count = row.open_count;
            for &trunk in &row.trunks {
                let rows = &mut self.rows_by_trunk[trunk as usize];
                row.positions.push(rows.len() as u32);
                let mut others = row.trunks.iter().copied().filter(|&other| other != trunk);
                let other_trunk = match row.trunks.len() {
                    0..=2 => others.next().unwrap_or(src),
                    _ => NONE,
                };
                rows.push(TrunkRow { number, queue: queue as u32, other_trunk, open_count });
            }
            self.queues[queue].rows.push(number);
            for &(flow, receiver) in same {
                let offers = &mut self.offers_by_receiver[receiver as usize];
                self.coflows[slot as usize].flows[flow as usize].offer_index = offers.len() as u32;
                offers.push(Offer { row: number, queue: queue as u32, slot, flow, is_limited: false });
                self.stale_links.insert(receiver as usize);
                self.move_to_group(slot, flow, queue as u32);
            }
        }
        flows.clear();
        self.flow_buffer = flows;
    }

    /// Ends the service of a queue's coflow, and withdraws its offers; ended flows have been withdrawn already.
    pub(super) fn end_queue(&mut self, queue: usize) {
        let Some((slot, _)) = self.queues[queue].coflow.take() else { return };
        let mut rows = std::mem::take(&mut self.queues[queue].rows);
        for number in rows.drain(..) {
            let rate = std::mem::take(&mut self.row_rates[number as usize]);
            let limit_sum = std::mem::take(&mut self.limit_sums[number as usize]);
            self.change_trunk_loads(number, -self.rows[number as usize].total_rate(rate, limit_sum), NONE);
            let mut row = std::mem::take(&mut self.rows[number as usize]);
            if row.flow_count() > 0 {
                for &(flow, receiver) in &row.flows {
                    if let Some(offer) = self.remove_offer(slot, flow, receiver as usize) {
                        if !offer.is_limited {
                            self.count_crossing(
                                &row.trunks,
                                self.limiting_trunks[number as usize],
                                receiver,
                                -1.0,
                            );
                        }
                        self.stale_links.insert(receiver as usize);
                        self.move_to_group(slot, flow, NONE);
                    }
                }
            }
            for (&trunk, &position) in row.trunks.iter().zip(&row.positions) {
                self.limited_counts[trunk as usize] -= row.limited_count;
                self.rows_by_trunk[trunk as usize].swap_remove(position as usize);
                if let Some(moved) = self.rows_by_trunk[trunk as usize].get(position as usize) {
                    let Row { trunks, positions, .. } = &mut self.rows[moved.number as usize];
                    let at = trunks.iter().position(|&other| other == trunk);
                    positions[at.expect("a row of a trunk crosses it")] = position;
                }
            }
            (row.open_count, row.limited_count) = (0, 0);
            row.flows.clear();
            row.trunks.clear();
            row.positions.clear();
            self.rows[number as usize] = row;
            self.vacant_rows.push(number);
        }
        self.queues[queue].rows = rows;
        self.sent_rates[queue] = 0.0;
        self.groups.clear(queue);
    }

    /// The trunk of a row with the lowest level, but for the trunk `except`, and that level; [`NONE`] and the queue's rate if that is
    /// lower.
    fn find_limit(&self, number: u32, except: u32) -> (u32, f64) {
        let row = &self.rows[number as usize];
        let mut limit = (NONE, self.groups.rate(row.queue));
        for &trunk in row.trunks.iter().filter(|&&trunk| trunk != except) {
            let level = self.levels[trunk as usize];
            if level < limit.1 {
                limit = (trunk, level);
            }
        }
        limit
    }

    /// The rate that a row offers to each of its flows at a trunk.
    #[inline]
    pub(super) fn offered_rate(&self, row: &TrunkRow, trunk: u32) -> f64 {
        match self.levels.get(row.other_trunk as usize) {
            Some(&level) => self.groups.rate(row.queue).min(level),
            None => self.find_limit(row.number, trunk).1,
        }
    }

    /// The group with the rate of a row: that of the trunk that limits it, or else of its queue.
    pub(super) fn limit_group(&self, number: u32) -> u32 {
        match self.limiting_trunks[number as usize] {
            NONE => self.rows[number as usize].queue,
            trunk => self.link_group(trunk as usize),
        }
    }

    /// Adds `change` to the number of flows by limiting trunk and link, for a flow over these trunks.
    fn count_crossing(&mut self, trunks: &[u32], limiting_trunk: u32, receiver: u32, change: f32) {
        if limiting_trunk == NONE {
            return;
        }
        let others = trunks.iter().filter(|&&trunk| trunk != limiting_trunk);
        others.chain([&receiver]).for_each(|&link| self.crossing.add(limiting_trunk as usize, link, change));
    }

    /// Changes the numbers of a row's flows at its own rate and of those that receivers limit, at a flow with this receiver.
    fn change_counts(&mut self, number: u32, receiver: u32, open: i32, limited: i32) {
        let row = &mut self.rows[number as usize];
        row.open_count = row.open_count.wrapping_add_signed(open);
        row.limited_count = row.limited_count.wrapping_add_signed(limited);
        if row.limited_count == 0 {
            // Without rounding errors.
            self.limit_sums[number as usize] = 0.0;
        }
        self.stale_sent_rates.insert(row.queue as usize);
        if row.trunks.is_empty() {
            return;
        }
        for (&trunk, &position) in row.trunks.iter().zip(&row.positions) {
            self.rows_by_trunk[trunk as usize][position as usize].open_count = row.open_count;
            let count = &mut self.limited_counts[trunk as usize];
            *count = count.wrapping_add_signed(limited);
        }
        let trunks = std::mem::take(&mut row.trunks);
        self.count_crossing(&trunks, self.limiting_trunks[number as usize], receiver, open as f32);
        self.rows[number as usize].trunks = trunks;
    }

    /// Notes that a receiver begins to limit a flow to `level`. Returns the increase of the flow's rate.
    pub(super) fn limit_flow(&mut self, number: u32, receiver: u32, level: f64) -> f64 {
        self.limit_sums[number as usize] += level;
        self.change_counts(number, receiver, -1, 1);
        level - self.row_rates[number as usize]
    }

    /// Notes that a receiver with this level until now does not limit a flow any more. Returns the increase of the flow's rate.
    pub(super) fn release_flow(&mut self, number: u32, receiver: u32, level: f64) -> f64 {
        self.limit_sums[number as usize] -= level;
        self.change_counts(number, receiver, 1, -1);
        self.row_rates[number as usize] - level
    }

    /// Computes a row's rate, and offers it to the receivers. `cause` is the trunk whose level has changed, or [`NONE`]. O(flows of the
    /// row), if its rate or its limit changes.
    pub(super) fn update_row(&mut self, number: u32, cause: u32) {
        let (limit, rate) = self.find_limit(number, NONE);
        let (previous_limit, previous_rate) =
            (self.limiting_trunks[number as usize], self.row_rates[number as usize]);
        if limit == previous_limit && rate == previous_rate {
            return;
        }
        self.row_rates[number as usize] = rate;
        self.limiting_trunks[number as usize] = limit;
        let increase = rate - previous_rate;
        let open_count = f64::from(self.rows[number as usize].open_count);
        self.change_trunk_loads(number, increase * open_count, cause);
        let group = self.limit_group(number);
        let row = std::mem::take(&mut self.rows[number as usize]);
        self.stale_sent_rates.insert(row.queue as usize);
        if row.flow_count() > 0 {
            for &(flow, receiver) in &row.flows {
                let f = &self.coflows[row.slot as usize].flows[flow as usize];
                if f.offer_index == NONE {
                    continue;
                }
                let is_limited = f.group == self.link_group(receiver as usize);
                if limit != previous_limit && !is_limited {
                    self.count_crossing(&row.trunks, previous_limit, receiver, -1.0);
                    self.count_crossing(&row.trunks, limit, receiver, 1.0);
                    self.move_to_group(row.slot, flow, group);
                }
                self.change_offer(receiver as usize, increase, is_limited.then_some(rate));
            }
        }
        self.rows[number as usize] = row;
    }

    /// Adds `increase` to the load of a row's trunks. The levels of overloaded trunks must be computed again, but for `cause`.
    pub(super) fn change_trunk_loads(&mut self, number: u32, increase: f64, cause: u32) {
        for at in 0..self.rows[number as usize].trunks.len() {
            let trunk = self.rows[number as usize].trunks[at];
            if trunk != cause {
                self.change_load(trunk as usize, increase);
            }
        }
    }

    /// Visits the receivers that limit flows of a row, and their levels. O(flows of the row) if there are any.
    pub(super) fn visit_limited_flows(&self, number: u32, mut visit: impl FnMut(u32, f64)) {
        let row = &self.rows[number as usize];
        if row.limited_count == 0 {
            return;
        }
        for &(flow, receiver) in &row.flows {
            let f = &self.coflows[row.slot as usize].flows[flow as usize];
            if f.offer_index != NONE && f.group == self.link_group(receiver as usize) {
                visit(receiver, self.levels[receiver as usize]);
            }
        }
    }

    /// Notes that an offered flow has ended or lost its data. `level` is that of its receiver, if that limits the flow.
    pub(super) fn remove_from_row(&mut self, number: u32, receiver: u32, level: Option<f64>) {
        match level {
            Some(level) => {
                self.limit_sums[number as usize] -= level;
                self.change_counts(number, receiver, 0, -1);
            }
            None => self.change_counts(number, receiver, -1, 0),
        }
        let row = &mut self.rows[number as usize];
        if 2 * (row.flow_count() as usize) < row.flows.len() {
            let flows = &self.coflows[row.slot as usize].flows;
            row.flows.retain(|&(flow, _)| flows[flow as usize].offer_index != NONE);
        }
        let rate = level.unwrap_or(self.row_rates[number as usize]);
        self.change_trunk_loads(number, -rate, NONE);
    }
}
