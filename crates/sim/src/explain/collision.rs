//! Compares the paths of a coflow's flows with the same flows spread evenly over the shortest paths.
//!
//! A hash selects the path of each flow. Several flows on one link, while another link of the same stage is idle, are a
//! *collision*. The time with evenly spread flows is the maximum of lower bounds that hold for every choice of paths:
//!
//! - at ports: the bytes of the port divided by its rate;
//! - with divided flows: every switch divides each flow evenly among the links that lead nearer to the receiver;
//! - with undivided flows: of the m k + 1 longest flows that choose one of the same k links, m + 1 cross one link.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::model::trunks::EvenShare;
use weir_core::model::{Slot, Trunks};
use weir_core::rounding;

use super::link::Link;
use crate::replay::Snapshot;

/// Flows of a coflow that share a link although other paths are less loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct PathCollision {
    /// The link whose bytes take longest.
    pub link: Link,
    /// Number of flows of the coflow on this link.
    pub flow_count: usize,
    /// Number of flows of the coflow that could cross this link.
    pub candidate_flow_count: usize,
    /// Links that the flows on this link could cross instead, and that no flow of the coflow crosses.
    pub unused_links: Vec<Link>,
    /// The time of the coflow alone on nominal capacities, in seconds.
    pub seconds: f64,
    /// A lower bound of the same time if its flows were spread evenly over their shortest paths.
    pub even_seconds: f64,
}

/// A flow of the coflow, with the links that it crosses, in the numbering of the fabric.
pub(super) struct RoutedFlow<'a> {
    pub number: u32,
    pub bytes: f64,
    pub links: &'a [usize],
}

