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
//! - Leaves decide one after the other, service by service, those without a policy (`fair`) last, and each gets what those before it
//!   left of their slices on top of its own. A leaf that could use what others left after its turn gets another one, once when its service is
//!   through and once when all are: over what it uses and all that is left. What it had lent may be gone then; if it lacks that, because a flow now has
//!   less than the slices at both of its ends and one of them is full, its earlier decision holds.
//! - A `fair` leaf does not hold what it cannot use: what its flows can get at most at their other ends is all that it claims, and the rest is
//!   divided among the others by weight first. Bounds from above and from below close in on that, as in
//!   [`crate::solve::hierarchy`]; where they do not meet, offers between them are looked for that lead to themselves; else claims are those from above. So a tree of `fair` leaves gets the rates of
//!   weighted hierarchical max-min, of which there may be several where the bounds do not meet.
//!
//! # What holds
//!
//! - No side is given more than it has.
//! - A flow whose leaf's policy uses all that it can has, at one of its ends, a side of which its leaf uses no less than its weighted
//!   part. (A `fair` leaf's flow may instead have what it can get at most, if that is less.) So nobody inside or outside a service takes what is its, and no policy changes
//!   another leaf's slices: they depend only on which leaves have live flows where, and on the flows of `fair` leaves.
//! - What is left at both ends of a live flow was left by its own policy, or by leaves that decided later, or the leaf had lent at another side and could
//!   not decide again.
//! - A tree of one leaf is the leaf's policy.

mod divide;
mod maxmin;
mod plan;
mod weights;

use crate::allocation::{Allocation, Common};
use crate::model::network::Scope;
use crate::model::{Blind, Fabric, Mask, Names, Network, Sharing, Sizes, Slot, View};
use crate::policy::{self, AnyPolicy, Event, Params, ParamsError, Policy};

use divide::divide;
use maxmin::{Bound, MaxMin};
use plan::{Group, Layout};

pub use plan::{Application, Between, Plan, Service, TreeError};

/// What decides inside a leaf.
enum Inner {
    Blind(Box<dyn Policy<Knows = Blind>>),
    Sizes(Box<dyn Policy<Knows = Sizes>>),
    MaxMin(MaxMin),
}

/// An application, or a service as a whole.
struct Leaf {
    inner: Inner,
    /// Its fabric, coflows and changes, which take the network's place while it is asked.
    scope: Scope,
    decided: Allocation,
    /// Whether it had its turn in this schedule.
    turned: bool,
    /// Sides where it has live flows.
    present: Mask,
    /// By side: its slice, and what it uses.
    slice: Vec<f64>,
    used: Vec<f64>,
    /// By side, of `fair` leaves: what it claims.
    claims: Vec<f64>,
}

/// Services, applications and their policies on one network. Sides are the sending sides of all ports, then the receiving
/// ones.
pub(crate) struct Tree {
    groups: Vec<Group>,
    leaves: Vec<Leaf>,
    /// The group of each leaf.
    group_of: Vec<u32>,
    leaf_of: Vec<Vec<u32>>,
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

/// What is not worth a second turn, as a part of a port.
const DUST: f64 = 1e-9;

/// What decides inside a leaf under this policy.
fn inner(spec: &str) -> Result<Inner, ParamsError> {
    let name = Params::parse(spec)?.name().to_owned();
    match policy::build(spec)? {
        _ if name == "fair" => Ok(Inner::MaxMin(MaxMin::default())),
        AnyPolicy::Blind(policy) if name != "aalo" => Ok(Inner::Blind(policy)),
        AnyPolicy::Sizes(policy) => Ok(Inner::Sizes(policy)),
        AnyPolicy::Blind(_) | AnyPolicy::Tree(_) => Err(ParamsError::Leaf { name }),
    }
}

/// Whether a policy can be that of a leaf: it exists, with these parameters, and sets rates, or is `fair`.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_leaf(spec: &str) -> Result<(), ParamsError> {
    inner(spec).map(|_| ())
}

