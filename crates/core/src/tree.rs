//! A policy tree: services share every port by weight, the applications of a service share the service's part, and a
//! policy schedules the coflows of each application.
//!
//! No published system combines all levels. The first level is NetShare's (UCSD 2010, section 2: services by weight
//! at every port), the second Saba's (EuroSys '23, section 5.1: applications by the weights of Eq. 2 at every port).
//! The third is any policy of the table.
//!
//! # Algorithm
//!
//! A *leaf* is an application, or a service as a whole. A *side* is the sending or receiving side of a port, or a trunk.
//! Each side is divided between the leaves with live flows there: first between services by weight, then between the
//! leaves of each service, by given weights or by Saba's weights for the applications with flows there. The result is
//! the *slice* of a leaf. The policy of a leaf schedules the leaf's coflows on its own fabric, which has at least the
//! slice at every side, as it would without a tree.
//!
//! - *Turns.* Leaves decide one after the other, service by service. In each service `fair` leaves are last, and
//!   services with only `fair` leaves follow the others. Each leaf gets its slice and the bandwidth that earlier leaves
//!   did not use.
//! - *Second turns.* A leaf that could use bandwidth that became free after its turn decides again: once after its
//!   service, and once after all services. It decides over the bandwidth that it uses and all unused bandwidth. Other
//!   leaves may use its unused bandwidth by then. The leaf keeps its earlier decision if it now *lacks* bandwidth: it
//!   uses less than its slices at both ends of a flow, and one of these ends is full.
//! - *Turns that start again.* A policy may decide by state of an earlier schedule as long as no capacity changes, such as Sincronia's
//!   order. The offer of a second turn changes capacities, which updates the state. If the leaf has to keep its earlier decision then, but
//!   with the new state needs bandwidth that other leaves use by now, all turns start again with the new state.
//! - *Claims.* A `fair` leaf claims only the bandwidth that its flows can get at their other ends. Its slice can
//!   therefore be below its *weighted part*, the division by weight alone. The other leaves share the rest by weight.
//!   Upper and lower bounds of claims converge, as in [`crate::solve::hierarchy`].
//! - *Shared queues.* With limits of Saba's levels or queues, several leaves of a service can share a queue at a side
//!   (section 5.3). The service's part is then divided between queues by weight, and the part of a queue max-min between
//!   all flows in the queue. The flows of a leaf with a policy count as flows without a limit.
//! - *Trunks with spare capacity.* A trunk that the ports behind it cannot exceed is not divided: each leaf may use all
//!   capacity that earlier leaves did not use. Slices of the trunk could limit a leaf below its slices of these ports.
//! - *Open bounds.* If the bounds do not meet and all leaves are `fair`, the algorithm searches a fixed point of the
//!   offers between the bounds. Otherwise, or without a result, the upper bounds are the claims. A tree of `fair`
//!   leaves therefore gets the rates of weighted hierarchical max-min. Several such allocations may exist if the bounds
//!   do not meet.
//! - *Taking back.* `fair` leaves get unused bandwidth of leaves with policies in addition to their claims. A flow that
//!   uses it can take more than was claimed for it at its other end, from another flow there. If the leaf then lacks
//!   bandwidth, measured by its weighted parts, it decides over its slices alone.
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

mod division;
mod leaf;
mod maxmin;
mod queues;
pub(crate) mod spec;
pub(crate) mod weights;

use crate::allocation::Allocation;
use crate::model::{BitSet, CommonRateKind, Fabric, Network, ServiceNames, Slot};
use crate::policy::{self, AnyPolicy, DecidedBy, Event, ParamsError, PolicyError, Reaction, Timing};
use crate::rounding;

use division::divide_by_weight;
use leaf::{Leaf, LeafAlgorithm};
use maxmin::{Bound, MaxMinLeaf};
use queues::{QueueScratch, SideFlows};
use spec::{ServiceLeaves, TreeLayout};
use weights::LeafWeights;

pub use leaf::check_leaf_policy;
pub use spec::{Application, ApplicationSharing, Service, TreeError, TreeLeaf, TreeSpec};

