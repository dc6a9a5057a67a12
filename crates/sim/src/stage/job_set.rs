//! Jobs placed on a network with paths: run one at a time, and all together.

use weir_core::model::topology::{NodeId, Topology};
use weir_core::units::{Rate, Time};

use super::Stage;
use super::cluster::{self, ClusterError, Placed};
use super::fabric::{Fabric, Paths};
use super::sharing::{Sharing, even_cutoffs};

/// Jobs and the network that they are placed on.
#[derive(Debug, Clone)]
pub struct JobSet<'a> {
    topology: &'a Topology,
    paths: Paths,
    jobs: Vec<Placed>,
    fabric: Fabric,
}

/// How long jobs took.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    /// The duration of each job, in seconds.
    pub seconds: Vec<f64>,
    /// How often rates were computed.
    pub solutions: u64,
    /// How often the computed rates had not settled ([`weir_core::solve::Lockstep`]).
    pub unsettled: u64,
}

impl<'a> JobSet<'a> {
    /// Places jobs on the hosts of `topology`.
    ///
    /// # Errors
    /// As of [`Fabric::new`].
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

    /// Runs the job at position `job` from time 0 with the network to itself, on the paths that it has next to the others.
    ///
    /// # Errors
    /// As of [`cluster::run_on`].
    pub fn alone(&self, job: usize, go_on: impl FnMut(f64) -> bool) -> Result<Durations, ClusterError> {
        let alone = Placed { start: Time::ZERO, ..self.jobs[job].clone() };
        let fabric = Fabric::alone(self.topology, &alone.servers, job, self.paths)?;
        durations(&[alone], &fabric, &Sharing::Flows, go_on)
    }

    /// Runs all jobs, each from its start.
    ///
    /// # Errors
    /// As of [`cluster::run_on`].
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
pub fn slowest_host_link(topology: &Topology, hosts: impl Iterator<Item = u32>) -> Rate {
    let rates = hosts.map(|host| topology.link(topology.out(NodeId(host))[0]).rate);
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
        assert_eq!(slowest_host_link(&topology, 0..2), rate);
    }
}
