//! Services as a source of coflows: connections that send from one time to another, as fast as the policy lets them.
//!
//! [`add_demands`] turns each active interval of a [`Demand`] into an endless coflow, of which every connection is a flow. So every
//! policy, with coflows and jobs on the same links, serves services. A policy that needs sizes is given more bytes than the flows
//! can send in their time.
//!
//! NetShare's mechanisms on hosts, guarantees and connections that lose bytes have their own simulator, [`crate::service`].

use weir_core::model::scenario::{CableChange, CableEvent, Demand, Scenario, SendMode};
use weir_core::model::{CoflowSpec, FlowSpec, NodeId, ServiceNames, Workload, WorkloadChange};
use weir_core::units::{Bytes, Time};

/// The bytes of an endless flow, divided by those that it can send in its time.
const SIZE_MARGIN: f64 = 1.01;

/// The minimum bytes of an endless flow. Flows of less than a byte complete at once.
const MIN_BYTES: f64 = 1e3;

/// The reason why the demands of a scenario cannot be added to a workload.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AddDemandsError {
    /// The workload would have too many flows.
    #[error(
        "the active intervals of all demands have more than {max} connections; expected fewer (--max-flows raises this limit)"
    )]
    TooManyFlows {
        /// The limit.
        max: usize,
    },
    /// The workload would have too many applications.
    #[error("all sources together have more than {max} applications; expected fewer", max = ServiceNames::MAX_APPLICATIONS)]
    TooManyApplications,
    /// A number of a coflow is the largest possible one.
    #[error("the trace has a coflow with the number {}; expected smaller numbers", u64::MAX)]
    NumbersUsedUp,
    /// A name is not valid in a workload.
    #[error("service `{0}`: expected a name of {rule}", rule = ServiceNames::NAME_RULE)]
    InvalidName(String),
    /// Connections lose bytes on their way.
    #[error(
        "demand {0}: `unresponsive` connections lose bytes on their way, but policies set rates that arrive; expected `elastic` or \
         `capped`, or `weir share`"
    )]
    Unresponsive(usize),
    /// The scenario configures mechanisms of NetShare.
    #[error(
        "[[{0}]] configures mechanisms of NetShare, which `weir share` simulates; expected none with a policy"
    )]
    Mechanism(&'static str),
}

/// The active interval of a demand that is an endless coflow of a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActiveDemand {
    /// Position of the coflow in the workload.
    pub coflow: usize,
    /// Position of the demand in the scenario.
    pub demand: usize,
    /// Start and end of the interval.
    pub interval: (Time, Time),
}

/// Adds the demands of `scenario` to `workload`, if all its flows are then at most `max_flows`. `cable_events` are those of the replay,
/// which can have another source. Returns the added coflows.
///
/// Services keep their names and weights, and share them with those of the workload. Numbers of coflows follow the largest one. An
/// interval without any pair of hosts adds nothing.
///
/// # Errors
/// See [`AddDemandsError`]. The workload is then unchanged.
pub fn add_demands(
    workload: &mut Workload,
    scenario: &Scenario,
    cable_events: &[CableEvent],
    max_flows: usize,
) -> Result<Vec<ActiveDemand>, AddDemandsError> {
    check(scenario)?;
    let flow_count = |demand: &Demand| demand.connection_count() * demand.active_intervals.len() as u64;
    let added = scenario.demands.iter().map(flow_count).fold(0, u64::saturating_add);
    if (workload.flow_count() as u64).saturating_add(added) > max_flows as u64 {
        return Err(AddDemandsError::TooManyFlows { max: max_flows });
    }
    let last_id = workload.coflows.iter().map(|coflow| coflow.id).max();
    let mut next_id = last_id.map_or(Some(0), |id| id.checked_add(1));
    let mut names = workload.names.clone();
    let mut active_demands = Vec::new();
    let mut coflows = Vec::new();
    let host_rates = max_host_rates(scenario, cable_events, workload);
    for (position, demand) in scenario.demands.iter().enumerate() {
        let service = &scenario.services[demand.service];
        let numbers = names.intern(&service.name, ServiceNames::DEFAULT);
        let (number, application) = numbers.ok_or(AddDemandsError::TooManyApplications)?;
        names.set_weight(number, service.weight);
        for &interval in &demand.active_intervals {
            let coflow = endless_coflow(demand, interval, &host_rates);
            if coflow.flows.is_empty() {
                continue;
            }
            let id = next_id.ok_or(AddDemandsError::NumbersUsedUp)?;
            next_id = id.checked_add(1);
            let at = workload.coflows.len() + coflows.len();
            active_demands.push(ActiveDemand { coflow: at, demand: position, interval });
            let weight = service.weight;
            coflows.push(CoflowSpec { id, service: number, application, weight, ..coflow });
        }
    }
    let last_port = coflows.iter().flat_map(|coflow| &coflow.flows).map(|flow| flow.src.max(flow.dst)).max();
    workload.ports = workload.ports.max(last_port.map_or(0, |port| port + 1));
    workload.coflows.append(&mut coflows);
    workload.names = names;
    Ok(active_demands)
}

