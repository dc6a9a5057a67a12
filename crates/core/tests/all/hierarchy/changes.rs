//! Rates after incremental changes equal those of a full solution.

use proptest::prelude::*;
use weir_core::solve::{Guarantee, HierarchicalMaxMin, HierarchyError, ServiceShares};

use super::networks::{random_networks, shares_of_network};
use super::reference::{ServiceNetwork, check_feasible};
use super::{INF, assert_close, build_hierarchy, class_flows, is_close, rates};
use crate::common::config_with_cases;

/// Relative tolerance between incremental and full solutions: capacity next to a limit is only known to
/// 1e-12.
const TOLERANCE: f64 = 1e-11;

#[test]
fn hierarchy_rates_follow_single_flow_additions_and_removals() {
    let shares = || ServiceShares::weighted(&[4.0, 1.0]).unwrap();
    let mut hierarchy = HierarchicalMaxMin::new(&[10.0, 10.0], shares()).unwrap();
    let first = hierarchy.add_flow(0, &[0, 1], INF).unwrap();
    let other = hierarchy.add_flow(1, &[0], INF).unwrap();
    assert_eq!(hierarchy.add_flow(0, &[0, 1], INF).unwrap(), first);
    // A flow with another demand, path or service is a separate class.
    let less = hierarchy.add_flow(0, &[0, 1], 1.0).unwrap();
    assert!(less != first && hierarchy.add_flow(0, &[1, 0], INF).unwrap() != first);
    assert_eq!((hierarchy.flow_count(first), hierarchy.class_count()), (2, 4));
    hierarchy.solve();
    // Service 0 has 8: 1 for the flow with demand 1, and three flows share 7.
    assert_close(&rates(&hierarchy, &[first, less, other]), &[7.0 / 3.0, 1.0, 2.0]);
    hierarchy.remove_flow(first);
    hierarchy.remove_flow(less);
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &[first, other]), &[4.0, 2.0]);
    // A class whose demand changed does not accept new flows with the old demand.
    hierarchy.set_demand(first, 3.0).unwrap();
    assert!(hierarchy.add_flow(0, &[0, 1], INF).unwrap() != first);
    hierarchy.remove_flow(less);
    assert_eq!(hierarchy.flow_count(less), 0);
    assert!(hierarchy.add_flow(2, &[0], INF).is_err() && hierarchy.add_flow(0, &[0], f64::NAN).is_err());
}

#[test]
fn hierarchy_rates_follow_capacity_and_guarantee_changes() {
    let shares = ServiceShares::with_excess(&[1.0, 1.0, 1.0], &[2.0, 1.0, 1.0]).unwrap();
    let classes = (0..3).map(|service| class_flows(service, &[0], u32::from(service < 2), INF)).collect();
    let (mut hierarchy, ids) =
        build_hierarchy(&ServiceNetwork::weighted(&[10.0], &[1.0; 3], classes), shares);
    hierarchy.solve();
    hierarchy.set_capacity(0, 90.0).unwrap();
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &ids[..2]), &[50.0, 40.0]);
    let text = |e: HierarchyError| e.to_string();
    assert_eq!(
        text(hierarchy.set_capacity(1, 1.0).unwrap_err()),
        "link 1 does not exist; expected a number below 1"
    );
    assert!(hierarchy.set_capacity(0, f64::NAN).is_err());
    let guaranteed = vec![Guarantee { link: 0, service: 0, rate: 6.0 }];
    let shares = ServiceShares::with_guarantees(guaranteed, &[1.0]).unwrap();
    let mut hierarchy = HierarchicalMaxMin::new(&[10.0], shares).unwrap();
    assert!(hierarchy.set_capacity(0, 5.0).is_ok() && hierarchy.set_capacity(0, -5.0).is_err());
    // Rates on link 1 alone: the guarantee is 3 of 10 and then of 30, and the rest splits 2:1. Elsewhere the
    // split is in thirds, and unused bandwidth splits 2:1.
    let guaranteed = vec![Guarantee { link: 1, service: 1, rate: 3.0 }];
    let shares = ServiceShares::with_excess(&[1.0; 3], &[2.0, 1.0, 1.0])
        .unwrap()
        .with_link_guarantees(guaranteed)
        .unwrap();
    let classes = (0..4).map(|at| class_flows(at % 2, &[at as u32 / 2], 1, INF)).collect();
    let (mut hierarchy, ids) =
        build_hierarchy(&ServiceNetwork::weighted(&[10.0; 2], &[1.0; 3], classes), shares);
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &ids), &[50.0 / 9.0, 40.0 / 9.0, 14.0 / 3.0, 16.0 / 3.0]);
    (0..2).for_each(|link| hierarchy.set_capacity(link, 30.0).unwrap());
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &ids), &[50.0 / 3.0, 40.0 / 3.0, 18.0, 12.0]);
}

