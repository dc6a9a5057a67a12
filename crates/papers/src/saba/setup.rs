//! Draws the cluster setups of section 8.2: 16 jobs of the ten workloads on random servers.
//!
//! Choices that the paper leaves open:
//!
//! - *Distributions*: the workload, its data (0.1, 1 or 10 times the profiler's) and its number of servers (half to four times
//!   the profiler's 8) are uniform and independent.
//! - *Servers*: every set of that size is equally likely. The limit of 16 jobs per server always holds, since a setup has 16
//!   jobs.
//! - *Start*: all jobs start at once.

use crate::saba::lockstep::PlacedJob;
use weir_core::units::Time;
use weir_sim::jobs::workload::{PROFILER_NODES, Workload};

use super::random::StreamRng;

/// The number of servers of the testbed (section 8.1).
pub const SERVERS: u32 = 32;

/// The number of jobs of a cluster setup (section 8.2).
const JOBS_PER_SETUP: usize = 16;

/// The data of a job, as multiples of the profiler's.
const DATA_FACTORS: [f64; 3] = [0.1, 1.0, 10.0];

/// A job of a setup.
#[derive(Debug, Clone, PartialEq)]
pub struct SetupJob {
    /// The position of its workload among the ten.
    pub workload: usize,
    /// Its data, as a multiple of the profiler's.
    pub data_factor: f64,
    /// Its servers, in ascending order.
    pub servers: Vec<u32>,
}

impl SetupJob {
    /// The number of its servers divided by that of the profiler.
    pub fn node_factor(&self) -> f64 {
        self.servers.len() as f64 / f64::from(PROFILER_NODES)
    }

    /// The stages of the job on its servers. The sensitivity model is that of the workload.
    pub fn to_placed(&self, workloads: &[Workload]) -> PlacedJob {
        let stages = workloads[self.workload].stages(self.data_factor, self.node_factor());
        PlacedJob { stages, servers: self.servers.clone(), model: Some(self.workload), start: Time::ZERO }
    }
}

/// Setup number `index` of a seed, with `workloads` (at least one) to draw from.
pub fn draw_setup(seed: u64, index: u64, workloads: usize) -> Vec<SetupJob> {
    let mut rng = StreamRng::new(seed, index);
    let (min, max) = ((PROFILER_NODES / 2) as usize, SERVERS as usize);
    (0..JOBS_PER_SETUP)
        .map(|_| {
            let workload = rng.integer_below(workloads);
            let data = DATA_FACTORS[rng.integer_below(DATA_FACTORS.len())];
            let count = min + rng.integer_below(max - min + 1);
            let servers = rng.subset(max, count);
            SetupJob { workload, data_factor: data, servers }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::saba::lockstep::fabric::JobLinks;
    use crate::saba::lockstep::run;
    use crate::saba::lockstep::sharing::{ControllerKind, SharingRule};
    use weir_core::model::topology::TopologyTemplate;
    use weir_core::saba::Sensitivity;
    use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
    use weir_core::solve::polynomial::Degree;
    use weir_sim::NoObserver;
    use weir_sim::jobs::workload::testbed_link_rate;

    use super::super::{QUEUES, saba_sharing};
    use super::*;

    #[test]
    fn setups_follow_section_8_2_and_depend_on_seed_and_index_only() {
        for index in 0..50 {
            let drawn = draw_setup(7, index, 10);
            assert_eq!(drawn.len(), JOBS_PER_SETUP);
            for job in &drawn {
                assert!(job.workload < 10 && DATA_FACTORS.contains(&job.data_factor), "{job:?}");
                assert!((4..=32).contains(&job.servers.len()), "{job:?}");
                assert!(
                    job.servers.windows(2).all(|pair| pair[0] < pair[1])
                        && job.servers[job.servers.len() - 1] < 32
                );
            }
            assert_eq!(draw_setup(7, index, 10), drawn);
        }
        assert_ne!(draw_setup(7, 0, 10), draw_setup(7, 1, 10));
        assert_ne!(draw_setup(7, 0, 10), draw_setup(8, 0, 10));
    }

    #[test]
    fn no_job_of_a_setup_is_faster_than_alone_under_any_sharing() {
        let all = Workload::all();
        let models = all.iter().map(|w| Sensitivity::new(w.fit_model(Degree::Cubic))).collect();
        let rate = testbed_link_rate();
        let topology = TopologyTemplate::BigSwitch { hosts: SERVERS, rate }.build().unwrap();
        let saba =
            saba_sharing(models, Some(QUEUES), JOBS_PER_SETUP, DEFAULT_MIN_SHARE, ControllerKind::Central);
        for index in 0..2 {
            let jobs: Vec<PlacedJob> =
                draw_setup(3, index, all.len()).iter().map(|job| job.to_placed(&all)).collect();
            let servers: Vec<Vec<u32>> = jobs.iter().map(|job| job.servers.clone()).collect();
            let links = JobLinks::new(&topology, &servers).unwrap();
            for sharing in [&SharingRule::PerFlow, &SharingRule::PerApplication, &saba] {
                let run = || run(&jobs, &links, sharing, &mut NoObserver).unwrap();
                let ended = run();
                assert_eq!(ended, run(), "a second run differs");
                for (job, end) in jobs.iter().zip(ended.ends) {
                    let alone: f64 = job.stages.iter().map(|stage| stage.duration_alone(rate)).sum();
                    assert!(end.get() >= alone * (1.0 - 1e-9), "{end} {alone}");
                }
            }
        }
    }
}
