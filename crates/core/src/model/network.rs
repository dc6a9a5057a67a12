//! The network state of the engine: ports, active coflows, and applied rates.
//!
//! This module is the only one that turns schedules into progress. Rates are constant between two schedules, so the
//! bytes sent by any time and the next completion follow from the rates.

use std::ops::Range;

use super::coflow::{Coflow, FlowState, NONE, Sharing};
use super::fabric::Fabric;
use super::workload::{CoflowSpec, Side};
use crate::allocation::{Allocation, Common, FlowRate};
use crate::model::Slot;

/// Why a slot is expected to hold a coflow.
const VACANT: &str = "slots come from events and from the active coflows, so this one holds a coflow";

/// A completed flow, and the time of its completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// Slot of the coflow.
    pub slot: Slot,
    /// Number of the flow, in the order of [`Coflow`].
    pub flow: u32,
    /// Time in seconds.
    pub at: f64,
}

/// A flow with its own rate, which adds to the common rate of its coflow.
#[derive(Debug, Clone, Copy)]
struct Own {
    slot: Slot,
    flow: u32,
    rate: f64,
    since: f64,
}

/// The fabric and the coflows of one leaf of a policy tree, which replace those of the network while the leaf
/// decides.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) fabric: Fabric,
    /// Active coflows of the leaf, in order of release.
    pub(crate) active: Vec<Slot>,
    /// Flows of the leaf whose own rate the last schedule set or changed.
    pub(crate) changed: Vec<(Slot, u32)>,
}

impl Scope {
    /// Creates a scope without coflows.
    pub(crate) fn new(fabric: Fabric) -> Scope {
        Scope { fabric, active: Vec::new(), changed: Vec::new() }
    }
}

/// Ports, active coflows, and the applied rates.
#[derive(Debug)]
pub struct Network {
    fabric: Fabric,
    sharing: Sharing,
    slots: Vec<Option<Coflow>>,
    vacant: Vec<Slot>,
    active: Vec<Slot>,
    released: u64,
    /// Flows with own rates. Entries without a coflow are vacant.
    own: Vec<Own>,
    /// By entry: time of the flow's completion; infinite for vacant entries.
    own_ends: Vec<f64>,
    own_vacant: Vec<u32>,
    /// By entry: position in the applied schedule.
    places: Vec<u32>,
    /// Time of the next completion of these flows. May be too early if a flow was removed.
    own_next: f64,
    /// By slot: number of flows with own rates.
    own_count: Vec<u32>,
    /// Own rates in the order of the applied schedule. Entries without a coflow no longer apply.
    rated: Vec<FlowRate>,
    /// Entries in the order of the applied schedule, and of the previous one.
    order: Vec<u32>,
    order_before: Vec<u32>,
    /// Ranges of the previous schedule that the comparison with the new schedule skipped.
    passed_over: Vec<Range<usize>>,
    /// Flows whose own rate the last schedule set or changed.
    changed: Vec<(Slot, u32)>,
    /// Whether the last schedule changed the common rate of a coflow that contains flows with own rates.
    common_under_own: bool,
}

impl Network {
    /// Creates an idle network. `sharing` is [`Sharing::Remaining`] if any coflow uses it.
    pub(crate) fn new(fabric: Fabric, sharing: Sharing) -> Network {
        Network {
            fabric,
            sharing,
            slots: Vec::new(),
            vacant: Vec::new(),
            active: Vec::new(),
            released: 0,
            own: Vec::new(),
            own_ends: Vec::new(),
            own_vacant: Vec::new(),
            places: Vec::new(),
            own_next: f64::INFINITY,
            own_count: Vec::new(),
            rated: Vec::new(),
            order: Vec::new(),
            order_before: Vec::new(),
            passed_over: Vec::new(),
            changed: Vec::new(),
            common_under_own: false,
        }
    }

    /// The ports and their capacities.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The active coflows, in order of release.
    pub fn active(&self) -> &[Slot] {
        &self.active
    }

    /// The coflow in a slot.
    ///
    /// # Panics
    /// If the slot is vacant. This is a bug in the caller: slots come from [`Network::active`] and from events.
    pub fn coflow(&self, slot: Slot) -> &Coflow {
        self.slots[slot as usize].as_ref().expect(VACANT)
    }

    /// The coflow in a slot; `None` if the slot is vacant.
    pub fn get(&self, slot: Slot) -> Option<&Coflow> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn coflow_mut(&mut self, slot: Slot) -> &mut Coflow {
        self.slots[slot as usize].as_mut().expect(VACANT)
    }

