//! Hierarchical max-min for 20 services over a fabric of 16 cores and 128 edges: a full solution, an update
//! after one flow arrives or ends, and the lower bounds from a reference solver in the same run.
//!
//! NetShare (3.3) claims "16 cores, 128 edge switches and 128 million flows" in less than 100 ms. Here, flows
//! of one service over one path are a class: up to 128 x 127 x 16 x 20 = 5.2 million classes.

#[path = "hierarchy/plain.rs"]
mod plain;

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use plain::{Class, between, plain};
use weir_core::solve::{ClassId, Hierarchy, Shares, Solved};

const CORES: u64 = 16;
const EDGES: u64 = 128;
const SERVICES: u64 = 20;
/// Capacity of every link: 10 Gbit/s in bytes per second.
const CAPACITY: f64 = 1.25e9;
/// Number of full solutions; the benchmark reports their median.
const REPEATS: usize = 3;
/// Targets: milliseconds for a full solution, and the duration of an update as a fraction of that.
const AIMS: (f64, f64) = (100.0, 0.01);
/// Number of single changes; the benchmark reports their mean.
const CHANGES: usize = 201;
/// Changes whose effect on rates is inspected. The number is fixed, so it does not depend on the machine's
/// speed.
const LOOKED_AT: usize = 10;
/// Relative changes of a rate below this are rounding errors.
const MOVED: f64 = 1e-12;
/// Rounds that compute the bounds of rates with bottlenecks.
const ROUNDS: usize = 31;

const HEAD: &str = "\
20 services with weights 1, 2, 4 and 8 on a fabric of 16 cores and 128 edges, 4,096 links of 10 Gbit/s. NetShare (3.3) speaks of 128
million flows in less than 100 ms. Flows of one service over one path are a class.

Two aims: all 5.2 million classes solved within 100 ms, and one change in less than 1 % of a full solution, with the same rates.

- Full: a solution from the start, the median of three and their range; the second one is after the changes, where nothing is even any more.
- One change: one flow comes or goes, the mean of up to 201.
- Rates moved: the part of all rates that such a change moves by more than 1e-12 of themselves, the mean of the first ten. 6.25 % is 1/16
  of the fabric, the links of one core switch: in a row with 6.25 %, an added flow changes every rate on these links, so the solver
  computes all their levels again. The solver keeps levels of services on links, not rates.
- Plain solver: what rates are assured, by code that sorts all limits in each of five rounds, and its time over that of the full solution.
- Differ: the largest difference of a rate after all changes from one solved from the start, as a part of it; over 1e-9 is refused.
";

const WORK: &str = "
## Where the time goes

Work is counted in classes, once for each link: what is visited to find bounds, to follow factors that move, and to sweep (all factors of the links
that flows connect to the change, found anew); what is read to find offers from parts; and what is passed to mark what may move. For a full
solution by class and link, for a change in percent of all classes at their links. A change first follows factors, and sweeps when that has
visited 0.5 %.
";

const BOTTLENECKS: &str = "
## How far rates are from bottlenecks

Random flows. Rates where every flow has a bottleneck are between bounds, here those of 31 rounds by the plain solver. By class: how far the
bounds are apart, and how far a rate is from their middle, as parts of it. Total: all rates against all middles.
";

/// SplitMix64: equal instances on every machine.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(bound)) >> 64) as u64
    }
}

fn class(service: u64, from: u64, core: u64, to: u64) -> Class {
    let links = [(from * CORES + core) as u32, (EDGES * CORES + core * EDGES + to) as u32];
    Class { service: service as usize, links, flows: 1, demand: f64::INFINITY }
}

/// Random flows between edges, over random cores, of random services. With `demands`, half of them have a
/// demand below 2 % of a link.
fn random(flows: usize, demands: bool) -> Vec<Class> {
    let mut chance = Chance(7);
    let mut keys: Vec<u64> = (0..flows)
        .map(|_| {
            let (service, from) = (chance.below(SERVICES), chance.below(EDGES));
            let to = (from + 1 + chance.below(EDGES - 1)) % EDGES;
            ((service * EDGES + from) * CORES + chance.below(CORES)) * EDGES + to
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
        if demands && chance.below(2) == 0 {
            class.demand = CAPACITY * chance.below(2000) as f64 / 1e5;
        }
        classes.push(class);
    }
    classes
}

/// Every service between all pairs of edges over all cores. `flows` gives the number of flows of each class.
fn all_pairs(mut flows: impl FnMut() -> u32) -> Vec<Class> {
    let mut classes = Vec::new();
    for service in 0..SERVICES {
        for from in 0..EDGES {
            for core in 0..CORES {
                for to in (0..EDGES).filter(|&to| to != from) {
                    classes.push(Class { flows: flows(), ..class(service, from, core, to) });
                }
            }
        }
    }
    classes
}

fn build(capacities: &[f64], weights: &[f64], classes: &[Class]) -> (Hierarchy, Vec<ClassId>) {
    let shares = Shares::weighted(weights).expect("the weights are sensible");
    let mut hierarchy = Hierarchy::new(capacities, shares).expect("the capacities are sensible");
    let add =
        |c: &Class| hierarchy.add(c.service, &c.links, c.flows, c.demand).expect("the class is sensible");
    let ids = classes.iter().map(add).collect();
    (hierarchy, ids)
}

/// CPU time of a call, in milliseconds.
fn milliseconds(call: impl FnOnce()) -> f64 {
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

/// The greatest relative difference.
fn apart(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    a.zip(b).map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() / a.abs().max(b.abs()) }).fold(0.0, f64::max)
}

