//! Max-min solvers against the definition, and against a reference water-filling.

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::solve::{CappedFlow, FlowClass, LinkMaxMin, max_min, max_min_capped};

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

proptest! {
    #![proptest_config(config_with_cases(1000))]

    #[test]
    fn a_cap_equals_a_link_of_its_own(
        (capacities, classes) in random_networks(),
        caps in prop::collection::vec(prop_oneof![Just(0.0), Just(1.0), 0.01f64..5.0], 12),
    ) {
        let first = capacities.len() as u32;
        let caps = &caps[..classes.len().min(caps.len())];
        let with_own_links: Vec<(Vec<u32>, f64)> = classes
            .iter()
            .take(caps.len())
            .zip(first..)
            .map(|((links, _), own)| (links.iter().copied().chain([own]).collect(), 1.0))
            .collect();
        let all: Vec<f64> = capacities.iter().chain(caps).copied().collect();
        let expected = water_filling(&all, &with_own_links);
        let flows: Vec<CappedFlow<'_>> =
            classes.iter().zip(caps).map(|((links, _), &cap)| CappedFlow { links, cap }).collect();
        for (flow, (rate, expected)) in max_min_capped(&capacities, &flows).into_iter().zip(expected).enumerate() {
            prop_assert!((rate - expected).abs() <= 1e-9 * expected.max(1e-3), "flow {}: {} instead of {}", flow, rate, expected);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Starts a flow of the n-th class.
    Add(usize),
    /// Removes the n-th present flow.
    Remove(usize),
    Capacities(Vec<f64>),
    Solve,
}

/// The links of classes on one switch: a sending and a receiving side.
fn switch_classes(ports: usize) -> Vec<Vec<u32>> {
    let pairs = (0..ports as u32).flat_map(move |src| (0..ports as u32).map(move |dst| (src, dst)));
    pairs.map(|(src, dst)| vec![src, ports as u32 + dst]).collect()
}

/// Links with equal capacities (the common case) or with random ones, some of them 0.
fn random_steps(links: usize, classes: usize) -> impl Strategy<Value = (Vec<f64>, Vec<Step>)> {
    let capacities = prop_oneof![
        Just(vec![1.0; links]),
        prop::collection::vec(capacity(), links),
        prop::collection::vec(prop::sample::select(vec![0.0, 0.5, 1.0, 1.0, 3.0]), links),
    ];
    let step = prop_oneof![
        8 => (0..classes).prop_map(Step::Add),
        10 => (0usize..1000).prop_map(Step::Remove),
        1 => capacities.clone().prop_map(Step::Capacities),
        8 => Just(Step::Solve),
    ];
    // Many arrivals at first, then completions one by one, as in replays.
    let start = prop::collection::vec((0..classes).prop_map(Step::Add), 0..60);
    let ends = prop_oneof![
        1 => prop::collection::vec(step, 0..60),
        2 => prop::collection::vec(
            prop_oneof![3 => (0usize..1000).prop_map(Step::Remove), 2 => Just(Step::Solve)],
            0..100
        ),
    ];
    (capacities, start, ends).prop_map(|(capacities, start, ends)| (capacities, [start, ends].concat()))
}

fn random_switches() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<f64>, Vec<Step>)> {
    (1usize..=7).prop_flat_map(|ports| {
        let classes = switch_classes(ports);
        random_steps(2 * ports, classes.len())
            .prop_map(move |(capacities, steps)| (classes.clone(), capacities, steps))
    })
}

/// Classes over any one to five of up to twelve links.
fn random_link_sets() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<f64>, Vec<Step>)> {
    (1usize..=12).prop_flat_map(|links| {
        let class = prop::sample::subsequence((0..links as u32).collect::<Vec<u32>>(), 1..=links.min(5));
        prop::collection::vec(class, 1..20).prop_flat_map(move |classes| {
            random_steps(links, classes.len())
                .prop_map(move |(capacities, steps)| (classes.clone(), capacities, steps))
        })
    })
}

