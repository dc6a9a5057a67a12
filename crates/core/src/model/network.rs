//! The network state of the engine: ports, active coflows, and applied rates.
//!
//! This module is the only one that turns schedules into progress. Rates are constant between two schedules, so the
//! bytes sent by any time and the next completion follow from the rates.

use std::ops::Range;

use super::coflow::{Coflow, CommonRateKind, FlowState, NO_INDEX};
use super::fabric::Fabric;
use super::link_history::LinkHistory;
use super::topology::{CableChange, LinkId};
use super::trunks::Trunks;
use super::workload::{CoflowSpec, PortSide};
use crate::allocation::{Allocation, CommonRate, FlowRate};
use crate::model::Slot;
use crate::rounding;

/// Panic message for a vacant slot.
const SLOT_IN_USE: &str = "slots come from events and from the active coflows, so no slot is vacant here";

/// A completed flow, and the time of its completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompletedFlow {
    /// Slot of the coflow.
    pub slot: Slot,
    /// Number of the flow, in the order of [`Coflow`].
    pub flow: u32,
    /// Time in seconds.
    pub completed_at: f64,
}

/// A flow with its own rate, which adds to the common rate of its coflow.
#[derive(Debug, Clone, Copy)]
struct OwnRate {
    slot: Slot,
    flow: u32,
    rate: f64,
    since: f64,
}

/// The fabric and the coflows of one leaf of a policy tree, which replace those of the network while the leaf
/// decides.
#[derive(Debug)]
pub(crate) struct LeafScope {
    pub(crate) fabric: Fabric,
    /// Active coflows of the leaf, in order of release.
    pub(crate) active_coflows: Vec<Slot>,
    /// Flows of the leaf whose own rate the last schedule set or changed.
    pub(crate) changed_flows: Vec<(Slot, u32)>,
    /// By link: the offered part of the capacity. Empty before the first offer.
    pub(crate) link_fractions: Vec<f64>,
}

impl LeafScope {
    /// Creates a scope without coflows.
    pub(crate) fn new(fabric: Fabric) -> LeafScope {
        LeafScope {
            fabric,
            active_coflows: Vec::new(),
            changed_flows: Vec::new(),
            link_fractions: Vec::new(),
        }
    }
}

/// Ports, active coflows, and the applied rates.
#[derive(Debug)]
pub struct Network {
    fabric: Fabric,
    /// The minimum time between schedules, in seconds.
    interval: f64,
    /// The paths of flows over trunks; none if no flow crosses a trunk.
    routes: Option<Trunks>,
    link_history: LinkHistory,
    /// By link: the part of the capacity that a leaf decides over. Empty outside of leaves.
    link_fractions: Vec<f64>,
    common_rate_kind: CommonRateKind,
    slots: Vec<Option<Coflow>>,
    vacant_slots: Vec<Slot>,
    active_coflows: Vec<Slot>,
    released_count: u64,
    /// Number of layouts of flows so far, of all coflows.
    layout_count: u64,
    /// Flows with own rates. Entries without a coflow are vacant.
    own_rates: Vec<OwnRate>,
    /// By entry: time of the flow's completion; infinite for vacant entries.
    own_completions: Vec<f64>,
    vacant_own_rates: Vec<u32>,
    /// By entry: position in the applied schedule.
    schedule_positions: Vec<u32>,
    /// Time of the next completion of these flows. May be too early if a flow was removed.
    next_own_completion: f64,
    /// By slot: number of flows with own rates.
    own_rate_counts: Vec<u32>,
    /// By slot: whether hosts have served the coflow since the last schedule. May be too short.
    served_by_hosts: Vec<bool>,
    /// Own rates in the order of the applied schedule. Entries without a coflow no longer apply.
    applied_flow_rates: Vec<FlowRate>,
    /// Entries in the order of the applied schedule, and of the previous one.
    schedule_order: Vec<u32>,
    previous_order: Vec<u32>,
    /// Ranges of the previous schedule that the comparison with the new schedule skipped.
    skipped_ranges: Vec<Range<usize>>,
    /// Flows whose own rate the last schedule set or changed.
    changed_flows: Vec<(Slot, u32)>,
    /// Whether the last schedule changed the common rate of a coflow that contains flows with own rates.
    common_changed_under_own: bool,
    /// The time of the last [`Network::update_progress`].
    progress_time: f64,
}

