//! Trunks of topologies whose switches divide flows evenly among equal-cost links.

use proptest::prelude::*;
use weir_core::model::topology::{CableChange, TopologyBuilder};
use weir_core::model::{LinkId, NodeId, Routes, Topology, TopologyTemplate, Trunks};
use weir_core::units::Rate;

use crate::common::config_with_cases;

pub fn rate(bytes_per_second: f64) -> Rate {
    Rate::new(bytes_per_second).unwrap()
}

fn path(trunks: &mut Trunks, src: u32, dst: u32) -> Vec<u32> {
    let mut path = Vec::new();
    trunks.compute_path(src, dst, 0, 0, &mut path);
    path
}

#[test]
fn hosts_added_to_a_switch_have_its_paths() {
    let plan = TopologyTemplate::LeafSpine {
        spines: 2,
        leaves: 2,
        hosts: 1,
        rate: rate(10.0),
        oversubscription: 4.0,
    };
    let topology = plan.build().unwrap();
    let leaf = |name: &str| topology.find_node(name).unwrap();
    let larger = topology.with_hosts(&[(leaf("leaf0"), rate(1.0)), (leaf("leaf1"), rate(2.0))]).unwrap();
    assert_eq!((larger.hosts(), larger.nodes()), (4, topology.nodes() + 2));
    for (number, (link, same)) in topology.links().iter().zip(larger.links()).enumerate() {
        let ends = |of: &Topology, link: &weir_core::model::topology::Link| {
            (of.name(link.from).to_owned(), of.name(link.to).to_owned(), link.rate)
        };
        assert_eq!(ends(&topology, link), ends(&larger, same), "{number}");
    }
    assert_eq!(larger.tier(larger.find_node("spine0").unwrap()), 2);
    let mut trunks = Trunks::even_split(larger.clone());
    assert_eq!(trunks.port_rates().iter().map(|rate| rate.get()).collect::<Vec<_>>(), [10.0, 10.0, 1.0, 2.0]);
    assert_eq!(path(&mut trunks, 0, 2), []);
    assert_eq!(path(&mut trunks, 2, 3), path(&mut trunks, 0, 1));
    assert!(larger.with_hosts(&[(larger.find_node("leaf0").unwrap(), rate(1.0))]).is_err(), "`+1` exists");
}

#[test]
fn uplinks_of_a_leaf_carry_less_after_failures_and_changes_of_their_rate() {
    let plan = TopologyTemplate::LeafSpine {
        spines: 2,
        leaves: 2,
        hosts: 4,
        rate: rate(10.0),
        oversubscription: 4.0,
    };
    let topology = plan.build().unwrap();
    let node = |name: &str| topology.find_node(name).unwrap();
    let uplink = |spine: &str| topology.link_between(node("leaf0"), node(spine)).unwrap();
    let capacity_after = |changes: &[(LinkId, CableChange)]| {
        let mut trunks = Trunks::even_split_after(topology.clone(), changes);
        assert!(trunks.has_path(0, 1) && path(&mut trunks, 0, 1).is_empty(), "hosts of one leaf");
        let path = path(&mut trunks, 0, 4);
        let capacities = path.iter().map(|&trunk| trunks.capacities()[trunk as usize]);
        trunks.has_path(0, 4).then(|| capacities.fold(f64::INFINITY, f64::min))
    };
    assert_eq!(capacity_after(&[]), Some(10.0));
    assert_eq!(capacity_after(&[(uplink("spine0"), CableChange::Down)]), Some(5.0));
    // Each uplink gets a half of a flow, so the slower one limits it.
    assert_eq!(capacity_after(&[(uplink("spine1").reverse(), CableChange::Rate(rate(2.0)))]), Some(4.0));
    let both = ["spine0", "spine1"].map(|spine| (uplink(spine), CableChange::Down));
    assert_eq!(capacity_after(&both), None);
}

