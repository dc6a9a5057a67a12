//! Liu, Chen and Li, "Siphon: Expediting Inter-Datacenter Coflows in Wide-Area Data Analytics", ATC '18.

use weir_core::model::WideArea;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::units::Rate;
use weir_core::wide_area::build;
use weir_sim::wide_area::{CoflowDemand, FlowGroup, GroupOrder, WideAreaOptions, run};

use crate::common::{assert_near, time};

/// Regions with these bandwidth samples for their links, in order, in bytes per second.
fn area(regions: usize, samples: &[&[f64]]) -> WideArea {
    let names = (1..=regions).map(|number| format!("datacenter-{number}")).collect();
    let pairs = (0..regions).flat_map(|from| (0..regions).map(move |to| (from, to)));
    let measured = pairs.filter(|(from, to)| from != to).zip(samples.iter().cycle());
    let measured = measured.map(|((from, to), samples)| LinkMeasurement {
        from,
        to,
        samples: samples.iter().map(|&rate| Rate::new(rate).expect("a rate")).collect(),
    });
    WideArea::new(names, measured.collect(), time(1.0), 0.0).expect("a wide area")
}

/// Two coflows that compete on the links from datacenter 1 to 2 and to 3. A is long on the first, B on the
/// second.
fn figure_1(first: &[f64], second: &[f64], spec: &str, seed: u64) -> [f64; 2] {
    let constant: &[f64] = &[100.0];
    let area = area(3, &[first, second, constant, constant, constant, constant]);
    let coflow = |on_first, on_second| CoflowDemand {
        arrival: 0.0,
        service_and_application: (0, 0),
        groups: vec![FlowGroup { bytes: on_first + on_second, flows: vec![(0, on_first), (1, on_second)] }],
    };
    let demands = [coflow(100.0, 10.0), coflow(10.0, 100.0)];
    let options = WideAreaOptions { seed, group_order: GroupOrder::Concurrent, keep_flow_ends: false };
    let found = run(&demands, &area, build(spec).unwrap(), &options, |_| true).unwrap();
    [0, 1].map(|at| found.transfer_ends[at][0].iter().copied().fold(0.0, f64::max))
}

#[test]
fn figure_1_flow_that_is_more_often_shorter_goes_first() {
    // The first link takes 1 s for 100 bytes in four of five cases, and 6 s in the fifth: 2 s on average. The
    // second link always takes 2 s. Each bandwidth sample lasts longer than both coflows.
    let (first, second): (&[f64], &[f64]) = (&[100.0, 100.0, 100.0, 100.0, 100.0 / 6.0], &[50.0]);
    let mut fast = 0;
    for seed in 0..20 {
        let found = figure_1(first, second, "siphon", seed);
        // A's 100 bytes first, then B's 10 on the same link; on the other link A's 10 bytes, then B's 100.
        if found[0] < 1.5 {
            assert_near(&found, &[1.0, 2.2], 1e-9, "A first, and the first link is fast");
            fast += 1;
        } else {
            assert!(found[0] < found[1], "A still goes first: {found:?}");
        }
    }
    assert!((10..20).contains(&fast), "fast {fast} times of 20, expected about 16");
    // With the links swapped, B goes first.
    let found = figure_1(second, first, "siphon", 1);
    assert!(found[1] < found[0], "{found:?}");
}

#[test]
fn constant_bandwidth_needs_no_simulation() {
    // A has fewer bytes than B on both links: every order by remaining time is optimal.
    for spec in ["siphon", "mrtf", "siphon:depth=1", "siphon:detours=off"] {
        let constant = area(3, &[&[10.0]]);
        let coflow = |arrival, bytes| CoflowDemand {
            arrival,
            service_and_application: (0, 0),
            groups: vec![FlowGroup { bytes: 2.0 * bytes, flows: vec![(0, bytes), (1, bytes)] }],
        };
        let options = WideAreaOptions { seed: 1, group_order: GroupOrder::Concurrent, keep_flow_ends: false };
        // The second arrives while the first has 90 bytes left, and preempts it.
        let demands = [coflow(0.0, 100.0), coflow(1.0, 20.0)];
        let found = run(&demands, &constant, build(spec).unwrap(), &options, |_| true).unwrap();
        assert_near(&found.transfer_ends[0][0], &[12.0, 12.0], 1e-9, spec);
        assert_near(&found.transfer_ends[1][0], &[3.0, 3.0], 1e-9, spec);
        assert_eq!(found.decision_ns.len(), 4, "one for each arrival and end");
    }
}

#[test]
fn section_3_3_a_detour_halves_the_bottleneck() {
    // 120 bytes from 1 to 2 at 1 byte/s; the links via 3 carry 2 and 1. D (1 - a) / B = D a / B' at a = 1/2.
    let slow = area(3, &[&[1.0], &[2.0], &[1.0], &[1.0], &[1.0], &[1.0]]);
    let demand = CoflowDemand {
        arrival: 0.0,
        service_and_application: (0, 0),
        groups: vec![FlowGroup { bytes: 120.0, flows: vec![(0, 120.0)] }],
    };
    let options = WideAreaOptions { seed: 1, group_order: GroupOrder::Concurrent, keep_flow_ends: false };
    for (spec, end) in [("fair", 120.0), ("fair:detours=on", 60.0), ("siphon:detours=on", 60.0)] {
        let found =
            run(std::slice::from_ref(&demand), &slow, build(spec).unwrap(), &options, |_| true).unwrap();
        assert_near(&found.transfer_ends[0][0], &[end], 1e-9, spec);
    }
}
