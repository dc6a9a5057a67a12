//! A tree of policies: services share every port by weight, the applications of a service share what it has, and inside
//! each a policy of its own decides about coflows.
//!
//! No published system has all of this. The levels are NetShare's (UCSD 2010, section 2: services by weight at every port),
//! Saba's (EuroSys '23, section 5.1: applications by the weights of Eq. 2 at every port), and any policy's of the table.
//!
//! # What is decided
//!
//! A *leaf* is an application, or a service as a whole. A side of a port (sending or receiving) is divided between the leaves
//! that have live flows there: between their services by weight, and each service's part between its leaves, by given weights
//! or by Saba's for the set of its applications that meet there. That is a leaf's *slice*. A leaf's policy sees a fabric of
//! its own, which has at least the slice at every side, and its own coflows only; it decides as it would alone.
//!
//! - Leaves decide one after the other, service by service, those without a policy (`fair`) last, and each gets what those
//!   before it left of their slices on top of its own. A leaf that could use what others left after its turn gets another
//!   one, once when its service is through and once when all are: over what it uses and all that is left. What it had lent
//!   may be gone then; if it lacks that, because a flow now has less than the slices at both of its ends and one of them is
//!   full, its earlier decision holds.
//! - A `fair` leaf does not hold what it cannot use: it claims what its flows can get at most at their other ends, and the
//!   rest is divided among the others by weight first. Bounds from above and from below close in on that, as in
//!   [`crate::solve::hierarchy`]. Where they do not meet, and all leaves are `fair`, offers between them are looked for that
//!   lead to themselves; else claims are those from above. So a tree of `fair` leaves gets the rates of weighted
//!   hierarchical max-min, of which there may be several where the bounds do not meet.
//! - What leaves with policies leave is more than was claimed. A flow of a `fair` leaf that takes it may take from another at its
//!   other end, where no more was claimed for both. If the leaf then lacks some of its weighted part, it decides over its slices alone.
//!
//! # What holds
//!
//! - No side is given more than it has.
//! - If a leaf's policy uses all that it can, every flow has an end where the leaf uses no less than its weighted part. So nobody takes
//!   what is its. No policy changes another leaf's slices: they depend only on which leaves have live flows where, and on the
//!   flows of `fair` leaves.
//! - A leaf decides over its slices at least. What it does with more is its policy's: one coflow more may wait for it.
//! - What is left at both ends of a live flow was left by its own policy, by leaves that decided later, or by a leaf that
//!   keeps its earlier decision.
//! - A tree of one leaf is the leaf's policy.

mod divide;
mod leaf;
mod maxmin;
pub(crate) mod plan;
pub(crate) mod weights;

use crate::allocation::Allocation;
use crate::model::{Fabric, Names, Network, Sharing, Slot};
use crate::policy::{self, AnyPolicy, Event, ParamsError};

use divide::divide;
use leaf::{Inner, Leaf};
use maxmin::{Bound, MaxMin};
use plan::{Group, Layout};

pub use leaf::check_leaf;
pub use plan::{Application, Between, Plan, Service, TreeError};

/// Services, applications and their policies on one network. Sides are the sending sides of all ports, then the receiving
/// ones.
pub(crate) struct Tree {
    groups: Vec<Group>,
    leaves: Vec<Leaf>,
    /// The group of each leaf.
    group_of: Vec<u32>,
    leaf_of: Vec<Vec<u32>>,
    /// Whether some leaves are `fair` and others are not.
    mixed: bool,
    /// By slot: the leaf of its coflow.
    owner: Vec<u32>,
    /// The turns, service by service: those with policies first, and likewise the leaves of each.
    turns: Vec<Vec<u32>>,
    /// By side: what nobody has, for sure or in use.
    free: Vec<f64>,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    capacities: Vec<f64>,
    offer: Vec<f64>,
    /// What a leaf decided over before.
    before: Vec<f64>,
    here: Vec<u32>,
    positions: Vec<u32>,
    /// Of services, and of the leaves of one.
    weights: [Vec<f64>; 2],
    claims: [Vec<f64>; 2],
    parts: [Vec<f64>; 2],
    /// Parts of the leaves that are here.
    all: Vec<f64>,
}

