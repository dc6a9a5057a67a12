//! The paths that a coflow's flows take over trunks.

use std::ops::Range;

use super::super::bit_set::{BitSet, WordBits};
use super::super::fabric::Fabric;
use super::super::trunks::Trunks;
use super::super::workload::CoflowSpec;
use super::grid::GridPosition;
use super::layout::FlowKey;

/// Flows over one path, in one block of the grid.
#[derive(Debug, Clone, Copy)]
struct PathMembers {
    block: u32,
    receiver_bits: u64,
}

/// The trunks of a coflow in one word of a set of links.
#[derive(Debug, Clone, Copy)]
struct TrunkWord {
    word: u32,
    bits: u64,
    /// Number of trunks in earlier words.
    earlier_trunks: u32,
}

/// Failed tests of flows that cost as much as to exclude and include the flows over one path.
const TESTS_PER_PATH: usize = 2;

/// The flows of a coflow that a search for flows over open paths has to test. Flows over a closed trunk are excluded after a number of
/// failed tests: in a large network, most trunks close and open again before many flows over them are tested.
#[derive(Debug, Clone, Default)]
pub(crate) struct CandidateFlows {
    /// The number of the layout whose flows these are; 0 before the first search.
    layout: u64,
    /// By word of the coflow's trunks: those whose flows are excluded.
    excluded_trunks: Vec<u64>,
    /// By trunk: tests that have failed at it since its flows were included.
    failed_tests: Vec<u32>,
    /// By path: trunks whose flows are excluded.
    excluded_trunk_counts: Vec<u16>,
    /// By block of the grid: flows that are not excluded, live or not.
    receiver_bits: Vec<u64>,
}

impl CandidateFlows {
    /// Those of a block of the grid.
    #[inline]
    pub fn in_block(&self, block: usize) -> u64 {
        self.receiver_bits[block]
    }
}