    /// Number of slots: one more than the highest slot that was ever in use.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Bytes that a flow has sent by `now`.
    pub fn attained(&self, slot: Slot, flow: u32, now: f64) -> f64 {
        let coflow = self.coflow(slot);
        let common = coflow.attained(flow, now);
        match (coflow.flows[flow as usize].own, coflow.state(flow)) {
            (NONE, _) | (_, FlowState::Done | FlowState::Waiting) => common,
            (own, FlowState::Live) => {
                let own = &self.own[own as usize];
                common + own.rate * (now - own.since)
            }
        }
    }

    /// The rate of a flow in bytes per second; 0 unless the flow is live.
    pub fn rate(&self, slot: Slot, flow: u32) -> f64 {
        let coflow = self.coflow(slot);
        let f = &coflow.flows[flow as usize];
        if f.state != FlowState::Live {
            return 0.0;
        }
        let own = if f.own == NONE { 0.0 } else { self.own[f.own as usize].rate };
        own + match coflow.sharing {
            Sharing::Equal => coflow.slope(),
            Sharing::Remaining => -coflow.slope() * f.base,
        }
    }

    // Changes of the network.

    /// Exchanges fabric, active coflows and changed flows with those of the scope. O(1).
    pub(crate) fn exchange(&mut self, scope: &mut Scope) {
        std::mem::swap(&mut self.fabric, &mut scope.fabric);
        std::mem::swap(&mut self.active, &mut scope.active);
        std::mem::swap(&mut self.changed, &mut scope.changed);
    }