impl Plan {
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
        let sides = 2 * fabric.ports();
        let leaf = |spec: &String| {
            Ok(Leaf {
                inner: inner(spec)?,
                scope: Scope::new(fabric.clone()),
                decided: Allocation::default(),
                turned: false,
                present: Mask::default(),
                slice: vec![0.0; sides],
                used: vec![0.0; sides],
                claims: vec![f64::INFINITY; sides],
            })
        };
        let leaves = policies.iter().map(leaf).collect::<Result<Vec<Leaf>, TreeError>>()?;
        let group_of = (0..).zip(&groups).flat_map(|(at, group)| group.leaves.clone().map(move |_| at));
        let fair = |leaf: &u32| leaves[*leaf as usize].is_fair();
        let mut turns: Vec<Vec<u32>> = groups.iter().map(|group| group.leaves.clone().collect()).collect();
        turns.iter_mut().for_each(|turns| turns.sort_by_key(fair));
        turns.sort_by_key(|turns| turns.iter().all(fair));
        Ok(Tree {
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
        self.bound_claims(network.fabric().nominal());
        self.divide_sides();
        let dust = DUST * network.fabric().nominal();
        let turns = std::mem::take(&mut self.turns);
        for service in &turns {
            for &leaf in service {
                self.turn(leaf as usize, network, now);
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

impl Leaf {
    fn is_fair(&self) -> bool {
        matches!(self.inner, Inner::MaxMin(_))
    }

    fn sharing(&self) -> Sharing {
        if matches!(self.inner, Inner::Sizes(_)) { Sharing::Remaining } else { Sharing::Equal }
    }

    fn on(&mut self, event: Event, network: &mut Network, now: f64) {
        network.exchange(&mut self.scope);
        match &mut self.inner {
            Inner::Blind(policy) => policy.on(event, &mut View::new(network, now)),
            Inner::Sizes(policy) => policy.on(event, &mut View::new(network, now)),
            Inner::MaxMin(fair) => fair.stale = true,
        }
        network.exchange(&mut self.scope);
    }

    fn wake(&mut self, network: &mut Network, now: f64) -> f64 {
        network.exchange(&mut self.scope);
        let wake = match &mut self.inner {
            Inner::Blind(policy) => policy.wake(&mut View::new(network, now), &self.decided),
            Inner::Sizes(policy) => policy.wake(&mut View::new(network, now), &self.decided),
            Inner::MaxMin(_) => f64::INFINITY,
        };
        network.exchange(&mut self.scope);
        wake
    }

    /// Finds where it has live flows. O(coflows x words of a port mask), and of `fair` leaves, O(flows log flows) if any came or
    /// went.
    fn find(&mut self, network: &Network) {
        let ports = network.fabric().ports();
        self.turned = false;
        self.present.clear();
        for &slot in &self.scope.active {
            let coflow = network.coflow(slot);
            coflow.send_mask().iter().for_each(|port| self.present.insert(port));
            coflow.recv_mask().iter().for_each(|port| self.present.insert(ports + port));
        }
        if let Inner::MaxMin(fair) = &mut self.inner {
            fair.collect(&self.scope.active, network);
        }
    }

    /// Decides over this much of each side, and finds what that uses.
    fn decide(&mut self, offer: &[f64], network: &mut Network, now: f64) {
        self.decided.clear(network.slots());
        self.used.fill(0.0);
        let ports = network.fabric().ports();
        let changed = self.scope.fabric.set(&offer[..ports], &offer[ports..]);
        if let Inner::MaxMin(fair) = &self.inner {
            fair.decide(&self.scope.active, offer, &mut self.decided, &mut self.used);
            self.decided.seal();
            return;
        }
        network.exchange(&mut self.scope);
        match &mut self.inner {
            Inner::Blind(policy) => {
                let mut view = View::new(network, now);
                if changed {
                    policy.on(Event::PortChanged, &mut view);
                }
                policy.schedule(&mut view, &mut self.decided);
            }
            Inner::Sizes(policy) => {
                let mut view = View::new(network, now);
                if changed {
                    policy.on(Event::PortChanged, &mut view);
                }
                policy.schedule(&mut view, &mut self.decided);
                for &slot in view.active() {
                    if let Common::Together(seconds) = self.decided.common(slot) {
                        let loads = view.loads(slot);
                        loads.send().for_each(|(port, bytes)| self.used[port] += bytes / seconds);
                        loads.recv().for_each(|(port, bytes)| self.used[ports + port] += bytes / seconds);
                    }
                }
            }
            Inner::MaxMin(_) => {}
        }
        network.exchange(&mut self.scope);
        self.decided.seal();
        self.count_used(network, ports);
    }

    /// Whether it lacks something that it lent: a flow has less than the slices at both of its ends, and one of them was offered
    /// less than the slice and is full. O(flows), if there is such a side.
    fn is_denied(&self, offer: &[f64], network: &Network, dust: f64) -> bool {
        let under = |side: usize| self.used[side] < self.slice[side] - dust;
        let full = |side: usize| under(side) && self.used[side] >= offer[side] - dust;
        if !self.present.iter().any(full) {
            return false;
        }
        let ports = network.fabric().ports();
        self.scope.active.iter().any(|&slot| {
            let coflow = network.coflow(slot);
            coflow.live_flows().any(|flow| {
                let (src, dst) = coflow.ends_of(flow);
                let [send, recv] = [src as usize, ports + dst as usize];
                under(send) && under(recv) && (full(send) || full(recv))
            })
        })
    }

    /// Adds up what equal and single rates use.
    fn count_used(&mut self, network: &Network, ports: usize) {
        for &slot in &self.scope.active {
            if let Common::Each(rate) = self.decided.common(slot) {
                let coflow = network.coflow(slot);
                for load in coflow.senders() {
                    self.used[load.port as usize] += rate * f64::from(load.live);
                }
                for load in coflow.receivers() {
                    self.used[ports + load.port as usize] += rate * f64::from(load.live);
                }
            }
        }
        for rated in self.decided.flows() {
            let (src, dst) = network.coflow(rated.slot).ends_of(rated.flow);
            self.used[src as usize] += rated.rate;
            self.used[ports + dst as usize] += rated.rate;
        }
    }
}
