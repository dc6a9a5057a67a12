//! Weighted hierarchical max-min against NetShare's examples, its definition, and a plain implementation of it.

mod common;
mod hierarchy_reference;

use common::cases;
use hierarchy_reference::{
    Defined, Flows, Net, check_bottlenecks, check_feasible, lazy_heap, paper, reference,
};
use proptest::prelude::*;
use weir_core::solve::{ClassId, Guarantee, Hierarchy, HierarchyError, Shares};

const INF: f64 = f64::INFINITY;

fn flows(service: usize, links: &[u32], flows: u32, demand: f64) -> Flows {
    Flows { service, links: links.to_vec(), flows, demand }
}

fn build(net: &Net, shares: Shares) -> (Hierarchy, Vec<ClassId>) {
    let mut hierarchy = Hierarchy::new(&net.capacities, shares).unwrap();
    let add = |f: &Flows| hierarchy.add(f.service, &f.links, f.flows, f.demand).unwrap();
    let ids = net.flows.iter().map(add).collect();
    (hierarchy, ids)
}

fn rates(hierarchy: &Hierarchy, ids: &[ClassId]) -> Vec<f64> {
    ids.iter().map(|&id| hierarchy.rate(id)).collect()
}

fn assert_close(rates: &[f64], expected: &[f64]) {
    assert_eq!(rates.len(), expected.len());
    for (rate, expected) in rates.iter().zip(expected) {
        assert!((rate - expected).abs() <= 1e-9 * expected.max(1.0), "{rates:?}: {expected} expected");
    }
}

fn example(weights: &[f64], capacities: &[f64], classes: Vec<Flows>) -> Vec<f64> {
    let net = Net::weighted(capacities, weights, classes);
    let (mut hierarchy, ids) = build(&net, Shares::weighted(weights).unwrap());
    assert!(hierarchy.solve().settled);
    let rates = rates(&hierarchy, &ids);
    // The paper's procedure knows no demands here. On its own examples it agrees.
    if net.flows.iter().all(|f| f.demand == INF && f.flows > 0) {
        assert_close(&paper(&net), &rates);
    }
    rates
}

#[test]
fn figure_1() {
    // Links: E1 to C1, C1 to E2, C1 to E3, E4 to C1.
    let classes = |a1| {
        vec![
            flows(0, &[0, 1], 1, a1),
            flows(1, &[0, 1], 1, INF),
            flows(1, &[0, 2], 1, INF),
            flows(2, &[3, 2], 1, INF),
        ]
    };
    assert_close(&example(&[4.0, 1.0, 1.0], &[10.0; 4], classes(INF)), &[8.0, 1.0, 1.0, 9.0]);
    // A1 wants 6 only.
    assert_close(&example(&[4.0, 1.0, 1.0], &[10.0; 4], classes(6.0)), &[6.0, 2.0, 2.0, 8.0]);
}

#[test]
fn figure_2() {
    // Links: E1 to C1, C1 to E2.
    let classes = vec![flows(0, &[1], 1, INF), flows(1, &[0, 1], 1, INF), flows(2, &[0], 1, INF)];
    assert_close(&example(&[4.0, 1.0, 1.0], &[10.0; 2], classes), &[8.0, 2.0, 8.0]);
}

#[test]
fn figure_3() {
    let classes = |h2: usize, h3: usize| {
        vec![
            flows(0, &[1], 1, INF),
            flows(1, &[0, 1], 1, INF),
            flows(h2, &[1], 1, INF),
            flows(h3, &[0], 1, INF),
        ]
    };
    assert_close(&example(&[4.0, 1.0, 1.0], &[10.0; 2], classes(1, 2)), &[8.0, 1.0, 1.0, 9.0]);
    // A queue for each connection is a service for each.
    let per_connection = example(&[4.0, 1.0, 1.0, 1.0], &[10.0; 2], classes(2, 3));
    assert_close(&per_connection, &[20.0 / 3.0, 5.0 / 3.0, 5.0 / 3.0, 25.0 / 3.0]);
}

