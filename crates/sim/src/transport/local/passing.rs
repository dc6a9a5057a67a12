//! Reassigns the senders' capacity that overloaded receivers do not accept.

use weir_core::model::{Network, Slot};
use weir_core::solve::Residual;

use super::{Local, NONE};

/// Flows with reassigned capacity.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// Entries by number. Entries of flows that no longer have reassigned capacity are vacant.
    entries: Vec<Passed>,
    vacant: Vec<u32>,
    /// The entries of the last `settle`, in order; entries of flows that have ended since are vacant.
    numbers: Vec<u32>,
    /// The end of the first of the flows, if none is removed before.
    next: f64,
    /// Number of calls of `settle`.
    settling: u64,
    residual: Residual,
    given: Vec<(Slot, u32, f64)>,
    spare: Vec<u32>,
}

/// A flow with reassigned capacity.
#[derive(Debug, Clone, Copy)]
struct Passed {
    /// The slot, or [`NONE`] if the entry is vacant.
    slot: Slot,
    flow: u32,
    /// The flow's group.
    group: u32,
    rate: f64,
    /// The reassigned rate plus the group's rate.
    total: f64,
    /// The time from which reassigned bytes are not included in the flow's `end` yet.
    since: f64,
    settling: u64,
    end: f64,
}

impl Passing {
    /// The reassigned rate of an entry; 0 for [`NONE`].
    pub fn rate(&self, number: u32) -> f64 {
        self.entries.get(number as usize).map_or(0.0, |passed| passed.rate)
    }

    /// The reassigned bytes of an entry until `now` that are not included in its flow's `end` yet; 0 for [`NONE`].
    pub fn got(&self, number: u32, now: f64) -> f64 {
        self.entries.get(number as usize).map_or(0.0, |passed| passed.rate * (now - passed.since))
    }

    /// Returns the same bytes, and marks them as included in the flow's `end`.
    fn take(&mut self, number: u32, now: f64) -> f64 {
        let got = self.got(number, now);
        if let Some(passed) = self.entries.get_mut(number as usize) {
            passed.since = now;
        }
        got
    }

    /// Records that the flow of an entry moved to another group.
    pub fn regroup(&mut self, number: u32, group: u32) {
        if let Some(passed) = self.entries.get_mut(number as usize) {
            passed.group = group;
        }
    }

    /// The end of the first flow with reassigned capacity, or an earlier time if flows were removed since the last `settle`.
    pub fn next_end(&self) -> f64 {
        self.next
    }

    /// The `at`-th flow of the last `settle` with reassigned capacity, and its end; `None` if it has been removed since.
    pub fn end(&self, at: usize) -> Option<(Slot, u32, f64)> {
        let Passed { slot, flow, end, .. } = self.entries[self.numbers[at] as usize];
        (slot != NONE).then_some((slot, flow, end))
    }

    /// The number of flows with reassigned capacity at the last `settle`.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Creates an entry for a flow without one.
    fn add(&mut self, slot: Slot, flow: u32, group: u32, since: f64) -> u32 {
        let fresh = Passed { slot, flow, group, rate: 0.0, total: 0.0, since, settling: 0, end: 0.0 };
        match self.vacant.pop() {
            Some(number) => {
                self.entries[number as usize] = fresh;
                number
            }
            None => {
                self.entries.push(fresh);
                self.entries.len() as u32 - 1
            }
        }
    }

    fn free(&mut self, number: u32) {
        self.entries[number as usize].slot = NONE;
        self.vacant.push(number);
    }
}

