//! Places jobs on a network with paths, and runs them one at a time or all together.

use weir_core::model::topology::{NodeId, Topology};
use weir_core::saba::Sensitivity;
use weir_core::saba::profile::{FRACTIONS, Profile, ProfileError};
use weir_core::solve::polynomial::{Degree, PolynomialError};
use weir_core::units::{Rate, Time};

use super::cluster::{self, ClusterError, Placed};
use super::fabric::{Fabric, Paths};
use super::sharing::{Sharing, even_cutoffs};
use super::workload::{NODES, Workload};
use super::{Profiled, Stage};

/// The work of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Work<'a> {
    /// These stages, independent of the data and the hosts.
    Stages(Vec<Stage>),
    /// A workload of Table 1, scaled to the data, the number of hosts and the rate of their links.
    Workload(&'a Workload),
}

impl Work<'_> {
    fn stages(&self, data: f64, nodes: f64, rate: Rate) -> Vec<Stage> {
        match self {
            Work::Stages(stages) => stages.clone(),
            Work::Workload(workload) => workload.stages_at(data, nodes, rate),
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
    pub data: f64,
    /// Its start.
    pub start: Time,
    /// The model that Saba uses for it; `None` if it is not compliant.
    pub model: Option<Model>,
}

/// The sensitivity model of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// The given model at this index.
    Given(usize),
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
pub fn place(
    topology: &Topology,
    works: &[Work<'_>],
    jobs: &[Job],
    given: &[Sensitivity],
    degree: Degree,
) -> Result<(Vec<Placed>, Vec<Sensitivity>), ModelError> {
    let slowest = slowest_host_link(topology, jobs.iter().flat_map(|job| &job.servers));
    let mut models = given.to_vec();
    let mut profiled: Vec<usize> = Vec::new();
    let mut placed = Vec::with_capacity(jobs.len());
    for job in jobs {
        let model = match job.model {
            Some(Model::Given(position)) => Some(position),
            Some(Model::Profiled(work)) => {
                let known = profiled.iter().position(|&other| other == work);
                if known.is_none() {
                    let stages = works[work].stages(1.0, 1.0, slowest);
                    let mut job = Profiled { stages, servers: NODES, rate: slowest };
                    models.push(Profile::of(&mut job, &FRACTIONS)?.fit(degree)?.sensitivity);
                    profiled.push(work);
                }
                Some(known.map_or(models.len() - 1, |position| given.len() + position))
            }
            None => None,
        };
        let rate = slowest_host_link(topology, &job.servers);
        let nodes = job.servers.len() as f64 / f64::from(NODES);
        let stages = works[job.work].stages(job.data, nodes, rate);
        placed.push(Placed { stages, servers: job.servers.clone(), model, start: job.start });
    }
    Ok((placed, models))
}

/// Jobs and the network that they are placed on.
#[derive(Debug, Clone)]
pub struct JobSet<'a> {
    topology: &'a Topology,
    paths: Paths,
    jobs: Vec<Placed>,
    fabric: Fabric,
}

/// The durations of jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    /// The duration of each job, in seconds.
    pub seconds: Vec<f64>,
    /// Number of computations of rates.
    pub solutions: u64,
    /// Number of these whose rates had not settled ([`weir_core::solve::Lockstep`]).
    pub unsettled: u64,
}

