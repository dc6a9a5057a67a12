//! The links after the senders: their loads, their levels, and the flows that they limit.

use crate::model::Slot;

use super::level::{OfferedRates, Share};
use super::rows::TrunkRow;
use super::{NONE, Offer, SenderQueues};

/// A link may be computed again this many times in an update, on average over all links. The lowest level of all links is final after one
/// computation of each link, the next one after another, and so on; in practice few levels change.
const MAX_COMPUTATIONS: usize = 200;

impl SenderQueues {
    /// Computes the levels of links until none changes.
    pub(super) fn settle_links(&mut self) {
        let mut computations = 0;
        let next_link = |queues: &SenderQueues| queues.stale_links.iter().next();
        while let Some(link) = next_link(self) {
            self.stale_links.remove(link);
            if self.is_trunk(link) {
                self.update_trunk(link);
            } else {
                self.update_receiver(link);
            }
            computations += 1;
            if computations > MAX_COMPUTATIONS * self.capacities.len() {
                debug_assert!(false, "the levels of links settle");
                self.stale_links.clear();
            }
        }
    }

    /// Adds `increase` to the load of a link. If that can change a rate, the level of the link must be computed again.
    pub(super) fn change_load(&mut self, link: usize, increase: f64) {
        if self.stale_links.contains(link) {
            return;
        }
        let load = self.loads[link] + increase;
        // With a goodput model, the number of flows changes the receiver's capacity.
        let is_variable = self.goodput.is_some() && !self.is_trunk(link);
        if is_variable || self.levels[link].is_finite() || load > self.capacities[link] {
            self.stale_links.insert(link);
        } else {
            self.loads[link] = load;
            self.link_residuals[link] = self.capacities[link] - load;
        }
    }

    /// Changes the rate that a flow offers to its receiver by `increase`. `limited` is the rate that its row now has, if the receiver
    /// limits the flow. If no flow's limit changes, the receiver's other flows need no visit.
    pub(super) fn change_offer(&mut self, receiver: usize, increase: f64, limited: Option<f64>) {
        match limited {
            Some(rate) if rate > self.levels[receiver] && self.goodput.is_none() => {}
            Some(_) => self.stale_links.insert(receiver),
            None => self.change_load(receiver, increase),
        }
    }

    /// Removes a flow from the offers of its receiver, if it is among them.
    pub(super) fn remove_offer(&mut self, slot: Slot, flow: u32, receiver: usize) -> Option<Offer> {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        let offer_index = std::mem::replace(&mut f.offer_index, NONE);
        if offer_index == NONE {
            return None;
        }
        let offer = self.offers_by_receiver[receiver].swap_remove(offer_index as usize);
        if let Some(moved) = self.offers_by_receiver[receiver].get(offer_index as usize) {
            self.coflows[moved.slot as usize].flows[moved.flow as usize].offer_index = offer_index;
        }
        Some(offer)
    }

    /// The number of flows that send to a receiver at a rate above 0 from their queues. O(offers).
    pub(super) fn connection_count(&self, receiver: usize) -> usize {
        self.offers_by_receiver[receiver]
            .iter()
            .filter(|offer| self.row_rates[offer.row as usize] > 0.0)
            .count()
    }

    /// Notes how a link shares its capacity. Returns its level, infinite if it limits no flow.
    fn set_share(&mut self, link: usize, capacity: f64, Share { offered, level }: Share) -> f64 {
        self.groups.set_rate(self.link_group(link) as usize, level.unwrap_or(0.0));
        self.loads[link] = offered;
        self.levels[link] = level.unwrap_or(f64::INFINITY);
        self.link_residuals[link] = if level.is_some() { 0.0 } else { (capacity - offered).max(0.0) };
        self.levels[link]
    }

