//! Measures hierarchical max-min for 20 services over a fabric of 16 cores and 128 edges: a full solution, an
//! update after one flow starts or ends, and the lower bounds from a reference solver in the same run.
//!
//! NetShare (3.3) claims "16 cores, 128 edge switches and 128 million flows" in less than 100 ms. Here, flows
//! of one service over one path are a class: up to 128 x 127 x 16 x 20 = 5.2 million classes.

#[path = "hierarchy/reference.rs"]
mod reference;

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use reference::{FlowClass, reference_bounds, reference_lower_bounds};
use weir_core::solve::{ClassId, HierarchicalMaxMin, HierarchyStats, ServiceShares};

const CORES: u64 = 16;
const EDGES: u64 = 128;
const SERVICES: u64 = 20;
/// Capacity of every link: 10 Gbit/s in bytes per second.
const CAPACITY: f64 = 1.25e9;
/// Number of full solutions; the benchmark reports their median.
const FULL_SOLUTIONS: usize = 3;
/// Targets: milliseconds for a full solution, and the duration of an update as a fraction of that.
const TARGETS: (f64, f64) = (100.0, 0.01);
/// Number of single changes; the benchmark reports their mean.
const MAX_CHANGES: usize = 201;
/// Changes whose effect on rates is inspected. The number is fixed, so it does not depend on the machine's
/// speed.
const INSPECTED_CHANGES: usize = 10;
/// Relative changes of a rate below this are rounding errors.
const MIN_RATE_CHANGE: f64 = 1e-12;
/// Rounds that compute the bounds of rates with bottlenecks.
const ROUNDS: usize = 31;

/// The description of the first table.
const REPORT_HEAD: &str = "\
20 services with weights 1, 2, 4 and 8 on a fabric of 16 cores and 128 edges, with 4,096 links of 10 Gbit/s. NetShare (3.3) claims 128
million flows in less than 100 ms. Flows of one service over one path form a class.

There are two targets: a full solution of all 5.2 million classes within 100 ms, and an update after one change in less than 1 % of the
time of a full solution, with equal rates.

- Full: the time of a solution from scratch, as the median and the range of three.
- Bounds meet: whether the lower and upper bounds of all rates are equal. Then no other rates are hierarchical max-min.
- Reference solver: the time to compute the lower bounds with code that sorts all limits in each of five stages. The second number is this
  time divided by that of the full solution.
- One change: the time of an update after one flow starts or ends, as the mean of up to 201 changes.
- Full again: the time of a solution from scratch after all changes, when the numbers of flows per class are no longer regular.
- Rates changed: the fraction of all rates that a change alters by more than 1e-12 of their value, as the mean of the first ten changes.
  6.25 % is 1/16 of the fabric, the links of one core switch. In a row with 6.25 %, an added flow changes every rate on these links, so
  the solver computes all their levels again. The solver stores levels of services on links, not rates.
- Max difference: the maximum relative difference between a rate after all changes and the same rate of a solution from scratch. The
  benchmark fails above 1e-9.
";

/// The description of the second table.
const WORK_HEAD: &str = "
## Where the time goes

Work is counted in classes, once for each link. Numbers of a full solution are per class and link; numbers of a change are percentages of
all classes at their links.

- Bounds: visits to compute bounds.
- Followed: visits to follow factors that move. A change starts with these visits, and sweeps if they exceed 0.5 %.
- Sweep, swept: visits to compute all factors of the connected links from scratch.
- Limits: limits read to compute offers from shares.
- Marks: classes examined to mark dependent values.
";

/// The description of the third table.
const BOTTLENECKS_HEAD: &str = "
## How far rates are from bottlenecks

Random flows. Rates at which every flow has a bottleneck are between the bounds, here those of the reference solver after 31 rounds. The
columns have the distance between the bounds of a class, and the distance of its rate from the middle of the bounds, both divided by that
middle. Total: the sum of all rates compared with the sum of all middles.
";

/// SplitMix64: equal instances on every machine.
struct Rng(u64);

impl Rng {
    fn next_below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(bound)) >> 64) as u64
    }
}

fn class(service: u64, from: u64, core: u64, to: u64) -> FlowClass {
    let links = [(from * CORES + core) as u32, (EDGES * CORES + core * EDGES + to) as u32];
    FlowClass { service: service as usize, links, flows: 1, demand: f64::INFINITY }
}

