//! Hosts that join and leave while the coordinator runs. Each has a slot: the number of a host without a configuration.

use std::sync::Arc;

use weir_core::units::Rate;
use weir_proto::NetworkTable;

use super::{ControlPlane, Host, Link};

impl ControlPlane {
    /// Gives a slot to a host with this name and link, or changes the link of the slot's host.
    pub fn set_slot(&mut self, slot: u32, name: &str, link: Link, now: f64) {
        self.advance_to(now);
        if self.agent_names.name(slot) != name {
            self.agent_names.set(slot, name);
            // An agent refuses sequence numbers that it has seen, also those of another slot.
            let ordered_seq = self.hosts.iter().map(|host| host.orders.ordered_seq).max().unwrap_or(0);
            self.hosts[slot as usize].orders.ordered_seq = ordered_seq;
        }
        self.link_rates.set_configured(slot, link);
        self.apply_link_rate(slot, now);
    }

    /// Removes what the agent of a host that leaves has reported. Its flows then count as those of a host without an agent.
    pub fn leave_slot(&mut self, slot: u32, now: f64) {
        self.advance_to(now);
        self.clear_observed(slot);
        let host = &mut self.hosts[slot as usize];
        (host.last_report_at, host.receives_orders) = (None, false);
        host.conflicts.clear();
        self.has_new_link_reports |= !std::mem::take(&mut host.links_down).is_empty();
    }

    /// Frees the slot of a host that has left and that no coflow names.
    pub fn free_slot(&mut self, slot: u32, now: f64) {
        self.agent_names.set(slot, "");
        let free = Link { send: Rate::ZERO, recv: Rate::ZERO };
        self.link_rates.set_configured(slot, free);
        let ordered_seq = self.hosts[slot as usize].orders.ordered_seq;
        // A pause of all hosts stays.
        self.hosts[slot as usize] = Host { pause: self.pauses.merged_pause(slot), ..Host::new() };
        self.hosts[slot as usize].orders.ordered_seq = ordered_seq;
        self.apply_link_rate(slot, now);
    }

    /// Whether a coflow, active or completed, has a flow from or to a host.
    pub fn has_flows_of_host(&self, host: u32) -> bool {
        let host = &self.hosts[host as usize];
        host.flow_count + host.received_flow_count > 0
    }

    /// The id of an active coflow with a flow from or to a host. O(flows).
    pub fn active_coflow_of_host(&self, host: u32) -> Option<String> {
        let active = self.coflows.iter().filter(|(_, coflow)| coflow.slot.is_some());
        let names_host = |flow: &super::Flow| flow.transfer.src == host || flow.transfer.dst == host;
        let found = active
            .filter(|_| self.has_flows_of_host(host))
            .find(|(_, coflow)| coflow.flows.iter().any(names_host));
        found.map(|(id, _)| id.to_string())
    }

    /// Replaces the hosts of addresses and networks.
    pub fn set_addresses(&mut self, addresses: Arc<NetworkTable<u32>>) {
        self.addresses = addresses;
    }
}