#[test]
fn figure_5() {
    let solve = |shares: Shares, a3: f64| {
        let classes = vec![flows(0, &[0], 1, INF), flows(1, &[0], 1, INF), flows(2, &[0], 1, a3)];
        let (mut hierarchy, ids) = build(&Net::weighted(&[10.0], &[1.0; 3], classes), shares);
        hierarchy.solve();
        rates(&hierarchy, &ids)
    };
    let third = 10.0 / 3.0;
    let excess = |weights: &[f64; 3]| Shares::with_excess(&[1.0; 3], weights).unwrap();
    assert_close(&solve(excess(&[2.0, 1.0, 1.0]), INF), &[third; 3]);
    assert_close(&solve(Shares::weighted(&[1.0; 3]).unwrap(), 0.0), &[5.0, 5.0, 0.0]);
    assert_close(&solve(excess(&[2.0, 1.0, 1.0]), 0.0), &[50.0 / 9.0, 40.0 / 9.0, 0.0]);
    // "By setting the excess weight to zero we can prevent a service from getting any excess bandwidth."
    assert_close(&solve(excess(&[1.0, 0.0, 1.0]), 0.0), &[2.0 * third, third, 0.0]);
    // The same by rates on this link.
    let guarantees = (0..3).map(|service| Guarantee { link: 0, service, rate: third }).collect();
    let by_rates = Shares::with_guarantees(guarantees, &[2.0, 1.0, 1.0]).unwrap();
    assert_close(&solve(by_rates, 0.0), &[50.0 / 9.0, 40.0 / 9.0, 0.0]);
}

#[test]
fn the_phases_of_section_5_3() {
    // Links: E1 to C, C to E2, C to E3, E2 to C; weights 1:3:9; as the queues of TCP flows would have it.
    let classes = |on: [u32; 3]| {
        vec![flows(0, &[0, 1], on[0], INF), flows(1, &[0, 2], on[1], INF), flows(2, &[3, 2], on[2], INF)]
    };
    let phase = |on| example(&[1.0, 3.0, 9.0], &[1000.0; 4], classes(on));
    assert_close(&phase([1, 1, 0])[..2], &[250.0, 750.0]);
    assert_close(&phase([0, 1, 1])[1..], &[250.0, 750.0]);
    assert_close(&phase([1, 1, 1]), &[750.0, 250.0, 750.0]);
}

/// One service sends over eight slow links into a fast one, which it shares with another one that has the same weight.
fn funnel() -> Net {
    let mut classes: Vec<Flows> = (1..=8).map(|nic| flows(0, &[nic, 0], 1, INF)).collect();
    classes.push(flows(1, &[0], 1, INF));
    let mut capacities = vec![10.0; 9];
    capacities[0] = 90.0;
    Net::weighted(&capacities, &[1.0, 1.0], classes)
}

#[test]
fn a_service_counts_with_its_total_on_a_link() {
    let net = funnel();
    let (mut hierarchy, ids) = build(&net, Shares::weighted(&[1.0, 1.0]).unwrap());
    hierarchy.solve();
    let mut expected = vec![45.0 / 8.0; 8];
    expected.push(45.0);
    assert_close(&rates(&hierarchy, &ids), &expected);
    // As the paper prints it, the other service gets 10 instead of its 45: the slow links come first, one by one,
    // and what they take from the fast link does not count. (Section 6 promises half.)
    let printed = paper(&net);
    assert_close(&printed[8..], &[10.0]);
    assert_close(&printed[..8], &[10.0; 8]);
}

#[test]
fn the_paper_with_old_heap_entries_hands_out_too_much() {
    // On link 1, B / (sum of weights) falls from 8/2 to 5/2 once service 0's first flow is fixed at link 0 with 3: service 0
    // has another flow there, so both weights still count. The heap's entry still says 4.
    let net = Net::weighted(
        &[6.0, 8.0],
        &[1.0, 1.0],
        vec![
            flows(0, &[0, 1], 1, INF),
            flows(0, &[1], 1, INF),
            flows(1, &[0], 1, INF),
            flows(1, &[1], 1, INF),
        ],
    );
    let lazy = lazy_heap(&net);
    assert_close(&lazy, &[3.0, 4.0, 3.0, 4.0]);
    assert_close(&[net.used(1, &lazy) / 8.0], &[11.0 / 8.0]);
    let (mut hierarchy, ids) = build(&net, Shares::weighted(&[1.0, 1.0]).unwrap());
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &ids), &[2.0, 2.0, 4.0, 4.0]);
}

