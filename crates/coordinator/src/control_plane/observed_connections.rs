//! Stores the connections of unmodified programs that hosts have reported.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_proto::{Demand, MAX_OBSERVED, ObservedConnections};

use super::ControlPlane;

/// Time after the last report of a host after which its observed connections are removed, in seconds.
pub(super) const RETENTION: f64 = 30.0;

/// Number of open connections and bytes sent of a host, by application and address of the other host.
#[derive(Debug, Default)]
pub(super) struct ObservedOfHost {
    entries: BTreeMap<(Arc<str>, IpAddr), (u32, u64)>,
    /// Whether an entry has changed since the last call of [`ControlPlane::take_observed_changes`].
    changed: bool,
}

impl ObservedOfHost {
    /// Stores an entry, or removes it if no connection is open. Returns `false` if the maximum number of entries is reached.
    pub fn apply(&mut self, observed: &ObservedConnections) -> bool {
        let key = (Arc::clone(&observed.application), observed.peer);
        if observed.open_connections == 0 {
            self.changed |= self.entries.remove(&key).is_some();
            return true;
        }
        if self.entries.len() == MAX_OBSERVED && !self.entries.contains_key(&key) {
            return false;
        }
        let state = (observed.open_connections, observed.sent_bytes);
        self.changed |= self.entries.insert(key, state) != Some(state);
        true
    }

    /// The addresses of other hosts, once for each application.
    pub fn peers(&self) -> impl Iterator<Item = IpAddr> {
        self.entries.keys().map(|(_, peer)| *peer)
    }

    pub fn clear(&mut self) {
        self.changed |= !self.entries.is_empty();
        self.entries.clear();
    }
}

impl ControlPlane {
    /// All observed connections of each host with a change since the last call. `demand` is always [`Demand::Unknown`].
    pub fn take_observed_changes(&mut self) -> Vec<(u32, Vec<ObservedConnections>)> {
        let changed = (0u32..).zip(&mut self.hosts).filter(|(_, host)| host.observed.changed);
        let by_host = changed.map(|(number, host)| {
            host.observed.changed = false;
            let to_observed = |((application, peer), &counts): (&(Arc<str>, IpAddr), &(u32, u64))| {
                let (application, (open_connections, sent_bytes)) = (Arc::clone(application), counts);
                let demand = Demand::Unknown;
                ObservedConnections { application, peer: *peer, open_connections, sent_bytes, demand }
            };
            (number, host.observed.entries.iter().map(to_observed).collect())
        });
        by_host.collect()
    }

    /// Removes the observed connections and demands of a host. Call this when its agent connects, since an agent then reports
    /// all of them again.
    pub fn clear_observed(&mut self, host: u32) {
        if let Some(host_state) = self.hosts.get_mut(host as usize) {
            host_state.observed.clear();
        }
        if let Some(allocator) = &mut self.allocator {
            allocator.remove_host(host);
        }
    }
}
