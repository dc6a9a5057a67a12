//! What links carry over time.
//!
//! Every link has one of its samples for as long as a bandwidth holds, and then another. Without correlation each is as likely as any other,
//! whatever was before. With it, ranks follow an autoregressive process of the first order: z' = c z + sqrt(1 - c^2) e with
//! normal z and e, and the sample at the share of the normal distribution below z. Each sample stays as likely as any other, and one
//! number says how long a link stays fast or slow. (Resampling blocks of the measurements instead would need them in the
//! order of time, and equally far apart.) Links do not depend on each other.

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
    /// Those of a seed.
    pub fn new(area: &'a WideArea, seed: u64) -> Bandwidth<'a> {
        let mut bandwidth = Bandwidth {
            area,
            chance: ChaCha8Rng::seed_from_u64(seed),
            normal: vec![0.0; area.links()],
            rates: vec![0.0; area.links()],
            changes: 0,
            steady: !area.changes(),
        };
        bandwidth.draw(0.0);
        bandwidth
    }

    /// What each link carries now, in bytes per second; above zero.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// When that changes, in seconds; infinite if it never does.
    pub fn next_change(&self) -> f64 {
        if self.steady { f64::INFINITY } else { (self.changes + 1) as f64 * self.area.holds().get() }
    }

    /// It changes.
    ///
    /// # Errors
    /// How often it may, if that is too often.
    pub fn change(&mut self) -> Result<(), u64> {
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