/// Link 0 has 8 services with one flow each, which go on over links 1 to 8; service 8 has a flow over all nine links and one
/// more on link 0; each of the eight has one more on its own link.
fn nine_links() -> Net {
    let mut classes = vec![flows(8, &[0, 1, 2, 3, 4, 5, 6, 7, 8], 1, INF), flows(8, &[0], 1, INF)];
    for service in 0..8 {
        classes.push(flows(service, &[0, service as u32 + 1], 1, INF));
        classes.push(flows(service, &[service as u32 + 1], 1, INF));
    }
    let mut capacities = vec![0.3; 9];
    capacities[0] = 1.0;
    Net::weighted(&capacities, &[1.0; 9], classes)
}

#[test]
fn bottlenecks_alone_do_not_determine_the_rates() {
    let net = nine_links();
    let rates_with = |long: f64, beside: f64, eighth: f64, last: f64| {
        let mut rates = vec![long, beside];
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
    let (mut hierarchy, ids) = build(&net, Shares::weighted(&[1.0; 9]).unwrap());
    let solved = hierarchy.solve();
    assert!(!solved.settled && solved.full);
    let rates = rates(&hierarchy, &ids);
    check_feasible(&net, &rates).unwrap();
    // The eight are alike, and get the same.
    for service in 1..8 {
        assert_close(&rates[2 + 2 * service..4 + 2 * service], &rates[2..4]);
    }
}

#[test]
fn flows_come_and_go_one_by_one() {
    let shares = || Shares::weighted(&[4.0, 1.0]).unwrap();
    let mut hierarchy = Hierarchy::new(&[10.0, 10.0], shares()).unwrap();
    let first = hierarchy.add_flow(0, &[0, 1], INF).unwrap();
    let other = hierarchy.add_flow(1, &[0], INF).unwrap();
    assert_eq!(hierarchy.add_flow(0, &[0, 1], INF).unwrap(), first);
    // Whoever wants less, goes another way or belongs to another service is another class.
    let less = hierarchy.add_flow(0, &[0, 1], 1.0).unwrap();
    assert!(less != first && hierarchy.add_flow(0, &[1, 0], INF).unwrap() != first);
    assert_eq!((hierarchy.flows(first), hierarchy.classes()), (2, 4));
    hierarchy.solve();
    // Service 0 has 8: 1 for the flow that wants no more, and three flows share 7.
    assert_close(&rates(&hierarchy, &[first, less, other]), &[7.0 / 3.0, 1.0, 2.0]);
    hierarchy.remove_flow(first);
    hierarchy.remove_flow(less);
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &[first, other]), &[4.0, 2.0]);
    // A class that is told to want something else is not that of new flows.
    hierarchy.set_demand(first, 3.0).unwrap();
    assert!(hierarchy.add_flow(0, &[0, 1], INF).unwrap() != first);
    hierarchy.remove_flow(less);
    assert_eq!(hierarchy.flows(less), 0);
    assert!(hierarchy.add_flow(2, &[0], INF).is_err() && hierarchy.add_flow(0, &[0], f64::NAN).is_err());
}

#[test]
fn capacities_change_and_guarantees_with_them() {
    let shares = Shares::with_excess(&[1.0, 1.0, 1.0], &[2.0, 1.0, 1.0]).unwrap();
    let classes = (0..3).map(|service| flows(service, &[0], u32::from(service < 2), INF)).collect();
    let (mut hierarchy, ids) = build(&Net::weighted(&[10.0], &[1.0; 3], classes), shares);
    hierarchy.solve();
    hierarchy.set_capacity(0, 90.0).unwrap();
    hierarchy.solve();
    assert_close(&rates(&hierarchy, &ids[..2]), &[50.0, 40.0]);
    let text = |e: HierarchyError| e.to_string();
    assert_eq!(text(hierarchy.set_capacity(1, 1.0).unwrap_err()), "link 1: expected a number below 1");
    assert!(hierarchy.set_capacity(0, f64::NAN).is_err());
    let guaranteed = vec![Guarantee { link: 0, service: 0, rate: 6.0 }];
    let shares = Shares::with_guarantees(guaranteed, &[1.0]).unwrap();
    let mut hierarchy = Hierarchy::new(&[10.0], shares).unwrap();
    let below = text(hierarchy.set_capacity(0, 5.0).unwrap_err());
    assert_eq!(below, "link 0: guarantees of 6 B/s together: expected at most its capacity of 5 B/s");
}