#[test]
fn uplinks_of_a_leaf_are_one_trunk_with_their_total_capacity() {
    let leaf_spine = TopologyTemplate::LeafSpine {
        spines: 2,
        leaves: 3,
        hosts: 4,
        rate: rate(10.0),
        oversubscription: 4.0,
    };
    let mut trunks = Trunks::even_split(leaf_spine.build().unwrap());
    // Each leaf has two uplinks of 5 bytes/s, and two links down.
    assert_eq!(trunks.capacities(), [10.0; 6]);
    assert_eq!(trunks.port_rates(), [rate(10.0); 12]);
    assert_eq!(path(&mut trunks, 0, 3), [] as [u32; 0]);
    let [up, down] = path(&mut trunks, 0, 4)[..] else { panic!("a path over two trunks") };
    assert_eq!(path(&mut trunks, 3, 11)[0], up.min(down), "all flows of a leaf share its uplinks");
    let mut names = [up, down].map(|trunk| trunks.link_name(trunk as usize));
    names.sort();
    assert_eq!(names, ["leaf0 -> spine0 and 1 more", "spine0 -> leaf1 and 1 more"]);
}

#[test]
fn fat_tree_has_four_trunks_between_pods() {
    let fat_tree = TopologyTemplate::FatTree { ports: 4, rate: rate(1.0), oversubscription: 1.0 };
    let mut trunks = Trunks::even_split(fat_tree.build().unwrap());
    let capacities = |path: Vec<u32>, trunks: &Trunks| -> Vec<f64> {
        path.into_iter().map(|trunk| trunks.capacities()[trunk as usize]).collect()
    };
    // Up to the two aggregation switches, to the four core switches, and down again.
    let mut between_pods = capacities(path(&mut trunks, 0, 4), &trunks);
    between_pods.sort_by(f64::total_cmp);
    assert_eq!(between_pods, [2.0, 2.0, 4.0, 4.0]);
    let inside_a_pod = path(&mut trunks, 0, 2);
    assert_eq!(capacities(inside_a_pod, &trunks), [2.0, 2.0]);
}

#[test]
fn flow_between_pods_has_even_shares_of_four_stages() {
    let fat_tree = TopologyTemplate::FatTree { ports: 4, rate: rate(1.0), oversubscription: 1.0 };
    let topology = fat_tree.build().unwrap();
    let mut trunks = Trunks::new(topology.clone(), 7).unwrap();
    let mut shares = Vec::new();
    assert!(trunks.compute_even_shares(0, 4, &mut shares));
    let by_stage: Vec<Vec<f64>> = shares
        .chunk_by(|a, b| a.stage == b.stage)
        .map(|stage| stage.iter().map(|share| share.share).collect())
        .collect();
    assert_eq!(by_stage, [vec![0.5; 2], vec![0.25; 4], vec![0.25; 4], vec![0.5; 2]]);
    // The path of the flow has one link of each stage.
    let path = path(&mut trunks, 0, 4);
    let stage_of = |trunk: &u32| shares.iter().find(|share| share.trunk == *trunk).unwrap().stage;
    assert!(path.iter().map(stage_of).is_sorted_by(|a, b| a + 1 == *b), "{path:?}: {shares:?}");
    // Below one switch, a flow crosses no trunk.
    assert!(trunks.compute_even_shares(0, 1, &mut shares) && shares.is_empty());
    assert!(!Trunks::even_split(topology).compute_even_shares(0, 4, &mut shares));
}

#[test]
fn slow_link_of_an_even_split_limits_its_group() {
    let mut builder = TopologyBuilder::new();
    for host in ["a", "b"] {
        builder.add_host(host).unwrap();
    }
    for switch in ["left", "right", "fast", "slow"] {
        builder.add_switch(switch, 1).unwrap();
    }
    for (from, to, bytes_per_second) in [
        ("a", "left", 10.0),
        ("b", "right", 10.0),
        ("left", "fast", 9.0),
        ("fast", "right", 9.0),
        ("left", "slow", 1.0),
        ("slow", "right", 9.0),
    ] {
        builder.add_cable(from, to, rate(bytes_per_second)).unwrap();
    }
    let mut trunks = Trunks::even_split(builder.build().unwrap()).scaled(0.5);
    // All four links carry half of the flow; the slow one fills at 2 bytes/s.
    let path = path(&mut trunks, 0, 1);
    assert_eq!(path.len(), 1);
    assert_eq!(trunks.capacities()[path[0] as usize], 1.0);
    assert_eq!(trunks.port_rates(), [rate(5.0); 2]);
}

