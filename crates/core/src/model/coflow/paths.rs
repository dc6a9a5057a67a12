//! The paths that a coflow's flows take over trunks.

use std::ops::Range;

use super::super::bit_set::{BitSet, WordBits};
use super::super::fabric::Fabric;
use super::super::trunks::Trunks;
use super::super::workload::CoflowSpec;
use super::grid::{BlockFlows, GridPosition, LiveFlowGrid};
use super::layout::FlowKey;

/// Flows of one sender over one path, in one block of the grid.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathMembers {
    path: u32,
    pub block: u32,
    pub receiver_bits: u64,
}

/// A path of flows.
#[derive(Debug, Clone)]
struct Path {
    /// The trunks, as a range of [`Paths::trunks`].
    trunks: Range<u32>,
    live_flow_count: u32,
    /// The links of the ports of the path's only flow. In networks of three tiers, most paths have one flow.
    only_flow: Option<(u32, u32)>,
}

/// Up to 64 consecutive paths with the same first trunk, or the path without trunks.
#[derive(Debug, Clone)]
struct Run {
    first_trunk: Option<u32>,
    paths: Range<u32>,
    /// The sending links of its flows.
    senders: BitSet,
}

/// The paths of one run from one sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct SenderRun {
    run: u32,
    /// Positions in the run.
    path_bits: u64,
    /// The entry of the first path in [`Paths::first_members`]; those of the other paths follow.
    first_path: u32,
    /// The members of all of its paths together, as a range of [`Paths::run_members`].
    first_run_member: u32,
    end_run_member: u32,
}

impl SenderRun {
    /// Whether so few of the paths are open that the flows of the others are worth leaving out.
    #[inline]
    fn has_few(&self, open_bits: u64) -> bool {
        3 * open_bits.count_ones() <= 2 * self.path_bits.count_ones()
    }
}

/// The paths of a coflow that consist of open trunks and have live flows.
#[derive(Debug, Default)]
pub(crate) struct OpenPaths {
    paths: BitSet,
    /// By run: the same, by position in the run.
    path_bits: Vec<u64>,
    senders: BitSet,
}

impl OpenPaths {
    /// The open sending links with such paths.
    pub fn senders(&self) -> &BitSet {
        &self.senders
    }

    /// The open paths of a sender's run, by position in the run.
    #[inline]
    fn bits_of(&self, sender_run: &SenderRun) -> u64 {
        sender_run.path_bits & self.path_bits[sender_run.run as usize]
    }
}

/// The paths of a coflow's flows. Without paths, all flows are on one switch.
#[derive(Debug, Clone, Default)]
pub(super) struct Paths {
    /// Sorted by trunks.
    paths: Vec<Path>,
    path_by_flow: Vec<u32>,
    /// The trunks of all paths: their links, and their positions among the links of the coflow.
    trunks: Vec<u32>,
    trunk_indices: Vec<u32>,
    runs: Vec<Run>,
    /// By sender, path and block.
    members: Vec<PathMembers>,
    /// By sender and path: the first of its members, and the end of the last ones.
    first_members: Vec<u32>,
    /// By sender, run and block; without paths.
    run_members: Vec<PathMembers>,
    sender_runs: Vec<SenderRun>,
    /// By sender: its first entry in [`Paths::sender_runs`], and the end of the last sender's entries.
    first_sender_runs: Vec<u32>,
}

impl Paths {
    /// Finds the paths of flows. `keys` and `positions` are those of all flows, in order; `first_index` is the position of the first
    /// trunk among the links of the coflow. O(n log n) for n flows.
    pub fn new(
        keys: &[FlowKey],
        positions: &[GridPosition],
        trunks: &FlowTrunks,
        first_index: usize,
    ) -> Paths {
        let mut paths = Paths::default();
        paths.assign(trunks, first_index);
        if paths.is_switch() {
            return Paths::default();
        }
        paths.find_runs(keys);
        paths.list_members(keys, positions);
        paths
    }

