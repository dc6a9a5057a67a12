//! The network as the engine knows it now: ports, the coflows under way, and the rates in force.
//!
//! This is the one place where a schedule turns into progress. Between two schedules all rates stand
//! still, so what was sent by any moment, and when the next flow ends, follow from the rates.

use std::ops::Range;

use super::coflow::{Coflow, FlowState, NONE, Sharing};
use super::fabric::Fabric;
use super::workload::{CoflowSpec, Side};
use crate::allocation::{Allocation, Common, FlowRate};
use crate::model::Slot;

/// Why a slot is not vacant.
const VACANT: &str = "slots come from events and from the active coflows, so this one holds a coflow";

/// A flow that ended, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// Its coflow.
    pub slot: Slot,
    /// Its number in [`Coflow`]'s order.
    pub flow: u32,
    /// In seconds.
    pub at: f64,
}

/// A flow with a rate of its own, on top of its coflow's common one.
#[derive(Debug, Clone, Copy)]
struct Own {
    slot: Slot,
    flow: u32,
    rate: f64,
    since: f64,
}

/// What a part of the coflows sees of a network in place of all of it.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) fabric: Fabric,
    /// Its coflows under way, in order of release.
    pub(crate) active: Vec<Slot>,
    /// Its flows whose own rate the last schedule set or changed.
    pub(crate) changed: Vec<(Slot, u32)>,
}

impl Scope {
    /// Nothing under way on this fabric.
    pub(crate) fn new(fabric: Fabric) -> Scope {
        Scope { fabric, active: Vec::new(), changed: Vec::new() }
    }
}

/// Ports, coflows under way, and the rates in force.
#[derive(Debug)]
pub struct Network {
    fabric: Fabric,
    sharing: Sharing,
    slots: Vec<Option<Coflow>>,
    vacant: Vec<Slot>,
    active: Vec<Slot>,
    released: u64,
    /// Flows with rates of their own; entries without a coflow are vacant.
    own: Vec<Own>,
    /// By entry: when its flow ends; infinite without one.
    own_ends: Vec<f64>,
    own_vacant: Vec<u32>,
    /// By entry: its position in the schedule in force.
    places: Vec<u32>,
    /// When the next of them ends; perhaps too early by one that was taken out.
    own_next: f64,
    /// By slot: how many such flows there are.
    own_count: Vec<u32>,
    /// Their rates in the order of the schedule in force; those without a coflow are over.
    rated: Vec<FlowRate>,
    /// Their entries in the same order, and those of the schedule before.
    order: Vec<u32>,
    order_before: Vec<u32>,
    /// Places of the schedule before that the one that is put in force did not come to in turn.
    passed_over: Vec<Range<usize>>,
    /// Flows whose own rate the last schedule set or changed.
    changed: Vec<(Slot, u32)>,
    /// Whether the last schedule changed the common rate of a coflow with such flows.
    common_under_own: bool,
}

impl Network {
    /// An idle network; `sharing` is [`Sharing::Remaining`] if that is how any of its coflows is counted.
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

    /// The ports.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The coflows under way, in order of release.
    pub fn active(&self) -> &[Slot] {
        &self.active
    }

    /// The coflow in a slot.
    ///
    /// # Panics
    /// If the slot is vacant, which is a bug of the caller: slots come from [`Network::active`] and from events.
    pub fn coflow(&self, slot: Slot) -> &Coflow {
        self.slots[slot as usize].as_ref().expect(VACANT)
    }

    /// The coflow in a slot, if it holds one.
    pub fn get(&self, slot: Slot) -> Option<&Coflow> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn coflow_mut(&mut self, slot: Slot) -> &mut Coflow {
        self.slots[slot as usize].as_mut().expect(VACANT)
    }

    /// One more than the highest slot in use.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Bytes a flow has sent until `now`.
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

    /// The rate of a live flow, in bytes per second.
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

    // What changes.

    /// Puts the scope in the place of the whole, and the other way round. O(1).
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

