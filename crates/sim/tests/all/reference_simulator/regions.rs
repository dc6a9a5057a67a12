//! Regions (docs/wide-area-format.md): flows merged by the link between their regions, links whose bandwidth changes, and
//! policies that decide per link.

use std::collections::BTreeMap;

use super::{Epoch, FlowPhase, Policy, ReferenceSimulator, Variant};
use crate::common::time;
use proptest::prelude::*;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{BitSet, CoflowSpec, FlowSpec, TimedEvent, WideArea, Workload, WorkloadChange};
use weir_core::units::{Bytes, Rate};
use weir_sim::RegionLinks;
use weir_sim::regions::bandwidth::Bandwidth;

/// Ports in regions limit no flow, unless they are down.
pub(super) const UNLIMITED_RATE: f64 = 1e6;

/// Changes of bandwidth, one a second, which is longer than any replay here.
const CHANGES: usize = 4000;

/// Regions, and the bandwidth of their links over time.
#[derive(Debug, Clone)]
pub struct RegionNetwork {
    regions: usize,
    /// Measured bandwidths by link. Links lead from the first region to all others, then from the second, and so on.
    samples: Vec<Vec<f64>>,
    pub(super) links: RegionLinks,
    pub(super) epochs: Vec<Epoch>,
}

/// What flows of a coflow have in common that are one flow between regions, in the order of merged flows: link, receiver, time
/// of the data, and the position of a flow that events concern.
type MergeKey = (Option<usize>, Option<u32>, u64, Option<usize>);

impl RegionNetwork {
    fn new(regions: usize, samples: Vec<Vec<f64>>, correlation: f64, bandwidth_seed: u64) -> RegionNetwork {
        let ends = (0..regions).flat_map(|from| (0..regions).map(move |to| (from, to)));
        let measured = ends.filter(|(from, to)| from != to).zip(&samples).map(|((from, to), samples)| {
            let samples = samples.iter().map(|&rate| Rate::new(rate).unwrap()).collect();
            LinkMeasurement { from, to, samples }
        });
        let names = (0..regions).map(|region| format!("region{region}")).collect();
        let area = WideArea::new(names, measured.collect(), time(1.0), correlation).unwrap();
        let mut bandwidth = Bandwidth::new(&area, bandwidth_seed);
        let epoch = |time: f64, capacities: &[f64]| Epoch {
            time,
            capacities: capacities.to_vec(),
            contended_trunks: BitSet::default(),
            paths: Vec::new(),
        };
        let mut epochs = vec![epoch(0.0, bandwidth.rates())];
        while bandwidth.next_change().is_finite() && epochs.len() < CHANGES {
            let time = bandwidth.next_change();
            bandwidth.apply_change().unwrap();
            epochs.push(epoch(time, bandwidth.rates()));
        }
        RegionNetwork { regions, samples, links: RegionLinks { area: area.into(), bandwidth_seed }, epochs }
    }

    /// The link between the regions of a flow's ports, which are spread evenly over the regions; none inside a region.
    pub(super) fn link(&self, flow: &FlowSpec, ports: u32) -> Option<usize> {
        let region = |port: u32| port as usize * self.regions / ports as usize;
        let (from, to) = (region(flow.src), region(flow.dst));
        (from != to).then(|| from * (self.regions - 1) + to - usize::from(to > from))
    }

    /// Mean of the measured bandwidths.
    fn mean(&self, link: usize) -> f64 {
        self.samples[link].iter().sum::<f64>() / self.samples[link].len() as f64
    }

    /// The highest mean of a link's measured bandwidths.
    pub(super) fn fastest_mean_bandwidth(&self) -> f64 {
        (0..self.samples.len()).map(|link| self.mean(link)).fold(0.0, f64::max)
    }

