//! Siphon's detours (ATC '18, section 3.3): the paper's equation, the optimum of small cases, and properties
//! of all cases.

use proptest::prelude::*;
use weir_core::model::wide_area::Measured;
use weir_core::model::{Past, WideArea};
use weir_core::units::{Rate, Time};
use weir_core::wide_area::detour::{Routes, direct, links, relieve};

/// Regions whose links have the bandwidth `rate(from, to)`, in bytes per second.
fn past(regions: usize, rate: impl Fn(usize, usize) -> f64) -> Past {
    let names = (0..regions).map(|number| format!("r{number}")).collect();
    let pairs = (0..regions).flat_map(|from| (0..regions).map(move |to| (from, to)));
    let measured = pairs.filter(|(from, to)| from != to).map(|(from, to)| Measured {
        from,
        to,
        samples: vec![Rate::new(rate(from, to)).unwrap()],
    });
    WideArea::new(names, measured.collect(), Time::new(1.0).unwrap(), 0.0).unwrap().past()
}

fn share(routes: &Routes, pair: u32, relay: Option<u32>) -> f64 {
    routes.parts.iter().find(|p| p.pair == pair && p.relay == relay).map_or(0.0, |part| part.share)
}

#[test]
fn detour_share_solves_siphon_section_3_3_equation() {
    // D (1 - a) / B = (D a + D') / B', with D = 100, B = 1 and, on the loaded link of the detour, D' = 30 and B' = 2.
    let past = past(3, |from, to| match (from, to) {
        (0, 1) => 1.0,
        (0, 2) => 2.0,
        _ => 100.0,
    });
    let (bottleneck, loaded) = (past.link(0, 1).unwrap(), past.link(0, 2).unwrap());
    let routes = relieve(&past, &[(bottleneck, 100.0), (loaded, 30.0)]);
    // 2 (100 - 100 a) = 100 a + 30.
    let a = 170.0 / 300.0;
    assert!((share(&routes, bottleneck, Some(2)) - a).abs() < 1e-9, "{routes:?}");
    assert!((routes.time(&past) - 100.0 * (1.0 - a)).abs() < 1e-9);
    assert_eq!(share(&routes, loaded, None), 1.0);
}

#[test]
fn all_detours_of_a_flow_complete_together() {
    let past = past(4, |from, to| match (from, to) {
        (0, 1) => 1.0,
        (0, 2) => 3.0,
        _ => 10.0,
    });
    let bottleneck = past.link(0, 1).unwrap();
    let routes = relieve(&past, &[(bottleneck, 140.0)]);
    // All three routes complete together, at 1 + 3 + 10 bytes per second.
    assert!((routes.time(&past) - 10.0).abs() < 1e-3, "{routes:?}");
    // Each route carries its bandwidth times that duration.
    for (relay, part) in [(None, 1.0), (Some(2), 3.0), (Some(3), 10.0)] {
        assert!((share(&routes, bottleneck, relay) - part / 14.0).abs() < 1e-3, "{routes:?}");
    }
}

#[test]
fn detours_that_do_not_shorten_completion_are_not_used() {
    let slow = past(3, |from, to| if (from, to) == (0, 1) { 1e6 } else { 1.0 });
    let pair = slow.link(0, 1).unwrap();
    assert_eq!(relieve(&slow, &[(pair, 1.0)]).parts.len(), 1, "it would gain less than a part in a million");
    let other = slow.link(0, 2).unwrap();
    let loaded = [(pair, 1.0), (other, 1.0)];
    // The second link of the detour is the slowest; its own bytes have no better route.
    let routes = relieve(&slow, &loaded);
    assert_eq!(share(&routes, pair, None), 1.0);
    let two = past(2, |_, _| 1.0);
    assert_eq!(relieve(&two, &[(0, 5.0)]), direct(&two, &[(0, 5.0)]), "with two regions there is none");
}

#[test]
fn detours_of_small_cases_match_a_grid_search() {
    // Three regions with one possible detour per pair, and two pairs with bytes: compare with all shares on a
    // grid.
    let mut chance = crate::cases::Chance(11);
    for case in 0..60 {
        let rates: Vec<f64> = (0..9).map(|_| 1.0 + 9.0 * chance.part()).collect();
        let past = past(3, |from, to| rates[3 * from + to]);
        let pairs = [(chance.part() * 6.0) as u32, (chance.part() * 6.0) as u32];
        if pairs[0] == pairs[1] {
            continue;
        }
        let bytes = pairs.map(|pair| (pair, 10.0 + 90.0 * chance.part()));
        let mut best = f64::INFINITY;
        const STEPS: usize = 300;
        for at in 0..(STEPS + 1) * (STEPS + 1) {
            let moved = [at / (STEPS + 1), at % (STEPS + 1)].map(|step| step as f64 / STEPS as f64);
            let mut loads = [0.0; 6];
            for ((pair, bytes), moved) in bytes.into_iter().zip(moved) {
                let (from, to) = past.ends(pair);
                let relay = 3 - from - to;
                loads[pair as usize] += bytes * (1.0 - moved);
                loads[past.link(from, relay).unwrap() as usize] += bytes * moved;
                loads[past.link(relay, to).unwrap() as usize] += bytes * moved;
            }
            let times = loads.iter().zip(0..).map(|(bytes, link)| bytes * past.median(link));
            best = best.min(times.fold(0.0, f64::max));
        }
        let own = relieve(&past, &bytes).time(&past);
        assert!(own <= best * (1.0 + 1e-4), "case {case}: {own}, and {best} on the grid");
    }
}

proptest! {
    #![proptest_config(crate::common::cases(300))]

    #[test]
    fn detours_are_never_slower_than_direct_and_never_loop(
        regions in 2..7usize,
        rates in prop::collection::vec(0.125..100.0f64, 49),
        some in prop::collection::vec((0..42u32, 0.1..1000.0f64), 0..20),
    ) {
        let past = past(regions, |from, to| rates[7 * from + to]);
        let bytes: Vec<(u32, f64)> =
            some.into_iter().map(|(pair, bytes)| (pair % past.links() as u32, bytes)).collect();
        let (before, after) = (direct(&past, &bytes), relieve(&past, &bytes));
        prop_assert!(after.time(&past) <= before.time(&past) * (1.0 + 1e-12));
        let mut loads = vec![0.0; past.links()];
        for pair in 0..past.links() as u32 {
            let whole = before.loads[pair as usize];
            let parts: Vec<_> = after.parts.iter().filter(|part| part.pair == pair).collect();
            let sum: f64 = parts.iter().map(|part| part.share).sum();
            prop_assert!((sum - if whole > 0.0 { 1.0 } else { 0.0 }).abs() < 1e-9, "shares of {}", sum);
            let (from, to) = past.ends(pair);
            for part in parts {
                prop_assert!(part.share > 0.0);
                prop_assert!(part.relay.is_none_or(|relay| relay as usize != from && relay as usize != to));
                // A route starts at the source, ends at the destination, and its links are contiguous.
                let way: Vec<(usize, usize)> = links(&past, part).iter().flatten().map(|&l| past.ends(l)).collect();
                prop_assert_eq!((way[0].0, way[way.len() - 1].1), (from, to));
                prop_assert!(way.windows(2).all(|pair| pair[0].1 == pair[1].0));
                for link in links(&past, part).into_iter().flatten() {
                    loads[link as usize] += whole * part.share;
                }
            }
        }
        for (found, said) in loads.iter().zip(&after.loads) {
            prop_assert!((found - said).abs() <= 1e-6 * said.max(1.0), "{} and {}", found, said);
        }
    }
}