impl<'a> JobSet<'a> {
    /// Places jobs on the hosts of `topology`.
    ///
    /// # Errors
    /// As for [`Fabric::new`].
    pub fn new(topology: &'a Topology, jobs: Vec<Placed>, paths: Paths) -> Result<JobSet<'a>, ClusterError> {
        let servers: Vec<Vec<u32>> = jobs.iter().map(|job| job.servers.clone()).collect();
        let fabric = Fabric::new(topology, &servers, paths)?;
        Ok(JobSet { topology, paths, jobs, fabric })
    }

    /// The jobs, in the given order.
    pub fn jobs(&self) -> &[Placed] {
        &self.jobs
    }

    /// See [`Fabric::links`].
    pub fn links(&self) -> (usize, usize) {
        self.fabric.links()
    }

    /// See [`even_cutoffs`]: the sizes at which `levels` priorities end, in bytes.
    pub fn cutoffs(&self, levels: u32) -> Vec<f64> {
        let jobs: Vec<(&[Stage], usize)> =
            self.jobs.iter().map(|job| (job.stages.as_slice(), job.servers.len())).collect();
        even_cutoffs(&jobs, levels)
    }

    /// Runs the job at index `job` alone from time 0, on the paths that it uses together with the others.
    ///
    /// # Errors
    /// As for [`cluster::run_on`].
    pub fn alone(&self, job: usize, go_on: impl FnMut(f64) -> bool) -> Result<Durations, ClusterError> {
        let alone = Placed { start: Time::ZERO, ..self.jobs[job].clone() };
        let fabric = Fabric::alone(self.topology, &alone.servers, job, self.paths)?;
        durations(&[alone], &fabric, &Sharing::Flows, go_on)
    }

    /// Runs all jobs, each from its start.
    ///
    /// # Errors
    /// As for [`cluster::run_on`].
    pub fn together(
        &self,
        sharing: &Sharing,
        go_on: impl FnMut(f64) -> bool,
    ) -> Result<Durations, ClusterError> {
        durations(&self.jobs, &self.fabric, sharing, go_on)
    }
}

fn durations(
    jobs: &[Placed],
    fabric: &Fabric,
    sharing: &Sharing,
    go_on: impl FnMut(f64) -> bool,
) -> Result<Durations, ClusterError> {
    let ended = cluster::run_on(jobs, fabric, sharing, go_on)?;
    let seconds = ended.ends.iter().zip(jobs).map(|(end, job)| end.get() - job.start.get()).collect();
    Ok(Durations { seconds, solutions: ended.solutions, unsettled: ended.unsettled })
}

/// The rate of the slowest link out of these hosts; zero for no hosts.
fn slowest_host_link<'a>(topology: &Topology, hosts: impl IntoIterator<Item = &'a u32>) -> Rate {
    let rates = hosts.into_iter().map(|&host| topology.link(topology.out(NodeId(host))[0]).rate);
    rates.min_by(|a, b| a.get().total_cmp(&b.get())).unwrap_or(Rate::ZERO)
}

#[cfg(test)]
mod tests {
    use weir_core::model::Plan;
    use weir_core::units::Bytes;

    use super::*;

    #[test]
    fn two_jobs_on_the_same_hosts_take_twice_as_long() {
        let rate = Rate::new(100.0).unwrap();
        let topology = Plan::BigSwitch { hosts: 2, rate }.build().unwrap();
        let bytes = Bytes::new(1000.0).unwrap();
        let stage = Stage { compute: Time::ZERO, beside: Time::ZERO, bytes, patience: None };
        let job =
            Placed { stages: vec![stage], servers: vec![0, 1], model: None, start: Time::new(5.0).unwrap() };
        let jobs = JobSet::new(&topology, vec![job.clone(), job], Paths::Even).unwrap();
        let alone = jobs.alone(1, |_| true).unwrap().seconds[0];
        let together = jobs.together(&Sharing::Flows, |_| true).unwrap().seconds;
        assert!((alone - 10.0).abs() < 1e-9, "{alone}");
        assert!(together.iter().all(|seconds| (seconds - 20.0).abs() < 1e-6), "{together:?}");
        assert!(jobs.together(&Sharing::Flows, |_| false).is_err());
    }

    #[test]
    fn each_workload_without_a_model_is_profiled_once() {
        let topology = Plan::BigSwitch { hosts: 2, rate: Rate::new(100.0).unwrap() }.build().unwrap();
        let stage = |bytes| Stage {
            compute: Time::new(1.0).unwrap(),
            beside: Time::ZERO,
            bytes: Bytes::new(bytes).unwrap(),
            patience: None,
        };
        let works = [10.0, 1000.0].map(|bytes| Work::Stages(vec![stage(bytes)]));
        let job = |work, model| Job { work, servers: vec![0, 1], data: 1.0, start: Time::ZERO, model };
        let models = [
            Some(Model::Given(0)),
            Some(Model::Profiled(1)),
            Some(Model::Profiled(0)),
            Some(Model::Profiled(1)),
            None,
        ];
        let jobs = models.map(|model| job(1, model));
        let given = [Sensitivity::new(weir_core::solve::polynomial::Polynomial::new(&[2.0, -1.0]).unwrap())];
        let (placed, models) = place(&topology, &works, &jobs, &given, Degree::ALL[2]).unwrap();
        let positions: Vec<Option<usize>> = placed.iter().map(|job| job.model).collect();
        assert_eq!(positions, [Some(0), Some(1), Some(2), Some(1), None]);
        assert_eq!((models.len(), models[0]), (3, given[0]));
        // The work that moves more bytes is the more sensitive one.
        let quarter = weir_core::saba::Fraction::new(0.25).unwrap();
        assert!(models[1].slowdown(quarter) > models[2].slowdown(quarter));
    }
}
