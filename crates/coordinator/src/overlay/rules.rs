//! Converts a decision to the rules of the relays in each region.
//!
//! A decision and rules are about regions, so all relays of a region have the same rules. If no relay in the region of a detour accepts
//! detours, the bytes take the direct path. All flows between two regions share one rule if they have the same turn in the decision.
//! Otherwise each range of numbers of a flow group has a rule, and flows with other numbers, such as those of a task that runs again,
//! have the turn of the last group.
//!
//! The priority of a rule is its place among the turns of the region's rules, so it is below [`MAX_RELAY_RULES`]: relays serve flows
//! without a rule at the last priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::model::BandwidthHistory;
use weir_core::wide_area::relays::{GroupPath, HopSchedule};
use weir_proto::relay::{MAX_RELAY_RULES, RegionPair, RelayMatch, RelayPath, RelayRule, RuleScope};

use super::flows::FlowIndex;

/// The rules of the relays in a region.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct RegionRules {
    /// Sorted by match, at most [`MAX_RELAY_RULES`].
    pub rules: Vec<RelayRule>,
    /// The number of rules beyond the limit.
    pub omitted: usize,
}

/// How the relays of a region forward the flows of a coflow between two regions.
#[derive(Default)]
struct Forwarding {
    /// The fraction of the bytes by next region, which is the same for all flow groups, and the group that it is from.
    paths: BTreeMap<u16, f64>,
    paths_group: Option<usize>,
    /// Flow groups and their turns. Can contain duplicates.
    turns: Vec<(usize, usize)>,
}

/// A coflow between two regions at the relays of one region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ForwardingKey {
    region: u16,
    coflow: u32,
    pair: RegionPair,
}

/// The rules of each region. `has_detours`: the regions in which a relay accepts detours; `index_of`: the flow groups of each coflow.
pub(super) fn region_rules(
    past: &BandwidthHistory,
    has_detours: &[bool],
    index_of: &BTreeMap<u32, &FlowIndex>,
    hops: &[HopSchedule],
) -> Vec<Arc<RegionRules>> {
    let mut rules: Vec<Vec<(usize, RelayRule)>> = vec![Vec::new(); past.regions()];
    for (ForwardingKey { region, coflow, pair }, forwarding) in forwardings(past, has_detours, hops) {
        let ranges = index_of.get(&coflow).and_then(|index| index.ranges.get(&pair));
        let Some(ranges) = ranges else { continue };
        add_rules(coflow, pair, ranges, forwarding, &mut rules[usize::from(region)]);
    }
    rules.into_iter().map(|rules| Arc::new(to_region_rules(rules))).collect()
}

/// The rules of a region, from rules with their turns. Of too many, the rules for all flows between two regions stay, since they have the
/// paths; then those with the first turns. The flows of an omitted group have the turn of the coflow's last group.
fn to_region_rules(mut rules: Vec<(usize, RelayRule)>) -> RegionRules {
    let omitted = rules.len().saturating_sub(MAX_RELAY_RULES);
    if omitted > 0 {
        let is_range = |rule: &RelayRule| matches!(rule.flows.scope, RuleScope::Flows { .. });
        rules.sort_by_key(|(turn, rule)| (is_range(rule), *turn, rule.flows));
        rules.truncate(MAX_RELAY_RULES);
    }
    let mut turns: Vec<usize> = rules.iter().map(|(turn, _)| *turn).collect();
    turns.sort_unstable();
    turns.dedup();
    let mut rules: Vec<RelayRule> = rules
        .into_iter()
        .map(|(turn, rule)| {
            let place = turns.partition_point(|&other| other < turn);
            RelayRule { priority: u16::try_from(place).unwrap_or(u16::MAX), ..rule }
        })
        .collect();
    rules.sort_unstable_by_key(|rule| rule.flows);
    RegionRules { rules, omitted }
}

/// Which regions forward the flows of coflows, and where to.
fn forwardings(
    past: &BandwidthHistory,
    has_detours: &[bool],
    hops: &[HopSchedule],
) -> BTreeMap<ForwardingKey, Forwarding> {
    let mut forwardings: BTreeMap<ForwardingKey, Forwarding> = BTreeMap::new();
    for hop in hops {
        for level in &hop.priority_levels {
            for (number, path) in &level.flows {
                let (source, destination) = past.link_ends(path.direct_link);
                let pair = RegionPair { source: source as u16, destination: destination as u16 };
                let Some((region, next)) = next_region(has_detours, hop, path, pair) else { continue };
                let key = ForwardingKey { region, coflow: *number as u32, pair };
                let forwarding = forwardings.entry(key).or_default();
                forwarding.turns.push((path.group, level.turn));
                if *forwarding.paths_group.get_or_insert(path.group) == path.group {
                    *forwarding.paths.entry(next).or_default() += path.fraction;
                }
            }
        }
    }
    forwardings
}

/// The region that forwards flows of a pair at a hop, and the next one. `None` if no relay of the detour accepts it.
fn next_region(
    has_detours: &[bool],
    hop: &HopSchedule,
    path: &GroupPath,
    RegionPair { source, destination }: RegionPair,
) -> Option<(u16, u16)> {
    if path.links[1].is_none() {
        return Some((source, destination));
    }
    let is_first = hop.region == usize::from(source);
    let detour = if is_first { hop.next_region } else { hop.region };
    match (has_detours[detour], is_first) {
        (true, true) => Some((source, detour as u16)),
        (true, false) => Some((detour as u16, destination)),
        (false, true) => Some((source, destination)),
        (false, false) => None,
    }
}

/// Adds the rules for the flows of a coflow between two regions, with their turns.
fn add_rules(
    coflow: u32,
    regions: RegionPair,
    ranges: &BTreeMap<usize, Vec<(u32, u32)>>,
    Forwarding { paths, mut turns, .. }: Forwarding,
    rules: &mut Vec<(usize, RelayRule)>,
) {
    let sum: f64 = paths.values().sum();
    let is_direct = paths.keys().all(|&next| next == regions.destination);
    let to_path =
        |(&next_region, fraction): (&u16, &f64)| RelayPath { next_region, fraction: fraction / sum };
    let paths: Vec<RelayPath> = paths.iter().filter(|_| !is_direct).map(to_path).collect();
    let rule = |scope| RelayRule {
        flows: RelayMatch { coflow, scope },
        priority: 0,
        weight: 1.0,
        paths: paths.clone(),
    };
    // A group has one turn, at all hops.
    turns.sort_unstable();
    turns.dedup();
    let Some(last_turn) = turns.iter().map(|&(_, turn)| turn).max() else { return };
    rules.push((last_turn, rule(RuleScope::Pair(regions))));
    if turns.iter().all(|&(_, turn)| turn == last_turn) {
        return;
    }
    for (group, turn) in turns {
        let flows = |&(first, last): &(u32, u32)| RuleScope::Flows { pair: Some(regions), first, last };
        let of_group = ranges.get(&group).into_iter().flatten();
        rules.extend(of_group.map(|range| (turn, rule(flows(range)))));
    }
}
