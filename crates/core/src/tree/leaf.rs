//! A leaf of a policy tree: a policy, its coflows, and its fabric.

use super::maxmin::{Bound, MaxMinLeaf};
use crate::allocation::Allocation;
use crate::model::network::LeafScope;
use crate::model::{BitSet, CommonRateKind, Fabric, FlowState, Network};
use crate::policy::{
    self, AnyPolicy, DecidedBy, Event, LinkService, Params, ParamsError, PolicyError, PolicyObject, Reaction,
    Timing, TrunkSupport,
};

/// The algorithm of a leaf.
pub(super) enum LeafAlgorithm {
    Policy(Box<dyn PolicyObject>),
    MaxMin(MaxMinLeaf),
}

/// An application, or a service as a whole.
pub(super) struct Leaf {
    pub(super) algorithm: LeafAlgorithm,
    /// Fabric, coflows and changed flows of the leaf; exchanged with those of the network while the leaf decides.
    pub(super) scope: LeafScope,
    pub(super) allocation: Allocation,
    decided_at: f64,
    /// Whether the leaf had its turn in this schedule.
    pub(super) had_turn: bool,
    /// Whether capacities have changed in this schedule, so that the policy has updated its state.
    pub(super) has_current_state: bool,
    /// Whether the policy decided in the first turn with the state of an earlier schedule.
    pub(super) used_earlier_state: bool,
    /// Sides with live flows of the leaf.
    pub(super) active_sides: BitSet,
    /// By side: the slice.
    pub(super) slices: Vec<f64>,
    /// By side, for `fair` leaves of mixed trees: the weighted part, which may exceed the claim.
    pub(super) weighted_parts: Vec<f64>,
    pub(super) used_capacity: Vec<f64>,
    /// By side, for `fair` leaves: the claim.
    pub(super) claims: Vec<f64>,
    /// By side, for leaves with a policy in shared queues: the number of live flows. Otherwise empty.
    pub(super) live_flow_counts: Vec<f64>,
}

/// Builds the algorithm of a leaf from the specification of its policy.
fn build_algorithm(spec: &str) -> Result<LeafAlgorithm, ParamsError> {
    let policy = policy::build(spec).map_err(|error| match error {
        ParamsError::UnknownPolicy { name, .. } => {
            ParamsError::UnknownPolicy { name, known: leaf_policies() }
        }
        other => other,
    })?;
    match policy {
        AnyPolicy::Policy(policy) if policy.link_service() == LinkService::MaxMin => {
            Ok(LeafAlgorithm::MaxMin(MaxMinLeaf::default()))
        }
        // A leaf has rates, and no queues.
        AnyPolicy::Policy(policy) if policy.trunk_support() != TrunkSupport::Transport => {
            Ok(LeafAlgorithm::Policy(policy))
        }
        AnyPolicy::Policy(_) | AnyPolicy::Tree(_) => Err(ParamsError::Unsuitable {
            name: Params::parse(spec)?.name().to_owned(),
            purpose: "be a leaf of a policy tree",
            expected: "`fair` or a policy that sets rates".to_owned(),
        }),
    }
}

/// The names of the policies that can be leaves, for messages.
fn leaf_policies() -> String {
    let names = policy::all().map(|entry| entry.name);
    names.filter(|name| build_algorithm(name).is_ok()).collect::<Vec<_>>().join(", ")
}

/// Checks that a policy can be a leaf: its specification is valid, and it shares links max-min or sets rates itself.
///
/// # Errors
/// [`ParamsError`] if the specification is invalid, or [`ParamsError::Unsuitable`] if the policy cannot be a leaf.
pub fn check_leaf_policy(spec: &str) -> Result<(), ParamsError> {
    build_algorithm(spec).map(|_| ())
}