#[test]
fn bad_input_is_refused_with_what_was_expected() {
    let text = |e: HierarchyError| e.to_string();
    let zero = text(Shares::weighted(&[1.0, 0.0]).unwrap_err());
    assert_eq!(zero, "service 1: weight 0: expected a number from 1e-9 to 1e9");
    assert!(Shares::weighted(&[f64::NAN]).is_err() && Shares::weighted(&[1e300]).is_err());
    assert!(Shares::with_excess(&[1.0], &[0.0]).is_ok() && Shares::with_excess(&[1.0], &[]).is_err());
    let guarantee = |service, rate| Guarantee { link: 0, service, rate };
    let two = |a, b| Shares::with_guarantees(vec![guarantee(0, a), guarantee(1, b)], &[1.0, 1.0]);
    let beyond = text(Hierarchy::new(&[10.0], two(6.0, 5.0).unwrap()).unwrap_err());
    assert_eq!(beyond, "link 0: guarantees of 11 B/s together: expected at most its capacity of 10 B/s");
    assert!(two(-1.0, 0.0).is_err() && two(INF, 0.0).is_err());
    assert!(Shares::with_guarantees(vec![guarantee(0, 1.0); 2], &[1.0]).is_err());
    assert!(Shares::with_guarantees(vec![guarantee(1, 1.0)], &[1.0]).is_err());
    assert!(Hierarchy::new(&[], two(1.0, 1.0).unwrap()).is_err());
    let weighted = Shares::weighted(&[1.0]).unwrap();
    assert!(Hierarchy::new(&[-1.0], weighted.clone()).is_err());
    let mut hierarchy = Hierarchy::new(&[1.0], weighted).unwrap();
    assert_eq!(text(hierarchy.add(1, &[0], 1, INF).unwrap_err()), "service 1: expected a number below 1");
    assert_eq!(text(hierarchy.add(0, &[7], 1, INF).unwrap_err()), "link 7: expected a number below 1");
    assert_eq!(
        text(hierarchy.add(0, &[0, 0], 1, INF).unwrap_err()),
        "path with link 0 twice: expected each link once"
    );
    assert!(hierarchy.add(0, &[], 1, INF).is_err() && hierarchy.add(0, &[0], 1, f64::NAN).is_err());
}

fn capacity() -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 5 => (1u32..5).prop_map(f64::from), 4 => 0.1f64..10.0]
}

fn weight() -> impl Strategy<Value = f64> {
    prop_oneof![3 => Just(1.0), 3 => (1u32..10).prop_map(f64::from), 1 => 0.01f64..100.0]
}

/// Networks with paths of at most `longest` links.
fn networks(longest: usize) -> impl Strategy<Value = Net> {
    (prop::collection::vec(capacity(), 1..7), prop::collection::vec(weight(), 1..5)).prop_flat_map(
        move |(capacities, weights)| {
            let (links, services) = (capacities.len(), weights.len());
            let class = (
                0..services,
                prop::sample::subsequence((0..links as u32).collect::<Vec<_>>(), 1..=longest.min(links)),
                prop_oneof![1 => Just(0u32), 9 => 1u32..6],
                prop_oneof![5 => Just(INF), 1 => Just(0.0), 4 => 0.01f64..5.0],
            )
                .prop_map(|(service, links, flows, demand)| Flows {
                    service,
                    links,
                    flows,
                    demand,
                });
            // Guarantees of up to all of a link; some services without excess.
            let guaranteed = prop_oneof![
                2 => Just(vec![]),
                1 => prop::collection::vec((0.0f64..1.0, any::<bool>()), services),
            ];
            let classes = prop::collection::vec(class, 0..14);
            (Just(capacities), Just(weights), guaranteed, classes).prop_map(
                |(capacities, weights, g, flows)| {
                    let mut net = Net::weighted(&capacities, &weights, flows);
                    let all: f64 = g.iter().map(|g| g.0).sum();
                    for (service, &(part, greedy)) in g.iter().enumerate() {
                        for (link, capacity) in capacities.iter().enumerate() {
                            net.guarantees[link][service] = capacity * part / all.max(1.0);
                        }
                        if !greedy {
                            net.excess[service] = 0.0;
                        }
                    }
                    net
                },
            )
        },
    )
}

