//! The definition, as the reference implementation computes it, and its limits.

use proptest::prelude::*;
use weir_core::solve::ServiceShares;

use super::networks::{random_networks, shares_of_network};
use super::reference::{DefinedRates, ServiceNetwork, check_bottlenecks, check_feasible, reference_rates};
use super::{INF, assert_close, build_hierarchy, class_flows, is_close, rates};
use crate::common::config_with_cases;

/// Checks all properties that hold on any network.
fn check_definition(net: &ServiceNetwork) -> Result<(), String> {
    let (mut hierarchy, ids) = build_hierarchy(net, shares_of_network(net));
    let solved = hierarchy.solve();
    let rates = rates(&hierarchy, &ids);
    check_feasible(net, &rates)?;
    let DefinedRates { lower_bounds: low, rates: expected, bounds_met: met } = reference_rates(net);
    if met != solved.bounds_met {
        return Err(format!("bounds met: {}, but {met} by the reference", solved.bounds_met));
    }
    if met {
        check_bottlenecks(net, &rates)?;
    }
    for (class, f) in net.flows.iter().enumerate().filter(|(_, f)| f.flows > 0) {
        let (rate, low, expected) = (rates[class], low[class], expected[class]);
        if rate < low * (1.0 - 1e-9) {
            return Err(format!("class {class}: {rate} is below its lower bound {low}"));
        }
        // A service's rate on a link is at least its weighted share, or its whole demand.
        let of = |l: u32| guaranteed_share(net, l as usize, f.service);
        let least = f.links.iter().map(|&l| of(l)).fold(f.demand, f64::min);
        if rate < least * (1.0 - 1e-9) {
            return Err(format!("class {class}: {rate} is below its weighted share {least}"));
        }
        if !is_close(rate, expected) {
            return Err(format!("class {class}: {rate} instead of {expected}; bounds met: {met}"));
        }
    }
    Ok(())
}

/// Share of a flow on a link if all flows there have unlimited demand.
fn guaranteed_share(net: &ServiceNetwork, link: usize, service: usize) -> f64 {
    let flows = |s: usize| -> u32 {
        let here = net.flows.iter().filter(|f| f.service == s && f.links.contains(&(link as u32)));
        here.map(|f| f.flows).sum()
    };
    let present = || (0..net.excess.len()).filter(|&s| flows(s) > 0);
    let guaranteed: f64 = present().map(|s| net.guarantees[link][s]).sum();
    let excess: f64 = present().map(|s| net.excess[s]).sum();
    let share = if excess > 0.0 { net.excess[service] / excess } else { 0.0 };
    let part = net.guarantees[link][service] + (net.capacities[link] - guaranteed).max(0.0) * share;
    part / f64::from(flows(service))
}

proptest! {
    #![proptest_config(config_with_cases(3000))]

    #[test]
    fn hierarchy_rates_match_the_reference_implementation(net in random_networks(4)) {
        if let Err(broken) = check_definition(&net) {
            prop_assert!(false, "{}", broken);
        }
    }

    #[test]
    fn two_link_hierarchy_rates_match_the_reference_implementation(net in random_networks(2)) {
        if let Err(broken) = check_definition(&net) {
            prop_assert!(false, "{}", broken);
        }
    }

    #[test]
    fn hierarchy_rates_are_independent_of_order_and_unit(net in random_networks(3), scale in 0.01f64..1e9, turn in 0usize..20) {
        let solved = |net: &ServiceNetwork| {
            let (mut hierarchy, ids) = build_hierarchy(net, shares_of_network(net));
            hierarchy.solve();
            rates(&hierarchy, &ids)
        };
        let (links, services) = (net.capacities.len(), net.excess.len());
        let mut other = net.clone();
        other.capacities.reverse();
        other.capacities.iter_mut().for_each(|c| *c *= scale);
        other.excess.reverse();
        other.guarantees.reverse();
        for row in &mut other.guarantees {
            row.reverse();
            row.iter_mut().for_each(|g| *g *= scale);
        }
        for f in &mut other.flows {
            f.service = services - 1 - f.service;
            f.links.iter_mut().for_each(|l| *l = links as u32 - 1 - *l);
            f.demand *= scale;
        }
        let turn = turn % net.flows.len().max(1);
        other.flows.rotate_left(turn);
        let mut back = solved(&other);
        back.rotate_right(turn);
        for (class, (a, b)) in solved(&net).into_iter().zip(back).enumerate() {
            let same = net.flows[class].flows == 0 || is_close(a, b / scale);
            prop_assert!(same, "class {}: {} and {}", class, a, b / scale);
        }
    }
}

