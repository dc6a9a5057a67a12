//! Lower bounds, for any schedule, on the CCT of each coflow and on the mean CCT, and checks of outcomes against them.
//!
//! Consider one link (a side of a port, or a trunk between switches), and ignore all other links. This is a single machine:
//! every coflow with bytes there is a job of that length, released with the coflow. Any schedule of the network is a preemptive
//! schedule of the machine, even if it shares the link between flows, so every coflow completes no earlier than its job.
//! Shortest remaining processing time first minimizes the sum of the jobs' times on such a machine (Schrage, 1968), also if the
//! machine's speed changes: at every time, it has the fewest incomplete jobs. A coflow without bytes on that link still needs its
//! *bottleneck time*: the maximum, over all links, of the time that the link needs for its bytes. The sum of both is a lower bound
//! on the sum of all CCTs for each link. The bound is the maximum over all links.
//!
//! Links have the capacity that they have at each time (`lower_bound/links.rs`). The model ignores effects that only make schedules
//! slower, so the bound remains valid:
//!
//! - A coflow with parents counts with its bottleneck time at the highest capacity of each link, because its release depends on the
//!   schedule.
//! - A coflow with a maximum transfer time counts with the shorter of both times, because the schedule decides which bytes it sends.
//! - Endless coflows take no part of any link.
//! - Late data counts in bottleneck times only. Data that becomes unavailable, restarts of flows, and the scheduling interval are
//!   ignored.

mod links;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_core::model::{CoflowSpec, Workload};
use weir_core::ordered_f64::OrderedF64;
use weir_core::units::{Rate, Time};

use crate::outcome::{Outcome, mean};
use crate::replay::{NetworkModel, ReplayOptions};
use links::{Capacity, LinkLoads};
use weir_core::rounding::{self, is_shorter};

/// Lower bounds for any schedule of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct LowerBounds {
    /// The lower bound of the mean CCT, in seconds; 0 without coflows.
    pub min_mean_cct: f64,
    /// The lower bound of the CCT of each finite coflow, in the order of the workload: its bottleneck time, in seconds; infinite if a link
    /// never has the capacity for its bytes.
    pub min_ccts: Vec<f64>,
    /// By port: the highest utilization for sending, and for receiving. Above 1 if an event raises its rate.
    max_utilization: Vec<[f64; 2]>,
    /// By how much later than an event its effect can start, over all events, in seconds.
    event_slack: f64,
}

/// An outcome that violates a bound, which indicates a bug in the policy or the simulator. Times are in seconds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BoundViolation {
    /// A coflow was faster than alone.
    #[error("coflow {id} took {cct} s; the lower bound is {min} s")]
    CoflowTooFast {
        /// Its id in the trace.
        id: u64,
        /// Its CCT.
        cct: f64,
        /// The lower bound.
        min: f64,
    },
    /// The mean CCT is below its bound.
    #[error("the mean CCT is {mean} s; the lower bound is {min} s")]
    MeanTooLow {
        /// The mean CCT.
        mean: f64,
        /// The lower bound.
        min: f64,
    },
    /// A port moved more bytes than its capacity allows.
    #[error("port {port} {side} {utilization} times its capacity")]
    PortOverCapacity {
        /// The port.
        port: usize,
        /// `sent` or `received`.
        side: &'static str,
        /// Bytes moved divided by the bytes that the port could move.
        utilization: f64,
    },
}

impl LowerBounds {
    /// The bounds of `workload` on the network of `options`.
    ///
    /// O(n (log n + changes of the link's capacity)) for n pairs of a coflow and a link that it uses, and the paths of all flows.
    pub fn new(workload: &Workload, options: &ReplayOptions) -> LowerBounds {
        let mut loads = LinkLoads::new(workload, options);
        let mut machines: Vec<Machine> = vec![Machine::default(); loads.links()];
        let max_utilization = loads.max_port_utilization(options);
        let coflows = workload.finite_coflows();
        let mut min_ccts = Vec::with_capacity(coflows.len());
        for (index, coflow) in coflows.iter().enumerate() {
            loads.set_coflow(coflow, index);
            let limit = coflow.max_transfer_time.map_or(f64::INFINITY, Time::get);
            // Time before the release is not part of the CCT.
            let release = coflow.arrival.get() + coflow.compute_before.get();
            let bottleneck =
                loads.bottleneck_seconds(coflow.parents.is_empty().then_some(release)).min(limit);
            min_ccts.push(bottleneck);
            if !coflow.parents.is_empty() || coflow.max_transfer_time.is_some() {
                continue;
            }
            for (link, bytes) in loads.used_links() {
                machines[link].jobs.push(Job { release, bytes });
                machines[link].bottleneck_seconds += bottleneck;
            }
        }
        let bottlenecks = min_ccts.iter().fold(0.0, |sum, cct| sum + cct);
        let mut min_sum = bottlenecks;
        if bottlenecks.is_finite() {
            for (link, machine) in machines.into_iter().enumerate() {
                let other_coflows = bottlenecks - machine.bottleneck_seconds;
                min_sum = min_sum.max(other_coflows + min_total_seconds(machine.jobs, loads.capacity(link)));
            }
        }
        let min_mean_cct = min_sum / min_ccts.len().max(1) as f64;
        let events = workload.events.len() + options.network.cable_events.len();
        let event_slack = events as f64 * options.slack_seconds();
        LowerBounds { min_mean_cct, min_ccts, max_utilization, event_slack }
    }

