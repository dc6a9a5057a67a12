//! Lower bounds on the CCT of each coflow and on their mean that no schedule beats, whatever it knows.
//!
//! Take one side of one port, and forget all other ports. What is left is a single machine: every coflow with bytes
//! there is a job of that length, released when the coflow is. A coflow is not done before its job is, and any
//! schedule of the fabric, also one that shares the port between flows, is a preemptive schedule of the
//! machine. Shortest remaining processing time first makes the sum of the jobs' times in such a machine least
//! (Schrage, 1968). A coflow without bytes there still needs its *bottleneck time*, the most that any
//! side of a port has to move for it at full rate. The two sums add up to a bound on the sum of all CCTs, which holds for
//! each side of each port; the largest of them is the bound.
//!
//! What it leaves out only makes schedules slower, so it stays a bound:
//! - a coflow with parents counts with its bottleneck time, as its release depends on the schedule;
//! - data that comes later than its coflow, flows that start anew, ports that slow down or fail, and the
//!   scheduling interval are ignored.
//!
//! A port that an event makes faster than its nominal rate would break it: then there is no bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_core::model::{Change, CoflowSpec, Workload};
use weir_core::order::Key;
use weir_core::units::Rate;

use crate::outcome::{Outcome, mean};

/// What no schedule of a workload beats.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// The least mean CCT, in seconds; 0 of no coflows.
    pub mean_cct: f64,
    /// The least CCT of each coflow, in the order of the workload: its bottleneck time, in seconds.
    pub ccts: Vec<f64>,
}

/// An outcome that no schedule has: a fault of the policy, or of the simulator. Times in seconds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Impossible {
    /// A coflow was faster than alone.
    #[error("coflow {id} took {cct} s, and no schedule takes less than {least} s")]
    Coflow {
        /// Its number in the trace.
        id: u64,
        /// What it took.
        cct: f64,
        /// What it takes at least.
        least: f64,
    },
    /// All coflows together were faster than they can be.
    #[error("the mean CCT is {mean} s, and no schedule has one below {least} s")]
    Mean {
        /// The mean CCT.
        mean: f64,
        /// The least that there is.
        least: f64,
    },
    /// A port moved more than it can.
    #[error("port {port} {side} {used} times what it can")]
    Port {
        /// The port.
        port: usize,
        /// `sent` or `received`.
        side: &'static str,
        /// What it moved, over what it can move.
        used: f64,
    },
}

/// What rounding may do to a bound, as a part of it.
const ROUNDING: f64 = 1e-9;

/// What it may do to a time since the start, likewise.
const CLOCK: f64 = 1e-14;

impl Bounds {
    /// The bounds of `workload` on ports of `port_rate`. `None` where an event makes a port faster than that, or if nothing
    /// can be moved.
    ///
    /// O(n log n) for n pairs of a coflow and a port's side that it uses.
    pub fn new(workload: &Workload, port_rate: Rate) -> Option<Bounds> {
        let rate = port_rate.get();
        let faster = |change| matches!(change, Change::PortRate { factor, .. } if factor > 1.0);
        if rate == 0.0 || workload.events.iter().any(|event| faster(event.what)) {
            return None;
        }
        let ports = workload.ports as usize;
        let mut sides: Vec<Side> = vec![Side::default(); 2 * ports];
        let mut loads = Loads { bytes: vec![0.0; 2 * ports], used: Vec::new() };
        let mut ccts = Vec::with_capacity(workload.coflows.len());
        for coflow in &workload.coflows {
            loads.fill(coflow, ports);
            let bottleneck = loads.most() / rate;
            ccts.push(bottleneck);
            if !coflow.parents.is_empty() {
                continue;
            }
            // What comes before a release is not part of the CCT.
            let release = coflow.arrival.get() + coflow.compute_before.get();
            for &side in &loads.used {
                sides[side].jobs.push(Job { release, length: loads.bytes[side] / rate });
                sides[side].bottlenecks += bottleneck;
            }
        }
        let bottlenecks = ccts.iter().fold(0.0, |sum, cct| sum + cct);
        let sums = sides.into_iter().map(|side| bottlenecks - side.bottlenecks + total_time(side.jobs));
        let mean_cct = sums.fold(bottlenecks, f64::max) / ccts.len().max(1) as f64;
        Some(Bounds { mean_cct, ccts })
    }

