//! The bytes of coflows on links, and the capacities of links over time.
//!
//! - *One switch, or a topology*: sending sides of ports, receiving sides, and trunks, with the changes that events of the workload
//!   and of cables make. If a cable fails, flows may change trunks: then only ports count.
//! - *Regions*: the links out of a region are one link, and so are the links into it, since bytes may take detours. Their bandwidths are
//!   random: each link has the capacity of its highest sample.

use weir_core::model::{CoflowSpec, FlowSpec, PortSide, Trunks, WideArea, Workload, WorkloadChange};
use weir_core::units::Rate;

use crate::replay::ReplayOptions;

/// The capacity of a link over time: times in seconds, ascending from 0, and the capacity from then on, in bytes per second.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Capacity {
    steps: Vec<(f64, f64)>,
}

impl Capacity {
    fn constant(rate: f64) -> Capacity {
        Capacity { steps: vec![(0.0, rate)] }
    }

    /// Sets the capacity from a time on, which is not before the last one.
    fn set(&mut self, time: f64, rate: f64) {
        match self.steps.last_mut() {
            Some(last) if last.1 == rate => {}
            Some(last) if last.0 == time => last.1 = rate,
            _ => self.steps.push((time, rate)),
        }
    }

    /// The steps in effect from `start` on, with their ends.
    fn steps_from(&self, start: f64) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let first = self.steps.partition_point(|step| step.0 <= start) - 1;
        (first..self.steps.len()).map(move |at| {
            let end = self.steps.get(at + 1).map_or(f64::INFINITY, |next| next.0);
            (self.steps[at].0.max(start), end, self.steps[at].1)
        })
    }

    /// The time to send `bytes` from `start` on, in seconds; infinite if the capacity is never enough. O(steps).
    pub fn seconds_to_send(&self, bytes: f64, start: f64) -> f64 {
        if bytes == 0.0 {
            return 0.0;
        }
        let mut remaining = bytes;
        for (from, to, rate) in self.steps_from(start) {
            if remaining <= rate * (to - from) && rate > 0.0 {
                return (from - start) + remaining / rate;
            }
            remaining -= rate * (to - from);
        }
        f64::INFINITY
    }

    /// The time to send `bytes` from `start` on, in seconds, or at the highest capacity.
    fn min_seconds(&self, bytes: f64, start: Option<f64>) -> f64 {
        match start {
            Some(start) => self.seconds_to_send(bytes, start),
            None if bytes == 0.0 => 0.0,
            None => bytes / self.max(),
        }
    }

    /// The bytes that the link can send from `start` to `end`, which is finite. O(steps).
    pub fn bytes_between(&self, start: f64, end: f64) -> f64 {
        let steps = self.steps_from(start).take_while(|step| step.0 < end);
        steps.map(|(from, to, rate)| rate * (to.min(end) - from)).sum()
    }

    fn max(&self) -> f64 {
        self.steps.iter().map(|step| step.1).fold(0.0, f64::max)
    }
}

/// The links of flows.
enum Paths {
    /// The ports of each flow, and its trunks, if they do not change.
    Ports(Option<Box<Trunks>>),
    /// The links out of and into each region.
    Regions(Box<WideArea>),
}

/// The bytes of one coflow by link.
pub(super) struct LinkLoads {
    capacities: Vec<Capacity>,
    bytes: Vec<f64>,
    used_links: Vec<usize>,
    /// Flows whose data exists some time after the release.
    late_flows: Vec<LateFlow>,
    ports: u32,
    paths: Paths,
    /// The links of one flow, and its trunks.
    flow_links: Vec<usize>,
    path: Vec<u32>,
}

/// A flow whose data exists some time after its coflow.
struct LateFlow {
    delay: f64,
    bytes: f64,
    links: Vec<usize>,
}

