//! The traffic of applications: which packets of unmodified programs belong to an application, at which hosts. Operators register it with
//! the application, and orders send it to agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_proto::{ApplicationTraffic, CgroupPattern, MAX_TRAFFIC_RULES};

use super::sharing::{ApplicationBody, Numbered, SharingState};
use super::{Registry, unknown_host};
use crate::control_thread::Stopped;
use crate::problem::{Location, Problem};
use crate::values;

/// Which traffic of unmodified programs belongs to an application. Agents mark it as if their options named it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficBody {
    /// Paths of cgroups (version 2) from their root, with the cgroups below them, such as `system.slice/job-*.service`. In a component, `*`
    /// stands for any characters; at most two components have one, and none is `.` or `..`. Default: none.
    #[schema(inline, value_type = Option<Vec<values::CgroupPath>>)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<String>,
    /// Names of systemd slices, such as `batch-sort.slice`. Default: none.
    #[schema(inline, value_type = Option<Vec<values::SliceName>>)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<String>,
    /// TCP and UDP ports, at either end, of packets that no cgroup has a class for. Default: none.
    #[schema(inline, value_type = Option<Vec<values::PortNumber>>)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// The hosts at which this traffic belongs to the application. Default: all.
    #[schema(min_items = 1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
}

impl TrafficBody {
    /// The number of cgroups and ports.
    fn rule_count(&self) -> usize {
        self.cgroups.len() + self.slices.len() + self.ports.len()
    }

    /// Whether it names no packets.
    pub(super) fn is_empty(&self) -> bool {
        self.rule_count() == 0
    }

    /// Checks everything except the names of hosts.
    fn check(&self) -> Result<(), Problem> {
        let location = |list: &str, at: usize| Location::Body(format!("/traffic/{list}/{at}"));
        for (at, path) in self.cgroups.iter().enumerate() {
            if CgroupPattern::parse(path).is_none() {
                return Err(Problem::invalid(location("cgroups", at), path, CgroupPattern::EXPECTED));
            }
        }
        for (at, name) in self.slices.iter().enumerate() {
            if CgroupPattern::from_slice(name).is_none() {
                return Err(Problem::invalid(location("slices", at), name, CgroupPattern::EXPECTED_SLICE));
            }
        }
        match self.ports.iter().position(|&port| port == 0) {
            Some(at) => Err(Problem::invalid(location("ports", at), "0", "a whole number from 1 to 65535")),
            None => Ok(()),
        }
    }

    /// The traffic of an application for the order to a host; none for other hosts.
    fn at_host(&self, application: &Arc<str>, host: &str) -> Option<ApplicationTraffic> {
        let is_included = self.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|name| name == host));
        // A record of the store can be invalid.
        let paths = self.cgroups.iter().filter_map(|path| CgroupPattern::parse(path));
        let slices = self.slices.iter().filter_map(|name| CgroupPattern::from_slice(name));
        is_included.then(|| ApplicationTraffic {
            application: Arc::clone(application),
            cgroups: paths.chain(slices).map(|pattern| pattern.to_string()).collect(),
            ports: self.ports.iter().copied().filter(|&port| port > 0).collect(),
        })
    }
}

impl SharingState {
    /// The body of a registration with the traffic that applies: a body without traffic keeps that of a registered application, and empty
    /// traffic removes it.
    pub(super) fn with_known_traffic(&self, id: &str, body: ApplicationBody) -> ApplicationBody {
        let traffic = match body.traffic {
            None => self.applications.get(id).and_then(|known| known.body.traffic.clone()),
            Some(traffic) => Some(traffic).filter(|traffic| !traffic.is_empty()),
        };
        ApplicationBody { traffic, ..body }
    }

    /// Checks that the cgroups and ports of all applications, with these of one application, fit into an order.
    fn check_rule_count(&self, id: &str, traffic: &TrafficBody) -> Result<(), Problem> {
        let others = self.applications.iter().filter(|(known, _)| ***known != *id);
        let of_others =
            others.filter_map(|(_, known)| known.body.traffic.as_ref()).map(TrafficBody::rule_count);
        if of_others.sum::<usize>() + traffic.rule_count() <= MAX_TRAFFIC_RULES {
            return Ok(());
        }
        let detail = format!(
            "too many cgroups, slices and ports of applications; expected at most {MAX_TRAFFIC_RULES} of all applications"
        );
        Err(Problem::limit_reached(&detail))
    }
}

impl Registry {
    /// Checks the traffic of a registration.
    ///
    /// # Errors
    /// [`Problem`]: a path, name or port is invalid, a host is unknown, or a limit is reached.
    pub(super) fn check_traffic(
        &self,
        sharing: &SharingState,
        id: &str,
        traffic: &TrafficBody,
    ) -> Result<(), Problem> {
        traffic.check()?;
        if traffic.hosts.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::invalid(
                Location::Body("/traffic/hosts".to_owned()),
                "[]",
                "at least one host",
            ));
        }
        for (at, host) in traffic.hosts.iter().flatten().enumerate() {
            if !self.host_numbers.contains_key(host) {
                return Err(unknown_host(host, Location::Body(format!("/traffic/hosts/{at}"))));
            }
        }
        sharing.check_rule_count(id, traffic)
    }

    /// Sends the traffic of all applications to their hosts. Call this after a change.
    pub(super) async fn send_traffic(&self, sharing: &SharingState) -> Result<(), Stopped> {
        let of_host = |name: &str| traffic_at_host(&sharing.applications, name);
        let traffic = (0u32..).zip(&self.hosts).map(|(number, host)| (number, of_host(&host.name)));
        self.handle.set_traffic(traffic.collect()).await
    }
}

/// The traffic of all applications at a host, sorted by application.
fn traffic_at_host(
    applications: &BTreeMap<Arc<str>, Numbered<ApplicationBody>>,
    host: &str,
) -> Vec<ApplicationTraffic> {
    let at_host =
        |(id, known): (&Arc<str>, &Numbered<ApplicationBody>)| known.body.traffic.as_ref()?.at_host(id, host);
    applications.iter().filter_map(at_host).collect()
}
