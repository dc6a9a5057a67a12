//! Converts a decision to the coflows and rules of each relay.
//!
//! A decision is about regions, rules are about relays. A flow on a detour uses one present relay of the region of the detour; if none
//! is present, its bytes take the direct path. The priority of a rule is the turn of its flows in the decision. All flows between two
//! relays share one rule if they have the same turn; otherwise each flow has a rule.

use std::collections::BTreeMap;

use weir_core::wide_area::relays::{GroupPath, HopSchedule};
use weir_proto::relay::{MAX_RELAY_RULES, RelayCoflow, RelayMatch, RelayPath, RelayRule, RuleScope};

use super::coflow::Coflow;
use super::relay::RelayTable;
use crate::config;

/// How one relay forwards the flows of a coflow between two relays.
#[derive(Default)]
struct Forwarding {
    /// The fraction of the bytes by next relay.
    paths: BTreeMap<u16, f64>,
    /// The turn of each flow group.
    turns: BTreeMap<usize, usize>,
}

/// A coflow between two relays at one relay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ForwardingKey {
    relay: u16,
    coflow: u32,
    /// The relays of the senders and of the receivers.
    pair: (u16, u16),
}

/// The coflows of all relays, and rules for the active ones.
pub(super) fn relay_tables(
    overlay: &config::Overlay,
    present: &[bool],
    coflows: &BTreeMap<u32, Coflow>,
    hops: &[HopSchedule],
) -> Vec<RelayTable> {
    let mut tables = vec![RelayTable::default(); overlay.relays.len()];
    for coflow in coflows.values().filter(|coflow| !coflow.is_withdrawn) {
        for &(source, destination) in coflow.pairs.keys() {
            add_coflow(&mut tables[usize::from(source)], coflow);
            add_coflow(&mut tables[usize::from(destination)], coflow);
        }
    }
    let mut rules: Vec<Vec<RelayRule>> = vec![Vec::new(); overlay.relays.len()];
    for (ForwardingKey { relay, coflow, pair }, forwarding) in forwardings(overlay, present, coflows, hops) {
        let coflow = &coflows[&coflow];
        add_coflow(&mut tables[usize::from(relay)], coflow);
        let groups = &coflow.pairs[&pair].groups;
        rules[usize::from(relay)].extend(to_rules(coflow.number, pair, groups, &forwarding));
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

/// Which relays forward the flows of active coflows with a decision, and where to.
fn forwardings(
    overlay: &config::Overlay,
    present: &[bool],
    coflows: &BTreeMap<u32, Coflow>,
    hops: &[HopSchedule],
) -> BTreeMap<ForwardingKey, Forwarding> {
    let mut present_relays = vec![Vec::new(); overlay.area.regions().len()];
    for ((number, relay), _) in (0u16..).zip(&overlay.relays).zip(present).filter(|(_, present)| **present) {
        present_relays[usize::from(relay.region)].push(number);
    }
    let mut forwardings: BTreeMap<ForwardingKey, Forwarding> = BTreeMap::new();
    for hop in hops {
        for level in &hop.priority_levels {
            for (number, path) in &level.flows {
                let number = *number as u32;
                let Some(coflow) = coflows.get(&number) else { continue };
                if coflow.completed_at.is_some() || coflow.paths.is_none() {
                    continue;
                }
                let pairs = coflow.pairs_by_group.get(&(path.direct_link, path.group));
                for &pair in pairs.into_iter().flatten() {
                    let Some((relay, next)) = next_hop(overlay, &present_relays, hop, path, pair) else {
                        continue;
                    };
                    let key = ForwardingKey { relay, coflow: number, pair };
                    let forwarding = forwardings.entry(key).or_default();
                    forwarding.turns.insert(path.group, level.turn);
                    // All groups use the same paths, so those of the first group are enough.
                    if coflow.pairs[&pair].groups.keys().next() == Some(&path.group) {
                        *forwarding.paths.entry(next).or_default() += path.fraction;
                    }
                }
            }
        }
    }
    forwardings
}

/// The relay that forwards flows of a pair at a hop, and the next one. `None` if no relay of the detour is present.
fn next_hop(
    overlay: &config::Overlay,
    present_relays: &[Vec<u16>],
    hop: &HopSchedule,
    path: &GroupPath,
    (source, destination): (u16, u16),
) -> Option<(u16, u16)> {
    if path.links[1].is_none() {
        return Some((source, destination));
    }
    let is_first = hop.region == usize::from(overlay.relays[usize::from(source)].region);
    let candidates = &present_relays[if is_first { hop.next_region } else { hop.region }];
    let chosen = (usize::from(source) + usize::from(destination)).checked_rem(candidates.len());
    match (chosen.map(|at| candidates[at]), is_first) {
        (Some(relay), true) => Some((source, relay)),
        (Some(relay), false) => Some((relay, destination)),
        (None, true) => Some((source, destination)),
        (None, false) => None,
    }
}

fn to_rules(
    coflow: u32,
    (source, destination): (u16, u16),
    groups: &BTreeMap<usize, Vec<u32>>,
    forwarding: &Forwarding,
) -> Vec<RelayRule> {
    let sum: f64 = forwarding.paths.values().sum();
    let is_direct = forwarding.paths.keys().all(|&next| next == destination);
    let to_path = |(&next, fraction): (&u16, &f64)| RelayPath { next, fraction: fraction / sum };
    let paths: Vec<RelayPath> = forwarding.paths.iter().filter(|_| !is_direct).map(to_path).collect();
    let rule = |scope, turn: usize| RelayRule {
        flows: RelayMatch { coflow, scope },
        priority: u16::try_from(turn).unwrap_or(u16::MAX),
        weight: 1.0,
        paths: paths.clone(),
    };
    let mut turns = forwarding.turns.values();
    let first = turns.next();
    match first {
        Some(&turn) if turns.all(|&other| other == turn) => {
            vec![rule(RuleScope::Pair { source, destination }, turn)]
        }
        _ => {
            let groups = forwarding.turns.iter().filter_map(|(group, turn)| Some((groups.get(group)?, turn)));
            let rules = groups.flat_map(|(flows, &turn)| flows.iter().map(move |&flow| (flow, turn)));
            rules.map(|(flow, turn)| rule(RuleScope::Flow(flow), turn)).collect()
        }
    }
}
