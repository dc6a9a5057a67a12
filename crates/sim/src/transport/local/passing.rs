//! What busy receivers do not take, passed on by its senders.

use weir_core::model::{Network, Slot};
use weir_core::solve::Residual;

use super::{Local, NONE};

/// Flows that get something passed on.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// By number; some are vacant, for flows that got something before.
    entries: Vec<Passed>,
    vacant: Vec<u32>,
    /// Who gets something since the last settling, by number; entries of flows that ended since are vacant.
    numbers: Vec<u32>,
    /// When the first of them ends, if nobody leaves before.
    next: f64,
    /// How many settlings there were.
    settling: u64,
    residual: Residual,
    given: Vec<(Slot, u32, f64)>,
    spare: Vec<u32>,
}

/// A flow that gets something passed on.
#[derive(Debug, Clone, Copy)]
struct Passed {
    /// [`NONE`] if the entry is vacant.
    slot: Slot,
    flow: u32,
    /// The flow's.
    group: u32,
    rate: f64,
    /// With that of its group.
    total: f64,
    /// Since when what it got is not in its end yet.
    since: f64,
    settling: u64,
    end: f64,
}

impl Passing {
    /// The rate of an entry, or of none.
    pub fn rate(&self, number: u32) -> f64 {
        self.entries.get(number as usize).map_or(0.0, |passed| passed.rate)
    }

    /// What an entry, or none, got until `now` that is not in its flow's end yet.
    pub fn got(&self, number: u32, now: f64) -> f64 {
        self.entries.get(number as usize).map_or(0.0, |passed| passed.rate * (now - passed.since))
    }

    /// The same, which goes into its flow's end now.
    fn take(&mut self, number: u32, now: f64) -> f64 {
        let got = self.got(number, now);
        if let Some(passed) = self.entries.get_mut(number as usize) {
            passed.since = now;
        }
        got
    }

    /// The flow of an entry goes by another group.
    pub fn regroup(&mut self, number: u32, group: u32) {
        if let Some(passed) = self.entries.get_mut(number as usize) {
            passed.group = group;
        }
    }

    /// When the first flow ends that gets something, or earlier if flows left since the last settling.
    pub fn next_end(&self) -> f64 {
        self.next
    }

    /// The flow that was the `at`-th to get something at the last settling, and when it ends; `None` if it left since.
    pub fn end(&self, at: usize) -> Option<(Slot, u32, f64)> {
        let Passed { slot, flow, end, .. } = self.entries[self.numbers[at] as usize];
        (slot != NONE).then_some((slot, flow, end))
    }

    /// How many flows got something at the last settling.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// An entry for a flow that got nothing before.
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
    /// Passes on what is left.
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

    /// Takes from what is passed on what receivers do not carry of so many flows: each flow that did not send before is one more.
    /// O(offers of receivers that get something).
    fn carry(&self, given: &mut Vec<(Slot, u32, f64)>, network: &Network) {
        let Some(goodput) = &self.goodput else { return };
        // By receiver: how many send, and what they get.
        let mut receivers: Vec<Option<(usize, f64)>> = vec![None; self.ports];
        given.retain_mut(|(slot, flow, rate)| {
            let dst = network.coflow(*slot).ends_of(*flow).1 as usize;
            let offered = || (self.connections(dst), self.offered[dst]);
            let (count, taken) = *receivers[dst].get_or_insert_with(offered);
            let count = count + usize::from(self.base_rate(*slot, *flow) == 0.0);
            let capacity = network.fabric().recv()[dst];
            *rate = rate.min(capacity * goodput.part(count) - taken);
            // Less than rounding leaves is nothing.
            let sends = *rate > 1e-9 * capacity;
            if sends {
                receivers[dst] = Some((count, taken + *rate));
            }
            sends
        });
    }

    /// The entry of a flow that gets something passed on. Mostly that is the next of those of the last settling, which are told without a look
    /// at the flow.
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
            // Some of the next may get nothing any more.
            known.nth(at);
        }
        f.passed
    }

    /// Folds what was passed on to a flow until now, the time of the last count, into its end.
    fn fold_passed(&mut self, slot: Slot, flow: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        f.end -= self.passing.take(f.passed, self.since);
    }

    /// A flow gets nothing passed on any more.
    pub(super) fn drop_passed(&mut self, slot: Slot, flow: u32) {
        let f = &mut self.coflows[slot as usize].flows[flow as usize];
        if f.passed != NONE {
            self.passing.free(std::mem::replace(&mut f.passed, NONE));
        }
    }
}