    /// Numbers the distinct paths in the order of their trunks, and sets the path of each flow.
    fn assign(&mut self, flow_trunks: &FlowTrunks, first_index: usize) {
        let mut flows: Vec<u32> = (0..flow_trunks.ends.len() as u32).collect();
        flows.sort_unstable_by(|&a, &b| flow_trunks.of(a).cmp(flow_trunks.of(b)));
        self.path_by_flow = vec![0; flows.len()];
        let mut before = None;
        for flow in flows {
            let trunks = flow_trunks.of(flow);
            if before != Some(trunks) {
                before = Some(trunks);
                let start = self.trunks.len() as u32;
                self.trunks.extend_from_slice(trunks);
                let trunks = start..self.trunks.len() as u32;
                self.paths.push(Path { trunks, live_flow_count: 0, only_flow: None });
            }
            self.path_by_flow[flow as usize] = self.paths.len() as u32 - 1;
        }
        let distinct = self.distinct_trunks();
        let index_of = |trunk: &u32| (first_index + distinct.partition_point(|other| other < trunk)) as u32;
        self.trunk_indices = self.trunks.iter().map(index_of).collect();
    }

    /// Finds the runs, and the paths with one flow.
    fn find_runs(&mut self, keys: &[FlowKey]) {
        let mut run_by_path: Vec<u32> = Vec::new();
        for path in 0..self.paths.len() as u32 {
            let first_trunk = self.trunks_of_path(path).first().copied();
            let is_same =
                |run: &&mut Run| run.first_trunk == first_trunk && path - run.paths.start < u64::BITS;
            match self.runs.last_mut().filter(is_same) {
                Some(run) => run.paths.end = path + 1,
                None => {
                    self.runs.push(Run { first_trunk, paths: path..path + 1, senders: BitSet::default() })
                }
            }
            run_by_path.push(self.runs.len() as u32 - 1);
        }
        let mut flow_counts = vec![0; self.paths.len()];
        for (key, &path) in keys.iter().zip(&self.path_by_flow) {
            let path = path as usize;
            self.runs[run_by_path[path] as usize].senders.insert(key.src as usize);
            flow_counts[path] += 1;
            self.paths[path].only_flow = (flow_counts[path] == 1).then_some((key.src, key.dst));
        }
    }

    /// Lists the flows of each sender by path and block.
    fn list_members(&mut self, keys: &[FlowKey], positions: &[GridPosition]) {
        let of_flow = |((key, &path), position): ((&FlowKey, &u32), &GridPosition)| {
            (key.src, PathMembers { path, block: position.block, receiver_bits: 1 << (key.dst % 64) })
        };
        let mut flows: Vec<(u32, PathMembers)> =
            keys.iter().zip(&self.path_by_flow).zip(positions).map(of_flow).collect();
        flows.sort_unstable_by_key(|(src, flow)| (*src, flow.path, flow.block));
        for of_sender in flows.chunk_by(|a, b| a.0 == b.0) {
            let first_run = self.sender_runs.len();
            self.first_sender_runs.push(first_run as u32);
            for of_path in of_sender.chunk_by(|a, b| a.1.path == b.1.path) {
                self.add_path(first_run, of_path[0].1.path);
                for same in of_path.chunk_by(|a, b| a.1.block == b.1.block) {
                    let receiver_bits = same.iter().fold(0, |bits, (_, flow)| bits | flow.receiver_bits);
                    self.add_members(PathMembers { receiver_bits, ..same[0].1 });
                }
            }
        }
        self.first_sender_runs.push(self.sender_runs.len() as u32);
        self.first_members.push(self.members.len() as u32);
    }

    /// Adds a path of the sender whose runs start at `first_run`. Its members follow.
    fn add_path(&mut self, first_run: usize, path: u32) {
        let run = self.runs.partition_point(|run| run.paths.end <= path);
        let path_bit = 1 << (path - self.runs[run].paths.start);
        match self.sender_runs[first_run..].last_mut().filter(|last| last.run == run as u32) {
            Some(last) => last.path_bits |= path_bit,
            None => self.sender_runs.push(SenderRun {
                run: run as u32,
                path_bits: path_bit,
                first_path: self.first_members.len() as u32,
                first_run_member: self.run_members.len() as u32,
                end_run_member: self.run_members.len() as u32,
            }),
        }
        self.first_members.push(self.members.len() as u32);
    }

