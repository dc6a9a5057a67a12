//! Max-min solvers against the definition, and against a reference water-filling.

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::solve::{FlowClass, SwitchMaxMin, max_min};

/// Raises all rates together and freezes the flows of each link that becomes full, until all flows are
/// frozen.
fn water_filling(capacities: &[f64], classes: &[(Vec<u32>, f64)]) -> Vec<f64> {
    let mut rates = vec![0.0; classes.len()];
    let mut rising: Vec<bool> = vec![true; classes.len()];
    while rising.iter().any(|&r| r) {
        let mut step = f64::INFINITY;
        let mut fullest = None;
        for (link, capacity) in capacities.iter().enumerate() {
            let crosses_link = |c: usize| classes[c].0.contains(&(link as u32));
            let used: f64 =
                (0..classes.len()).filter(|&c| crosses_link(c)).map(|c| rates[c] * classes[c].1).sum();
            let flows: f64 =
                (0..classes.len()).filter(|&c| crosses_link(c) && rising[c]).map(|c| classes[c].1).sum();
            if flows > 0.0 && ((capacity - used) / flows).max(0.0) < step {
                step = ((capacity - used) / flows).max(0.0);
                fullest = Some(link as u32);
            }
        }
        let Some(fullest) = fullest else {
            // The remaining flows cross no link.
            for c in (0..classes.len()).filter(|&c| rising[c]) {
                rates[c] = f64::INFINITY;
            }
            break;
        };
        for c in 0..classes.len() {
            if rising[c] {
                rates[c] += step;
                rising[c] = !classes[c].0.contains(&fullest);
            }
        }
    }
    rates
}

/// The definition: no link exceeds its capacity, and every flow has a full link on which no flow is faster.
fn check_max_min(capacities: &[f64], classes: &[(Vec<u32>, f64)], rates: &[f64]) -> Result<(), String> {
    let max_capacity = capacities.iter().copied().fold(0.0, f64::max);
    let classes_over =
        |link: usize| (0..classes.len()).filter(move |&c| classes[c].0.contains(&(link as u32)));
    let used = |link: usize| classes_over(link).map(|c| rates[c] * classes[c].1).sum::<f64>();
    for (link, capacity) in capacities.iter().enumerate() {
        if used(link) > capacity + 1e-9 * max_capacity {
            return Err(format!("link {link} carries {} of {capacity}", used(link)));
        }
    }
    for (c, (links, _)) in classes.iter().enumerate() {
        if links.is_empty() {
            continue;
        }
        let bottleneck = links.iter().any(|&link| {
            let link = link as usize;
            used(link) >= capacities[link] - 1e-9 * max_capacity
                && classes_over(link).all(|other| rates[other] <= rates[c] + 1e-9 * max_capacity)
        });
        if !bottleneck || rates[c] < 0.0 {
            return Err(format!("class {c} with {} has no bottleneck", rates[c]));
        }
    }
    Ok(())
}

fn capacity() -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 4 => (1u32..6).prop_map(f64::from), 4 => 0.01f64..10.0, 1 => 1e3f64..1e9]
}

fn random_networks() -> impl Strategy<Value = (Vec<f64>, Vec<(Vec<u32>, f64)>)> {
    prop::collection::vec(capacity(), 1..8).prop_flat_map(|capacities| {
        let links = capacities.len();
        let class = (
            prop::sample::subsequence((0..links as u32).collect::<Vec<_>>(), 0..=links),
            prop_oneof![3 => (1u32..5).prop_map(f64::from), 1 => 0.1f64..3.0],
        );
        (Just(capacities), prop::collection::vec(class, 0..12))
    })
}

