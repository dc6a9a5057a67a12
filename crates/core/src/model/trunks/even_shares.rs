//! The links that a flow can take over shortest paths, and its share of each if it is divided evenly.

use std::collections::BTreeMap;

use super::super::topology::NodeId;
use super::{Paths, Trunks};

/// A link that a flow can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvenShare {
    /// The link, as a position in [`Trunks::capacities`].
    pub trunk: u32,
    /// The position of the link in the paths of the flow. Each path has one link of each stage.
    pub stage: u32,
    /// The fraction of the flow on this link if every switch divides the flow evenly among the links that lead nearer to the
    /// receiver.
    pub share: f64,
}

impl Trunks {
    /// Writes the links between switches that a flow can take to `shares`, by stage.
    ///
    /// Returns `false` if the flow has no choice of one among shortest paths: if flows are divided evenly, between regions, and
    /// without a path. Fastest for consecutive flows to one receiver.
    pub fn compute_even_shares(&mut self, src: u32, dst: u32, shares: &mut Vec<EvenShare>) -> bool {
        shares.clear();
        let Paths::Shortest { routes, trunk_by_link, .. } = &mut self.paths else { return false };
        let (from, to) = (NodeId(self.ends[src as usize]), NodeId(self.ends[dst as usize]));
        let mut link_shares = Vec::new();
        if from == to {
            return true;
        }
        if !routes.compute_ecmp_shares(from, to, &mut link_shares) {
            return false;
        }
        let topology = routes.topology();
        let mut stages = BTreeMap::from([(from, 0)]);
        for (link, share) in link_shares {
            let ends = topology.link(link);
            // Links come in the order of their distance from the sender.
            let stage = stages[&ends.from];
            stages.insert(ends.to, stage + 1);
            if let Some(trunk) = trunk_by_link[link.index()] {
                shares.push(EvenShare { trunk, stage, share });
            }
        }
        true
    }
}
