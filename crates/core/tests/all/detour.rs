//! Siphon's detours (ATC '18, section 3.3): the paper's equation, the optimum of small cases, and properties
//! of all cases.

use proptest::prelude::*;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{BandwidthHistory, WideArea};
use weir_core::units::{Rate, Time};
use weir_core::wide_area::detour::{
    CoflowPaths, RegionLimits, direct_paths, path_links, relieve_bottlenecks, relieve_bottlenecks_within,
};

/// Regions whose links have the bandwidth `rate(from, to)`, in bytes per second.
fn history_with_rates(regions: usize, rate: impl Fn(usize, usize) -> f64) -> BandwidthHistory {
    let names = (0..regions).map(|number| format!("r{number}")).collect();
    let pairs = (0..regions).flat_map(|from| (0..regions).map(move |to| (from, to)));
    let measured = pairs.filter(|(from, to)| from != to).map(|(from, to)| LinkMeasurement {
        from,
        to,
        samples: vec![Rate::new(rate(from, to)).unwrap()],
    });
    WideArea::new(names, measured.collect(), Time::new(1.0).unwrap(), 0.0).unwrap().bandwidth_history()
}

fn fraction_on_path(routes: &CoflowPaths, pair: u32, relay: Option<u32>) -> f64 {
    routes
        .path_shares
        .iter()
        .find(|p| p.direct_link == pair && p.relay == relay)
        .map_or(0.0, |part| part.fraction)
}

#[test]
fn detour_share_solves_siphon_section_3_3_equation() {
    // D (1 - a) / B = (D a + D') / B', with D = 100, B = 1 and, on the loaded link of the detour, D' = 30 and B' = 2.
    let past = history_with_rates(3, |from, to| match (from, to) {
        (0, 1) => 1.0,
        (0, 2) => 2.0,
        _ => 100.0,
    });
    let (bottleneck, loaded) = (past.link_between(0, 1).unwrap(), past.link_between(0, 2).unwrap());
    let routes = relieve_bottlenecks(&past, &[(bottleneck, 100.0), (loaded, 30.0)]);
    // 2 (100 - 100 a) = 100 a + 30.
    let a = 170.0 / 300.0;
    assert!((fraction_on_path(&routes, bottleneck, Some(2)) - a).abs() < 1e-9, "{routes:?}");
    assert!((routes.max_link_seconds(&past) - 100.0 * (1.0 - a)).abs() < 1e-9);
    assert_eq!(fraction_on_path(&routes, loaded, None), 1.0);
}

#[test]
fn all_detours_of_a_flow_complete_together() {
    let past = history_with_rates(4, |from, to| match (from, to) {
        (0, 1) => 1.0,
        (0, 2) => 3.0,
        _ => 10.0,
    });
    let bottleneck = past.link_between(0, 1).unwrap();
    let routes = relieve_bottlenecks(&past, &[(bottleneck, 140.0)]);
    // All three routes complete together, at 1 + 3 + 10 bytes per second.
    assert!((routes.max_link_seconds(&past) - 10.0).abs() < 1e-3, "{routes:?}");
    // Each route carries its bandwidth times that duration.
    for (relay, part) in [(None, 1.0), (Some(2), 3.0), (Some(3), 10.0)] {
        assert!((fraction_on_path(&routes, bottleneck, relay) - part / 14.0).abs() < 1e-3, "{routes:?}");
    }
}

#[test]
fn detours_that_do_not_shorten_completion_are_not_used() {
    let slow = history_with_rates(3, |from, to| if (from, to) == (0, 1) { 1e6 } else { 1.0 });
    let pair = slow.link_between(0, 1).unwrap();
    assert_eq!(
        relieve_bottlenecks(&slow, &[(pair, 1.0)]).path_shares.len(),
        1,
        "it would gain less than a part in a million"
    );
    let other = slow.link_between(0, 2).unwrap();
    let loaded = [(pair, 1.0), (other, 1.0)];
    // The second link of the detour is the slowest; its own bytes have no better route.
    let routes = relieve_bottlenecks(&slow, &loaded);
    assert_eq!(fraction_on_path(&routes, pair, None), 1.0);
    let two = history_with_rates(2, |_, _| 1.0);
    assert_eq!(
        relieve_bottlenecks(&two, &[(0, 5.0)]),
        direct_paths(&two, &[(0, 5.0)]),
        "two regions do not allow a detour"
    );
}