proptest! {
    #![proptest_config(config_with_cases(2000))]

    #[test]
    fn solver_rates_are_max_min_on_any_links((capacities, classes) in random_networks()) {
        let given: Vec<FlowClass<'_>> =
            classes.iter().map(|(links, flows)| FlowClass { links, flows: *flows }).collect();
        let rates = max_min(&capacities, &given);
        let brute = water_filling(&capacities, &classes);
        for (c, (&rate, &expected)) in rates.iter().zip(&brute).enumerate() {
            let equal = rate == expected || (rate - expected).abs() <= 1e-9 * expected.max(1e-3);
            prop_assert!(equal, "class {}: {} instead of {}", c, rate, expected);
        }
        if let Err(broken) = check_max_min(&capacities, &classes, &rates) {
            prop_assert!(false, "{}", broken);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Add(usize, usize),
    /// Removes the n-th present flow.
    Remove(usize),
    Capacities(Vec<f64>),
    Solve,
}

/// Switches with equal capacities (the common case) or with random ones.
fn random_switches() -> impl Strategy<Value = (Vec<f64>, Vec<Step>)> {
    (1usize..=7).prop_flat_map(|ports| {
        let capacities = prop_oneof![
            Just(vec![1.0; 2 * ports]),
            prop::collection::vec(capacity(), 2 * ports),
            prop::collection::vec(prop::sample::select(vec![0.0, 0.5, 1.0, 1.0, 1.0]), 2 * ports),
        ];
        let step = prop_oneof![
            8 => (0..ports, 0..ports).prop_map(|(s, d)| Step::Add(s, d)),
            10 => (0usize..1000).prop_map(Step::Remove),
            1 => capacities.clone().prop_map(Step::Capacities),
            8 => Just(Step::Solve),
        ];
        // Many arrivals at first, then completions one by one, as in replays.
        let start = prop::collection::vec((0..ports, 0..ports).prop_map(|(s, d)| Step::Add(s, d)), 0..60);
        let ends = prop_oneof![
            1 => prop::collection::vec(step, 0..60),
            2 => prop::collection::vec(
                prop_oneof![3 => (0usize..1000).prop_map(Step::Remove), 2 => Just(Step::Solve)],
                0..100
            ),
        ];
        (capacities, start, ends).prop_map(|(capacities, start, ends)| (capacities, [start, ends].concat()))
    })
}

fn check_incremental_rates(capacities: &[f64], steps: &[Step]) -> Result<(), String> {
    let ports = capacities.len() / 2;
    let mut capacities = capacities.to_vec();
    let mut levels = SwitchMaxMin::new(&capacities[..ports], &capacities[ports..]);
    let mut flows: Vec<(usize, usize)> = Vec::new();
    let mut bottlenecks = vec![None; ports * ports];
    let mut moved = Vec::new();
    for (at, step) in steps.iter().chain([&Step::Solve]).enumerate() {
        match step {
            Step::Add(src, dst) => {
                levels.add_flow(*src, *dst);
                flows.push((*src, *dst));
            }
            Step::Remove(_) if flows.is_empty() => {}
            Step::Remove(place) => {
                let (src, dst) = flows.swap_remove(place % flows.len());
                levels.remove_flow(src, dst);
            }
            Step::Capacities(new) => {
                capacities.clone_from(new);
                levels.set_capacities(&capacities[..ports], &capacities[ports..]);
            }
            Step::Solve => {
                moved.clear();
                let from_scratch = levels.solve(&mut moved);
                let links: Vec<[u32; 2]> =
                    flows.iter().map(|&(s, d)| [s as u32, (ports + d) as u32]).collect();
                let classes: Vec<FlowClass<'_>> =
                    links.iter().map(|links| FlowClass { links, flows: 1.0 }).collect();
                let expected = max_min(&capacities, &classes);
                for (&(src, dst), expected) in flows.iter().zip(expected) {
                    let link = levels.bottleneck_link(src, dst);
                    let rate = levels.level(link);
                    if (rate - expected).abs() > 1e-9 * expected.max(1e-3) {
                        return Err(format!("step {at}: {src} to {dst} has {rate} instead of {expected}"));
                    }
                    let other = levels.levels()[if link == src { ports + dst } else { src }];
                    if rate > other * (1.0 + 1e-9) {
                        return Err(format!(
                            "step {at}: {src} to {dst}: {rate} at its bottleneck, {other} at the other"
                        ));
                    }
                    let before = bottlenecks[src * ports + dst].replace(link);
                    if !from_scratch && before.is_some_and(|b| b != link) && !moved.contains(&(src, dst)) {
                        return Err(format!(
                            "step {at}: pair {src} to {dst}, now limited by {link}, is missing in the list of changes"
                        ));
                    }
                }
                for (pair, bottleneck) in bottlenecks.iter_mut().enumerate() {
                    if !flows.contains(&(pair / ports, pair % ports)) {
                        *bottleneck = None;
                    }
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config_with_cases(1500))]

    #[test]
    fn levels_stay_max_min_under_random_arrivals_and_completions((capacities, steps) in random_switches()) {
        if let Err(broken) = check_incremental_rates(&capacities, &steps) {
            prop_assert!(false, "{}", broken);
        }
    }
}

#[test]
fn levels_stay_max_min_under_many_completions() {
    // 24 ports and 1,500 flows, which end one after the other.
    let ports = 24;
    let mut state = 7u64;
    let mut next = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let mut steps: Vec<Step> = (0..1500)
        .map(|_| {
            // Some ports have far more flows than others.
            let (src, dst) = (next(ports), next(ports));
            Step::Add(src.min(next(ports)), dst.max(next(ports)))
        })
        .collect();
    for _ in 0..1500 {
        steps.push(Step::Remove(next(1500)));
        if next(3) > 0 {
            steps.push(Step::Solve);
        }
    }
    check_incremental_rates(&vec![1.0; 2 * ports], &steps).unwrap();
}
