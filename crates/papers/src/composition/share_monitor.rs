//! Measures during a replay how often services get less than their weighted share, and leaves less than their slice.

use weir_core::model::{Slot, Workload};
use weir_sim::{CoflowOutcome, Observer, Snapshot};

use super::{APPLICATIONS, Levels, ROUNDING_TOLERANCE, SERVICES, owner};
use weir_console::progress::ReplayProgress;

/// The number of leaves of a tree with applications.
const LEAF_COUNT: usize = SERVICES.len() * APPLICATIONS.len();

/// Numbers of port sides, or sums of these numbers multiplied by the seconds for which they hold:
///
/// - 0: contended sides, where both services have flows;
/// - 1 and 2: contended sides where service 1 or service 2 is below its weighted share;
/// - 3 and 4: the sides of 1 and 2 where, in addition, the leaf of the flow is below its slice.
type Counts = [f64; 5];

/// Counts port sides after every schedule of a replay, and adds the counts up over time.
pub(super) struct ShareMonitor<'a> {
    watch: ReplayProgress,
    workload: &'a Workload,
    levels: Levels,
    /// The rate of a port, in bytes per second.
    rate: f64,
    /// The time of the last schedule, in seconds.
    last_schedule_secs: f64,
    /// The counts under the rates of the last schedule.
    current_counts: Counts,
    /// The sum of counts multiplied by seconds, up to the last schedule.
    total_counts: Counts,
}

/// A flow that has not completed.
struct ActiveFlow {
    service: usize,
    leaf: usize,
    slot: Slot,
    /// The indices of its sending and its receiving side. The sending sides of all ports precede the receiving sides.
    port_sides: [usize; 2],
    /// In bytes per second.
    rate: f64,
}

impl<'a> ShareMonitor<'a> {
    pub(super) fn new(
        watch: ReplayProgress,
        workload: &'a Workload,
        levels: Levels,
        rate: f64,
    ) -> ShareMonitor<'a> {
        ShareMonitor {
            watch,
            workload,
            levels,
            rate,
            last_schedule_secs: 0.0,
            current_counts: [0.0; 5],
            total_counts: [0.0; 5],
        }
    }

    /// Fractions of the contended sides, weighted by time. The first two are those where service 1 or service 2 is below its
    /// share. The last two are those where, in addition, the leaf of the flow is below its slice.
    pub(super) fn fractions_below_share(&self) -> [f64; 4] {
        [1, 2, 3, 4].map(|at| self.total_counts[at] / self.total_counts[0])
    }

    fn active_flows(&self, snapshot: &Snapshot<'_>) -> Vec<ActiveFlow> {
        let mut flows = Vec::new();
        for &slot in snapshot.active() {
            let coflow = snapshot.coflow(slot);
            let (service, application) = owner(self.workload, coflow.workload_index);
            let application = if self.levels == Levels::ServicesAndApplications { application } else { 0 };
            let leaf = service * APPLICATIONS.len() + application;
            for flow in coflow.live_flows() {
                let (src, dst) = coflow.flow_port_links(flow);
                flows.push(ActiveFlow {
                    service,
                    leaf,
                    slot,
                    port_sides: [src, dst],
                    rate: snapshot.rate(slot, flow),
                });
            }
        }
        flows
    }

    /// Counts port sides under the rates of a schedule.
    fn count_sides(&self, snapshot: &Snapshot<'_>) -> Counts {
        let capacity = snapshot.fabric().capacities();
        let sides = capacity.len();
        let mut by_service = [vec![0.0; sides], vec![0.0; sides]];
        let mut by_leaf = vec![vec![0.0; sides]; LEAF_COUNT];
        let mut has_flows = [vec![false; sides], vec![false; sides]];
        let flows = self.active_flows(snapshot);
        for flow in &flows {
            for side in flow.port_sides {
                by_service[flow.service][side] += flow.rate;
                by_leaf[flow.leaf][side] += flow.rate;
                has_flows[flow.service][side] = true;
            }
        }
        let rounding = ROUNDING_TOLERANCE * self.rate;
        let weights: f64 = SERVICES.iter().map(|s| s.1).sum();
        let is_contended = |side: usize| has_flows[0][side] && has_flows[1][side];
        let is_full = |side: usize| by_service[0][side] + by_service[1][side] >= capacity[side] - rounding;
        let service_is_below = |service: usize, side: usize| {
            let share = if is_contended(side) { SERVICES[service].1 / weights } else { 1.0 };
            by_service[service][side] < share * capacity[side] - rounding
        };
        let leaf_is_below = |flow: &ActiveFlow, side: usize| {
            // Without a tree there are no slices, and the service is the only leaf.
            snapshot.slices(flow.slot).is_none_or(|slices| by_leaf[flow.leaf][side] < slices[side] - rounding)
        };
        let mut services_below = [vec![false; sides], vec![false; sides]];
        let mut leaves_below = services_below.clone();
        for flow in &flows {
            let port_sides = flow.port_sides;
            if port_sides.iter().all(|&side| service_is_below(flow.service, side))
                && port_sides.iter().any(|&side| is_full(side))
            {
                let is_leaf_below = port_sides.iter().all(|&side| leaf_is_below(flow, side));
                for side in port_sides.into_iter().filter(|&side| is_contended(side)) {
                    services_below[flow.service][side] = true;
                    leaves_below[flow.service][side] |= is_leaf_below;
                }
            }
        }
        let count = |sides: &[bool]| sides.iter().filter(|&&flag| flag).count() as f64;
        let contended_count = (0..sides).filter(|&side| is_contended(side)).count() as f64;
        [
            contended_count,
            count(&services_below[0]),
            count(&services_below[1]),
            count(&leaves_below[0]),
            count(&leaves_below[1]),
        ]
    }
}

impl Observer for ShareMonitor<'_> {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let time = snapshot.now() - self.last_schedule_secs;
        self.total_counts
            .iter_mut()
            .zip(self.current_counts)
            .for_each(|(total, sides)| *total += sides * time);
        self.last_schedule_secs = snapshot.now();
        self.current_counts = self.count_sides(snapshot);
        self.watch.on_schedule(snapshot)
    }

    fn on_coflow_completed(&mut self, outcome: &CoflowOutcome) {
        self.watch.on_coflow_completed(outcome);
    }
}
