//! Random coflows between three regions.
#![allow(dead_code, reason = "each test file uses its part")]

use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{BandwidthHistory, WideArea};
use weir_core::units::{Rate, Time};

/// Random numbers in [0, 1), from a linear congruential generator.
pub struct Rng(pub u64);

impl Rng {
    pub fn next_unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Three regions with `samples` samples for each link. The best rate of a link is 20 to 30 MB/s; samples fall
/// to a quarter of it.
pub fn history_of_three_regions(samples: usize) -> BandwidthHistory {
    let mut chance = Rng(7);
    let regions = ["a", "b", "c"].map(str::to_owned).to_vec();
    let mut measurements = Vec::new();
    for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let best = 20e6 + 10e6 * chance.next_unit();
        let some = |_| Rate::new(best * (0.25 + 0.75 * chance.next_unit())).expect("a rate");
        measurements.push(LinkMeasurement { from, to, samples: (0..samples).map(some).collect() });
    }
    WideArea::new(regions, measurements, Time::new(10.0).expect("a time"), 0.0)
        .expect("all links")
        .bandwidth_history()
}

/// Generates `count` coflows with up to `flows` flows over distinct links, of 1 MB to 1 GB each.
pub fn random_coflows(seed: u64, count: usize, flows: usize) -> Vec<Vec<(u32, f64)>> {
    let mut chance = Rng(seed);
    (0..count)
        .map(|_| {
            let width = 1 + (chance.next_unit() * flows as f64) as usize;
            let mut links: Vec<u32> = (0..6).collect();
            (0..width).for_each(|at| links.swap(at, at + (chance.next_unit() * (6 - at) as f64) as usize));
            links.truncate(width);
            links.sort_unstable();
            links.into_iter().map(|link| (link, 1e6 * 1000f64.powf(chance.next_unit()))).collect()
        })
        .collect()
}
