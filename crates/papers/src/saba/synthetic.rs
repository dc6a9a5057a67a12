//! Draws the synthetic workloads of section 8.1, and the servers of their instances.
//!
//! The paper has 20 distinct workloads that "emulate the computation and communication stages"; "the amount of computation,
//! communication, and the number of stages varies across the workloads to emulate varying degrees of bandwidth sensitivity". Each
//! server runs one workload, and the 97 instances of each are spread at random over the 1,944 servers. Choices that the paper
//! leaves open:
//!
//! - *Time* with all bandwidth: from [`MIN_SECONDS`] to ten times that, evenly on a logarithmic scale.
//! - *Communication*: transfers take from 0.02 to 0.92 of that time. Workload i of n draws from the i-th of n equal parts of
//!   this range, so that the workloads cover all degrees of sensitivity.
//! - *Overlap*: computation during the transfers takes up to twice as long as the transfers, and at most [`MAX_OVERLAP`] of
//!   the time. If it takes longer than the transfers, a small loss of bandwidth does not slow the workload down.
//! - *Stages*: 2 to 10, with computation and communication parts that differ by up to a factor of three.
//! - *An instance* is one server's part of one job, so 20 jobs of 97 servers run concurrently. All start at once.
//! - *Weak scaling*: with the 97 servers of the study each server computes and transfers as much as with the 18 of the profiler.

use weir_core::model::Stage;
use weir_core::saba::Sensitivity;
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Bytes, Time};
use weir_sim::jobs;
use weir_sim::jobs::workload::testbed_link_rate;

use super::random::StreamRng;

/// The number of synthetic workloads (section 8.1).
pub const WORKLOADS: usize = 20;

/// The number of instances of each workload (section 8.1).
pub const INSTANCES: usize = 97;

/// The minimum time of a workload with all bandwidth, in seconds.
pub const MIN_SECONDS: f64 = 60.0;

/// The maximum computation during transfers, as a fraction of a workload's time with all bandwidth.
pub const MAX_OVERLAP: f64 = 0.95;

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub struct SyntheticWorkload {
    /// The time of its transfers, as a fraction of `seconds`.
    pub transfer_fraction: f64,
    /// The time of its computation during transfers, as a fraction of `seconds`.
    pub overlap_fraction: f64,
    /// Its time with all bandwidth, in seconds.
    pub seconds: f64,
    /// Its stages.
    pub stages: Vec<Stage>,
}

impl SyntheticWorkload {
    /// Draws `count` workloads of a seed.
    pub fn draw(seed: u64, count: usize) -> Vec<SyntheticWorkload> {
        let mut rng = StreamRng::new(seed, 0);
        (0..count)
            .map(|number| {
                SyntheticWorkload::draw_one((number as f64 + rng.fraction()) / count as f64, &mut rng)
            })
            .collect()
    }

    /// Draws the workload at this position, from 0 (few transfers) to 1 (many).
    fn draw_one(position: f64, rng: &mut StreamRng) -> SyntheticWorkload {
        let transfer = 0.02 + 0.9 * position;
        let overlap = (2.0 * rng.fraction() * transfer).min(MAX_OVERLAP);
        let seconds = MIN_SECONDS * libm::pow(10.0, rng.fraction());
        let count = 2 + (9.0 * rng.fraction()) as usize;
        let compute_parts = random_parts_of_one(rng, count);
        let transfer_parts = random_parts_of_one(rng, count);
        let compute = 1.0 - transfer.max(overlap);
        let time = |part: f64| Time::new(part * seconds).unwrap_or(Time::ZERO);
        let bytes = |part: f64| Bytes::new(part * seconds * testbed_link_rate().get()).unwrap_or(Bytes::ZERO);
        let stages = compute_parts.iter().zip(&transfer_parts).map(|(compute_part, transfer_part)| Stage {
            compute: time(compute * compute_part),
            overlapped_compute: time(overlap * transfer_part),
            bytes: bytes(transfer * transfer_part),
            max_transfer_time: None,
        });
        SyntheticWorkload {
            transfer_fraction: transfer,
            overlap_fraction: overlap,
            seconds,
            stages: stages.collect(),
        }
    }

    /// Its slowdown alone with this fraction of the bandwidth.
    pub fn slowdown(&self, bandwidth: f64) -> f64 {
        let compute = 1.0 - self.transfer_fraction.max(self.overlap_fraction);
        compute + self.overlap_fraction.max(self.transfer_fraction / bandwidth)
    }

    /// Profiles the workload, and fits a model (section 8.4).
    ///
    /// # Panics
    /// Never: a job alone on links with a positive rate ends, and seven slowdowns determine a cubic.
    pub fn sensitivity(&self, degree: Degree) -> Sensitivity {
        let profile =
            jobs::profile(&self.stages, testbed_link_rate()).expect("a job alone on links with a rate ends");
        profile
            .fit(degree)
            .expect("slowdowns at seven bandwidths determine a polynomial of degree 3")
            .sensitivity
    }
}

/// Places each of `jobs` jobs on `servers_per_job` random servers. Jobs share servers only if the jobs need more servers than there
/// are.
pub fn place_jobs(seed: u64, servers: usize, jobs: usize, servers_per_job: usize) -> Vec<Vec<u32>> {
    let mut placed = Vec::with_capacity(jobs);
    let jobs_per_layer = (servers / servers_per_job).max(1);
    for number in 0..jobs.div_ceil(jobs_per_layer) {
        let all = StreamRng::new(seed, 1 + number as u64).sample(servers, servers);
        for servers_of_job in
            all.chunks_exact(servers_per_job.min(all.len())).take(jobs_per_layer.min(jobs - placed.len()))
        {
            let mut servers_of_job = servers_of_job.to_vec();
            servers_of_job.sort_unstable();
            placed.push(servers_of_job);
        }
    }
    placed
}

/// `count` fractions that sum to 1; none is more than three times another.
fn random_parts_of_one(rng: &mut StreamRng, count: usize) -> Vec<f64> {
    let parts: Vec<f64> = (0..count).map(|_| 0.5 + rng.fraction()).collect();
    let all: f64 = parts.iter().sum();
    parts.into_iter().map(|part| part / all).collect()
}
