//! Who comes first: coflows by what they have left, and so the reducers of each host, and hosts.

use std::cmp::Ordering;

use crate::model::{Mask, Sizes, Slot, View};

/// A host with reducers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// Of the first reducer's coflow.
    rank: u32,
    /// What that reducer has left, in bytes.
    left: f64,
    pub port: u32,
    /// The first reducer's coflow.
    pub first: Slot,
}

/// The order of all reducers, of which only the first of each host is looked for.
#[derive(Debug, Default)]
pub(super) struct Reducers {
    /// By slot: what its coflow has left, in bytes.
    left: Vec<f64>,
    /// Slots of which that may have changed.
    stale: Mask,
    /// Coflows that have something to send, in order: what they have left, order of release, slot.
    order: Vec<(f64, u64, Slot)>,
    /// By slot: its place in that order.
    ranks: Vec<u32>,
    /// By host: the coflow of the first reducer.
    firsts: Vec<Option<Slot>>,
    missing: Mask,
    turns: Vec<Turn>,
}

impl Reducers {
    /// Something was sent of the coflow in a slot, or its flows are others.
    pub(super) fn changed(&mut self, slot: Slot) {
        self.stale.insert(slot as usize);
    }

    /// Coflows in order of what they have left, with its place for each.
    pub(super) fn order(&self) -> impl Iterator<Item = (u32, Slot)> {
        (0..).zip(self.order.iter().map(|&(_, _, slot)| slot))
    }

    pub(super) fn rank(&self, slot: Slot) -> u32 {
        self.ranks[slot as usize]
    }

    /// Hosts with reducers, in the order in which they decide.
    pub(super) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Whether a host has reducers.
    pub(super) fn are_at(&self, port: usize) -> bool {
        self.firsts[port].is_some()
    }

    /// Puts all in order. O(C log C + C P / 64 + P log P) for C coflows and P ports, and the ports of the coflows that changed.
    pub(super) fn look(&mut self, view: &View<'_, Sizes>) {
        self.left.resize(view.slots(), 0.0);
        self.order.clear();
        for &slot in view.active() {
            let coflow = view.coflow(slot);
            if coflow.live() == 0 {
                continue;
            }
            if self.stale.contains(slot as usize) {
                self.stale.remove(slot as usize);
                self.left[slot as usize] = view.left(slot);
            }
            self.order.push((self.left[slot as usize], coflow.seq, slot));
        }
        self.order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.ranks.clear();
        self.ranks.resize(view.slots(), u32::MAX);
        for (rank, &(_, _, slot)) in (0..).zip(&self.order) {
            self.ranks[slot as usize] = rank;
        }
        self.find_firsts(view);
        self.take_turns(view);
    }

    /// Algorithm 2, line 1, of which the first is needed everywhere and the others seldom: each coflow in order is first wherever it
    /// has a reducer and none was before it.
    fn find_firsts(&mut self, view: &View<'_, Sizes>) {
        let (mut firsts, mut missing) = (std::mem::take(&mut self.firsts), std::mem::take(&mut self.missing));
        firsts.clear();
        firsts.resize(view.fabric().ports(), None);
        missing.set_where(view.fabric().recv(), |&capacity| capacity > 0.0);
        for equals in self.equals() {
            for &(_, _, slot) in equals {
                for port in missing.both(view.coflow(slot).recv_mask()) {
                    let first = &mut firsts[port];
                    if first.is_none_or(|other| self.compare(slot, other, port, view).is_lt()) {
                        *first = Some(slot);
                    }
                }
            }
            equals.iter().for_each(|&(_, _, slot)| missing.take_out(view.coflow(slot).recv_mask()));
            if missing.is_empty() {
                break;
            }
        }
        (self.firsts, self.missing) = (firsts, missing);
    }

    fn take_turns(&mut self, view: &View<'_, Sizes>) {
        self.turns.clear();
        for (port, first) in (0..).zip(&self.firsts) {
            let Some(first) = *first else { continue };
            let left = view.loads(first).received_at(port as usize);
            self.turns.push(Turn { rank: self.ranks[first as usize], left, port, first });
        }
        self.turns.sort_unstable_by(|a, b| {
            a.rank.cmp(&b.rank).then(a.left.total_cmp(&b.left)).then(a.port.cmp(&b.port))
        });
    }

    /// Coflows in order, those together that have as much left.
    fn equals(&self) -> impl Iterator<Item = &[(f64, u64, Slot)]> {
        self.order.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq())
    }

    /// Which of two reducers of a host is first: that of the smaller coflow; if these are equal, the smaller reducer; or the earlier.
    pub(super) fn compare(&self, a: Slot, b: Slot, port: usize, view: &View<'_, Sizes>) -> Ordering {
        let left = |slot: Slot| view.loads(slot).received_at(port);
        let coflows = self.left[a as usize].total_cmp(&self.left[b as usize]);
        let equal = || left(a).total_cmp(&left(b)).then(self.rank(a).cmp(&self.rank(b)));
        coflows.then_with(equal)
    }

    /// Asks for the reducers of a host in order, until one is found. O(coflows).
    pub(super) fn find(&self, port: usize, view: &View<'_, Sizes>, mut found: impl FnMut(Slot) -> bool) {
        let is_here = |slot: Slot| view.coflow(slot).recv_mask().contains(port);
        for equals in self.equals() {
            if let &[(_, _, slot)] = equals {
                if is_here(slot) && found(slot) {
                    return;
                }
                continue;
            }
            let here = equals.iter().map(|&(_, _, slot)| slot).filter(|&slot| is_here(slot));
            let mut here: Vec<Slot> = here.collect();
            here.sort_by(|&a, &b| self.compare(a, b, port, view));
            if here.into_iter().any(&mut found) {
                return;
            }
        }
    }
}