fn check_incremental_rates(links: &[Vec<u32>], capacities: &[f64], steps: &[Step]) -> Result<(), String> {
    let mut capacities = capacities.to_vec();
    let mut solver = LinkMaxMin::new(capacities.clone());
    for links in links {
        solver.add_class(links);
    }
    let mut flows: Vec<usize> = Vec::new();
    let mut bottlenecks = vec![None; links.len()];
    let mut changed = Vec::new();
    for (at, step) in steps.iter().chain([&Step::Solve]).enumerate() {
        match step {
            Step::Add(class) => {
                solver.add_flow(*class as u32);
                flows.push(*class);
            }
            Step::Remove(_) if flows.is_empty() => {}
            Step::Remove(place) => solver.remove_flow(flows.swap_remove(place % flows.len()) as u32),
            Step::Capacities(new) => {
                capacities.clone_from(new);
                new.iter().enumerate().for_each(|(link, &capacity)| solver.set_capacity(link, capacity));
            }
            Step::Solve => {
                let from_scratch = solver.solve(&mut changed);
                let classes: Vec<FlowClass<'_>> =
                    flows.iter().map(|&class| FlowClass { links: &links[class], flows: 1.0 }).collect();
                let expected = max_min(&capacities, &classes);
                for (&class, expected) in flows.iter().zip(expected) {
                    let link = solver.bottleneck(class as u32);
                    let rate = solver.level(link as usize);
                    if (rate - expected).abs() > 1e-9 * expected.max(1e-3) {
                        return Err(format!("step {at}: class {class} has {rate} instead of {expected}"));
                    }
                    let min = links[class]
                        .iter()
                        .map(|&link| solver.level(link as usize))
                        .fold(f64::INFINITY, f64::min);
                    if rate > min * (1.0 + 1e-9) {
                        return Err(format!(
                            "step {at}: class {class}: {rate} at its bottleneck, {min} elsewhere"
                        ));
                    }
                    let before = bottlenecks[class].replace(link);
                    if !from_scratch && before != Some(link) && !changed.contains(&(class as u32)) {
                        return Err(format!(
                            "step {at}: class {class}, now limited by {link}, is missing in the list of changes"
                        ));
                    }
                }
                for (class, bottleneck) in bottlenecks.iter_mut().enumerate() {
                    if !flows.contains(&class) {
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
    fn levels_stay_max_min_on_switches((links, capacities, steps) in random_switches()) {
        if let Err(broken) = check_incremental_rates(&links, &capacities, &steps) {
            prop_assert!(false, "{}", broken);
        }
    }

    #[test]
    fn levels_stay_max_min_on_any_links((links, capacities, steps) in random_link_sets()) {
        if let Err(broken) = check_incremental_rates(&links, &capacities, &steps) {
            prop_assert!(false, "{}", broken);
        }
    }
}

/// 1,500 flows of random classes that end one after the other.
fn check_many_completions(links: &[Vec<u32>], capacities: &[f64]) {
    let mut state = 7u64;
    let mut next = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    // Some classes have far more flows than others.
    let mut steps: Vec<Step> =
        (0..1500).map(|_| Step::Add(next(links.len()).min(next(links.len())))).collect();
    for _ in 0..1500 {
        steps.push(Step::Remove(next(1500)));
        if next(3) > 0 {
            steps.push(Step::Solve);
        }
    }
    check_incremental_rates(links, capacities, &steps).unwrap();
}

#[test]
fn levels_stay_max_min_under_many_completions() {
    check_many_completions(&switch_classes(24), &[1.0; 48]);
}

#[test]
fn levels_stay_max_min_under_many_completions_over_more_links_than_the_dense_form() {
    // 260 ports in 13 leaves of 20, and an uplink and a downlink of each leaf. Only flows of the first 16 ports.
    let classes: Vec<Vec<u32>> = (0..256u32)
        .map(|pair| (pair / 16 * 16, pair % 16 * 16))
        .filter(|(src, dst)| src / 20 != dst / 20)
        .map(|(src, dst)| vec![src, 260 + dst, 520 + src / 20, 533 + dst / 20])
        .collect();
    let capacities: Vec<f64> = (0..546).map(|link| if link < 520 { 1.0 } else { 1.5 }).collect();
    check_many_completions(&classes, &capacities);
}
