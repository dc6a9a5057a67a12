//! Divides residual capacity among flows whose lower bound is 0.

use super::super::maxmin::{Class, max_min};
use super::Hierarchy;

/// Residuals up to this fraction of a link are rounding.
const LEFT: f64 = 1e-10;

impl Hierarchy {
    /// Where guarantees take all of a link, lower bounds of other services can be 0, and no factor raises them. These flows
    /// share the residual capacity of their links max-min, up to their demands.
    pub(super) fn hand_out_rest(&mut self) {
        self.extra.clear();
        let (network, low) = (&self.network, self.bounds.low());
        let poor = |cell: usize| low[cell] == 0.0 && network.cells[cell].flows > 0;
        if !(0..network.cells.len()).any(|cell| poor(cell) && self.capacities[network.link_of(cell)] > 0.0) {
            return;
        }
        let links = network.links;
        let mut left = self.capacities.clone();
        left.extend_from_slice(&self.guarantees);
        let mut classes = Vec::new();
        for class in 0..network.classes() as u32 {
            let flows = f64::from(network.flows(class));
            let path = network.path(class);
            if flows == 0.0 {
                continue;
            }
            let rate = self.rate_of(class);
            for &(cell, _) in path {
                left[network.link_of(cell as usize)] -= flows * rate;
                left[links + cell as usize] -= flows * rate;
            }
            if network.demand(class) > 0.0 && path.iter().any(|&(cell, _)| low[cell as usize] == 0.0) {
                classes.push(class);
            }
        }
        for (index, left) in left.iter_mut().enumerate() {
            let whole = match index.checked_sub(links) {
                None => self.capacities[index],
                Some(cell) => self.guarantees[cell],
            };
            *left = if *left > LEFT * whole { *left } else { 0.0 };
        }
        let mut over = Vec::new();
        let mut ends = vec![0];
        for &class in &classes {
            for &(cell, _) in network.path(class) {
                over.push(network.link_of(cell as usize) as u32);
                if self.shares.excess(cell as usize % network.services) == 0.0 {
                    over.push(links as u32 + cell);
                }
            }
            if network.demand(class).is_finite() {
                over.push(left.len() as u32);
                left.push(network.demand(class) * f64::from(network.flows(class)));
            }
            ends.push(over.len());
        }
        let wanting: Vec<Class<'_>> = (classes.iter().enumerate())
            .map(|(at, &class)| Class {
                links: &over[ends[at]..ends[at + 1]],
                flows: f64::from(network.flows(class)),
            })
            .collect();
        let rates = max_min(&left, &wanting);
        self.extra = classes.into_iter().zip(rates).filter(|&(_, rate)| rate > 0.0).collect();
    }
}
