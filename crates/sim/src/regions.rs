//! Lays out a workload over the links between regions (Siphon, ATC '18, sections 3 and 5).
//!
//! Choices that the paper leaves open:
//!
//! - *Flows* of a coflow between two regions are one ("aggregated flows"), unless their data becomes available at different
//!   times, or an event refers to one of them or to one of its ports. Under `fair`, and if the policy orders flows by
//!   receiver, flows to different ports remain separate. Merged flows are in the order of their links, receivers, times of data
//!   and positions in the trace.
//! - *Flows inside a region* take no time, since the region's network is never a bottleneck.
//! - *Ports* of a workload are spread evenly over the regions, neighbours together.
//! - *Detours* are chosen at the arrival of a coflow, for its own bytes ([`detour`]). Each part of a flow has one rate on both links
//!   of its detour: a relay forwards at once, and if the next link is busy, the part waits at its source.
//! - *Decisions*, and sending them to the relays, take no time.

pub mod bandwidth;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use weir_core::model::{
    BandwidthHistory, CoflowSpec, FlowSpec, TimedEvent, Trunks, WideArea, Workload, WorkloadChange,
};
use weir_core::policy::Routing;
use weir_core::units::Bytes;
use weir_core::wide_area::detour;

use crate::outcome::{CoflowOutcome, Outcome, coefficient_of_variation};

/// The links between regions, with random bandwidth.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionLinks {
    /// The regions, and the samples of the links.
    pub area: Arc<WideArea>,
    /// The seed of the bandwidths ([`bandwidth::Bandwidth`]).
    pub bandwidth_seed: u64,
}

/// The coflows of a workload with bytes between regions, each with one flow for each link. They have neither parents nor events.
pub fn coflows_between_regions(workload: &Workload, area: &WideArea) -> Workload {
    let routing: Vec<Vec<Routing>> = (0..workload.names.services() as u32)
        .map(|service| vec![Routing::default(); workload.names.applications(service).len()])
        .collect();
    let mut merged = RegionLayout::new(workload, area, &routing).workload;
    merged.events.clear();
    for coflow in &mut merged.coflows {
        coflow.flows.retain(|flow| link_of_flow(flow, area, workload.ports).is_some());
    }
    merged.coflows.retain(|coflow| coflow.total_bytes() > 0.0);
    merged.coflows.iter_mut().for_each(|coflow| coflow.parents.clear());
    merged
}

/// The load of each link until the last arrival: bytes over mean bandwidth.
pub fn link_loads(workload: &Workload, area: &WideArea) -> Vec<f64> {
    let span = workload.coflows.iter().map(|coflow| coflow.arrival.get()).fold(0.0, f64::max);
    let mut loads = vec![0.0; area.links()];
    for flow in workload.coflows.iter().flat_map(|coflow| &coflow.flows) {
        if let Some(link) = link_of_flow(flow, area, workload.ports) {
            loads[link as usize] += flow.bytes.get() / (area.mean_bandwidth(link) * span);
        }
    }
    loads
}

/// The link between the regions of a flow's ports; none inside a region. `ports` is the number of ports.
pub fn link_of_flow(flow: &FlowSpec, area: &WideArea, ports: u32) -> Option<u32> {
    area.link_between(area.region_of_port(flow.src, ports), area.region_of_port(flow.dst, ports))
}

/// A workload as the flows that cross links between regions.
pub(crate) struct RegionLayout {
    pub workload: Workload,
    pub trunks: Trunks,
    /// By coflow and original flow: its parts, as flows of the layout; at least one.
    parts: Vec<Vec<Range<u32>>>,
}

/// What flows of a coflow have in common that are one between regions.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MergeKey {
    /// None inside a region.
    link: Option<u32>,
    receiver: Option<u32>,
    /// Bits of the time until the data exists; they order as the times, which are not negative.
    data_delay_bits: u64,
    /// The flow, if an event refers to it or to one of its ports.
    event_flow: Option<usize>,
}

impl RegionLayout {
    /// Lays out a workload. `routing` is the policy's, by service and application. O(n log n) for the n flows of each coflow, and
    /// the cost of detours.
    pub fn new(workload: &Workload, area: &WideArea, routing: &[Vec<Routing>]) -> RegionLayout {
        let history = area.bandwidth_history();
        let event_flows: BTreeSet<(usize, usize)> =
            workload.events.iter().filter_map(flow_of_event).collect();
        let event_ports: BTreeSet<u32> = workload.events.iter().filter_map(port_of_event).collect();
        let mut relays = BTreeMap::new();
        let (mut coflows, mut parts) = (Vec::new(), Vec::new());
        for (index, coflow) in workload.coflows.iter().enumerate() {
            let routing = routing[coflow.service as usize][coflow.application as usize];
            let mut merged: BTreeMap<MergeKey, Vec<usize>> = BTreeMap::new();
            for (number, flow) in coflow.flows.iter().enumerate() {
                let has_event = event_flows.contains(&(index, number))
                    || event_ports.contains(&flow.src)
                    || event_ports.contains(&flow.dst);
                let key = MergeKey {
                    link: link_of_flow(flow, area, workload.ports),
                    receiver: routing.separate_receivers.then_some(flow.dst),
                    data_delay_bits: flow.data_delay.get().to_bits(),
                    event_flow: has_event.then_some(number),
                };
                merged.entry(key).or_default().push(number);
            }
            let laid_out = lay_out_coflow(coflow, &merged, &history, routing.detours);
            relays.extend(laid_out.relays.into_iter().map(|(flow, relay)| ((index, flow), relay)));
            coflows.push(CoflowSpec { flows: laid_out.flows, ..coflow.clone() });
            parts.push(laid_out.parts);
        }
        let events = workload.events.iter().flat_map(|event| split_event(*event, &parts)).collect();
        let workload = Workload { ports: workload.ports, coflows, events, names: workload.names.clone() };
        RegionLayout { trunks: Trunks::between_regions(area, workload.ports, relays), workload, parts }
    }

