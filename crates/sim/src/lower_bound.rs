//! Lower bounds, for any schedule, on the CCT of each coflow and on the mean CCT, and checks of outcomes against them.
//!
//! Consider one link (a side of a port, or a trunk between switches), and ignore all other links. This is a single machine:
//! every coflow with bytes there is a job of that length, released with the coflow. A coflow completes no earlier than its
//! job. Any schedule of the network is a preemptive schedule of the machine, even if it shares the link between flows.
//! Shortest remaining processing time first minimizes the sum of the jobs' times on such a machine (Schrage, 1968). A coflow
//! without bytes on that link still needs its *bottleneck time*: the maximum, over all links, of its bytes there divided by
//! the capacity. The sum of both is a lower bound on the sum of all CCTs for each link. The bound is the maximum over all
//! links.
//!
//! The model ignores effects that only make schedules slower, so the bound remains valid:
//!
//! - A coflow with parents counts with its bottleneck time, because its release depends on the schedule.
//! - A coflow with a maximum transfer time counts with the shorter of both times, because the schedule decides which bytes it sends.
//! - Late data, restarts of flows, slow or failed ports, and the scheduling interval are ignored.
//!
//! A port that an event makes faster than its nominal rate would invalidate the bound: no bound is computed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_core::model::{CoflowSpec, Trunks, Workload, WorkloadChange};
use weir_core::ordered_f64::OrderedF64;
use weir_core::units::{Rate, Time};

use crate::outcome::{Outcome, mean};

/// Lower bounds for any schedule of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct LowerBounds {
    /// The lower bound of the mean CCT, in seconds; 0 without coflows.
    pub min_mean_cct: f64,
    /// The lower bound of the CCT of each coflow, in the order of the workload: its bottleneck time, in seconds.
    pub min_ccts: Vec<f64>,
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

/// Relative rounding error of a bound.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// Relative rounding error of a time since the start.
const CLOCK_TOLERANCE: f64 = 1e-14;

impl LowerBounds {
    /// The bounds of `workload` on ports of `port_rate`, or on the ports and paths of `trunks`. `None` if an event makes a port
    /// faster than that, or if a rate is 0.
    ///
    /// O(n log n) for n pairs of a coflow and a link that it uses, and the paths of all flows.
    pub fn new(workload: &Workload, port_rate: Rate, trunks: Option<&Trunks>) -> Option<LowerBounds> {
        let exceeds_nominal_rate =
            |change| matches!(change, WorkloadChange::PortRate { factor, .. } if factor > 1.0);
        let has_zero_rate = match trunks {
            Some(trunks) => trunks.port_rates().iter().any(|rate| rate.get() == 0.0),
            None => port_rate.get() == 0.0,
        };
        if has_zero_rate || workload.events.iter().any(|event| exceeds_nominal_rate(event.change)) {
            return None;
        }
        let mut loads = LinkLoads::new(workload.ports as usize, port_rate, trunks);
        let mut machines: Vec<Machine> = vec![Machine::default(); loads.capacities.len()];
        let mut min_ccts = Vec::with_capacity(workload.coflows.len());
        for (index, coflow) in workload.coflows.iter().enumerate() {
            loads.set_coflow(coflow, index);
            let limit = coflow.max_transfer_time.map_or(f64::INFINITY, Time::get);
            let bottleneck = loads.bottleneck_seconds().min(limit);
            min_ccts.push(bottleneck);
            if !coflow.parents.is_empty() || coflow.max_transfer_time.is_some() {
                continue;
            }
            // Time before the release is not part of the CCT.
            let release = coflow.arrival.get() + coflow.compute_before.get();
            for &link in &loads.used_links {
                machines[link].jobs.push(Job { release, length: loads.seconds(link) });
                machines[link].bottleneck_seconds += bottleneck;
            }
        }
        let bottlenecks = min_ccts.iter().fold(0.0, |sum, cct| sum + cct);
        let sums = machines
            .into_iter()
            .map(|link| bottlenecks - link.bottleneck_seconds + min_total_seconds(link.jobs));
        let min_mean_cct = sums.fold(bottlenecks, f64::max) / min_ccts.len().max(1) as f64;
        Some(LowerBounds { min_mean_cct, min_ccts })
    }

