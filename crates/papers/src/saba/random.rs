//! Draws random numbers that depend only on a seed and the number of a stream.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// A random number generator for one stream of a seed.
pub struct StreamRng(ChaCha8Rng);

impl StreamRng {
    /// Creates the generator of stream `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> StreamRng {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        StreamRng(rng)
    }

    /// A number of at least 0 and below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An integer below `bound`.
    pub fn integer_below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// `count` distinct integers below `bound` in ascending order, or all `bound` integers if there are fewer.
    pub fn subset(&mut self, bound: usize, count: usize) -> Vec<u32> {
        let mut subset = self.sample(bound, count);
        subset.sort_unstable();
        subset
    }

    /// `count` distinct integers below `bound` in random order, or all `bound` integers if there are fewer.
    pub fn sample(&mut self, bound: usize, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..bound as u32).collect();
        for position in 0..count.min(bound) {
            let other = position + self.integer_below(bound - position);
            all.swap(position, other);
        }
        all.truncate(count);
        all
    }
}
