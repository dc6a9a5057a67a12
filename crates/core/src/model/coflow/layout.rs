//! The order of a coflow's flows, and the paths that the flows take over trunks.

use std::ops::Range;

use super::super::bit_set::BitSet;
use super::super::trunks::Trunks;
use super::super::workload::CoflowSpec;

/// A flow's place in the order of the flows: ascending, field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowKey {
    pub path: u32,
    pub src: u32,
    /// Number of earlier flows over the same path between the same ports.
    pub layer: u32,
    pub dst: u32,
    /// Position in the specification.
    pub spec_index: u32,
}

/// Flows over the same trunks.
#[derive(Debug, Clone)]
struct Path {
    /// The trunks, as a range of [`Paths::trunks`].
    trunks: Range<u32>,
    /// The run that contains the path, as a position in [`Paths::runs`].
    run: u32,
    live_flow_count: u32,
    /// The ports of the path's only flow. In networks of three tiers, most paths have one flow.
    only_flow: Option<(u32, u32)>,
}

/// Consecutive paths with the same first trunk.
#[derive(Debug, Clone)]
struct Run {
    /// The end of its paths.
    end: u32,
    /// The sending ports of its flows, as a range of [`Paths::run_senders`].
    senders: Range<u32>,
}

/// The links with residual capacity, by kind.
#[derive(Clone, Copy)]
pub(crate) struct OpenLinks<'a> {
    pub senders: &'a BitSet,
    pub receivers: &'a BitSet,
    pub trunks: &'a BitSet,
}

/// The paths of a coflow, sorted by their trunks. On one switch: one path without trunks.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    paths: Vec<Path>,
    runs: Vec<Run>,
    run_senders: Vec<u32>,
    /// The trunks of all paths: their numbers, and their positions in [`Paths::distinct_trunks`].
    trunks: Vec<u32>,
    trunk_indices: Vec<u32>,
}

impl Paths {
    fn one_switch() -> Paths {
        let path = Path { trunks: 0..0, run: 0, live_flow_count: 0, only_flow: None };
        Paths { paths: vec![path], ..Paths::empty() }
    }

    fn empty() -> Paths {
        Paths {
            paths: Vec::new(),
            runs: Vec::new(),
            run_senders: Vec::new(),
            trunks: Vec::new(),
            trunk_indices: Vec::new(),
        }
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether all flows take one path without trunks.
    #[inline]
    pub fn is_switch(&self) -> bool {
        self.trunks.is_empty()
    }

    fn range(&self, path: usize) -> Range<usize> {
        let Range { start, end } = self.paths[path].trunks;
        start as usize..end as usize
    }

    /// The trunks of a path, by number.
    #[inline]
    pub fn trunks(&self, path: usize) -> &[u32] {
        &self.trunks[self.range(path)]
    }

    /// The trunks of a path, by position in [`Paths::distinct_trunks`].
    #[inline]
    pub fn trunk_indices(&self, path: usize) -> &[u32] {
        &self.trunk_indices[self.range(path)]
    }

    /// The trunks that any path crosses, sorted.
    pub fn distinct_trunks(&self) -> Vec<u32> {
        let mut trunks = self.trunks.clone();
        trunks.sort_unstable();
        trunks.dedup();
        trunks
    }

    /// Number of live flows of a path, for changes.
    pub fn live_flow_count_mut(&mut self, path: usize) -> &mut u32 {
        &mut self.paths[path].live_flow_count
    }

    /// The first path from `from` on that has live flows and crosses open trunks only. Skips runs over a closed first trunk, runs
    /// without an open sender, and paths whose only flow has a closed port. Not for one switch.
    pub fn next_open(&self, from: usize, open: OpenLinks<'_>) -> Option<usize> {
        let is_open = |set: &BitSet, link: u32| set.contains(link as usize);
        let has_open_trunks =
            |path: usize| self.trunks(path).iter().all(|&trunk| is_open(open.trunks, trunk));
        let has_open_ports = |path: &Path| {
            let is_closed = |(src, dst)| !is_open(open.senders, src) || !is_open(open.receivers, dst);
            path.live_flow_count > 0 && !path.only_flow.is_some_and(is_closed)
        };
        let mut at = from;
        while let Some(path) = self.paths.get(at) {
            let run = &self.runs[path.run as usize];
            let end = run.end as usize;
            let first = self.trunks(at).first();
            let is_closed = first.is_some_and(|&trunk| !is_open(open.trunks, trunk));
            // The senders are looked up once for each run.
            let starts_run = at == 0 || self.paths[at - 1].run != path.run;
            if !is_closed
                && (!starts_run || self.senders(run).iter().any(|&port| is_open(open.senders, port)))
            {
                let found =
                    (at..end).find(|&path| has_open_ports(&self.paths[path]) && has_open_trunks(path));
                if found.is_some() {
                    return found;
                }
            }
            at = end;
        }
        None
    }

    /// The sending ports of a run.
    fn senders(&self, run: &Run) -> &[u32] {
        &self.run_senders[run.senders.start as usize..run.senders.end as usize]
    }

    /// Finds the runs, and the paths with one flow. `keys` are those of all flows, sorted.
    fn find_runs(&mut self, keys: &[FlowKey]) {
        for flows in keys.chunk_by(|a, b| a.path == b.path) {
            if let [flow] = flows {
                self.paths[flow.path as usize].only_flow = Some((flow.src, flow.dst));
            }
        }
        let first_trunk = |key: &FlowKey| self.trunks(key.path as usize).first();
        let runs: Vec<&[FlowKey]> = keys.chunk_by(|a, b| first_trunk(a) == first_trunk(b)).collect();
        for flows in runs {
            let mut senders: Vec<u32> = flows.iter().map(|flow| flow.src).collect();
            senders.sort_unstable();
            senders.dedup();
            let (start, end) = (flows[0].path, flows[flows.len() - 1].path + 1);
            for path in &mut self.paths[start as usize..end as usize] {
                path.run = self.runs.len() as u32;
            }
            let senders_start = self.run_senders.len() as u32;
            self.run_senders.append(&mut senders);
            self.runs.push(Run { end, senders: senders_start..self.run_senders.len() as u32 });
        }
    }
}

/// The trunks of each flow of a specification, in the order of the specification.
struct FlowTrunks {
    trunks: Vec<u32>,
    ends: Vec<usize>,
}

impl FlowTrunks {
    fn new(spec: &CoflowSpec, index: usize, routes: &mut Trunks) -> FlowTrunks {
        let (mut trunks, mut ends) = (Vec::new(), Vec::with_capacity(spec.flows.len()));
        let mut path = Vec::new();
        for (flow, ends_of) in (0..).zip(&spec.flows) {
            routes.compute_path(ends_of.src, ends_of.dst, index, flow, &mut path);
            trunks.extend_from_slice(&path);
            ends.push(trunks.len());
        }
        FlowTrunks { trunks, ends }
    }