fn shares_of(net: &Net) -> Shares {
    let mut guarantees = Vec::new();
    for (link, row) in net.guarantees.iter().enumerate() {
        for (service, &rate) in row.iter().enumerate() {
            guarantees.push(Guarantee { link: link as u32, service, rate });
        }
    }
    Shares::with_guarantees(guarantees, &net.excess).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3)
}

#[derive(Debug, Clone)]
enum Change {
    /// A class has so many flows that want so much.
    Class(usize, u32, f64),
    /// A link has so many times its capacity.
    Link(usize, f64),
}

fn change() -> impl Strategy<Value = Change> {
    let demand = prop_oneof![Just(INF), 0.01f64..5.0];
    prop_oneof![
        3 => (0usize..20, 0u32..6, demand).prop_map(|(class, flows, demand)| Change::Class(class, flows, demand)),
        1 => (0usize..6, 0.0f64..3.0).prop_map(|(link, factor)| Change::Link(link, factor)),
    ]
}

/// Everything that has to hold on any network.
fn check_all(net: &Net) -> Result<(), String> {
    let (mut hierarchy, ids) = build(net, shares_of(net));
    let solved = hierarchy.solve();
    let rates = rates(&hierarchy, &ids);
    check_feasible(net, &rates)?;
    let Defined { low, rates: expected, met } = reference(net);
    if met != solved.settled {
        return Err(format!("settled: {}, but the reference says {met}", solved.settled));
    }
    if met {
        check_bottlenecks(net, &rates)?;
    }
    for (class, f) in net.flows.iter().enumerate().filter(|(_, f)| f.flows > 0) {
        let (rate, low, expected) = (rates[class], low[class], expected[class]);
        if rate < low * (1.0 - 1e-9) {
            return Err(format!("class {class}: {rate}, but {low} is assured"));
        }
        // What a service gets of a link is at least what its weight says, or all that it can use.
        let of = |l: u32| assured_alone(net, l as usize, f.service);
        let least = f.links.iter().map(|&l| of(l)).fold(f.demand, f64::min);
        if rate < least * (1.0 - 1e-9) {
            return Err(format!("class {class}: {rate}, but its weights say {least}"));
        }
        if !close(rate, expected) {
            return Err(format!("class {class}: {rate} instead of {expected}, met: {met}"));
        }
    }
    Ok(())
}

/// A flow's part of a link if everybody there wants all of it.
fn assured_alone(net: &Net, link: usize, service: usize) -> f64 {
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
    #![proptest_config(cases(3000))]

    #[test]
    fn rates_are_those_of_the_definition(net in networks(4)) {
        if let Err(broken) = check_all(&net) {
            prop_assert!(false, "{}", broken);
        }
    }

    #[test]
    fn rates_over_two_links_are_those_of_the_definition(net in networks(2)) {
        if let Err(broken) = check_all(&net) {
            prop_assert!(false, "{}", broken);
        }
    }

    #[test]
    fn neither_order_nor_unit_matters(net in networks(3), scale in 0.01f64..1e9, turn in 0usize..20) {
        let solved = |net: &Net| {
            let (mut hierarchy, ids) = build(net, shares_of(net));
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
            let same = net.flows[class].flows == 0 || close(a, b / scale);
            prop_assert!(same, "class {}: {} and {}", class, a, b / scale);
        }
    }

    #[test]
    fn changes_lead_to_the_same_rates(
        net in networks(3),
        changes in prop::collection::vec(change(), 1..12),
    ) {
        let mut net = net;
        let mut later = net.flows.pop();
        let (mut hierarchy, mut ids) = build(&net, shares_of(&net));
        hierarchy.solve();
        for (at, change) in changes.into_iter().enumerate() {
            if let Some(f) = later.take_if(|_| at == 3) {
                ids.push(hierarchy.add(f.service, &f.links, f.flows, f.demand).unwrap());
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
                    let guaranteed: f64 = net.guarantees[link].iter().sum();
                    net.capacities[link] = (net.capacities[link] * factor).max(guaranteed);
                    hierarchy.set_capacity(link as u32, net.capacities[link]).unwrap();
                }
            }
            let solved = hierarchy.solve();
            let now = rates(&hierarchy, &ids);
            let (mut fresh, fresh_ids) = build(&net, shares_of(&net));
            let from_start = fresh.solve();
            if let Err(broken) = check_feasible(&net, &now) {
                prop_assert!(false, "{}", broken);
            }
            prop_assert!(from_start.settled || !solved.settled);
            for (class, (a, b)) in now.iter().zip(rates(&fresh, &fresh_ids)).enumerate() {
                prop_assert!(net.flows[class].flows == 0 || close(*a, b), "class {}: {} and {}", class, a, b);
            }
        }
    }
}

