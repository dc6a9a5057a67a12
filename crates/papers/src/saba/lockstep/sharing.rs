//! Rules by which jobs share links: the queues of each port and their weights, or an order of transfers.
//!
//! - [`SharingRule::PerFlow`], Saba's baseline (section 8.1): one queue a port, so all flows share max-min. The congestion
//!   control of InfiniBand approximates this sharing; here it is exact.
//! - [`SharingRule::PerApplication`], the ideal max-min fairness of section 8.4, study 4: each application has a separate
//!   queue at every port, all of equal weight.
//! - [`SharingRule::Saba`]: queues and weights from [`Controller`], which receives the starts and ends of jobs and their
//!   connections.
//! - [`SharingRule::SizePriorities`], Homa (study 5) without packets: strict priorities by the size of a flow. Homa uses
//!   the remaining bytes of a message, and keeps its receivers' links busy. Here a flow keeps its first priority, and links
//!   are always kept busy. Homa chooses the sizes at which priorities end so that each has the same number of bytes
//!   ([`equal_bytes_cutoffs`]). In the paper's setup all flows above 10 KB have the same priority. Flows here are
//!   megabytes, so that would equal the baseline.
//! - [`SharingRule::CoflowOrder`], Sincronia (study 6): BSSI orders the active transfers whenever one begins or ends. Each
//!   is a coflow of weight 1 with its remaining bytes. Strict priorities follow the order, one for each transfer.

use std::fmt::Debug;
use std::num::NonZeroU16;
use std::sync::Arc;

use weir_core::model::Stage;
use weir_core::policy::sincronia::{CoflowDemand, bssi};
use weir_core::saba::controller::{AppId, ConnectionId, ControllerError, ControllerSettings, Port};
use weir_core::saba::{Controller, Fraction, Sensitivity};
use weir_core::solve::wfq::{FlowCounts, Queue, QueuedClass, Source, WfqSolver};
use weir_core::solve::{RankedGroup, ranked_rates};

use super::PlacedJob;
use super::fabric::JobLinks;

pub use super::error::SharingError;

/// The rule by which links are shared.
#[derive(Debug, Clone)]
pub enum SharingRule {
    /// Max-min between flows.
    PerFlow,
    /// Max-min between applications.
    PerApplication,
    /// Each application has a separate queue at each port, with these weights.
    Weights(Arc<dyn PortWeights>),
    /// Saba.
    Saba(SabaParameters),
    /// Strict priorities by size. `Sizes` lists cutoffs in bytes; flows above more cutoffs have lower priority.
    SizePriorities(Vec<f64>),
    /// Strict priorities by Sincronia's order.
    CoflowOrder,
}

/// Computes the weights of jobs at ports.
pub trait PortWeights: Debug + Send + Sync {
    /// The weights of `jobs`, the indices of all jobs that use a port: one for each, in this order.
    fn weights_at_port(&self, jobs: &[usize]) -> Vec<f64>;
}

/// Saba's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct SabaParameters {
    /// The sensitivity table.
    pub models: Vec<Sensitivity>,
    /// Queues of a port: 8 in the testbed (section 8.1).
    pub queues_per_port: u16,
    /// Priority levels: 16 of InfiniBand (section 7.2).
    pub priority_levels: NonZeroU16,
    /// The fraction of each port for registered applications. Below 1, jobs without a model use the last queue of each port
    /// and the rest of its capacity.
    pub c_saba: Fraction,
    /// The minimum weight of an application, as a fraction of an even share.
    pub min_share: Fraction,
    /// The time for which connections are open.
    pub connection_lifetime: ConnectionLifetime,
    /// The kind of controller, which determines the models that are mapped to priority levels.
    pub controller_kind: ControllerKind,
}

/// The kinds of controllers of section 5.4. Weights at a port are the same; priority levels are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerKind {
    /// A central controller, which maps the models of the registered applications.
    Central,
    /// Distributed instances, each for some ports. All use the same mapping, computed in advance from the whole sensitivity
    /// table. One instance with all ports gives the same result, so there is only one.
    Distributed,
}

/// The time for which the connections of a job are open, which the paper does not state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionLifetime {
    /// From the start of a transfer to its end: a port's weights are those of the jobs that use it now.
    Transfer,
    /// During the whole job.
    Job,
}

