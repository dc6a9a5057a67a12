//! What is asked of the network: coflows, their flows, and what happens to the fabric meanwhile.
//!
//! A [`Workload`] is what a trace says and what the simulator replays; it is checked where it is read,
//! and [`Workload::check`] repeats the checks for workloads that are built in code.

use std::collections::BTreeMap;

use super::names::Names;
use crate::units::{Bytes, Time};

/// A replayable set of coflows on a fabric of `ports` ports, with events on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Ports are numbered from 0 to `ports - 1`; each sends and receives.
    pub ports: u32,
    /// In the order of the trace; ids are distinct.
    pub coflows: Vec<CoflowSpec>,
    /// In order of time.
    pub events: Vec<TimedEvent>,
    /// What the numbers of services and applications are called.
    pub names: Names,
}

/// A coflow: flows that count only when all of them are done.
#[derive(Debug, Clone, PartialEq)]
pub struct CoflowSpec {
    /// The trace's own number for it.
    pub id: u64,
    /// When it arrives. With parents, the earliest time at which it may.
    pub arrival: Time,
    /// Its importance to weighted policies; finite and above zero, 1 by default.
    pub weight: f64,
    /// How long after its release it has to be done, if it says.
    pub deadline: Option<Time>,
    /// The service that it belongs to, as a number of [`Workload::names`].
    pub service: u32,
    /// The application of that service; likewise.
    pub application: u32,
    /// The job (or query) that it belongs to.
    pub job: Option<u64>,
    /// Its stage within the job.
    pub stage: Option<u32>,
    /// Its wave within the stage.
    pub wave: Option<u32>,
    /// Positions in [`Workload::coflows`] of the coflows that must end, and compute, before it is released.
    pub parents: Vec<usize>,
    /// Computing between its arrival (or its parents' end) and its release.
    pub compute_before: Time,
    /// Computing between its last flow's end and its children's start or its job's end.
    pub compute_after: Time,
    /// At least one.
    pub flows: Vec<FlowSpec>,
}

/// One transfer between two ports.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowSpec {
    /// Sending port.
    pub src: u32,
    /// Receiving port. A flow whose ends are one port crosses that port's sending and its receiving side.
    pub dst: u32,
    /// A flow without bytes ends when it is released.
    pub bytes: Bytes,
    /// How long after its coflow's release its data exists.
    pub release: Time,
}

/// Something that happens at a time of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedEvent {
    /// When.
    pub at: Time,
    /// What.
    pub what: Change,
}

/// What can happen to the fabric and to flows under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// A port's capacity becomes `factor` times its nominal one: 0 is a failure, 1 is health.
    PortRate {
        /// The port.
        port: u32,
        /// Which of its sides.
        side: Side,
        /// Finite and not negative.
        factor: f64,
    },
    /// A flow starts anew: what it sent is lost. Without effect on a flow that has ended or not begun.
    Restart {
        /// Position of its coflow in [`Workload::coflows`].
        coflow: usize,
        /// Position in [`CoflowSpec::flows`].
        flow: usize,
    },
    /// A flow has no data to send until a time; without bytes, it ends then. Without effect on a flow that has ended.
    Late {
        /// Position of its coflow in [`Workload::coflows`].
        coflow: usize,
        /// Position in [`CoflowSpec::flows`].
        flow: usize,
        /// When its data is there.
        until: Time,
    },
}

/// The sides of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where its flows leave.
    Send,
    /// Where they arrive.
    Receive,
    /// The two of them.
    Both,
}

impl CoflowSpec {
    /// A coflow of these flows that arrives at `arrival` and has nothing special about it.
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
            compute_after: Time::ZERO,
            flows,
        }
    }

    /// The bytes of all its flows.
    pub fn bytes(&self) -> f64 {
        self.flows.iter().map(|f| f.bytes.get()).sum()
    }
}

impl FlowSpec {
    /// A flow whose data is there when its coflow is.
    pub fn new(src: u32, dst: u32, bytes: Bytes) -> FlowSpec {
        FlowSpec { src, dst, bytes, release: Time::ZERO }
    }
}

