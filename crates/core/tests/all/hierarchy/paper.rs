//! NetShare's examples, and networks on which its procedure fails.

use weir_core::solve::{Guarantee, ServiceShares};

use super::reference::{FlowClass, ServiceNetwork, paper_rates, paper_rates_with_lazy_heap};
use super::{INF, assert_close, build_hierarchy, class_flows, rates};

fn solve_example(weights: &[f64], capacities: &[f64], classes: Vec<FlowClass>) -> Vec<f64> {
    let net = ServiceNetwork::weighted(capacities, weights, classes);
    let (mut hierarchy, ids) = build_hierarchy(&net, ServiceShares::weighted(weights).unwrap());
    assert!(hierarchy.solve().bounds_met);
    let rates = rates(&hierarchy, &ids);
    // The paper's procedure has no demands here. It agrees on the paper's own examples.
    if net.flows.iter().all(|f| f.demand == INF && f.flows > 0) {
        assert_close(&paper_rates(&net), &rates);
    }
    rates
}

#[test]
fn hierarchy_rates_match_netshare_figure_1() {
    // Links: E1 to C1, C1 to E2, C1 to E3, E4 to C1.
    let classes = |a1| {
        vec![
            class_flows(0, &[0, 1], 1, a1),
            class_flows(1, &[0, 1], 1, INF),
            class_flows(1, &[0, 2], 1, INF),
            class_flows(2, &[3, 2], 1, INF),
        ]
    };
    assert_close(&solve_example(&[4.0, 1.0, 1.0], &[10.0; 4], classes(INF)), &[8.0, 1.0, 1.0, 9.0]);
    // A1's demand is 6.
    assert_close(&solve_example(&[4.0, 1.0, 1.0], &[10.0; 4], classes(6.0)), &[6.0, 2.0, 2.0, 8.0]);
}

#[test]
fn hierarchy_rates_match_netshare_figure_2() {
    // Links: E1 to C1, C1 to E2.
    let classes =
        vec![class_flows(0, &[1], 1, INF), class_flows(1, &[0, 1], 1, INF), class_flows(2, &[0], 1, INF)];
    assert_close(&solve_example(&[4.0, 1.0, 1.0], &[10.0; 2], classes), &[8.0, 2.0, 8.0]);
}

#[test]
fn hierarchy_rates_match_netshare_figure_3() {
    let classes = |h2: usize, h3: usize| {
        vec![
            class_flows(0, &[1], 1, INF),
            class_flows(1, &[0, 1], 1, INF),
            class_flows(h2, &[1], 1, INF),
            class_flows(h3, &[0], 1, INF),
        ]
    };
    assert_close(&solve_example(&[4.0, 1.0, 1.0], &[10.0; 2], classes(1, 2)), &[8.0, 1.0, 1.0, 9.0]);
    // Queues per connection are modelled as one service per connection.
    let per_connection = solve_example(&[4.0, 1.0, 1.0, 1.0], &[10.0; 2], classes(2, 3));
    assert_close(&per_connection, &[20.0 / 3.0, 5.0 / 3.0, 5.0 / 3.0, 25.0 / 3.0]);
}

#[test]
fn hierarchy_rates_match_netshare_figure_5() {
    let solve = |shares: ServiceShares, a3: f64| {
        let classes =
            vec![class_flows(0, &[0], 1, INF), class_flows(1, &[0], 1, INF), class_flows(2, &[0], 1, a3)];
        let (mut hierarchy, ids) =
            build_hierarchy(&ServiceNetwork::weighted(&[10.0], &[1.0; 3], classes), shares);
        hierarchy.solve();
        rates(&hierarchy, &ids)
    };
    let third = 10.0 / 3.0;
    let excess = |weights: &[f64; 3]| ServiceShares::with_excess(&[1.0; 3], weights).unwrap();
    assert_close(&solve(excess(&[2.0, 1.0, 1.0]), INF), &[third; 3]);
    assert_close(&solve(ServiceShares::weighted(&[1.0; 3]).unwrap(), 0.0), &[5.0, 5.0, 0.0]);
    assert_close(&solve(excess(&[2.0, 1.0, 1.0]), 0.0), &[50.0 / 9.0, 40.0 / 9.0, 0.0]);
    // "By setting the excess weight to zero we can prevent a service from getting any excess bandwidth."
    assert_close(&solve(excess(&[1.0, 0.0, 1.0]), 0.0), &[2.0 * third, third, 0.0]);
    // Guaranteed rates give the same result on this link.
    let guarantees = (0..3).map(|service| Guarantee { link: 0, service, rate: third }).collect();
    let by_rates = ServiceShares::with_guarantees(guarantees, &[2.0, 1.0, 1.0]).unwrap();
    assert_close(&solve(by_rates, 0.0), &[50.0 / 9.0, 40.0 / 9.0, 0.0]);
}

