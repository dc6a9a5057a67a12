//! Pauses: hosts and services whose traffic is plain TCP, although the coordinator could order rates.
//!
//! - *Paused.* Schedules and the allocator leave the flows out, as flows without data, so others get their capacity. Orders give them no
//!   rates and no limits. Queues and marks stay, unless the pause of a host includes them.
//! - *Shadow.* Schedules and the allocator count the flows as always, and their rates are shown. Orders give them no rates and no limits. A
//!   host in shadow mode has no queues and no marks. The flows send as plain TCP, so the rates of others at the same links are not certain.
//!
//! A pause of a host applies to what the host sends. If several pauses apply to a flow, [`PauseMode::Paused`] is the stronger one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_proto::{OrderedRate, UdpFlow};

use super::allocator::Allocator;
use super::{ControlPlane, Flow, Host, UnknownName};

/// The effect of a pause on orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PauseMode {
    /// Rates and limits are computed and shown, and not applied. Hosts have no queues and no marks.
    Shadow,
    /// No rates and no limits. Others get the capacity.
    Paused,
}

/// The pause of a host, or of all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPause {
    /// Its mode.
    pub mode: PauseMode,
    /// Whether queues and marks end, too. Always so in shadow mode.
    pub with_queues: bool,
}

impl HostPause {
    /// Both pauses together.
    fn merge(self, other: HostPause) -> HostPause {
        HostPause { mode: self.mode.max(other.mode), with_queues: self.ends_queues() || other.ends_queues() }
    }

    /// Whether the host has no queues and no marks.
    fn ends_queues(self) -> bool {
        self.with_queues || self.mode == PauseMode::Shadow
    }
}

/// All pauses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pauses {
    /// The pause of all hosts and switches.
    pub all: Option<HostPause>,
    /// Pauses of single hosts, by number.
    pub hosts: BTreeMap<u32, HostPause>,
    /// Pauses of services, by number.
    pub services: BTreeMap<u32, PauseMode>,
}

impl Pauses {
    /// The pause that applies to a host or switch.
    pub(super) fn merged_pause(&self, number: u32) -> Option<HostPause> {
        match (self.all, self.hosts.get(&number).copied()) {
            (Some(all), Some(host)) => Some(all.merge(host)),
            (all, host) => all.or(host),
        }
    }

    /// The mode that applies to traffic of a host and a service. `service` is none if the service is unknown.
    pub(super) fn traffic_mode(&self, host: u32, service: Option<u32>) -> Option<PauseMode> {
        let host_mode = self.merged_pause(host).map(|pause| pause.mode);
        host_mode.max(service.and_then(|service| self.services.get(&service).copied()))
    }
}

/// The mode that applies to UDP that a host sends. Its class names a service only if the allocator knows the classes of services.
pub(super) fn pause_of_udp(
    pauses: &Pauses,
    allocator: Option<&Allocator>,
    host: u32,
    flow: UdpFlow,
) -> Option<PauseMode> {
    let service = allocator.and_then(|allocator| allocator.service_of_class(flow.mark.get()));
    pauses.traffic_mode(host, service)
}

impl Host {
    /// The mode that applies to the host.
    pub(super) fn pause_mode(&self) -> Option<PauseMode> {
        self.pause.map(|pause| pause.mode)
    }

    /// Whether the agent has no queues and no marks.
    pub(super) fn is_without_queues(&self) -> bool {
        self.pause.is_some_and(HostPause::ends_queues)
    }
}

impl Flow {
    /// Whether the schedule leaves the flow out.
    pub(super) fn is_left_out(&self) -> bool {
        self.is_cut_off || self.pause == Some(PauseMode::Paused)
    }

    /// The rate for orders, where the schedule has `scheduled`. A flow in shadow mode keeps that rate for display.
    pub(super) fn apply_pause(&mut self, scheduled: Option<OrderedRate>) -> Option<OrderedRate> {
        self.shadow_rate = scheduled.filter(|_| self.pause == Some(PauseMode::Shadow));
        match self.pause {
            Some(_) => scheduled.map(|_| OrderedRate::Unlimited),
            None => scheduled,
        }
    }
}

impl ControlPlane {
    /// Replaces all pauses. Orders of the next schedule apply them, and are full orders where the pause of a host has changed.
    pub fn set_pauses(&mut self, pauses: Pauses, now: f64) {
        if self.pauses == pauses {
            return;
        }
        self.advance_to(now);
        self.pauses = pauses;
        for number in 0..self.hosts.len() as u32 {
            let (pause, host) = (self.pauses.merged_pause(number), &mut self.hosts[number as usize]);
            if std::mem::replace(&mut host.pause, pause) == pause {
                continue;
            }
            host.orders.needs_full_order = true;
            if pause.is_some() {
                self.drop_bandwidth_limit(number);
            }
            self.restart_matching_of(number);
        }
        self.pause_flows();
        self.restart_allocation();
        self.has_changed_flows = true;
    }

    /// Sets the mode of each flow, and lets the engine leave out those that are paused.
    fn pause_flows(&mut self) {
        let mut changed = Vec::new();
        for coflow in self.coflows.values_mut() {
            let service = UnknownName::check_service(&self.names, &coflow.registration.service).ok();
            for flow in &mut coflow.flows {
                let src = flow.transfer.src;
                flow.pause = self.pauses.traffic_mode(src, service);
                if let Some(slot) = coflow.slot.filter(|_| !flow.is_completed) {
                    let sends = flow.sends(self.now) && self.hosts[src as usize].present;
                    changed.push((slot, flow.engine_index, sends));
                }
            }
        }
        for (slot, index, sends) in changed {
            self.set_flow_sends(slot, index, sends);
        }
    }

    /// The mode that applies to a host; none if it is not paused.
    pub fn host_pause(&self, host: u32) -> Option<PauseMode> {
        self.hosts.get(host as usize).and_then(Host::pause_mode)
    }
}