/// How often the bounds of `fair` leaves are brought closer together.
const ROUNDS: usize = 100;

/// What a round has to leave of the distance, at most, not to be the last.
const STUCK: f64 = 0.999;

/// How close they are to have met, as a part of a port.
const MET: f64 = 1e-10;

/// What is not worth another turn, as a part of a port.
const DUST: f64 = 1e-9;

impl Plan {
    /// Whether there is a place for all services and applications of these names.
    ///
    /// # Errors
    /// The first that there is none for.
    pub fn check(&self, names: &Names) -> Result<(), TreeError> {
        self.lay_out(names).map(drop)
    }

    /// The policy of all coflows, if this plan has only one leaf for these names.
    pub(crate) fn only(&self, names: &Names) -> Result<Option<AnyPolicy>, TreeError> {
        match &self.lay_out(names)?.policies[..] {
            [spec] => {
                check_leaf(spec)?;
                Ok(Some(policy::build(spec)?))
            }
            _ => Ok(None),
        }
    }
}

impl Tree {
    pub(crate) fn new(plan: &Plan, names: &Names, fabric: &Fabric) -> Result<Tree, TreeError> {
        let Layout { groups, policies, leaf_of } = plan.lay_out(names)?;
        let leaves = policies.iter().map(|spec| Leaf::new(spec, fabric));
        let leaves = leaves.collect::<Result<Vec<Leaf>, ParamsError>>()?;
        let group_of = (0..).zip(&groups).flat_map(|(at, group)| group.leaves.clone().map(move |_| at));
        let fair = |leaf: &u32| leaves[*leaf as usize].is_fair();
        let mut turns: Vec<Vec<u32>> = groups.iter().map(|group| group.leaves.clone().collect()).collect();
        turns.iter_mut().for_each(|turns| turns.sort_by_key(fair));
        turns.sort_by_key(|turns| turns.iter().all(fair));
        let fair_ones = leaves.iter().filter(|leaf| leaf.is_fair()).count();
        Ok(Tree {
            mixed: fair_ones > 0 && fair_ones < leaves.len(),
            group_of: group_of.collect(),
            groups,
            leaves,
            leaf_of,
            owner: Vec::new(),
            turns,
            free: Vec::new(),
            scratch: Scratch::default(),
        })
    }

    /// How the service of all coflows is counted at most; see [`Network::new`].
    pub(crate) fn sharing(&self) -> Sharing {
        let knows = self.leaves.iter().any(|leaf| leaf.sharing() == Sharing::Remaining);
        if knows { Sharing::Remaining } else { Sharing::Equal }
    }

    /// The leaf of an application.
    pub(crate) fn leaf_of(&self, service: u32, application: u32) -> u32 {
        self.leaf_of[service as usize][application as usize]
    }

    /// How the service of a leaf's coflows is counted.
    pub(crate) fn sharing_of(&self, leaf: u32) -> Sharing {
        self.leaves[leaf as usize].sharing()
    }

    /// The slices of a coflow's leaf, by side.
    pub(crate) fn slices(&self, slot: Slot) -> &[f64] {
        &self.leaves[self.owner[slot as usize] as usize].slice
    }

    /// A leaf has a new coflow.
    pub(crate) fn enter(&mut self, leaf: u32, slot: Slot) {
        if slot as usize >= self.owner.len() {
            self.owner.resize(slot as usize + 1, 0);
        }
        self.owner[slot as usize] = leaf;
        self.leaves[leaf as usize].scope.active.push(slot);
    }

    /// A coflow is gone.
    pub(crate) fn leave(&mut self, slot: Slot) {
        let leaf = &mut self.leaves[self.owner[slot as usize] as usize];
        leaf.scope.active.retain(|&s| s != slot);
    }

