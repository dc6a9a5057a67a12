//! Saba's calculation time (section 8.5, Fig. 12): the weights of all ports of 1,944 servers, from nothing.
//!
//! The fabric is that of section 8.1: 108 top-of-rack switches of 18 servers, 102 leaf and 54 spine switches. How they
//! are cabled is not published; here six pods of 18 racks and 17 leaves, each leaf with a link to all spines. Each
//! application has 32 instances on servers at random, and its connections may take any path between them. No two
//! applications have the same model.

use std::cell::LazyCell;
use std::hint::black_box;
use std::num::NonZeroU16;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use weir_core::saba::controller::{AppId, ConnectionId, Port, Settings};
use weir_core::saba::share::FLOOR;
use weir_core::saba::{Controller, Fraction, Sensitivity};
use weir_core::solve::Solver;
use weir_core::solve::polynomial::{Degree, Polynomial, fit};
use weir_core::solve::separable::Problem;

const SERVERS: usize = 1944;
const SERVERS_OF_RACK: usize = 18;
const RACKS_OF_POD: usize = 18;
const LEAVES_OF_POD: usize = 17;
const PODS: usize = 6;
const SPINES: usize = 54;
const RACKS: usize = RACKS_OF_POD * PODS;
const LEAVES: usize = LEAVES_OF_POD * PODS;
/// Ports of one direction; the others follow.
const PORTS: usize = SERVERS + RACKS * LEAVES_OF_POD + LEAVES * SPINES;

struct Chance(u64);

impl Chance {
    /// A number from 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A job that computes for 1 and sends for up to 8, part of that meanwhile, profiled with some noise.
fn model(chance: &mut Chance, degree: Degree) -> Polynomial {
    let (network, overlap) = (0.05 + 8.0 * chance.next(), chance.next());
    let time = |b: f64| 1f64.max(network * overlap / b) + network * (1.0 - overlap) / b;
    let samples: Vec<_> = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]
        .iter()
        .map(|&b| (b, (0.97 + 0.06 * chance.next()) * time(b) / time(1.0)))
        .collect();
    fit(&samples, degree).expect("seven samples determine a cubic").polynomial
}

/// The ports that connections between these servers may pass.
fn path(servers: &[usize]) -> Vec<Port> {
    let mut ports: Vec<usize> = servers.to_vec();
    for &server in servers {
        let rack = server / SERVERS_OF_RACK;
        ports.extend((0..LEAVES_OF_POD).map(|leaf| SERVERS + rack * LEAVES_OF_POD + leaf));
        let pod = rack / RACKS_OF_POD;
        let links = LEAVES_OF_POD * SPINES;
        ports.extend((pod * links..(pod + 1) * links).map(|link| SERVERS + RACKS * LEAVES_OF_POD + link));
    }
    ports.sort_unstable();
    ports.dedup();
    ports.iter().flat_map(|&port| [port as Port, (PORTS + port) as Port]).collect()
}

/// A controller that has yet to find any weight.
fn fabric(apps: usize, degree: Degree) -> Controller {
    let mut chance = Chance(1);
    let models = (0..apps).map(|_| Sensitivity::new(model(&mut chance, degree))).collect();
    let levels = NonZeroU16::new(16).expect("16 is not 0");
    let settings = Settings { c_saba: Fraction::ALL, floor: FLOOR, levels };
    let mut controller = Controller::central(models, settings, &[8; 2 * PORTS]).expect("8 queues are enough");
    for app in 0..apps {
        controller.register(AppId(app as u64), app).expect("each registers once");
        let servers: Vec<usize> = (0..32).map(|_| (chance.next() * SERVERS as f64) as usize).collect();
        controller
            .open(ConnectionId(app as u64), AppId(app as u64), &path(&servers))
            .expect("the ports are those of the fabric");
    }
    controller
}

fn fabrics(c: &mut Criterion) {
    let mut group = c.benchmark_group("saba_fabric");
    group.sample_size(10);
    for apps in [250, 1000] {
        for degree in Degree::ALL {
            let controller = LazyCell::new(|| fabric(apps, degree));
            let name = BenchmarkId::new(format!("{apps}_applications"), format!("k={}", degree as usize));
            group.bench_function(name, |b| {
                b.iter_batched_ref(
                    || Controller::clone(&controller),
                    |c| black_box(c.update()),
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

fn ports(c: &mut Criterion) {
    let mut group = c.benchmark_group("saba_port");
    for apps in [2, 16, 256, 1000] {
        let mut chance = Chance(1);
        let costs: Vec<Polynomial> = (0..apps).map(|_| model(&mut chance, Degree::Three)).collect();
        let problem = Problem { costs: &costs, total: 1.0, lower: 0.1 / apps as f64, upper: 1.0 };
        let mut solver = Solver::default();
        group.bench_function(BenchmarkId::new("eq2", apps), |b| {
            b.iter(|| solver.minimise(black_box(&problem), 200));
        });
    }
    group.finish();
}

criterion_group!(benches, ports, fabrics);
criterion_main!(benches);
