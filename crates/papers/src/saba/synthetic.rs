//! The synthetic workloads of section 8.1, and the servers of their instances.
//!
//! The paper has 20 distinct workloads that "emulate the computation and communication stages"; "the amount of computation,
//! communication, and the number of stages varies across the workloads to emulate varying degrees of bandwidth sensitivity". Each
//! server runs one workload, and the 97 instances of each are spread at random over the 1,944 servers. Choices that the paper
//! leaves open:
//!
//! - *Time*: from [`MIN`] to ten times that with all bandwidth, evenly on a logarithmic scale.
//! - *Communication*: transfers take from 0.02 to 0.92 of that time. Workload i of n draws from the i-th of n equal parts of
//!   this range, so that the workloads cover all degrees of sensitivity.
//! - *Overlap*: computation during the transfers takes up to twice as long as the transfers, and at most [`MAX_OVERLAP`] of
//!   the time. If it takes longer than the transfers, a small loss of bandwidth does no harm.
//! - *Stages*: 2 to 10, with computation and communication parts that differ by up to a factor of three.
//! - *An instance* is one server's part of one job, so 20 jobs of 97 servers run concurrently. All start at once.
//! - *Weak scaling*: with the 97 servers of the study each server computes and transfers as much as with the 18 of the profiler.

use weir_core::saba::Sensitivity;
use weir_core::saba::profile::{FRACTIONS, Profile};
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Bytes, Time};
use weir_sim::stage::workload::link;
use weir_sim::stage::{Profiled, Stage};

use super::random::Rng;

/// Synthetic workloads (section 8.1).
pub const WORKLOADS: usize = 20;

/// Instances of each (section 8.1).
pub const INSTANCES: usize = 97;

/// Servers of the rack that profiles them (section 8.4).
pub const PROFILER: u32 = 18;

/// The minimum time of a workload with all bandwidth, in seconds.
pub const MIN: f64 = 60.0;

/// The maximum computation during transfers, as a fraction of a workload's time with all bandwidth.
pub const MAX_OVERLAP: f64 = 0.95;

/// A workload, in fractions of its time with all bandwidth, and its stages.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// Transfers.
    pub moving: f64,
    /// Computation during the transfers.
    pub beside: f64,
    /// Its time with all bandwidth, in seconds.
    pub seconds: f64,
    /// Its stages.
    pub stages: Vec<Stage>,
}

impl Synthetic {
    /// Draws `count` workloads of a seed.
    pub fn draw(seed: u64, count: usize) -> Vec<Synthetic> {
        let mut rng = Rng::new(seed, 0);
        (0..count)
            .map(|number| Synthetic::one((number as f64 + rng.fraction()) / count as f64, &mut rng))
            .collect()
    }

    /// Draws the workload at this position, from 0 (few transfers) to 1 (many).
    fn one(position: f64, rng: &mut Rng) -> Synthetic {
        let moving = 0.02 + 0.9 * position;
        let beside = (2.0 * rng.fraction() * moving).min(MAX_OVERLAP);
        let seconds = MIN * libm::pow(10.0, rng.fraction());
        let count = 2 + (9.0 * rng.fraction()) as usize;
        let computes = fractions(rng, count);
        let moves = fractions(rng, count);
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

    /// Its slowdown alone with this fraction of the bandwidth.
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

/// Places each of `jobs` jobs on `each` random servers. Jobs share servers only if there are more jobs than fit on all servers next to
/// each other.
pub fn place(seed: u64, servers: usize, jobs: usize, each: usize) -> Vec<Vec<u32>> {
    let mut placed = Vec::with_capacity(jobs);
    let layer = (servers / each).max(1);
    for number in 0..jobs.div_ceil(layer) {
        let all = Rng::new(seed, 1 + number as u64).sample(servers, servers);
        for of_job in all.chunks_exact(each.min(all.len())).take(layer.min(jobs - placed.len())) {
            let mut of_job = of_job.to_vec();
            of_job.sort_unstable();
            placed.push(of_job);
        }
    }
    placed
}

/// `count` fractions that sum to 1; none is more than three times another.
fn fractions(rng: &mut Rng, count: usize) -> Vec<f64> {
    let parts: Vec<f64> = (0..count).map(|_| 0.5 + rng.fraction()).collect();
    let all: f64 = parts.iter().sum();
    parts.into_iter().map(|part| part / all).collect()
}