/// The paths of a coflow's flows. Without paths, all flows are on one switch.
#[derive(Debug, Clone, Default)]
pub(super) struct Paths {
    path_by_flow: Vec<u32>,
    /// By path, in the order of trunks: its trunks, as a range of [`Paths::trunks`].
    ranges: Vec<Range<u32>>,
    /// The trunks of all paths: their links, and their positions among the links of the coflow.
    trunks: Vec<u32>,
    trunk_indices: Vec<u32>,
    /// The position of the first trunk among the links of the coflow.
    first_index: usize,
    /// By path and block, and the first of each path, and the end of the last ones.
    members: Vec<PathMembers>,
    first_members: Vec<u32>,
    /// By trunk: its paths, and the first of each trunk, and the end of the last ones.
    paths_by_trunk: Vec<u32>,
    first_paths: Vec<u32>,
    /// By trunk: the number of failed tests after which the flows over it are excluded, above 0. The more flows are on a path, the more
    /// tests an exclusion saves.
    max_failed_tests: Vec<u32>,
    trunk_words: Vec<TrunkWord>,
    block_count: usize,
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
        let mut paths = Paths { first_index, ..Paths::default() };
        let flows = paths.assign(trunks);
        if paths.is_switch() {
            return Paths::default();
        }
        paths.list_members(&flows, keys, positions);
        paths.list_paths_of_trunks();
        paths
    }

    /// Numbers the distinct paths in the order of their trunks, and sets the path of each flow. Returns the flows by path, then in order.
    fn assign(&mut self, flow_trunks: &FlowTrunks) -> Vec<u32> {
        let mut flows: Vec<u32> = (0..flow_trunks.ends.len() as u32).collect();
        flows.sort_by(|&a, &b| flow_trunks.of(a).cmp(flow_trunks.of(b)));
        self.path_by_flow = vec![0; flows.len()];
        let mut before = None;
        for &flow in &flows {
            let trunks = flow_trunks.of(flow);
            if before != Some(trunks) {
                before = Some(trunks);
                let start = self.trunks.len() as u32;
                self.trunks.extend_from_slice(trunks);
                self.ranges.push(start..self.trunks.len() as u32);
            }
            self.path_by_flow[flow as usize] = self.ranges.len() as u32 - 1;
        }
        let distinct = self.distinct_trunks();
        let index_of =
            |trunk: &u32| (self.first_index + distinct.partition_point(|other| other < trunk)) as u32;
        self.trunk_indices = self.trunks.iter().map(index_of).collect();
        flows
    }

    /// Lists the flows of each path by block. `flows` are all flows by path.
    fn list_members(&mut self, flows: &[u32], keys: &[FlowKey], positions: &[GridPosition]) {
        let path_and_block = |flow: u32| (self.path_by_flow[flow as usize], positions[flow as usize].block);
        for same in flows.chunk_by(|&a, &b| path_and_block(a) == path_and_block(b)) {
            let (path, block) = path_and_block(same[0]);
            let receiver_bits = same.iter().fold(0, |bits, &flow| bits | 1 << (keys[flow as usize].dst % 64));
            if path as usize == self.first_members.len() {
                self.first_members.push(self.members.len() as u32);
            }
            self.members.push(PathMembers { block, receiver_bits });
        }
        self.first_members.push(self.members.len() as u32);
        self.block_count = positions.iter().map(|position| position.block as usize + 1).max().unwrap_or(0);
    }

    /// Lists the paths of each trunk, and the words of trunks.
    fn list_paths_of_trunks(&mut self) {
        let mut crossings: Vec<(u32, u32)> = Vec::new();
        for (path, range) in (0..).zip(&self.ranges) {
            let trunks = &self.trunk_indices[range.start as usize..range.end as usize];
            crossings.extend(trunks.iter().map(|&index| (index, path)));
        }
        crossings.sort_unstable();
        for of_trunk in crossings.chunk_by(|a, b| a.0 == b.0) {
            self.first_paths.push(self.paths_by_trunk.len() as u32);
            self.paths_by_trunk.extend(of_trunk.iter().map(|&(_, path)| path));
        }
        self.first_paths.push(self.paths_by_trunk.len() as u32);
        self.max_failed_tests =
            self.first_paths.windows(2).map(|ends| self.tests_before_exclusion(ends)).collect();
        for (number, trunk) in (0..).zip(self.distinct_trunks()) {
            match self.trunk_words.last_mut().filter(|last| last.word == trunk / 64) {
                Some(last) => last.bits |= 1 << (trunk % 64),
                None => self.trunk_words.push(TrunkWord {
                    word: trunk / 64,
                    bits: 1 << (trunk % 64),
                    earlier_trunks: number,
                }),
            }
        }
    }

    /// See [`Paths::max_failed_tests`]. `ends` are the first path of a trunk and the end of its paths.
    fn tests_before_exclusion(&self, ends: &[u32]) -> u32 {
        let paths = &self.paths_by_trunk[ends[0] as usize..ends[1] as usize];
        let flows = paths.iter().flat_map(|&path| self.members_of(path as usize));
        let flow_count: u32 = flows.map(|members| members.receiver_bits.count_ones()).sum();
        (TESTS_PER_PATH * paths.len() * paths.len() / flow_count as usize).max(1) as u32
    }

    /// Whether no flow crosses a trunk.
    #[inline]
    pub fn is_switch(&self) -> bool {
        self.trunks.is_empty()
    }

    #[inline]
    fn range(&self, path: u32) -> Range<usize> {
        let Range { start, end } = self.ranges[path as usize];
        start as usize..end as usize
    }

    /// The path of a flow. Flows over the same trunks have the same one; 0 on one switch.
    #[inline]
    pub fn path(&self, flow: u32) -> u32 {
        self.path_by_flow.get(flow as usize).copied().unwrap_or(0)
    }

    /// The links of a flow's trunks.
    #[inline]
    pub fn trunks(&self, flow: u32) -> &[u32] {
        self.path_by_flow.get(flow as usize).map_or(&[], |&path| &self.trunks[self.range(path)])
    }

    /// The positions of a flow's trunks among the links of the coflow.
    #[inline]
    pub fn trunk_indices(&self, flow: u32) -> &[u32] {
        self.path_by_flow.get(flow as usize).map_or(&[], |&path| &self.trunk_indices[self.range(path)])
    }

    /// The links of all trunks, sorted.
    pub fn distinct_trunks(&self) -> Vec<u32> {
        let mut trunks = self.trunks.clone();
        trunks.sort_unstable();
        trunks.dedup();
        trunks
    }

    /// Includes the flows over excluded trunks that are open now. O(words of trunks, and members of paths over these trunks).
    pub fn include_open_flows(&self, layout: u64, open: &BitSet, flows: &mut CandidateFlows) {
        if flows.layout != layout {
            flows.layout = layout;
            flows.excluded_trunks.clear();
            flows.excluded_trunks.resize(self.trunk_words.len(), 0);
            flows.failed_tests.clear();
            flows.failed_tests.resize(self.max_failed_tests.len(), 0);
            flows.excluded_trunk_counts.clear();
            flows.excluded_trunk_counts.resize(self.ranges.len(), 0);
            flows.receiver_bits.clear();
            flows.receiver_bits.resize(self.block_count, u64::MAX);
        }
        for (at, of) in self.trunk_words.iter().enumerate() {
            let opened = flows.excluded_trunks[at] & open.word(of.word as usize);
            flows.excluded_trunks[at] &= !opened;
            for bit in WordBits(opened) {
                let earlier = (of.bits & ((1 << bit) - 1)).count_ones();
                let number = (of.earlier_trunks + earlier) as usize;
                flows.failed_tests[number] = 0;
                self.change_trunk(number, false, flows);
            }
        }
    }

    /// Whether all trunks of a flow are open.
    #[inline]
    pub fn test_flow(&self, flow: u32, open: &BitSet, flows: &mut CandidateFlows) -> bool {
        let range = self.range(self.path(flow));
        let closed = self.trunks[range.clone()].iter().position(|&trunk| !open.contains(trunk as usize));
        let Some(closed) = closed else { return true };
        let (trunk, index) = (self.trunks[range.start + closed], self.trunk_indices[range.start + closed]);
        let number = index as usize - self.first_index;
        flows.failed_tests[number] += 1;
        if flows.failed_tests[number] == self.max_failed_tests[number] {
            let word = self.trunk_words.partition_point(|of| of.word < trunk / 64);
            flows.excluded_trunks[word] |= 1 << (trunk % 64);
            self.change_trunk(number, true, flows);
        }
        false
    }

    #[inline]
    fn members_of(&self, path: usize) -> &[PathMembers] {
        &self.members[self.first_members[path] as usize..self.first_members[path + 1] as usize]
    }

    /// The paths over a trunk, by its number among those of the coflow.
    #[inline]
    fn paths_over(&self, number: usize) -> &[u32] {
        &self.paths_by_trunk[self.first_paths[number] as usize..self.first_paths[number + 1] as usize]
    }

    /// Excludes or includes the flows over a trunk, by its number among those of the coflow.
    fn change_trunk(&self, number: usize, excludes: bool, flows: &mut CandidateFlows) {
        for &path in self.paths_over(number) {
            let path = path as usize;
            let count = &mut flows.excluded_trunk_counts[path];
            *count = if excludes { *count + 1 } else { *count - 1 };
            let changes = *count == u16::from(excludes);
            if !changes {
                continue;
            }
            for members in self.members_of(path) {
                // A flow has one path.
                flows.receiver_bits[members.block as usize] ^= members.receiver_bits;
            }
        }
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