    fn of(&self, spec_index: u32) -> &[u32] {
        let flow = spec_index as usize;
        let start = if flow == 0 { 0 } else { self.ends[flow - 1] };
        &self.trunks[start..self.ends[flow]]
    }
}

/// Orders the flows of a coflow, and finds their paths. `index` is the position of the coflow in the workload.
///
/// O(n log n) for n flows, and the cost of their paths.
pub(super) fn lay_out(spec: &CoflowSpec, index: usize, routes: Option<&mut Trunks>) -> (Vec<FlowKey>, Paths) {
    let mut keys: Vec<FlowKey> = (0..)
        .zip(&spec.flows)
        .map(|(spec_index, f)| FlowKey { path: 0, src: f.src, layer: 0, dst: f.dst, spec_index })
        .collect();
    let mut paths = match routes {
        None => Paths::one_switch(),
        Some(routes) => assign_paths(&mut keys, &FlowTrunks::new(spec, index, routes)),
    };
    keys.sort_unstable();
    let mut has_layers = false;
    for at in 1..keys.len() {
        let (before, key) = (keys[at - 1], keys[at]);
        if (before.path, before.src, before.dst) == (key.path, key.src, key.dst) {
            keys[at].layer = before.layer + 1;
            has_layers = true;
        }
    }
    if has_layers {
        keys.sort_unstable();
    }
    if !paths.is_switch() {
        paths.find_runs(&keys);
    }
    (keys, paths)
}

/// Numbers the distinct paths of the flows in the order of their trunks, and sets the path of each flow.
fn assign_paths(keys: &mut [FlowKey], flow_trunks: &FlowTrunks) -> Paths {
    keys.sort_unstable_by(|a, b| flow_trunks.of(a.spec_index).cmp(flow_trunks.of(b.spec_index)));
    let mut paths = Paths::empty();
    let mut before = None;
    for key in keys {
        let trunks = flow_trunks.of(key.spec_index);
        if before != Some(trunks) {
            before = Some(trunks);
            let start = paths.trunks.len() as u32;
            paths.trunks.extend_from_slice(trunks);
            let trunks = start..paths.trunks.len() as u32;
            paths.paths.push(Path { trunks, run: 0, live_flow_count: 0, only_flow: None });
        }
        key.path = paths.paths.len() as u32 - 1;
    }
    let distinct = paths.distinct_trunks();
    let index_of = |trunk: &u32| distinct.partition_point(|other| other < trunk) as u32;
    paths.trunk_indices = paths.trunks.iter().map(index_of).collect();
    paths
}