    /// Checks an outcome of a replay of the same workload on the same ports. O(coflows + ports).
    ///
    /// # Errors
    /// For the first coflow below its bound, a mean CCT below its bound, or the first port that moved more bytes than its
    /// capacity allows.
    pub fn check(&self, outcome: &Outcome) -> Result<(), BoundViolation> {
        let is_below = |found: f64, min: f64, end: f64| is_shorter(found + self.event_slack, min, end);
        for coflow in &outcome.coflows {
            let (cct, min) = (coflow.cct(), self.min_ccts[coflow.index]);
            if is_below(cct, min, coflow.end) {
                return Err(BoundViolation::CoflowTooFast { id: coflow.id, cct, min });
            }
        }
        let (mean, min) = (mean(&outcome.ccts()), self.min_mean_cct);
        // The bound is for all coflows.
        if outcome.stall.is_none() && is_below(mean, min, outcome.makespan) {
            return Err(BoundViolation::MeanTooLow { mean, min });
        }
        let sides = [("sent", &outcome.send_utilization), ("received", &outcome.recv_utilization)];
        for (number, (side, used)) in sides.into_iter().enumerate() {
            let is_above = |(used, max): (&f64, &[f64; 2])| *used > max[number] * (1.0 + rounding::DURATION);
            if let Some(port) = used.iter().zip(&self.max_utilization).position(is_above) {
                return Err(BoundViolation::PortOverCapacity { port, side, utilization: used[port] });
            }
        }
        Ok(())
    }
}

/// The minimum time of a coflow alone on one switch with ports of `port_rate`, in seconds.
pub fn alone_seconds(coflow: &CoflowSpec, ports: u32, port_rate: Rate) -> f64 {
    let options = ReplayOptions { port_rate, network: NetworkModel::default(), ..ReplayOptions::default() };
    let without_coflows =
        Workload { ports, coflows: Vec::new(), events: Vec::new(), names: Default::default() };
    let mut loads = LinkLoads::new(&without_coflows, &options);
    loads.set_coflow(coflow, 0);
    loads.bottleneck_seconds(None)
}

/// The minimum times of flows from the start of their data, by finite coflow and flow, in seconds; infinite if a link never has the
/// capacity. O(flows and their links).
pub fn min_fcts(workload: &Workload, options: &ReplayOptions) -> Vec<Vec<f64>> {
    let mut loads = LinkLoads::new(workload, options);
    let mut of_coflow = |(index, coflow): (usize, &CoflowSpec)| {
        let release = coflow.arrival.get() + coflow.compute_before.get();
        let release = coflow.parents.is_empty().then_some(release);
        let limit = coflow.max_transfer_time.map_or(f64::INFINITY, Time::get);
        let flows = (0..).zip(&coflow.flows);
        flows.map(|(position, flow)| loads.flow_seconds(flow, index, position, release).min(limit)).collect()
    };
    workload.finite_coflows().iter().enumerate().map(&mut of_coflow).collect()
}

/// One link as a single machine.
#[derive(Debug, Clone, Default)]
struct Machine {
    jobs: Vec<Job>,
    /// The sum of the bottleneck times of the coflows with jobs here.
    bottleneck_seconds: f64,
}

/// A job on a machine.
#[derive(Debug, Clone, Copy)]
struct Job {
    /// In seconds.
    release: f64,
    bytes: f64,
}

/// The sum of the times from release to completion of jobs on one machine, by shortest remaining processing time first.
fn min_total_seconds(mut jobs: Vec<Job>, capacity: &Capacity) -> f64 {
    jobs.sort_by(|a, b| a.release.total_cmp(&b.release));
    let mut remaining: BinaryHeap<Reverse<OrderedF64>> = BinaryHeap::new();
    let (mut now, mut sum) = (0.0, 0.0);
    let mut next = jobs.iter().peekable();
    loop {
        if remaining.is_empty() {
            let Some(job) = next.peek() else { return sum };
            now = job.release;
        }
        while let Some(job) = next.next_if(|job| job.release <= now) {
            remaining.push(Reverse(OrderedF64(job.bytes)));
        }
        let Some(Reverse(OrderedF64(shortest))) = remaining.pop() else { continue };
        let next_release = next.peek().map_or(f64::INFINITY, |job| job.release);
        // Time passes for all released jobs; `sum` counts it once for each.
        let active_jobs = remaining.len() as f64 + 1.0;
        let seconds = capacity.seconds_to_send(shortest, now);
        if now + seconds <= next_release {
            sum += active_jobs * seconds;
            now += seconds;
        } else {
            sum += active_jobs * (next_release - now);
            remaining.push(Reverse(OrderedF64(shortest - capacity.bytes_between(now, next_release))));
            now = next_release;
        }
    }
}

#[cfg(test)]
mod tests;