/// Services, applications and their policies on one network. Sides are numbered: sending sides of all ports, then
/// receiving sides.
pub(crate) struct PolicyTree {
    services: Vec<ServiceLeaves>,
    leaves: Vec<Leaf>,
    /// By leaf: its service.
    service_of_leaf: Vec<u32>,
    leaf_by_application: Vec<Vec<u32>>,
    /// Whether the tree contains both `fair` leaves and leaves with policies.
    is_mixed: bool,
    /// By slot: the leaf of its coflow.
    leaf_by_slot: Vec<u32>,
    /// The order of turns, by service. Leaves and services with policies come first.
    turn_order: Vec<Vec<u32>>,
    /// By side: capacity that no leaf uses or has as its slice.
    unused_capacity: Vec<f64>,
    /// Whether leaves can share queues.
    has_shared_queues: bool,
    /// The bounds of the present claims of `fair` leaves; none if claims are infinite.
    claim_bound: Option<Bound>,
    /// Who makes the present decision.
    decided_by: DecidedBy,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    capacities: Vec<f64>,
    offered: Vec<f64>,
    /// Capacities of the leaf's previous decision.
    previous_offer: Vec<f64>,
    /// The sides that leaves divide.
    divided_sides: BitSet,
    leaves_at_side: Vec<u32>,
    positions: Vec<u32>,
    /// Weights of services, and of the leaves of one service.
    service_weights: Vec<f64>,
    leaf_weights: LeafWeights,
    queues: QueueScratch,
    claims: [Vec<f64>; 2],
    rate_parts: [Vec<f64>; 2],
    /// Parts of the leaves in `here`.
    leaf_parts: Vec<f64>,
}

/// A policy decided in its first turn with the state of an earlier schedule, such as an order of coflows. Its state is current now, so
/// the decision differs, and other leaves use bandwidth that it requires.
struct OutdatedState;

/// Maximum number of rounds that tighten the bounds of `fair` leaves.
const MAX_BOUND_ROUNDS: usize = 100;

/// The rounds end when a round leaves at least this part of the distance between the bounds.
const STALL_RATIO: f64 = 0.999;

/// Bandwidth that does not justify another turn, as a part of a port.
const MIN_USEFUL_FRACTION: f64 = 1e-9;

impl TreeSpec {
    /// Checks that the plan covers all services and applications of `names`, with valid weights.
    ///
    /// # Errors
    /// [`TreeError`] for the first service or application that the plan does not cover, or the first invalid weight.
    pub fn check_names(&self, names: &ServiceNames) -> Result<(), TreeError> {
        self.layout(names).map(drop)
    }

    /// The policy of all coflows, if this plan has only one leaf for these names.
    pub(crate) fn single_leaf_policy(&self, names: &ServiceNames) -> Result<Option<AnyPolicy>, TreeError> {
        match &self.layout(names)?.policies[..] {
            [spec] => {
                check_leaf_policy(spec)?;
                Ok(Some(policy::build(spec)?))
            }
            _ => Ok(None),
        }
    }
}

impl PolicyTree {
    pub(crate) fn new(
        spec: &TreeSpec,
        names: &ServiceNames,
        fabric: &Fabric,
    ) -> Result<PolicyTree, TreeError> {
        let TreeLayout { services, policies, leaf_by_application } = spec.layout(names)?;
        let leaves = policies.iter().map(|spec| Leaf::new(spec, fabric));
        let mut leaves = leaves.collect::<Result<Vec<Leaf>, ParamsError>>()?;
        let with_shared_queues =
            || services.iter().filter(|service| service.application_weights.has_shared_queues());
        for leaf in with_shared_queues().flat_map(|service| service.leaves.clone()) {
            leaves[leaf as usize].count_live_flows();
        }
        let service_of_leaf =
            (0..).zip(&services).flat_map(|(at, group)| group.leaves.clone().map(move |_| at));
        let fair = |leaf: &u32| leaves[*leaf as usize].is_fair();
        let mut turns: Vec<Vec<u32>> = services.iter().map(|group| group.leaves.clone().collect()).collect();
        turns.iter_mut().for_each(|turns| turns.sort_by_key(fair));
        turns.sort_by_key(|turns| turns.iter().all(fair));
        let fair_ones = leaves.iter().filter(|leaf| leaf.is_fair()).count();
        Ok(PolicyTree {
            is_mixed: fair_ones > 0 && fair_ones < leaves.len(),
            has_shared_queues: with_shared_queues().count() > 0,
            claim_bound: None,
            service_of_leaf: service_of_leaf.collect(),
            services,
            leaves,
            leaf_by_application,
            leaf_by_slot: Vec::new(),
            turn_order: turns,
            unused_capacity: Vec::new(),
            decided_by: DecidedBy::Coordinator,
            scratch: Scratch::default(),
        })
    }

