//! Places jobs on a network with paths, and runs them one at a time or all together.

use weir_core::model::topology::{NodeId, Topology};
use weir_core::saba::Sensitivity;
use weir_core::saba::profile::{PROFILED_FRACTIONS, Profile, ProfileError};
use weir_core::solve::polynomial::{Degree, PolynomialError};
use weir_core::units::{Rate, Time};

use super::cluster::{self, ClusterError, PlacedJob};
use super::fabric::{JobLinks, PathSelection};
use super::sharing::{SharingRule, equal_bytes_cutoffs};
use super::workload::{PROFILER_NODES, Workload};
use super::{ProfiledJob, Stage};

/// The work of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobWork<'a> {
    /// These stages, independent of the data and the hosts.
    Stages(Vec<Stage>),
    /// A workload of Table 1, scaled to the data, the number of hosts and the rate of their links.
    Workload(&'a Workload),
}

impl JobWork<'_> {
    fn stages(&self, data: f64, nodes: f64, rate: Rate) -> Vec<Stage> {
        match self {
            JobWork::Stages(stages) => stages.clone(),
            JobWork::Workload(workload) => workload.stages_at_rate(data, nodes, rate),
        }
    }
}

/// A job to place.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The index of its work.
    pub work: usize,
    /// Its hosts, each once.
    pub servers: Vec<u32>,
    /// The amount of data divided by that in the paper.
    pub data_scale: f64,
    /// Its start.
    pub start: Time,
    /// The model that Saba uses for it; `None` if it is not compliant.
    pub model: Option<ModelRef>,
}

/// The sensitivity model of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelRef {
    /// The given model at this index.
    FromTable(usize),
    /// The model that the profiler fits to the work at this index.
    Profiled(usize),
}

/// The reason why a workload has no model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// Profiling failed.
    #[error(transparent)]
    Profile(#[from] ProfileError<ClusterError>),
    /// No polynomial can be fitted.
    #[error(transparent)]
    Fit(#[from] PolynomialError),
}

/// Places jobs on the hosts of `topology`. Returns the jobs, and the models that they refer to: those of `given`, then one for
/// each profiled work. The profiler uses separate servers, whose links have the rate of the slowest host's link.
///
/// # Errors
/// If a work cannot be profiled.
pub fn place_jobs(
    topology: &Topology,
    works: &[JobWork<'_>],
    jobs: &[Job],
    given: &[Sensitivity],
    degree: Degree,
) -> Result<(Vec<PlacedJob>, Vec<Sensitivity>), ModelError> {
    let slowest = slowest_host_link(topology, jobs.iter().flat_map(|job| &job.servers));
    let mut models = given.to_vec();
    let mut profiled: Vec<usize> = Vec::new();
    let mut placed = Vec::with_capacity(jobs.len());
    for job in jobs {
        let model = match job.model {
            Some(ModelRef::FromTable(position)) => Some(position),
            Some(ModelRef::Profiled(work)) => {
                let known = profiled.iter().position(|&other| other == work);
                if known.is_none() {
                    let stages = works[work].stages(1.0, 1.0, slowest);
                    let mut job = ProfiledJob { stages, servers: PROFILER_NODES, rate: slowest };
                    models.push(Profile::measure(&mut job, &PROFILED_FRACTIONS)?.fit(degree)?.sensitivity);
                    profiled.push(work);
                }
                Some(known.map_or(models.len() - 1, |position| given.len() + position))
            }
            None => None,
        };
        let rate = slowest_host_link(topology, &job.servers);
        let nodes = job.servers.len() as f64 / f64::from(PROFILER_NODES);
        let stages = works[job.work].stages(job.data_scale, nodes, rate);
        placed.push(PlacedJob { stages, servers: job.servers.clone(), model, start: job.start });
    }
    Ok((placed, models))
}

/// Jobs and the network that they are placed on.
#[derive(Debug, Clone)]
pub struct JobSet<'a> {
    topology: &'a Topology,
    paths: PathSelection,
    jobs: Vec<PlacedJob>,
    fabric: JobLinks,
}

/// The durations of jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    /// The duration of each job, in seconds.
    pub seconds: Vec<f64>,
    /// Number of computations of rates.
    pub rate_computations: u64,
    /// Number of these whose rates had not settled ([`weir_core::solve::GroupRateSolver`]).
    pub unsettled_computations: u64,
}