    /// Checks an outcome of a replay of the same workload on the same ports. O(coflows + ports).
    ///
    /// # Errors
    /// For the first coflow below its bound, a mean CCT below its bound, or the first port that moved more bytes than its
    /// capacity allows.
    pub fn check(&self, outcome: &Outcome) -> Result<(), BoundViolation> {
        let is_below =
            |found: f64, min: f64, end: f64| found + CLOCK_TOLERANCE * end < min * (1.0 - RELATIVE_TOLERANCE);
        for (coflow, &min) in outcome.coflows.iter().zip(&self.min_ccts) {
            let cct = coflow.cct();
            if is_below(cct, min, coflow.end) {
                return Err(BoundViolation::CoflowTooFast { id: coflow.id, cct, min });
            }
        }
        let (mean, min) = (mean(&outcome.ccts()), self.min_mean_cct);
        if is_below(mean, min, outcome.makespan) {
            return Err(BoundViolation::MeanTooLow { mean, min });
        }
        for (side, used) in [("sent", &outcome.send_utilization), ("received", &outcome.recv_utilization)] {
            if let Some(port) = used.iter().position(|&used| used > 1.0 + RELATIVE_TOLERANCE) {
                return Err(BoundViolation::PortOverCapacity { port, side, utilization: used[port] });
            }
        }
        Ok(())
    }
}

/// The minimum time of a coflow alone on one switch with ports of `port_rate`, in seconds.
pub fn alone_seconds(coflow: &CoflowSpec, ports: u32, port_rate: Rate) -> f64 {
    let mut loads = LinkLoads::new(ports as usize, port_rate, None);
    loads.set_coflow(coflow, 0);
    loads.bottleneck_seconds()
}

/// One link as a single machine.
#[derive(Debug, Clone, Default)]
struct Machine {
    jobs: Vec<Job>,
    /// The sum of the bottleneck times of the coflows with jobs here.
    bottleneck_seconds: f64,
}

/// A job on a machine. Times are in seconds.
#[derive(Debug, Clone, Copy)]
struct Job {
    release: f64,
    length: f64,
}

/// A coflow's bytes by link: sending sides of ports, receiving sides, then trunks.
struct LinkLoads {
    bytes: Vec<f64>,
    capacities: Vec<f64>,
    /// The links with bytes.
    used_links: Vec<usize>,
    ports: usize,
    routes: Option<Trunks>,
    path: Vec<u32>,
}

impl LinkLoads {
    fn new(ports: usize, port_rate: Rate, trunks: Option<&Trunks>) -> LinkLoads {
        let rates = trunks.map_or_else(|| vec![port_rate; ports], |trunks| trunks.port_rates().to_vec());
        let rates = || rates[..ports].iter().map(|rate| rate.get());
        let mut capacities: Vec<f64> = rates().chain(rates()).collect();
        capacities.extend(trunks.into_iter().flat_map(Trunks::capacities));
        let bytes = vec![0.0; capacities.len()];
        LinkLoads {
            bytes,
            capacities,
            used_links: Vec::new(),
            ports,
            routes: trunks.cloned(),
            path: Vec::new(),
        }
    }

    /// Sets the loads of the coflow at a position in the workload.
    fn set_coflow(&mut self, coflow: &CoflowSpec, index: usize) {
        for link in self.used_links.drain(..) {
            self.bytes[link] = 0.0;
        }
        for (position, flow) in (0..).zip(&coflow.flows).filter(|(_, flow)| flow.bytes.get() > 0.0) {
            if let Some(routes) = &mut self.routes {
                routes.compute_path(flow.src, flow.dst, index, position, &mut self.path);
            }
            let trunks = self.path.iter().map(|&trunk| 2 * self.ports + trunk as usize);
            for link in [flow.src as usize, self.ports + flow.dst as usize].into_iter().chain(trunks) {
                if self.bytes[link] == 0.0 {
                    self.used_links.push(link);
                }
                self.bytes[link] += flow.bytes.get();
            }
        }
    }

    fn seconds(&self, link: usize) -> f64 {
        self.bytes[link] / self.capacities[link]
    }

    fn bottleneck_seconds(&self) -> f64 {
        self.used_links.iter().map(|&link| self.seconds(link)).fold(0.0, f64::max)
    }
}

