//! Sincronia (SIGCOMM '18): the order of Bottleneck-Select-Scale-Iterate (Algorithm 1), and greedy rates in that order.

use super::ReferenceSimulator;

/// Quotients that differ by less than this fraction are equal.
const RATIO_TOLERANCE: f64 = 1e-9;

impl ReferenceSimulator<'_> {
    pub(super) fn schedule_sincronia(&mut self, by_coordinator: bool, left: &mut [f64]) {
        if by_coordinator && (self.flows_changed || self.links_changed) {
            self.order = self.order_by_bottlenecks();
        }
        for c in self.order.clone() {
            self.backfill(c, left);
        }
    }

    /// Algorithm 1: finds the last coflow, then the one before it, and so on.
    pub(super) fn order_by_bottlenecks(&mut self) -> Vec<usize> {
        let mut unordered = self.active();
        let mut weights: Vec<f64> = self.coflows.iter().map(|c| c.weight).collect();
        let mut order = Vec::new();
        while let Some(link) = self.find_bottleneck(&unordered) {
            let demand = |c: usize| self.coflows[c].remaining_over(link);
            let ratio = |c: usize| weights[c] / demand(c);
            let here: Vec<usize> = unordered.iter().copied().filter(|&c| demand(c) > 0.0).collect();
            // Of equal coflows, the one that arrived last goes last.
            let last = here.iter().copied().rev().min_by(|&a, &b| ratio(a).total_cmp(&ratio(b))).unwrap();
            let is_near = |c: usize| {
                let largest =
                    f64::max(self.coflows[c].weight / demand(c), self.coflows[last].weight / demand(last));
                (ratio(c) - ratio(last)).abs() < RATIO_TOLERANCE * largest
            };
            let has_ties = here.iter().any(|&c| c != last && is_near(c));
            let scale = ratio(last);
            for &c in &here {
                weights[c] = (weights[c] - scale * demand(c)).max(0.0);
            }
            self.has_ties |= has_ties;
            unordered.retain(|&c| c != last);
            order.push(last);
        }
        // The others have no bytes on any link with capacity.
        order.extend(unordered.into_iter().rev());
        order.reverse();
        order
    }

    /// The link on which the remaining bytes of these coflows take the longest. Of equal links, the first kind counts (senders,
    /// receivers, trunks), and of one kind the last link.
    fn find_bottleneck(&self, coflows: &[usize]) -> Option<usize> {
        let ports = self.workload.ports as usize;
        let positions = crate::ports::port_positions(self.workload);
        let seconds = |link: usize| {
            let bytes: f64 = coflows.iter().map(|&c| self.coflows[c].remaining_over(link)).sum();
            bytes / self.links[link]
        };
        let loaded = (0..self.links.len()).filter(|&link| self.links[link] > 0.0 && seconds(link) > 0.0);
        let most = loaded.clone().map(seconds).fold(0.0, f64::max);
        let rank = |link: usize| match link / ports {
            kind @ (0 | 1) => (kind, std::cmp::Reverse(positions[link % ports])),
            _ => (2, std::cmp::Reverse(link)),
        };
        loaded.filter(|&link| seconds(link) >= most * (1.0 - RATIO_TOLERANCE)).min_by_key(|&link| rank(link))
    }
}