impl Network {
    /// Creates an idle network. `sharing` is [`CommonRateKind::EqualRates`] if all coflows use it.
    pub(crate) fn new(fabric: Fabric, routes: Option<Trunks>, sharing: CommonRateKind) -> Network {
        let measured = routes.as_ref().and_then(Trunks::measured).cloned();
        Network {
            link_history: measured.unwrap_or_else(|| LinkHistory::constant(fabric.capacities())),
            link_fractions: Vec::new(),
            fabric,
            interval: 0.0,
            routes,
            common_rate_kind: sharing,
            slots: Vec::new(),
            vacant_slots: Vec::new(),
            active_coflows: Vec::new(),
            released_count: 0,
            layout_count: 0,
            own_rates: Vec::new(),
            own_completions: Vec::new(),
            vacant_own_rates: Vec::new(),
            schedule_positions: Vec::new(),
            next_own_completion: f64::INFINITY,
            own_rate_counts: Vec::new(),
            served_by_hosts: Vec::new(),
            applied_flow_rates: Vec::new(),
            schedule_order: Vec::new(),
            previous_order: Vec::new(),
            skipped_ranges: Vec::new(),
            changed_flows: Vec::new(),
            common_changed_under_own: false,
            progress_time: 0.0,
        }
    }

    /// Creates a network without ports.
    pub(crate) fn empty() -> Network {
        Network::new(Fabric::from_port_rates(&[]), None, CommonRateKind::EqualRates)
    }

    /// The minimum time between schedules, in seconds; 0: a schedule at every change.
    pub(crate) fn interval(&self) -> f64 {
        self.interval
    }

    pub(crate) fn set_interval(&mut self, seconds: f64) {
        self.interval = seconds;
    }

    /// The links and their capacities.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Past measurements of the links from `Fabric::first_limiting_link` on; their capacities at the start if nothing was measured.
    pub fn link_history(&self) -> &LinkHistory {
        &self.link_history
    }

    pub(crate) fn set_link_history(&mut self, past: &LinkHistory) {
        self.link_history = past.clone();
    }

    /// The part of a link's capacity that the deciding leaf of a policy tree has; 1 without a tree.
    pub(crate) fn link_fraction(&self, link: usize) -> f64 {
        self.link_fractions.get(link).copied().unwrap_or(1.0)
    }

    /// The active coflows, in order of release.
    pub fn active_coflows(&self) -> &[Slot] {
        &self.active_coflows
    }

    /// The coflow in a slot.
    ///
    /// # Panics
    /// If the slot is vacant. This is a bug in the caller: slots come from [`Network::active_coflows`] and from events.
    pub fn coflow(&self, slot: Slot) -> &Coflow {
        self.slots[slot as usize].as_ref().expect(SLOT_IN_USE)
    }

    /// The coflow in a slot; `None` if the slot is vacant.
    pub fn get(&self, slot: Slot) -> Option<&Coflow> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn coflow_mut(&mut self, slot: Slot) -> &mut Coflow {
        self.slots[slot as usize].as_mut().expect(SLOT_IN_USE)
    }

    /// Number of slots: one more than the highest slot that was ever in use.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Bytes that a flow has sent by `now`.
    pub fn sent_bytes(&self, slot: Slot, flow: u32, now: f64) -> f64 {
        let coflow = self.coflow(slot);
        let common = coflow.sent_bytes(flow, now);
        match (coflow.flows[flow as usize].own_rate_index, coflow.flow_state(flow)) {
            (NO_INDEX, _) | (_, FlowState::Completed | FlowState::Waiting) => common,
            (own, FlowState::Live) => {
                let own = &self.own_rates[own as usize];
                common + own.rate * (now - own.since)
            }
        }
    }

    /// Remaining bytes of a live flow, as the policy knows or estimates them, without bytes sent at its own rate since the last fold. Not
    /// for policies without sizes.
    pub fn remaining_bytes(&self, slot: Slot, flow: u32, now: f64) -> f64 {
        self.coflow(slot).remaining_bytes(flow, now)
    }

    /// The rate of a flow in bytes per second; 0 unless the flow is live.
    pub fn rate(&self, slot: Slot, flow: u32) -> f64 {
        let coflow = self.coflow(slot);
        let f = &coflow.flows[flow as usize];
        if f.state != FlowState::Live {
            return 0.0;
        }
        let own =
            if f.own_rate_index == NO_INDEX { 0.0 } else { self.own_rates[f.own_rate_index as usize].rate };
        own + match coflow.common_rate_kind {
            CommonRateKind::EqualRates => coflow.level_slope(),
            CommonRateKind::ProportionalRates | CommonRateKind::EstimatedRates => {
                coflow.rate_per_base() * f.base
            }
        }
    }

    /// The size of a flow in bytes. Policies without size knowledge have no access to it.
    pub(crate) fn flow_size(&self, slot: Slot, flow: u32) -> f64 {
        self.coflow(slot).flows[flow as usize].size
    }

    /// The bytes that a flow has left at `now`. Policies without size knowledge have no access to them.
    pub(crate) fn unsent_bytes(&self, slot: Slot, flow: u32, now: f64) -> f64 {
        (self.flow_size(slot, flow) - self.sent_bytes(slot, flow, now)).max(0.0)
    }

    // Changes of the network.