/// 100 bytes from region 0 to region 1, over links with 10 bytes per second.
#[test]
fn detours_use_only_what_interfaces_of_regions_carry() {
    let past = history_with_rates(3, |_, _| 10.0);
    let pair = past.link_between(0, 1).unwrap();
    let detoured = |interfaces: [f64; 3]| {
        let limits = RegionLimits { interfaces: &interfaces, has_relay: &[true; 3] };
        let routes = relieve_bottlenecks_within(&past, &[(pair, 100.0)], limits);
        fraction_on_path(&routes, pair, Some(2))
    };
    assert!((detoured([0.0; 3]) - 0.5).abs() < 1e-6);
    // The interface of the sending region is as fast as a link, or half as fast again: 100 bytes take 6.7 s.
    assert_eq!(detoured([0.1, 0.0, 0.0]), 0.0);
    assert!((detoured([1.0 / 15.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-6);
    // The interface of the relaying region has half the rate of a link. That of the receiving region does not count.
    assert!((detoured([0.0, 0.2, 0.2]) - 1.0 / 3.0).abs() < 1e-6);
}

#[test]
fn detours_lead_through_regions_with_a_relay_only() {
    let past = history_with_rates(4, |_, _| 10.0);
    let pair = past.link_between(0, 1).unwrap();
    for has_relay in [[true; 4], [false, false, true, false], [true, true, false, true], [false; 4]] {
        let limits = RegionLimits { interfaces: &[0.0; 4], has_relay: &has_relay };
        let routes = relieve_bottlenecks_within(&past, &[(pair, 90.0)], limits);
        let used = [2, 3].map(|relay| fraction_on_path(&routes, pair, Some(relay)) > 0.0);
        assert_eq!(used, [has_relay[2], has_relay[3]]);
        // Each path carries the same.
        let paths = 1 + used.iter().filter(|&&used| used).count();
        assert!((fraction_on_path(&routes, pair, None) - 1.0 / paths as f64).abs() < 1e-3, "{routes:?}");
    }
}

#[test]
fn detours_of_small_cases_match_a_grid_search() {
    // Three regions with one possible detour per pair, and two pairs with bytes: compare with all shares on a
    // grid.
    let mut chance = crate::cases::Rng(11);
    for case in 0..60 {
        let rates: Vec<f64> = (0..9).map(|_| 1.0 + 9.0 * chance.next_unit()).collect();
        let past = history_with_rates(3, |from, to| rates[3 * from + to]);
        let pairs = [(chance.next_unit() * 6.0) as u32, (chance.next_unit() * 6.0) as u32];
        if pairs[0] == pairs[1] {
            continue;
        }
        let bytes = pairs.map(|pair| (pair, 10.0 + 90.0 * chance.next_unit()));
        let mut best = f64::INFINITY;
        const STEPS: usize = 300;
        for at in 0..(STEPS + 1) * (STEPS + 1) {
            let detoured = [at / (STEPS + 1), at % (STEPS + 1)].map(|step| step as f64 / STEPS as f64);
            let mut loads = [0.0; 6];
            for ((pair, bytes), moved) in bytes.into_iter().zip(detoured) {
                let (from, to) = past.link_ends(pair);
                let relay = 3 - from - to;
                loads[pair as usize] += bytes * (1.0 - moved);
                loads[past.link_between(from, relay).unwrap() as usize] += bytes * moved;
                loads[past.link_between(relay, to).unwrap() as usize] += bytes * moved;
            }
            let times = loads.iter().zip(0..).map(|(bytes, link)| bytes * past.median_seconds_per_byte(link));
            best = best.min(times.fold(0.0, f64::max));
        }
        let own = relieve_bottlenecks(&past, &bytes).max_link_seconds(&past);
        assert!(own <= best * (1.0 + 1e-4), "case {case}: {own}, and {best} on the grid");
    }
}

proptest! {
    #![proptest_config(crate::common::config_with_cases(300))]

    #[test]
    fn detours_are_never_slower_than_direct_never_loop_and_can_be_limited(
        regions in 2..7usize,
        rates in prop::collection::vec(0.125..100.0f64, 49),
        some in prop::collection::vec((0..42u32, 0.1..1000.0f64), 0..20),
        max_detoured in prop_oneof![Just(1.0), 0.0..1.0f64],
    ) {
        let past = history_with_rates(regions, |from, to| rates[7 * from + to]);
        let bytes: Vec<(u32, f64)> =
            some.into_iter().map(|(pair, bytes)| (pair % past.links() as u32, bytes)).collect();
        let (before, after) = (direct_paths(&past, &bytes), relieve_bottlenecks(&past, &bytes));
        let after = after.limit_detours(&past, &bytes, max_detoured);
        let whole: f64 = before.link_bytes.iter().sum();
        let detours = after.path_shares.iter().filter(|part| part.relay.is_some());
        let detoured: f64 = detours.map(|part| part.fraction * before.link_bytes[part.direct_link as usize]).sum();
        prop_assert!(detoured <= max_detoured * whole * (1.0 + 1e-9), "{} of {} bytes", detoured, whole);
        prop_assert!(after.max_link_seconds(&past) <= before.max_link_seconds(&past) * (1.0 + 1e-12));
        let mut loads = vec![0.0; past.links()];
        for pair in 0..past.links() as u32 {
            let pair_bytes = before.link_bytes[pair as usize];
            let parts: Vec<_> = after.path_shares.iter().filter(|part| part.direct_link == pair).collect();
            let sum: f64 = parts.iter().map(|part| part.fraction).sum();
            prop_assert!((sum - if pair_bytes > 0.0 { 1.0 } else { 0.0 }).abs() < 1e-9, "shares of {}", sum);
            let (from, to) = past.link_ends(pair);
            for part in parts {
                prop_assert!(part.fraction > 0.0);
                prop_assert!(part.relay.is_none_or(|relay| relay as usize != from && relay as usize != to));
                // A route starts at the source, ends at the destination, and its links are contiguous.
                let path: Vec<(usize, usize)> = path_links(&past, part).iter().flatten().map(|&l| past.link_ends(l)).collect();
                prop_assert_eq!((path[0].0, path[path.len() - 1].1), (from, to));
                prop_assert!(path.windows(2).all(|pair| pair[0].1 == pair[1].0));
                for link in path_links(&past, part).into_iter().flatten() {
                    loads[link as usize] += pair_bytes * part.fraction;
                }
            }
        }
        for (found, reported) in loads.iter().zip(&after.link_bytes) {
            prop_assert!((found - reported).abs() <= 1e-6 * reported.max(1.0), "{} and {}", found, reported);
        }
    }
}