/// Random flows between edges, over random cores, of random services. With `demands`, half of them have a
/// demand below 2 % of a link.
fn random_classes(flows: usize, demands: bool) -> Vec<FlowClass> {
    let mut rng = Rng(7);
    let mut keys: Vec<u64> = (0..flows)
        .map(|_| {
            let (service, from) = (rng.next_below(SERVICES), rng.next_below(EDGES));
            let to = (from + 1 + rng.next_below(EDGES - 1)) % EDGES;
            ((service * EDGES + from) * CORES + rng.next_below(CORES)) * EDGES + to
        })
        .collect();
    keys.sort_unstable();
    let mut classes = Vec::new();
    for same in keys.chunk_by(|a, b| a == b) {
        let key = same[0];
        let (rest, to) = (key / EDGES, key % EDGES);
        let (rest, core) = (rest / CORES, rest % CORES);
        let mut class = class(rest / EDGES, rest % EDGES, core, to);
        class.flows = same.len() as u32;
        if demands && rng.next_below(2) == 0 {
            class.demand = CAPACITY * rng.next_below(2000) as f64 / 1e5;
        }
        classes.push(class);
    }
    classes
}

/// Every service between all pairs of edges over all cores. `flows` gives the number of flows of each class.
fn all_pairs_classes(mut flows: impl FnMut() -> u32) -> Vec<FlowClass> {
    let mut classes = Vec::new();
    for service in 0..SERVICES {
        for from in 0..EDGES {
            for core in 0..CORES {
                for to in (0..EDGES).filter(|&to| to != from) {
                    classes.push(FlowClass { flows: flows(), ..class(service, from, core, to) });
                }
            }
        }
    }
    classes
}

fn build_hierarchy(
    capacities: &[f64],
    weights: &[f64],
    classes: &[FlowClass],
) -> (HierarchicalMaxMin, Vec<ClassId>) {
    let shares = ServiceShares::weighted(weights).expect("the weights are valid");
    let mut hierarchy = HierarchicalMaxMin::new(capacities, shares).expect("the capacities are valid");
    let add = |c: &FlowClass| {
        hierarchy.add_class(c.service, &c.links, c.flows, c.demand).expect("the class is valid")
    };
    let ids = classes.iter().map(add).collect();
    (hierarchy, ids)
}

/// CPU time of a call, in milliseconds.
fn cpu_milliseconds(call: impl FnOnce()) -> f64 {
    let spent = || {
        Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has this clock"))
    };
    let before = spent();
    call();
    (spent() - before).as_secs_f64() * 1e3
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The maximum relative difference.
fn max_relative_difference(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    a.zip(b).map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() / a.abs().max(b.abs()) }).fold(0.0, f64::max)
}

/// The capacities of the links and the weights of the services.
fn fabric_and_weights() -> (Vec<f64>, Vec<f64>) {
    let weights = (0..SERVICES).map(|s| f64::from(1 << (s % 4))).collect();
    (vec![CAPACITY; (2 * CORES * EDGES) as usize], weights)
}

/// Mean and 99th percentile, in percent.
fn format_mean_and_p99(mut parts: Vec<f64>) -> String {
    parts.sort_unstable_by(f64::total_cmp);
    let mean = parts.iter().sum::<f64>() / parts.len() as f64;
    format!("{:.2} % | {:.2} %", 100.0 * mean, 100.0 * parts[parts.len() * 99 / 100])
}

/// Prints the relative distance of the rates from rates with bottlenecks, taken as the middle between the
/// bounds.
fn print_bottleneck_comparison(name: &str, classes: &[FlowClass]) {
    let (capacities, weights) = fabric_and_weights();
    let (mut hierarchy, ids) = build_hierarchy(&capacities, &weights, classes);
    hierarchy.solve();
    let (low, high) = reference_bounds(&capacities, &weights, classes, ROUNDS);
    let (mut apart, mut differ) = (Vec::new(), Vec::new());
    let (mut total, mut middle_total) = (0.0, 0.0);
    for (class, c) in classes.iter().enumerate() {
        let (rate, middle) = (hierarchy.rate(ids[class]), 0.5 * (low[class] + high[class]));
        total += f64::from(c.flows) * rate;
        middle_total += f64::from(c.flows) * middle;
        if middle > 0.0 {
            apart.push((high[class] - low[class]) / middle);
            differ.push((rate - middle).abs() / middle);
        }
    }
    let more = 100.0 * (total / middle_total - 1.0);
    println!(
        "| {name} | {} | {} | {} | {more:+.2} % |",
        classes.len(),
        format_mean_and_p99(apart),
        format_mean_and_p99(differ)
    );
}