    /// Lets live flows that would have ended by `now` have `left` bytes to go; says which. They lose their rates until the next
    /// schedule.
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
            // Measured before the level moves: once it has run out, what the others have left cannot be told from it.
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

    /// Sets what a waiting flow has sent.
    pub(crate) fn set_sent(&mut self, slot: Slot, flow: u32, bytes: f64) {
        self.coflow_mut(slot).set_sent(flow, bytes);
    }

    /// Sets the size of a waiting flow.
    pub(crate) fn resize(&mut self, slot: Slot, flow: u32, bytes: f64) {
        self.coflow_mut(slot).resize(flow, bytes);
    }

    /// Gives a coflow, of which no flow is live, other flows: those of `spec`. Of those that both have in the same place of their
    /// specifications, what was sent stays, if their ends do. O(flows log flows).
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

    /// Folds what a flow was sent at a rate of its own into its base.
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

    // Schedules.

    /// Brings what a policy may ask for up to `now`. O(flows with a rate of their own), where sizes are known.
    pub(crate) fn begin(&mut self, now: f64) {
        if self.sharing == Sharing::Equal {
            return;
        }
        let Network { order, own, slots, .. } = self;
        // Entries of one coflow follow each other: its level is asked for once.
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

    /// Puts a schedule's rates in force at `now`. O(coflows + flows with a rate of their own, before and after).
    ///
    /// # Panics
    /// If the schedule asks for rates by remaining bytes where nobody knows sizes.
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

    /// O(flows with a rate of their own), in four parts, so that the comparisons need not wait for each other.
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

    /// Finds when each flow with a rate of its own ends. Those of coflows that are counted by what they have left were folded at
    /// `now`.
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

    /// From one schedule to the next most flows stay what they were, in the same order: comparing the two finds those without a look
    /// at the flows.
    fn apply_own(&mut self, allocation: &Allocation, now: f64) {
        std::mem::swap(&mut self.order, &mut self.order_before);
        let (kept, flows) = (allocation.kept(), allocation.flows());
        self.order.clear();
        self.order.extend_from_slice(&self.order_before[..kept]);
        // The place in the schedule before that is compared next, and how many of its places were seen. Those that were passed over
        // without being the one that was looked for are asked for in the end.
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
        // A flow with a rate of its own is no longer one of those that only the level moves.
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

    /// When the next flow ends at the rates in force; infinite if none does.
    pub(crate) fn next_end(&mut self) -> f64 {
        let mut next = f64::INFINITY;
        for i in 0..self.active.len() {
            let slot = self.active[i];
            next = next.min(self.coflow_mut(slot).next_end());
        }
        next.min(self.own_next)
    }

    /// Ends every flow that the rates in force end until `limit`, and says which, in order of time.
    pub(crate) fn run_out(&mut self, limit: f64, ended: &mut Vec<Ended>) {
        let first = ended.len();
        if self.own_next <= limit {
            // Few end at a time: eight at once are asked whether one of them does.
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
                // By rounding, the level may end a flow a moment before its own rate does.
                self.drop_own(slot, done.flow);
            }
        }
        ended[first..].sort_by(|a, b| a.at.total_cmp(&b.at));
    }

    // What a policy may ask for; see `view`.

    /// The flows whose own rate the last schedule set or changed.
    pub(crate) fn changed(&self) -> &[(Slot, u32)] {
        &self.changed
    }

    /// The most that any flow has sent until `now`. O(flows with rates of their own) if the coflow has some.
    pub(super) fn furthest(&mut self, slot: Slot, now: f64) -> f64 {
        let own = self
            .fold_entries(slot, 0.0, |furthest, own| f64::max(furthest, self.attained(slot, own.flow, now)));
        let coflow = self.coflow_mut(slot);
        let level = coflow.level(now);
        let live = coflow.highest().map_or(0.0, |base| base + level);
        live.max(own).max(coflow.longest_done()).max(coflow.longest_held())
    }

    /// What all flows have sent until `now`. O(flows with rates of their own) if the coflow has some.
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

    /// The least that any flow that is not done has sent until `now`, and the rate at which that flow sends.
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
