//! A policy tree: services share every port by weight, the applications of a service share the service's part, and a
//! policy schedules the coflows of each application.
//!
//! No published system combines all levels. The first level is NetShare's (UCSD 2010, section 2: services by weight
//! at every port), the second Saba's (EuroSys '23, section 5.1: applications by the weights of Eq. 2 at every port).
//! The third is any policy of the table.
//!
//! # Algorithm
//!
//! A *leaf* is an application, or a service as a whole. A *side* is the sending or receiving side of a port. Each
//! side is divided between the leaves with live flows there: first between services by weight, then between the
//! leaves of each service, by given weights or by Saba's weights for the applications with flows there. The result is
//! the *slice* of a leaf. The policy of a leaf schedules the leaf's coflows on its own fabric, which has at least the
//! slice at every side, as it would without a tree.
//!
//! - *Turns.* Leaves decide one after the other, service by service, `fair` leaves last. Each leaf gets its slice and
//!   the bandwidth that earlier leaves did not use.
//! - *Second turns.* A leaf that could use bandwidth that became free after its turn decides again: once after its
//!   service, and once after all services. It decides over the bandwidth that it uses and all unused bandwidth.
//!   Bandwidth that the leaf did not use at first may be taken by then. The leaf keeps its earlier decision if a flow
//!   now has less than the slices at both of its ends and one of these ends is full.
//! - *Claims.* A `fair` leaf claims only the bandwidth that its flows can get at their other ends. The rest is
//!   divided among the other leaves by weight first. Upper and lower bounds of claims converge, as in
//!   [`crate::solve::hierarchy`].
//! - *Open bounds.* If the bounds do not meet and all leaves are `fair`, the algorithm searches a fixed point of the
//!   offers between the bounds. Otherwise the upper bounds are the claims. A tree of `fair` leaves therefore gets the
//!   rates of weighted hierarchical max-min. Several such allocations may exist if the bounds do not meet.
//! - *Taking back.* Unused bandwidth of leaves with policies comes on top of the claims. A flow of a `fair` leaf that
//!   uses such bandwidth may reduce another flow at its other end, where the claims cover only one of them. If the
//!   leaf then has less than its weighted part, it decides over its slices alone.
//!
//! # Guarantees
//!
//! - The allocation does not exceed the capacity of any side.
//! - If the policy of a leaf is work-conserving, every flow has an end at which the leaf uses at least its weighted
//!   part.
//! - No policy changes the slices of another leaf. Slices depend only on which leaves have live flows at which ports,
//!   and on the flows of `fair` leaves.
//! - A leaf decides over at least its slices. Its policy decides how to use more bandwidth, and one more coflow may
//!   wait as a result.
//! - Bandwidth that is unused at both ends of a live flow was left by the flow's own policy, by a leaf that decided
//!   later, or by a leaf that kept its earlier decision.
//! - A tree of one leaf is equivalent to the policy of the leaf.

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

/// Services, applications and their policies on one network. Sides are numbered: sending sides of all ports, then
/// receiving sides.
pub(crate) struct Tree {
    groups: Vec<Group>,
    leaves: Vec<Leaf>,
    /// By leaf: its group.
    group_of: Vec<u32>,
    leaf_of: Vec<Vec<u32>>,
    /// Whether the tree contains both `fair` leaves and leaves with policies.
    mixed: bool,
    /// By slot: the leaf of its coflow.
    owner: Vec<u32>,
    /// The order of turns, by service. Leaves and services with policies come first.
    turns: Vec<Vec<u32>>,
    /// By side: capacity that no leaf uses or has as its slice.
    free: Vec<f64>,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    capacities: Vec<f64>,
    offer: Vec<f64>,
    /// Capacities of the leaf's previous decision.
    before: Vec<f64>,
    here: Vec<u32>,
    positions: Vec<u32>,
    /// Weights of services, and of the leaves of one service.
    weights: [Vec<f64>; 2],
    claims: [Vec<f64>; 2],
    parts: [Vec<f64>; 2],
    /// Parts of the leaves in `here`.
    all: Vec<f64>,
}

/// Maximum number of rounds that tighten the bounds of `fair` leaves.
const ROUNDS: usize = 100;

/// The rounds end when a round leaves at least this part of the distance between the bounds.
const STUCK: f64 = 0.999;

/// Distance at which bounds count as equal, as a part of a port.
const MET: f64 = 1e-10;

/// Bandwidth that does not justify another turn, as a part of a port.
const DUST: f64 = 1e-9;