/// The sum of the times from release to completion of jobs on one machine, by shortest remaining processing time first.
fn min_total_seconds(mut jobs: Vec<Job>) -> f64 {
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
            remaining.push(Reverse(OrderedF64(job.length)));
        }
        let Some(Reverse(OrderedF64(shortest))) = remaining.pop() else { continue };
        let next_release = next.peek().map_or(f64::INFINITY, |job| job.release);
        // Time passes for all released jobs; `sum` counts it once for each.
        let active_jobs = remaining.len() as f64 + 1.0;
        if now + shortest <= next_release {
            sum += active_jobs * shortest;
            now += shortest;
        } else {
            sum += active_jobs * (next_release - now);
            remaining.push(Reverse(OrderedF64(shortest - (next_release - now))));
            now = next_release;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use weir_core::model::{FlowSpec, PortSide, ServiceNames, TimedEvent, TopologyTemplate};
    use weir_core::policy::{self, POLICIES};
    use weir_core::units::{Bytes, Time};

    use crate::replay::{NetworkModel, NoObserver, ReplayOptions, replay};

    const UNIT_RATE: f64 = 1.0;

    fn rate() -> Rate {
        Rate::new(UNIT_RATE).unwrap()
    }

    fn coflow(id: u64, arrival: f64, flows: &[(u32, u32, f64)]) -> CoflowSpec {
        let flows = flows.iter().map(|&(s, d, b)| FlowSpec::new(s, d, Bytes::new(b).unwrap())).collect();
        CoflowSpec::new(id, Time::new(arrival).unwrap(), flows)
    }

    fn workload(ports: u32, coflows: Vec<CoflowSpec>) -> Workload {
        Workload { ports, coflows, events: Vec::new(), names: ServiceNames::default() }
    }

    /// Two leaves of two hosts, and one spine.
    fn leaf_spine(oversubscription: f64) -> Trunks {
        let plan =
            TopologyTemplate::LeafSpine { spines: 1, leaves: 2, hosts: 2, rate: rate(), oversubscription };
        Trunks::new(plan.build().unwrap(), 0).unwrap()
    }

    fn min_mean_cct(workload: &Workload, port_rate: Rate) -> Option<f64> {
        LowerBounds::new(workload, port_rate, None).map(|bounds| bounds.min_mean_cct)
    }

    /// The minimum total time of jobs with integer lengths and releases on one machine: tries every choice, including
    /// idling, at every unit of time.
    fn min_total_time_by_search(jobs: &[(u32, u32)], left: &mut Vec<u32>, now: u32) -> u32 {
        if left.iter().all(|&l| l == 0) {
            return 0;
        }
        let mut best = None;
        for chosen in 0..jobs.len() {
            if left[chosen] == 0 || jobs[chosen].0 > now {
                continue;
            }
            left[chosen] -= 1;
            let ended = if left[chosen] == 0 { now + 1 - jobs[chosen].0 } else { 0 };
            let total = ended + min_total_time_by_search(jobs, left, now + 1);
            left[chosen] += 1;
            best = Some(best.map_or(total, |b: u32| b.min(total)));
        }
        best.unwrap_or_else(|| min_total_time_by_search(jobs, left, now + 1))
    }

    proptest! {
        #[test]
        fn bound_equals_optimum_on_one_port(jobs in prop::collection::vec((0u32..4, 1u32..4), 1..4)) {
            let coflows = jobs.iter().enumerate().map(|(id, &(release, length))| {
                // Distinct receivers: only the sending port is a bottleneck.
                coflow(id as u64, release.into(), &[(0, id as u32, length.into())])
            });
            let w = workload(4, coflows.collect());
            let mut left = jobs.iter().map(|job| job.1).collect();
            let best = f64::from(min_total_time_by_search(&jobs, &mut left, 0)) / jobs.len() as f64;
            let bound = LowerBounds::new(&w, rate(), None).unwrap().min_mean_cct;
            prop_assert!((bound - best).abs() < 1e-9, "{bound} against {best}");
        }
    }

    proptest! {
        #[test]
        fn no_policy_is_below_the_bound(
            coflows in prop::collection::vec(
                (0u32..20, prop::collection::vec((0u32..4, 0u32..4, 0u32..8), 1..6)),
                1..8,
            ),
            interval in prop::sample::select(vec![0.0, 0.5]),
            oversubscription in prop::option::of(prop::sample::select(vec![1.0, 2.0, 4.0])),
        ) {
            let coflows = coflows.iter().enumerate().map(|(id, (arrival, flows))| {
                let flows: Vec<_> = flows.iter().map(|&(s, d, b)| (s, d, b.into())).collect();
                coflow(id as u64, (*arrival).into(), &flows)
            });
            let w = workload(4, coflows.collect());
            let trunks = oversubscription.map(leaf_spine);
            let bound = LowerBounds::new(&w, rate(), trunks.as_ref()).unwrap().min_mean_cct;
            let network = NetworkModel { trunks: trunks.map(Arc::new), ..NetworkModel::default() };
            let options =
                ReplayOptions { port_rate: rate(), interval: Time::new(interval).unwrap(), keep_flow_ends: false, network };
            for entry in POLICIES {
                let policy = policy::build(entry.name).unwrap();
                let found = mean(&replay(&w, policy, &options, &mut NoObserver).unwrap().ccts());
                prop_assert!(found >= bound * (1.0 - 1e-9), "{}: {found} beats {bound}", entry.name);
            }
        }
    }

    #[test]
    fn bound_includes_the_bottleneck_of_coflows_on_other_ports() {
        // Port 0 sends 1 and 2: 1 + 3. Coflow 3 is alone on port 1 and takes 5, for both of its flows.
        let w = workload(
            4,
            vec![
                coflow(1, 0.0, &[(0, 2, 1.0)]),
                coflow(2, 0.0, &[(0, 3, 2.0)]),
                coflow(3, 0.0, &[(1, 0, 2.0), (1, 1, 3.0)]),
            ],
        );
        assert_eq!(min_mean_cct(&w, rate()), Some((1.0 + 3.0 + 5.0) / 3.0));
        assert_eq!(alone_seconds(&w.coflows[2], 4, rate()), 5.0);
    }

    #[test]
    fn bound_counts_trunks() {
        // Two coflows of 1 byte share an uplink that carries half a port: they take 2 and 4. One switch carries both in 1.
        let w = workload(4, vec![coflow(1, 0.0, &[(0, 2, 1.0)]), coflow(2, 0.0, &[(1, 3, 1.0)])]);
        assert_eq!(min_mean_cct(&w, rate()), Some(1.0));
        assert_eq!(LowerBounds::new(&w, rate(), Some(&leaf_spine(4.0))).unwrap().min_mean_cct, 3.0);
    }

    #[test]
    fn bound_counts_child_coflows_by_their_bottleneck() {
        let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 0, 1.0)]), coflow(2, 0.0, &[(0, 0, 2.0)])]);
        assert_eq!(min_mean_cct(&w, rate()), Some(2.0));
        w.coflows[1].parents = vec![0];
        assert_eq!(min_mean_cct(&w, rate()), Some(1.5));
    }

    #[test]
    fn bound_is_none_only_with_a_faster_port() {
        let mut w = workload(1, vec![coflow(1, 0.0, &[(0, 0, 1.0)])]);
        for (factor, bound) in [(0.0, Some(1.0)), (1.0, Some(1.0)), (1.5, None)] {
            let change = WorkloadChange::PortRate { port: 0, side: PortSide::Both, factor };
            w.events = vec![TimedEvent { time: Time::ZERO, change }];
            assert_eq!(min_mean_cct(&w, rate()), bound);
        }
        assert_eq!(min_mean_cct(&workload(1, Vec::new()), rate()), Some(0.0));
    }

    #[test]
    fn bound_preempts_at_releases() {
        // Lengths 5 (released at 0) and 1 (released at 2): the second runs from its release; the times are 6 and 1.
        let w = workload(2, vec![coflow(1, 0.0, &[(0, 0, 5.0)]), coflow(2, 2.0, &[(0, 1, 1.0)])]);
        assert_eq!(min_mean_cct(&w, rate()), Some(3.5));
    }

    #[test]
    fn check_names_the_violated_bound() {
        // Lengths 1 and 3 on one port, and 2 released late: they take at least 1, 3 + 1 and 2.
        let w = workload(
            3,
            vec![
                coflow(1, 0.0, &[(0, 0, 1.0)]),
                coflow(2, 0.0, &[(0, 1, 3.0)]),
                coflow(3, 1e6, &[(1, 2, 2.0)]),
            ],
        );
        let bounds = LowerBounds::new(&w, rate(), None).unwrap();
        assert_eq!(bounds.min_ccts, [1.0, 3.0, 2.0]);
        let options = ReplayOptions {
            port_rate: rate(),
            interval: Time::ZERO,
            keep_flow_ends: false,
            network: NetworkModel::default(),
        };
        let found = replay(&w, policy::build("scf").unwrap(), &options, &mut NoObserver).unwrap();
        assert_eq!(bounds.check(&found), Ok(()));
        // Rounding of the clock is tolerated, but nothing more.
        let with_end = |index: usize, end: f64| {
            let mut forged = found.clone();
            forged.coflows[index].end = end;
            bounds.check(&forged)
        };
        assert_eq!(with_end(2, 1e6 + 2.0 - 2e-9), Ok(()));
        let slow = with_end(2, 1e6 + 2.0 - 2e-8).unwrap_err();
        assert!(matches!(slow, BoundViolation::CoflowTooFast { id: 3, min: 2.0, .. }), "{slow}");
        assert_eq!(with_end(0, 0.5), Err(BoundViolation::CoflowTooFast { id: 1, cct: 0.5, min: 1.0 }));
        // Each coflow is as fast as alone, which is impossible on the port that they share.
        assert_eq!(with_end(1, 3.0), Err(BoundViolation::MeanTooLow { mean: 2.0, min: 7.0 / 3.0 }));
        let mut forged = found.clone();
        forged.recv_utilization[2] = 1.0 + 2e-9;
        let message = bounds.check(&forged).unwrap_err().to_string();
        assert_eq!(message, "port 2 received 1.000000002 times its capacity");
    }
}
