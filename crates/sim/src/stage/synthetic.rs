//! The synthetic workloads of Saba's section 8.1, and where their instances are.
//!
//! The paper has 20 distinct ones that "emulate the computation and communication stages"; "the amount of computation,
//! communication, and the number of stages varies across the workloads to emulate varying degrees of bandwidth sensitivity". Each
//! server runs one workload, and the 97 instances of each are spread at random over the 1,944 servers. All else is ours:
//!
//! - *Time*: from [`SHORTEST`] to ten times that with all bandwidth, evenly on a logarithmic scale.
//! - *Communication*: moving bytes takes from 0.02 to 0.92 of that time. Workload i of n draws from the i-th of n equal parts of
//!   this range, so that all degrees of sensitivity are there.
//! - *Overlap*: what is computed meanwhile takes from nothing to twice as long as the bytes, but no more than
//!   [`MOST_BESIDE`] of all. Where it takes longer, less bandwidth does no harm at first.
//! - *Stages*: 2 to 10, with computation and communication parts that differ by up to a factor of three.
//! - *An instance* is one server's part of one job, so that 20 jobs of 97 servers run side by side. All begin together.
//! - *Weak scaling*: with the 97 servers of the study each server computes and moves what it does with the 18 of the profiler.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use weir_core::saba::Sensitivity;
use weir_core::saba::profile::{FRACTIONS, Profile};
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Bytes, Time};

use super::workload::link;
use super::{Profiled, Stage};

/// Synthetic workloads (section 8.1).
pub const WORKLOADS: usize = 20;

/// Instances of each (section 8.1).
pub const INSTANCES: usize = 97;

/// Servers of the rack that profiles them (section 8.4).
pub const PROFILER: u32 = 18;

/// The least time that a workload takes with all bandwidth, in seconds.
pub const SHORTEST: f64 = 60.0;

/// The greatest part of a workload's time that is computed while bytes move.
pub const MOST_BESIDE: f64 = 0.95;

/// A workload, in parts of its time with all bandwidth, and its stages.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// Moving bytes.
    pub moving: f64,
    /// Computing meanwhile.
    pub beside: f64,
    /// What it takes with all bandwidth, in seconds.
    pub seconds: f64,
    /// Its stages.
    pub stages: Vec<Stage>,
}

impl Synthetic {
    /// This many workloads of a seed.
    pub fn draw(seed: u64, count: usize) -> Vec<Synthetic> {
        let mut chance = Chance::new(seed, 0);
        (0..count)
            .map(|number| Synthetic::one((number as f64 + chance.part()) / count as f64, &mut chance))
            .collect()
    }

    /// A workload at this place, 0 to 1, among those that move little to those that move much.
    fn one(place: f64, chance: &mut Chance) -> Synthetic {
        let moving = 0.02 + 0.9 * place;
        let beside = (2.0 * chance.part() * moving).min(MOST_BESIDE);
        let seconds = SHORTEST * libm::pow(10.0, chance.part());
        let count = 2 + (9.0 * chance.part()) as usize;
        let computes = chance.parts(count);
        let moves = chance.parts(count);
        let compute = 1.0 - moving.max(beside);
        let time = |part: f64| Time::new(part * seconds).unwrap_or(Time::ZERO);
        let bytes = |part: f64| Bytes::new(part * seconds * link().get()).unwrap_or(Bytes::ZERO);
        let stages = computes.iter().zip(&moves).map(|(computed, moved)| Stage {
            compute: time(compute * computed),
            beside: time(beside * moved),
            bytes: bytes(moving * moved),
            patience: None,
        });
        Synthetic { moving, beside, seconds, stages: stages.collect() }
    }

    /// How many times longer it takes alone with this part of the bandwidth.
    pub fn slowdown(&self, bandwidth: f64) -> f64 {
        let compute = 1.0 - self.moving.max(self.beside);
        compute + self.beside.max(self.moving / bandwidth)
    }

    /// Profiles it in the simulator on a rack and fits a model (section 8.4).
    ///
    /// # Panics
    /// Never: a job alone on links that carry something ends, and seven slowdowns determine a cubic.
    pub fn sensitivity(&self, degree: Degree) -> Sensitivity {
        let mut job = Profiled { stages: self.stages.clone(), servers: PROFILER, rate: link() };
        let profile = Profile::of(&mut job, &FRACTIONS).expect("a job alone on links with a rate ends");
        profile
            .fit(degree)
            .expect("slowdowns at seven bandwidths determine a polynomial of degree 3")
            .sensitivity
    }
}

/// For each of so many jobs `each` of the servers, no server of two jobs of one layer; a layer is as many jobs as fit on all servers.
/// With more jobs than that servers have several.
pub fn place(seed: u64, servers: u32, jobs: usize, each: usize) -> Vec<Vec<u32>> {
    let mut placed = Vec::with_capacity(jobs);
    let layer = (servers as usize / each).max(1);
    for number in 0..jobs.div_ceil(layer) {
        let mut chance = Chance::new(seed, 1 + number as u64);
        let mut all: Vec<u32> = (0..servers).collect();
        for place in 0..all.len() {
            let other = place + chance.below(all.len() - place);
            all.swap(place, other);
        }
        for of_job in all.chunks_exact(each.min(all.len())).take(layer.min(jobs - placed.len())) {
            let mut of_job = of_job.to_vec();
            of_job.sort_unstable();
            placed.push(of_job);
        }
    }
    placed
}

struct Chance(ChaCha8Rng);

impl Chance {
    fn new(seed: u64, stream: u64) -> Chance {
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        chance.set_stream(stream);
        Chance(chance)
    }

    /// A number from 0 up to 1.
    fn part(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// So many parts of one, of which none is more than three times another.
    fn parts(&mut self, count: usize) -> Vec<f64> {
        let parts: Vec<f64> = (0..count).map(|_| 0.5 + self.part()).collect();
        let all: f64 = parts.iter().sum();
        parts.into_iter().map(|part| part / all).collect()
    }
}
