//! Measures replays of the trace that ships with Weir, with per-flow reference code in the same run.

mod naive;

use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir_core::model::Workload;
use weir_core::policy::{self, POLICIES};
use weir_sim::{NoObserver, ReplayOptions, replay};
use weir_trace::TraceOptions;

fn read_demo_workload() -> Workload {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.txt");
    weir_trace::read(&path, &TraceOptions::default()).expect("the shipped trace is valid").workload
}

fn bench_replays(c: &mut Criterion) {
    let (workload, options) = (read_demo_workload(), ReplayOptions::default());
    let mut group = c.benchmark_group("replay");
    group.sample_size(10).throughput(Throughput::Elements(workload.flow_count() as u64));
    for entry in POLICIES {
        group.bench_function(BenchmarkId::new("weir", entry.name), |b| {
            b.iter(|| {
                let policy = policy::build(entry.name).expect("a name from the table");
                replay(&workload, policy, &options, &mut NoObserver)
                    .expect("all coflows of the shipped trace complete")
            });
        });
    }
    let port_positions = naive::port_positions(&workload);
    for rule in [naive::ReferencePolicy::Varys, naive::ReferencePolicy::Fair] {
        group.bench_function(BenchmarkId::new("per_flow", rule.name()), |b| {
            b.iter(|| naive::replay(&workload, &port_positions, rule, &options));
        });
    }
    group.finish();
}

criterion_group!(benches, bench_replays);
criterion_main!(benches);