fn run_row(name: &str, classes: &[FlowClass]) -> RowCost {
    let (capacities, weights) = fabric_and_weights();
    let (mut hierarchy, ids) = build_hierarchy(&capacities, &weights, classes);
    let mut solved = None;
    let mut times: Vec<f64> =
        (0..FULL_SOLUTIONS).map(|_| cpu_milliseconds(|| solved = Some(hierarchy.solve_full()))).collect();
    let full = median(&mut times);
    let solved = solved.expect("at least one solution ran");
    let reference = if classes.len() <= 10_000 {
        let mut rates = Vec::new();
        let time = cpu_milliseconds(|| rates = reference_lower_bounds(&capacities, &weights, classes));
        for (lower_bound, &id) in rates.into_iter().zip(&ids) {
            let rate = hierarchy.rate(id);
            assert!(
                rate >= lower_bound * (1.0 - 1e-9),
                "{name}: rate {rate} is below the lower bound {lower_bound}"
            );
        }
        format!("{time:.0} ms, {:.0}x", time / full)
    } else {
        String::from("-")
    };
    let mut rng = Rng(11);
    let (mut spent, mut changes) = (0.0, 0);
    let mut changed_fractions = Vec::new();
    let (mut work, mut swept) = (WorkCounts::default(), 0);
    while changes < MAX_CHANGES && spent < 2_000.0 {
        let id = ids[rng.next_below(ids.len() as u64) as usize];
        let flows = hierarchy.flow_count(id);
        hierarchy.set_flows(id, if changes % 2 == 0 { flows + 1 } else { flows - flows.min(1) });
        let before = (changes < INSPECTED_CHANGES).then(|| rates(&hierarchy, &ids));
        let mut change_stats = None;
        spent += cpu_milliseconds(|| change_stats = Some(hierarchy.solve()));
        let one = change_stats.expect("the solution ran");
        work.add(&one);
        swept += usize::from(one.sweep_visits > 0);
        if let Some(before) = before {
            let after = rates(&hierarchy, &ids);
            let has_moved = |(a, b): &(&f64, &f64)| (*a - *b).abs() > MIN_RATE_CHANGE * a.max(**b);
            changed_fractions
                .push(before.iter().zip(&after).filter(has_moved).count() as f64 / after.len() as f64);
        }
        changes += 1;
    }
    let change = spent / changes as f64;
    let live = || ids.iter().filter(|&&id| hierarchy.flow_count(id) > 0);
    let incremental_rates: Vec<f64> = live().map(|&id| hierarchy.rate(id)).collect();
    let mut from_scratch = hierarchy.clone();
    let again = cpu_milliseconds(|| {
        from_scratch.solve_full();
    });
    let differ =
        max_relative_difference(incremental_rates.into_iter(), live().map(|&id| from_scratch.rate(id)));
    assert!(differ < 1e-9, "{name}: rates after changes differ from those from scratch by {differ}");
    println!(
        "| {name} | {} | {full:.1} ms | {:.0} to {:.0} | {} | {} | {reference} | {change:.3} ms | {again:.1} ms | {:.2} % | {} | {:.2} % | {differ:.0e} |",
        classes.len(),
        times[0],
        times[FULL_SOLUTIONS - 1],
        format_target(full <= TARGETS.0),
        if solved.bounds_met { "yes" } else { "no" },
        100.0 * change / again,
        format_target(change <= TARGETS.1 * again),
        100.0 * changed_fractions.iter().sum::<f64>() / changed_fractions.len() as f64,
    );
    let mut full_work = WorkCounts::default();
    full_work.add(&solved);
    let crossings = (2 * classes.len()) as f64;
    RowCost {
        name: name.to_owned(),
        full_ms: full,
        full_work: full_work.per_unit(crossings),
        change_work: work.per_unit(crossings * changes as f64),
        sweep_fraction: swept as f64 / changes as f64,
    }
}

