//! A tree of policies for a wide area. Services share every link by weight, applications share their service's part, and a
//! policy for each leaf orders the coflows in it.
//!
//! The levels are those of [`crate::tree`] (NetShare's and Saba's), applied to the links between regions, the only
//! bottlenecks. A link is divided by weight between the services that have bytes left for it. Each service's part is divided
//! between its leaves (applications, or the service as a whole) in the same way. Inside its parts, a leaf's coflows take
//! turns by the leaf's policy. This policy is called when one of the leaf's coflows arrives or ends, decides over the parts
//! that the leaf has at that time, and sees no other coflows. A tree with one leaf equals the leaf's policy. Other leaves get
//! a leaf's unused bandwidth, in the order of services and leaves.
//!
//! Only detours leave part of a share unused, because a flow over two links has the same rate on both. Paths are chosen when
//! a coflow arrives, as if all of each link were available. Also, unused bandwidth of others can let an early coflow continue
//! at one link, after a later one of the same leaf has already got the leaf's share of the other link.

use super::{LeafShare, Policy, ServiceOrder, WaitingCoflow, WideAreaPolicy, build};
use crate::model::{BandwidthHistory, BitSet, ServiceNames};
use crate::tree::spec::{ServiceLeaves, TreeLayout};
use crate::tree::{TreeError, TreeSpec};

/// A leaf: its policy, and what that said last.
struct Leaf {
    policy: Box<dyn Policy>,
    /// The coflows that it said it of, by their numbers.
    asked: Vec<u64>,
    turns: ServiceOrder,
}

/// Services, applications and their policies.
struct Tree {
    groups: Vec<ServiceLeaves>,
    leaves: Vec<Leaf>,
}

impl WideAreaPolicy {
    /// The policies of a plan's leaves, for a workload with these names.
    ///
    /// # Errors
    /// If the plan does not cover a name, or a policy is not one for a wide area.
    pub fn from_tree(plan: &TreeSpec, names: &ServiceNames) -> Result<WideAreaPolicy, TreeError> {
        let TreeLayout { services: groups, policies, leaf_by_application: leaf_of } = plan.layout(names)?;
        let (mut leaves, mut with) = (Vec::new(), Vec::new());
        for spec in policies {
            let WideAreaPolicy { policy, with: own, .. } = build(&spec)?;
            leaves.push(Leaf { policy, asked: Vec::new(), turns: ServiceOrder::MaxMin });
            with.extend(own);
        }
        Ok(WideAreaPolicy { policy: Box::new(Tree { groups, leaves }), with, leaf_of })
    }
}

impl Policy for Tree {
    /// O(links x leaves + n) for n pairs of a coflow and a link that it has bytes for, plus the cost of weights and of the
    /// leaves' policies.
    fn decide_order(&mut self, waiting: &[WaitingCoflow], past: &BandwidthHistory) -> ServiceOrder {
        let empty =
            || LeafShare { coflows: Vec::new(), order: None, link_fractions: vec![0.0; past.links()] };
        let mut shares: Vec<LeafShare> = std::iter::repeat_with(empty).take(self.leaves.len()).collect();
        let mut present: Vec<BitSet> = self.leaves.iter().map(|_| BitSet::empty(past.links())).collect();
        for (place, coflow) in waiting.iter().enumerate() {
            let leaf = coflow.leaf as usize;
            shares[leaf].coflows.push(place);
            coflow.remaining_bytes.iter().for_each(|&(link, _)| present[leaf].insert(link as usize));
        }
        for link in 0..past.links() {
            self.divide(link, &present, &mut shares);
        }
        for (leaf, share) in self.leaves.iter_mut().zip(&mut shares) {
            share.order = leaf.order(share, waiting, past);
        }
        shares.retain(|share| !share.coflows.is_empty());
        ServiceOrder::Weighted(shares)
    }
}

impl Leaf {
    /// Who goes first among the leaf's coflows, as places among all that wait; none if they share.
    fn order(
        &mut self,
        share: &LeafShare,
        waiting: &[WaitingCoflow],
        past: &BandwidthHistory,
    ) -> Option<Vec<usize>> {
        let now: Vec<u64> = share.coflows.iter().map(|&place| waiting[place].seq).collect();
        if now != self.asked {
            // Over a part of a link bytes take as long as more of them over all of it.
            let own = |&place: &usize| {
                let left = waiting[place].remaining_bytes.iter();
                let left =
                    left.map(|&(link, bytes)| (link, bytes / share.link_fractions[link as usize])).collect();
                WaitingCoflow { remaining_bytes: left, ..waiting[place] }
            };
            let own: Vec<WaitingCoflow> = share.coflows.iter().map(own).collect();
            self.turns =
                if own.is_empty() { ServiceOrder::MaxMin } else { self.policy.decide_order(&own, past) };
            self.asked = now;
        }
        match &self.turns {
            ServiceOrder::InOrder(order) => Some(order.iter().map(|&at| share.coflows[at]).collect()),
            ServiceOrder::MaxMin | ServiceOrder::Weighted(_) => None,
        }
    }
}

impl Tree {
    /// Divides a link between the leaves that have bytes for it.
    fn divide(&mut self, link: usize, present: &[BitSet], shares: &mut [LeafShare]) {
        let (mut all, mut groups) = (0.0, Vec::new());
        for group in &mut self.groups {
            let first = group.leaves.start;
            let is_here = |leaf: &u32| present[*leaf as usize].contains(link);
            let here: Vec<u32> = group.leaves.clone().filter(is_here).map(|leaf| leaf - first).collect();
            if !here.is_empty() {
                let mut weights = Vec::new();
                group.application_weights.weights(&here, &mut weights);
                all += group.weight;
                groups.push((group.weight, first, here, weights));
            }
        }
        for (weight, first, here, weights) in groups {
            let inside: f64 = weights.iter().sum();
            for (leaf, own) in here.iter().zip(&weights) {
                shares[(first + leaf) as usize].link_fractions[link] = weight / all * (own / inside);
            }
        }
    }
}