/// What is wrong with a workload; positions are those in its lists.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// There are no ports, or more than [`Workload::MAX_PORTS`].
    #[error("a fabric of {0} ports: expected 1 to {max}", max = Workload::MAX_PORTS)]
    Ports(u32),
    /// Two coflows have one id.
    #[error("coflow id {0} is used twice: expected distinct ids")]
    DuplicateId(u64),
    /// A coflow has no flows.
    #[error("coflow {0} has no flows: expected at least one")]
    Empty(u64),
    /// A flow or an event names a port that the fabric does not have.
    #[error("coflow {coflow} names port {port}: expected 0 to {last}")]
    Port {
        /// The coflow's id.
        coflow: u64,
        /// The port.
        port: u32,
        /// The last port of the fabric.
        last: u32,
    },
    /// A weight that is not above zero.
    #[error("coflow {coflow} has weight {weight}: expected a finite number above 0")]
    Weight {
        /// The coflow's id.
        coflow: u64,
        /// The weight.
        weight: f64,
    },
    /// A service or application that the table of names does not have.
    #[error("coflow {0} belongs to a service or application without a name")]
    Nameless(u64),
    /// A name that is none.
    #[error("`{0}` names a service or application: expected {rule}", rule = Names::RULE)]
    Name(String),
    /// A parent that does not exist.
    #[error("coflow {0} has a parent that is not in the workload")]
    UnknownParent(u64),
    /// Coflows that wait for each other.
    #[error("coflow {0} waits for itself through its parents: expected no cycle")]
    Cycle(u64),
    /// An event that names what is not there.
    #[error("event {0} names a port, coflow or flow that is not in the workload")]
    Event(usize),
}

impl Workload {
    /// The most ports that a fabric can have.
    pub const MAX_PORTS: u32 = 65_536;

    /// Flows of all coflows.
    pub fn flows(&self) -> usize {
        self.coflows.iter().map(|c| c.flows.len()).sum()
    }

    /// The same workload with arrivals `factor` times as fast (Saath Fig. 14d); releases, computing,
    /// deadlines and events keep their lengths, events their place among the arrivals.
    ///
    /// # Panics
    /// If `factor` is not finite and above zero.
    pub fn sped_up(&self, factor: f64) -> Workload {
        assert!(
            factor.is_finite() && factor > 0.0,
            "the factor of arrivals is {factor}: expected a finite number above 0"
        );
        let mut faster = self.clone();
        for coflow in &mut faster.coflows {
            coflow.arrival = Time::of(coflow.arrival.get() / factor);
        }
        for event in &mut faster.events {
            event.at = Time::of(event.at.get() / factor);
            if let Change::Late { until, .. } = &mut event.what {
                *until = Time::of(until.get() / factor);
            }
        }
        faster
    }

