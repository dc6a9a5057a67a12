//! A decision of Siphon (ATC '18, section 3.1.3) from scratch: an order of coflows over the six links between
//! three regions, by number of coflows, depth and samples. Compares simulating every round with closing
//! branches early.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use weir_core::model::BandwidthHistory;
use weir_core::solve::montecarlo::{Objective, SearchCoflow, SearchParams, search_order};

#[path = "../tests/all/cases.rs"]
mod cases;

fn first_coflow(history: &BandwidthHistory, coflows: &[Vec<(u32, f64)>], params: &SearchParams) -> usize {
    let coflows: Vec<SearchCoflow<'_>> =
        coflows.iter().zip(0..).map(|(left, key)| SearchCoflow { key, remaining_bytes: left }).collect();
    search_order(history, &coflows, params, |_| false).order[0]
}

fn bench_decisions(c: &mut Criterion) {
    let history = cases::history_of_three_regions(100);
    let mut group = c.benchmark_group("siphon_decision");
    for (coflows, depth, samples) in [
        (2, 3, 1000),
        (5, 3, 1000),
        (10, 1, 1000),
        (10, 2, 1000),
        (10, 3, 1000),
        (10, 4, 1000),
        (10, 3, 100),
        (50, 3, 1000),
    ] {
        let waiting = cases::random_coflows(1, coflows, 6);
        for (name, confidence) in [("all_rounds", 1.0), ("closing", 0.95)] {
            let params = SearchParams {
                depth,
                breadth: 10,
                objective: Objective::MostWins,
                max_rounds: samples,
                confidence,
                seed: 1,
                threads: 1,
            };
            let id = BenchmarkId::new(name, format!("{coflows}_coflows_d={depth}_{samples}_samples"));
            group.bench_function(id, |b| b.iter(|| first_coflow(black_box(&history), &waiting, &params)));
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = bench_decisions
}
criterion_main!(benches);