    /// Tells the leaf that it concerns.
    pub(crate) fn on(&mut self, event: Event, network: &mut Network, now: f64) {
        match event {
            Event::Released(slot)
            | Event::FlowLive(slot, _)
            | Event::FlowHeld(slot, _)
            | Event::FlowDone(slot, _)
            | Event::Done(slot) => {
                self.leaves[self.owner[slot as usize] as usize].on(event, network, now);
            }
            Event::PortChanged => {
                for leaf in &mut self.leaves {
                    leaf.on(event, network, now);
                }
            }
        }
    }

    /// Fills in `out`, which was cleared. O(leaves x (ports x leaves + a schedule of each)), and for `fair` leaves, O(flows), with
    /// pairs of ports x steps for each round of their bounds.
    pub(crate) fn schedule(&mut self, network: &mut Network, now: f64, out: &mut Allocation) {
        self.scratch.capacities.clear();
        self.scratch.capacities.extend(network.fabric().send().iter().chain(network.fabric().recv()));
        for leaf in &mut self.leaves {
            leaf.find(network);
        }
        self.find_parts();
        self.bound_claims(network.fabric().nominal());
        self.divide_sides();
        let dust = DUST * network.fabric().nominal();
        let turns = std::mem::take(&mut self.turns);
        for service in &turns {
            for &leaf in service {
                self.turn(leaf as usize, network, now);
                self.take_back(leaf as usize, network, now, dust);
            }
            self.second_turns(service, network, now, dust);
        }
        for service in &turns {
            self.second_turns(service, network, now, dust);
        }
        self.turns = turns;
        for leaf in &self.leaves {
            out.take_over(&leaf.decided, &leaf.scope.active);
        }
    }

    /// Hands each leaf the changes of the schedule that is in force now.
    pub(crate) fn applied(&mut self, network: &Network) {
        for leaf in &mut self.leaves {
            leaf.scope.changed.clear();
        }
        for &(slot, flow) in network.changed() {
            self.leaves[self.owner[slot as usize] as usize].scope.changed.push((slot, flow));
        }
    }

    pub(crate) fn wake(&mut self, network: &mut Network, now: f64) -> f64 {
        self.leaves.iter_mut().map(|leaf| leaf.wake(network, now)).fold(f64::INFINITY, f64::min)
    }

    /// Finds the weighted parts of `fair` leaves beside others. (Without others nobody leaves anything that was not claimed.)
    fn find_parts(&mut self) {
        if !self.mixed {
            return;
        }
        self.leaves.iter_mut().for_each(|leaf| leaf.claims.fill(f64::INFINITY));
        self.divide_sides();
        for leaf in self.leaves.iter_mut().filter(|leaf| leaf.is_fair()) {
            leaf.part.clone_from(&leaf.slice);
        }
    }

    /// Finds what the `fair` leaves can use at most of each side.
    fn bound_claims(&mut self, nominal: f64) {
        if !self.leaves.iter().any(Leaf::is_fair) {
            return;
        }
        self.fair_leaves(|fair| fair.above.fill(f64::INFINITY));
        let mut apart = f64::INFINITY;
        for _ in 0..ROUNDS {
            self.bound(Bound::Above, Bound::Below);
            let before = std::mem::replace(&mut apart, self.bound(Bound::Below, Bound::Above));
            if apart <= MET * nominal || apart >= STUCK * before {
                break;
            }
        }
        if apart > MET * nominal && self.leaves.iter().all(Leaf::is_fair) {
            self.settle_between(nominal);
        }
        self.claim(Bound::Above, f64::INFINITY);
    }

    /// Where the bounds do not meet, looks for offers between them that lead to themselves. If there seem to be none, the upper bounds
    /// stay: claims are never too low.
    fn settle_between(&mut self, nominal: f64) {
        self.fair_leaves(|fair| {
            fair.kept.clone_from(&fair.above);
            fair.halve();
        });
        for _ in 0..5 * ROUNDS {
            if self.bound(Bound::Above, Bound::Below) <= MET * nominal {
                return;
            }
            self.fair_leaves(MaxMin::halve);
        }
        self.fair_leaves(|fair| fair.above.clone_from(&fair.kept));
    }