/// The sizes at which priorities end, so that the flows of these jobs have the same number of bytes in each of `levels`. A job
/// is its stages and its number of servers.
pub fn equal_bytes_cutoffs(jobs: &[(&[Stage], usize)], levels: u32) -> Vec<f64> {
    let mut flows: Vec<(f64, f64)> = Vec::new();
    // With one server nothing is sent.
    for (stages, servers) in jobs.iter().filter(|(_, servers)| *servers > 1) {
        let others = (servers - 1) as f64;
        let moving = stages.iter().map(|stage| stage.bytes.get()).filter(|bytes| *bytes > 0.0);
        flows.extend(moving.map(|bytes| (bytes / others, bytes * *servers as f64)));
    }
    flows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = flows.iter().map(|(_, bytes)| bytes).sum();
    let mut cutoffs = Vec::new();
    let mut sum = 0.0;
    for (size, bytes) in flows {
        sum += bytes;
        if sum * f64::from(levels) >= all * (cutoffs.len() + 1) as f64 && cutoffs.len() as u32 + 1 < levels {
            cutoffs.push(size);
        }
    }
    cutoffs
}

/// The queues of all links, and the rates of jobs.
pub(super) struct Ports {
    solver: WfqSolver,
    links: JobLinks,
    /// By job: the rate of each flow.
    rates: Vec<f64>,
    /// Queues of a port.
    queues: u32,
    kind: Kind,
}

/// The jobs that use each port, and the ports where they have changed.
struct Weighted {
    weights: Arc<dyn PortWeights>,
    ports: Vec<Vec<usize>>,
    stale: Vec<Port>,
}

enum Kind {
    Flows,
    Applications,
    Weighted(Box<Weighted>),
    Saba(Box<Controller>, ConnectionLifetime),
    /// The cutoffs, and the size of the flows of each job.
    Sizes(Vec<f64>, Vec<f64>),
    /// The position of each job in the order; empty if the order has to be computed again.
    Coflows(Vec<u32>),
}

/// The transfer of a job that is in progress.
pub(super) struct Transfer {
    pub(super) job: usize,
    /// The remaining bytes of each flow.
    pub(super) remaining_bytes: f64,
}

impl Ports {
    /// The links that `jobs` cross.
    pub(super) fn new(
        jobs: &[PlacedJob],
        links: &JobLinks,
        sharing: &SharingRule,
    ) -> Result<Ports, SharingError> {
        let capacities = &links.capacities;
        let ports = 0..capacities.len() as u32;
        let one_per_job = jobs.len().max(1) as u32;
        let (queues, kind) = match sharing {
            SharingRule::PerFlow => (1, Kind::Flows),
            SharingRule::PerApplication => (one_per_job, Kind::Applications),
            SharingRule::Weights(weights) => {
                let ports = vec![Vec::new(); capacities.len()];
                let weighted = Weighted { weights: Arc::clone(weights), ports, stale: Vec::new() };
                (one_per_job, Kind::Weighted(Box::new(weighted)))
            }
            SharingRule::Saba(saba) => {
                check_models(jobs, saba)?;
                let settings = ControllerSettings {
                    c_saba: saba.c_saba,
                    min_share: saba.min_share,
                    max_levels: saba.priority_levels,
                };
                let all = vec![saba.queues_per_port; capacities.len()];
                let models = saba.models.clone();
                let controller = match saba.controller_kind {
                    ControllerKind::Central => Controller::new_central(models, settings, &all)?,
                    ControllerKind::Distributed => Controller::new_instance(
                        models,
                        settings,
                        &all,
                        &ports.clone().collect::<Vec<Port>>(),
                    )?,
                };
                (u32::from(saba.queues_per_port), Kind::Saba(Box::new(controller), saba.connection_lifetime))
            }
            SharingRule::SizePriorities(cutoffs) => (1, Kind::Sizes(cutoffs.clone(), vec![0.0; jobs.len()])),
            SharingRule::CoflowOrder => (1, Kind::Coflows(Vec::new())),
        };
        let of_port = |link| (0..queues).map(move |_| Queue { link, weight: 1.0 });
        let all: Vec<Queue> = ports.flat_map(of_port).collect();
        let solver = WfqSolver::new(capacities, &all)?;
        Ok(Ports { solver, links: links.clone(), rates: vec![0.0; jobs.len()], queues, kind })
    }

    /// The ports that a job uses.
    fn ports_of(&self, job: usize) -> Vec<Port> {
        self.links.footprints[job].iter().map(|&(link, _)| link).collect()
    }

    /// Adds a job at its start. `model` is its row in the sensitivity table; without one, the job is not registered with Saba.
    pub(super) fn add_job(&mut self, job: usize, model: Option<usize>) {
        let ports = self.ports_of(job);
        if let Kind::Saba(controller, connections) = &mut self.kind
            && let Some(model) = model
        {
            controller
                .register(AppId(job as u64), model)
                .expect("`check_models` accepted the model of the job");
            if *connections == ConnectionLifetime::Job {
                open_connection(controller, job, &ports);
            }
        }
    }

