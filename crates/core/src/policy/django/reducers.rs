//! The order of coflows, of the reducers of each host, and of the hosts, by remaining bytes.

use std::cmp::Ordering;

use crate::model::{Mask, Sizes, Slot, View};

/// A host with reducers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// Rank of the first reducer's coflow.
    rank: u32,
    /// Remaining bytes of that reducer.
    left: f64,
    pub port: u32,
    /// Coflow of the first reducer.
    pub first: Slot,
}

/// The order of all reducers. Only the first reducer of each host is computed in advance.
#[derive(Debug, Default)]
pub(super) struct Reducers {
    /// By slot: remaining bytes of the coflow.
    left: Vec<f64>,
    /// Slots whose remaining bytes may have changed.
    stale: Mask,
    /// Coflows with live flows, sorted: remaining bytes, order of release, slot.
    order: Vec<(f64, u64, Slot)>,
    /// By slot: position in `order`.
    ranks: Vec<u32>,
    /// By host: coflow of the first reducer.
    firsts: Vec<Option<Slot>>,
    missing: Mask,
    turns: Vec<Turn>,
}

impl Reducers {
    /// Marks a coflow that sent bytes, or whose flows changed.
    pub(super) fn changed(&mut self, slot: Slot) {
        self.stale.insert(slot as usize);
    }

    /// Coflows in the order of remaining bytes, each with its position.
    pub(super) fn order(&self) -> impl Iterator<Item = (u32, Slot)> {
        (0..).zip(self.order.iter().map(|&(_, _, slot)| slot))
    }

    pub(super) fn rank(&self, slot: Slot) -> u32 {
        self.ranks[slot as usize]
    }

    /// Hosts with reducers, in the order in which the hosts decide.
    pub(super) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Whether a host has reducers.
    pub(super) fn are_at(&self, port: usize) -> bool {
        self.firsts[port].is_some()
    }

    /// Recomputes the order. O(C log C + C P / 64 + P log P) for C coflows and P ports, and the ports of the coflows
    /// that changed.
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

    /// Algorithm 2, line 1: finds the first reducer of every host.
    ///
    /// Every host needs its first reducer, and few hosts need the others. So each coflow, in order, becomes first at
    /// every host with a reducer of this coflow and none of an earlier coflow.
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

    /// Groups of coflows with equal remaining bytes, in order.
    fn equals(&self) -> impl Iterator<Item = &[(f64, u64, Slot)]> {
        self.order.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq())
    }

    /// Orders two reducers of a host: by the remaining bytes of their coflows, then of the reducers, then by the
    /// release of the coflows.
    pub(super) fn compare(&self, a: Slot, b: Slot, port: usize, view: &View<'_, Sizes>) -> Ordering {
        let left = |slot: Slot| view.loads(slot).received_at(port);
        let coflows = self.left[a as usize].total_cmp(&self.left[b as usize]);
        let equal = || left(a).total_cmp(&left(b)).then(self.rank(a).cmp(&self.rank(b)));
        coflows.then_with(equal)
    }

    /// Calls `found` with the reducers of a host in order, until it returns true. O(coflows).
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
