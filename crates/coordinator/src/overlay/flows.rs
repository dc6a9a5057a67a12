//! Flows between regions, by pair of regions and by flow group.

use std::collections::{BTreeMap, HashMap};

use weir_core::wide_area::flow_groups;
use weir_proto::relay::RegionPair;

use crate::config;

/// One flow of a coflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// The sender: an address, or the name of its region.
    pub from: String,
    /// The receiver. Flows with the same receiver and the same numbers are a flow group.
    pub to: String,
    /// The regions of the sender and of the receiver.
    pub pair: RegionPair,
    /// Size in bytes.
    pub bytes: u64,
    /// The first and the last number of its data flows; none: its index.
    pub numbers: Option<(u32, u32)>,
}

/// The receiver and the numbers of a flow group.
type FlowGroup<'a> = (&'a str, Option<(u32, u32)>);

impl Flow {
    fn numbers(&self, index: u32) -> (u32, u32) {
        self.numbers.unwrap_or((index, index))
    }

    fn group(&self) -> FlowGroup<'_> {
        (&self.to, self.numbers)
    }
}

/// Two flows of different groups between the same regions with a common number, if there are any: their indices. O(n log n).
pub fn find_common_number(flows: &[Flow]) -> Option<(usize, usize)> {
    let ends = (0u32..).zip(flows).map(|(index, flow)| (flow.pair, flow.numbers(index), index as usize));
    let mut ends: Vec<_> = ends.collect();
    ends.sort_unstable();
    // Flows of one group have equal or separate numbers, so the last one is enough.
    ends.windows(2).find_map(|neighbors| {
        let [(pair, (_, last), former), (other, (first, _), index)] = neighbors else { return None };
        let is_common = pair == other && first <= last && flows[*former].group() != flows[*index].group();
        is_common.then_some((*former, *index))
    })
}

/// The flow groups of a coflow, numbered in the order of their first flows.
#[derive(Debug, Default)]
pub struct FlowIndex {
    /// The first and last numbers of the data flows by pair of different regions and by flow group, sorted; they do not overlap.
    pub ranges: BTreeMap<RegionPair, BTreeMap<usize, Vec<(u32, u32)>>>,
    /// The flow groups, the largest first. The size of a group includes its bytes inside a region.
    pub group_order: Vec<usize>,
}

impl FlowIndex {
    pub(super) fn new(flows: &[Flow], overlay: &config::Overlay) -> FlowIndex {
        let mut ranges: BTreeMap<RegionPair, BTreeMap<usize, Vec<(u32, u32)>>> = BTreeMap::new();
        let mut group_numbers: HashMap<FlowGroup<'_>, usize> = HashMap::new();
        let mut group_sizes: Vec<f64> = Vec::new();
        for (index, flow) in (0..).zip(flows) {
            let group = *group_numbers.entry(flow.group()).or_insert(group_sizes.len());
            if group == group_sizes.len() {
                group_sizes.push(0.0);
            }
            group_sizes[group] += flow.bytes as f64;
            if overlay.link_of(flow.pair).is_some() {
                let of_pair = ranges.entry(flow.pair).or_default();
                of_pair.entry(group).or_default().push(flow.numbers(index));
            }
        }
        ranges.values_mut().flat_map(BTreeMap::values_mut).for_each(join_ranges);
        FlowIndex { ranges, group_order: flow_groups::order_largest_first(&group_sizes) }
    }
}

/// Sorts ranges of numbers of one flow group, and joins those that overlap or follow each other.
fn join_ranges(ranges: &mut Vec<(u32, u32)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|(first, last), (_, former_last)| {
        let is_joined = *first <= former_last.saturating_add(1);
        if is_joined {
            *former_last = (*former_last).max(*last);
        }
        is_joined
    });
}
