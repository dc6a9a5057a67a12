//! Which trunks coflows contend for: those that the ports behind them can exceed.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_core::model::topology::{CableChange, LinkId};
use weir_core::model::{CoflowSpec, FlowSpec, NodeId, Routes, Topology, TopologyTemplate, Trunks};
use weir_core::units::{Bytes, Time};

use crate::common::config_with_cases;
use crate::even_split::{any_topology, rate};

fn leaf_spine(spines: u32, oversubscription: f64) -> Topology {
    let (leaves, hosts) = (3, 4);
    TopologyTemplate::LeafSpine { spines, leaves, hosts, rate: rate(10.0), oversubscription }.build().unwrap()
}

fn contended(mut trunks: Trunks) -> Vec<usize> {
    trunks.contended_trunks().iter().collect()
}

#[test]
fn trunks_as_fast_as_their_hosts_are_not_contended() {
    assert_eq!(contended(Trunks::new(leaf_spine(1, 1.0), 0).unwrap()), []);
    assert_eq!(contended(Trunks::new(leaf_spine(1, 1.05), 0).unwrap()), [0, 1, 2, 3, 4, 5]);
    // With two spines, a hash can send all flows of a leaf over one of its two uplinks. An even split cannot.
    assert_eq!(contended(Trunks::new(leaf_spine(2, 1.0), 0).unwrap()).len(), 12);
    assert_eq!(contended(Trunks::new(leaf_spine(2, 0.5), 0).unwrap()), []);
    assert_eq!(contended(Trunks::even_split(leaf_spine(2, 1.0))), []);
    assert_eq!(contended(Trunks::even_split(leaf_spine(2, 1.05)).scaled(0.5)), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn slow_cable_is_contended_until_it_is_repaired() {
    let topology = leaf_spine(1, 1.0);
    let leaf = topology.find_node("leaf0").unwrap();
    let uplink = topology.link_between(leaf, topology.find_node("spine0").unwrap()).unwrap();
    let mut trunks = Trunks::new(topology, 0).unwrap().with_dead_end();
    let dead_end = trunks.links();
    trunks.change_cables(&[(uplink, CableChange::Rate(rate(39.0)))]);
    assert_eq!(trunks.contended_trunks().iter().count(), 3, "both links of the cable, and the dead end");
    trunks.change_cables(&[(uplink, CableChange::Rate(rate(40.0)))]);
    assert_eq!(trunks.contended_trunks().iter().collect::<Vec<_>>(), [dead_end]);
}

#[test]
fn maximum_rates_of_flows_are_not_contended() {
    let flow = FlowSpec::new(0, 4, Bytes::new(1.0).unwrap());
    let mut coflow = CoflowSpec::new(0, Time::ZERO, vec![flow]);
    coflow.max_flow_rate = Some(rate(1.0));
    let trunks = Trunks::new(leaf_spine(1, 1.0), 0).unwrap().with_flow_limits(&[coflow]);
    assert_eq!(trunks.capacities().len(), trunks.links() + 1);
    assert_eq!(contended(trunks), []);
}

/// By link: the smaller of the sums of the rates of senders and of receivers whose flows can cross it.
fn max_loads(topology: &Topology, rates: &[f64]) -> Vec<f64> {
    let mut routes = Routes::new(topology.clone(), 0);
    let mut hosts_by_link: BTreeMap<LinkId, [Vec<u32>; 2]> = BTreeMap::new();
    let mut shares = Vec::new();
    for src in 0..topology.hosts() as u32 {
        for dst in (0..topology.hosts() as u32).filter(|&dst| dst != src) {
            routes.compute_ecmp_shares(NodeId(src), NodeId(dst), &mut shares);
            for &(link, _) in &shares {
                let [senders, receivers] = hosts_by_link.entry(link).or_default();
                senders.push(src);
                receivers.push(dst);
            }
        }
    }
    let total = |mut hosts: Vec<u32>| -> f64 {
        hosts.sort_unstable();
        hosts.dedup();
        hosts.iter().map(|&host| rates[host as usize]).sum()
    };
    let load = |link: u32| match hosts_by_link.remove(&LinkId(link)) {
        Some([senders, receivers]) => total(senders).min(total(receivers)),
        None => 0.0,
    };
    (0..topology.links().len() as u32).map(load).collect()
}

proptest! {
    #![proptest_config(config_with_cases(300))]

    /// Hosts of several cables count with all of them. A link of a group has the load of the group.
    #[test]
    fn contended_trunks_match_all_pairs_of_hosts(topology in any_topology()) {
        let mut trunks = Trunks::even_split(topology.clone());
        let contended = trunks.contended_trunks();
        let rates: Vec<f64> = trunks.port_rates().iter().map(|rate| rate.get()).collect();
        let loads = max_loads(&topology, &rates);
        let name = |link: usize| {
            let link = topology.link(LinkId(link as u32));
            format!("{} -> {}", topology.name(link.from), topology.name(link.to))
        };
        for (trunk, capacity) in trunks.capacities().iter().enumerate() {
            let first_link = trunks.link_name(trunk);
            let link = (0..loads.len()).find(|&link| first_link.starts_with(&name(link))).unwrap();
            prop_assert_eq!(contended.contains(trunk), loads[link] > capacity + 1e-6, "{}", first_link);
        }
    }
}