#[test]
fn a_loop_without_losses_keeps_bounds_apart() {
    // Service 0 on links 1 and 2 (7 flows, a each) and on 0 and 2 (1 flow, b), service 1 on links 0 and 1 (c).
    // What b gains c loses, what c loses the a gain, what these gain b loses: the bounds go around for ever.
    let net = Net::weighted(
        &[5.0, 5.7, 1.0],
        &[8.0, 100.0],
        vec![flows(0, &[1, 2], 7, INF), flows(0, &[0, 2], 1, INF), flows(1, &[0, 1], 1, INF)],
    );
    let (mut hierarchy, ids) = build(&net, Shares::weighted(&[8.0, 100.0]).unwrap());
    assert!(!hierarchy.solve().settled);
    check_feasible(&net, &rates(&hierarchy, &ids)).unwrap();
    // There are rates with bottlenecks: 7a + b = 1, b + c = 5, c + 7a = 5.7.
    check_bottlenecks(&net, &[0.85 / 7.0, 0.15, 4.85]).unwrap();
}

#[test]
fn a_dense_fabric_is_full_and_keeps_what_is_assured() {
    // Four services between all of 12 edges over 2 cores: loops everywhere, and bounds that stay apart.
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
            classes.push(flows((key / (cores * edges * edges)) as usize, &links, 1 + next() % 40, INF));
        }
    }
    let weights = [1.0, 2.0, 4.0, 8.0];
    let net = Net::weighted(&vec![10.0; 2 * (cores * edges) as usize], &weights, classes);
    let (mut hierarchy, ids) = build(&net, Shares::weighted(&weights).unwrap());
    assert!(!hierarchy.solve().settled);
    let rates = rates(&hierarchy, &ids);
    check_feasible(&net, &rates).unwrap();
    for (f, rate) in net.flows.iter().zip(&rates) {
        let least = f.links.iter().map(|&l| assured_alone(&net, l as usize, f.service)).fold(INF, f64::min);
        assert!(*rate >= least * (1.0 - 1e-9), "{rate}, but weights say {least}");
    }
    let used: f64 = (0..net.capacities.len()).map(|link| net.used(link, &rates)).sum();
    assert!(used > 0.99 * net.capacities.iter().sum::<f64>(), "{used}");
}

#[test]
fn single_flows_on_an_even_fabric() {
    // Three services between all of 6 edges over one core: every limit ties with every other one until a flow comes or goes.
    let edges = 6u32;
    let mut classes = Vec::new();
    for key in 0..3 * edges * edges {
        let (from, to) = (key % edges, key / edges % edges);
        if from != to {
            classes.push(flows((key / edges / edges) as usize, &[from, edges + to], 1, INF));
        }
    }
    let weights = [1.0, 2.0, 4.0];
    let mut net = Net::weighted(&vec![10.0; 2 * edges as usize], &weights, classes);
    let (mut hierarchy, ids) = build(&net, Shares::weighted(&weights).unwrap());
    hierarchy.solve();
    for step in 0..60 {
        let class = step * 37 % ids.len();
        net.flows[class].flows = if step % 2 == 0 { 2 } else { 0 };
        hierarchy.set_flows(ids[class], net.flows[class].flows);
        hierarchy.solve();
        let (mut fresh, fresh_ids) = build(&net, Shares::weighted(&weights).unwrap());
        fresh.solve();
        for (class, f) in net.flows.iter().enumerate().filter(|(_, f)| f.flows > 0) {
            let (kept, anew) = (hierarchy.rate(ids[class]), fresh.rate(fresh_ids[class]));
            assert!(close(kept, anew), "step {step}, class {class}: {kept} and {anew}, {} flows", f.flows);
        }
    }
}