impl Leaf {
    /// Creates a leaf without coflows.
    pub(super) fn new(spec: &str, fabric: &Fabric) -> Result<Leaf, ParamsError> {
        let sides = fabric.links();
        Ok(Leaf {
            algorithm: build_algorithm(spec)?,
            scope: LeafScope::new(fabric.clone()),
            allocation: Allocation::default(),
            decided_at: 0.0,
            had_turn: false,
            has_current_state: false,
            used_earlier_state: false,
            active_sides: BitSet::default(),
            slices: vec![0.0; sides],
            weighted_parts: vec![0.0; sides],
            used_capacity: vec![0.0; sides],
            claims: vec![f64::INFINITY; sides],
            live_flow_counts: Vec::new(),
        })
    }

    pub(super) fn is_fair(&self) -> bool {
        matches!(self.algorithm, LeafAlgorithm::MaxMin(_))
    }

    pub(super) fn timing(&self) -> Timing {
        let timing = match &self.algorithm {
            LeafAlgorithm::Policy(policy) => policy.timing(),
            LeafAlgorithm::MaxMin(_) => Timing::local("TCP has no coordinator"),
        };
        // Hosts do not know the slices of a leaf, so its new coflows wait for the coordinator.
        let start = if timing.hosts_serve_between_schedules() { Reaction::AtInterval } else { timing.start };
        Timing { start, ..timing }
    }

    /// The first invalid decision of the leaf's policy.
    pub(super) fn error(&self) -> Option<&PolicyError> {
        match &self.algorithm {
            LeafAlgorithm::Policy(policy) => policy.error(),
            LeafAlgorithm::MaxMin(_) => None,
        }
    }

    /// Whether the leaf's last decision stays if hosts and switches decide.
    pub(super) fn holds_decision(&self, by: DecidedBy) -> bool {
        by == DecidedBy::Hosts && self.timing().completion == Reaction::AtInterval
    }

    pub(super) fn common_rate_kind(&self) -> CommonRateKind {
        match &self.algorithm {
            LeafAlgorithm::Policy(policy) => policy.common_rate_kind(),
            LeafAlgorithm::MaxMin(_) => CommonRateKind::EqualRates,
        }
    }

    pub(super) fn on_event(&mut self, event: Event, network: &mut Network, now: f64) {
        if let Event::CoflowCompleted(slot) = event {
            // A decision that stays must not give rates to the next coflow in this slot.
            self.allocation.drop_flow_rates(slot);
        }
        network.swap_scope(&mut self.scope);
        match &mut self.algorithm {
            LeafAlgorithm::Policy(policy) => policy.on_event(event, network, now),
            LeafAlgorithm::MaxMin(fair) => fair.stale = true,
        }
        network.swap_scope(&mut self.scope);
    }

    pub(super) fn next_wakeup(&mut self, network: &mut Network, now: f64) -> f64 {
        network.swap_scope(&mut self.scope);
        let wake = match &mut self.algorithm {
            LeafAlgorithm::Policy(policy) => policy.next_wakeup(network, now, &self.allocation),
            LeafAlgorithm::MaxMin(_) => f64::INFINITY,
        };
        network.swap_scope(&mut self.scope);
        wake
    }

    /// Finds the sides with live flows. O(coflows x words of a port mask), and for `fair` leaves O(flows log flows)
    /// if flows changed.
    pub(super) fn find_active_sides(&mut self, network: &Network) {
        self.had_turn = false;
        self.active_sides.clear();
        self.live_flow_counts.fill(0.0);
        for &slot in &self.scope.active_coflows {
            let coflow = network.coflow(slot);
            for load in coflow.links().iter().filter(|load| load.live_flow_count > 0) {
                self.active_sides.insert(load.link as usize);
                if let Some(count) = self.live_flow_counts.get_mut(load.link as usize) {
                    *count += f64::from(load.live_flow_count);
                }
            }
        }
        if let LeafAlgorithm::MaxMin(fair) = &mut self.algorithm {
            fair.collect_flows(&self.scope.active_coflows, network);
        }
    }

    /// Counts live flows from now on, for [`Leaf::add_flow_limits`].
    pub(super) fn count_live_flows(&mut self) {
        if !self.is_fair() {
            self.live_flow_counts = vec![0.0; self.slices.len()];
        }
    }