#[test]
fn netshare_section_5_3_phases_have_the_expected_rates() {
    // Links: E1 to C, C to E2, C to E3, E2 to C. Weights are 1:3:9; per-flow TCP queues give the rates below.
    let classes = |on: [u32; 3]| {
        vec![
            class_flows(0, &[0, 1], on[0], INF),
            class_flows(1, &[0, 2], on[1], INF),
            class_flows(2, &[3, 2], on[2], INF),
        ]
    };
    let phase = |on| solve_example(&[1.0, 3.0, 9.0], &[1000.0; 4], classes(on));
    assert_close(&phase([1, 1, 0])[..2], &[250.0, 750.0]);
    assert_close(&phase([0, 1, 1])[1..], &[250.0, 750.0]);
    assert_close(&phase([1, 1, 1]), &[750.0, 250.0, 750.0]);
}

/// One service sends over eight slow links into a fast one, and shares the fast link with another service of
/// equal weight.
fn funnel_network() -> ServiceNetwork {
    let mut classes: Vec<FlowClass> = (1..=8).map(|nic| class_flows(0, &[nic, 0], 1, INF)).collect();
    classes.push(class_flows(1, &[0], 1, INF));
    let mut capacities = vec![10.0; 9];
    capacities[0] = 90.0;
    ServiceNetwork::weighted(&capacities, &[1.0, 1.0], classes)
}

#[test]
fn service_weight_applies_to_its_total_rate_on_a_link() {
    let net = funnel_network();
    let (mut hierarchy, ids) = build_hierarchy(&net, ServiceShares::weighted(&[1.0, 1.0]).unwrap());
    hierarchy.solve();
    let mut expected = vec![45.0 / 8.0; 8];
    expected.push(45.0);
    assert_close(&rates(&hierarchy, &ids), &expected);
    // The procedure as printed gives the other service 10 instead of its 45. It fixes the slow links first,
    // one by one, and ignores the bandwidth that these flows take from the fast link. (Section 6 claims
    // half.)
    let printed = paper_rates(&net);
    assert_close(&printed[8..], &[10.0]);
    assert_close(&printed[..8], &[10.0; 8]);
}

#[test]
fn paper_procedure_with_stale_heap_entries_exceeds_link_capacity() {
    // On link 1, B / (sum of weights) falls from 8/2 to 5/2 once service 0's first flow is fixed at 3 by link
    // 0. Service 0 has another flow on link 1, so both weights still count. The heap entry still says 4.
    let net = ServiceNetwork::weighted(
        &[6.0, 8.0],
        &[1.0, 1.0],
        vec![
            class_flows(0, &[0, 1], 1, INF),
            class_flows(0, &[1], 1, INF),
            class_flows(1, &[0], 1, INF),
            class_flows(1, &[1], 1, INF),
        ],
    );
    let lazy = paper_rates_with_lazy_heap(&net);
    assert_close(&lazy, &[3.0, 4.0, 3.0, 4.0]);
    assert_close(&[net.link_load(1, &lazy) / 8.0], &[11.0 / 8.0]);
    let (mut hierarchy, ids) = build_hierarchy(&net, ServiceShares::weighted(&[1.0, 1.0]).unwrap());
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &ids), &[2.0, 2.0, 4.0, 4.0]);
}
