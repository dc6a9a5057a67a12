//! Limits links between switches, which can carry less than the ports on both of their sides.
//!
//! If no link is oversubscribed, the decided rates are in force. Otherwise rates are max-min, bounded by the decided rates:
//! a flow with a reduced rate crosses a full link on which no flow has a higher rate. TCP would reach the same rates with
//! senders that limit themselves to the decided rates.

use std::collections::BTreeMap;

use super::{CapacityLimit, SortedDecision, rates};
use crate::allocation::{Allocation, CommonRate};
use crate::model::topology::CableChange;
use crate::model::{Coflow, LinkId, Network, Slot, Trunks};
use crate::rounding;
use crate::solve::{CappedFlow, max_min_capped};

/// The flows of a coflow.
#[derive(Default, Clone)]
struct Routed {
    /// The coflow's sequence number, because slots are reused.
    seq: Option<u64>,
    /// By flow.
    paths: Vec<u32>,
    /// How many flows are live and done where `live` was counted; `None` if they have to be counted again.
    counted: Option<(usize, usize)>,
    /// The paths of its flows, each once, and how many live ones take it.
    live: Vec<(u32, u32)>,
}

/// A flow with a rate that crosses a short link.
struct Crossing {
    slot: Slot,
    flow: u32,
    rate: f64,
    path: u32,
}

/// The flows that cross links between switches.
pub(crate) struct TrunkLimit {
    trunks: Trunks,
    /// By slot.
    coflows: Vec<Routed>,
    paths: Vec<Box<[u32]>>,
    known: BTreeMap<Box<[u32]>, u32>,
    crossing: Vec<Crossing>,
    /// By link: what it is given, and whether that is more than it carries.
    given: Vec<f64>,
    short: Vec<bool>,
}

impl TrunkLimit {
    pub(crate) fn new(trunks: Trunks) -> TrunkLimit {
        TrunkLimit {
            trunks,
            coflows: Vec::new(),
            paths: Vec::new(),
            known: BTreeMap::new(),
            crossing: Vec::new(),
            given: Vec::new(),
            short: Vec::new(),
        }
    }

    /// Finds what links are given.
    fn cross(&mut self, decided: &Allocation, network: &Network, now: f64) {
        self.given.clear();
        self.given.resize(self.trunks.capacities().len(), 0.0);
        for &slot in network.active_coflows() {
            self.route(slot, network);
            let TrunkLimit { coflows, paths, given, .. } = self;
            let (coflow, common) = (network.coflow(slot), decided.common(slot));
            let routed = &mut coflows[slot as usize];
            let mut give = |path: u32, rate: f64| {
                paths[path as usize].iter().for_each(|&link| given[link as usize] += rate);
            };
            match common {
                CommonRate::Equal(rate) if rate > 0.0 => {
                    routed.count(coflow);
                    routed.live.iter().for_each(|&(path, flows)| give(path, rate * f64::from(flows)));
                }
                CommonRate::CompleteTogether(_) => {
                    rates(coflow, common, &[], now)
                        .for_each(|(flow, rate)| give(routed.paths[flow as usize], rate));
                }
                CommonRate::Equal(_) | CommonRate::None => {}
            }
        }
        for own in decided.flow_rates() {
            let path = self.coflows[own.slot as usize].paths[own.flow as usize];
            self.paths[path as usize].iter().for_each(|&link| self.given[link as usize] += own.rate);
        }
    }

    /// Finds the paths of a coflow's flows, unless they are known.
    fn route(&mut self, slot: Slot, network: &Network) {
        let coflow = network.coflow(slot);
        if self.coflows.len() <= slot as usize {
            self.coflows.resize(slot as usize + 1, Routed::default());
        }
        if self.coflows[slot as usize].seq == Some(coflow.seq) {
            return;
        }
        let mut links = Vec::new();
        let mut path = |flow: u32| {
            let (src, dst) = coflow.flow_ports(flow);
            self.trunks.compute_path(src, dst, coflow.workload_index, coflow.spec_index(flow), &mut links);
            if let Some(&known) = self.known.get(links.as_slice()) {
                return known;
            }
            let next = self.paths.len() as u32;
            self.paths.push(links.as_slice().into());
            self.known.insert(links.as_slice().into(), next);
            next
        };
        let paths: Vec<u32> = (0..coflow.width() as u32).map(&mut path).collect();
        let mut once = paths.clone();
        once.sort_unstable();
        once.dedup();
        let live = once.into_iter().map(|path| (path, 0)).collect();
        self.coflows[slot as usize] = Routed { seq: Some(coflow.seq), paths, counted: None, live };
    }