/// Finds the collision of a coflow's flows, if their paths cost time.
pub(super) fn find_collision(
    snapshot: &Snapshot<'_>,
    slot: Slot,
    flows: &[RoutedFlow<'_>],
) -> Option<PathCollision> {
    let (rates, first_trunk) = (snapshot.nominal_rates(), snapshot.fabric().trunk_links().start);
    let mut bytes_by_link: BTreeMap<usize, f64> = BTreeMap::new();
    for flow in flows {
        for &link in flow.links.iter().filter(|&&link| rates[link] > 0.0) {
            *bytes_by_link.entry(link).or_default() += flow.bytes;
        }
    }
    let times = bytes_by_link.iter().map(|(&link, bytes)| (link, bytes / rates[link]));
    let (busiest, seconds) = times.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
    let trunk = busiest.checked_sub(first_trunk)?;
    let trunks = snapshot.trunks()?;
    if trunk >= trunks.links() {
        // The maximum rate of a flow.
        return None;
    }
    let choices = Choices::new(snapshot, slot, flows)?;
    let is_fixed = |link: usize| link < first_trunk || link >= first_trunk + trunks.links();
    let fixed = bytes_by_link.iter().filter(|(link, _)| is_fixed(**link));
    let fixed_seconds = fixed.map(|(&link, bytes)| bytes / rates[link]).fold(0.0, f64::max);
    let trunk_rates = &rates[first_trunk..];
    let even_seconds = fixed_seconds
        .max(choices.divided_seconds(flows, trunk_rates))
        .max(choices.undivided_seconds(flows, trunk_rates));
    if seconds <= even_seconds * (1.0 + rounding::DURATION) {
        return None;
    }
    let crosses = |flow: &RoutedFlow<'_>| flow.bytes > 0.0 && flow.links.contains(&busiest);
    let unused = choices.alternatives(flows, trunk as u32, crosses);
    Some(PathCollision {
        link: Link::Trunk(trunk as u32),
        flow_count: flows.iter().filter(|flow| crosses(flow)).count(),
        candidate_flow_count: choices.count_candidates(flows, trunk as u32),
        unused_links: unused
            .into_iter()
            .filter(|&other| !bytes_by_link.contains_key(&(first_trunk + other as usize)))
            .map(Link::Trunk)
            .collect(),
        seconds,
        even_seconds,
    })
}

/// The links that the flows of a coflow can take.
struct Choices {
    /// By flow: its pair of ports.
    pairs: Vec<(u32, u32)>,
    /// By pair of receiving and sending port.
    shares: BTreeMap<(u32, u32), Vec<EvenShare>>,
}

impl Choices {
    /// `None` if a flow has no choice of paths.
    fn new(snapshot: &Snapshot<'_>, slot: Slot, flows: &[RoutedFlow<'_>]) -> Option<Choices> {
        let coflow = snapshot.coflow(slot);
        let pair_of = |flow: &RoutedFlow<'_>| {
            let (src, dst) = coflow.flow_ports(flow.number);
            (dst, src)
        };
        let pairs: Vec<(u32, u32)> = flows.iter().map(pair_of).collect();
        let mut shares: BTreeMap<(u32, u32), Vec<EvenShare>> =
            pairs.iter().map(|&pair| (pair, Vec::new())).collect();
        // Computing shares fills a cache of distances.
        let mut trunks: Trunks = snapshot.trunks()?.clone();
        for (&(dst, src), shares) in &mut shares {
            if !trunks.compute_even_shares(src, dst, shares) {
                return None;
            }
        }
        Some(Choices { pairs, shares })
    }

    fn shares_of(&self, flow: usize) -> &[EvenShare] {
        &self.shares[&self.pairs[flow]]
    }

    /// The time of the most loaded link if flows are divided.
    fn divided_seconds(&self, flows: &[RoutedFlow<'_>], trunk_rates: &[f64]) -> f64 {
        let mut bytes_by_pair: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for (flow, pair) in flows.iter().zip(&self.pairs) {
            *bytes_by_pair.entry(*pair).or_default() += flow.bytes;
        }
        let mut seconds = vec![0.0; trunk_rates.len()];
        for (pair, bytes) in bytes_by_pair {
            for share in &self.shares[&pair] {
                let trunk = share.trunk as usize;
                seconds[trunk] += share.share * bytes / trunk_rates[trunk];
            }
        }
        seconds.into_iter().fold(0.0, f64::max)
    }

    /// The longest time that one of the links that the same flows choose from needs at least.
    fn undivided_seconds(&self, flows: &[RoutedFlow<'_>], trunk_rates: &[f64]) -> f64 {
        let mut sizes_by_links: BTreeMap<Vec<u32>, Vec<f64>> = BTreeMap::new();
        for (index, flow) in flows.iter().enumerate() {
            for stage in self.shares_of(index).chunk_by(|a, b| a.stage == b.stage) {
                let mut links: Vec<u32> = stage.iter().map(|share| share.trunk).collect();
                links.sort_unstable();
                sizes_by_links.entry(links).or_default().push(flow.bytes);
            }
        }
        let seconds = sizes_by_links.into_iter().map(|(links, mut sizes)| {
            let max_rate = links.iter().map(|&trunk| trunk_rates[trunk as usize]).fold(0.0, f64::max);
            sizes.sort_unstable_by(|a, b| b.total_cmp(a));
            min_bytes_of_fullest(&sizes, links.len()) / max_rate
        });
        seconds.fold(0.0, f64::max)
    }

    /// The trunks that flows on `trunk` could take instead of it.
    fn alternatives(
        &self,
        flows: &[RoutedFlow<'_>],
        trunk: u32,
        crosses: impl Fn(&RoutedFlow<'_>) -> bool,
    ) -> BTreeSet<u32> {
        let mut alternatives = BTreeSet::new();
        for (index, _) in flows.iter().enumerate().filter(|(_, flow)| crosses(flow)) {
            let shares = self.shares_of(index);
            let stage = shares.iter().find(|share| share.trunk == trunk).map(|share| share.stage);
            let same_stage = shares.iter().filter(|share| Some(share.stage) == stage);
            alternatives.extend(same_stage.map(|share| share.trunk));
        }
        alternatives
    }

    /// Number of flows with bytes that can take a trunk.
    fn count_candidates(&self, flows: &[RoutedFlow<'_>], trunk: u32) -> usize {
        let can_cross = |index: usize| self.shares_of(index).iter().any(|share| share.trunk == trunk);
        (0..flows.len()).filter(|&index| flows[index].bytes > 0.0 && can_cross(index)).count()
    }
}

/// The bytes that the fullest of `links` links carries at least, for flows of these sizes, in descending order.
fn min_bytes_of_fullest(sizes: &[f64], links: usize) -> f64 {
    let mut sums = vec![0.0];
    sizes.iter().for_each(|size| sums.push(sums[sums.len() - 1] + size));
    // Of the first m x links + 1 flows, m + 1 cross one link; their sum is at least that of the smallest m + 1.
    let of_last = |(m, last): (usize, usize)| sums[last + 1] - sums[last - m];
    (0..sizes.len()).step_by(links).enumerate().map(of_last).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fullest_link_carries_the_flows_that_exceed_one_for_each_link() {
        assert_eq!(min_bytes_of_fullest(&[1.0; 8], 4), 2.0);
        assert_eq!(min_bytes_of_fullest(&[1.0; 9], 4), 3.0);
        assert_eq!(min_bytes_of_fullest(&[9.0, 3.0, 2.0, 1.0], 2), 9.0);
        assert_eq!(min_bytes_of_fullest(&[5.0, 4.0, 3.0, 1.0], 2), 7.0);
        assert_eq!(min_bytes_of_fullest(&[5.0, 4.0], 1), 9.0);
        assert_eq!(min_bytes_of_fullest(&[], 3), 0.0);
    }
}