    /// Appends the number of flows and the limit of a flow at a side to `out`, for each class of flows. The limits of
    /// `fair` leaves are those of `bound`. A leaf with a policy claims all or nothing for all of its flows.
    pub(super) fn add_flow_limits(&self, side: usize, bound: Option<Bound>, out: &mut Vec<(f64, f64)>) {
        match &self.algorithm {
            LeafAlgorithm::MaxMin(fair) => fair.add_limits(side, bound, out),
            _ => out.push((self.live_flow_counts[side], self.claims[side])),
        }
    }

    /// Continues the last decision, and computes the capacity that its live flows use.
    pub(super) fn hold_decision(&mut self, network: &mut Network, now: f64) {
        let is_live = |slot, flow| network.coflow(slot).flow_state(flow) == FlowState::Live;
        self.allocation.continue_decision(now - self.decided_at, is_live);
        self.decided_at = now;
        self.compute_used_capacity(network, now);
    }

    /// Decides over the offered capacity of each side, and computes the used capacity.
    pub(super) fn decide(&mut self, offered: &[f64], by: DecidedBy, network: &mut Network, now: f64) {
        self.decided_at = now;
        self.allocation.start_decision(network.slots());
        let changed = self.scope.fabric.set_capacities(offered);
        self.has_current_state |= changed;
        if !self.had_turn {
            self.used_earlier_state = !self.has_current_state;
        }
        if changed {
            let fraction =
                |(offered, &capacity): (&f64, &f64)| if capacity > 0.0 { offered / capacity } else { 1.0 };
            let fractions = offered.iter().zip(network.fabric().capacities()).map(fraction);
            self.scope.link_fractions.clear();
            self.scope.link_fractions.extend(fractions);
        }
        if let LeafAlgorithm::MaxMin(fair) = &self.algorithm {
            self.used_capacity.fill(0.0);
            fair.compute_rates(
                &self.scope.active_coflows,
                offered,
                &mut self.allocation,
                &mut self.used_capacity,
            );
            self.allocation.drop_unkept_flows();
            return;
        }
        network.swap_scope(&mut self.scope);
        if let LeafAlgorithm::Policy(policy) = &mut self.algorithm {
            if changed {
                policy.on_event(Event::CapacityChanged, network, now);
            }
            policy.decide(by, network, now, &mut self.allocation);
        }
        network.swap_scope(&mut self.scope);
        self.allocation.drop_unkept_flows();
        self.compute_used_capacity(network, now);
    }

    /// Whether the leaf lacks bandwidth that other leaves or its own flows use.
    ///
    /// This is the case if the leaf uses less than its slice or weighted part of every link of a flow, and one of these
    /// links is full. Its part of a link that is not divided is the offer. O(flows) if such a link exists.
    pub(super) fn is_denied(&self, offered: &[f64], network: &Network, dust: f64) -> bool {
        let fabric = network.fabric();
        let share = |side: usize| match fabric.contended_links().contains(side) {
            true => self.slices[side].max(self.weighted_parts[side]),
            false => offered[side],
        };
        let is_below_share = |side: usize| self.used_capacity[side] < share(side) - dust;
        let is_full = |side: usize| is_below_share(side) && self.used_capacity[side] >= offered[side] - dust;
        if !self.active_sides.iter().any(is_full) {
            return false;
        }
        self.scope.active_coflows.iter().any(|&slot| {
            let coflow = network.coflow(slot);
            coflow.live_flows().any(|flow| {
                let mut links = coflow.flow_links(flow);
                links.clone().all(is_below_share) && links.any(is_full)
            })
        })
    }

    /// Computes the capacity that the leaf's decision uses of each side.
    fn compute_used_capacity(&mut self, network: &Network, now: f64) {
        let used = &mut self.used_capacity;
        used.fill(0.0);
        let add = |_, link: usize, rate: f64| used[link] += rate;
        self.allocation.visit_link_rates(&self.scope.active_coflows, network, now, add);
    }
}