fn format_target(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

/// Work of solutions, counted in classes visited at a link.
#[derive(Default)]
struct WorkCounts {
    bounds: u64,
    follow_visits: u64,
    sweeps: u64,
    limits: u64,
    marks: u64,
}

impl WorkCounts {
    fn add(&mut self, solved: &HierarchyStats) {
        self.bounds += solved.bound_visits;
        self.follow_visits += solved.visits - solved.bound_visits - solved.sweep_visits;
        self.sweeps += solved.sweep_visits;
        self.limits += solved.limits_read;
        self.marks += solved.classes_marked;
    }

    /// Each counter divided by `units`.
    fn per_unit(&self, units: f64) -> [f64; 5] {
        [self.bounds, self.follow_visits, self.sweeps, self.limits, self.marks]
            .map(|count| count as f64 / units)
    }
}

/// Breakdown of a row's time.
struct RowCost {
    name: String,
    full_ms: f64,
    /// For the full solution, per class and link.
    full_work: [f64; 5],
    /// For a change, as a fraction of all classes at their links.
    change_work: [f64; 5],
    /// The fraction of the changes that needed a sweep.
    sweep_fraction: f64,
}

/// Prints the breakdown of the times.
fn print_cost_breakdown(rows: &[RowCost]) {
    println!("{WORK_HEAD}");
    println!(
        "| Flows | Full: bounds | Sweep | Limits | Marks | Change: bounds | Followed | Swept | Limits | Marks | Changes that sweep |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for RowCost {
        name,
        full_work: [bounds, _, sweep, limits, marks],
        change_work: change,
        sweep_fraction: swept,
        ..
    } in rows
    {
        let change = change.map(|part| format!("{:.2} %", 100.0 * part));
        println!(
            "| {name} | {bounds:.1} | {sweep:.1} | {limits:.1} | {marks:.1} | {} | {} | {} | {} | {} | {:.0} % |",
            change[0],
            change[1],
            change[2],
            change[3],
            change[4],
            100.0 * swept,
        );
    }
    println!();
    let row = |name: &str| rows.iter().find(|row| row.name.starts_with(name));
    let Some(one) = row("all pairs, 1 per class") else { return };
    let all = |row: &RowCost| row.full_work.iter().sum::<f64>();
    for other in [row("all pairs, 25 per class"), row("all pairs, 1 to 50 per class")].into_iter().flatten() {
        println!(
            "- Full, {}: {:.2} times the time of 1 per class, for {:.2} times the work. {}",
            other.name,
            other.full_ms / one.full_ms,
            all(other) / all(one),
            if all(other) == all(one) {
                "The work is equal, so the difference is due to the machine."
            } else if other.full_work[2] > 0.0 {
                "Bounds that do not meet take more rounds, and the residual capacity between them needs a sweep."
            } else {
                "Its bounds need more visits."
            },
        );
    }
    for row in rows {
        let visits: f64 = row.change_work[..3].iter().sum();
        if row.name.starts_with("all pairs") {
            println!(
                "- One change, {}: {:.0} % of the visits are for bounds, {:.0} % follow factors and {:.0} % are sweeps.",
                row.name,
                100.0 * row.change_work[0] / visits,
                100.0 * row.change_work[1] / visits,
                100.0 * row.change_work[2] / visits,
            );
        }
    }
}

fn rates(hierarchy: &HierarchicalMaxMin, ids: &[ClassId]) -> Vec<f64> {
    ids.iter().map(|&id| hierarchy.rate(id)).collect()
}

/// Runs the rows whose names contain one of the arguments, and the comparison with bottlenecks if one is
/// `bottlenecks`. Without arguments, runs everything.
fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut rows = Vec::new();
    let mut row = |name: &str, classes: &dyn Fn() -> Vec<FlowClass>| {
        if is_wanted(name) {
            rows.push(run_row(name, &classes()));
        }
    };
    println!("{REPORT_HEAD}");
    println!(
        "| Flows | Classes | Full | Range, ms | Within 100 ms | Bounds meet | Reference solver | One change | Full again | Change / full again | Below 1 % | Rates changed | Max difference |"
    );
    println!("|---|--:|--:|--:|---|---|--:|--:|--:|--:|---|--:|--:|");
    row("all pairs, 1 per class", &|| all_pairs_classes(|| 1));
    row("all pairs, 25 per class (130 million)", &|| all_pairs_classes(|| 25));
    row("10^4", &|| random_classes(10_000, false));
    row("10^4, half with low demand", &|| random_classes(10_000, true));
    row("10^5", &|| random_classes(100_000, false));
    row("10^5, half with low demand", &|| random_classes(100_000, true));
    row("10^6", &|| random_classes(1_000_000, false));
    row("10^6, half with low demand", &|| random_classes(1_000_000, true));
    row("10^7", &|| random_classes(10_000_000, false));
    row("10^7, half with low demand", &|| random_classes(10_000_000, true));
    row("all pairs, 1 to 50 per class", &|| {
        let mut rng = Rng(5);
        all_pairs_classes(|| 1 + rng.next_below(50) as u32)
    });
    print_cost_breakdown(&rows);
    if is_wanted("bottlenecks") {
        println!("{BOTTLENECKS_HEAD}");
        println!(
            "| Flows | Classes | Distance of the bounds, mean | P99 | Distance from the middle, mean | P99 | Total |"
        );
        println!("|---|--:|--:|--:|--:|--:|--:|");
        for (name, flows) in [("10^4", 10_000), ("10^5", 100_000)] {
            print_bottleneck_comparison(name, &random_classes(flows, false));
            print_bottleneck_comparison(
                &format!("{name}, half with low demand"),
                &random_classes(flows, true),
            );
        }
    }
}
