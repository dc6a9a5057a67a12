//! Max-min rates of rows of flows, at most the rates that senders offer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::model::Slot;
use crate::ordered_f64::OrderedF64;

use super::super::row_transport::LiveFlows;
use super::super::rows::{CoflowFlows, Row};

/// In place of an entry: all entries of the row.
const ALL: u32 = u32::MAX;

/// A row of flows to which its sender offers a rate.
#[derive(Debug, Clone)]
pub(super) struct OfferedRow {
    pub slot: Slot,
    pub row: Row,
    /// The rate that the sender offers to each flow, above 0.
    rate: f64,
    /// Flows without a final rate.
    open_flows: u32,
    /// Whether a receiver can limit some of the flows. If so, the rates of flows without a final rate are NaN.
    has_limited_receivers: bool,
}

/// A link that rows cross after their senders.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    /// Whether the offered rates exceed the capacity. Only these links limit flows.
    is_overloaded: bool,
    /// Flows without a final rate.
    open_flows: u32,
    /// The capacity that flows with a final rate do not use.
    residual: f64,
}

impl Link {
    fn share(&self) -> f64 {
        (self.residual / f64::from(self.open_flows)).max(0.0)
    }

    /// Subtracts flows with a final rate.
    fn subtract(&mut self, flow_count: u32, rate: f64) {
        if self.is_overloaded {
            self.open_flows -= flow_count;
            self.residual -= rate * f64::from(flow_count);
        }
    }
}

/// Computes the rates by progressive filling: the lowest of all offered rates and of the even shares of all links is final for
/// the flows that it limits.
#[derive(Debug, Default)]
pub(super) struct RowMaxMin {
    rows: Vec<OfferedRow>,
    /// Offered rates, with their rows.
    offers: Vec<(f64, Range<usize>)>,
    /// By link: the sum of the offered rates.
    loads: Vec<f64>,
    links: Vec<Link>,
    /// By overloaded link: rows, with one entry or [`ALL`].
    members: Vec<Vec<(u32, u32)>>,
    /// Even shares of overloaded links. Final rates only raise the share of a link, so an old share is a lower bound.
    shares: BinaryHeap<Reverse<(OrderedF64, u32)>>,
}