    /// Removes a job at its end.
    pub(super) fn remove_job(&mut self, job: usize) {
        if let Kind::Saba(controller, connections) = &mut self.kind
            && controller.app_level(AppId(job as u64)).is_some()
        {
            if *connections == ConnectionLifetime::Job {
                close_connection(controller, job);
            }
            controller.deregister(AppId(job as u64)).expect("the job is registered, and has no connection");
        }
    }

    /// Starts a job's transfer of flows of `size` bytes. One connection represents all flows: weights depend on the
    /// applications at a port, not on their numbers of connections.
    pub(super) fn start_transfer(&mut self, job: usize, size: f64) {
        let ports = self.ports_of(job);
        match &mut self.kind {
            Kind::Saba(controller, ConnectionLifetime::Transfer)
                if controller.app_level(AppId(job as u64)).is_some() =>
            {
                open_connection(controller, job, &ports);
            }
            Kind::Weighted(weighted) => weighted.add_job(job, &ports),
            Kind::Sizes(_, sizes) => sizes[job] = size,
            Kind::Coflows(positions) => positions.clear(),
            _ => {}
        }
    }

    /// Ends a job's transfer.
    pub(super) fn end_transfer(&mut self, job: usize) {
        let ports = self.ports_of(job);
        match &mut self.kind {
            Kind::Weighted(weighted) => weighted.remove_job(job, &ports),
            Kind::Saba(controller, ConnectionLifetime::Transfer)
                if controller.app_level(AppId(job as u64)).is_some() =>
            {
                close_connection(controller, job);
            }
            Kind::Coflows(positions) => positions.clear(),
            _ => {}
        }
    }

    /// Computes the rates of the flows of all jobs. Returns whether the rates have settled.
    pub(super) fn compute_rates(&mut self, transfers: &[Transfer]) -> bool {
        self.update_weights();
        let (rates, is_settled) = match self.kind {
            Kind::Applications | Kind::Weighted(_) | Kind::Saba(..) => self.weighted_rates(transfers),
            Kind::Flows | Kind::Sizes(..) | Kind::Coflows(_) => (self.ranked_rates(transfers), true),
        };
        for (transfer, rate) in transfers.iter().zip(rates) {
            self.rates[transfer.job] = rate;
        }
        is_settled
    }