/// Capacities and weights.
fn fabric() -> (Vec<f64>, Vec<f64>) {
    let weights = (0..SERVICES).map(|s| f64::from(1 << (s % 4))).collect();
    (vec![CAPACITY; (2 * CORES * EDGES) as usize], weights)
}

/// Mean and 99th percentile, in percent.
fn spread(mut parts: Vec<f64>) -> String {
    parts.sort_unstable_by(f64::total_cmp);
    let mean = parts.iter().sum::<f64>() / parts.len() as f64;
    format!("{:.2} % | {:.2} %", 100.0 * mean, 100.0 * parts[parts.len() * 99 / 100])
}

/// Prints the relative distance of the rates from rates with bottlenecks, taken as the middle between the
/// bounds.
fn compare(name: &str, classes: &[Class]) {
    let (capacities, weights) = fabric();
    let (mut hierarchy, ids) = build(&capacities, &weights, classes);
    hierarchy.solve();
    let (low, high) = between(&capacities, &weights, classes, ROUNDS);
    let (mut apart, mut differ) = (Vec::new(), Vec::new());
    let (mut total, mut of) = (0.0, 0.0);
    for (class, c) in classes.iter().enumerate() {
        let (rate, middle) = (hierarchy.rate(ids[class]), 0.5 * (low[class] + high[class]));
        total += f64::from(c.flows) * rate;
        of += f64::from(c.flows) * middle;
        if middle > 0.0 {
            apart.push((high[class] - low[class]) / middle);
            differ.push((rate - middle).abs() / middle);
        }
    }
    let more = 100.0 * (total / of - 1.0);
    println!("| {name} | {} | {} | {} | {more:+.2} % |", classes.len(), spread(apart), spread(differ));
}

fn row(name: &str, classes: &[Class]) -> Row {
    let (capacities, weights) = fabric();
    let (mut hierarchy, ids) = build(&capacities, &weights, classes);
    let mut solved = None;
    let mut times: Vec<f64> =
        (0..REPEATS).map(|_| milliseconds(|| solved = Some(hierarchy.solve_full()))).collect();
    let full = median(&mut times);
    let solved = solved.expect("it was solved");
    let reference = if classes.len() <= 10_000 {
        let mut rates = Vec::new();
        let time = milliseconds(|| rates = plain(&capacities, &weights, classes));
        for (assured, &id) in rates.into_iter().zip(&ids) {
            let rate = hierarchy.rate(id);
            assert!(rate >= assured * (1.0 - 1e-9), "{name}: {rate} of {assured} assured");
        }
        format!("{time:.0} ms, {:.0}x", time / full)
    } else {
        String::from("-")
    };
    let mut chance = Chance(11);
    let (mut spent, mut changes) = (0.0, 0);
    let mut moved = Vec::new();
    let (mut work, mut swept) = (Work::default(), 0);
    while changes < CHANGES && spent < 2_000.0 {
        let id = ids[chance.below(ids.len() as u64) as usize];
        let flows = hierarchy.flows(id);
        hierarchy.set_flows(id, if changes % 2 == 0 { flows + 1 } else { flows - flows.min(1) });
        let before = (changes < LOOKED_AT).then(|| rates(&hierarchy, &ids));
        let mut one = None;
        spent += milliseconds(|| one = Some(hierarchy.solve()));
        let one = one.expect("it was solved");
        work.add(&one);
        swept += usize::from(one.sweeps > 0);
        if let Some(before) = before {
            let after = rates(&hierarchy, &ids);
            let has_moved = |(a, b): &(&f64, &f64)| (*a - *b).abs() > MOVED * a.max(**b);
            moved.push(before.iter().zip(&after).filter(has_moved).count() as f64 / after.len() as f64);
        }
        changes += 1;
    }
    let change = spent / changes as f64;
    let live = || ids.iter().filter(|&&id| hierarchy.flows(id) > 0);
    let kept: Vec<f64> = live().map(|&id| hierarchy.rate(id)).collect();
    let mut anew = hierarchy.clone();
    let again = milliseconds(|| {
        anew.solve_full();
    });
    let differ = apart(kept.into_iter(), live().map(|&id| anew.rate(id)));
    assert!(differ < 1e-9, "{name}: after changes rates differ by {differ}");
    println!(
        "| {name} | {} | {full:.1} ms | {:.0} to {:.0} | {} | {} | {reference} | {change:.3} ms | {again:.1} ms | {:.2} % | {} | {:.2} % | {differ:.0e} |",
        classes.len(),
        times[0],
        times[REPEATS - 1],
        met(full <= AIMS.0),
        if solved.settled { "yes" } else { "no" },
        100.0 * change / again,
        met(change <= AIMS.1 * again),
        100.0 * moved.iter().sum::<f64>() / moved.len() as f64,
    );
    let mut first = Work::default();
    first.add(&solved);
    let crossings = (2 * classes.len()) as f64;
    Row {
        name: name.to_owned(),
        full,
        first: first.parts(crossings),
        change: work.parts(crossings * changes as f64),
        swept: swept as f64 / changes as f64,
    }
}

