//! Limits what hosts send for a time, so that a profiler measures programs at a fraction of the bandwidth (Saba, section 4.1).
//!
//! A limit has an owner, who renews it. Without a renewal it ends after its lease, so that a profiler that was killed leaves no limit.
//! Schedules and the allocator count with the lower rate; reports of progress are checked against the rate of the link.

use weir_proto::BandwidthLimit;

use super::ControlPlane;

/// The limit of a host.
#[derive(Debug, Clone, PartialEq)]
struct OwnedLimit {
    limit: BandwidthLimit,
    owner: String,
    ends_at: f64,
}

/// The limit of a host, and what its agent knows of it.
#[derive(Debug, Default)]
pub(super) struct HostBandwidth {
    limit: Option<OwnedLimit>,
    /// The limit in the last order.
    pub(super) ordered: Option<BandwidthLimit>,
    /// The limit in the last report.
    pub(super) reported: Option<BandwidthLimit>,
}

impl HostBandwidth {
    /// The limit, if the host has one.
    pub(super) fn limit(&self) -> Option<BandwidthLimit> {
        self.limit.as_ref().map(|owned| owned.limit)
    }
}

/// Another owner limits the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the bandwidth is limited by `{owner}`; expected no limit of another owner; help: wait until it has ended"
)]
pub struct LimitTaken {
    /// The other owner.
    pub owner: String,
}

/// The limit of a host that another control plane takes over.
#[derive(Debug, Clone, PartialEq)]
pub struct CarriedLimit {
    /// The number of the host.
    pub host: u32,
    /// The owner.
    pub owner: String,
    /// The limit.
    pub limit: BandwidthLimit,
    /// The rest of its lease, in seconds.
    pub lease: f64,
}

impl ControlPlane {
    /// The limits of all hosts.
    pub fn bandwidth_limits(&self, now: f64) -> Vec<CarriedLimit> {
        let carried = |(host, state): (u32, &super::Host)| {
            let OwnedLimit { limit, owner, ends_at } = state.bandwidth.limit.clone()?;
            Some(CarriedLimit { host, owner, limit, lease: ends_at - now })
                .filter(|carried| carried.lease > 0.0)
        };
        (0u32..).zip(&self.hosts).filter_map(carried).collect()
    }

    /// Limits what a host sends, or renews the limit, for a lease in seconds. Returns the limit that this owner had.
    ///
    /// # Errors
    /// [`LimitTaken`]: another owner limits the host.
    pub fn limit_bandwidth(
        &mut self,
        host: u32,
        owner: &str,
        limit: BandwidthLimit,
        lease: f64,
        now: f64,
    ) -> Result<Option<BandwidthLimit>, LimitTaken> {
        let ends_at = now + lease;
        self.replace_limit(host, owner, Some(OwnedLimit { limit, owner: owner.to_owned(), ends_at }), now)
    }

    /// Ends the limit of a host. Returns the limit that this owner had.
    ///
    /// # Errors
    /// [`LimitTaken`]: another owner limits the host.
    pub fn end_bandwidth_limit(
        &mut self,
        host: u32,
        owner: &str,
        now: f64,
    ) -> Result<Option<BandwidthLimit>, LimitTaken> {
        self.replace_limit(host, owner, None, now)
    }

    /// Ends the limit of a host that is paused.
    pub(super) fn drop_bandwidth_limit(&mut self, host: u32) {
        if (host as usize) < self.links.hosts.len()
            && self.hosts[host as usize].bandwidth.limit.take().is_some()
        {
            self.apply_link_rate(host, self.now);
        }
    }

    fn replace_limit(
        &mut self,
        host: u32,
        owner: &str,
        limit: Option<OwnedLimit>,
        now: f64,
    ) -> Result<Option<BandwidthLimit>, LimitTaken> {
        self.advance_to(now);
        self.expire_bandwidth_limits();
        let Some(host_state) = self.hosts.get_mut(host as usize) else { return Ok(None) };
        let known = &mut host_state.bandwidth.limit;
        if let Some(other) = known.as_ref().filter(|known| known.owner != owner) {
            return Err(LimitTaken { owner: other.owner.clone() });
        }
        let previous = std::mem::replace(known, limit);
        self.apply_link_rate(host, self.now);
        Ok(previous.map(|owned| owned.limit))
    }

    /// Ends the limits whose lease has ended.
    pub(super) fn expire_bandwidth_limits(&mut self) {
        for host in 0..self.links.hosts.len() {
            let limit = &mut self.hosts[host].bandwidth.limit;
            if limit.as_ref().is_some_and(|owned| owned.ends_at <= self.now) {
                *limit = None;
                self.apply_link_rate(host as u32, self.now);
            }
        }
    }
}