    /// The rates of transfers in weighted queues, and whether the rates have settled.
    fn weighted_rates(&mut self, transfers: &[Transfer]) -> (Vec<f64>, bool) {
        let Ports { solver, links, queues, kind, .. } = self;
        let hops = |transfer: &Transfer| -> (Vec<u32>, Vec<f64>) {
            let footprint = links.footprints[transfer.job].iter();
            footprint.map(|&(link, flows)| (kind.queue(*queues, transfer.job, link), flows)).unzip()
        };
        let hops: Vec<(Vec<u32>, Vec<f64>)> = transfers.iter().map(hops).collect();
        let classes = hops.iter().map(|(queues, flows)| QueuedClass {
            queues,
            flows: FlowCounts::ByLink(flows),
            source: Source::Elastic,
        });
        let stats = solver
            .solve(&classes.collect::<Vec<QueuedClass<'_>>>())
            .expect("a footprint has each link once, with a number of flows above 0");
        let rates = solver.rates().iter().map(|rates| rates.delivered_rate);
        (rates.collect(), stats.residual == 0.0)
    }

    /// The rates of transfers by rank.
    fn ranked_rates(&mut self, transfers: &[Transfer]) -> Vec<f64> {
        let Ports { links, kind, .. } = self;
        if let Kind::Coflows(positions) = kind
            && positions.is_empty()
        {
            *positions = sincronia_positions(links, transfers);
        }
        let group = |transfer: &Transfer| RankedGroup {
            rank: kind.rank(transfer.job),
            links: &links.footprints[transfer.job],
        };
        ranked_rates(&links.capacities, &transfers.iter().map(group).collect::<Vec<RankedGroup<'_>>>())
    }

    /// The rate of each flow of a job in the last solution, in bytes per second.
    pub(super) fn rate(&self, job: usize) -> f64 {
        self.rates[job]
    }

    /// Updates the weights of all queues that have changed.
    fn update_weights(&mut self) {
        let Ports { solver, queues, kind, .. } = self;
        let mut set_weight = |queue: u32, weight: f64| {
            solver.set_weight(queue as usize, weight).expect("weights that divide a port are from 0 to 1");
        };
        match kind {
            Kind::Weighted(weighted) => {
                weighted.update_weights(|port, job, weight| set_weight(port * *queues + job as u32, weight));
            }
            Kind::Saba(controller, _) => {
                for port in controller.update_plans().changed_ports {
                    let Some(plan) = controller.queue_plan(port) else { continue };
                    for (queue, &weight) in (port * *queues..).zip(&plan.weights) {
                        // A queue without applications keeps its weight.
                        if weight > 0.0 {
                            set_weight(queue, weight);
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Checks that Saba has a model, or a queue, for each job.
fn check_models(jobs: &[PlacedJob], saba: &SabaParameters) -> Result<(), SharingError> {
    let rows = saba.models.len();
    for (job, placed) in jobs.iter().enumerate() {
        match placed.model {
            Some(model) if model >= rows => return Err(ControllerError::UnknownModel { model, rows }.into()),
            None if saba.c_saba == Fraction::ALL => return Err(SharingError::NoQueueForJob { job }),
            _ => {}
        }
    }
    Ok(())
}

fn open_connection(controller: &mut Controller, job: usize, ports: &[Port]) {
    controller
        .open_connection(ConnectionId(job as u64), AppId(job as u64), ports)
        .expect("the job is registered and has no connection, and each of its links is a port");
}

fn close_connection(controller: &mut Controller, job: usize) {
    controller.close_connection(ConnectionId(job as u64)).expect("the connection of the job is open");
}

impl Weighted {
    fn add_job(&mut self, job: usize, ports: &[Port]) {
        for &port in ports {
            self.ports[port as usize].push(job);
        }
        self.stale.extend(ports);
    }

    fn remove_job(&mut self, job: usize, ports: &[Port]) {
        for &port in ports {
            self.ports[port as usize].retain(|other| *other != job);
        }
        self.stale.extend(ports);
    }

    /// Computes the weights of ports whose jobs have changed, and calls `set_weight` with each port, job and weight.
    fn update_weights(&mut self, mut set_weight: impl FnMut(Port, usize, f64)) {
        self.stale.sort_unstable();
        self.stale.dedup();
        for port in self.stale.drain(..) {
            let jobs = &self.ports[port as usize];
            if jobs.is_empty() {
                continue;
            }
            for (&job, weight) in jobs.iter().zip(self.weights.weights_at_port(jobs)) {
                set_weight(port, job, weight);
            }
        }
    }
}

impl Kind {
    /// The index of a job's queue at a port, among all queues; each port has `queues`.
    fn queue(&self, queues: u32, job: usize, port: Port) -> u32 {
        let queue = match self {
            Kind::Applications | Kind::Weighted(_) => job as u32,
            Kind::Saba(controller, _) => {
                // Jobs that are not registered use the last queue, which is reserved.
                let Some(level) = controller.app_level(AppId(job as u64)) else {
                    return port * queues + queues - 1;
                };
                let queue =
                    controller.queue_plan(port).and_then(|plan| plan.queue_by_level.get(usize::from(level)));
                queue.map_or(0, |&queue| u32::from(queue))
            }
            Kind::Flows | Kind::Sizes(..) | Kind::Coflows(_) => 0,
        };
        port * queues + queue
    }

    /// The priority of a job: 0 is the highest.
    fn rank(&self, job: usize) -> u32 {
        match self {
            Kind::Sizes(cutoffs, sizes) => cutoffs.partition_point(|cutoff| *cutoff < sizes[job]) as u32,
            Kind::Coflows(positions) => positions[job],
            _ => 0,
        }
    }
}

/// The position of each job in Sincronia's order of the active transfers. O(transfers x (links + transfers)).
fn sincronia_positions(links: &JobLinks, transfers: &[Transfer]) -> Vec<u32> {
    let capacities = &links.capacities;
    let demand = |transfer: &Transfer| {
        let seconds = |&(link, flows): &(u32, f64)| {
            (link as usize, flows * transfer.remaining_bytes / capacities[link as usize])
        };
        let footprint = links.footprints[transfer.job].iter();
        CoflowDemand {
            weight: 1.0,
            link_seconds: footprint.map(seconds).filter(|(_, time)| *time > 0.0).collect(),
        }
    };
    let demands: Vec<CoflowDemand> = transfers.iter().map(demand).collect();
    let mut positions = vec![0; links.footprints.len()];
    for (position, at) in bssi(&demands, capacities.len(), |link| usize::from(link >= capacities.len() / 2))
        .into_iter()
        .enumerate()
    {
        positions[transfers[at].job] = position as u32;
    }
    positions
}
