//! Measures Saba's calculation time (EuroSys '23, section 8.5, Fig. 12): the weights of all ports of 1,944
//! servers, from scratch.

use std::cell::LazyCell;
use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use weir_core::model::topology::TopologyTemplate;
use weir_core::saba::Controller;
use weir_core::solve::polynomial::Degree;
use weir_papers::saba::scenario::{self, Network};

fn bench_update(c: &mut Criterion) {
    let network = LazyCell::new(|| {
        Network::new(
            &TopologyTemplate::SabaTiers { oversubscription: 1.0 }.build().expect("the template is valid"),
        )
    });
    let mut group = c.benchmark_group("saba_fabric");
    group.sample_size(10);
    for applications in [250, 1000] {
        for degree in Degree::ALL {
            let controller = LazyCell::new(|| {
                let mut controller = scenario::controller(&network, 1, applications, degree)
                    .expect("each application registers once");
                let active = scenario::draw(1, 0, network.servers(), applications, applications);
                scenario::open_connections(&mut controller, &network, &active)
                    .expect("each application opens one connection");
                controller
            });
            let name =
                BenchmarkId::new(format!("{applications}_applications"), format!("k={}", degree as usize));
            group.bench_function(name, |b| {
                b.iter_batched_ref(
                    || Controller::clone(&controller),
                    |c| black_box(c.update_plans()),
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench_update);
criterion_main!(benches);
