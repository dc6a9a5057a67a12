//! How the flows of one coflow divide the capacities of its links: each flow gets the minimum of the even shares of its links.
//!
//! Flows of one sender over the same trunks are a *row*. The *level* of a row is the minimum of the shares of its links, that of a
//! receiver its share, and a flow's rate is the minimum of the two. With the receivers in the order of their levels, those below the
//! level of a row are the first ones, and sums over them are differences of prefix sums and the few flows that are missing.

use super::matrix::FlowMatrix;
use crate::model::bit_set::WordBits;

/// A sum of rates, and their number.
type Sum = [f64; 2];

/// Memory that all divisions use.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// By link of a coflow: its flows over open rows, and then their even share.
    links: Vec<f64>,
    /// The levels of receivers, in order.
    sorted_levels: Vec<f64>,
    /// The first receivers in order of levels, none to all: as a set, and the sum of their levels.
    first_receivers: Vec<u64>,
    first_sums: Vec<Sum>,
    /// By number of receivers below a row's level: the sum of the levels of these rows.
    row_sums: Vec<Sum>,
    /// By receiver: the difference between its flows and the rows in `row_sums` up to its level.
    corrections: Vec<Sum>,
}

/// A division of capacities among the flows of a coflow.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The number of changes of live flows before the last division.
    pub version: u64,
    /// By link of the coflow: the capacity, and the sum of the rates.
    pub capacities: Vec<f64>,
    pub used: Vec<f64>,
    /// By link of the coflow: the capacity for later coflows.
    pub residuals: Vec<f64>,
    /// By row, then by receiver: the flow's rate if the row or receiver limits it, and the bytes that such a flow has sent.
    pub levels: Vec<f64>,
    pub sent_counts: Vec<f64>,
    /// By row: its live flows to open receivers. By receiver: its live flows from open rows.
    counts: Vec<u32>,
    open_rows: Vec<bool>,
    open_receivers: Vec<u64>,
    has_rates: bool,
    /// By word of [`FlowMatrix::live`]: the flows that their receivers limit.
    pub limited: Vec<u64>,
    /// The receivers in order of levels, and by row the number of receivers below its level.
    order: Vec<u32>,
    ranks: Vec<u32>,
}

impl Shares {
    /// No rates.
    pub fn new(matrix: &FlowMatrix, links: usize) -> Shares {
        let (rows, receivers) = (matrix.rows.len(), matrix.receiver_count);
        Shares {
            version: u64::MAX,
            capacities: vec![0.0; links],
            used: vec![0.0; links],
            residuals: vec![0.0; links],
            levels: vec![0.0; rows + receivers],
            sent_counts: vec![0.0; rows + receivers],
            counts: vec![0; rows + receivers],
            open_rows: vec![false; rows],
            open_receivers: vec![0; receivers.div_ceil(64)],
            has_rates: false,
            limited: vec![0; matrix.live.len()],
            order: (0..receivers as u32).collect(),
            ranks: vec![0; rows],
        }
    }

    /// Counts a flow that becomes live, or one that is no longer live.
    pub fn count_flow(&mut self, matrix: &FlowMatrix, flow: u32, change: i32) {
        let (row, receiver) = matrix.place(flow);
        let (word, bit) = matrix.bit(flow);
        if self.open_receivers[receiver / 64] >> (receiver % 64) & 1 == 1 {
            self.counts[row] = self.counts[row].wrapping_add_signed(change);
        }
        let receiver = matrix.rows.len() + receiver;
        if self.open_rows[row] {
            self.counts[receiver] = self.counts[receiver].wrapping_add_signed(change);
        }
        self.limited[word] &= !bit;
        if change > 0 && self.levels[receiver] < self.levels[row] {
            self.limited[word] |= bit;
        }
    }

    /// The row or receiver that limits a flow.
    #[inline]
    pub fn limit(&self, matrix: &FlowMatrix, flow: u32) -> usize {
        let (row, receiver) = matrix.place(flow);
        let (word, bit) = matrix.bit(flow);
        if self.limited[word] & bit == 0 { row } else { matrix.rows.len() + receiver }
    }

    /// Divides the capacities. Calls `visit` with each flow that another row or receiver limits now, and with what the former and the
    /// new one have counted. Returns whether there were or are any rates.
    pub fn divide(
        &mut self,
        matrix: &FlowMatrix,
        tolerance: f64,
        buffers: &mut Buffers,
        visit: impl FnMut(u32, f64, f64),
    ) -> bool {
        self.count_open_flows(matrix, tolerance);
        let has_rates =
            self.open_rows.iter().zip(&self.counts).any(|(&is_open, &count)| is_open && count > 0);
        if !std::mem::replace(&mut self.has_rates, has_rates) && !has_rates {
            return false;
        }
        self.compute_levels(matrix, &mut buffers.links);
        self.order_receivers(matrix, buffers);
        self.limit_flows(matrix, &buffers.first_receivers, visit);
        self.sum_rates(matrix, buffers);
        true
    }

