//! The traffic of applications: which packets of unmodified programs belong to an application, at which hosts. Operators register it with
//! the application, and orders send it to agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_proto::{ApplicationTraffic, MAX_TRAFFIC_RULES};

use super::bodies::{ApplicationBody, TrafficBody};
use super::sharing::{Numbered, SharingState};
use super::{Registry, unknown_host};
use crate::control_plane::ControlPlane;
use crate::control_thread::Stopped;
use crate::problem::{Location, Problem};

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
            "too many cgroups, slices, pods and ports of applications; expected at most {MAX_TRAFFIC_RULES} of all applications"
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
            if self.hosts().number(host).is_none() {
                return Err(unknown_host(host, Location::Body(format!("/traffic/hosts/{at}"))));
            }
        }
        sharing.check_rule_count(id, traffic)
    }

    /// Sends the traffic of all applications to their hosts. Call this after a change.
    pub(super) async fn send_traffic(&self, sharing: &SharingState) -> Result<(), Stopped> {
        let of_host = |name: &str| traffic_at_host(&sharing.applications, name);
        let hosts = self.hosts();
        let traffic = hosts.iter().map(|(number, host)| (number, of_host(&host.name)));
        let traffic: Vec<(u32, Vec<ApplicationTraffic>)> = traffic.collect();
        let set = |plane: &mut ControlPlane, _| {
            traffic.into_iter().for_each(|(host, traffic)| plane.set_traffic(host, traffic));
        };
        self.handle.call(set).await
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