    /// The sharing of the network: [`CommonRateKind::EqualRates`] if all leaves use it; see [`Network::new`].
    pub(crate) fn common_rate_kind(&self) -> CommonRateKind {
        let is_proportional = self.leaves.iter().any(|leaf| leaf.common_rate_kind().is_proportional());
        if is_proportional { CommonRateKind::ProportionalRates } else { CommonRateKind::EqualRates }
    }

    /// The leaf of an application.
    pub(crate) fn find_leaf(&self, service: u32, application: u32) -> u32 {
        self.leaf_by_application[service as usize][application as usize]
    }

    /// The sharing of a leaf's coflows.
    pub(crate) fn common_rate_kind_of_leaf(&self, leaf: u32) -> CommonRateKind {
        self.leaves[leaf as usize].common_rate_kind()
    }

    /// What happens at once under all leaves together.
    pub(crate) fn timing(&self) -> Timing {
        let leaves = || self.leaves.iter().map(Leaf::timing);
        let has_saba = self.services.iter().any(|service| service.application_weights.is_computed());
        let at_interval = match (has_saba, leaves().all(|timing| timing.is_local())) {
            (false, true) => "",
            (true, true) => "weights",
            (_, false) => "by leaf; weights",
        };
        Timing {
            start: leaves().map(|timing| timing.start).min().unwrap_or(Reaction::AtOnce),
            completion: leaves().map(|timing| timing.completion).min().unwrap_or(Reaction::AtOnce),
            at_interval,
            source: "by leaf; Saba 5 and 6: the controller sets weights at each connection",
        }
    }

    /// What happens at once under a leaf.
    pub(crate) fn timing_of_leaf(&self, leaf: u32) -> Timing {
        self.leaves[leaf as usize].timing()
    }

    /// The slices of a coflow's leaf, by side.
    pub(crate) fn slices(&self, slot: Slot) -> &[f64] {
        &self.leaves[self.leaf_by_slot[slot as usize] as usize].slices
    }

    /// Adds a coflow to a leaf.
    pub(crate) fn add_coflow(&mut self, leaf: u32, slot: Slot) {
        if slot as usize >= self.leaf_by_slot.len() {
            self.leaf_by_slot.resize(slot as usize + 1, 0);
        }
        self.leaf_by_slot[slot as usize] = leaf;
        self.leaves[leaf as usize].scope.active_coflows.push(slot);
    }

    /// Removes a coflow from its leaf.
    pub(crate) fn remove_coflow(&mut self, slot: Slot) {
        let leaf = &mut self.leaves[self.leaf_by_slot[slot as usize] as usize];
        leaf.scope.active_coflows.retain(|&s| s != slot);
    }

    /// Passes an event to the leaf of its coflow, or to all leaves if a port changed.
    pub(crate) fn on_event(&mut self, event: Event, network: &mut Network, now: f64) {
        match event {
            Event::CoflowReleased(slot)
            | Event::FlowLive(slot, _)
            | Event::FlowInterrupted(slot, _)
            | Event::FlowCompleted(slot, _)
            | Event::CoflowCompleted(slot) => {
                self.leaves[self.leaf_by_slot[slot as usize] as usize].on_event(event, network, now);
            }
            Event::CapacityChanged => {
                for leaf in &mut self.leaves {
                    leaf.on_event(event, network, now);
                }
            }
        }
    }

