//! Quotas: how much of the common limits the objects of one service may use, so that no framework can use up all of it.

use std::collections::BTreeMap;

/// Maximum number of open connections of applications.
pub(crate) const MAX_CONNECTIONS: usize = 100_000;

/// Maximum numbers of objects of one service. They apply to requests of its frameworks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceQuota {
    /// Coflows, active or completed. Those between regions have a separate quota of the same size.
    pub coflows: usize,
    /// Flows of these coflows.
    pub flows: usize,
    /// Registered applications.
    pub applications: usize,
    /// Connections registered through the API.
    pub connections: usize,
}

/// Numbers of coflows and of their flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoflowUsage {
    /// Coflows, active or completed.
    pub coflows: usize,
    /// Their flows.
    pub flows: usize,
}

/// The coflows of each service.
#[derive(Debug, Clone, Default)]
pub struct UsageByService {
    services: BTreeMap<String, CoflowUsage>,
    total: CoflowUsage,
}

impl UsageByService {
    /// Adds a coflow with this number of flows.
    pub fn add(&mut self, service: &str, flows: usize) {
        if !self.services.contains_key(service) {
            self.services.insert(service.to_owned(), CoflowUsage::default());
        }
        for usage in self.services.get_mut(service).into_iter().chain([&mut self.total]) {
            usage.coflows += 1;
            usage.flows += flows;
        }
    }

    /// Removes a coflow that was added with this number of flows.
    pub fn remove(&mut self, service: &str, flows: usize) {
        for usage in self.services.get_mut(service).into_iter().chain([&mut self.total]) {
            usage.coflows -= 1;
            usage.flows -= flows;
        }
    }

    /// The coflows of all services.
    pub fn total(&self) -> CoflowUsage {
        self.total
    }

    /// The coflows of a service.
    pub fn of(&self, service: &str) -> CoflowUsage {
        self.services.get(service).copied().unwrap_or_default()
    }
}

/// The quota of a service is reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("too many {objects} of service `{service}`; expected at most {max} by its frameworks")]
pub struct QuotaReached {
    /// The service.
    pub service: String,
    /// The counted objects.
    pub objects: &'static str,
    /// The quota.
    pub max: usize,
}

/// Registered coflows, of which each service has a quota: those of the control plane, and those between regions.
pub trait CoflowQuota {
    /// Coflows and flows of each service.
    fn usage_by_service(&self) -> &UsageByService;

    /// The service of a registered coflow, and the number of its flows.
    fn service_and_flow_count(&self, id: &str) -> Option<(&str, usize)>;

    /// Checks the quota of a service for a new coflow with this number of flows. A repeated registration adds none.
    ///
    /// # Errors
    /// [`QuotaReached`]
    fn check_new_quota(
        &self,
        id: &str,
        service: &str,
        flows: usize,
        quota: Option<&ServiceQuota>,
    ) -> Result<(), QuotaReached> {
        let Some(quota) = quota.filter(|_| self.service_and_flow_count(id).is_none()) else { return Ok(()) };
        let usage = self.usage_by_service().of(service);
        check(service, "coflows", usage.coflows.saturating_add(1), quota.coflows)?;
        check(service, "flows", usage.flows.saturating_add(flows), quota.flows)
    }

    /// Checks the quota of a service for the flows that replace those of its coflow. An update with fewer flows is always within the quota.
    ///
    /// # Errors
    /// [`QuotaReached`]
    fn check_update_quota(
        &self,
        id: &str,
        flows: usize,
        quota: Option<&ServiceQuota>,
    ) -> Result<(), QuotaReached> {
        let (Some(quota), Some((service, former_flows))) = (quota, self.service_and_flow_count(id)) else {
            return Ok(());
        };
        if flows <= former_flows {
            return Ok(());
        }
        let others = self.usage_by_service().of(service).flows.saturating_sub(former_flows);
        check(service, "flows", others.saturating_add(flows), quota.flows)
    }
}

/// Checks the quota for `count` objects of a service, with the requested ones.
///
/// # Errors
/// [`QuotaReached`]
pub fn check(service: &str, objects: &'static str, count: usize, max: usize) -> Result<(), QuotaReached> {
    if count <= max {
        return Ok(());
    }
    Err(QuotaReached { service: service.to_owned(), objects, max })
}
