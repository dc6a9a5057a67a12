//! Simulates coflows between regions, over links with random bandwidth (Siphon, ATC '18, sections 3 and 5).
//!
//! [`replay`] runs a workload and [`run`] transfers in groups, under a [`WideAreaPolicy`]. The simulation is fluid: a
//! link serves coflows in the policy's order, and preempts at once. The policy is called at each arrival and end of a
//! coflow (under a policy tree also when one has no more bytes for a link), and knows only past measurements.
//! [`bandwidth`] draws the bandwidth of links.
//!
//! Choices that the paper leaves open:
//!
//! - *Flows* of a coflow between two regions are one ("aggregated flows"). Flows inside a region take no time, since the
//!   region's network is never a bottleneck.
//! - *Ports* of a workload are spread evenly over the regions, neighbours together.
//! - *A relay* forwards immediately, so a part on a detour has one rate on both links, and its bytes count on both. If the
//!   next link is busy, the part waits at its source, not at the relay.
//! - *Inside a coflow*, flows that share a link share it evenly (max-min; "in a round-robin manner"), or are served group by
//!   group.
//! - *Decisions*, and sending them to the relays, take no time.

pub mod bandwidth;

mod demand;
mod links;

use std::collections::BTreeMap;
use std::time::Instant;

use weir_core::model::{BandwidthHistory, CoflowSpec, FlowSpec, WideArea, Workload, WorkloadError};
use weir_core::wide_area::detour::{self, CoflowPaths};
use weir_core::wide_area::{Mechanisms, WaitingCoflow, WideAreaPolicy};

use crate::outcome::{CoflowOutcome, Outcome, coefficient_of_variation};
pub use demand::{CoflowDemand, FlowGroup, link_loads};

use bandwidth::Bandwidth;
use links::{Active, Transfer};

/// The order of the groups inside a coflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupOrder {
    /// All groups at the same time; on a common link they share evenly.
    Concurrent,
    /// Largest flow group first ([`weir_core::wide_area::flow_groups`]).
    LargestFirst,
    /// Smallest flow group first, for comparison (Fig. 5).
    SmallestFirst,
}

/// Options of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WideAreaOptions {
    /// The seed of the bandwidths; the same for every policy.
    pub seed: u64,
    /// The order inside coflows, unless their policy requires that the largest flow group is first.
    pub group_order: GroupOrder,
    /// Whether the outcome contains the end of every flow.
    pub keep_flow_ends: bool,
}

/// The result of a run. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WideAreaRun {
    /// For each demand, group and transfer, its end.
    pub transfer_ends: Vec<Vec<Vec<f64>>>,
    /// The bytes that each link carried.
    pub carried_bytes: Vec<f64>,
    /// The bytes that each link could have carried until the last end.
    pub capacity_bytes: Vec<f64>,
    /// The time to compute each decision, in nanoseconds.
    pub decision_ns: Vec<u32>,
    /// The paths of each demand.
    pub routes: Vec<CoflowPaths>,
}

impl WideAreaRun {
    /// The time of each demand from its arrival to its last end, in seconds. `demands` are those of the run.
    pub fn ccts(&self, demands: &[CoflowDemand]) -> Vec<f64> {
        let last_end = |ends: &Vec<Vec<f64>>| ends.iter().flatten().copied().fold(0.0, f64::max);
        self.transfer_ends.iter().zip(demands).map(|(ends, demand)| last_end(ends) - demand.arrival).collect()
    }
}

/// The reason why a replay has no outcome.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WideAreaReplayError {
    /// The workload is inconsistent.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The workload has a feature that a wide area does not support.
    #[error(
        "coflow {coflow} has {feature}, which a wide area does not support; expected coflows without parents, computing and late data"
    )]
    UnsupportedCoflow {
        /// The coflow's id.
        coflow: u64,
        /// The feature.
        feature: &'static str,
    },
    /// The workload has events.
    #[error("events are not supported in a wide area; expected none")]
    UnsupportedEvents,
    /// Bandwidth would change too often.
    #[error(
        "bandwidth changes more than {max} times until {seconds:.0} s; expected a longer time between changes"
    )]
    TooManyChanges {
        /// The simulated time, in seconds.
        seconds: f64,
        /// The limit.
        max: u64,
    },
    /// The caller stopped the replay.
    #[error("interrupted after {completed} of {total} coflows")]
    Interrupted {
        /// Number of completed coflows.
        completed: usize,
        /// Number of all coflows.
        total: usize,
    },
}

/// The bytes between regions of some flows, by link.
fn between(flows: &[&FlowSpec], area: &WideArea, ports: u32) -> Vec<(u32, f64)> {
    let mut bytes = vec![0.0; area.links()];
    for flow in flows {
        if let Some(link) =
            area.link_between(area.region_of_port(flow.src, ports), area.region_of_port(flow.dst, ports))
        {
            bytes[link as usize] += flow.bytes.get();
        }
    }
    (0..).zip(bytes).filter(|(_, bytes)| *bytes > 0.0).collect()
}