    /// The max-min rates of the flows that cross short links, among what was decided for them.
    fn share(&self) -> Vec<f64> {
        let mut links = Vec::new();
        let mut ends = Vec::with_capacity(self.crossing.len());
        for crossing in &self.crossing {
            let path = self.paths[crossing.path as usize].iter().copied();
            links.extend(path.filter(|&link| self.short[link as usize]));
            ends.push(links.len());
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let links = starts.zip(&ends).map(|(from, &to)| &links[from..to]);
        let flows: Vec<CappedFlow<'_>> = links
            .zip(&self.crossing)
            .map(|(links, crossing)| CappedFlow { links, cap: crossing.rate })
            .collect();
        max_min_capped(self.trunks.capacities(), &flows)
    }
}

impl CapacityLimit for TrunkLimit {
    /// O(links + paths of coflows with a rate + flows with individual rates), and the flows of coflows whose number of live
    /// flows has changed, or whose flows end together.
    fn exceeds_capacity(&mut self, decided: &Allocation, network: &Network, now: f64) -> bool {
        self.cross(decided, network, now);
        let links = self.given.iter().zip(self.trunks.capacities());
        self.short.clear();
        self.short.extend(links.map(|(given, capacity)| *given > capacity * (1.0 + rounding::CAPACITY)));
        self.short.iter().any(|short| *short)
    }

    /// Computes the rates of the flows that cross oversubscribed links: max-min, at most the decided rates. Other links need no
    /// computation, since their load can only fall. O(n log n) for n flows over oversubscribed links.
    fn reduce_rates(
        &mut self,
        decided: &SortedDecision<'_>,
        network: &Network,
        now: f64,
        carried: &mut Allocation,
    ) {
        self.crossing.clear();
        let over_short = |path: u32| self.paths[path as usize].iter().any(|&link| self.short[link as usize]);
        let mut touched = Vec::with_capacity(network.active_coflows().len());
        for &slot in network.active_coflows() {
            let (coflow, (common, own)) = (network.coflow(slot), decided.of(slot));
            let routed = &self.coflows[slot as usize];
            let sends = common != CommonRate::None || !own.is_empty();
            touched.push(sends && routed.live.iter().any(|&(path, _)| over_short(path)));
            if touched[touched.len() - 1] {
                let crossing = |(flow, rate): (u32, f64)| {
                    let path = routed.paths[flow as usize];
                    (rate > 0.0 && over_short(path)).then_some(Crossing { slot, flow, rate, path })
                };
                self.crossing.extend(rates(coflow, common, own, now).filter_map(crossing));
            }
        }
        let shares = self.share();
        let mut at = 0;
        for (&slot, touched) in network.active_coflows().iter().zip(touched) {
            let from = at;
            at += self.crossing[from..].iter().take_while(|crossing| crossing.slot == slot).count();
            let crossing = self.crossing[from..at].iter().zip(&shares[from..at]);
            let (common, own) = decided.of(slot);
            let whole =
                |(crossing, share): (&Crossing, &f64)| *share >= crossing.rate * (1.0 - rounding::CAPACITY);
            if !touched || crossing.clone().all(whole) {
                carried.set_common(slot, common);
                own.iter().for_each(|own| carried.add_flow_rate(slot, own.flow, own.rate));
                continue;
            }
            let mut crossing = crossing.peekable();
            for (flow, rate) in rates(network.coflow(slot), common, own, now) {
                let crosses = crossing.next_if(|(crossing, _)| crossing.flow == flow);
                let less = crosses.map_or(rate, |(_, share)| share.min(rate));
                if less > 0.0 {
                    carried.add_flow_rate(slot, flow, less);
                }
            }
        }
    }

    fn drop_cached_flows(&mut self, slot: Slot) {
        if let Some(coflow) = self.coflows.get_mut(slot as usize) {
            coflow.counted = None;
        }
    }

    fn drop_flows(&mut self, slot: Slot) {
        if let Some(coflow) = self.coflows.get_mut(slot as usize) {
            coflow.seq = None;
        }
    }

    fn set_trunk_capacities(&mut self, capacities: &[f64]) {
        self.trunks.set_capacities(capacities);
    }

    fn trunks(&self) -> Option<&Trunks> {
        Some(&self.trunks)
    }

    fn flow_trunks(&self, slot: Slot, flow: u32) -> &[u32] {
        let path = self.coflows.get(slot as usize).and_then(|coflow| coflow.paths.get(flow as usize));
        path.map_or(&[], |&path| &self.paths[path as usize])
    }

    fn change_cables(&mut self, changes: &[(LinkId, CableChange)]) -> Option<&Trunks> {
        if self.trunks.change_cables(changes) {
            self.coflows.clear();
        }
        Some(&self.trunks)
    }
}

impl Routed {
    /// Counts live flows by path, unless they are the same as before.
    fn count(&mut self, coflow: &Coflow) {
        let now = Some((coflow.live_count(), coflow.completed_count()));
        if self.counted == now {
            return;
        }
        self.counted = now;
        self.live.iter_mut().for_each(|(_, flows)| *flows = 0);
        for flow in coflow.live_flows() {
            let path = self.paths[flow as usize];
            let at = self.live.partition_point(|&(other, _)| other < path);
            self.live[at].1 += 1;
        }
    }
}
