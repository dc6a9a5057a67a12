//! Liu, Chen and Li, "Siphon: Expediting Inter-Datacenter Coflows in Wide-Area Data Analytics", ATC '18.

use crate::common::assert_near;
use crate::regions::{area_with, on_links, replay_between};

/// Two coflows that compete on the links from datacenter 1 to 2 and to 3. A is long on the first, B on the
/// second.
fn figure_1(first: &[f64], second: &[f64], policy: &str, seed: u64) -> [f64; 2] {
    let coflow = |on_first, on_second| (0.0, vec![(0, on_first), (1, on_second)]);
    let both = on_links(&[coflow(100.0, 10.0), coflow(10.0, 100.0)]);
    let found = replay_between(&both, &area_with(&[first, second, &[100.0]], 0.0), policy, seed);
    [0, 1].map(|at| found.coflows[at].end)
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
    for policy in ["siphon", "mrtf", "siphon:depth=1", "siphon:detours=off"] {
        let coflow = |arrival, bytes| (arrival, vec![(0, bytes), (1, bytes)]);
        // The second arrives while the first has 90 bytes left, and preempts it.
        let both = on_links(&[coflow(0.0, 100.0), coflow(1.0, 20.0)]);
        let found = replay_between(&both, &area_with(&[&[10.0]], 0.0), policy, 1);
        assert_near(&found.coflows[0].flow_ends, &[12.0, 12.0], 1e-9, policy);
        assert_near(&found.coflows[1].flow_ends, &[3.0, 3.0], 1e-9, policy);
    }
}

#[test]
fn section_3_3_a_detour_halves_the_bottleneck() {
    // 120 bytes from 1 to 2 at 1 byte/s; the links via 3 carry 2 and 1. D (1 - a) / B = D a / B' at a = 1/2.
    let slow = area_with(&[&[1.0], &[2.0], &[1.0]], 0.0);
    let all = on_links(&[(0.0, vec![(0, 120.0)])]);
    for (policy, end) in [("fair", 120.0), ("fair:detours=on", 60.0), ("siphon:detours=on", 60.0)] {
        assert_near(&replay_between(&all, &slow, policy, 1).coflows[0].flow_ends, &[end], 1e-9, policy);
    }
}
