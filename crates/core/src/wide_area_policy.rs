//! Policies of the table ([`crate::policy::POLICIES`]) for the relays between regions, which serve coflows in an order that stays until
//! coflows arrive or complete.

use crate::allocation::Allocation;
use crate::model::{BandwidthHistory, CoflowSpec, Fabric, FlowSpec, Network, Slot, Trunks};
use crate::policy::policy_table::build_from;
use crate::policy::{self, AnyPolicy, DecidedBy, Event, LinkService, Params, ParamsError, PolicyObject};
use crate::units::{Bytes, Time};
use crate::wide_area::{ServiceOrder, WaitingCoflow};

/// The mechanisms that are combined with a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mechanisms {
    /// Detours relieve bottlenecks ([`detour`](crate::wide_area::detour)).
    pub detours: bool,
    /// Inside a coflow the largest flow group is served first ([`flow_groups`](crate::wide_area::flow_groups)).
    pub largest_group_first: bool,
}

/// A policy that relays can enforce, and its mechanisms.
///
/// A policy has no clock and no randomness except its seed: the same calls in the same order return the same results.
pub struct WideAreaPolicy {
    policy: Box<dyn PolicyObject>,
    /// Its mechanisms.
    pub mechanisms: Mechanisms,
    /// The links, with their bandwidth at the first decision, and the coflows of the last one.
    network: Option<Network>,
}

impl WideAreaPolicy {
    /// Builds the policy that `spec` describes: that of the table with this specification, and the parameters of the mechanisms.
    ///
    /// # Errors
    /// For an unknown name, parameter or value, and for a policy that relays cannot enforce. The error lists the valid ones.
    pub fn new(spec: &str) -> Result<WideAreaPolicy, ParamsError> {
        let mut params = Params::parse(spec)?;
        let known = || {
            let names = policy::all().map(|entry| entry.name);
            names.filter(|name| enforceable_service(name).is_some()).collect::<Vec<_>>().join(", ")
        };
        let name = params.name().to_owned();
        let Some(service) = enforceable_service(&name) else {
            return Err(match policy::all().any(|entry| entry.name == name) {
                false => ParamsError::UnknownPolicy { name, known: known() },
                true => ParamsError::Unsuitable {
                    name,
                    purpose: "order coflows for relays, since its decisions change while bytes move",
                    expected: format!("one of {}", known()),
                },
            });
        };
        let detours = params.take_switch("detours", false)?;
        // If all flows share, there are no turns inside a coflow either.
        let largest_group_first = service == LinkService::InOrder && params.take_switch("groups", false)?;
        let AnyPolicy::Policy(policy) = build_from(params, spec)? else { unreachable!("it has a service") };
        let mechanisms = Mechanisms { detours, largest_group_first };
        Ok(WideAreaPolicy { policy, mechanisms, network: None })
    }

    /// The order of service from now on. Called when a coflow arrives or ends. `waiting` is in the order of arrival.
    ///
    /// For the policy, all coflows of the last decision complete, and those of this one arrive, with the bytes that remain.
    pub fn decide_order(&mut self, waiting: &[WaitingCoflow], past: &BandwidthHistory) -> ServiceOrder {
        if self.policy.link_service() == LinkService::MaxMin {
            return ServiceOrder::MaxMin;
        }
        let kind = self.policy.common_rate_kind();
        // One network, since policies keep state about coflows and links.
        let network = self.network.get_or_insert_with(|| {
            let mut trunks = Trunks::between_measured_regions(past);
            let fabric = Fabric::from_port_rates(trunks.port_rates()).with_trunks(&mut trunks);
            Network::new(fabric, Some(trunks), kind)
        });
        for slot in network.active_coflows().to_vec() {
            self.policy.on_event(Event::CoflowCompleted(slot), network, 0.0);
            network.remove_coflow(slot);
        }
        network.set_link_history(past);
        let mut release = |coflow: &WaitingCoflow| -> Slot {
            let spec = to_spec(coflow, past);
            network.set_released_count(coflow.seq);
            let slot = network.insert_coflow(&spec, 0, 0.0, kind);
            (0..spec.flows.len() as u32).for_each(|flow| network.set_flow_live(slot, flow, 0.0));
            self.policy.on_event(Event::CoflowReleased(slot), network, 0.0);
            slot
        };
        let slots: Vec<Slot> = waiting.iter().map(&mut release).collect();
        network.update_progress(0.0);
        let mut decided = Allocation::default();
        decided.start_decision(network.slots());
        self.policy.decide(DecidedBy::Coordinator, network, 0.0, &mut decided);
        let mut order: Vec<usize> = (0..waiting.len()).collect();
        order.sort_by_key(|&at| decided.serving_position(slots[at]).unwrap_or(u32::MAX));
        ServiceOrder::InOrder(order)
    }
}

/// What links need of the policy with this name, if relays can give it.
fn enforceable_service(name: &str) -> Option<LinkService> {
    match policy::build(name) {
        Ok(AnyPolicy::Policy(policy)) => {
            Some(policy.link_service()).filter(|service| *service != LinkService::Decisions)
        }
        Ok(AnyPolicy::Tree(_)) | Err(_) => None,
    }
}

/// A coflow with one flow for each link that its bytes cross. Each region has one port.
fn to_spec(coflow: &WaitingCoflow, past: &BandwidthHistory) -> CoflowSpec {
    let flow = |&(link, bytes): &(u32, f64)| {
        let (from, to) = past.link_ends(link);
        let bytes = Bytes::new(bytes).expect("remaining bytes are finite and above 0");
        FlowSpec::new(from as u32, to as u32, bytes)
    };
    CoflowSpec::new(coflow.seq, Time::ZERO, coflow.remaining_bytes.iter().map(flow).collect())
}