/// The ports that a coflow's flows go to, in order.
fn receivers(coflow: &CoflowSpec) -> Vec<u32> {
    let mut ports: Vec<u32> = coflow.flows.iter().map(|flow| flow.dst).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The bytes that the coflows of a workload move between regions, in the order of the workload; one group for each coflow.
///
/// # Errors
/// If the workload is inconsistent, or has a feature that a wide area does not support.
pub fn coflow_demands(
    workload: &Workload,
    area: &WideArea,
) -> Result<Vec<CoflowDemand>, WideAreaReplayError> {
    demands_in(workload, area, |_| false)
}

/// The same with a group for each receiving port, in their order, of those coflows that are `grouped`.
fn demands_in(
    workload: &Workload,
    area: &WideArea,
    grouped: impl Fn(&CoflowSpec) -> bool,
) -> Result<Vec<CoflowDemand>, WideAreaReplayError> {
    workload.check()?;
    if !workload.events.is_empty() {
        return Err(WideAreaReplayError::UnsupportedEvents);
    }
    let each = workload.coflows.iter().map(|coflow| {
        let computes = coflow.compute_before.get() > 0.0 || coflow.compute_after.get() > 0.0;
        let late = coflow.flows.iter().any(|flow| flow.data_delay.get() > 0.0);
        let what = match () {
            () if !coflow.parents.is_empty() => "parents",
            () if computes => "computing time",
            () if late => "late data",
            () => {
                let group = |flows: Vec<&FlowSpec>| FlowGroup {
                    bytes: flows.iter().map(|flow| flow.bytes.get()).sum(),
                    flows: between(&flows, area, workload.ports),
                };
                let groups = if grouped(coflow) {
                    let mut by_port: BTreeMap<u32, Vec<&FlowSpec>> = BTreeMap::new();
                    coflow.flows.iter().for_each(|flow| by_port.entry(flow.dst).or_default().push(flow));
                    by_port.into_values().map(group).collect()
                } else {
                    vec![group(coflow.flows.iter().collect())]
                };
                let of = (coflow.service, coflow.application);
                return Ok(CoflowDemand {
                    arrival: coflow.arrival.get(),
                    service_and_application: of,
                    groups,
                });
            }
        };
        Err(WideAreaReplayError::UnsupportedCoflow { coflow: coflow.id, feature: what })
    });
    each.collect()
}

/// Runs a workload. Calls `should_continue` at each step with the number of completed coflows; if it returns `false`, the
/// run stops.
///
/// # Errors
/// If the workload is not supported, bandwidth changes too often, or the caller stops the run.
pub fn replay(
    workload: &Workload,
    area: &WideArea,
    scheme: WideAreaPolicy,
    options: &WideAreaOptions,
    should_continue: impl FnMut(usize) -> bool,
) -> Result<Outcome, WideAreaReplayError> {
    let start = Instant::now();
    let grouped = |coflow: &CoflowSpec| {
        scheme.mechanisms(scheme.leaf_of_application(coflow.service, coflow.application)).largest_group_first
    };
    let demands = demands_in(workload, area, grouped)?;
    let run = run(&demands, area, scheme, options, should_continue)?;
    let coflows = workload.coflows.iter().zip(&demands).zip(&run.transfer_ends).enumerate();
    let coflows = coflows.map(|(index, ((coflow, demand), ends))| {
        let arrival = coflow.arrival.get();
        let region = |port| area.region_of_port(port, workload.ports);
        let receivers = if demand.groups.len() > 1 { receivers(coflow) } else { Vec::new() };
        let end_of = |flow: &FlowSpec| {
            let group = receivers.binary_search(&flow.dst).unwrap_or(0);
            let link = area.link_between(region(flow.src), region(flow.dst));
            let of_link = |link| demand.groups[group].flows.iter().position(|flow| flow.0 == link);
            link.and_then(of_link).map_or(arrival, |at| ends[group][at])
        };
        let flow_ends: Vec<f64> = coflow.flows.iter().map(end_of).collect();
        let end = flow_ends.iter().copied().fold(arrival, f64::max);
        CoflowOutcome {
            index,
            id: coflow.id,
            released_at: arrival,
            end,
            width: coflow.flows.len(),
            bytes: coflow.total_bytes(),
            flow_time_deviation: coefficient_of_variation(flow_ends.iter().map(|end| end - arrival)),
            has_equal_flow_sizes: coflow.flows.windows(2).all(|pair| pair[0].bytes == pair[1].bytes),
            met_deadline: coflow.deadline.map(|deadline| end - arrival <= deadline.get()),
            flow_ends: if options.keep_flow_ends { flow_ends } else { Vec::new() },
        }
    });
    let coflows: Vec<CoflowOutcome> = coflows.collect();
    let used = run.carried_bytes.iter().zip(&run.capacity_bytes);
    Ok(Outcome {
        flow_count: workload.flow_count(),
        makespan: coflows.iter().map(|coflow| coflow.end).fold(0.0, f64::max),
        coflows,
        jobs: Vec::new(),
        send_utilization: used
            .map(|(carried, could)| if *could > 0.0 { carried / could } else { 0.0 })
            .collect(),
        recv_utilization: Vec::new(),
        schedule_ns: run.decision_ns,
        wall_seconds: start.elapsed().as_secs_f64(),
    })
}

/// Runs coflows without changes. Calls `should_continue` at each step with the number of completed coflows; if it returns
/// `false`, the run stops.
///
/// # Errors
/// If bandwidth changes too often, or the caller stops the run.
pub fn run(
    demands: &[CoflowDemand],
    area: &WideArea,
    mut scheme: WideAreaPolicy,
    options: &WideAreaOptions,
    mut should_continue: impl FnMut(usize) -> bool,
) -> Result<WideAreaRun, WideAreaReplayError> {
    let past = area.bandwidth_history();
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|&a, &b| demands[a].arrival.total_cmp(&demands[b].arrival));
    let mut arrivals = order.into_iter().peekable();
    let mut bandwidth = Bandwidth::new(area, options.seed);
    let mut links = links::Links::new(area.links());
    let mut found = WideAreaRun {
        transfer_ends: demands
            .iter()
            .map(|d| d.groups.iter().map(|g| vec![d.arrival; g.flows.len()]).collect())
            .collect(),
        carried_bytes: vec![0.0; area.links()],
        capacity_bytes: vec![0.0; area.links()],
        decision_ns: Vec::new(),
        routes: vec![CoflowPaths { path_shares: Vec::new(), link_bytes: Vec::new() }; demands.len()],
    };
    let (mut active, mut now, mut done) = (Vec::<Active>::new(), 0.0, 0);
    let mut seq = 0;
    let mut asks = false;
    loop {
        while let Some(index) = arrivals.next_if(|&index| demands[index].arrival <= now) {
            let (coflow, routes) = begin(index, seq, &demands[index], &past, &scheme, options.group_order);
            found.routes[index] = routes;
            seq += 1;
            if coflow.transfers.is_empty() {
                done += 1;
            } else {
                active.push(coflow);
                asks = true;
            }
        }
        if !should_continue(done) {
            return Err(WideAreaReplayError::Interrupted { completed: done, total: demands.len() });
        }
        if asks {
            let waiting: Vec<WaitingCoflow> =
                active.iter().map(|coflow| coflow.waiting(area.links())).collect();
            let start = Instant::now();
            links.set(scheme.policy.decide_order(&waiting, &past));
            found.decision_ns.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
            asks = false;
        }
        links.assign(&mut active, bandwidth.rates());
        let mut step = arrivals.peek().map_or(f64::INFINITY, |&index| demands[index].arrival - now);
        step = step.min(links::first_end(&active));
        if step == f64::INFINITY {
            return Ok(found);
        }
        let change = bandwidth.next_change() - now;
        let changes = change <= step;
        step = step.min(change).max(0.0);
        for (could, rate) in found.capacity_bytes.iter_mut().zip(bandwidth.rates()) {
            *could += rate * step;
        }
        now += step;
        let ended = |coflow: &Active, transfer: &Transfer, last: bool| {
            if last {
                found.transfer_ends[coflow.index][transfer.group][transfer.place] = now;
            }
        };
        let parts = |active: &[Active]| active.iter().map(|coflow| coflow.transfers.len()).sum::<usize>();
        let (before, parts_before) = (active.len(), parts(&active));
        links::advance(&mut active, step, &mut found.carried_bytes, ended);
        asks |= active.len() < before || links.are_divided() && parts(&active) < parts_before;
        done += before - active.len();
        if changes {
            bandwidth
                .apply_change()
                .map_err(|most| WideAreaReplayError::TooManyChanges { seconds: now, max: most })?;
        }
    }
}