#[test]
fn guarantees_above_link_capacity_scale_by_one_factor() {
    let guarantee = |service, rate| Guarantee { link: 0, service, rate };
    let shares =
        ServiceShares::with_guarantees(vec![guarantee(0, 6.0), guarantee(1, 2.0)], &[0.0, 1.0, 1.0]).unwrap();
    let classes = (0..3).map(|service| class_flows(service, &[0], 1, INF)).collect();
    let (mut hierarchy, ids) =
        build_hierarchy(&ServiceNetwork::weighted(&[10.0], &[1.0; 3], classes), shares);
    let mut at = |capacity| {
        hierarchy.set_capacity(0, capacity).unwrap();
        hierarchy.solve();
        rates(&hierarchy, &ids)
    };
    assert_close(&at(10.0), &[6.0, 3.0, 1.0]);
    // 6 and 2 of 8: scaled to half of each, then a quarter. No unreserved bandwidth remains.
    assert_close(&at(4.0), &[3.0, 1.0, 0.0]);
    assert_close(&at(2.0), &[1.5, 0.5, 0.0]);
    assert_close(&at(0.0), &[0.0, 0.0, 0.0]);
    assert_close(&at(8.0), &[6.0, 2.0, 0.0]);
    assert_close(&at(10.0), &[6.0, 3.0, 1.0]);
}

#[derive(Debug, Clone)]
enum Change {
    /// Sets a class's number of flows and demand.
    Class(usize, u32, f64),
    /// Scales a link's capacity by this factor.
    Link(usize, f64),
}

fn any_change() -> impl Strategy<Value = Change> {
    let demand = prop_oneof![Just(INF), 0.01f64..5.0];
    prop_oneof![
        3 => (0usize..20, 0u32..6, demand).prop_map(|(class, flows, demand)| Change::Class(class, flows, demand)),
        1 => (0usize..6, 0.0f64..3.0).prop_map(|(link, factor)| Change::Link(link, factor)),
    ]
}

proptest! {
    #![proptest_config(config_with_cases(3000))]

    #[test]
    fn incremental_updates_equal_a_full_solution(
        net in random_networks(3),
        changes in prop::collection::vec(any_change(), 1..12),
    ) {
        let mut net = net;
        let guarantees = net.guarantees.clone();
        let mut late_class = net.flows.pop();
        let (mut hierarchy, mut ids) = build_hierarchy(&net, shares_of_network(&net));
        hierarchy.solve();
        for (at, change) in changes.into_iter().enumerate() {
            if let Some(f) = late_class.take_if(|_| at == 3) {
                ids.push(hierarchy.add_class(f.service, &f.links, f.flows, f.demand).unwrap());
                net.flows.push(f);
            }
            match change {
                Change::Class(class, flows, demand) if !net.flows.is_empty() => {
                    let class = class % net.flows.len();
                    (net.flows[class].flows, net.flows[class].demand) = (flows, demand);
                    hierarchy.set_flows(ids[class], flows);
                    hierarchy.set_demand(ids[class], demand).unwrap();
                }
                Change::Class(..) => {}
                Change::Link(link, factor) => {
                    let link = link % net.capacities.len();
                    net.capacities[link] *= factor;
                    let guaranteed: f64 = guarantees[link].iter().sum();
                    let part = if guaranteed > net.capacities[link] { net.capacities[link] / guaranteed } else { 1.0 };
                    net.guarantees[link] = guarantees[link].iter().map(|rate| rate * part).collect();
                    hierarchy.set_capacity(link as u32, net.capacities[link]).unwrap();
                }
            }
            let solved = hierarchy.solve();
            let now = rates(&hierarchy, &ids);
            let (mut fresh, fresh_ids) = build_hierarchy(&net, shares_of_network(&net));
            let from_start = fresh.solve();
            if let Err(broken) = check_feasible(&net, &now) {
                prop_assert!(false, "{}", broken);
            }
            prop_assert!(from_start.bounds_met || !solved.bounds_met);
            for (class, (a, b)) in now.iter().zip(rates(&fresh, &fresh_ids)).enumerate() {
                let same = *a == b || (a - b).abs() <= TOLERANCE * a.max(b);
                prop_assert!(net.flows[class].flows == 0 || same, "class {}: {} and {}", class, a, b);
            }
        }
    }
}

