//! A tree of policies over a wide area: services share every link by weight, the applications of a service share what it has, and inside
//! each a policy of the wide area decides about coflows.
//!
//! The levels are those of [`crate::tree`]: NetShare's and Saba's, here at the links between regions, which are all that is short. A link
//! is divided between the services that have bytes left for it, by weight, and each service's part between its leaves (applications, or the
//! service as a whole) likewise. Inside its parts a leaf's coflows take turns as its own policy says, which is asked when one of the leaf's
//! coflows arrives or ends, decides over the parts that the leaf has then, and sees no other coflows: a tree of one leaf is the leaf's
//! policy. What a leaf cannot use others have, in the order of services and leaves.
//!
//! Only detours leave something of a part: a flow over two links has no more of the one than of the other. Ways are chosen when a coflow
//! arrives, as if all of each link were its own; and where what others leave lets an early coflow go on at one link, a later one of the
//! same leaf may have had the leaf's part of the other before it.

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
    /// A name that the plan has no place for, or a policy that is not for a wide area.
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
    /// O(links x leaves + n) for n pairs of a coflow and a link that it has bytes for, besides weights and the leaves' policies.
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
