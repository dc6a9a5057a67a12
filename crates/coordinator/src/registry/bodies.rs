//! What frameworks and operators register: applications with their traffic, and connections.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::model::ServiceNames;
use weir_proto::{ApplicationTraffic, CgroupPattern, EXPECTED_POD, MAX_ID_LENGTH, pod_rule};

use super::programs::ProgramKey;
use crate::problem::{Location, Problem};
use crate::values::{self, ConnectionWeight};

/// The expected value where an application is unknown.
pub(super) const EXPECTED_APPLICATION_ID: &str = "the id of a registered application";

/// An application, as its framework registers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplicationBody {
    /// The service that it belongs to. Default: the framework's service, or `default` for other clients.
    pub service: Option<String>,
    /// Name of its model in the sensitivity table. Optional only if queues belong to services, which use no model.
    pub model: Option<String>,
    /// Its traffic of unmodified programs. Only operators may set it, also for a registered application: it replaces the former one. Empty:
    /// no traffic. Default: unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficBody>,
}

impl ApplicationBody {
    /// Whether two registrations are equal, except for the traffic, which can be replaced.
    pub(super) fn is_same_registration(&self, other: &ApplicationBody) -> bool {
        (&self.service, &self.model) == (&other.service, &other.model)
    }
}

pub(super) fn service_of(body: &ApplicationBody) -> String {
    service_name(body).to_owned()
}

pub(super) fn service_name(body: &ApplicationBody) -> &str {
    body.service.as_deref().unwrap_or(ServiceNames::DEFAULT)
}

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
    /// UIDs of pods, whose cgroups agents find under the systemd and cgroupfs drivers of the kubelet. Default: none.
    #[schema(inline, value_type = Option<Vec<values::PodUid>>)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
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
    /// The number of cgroups, pods and ports.
    pub(super) fn rule_count(&self) -> usize {
        self.cgroups.len() + self.slices.len() + self.pods.len() + self.ports.len()
    }

    /// Whether it names no packets.
    pub(super) fn is_empty(&self) -> bool {
        self.rule_count() == 0
    }

    /// Checks everything except the names of hosts.
    pub(super) fn check(&self) -> Result<(), Problem> {
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
        for (at, uid) in self.pods.iter().enumerate() {
            if pod_rule(uid).is_none() {
                return Err(Problem::invalid(location("pods", at), uid, EXPECTED_POD));
            }
        }
        match self.ports.iter().position(|&port| port == 0) {
            Some(at) => Err(Problem::invalid(location("ports", at), "0", "a whole number from 1 to 65535")),
            None => Ok(()),
        }
    }

    /// The traffic of an application for the order to a host; none for other hosts.
    pub(super) fn at_host(&self, application: &Arc<str>, host: &str) -> Option<ApplicationTraffic> {
        let is_included = self.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|name| name == host));
        // A record of the store can be invalid.
        let paths = self.cgroups.iter().filter_map(|path| CgroupPattern::parse(path));
        let slices = self.slices.iter().filter_map(|name| CgroupPattern::from_slice(name));
        let pods = self.pods.iter().filter_map(|uid| pod_rule(uid));
        is_included.then(|| ApplicationTraffic {
            application: Arc::clone(application),
            cgroups: paths.chain(slices).map(|pattern| pattern.to_string()).chain(pods).collect(),
            ports: self.ports.iter().copied().filter(|&port| port > 0).collect(),
        })
    }
}

/// A connection, as its framework opens it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionBody {
    /// The id of its application.
    pub application: String,
    /// The host at one end.
    pub from: String,
    /// The host at the other end, or its IP address. If the configuration has no host with the address, the connection counts at
    /// the links of `from` only.
    pub to: String,
    /// The program that has the connection, by an id that it chooses. The connection ends 10 s after the program's stream of the
    /// application's level. Without a program, it ends by a request only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Its weight for the allocator, and for a maximum bandwidth of the service. The weight of all connections of an application between
    /// two hosts, in both directions, is the sum of those that have one, or else 1. It divides the share of the service between pairs of
    /// hosts, not between connections of one pair.
    #[schema(inline, value_type = Option<ConnectionWeight>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// The numbers of the hosts at both ends; none for an address of no host.
pub(super) type Ends = (u32, Option<u32>);

impl ConnectionBody {
    pub(super) fn program_key(&self) -> Option<ProgramKey> {
        self.program.clone().map(|program| (self.application.clone(), program))
    }
}

pub(super) fn check_id(id: &str, location: impl FnOnce() -> Location) -> Result<(), Problem> {
    if weir_proto::is_id(id) {
        return Ok(());
    }
    let expected = format!("1 to {MAX_ID_LENGTH} printable characters without spaces");
    Err(Problem::invalid(location(), id, &expected))
}