/// A coflow as it begins, on its ways.
fn begin(
    index: usize,
    seq: u64,
    demand: &CoflowDemand,
    past: &BandwidthHistory,
    scheme: &WideAreaPolicy,
    inside: GroupOrder,
) -> (Active, CoflowPaths) {
    let bytes: Vec<(u32, f64)> = demand.groups.iter().flat_map(|group| &group.flows).copied().collect();
    let leaf = scheme.leaf_of_application(demand.service_and_application.0, demand.service_and_application.1);
    let Mechanisms { detours, largest_group_first: groups } = scheme.mechanisms(leaf);
    let inside = if groups { GroupOrder::LargestFirst } else { inside };
    let routes =
        if detours { detour::relieve_bottlenecks(past, &bytes) } else { detour::direct_paths(past, &bytes) };
    let mut transfers = Vec::new();
    for (group, list) in demand.groups.iter().enumerate() {
        for (place, &(pair, bytes)) in list.flows.iter().enumerate() {
            for part in routes.path_shares.iter().filter(|part| part.direct_link == pair && bytes > 0.0) {
                let links = detour::path_links(past, part);
                transfers.push(Transfer { group, place, links, left: bytes * part.fraction, rate: 0.0 });
            }
        }
    }
    let sizes: Vec<f64> = demand.groups.iter().map(|group| group.bytes).collect();
    (Active { index, seq, leaf, inside, groups: links::order(&sizes, inside), transfers }, routes)
}