/// Checks that policies can serve the demands.
fn check(scenario: &Scenario) -> Result<(), AddDemandsError> {
    if let Some(service) = scenario.services.iter().find(|service| !ServiceNames::is_name(&service.name)) {
        return Err(AddDemandsError::InvalidName(service.name.clone()));
    }
    let is_unresponsive = |demand: &Demand| matches!(demand.send_mode, SendMode::Unresponsive(_));
    if let Some(position) = scenario.demands.iter().position(is_unresponsive) {
        return Err(AddDemandsError::Unresponsive(position + 1));
    }
    match (&scenario.guarantees[..], &scenario.ports[..]) {
        ([], []) => Ok(()),
        ([], _) => Err(AddDemandsError::Mechanism("port")),
        _ => Err(AddDemandsError::Mechanism("guarantee")),
    }
}

/// By host: the highest rate of its cable after any event, in bytes per second.
fn max_host_rates(scenario: &Scenario, cable_events: &[CableEvent], workload: &Workload) -> Vec<f64> {
    let topology = &scenario.topology;
    let mut rates: Vec<f64> = (0..topology.hosts() as u32)
        .map(|host| {
            topology.outgoing_links(NodeId(host)).iter().map(|&cable| topology.link(cable).rate.get()).sum()
        })
        .collect();
    for event in cable_events {
        let CableChange::Rate(rate) = event.change else { continue };
        let link = topology.link(event.cable);
        for NodeId(end) in [link.from, link.to] {
            if let Some(host_rate) = rates.get_mut(end as usize) {
                *host_rate = host_rate.max(rate.get());
            }
        }
    }
    let factors = workload.events.iter().map(|event| match event.change {
        WorkloadChange::PortRate { factor, .. } => factor,
        WorkloadChange::RestartFlow { .. } | WorkloadChange::DelayFlow { .. } => 1.0,
    });
    let factor = factors.fold(1.0, f64::max);
    rates.iter().map(|rate| rate * factor).collect()
}

/// A coflow without numbers, of all connections of a demand in one of its active intervals.
fn endless_coflow(demand: &Demand, (start, end): (Time, Time), host_rates: &[f64]) -> CoflowSpec {
    let max_flow_rate = match demand.send_mode {
        SendMode::Capped(rate) => Some(rate),
        SendMode::Elastic | SendMode::Unresponsive(_) => None,
    };
    let seconds = end.get() - start.get();
    let bytes = |src: u32, dst: u32| {
        let rate = host_rates[src as usize].min(host_rates[dst as usize]);
        let rate = max_flow_rate.map_or(rate, |limit| limit.get().min(rate));
        Bytes::new((rate * seconds * SIZE_MARGIN).max(MIN_BYTES))
            .expect("rates and scenarios have upper limits")
    };
    let pairs = demand.sources.iter().flat_map(|&src| demand.destinations.iter().map(move |&dst| (src, dst)));
    let flows = pairs.filter(|(src, dst)| src != dst).flat_map(|(NodeId(src), NodeId(dst))| {
        let flow = FlowSpec::new(src, dst, bytes(src, dst));
        (0..demand.connections).map(move |_| flow)
    });
    CoflowSpec {
        max_transfer_time: Some(Time::new(seconds).expect("an interval ends after its start")),
        max_flow_rate,
        is_endless: true,
        ..CoflowSpec::new(0, start, flows.collect())
    }
}