impl<'a> JobSet<'a> {
    /// Places jobs on the hosts of `topology`.
    ///
    /// # Errors
    /// As for [`JobLinks::new`].
    pub fn new(
        topology: &'a Topology,
        jobs: Vec<PlacedJob>,
        paths: PathSelection,
    ) -> Result<JobSet<'a>, ClusterError> {
        let servers: Vec<Vec<u32>> = jobs.iter().map(|job| job.servers.clone()).collect();
        let fabric = JobLinks::new(topology, &servers, paths)?;
        Ok(JobSet { topology, paths, jobs, fabric })
    }

    /// The jobs, in the given order.
    pub fn jobs(&self) -> &[PlacedJob] {
        &self.jobs
    }

    /// See [`JobLinks::link_counts`].
    pub fn link_counts(&self) -> (usize, usize) {
        self.fabric.link_counts()
    }

    /// See [`equal_bytes_cutoffs`]: the sizes at which `levels` priorities end, in bytes.
    pub fn size_cutoffs(&self, levels: u32) -> Vec<f64> {
        let jobs: Vec<(&[Stage], usize)> =
            self.jobs.iter().map(|job| (job.stages.as_slice(), job.servers.len())).collect();
        equal_bytes_cutoffs(&jobs, levels)
    }

    /// Runs the job at index `job` alone from time 0, on the paths that it uses together with the others.
    ///
    /// # Errors
    /// As for [`cluster::run_on_fabric`].
    pub fn run_alone(
        &self,
        job: usize,
        should_continue: impl FnMut(f64) -> bool,
    ) -> Result<Durations, ClusterError> {
        let alone = PlacedJob { start: Time::ZERO, ..self.jobs[job].clone() };
        let fabric = JobLinks::for_one_job(self.topology, &alone.servers, job, self.paths)?;
        durations(&[alone], &fabric, &SharingRule::PerFlow, should_continue)
    }

    /// Runs all jobs, each from its start.
    ///
    /// # Errors
    /// As for [`cluster::run_on_fabric`].
    pub fn run_together(
        &self,
        sharing: &SharingRule,
        should_continue: impl FnMut(f64) -> bool,
    ) -> Result<Durations, ClusterError> {
        durations(&self.jobs, &self.fabric, sharing, should_continue)
    }
}

fn durations(
    jobs: &[PlacedJob],
    fabric: &JobLinks,
    sharing: &SharingRule,
    should_continue: impl FnMut(f64) -> bool,
) -> Result<Durations, ClusterError> {
    let ended = cluster::run_on_fabric(jobs, fabric, sharing, should_continue)?;
    let seconds = ended.ends.iter().zip(jobs).map(|(end, job)| end.get() - job.start.get()).collect();
    Ok(Durations {
        seconds,
        rate_computations: ended.rate_computations,
        unsettled_computations: ended.unsettled_computations,
    })
}

/// The rate of the slowest link out of these hosts; zero for no hosts.
fn slowest_host_link<'a>(topology: &Topology, hosts: impl IntoIterator<Item = &'a u32>) -> Rate {
    let rates = hosts.into_iter().map(|&host| topology.link(topology.outgoing_links(NodeId(host))[0]).rate);
    rates.min_by(|a, b| a.get().total_cmp(&b.get())).unwrap_or(Rate::ZERO)
}

#[cfg(test)]
mod tests {
    use weir_core::model::TopologyTemplate;
    use weir_core::units::Bytes;

    use super::*;

    #[test]
    fn two_jobs_on_the_same_hosts_take_twice_as_long() {
        let rate = Rate::new(100.0).unwrap();
        let topology = TopologyTemplate::BigSwitch { hosts: 2, rate }.build().unwrap();
        let bytes = Bytes::new(1000.0).unwrap();
        let stage =
            Stage { compute: Time::ZERO, overlapped_compute: Time::ZERO, bytes, max_transfer_time: None };
        let job = PlacedJob {
            stages: vec![stage],
            servers: vec![0, 1],
            model: None,
            start: Time::new(5.0).unwrap(),
        };
        let jobs = JobSet::new(&topology, vec![job.clone(), job], PathSelection::EvenSplit).unwrap();
        let alone = jobs.run_alone(1, |_| true).unwrap().seconds[0];
        let together = jobs.run_together(&SharingRule::PerFlow, |_| true).unwrap().seconds;
        assert!((alone - 10.0).abs() < 1e-9, "{alone}");
        assert!(together.iter().all(|seconds| (seconds - 20.0).abs() < 1e-6), "{together:?}");
        assert!(jobs.run_together(&SharingRule::PerFlow, |_| false).is_err());
    }

    #[test]
    fn each_workload_without_a_model_is_profiled_once() {
        let topology =
            TopologyTemplate::BigSwitch { hosts: 2, rate: Rate::new(100.0).unwrap() }.build().unwrap();
        let stage = |bytes| Stage {
            compute: Time::new(1.0).unwrap(),
            overlapped_compute: Time::ZERO,
            bytes: Bytes::new(bytes).unwrap(),
            max_transfer_time: None,
        };
        let works = [10.0, 1000.0].map(|bytes| JobWork::Stages(vec![stage(bytes)]));
        let job = |work, model| Job { work, servers: vec![0, 1], data_scale: 1.0, start: Time::ZERO, model };
        let models = [
            Some(ModelRef::FromTable(0)),
            Some(ModelRef::Profiled(1)),
            Some(ModelRef::Profiled(0)),
            Some(ModelRef::Profiled(1)),
            None,
        ];
        let jobs = models.map(|model| job(1, model));
        let given = [Sensitivity::new(weir_core::solve::polynomial::Polynomial::new(&[2.0, -1.0]).unwrap())];
        let (placed, models) = place_jobs(&topology, &works, &jobs, &given, Degree::ALL[2]).unwrap();
        let positions: Vec<Option<usize>> = placed.iter().map(|job| job.model).collect();
        assert_eq!(positions, [Some(0), Some(1), Some(2), Some(1), None]);
        assert_eq!((models.len(), models[0]), (3, given[0]));
        // The work that moves more bytes is the more sensitive one.
        let quarter = weir_core::saba::Fraction::new(0.25).unwrap();
        assert!(models[1].slowdown(quarter) > models[2].slowdown(quarter));
    }
}
