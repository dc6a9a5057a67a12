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

use super::{Policy, Scheme, Share, Turns, Waiting, build};
use crate::model::{Mask, Names, Past};
use crate::tree::plan::{Group, Layout};
use crate::tree::{Plan, TreeError};

/// A leaf: its policy, and what that said last.
struct Leaf {
    policy: Box<dyn Policy>,
    /// The coflows that it said it of, by their numbers.
    asked: Vec<u64>,
    turns: Turns,
}

/// Services, applications and their policies.
struct Tree {
    groups: Vec<Group>,
    leaves: Vec<Leaf>,
}

impl Scheme {
    /// The policies of a plan's leaves, for a workload with these names.
    ///
    /// # Errors
    /// If the plan does not cover a name, or a policy is not one for a wide area.
    pub fn tree(plan: &Plan, names: &Names) -> Result<Scheme, TreeError> {
        let Layout { groups, policies, leaf_of } = plan.lay_out(names)?;
        let (mut leaves, mut with) = (Vec::new(), Vec::new());
        for spec in policies {
            let Scheme { policy, with: own, .. } = build(&spec)?;
            leaves.push(Leaf { policy, asked: Vec::new(), turns: Turns::Shared });
            with.extend(own);
        }
        Ok(Scheme { policy: Box::new(Tree { groups, leaves }), with, leaf_of })
    }
}

impl Policy for Tree {
    /// O(links x leaves + n) for n pairs of a coflow and a link that it has bytes for, plus the cost of weights and of the
    /// leaves' policies.
    fn turns(&mut self, waiting: &[Waiting], past: &Past) -> Turns {
        let empty = || Share { coflows: Vec::new(), order: None, parts: vec![0.0; past.links()] };
        let mut shares: Vec<Share> = std::iter::repeat_with(empty).take(self.leaves.len()).collect();
        let mut present: Vec<Mask> = self.leaves.iter().map(|_| Mask::empty(past.links())).collect();
        for (place, coflow) in waiting.iter().enumerate() {
            let leaf = coflow.leaf as usize;
            shares[leaf].coflows.push(place);
            coflow.left.iter().for_each(|&(link, _)| present[leaf].insert(link as usize));
        }
        for link in 0..past.links() {
            self.divide(link, &present, &mut shares);
        }
        for (leaf, share) in self.leaves.iter_mut().zip(&mut shares) {
            share.order = leaf.order(share, waiting, past);
        }
        shares.retain(|share| !share.coflows.is_empty());
        Turns::Divided(shares)
    }
}

impl Leaf {
    /// Who goes first among the leaf's coflows, as places among all that wait; none if they share.
    fn order(&mut self, share: &Share, waiting: &[Waiting], past: &Past) -> Option<Vec<usize>> {
        let now: Vec<u64> = share.coflows.iter().map(|&place| waiting[place].seq).collect();
        if now != self.asked {
            // Over a part of a link bytes take as long as more of them over all of it.
            let own = |&place: &usize| {
                let left = waiting[place].left.iter();
                let left = left.map(|&(link, bytes)| (link, bytes / share.parts[link as usize])).collect();
                Waiting { left, ..waiting[place] }
            };
            let own: Vec<Waiting> = share.coflows.iter().map(own).collect();
            self.turns = if own.is_empty() { Turns::Shared } else { self.policy.turns(&own, past) };
            self.asked = now;
        }
        match &self.turns {
            Turns::InOrder(order) => Some(order.iter().map(|&at| share.coflows[at]).collect()),
            Turns::Shared | Turns::Divided(_) => None,
        }
    }
}

impl Tree {
    /// Divides a link between the leaves that have bytes for it.
    fn divide(&mut self, link: usize, present: &[Mask], shares: &mut [Share]) {
        let (mut all, mut groups) = (0.0, Vec::new());
        for group in &mut self.groups {
            let first = group.leaves.start;
            let is_here = |leaf: &u32| present[*leaf as usize].contains(link);
            let here: Vec<u32> = group.leaves.clone().filter(is_here).map(|leaf| leaf - first).collect();
            if !here.is_empty() {
                let mut weights = Vec::new();
                group.inside.weights(&here, &mut weights);
                all += group.weight;
                groups.push((group.weight, first, here, weights));
            }
        }
        for (weight, first, here, weights) in groups {
            let inside: f64 = weights.iter().sum();
            for (leaf, own) in here.iter().zip(&weights) {
                shares[(first + leaf) as usize].parts[link] = weight / all * (own / inside);
            }
        }
    }
}
