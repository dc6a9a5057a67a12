//! Replays of the trace that ships with Weir, with per-flow reference code in the same run.

mod naive;

use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir_core::model::Workload;
use weir_core::policy::{self, TABLE};
use weir_sim::{NoObserver, Options, replay};
use weir_trace::{Limits, TraceUnit};

fn demo() -> Workload {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.txt");
    weir_trace::read(&path, TraceUnit::MB, &Limits::default()).expect("the shipped trace is sound").workload
}

fn replays(c: &mut Criterion) {
    let (workload, options) = (demo(), Options::default());
    let mut group = c.benchmark_group("replay");
    group.sample_size(10).throughput(Throughput::Elements(workload.flows() as u64));
    for entry in TABLE {
        group.bench_function(BenchmarkId::new("weir", entry.name), |b| {
            b.iter(|| {
                let policy = policy::build(entry.name).expect("a name from the table");
                replay(&workload, policy, &options, &mut NoObserver).expect("the shipped trace ends")
            });
        });
    }
    let places = naive::places(&workload);
    for rule in [naive::Rule::Varys, naive::Rule::Fair] {
        group.bench_function(BenchmarkId::new("per_flow", rule.name()), |b| {
            b.iter(|| naive::replay(&workload, &places, rule, &options));
        });
    }
    group.finish();
}

criterion_group!(benches, replays);
criterion_main!(benches);
