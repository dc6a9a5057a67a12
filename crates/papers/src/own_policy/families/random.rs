//! Random numbers of generated workloads.

use std::f64::consts::TAU;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// Random numbers that are equal on every platform.
pub struct Random(ChaCha8Rng);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A uniform number above 0 and up to 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A uniform number between two.
    pub fn between(&mut self, min: f64, max: f64) -> f64 {
        min + (max - min) * self.uniform()
    }

    /// A lognormal number of mean 1. `sigma` is the deviation of its logarithm.
    pub fn lognormal(&mut self, sigma: f64) -> f64 {
        // A normal number by Box and Muller.
        let normal = (-2.0 * libm::log(self.uniform())).sqrt() * libm::cos(TAU * self.uniform());
        libm::exp(sigma * normal - sigma * sigma / 2.0)
    }

    /// Brings a list into a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (2..=list.len()).rev() {
            list.swap(end - 1, self.position(end));
        }
    }

    /// A uniform position in a list of this length, which is not empty.
    pub fn position(&mut self, length: usize) -> usize {
        ((self.uniform() * length as f64) as usize).min(length - 1)
    }
}