fn met(is: bool) -> &'static str {
    if is { "met" } else { "**missed**" }
}

/// Work of solutions, counted in classes visited at a link.
#[derive(Default)]
struct Work {
    bounds: u64,
    follows: u64,
    sweeps: u64,
    limits: u64,
    marks: u64,
}

impl Work {
    fn add(&mut self, solved: &Solved) {
        self.bounds += solved.bounds;
        self.follows += solved.visits - solved.bounds - solved.sweeps;
        self.sweeps += solved.sweeps;
        self.limits += solved.limits;
        self.marks += solved.marks;
    }

    /// Each counter divided by `of`.
    fn parts(&self, of: f64) -> [f64; 5] {
        [self.bounds, self.follows, self.sweeps, self.limits, self.marks].map(|count| count as f64 / of)
    }
}

/// Breakdown of a row's time.
struct Row {
    name: String,
    full: f64,
    /// For the full solution, per class and link.
    first: [f64; 5],
    /// For a change, as a fraction of all classes at their links.
    change: [f64; 5],
    /// The fraction of the changes that needed a sweep.
    swept: f64,
}

/// Prints the breakdown of the times.
fn explain(rows: &[Row]) {
    println!("{WORK}");
    println!(
        "| Flows | Full: bounds | Sweep | Limits | Marks | Change: bounds | Followed | Swept | Limits | Marks | Changes that sweep |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for Row { name, first: [bounds, _, sweep, limits, marks], change, swept, .. } in rows {
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
    let Some(one) = row("all pairs, 1 a class") else { return };
    let all = |row: &Row| row.first.iter().sum::<f64>();
    for other in [row("all pairs, 25 a class"), row("all pairs, 1 to 50 a class")].into_iter().flatten() {
        println!(
            "- Full, {}: {:.2} times as long as 1 a class, for {:.2} times as much work. {}",
            other.name,
            other.full / one.full,
            all(other) / all(one),
            if all(other) == all(one) {
                "It is the same work, so what differs is the machine's."
            } else if other.first[2] > 0.0 {
                "Bounds that do not meet take more rounds, and what is left between them a sweep."
            } else {
                "Its bounds take more visits."
            },
        );
    }
    for row in rows {
        let visits: f64 = row.change[..3].iter().sum();
        if row.name.starts_with("all pairs") {
            println!(
                "- One change, {}: of its visits {:.0} % are for bounds, {:.0} % follow factors and {:.0} % are sweeps.",
                row.name,
                100.0 * row.change[0] / visits,
                100.0 * row.change[1] / visits,
                100.0 * row.change[2] / visits,
            );
        }
    }
}

fn rates(hierarchy: &Hierarchy, ids: &[ClassId]) -> Vec<f64> {
    ids.iter().map(|&id| hierarchy.rate(id)).collect()
}

/// Runs the rows whose names contain one of the arguments, and the comparison with bottlenecks if one is
/// `bottlenecks`. Without arguments, runs everything.
fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut rows = Vec::new();
    let mut row = |name: &str, classes: &dyn Fn() -> Vec<Class>| {
        if is_wanted(name) {
            rows.push(row(name, &classes()));
        }
    };
    println!("{HEAD}");
    println!(
        "| Flows | Classes | Full | Range, ms | Within 100 ms | Bounds meet | Plain solver | One change | Full again | Change of full | Below 1 % | Rates moved | Differ |"
    );
    println!("|---|--:|--:|--:|---|---|--:|--:|--:|--:|---|--:|--:|");
    row("all pairs, 1 a class", &|| all_pairs(|| 1));
    row("all pairs, 25 a class (130 million)", &|| all_pairs(|| 25));
    row("10^4", &|| random(10_000, false));
    row("10^4, half want less", &|| random(10_000, true));
    row("10^5", &|| random(100_000, false));
    row("10^5, half want less", &|| random(100_000, true));
    row("10^6", &|| random(1_000_000, false));
    row("10^6, half want less", &|| random(1_000_000, true));
    row("10^7", &|| random(10_000_000, false));
    row("10^7, half want less", &|| random(10_000_000, true));
    row("all pairs, 1 to 50 a class", &|| {
        let mut chance = Chance(5);
        all_pairs(|| 1 + chance.below(50) as u32)
    });
    explain(&rows);
    if is_wanted("bottlenecks") {
        println!("{BOTTLENECKS}");
        println!("| Flows | Classes | Bounds apart, mean | P99 | From their middle, mean | P99 | Total |");
        println!("|---|--:|--:|--:|--:|--:|--:|");
        for (name, flows) in [("10^4", 10_000), ("10^5", 100_000)] {
            compare(name, &random(flows, false));
            compare(&format!("{name}, half want less"), &random(flows, true));
        }
    }
}
