//! What a relay knows of the overlay: the other relays and the networks that they serve, coflows and rules.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_proto::NetworkTable;
use weir_proto::relay::{RegionPair, RelayCoflow, RelayOrder, RelayPeer, RelayRule};

use crate::forwarding::{Class, ForwardingTable, Path, RegionId, Rule};
use crate::message::{FlowId, RelayId};

/// The overlay, as a controller or a file describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overlay {
    /// All relays, including the own one.
    pub relays: BTreeMap<RelayId, RelayPeer>,
    /// The relays of each region, sorted.
    regions: BTreeMap<RegionId, Vec<RelayId>>,
    /// Their networks.
    networks: NetworkTable<u16>,
    /// The coflows by number.
    pub coflows: BTreeMap<u32, RelayCoflow>,
    /// The rules.
    pub rules: ForwardingTable,
}

impl Overlay {
    /// The relays that serve a receiver: those with the longest matching network; none if no network contains the receiver.
    pub fn relays_of(&self, receiver: IpAddr) -> Vec<RelayId> {
        self.networks.owners_of(receiver).iter().copied().map(RelayId).collect()
    }

    /// The region of a relay; none if the relay is unknown.
    pub fn region_of(&self, relay: RelayId) -> Option<RegionId> {
        self.relays.get(&relay).map(|peer| RegionId(peer.region))
    }

    /// The relays of a region, sorted.
    pub fn relays_in(&self, region: RegionId) -> &[RelayId] {
        self.regions.get(&region).map_or(&[], Vec::as_slice)
    }

    /// The rule for a flow between two relays.
    pub fn rule_for(&self, flow: FlowId, source: RelayId, destination: RelayId) -> Option<&Rule> {
        let pair =
            RegionPair { source: self.region_of(source)?.0, destination: self.region_of(destination)?.0 };
        self.rules.lookup(flow, pair)
    }

    /// Applies an order: its changes, or all of it if it is full. O(order).
    pub fn apply(&mut self, order: &RelayOrder) {
        if order.is_full {
            *self = Overlay::default();
        }
        if !order.peers.is_empty() {
            self.relays = order.peers.iter().map(|peer| (RelayId(peer.id), peer.clone())).collect();
            self.networks = NetworkTable::default();
            self.regions.clear();
            for peer in &order.peers {
                self.regions.entry(RegionId(peer.region)).or_default().push(RelayId(peer.id));
                for &network in &peer.networks {
                    self.networks.insert(network, peer.id);
                }
            }
        }
        for number in &order.removed_coflows {
            self.coflows.remove(number);
        }
        self.coflows.extend(order.coflows.iter().map(|coflow| (coflow.number, coflow.clone())));
        order.removed_rules.iter().for_each(|&flows| self.rules.remove(flows));
        order.rules.iter().for_each(|rule| self.rules.insert(rule.flows, to_rule(rule)));
        let Overlay { coflows, rules, .. } = self;
        rules.retain_coflows(|coflow| coflows.contains_key(&coflow));
    }
}

fn to_rule(rule: &RelayRule) -> Rule {
    let class = Class { priority: rule.priority, weight: rule.weight };
    let path = |path: &weir_proto::relay::RelayPath| Path {
        next: RegionId(path.next_region),
        fraction: path.fraction,
    };
    Rule { class, paths: rule.paths.iter().map(path).collect() }
}

#[cfg(test)]
mod tests {
    use weir_proto::relay::{RelayMatch, RuleScope};

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
        let relays_of = |text: &str| overlay.relays_of(text.parse().unwrap());
        assert_eq!(relays_of("10.2.0.1"), [RelayId(1)]);
        assert_eq!(relays_of("10.1.0.1"), [RelayId(2)]);
        assert_eq!(relays_of("::ffff:10.1.0.1"), [RelayId(2)]);
        assert_eq!(relays_of("fd00:1::1"), [RelayId(2)]);
        assert_eq!(relays_of("192.168.0.1"), []);
    }

    #[test]
    fn rules_apply_between_the_regions_of_relays() {
        let mut overlay = overlay(&[
            (1, ["10.0.0.0/8", "fd00::/8"]),
            (2, ["10.1.0.0/16", "fd00:1::/32"]),
            (3, ["10.1.0.0/16", "fd00:1::/32"]),
        ]);
        let mut peers: Vec<RelayPeer> = overlay.relays.values().cloned().collect();
        peers[2].region = 2;
        let pair = RegionPair { source: 2, destination: 1 };
        let rule = RelayRule {
            flows: RelayMatch { coflow: 7, scope: RuleScope::Pair(pair) },
            priority: 4,
            weight: 1.0,
            paths: vec![],
        };
        let coflow = RelayCoflow { number: 7, name: "shuffle".into(), service: "web".into() };
        let (coflows, rules) = (vec![coflow], vec![rule]);
        overlay.apply(&RelayOrder { is_full: true, peers, coflows, rules, ..RelayOrder::default() });
        assert_eq!(overlay.relays_of("10.1.0.1".parse().unwrap()), [RelayId(2), RelayId(3)]);
        assert_eq!(overlay.relays_in(RegionId(2)), [RelayId(2), RelayId(3)]);
        assert_eq!(overlay.relays_in(RegionId(3)), []);
        let flow = FlowId { coflow: 7, flow: 0 };
        let has_rule =
            |source, destination| overlay.rule_for(flow, RelayId(source), RelayId(destination)).is_some();
        assert_eq!(
            [has_rule(2, 1), has_rule(3, 1), has_rule(1, 2), has_rule(2, 9)],
            [true, true, false, false]
        );
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