    fn fair_leaves(&mut self, mut change: impl FnMut(&mut MaxMin)) {
        for leaf in &mut self.leaves {
            if let Inner::MaxMin(fair) = &mut leaf.inner {
                change(fair);
            }
        }
    }

    /// Sets the claims: of the `fair` leaves by one of their bounds, of the others to this.
    fn claim(&mut self, from: Bound, others: f64) {
        for leaf in &mut self.leaves {
            match &leaf.inner {
                Inner::MaxMin(fair) => {
                    for side in leaf.present.iter() {
                        leaf.claims[side] = fair.claim(side, from);
                    }
                }
                _ => leaf.claims.fill(others),
            }
        }
    }

    /// Finds one bound of what sides offer to flows from the other, and how far apart the two are.
    fn bound(&mut self, from: Bound, to: Bound) -> f64 {
        // A policy may use all of its part, or nothing: what it leaves goes to others.
        self.claim(from, if to == Bound::Above { 0.0 } else { f64::INFINITY });
        let mut apart = 0.0;
        for at in 0..self.leaves.len() {
            if !self.leaves[at].is_fair() {
                continue;
            }
            for side in 0..self.scratch.capacities.len() {
                if !self.leaves[at].present.contains(side) {
                    continue;
                }
                // What it would have if it wanted all of it.
                let claim = std::mem::replace(&mut self.leaves[at].claims[side], f64::INFINITY);
                self.divide_side(side);
                self.leaves[at].claims[side] = claim;
                let place = self.scratch.here.iter().position(|&leaf| leaf as usize == at);
                let part = place.map_or(0.0, |place| self.scratch.all[place]);
                let Inner::MaxMin(fair) = &mut self.leaves[at].inner else { continue };
                let level = fair.level(side, part, from);
                match to {
                    Bound::Above => fair.above[side] = level,
                    Bound::Below => fair.below[side] = level,
                }
                apart = f64::max(apart, (fair.above[side] - fair.below[side]).abs());
            }
        }
        apart
    }

    /// The slices of all leaves; what nobody has is free.
    fn divide_sides(&mut self) {
        self.free.clear();
        for side in 0..self.scratch.capacities.len() {
            self.divide_side(side);
            self.free.push(if self.scratch.here.is_empty() { self.scratch.capacities[side] } else { 0.0 });
            for leaf in &mut self.leaves {
                leaf.slice[side] = 0.0;
            }
            for (&leaf, &part) in self.scratch.here.iter().zip(&self.scratch.all) {
                self.leaves[leaf as usize].slice[side] = part;
            }
        }
    }

    /// Divides a side: puts who is there in `here`, and the part of each in `all`. O(leaves^2) at worst.
    fn divide_side(&mut self, side: usize) {
        let Scratch { capacities, here, positions, weights, claims, parts, all, .. } = &mut self.scratch;
        let leaves = &self.leaves;
        here.clear();
        here.extend((0..leaves.len() as u32).filter(|&leaf| leaves[leaf as usize].present.contains(side)));
        all.clear();
        weights[0].clear();
        claims[0].clear();
        let same = |a: &u32, b: &u32| self.group_of[*a as usize] == self.group_of[*b as usize];
        for members in here.chunk_by(same) {
            weights[0].push(self.groups[self.group_of[members[0] as usize] as usize].weight);
            claims[0].push(members.iter().map(|&leaf| leaves[leaf as usize].claims[side]).sum());
        }
        if here.is_empty() {
            return;
        }
        let [services, members_of] = parts;
        divide(capacities[side], &weights[0], &claims[0], services);
        for (members, &part) in here.chunk_by(same).zip(&*services) {
            let group = &mut self.groups[self.group_of[members[0] as usize] as usize];
            positions.clear();
            positions.extend(members.iter().map(|leaf| leaf - group.leaves.start));
            group.inside.weights(positions, &mut weights[1]);
            claims[1].clear();
            claims[1].extend(members.iter().map(|&leaf| leaves[leaf as usize].claims[side]));
            divide(part, &weights[1], &claims[1], members_of);
            all.extend_from_slice(members_of);
        }
    }

