//! The requested workload: coflows, their flows, and changes of the fabric.
//!
//! Traces are read into a [`Workload`], and the simulator replays it. Readers of traces check their input;
//! [`Workload::check`] repeats the checks for workloads that are built in code.

use std::collections::BTreeMap;

use super::service_names::ServiceNames;
use crate::units::{Bytes, Rate, Time};

/// A replayable set of coflows on a fabric of `ports` ports, with events.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Number of ports. Ports are numbered from 0; each sends and receives.
    pub ports: u32,
    /// Coflows in the order of the trace; endless ones last. Ids are distinct.
    pub coflows: Vec<CoflowSpec>,
    /// Events in the order of time.
    pub events: Vec<TimedEvent>,
    /// Names of services and applications.
    pub names: ServiceNames,
}

/// A coflow: flows that are useful only when all of them have completed.
#[derive(Debug, Clone, PartialEq)]
pub struct CoflowSpec {
    /// Number of the coflow in the trace.
    pub id: u64,
    /// Time of arrival. With parents, the earliest time of arrival.
    pub arrival: Time,
    /// Weight for weighted policies; finite and above zero, 1 by default.
    pub weight: f64,
    /// Time from the release to the deadline, if the coflow has a deadline.
    pub deadline: Option<Time>,
    /// Service of the coflow, as a number of [`Workload::names`].
    pub service: u32,
    /// Application of the service, as a number of [`Workload::names`].
    pub application: u32,
    /// Job (or query) of the coflow.
    pub job: Option<u64>,
    /// Stage in the job.
    pub stage: Option<u32>,
    /// Wave in the stage.
    pub wave: Option<u32>,
    /// Positions in [`Workload::coflows`] of the parents. A coflow is released after its parents have completed and
    /// computed.
    pub parents: Vec<usize>,
    /// Computing time between arrival (or the end of the parents) and release.
    pub compute_before: Time,
    /// Computing time in parallel with the flows, from the release. The children, or the end of the job, wait for it too.
    pub overlapped_compute: Time,
    /// Computing time after the last flow and the overlapped computing, before the start of the children or the end of the job.
    pub compute_after: Time,
    /// Maximum time from the release to the end of the last flow. Bytes that are not sent by then are dropped.
    pub max_transfer_time: Option<Time>,
    /// Maximum rate of each flow, on networks with trunks; one switch ignores it.
    pub max_flow_rate: Option<Rate>,
    /// Whether its flows always have more to send, until the maximum transfer time, as the connections of a service. Its sizes are
    /// then more than the network can carry in that time, and its completion is no result.
    pub is_endless: bool,
    /// Flows of the coflow; at least one.
    pub flows: Vec<FlowSpec>,
}

/// One transfer between two ports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowSpec {
    /// Sending port.
    pub src: u32,
    /// Receiving port. If it equals the sending port, the flow uses the port's sending and receiving side.
    pub dst: u32,
    /// Size. A flow without bytes completes at its release.
    pub bytes: Bytes,
    /// Time from the release of the coflow until the data of the flow exists.
    pub data_delay: Time,
    /// The reduce task of the flow, as a number among those of its coflow at the receiving port; 0 by default. Traces do not state it,
    /// and only the policy `django` uses it.
    pub reducer: u32,
}

/// A change at a fixed time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedEvent {
    /// Time of the change.
    pub time: Time,
    /// The change.
    pub change: WorkloadChange,
}

/// A change of the fabric or of an active flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WorkloadChange {
    /// The capacity of a port becomes `factor` times the nominal capacity. 0 is a failed port, 1 a healthy one.
    PortRate {
        /// Number of the port.
        port: u32,
        /// Side of the port.
        side: PortSide,
        /// Factor of the nominal capacity; finite and not negative.
        factor: f64,
    },
    /// A flow restarts: its progress is lost. No effect on a completed or unreleased flow.
    RestartFlow {
        /// Position of the coflow in [`Workload::coflows`].
        coflow: usize,
        /// Position in [`CoflowSpec::flows`].
        flow: usize,
    },
    /// A flow has no data to send until a time. A flow without bytes completes at that time. No effect on a completed
    /// flow.
    DelayFlow {
        /// Position of the coflow in [`Workload::coflows`].
        coflow: usize,
        /// Position in [`CoflowSpec::flows`].
        flow: usize,
        /// Time at which the data exists again.
        until: Time,
    },
}

/// The sides of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortSide {
    /// The sending side.
    Send,
    /// The receiving side.
    Receive,
    /// Both sides.
    Both,
}

