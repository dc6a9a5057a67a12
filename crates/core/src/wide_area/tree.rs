//! A tree of policies over a wide area: services share every link by weight, the applications of a service share what it has, and inside
//! each a policy of the wide area decides about coflows.
//!
//! The levels are those of [`crate::tree`]: NetShare's and Saba's, here at the links between regions, which are all that is short. A link
//! is divided between the services that have bytes left for it, by weight, and each service's part between its leaves (applications, or the
//! service as a whole) likewise. Inside its parts a leaf's coflows take turns as its own policy says, which is asked when one of the leaf's
//! coflows arrives or ends, and sees no others: a tree of one leaf is the leaf's policy. What a leaf cannot use others have.

use super::{Policy, Scheme, Share, Turns, Waiting, build};
use crate::model::{Names, Past};
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

/// A plan's policies for a workload with these names.
///
/// # Errors
/// A name that the plan has no place for, or a policy that is not for a wide area.
pub(super) fn scheme(plan: &Plan, names: &Names) -> Result<Scheme, TreeError> {
    let Layout { groups, policies, leaf_of } = plan.lay_out(names)?;
    let (mut leaves, mut detours) = (Vec::new(), Vec::new());
    for spec in policies {
        let Scheme { policy, detours: own, .. } = build(&spec)?;
        leaves.push(Leaf { policy, asked: Vec::new(), turns: Turns::Shared });
        detours.extend(own);
    }
    Ok(Scheme { policy: Box::new(Tree { groups, leaves }), detours, leaf_of })
}

impl Policy for Tree {
    /// O(links x leaves + coflows), besides the leaves' policies.
    fn turns(&mut self, waiting: &[Waiting], past: &Past) -> Turns {
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); self.leaves.len()];
        for (place, coflow) in waiting.iter().enumerate() {
            places[coflow.leaf as usize].push(place);
        }
        let mut shares = Vec::with_capacity(self.leaves.len());
        for (leaf, places) in self.leaves.iter_mut().zip(&places) {
            let order = match leaf.turns_of(places, waiting, past) {
                Turns::InOrder(order) => Some(order.iter().map(|&at| places[at]).collect()),
                _ => None,
            };
            shares.push(Share { coflows: places.clone(), order, parts: vec![0.0; past.links()] });
        }
        for link in 0..past.links() {
            self.divide(link, waiting, &mut shares);
        }
        shares.retain(|share| !share.coflows.is_empty());
        Turns::Divided(shares)
    }
}

impl Leaf {
    /// Who goes first among the leaf's coflows, as places among these.
    fn turns_of(&mut self, places: &[usize], waiting: &[Waiting], past: &Past) -> &Turns {
        let now: Vec<u64> = places.iter().map(|&place| waiting[place].seq).collect();
        if now != self.asked {
            let own: Vec<Waiting> = places.iter().map(|&place| waiting[place].clone()).collect();
            self.turns = if own.is_empty() { Turns::Shared } else { self.policy.turns(&own, past) };
            self.asked = now;
        }
        &self.turns
    }
}

impl Tree {
    /// Divides a link between the leaves that have bytes for it.
    fn divide(&mut self, link: usize, waiting: &[Waiting], shares: &mut [Share]) {
        let has = |place: &usize| waiting[*place].left.iter().any(|&(on, _)| on as usize == link);
        let (mut all, mut groups) = (0.0, Vec::new());
        for group in &mut self.groups {
            let first = group.leaves.start;
            let here: Vec<u32> = group
                .leaves
                .clone()
                .filter(|&leaf| shares[leaf as usize].coflows.iter().any(has))
                .map(|leaf| leaf - first)
                .collect();
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
