//! The quotas of frameworks, and the objects that count for them.

use super::Registry;
use crate::audit::Actor;
use crate::control_thread::Stopped;
use crate::identity::Identity;
use crate::quota::{CoflowQuota, ServiceQuota, UsageByService};

/// Number of objects of one kind and service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectUsage {
    /// The service.
    pub service: String,
    /// The kind of objects, as in `[limits.framework]`; `wan-` for those between regions.
    pub objects: &'static str,
    /// Number of these objects.
    pub count: usize,
    /// Quota of frameworks.
    pub max: usize,
}

impl Registry {
    /// The quota of a request: frameworks have one, operators only have the common limits.
    pub(super) fn quota_of(&self, actor: &Actor) -> Option<ServiceQuota> {
        matches!(actor.identity(), Identity::Framework(_)).then_some(self.framework_quota)
    }

    /// The objects of all services that count for quotas.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn object_usage(&self) -> Result<Vec<ObjectUsage>, Stopped> {
        let in_region = self.handle.call(|plane, _| plane.usage_by_service().clone()).await?;
        let between_regions =
            self.overlay().map(|handle| handle.call(|overlay, _| overlay.usage_by_service().clone()));
        let sharing = self.sharing.lock().await;
        let (quota, applications) = (&self.framework_quota, sharing.application_counts());
        let mut all = Vec::new();
        for service in (0..self.names.services() as u32).map(|number| self.names.service(number)) {
            let mut add = |objects, count, max| {
                all.push(ObjectUsage { service: service.to_owned(), objects, count, max });
            };
            let mut add_coflows = |[coflows, flows]: [&'static str; 2], usage: &UsageByService| {
                let usage = usage.of(service);
                add(coflows, usage.coflows, quota.coflows);
                add(flows, usage.flows, quota.flows);
            };
            add_coflows(["coflows", "flows"], &in_region);
            if let Some(usage) = &between_regions {
                add_coflows(["wan-coflows", "wan-flows"], usage);
            }
            add("applications", applications.get(service).copied().unwrap_or(0), quota.applications);
            add("connections", sharing.connection_count(service), quota.connections);
        }
        Ok(all)
    }
}
