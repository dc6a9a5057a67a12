//! Eq. 2 at one port (Saba, EuroSys '23, section 5.1) for increasing numbers of applications. All models
//! differ.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use weir_core::solve::SeparableSolver;
use weir_core::solve::polynomial::{Degree, Polynomial, fit_polynomial};
use weir_core::solve::separable::SeparableProblem;

struct Rng(u64);

impl Rng {
    /// A number from 0 to 1.
    fn next_unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Model of a profiled job with measurement noise. It computes for 1 and communicates for up to 8, partly
/// overlapped.
fn profiled_model(rng: &mut Rng, degree: Degree) -> Polynomial {
    let (network, overlap) = (0.05 + 8.0 * rng.next_unit(), rng.next_unit());
    let time = |b: f64| 1f64.max(network * overlap / b) + network * (1.0 - overlap) / b;
    let samples: Vec<_> = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]
        .iter()
        .map(|&b| (b, (0.97 + 0.06 * rng.next_unit()) * time(b) / time(1.0)))
        .collect();
    fit_polynomial(&samples, degree).expect("seven samples determine a cubic").polynomial
}

fn bench_port(c: &mut Criterion) {
    let mut group = c.benchmark_group("saba_port");
    for apps in [2, 16, 256, 1000] {
        let mut rng = Rng(1);
        let costs: Vec<Polynomial> = (0..apps).map(|_| profiled_model(&mut rng, Degree::Cubic)).collect();
        let problem = SeparableProblem { costs: &costs, total: 1.0, lower: 0.1 / apps as f64, upper: 1.0 };
        let mut solver = SeparableSolver::default();
        group.bench_function(BenchmarkId::new("eq2", apps), |b| {
            b.iter(|| solver.minimize(black_box(&problem), 200));
        });
    }
    group.finish();
}

criterion_group!(benches, bench_port);
criterion_main!(benches);