    /// Computes the allocation. The caller clears `out` before.
    ///
    /// O(leaves x (ports x leaves + a schedule of each)). For `fair` leaves also O(flows), and pairs of ports x steps
    /// for each round of their bounds. Turns that start again add as much; each leaf can restart them once.
    pub(crate) fn decide(&mut self, by: DecidedBy, network: &mut Network, now: f64, out: &mut Allocation) {
        self.decided_by = by;
        self.leaves.iter_mut().for_each(|leaf| leaf.has_current_state = false);
        let turns = std::mem::take(&mut self.turn_order);
        loop {
            self.prepare_turns(network, now);
            if self.run_turns(&turns, network, now).is_ok() {
                break;
            }
        }
        self.turn_order = turns;
        for leaf in &self.leaves {
            out.copy_decisions(&leaf.allocation, &leaf.scope.active_coflows);
        }
    }

    /// Computes the slices of all leaves before their first turns.
    fn prepare_turns(&mut self, network: &mut Network, now: f64) {
        self.scratch.capacities.clear();
        self.scratch.capacities.extend_from_slice(network.fabric().capacities());
        self.scratch.divided_sides.copy_from(network.fabric().contended_links());
        for leaf in &mut self.leaves {
            leaf.find_active_sides(network);
            if leaf.holds_decision(self.decided_by) {
                // The other leaves divide the capacity that this leaf does not use.
                leaf.hold_decision(network, now);
                leaf.active_sides.clear();
                for (capacity, used) in self.scratch.capacities.iter_mut().zip(&leaf.used_capacity) {
                    *capacity = (*capacity - used).max(0.0);
                }
            }
        }
        self.compute_weighted_parts();
        self.compute_claims(network.fabric().nominal_rate());
        self.divide_sides();
    }

    /// Runs the turns of all leaves, in this order.
    ///
    /// # Errors
    /// [`OutdatedState`] if all turns have to start again.
    fn run_turns(
        &mut self,
        turns: &[Vec<u32>],
        network: &mut Network,
        now: f64,
    ) -> Result<(), OutdatedState> {
        let min_useful_capacity = MIN_USEFUL_FRACTION * network.fabric().nominal_rate();
        for service in turns {
            for &leaf in service {
                if self.leaves[leaf as usize].holds_decision(self.decided_by) {
                    continue;
                }
                self.run_turn(leaf as usize, network, now);
                self.redo_without_unused(leaf as usize, network, now, min_useful_capacity);
            }
            self.run_second_turns(service, network, now, min_useful_capacity)?;
        }
        turns.iter().try_for_each(|service| self.run_second_turns(service, network, now, min_useful_capacity))
    }

    /// Passes the changed flows of the applied schedule to their leaves.
    pub(crate) fn record_changed_flows(&mut self, network: &Network) {
        for leaf in &mut self.leaves {
            leaf.scope.changed_flows.clear();
        }
        for &(slot, flow) in network.changed_flows() {
            self.leaves[self.leaf_by_slot[slot as usize] as usize].scope.changed_flows.push((slot, flow));
        }
    }

    /// The first invalid decision of the first leaf with one.
    pub(crate) fn error(&self) -> Option<&PolicyError> {
        self.leaves.iter().find_map(Leaf::error)
    }

    pub(crate) fn next_wakeup(&mut self, network: &mut Network, now: f64) -> f64 {
        // Leaves that keep an earlier decision may know coflows that have completed since.
        let by = self.decided_by;
        let decided = self.leaves.iter_mut().filter(|leaf| !leaf.holds_decision(by));
        decided.map(|leaf| leaf.next_wakeup(network, now)).fold(f64::INFINITY, f64::min)
    }

    /// Computes the weighted parts of `fair` leaves in a mixed tree. Without other leaves, all unused bandwidth is
    /// covered by claims.
    fn compute_weighted_parts(&mut self) {
        if !self.is_mixed {
            return;
        }
        self.leaves.iter_mut().for_each(|leaf| leaf.claims.fill(f64::INFINITY));
        self.claim_bound = None;
        self.divide_sides();
        for leaf in self.leaves.iter_mut().filter(|leaf| leaf.is_fair()) {
            leaf.weighted_parts.clone_from(&leaf.slices);
        }
    }

