//! Draws the bandwidth of links over time.
//!
//! Every link has one of its samples while a bandwidth holds, and then another. Without correlation, all samples are equally
//! likely, independent of the one before. With correlation, ranks follow an autoregressive process of order 1: z' = c z +
//! sqrt(1 - c^2) e with normal z and e; the sample is the quantile at the normal distribution's value of z. All samples remain
//! equally likely, and one number determines for how long a link stays fast or slow. (Resampling blocks of the measurements
//! would need measurements in the order of time, at equal distances.) Links are independent of each other.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use weir_core::model::WideArea;

/// The most changes of a run.
const MAX_CHANGES: u64 = 1_000_000;

/// The bandwidths of all links, from time 0 on.
pub struct Bandwidth<'a> {
    area: &'a WideArea,
    chance: ChaCha8Rng,
    /// One of a normal distribution for each link.
    normal: Vec<f64>,
    rates: Vec<f64>,
    changes: u64,
    steady: bool,
}

impl<'a> Bandwidth<'a> {
    /// The bandwidths given by a seed.
    pub fn new(area: &'a WideArea, seed: u64) -> Bandwidth<'a> {
        let mut bandwidth = Bandwidth {
            area,
            chance: ChaCha8Rng::seed_from_u64(seed),
            normal: vec![0.0; area.links()],
            rates: vec![0.0; area.links()],
            changes: 0,
            steady: !area.is_variable(),
        };
        bandwidth.draw(0.0);
        bandwidth
    }

    /// The present bandwidth of each link, in bytes per second; above 0.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// The time of the next change, in seconds; infinite if bandwidth is constant.
    pub fn next_change(&self) -> f64 {
        if self.steady {
            f64::INFINITY
        } else {
            (self.changes + 1) as f64 * self.area.change_interval().get()
        }
    }

    /// Changes the bandwidths.
    ///
    /// # Errors
    /// The maximum number of changes, if this change exceeds it.
    pub fn apply_change(&mut self) -> Result<(), u64> {
        self.changes += 1;
        if self.changes > MAX_CHANGES {
            return Err(MAX_CHANGES);
        }
        self.draw(self.area.correlation());
        Ok(())
    }

    fn draw(&mut self, correlation: f64) {
        let new = libm::sqrt(1.0 - correlation * correlation);
        for (link, (normal, rate)) in (0..).zip(self.normal.iter_mut().zip(&mut self.rates)) {
            *normal = correlation * *normal + new * standard(&mut self.chance);
            let below = 0.5 * libm::erfc(-*normal / std::f64::consts::SQRT_2);
            let samples = self.area.samples(link);
            *rate = samples[((below * samples.len() as f64) as usize).min(samples.len() - 1)].get();
        }
    }
}

/// One of a normal distribution (Box and Muller).
fn standard(chance: &mut ChaCha8Rng) -> f64 {
    let mut part = || ((chance.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (radius, angle) = (part(), part());
    libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(std::f64::consts::TAU * angle)
}