    /// Lets a `fair` leaf decide over its slices alone if with what others left it is worse off: a flow that gets more of that than
    /// was claimed for it takes it from another one at its other end, where no more was claimed.
    fn take_back(&mut self, leaf: usize, network: &mut Network, now: f64, dust: f64) {
        if self.mixed
            && self.leaves[leaf].is_fair()
            && self.leaves[leaf].is_denied(&self.scratch.offer, network, dust)
        {
            self.scratch.offer.clone_from(&self.leaves[leaf].slice);
            self.decide(leaf, network, now);
        }
    }

    /// Lets those of the leaves decide again that gain by it.
    fn second_turns(&mut self, leaves: &[u32], network: &mut Network, now: f64, dust: f64) {
        for &leaf in leaves {
            let leaf = leaf as usize;
            if !self.gains(leaf, network, dust) {
                continue;
            }
            let fabric = &self.leaves[leaf].scope.fabric;
            self.scratch.before.clear();
            self.scratch.before.extend(fabric.send().iter().chain(fabric.recv()));
            self.turn(leaf, network, now);
            if self.leaves[leaf].is_denied(&self.scratch.offer, network, dust) {
                // It had lent what it wants now: what it had decided before holds.
                std::mem::swap(&mut self.scratch.offer, &mut self.scratch.before);
                self.decide(leaf, network, now);
                if self.free.iter().any(|free| *free < -dust) {
                    // A policy that remembers has decided otherwise, and what it wants now is gone.
                    std::mem::swap(&mut self.scratch.offer, &mut self.scratch.before);
                    self.decide(leaf, network, now);
                }
            }
        }
    }

    /// Whether a leaf could use what others leave now.
    fn gains(&self, at: usize, network: &Network, dust: f64) -> bool {
        let leaf = &self.leaves[at];
        let offer = |side: usize| self.free[side] + leaf.used[side];
        let ports = network.fabric().ports();
        let open = |side: usize| self.free[side] > dust;
        let had = leaf.scope.fabric.send().iter().chain(leaf.scope.fabric.recv());
        let more = had.enumerate().any(|(side, had)| leaf.present.contains(side) && offer(side) > had + dust);
        more && leaf.scope.active.iter().any(|&slot| {
            let coflow = network.coflow(slot);
            coflow.send_mask().iter().any(open) && coflow.recv_mask().iter().any(|port| open(ports + port))
        })
    }

    /// Lets a leaf decide over its slice, or what it uses already, and all that is free.
    fn turn(&mut self, at: usize, network: &mut Network, now: f64) {
        let leaf = &mut self.leaves[at];
        let offer = &mut self.scratch.offer;
        offer.clear();
        for (side, free) in self.free.iter().enumerate() {
            let own = if leaf.turned { leaf.used[side] } else { leaf.slice[side] };
            offer.push(if leaf.present.contains(side) {
                own + free.max(0.0)
            } else {
                self.scratch.capacities[side]
            });
        }
        self.decide(at, network, now);
        self.leaves[at].turned = true;
    }

    /// Lets a leaf decide over what is offered now, of which it uses or has a slice of everything but what is free.
    fn decide(&mut self, at: usize, network: &mut Network, now: f64) {
        let leaf = &mut self.leaves[at];
        for (side, free) in self.free.iter_mut().enumerate() {
            if leaf.present.contains(side) {
                *free += if leaf.turned { leaf.used[side] } else { leaf.slice[side] };
            }
        }
        leaf.decide(&self.scratch.offer, network, now);
        for (side, free) in self.free.iter_mut().enumerate() {
            if leaf.present.contains(side) {
                *free -= leaf.used[side];
            }
        }
    }
}
