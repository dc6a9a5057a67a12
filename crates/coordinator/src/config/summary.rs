//! Summarizes the configuration for operators.

use std::collections::BTreeMap;
use std::fmt;

use weir_core::model::Topology;
use weir_core::model::topology::Link as TopologyLink;
use weir_core::saba::Fraction;
use weir_core::saba::controller::{ControllerSettings, PortLimits};
use weir_core::units::{Bytes, Time};
use weir_proto::Network;

use super::{
    Config, ConnectionModel, Host, JoinPosition, JoinRule, Limits, QueueAssignment, Saba, Switch, TlsFiles,
};
use crate::control_plane::{Link, Settings};
use crate::policy::PolicySpec;
use crate::quota::ServiceQuota;
use crate::service_bandwidth::{BandwidthKey, ServiceBandwidth};

impl fmt::Display for Config {
    /// A summary of the configuration, for operators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_control_plane(f)?;
        self.fmt_addresses(f)?;
        self.fmt_limits(f)?;
        self.fmt_queues(f)?;
        self.fmt_services(f)?;
        self.fmt_network(f)?;
        if let Some(overlay) = &self.overlay {
            write!(f, "{overlay}")?;
        }
        let uses_weights = self.queues == QueueAssignment::Services || self.policy.uses_service_weights();
        if !self.weights.is_empty() && !uses_weights {
            writeln!(f, "note      this policy ignores the weights of services")?;
        }
        Ok(())
    }
}

impl Config {
    /// A line for each link of the topology. Differences show them; the summary has their number.
    fn topology_lines(&self) -> String {
        let line = |topology: &Topology, link: &TopologyLink| {
            let (from, to) = (topology.name(link.from), topology.name(link.to));
            format!("link      {from} -> {to}: {}\n", link.rate)
        };
        let lines = self.topology.iter().map(|known| known.links().iter().map(|link| line(known, link)));
        lines.flatten().collect()
    }

    /// The lines of the summary that this configuration has alone, with `- `, and those that `next` has alone, with `+ `.
    pub fn difference(&self, next: &Config) -> Vec<String> {
        let (former, latter) =
            (self.to_string() + &self.topology_lines(), next.to_string() + &next.topology_lines());
        let mut lines = lines_only_in(&former, &latter, "-");
        lines.extend(lines_only_in(&latter, &former, "+"));
        if matches!((self.policy.spec(), next.policy.spec()), (PolicySpec::Tree(a), PolicySpec::Tree(b)) if a != b)
        {
            lines.push("+ policy    another tree".to_owned());
        }
        lines
    }

    fn fmt_control_plane(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to_time = |value: f64| Time::new(value).unwrap_or(Time::ZERO);
        let Settings { interval, lease, reserve, keep_completed, .. } = self.settings;
        match self.policy.spec() {
            _ if self.hosts.is_empty() && self.joins.is_empty() => {}
            PolicySpec::Policy(spec) => writeln!(f, "policy    {spec}")?,
            PolicySpec::Tree(_) => writeln!(f, "policy    a tree")?,
        }
        if let Some(ConnectionModel { path, predictor }) = &self.connection_model {
            let (path, max) = (path.display(), predictor.settings.max_connections);
            writeln!(f, "          connections of hosts by the loss and {path}, at most {max}")?;
        }
        if let Some(topology) = &self.topology {
            let between_switches = topology.links().iter().filter(|link| !topology.is_host_link(**link));
            writeln!(
                f,
                "topology  policies decide over {} links between switches",
                between_switches.count()
            )?;
        }
        writeln!(f, "interval  {}, leases of {}", to_time(interval), to_time(lease))?;
        writeln!(f, "reserve   {reserve} of every link, for flows without a rate")?;
        writeln!(f, "keep      completed coflows for {}", to_time(keep_completed))?;
        writeln!(f, "store     {}", self.store_path.display())?;
        match &self.audit_path {
            Some(path) => writeln!(f, "audit     {}", path.display()),
            None => writeln!(f, "audit     in the log, without registrations"),
        }
    }

