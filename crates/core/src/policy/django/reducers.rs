//! The order of coflows, of the reducers of each host, and of the hosts, by remaining bytes.

use std::cmp::Ordering;

use crate::model::{BitSet, FlowState, LinkKind, SizesKnown, Slot, View};

/// A reducer of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reducer {
    /// Its coflow.
    pub slot: Slot,
    /// Its number among the reducers of the coflow at the host.
    pub number: u32,
}

/// A reducer of a host, and what decides its position among the reducers of the host.
#[derive(Debug, Clone, Copy)]
struct RankedReducer {
    /// Remaining bytes of its coflow.
    coflow_bytes: f64,
    /// Remaining bytes of the reducer.
    remaining_bytes: f64,
    /// Rank of its coflow.
    rank: u32,
    reducer: Reducer,
}

impl RankedReducer {
    /// Algorithm 2, line 1: by the remaining bytes of the coflows, then of the reducers; then by the release of the coflows, and by
    /// the numbers of the reducers.
    fn compare(&self, other: &RankedReducer) -> Ordering {
        let coflows = self.coflow_bytes.total_cmp(&other.coflow_bytes);
        let reducers = coflows.then(self.remaining_bytes.total_cmp(&other.remaining_bytes));
        reducers.then((self.rank, self.reducer.number).cmp(&(other.rank, other.reducer.number)))
    }
}

/// A host with reducers.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostTurn {
    /// Rank of the first reducer's coflow.
    rank: u32,
    /// Remaining bytes of that reducer.
    remaining_bytes: f64,
    pub port: u32,
    pub first_reducer: Reducer,
}

/// The order of all reducers. Only the first reducer of each host is computed in advance.
#[derive(Debug, Default)]
pub(super) struct ReducerOrder {
    /// By slot: remaining bytes of the coflow.
    remaining_bytes: Vec<f64>,
    /// Slots whose remaining bytes may have changed.
    stale_slots: BitSet,
    /// Coflows with live flows, sorted: remaining bytes, order of release, slot.
    order: Vec<(f64, u64, Slot)>,
    /// By slot: position in `order`.
    ranks: Vec<u32>,
    /// By host: the first reducer.
    first_reducers: Vec<Option<RankedReducer>>,
    /// The links of receiving hosts without a first reducer.
    links_without_first: BitSet,
    host_turns: Vec<HostTurn>,
}

impl ReducerOrder {
    /// Marks a coflow that sent bytes, or whose flows changed.
    pub(super) fn mark_changed(&mut self, slot: Slot) {
        self.stale_slots.insert(slot as usize);
    }

    /// Coflows in the order of remaining bytes, each with its position.
    pub(super) fn order(&self) -> impl Iterator<Item = (u32, Slot)> {
        (0..).zip(self.order.iter().map(|&(_, _, slot)| slot))
    }

    pub(super) fn rank(&self, slot: Slot) -> u32 {
        self.ranks[slot as usize]
    }

    /// Hosts with reducers, in the order in which the hosts decide.
    pub(super) fn host_turns(&self) -> &[HostTurn] {
        &self.host_turns
    }

    /// Whether a host has reducers.
    pub(super) fn has_reducers(&self, port: usize) -> bool {
        self.first_reducers[port].is_some()
    }

    /// Recomputes the order. O(C log C + C P / 64 + P log P) for C coflows and P ports, and the ports of the coflows
    /// that changed; and the flows to each host of the coflow of its first reducer, if this coflow has separate reducers.
    pub(super) fn update(&mut self, view: &View<'_, SizesKnown>) {
        self.remaining_bytes.resize(view.slots(), 0.0);
        self.order.clear();
        for &slot in view.active_coflows() {
            let coflow = view.coflow(slot);
            if coflow.live_count() == 0 {
                continue;
            }
            if self.stale_slots.contains(slot as usize) {
                self.stale_slots.remove(slot as usize);
                self.remaining_bytes[slot as usize] = view.total_remaining_bytes(slot);
            }
            self.order.push((self.remaining_bytes[slot as usize], coflow.seq, slot));
        }
        self.order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.ranks.clear();
        self.ranks.resize(view.slots(), u32::MAX);
        for (rank, &(_, _, slot)) in (0..).zip(&self.order) {
            self.ranks[slot as usize] = rank;
        }
        self.find_first_reducers(view);
        self.sort_hosts();
    }

