//! Converts decisions to instructions for relays: for each region and next hop, the order and the sharing of flows.
//!
//! The relays in each region (Siphon, ATC '18, section 4) know only their own queues. A decision ([`ServiceOrder`]), the paths of
//! coflows ([`super::detour`]) and the order of their groups ([`super::flow_groups`]) are therefore converted to instructions by
//! hop. A relay enforces the decision if it serves each hop as instructed. The instructions change only with the next decision,
//! not while bytes move.

use std::collections::BTreeMap;

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
/// that the policy received. O(links x flows).
pub fn hop_schedules(
    past: &BandwidthHistory,
    turns: &ServiceOrder,
    carried: &[RelayedCoflow],
) -> Vec<HopSchedule> {
    let each = (0..past.links() as u32).map(|link| {
        let (from, to) = past.link_ends(link);
        let all = || (0..carried.len()).collect::<Vec<_>>();
        let priority_levels = levels(match turns {
            ServiceOrder::MaxMin => vec![at_once(link, &all(), carried)],
            ServiceOrder::InOrder(order) => in_turn(link, order, carried),
        });
        HopSchedule { region: from, next_region: to, priority_levels }
    });
    each.filter(|hop| !hop.priority_levels.is_empty()).collect()
}

/// The turns with flows.
fn levels(turns: Vec<Vec<HopFlow>>) -> Vec<PriorityLevel> {
    let levels = turns.into_iter().enumerate().map(|(turn, flows)| PriorityLevel { turn, flows });
    levels.filter(|level| !level.flows.is_empty()).collect()
}

/// A turn for each coflow, or for each of its groups.
fn in_turn(link: u32, order: &[usize], carried: &[RelayedCoflow]) -> Vec<Vec<HopFlow>> {
    let of_coflow = |&place: &usize| {
        let own = at_once(link, &[place], carried);
        let Some(groups) = &carried[place].group_order else { return vec![own] };
        let mut by_group: BTreeMap<usize, Vec<HopFlow>> = BTreeMap::new();
        for flow in own {
            by_group.entry(flow.1.group).or_default().push(flow);
        }
        groups.iter().map(|group| by_group.remove(group).unwrap_or_default()).collect()
    };
    order.iter().flat_map(of_coflow).collect()
}

/// All flows of some coflows over a link.
fn at_once(link: u32, places: &[usize], carried: &[RelayedCoflow]) -> Vec<HopFlow> {
    let flows = places
        .iter()
        .flat_map(|&place| carried[place].paths.iter().map(move |way| (carried[place].seq, *way)));
    flows.filter(|(_, way)| way.links.contains(&Some(link))).collect()
}