/// Connected switches with random cables and rates, and one or two cables for each host.
pub fn any_topology() -> impl Strategy<Value = Topology> {
    let switches = 2..8usize;
    let seeds = prop::collection::vec((any::<u32>(), any::<u32>(), 1..10u32), 4..24);
    (switches, seeds).prop_map(|(switches, seeds)| {
        let mut builder = TopologyBuilder::new();
        let hosts = switches;
        (0..hosts).for_each(|host| builder.add_host(&format!("h{host}")).unwrap());
        for switch in 0..switches {
            builder.add_switch(&format!("s{switch}"), 1).unwrap();
            builder.add_cable(&format!("h{switch}"), &format!("s{switch}"), rate(10.0)).unwrap();
            if switch > 0 {
                let (from, to, cable) = seeds[switch % seeds.len()];
                let other = (from ^ to) as usize % switch;
                builder
                    .add_cable(&format!("s{switch}"), &format!("s{other}"), rate(f64::from(cable)))
                    .unwrap();
            }
        }
        for (from, to, cable) in seeds {
            let names = [format!("s{}", from as usize % switches), format!("s{}", to as usize % switches)];
            // Loops and second cables are refused.
            let _ = builder.add_cable(&names[0], &names[1], rate(f64::from(cable)));
            if from % 3 == 0 {
                let _ = builder.add_cable(&format!("h{}", to as usize % hosts), &names[0], rate(10.0));
            }
        }
        builder.build().unwrap()
    })
}

proptest! {
    #![proptest_config(config_with_cases(300))]

    /// Flows that fill trunks never exceed the capacity of a link between switches, also after failures. Flows have a path if links that
    /// are up lead to their receiver.
    #[test]
    fn links_carry_what_trunks_admit(
        topology in any_topology(),
        order in any::<u64>(),
        failed in prop_oneof![Just(0), any::<u64>()],
    ) {
        let mut routes = Routes::new(topology.clone(), 0);
        let mut changes = Vec::new();
        for (number, link) in (0u32..).zip(topology.links()).step_by(2) {
            if !topology.is_host_link(*link) && failed >> (number / 2 % 64) & 1 == 1 {
                changes.push((LinkId(number), CableChange::Down));
                [number, number + 1].into_iter().for_each(|link| _ = routes.fail_link(LinkId(link)));
            }
        }
        let mut trunks = Trunks::even_split_after(topology.clone(), &changes);
        let hosts = topology.hosts() as u32;
        let mut pairs: Vec<(u32, u32)> =
            (0..hosts).flat_map(|src| (0..hosts).map(move |dst| (src, dst))).filter(|(a, b)| a != b).collect();
        let pair_count = pairs.len();
        pairs.rotate_left(order as usize % pair_count);
        let mut residuals = trunks.capacities().to_vec();
        let mut loads = vec![0.0; topology.links().len()];
        let mut shares = Vec::new();
        for (src, dst) in pairs {
            let path = path(&mut trunks, src, dst);
            let has_path = routes.compute_ecmp_shares(NodeId(src), NodeId(dst), &mut shares);
            prop_assert_eq!(trunks.has_path(src, dst), has_path);
            if !has_path {
                prop_assert!(path.is_empty());
                continue;
            }
            let rate = path.iter().map(|&trunk| residuals[trunk as usize]).fold(10.0, f64::min);
            path.iter().for_each(|&trunk| residuals[trunk as usize] -= rate);
            shares.iter().for_each(|(link, share)| loads[link.index()] += share * rate);
        }
        for (&link, load) in topology.links().iter().zip(loads) {
            prop_assert!(topology.is_host_link(link) || load <= link.rate.get() + 1e-9, "{load} over {link:?}");
        }
    }
}