    /// Exchanges fabric, active coflows, changed flows and fractions of links with those of the scope. O(1).
    pub(crate) fn swap_scope(&mut self, scope: &mut LeafScope) {
        std::mem::swap(&mut self.fabric, &mut scope.fabric);
        std::mem::swap(&mut self.active_coflows, &mut scope.active_coflows);
        std::mem::swap(&mut self.changed_flows, &mut scope.changed_flows);
        std::mem::swap(&mut self.link_fractions, &mut scope.link_fractions);
    }

    pub(crate) fn insert_coflow(
        &mut self,
        spec: &CoflowSpec,
        index: usize,
        now: f64,
        sharing: CommonRateKind,
    ) -> Slot {
        let (seq, estimate) = (self.released_count, self.fabric.default_estimate());
        let links = (&self.fabric, self.routes.as_mut());
        let mut coflow = Coflow::new(spec, index, seq, now, links, sharing, estimate);
        self.released_count += 1;
        self.layout_count += 1;
        coflow.layout = self.layout_count;
        coflow.slot = self.vacant_slots.last().copied().unwrap_or(self.slots.len() as Slot);
        let slot = match self.vacant_slots.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(coflow);
                slot
            }
            None => {
                self.slots.push(Some(coflow));
                self.own_rate_counts.push(0);
                self.slots.len() as Slot - 1
            }
        };
        self.active_coflows.push(slot);
        slot
    }

    /// Sets the number of released coflows, which is the number of the next one.
    pub(crate) fn set_released_count(&mut self, count: u64) {
        self.released_count = count;
    }

    pub(crate) fn remove_coflow(&mut self, slot: Slot) {
        self.slots[slot as usize] = None;
        self.vacant_slots.push(slot);
        self.active_coflows.retain(|&s| s != slot);
        debug_assert_eq!(self.own_rate_counts[slot as usize], 0, "its flows are done");
    }

    pub(crate) fn set_flow_live(&mut self, slot: Slot, flow: u32, now: f64) {
        self.coflow_mut(slot).set_flow_live(flow, now);
    }

    pub(crate) fn set_flow_waiting(&mut self, slot: Slot, flow: u32, now: f64) {
        self.account_own_rate(slot, flow, now);
        self.drop_own_rate(slot, flow);
        self.coflow_mut(slot).set_flow_waiting(flow, now);
    }

    /// Corrects live flows of `slots` that should have completed by `now`: each has `remaining_bytes` bytes to send.
    ///
    /// Returns all live flows of the affected coflows. These flows lose their rates until the next schedule.
    pub(crate) fn correct_overdue_flows(
        &mut self,
        slots: &[Slot],
        remaining_bytes: f64,
        now: f64,
    ) -> Vec<(Slot, u32)> {
        let mut overdue_by_own_rate = Vec::new();
        if self.next_own_completion <= now {
            let ended = self.own_rates.iter().zip(&self.own_completions).filter(|(_, end)| **end <= now);
            overdue_by_own_rate.extend(ended.map(|(own, _)| own.slot));
        }
        let mut corrected = Vec::new();
        for &slot in slots {
            if self.coflow_mut(slot).next_completion() > now && !overdue_by_own_rate.contains(&slot) {
                continue;
            }
            let live: Vec<u32> = self.coflow(slot).live_flows().collect();
            // Read the progress before the level restarts: the remaining bytes of the other flows depend on the
            // level.
            let sent: Vec<f64> = live.iter().map(|&flow| self.sent_bytes(slot, flow, now)).collect();
            for &flow in &live {
                self.set_flow_waiting(slot, flow, now);
            }
            for (&flow, sent) in live.iter().zip(sent) {
                let size = self.coflow(slot).flows[flow as usize].size;
                let is_complete = sent >= size * (1.0 - rounding::PROGRESS);
                self.set_sent_bytes(
                    slot,
                    flow,
                    if is_complete { (size - remaining_bytes).max(0.0) } else { sent },
                );
                self.set_flow_live(slot, flow, now);
                corrected.push((slot, flow));
            }
        }
        corrected
    }

    /// Sets the bytes that a waiting flow has sent.
    pub(crate) fn set_sent_bytes(&mut self, slot: Slot, flow: u32, bytes: f64) {
        self.coflow_mut(slot).set_sent_bytes(flow, bytes);
    }

    /// Sets the bytes that a waiting flow has left. By rounding, they can be 0 just before the completion.
    pub(crate) fn set_remaining_bytes(&mut self, slot: Slot, flow: u32, bytes: f64) {
        let size = self.flow_size(slot, flow);
        self.set_sent_bytes(slot, flow, (size - bytes).min(size.next_down().max(0.0)));
    }

    /// Adds what a live flow has sent in addition by `now`, if it has sent `bytes` bytes in all.
    pub(crate) fn advance_flow(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) {
        let more = bytes - self.sent_bytes(slot, flow, now);
        self.coflow_mut(slot).add_own_bytes(flow, more, now);
    }

    /// Completes a flow that has sent `bytes` bytes.
    pub(crate) fn close_flow(&mut self, slot: Slot, flow: u32, bytes: f64) {
        self.coflow_mut(slot).set_final_size(flow, bytes);
        self.complete_flow(slot, flow);
    }

    /// Replaces the flows of a coflow without live flows by those of `spec`.
    ///
    /// A flow at the same position of both specifications keeps its progress if its ends are the same. O(flows log
    /// flows).
    pub(crate) fn replace_flows(&mut self, slot: Slot, spec: &CoflowSpec, now: f64) {
        let before = self.slots[slot as usize].as_mut().expect(SLOT_IN_USE);
        let mut after = Coflow::new(
            spec,
            before.workload_index,
            before.seq,
            before.released_at,
            (&self.fabric, self.routes.as_mut()),
            before.common_rate_kind,
            before.default_estimate,
        );
        after.copy_progress(before, now);
        self.layout_count += 1;
        (after.slot, after.layout) = (slot, self.layout_count);
        *before = after;
    }

    pub(crate) fn complete_flow(&mut self, slot: Slot, flow: u32) {
        self.drop_own_rate(slot, flow);
        self.coflow_mut(slot).complete_flow(flow);
    }

    pub(crate) fn scale_port(&mut self, port: u32, side: PortSide, factor: f64) {
        self.fabric.scale_port(port, side, factor);
    }

    /// The trunks, and the paths of flows over them.
    pub(crate) fn trunks(&self) -> Option<&Trunks> {
        self.routes.as_ref()
    }

    /// Returns whether the network has trunks.
    pub(crate) fn set_trunk_capacities(&mut self, capacities: &[f64]) -> bool {
        let has_trunks = self.routes.is_some();
        if has_trunks {
            self.fabric.set_trunk_capacities(capacities);
        }
        has_trunks
    }

    /// Changes cables. Returns whether paths of flows may change.
    pub(crate) fn change_cables(&mut self, changes: &[(LinkId, CableChange)]) -> bool {
        let Some(routes) = &mut self.routes else { return false };
        let paths_change = routes.change_cables(changes);
        self.fabric.set_cables(routes);
        paths_change
    }

    /// Sets the rates of the cables of all ports, for sending and for receiving, in bytes per second.
    pub(crate) fn set_cable_rates(&mut self, rates: impl Iterator<Item = (f64, f64)>) {
        self.fabric.set_cable_rates(rates);
    }

    /// Whether an incomplete flow of a coflow would take another path now. O(flows), and the cost of their paths.
    pub(crate) fn has_new_path(&mut self, slot: Slot) -> bool {
        let Some(routes) = &mut self.routes else { return false };
        let coflow = self.slots[slot as usize].as_ref().expect(SLOT_IN_USE);
        let first_trunk = self.fabric.trunk_links().start as u32;
        let mut path = Vec::new();
        (0..coflow.width() as u32).filter(|&flow| coflow.flow_state(flow) != FlowState::Completed).any(
            |flow| {
                let (src, dst) = coflow.flow_ports(flow);
                routes.compute_path(src, dst, coflow.workload_index, coflow.spec_index(flow), &mut path);
                !path.iter().map(|trunk| first_trunk + trunk).eq(coflow.flow_trunks(flow).iter().copied())
            },
        )
    }

    pub(crate) fn record_report(&mut self, slot: Slot, sent_bytes: f64, rate: f64, now: f64) {
        self.coflow_mut(slot).set_last_report(sent_bytes, rate, now);
    }

    /// Adds the bytes that a flow sent at its own rate to its base.
    fn account_own_rate(&mut self, slot: Slot, flow: u32, now: f64) {
        let own = self.coflow(slot).flows[flow as usize].own_rate_index;
        if own == NO_INDEX || self.own_rates[own as usize].since == now {
            return;
        }
        let entry = &mut self.own_rates[own as usize];
        let bytes = entry.rate * (now - entry.since);
        entry.since = now;
        self.coflow_mut(slot).add_own_bytes(flow, bytes, now);
    }

    fn drop_own_rate(&mut self, slot: Slot, flow: u32) {
        let own = self.coflow(slot).flows[flow as usize].own_rate_index;
        if own == NO_INDEX {
            return;
        }
        self.coflow_mut(slot).flows[flow as usize].own_rate_index = NO_INDEX;
        self.own_rates[own as usize].slot = NO_INDEX;
        self.applied_flow_rates[self.schedule_positions[own as usize] as usize].slot = NO_INDEX;
        self.own_completions[own as usize] = f64::INFINITY;
        self.vacant_own_rates.push(own);
        self.own_rate_counts[slot as usize] -= 1;
        let coflow = self.coflow_mut(slot);
        if coflow.common_rate_kind == CommonRateKind::EstimatedRates
            && coflow.flow_state(flow) == FlowState::Live
        {
            coflow.push_completion(flow);
        }
    }

    // Application of schedules.

    /// Brings the progress that policies read up to `now`. O(flows with own rates) if sizes are known.
    pub(crate) fn update_progress(&mut self, now: f64) {
        if self.common_rate_kind == CommonRateKind::EqualRates {
            return;
        }
        self.progress_time = now;
        let Network { schedule_order, own_rates: own, slots, .. } = self;
        // Entries of one coflow are adjacent, so the remaining share is computed once for each coflow.
        let (mut last, mut per_share) = (NO_INDEX, 0.0);
        for &entry in &*schedule_order {
            let own = &mut own[entry as usize];
            let Some(Some(coflow)) = slots.get_mut(own.slot as usize) else { continue };
            if coflow.common_rate_kind == CommonRateKind::EqualRates {
                continue;
            }
            let estimated = coflow.common_rate_kind == CommonRateKind::EstimatedRates;
            if own.slot != last {
                if estimated {
                    coflow.restart_low_share(now);
                }
                (last, per_share) = (own.slot, 1.0 / coflow.remaining_share(now));
            }
            let bytes = own.rate * (now - own.since);
            own.since = now;
            if estimated {
                coflow.reduce_estimated_base(own.flow, bytes * per_share);
            } else {
                coflow.reduce_base(own.flow, bytes * per_share);
            }
        }
    }

    /// Applies the rates of a schedule at `now`. O(coflows + flows with own rates, before and after).
    ///
    /// # Panics
    /// If the schedule sets rates by remaining bytes for a coflow without known sizes, or equal rates for a coflow
    /// with known sizes.
    pub(crate) fn apply_rates(&mut self, allocation: &Allocation, now: f64) {
        self.changed_flows.clear();
        self.common_changed_under_own = false;
        self.apply_common_rates(allocation, now);
        self.apply_own_rates(allocation, now);
        if self.common_rate_kind.is_proportional() || self.common_changed_under_own {
            self.predict_completions(now);
        } else {
            for i in 0..self.changed_flows.len() {
                let (slot, flow) = self.changed_flows[i];
                self.predict_completion(self.coflow(slot).flows[flow as usize].own_rate_index, now);
            }
        }
        self.find_next_own_completion();
    }

    /// Finds the next completion. O(flows with own rates), in four independent lanes, so that comparisons do not wait
    /// for each other.
    fn find_next_own_completion(&mut self) {
        let mut next = [f64::INFINITY; 4];
        let fours = self.own_completions.chunks_exact(4);
        let rest = fours.remainder().iter().copied().fold(f64::INFINITY, f64::min);
        for four in fours {
            for lane in 0..4 {
                next[lane] = if four[lane] < next[lane] { four[lane] } else { next[lane] };
            }
        }
        self.next_own_completion = next.into_iter().fold(rest, f64::min);
    }

    /// Predicts the completion of each flow with an own rate. Bases of coflows whose rates are not equal are current at `now`.
    fn predict_completions(&mut self, now: f64) {
        let Network { schedule_order, own_rates, own_completions, slots, .. } = self;
        let (mut last, mut level, mut slope) = (NO_INDEX, 0.0, 0.0);
        for &entry in &*schedule_order {
            let OwnRate { slot, flow, rate, since, .. } = own_rates[entry as usize];
            let coflow = slots[slot as usize].as_ref().expect(SLOT_IN_USE);
            if slot != last {
                (last, level, slope) = (slot, coflow.level(now), coflow.level_slope());
            }
            let f = &coflow.flows[flow as usize];
            let (left, rate) = match coflow.common_rate_kind {
                CommonRateKind::EqualRates => {
                    (f.size - (f.base + level + rate * (now - since)), rate + slope)
                }
                CommonRateKind::ProportionalRates => (f.base * level, rate - slope * f.base),
                CommonRateKind::EstimatedRates => (f.size - f.estimated_sent(level), rate + slope * f.base),
            };
            own_completions[entry as usize] = now + left.max(0.0) / rate;
        }
    }

    fn predict_completion(&mut self, entry: u32, now: f64) {
        let own = self.own_rates[entry as usize];
        let size = self.coflow(own.slot).flows[own.flow as usize].size;
        let left = size - self.sent_bytes(own.slot, own.flow, now);
        let rate = self.rate(own.slot, own.flow);
        self.own_completions[entry as usize] = now + left.max(0.0) / rate;
    }

    fn apply_common_rates(&mut self, allocation: &Allocation, now: f64) {
        for i in 0..self.active_coflows.len() {
            let slot = self.active_coflows[i];
            let common = allocation.common(slot);
            let coflow = self.coflow_mut(slot);
            let slope = match (common, coflow.common_rate_kind) {
                (CommonRate::None, _) => 0.0,
                (CommonRate::Equal(rate), CommonRateKind::EqualRates) => rate,
                (
                    CommonRate::CompleteTogether(seconds),
                    CommonRateKind::ProportionalRates | CommonRateKind::EstimatedRates,
                ) => coflow.slope_to_complete_in(seconds, now),
                (CommonRate::CompleteTogether(_), CommonRateKind::EqualRates)
                | (
                    CommonRate::Equal(_),
                    CommonRateKind::ProportionalRates | CommonRateKind::EstimatedRates,
                ) => {
                    unreachable!(
                        "a policy with known or estimated flow sizes sets `CommonRate::CompleteTogether`, any other policy `CommonRate::Equal`"
                    )
                }
            };
            let is_proportional = coflow.common_rate_kind.is_proportional();
            if slope != coflow.level_slope() || (is_proportional && slope != 0.0) {
                coflow.set_level_slope(slope, now);
                self.common_changed_under_own |= self.own_rate_counts[slot as usize] > 0;
            }
        }
    }

    /// Applies the own rates of flows.
    ///
    /// Most flows keep their rates and their order from one schedule to the next. A comparison of the two schedules
    /// finds such flows without access to the flows.
    fn apply_own_rates(&mut self, allocation: &Allocation, now: f64) {
        std::mem::swap(&mut self.schedule_order, &mut self.previous_order);
        let (kept, flows) = (allocation.kept_flow_count(), allocation.flow_rates());
        self.schedule_order.clear();
        self.schedule_order.extend_from_slice(&self.previous_order[..kept]);
        // `next` is the position of the previous schedule to compare next, and `seen` the number of positions
        // reached. Positions that were skipped and never matched are checked at the end.
        let (mut next, mut seen) = (kept, kept);
        self.skipped_ranges.clear();
        for &FlowRate { slot, flow, rate } in &flows[kept..] {
            let place = self.schedule_order.len() as u32;
            let same =
                self.applied_flow_rates.get(next).filter(|before| before.slot == slot && before.flow == flow);
            let (entry, before) = match same {
                Some(before) => (self.previous_order[next], before.rate),
                None => match self.coflow(slot).flows[flow as usize].own_rate_index {
                    NO_INDEX => {
                        let entry = self.add_own_rate(OwnRate { slot, flow, rate, since: now });
                        self.schedule_positions[entry as usize] = place;
                        self.schedule_order.push(entry);
                        continue;
                    }
                    entry => {
                        next = self.schedule_positions[entry as usize] as usize;
                        (entry, self.own_rates[entry as usize].rate)
                    }
                },
            };
            if next > seen {
                self.skipped_ranges.push(seen..next);
            }
            if next != place as usize {
                self.schedule_positions[entry as usize] = place;
            }
            next += 1;
            seen = seen.max(next);
            if before != rate {
                if self.own_rates[entry as usize].since != now {
                    self.account_own_rate(slot, flow, now);
                }
                self.own_rates[entry as usize].rate = rate;
                self.changed_flows.push((slot, flow));
            }
            self.schedule_order.push(entry);
        }
        self.skipped_ranges.push(seen..self.previous_order.len());
        for i in 0..self.skipped_ranges.len() {
            for before in self.skipped_ranges[i].clone() {
                let FlowRate { slot, flow, .. } = self.applied_flow_rates[before];
                let entry = self.previous_order[before];
                if slot != NO_INDEX
                    && self.schedule_order.get(self.schedule_positions[entry as usize] as usize)
                        != Some(&entry)
                {
                    self.account_own_rate(slot, flow, now);
                    self.drop_own_rate(slot, flow);
                }
            }
        }
        self.applied_flow_rates.truncate(kept);
        self.applied_flow_rates.extend_from_slice(&flows[kept..]);
    }

    fn add_own_rate(&mut self, own: OwnRate) -> u32 {
        let OwnRate { slot, flow, .. } = own;
        // From now on, the level alone no longer moves the flow.
        let coflow = self.coflow_mut(slot);
        if coflow.common_rate_kind == CommonRateKind::EqualRates {
            coflow.ensure_base_changed(flow);
        }
        let entry = match self.vacant_own_rates.pop() {
            Some(entry) => {
                self.own_rates[entry as usize] = own;
                entry
            }
            None => {
                self.own_rates.push(own);
                self.own_completions.push(f64::INFINITY);
                self.schedule_positions.push(NO_INDEX);
                self.own_rates.len() as u32 - 1
            }
        };
        self.own_rate_counts[slot as usize] += 1;
        self.coflow_mut(slot).flows[flow as usize].own_rate_index = entry;
        self.changed_flows.push((slot, flow));
        entry
    }

    /// Time of the next completion at the applied rates; infinite if no flow completes.
    pub(crate) fn next_completion(&mut self) -> f64 {
        let mut next = f64::INFINITY;
        for i in 0..self.active_coflows.len() {
            let slot = self.active_coflows[i];
            next = next.min(self.coflow_mut(slot).next_completion());
        }
        next.min(self.next_own_completion)
    }

    /// The rates above 0 of the live flows of these coflows. O(flows).
    pub(crate) fn flow_rates(&self, slots: &[Slot]) -> Vec<FlowRate> {
        let flows =
            slots.iter().flat_map(|&slot| self.coflow(slot).live_flows().map(move |flow| (slot, flow)));
        let rates = flows.map(|(slot, flow)| FlowRate { slot, flow, rate: self.rate(slot, flow) });
        rates.filter(|rated| rated.rate > 0.0).collect()
    }

    /// Number of coflows that were released so far; the next one has it as its number.
    pub(crate) fn released_count(&self) -> u64 {
        self.released_count
    }

    /// The active coflows from number `seq` on, in the order of release.
    pub(crate) fn coflows_since(&self, seq: u64) -> &[Slot] {
        let first = self.active_coflows.iter().rposition(|&slot| self.coflow(slot).seq < seq);
        &self.active_coflows[first.map_or(0, |at| at + 1)..]
    }

    /// Whether flows of a coflow have own rates.
    pub(crate) fn has_own_rates(&self, slot: Slot) -> bool {
        self.own_rate_counts.get(slot as usize).is_some_and(|&count| count > 0)
    }

    /// Notes that hosts serve a coflow until the next schedule.
    pub(crate) fn note_host_service(&mut self, slot: Slot) {
        self.served_by_hosts.resize(self.slots.len(), false);
        self.served_by_hosts[slot as usize] = true;
    }

    /// Begins the time after a schedule.
    pub(crate) fn forget_host_service(&mut self) {
        self.served_by_hosts.clear();
    }

    /// Whether hosts have served a coflow since the last schedule.
    pub(crate) fn was_served_by_hosts(&self, slot: Slot) -> bool {
        self.served_by_hosts.get(slot as usize).copied().unwrap_or(false)
    }

    /// The time in seconds until the live flows of a coflow have sent their remaining bytes at their common rates; none without common
    /// rates. Not with equal rates.
    pub(crate) fn common_seconds_left(&self, slot: Slot, now: f64) -> Option<f64> {
        let coflow = self.get(slot)?;
        let rate = coflow.rate_per_base();
        (rate != 0.0).then(|| coflow.remaining_share(now) / rate)
    }

    /// Whether the live flows of a coflow have sent nearly all bytes, or more, of their estimated sizes at their common rates.
    pub(crate) fn has_spent_estimates(&self, slot: Slot, now: f64) -> bool {
        self.coflow(slot).has_low_share(now)
    }

    /// Whether a live flow has sent its estimated size. False if sizes are not estimated.
    pub(crate) fn has_outgrown_estimate(&self, slot: Slot, flow: u32, now: f64) -> bool {
        let coflow = self.coflow(slot);
        coflow.common_rate_kind == CommonRateKind::EstimatedRates
            && coflow.flows[flow as usize].estimate() <= self.sent_bytes(slot, flow, now)
    }

    /// The time of the next completion of a flow of one coflow. O(flows).
    pub(crate) fn next_completion_of(&mut self, slot: Slot) -> f64 {
        let next = self.coflow_mut(slot).next_completion();
        let entries = self.coflow(slot).flows.iter().map(|flow| flow.own_rate_index);
        let ends = entries.filter(|&entry| entry != NO_INDEX).map(|at| self.own_completions[at as usize]);
        ends.fold(next, f64::min)
    }

    /// Completes the flows that the applied rates complete by `until`, and appends them to `completed` in order of time.
    pub(crate) fn complete_flows_until(&mut self, until: f64, completed: &mut Vec<CompletedFlow>) {
        let first = completed.len();
        if self.next_own_completion <= until {
            // Few flows complete at once, so one test covers eight flows.
            for from in (0..self.own_rates.len()).step_by(8) {
                let to = self.own_rates.len().min(from + 8);
                if !self.own_completions[from..to].iter().fold(false, |any, &end| any | (end <= until)) {
                    continue;
                }
                for i in from..to {
                    let end = self.own_completions[i];
                    if end <= until {
                        let OwnRate { slot, flow, .. } = self.own_rates[i];
                        self.complete_flow(slot, flow);
                        completed.push(CompletedFlow { slot, flow, completed_at: end });
                    }
                }
            }
            self.find_next_own_completion();
        }
        for i in 0..self.active_coflows.len() {
            let slot = self.active_coflows[i];
            let common = completed.len();
            self.coflow_mut(slot).complete_flows_until(until, |flow, at| {
                completed.push(CompletedFlow { slot, flow, completed_at: at })
            });
            for done in &completed[common..] {
                // By rounding, the level may complete a flow just before its own rate does.
                self.drop_own_rate(slot, done.flow);
            }
        }
        completed[first..].sort_by(|a, b| a.completed_at.total_cmp(&b.completed_at));
    }

    // Queries of policies; see [`super::view::View`].

    /// Flows whose own rate the last schedule set or changed.
    pub(crate) fn changed_flows(&self) -> &[(Slot, u32)] {
        &self.changed_flows
    }

    /// Sets the estimated sizes of a coflow's live flows; see [`Coflow::set_estimates`].
    pub(super) fn set_estimates(&mut self, slot: Slot, now: f64, estimate: impl FnMut(u32, u32, f64) -> f64) {
        self.coflow_mut(slot).set_estimates(now, estimate);
    }

    /// Raises the estimates of flows that have sent them; see [`Coflow::raise_estimates`].
    pub(super) fn raise_estimates(
        &mut self,
        slot: Slot,
        now: f64,
        estimate: impl FnMut(u32, u32, f64) -> f64,
    ) {
        self.coflow_mut(slot).raise_estimates(now, estimate);
    }

    /// The time until the first of these flows of a coflow has sent its estimate at the applied rates; infinite if none of them sends.
    /// O(flows).
    pub(super) fn time_to_estimated_end(
        &self,
        slot: Slot,
        flows: impl Iterator<Item = u32>,
        now: f64,
    ) -> f64 {
        let coflow = self.coflow(slot);
        let (share, rate_per_base) = (coflow.remaining_share(now), coflow.rate_per_base());
        let times = flows.map(|flow| {
            let f = &coflow.flows[flow as usize];
            let own_rate = match f.own_rate_index {
                _ if f.state != FlowState::Live => return f64::INFINITY,
                NO_INDEX => 0.0,
                index => self.own_rates[index as usize].rate,
            };
            f.base * share / (own_rate + rate_per_base * f.base)
        });
        times.fold(f64::INFINITY, f64::min)
    }

    /// The maximum number of bytes that a flow has sent by `now`. O(flows with own rates) if the coflow contains
    /// some.
    pub(super) fn max_sent_bytes(&mut self, slot: Slot, now: f64) -> f64 {
        let own = self.fold_own_rates(slot, 0.0, |furthest, own| {
            f64::max(furthest, self.sent_bytes(slot, own.flow, now))
        });
        let coflow = self.coflow_mut(slot);
        let level = coflow.level(now);
        let live = coflow.max_base().map_or(0.0, |base| base + level);
        live.max(own).max(coflow.longest_completed_bytes()).max(coflow.max_waiting_sent_bytes())
    }

    /// The bytes that all flows have sent by `now`. The cost is that of [`Coflow::total_sent_bytes`], and O(flows with own rates) if the
    /// coflow contains some whose progress is not current.
    pub(super) fn total_sent_bytes(&self, slot: Slot, now: f64) -> f64 {
        let coflow = self.coflow(slot);
        let is_current = coflow.common_rate_kind.is_proportional() && self.progress_time == now;
        let own = match is_current {
            true => 0.0,
            false => self.fold_own_rates(slot, 0.0, |sent, own| sent + own.rate * (now - own.since)),
        };
        coflow.total_sent_bytes(now) + own
    }

    /// Writes the total applied rate of each coflow to `rates`, by slot. O(slots + flows with own rates), and the cost of
    /// [`Coflow::total_common_rate`] for each active coflow.
    pub(super) fn coflow_rates(&self, rates: &mut Vec<f64>) {
        rates.clear();
        rates.resize(self.slots.len(), 0.0);
        for &entry in &self.schedule_order {
            let OwnRate { slot, rate, .. } = self.own_rates[entry as usize];
            if slot != NO_INDEX {
                rates[slot as usize] += rate;
            }
        }
        for &slot in &self.active_coflows {
            rates[slot as usize] += self.coflow(slot).total_common_rate();
        }
    }

    fn fold_own_rates(&self, slot: Slot, start: f64, fold: impl FnMut(f64, &OwnRate) -> f64) -> f64 {
        if self.own_rate_counts[slot as usize] == 0 {
            return start;
        }
        self.own_rates.iter().filter(|own| own.slot == slot).fold(start, fold)
    }

    /// The minimum number of bytes that an incomplete flow has sent by `now`, and the rate of that flow.
    pub(super) fn min_sent_bytes(&mut self, slot: Slot, now: f64) -> Option<(f64, f64)> {
        let waiting = self.coflow(slot).min_waiting_sent_bytes();
        match (waiting, self.min_live_sent_bytes(slot, now)) {
            (Some(sent), Some((least, rate))) if least < sent => Some((least, rate)),
            (Some(sent), _) => Some((sent, 0.0)),
            (None, live) => live,
        }
    }

    fn min_live_sent_bytes(&mut self, slot: Slot, now: f64) -> Option<(f64, f64)> {
        loop {
            let coflow = self.coflow_mut(slot);
            let (base, flow) = coflow.min_base()?;
            let sent = base + coflow.level(now);
            let Some(flow) = flow else {
                return Some((sent, coflow.level_slope()));
            };
            let own = coflow.flows[flow as usize].own_rate_index;
            if own == NO_INDEX || self.own_rates[own as usize].since == now {
                return Some((sent, self.rate(slot, flow)));
            }
            self.account_own_rate(slot, flow, now);
        }
    }
}