    /// Computes upper bounds of the capacity that `fair` leaves can use of each side.
    fn compute_claims(&mut self, nominal: f64) {
        if !self.leaves.iter().any(Leaf::is_fair) {
            return;
        }
        self.update_fair_leaves(|fair| fair.upper_bounds.fill(f64::INFINITY));
        let mut bound_distance = f64::INFINITY;
        for _ in 0..MAX_BOUND_ROUNDS {
            self.tighten_bound(Bound::Upper, Bound::Lower);
            let before =
                std::mem::replace(&mut bound_distance, self.tighten_bound(Bound::Lower, Bound::Upper));
            if bound_distance <= rounding::BOUNDS * nominal || bound_distance >= STALL_RATIO * before {
                break;
            }
        }
        if bound_distance > rounding::BOUNDS * nominal && self.leaves.iter().all(Leaf::is_fair) {
            self.search_fixed_point(nominal);
        }
        self.set_claims(Bound::Upper, f64::INFINITY);
    }

    /// Searches a fixed point of the offers between bounds that do not meet. Without a result, the upper bounds stay,
    /// because claims must not be too low.
    fn search_fixed_point(&mut self, nominal: f64) {
        self.update_fair_leaves(|fair| {
            fair.saved_upper_bounds.clone_from(&fair.upper_bounds);
            fair.set_bounds_to_mean();
        });
        for _ in 0..5 * MAX_BOUND_ROUNDS {
            if self.tighten_bound(Bound::Upper, Bound::Lower) <= rounding::BOUNDS * nominal {
                return;
            }
            self.update_fair_leaves(MaxMinLeaf::set_bounds_to_mean);
        }
        self.update_fair_leaves(|fair| fair.upper_bounds.clone_from(&fair.saved_upper_bounds));
    }

    fn update_fair_leaves(&mut self, mut change: impl FnMut(&mut MaxMinLeaf)) {
        for leaf in &mut self.leaves {
            if let LeafAlgorithm::MaxMin(fair) = &mut leaf.algorithm {
                change(fair);
            }
        }
    }

    /// Sets the claims of `fair` leaves from a bound, and the claims of other leaves to `others`.
    fn set_claims(&mut self, from: Bound, others: f64) {
        self.claim_bound = Some(from);
        for leaf in &mut self.leaves {
            match &leaf.algorithm {
                LeafAlgorithm::MaxMin(fair) => {
                    for side in leaf.active_sides.iter() {
                        leaf.claims[side] = fair.claimed_capacity(side, from);
                    }
                }
                _ => leaf.claims.fill(others),
            }
        }
    }

    /// Computes one bound of the offers of sides to flows from the other bound. Returns the distance between the two.
    fn tighten_bound(&mut self, from: Bound, to: Bound) -> f64 {
        // A policy may use all of its part, or nothing. Unused parts go to other leaves.
        self.set_claims(from, if to == Bound::Upper { 0.0 } else { f64::INFINITY });
        let mut apart = 0.0;
        for at in 0..self.leaves.len() {
            if !self.leaves[at].is_fair() {
                continue;
            }
            for side in 0..self.scratch.capacities.len() {
                if !self.leaves[at].active_sides.contains(side) {
                    continue;
                }
                // The part of the leaf if it claimed the whole side.
                let claim = std::mem::replace(&mut self.leaves[at].claims[side], f64::INFINITY);
                self.divide_side(side);
                self.leaves[at].claims[side] = claim;
                let level = self.max_flow_rate(at, side, from);
                let LeafAlgorithm::MaxMin(fair) = &mut self.leaves[at].algorithm else { continue };
                match to {
                    Bound::Upper => fair.upper_bounds[side] = level,
                    Bound::Lower => fair.lower_bounds[side] = level,
                }
                apart = f64::max(apart, (fair.upper_bounds[side] - fair.lower_bounds[side]).abs());
            }
        }
        apart
    }