    /// Adds members of the last path.
    fn add_members(&mut self, members: PathMembers) {
        self.members.push(members);
        let Some(run) = self.sender_runs.last_mut() else { return };
        let of_run = &mut self.run_members[run.first_run_member as usize..];
        match of_run.iter_mut().find(|other| other.block == members.block) {
            Some(other) => other.receiver_bits |= members.receiver_bits,
            None => {
                self.run_members.push(members);
                run.end_run_member += 1;
            }
        }
    }

    /// Whether no flow crosses a trunk.
    #[inline]
    pub fn is_switch(&self) -> bool {
        self.trunks.is_empty()
    }

    #[inline]
    fn range(&self, path: u32) -> Range<usize> {
        let Range { start, end } = self.paths[path as usize].trunks;
        start as usize..end as usize
    }

    #[inline]
    fn trunks_of_path(&self, path: u32) -> &[u32] {
        &self.trunks[self.range(path)]
    }

    /// The path of a flow. Flows over the same trunks have the same one; 0 on one switch.
    #[inline]
    pub fn path(&self, flow: u32) -> u32 {
        self.path_by_flow.get(flow as usize).copied().unwrap_or(0)
    }

    /// The links of a flow's trunks.
    #[inline]
    pub fn trunks(&self, flow: u32) -> &[u32] {
        self.path_by_flow.get(flow as usize).map_or(&[], |&path| self.trunks_of_path(path))
    }

    /// The trunks of a flow, by position among the links of the coflow.
    #[inline]
    pub fn trunk_indices(&self, flow: u32) -> &[u32] {
        self.path_by_flow.get(flow as usize).map_or(&[], |&path| &self.trunk_indices[self.range(path)])
    }

    /// The trunks that any path crosses, sorted.
    pub fn distinct_trunks(&self) -> Vec<u32> {
        let mut trunks = self.trunks.clone();
        trunks.sort_unstable();
        trunks.dedup();
        trunks
    }

    /// Counts a flow that becomes live.
    pub fn add_live_flow(&mut self, flow: u32) {
        if let Some(&path) = self.path_by_flow.get(flow as usize) {
            self.paths[path as usize].live_flow_count += 1;
        }
    }

    /// Counts a flow that is no longer live.
    pub fn remove_live_flow(&mut self, flow: u32) {
        if let Some(&path) = self.path_by_flow.get(flow as usize) {
            self.paths[path as usize].live_flow_count -= 1;
        }
    }

    /// Finds the open paths. Skips runs over a closed first trunk, runs without an open sender, and paths whose only flow has a closed
    /// port. O(runs, and paths of the others).
    pub fn find_open(&self, open: &BitSet, found: &mut OpenPaths) {
        let is_open = |link: u32| open.contains(link as usize);
        found.senders.clear();
        found.path_bits.clear();
        found.paths.reset(self.paths.len());
        for run in &self.runs {
            let is_closed = run.first_trunk.is_some_and(|trunk| !is_open(trunk));
            let mut path_bits = 0;
            if !is_closed && run.senders.intersects(open) {
                for path in run.paths.clone() {
                    let Path { live_flow_count, only_flow, .. } = self.paths[path as usize];
                    let has_open_ports = only_flow.is_none_or(|(src, dst)| is_open(src) && is_open(dst));
                    if live_flow_count > 0 && has_open_ports && self.is_open(path, open) {
                        path_bits |= 1 << (path - run.paths.start);
                        found.paths.insert(path as usize);
                    }
                }
            }
            found.path_bits.push(path_bits);
            if path_bits != 0 {
                found.senders.union_with(&run.senders);
            }
        }
        found.senders.intersect_with(open);
    }

    /// Whether all trunks of a path are open.
    fn is_open(&self, path: u32, open: &BitSet) -> bool {
        self.trunks_of_path(path).iter().all(|&trunk| open.contains(trunk as usize))
    }