impl RowMaxMin {
    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.offers.clear();
    }

    /// Adds rows of a coflow, to each flow of which a sender offers `rate`, above 0.
    pub(super) fn offer(&mut self, slot: Slot, rows: &[Row], rate: f64) {
        let first = self.rows.len();
        self.rows.extend(rows.iter().map(|row| OfferedRow {
            slot,
            row: row.clone(),
            rate,
            open_flows: 0,
            has_limited_receivers: false,
        }));
        self.offers.push((rate, first..self.rows.len()));
    }

    pub(super) fn rows(&self) -> &[OfferedRow] {
        &self.rows
    }

    /// Sets the rates of the rows' flows. O(flows + offers log offers + links log links).
    pub(super) fn set_rates(&mut self, capacities: &[f64], tolerance: f64, flows: &mut LiveFlows) {
        self.find_overloaded_links(capacities, tolerance, flows);
        let mut rows = std::mem::take(&mut self.rows);
        for (at, row) in (0..).zip(&mut rows) {
            self.add_limited_flows(at, row, flows.coflow_mut(row.slot));
        }
        self.shares.clear();
        for (at, link) in (0..).zip(&self.links) {
            if link.open_flows > 0 {
                self.shares.push(Reverse((OrderedF64(link.share()), at)));
            }
        }
        self.offers.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        self.fill(&mut rows, flows);
        self.rows = rows;
    }

    fn find_overloaded_links(&mut self, capacities: &[f64], tolerance: f64, flows: &LiveFlows) {
        self.loads.clear();
        self.loads.resize(capacities.len(), 0.0);
        for OfferedRow { slot, row, rate, .. } in &self.rows {
            let coflow = flows.coflow(*slot);
            for &trunk in coflow.row_trunks(row) {
                self.loads[trunk as usize] += rate * row.entries.len() as f64;
            }
            for &receiver in &coflow.receiver_links[row.entries.clone()] {
                self.loads[receiver as usize] += rate;
            }
        }
        self.links.clear();
        self.links.extend(self.loads.iter().zip(capacities).map(|(&load, &capacity)| Link {
            is_overloaded: load > capacity + tolerance,
            open_flows: 0,
            residual: capacity,
        }));
        self.members.resize(capacities.len(), Vec::new());
        self.members.iter_mut().for_each(Vec::clear);
    }

    /// Adds the flows of a row that overloaded links can limit to these links. The others get their offered rate.
    fn add_limited_flows(&mut self, at: u32, offered: &mut OfferedRow, coflow: &mut CoflowFlows) {
        let entries = offered.row.entries.clone();
        let mut is_row_limited = false;
        for &trunk in coflow.row_trunks(&offered.row) {
            let trunk = trunk as usize;
            if self.links[trunk].is_overloaded {
                is_row_limited = true;
                self.links[trunk].open_flows += entries.len() as u32;
                self.members[trunk].push((at, ALL));
            }
        }
        let receivers = &coflow.receiver_links[entries.clone()];
        let is_limited = |receiver: &u32| self.links[*receiver as usize].is_overloaded;
        let limited_receivers = receivers.iter().filter(|receiver| is_limited(receiver)).count();
        offered.has_limited_receivers = limited_receivers > 0;
        offered.open_flows = if is_row_limited { entries.len() } else { limited_receivers } as u32;
        let rates = &mut coflow.rates[entries.clone()];
        rates.fill(if is_row_limited { f64::NAN } else { offered.rate });
        if limited_receivers == 0 {
            return;
        }
        for ((entry, rate), &receiver) in (entries.start as u32..).zip(rates).zip(receivers) {
            let link = &mut self.links[receiver as usize];
            if link.is_overloaded {
                link.open_flows += 1;
                self.members[receiver as usize].push((at, entry));
                *rate = f64::NAN;
            }
        }
    }

    fn fill(&mut self, rows: &mut [OfferedRow], flows: &mut LiveFlows) {
        let offers = std::mem::take(&mut self.offers);
        let mut lowest_offers = offers.iter().peekable();
        while let Some((rate, offered_rows)) = lowest_offers.peek() {
            let lower_bound = self.shares.peek().map_or(f64::INFINITY, |Reverse((share, _))| share.0);
            if *rate <= lower_bound {
                for row in &mut rows[offered_rows.clone()] {
                    self.fix_row(row, *rate, flows.coflow_mut(row.slot));
                }
                lowest_offers.next();
                continue;
            }
            let Some(Reverse((_, at))) = self.shares.pop() else { break };
            let link = &self.links[at as usize];
            if link.open_flows == 0 {
                continue;
            }
            let share = link.share();
            if share > lower_bound {
                self.shares.push(Reverse((OrderedF64(share), at)));
                continue;
            }
            let members = std::mem::take(&mut self.members[at as usize]);
            for &(row, entry) in &members {
                let row = &mut rows[row as usize];
                let coflow = flows.coflow_mut(row.slot);
                match entry {
                    ALL => self.fix_row(row, share, coflow),
                    entry => self.fix_flow(row, entry as usize, share, coflow),
                }
            }
            self.members[at as usize] = members;
        }
        self.offers = offers;
    }

    /// Makes `rate` final for the flows of a row without a final rate.
    fn fix_row(&mut self, offered: &mut OfferedRow, rate: f64, coflow: &mut CoflowFlows) {
        let open_flows = std::mem::take(&mut offered.open_flows);
        if open_flows == 0 {
            return;
        }
        for &trunk in coflow.row_trunks(&offered.row) {
            self.links[trunk as usize].subtract(open_flows, rate);
        }
        let entries = offered.row.entries.clone();
        let rates = &mut coflow.rates[entries.clone()];
        if !offered.has_limited_receivers {
            rates.fill(rate);
            return;
        }
        for (flow_rate, &receiver) in rates.iter_mut().zip(&coflow.receiver_links[entries]) {
            if flow_rate.is_nan() {
                *flow_rate = rate;
                self.links[receiver as usize].subtract(1, rate);
            }
        }
    }

    /// Makes `rate` final for one flow of a row, unless it has a final rate.
    fn fix_flow(&mut self, offered: &mut OfferedRow, entry: usize, rate: f64, coflow: &mut CoflowFlows) {
        if !coflow.rates[entry].is_nan() {
            return;
        }
        coflow.rates[entry] = rate;
        offered.open_flows -= 1;
        self.links[coflow.receiver_links[entry] as usize].subtract(1, rate);
        for &trunk in coflow.row_trunks(&offered.row) {
            self.links[trunk as usize].subtract(1, rate);
        }
    }
}
