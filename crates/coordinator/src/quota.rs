//! Quotas: how much of the common limits the objects of one service may use, so that no framework can use up all of it.

use std::collections::BTreeMap;

use crate::control_plane::Refusal;

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
pub struct UsageByService(BTreeMap<String, CoflowUsage>);

impl UsageByService {
    /// Adds a coflow with this number of flows.
    pub fn add(&mut self, service: &str, flows: usize) {
        if !self.0.contains_key(service) {
            self.0.insert(service.to_owned(), CoflowUsage::default());
        }
        if let Some(usage) = self.0.get_mut(service) {
            usage.coflows += 1;
            usage.flows += flows;
        }
    }

    /// Removes a coflow that was added with this number of flows.
    pub fn remove(&mut self, service: &str, flows: usize) {
        if let Some(usage) = self.0.get_mut(service) {
            usage.coflows -= 1;
            usage.flows -= flows;
        }
    }

    /// The coflows of a service.
    pub fn of(&self, service: &str) -> CoflowUsage {
        self.0.get(service).copied().unwrap_or_default()
    }

    /// Checks the quota for a new coflow.
    ///
    /// # Errors
    /// [`Refusal::QuotaReached`]
    pub fn check_new(&self, service: &str, flows: usize, quota: &ServiceQuota) -> Result<(), Refusal> {
        check(service, "coflows", self.of(service).coflows.saturating_add(1), quota.coflows)?;
        self.check_update(service, 0, flows, quota)
    }

    /// Checks the quota for the flows that replace those of a coflow. An update with fewer flows is always within the quota.
    ///
    /// # Errors
    /// [`Refusal::QuotaReached`]
    pub fn check_update(
        &self,
        service: &str,
        former_flows: usize,
        flows: usize,
        quota: &ServiceQuota,
    ) -> Result<(), Refusal> {
        if flows <= former_flows {
            return Ok(());
        }
        let others = self.of(service).flows.saturating_sub(former_flows);
        check(service, "flows", others.saturating_add(flows), quota.flows)
    }
}

/// Checks the quota for `count` objects of a service, with the requested ones.
///
/// # Errors
/// [`Refusal::QuotaReached`]
pub fn check(service: &str, objects: &'static str, count: usize, max: usize) -> Result<(), Refusal> {
    if count <= max {
        return Ok(());
    }
    Err(Refusal::QuotaReached { service: service.to_owned(), objects, max })
}