/// Link 0 has 8 services with one flow each, which continue over links 1 to 8. Service 8 has one flow over
/// all nine links and another on link 0 only. Each of the eight services has another flow on its own link.
fn nine_link_network() -> ServiceNetwork {
    let mut classes =
        vec![class_flows(8, &[0, 1, 2, 3, 4, 5, 6, 7, 8], 1, INF), class_flows(8, &[0], 1, INF)];
    for service in 0..8 {
        classes.push(class_flows(service, &[0, service as u32 + 1], 1, INF));
        classes.push(class_flows(service, &[service as u32 + 1], 1, INF));
    }
    let mut capacities = vec![0.3; 9];
    capacities[0] = 1.0;
    ServiceNetwork::weighted(&capacities, &[1.0; 9], classes)
}

#[test]
fn several_rate_vectors_satisfy_the_bottleneck_condition() {
    let net = nine_link_network();
    let rates_with = |long: f64, other: f64, eighth: f64, last: f64| {
        let mut rates = vec![long, other];
        rates.extend((0..8).flat_map(|_| [eighth, last]));
        rates
    };
    for rates in [
        rates_with(0.1, 0.1, 0.1, 0.1),
        rates_with(0.15, 0.25, 0.075, 0.075),
        rates_with(1.0 / 18.0, 1.0 / 18.0, 1.0 / 9.0, 0.3 - 1.0 / 6.0),
    ] {
        check_bottlenecks(&net, &rates).unwrap();
    }
    let (mut hierarchy, ids) = build_hierarchy(&net, ServiceShares::weighted(&[1.0; 9]).unwrap());
    let solved = hierarchy.solve();
    assert!(!solved.bounds_met && solved.from_scratch);
    let rates = rates(&hierarchy, &ids);
    check_feasible(&net, &rates).unwrap();
    // The eight services are symmetric and have equal rates.
    for service in 1..8 {
        assert_close(&rates[2 + 2 * service..4 + 2 * service], &rates[2..4]);
    }
}

#[test]
fn bounds_do_not_meet_in_a_cyclic_dependency() {
    // Service 0 has 7 flows of rate a on links 1 and 2, and one flow of rate b on links 0 and 2. Service 1
    // has a flow of rate c on links 0 and 1. An increase of b lowers c, which raises a, which lowers b: the
    // bounds oscillate and never meet.
    let net = ServiceNetwork::weighted(
        &[5.0, 5.7, 1.0],
        &[8.0, 100.0],
        vec![
            class_flows(0, &[1, 2], 7, INF),
            class_flows(0, &[0, 2], 1, INF),
            class_flows(1, &[0, 1], 1, INF),
        ],
    );
    let (mut hierarchy, ids) = build_hierarchy(&net, ServiceShares::weighted(&[8.0, 100.0]).unwrap());
    assert!(!hierarchy.solve().bounds_met);
    check_feasible(&net, &rates(&hierarchy, &ids)).unwrap();
    // Rates with bottlenecks exist: 7a + b = 1, b + c = 5, c + 7a = 5.7.
    check_bottlenecks(&net, &[0.85 / 7.0, 0.15, 4.85]).unwrap();
}

#[test]
fn dense_fabric_is_fully_used_and_respects_lower_bounds() {
    // Four services between all pairs of 12 edges over 2 cores: cyclic dependencies everywhere, and bounds
    // that do not meet.
    let (cores, edges) = (2u32, 12u32);
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut classes = Vec::new();
    for key in 0..4 * cores * edges * edges {
        let (from, to, core) = (key % edges, key / edges % edges, key / edges / edges % cores);
        if from != to {
            let links = [from * cores + core, edges * cores + core * edges + to];
            classes.push(class_flows((key / (cores * edges * edges)) as usize, &links, 1 + next() % 40, INF));
        }
    }
    let weights = [1.0, 2.0, 4.0, 8.0];
    let net = ServiceNetwork::weighted(&vec![10.0; 2 * (cores * edges) as usize], &weights, classes);
    let (mut hierarchy, ids) = build_hierarchy(&net, ServiceShares::weighted(&weights).unwrap());
    assert!(!hierarchy.solve().bounds_met);
    let rates = rates(&hierarchy, &ids);
    check_feasible(&net, &rates).unwrap();
    for (f, rate) in net.flows.iter().zip(&rates) {
        let least =
            f.links.iter().map(|&l| guaranteed_share(&net, l as usize, f.service)).fold(INF, f64::min);
        assert!(*rate >= least * (1.0 - 1e-9), "{rate} is below the weighted share {least}");
    }
    let used: f64 = (0..net.capacities.len()).map(|link| net.link_load(link, &rates)).sum();
    assert!(used > 0.99 * net.capacities.iter().sum::<f64>(), "{used}");
}
