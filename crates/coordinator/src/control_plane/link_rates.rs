//! The rates of hosts' links, where the configuration and the options of agents differ: the lower one counts.
//!
//! A temporary limit of a host's sending rate ([`super::bandwidth`]) reduces the rate for schedules only. Reports are checked against the
//! rate without the limit: a host has sent at that rate before the limit, and sends at it until an order has started or ended the limit.

use std::collections::BTreeMap;

use weir_core::model::PortSide;
use weir_core::units::Rate;
use weir_proto::BandwidthLimit;

use super::{ControlPlane, Link};

/// The rates of hosts' links in the configuration, and in the options of agents.
#[derive(Debug, Clone)]
pub(super) struct LinkRates {
    /// By host.
    configured: Vec<Link>,
    /// The host at each port of each switch; none where the cable leads to another switch.
    hosts_at_ports: Vec<Vec<Option<u32>>>,
    /// By agent and number of its link.
    of_agents: BTreeMap<(u32, u32), Rate>,
    /// By host, the link at the lowest of its rates, without a temporary limit.
    unlimited: Vec<Link>,
}

impl LinkRates {
    pub(super) fn new(configured: Vec<Link>) -> LinkRates {
        let unlimited = configured.clone();
        LinkRates { configured, hosts_at_ports: Vec::new(), of_agents: BTreeMap::new(), unlimited }
    }

    pub(super) fn set_switches(&mut self, hosts_at_ports: Vec<Vec<Option<u32>>>) {
        self.hosts_at_ports = hosts_at_ports;
    }

    /// Sets the link of a host that has joined.
    pub(super) fn set_configured(&mut self, host: u32, link: Link) {
        self.configured[host as usize] = link;
        self.of_agents.remove(&(host, 0));
    }

    /// The ports of an agent's switch; none for the agent of a host.
    fn switch_ports(&self, agent: u32) -> Option<&Vec<Option<u32>>> {
        (agent as usize).checked_sub(self.configured.len()).and_then(|switch| self.hosts_at_ports.get(switch))
    }

    /// The host whose link is a link of an agent; none between switches, or without such a link.
    fn host(&self, agent: u32, link: u32) -> Option<u32> {
        match self.switch_ports(agent) {
            Some(ports) => ports.get(link as usize).copied().flatten(),
            None => (link == 0 && (agent as usize) < self.configured.len()).then_some(agent),
        }
    }

    /// The configured rates of an agent's links; zero between switches.
    fn configured_rates(&self, agent: u32) -> Vec<u64> {
        let is_host = (agent as usize) < self.configured.len();
        let links = self.switch_ports(agent).map_or(usize::from(is_host), Vec::len) as u32;
        let rate = |link| match self.host(agent, link).map(|host| self.configured[host as usize]) {
            // A switch sends what its host receives.
            Some(host_link) if self.switch_ports(agent).is_some() => host_link.recv.get() as u64,
            Some(host_link) => host_link.send.get() as u64,
            None => 0,
        };
        (0..links).map(rate).collect()
    }

    /// The rate at which a host can send, in bytes per second, without a temporary limit.
    pub(super) fn unlimited_send_rate(&self, host: u32) -> f64 {
        self.unlimited[host as usize].send.get()
    }

    /// The link of a host at the lowest of its rates. O(links of switches).
    fn effective(&self, host: u32) -> Link {
        let configured = self.configured[host as usize];
        let own = self.of_agents.get(&(host, 0)).copied();
        let hosts = self.configured.len() as u32;
        let at_switch = self
            .of_agents
            .range((hosts, 0)..)
            .find(|((agent, link), _)| self.host(*agent, *link) == Some(host))
            .map(|(_, &rate)| rate);
        let lower = |rate: Rate, other: Option<Rate>| other.filter(|other| *other < rate).unwrap_or(rate);
        Link { send: lower(configured.send, own), recv: lower(lower(configured.recv, own), at_switch) }
    }
}

impl ControlPlane {
    /// Sets the rates of an agent's links in its options, in bytes per second by link, and returns the configured ones, 0 between switches.
    /// The lower one of each link counts from now on. Rates of unknown links and rates of zero have no effect.
    pub fn set_agent_rates(&mut self, agent: u32, rates: &[u64], now: f64) -> Vec<u64> {
        let configured = self.link_rates.configured_rates(agent);
        for (link, &rate) in (0u32..).zip(rates.iter().take(configured.len())) {
            let Some(host) = self.link_rates.host(agent, link) else { continue };
            match Rate::new(rate as f64).filter(|rate| rate.get() >= 1.0) {
                Some(rate) => self.link_rates.of_agents.insert((agent, link), rate),
                None => self.link_rates.of_agents.remove(&(agent, link)),
            };
            self.apply_link_rate(host, now);
        }
        configured
    }

    /// Applies the rate of a host's link, with the limit of what the host sends.
    pub(super) fn apply_link_rate(&mut self, host: u32, now: f64) {
        let link = self.link_rates.effective(host);
        self.link_rates.unlimited[host as usize] = link;
        let fraction = self.hosts[host as usize].bandwidth.limit().map_or(1.0, BandwidthLimit::fraction);
        let link = Link { send: Rate::new(link.send.get() * fraction).unwrap_or(link.send), ..link };
        if self.links.hosts[host as usize] == link {
            return;
        }
        self.links.hosts[host as usize] = link;
        let usable_fraction = self.settings.budget.coflow_payload_fraction(self.settings.reserve);
        let nominal = self.engine.network().fabric().nominal_rate();
        for (side, rate) in [(PortSide::Send, link.send), (PortSide::Receive, link.recv)] {
            self.engine.scale_port(host, side, rate.get() * usable_fraction / nominal, now);
        }
    }
}
