//! The max-min solver alone: flows over a fabric of 16 cores and 128 edges, with one class per flow or one
//! class per route. The textbook solver runs for comparison.

mod two_tier;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use two_tier::Instance;
use weir_core::solve::{FlowClass, max_min};

fn bench_max_min(c: &mut Criterion) {
    let mut group = c.benchmark_group("max_min");
    group.sample_size(10);
    for flows in [10_000, 100_000, 1_000_000] {
        let instance = Instance::new(flows);
        group.throughput(Throughput::Elements(flows as u64));
        let per_flow_classes: Vec<FlowClass<'_>> =
            instance.routes.iter().map(|links| FlowClass { links, flows: 1.0 }).collect();
        group.bench_function(BenchmarkId::new("per_flow", flows), |b| {
            b.iter(|| max_min(black_box(&instance.capacities), black_box(&per_flow_classes)));
        });
        let routes = instance.classes();
        let classes: Vec<FlowClass<'_>> =
            routes.iter().map(|(links, flows)| FlowClass { links, flows: *flows }).collect();
        group.bench_function(BenchmarkId::new("classes", flows), |b| {
            b.iter(|| max_min(black_box(&instance.capacities), black_box(&classes)));
        });
        if flows <= 10_000 {
            group.bench_function(BenchmarkId::new("textbook", flows), |b| {
                b.iter(|| black_box(&instance).textbook_rates());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench_max_min);
criterion_main!(benches);
