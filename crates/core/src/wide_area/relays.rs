//! Converts decisions to instructions for relays: for each region and next hop, the order and the sharing of flows.
//!
//! The relays in each region (Siphon, ATC '18, section 4) know only their own queues. A decision ([`ServiceOrder`]), the paths of
//! coflows ([`super::detour`]) and the order of their groups ([`super::flow_groups`]) are therefore converted to instructions by
//! hop. A relay enforces the decision if it serves each hop as instructed. The instructions change only with the next decision,
//! not while bytes move.

use std::collections::HashMap;

use super::ServiceOrder;
use crate::model::BandwidthHistory;

/// A part of a flow on its path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupPath {
    /// The index of the flow group in its coflow.
    pub group: usize,
    /// The direct link between the source region and the destination region.
    pub direct_link: u32,
    /// The link of the path, or its two links with a relay.
    pub links: [Option<u32>; 2],
    /// The fraction of the group's bytes between the two regions that uses this path.
    pub fraction: f64,
}

/// An active coflow.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayedCoflow {
    /// Its number, as in [`super::WaitingCoflow`].
    pub seq: u64,
    /// Its groups in the order of service; none if all are served at the same time.
    pub group_order: Option<Vec<usize>>,
    /// Its paths with remaining bytes.
    pub paths: Vec<GroupPath>,
}

/// A flow at a hop: a coflow's number, and one of its paths.
pub type HopFlow = (u64, GroupPath);

/// Flows that share a hop.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorityLevel {
    /// The turn of these flows in the decision, from 0: the same number at all hops.
    pub turn: usize,
    /// At least one flow.
    pub flows: Vec<HopFlow>,
}

/// The traffic from a region to the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct HopSchedule {
    /// The region.
    pub region: usize,
    /// The next region: a destination or a relay.
    pub next_region: usize,
    /// At least one level, rising by turn. Flows of the first level are served first, and share evenly; those of the second level
    /// share the residual capacity, and so on.
    pub priority_levels: Vec<PriorityLevel>,
}

/// A decision by hop, for the hops with traffic in the order of links. `carried` contains the waiting coflows, in the order
/// that the policy received. O(links + paths x log paths).
pub fn hop_schedules(
    past: &BandwidthHistory,
    turns: &ServiceOrder,
    carried: &[RelayedCoflow],
) -> Vec<HopSchedule> {
    let mut levels: Vec<Vec<PriorityLevel>> = vec![Vec::new(); past.links()];
    match turns {
        ServiceOrder::MaxMin => {
            let flows = carried.iter().flat_map(|coflow| coflow.paths.iter().map(|path| (coflow.seq, *path)));
            flows.for_each(|flow| add_flow(&mut levels, 0, flow));
        }
        ServiceOrder::InOrder(order) => {
            let mut next_turn = 0;
            for &place in order {
                let coflow = &carried[place];
                let turns = flow_turns(coflow, next_turn);
                turns.into_iter().for_each(|(turn, path)| add_flow(&mut levels, turn, (coflow.seq, path)));
                next_turn += coflow.group_order.as_ref().map_or(1, Vec::len);
            }
        }
    }
    let hops = (0u32..).zip(levels).filter(|(_, levels)| !levels.is_empty());
    let hops = hops.map(|(link, priority_levels)| {
        let (region, next_region) = past.link_ends(link);
        HopSchedule { region, next_region, priority_levels }
    });
    hops.collect()
}

/// The paths of a coflow with their turns, rising: one turn for all, or one for each group. `first` is the first turn.
fn flow_turns(coflow: &RelayedCoflow, first: usize) -> Vec<(usize, GroupPath)> {
    let Some(groups) = &coflow.group_order else {
        return coflow.paths.iter().map(|path| (first, *path)).collect();
    };
    let turn_of: HashMap<usize, usize> = groups.iter().copied().zip(first..).collect();
    let turn = |path: &GroupPath| Some((*turn_of.get(&path.group)?, *path));
    let mut turns: Vec<(usize, GroupPath)> = coflow.paths.iter().filter_map(turn).collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns
}

/// Adds a flow to the links of its path. Its turn is at least that of the flow before.
fn add_flow(levels: &mut [Vec<PriorityLevel>], turn: usize, flow: HopFlow) {
    for link in flow.1.links.into_iter().flatten() {
        let of_link = &mut levels[link as usize];
        match of_link.last_mut().filter(|level| level.turn == turn) {
            Some(level) => level.flows.push(flow),
            None => of_link.push(PriorityLevel { turn, flows: vec![flow] }),
        }
    }
}
