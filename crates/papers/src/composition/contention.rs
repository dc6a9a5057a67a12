//! How often services and applications get less than their share, measured during a replay.

use weir_core::model::{Slot, Workload};
use weir_sim::{CoflowOutcome, Observer, Snapshot};

use super::{APPLICATIONS, Levels, ROUNDING, SERVICES, owner};
use weir_console::progress::Watch;

/// The number of places in a tree that decide about coflows.
const LEAVES: usize = SERVICES.len() * APPLICATIONS.len();

/// Numbers of port sides, or such numbers multiplied by the seconds for which they hold: contended sides, where both
/// services have flows; those where service 1 or 2 is below its weighted share; those of these where also the leaf of the
/// flow is below its slice.
type Counts = [f64; 5];

/// Observes a replay.
pub(super) struct Contention<'a> {
    watch: Watch,
    workload: &'a Workload,
    levels: Levels,
    /// The rate of a port, in bytes per second.
    rate: f64,
    /// The time of the last schedule, in seconds.
    since: f64,
    /// The counts since then.
    current: Counts,
    total: Counts,
}

/// A flow that has not completed; its rate is in bytes per second.
struct LiveFlow {
    service: usize,
    leaf: usize,
    slot: Slot,
    /// The sending and the receiving side: sending sides come first.
    ends: [usize; 2],
    rate: f64,
}

impl<'a> Contention<'a> {
    pub(super) fn new(watch: Watch, workload: &'a Workload, levels: Levels, rate: f64) -> Contention<'a> {
        Contention { watch, workload, levels, rate, since: 0.0, current: [0.0; 5], total: [0.0; 5] }
    }

    /// The fractions of the contended sides, over time, where service 1 and 2 are below their shares, and where their
    /// leaves are.
    pub(super) fn below(&self) -> [f64; 4] {
        [1, 2, 3, 4].map(|at| self.total[at] / self.total[0])
    }

    fn live_flows(&self, moment: &Snapshot<'_>) -> Vec<LiveFlow> {
        let ports = moment.fabric().ports();
        let mut flows = Vec::new();
        for &slot in moment.active() {
            let coflow = moment.coflow(slot);
            let (service, application) = owner(self.workload, coflow.index);
            let application = if self.levels == Levels::Both { application } else { 0 };
            let leaf = service * APPLICATIONS.len() + application;
            for flow in coflow.live_flows() {
                let (src, dst) = coflow.ends_of(flow);
                let ends = [src as usize, ports + dst as usize];
                flows.push(LiveFlow { service, leaf, slot, ends, rate: moment.rate(slot, flow) });
            }
        }
        flows
    }

    /// Counts port sides under the rates of a schedule.
    fn count(&self, moment: &Snapshot<'_>) -> Counts {
        let fabric = moment.fabric();
        let capacity: Vec<f64> = fabric.send().iter().chain(fabric.recv()).copied().collect();
        let sides = capacity.len();
        let mut by_service = [vec![0.0; sides], vec![0.0; sides]];
        let mut by_leaf = vec![vec![0.0; sides]; LEAVES];
        let mut present = [vec![false; sides], vec![false; sides]];
        let flows = self.live_flows(moment);
        for flow in &flows {
            for side in flow.ends {
                by_service[flow.service][side] += flow.rate;
                by_leaf[flow.leaf][side] += flow.rate;
                present[flow.service][side] = true;
            }
        }
        let rounding = ROUNDING * self.rate;
        let weights: f64 = SERVICES.iter().map(|s| s.1).sum();
        let contended = |side: usize| present[0][side] && present[1][side];
        let full = |side: usize| by_service[0][side] + by_service[1][side] >= capacity[side] - rounding;
        let service_below = |service: usize, side: usize| {
            let share = if contended(side) { SERVICES[service].1 / weights } else { 1.0 };
            by_service[service][side] < share * capacity[side] - rounding
        };
        let leaf_below = |flow: &LiveFlow, side: usize| {
            // Without a tree there are no slices, and the service is the only leaf.
            moment.slices(flow.slot).is_none_or(|slices| by_leaf[flow.leaf][side] < slices[side] - rounding)
        };
        let mut below = [vec![false; sides], vec![false; sides]];
        let mut leaves_below = below.clone();
        for flow in &flows {
            let ends = flow.ends;
            if ends.iter().all(|&side| service_below(flow.service, side))
                && ends.iter().any(|&side| full(side))
            {
                let leaf = ends.iter().all(|&side| leaf_below(flow, side));
                for side in ends.into_iter().filter(|&side| contended(side)) {
                    below[flow.service][side] = true;
                    leaves_below[flow.service][side] |= leaf;
                }
            }
        }
        let count = |sides: &[bool]| sides.iter().filter(|&&is| is).count() as f64;
        let both = (0..sides).filter(|&side| contended(side)).count() as f64;
        [both, count(&below[0]), count(&below[1]), count(&leaves_below[0]), count(&leaves_below[1])]
    }
}

impl Observer for Contention<'_> {
    fn scheduled(&mut self, moment: &Snapshot<'_>) -> bool {
        let time = moment.now() - self.since;
        self.total.iter_mut().zip(self.current).for_each(|(total, sides)| *total += sides * time);
        self.since = moment.now();
        self.current = self.count(moment);
        self.watch.scheduled(moment)
    }

    fn done(&mut self, outcome: &CoflowOutcome) {
        self.watch.done(outcome);
    }
}
