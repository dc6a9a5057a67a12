//! Weighted queues on a leaf-spine fabric of 512 hosts, 32 leaves and 8 spines with 2:1 oversubscription.
//! Compares one queue per link, eight queues with the same weights everywhere (NetShare), and eight queues
//! with weights per port (Saba). A class is a number of flows between two hosts.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir_core::model::{NodeId, Routes, TopologyTemplate};
use weir_core::solve::wfq::{FlowCounts, Queue, QueuedClass, Source, WfqSolver};

/// The queues, and the path and the number of flows of each class.
struct Instance {
    queues: Vec<Queue>,
    classes: Vec<(Vec<u32>, f64)>,
}

impl Instance {
    fn new(routes: &mut Routes, per_link: u32, weights_per_port: bool, classes: u64) -> Instance {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let links = routes.topology().links().len() as u32;
        let queues = (0..links * per_link)
            .map(|queue| {
                let weight_of_queue = f64::from(queue % per_link + 1);
                let weight = if weights_per_port { 1.0 + below(16) as f64 } else { weight_of_queue };
                Queue { link: queue / per_link, weight }
            })
            .collect();
        let hosts = routes.topology().hosts() as u64;
        let mut path = Vec::new();
        let classes = (0..classes)
            .map(|flow| {
                let from = below(hosts);
                let to = (from + 1 + below(hosts - 1)) % hosts;
                assert!(routes.compute_path(NodeId(from as u32), NodeId(to as u32), flow, &mut path));
                let queue = below(u64::from(per_link)) as u32;
                (path.iter().map(|link| link.0 * per_link + queue).collect(), 1.0 + below(4) as f64)
            })
            .collect();
        Instance { queues, classes }
    }
}

fn bench_wfq(c: &mut Criterion) {
    let rate = "10Gbit".parse().expect("a rate");
    let plan = TopologyTemplate::LeafSpine { spines: 8, leaves: 32, hosts: 16, rate, oversubscription: 2.0 };
    let mut routes = Routes::new(plan.build().expect("a topology"), 1);
    let capacities = routes.capacities();
    let mut group = c.benchmark_group("wfq");
    group.sample_size(10);
    for (name, per_link, weights_per_port) in
        [("one_queue", 1, false), ("netshare", 8, false), ("saba", 8, true)]
    {
        for classes in [1_000, 10_000, 100_000] {
            let instance = Instance::new(&mut routes, per_link, weights_per_port, classes);
            let queued_classes: Vec<QueuedClass<'_>> = instance
                .classes
                .iter()
                .map(|(queues, flows)| QueuedClass {
                    queues,
                    flows: FlowCounts::Equal(*flows),
                    source: Source::Elastic,
                })
                .collect();
            let mut wfq = WfqSolver::new(&capacities, &instance.queues).expect("queues at links");
            let settled = wfq.solve(&queued_classes).expect("classes in queues");
            println!("{name}/{classes}: {settled:?}");
            group.throughput(Throughput::Elements(classes));
            group.bench_function(BenchmarkId::new(name, classes), |b| {
                b.iter(|| wfq.solve(black_box(&queued_classes)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench_wfq);
criterion_main!(benches);
