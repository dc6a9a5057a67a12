//! Computes the links that jobs cross on a network with paths, and the number of flows on each.
//!
//! All servers of a job send to all others, so a number of flows on each link represents the job: its footprint. Links with
//! equal capacity that all jobs cross with equal numbers of flows are merged into one, because their rates are always equal.
//! Of the 11,232 links of Saba's 1,944 servers under even paths, some hundreds remain.

use std::collections::BTreeMap;

use weir_core::model::topology::route::Routes;
use weir_core::model::topology::{NodeId, Topology};

use super::error::LockstepError;

/// The links that jobs share.
#[derive(Debug, Clone, PartialEq)]
pub struct JobLinks {
    /// Their capacities, in bytes per second.
    pub(super) capacities: Vec<f64>,
    /// For each job its links, in rising order, and its flows over each.
    pub(super) footprints: Vec<Vec<(u32, f64)>>,
    /// Number of links of the network, before merging, that some job crosses.
    crossed: usize,
}

/// The maximum of jobs times links of the network: the comparison of links needs one number for each.
pub const MAX_JOB_LINKS: u64 = 50_000_000;

/// The maximum of pairs of switches with servers times jobs.
pub const MAX_SWITCH_PAIRS: u64 = 100_000_000;

/// The maximum of pairs of switches with servers times links of the network.
pub const MAX_PAIR_LINKS: u64 = 20_000_000_000;

/// Flows are counted in these parts when links are compared.
const PARTS: f64 = 1048576.0;

impl JobLinks {
    /// The links between the servers of each job, if every switch splits its traffic evenly over the links on shortest paths.
    /// O(pairs of switches with servers x (links of their paths + jobs)).
    ///
    /// # Errors
    /// If a server does not exist, a job has it twice, or it does not have exactly one link; if the network and jobs exceed
    /// [`MAX_JOB_LINKS`], [`MAX_SWITCH_PAIRS`] or [`MAX_PAIR_LINKS`].
    pub fn new(topology: &Topology, jobs: &[Vec<u32>]) -> Result<JobLinks, LockstepError> {
        let servers = topology.hosts() as u32;
        for (job, of_job) in jobs.iter().enumerate() {
            check_servers(job, of_job, servers)?;
            if let Some(&server) = of_job.iter().find(|s| topology.outgoing_links(NodeId(**s)).len() != 1) {
                return Err(LockstepError::WrongLinkCount {
                    job,
                    server,
                    links: topology.outgoing_links(NodeId(server)).len(),
                });
            }
        }
        let job_links = jobs.len() as u64 * topology.links().len() as u64;
        check_limit("jobs times links of the network", job_links, MAX_JOB_LINKS)?;
        let mut flows = vec![vec![0.0; topology.links().len()]; jobs.len()];
        count_flows(topology, jobs, &mut flows)?;
        Ok(merge_links(topology, &flows))
    }

    /// The number of links of the network that jobs cross, and the number of links after merging.
    pub fn link_counts(&self) -> (usize, usize) {
        (self.crossed, self.capacities.len())
    }
}

/// Counts the flows of jobs on each link. Servers at one switch differ in their own links only.
fn count_flows(topology: &Topology, jobs: &[Vec<u32>], flows: &mut [Vec<f64>]) -> Result<(), LockstepError> {
    let mut routes = Routes::new(topology.clone(), 0);
    // For each switch with servers: one of them, and the number of servers of each job.
    let mut switches: BTreeMap<NodeId, (NodeId, Vec<f64>)> = BTreeMap::new();
    for (job, servers) in jobs.iter().enumerate() {
        let others = servers.len().saturating_sub(1) as f64;
        for server in servers.iter().map(|server| NodeId(*server)) {
            let link = topology.outgoing_links(server)[0];
            flows[job][link.index()] += others;
            flows[job][link.reverse().index()] += others;
            let switch = switches.entry(topology.link(link).to);
            switch.or_insert_with(|| (server, vec![0.0; jobs.len()])).1[job] += 1.0;
        }
    }
    let pairs = (switches.len() as u64).pow(2).saturating_mul(jobs.len() as u64);
    check_limit("pairs of switches with servers, times jobs", pairs, MAX_SWITCH_PAIRS)?;
    let pair_links = (switches.len() as u64).pow(2).saturating_mul(topology.links().len() as u64);
    check_limit("pairs of switches with servers, times links of the network", pair_links, MAX_PAIR_LINKS)?;
    let mut spread = Vec::new();
    for (from, (sender, here)) in &switches {
        for (_, (receiver, there)) in switches.iter().filter(|(to, _)| *to != from) {
            routes.compute_ecmp_shares(*sender, *receiver, &mut spread);
            spread.retain(|(link, _)| !topology.is_host_link(topology.link(*link)));
            for (job, flows) in flows.iter_mut().enumerate() {
                let pairs = here[job] * there[job];
                if pairs > 0.0 {
                    for &(link, share) in &spread {
                        flows[link.index()] += share * pairs;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Checks that each server of a job exists and occurs once.
fn check_servers(job: usize, of_job: &[u32], servers: u32) -> Result<(), LockstepError> {
    let mut sorted = of_job.to_vec();
    sorted.sort_unstable();
    let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    match sorted.last().copied().filter(|server| *server >= servers).or(twice) {
        Some(server) => Err(LockstepError::InvalidServer { job, server, servers }),
        None => Ok(()),
    }
}

/// Returns an error if `count` is above `max`.
fn check_limit(kind: &'static str, count: u64, max: u64) -> Result<(), LockstepError> {
    if count > max { Err(LockstepError::TooMany { kind, count, max }) } else { Ok(()) }
}

/// Merges links of equal capacity that all jobs cross with equal numbers of flows.
fn merge_links(topology: &Topology, flows: &[Vec<f64>]) -> JobLinks {
    let mut fabric =
        JobLinks { capacities: Vec::new(), footprints: vec![Vec::new(); flows.len()], crossed: 0 };
    let mut known: BTreeMap<(u64, Vec<(usize, u64)>), u32> = BTreeMap::new();
    for (number, link) in topology.links().iter().enumerate() {
        let crossing = || flows.iter().map(|flows| flows[number]).enumerate().filter(|(_, n)| *n > 0.0);
        let counts: Vec<(usize, u64)> =
            crossing().map(|(job, n)| (job, (n * PARTS).round() as u64)).collect();
        if counts.is_empty() {
            continue;
        }
        fabric.crossed += 1;
        let next = known.len() as u32;
        known.entry((link.rate.get().to_bits(), counts)).or_insert_with(|| {
            fabric.capacities.push(link.rate.get());
            for (job, n) in crossing() {
                fabric.footprints[job].push((next, n));
            }
            next
        });
    }
    fabric
}