#[test]
fn incremental_updates_equal_a_full_solution_on_a_symmetric_fabric() {
    // Three services between all pairs of 6 edges over one core. All limits tie until a flow arrives or ends.
    let edges = 6u32;
    let mut classes = Vec::new();
    for key in 0..3 * edges * edges {
        let (from, to) = (key % edges, key / edges % edges);
        if from != to {
            classes.push(class_flows((key / edges / edges) as usize, &[from, edges + to], 1, INF));
        }
    }
    let weights = [1.0, 2.0, 4.0];
    let mut net = ServiceNetwork::weighted(&vec![10.0; 2 * edges as usize], &weights, classes);
    let (mut hierarchy, ids) = build_hierarchy(&net, ServiceShares::weighted(&weights).unwrap());
    hierarchy.solve();
    for step in 0..60 {
        let class = step * 37 % ids.len();
        net.flows[class].flows = if step % 2 == 0 { 2 } else { 0 };
        hierarchy.set_flows(ids[class], net.flows[class].flows);
        hierarchy.solve();
        let (mut fresh, fresh_ids) = build_hierarchy(&net, ServiceShares::weighted(&weights).unwrap());
        fresh.solve();
        for (class, f) in net.flows.iter().enumerate().filter(|(_, f)| f.flows > 0) {
            let (updated, from_scratch) = (hierarchy.rate(ids[class]), fresh.rate(fresh_ids[class]));
            assert!(
                is_close(updated, from_scratch),
                "step {step}, class {class}: {updated}, but {from_scratch} from scratch; {} flows",
                f.flows
            );
        }
    }
}

#[test]
fn class_ids_are_reused_after_their_flows_end() {
    // A star of 8 ports with two services and up to 6 concurrent flows. Paths and demands rarely repeat.
    let ports = 8u32;
    let net = |flows| ServiceNetwork::weighted(&[10.0; 16], &[1.0, 3.0], flows);
    let shares = || ServiceShares::weighted(&[1.0, 3.0]).unwrap();
    let mut hierarchy = HierarchicalMaxMin::new(&[10.0; 16], shares()).unwrap();
    let mut live = std::collections::VecDeque::new();
    for step in 0..500u32 {
        let (from, to) = (step * 5 % ports, ports + (step * 3 + step / 7) % ports);
        let third = ports + (to + 1) % ports;
        let links = [from, to, third];
        let links = &links[..if to == third { 2 } else { 1 + (step % 3) as usize }];
        let demand = if step % 4 == 0 { INF } else { 0.5 + f64::from(step) / 100.0 };
        let f = class_flows((step % 2) as usize, links, 1, demand);
        let id = hierarchy.add_flow(f.service, &f.links, f.demand).unwrap();
        live.push_back((f, id));
        if live.len() > 6 {
            let (_, id) = live.pop_front().unwrap();
            hierarchy.remove_flow(id);
        }
        hierarchy.solve();
        let (mut fresh, ids) = build_hierarchy(&net(live.iter().map(|(f, _)| f.clone()).collect()), shares());
        fresh.solve();
        let (updated, from_scratch): (Vec<f64>, _) =
            (live.iter().map(|&(_, id)| hierarchy.rate(id)).collect(), rates(&fresh, &ids));
        // Flows of one class have the same rate as flows of two identical classes.
        for (updated, from_scratch) in updated.into_iter().zip(from_scratch) {
            assert!(
                is_close(updated, from_scratch),
                "step {step}: {updated}, but {from_scratch} from scratch"
            );
        }
        // At most seven concurrent classes for each path length.
        assert!(hierarchy.class_count() <= 21, "step {step}: {} classes", hierarchy.class_count());
    }
    assert!(hierarchy.class_count() > 6);
}

#[test]
fn empty_class_is_kept_until_the_next_solution() {
    let mut hierarchy =
        HierarchicalMaxMin::new(&[10.0; 3], ServiceShares::weighted(&[1.0]).unwrap()).unwrap();
    let added = hierarchy.add_class(0, &[0], 1, INF).unwrap();
    let changed = hierarchy.add_flow(0, &[1], INF).unwrap();
    let back = hierarchy.add_flow(0, &[2], INF).unwrap();
    hierarchy.set_demand(changed, 2.0).unwrap();
    for class in [added, changed, back] {
        hierarchy.remove_flow(class);
    }
    // Only a class that is empty at a solution is removed.
    assert_eq!(hierarchy.add_flow(0, &[2], INF).unwrap(), back);
    hierarchy.solve();
    let new = hierarchy.add_flow(0, &[0], 1.0).unwrap();
    assert!(![added, changed, back].contains(&new));
    // The owner of an ended flow's class may set its flow count again.
    hierarchy.set_flows(added, 1);
    hierarchy.remove_flow(new);
    hierarchy.solve();
    let third = hierarchy.add_flow(0, &[1], INF).unwrap();
    assert_eq!(third, new);
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &[added, third, back]), &[10.0; 3]);
    assert_eq!(hierarchy.class_count(), 4);
}