    /// Computes the level of a receiver and the flows that it limits. O(offers) for each rise of the even share.
    #[inline(never)]
    fn update_receiver(&mut self, receiver: usize) {
        let mut capacity = self.capacities[receiver];
        if let Some(goodput) = &self.goodput {
            capacity *= goodput.utilization(self.connection_count(receiver));
        }
        let (group, has_trunks) = (self.link_group(receiver), !self.rows_by_trunk.is_empty());
        let mut offers = std::mem::take(&mut self.offers_by_receiver[receiver]);
        let mut rates = std::mem::take(&mut self.rate_buffer);
        rates.clear();
        rates.extend(offers.iter().map(|offer| self.row_rates[offer.row as usize]));
        let previous_level = self.groups.rate(group);
        let offered = OfferedRates { rates: &rates, count_of: |_| 1.0, flow_count: rates.len() as f64 };
        let level = self.set_share(receiver, capacity, offered.share(capacity, previous_level));
        for (offer, &rate) in offers.iter_mut().zip(&rates) {
            let is_limited = rate > level;
            if !is_limited && !offer.is_limited {
                continue;
            }
            let was_limited = std::mem::replace(&mut offer.is_limited, is_limited);
            if was_limited && is_limited {
                if level != previous_level {
                    let increase = level - previous_level;
                    self.limit_sums[offer.row as usize] += increase;
                    self.stale_sent_rates.insert(offer.queue as usize);
                    if has_trunks {
                        self.change_trunk_loads(offer.row, increase, NONE);
                    }
                }
                continue;
            }
            let (limit, increase) = if is_limited {
                (group, self.limit_flow(offer.row, receiver as u32, level))
            } else {
                let increase = self.release_flow(offer.row, receiver as u32, previous_level);
                (self.limit_group(offer.row), increase)
            };
            self.change_trunk_loads(offer.row, increase, NONE);
            self.move_to_group(offer.slot, offer.flow, limit);
        }
        self.rate_buffer = rates;
        self.offers_by_receiver[receiver] = offers;
    }

    /// Computes the level of a trunk and the rows that it limits. O(rows over the trunk) for each rise of the even share, O(links) if
    /// the level changes, and O(flows) of rows that the trunk begins or ceases to limit.
    #[inline(never)]
    fn update_trunk(&mut self, trunk: usize) {
        let rows = std::mem::take(&mut self.rows_by_trunk[trunk]);
        let mut rates = std::mem::take(&mut self.rate_buffer);
        let mut counts = std::mem::take(&mut self.count_buffer);
        rates.clear();
        counts.clear();
        for row in &rows {
            rates.push(self.offered_rate(row, trunk as u32));
            counts.push(f64::from(row.open_count));
        }
        if self.limited_counts[trunk] > 0 {
            // They follow the rows.
            for at in 0..rows.len() {
                self.visit_limited_flows(rows[at].number, |_, level| {
                    rates.push(level.min(rates[at]));
                    counts.push(1.0);
                });
            }
        }
        let previous_level = self.levels[trunk];
        let start = if previous_level.is_finite() { previous_level } else { 0.0 };
        let flow_count = counts.iter().sum();
        let offered = OfferedRates { rates: &rates, count_of: |at: usize| counts[at], flow_count };
        let capacity = self.capacities[trunk];
        let level = self.set_share(trunk, capacity, offered.share(capacity, start));
        if level != previous_level {
            if level.is_finite() && previous_level.is_finite() {
                self.raise_level(trunk, &rows, level - previous_level);
            }
            for (row, &offered) in rows.iter().zip(&rates) {
                if (self.limiting_trunks[row.number as usize] == trunk as u32) != (offered > level) {
                    self.update_row(row.number, trunk as u32);
                }
            }
        }
        (self.rate_buffer, self.count_buffer) = (rates, counts);
        self.rows_by_trunk[trunk] = rows;
    }

    /// Adds `increase` to the rates of the rows that a trunk limits, and to the loads of the other links.
    fn raise_level(&mut self, trunk: usize, rows: &[TrunkRow], increase: f64) {
        let level = self.levels[trunk];
        for row in rows.iter().filter(|row| self.limiting_trunks[row.number as usize] == trunk as u32) {
            self.row_rates[row.number as usize] = level;
            self.sent_rates[row.queue as usize] += increase * f64::from(row.open_count);
        }
        let crossing = std::mem::take(&mut self.crossing);
        crossing.visit(trunk, |link, flows| self.change_load(link, increase * flows));
        self.crossing = crossing;
        if self.limited_counts[trunk] > 0 && increase < 0.0 {
            // Receivers may limit flows of these rows no more.
            let mut stale_links = std::mem::take(&mut self.stale_links);
            for row in rows.iter().filter(|row| self.limiting_trunks[row.number as usize] == trunk as u32) {
                self.visit_limited_flows(row.number, |receiver, receiver_level| {
                    if level <= receiver_level {
                        stale_links.insert(receiver as usize);
                    }
                });
            }
            self.stale_links = stale_links;
        }
    }
}