impl Plan {
    /// Checks that the plan covers all services and applications of `names`, with valid weights.
    ///
    /// # Errors
    /// [`TreeError`] for the first service or application that the plan does not cover, or the first invalid weight.
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

    /// The sharing of the network: [`Sharing::Remaining`] if any leaf uses it; see [`Network::new`].
    pub(crate) fn sharing(&self) -> Sharing {
        let knows = self.leaves.iter().any(|leaf| leaf.sharing() == Sharing::Remaining);
        if knows { Sharing::Remaining } else { Sharing::Equal }
    }

    /// The leaf of an application.
    pub(crate) fn leaf_of(&self, service: u32, application: u32) -> u32 {
        self.leaf_of[service as usize][application as usize]
    }

    /// The sharing of a leaf's coflows.
    pub(crate) fn sharing_of(&self, leaf: u32) -> Sharing {
        self.leaves[leaf as usize].sharing()
    }

    /// The slices of a coflow's leaf, by side.
    pub(crate) fn slices(&self, slot: Slot) -> &[f64] {
        &self.leaves[self.owner[slot as usize] as usize].slice
    }

    /// Adds a coflow to a leaf.
    pub(crate) fn enter(&mut self, leaf: u32, slot: Slot) {
        if slot as usize >= self.owner.len() {
            self.owner.resize(slot as usize + 1, 0);
        }
        self.owner[slot as usize] = leaf;
        self.leaves[leaf as usize].scope.active.push(slot);
    }

    /// Removes a coflow from its leaf.
    pub(crate) fn leave(&mut self, slot: Slot) {
        let leaf = &mut self.leaves[self.owner[slot as usize] as usize];
        leaf.scope.active.retain(|&s| s != slot);
    }

    /// Passes an event to the leaf of its coflow, or to all leaves if a port changed.
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

    /// Computes the allocation. The caller clears `out` before.
    ///
    /// O(leaves x (ports x leaves + a schedule of each)). For `fair` leaves also O(flows), and pairs of ports x steps
    /// for each round of their bounds.
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

    /// Passes the changed flows of the applied schedule to their leaves.
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

    /// Computes the weighted parts of `fair` leaves in a mixed tree. Without other leaves, all unused bandwidth is
    /// covered by claims.
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

    /// Computes upper bounds of the capacity that `fair` leaves can use of each side.
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

    /// Searches a fixed point of the offers between bounds that do not meet. Without a result, the upper bounds stay,
    /// because claims must not be too low.
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

    /// Sets the claims of `fair` leaves from a bound, and the claims of other leaves to `others`.
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

    /// Computes one bound of the offers of sides to flows from the other bound. Returns the distance between the two.
    fn bound(&mut self, from: Bound, to: Bound) -> f64 {
        // A policy may use all of its part, or nothing. Unused parts go to other leaves.
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
                // The part of the leaf if it claimed the whole side.
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

    /// Computes the slices of all leaves. Sides without leaves are free.
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

    /// Divides a side: writes the leaves with live flows there to `here`, and their parts to `all`. O(leaves^2) at
    /// worst.
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

    /// Lets a `fair` leaf decide over its slices alone, if unused bandwidth of other leaves made the leaf worse off.
    ///
    /// A flow that gets more of this bandwidth than was claimed for it takes bandwidth from another flow at its other
    /// end.
    fn take_back(&mut self, leaf: usize, network: &mut Network, now: f64, dust: f64) {
        if self.mixed
            && self.leaves[leaf].is_fair()
            && self.leaves[leaf].is_denied(&self.scratch.offer, network, dust)
        {
            self.scratch.offer.clone_from(&self.leaves[leaf].slice);
            self.decide(leaf, network, now);
        }
    }

    /// Lets the leaves decide again that can use more bandwidth.
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
                // The leaf lacks bandwidth that it did not use before. Its earlier decision holds.
                std::mem::swap(&mut self.scratch.offer, &mut self.scratch.before);
                self.decide(leaf, network, now);
                if self.free.iter().any(|free| *free < -dust) {
                    // A policy with state decided differently this time, and the required bandwidth is taken.
                    std::mem::swap(&mut self.scratch.offer, &mut self.scratch.before);
                    self.decide(leaf, network, now);
                }
            }
        }
    }

    /// Whether a leaf could use bandwidth that is free now.
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

    /// Lets a leaf decide over its slice (in second turns: over the bandwidth that it uses), and all free bandwidth.
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

    /// Lets a leaf decide over the current offer: its slice or its used bandwidth, and free bandwidth.
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