    /// The maximum rate of a flow of a `fair` leaf at a side, after [`PolicyTree::divide_side`] with the claim of the whole
    /// side for this leaf.
    fn max_flow_rate(&self, leaf: usize, side: usize, bound: Bound) -> f64 {
        let Scratch { leaves_at_side, leaf_parts, divided_sides, queues, .. } = &self.scratch;
        let Some(place) = leaves_at_side.iter().position(|&other| other as usize == leaf) else { return 0.0 };
        if !divided_sides.contains(side) {
            // Ports limit the sum of its flows.
            return leaf_parts[place];
        }
        if self.has_shared_queues {
            let positions: Vec<usize> = queues.positions_in_queue(place).collect();
            if positions.len() > 1 {
                let members: Vec<u32> = positions.iter().map(|&at| leaves_at_side[at]).collect();
                let part = positions.iter().map(|&at| leaf_parts[at]).sum();
                let flows = SideFlows { leaves: &self.leaves, side, bound: Some(bound) };
                return flows.level(&members, part);
            }
        }
        match &self.leaves[leaf].algorithm {
            LeafAlgorithm::MaxMin(fair) => fair.max_flow_rate(side, leaf_parts[place], bound),
            _ => leaf_parts[place],
        }
    }

    /// Computes the slices of all leaves. Sides without leaves, and sides that are not divided, are free.
    fn divide_sides(&mut self) {
        self.unused_capacity.clear();
        for side in 0..self.scratch.capacities.len() {
            self.divide_side(side);
            for leaf in &mut self.leaves {
                leaf.slices[side] = 0.0;
            }
            if self.scratch.leaves_at_side.is_empty() || !self.scratch.divided_sides.contains(side) {
                self.unused_capacity.push(self.scratch.capacities[side]);
                continue;
            }
            self.unused_capacity.push(0.0);
            for (&leaf, &part) in self.scratch.leaves_at_side.iter().zip(&self.scratch.leaf_parts) {
                self.leaves[leaf as usize].slices[side] = part;
            }
        }
    }

    /// Divides a side: writes the leaves with live flows there to `here`, and their parts to `all`. If the side is not
    /// divided, the part of each leaf is the whole side. O(leaves^2) at worst.
    fn divide_side(&mut self, side: usize) {
        let Scratch {
            capacities,
            divided_sides,
            leaves_at_side: here,
            positions,
            service_weights,
            leaf_weights,
            queues,
            claims,
            rate_parts: parts,
            leaf_parts: all,
            ..
        } = &mut self.scratch;
        let leaves = &self.leaves;
        here.clear();
        here.extend(
            (0..leaves.len() as u32).filter(|&leaf| leaves[leaf as usize].active_sides.contains(side)),
        );
        all.clear();
        if !divided_sides.contains(side) {
            all.resize(here.len(), capacities[side]);
            return;
        }
        service_weights.clear();
        queues.clear();
        claims[0].clear();
        let same = |a: &u32, b: &u32| self.service_of_leaf[*a as usize] == self.service_of_leaf[*b as usize];
        for members in here.chunk_by(same) {
            service_weights.push(self.services[self.service_of_leaf[members[0] as usize] as usize].weight);
            claims[0].push(members.iter().map(|&leaf| leaves[leaf as usize].claims[side]).sum());
        }
        if here.is_empty() {
            return;
        }
        let [services, members_of] = parts;
        divide_by_weight(capacities[side], service_weights, &claims[0], services);
        for (members, &part) in here.chunk_by(same).zip(&*services) {
            let group = &mut self.services[self.service_of_leaf[members[0] as usize] as usize];
            positions.clear();
            positions.extend(members.iter().map(|leaf| leaf - group.leaves.start));
            group.application_weights.weights(positions, side, self.decided_by, leaf_weights);
            claims[1].clear();
            claims[1].extend(members.iter().map(|&leaf| leaves[leaf as usize].claims[side]));
            let LeafWeights { weights, queues: queue_by_leaf } = &*leaf_weights;
            if queue_by_leaf.is_empty() {
                if self.has_shared_queues {
                    queues.add_separate_queues(members.len());
                }
                divide_by_weight(part, weights, &claims[1], members_of);
            } else {
                queues.collect_queues(queue_by_leaf, weights, &claims[1]);
                divide_by_weight(part, &queues.weights, &queues.claims, &mut queues.parts);
                let flows = SideFlows { leaves, side, bound: self.claim_bound };
                queues.divide_queues(flows, members, queue_by_leaf, members_of);
            }
            all.extend_from_slice(members_of);
        }
    }