impl LinkLoads {
    /// The links of a network, with the events of `workload`.
    pub fn new(workload: &Workload, options: &ReplayOptions) -> LinkLoads {
        let (capacities, paths) = match &options.network.regions {
            Some(regions) => {
                (region_capacities(&regions.area), Paths::Regions(Box::new(WideArea::clone(&regions.area))))
            }
            None => port_capacities(workload, options),
        };
        LinkLoads {
            bytes: vec![0.0; capacities.len()],
            capacities,
            used_links: Vec::new(),
            late_flows: Vec::new(),
            ports: workload.ports,
            paths,
            flow_links: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.capacities.len()
    }

    pub fn capacity(&self, link: usize) -> &Capacity {
        &self.capacities[link]
    }

    /// By port: the highest capacity of its sides, divided by the rate at the start; empty between regions.
    pub fn max_port_utilization(&self, options: &ReplayOptions) -> Vec<[f64; 2]> {
        if options.network.regions.is_some() {
            return Vec::new();
        }
        let ports = self.ports as usize;
        let rate = |port: usize| match &options.network.trunks {
            Some(trunks) => trunks.port_rates()[port].get(),
            None => options.port_rate.get(),
        };
        let of_port = |port: usize| {
            let highest = |link: usize| self.capacities[link].max() / rate(port);
            [highest(port), highest(ports + port)].map(|highest| highest.max(1.0))
        };
        (0..ports).map(of_port).collect()
    }

    /// Sets the loads of the coflow at a position in the workload.
    pub fn set_coflow(&mut self, coflow: &CoflowSpec, index: usize) {
        self.late_flows.clear();
        for link in self.used_links.drain(..) {
            self.bytes[link] = 0.0;
        }
        for (position, flow) in (0..).zip(&coflow.flows) {
            let (bytes, delay) = (flow.bytes.get(), flow.data_delay.get());
            self.set_flow_links(flow.src, flow.dst, index, position);
            if bytes > 0.0 {
                for &link in &self.flow_links {
                    if self.bytes[link] == 0.0 {
                        self.used_links.push(link);
                    }
                    self.bytes[link] += bytes;
                }
            }
            if delay > 0.0 {
                self.late_flows.push(LateFlow { delay, bytes, links: self.flow_links.clone() });
            }
        }
    }

    /// Sets `flow_links` to the links of a flow.
    fn set_flow_links(&mut self, src: u32, dst: u32, index: usize, position: u32) {
        self.flow_links.clear();
        match &mut self.paths {
            Paths::Ports(trunks) => {
                let ports = self.ports as usize;
                self.flow_links.extend([src as usize, ports + dst as usize]);
                if let Some(trunks) = trunks {
                    trunks.compute_path(src, dst, index, position, &mut self.path);
                    self.flow_links.extend(self.path.iter().map(|&trunk| 2 * ports + trunk as usize));
                }
            }
            Paths::Regions(area) => {
                let (from, to) = (area.region_of_port(src, self.ports), area.region_of_port(dst, self.ports));
                if from != to {
                    self.flow_links.extend([from, area.regions().len() + to]);
                }
            }
        }
    }

    /// The minimum time of a flow alone, in seconds, from the time when its data exists; at the highest capacities if the release of its
    /// coflow is unknown.
    pub fn flow_seconds(
        &mut self,
        flow: &FlowSpec,
        index: usize,
        position: u32,
        release: Option<f64>,
    ) -> f64 {
        self.set_flow_links(flow.src, flow.dst, index, position);
        let start = release.map(|release| release + flow.data_delay.get());
        let seconds = |&link: &usize| self.capacities[link].min_seconds(flow.bytes.get(), start);
        self.flow_links.iter().map(seconds).fold(0.0, f64::max)
    }

    /// The links with bytes of the coflow, and these bytes.
    pub fn used_links(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.used_links.iter().map(|&link| (link, self.bytes[link]))
    }

    /// The minimum time of the coflow alone, in seconds: from its release, or, if that is unknown, at the highest capacities.
    pub fn bottleneck_seconds(&self, release: Option<f64>) -> f64 {
        let seconds = |link: usize, bytes: f64, delay: f64| {
            self.capacities[link].min_seconds(bytes, release.map(|release| release + delay))
        };
        let all = self.used_links().map(|(link, bytes)| seconds(link, bytes, 0.0));
        let late = self.late_flows.iter().map(|flow| {
            let after = flow.links.iter().map(|&link| seconds(link, flow.bytes, flow.delay));
            flow.delay + after.fold(0.0, f64::max)
        });
        all.chain(late).fold(0.0, f64::max)
    }
}

/// The capacities of a network of ports, and the paths of its flows.
fn port_capacities(workload: &Workload, options: &ReplayOptions) -> (Vec<Capacity>, Paths) {
    let (ports, network) = (workload.ports as usize, &options.network);
    let mut trunks = network.trunks.as_deref().cloned().map(Trunks::with_dead_end);
    let rates_of_ports = |trunks: &Option<Trunks>| -> Vec<(f64, f64)> {
        match trunks {
            Some(trunks) => trunks.cable_rates().take(ports).collect(),
            None => vec![(options.port_rate.get(), options.port_rate.get()); ports],
        }
    };
    let mut cables = rates_of_ports(&trunks);
    let mut factors = vec![(1.0, 1.0); ports];
    let mut capacities: Vec<Capacity> = Vec::new();
    capacities.extend(cables.iter().map(|cable| Capacity::constant(cable.0)));
    capacities.extend(cables.iter().map(|cable| Capacity::constant(cable.1)));
    capacities.extend(trunks.iter().flat_map(Trunks::capacities).map(|&rate| Capacity::constant(rate)));

    let mut times: Vec<f64> = workload.events.iter().map(|event| event.time.get()).collect();
    times.extend(network.cable_events.iter().map(|event| event.time.get()));
    times.sort_by(f64::total_cmp);
    times.dedup();
    let mut events = workload.events.iter().peekable();
    let mut cable_events = network.cable_events.iter().peekable();
    for time in times {
        while let Some(event) = events.next_if(|event| event.time.get() <= time) {
            if let WorkloadChange::PortRate { port, side, factor } = event.change {
                let (send, recv) = &mut factors[port as usize];
                *send = if side == PortSide::Receive { *send } else { factor };
                *recv = if side == PortSide::Send { *recv } else { factor };
            }
        }
        while let Some(event) = cable_events.next_if(|event| event.time.get() <= time) {
            if let Some(trunks) = &mut trunks {
                trunks.change_cables(&[(event.cable, event.change)]);
            }
            cables = rates_of_ports(&trunks);
        }
        for (port, ((send, recv), factor)) in cables.iter().zip(&factors).enumerate() {
            capacities[port].set(time, send * factor.0);
            capacities[ports + port].set(time, recv * factor.1);
        }
        let trunk_rates = trunks.iter().flat_map(Trunks::capacities);
        capacities[2 * ports..].iter_mut().zip(trunk_rates).for_each(|(link, &rate)| link.set(time, rate));
    }
    let have_fixed_paths = !network.cable_events.iter().any(|event| event.change.changes_routes());
    let fixed = network.trunks.as_deref().filter(|_| have_fixed_paths).cloned();
    (capacities, Paths::Ports(fixed.map(Box::new)))
}

/// The highest total bandwidths out of the regions, and into them.
fn region_capacities(area: &WideArea) -> Vec<Capacity> {
    let mut rates = vec![0.0; 2 * area.regions().len()];
    for from in 0..area.regions().len() {
        for to in 0..area.regions().len() {
            if let Some(link) = area.link_between(from, to) {
                let highest = area.samples(link).iter().copied().map(Rate::get).fold(0.0, f64::max);
                rates[from] += highest;
                rates[area.regions().len() + to] += highest;
            }
        }
    }
    rates.into_iter().map(Capacity::constant).collect()
}
