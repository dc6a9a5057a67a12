//! What a relay knows of the overlay: the other relays and the networks that they serve, coflows and rules.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_proto::relay::{RelayCoflow, RelayMatch, RelayOrder, RelayPeer, RelayRule, RuleScope};

use crate::forwarding::{Class, ForwardingTable, Match, Path, RelayId, Rule};
use crate::message::FlowId;

/// The overlay, as a controller or a file describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overlay {
    /// All relays, including the own one.
    pub relays: BTreeMap<RelayId, RelayPeer>,
    /// The coflows by number.
    pub coflows: BTreeMap<u32, RelayCoflow>,
    /// The rules.
    pub rules: ForwardingTable,
}

impl Overlay {
    /// The relay that serves a receiver: the one with the longest matching network. O(networks).
    pub fn relay_of(&self, receiver: IpAddr) -> Option<RelayId> {
        let matches = self.relays.iter().filter_map(|(&id, relay)| {
            let networks = relay.networks.iter().filter(|network| network.contains(receiver));
            Some((networks.map(|network| network.prefix_length()).max()?, Reverse(id)))
        });
        matches.max().map(|(_, Reverse(id))| id)
    }

    /// Applies an order: its changes, or all of it if it is full. O(order).
    pub fn apply(&mut self, order: &RelayOrder) {
        if order.is_full {
            *self = Overlay::default();
        }
        if !order.peers.is_empty() {
            self.relays = order.peers.iter().map(|peer| (RelayId(peer.id), peer.clone())).collect();
        }
        for number in &order.removed_coflows {
            self.coflows.remove(number);
        }
        self.coflows.extend(order.coflows.iter().map(|coflow| (coflow.number, coflow.clone())));
        order.removed_rules.iter().for_each(|flows| self.rules.remove(to_match(flows)));
        order.rules.iter().for_each(|rule| self.rules.insert(to_match(&rule.flows), to_rule(rule)));
        let Overlay { coflows, rules, .. } = self;
        rules.retain_coflows(|coflow| coflows.contains_key(&coflow));
    }
}

fn to_match(flows: &RelayMatch) -> Match {
    let coflow = flows.coflow;
    match flows.scope {
        RuleScope::Coflow => Match::Coflow(coflow),
        RuleScope::Pair { source, destination } => {
            Match::Group { coflow, source: RelayId(source), destination: RelayId(destination) }
        }
        RuleScope::Flow(flow) => Match::Flow(FlowId { coflow, flow }),
    }
}

fn to_rule(rule: &RelayRule) -> Rule {
    let class = Class { priority: rule.priority, weight: rule.weight };
    let path =
        |path: &weir_proto::relay::RelayPath| Path { next: RelayId(path.next), fraction: path.fraction };
    Rule { class, paths: rule.paths.iter().map(path).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(relays: &[(u16, [&str; 2])]) -> Overlay {
        let peer = |&(id, networks): &(u16, [&str; 2])| RelayPeer {
            id,
            name: format!("relay-{id}").into(),
            address: "127.0.0.1:7710".parse().unwrap(),
            networks: networks.iter().map(|text| text.parse().unwrap()).collect(),
            region: id,
        };
        let order =
            RelayOrder { is_full: true, peers: relays.iter().map(peer).collect(), ..RelayOrder::default() };
        let mut overlay = Overlay::default();
        overlay.apply(&order);
        overlay
    }

    #[test]
    fn longest_matching_network_decides() {
        let overlay = overlay(&[(1, ["10.0.0.0/8", "fd00::/8"]), (2, ["10.1.0.0/16", "fd00:1::/32"])]);
        let relay_of = |text: &str| overlay.relay_of(text.parse().unwrap()).map(|id| id.0);
        assert_eq!(relay_of("10.2.0.1"), Some(1));
        assert_eq!(relay_of("10.1.0.1"), Some(2));
        assert_eq!(relay_of("::ffff:10.1.0.1"), Some(2));
        assert_eq!(relay_of("fd00:1::1"), Some(2));
        assert_eq!(relay_of("192.168.0.1"), None);
    }

    #[test]
    fn rules_of_a_removed_coflow_are_removed() {
        let mut overlay = overlay(&[(1, ["10.0.0.0/8", "fd00::/8"])]);
        let coflow = |number| RelayCoflow { number, name: "shuffle".into(), service: "web".into() };
        let rule = |coflow| RelayRule {
            flows: RelayMatch { coflow, scope: RuleScope::Coflow },
            priority: 1,
            weight: 1.0,
            paths: vec![],
        };
        overlay.apply(&RelayOrder {
            coflows: vec![coflow(1), coflow(2)],
            rules: vec![rule(1), rule(2), rule(3)],
            ..RelayOrder::default()
        });
        assert_eq!(overlay.rules.len(), 2);
        overlay.apply(&RelayOrder { removed_coflows: vec![1], ..RelayOrder::default() });
        assert_eq!((overlay.rules.len(), overlay.coflows.len(), overlay.relays.len()), (1, 1, 1));
    }
}