impl Local {
    /// Reassigns the residual capacity.
    pub(super) fn pass_on(&mut self, network: &Network) {
        self.passing.settling += 1;
        let settling = self.passing.settling;
        let mut given = std::mem::take(&mut self.passing.given);
        given.clear();
        let residual = &mut self.passing.residual;
        residual.set(network.fabric(), &self.left_send, &self.left_recv);
        for &(_, slot) in &self.order {
            if residual.is_exhausted() {
                break;
            }
            residual.fill(network.coflow(slot), |flow, rate| given.push((slot, flow, rate)));
        }
        self.carry(&mut given, network);
        let spare = std::mem::take(&mut self.passing.spare);
        let before = std::mem::replace(&mut self.passing.numbers, spare);
        let mut known = before.iter();
        let mut next = f64::INFINITY;
        for &(slot, flow, rate) in &given {
            self.coflows[slot as usize].sending += rate;
            let number = self.passed_of(slot, flow, &mut known);
            self.passing.numbers.push(number);
            let passed = &mut self.passing.entries[number as usize];
            let total = rate + self.rates.get(passed.group as usize).copied().unwrap_or(0.0);
            passed.settling = settling;
            if passed.rate != rate {
                self.fold_passed(slot, flow);
                self.passing.entries[number as usize].rate = rate;
            }
            if self.passing.entries[number as usize].total != total {
                let end = self.since + self.left(slot, flow, self.since) / total;
                let passed = &mut self.passing.entries[number as usize];
                (passed.total, passed.end) = (total, end);
            }
            next = next.min(self.passing.entries[number as usize].end);
        }
        self.passing.next = next;
        self.passing.given = given;
        for &number in &before {
            let passed = self.passing.entries[number as usize];
            if passed.slot != NONE && passed.settling != settling {
                let Passed { slot, flow, .. } = passed;
                self.fold_passed(slot, flow);
                self.drop_passed(slot, flow);
                let f = self.coflows[slot as usize].flows[flow as usize];
                let group = f.group as usize;
                if self.groups.get_mut(group).is_some_and(|group| group.enter(f.end, slot, flow)) {
                    self.moved.insert(group);
                }
            }
        }
        self.passing.spare = before;
        self.passing.spare.clear();
    }

    /// Reduces reassigned rates to what receivers carry with so many flows: each flow that did not send before adds one.
    /// O(offers of receivers of reassigned capacity).
    fn carry(&self, given: &mut Vec<(Slot, u32, f64)>, network: &Network) {
        let Some(goodput) = &self.goodput else { return };
        // By receiver: the number of sending flows, and their total rate.
        let mut receivers: Vec<Option<(usize, f64)>> = vec![None; self.ports];
        given.retain_mut(|(slot, flow, rate)| {
            let dst = network.coflow(*slot).ends_of(*flow).1 as usize;
            let offered = || (self.connections(dst), self.offered[dst]);
            let (count, taken) = *receivers[dst].get_or_insert_with(offered);
            let count = count + usize::from(self.base_rate(*slot, *flow) == 0.0);
            let capacity = network.fabric().recv()[dst];
            *rate = rate.min(capacity * goodput.part(count) - taken);
            // A rate in the order of rounding errors counts as 0.
            let sends = *rate > 1e-9 * capacity;
            if sends {
                receivers[dst] = Some((count, taken + *rate));
            }
            sends
        });
    }

    /// The entry of a flow with reassigned capacity. Usually it is the next entry of the last `settle`, which avoids an access
    /// to the flow.
    fn passed_of(&mut self, slot: Slot, flow: u32, known: &mut std::slice::Iter<'_, u32>) -> u32 {
        let over = |number: u32| {
            let passed = &self.passing.entries[number as usize];
            passed.slot == NONE || passed.settling == self.passing.settling
        };
        while known.as_slice().first().is_some_and(|&number| over(number)) {
            known.next();
        }
        let next = known.as_slice().first().copied();
        let is = |number: &u32| {
            let passed = &self.passing.entries[*number as usize];
            passed.slot == slot && passed.flow == flow
        };
        if let Some(number) = next.filter(is) {
            known.next();
            return number;
        }
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        if f.passed == NONE {
            f.passed = self.passing.add(slot, flow, f.group, self.since);
        } else if let Some(at) = known.as_slice().iter().take(8).position(|&next| next == f.passed) {
            // Skip entries of flows that have no reassigned capacity any more.
            known.nth(at);
        }
        f.passed
    }

    /// Includes the bytes reassigned to a flow until now, the time of the last count, in its `end`.
    fn fold_passed(&mut self, slot: Slot, flow: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        f.end -= self.passing.take(f.passed, self.since);
    }

    /// Removes the entry of a flow.
    pub(super) fn drop_passed(&mut self, slot: Slot, flow: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        if f.passed != NONE {
            self.passing.free(std::mem::replace(&mut f.passed, NONE));
        }
    }
}