    /// Merges flows of a coflow between two regions, unless their data is available at different times or an event names one of
    /// them or its port; with `by_receiver`, only flows to the same port.
    pub(super) fn merge_flows(&self, w: &Workload, by_receiver: bool) -> Workload {
        let mut merged = w.clone();
        let mut positions = BTreeMap::new();
        for (c, coflow) in w.coflows.iter().enumerate() {
            let key = |f: usize| -> MergeKey {
                let flow = &coflow.flows[f];
                let is_named = w.events.iter().any(|event| match event.change {
                    WorkloadChange::PortRate { port, .. } => port == flow.src || port == flow.dst,
                    WorkloadChange::RestartFlow { coflow, flow } => (coflow, flow) == (c, f),
                    WorkloadChange::DelayFlow { coflow, flow, .. } => (coflow, flow) == (c, f),
                });
                let delay = flow.data_delay.get().to_bits();
                (self.link(flow, w.ports), by_receiver.then_some(flow.dst), delay, is_named.then_some(f))
            };
            let mut keys: Vec<MergeKey> = (0..coflow.flows.len()).map(key).collect();
            keys.sort();
            keys.dedup();
            let flows = keys.iter().map(|one| {
                let members: Vec<usize> = (0..coflow.flows.len()).filter(|&f| key(f) == *one).collect();
                let bytes = members.iter().map(|&f| coflow.flows[f].bytes.get()).sum();
                FlowSpec { bytes: Bytes::new(bytes).unwrap(), ..coflow.flows[members[0]] }
            });
            merged.coflows[c] = CoflowSpec { flows: flows.collect(), ..coflow.clone() };
            for f in 0..coflow.flows.len() {
                positions.insert((c, f), keys.iter().position(|one| *one == key(f)).unwrap());
            }
        }
        for TimedEvent { change, .. } in &mut merged.events {
            if let WorkloadChange::RestartFlow { coflow, flow }
            | WorkloadChange::DelayFlow { coflow, flow, .. } = change
            {
                *flow = positions[&(*coflow, *flow)];
            }
        }
        merged
    }
}

impl ReferenceSimulator<'_> {
    /// Every link serves coflows by minimum remaining time, the time of the slowest link alone at mean bandwidth.
    pub(super) fn schedule_mrtf(&mut self, largest_group_first: bool, left: &mut [f64]) {
        let Some(regions) = self.regions else { panic!("the policy is compared between regions only") };
        let first = 2 * self.workload.ports as usize;
        if self.flows_changed {
            let seconds = |c: usize| {
                let links = (0..left.len() - first)
                    .map(|link| self.coflows[c].remaining_over(first + link) / regions.mean(link));
                links.fold(0.0, f64::max)
            };
            let mut order = self.active();
            order.retain(|&c| self.coflows[c].live_flows().count() > 0);
            order.sort_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
            self.order = order;
        }
        for c in self.order.clone() {
            for group in self.flow_groups(c, largest_group_first) {
                self.share_links(c, &group, left);
            }
        }
    }

    /// The flows of a coflow, or its groups of flows to one receiver, the one with the most bytes first.
    fn flow_groups(&self, c: usize, largest_first: bool) -> Vec<Vec<usize>> {
        let flows = &self.coflows[c].flows;
        if !largest_first {
            return vec![(0..flows.len()).collect()];
        }
        let positions = crate::ports::port_positions(self.workload);
        let ports = self.workload.ports as usize;
        let mut receivers: Vec<usize> = flows.iter().map(|flow| flow.dst).collect();
        receivers.sort_by_key(|&dst| positions[dst - ports]);
        receivers.dedup();
        let bytes = |dst: usize| flows.iter().filter(|f| f.dst == dst).map(|f| f.size).sum::<f64>();
        receivers.sort_by(|&a, &b| bytes(b).total_cmp(&bytes(a)));
        let group = |dst: usize| (0..flows.len()).filter(|&f| flows[f].dst == dst).collect();
        receivers.into_iter().map(group).collect()
    }

    /// Flows with live ports share the residual capacity of their link evenly.
    fn share_links(&mut self, c: usize, group: &[usize], left: &mut [f64]) {
        let capacities = self.links.clone();
        let flows = &mut self.coflows[c].flows;
        let sends = |flow: &super::Flow| {
            flow.phase == FlowPhase::Live && capacities[flow.src] > 0.0 && capacities[flow.dst] > 0.0
        };
        for (link, left) in left.iter_mut().enumerate().skip(2 * self.workload.ports as usize) {
            let here: Vec<usize> = group
                .iter()
                .copied()
                .filter(|&f| sends(&flows[f]) && flows[f].trunks.contains(&link))
                .collect();
            let rate = std::mem::take(left);
            here.iter().for_each(|&f| flows[f].rate = rate / here.len() as f64);
            if here.is_empty() {
                *left = rate;
            }
        }
    }
}

pub(super) fn any_regions() -> impl Strategy<Value = RegionNetwork> {
    (2usize..5).prop_flat_map(|regions| {
        let link = prop::collection::vec(0.3..4.0f64, 1..5);
        let links = prop::collection::vec(link, regions * (regions - 1));
        (Just(regions), links, prop::sample::select(vec![0.0, 0.5, 0.9]), 0..1000u64).prop_map(
            |(regions, samples, correlation, seed)| RegionNetwork::new(regions, samples, correlation, seed),
        )
    })
}

pub(super) fn mrtf_variants() -> Vec<Variant> {
    [("mrtf", false), ("mrtf:groups=on", true)]
        .map(|(name, largest_group_first)| (name.to_owned(), Policy::Mrtf { largest_group_first }))
        .into()
}