    /// One coflow for every stage (Saath 4.3): coflows of one job, stage and wave become one, which keeps the first's id and waits for all
    /// their parents. It is released when the first of them would be; the others' flows have their data when they would have had it, but
    /// where there are parents, nothing before the last of them has arrived. Coflows without a job stay as they are.
    pub fn per_stage(&self) -> Workload {
        let mut place = Vec::with_capacity(self.coflows.len());
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
            place.push((position, flows[position]));
            members[position].push(coflow);
            flows[position] += coflow.flows.len();
        }
        let stage = |(position, members): (usize, &Vec<&CoflowSpec>)| {
            let mut parents: Vec<usize> =
                members.iter().flat_map(|c| &c.parents).map(|&parent| place[parent].0).collect();
            parents.retain(|&parent| parent != position);
            parents.sort_unstable();
            parents.dedup();
            merged(members, parents)
        };
        let coflows = members.iter().enumerate().map(stage).collect();
        let mut events = self.events.clone();
        for event in &mut events {
            if let Change::Restart { coflow, flow } | Change::Late { coflow, flow, .. } = &mut event.what {
                let (position, first) = place[*coflow];
                (*coflow, *flow) = (position, *flow + first);
            }
        }
        Workload { ports: self.ports, coflows, events, names: self.names.clone() }
    }

    /// Whether everything in it refers to something in it, and nothing waits for itself.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn check(&self) -> Result<(), WorkloadError> {
        if self.ports == 0 || self.ports > Workload::MAX_PORTS {
            return Err(WorkloadError::Ports(self.ports));
        }
        let mut ids: Vec<u64> = self.coflows.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(WorkloadError::DuplicateId(pair[0]));
        }
        if let Some(name) = self.names.wrong() {
            return Err(WorkloadError::Name(name.to_owned()));
        }
        for coflow in &self.coflows {
            let id = coflow.id;
            if !self.names.has(coflow.service, coflow.application) {
                return Err(WorkloadError::Nameless(id));
            }
            if coflow.flows.is_empty() {
                return Err(WorkloadError::Empty(id));
            }
            if !(coflow.weight.is_finite() && coflow.weight > 0.0) {
                return Err(WorkloadError::Weight { coflow: id, weight: coflow.weight });
            }
            for port in coflow.flows.iter().flat_map(|f| [f.src, f.dst]) {
                if port >= self.ports {
                    return Err(WorkloadError::Port { coflow: id, port, last: self.ports - 1 });
                }
            }
            if coflow.parents.iter().any(|&p| p >= self.coflows.len()) {
                return Err(WorkloadError::UnknownParent(id));
            }
        }
        for (position, event) in self.events.iter().enumerate() {
            let known = match event.what {
                Change::PortRate { port, factor, .. } => {
                    port < self.ports && factor.is_finite() && factor >= 0.0
                }
                Change::Restart { coflow, flow } | Change::Late { coflow, flow, .. } => {
                    self.coflows.get(coflow).is_some_and(|c| flow < c.flows.len())
                }
            };
            if !known {
                return Err(WorkloadError::Event(position));
            }
        }
        self.check_acyclic()
    }

    /// Kahn's algorithm: what is never freed of its parents waits for itself.
    fn check_acyclic(&self) -> Result<(), WorkloadError> {
        let mut waiting: Vec<usize> = self.coflows.iter().map(|c| c.parents.len()).collect();
        let mut children = vec![Vec::new(); self.coflows.len()];
        for (child, coflow) in self.coflows.iter().enumerate() {
            for &parent in &coflow.parents {
                children[parent].push(child);
            }
        }
        let mut free: Vec<usize> = (0..waiting.len()).filter(|&c| waiting[c] == 0).collect();
        while let Some(parent) = free.pop() {
            for &child in &children[parent] {
                waiting[child] -= 1;
                if waiting[child] == 0 {
                    free.push(child);
                }
            }
        }
        match waiting.iter().position(|&w| w > 0) {
            Some(c) => Err(WorkloadError::Cycle(self.coflows[c].id)),
            None => Ok(()),
        }
    }
}
/// One coflow of some, at least one; see [`Workload::per_stage`].
fn merged(members: &[&CoflowSpec], parents: Vec<usize>) -> CoflowSpec {
    if let [alone] = members {
        return CoflowSpec { parents, ..CoflowSpec::clone(alone) };
    }
    let last = members.iter().map(|c| c.arrival.get()).fold(0.0, f64::max);
    let arrival = |c: &CoflowSpec| if parents.is_empty() { c.arrival.get() } else { last };
    let release = |c: &CoflowSpec| arrival(c) + c.compute_before.get();
    let least = |of: &dyn Fn(&CoflowSpec) -> f64| members.iter().map(|c| of(c)).fold(f64::INFINITY, f64::min);
    let (first_arrival, first) = (least(&arrival), least(&release));
    let deadlines = members.iter().filter_map(|c| Some(release(c) + c.deadline?.get()));
    let flows = members.iter().flat_map(|c| {
        c.flows
            .iter()
            .map(|flow| FlowSpec { release: Time::of(release(c) - first + flow.release.get()), ..*flow })
    });
    CoflowSpec {
        arrival: Time::of(first_arrival),
        compute_before: Time::of(first - first_arrival),
        compute_after: Time::of(members.iter().map(|c| c.compute_after.get()).fold(0.0, f64::max)),
        deadline: deadlines.reduce(f64::min).map(|at| Time::of(at - first)),
        weight: members.iter().map(|c| c.weight).fold(members[0].weight, f64::max),
        flows: flows.collect(),
        parents,
        ..members[0].clone()
    }
}