    fn fmt_addresses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protection = if self.tls.is_some() { "mutual TLS" } else { "plain text, on this host only" };
        writeln!(f, "agents    {} ({protection})", self.agents_address)?;
        writeln!(f, "api       {} ({protection})", self.api_address)?;
        let Some(TlsFiles { certificate, key, clients }) = &self.tls else { return Ok(()) };
        let (certificate, key, clients) = (certificate.display(), key.display(), clients.display());
        writeln!(f, "tls       certificate {certificate}, key {key}, clients {clients}")
    }

    fn fmt_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { max_coflows, max_flows, max_workload_bytes, .. } = self.settings;
        let Limits { max_body, max_request_duration, max_queued_events, .. } = self.limits;
        let Limits { max_connections, max_connections_per_address, max_connections_per_identity, .. } =
            self.limits;
        let ServiceQuota { coflows, flows, applications, connections } = self.limits.framework;
        writeln!(f, "limits    {max_coflows} coflows, {max_flows} flows")?;
        writeln!(
            f,
            "          a framework: {coflows} coflows, {flows} flows, {applications} applications with {connections} \
             connections"
        )?;
        writeln!(
            f,
            "          {max_connections} connections, {max_connections_per_address} an address, \
             {max_connections_per_identity} an identity"
        )?;
        writeln!(f, "          {max_body} and {max_request_duration} a request, {max_queued_events} events")?;
        let workload = Bytes::new(max_workload_bytes as f64).unwrap_or(Bytes::ZERO);
        writeln!(f, "          {workload} of removed coflows, for `weir ctl workload`")
    }

    fn fmt_queues(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queues {
            QueueAssignment::Applications(Saba { settings, limits }) => {
                let ControllerSettings { c_saba, max_levels, .. } = settings;
                let share = c_saba.get();
                writeln!(
                    f,
                    "saba      {max_levels} priority levels in {}, {share} of every link",
                    format_limits(limits)
                )?;
            }
            QueueAssignment::Services => {
                writeln!(f, "queues    one for each service, at every port")?;
                let queues = self.service_queues(&self.bandwidths);
                let shared = (0..self.names.services() as u32).filter(|&service| queues.is_shared(service));
                match shared.count() {
                    0 => {}
                    count => {
                        writeln!(f, "          {count} services share the last of {}", queues.queue_count())?
                    }
                }
            }
        }
        let unclassified = match self.queues {
            QueueAssignment::Applications(saba) if saba.settings.c_saba < Fraction::ALL => {
                1.0 - saba.settings.c_saba.get()
            }
            _ => self.settings.budget.unclassified_fraction(),
        };
        writeln!(f, "          {unclassified} of every link for packets without a class")?;
        if self.allocator {
            writeln!(f, "allocator rates of observed connections, by service")?;
        }
        if self.has_throttling {
            let limit = if self.allocator {
                "the rates of the allocator, by service"
            } else {
                "slightly above the rate measured at the receiver"
            };
            writeln!(f, "throttle  UDP, to {limit}")?;
        }
        Ok(())
    }

    fn fmt_services(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for service in 0..self.names.services() as u32 {
            let name = self.names.service(service);
            let weight = match self.weights.get(name) {
                Some(weight) => format!("weight {weight}"),
                None if self.queues == QueueAssignment::Services => "weight 1 in queues".to_owned(),
                None => "the policy's weight".to_owned(),
            };
            let excess =
                self.excess_weights.get(name).map(|weight| format!(", excess {weight}")).unwrap_or_default();
            let bandwidth = self.bandwidths.get(name).map(format_bandwidth).unwrap_or_default();
            let applications = self.names.applications(service).join(", ");
            writeln!(f, "service   {name}: {weight}{excess}{bandwidth}; applications {applications}")?;
        }
        Ok(())
    }

    fn fmt_network(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Host { name, link: Link { send, recv } } in &self.hosts {
            if send == recv {
                writeln!(f, "host      {name}: {send}")?;
            } else {
                writeln!(f, "host      {name}: sends {send}, receives {recv}")?;
            }
        }
        for JoinRule { names, networks, max_rate, max_hosts, position } in &self.joins {
            let networks: Vec<String> = networks.iter().map(Network::to_string).collect();
            writeln!(
                f,
                "join      {names}: up to {max_rate} each, {max_hosts} hosts, addresses in {}",
                networks.join(", ")
            )?;
            if let Some(JoinPosition { label, leaves }) = position {
                writeln!(
                    f,
                    "          at each of these switches, by the label {label}: {}",
                    leaves.join(", ")
                )?;
            }
        }
        for Switch { name, ports, limits } in &self.switches {
            let ports: Vec<&str> = ports.iter().map(|&end| self.name_of(end)).collect();
            let limits = limits.map(|limits| format!("; {}", format_limits(limits))).unwrap_or_default();
            writeln!(f, "switch    {name}: {}{limits}", ports.join(", "))?;
        }
        for (network, owners) in self.addresses.iter() {
            for &host in owners {
                writeln!(f, "address   {}: {}", network.short_text(), self.hosts[host as usize].name)?;
            }
        }
        Ok(())
    }
}

/// The lines of `text` that `other` lacks, each after a mark.
fn lines_only_in(text: &str, other: &str, mark: &str) -> Vec<String> {
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    other.lines().for_each(|line| *others.entry(line).or_default() += 1);
    let mut lines = Vec::new();
    for line in text.lines() {
        match others.get_mut(line) {
            Some(count @ 1..) => *count -= 1,
            _ => lines.push(format!("{mark} {line}")),
        }
    }
    lines
}

/// The rates of a service, after its weights.
fn format_bandwidth(bandwidth: &ServiceBandwidth) -> String {
    let rate = |key: BandwidthKey| Some(format!(", {} {}", key.name(), bandwidth.get(key)?));
    BandwidthKey::ALL.into_iter().filter_map(rate).collect()
}

fn format_limits(limits: PortLimits) -> String {
    let PortLimits { queues, min_weight } = limits;
    let minimum = if min_weight > 0.0 { format!(" of at least {min_weight} each") } else { String::new() };
    format!("{queues} queues{minimum}")
}