    /// Opens links with more capacity than `tolerance`, and closes the others.
    #[inline(never)]
    fn count_open_flows(&mut self, matrix: &FlowMatrix, tolerance: f64) {
        let capacities = &self.capacities;
        let (row_counts, receiver_counts) = self.counts.split_at_mut(matrix.rows.len());
        let receivers = &capacities[matrix.sender_count..][..matrix.receiver_count];
        for (word, (open, capacities)) in self.open_receivers.iter_mut().zip(receivers.chunks(64)).enumerate()
        {
            let bits = capacities
                .iter()
                .rev()
                .fold(0, |bits, capacity| bits << 1 | u64::from(*capacity > tolerance));
            let changed = std::mem::replace(open, bits) ^ bits;
            if changed == 0 {
                continue;
            }
            for (count, row) in row_counts.iter_mut().zip(&matrix.rows) {
                if let Some(at) = row.word(word) {
                    *count += (matrix.live[at] & changed & bits).count_ones();
                    *count -= (matrix.live[at] & changed & !bits).count_ones();
                }
            }
        }
        for (open, row) in self.open_rows.iter_mut().zip(&matrix.rows) {
            let is_open = matrix.links(row).iter().all(|&link| capacities[link as usize] > tolerance);
            if std::mem::replace(open, is_open) == is_open {
                continue;
            }
            for (at, word) in row.words() {
                for bit in WordBits(matrix.live[at]) {
                    let count = &mut receiver_counts[64 * word + bit];
                    *count = if is_open { *count + 1 } else { *count - 1 };
                }
            }
        }
    }

    /// Computes the even shares of all links, and the levels.
    #[inline(never)]
    fn compute_levels(&mut self, matrix: &FlowMatrix, links: &mut Vec<f64>) {
        links.clear();
        links.resize(self.capacities.len(), 0.0);
        let rows = || matrix.rows.iter().enumerate();
        for (row, _) in rows().filter(|&(row, _)| self.open_rows[row]) {
            let count = f64::from(self.counts[row]);
            matrix.links(&matrix.rows[row]).iter().for_each(|&link| links[link as usize] += count);
        }
        let (row_levels, receiver_levels) = self.levels.split_at_mut(matrix.rows.len());
        for (share, capacity) in links.iter_mut().zip(&self.capacities) {
            *share = if *share > 0.0 { capacity / *share } else { 0.0 };
        }
        for (level, (row, of)) in row_levels.iter_mut().zip(rows()) {
            let shares = matrix.links(of).iter().map(|&link| links[link as usize]);
            *level = if self.open_rows[row] { shares.fold(f64::INFINITY, f64::min) } else { 0.0 };
        }
        let capacities = &self.capacities[matrix.sender_count..];
        let counts = &self.counts[matrix.rows.len()..];
        for (receiver, level) in receiver_levels.iter_mut().enumerate() {
            let is_open = self.open_receivers[receiver / 64] >> (receiver % 64) & 1 == 1;
            let count = f64::from(counts[receiver]);
            *level = if is_open && count > 0.0 { capacities[receiver] / count } else { 0.0 };
        }
    }

    /// Brings the receivers in the order of levels, and computes the sums over the first ones.
    #[inline(never)]
    fn order_receivers(&mut self, matrix: &FlowMatrix, buffers: &mut Buffers) {
        let levels = &self.levels[matrix.rows.len()..];
        self.order.sort_by(|&a, &b| levels[a as usize].total_cmp(&levels[b as usize]));
        let words = self.open_receivers.len();
        let Buffers { sorted_levels, first_receivers, first_sums, .. } = buffers;
        first_receivers.clear();
        first_receivers.resize(words * (self.order.len() + 1), 0);
        for word in 0..words {
            let mut bits = 0;
            for (first, &receiver) in first_receivers[words..].chunks_mut(words).zip(&self.order) {
                bits |= u64::from(receiver as usize / 64 == word) << (receiver % 64);
                first[word] = bits;
            }
        }
        sorted_levels.clear();
        first_sums.clear();
        let mut sum = [0.0; 2];
        first_sums.push(sum);
        for &receiver in &self.order {
            let receiver = receiver as usize;
            let level = levels[receiver];
            let is_open = self.open_receivers[receiver / 64] >> (receiver % 64) & 1;
            sum = [sum[0] + level, sum[1] + is_open as f64];
            sorted_levels.push(level);
            first_sums.push(sum);
        }
        for (rank, &level) in self.ranks.iter_mut().zip(&self.levels) {
            // Few ranks change.
            while *rank > 0 && sorted_levels[*rank as usize - 1] >= level {
                *rank -= 1;
            }
            while sorted_levels.get(*rank as usize).is_some_and(|&other| other < level) {
                *rank += 1;
            }
        }
    }

