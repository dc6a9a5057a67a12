//! Converts a decision to the coflows and rules of the relays in each region.
//!
//! A decision and rules are about regions, so all relays of a region have the same rules. If no relay in the region of a detour accepts
//! detours, the bytes take the direct path. The priority of a rule is the turn of its flows in the decision. All flows between two
//! regions share one rule if they have the same turn. Otherwise each range of numbers of a flow group has a rule, and flows with other
//! numbers, such as those of a task that runs again, have the last turn.

use std::collections::BTreeMap;

use weir_core::wide_area::relays::{GroupPath, HopSchedule};
use weir_proto::relay::{
    MAX_RELAY_RULES, RegionPair, RelayCoflow, RelayMatch, RelayPath, RelayRule, RuleScope,
};

use super::coflow::{Coflow, Pair};
use super::relay::RelayTable;
use crate::config;

/// How the relays of a region forward the flows of a coflow between two regions.
#[derive(Default)]
struct Forwarding {
    /// The fraction of the bytes by next region, which is the same for all flow groups, and the group that it is from.
    paths: BTreeMap<u16, f64>,
    paths_group: Option<usize>,
    /// The turn of each flow group.
    turns: BTreeMap<usize, usize>,
}

/// A coflow between two regions at the relays of one region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ForwardingKey {
    region: u16,
    coflow: u32,
    pair: RegionPair,
}

/// The coflows of all regions, and rules for the active ones. `has_detours`: the regions in which a relay accepts detours.
pub(super) fn region_tables(
    overlay: &config::Overlay,
    has_detours: &[bool],
    coflows: &BTreeMap<u32, Coflow>,
    hops: &[HopSchedule],
) -> Vec<RelayTable> {
    let regions = overlay.area.regions().len();
    let mut tables = vec![RelayTable::default(); regions];
    for coflow in coflows.values().filter(|coflow| !coflow.is_withdrawn) {
        for pair in coflow.pairs.keys() {
            add_coflow(&mut tables[usize::from(pair.source)], coflow);
            add_coflow(&mut tables[usize::from(pair.destination)], coflow);
        }
    }
    let mut rules: Vec<Vec<RelayRule>> = vec![Vec::new(); regions];
    for (ForwardingKey { region, coflow, pair }, forwarding) in
        forwardings(overlay, has_detours, coflows, hops)
    {
        let coflow = &coflows[&coflow];
        add_coflow(&mut tables[usize::from(region)], coflow);
        rules[usize::from(region)].extend(to_rules(coflow.number, pair, &coflow.pairs[&pair], &forwarding));
    }
    for (table, mut rules) in tables.iter_mut().zip(rules) {
        // Flows beyond the limit are the last ones to be served. They take the direct path.
        rules.sort_by_key(|rule| (rule.priority, rule.flows));
        rules.truncate(MAX_RELAY_RULES);
        table.rules = rules.into_iter().map(|rule| (rule.flows, rule)).collect();
    }
    tables
}

fn add_coflow(table: &mut RelayTable, coflow: &Coflow) {
    table.coflows.entry(coflow.number).or_insert_with(|| RelayCoflow {
        number: coflow.number,
        name: coflow.id.clone(),
        service: coflow.service.clone(),
    });
}

/// Which regions forward the flows of active coflows with a decision, and where to.
fn forwardings(
    overlay: &config::Overlay,
    has_detours: &[bool],
    coflows: &BTreeMap<u32, Coflow>,
    hops: &[HopSchedule],
) -> BTreeMap<ForwardingKey, Forwarding> {
    let mut forwardings: BTreeMap<ForwardingKey, Forwarding> = BTreeMap::new();
    for hop in hops {
        for level in &hop.priority_levels {
            for (number, path) in &level.flows {
                let number = *number as u32;
                let Some(coflow) = coflows.get(&number) else { continue };
                if coflow.completed_at.is_some() || coflow.paths.is_none() {
                    continue;
                }
                let (source, destination) = overlay.area.link_ends(path.direct_link);
                let pair = RegionPair { source: source as u16, destination: destination as u16 };
                // An update may have removed the group after the decision.
                let is_known = |pair: &Pair| pair.groups.contains_key(&path.group);
                if !coflow.pairs.get(&pair).is_some_and(is_known) {
                    continue;
                }
                let Some((region, next)) = next_region(has_detours, hop, path, pair) else { continue };
                let forwarding =
                    forwardings.entry(ForwardingKey { region, coflow: number, pair }).or_default();
                forwarding.turns.insert(path.group, level.turn);
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

fn to_rules(coflow: u32, regions: RegionPair, pair: &Pair, forwarding: &Forwarding) -> Vec<RelayRule> {
    let sum: f64 = forwarding.paths.values().sum();
    let is_direct = forwarding.paths.keys().all(|&next| next == regions.destination);
    let to_path =
        |(&next_region, fraction): (&u16, &f64)| RelayPath { next_region, fraction: fraction / sum };
    let paths: Vec<RelayPath> = forwarding.paths.iter().filter(|_| !is_direct).map(to_path).collect();
    let rule = |scope, turn: usize| RelayRule {
        flows: RelayMatch { coflow, scope },
        priority: u16::try_from(turn).unwrap_or(u16::MAX),
        weight: 1.0,
        paths: paths.clone(),
    };
    let Some(&last_turn) = forwarding.turns.values().max() else { return Vec::new() };
    let mut rules = vec![rule(RuleScope::Pair(regions), last_turn)];
    if forwarding.turns.values().any(|&turn| turn != last_turn) {
        let groups =
            forwarding.turns.iter().filter_map(|(group, turn)| Some((pair.groups.get(group)?, turn)));
        let ranges = groups.flat_map(|(ranges, &turn)| ranges.iter().map(move |&range| (range, turn)));
        let flows = |(first, last)| RuleScope::Flows { pair: Some(regions), first, last };
        rules.extend(ranges.map(|(range, turn)| rule(flows(range), turn)));
    }
    rules
}