    pub(crate) fn insert(&mut self, spec: &CoflowSpec, index: usize, now: f64, sharing: Sharing) -> Slot {
        let ports = self.fabric.ports();
        let coflow = Coflow::new(spec, index, self.released, now, ports, sharing);
        self.released += 1;
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(coflow);
                slot
            }
            None => {
                self.slots.push(Some(coflow));
                self.own_count.push(0);
                self.slots.len() as Slot - 1
            }
        };
        self.active.push(slot);
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        self.slots[slot as usize] = None;
        self.vacant.push(slot);
        self.active.retain(|&s| s != slot);
        debug_assert_eq!(self.own_count[slot as usize], 0, "its flows are done");
    }

    pub(crate) fn release(&mut self, slot: Slot, flow: u32, now: f64) {
        self.coflow_mut(slot).release(flow, now);
    }

    pub(crate) fn hold(&mut self, slot: Slot, flow: u32, now: f64) {
        self.fold_own(slot, flow, now);
        self.drop_own(slot, flow);
        self.coflow_mut(slot).hold(flow, now);
    }

    /// Corrects live flows that should have completed by `now`: each has `left` bytes to send.
    ///
    /// Returns all live flows of the affected coflows. These flows lose their rates until the next schedule.
    pub(crate) fn overdue(&mut self, left: f64, now: f64) -> Vec<(Slot, u32)> {
        let mut by_own = Vec::new();
        if self.own_next <= now {
            let ended = self.own.iter().zip(&self.own_ends).filter(|(_, end)| **end <= now);
            by_own.extend(ended.map(|(own, _)| own.slot));
        }
        let mut late = Vec::new();
        for i in 0..self.active.len() {
            let slot = self.active[i];
            if self.coflow_mut(slot).next_end() > now && !by_own.contains(&slot) {
                continue;
            }
            let live: Vec<u32> = self.coflow(slot).live_flows().collect();
            // Read the progress before the level restarts: the remaining bytes of the other flows depend on the
            // level.
            let sent: Vec<f64> = live.iter().map(|&flow| self.attained(slot, flow, now)).collect();
            for &flow in &live {
                self.hold(slot, flow, now);
            }
            for (&flow, sent) in live.iter().zip(sent) {
                let size = self.coflow(slot).flows[flow as usize].size;
                let over = sent >= size * (1.0 - 1e-12);
                self.set_sent(slot, flow, if over { (size - left).max(0.0) } else { sent });
                self.release(slot, flow, now);
                late.push((slot, flow));
            }
        }
        late
    }

    /// Sets the bytes that a waiting flow has sent.
    pub(crate) fn set_sent(&mut self, slot: Slot, flow: u32, bytes: f64) {
        self.coflow_mut(slot).set_sent(flow, bytes);
    }

    /// Sets the size of a waiting flow in bytes.
    pub(crate) fn resize(&mut self, slot: Slot, flow: u32, bytes: f64) {
        self.coflow_mut(slot).resize(flow, bytes);
    }

    /// Replaces the flows of a coflow without live flows by those of `spec`.
    ///
    /// A flow at the same position of both specifications keeps its progress if its ends are the same. O(flows log
    /// flows).
    pub(crate) fn respecify(&mut self, slot: Slot, spec: &CoflowSpec, now: f64) {
        let ports = self.fabric.ports();
        let before = self.coflow_mut(slot);
        let mut after = Coflow::new(spec, before.index, before.seq, before.arrival, ports, before.sharing);
        after.inherit(before, now);
        *before = after;
    }

    pub(crate) fn finish(&mut self, slot: Slot, flow: u32) {
        self.drop_own(slot, flow);
        self.coflow_mut(slot).finish(flow);
    }

    pub(crate) fn scale_port(&mut self, port: u32, side: Side, factor: f64) {
        self.fabric.scale(port, side, factor);
    }

    pub(crate) fn report(&mut self, slot: Slot, sent: f64, rate: f64, now: f64) {
        self.coflow_mut(slot).report(sent, rate, now);
    }

    /// Adds the bytes that a flow sent at its own rate to its base.
    fn fold_own(&mut self, slot: Slot, flow: u32, now: f64) {
        let own = self.coflow(slot).flows[flow as usize].own;
        if own == NONE || self.own[own as usize].since == now {
            return;
        }
        let entry = &mut self.own[own as usize];
        let bytes = entry.rate * (now - entry.since);
        entry.since = now;
        self.coflow_mut(slot).fold(flow, bytes, now);
    }

    fn drop_own(&mut self, slot: Slot, flow: u32) {
        let own = self.coflow(slot).flows[flow as usize].own;
        if own == NONE {
            return;
        }
        self.coflow_mut(slot).flows[flow as usize].own = NONE;
        self.own[own as usize].slot = NONE;
        self.rated[self.places[own as usize] as usize].slot = NONE;
        self.own_ends[own as usize] = f64::INFINITY;
        self.own_vacant.push(own);
        self.own_count[slot as usize] -= 1;
    }

    // Application of schedules.

    /// Brings the progress that policies read up to `now`. O(flows with own rates) if sizes are known.
    pub(crate) fn begin(&mut self, now: f64) {
        if self.sharing == Sharing::Equal {
            return;
        }
        let Network { order, own, slots, .. } = self;
        // Entries of one coflow are adjacent, so the level is computed once for each coflow.
        let (mut last, mut per_level) = (NONE, 0.0);
        for &entry in &*order {
            let own = &mut own[entry as usize];
            let Some(Some(coflow)) = slots.get_mut(own.slot as usize) else { continue };
            if coflow.sharing == Sharing::Equal {
                continue;
            }
            if own.slot != last {
                (last, per_level) = (own.slot, 1.0 / coflow.level(now));
            }
            let bytes = own.rate * (now - own.since);
            own.since = now;
            coflow.shrink(own.flow, bytes * per_level);
        }
    }

    /// Applies the rates of a schedule at `now`. O(coflows + flows with own rates, before and after).
    ///
    /// # Panics
    /// If the schedule sets rates by remaining bytes for a coflow without known sizes, or equal rates for a coflow
    /// with known sizes.
    pub(crate) fn apply(&mut self, allocation: &Allocation, now: f64) {
        self.changed.clear();
        self.common_under_own = false;
        self.apply_common(allocation, now);
        self.apply_own(allocation, now);
        if self.sharing == Sharing::Remaining || self.common_under_own {
            self.predict_ends(now);
        } else {
            for i in 0..self.changed.len() {
                let (slot, flow) = self.changed[i];
                self.predict_end(self.coflow(slot).flows[flow as usize].own, now);
            }
        }
        self.find_own_next();
    }

    /// Finds the next completion. O(flows with own rates), in four independent lanes, so that comparisons do not wait
    /// for each other.
    fn find_own_next(&mut self) {
        let mut next = [f64::INFINITY; 4];
        let fours = self.own_ends.chunks_exact(4);
        let rest = fours.remainder().iter().copied().fold(f64::INFINITY, f64::min);
        for four in fours {
            for lane in 0..4 {
                next[lane] = if four[lane] < next[lane] { four[lane] } else { next[lane] };
            }
        }
        self.own_next = next.into_iter().fold(rest, f64::min);
    }

    /// Predicts the completion of each flow with an own rate. Bases of coflows under [`Sharing::Remaining`] are
    /// current at `now`.
    fn predict_ends(&mut self, now: f64) {
        let Network { order, own, own_ends, slots, .. } = self;
        let (mut last, mut level, mut slope) = (NONE, 0.0, 0.0);
        for &entry in &*order {
            let Own { slot, flow, rate, since, .. } = own[entry as usize];
            let coflow = slots[slot as usize].as_ref().expect(VACANT);
            if slot != last {
                (last, level, slope) = (slot, coflow.level(now), coflow.slope());
            }
            let f = &coflow.flows[flow as usize];
            let (left, rate) = match coflow.sharing {
                Sharing::Equal => (f.size - (f.base + level + rate * (now - since)), rate + slope),
                Sharing::Remaining => (f.base * level, rate - slope * f.base),
            };
            own_ends[entry as usize] = now + left.max(0.0) / rate;
        }
    }

    fn predict_end(&mut self, entry: u32, now: f64) {
        let own = self.own[entry as usize];
        let size = self.coflow(own.slot).flows[own.flow as usize].size;
        let left = size - self.attained(own.slot, own.flow, now);
        let rate = self.rate(own.slot, own.flow);
        self.own_ends[entry as usize] = now + left.max(0.0) / rate;
    }

    fn apply_common(&mut self, allocation: &Allocation, now: f64) {
        for i in 0..self.active.len() {
            let slot = self.active[i];
            let common = allocation.common(slot);
            let coflow = self.coflow_mut(slot);
            let slope = match (common, coflow.sharing) {
                (Common::None, _) => 0.0,
                (Common::Each(rate), Sharing::Equal) => rate,
                (Common::Together(seconds), Sharing::Remaining) => -coflow.level(now) / seconds,
                (Common::Together(_), Sharing::Equal) | (Common::Each(_), Sharing::Remaining) => {
                    unreachable!(
                        "a policy that knows sizes sets `Common::Together`, one that does not sets `Common::Each`"
                    )
                }
            };
            if slope != coflow.slope() || slope < 0.0 {
                coflow.set_slope(slope, now);
                self.common_under_own |= self.own_count[slot as usize] > 0;
            }
        }
    }

    /// Applies the own rates of flows.
    ///
    /// Most flows keep their rates and their order from one schedule to the next. A comparison of the two schedules
    /// finds such flows without access to the flows.
    fn apply_own(&mut self, allocation: &Allocation, now: f64) {
        std::mem::swap(&mut self.order, &mut self.order_before);
        let (kept, flows) = (allocation.kept(), allocation.flows());
        self.order.clear();
        self.order.extend_from_slice(&self.order_before[..kept]);
        // `next` is the position of the previous schedule to compare next, and `seen` the number of positions
        // reached. Positions that were skipped and never matched are checked at the end.
        let (mut next, mut seen) = (kept, kept);
        self.passed_over.clear();
        for &FlowRate { slot, flow, rate } in &flows[kept..] {
            let place = self.order.len() as u32;
            let same = self.rated.get(next).filter(|before| before.slot == slot && before.flow == flow);
            let (entry, before) = match same {
                Some(before) => (self.order_before[next], before.rate),
                None => match self.coflow(slot).flows[flow as usize].own {
                    NONE => {
                        let entry = self.new_own(Own { slot, flow, rate, since: now });
                        self.places[entry as usize] = place;
                        self.order.push(entry);
                        continue;
                    }
                    entry => {
                        next = self.places[entry as usize] as usize;
                        (entry, self.own[entry as usize].rate)
                    }
                },
            };
            if next > seen {
                self.passed_over.push(seen..next);
            }
            if next != place as usize {
                self.places[entry as usize] = place;
            }
            next += 1;
            seen = seen.max(next);
            if before != rate {
                self.fold_own(slot, flow, now);
                self.own[entry as usize].rate = rate;
                self.changed.push((slot, flow));
            }
            self.order.push(entry);
        }
        self.passed_over.push(seen..self.order_before.len());
        for i in 0..self.passed_over.len() {
            for before in self.passed_over[i].clone() {
                let FlowRate { slot, flow, .. } = self.rated[before];
                let entry = self.order_before[before];
                if slot != NONE && self.order.get(self.places[entry as usize] as usize) != Some(&entry) {
                    self.fold_own(slot, flow, now);
                    self.drop_own(slot, flow);
                }
            }
        }
        self.rated.truncate(kept);
        self.rated.extend_from_slice(&flows[kept..]);
    }

    fn new_own(&mut self, own: Own) -> u32 {
        let Own { slot, flow, .. } = own;
        // From now on, the level alone no longer moves the flow.
        let coflow = self.coflow_mut(slot);
        if coflow.sharing == Sharing::Equal {
            coflow.touch_first(flow);
        }
        let entry = match self.own_vacant.pop() {
            Some(entry) => {
                self.own[entry as usize] = own;
                entry
            }
            None => {
                self.own.push(own);
                self.own_ends.push(f64::INFINITY);
                self.places.push(NONE);
                self.own.len() as u32 - 1
            }
        };
        self.own_count[slot as usize] += 1;
        self.coflow_mut(slot).flows[flow as usize].own = entry;
        self.changed.push((slot, flow));
        entry
    }

    /// Time of the next completion at the applied rates; infinite if no flow completes.
    pub(crate) fn next_end(&mut self) -> f64 {
        let mut next = f64::INFINITY;
        for i in 0..self.active.len() {
            let slot = self.active[i];
            next = next.min(self.coflow_mut(slot).next_end());
        }
        next.min(self.own_next)
    }

    /// Completes the flows that the applied rates complete by `limit`, and appends them to `ended` in order of time.
    pub(crate) fn run_out(&mut self, limit: f64, ended: &mut Vec<Ended>) {
        let first = ended.len();
        if self.own_next <= limit {
            // Few flows complete at once, so one test covers eight flows.
            for from in (0..self.own.len()).step_by(8) {
                let to = self.own.len().min(from + 8);
                if !self.own_ends[from..to].iter().fold(false, |any, &end| any | (end <= limit)) {
                    continue;
                }
                for i in from..to {
                    let end = self.own_ends[i];
                    if end <= limit {
                        let Own { slot, flow, .. } = self.own[i];
                        self.finish(slot, flow);
                        ended.push(Ended { slot, flow, at: end });
                    }
                }
            }
            self.find_own_next();
        }
        for i in 0..self.active.len() {
            let slot = self.active[i];
            let common = ended.len();
            self.coflow_mut(slot).run_out(limit, |flow, at| ended.push(Ended { slot, flow, at }));
            for done in &ended[common..] {
                // By rounding, the level may complete a flow just before its own rate does.
                self.drop_own(slot, done.flow);
            }
        }
        ended[first..].sort_by(|a, b| a.at.total_cmp(&b.at));
    }

    // Queries of policies; see `view`.

    /// Flows whose own rate the last schedule set or changed.
    pub(crate) fn changed(&self) -> &[(Slot, u32)] {
        &self.changed
    }

    /// The maximum number of bytes that a flow has sent by `now`. O(flows with own rates) if the coflow contains
    /// some.
    pub(super) fn furthest(&mut self, slot: Slot, now: f64) -> f64 {
        let own = self
            .fold_entries(slot, 0.0, |furthest, own| f64::max(furthest, self.attained(slot, own.flow, now)));
        let coflow = self.coflow_mut(slot);
        let level = coflow.level(now);
        let live = coflow.highest().map_or(0.0, |base| base + level);
        live.max(own).max(coflow.longest_done()).max(coflow.longest_held())
    }

    /// The bytes that all flows have sent by `now`. O(flows with own rates) if the coflow contains some.
    pub(super) fn total(&self, slot: Slot, now: f64) -> f64 {
        let own = self.fold_entries(slot, 0.0, |sent, own| sent + own.rate * (now - own.since));
        self.coflow(slot).total(now) + own
    }

    fn fold_entries(&self, slot: Slot, start: f64, fold: impl FnMut(f64, &Own) -> f64) -> f64 {
        if self.own_count[slot as usize] == 0 {
            return start;
        }
        self.own.iter().filter(|own| own.slot == slot).fold(start, fold)
    }

    /// The minimum number of bytes that an incomplete flow has sent by `now`, and the rate of that flow.
    pub(super) fn least(&mut self, slot: Slot, now: f64) -> Option<(f64, f64)> {
        let waiting = self.coflow(slot).least_waiting();
        match (waiting, self.least_live(slot, now)) {
            (Some(sent), Some((least, rate))) if least < sent => Some((least, rate)),
            (Some(sent), _) => Some((sent, 0.0)),
            (None, live) => live,
        }
    }

    fn least_live(&mut self, slot: Slot, now: f64) -> Option<(f64, f64)> {
        loop {
            let coflow = self.coflow_mut(slot);
            let (base, flow) = coflow.lowest()?;
            let sent = base + coflow.level(now);
            let Some(flow) = flow else {
                return Some((sent, coflow.slope()));
            };
            let own = coflow.flows[flow as usize].own;
            if own == NONE || self.own[own as usize].since == now {
                return Some((sent, self.rate(slot, flow)));
            }
            self.fold_own(slot, flow, now);
        }
    }
}