    /// Algorithm 2, line 1: finds the first reducer of every host.
    ///
    /// Every host needs its first reducer, and few hosts need the others. So each coflow, in order, becomes first at
    /// every host with a reducer of this coflow and none of an earlier coflow.
    fn find_first_reducers(&mut self, view: &View<'_, SizesKnown>) {
        let (mut firsts, mut missing) =
            (std::mem::take(&mut self.first_reducers), std::mem::take(&mut self.links_without_first));
        firsts.clear();
        firsts.resize(view.fabric().ports(), None);
        missing.set_where(view.fabric().capacities(), |&capacity| capacity > 0.0);
        missing.intersect_with(view.fabric().receivers());
        for equals in self.equal_remaining_groups() {
            for &(_, _, slot) in equals {
                for link in missing.intersection(view.coflow(slot).live_links()) {
                    let LinkKind::Receiver(port) = view.fabric().kind(link) else { continue };
                    let first = &mut firsts[port as usize];
                    self.visit_reducers(slot, port, view, |reducer| {
                        if first.is_none_or(|other| reducer.compare(&other).is_lt()) {
                            *first = Some(reducer);
                        }
                    });
                }
            }
            equals.iter().for_each(|&(_, _, slot)| missing.difference_with(view.coflow(slot).live_links()));
            if missing.is_empty() {
                break;
            }
        }
        (self.first_reducers, self.links_without_first) = (firsts, missing);
    }

    fn sort_hosts(&mut self) {
        self.host_turns.clear();
        for (port, first) in (0..).zip(&self.first_reducers) {
            let Some(RankedReducer { remaining_bytes, rank, reducer, .. }) = *first else { continue };
            self.host_turns.push(HostTurn { rank, remaining_bytes, port, first_reducer: reducer });
        }
        self.host_turns.sort_unstable_by(|a, b| {
            a.rank
                .cmp(&b.rank)
                .then(a.remaining_bytes.total_cmp(&b.remaining_bytes))
                .then(a.port.cmp(&b.port))
        });
    }

    /// Groups of coflows with equal remaining bytes, in order.
    fn equal_remaining_groups(&self) -> impl Iterator<Item = &[(f64, u64, Slot)]> {
        self.order.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq())
    }

    /// Calls `visit` with the reducers of a coflow with live flows to a host, by number. O(log ports of the coflow), and the flows to
    /// the host if the coflow has separate reducers.
    fn visit_reducers(
        &self,
        slot: Slot,
        port: u32,
        view: &View<'_, SizesKnown>,
        mut visit: impl FnMut(RankedReducer),
    ) {
        let coflow = view.coflow(slot);
        let (coflow_bytes, rank) = (self.remaining_bytes[slot as usize], self.rank(slot));
        let ranked = |number, remaining_bytes| {
            let reducer = Reducer { slot, number };
            RankedReducer { coflow_bytes, remaining_bytes, rank, reducer }
        };
        if !coflow.has_separate_reducers() {
            let receiver = coflow.position_of_receiver(port).map(|at| &coflow.receivers()[at]);
            visit(ranked(0, receiver.map_or(0.0, |load| view.remaining_loads(slot).of(load))));
            return;
        }
        for flows in coflow.separate_reducers_at(port) {
            let live = || flows.iter().filter(|&&flow| coflow.flow_state(flow) == FlowState::Live);
            if let Some(&first) = live().next() {
                let left = live().map(|&flow| coflow.remaining_bytes(flow, view.now())).sum();
                visit(ranked(coflow.reducer(first), left));
            }
        }
    }

    /// The reducers of these coflows at a host, in order. The coflows have live flows to the host.
    pub(super) fn sort_reducers(
        &self,
        coflows: impl Iterator<Item = Slot>,
        port: u32,
        view: &View<'_, SizesKnown>,
    ) -> Vec<Reducer> {
        let mut ranked = Vec::new();
        coflows.for_each(|slot| self.visit_reducers(slot, port, view, |reducer| ranked.push(reducer)));
        ranked.sort_unstable_by(RankedReducer::compare);
        ranked.into_iter().map(|ranked| ranked.reducer).collect()
    }

    /// Calls `found` with the reducers of a host in order, until it returns true. O(coflows), and the flows to the host of
    /// coflows with separate reducers.
    pub(super) fn visit_in_order(
        &self,
        port: u32,
        view: &View<'_, SizesKnown>,
        mut found: impl FnMut(Reducer) -> bool,
    ) {
        let link = view.fabric().recv_link(port);
        let is_here = |slot: Slot| view.coflow(slot).live_links().contains(link);
        for equals in self.equal_remaining_groups() {
            if let &[(_, _, slot)] = equals
                && !view.coflow(slot).has_separate_reducers()
            {
                if is_here(slot) && found(Reducer { slot, number: 0 }) {
                    return;
                }
                continue;
            }
            let here = equals.iter().map(|&(_, _, slot)| slot).filter(|&slot| is_here(slot));
            if self.sort_reducers(here, port, view).into_iter().any(&mut found) {
                return;
            }
        }
    }
}