    /// Finds the flows that their receivers limit.
    #[inline(never)]
    fn limit_flows(
        &mut self,
        matrix: &FlowMatrix,
        first_receivers: &[u64],
        mut visit: impl FnMut(u32, f64, f64),
    ) {
        let words = self.open_receivers.len();
        let (row_counts, receiver_counts) = self.sent_counts.split_at(matrix.rows.len());
        for (row, (of, &rank)) in matrix.rows.iter().zip(&self.ranks).enumerate() {
            let below = &first_receivers[words * rank as usize..];
            for (at, word) in of.words() {
                let limited = matrix.live[at] & below[word];
                let changed = std::mem::replace(&mut self.limited[at], limited) ^ limited;
                for bit in WordBits(changed) {
                    let counts = (row_counts[row], receiver_counts[64 * word + bit]);
                    let (from, to) = if limited >> bit & 1 == 1 { counts } else { (counts.1, counts.0) };
                    visit(matrix.flow(at, bit), from, to);
                }
            }
        }
    }

    /// Sums the rates of the flows over each link.
    #[inline(never)]
    fn sum_rates(&mut self, matrix: &FlowMatrix, buffers: &mut Buffers) {
        let (words, receiver_count) = (self.open_receivers.len(), matrix.receiver_count);
        let Buffers { first_receivers, first_sums, row_sums, corrections, .. } = buffers;
        row_sums.clear();
        row_sums.resize(receiver_count + 1, [0.0; 2]);
        corrections.clear();
        corrections.resize(receiver_count, [0.0; 2]);
        self.used.fill(0.0);
        let (row_levels, receiver_levels) = self.levels.split_at(matrix.rows.len());
        let (row_counts, receiver_counts) = self.counts.split_at(matrix.rows.len());
        let open_count = first_sums[receiver_count][1];
        for (row, of) in matrix.rows.iter().enumerate() {
            let (level, count, rank) =
                (row_levels[row], f64::from(row_counts[row]), self.ranks[row] as usize);
            if level == 0.0 {
                continue;
            }
            // Visit the missing flows if they are fewer.
            let visits_missing = of.word_count() == words && 2.0 * count > open_count;
            let (mut sum, sign, missing) =
                ([0.0; 2], if visits_missing { -1.0 } else { 1.0 }, u64::from(visits_missing));
            let below = &first_receivers[words * rank..words * (rank + 1)];
            for (at, word) in of.words() {
                let flows = (matrix.live[at] ^ missing.wrapping_neg()) & self.open_receivers[word];
                for bit in WordBits(flows & below[word]) {
                    sum = [sum[0] + sign * receiver_levels[64 * word + bit], sum[1] + sign];
                }
                for bit in WordBits(flows & !below[word]) {
                    let [rate, count] = &mut corrections[64 * word + bit];
                    (*rate, *count) = (*rate + sign * level, *count + sign);
                }
            }
            if visits_missing {
                sum = [sum[0] + first_sums[rank][0], sum[1] + first_sums[rank][1]];
                row_sums[rank] = [row_sums[rank][0] + level, row_sums[rank][1] + 1.0];
            }
            let rate = if count > sum[1] { sum[0] + level * (count - sum[1]) } else { sum[0] };
            matrix.links(of).iter().for_each(|&link| self.used[link as usize] += rate);
        }
        let mut sum = [0.0; 2];
        for (&receiver, [rate, count]) in self.order.iter().zip(&*row_sums) {
            sum = [sum[0] + rate, sum[1] + count];
            let receiver = receiver as usize;
            let level = receiver_levels[receiver];
            if level > 0.0 {
                let [rate, count] = corrections[receiver];
                let (rate, count) = (sum[0] + rate, sum[1] + count);
                let limited = f64::from(receiver_counts[receiver]) - count;
                // Sums over no flows are rounding.
                let rate = if count > 0.0 { rate } else { 0.0 };
                self.used[matrix.sender_count + receiver] =
                    if limited > 0.0 { rate + level * limited } else { rate };
            }
        }
    }
}
