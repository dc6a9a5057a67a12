//! Divides residual capacity among flows whose lower bound is 0.

use super::super::maxmin::{FlowClass, max_min};
use super::HierarchicalMaxMin;
use crate::rounding;

impl HierarchicalMaxMin {
    /// Where guarantees take all of a link, lower bounds of other services can be 0, and no factor raises them. These flows
    /// share the residual capacity of their links max-min, up to their demands.
    pub(super) fn share_residual_among_zero_bound_flows(&mut self) {
        self.zero_bound_rates.clear();
        let (network, low) = (&self.network, self.bounds.lower());
        let has_zero_bound = |cell: usize| low[cell] == 0.0 && network.cells[cell].flows > 0;
        if !(0..network.cells.len())
            .any(|cell| has_zero_bound(cell) && self.capacities[network.link_of_cell(cell)] > 0.0)
        {
            return;
        }
        let links = network.links;
        let mut residuals = self.capacities.clone();
        residuals.extend_from_slice(&self.guarantees);
        let mut classes = Vec::new();
        for class in 0..network.classes() as u32 {
            let flows = f64::from(network.flows(class));
            let path = network.path(class);
            if flows == 0.0 {
                continue;
            }
            let rate = self.rate_without_residual(class);
            for &(cell, _) in path {
                residuals[network.link_of_cell(cell as usize)] -= flows * rate;
                residuals[links + cell as usize] -= flows * rate;
            }
            if network.demand(class) > 0.0 && path.iter().any(|&(cell, _)| low[cell as usize] == 0.0) {
                classes.push(class);
            }
        }
        for (index, left) in residuals.iter_mut().enumerate() {
            let capacity = match index.checked_sub(links) {
                None => self.capacities[index],
                Some(cell) => self.guarantees[cell],
            };
            *left = if *left > rounding::BOUNDS * capacity { *left } else { 0.0 };
        }
        let mut class_links = Vec::new();
        let mut link_ends = vec![0];
        for &class in &classes {
            for &(cell, _) in network.path(class) {
                class_links.push(network.link_of_cell(cell as usize) as u32);
                if self.shares.excess_weight(cell as usize % network.services) == 0.0 {
                    class_links.push(links as u32 + cell);
                }
            }
            if network.demand(class).is_finite() {
                class_links.push(residuals.len() as u32);
                residuals.push(network.demand(class) * f64::from(network.flows(class)));
            }
            link_ends.push(class_links.len());
        }
        let flow_classes: Vec<FlowClass<'_>> = (classes.iter().enumerate())
            .map(|(at, &class)| FlowClass {
                links: &class_links[link_ends[at]..link_ends[at + 1]],
                flows: f64::from(network.flows(class)),
            })
            .collect();
        let rates = max_min(&residuals, &flow_classes);
        self.zero_bound_rates = classes.into_iter().zip(rates).filter(|&(_, rate)| rate > 0.0).collect();
    }
}
