//! Max-min fair rates, the model of how per-flow TCP shares links.
//!
//! An allocation is max-min fair if every flow has a bottleneck: a full link on which no other flow has a higher rate.
//! [`max_min`] computes the allocation for classes of flows over any links by progressive filling.
//! [`super::LinkMaxMin`] maintains it while flows start and end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ordered_f64::OrderedF64;

/// A class of flows that cross the same links.
#[derive(Debug, Clone, Copy)]
pub struct FlowClass<'a> {
    /// Links, as indices into the capacities; each at most once. A flow over no links has no limit.
    pub links: &'a [u32],
    /// Number of flows.
    pub flows: f64,
}

/// The max-min fair rate of a flow of each class. O(links of all classes + links log links).
///
/// Capacities must be at least 0 and numbers of flows above 0; other values give meaningless rates.
pub fn max_min(capacities: &[f64], classes: &[FlowClass<'_>]) -> Vec<f64> {
    let mut residuals = capacities.to_vec();
    let mut unfixed = vec![0.0f64; capacities.len()];
    let mut starts = vec![0u32; capacities.len() + 1];
    for class in classes {
        for &link in class.links {
            starts[link as usize + 1] += 1;
            unfixed[link as usize] += class.flows;
        }
    }
    for link in 0..capacities.len() {
        starts[link + 1] += starts[link];
    }
    let mut members = vec![0u32; starts[capacities.len()] as usize];
    let mut next = starts.clone();
    for (index, class) in classes.iter().enumerate() {
        for &link in class.links {
            members[next[link as usize] as usize] = index as u32;
            next[link as usize] += 1;
        }
    }
    let mut rates = vec![f64::INFINITY; classes.len()];
    // Fixing flows at a smaller share elsewhere only raises a link's share, so an old heap entry is a lower bound.
    let mut shares: BinaryHeap<Reverse<(OrderedF64, u32)>> = (0..capacities.len())
        .filter(|&link| unfixed[link] > 0.0)
        .map(|link| Reverse((OrderedF64(residuals[link] / unfixed[link]), link as u32)))
        .collect();
    let mut unfixed_classes: Vec<u32> = starts.windows(2).map(|w| w[1] - w[0]).collect();
    while let Some(Reverse((OrderedF64(share), link))) = shares.pop() {
        let l = link as usize;
        if unfixed_classes[l] == 0 {
            continue;
        }
        let now = (residuals[l] / unfixed[l]).max(0.0);
        if now > share {
            shares.push(Reverse((OrderedF64(now), link)));
            continue;
        }
        for &member in &members[starts[l] as usize..starts[l + 1] as usize] {
            let class = &classes[member as usize];
            if rates[member as usize].is_finite() {
                continue;
            }
            rates[member as usize] = now;
            for &other in class.links {
                let o = other as usize;
                residuals[o] -= now * class.flows;
                unfixed[o] -= class.flows;
                unfixed_classes[o] -= 1;
            }
        }
    }
    rates
}

/// A flow whose rate is limited in addition to its links.
#[derive(Debug, Clone, Copy)]
pub struct CappedFlow<'a> {
    /// Links, as indices into the capacities; each at most once.
    pub links: &'a [u32],
    /// The highest rate; finite.
    pub cap: f64,
}

/// The max-min fair rate of each flow, at most its cap: a flow below its cap has a full link on which no flow has a higher
/// rate. O(n log n) for n flows, and the links of all flows.
pub fn max_min_capped(capacities: &[f64], flows: &[CappedFlow<'_>]) -> Vec<f64> {
    let mut residuals = capacities.to_vec();
    let mut starts = vec![0u32; capacities.len() + 1];
    for &link in flows.iter().flat_map(|flow| flow.links) {
        starts[link as usize + 1] += 1;
    }
    let mut open_flows: Vec<u32> = starts[1..].to_vec();
    for link in 0..capacities.len() {
        starts[link + 1] += starts[link];
    }
    let mut members = vec![0u32; starts[capacities.len()] as usize];
    let mut next = starts.clone();
    for (flow, links) in (0..).zip(flows.iter().map(|flow| flow.links)) {
        for &link in links {
            members[next[link as usize] as usize] = flow;
            next[link as usize] += 1;
        }
    }
    let mut by_cap: Vec<u32> = (0..flows.len() as u32).collect();
    by_cap.sort_unstable_by(|a, b| flows[*a as usize].cap.total_cmp(&flows[*b as usize].cap));
    let mut by_cap = by_cap.into_iter().peekable();
    let share = |residual: f64, open: u32| (residual / f64::from(open)).max(0.0);
    // Fixing flows at a lower rate only raises a link's share, so an old entry is a lower bound.
    let mut shares: BinaryHeap<Reverse<(OrderedF64, u32)>> = (0..capacities.len())
        .filter(|&link| open_flows[link] > 0)
        .map(|link| Reverse((OrderedF64(share(residuals[link], open_flows[link])), link as u32)))
        .collect();
    let mut rates = vec![f64::NAN; flows.len()];
    let fix = |flow: u32, rate: f64, rates: &mut [f64], residuals: &mut [f64], open_flows: &mut [u32]| {
        rates[flow as usize] = rate;
        for &link in flows[flow as usize].links {
            residuals[link as usize] -= rate;
            open_flows[link as usize] -= 1;
        }
    };
    loop {
        while by_cap.next_if(|&flow| !rates[flow as usize].is_nan()).is_some() {}
        let Some(&lowest) = by_cap.peek() else { return rates };
        let cap = flows[lowest as usize].cap;
        let Some(&Reverse((OrderedF64(lower_bound), link))) = shares.peek() else {
            fix(lowest, cap, &mut rates, &mut residuals, &mut open_flows);
            continue;
        };
        let l = link as usize;
        if cap <= lower_bound {
            fix(lowest, cap, &mut rates, &mut residuals, &mut open_flows);
            continue;
        }
        shares.pop();
        if open_flows[l] == 0 {
            continue;
        }
        let level = share(residuals[l], open_flows[l]);
        if level > lower_bound {
            shares.push(Reverse((OrderedF64(level), link)));
            continue;
        }
        for &flow in &members[starts[l] as usize..starts[l + 1] as usize] {
            if rates[flow as usize].is_nan() {
                fix(flow, level, &mut rates, &mut residuals, &mut open_flows);
            }
        }
    }
}