impl CoflowSpec {
    /// Creates a coflow with these flows and the arrival time `arrival`. All other fields have their defaults.
    pub fn new(id: u64, arrival: Time, flows: Vec<FlowSpec>) -> CoflowSpec {
        CoflowSpec {
            id,
            arrival,
            weight: 1.0,
            deadline: None,
            service: 0,
            application: 0,
            job: None,
            stage: None,
            wave: None,
            parents: Vec::new(),
            compute_before: Time::ZERO,
            overlapped_compute: Time::ZERO,
            compute_after: Time::ZERO,
            max_transfer_time: None,
            max_flow_rate: None,
            is_endless: false,
            flows,
        }
    }

    /// Bytes of all flows.
    pub fn total_bytes(&self) -> f64 {
        self.flows.iter().map(|f| f.bytes.get()).sum()
    }

    /// The start of the children if the coflow is released and its last flow ends at these times, in seconds.
    pub fn computed_at(&self, released_at: f64, end: f64) -> f64 {
        end.max(released_at + self.overlapped_compute.get()) + self.compute_after.get()
    }
}

impl FlowSpec {
    /// Creates a flow of reducer 0 whose data exists at the release of its coflow.
    pub fn new(src: u32, dst: u32, bytes: Bytes) -> FlowSpec {
        FlowSpec { src, dst, bytes, data_delay: Time::ZERO, reducer: 0 }
    }
}

/// Why a workload is invalid. Positions are positions in the lists of the workload.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// The number of ports is 0 or above [`Workload::MAX_PORTS`].
    #[error("fabric of {0} ports; expected 1 to {max}", max = Workload::MAX_PORTS)]
    PortCount(u32),
    /// Two coflows have the same id.
    #[error("coflow id {0} is used twice; expected distinct ids")]
    DuplicateId(u64),
    /// A coflow contains no flows.
    #[error("coflow {0} has no flows; expected at least one")]
    NoFlows(u64),
    /// A flow uses a port that the fabric does not have.
    #[error("coflow {coflow}: port {port} is out of range; expected 0 to {last_port}")]
    UnknownPort {
        /// Id of the coflow.
        coflow: u64,
        /// Number of the port.
        port: u32,
        /// The last port of the fabric.
        last_port: u32,
    },
    /// A weight is not finite or not above zero.
    #[error("coflow {coflow}: weight {weight} is invalid; expected a finite number above 0")]
    InvalidWeight {
        /// Id of the coflow.
        coflow: u64,
        /// The weight.
        weight: f64,
    },
    /// A service or application of a coflow is not in the table of names.
    #[error("coflow {0}: its service or application has no name")]
    UnknownApplication(u64),
    /// A name of a service or application is malformed.
    #[error("`{0}` is not a valid name of a service or application; expected {rule}", rule = ServiceNames::NAME_RULE)]
    InvalidName(String),
    /// An endless coflow has no maximum transfer time, or precedes one that ends.
    #[error("coflow {0} is endless; expected a maximum transfer time, and only endless coflows after it")]
    InvalidEndless(u64),
    /// A parent does not exist.
    #[error("coflow {0}: a parent is not in the workload")]
    UnknownParent(u64),
    /// Coflows depend on each other in a cycle.
    #[error("coflow {0} depends on itself through its parents; expected no cycle")]
    Cycle(u64),
    /// An event refers to a port, coflow or flow that does not exist, or has an invalid factor.
    #[error("event {0}: its port, coflow or flow is not in the workload")]
    InvalidEvent(usize),
}

impl Workload {
    /// Maximum number of ports.
    pub const MAX_PORTS: u32 = 65_536;

    /// Number of flows of all coflows.
    pub fn flow_count(&self) -> usize {
        self.coflows.iter().map(|c| c.flows.len()).sum()
    }

    /// The coflows that end by sending all their bytes.
    pub fn finite_coflows(&self) -> &[CoflowSpec] {
        &self.coflows[..self.coflows.partition_point(|coflow| !coflow.is_endless)]
    }

    /// Number of flows of the coflows that end by sending all their bytes.
    pub fn finite_flow_count(&self) -> usize {
        self.finite_coflows().iter().map(|c| c.flows.len()).sum()
    }