    /// Writes the live flows from a sending link to open receivers to `found`, in order, without most of those over paths that are not
    /// open.
    pub fn find_flows(
        &self,
        sender: usize,
        grid: &LiveFlowGrid,
        open_paths: &OpenPaths,
        open: &BitSet,
        found: &mut Vec<BlockFlows>,
    ) {
        let blocks = grid.open_blocks(sender, open);
        found.clear();
        found.extend(blocks.clone().map(|block| BlockFlows { block: block as u32, receiver_bits: 0 }));
        if blocks.is_empty() {
            return;
        }
        // Loops without iterator adapters, which builds without link-time optimization do not inline.
        for run in self.sender_runs(grid.sender_index(sender)) {
            let open_bits = open_paths.bits_of(run);
            if run.has_few(open_bits) {
                for path in WordBits(open_bits) {
                    for members in self.members(run, path) {
                        found[members.block as usize - blocks.start].receiver_bits |= members.receiver_bits;
                    }
                }
            } else {
                for members in self.all_members(run) {
                    found[members.block as usize - blocks.start].receiver_bits |= members.receiver_bits;
                }
            }
        }
        for flows in found {
            *flows = grid.open_flows(*flows, open);
        }
    }

    /// The runs of the `sender`-th sender.
    #[inline]
    fn sender_runs(&self, sender: usize) -> &[SenderRun] {
        let (first, end) = (self.first_sender_runs[sender], self.first_sender_runs[sender + 1]);
        &self.sender_runs[first as usize..end as usize]
    }

    /// Whether the path of a flow is among the open paths.
    #[inline]
    pub fn has_open_path(&self, flow: u32, open: &OpenPaths) -> bool {
        open.paths.contains(self.path_by_flow[flow as usize] as usize)
    }

    /// Removes the path of a flow from the open paths if a trunk has closed; with the other paths of its run if the first one has.
    pub fn close_path(&self, flow: u32, open_links: &BitSet, open: &mut OpenPaths) {
        let path = self.path_by_flow[flow as usize];
        if self.is_open(path, open_links) {
            return;
        }
        let number = self.runs.partition_point(|run| run.paths.end <= path);
        let run = &self.runs[number];
        if run.first_trunk.is_some_and(|trunk| !open_links.contains(trunk as usize)) {
            open.path_bits[number] = 0;
            run.paths.clone().for_each(|path| open.paths.remove(path as usize));
        } else {
            open.path_bits[number] &= !(1 << (path - run.paths.start));
            open.paths.remove(path as usize);
        }
    }

    /// The members of all paths of a sender's run.
    #[inline]
    fn all_members(&self, sender_run: &SenderRun) -> &[PathMembers] {
        &self.run_members[sender_run.first_run_member as usize..sender_run.end_run_member as usize]
    }

    /// The members of the path at a bit of a sender's run.
    #[inline]
    fn members(&self, sender_run: &SenderRun, bit: usize) -> &[PathMembers] {
        let earlier_paths = (sender_run.path_bits & ((1 << bit) - 1)).count_ones();
        let at = (sender_run.first_path + earlier_paths) as usize;
        &self.members[self.first_members[at] as usize..self.first_members[at + 1] as usize]
    }
}

/// The links of each flow's trunks.
pub(super) struct FlowTrunks {
    trunks: Vec<u32>,
    ends: Vec<usize>,
}

impl FlowTrunks {
    /// Finds the trunks of flows, in the order of `keys`. `index` is the position of the coflow in the workload.
    pub fn new(
        spec: &CoflowSpec,
        keys: &[FlowKey],
        index: usize,
        fabric: &Fabric,
        routes: &mut Trunks,
    ) -> FlowTrunks {
        let first_trunk = fabric.trunk_links().start as u32;
        let (mut trunks, mut ends) = (Vec::new(), Vec::with_capacity(keys.len()));
        let mut path = Vec::new();
        for key in keys {
            let flow = &spec.flows[key.spec_index as usize];
            routes.compute_path(flow.src, flow.dst, index, key.spec_index, &mut path);
            trunks.extend(path.iter().map(|trunk| first_trunk + trunk));
            ends.push(trunks.len());
        }
        FlowTrunks { trunks, ends }
    }

    fn of(&self, flow: u32) -> &[u32] {
        let flow = flow as usize;
        let start = if flow == 0 { 0 } else { self.ends[flow - 1] };
        &self.trunks[start..self.ends[flow]]
    }
}