    /// Checks what is said to have come of a replay of the same workload on the same ports.
    ///
    /// # Errors
    /// The first coflow that beats its bound, or port that moved more than it can. O(coflows + ports).
    pub fn check(&self, outcome: &Outcome) -> Result<(), Impossible> {
        let beats = |found: f64, least: f64, end: f64| found + CLOCK * end < least * (1.0 - ROUNDING);
        for (coflow, &least) in outcome.coflows.iter().zip(&self.ccts) {
            let cct = coflow.cct();
            if beats(cct, least, coflow.end) {
                return Err(Impossible::Coflow { id: coflow.id, cct, least });
            }
        }
        let (mean, least) = (mean(&outcome.ccts()), self.mean_cct);
        if beats(mean, least, outcome.makespan) {
            return Err(Impossible::Mean { mean, least });
        }
        for (side, used) in [("sent", &outcome.send_utilisation), ("received", &outcome.recv_utilisation)] {
            if let Some(port) = used.iter().position(|&used| used > 1.0 + ROUNDING) {
                return Err(Impossible::Port { port, side, used: used[port] });
            }
        }
        Ok(())
    }
}

/// The least mean CCT that any schedule of `workload` has; see [`Bounds`].
pub fn mean_cct(workload: &Workload, port_rate: Rate) -> Option<f64> {
    Bounds::new(workload, port_rate).map(|bounds| bounds.mean_cct)
}

/// The most that one side of a port has to move for a coflow, in bytes: what it takes alone, at full rate.
pub fn bottleneck(coflow: &CoflowSpec, ports: u32) -> f64 {
    let ports = ports as usize;
    let mut loads = Loads { bytes: vec![0.0; 2 * ports], used: Vec::new() };
    loads.fill(coflow, ports);
    loads.most()
}

/// One side of one port as a machine.
#[derive(Debug, Clone, Default)]
struct Side {
    jobs: Vec<Job>,
    /// Bottleneck times of the coflows whose jobs these are.
    bottlenecks: f64,
}

/// Times in seconds.
#[derive(Debug, Clone, Copy)]
struct Job {
    release: f64,
    length: f64,
}

/// A coflow's bytes by side: sending ports first, then receiving ones.
struct Loads {
    bytes: Vec<f64>,
    /// The sides with bytes.
    used: Vec<usize>,
}

impl Loads {
    fn fill(&mut self, coflow: &CoflowSpec, ports: usize) {
        for side in self.used.drain(..) {
            self.bytes[side] = 0.0;
        }
        for flow in coflow.flows.iter().filter(|flow| flow.bytes.get() > 0.0) {
            for side in [flow.src as usize, ports + flow.dst as usize] {
                if self.bytes[side] == 0.0 {
                    self.used.push(side);
                }
                self.bytes[side] += flow.bytes.get();
            }
        }
    }

    fn most(&self) -> f64 {
        self.used.iter().map(|&side| self.bytes[side]).fold(0.0, f64::max)
    }
}

