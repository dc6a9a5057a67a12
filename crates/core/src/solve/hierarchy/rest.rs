//! What is left where the bounds did not meet.

use super::super::maxmin::{Class, max_min};
use super::{ClassId, Hierarchy, LOW, MET};

impl Hierarchy {
    /// What the lower bounds leave, to all that can have more: max-min over what is left of links, of demands, and of the
    /// guarantees of services that get no excess.
    pub(super) fn hand_out_rest(&mut self) {
        let rates: Vec<f64> = (0..self.classes() as u32).map(|class| self.rate_by(LOW, class)).collect();
        let mut left = self.capacities.clone();
        let mut capped = vec![f64::INFINITY; self.cells.len()];
        for (index, cell) in self.cells.iter().enumerate() {
            let (link, service) = (index / self.services, index % self.services);
            let used = cell.members.iter().zip(&cell.classes);
            let used: f64 = used.map(|(m, &class)| f64::from(m.flows) * rates[class as usize]).sum();
            left[link] -= used;
            if self.shares.excess(service) == 0.0 {
                capped[index] = (self.guarantees[index] - used).max(0.0);
            }
        }
        // What rounding leaves is nothing.
        for (left, capacity) in left.iter_mut().zip(&self.capacities) {
            *left = if *left > MET * capacity { *left } else { 0.0 };
        }
        let cap = |cell: usize, links: usize| (links + cell) as u32;
        let links = self.capacities.len();
        left.extend_from_slice(&capped);
        let mut ends = Vec::with_capacity(self.classes() + 1);
        let mut over: Vec<u32> = Vec::new();
        ends.push(0);
        for (class, &rate) in rates.iter().enumerate() {
            let path = &self.path[self.path_of(class as u32)];
            let member = self.cells[path[0].0 as usize].members[path[0].1 as usize];
            for &(cell, _) in path {
                over.push(cell / self.services as u32);
                if capped[cell as usize].is_finite() {
                    over.push(cap(cell as usize, links));
                }
            }
            if member.demand.is_finite() {
                over.push(left.len() as u32);
                left.push((member.demand - rate).max(0.0) * f64::from(member.flows));
            }
            ends.push(over.len());
        }
        let with_flows: Vec<usize> =
            (0..rates.len()).filter(|&c| self.flows(ClassId(c as u32)) > 0).collect();
        let classes: Vec<Class<'_>> = with_flows
            .iter()
            .map(|&c| Class {
                links: &over[ends[c]..ends[c + 1]],
                flows: f64::from(self.flows(ClassId(c as u32))),
            })
            .collect();
        self.extra = vec![0.0; rates.len()];
        for (&class, extra) in with_flows.iter().zip(max_min(&left, &classes)) {
            self.extra[class] = extra;
        }
    }
}