    /// Lets a `fair` leaf decide over its slices alone, if unused bandwidth of other leaves made the leaf worse off.
    ///
    /// A flow that gets more of this bandwidth than was claimed for it takes bandwidth from another flow at its other
    /// end.
    fn redo_without_unused(&mut self, leaf: usize, network: &mut Network, now: f64, dust: f64) {
        if self.is_mixed
            && self.leaves[leaf].is_fair()
            && self.leaves[leaf].is_denied(&self.scratch.offered, network, dust)
        {
            self.scratch.offered.clone_from(&self.leaves[leaf].slices);
            self.decide_leaf(leaf, network, now);
        }
    }

    /// Lets the leaves decide again that can use more bandwidth.
    ///
    /// # Errors
    /// [`OutdatedState`] if a leaf has to keep its earlier decision, but cannot repeat it.
    fn run_second_turns(
        &mut self,
        leaves: &[u32],
        network: &mut Network,
        now: f64,
        dust: f64,
    ) -> Result<(), OutdatedState> {
        for &leaf in leaves {
            let leaf = leaf as usize;
            if self.leaves[leaf].holds_decision(self.decided_by) || !self.can_use_more(leaf, network, dust) {
                continue;
            }
            self.scratch.previous_offer.clear();
            self.scratch.previous_offer.extend_from_slice(self.leaves[leaf].scope.fabric.capacities());
            self.run_turn(leaf, network, now);
            if self.leaves[leaf].is_denied(&self.scratch.offered, network, dust) {
                // The leaf lacks bandwidth that it did not use before. Its earlier decision holds.
                std::mem::swap(&mut self.scratch.offered, &mut self.scratch.previous_offer);
                self.decide_leaf(leaf, network, now);
                if self.unused_capacity.iter().any(|free| *free < -dust) {
                    // A policy with state decided differently this time, and the required bandwidth is taken.
                    if self.leaves[leaf].used_earlier_state {
                        return Err(OutdatedState);
                    }
                    std::mem::swap(&mut self.scratch.offered, &mut self.scratch.previous_offer);
                    self.decide_leaf(leaf, network, now);
                }
            }
        }
        Ok(())
    }

    /// Whether a leaf could use bandwidth that is free now.
    fn can_use_more(&self, at: usize, network: &Network, dust: f64) -> bool {
        let leaf = &self.leaves[at];
        let offer = |side: usize| self.unused_capacity[side] + leaf.used_capacity[side];
        let is_shared =
            |side: usize| leaf.active_sides.contains(side) && self.scratch.divided_sides.contains(side);
        let open = |side: usize| self.unused_capacity[side] > dust;
        let mut before = leaf.scope.fabric.capacities().iter().enumerate();
        let more = before.any(|(side, had)| is_shared(side) && offer(side) > had + dust);
        more && leaf.scope.active_coflows.iter().any(|&slot| network.coflow(slot).reaches(open))
    }

    /// Lets a leaf decide over its slice (in second turns: over the bandwidth that it uses), and all free bandwidth.
    fn run_turn(&mut self, at: usize, network: &mut Network, now: f64) {
        let leaf = &mut self.leaves[at];
        let offer = &mut self.scratch.offered;
        offer.clear();
        for (side, free) in self.unused_capacity.iter().enumerate() {
            let own = if leaf.had_turn { leaf.used_capacity[side] } else { leaf.slices[side] };
            offer.push(if leaf.active_sides.contains(side) {
                own + free.max(0.0)
            } else {
                self.scratch.capacities[side]
            });
        }
        self.decide_leaf(at, network, now);
        self.leaves[at].had_turn = true;
    }

    /// Lets a leaf decide over the current offer: its slice or its used bandwidth, and free bandwidth.
    fn decide_leaf(&mut self, at: usize, network: &mut Network, now: f64) {
        let leaf = &mut self.leaves[at];
        for (side, free) in self.unused_capacity.iter_mut().enumerate() {
            if leaf.active_sides.contains(side) {
                *free += if leaf.had_turn { leaf.used_capacity[side] } else { leaf.slices[side] };
            }
        }
        leaf.decide(&self.scratch.offered, self.decided_by, network, now);
        for (side, free) in self.unused_capacity.iter_mut().enumerate() {
            if leaf.active_sides.contains(side) {
                *free -= leaf.used_capacity[side];
            }
        }
    }
}