/// The sum of the times from release to completion of jobs on one machine, shortest remaining first.
fn total_time(mut jobs: Vec<Job>) -> f64 {
    jobs.sort_by(|a, b| a.release.total_cmp(&b.release));
    let mut left: BinaryHeap<Reverse<Key>> = BinaryHeap::new();
    let (mut now, mut sum) = (0.0, 0.0);
    let mut next = jobs.iter().peekable();
    loop {
        if left.is_empty() {
            let Some(job) = next.peek() else { return sum };
            now = job.release;
        }
        while let Some(job) = next.next_if(|job| job.release <= now) {
            left.push(Reverse(Key(job.length)));
        }
        let Some(Reverse(Key(shortest))) = left.pop() else { continue };
        let until = next.peek().map_or(f64::INFINITY, |job| job.release);
        // Time passes for all that are there; `sum` counts it once for each.
        let here = left.len() as f64 + 1.0;
        if now + shortest <= until {
            sum += here * shortest;
            now += shortest;
        } else {
            sum += here * (until - now);
            left.push(Reverse(Key(shortest - (until - now))));
            now = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_core::model::{FlowSpec, Names, Side as PortSide, TimedEvent};
    use weir_core::policy::{self, TABLE};
    use weir_core::units::{Bytes, Time};

    use crate::replay::{NoObserver, Options, replay};

    const UNIT: f64 = 1.0;

    fn rate() -> Rate {
        Rate::new(UNIT).unwrap()
    }

    fn coflow(id: u64, arrival: f64, flows: &[(u32, u32, f64)]) -> CoflowSpec {
        let flows = flows.iter().map(|&(s, d, b)| FlowSpec::new(s, d, Bytes::new(b).unwrap())).collect();
        CoflowSpec::new(id, Time::new(arrival).unwrap(), flows)
    }

    fn workload(ports: u32, coflows: Vec<CoflowSpec>) -> Workload {
        Workload { ports, coflows, events: Vec::new(), names: Names::default() }
    }

    /// The least total time of jobs with whole lengths and releases on one machine: tries every choice at every
    /// unit of time, idling included.
    fn brute(jobs: &[(u32, u32)], left: &mut Vec<u32>, now: u32) -> u32 {
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
            let total = ended + brute(jobs, left, now + 1);
            left[chosen] += 1;
            best = Some(best.map_or(total, |b: u32| b.min(total)));
        }
        best.unwrap_or_else(|| brute(jobs, left, now + 1))
    }

    proptest! {
        #[test]
        fn no_order_on_one_port_beats_it(jobs in prop::collection::vec((0u32..4, 1u32..4), 1..4)) {
            let coflows = jobs.iter().enumerate().map(|(id, &(release, length))| {
                // Distinct receivers: only the sending port is short.
                coflow(id as u64, release.into(), &[(0, id as u32, length.into())])
            });
            let w = workload(4, coflows.collect());
            let mut left = jobs.iter().map(|job| job.1).collect();
            let best = f64::from(brute(&jobs, &mut left, 0)) / jobs.len() as f64;
            let bound = mean_cct(&w, rate()).unwrap();
            prop_assert!((bound - best).abs() < 1e-9, "{bound} against {best}");
        }
    }

    proptest! {
        #[test]
        fn no_policy_beats_it(
            coflows in prop::collection::vec(
                (0u32..20, prop::collection::vec((0u32..4, 0u32..4, 0u32..8), 1..6)),
                1..8,
            ),
            interval in prop::sample::select(vec![0.0, 0.5]),
        ) {
            let coflows = coflows.iter().enumerate().map(|(id, (arrival, flows))| {
                let flows: Vec<_> = flows.iter().map(|&(s, d, b)| (s, d, b.into())).collect();
                coflow(id as u64, (*arrival).into(), &flows)
            });
            let w = workload(4, coflows.collect());
            let bound = mean_cct(&w, rate()).unwrap();
            let options =
                Options { port_rate: rate(), interval: Time::new(interval).unwrap(), keep_flows: false, behind: None };
            for entry in TABLE {
                let policy = policy::build(entry.name).unwrap();
                let found = mean(&replay(&w, policy, &options, &mut NoObserver).unwrap().ccts());
                prop_assert!(found >= bound * (1.0 - 1e-9), "{}: {found} beats {bound}", entry.name);
            }
        }
    }

    #[test]
    fn counts_the_bottleneck_of_coflows_elsewhere() {
        // Port 0 sends 1 and 2: 1 + 3. Coflow 3 is alone on port 1 and takes 5, for both of its flows.
        let w = workload(
            4,
            vec![
                coflow(1, 0.0, &[(0, 2, 1.0)]),
                coflow(2, 0.0, &[(0, 3, 2.0)]),
                coflow(3, 0.0, &[(1, 0, 2.0), (1, 1, 3.0)]),
            ],
        );
        assert_eq!(mean_cct(&w, rate()), Some((1.0 + 3.0 + 5.0) / 3.0));
        assert_eq!(bottleneck(&w.coflows[2], 4), 5.0);
    }

    #[test]
    fn children_count_with_their_bottleneck() {
        let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 0, 1.0)]), coflow(2, 0.0, &[(0, 0, 2.0)])]);
        assert_eq!(mean_cct(&w, rate()), Some(2.0));
        w.coflows[1].parents = vec![0];
        assert_eq!(mean_cct(&w, rate()), Some(1.5));
    }

    #[test]
    fn only_a_faster_port_takes_the_bound_away() {
        let mut w = workload(1, vec![coflow(1, 0.0, &[(0, 0, 1.0)])]);
        for (factor, bound) in [(0.0, Some(1.0)), (1.0, Some(1.0)), (1.5, None)] {
            let what = Change::PortRate { port: 0, side: PortSide::Both, factor };
            w.events = vec![TimedEvent { at: Time::ZERO, what }];
            assert_eq!(mean_cct(&w, rate()), bound);
        }
        assert_eq!(mean_cct(&workload(1, Vec::new()), rate()), Some(0.0));
    }

    #[test]
    fn releases_in_between_preempt() {
        // 5 from 0, 1 from 2: the second goes first from its release on; 6 and 1.
        let w = workload(2, vec![coflow(1, 0.0, &[(0, 0, 5.0)]), coflow(2, 2.0, &[(0, 1, 1.0)])]);
        assert_eq!(mean_cct(&w, rate()), Some(3.5));
    }

    #[test]
    fn what_cannot_be_is_named() {
        // 1 and 3 on one port, 2 late: they take 1, 3 + 1 and 2 at least.
        let w = workload(
            3,
            vec![
                coflow(1, 0.0, &[(0, 0, 1.0)]),
                coflow(2, 0.0, &[(0, 1, 3.0)]),
                coflow(3, 1e6, &[(1, 2, 2.0)]),
            ],
        );
        let bounds = Bounds::new(&w, rate()).unwrap();
        assert_eq!(bounds.ccts, [1.0, 3.0, 2.0]);
        let options = Options { port_rate: rate(), interval: Time::ZERO, keep_flows: false, behind: None };
        let found = replay(&w, policy::build("scf").unwrap(), &options, &mut NoObserver).unwrap();
        assert_eq!(bounds.check(&found), Ok(()));
        // Rounding of the clock, and no more than that.
        let with_end = |index: usize, end: f64| {
            let mut forged = found.clone();
            forged.coflows[index].end = end;
            bounds.check(&forged)
        };
        assert_eq!(with_end(2, 1e6 + 2.0 - 2e-9), Ok(()));
        let slow = with_end(2, 1e6 + 2.0 - 2e-8).unwrap_err();
        assert!(matches!(slow, Impossible::Coflow { id: 3, least: 2.0, .. }), "{slow}");
        assert_eq!(with_end(0, 0.5), Err(Impossible::Coflow { id: 1, cct: 0.5, least: 1.0 }));
        // Each as fast as alone, which the port they share does not let them be.
        assert_eq!(with_end(1, 3.0), Err(Impossible::Mean { mean: 2.0, least: 7.0 / 3.0 }));
        let mut forged = found.clone();
        forged.recv_utilisation[2] = 1.0 + 2e-9;
        let message = bounds.check(&forged).unwrap_err().to_string();
        assert_eq!(message, "port 2 received 1.000000002 times what it can");
    }
}