    /// Converts an outcome of the layout, which has the ends of flows, to one of the original workload.
    pub fn restore(&self, outcome: &mut Outcome, original: &Workload, keep_flow_ends: bool) {
        for coflow in &mut outcome.coflows {
            let spec = &original.coflows[coflow.index];
            let (part_ends, part_paths) =
                (std::mem::take(&mut coflow.flow_ends), std::mem::take(&mut coflow.flow_paths));
            let end_of = |parts: &Range<u32>| {
                let ends = &part_ends[parts.start as usize..parts.end as usize];
                ends.iter().copied().fold(coflow.released_at, f64::max)
            };
            let flow_ends: Vec<f64> = self.parts[coflow.index].iter().map(end_of).collect();
            // A flow that takes detours crosses the links of all its parts.
            let path_of = |parts: &Range<u32>| {
                let links = &part_paths[parts.start as usize..parts.end as usize];
                let mut path: Vec<u32> = Vec::new();
                for &link in links.iter().flatten() {
                    if !path.contains(&link) {
                        path.push(link);
                    }
                }
                path.into()
            };
            let flow_paths = || self.parts[coflow.index].iter().map(path_of).collect();
            *coflow = CoflowOutcome {
                width: spec.flows.len(),
                bytes: spec.total_bytes(),
                flow_time_deviation: coefficient_of_variation(
                    flow_ends.iter().map(|end| end - coflow.released_at),
                ),
                has_equal_flow_sizes: spec.flows.windows(2).all(|pair| pair[0].bytes == pair[1].bytes),
                flow_paths: if keep_flow_ends { flow_paths() } else { Vec::new() },
                flow_ends: if keep_flow_ends { flow_ends } else { Vec::new() },
                ..*coflow
            };
        }
        outcome.flow_count = original.flow_count();
    }
}

/// The flow that an event refers to, as the positions of its coflow and of itself.
fn flow_of_event(event: &TimedEvent) -> Option<(usize, usize)> {
    match event.change {
        WorkloadChange::PortRate { .. } => None,
        WorkloadChange::RestartFlow { coflow, flow } | WorkloadChange::DelayFlow { coflow, flow, .. } => {
            Some((coflow, flow))
        }
    }
}

/// The port that an event refers to.
fn port_of_event(event: &TimedEvent) -> Option<u32> {
    match event.change {
        WorkloadChange::PortRate { port, .. } => Some(port),
        WorkloadChange::RestartFlow { .. } | WorkloadChange::DelayFlow { .. } => None,
    }
}

/// An event of the original workload, for each part of its flow. Ports limit no flow at any rate above 0.
fn split_event(event: TimedEvent, parts: &[Vec<Range<u32>>]) -> Vec<TimedEvent> {
    if let WorkloadChange::PortRate { port, side, factor } = event.change {
        let factor = if factor > 0.0 { 1.0 } else { 0.0 };
        return vec![TimedEvent { change: WorkloadChange::PortRate { port, side, factor }, ..event }];
    }
    let Some((coflow, flow)) = flow_of_event(&event) else { return vec![event] };
    let of_part = |part: u32| {
        let flow = part as usize;
        let change = match event.change {
            WorkloadChange::DelayFlow { until, .. } => WorkloadChange::DelayFlow { coflow, flow, until },
            _ => WorkloadChange::RestartFlow { coflow, flow },
        };
        TimedEvent { change, ..event }
    };
    parts[coflow][flow].clone().map(of_part).collect()
}

/// The flows of a coflow between regions.
struct CoflowLayout {
    flows: Vec<FlowSpec>,
    /// By original flow: its parts among `flows`.
    parts: Vec<Range<u32>>,
    /// Flow and relaying region, for detours.
    relays: Vec<(u32, u32)>,
}

fn lay_out_coflow(
    coflow: &CoflowSpec,
    merged: &BTreeMap<MergeKey, Vec<usize>>,
    history: &BandwidthHistory,
    detours: bool,
) -> CoflowLayout {
    let bytes_of =
        |members: &[usize]| members.iter().map(|&flow| coflow.flows[flow].bytes.get()).sum::<f64>();
    let pair_bytes: Vec<(u32, f64)> =
        merged.iter().filter_map(|(key, members)| Some((key.link?, bytes_of(members)))).collect();
    let paths = match detours {
        true => detour::relieve_bottlenecks(history, &pair_bytes),
        false => detour::direct_paths(history, &pair_bytes),
    };
    let part = |bytes| Bytes::new(bytes).expect("a sum or a part of valid numbers of bytes is valid");
    let mut layout =
        CoflowLayout { flows: Vec::new(), parts: vec![0..0; coflow.flows.len()], relays: Vec::new() };
    for (key, members) in merged {
        let first = coflow.flows[members[0]];
        let start = layout.flows.len() as u32;
        let bytes = bytes_of(members);
        let shares = paths.path_shares.iter().filter(|share| Some(share.direct_link) == key.link);
        for share in shares {
            let relay = share.relay.map(|relay| (layout.flows.len() as u32, relay));
            layout.relays.extend(relay);
            layout.flows.push(FlowSpec { bytes: part(bytes * share.fraction), ..first });
        }
        if layout.flows.len() as u32 == start {
            // Inside a region, or without bytes, a flow has no share of a path.
            layout.flows.push(FlowSpec { bytes: part(bytes), ..first });
        }
        for &flow in members {
            layout.parts[flow] = start..layout.flows.len() as u32;
        }
    }
    layout
}