    /// Returns the workload with arrivals `factor` times as fast (Saath Fig. 14d), except those of endless coflows.
    ///
    /// Times of events are scaled with the arrivals. Releases of flows, computing times and deadlines keep their
    /// lengths.
    ///
    /// # Panics
    /// If `factor` is not finite and above zero.
    pub fn with_faster_arrivals(&self, factor: f64) -> Workload {
        assert!(
            factor.is_finite() && factor > 0.0,
            "arrival factor {factor} is invalid; expected a finite number above 0"
        );
        let mut faster = self.clone();
        for coflow in faster.coflows.iter_mut().filter(|coflow| !coflow.is_endless) {
            coflow.arrival = Time::from_valid(coflow.arrival.get() / factor);
        }
        for event in &mut faster.events {
            event.time = Time::from_valid(event.time.get() / factor);
            if let WorkloadChange::DelayFlow { until, .. } = &mut event.change {
                *until = Time::from_valid(until.get() / factor);
            }
        }
        faster
    }

    /// Multiplies the sizes of all flows by `factor`.
    ///
    /// # Panics
    /// If `factor` is not finite and above zero.
    pub fn scale_sizes(&mut self, factor: f64) {
        assert!(
            factor.is_finite() && factor > 0.0,
            "size factor {factor} is invalid; expected a finite number above 0"
        );
        for flow in self.coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
            flow.bytes = Bytes::from_valid(flow.bytes.get() * factor);
        }
    }

    /// Merges the coflows of each stage into one coflow (Saath 4.3).
    ///
    /// Coflows of one job, stage and wave become one coflow, with the id of the first and the parents of all. It is
    /// released when the first of them would be released. The data of the other flows exists when it would have
    /// existed without the merge; with parents, no data exists before the arrival of the last of these coflows.
    /// Coflows without a job are not changed. A stage has
    /// the latest of the limits of its transfers, if each has one. Reducers with the same number at a port become one: they are a
    /// reduce task of the stage.
    pub fn merge_stages(&self) -> Workload {
        let mut merged_positions = Vec::with_capacity(self.coflows.len());
        let mut stages = BTreeMap::new();
        let mut members: Vec<Vec<&CoflowSpec>> = Vec::new();
        let mut flows: Vec<usize> = Vec::new();
        for coflow in &self.coflows {
            let stage =
                coflow.job.map(|job| (coflow.service, coflow.application, job, coflow.stage, coflow.wave));
            let position = match stage {
                Some(stage) => *stages.entry(stage).or_insert(members.len()),
                None => members.len(),
            };
            if position == members.len() {
                members.push(Vec::new());
                flows.push(0);
            }
            merged_positions.push((position, flows[position]));
            members[position].push(coflow);
            flows[position] += coflow.flows.len();
        }
        let stage = |(position, members): (usize, &Vec<&CoflowSpec>)| {
            let mut parents: Vec<usize> =
                members.iter().flat_map(|c| &c.parents).map(|&parent| merged_positions[parent].0).collect();
            parents.retain(|&parent| parent != position);
            parents.sort_unstable();
            parents.dedup();
            merge_coflows(members, parents)
        };
        let coflows = members.iter().enumerate().map(stage).collect();
        let mut events = self.events.clone();
        for event in &mut events {
            if let WorkloadChange::RestartFlow { coflow, flow }
            | WorkloadChange::DelayFlow { coflow, flow, .. } = &mut event.change
            {
                let (position, first) = merged_positions[*coflow];
                (*coflow, *flow) = (position, *flow + first);
            }
        }
        Workload { ports: self.ports, coflows, events, names: self.names.clone() }
    }

    /// Checks that all references are valid, and that no coflow depends on itself.
    ///
    /// # Errors
    /// The first [`WorkloadError`] found.
    pub fn check(&self) -> Result<(), WorkloadError> {
        if self.ports == 0 || self.ports > Workload::MAX_PORTS {
            return Err(WorkloadError::PortCount(self.ports));
        }
        let mut ids: Vec<u64> = self.coflows.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(WorkloadError::DuplicateId(pair[0]));
        }
        if let Some(name) = self.names.first_invalid() {
            return Err(WorkloadError::InvalidName(name.to_owned()));
        }
        for coflow in &self.coflows {
            let id = coflow.id;
            if !self.names.contains(coflow.service, coflow.application) {
                return Err(WorkloadError::UnknownApplication(id));
            }
            if coflow.flows.is_empty() {
                return Err(WorkloadError::NoFlows(id));
            }
            if !(coflow.weight.is_finite() && coflow.weight > 0.0) {
                return Err(WorkloadError::InvalidWeight { coflow: id, weight: coflow.weight });
            }
            for port in coflow.flows.iter().flat_map(|f| [f.src, f.dst]) {
                if port >= self.ports {
                    return Err(WorkloadError::UnknownPort { coflow: id, port, last_port: self.ports - 1 });
                }
            }
            if coflow.parents.iter().any(|&p| p >= self.coflows.len()) {
                return Err(WorkloadError::UnknownParent(id));
            }
        }
        let is_misplaced = |pair: &&[CoflowSpec]| pair[0].is_endless && !pair[1].is_endless;
        let misplaced = self.coflows.windows(2).find(is_misplaced).map(|pair| &pair[0]);
        let is_unlimited = |coflow: &&CoflowSpec| coflow.is_endless && coflow.max_transfer_time.is_none();
        if let Some(coflow) = misplaced.or_else(|| self.coflows.iter().find(is_unlimited)) {
            return Err(WorkloadError::InvalidEndless(coflow.id));
        }
        for (position, event) in self.events.iter().enumerate() {
            let known = match event.change {
                WorkloadChange::PortRate { port, factor, .. } => {
                    port < self.ports && factor.is_finite() && factor >= 0.0
                }
                WorkloadChange::RestartFlow { coflow, flow }
                | WorkloadChange::DelayFlow { coflow, flow, .. } => {
                    self.coflows.get(coflow).is_some_and(|c| flow < c.flows.len())
                }
            };
            if !known {
                return Err(WorkloadError::InvalidEvent(position));
            }
        }
        self.check_acyclic()
    }

    /// Kahn's algorithm: a coflow whose parents never all complete is in a cycle, or depends on one.
    fn check_acyclic(&self) -> Result<(), WorkloadError> {
        let mut waiting: Vec<usize> = self.coflows.iter().map(|c| c.parents.len()).collect();
        let mut children = vec![Vec::new(); self.coflows.len()];
        for (child, coflow) in self.coflows.iter().enumerate() {
            for &parent in &coflow.parents {
                children[parent].push(child);
            }
        }
        let mut ready: Vec<usize> = (0..waiting.len()).filter(|&c| waiting[c] == 0).collect();
        while let Some(parent) = ready.pop() {
            for &child in &children[parent] {
                waiting[child] -= 1;
                if waiting[child] == 0 {
                    ready.push(child);
                }
            }
        }
        match waiting.iter().position(|&w| w > 0) {
            Some(c) => Err(WorkloadError::Cycle(self.coflows[c].id)),
            None => Ok(()),
        }
    }
}
/// Merges one or more coflows; see [`Workload::merge_stages`].
fn merge_coflows(members: &[&CoflowSpec], parents: Vec<usize>) -> CoflowSpec {
    if let [alone] = members {
        return CoflowSpec { parents, ..CoflowSpec::clone(alone) };
    }
    let last = members.iter().map(|c| c.arrival.get()).fold(0.0, f64::max);
    let arrival = |c: &CoflowSpec| if parents.is_empty() { c.arrival.get() } else { last };
    let release = |c: &CoflowSpec| arrival(c) + c.compute_before.get();
    let min_of =
        |of: &dyn Fn(&CoflowSpec) -> f64| members.iter().map(|c| of(c)).fold(f64::INFINITY, f64::min);
    let (first_arrival, first) = (min_of(&arrival), min_of(&release));
    let deadlines = members.iter().filter_map(|c| Some(release(c) + c.deadline?.get()));
    let max_since_first = |ends: &dyn Fn(&CoflowSpec) -> f64| {
        Time::from_valid(members.iter().map(|c| release(c) - first + ends(c)).fold(0.0, f64::max))
    };
    // Merged flows have one limit, so it must not end the flows of a member without a limit.
    let is_limited = members.iter().all(|c| c.max_transfer_time.is_some());
    let flows = members.iter().flat_map(|c| {
        c.flows.iter().map(|flow| FlowSpec {
            data_delay: Time::from_valid(release(c) - first + flow.data_delay.get()),
            ..*flow
        })
    });
    CoflowSpec {
        arrival: Time::from_valid(first_arrival),
        compute_before: Time::from_valid(first - first_arrival),
        overlapped_compute: match members.iter().any(|c| c.overlapped_compute != Time::ZERO) {
            true => max_since_first(&|c| c.overlapped_compute.get()),
            false => Time::ZERO,
        },
        compute_after: Time::from_valid(members.iter().map(|c| c.compute_after.get()).fold(0.0, f64::max)),
        max_transfer_time: is_limited
            .then(|| max_since_first(&|c| c.max_transfer_time.map_or(0.0, Time::get))),
        deadline: deadlines.reduce(f64::min).map(|at| Time::from_valid(at - first)),
        weight: members.iter().map(|c| c.weight).fold(members[0].weight, f64::max),
        flows: flows.collect(),
        parents,
        ..members[0].clone()
    }
}
