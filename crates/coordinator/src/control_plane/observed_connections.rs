//! Observed connections: which connections of unmodified programs each host has reported.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_proto::{Demand, MAX_OBSERVED, ObservedConnections};

use super::ControlPlane;

/// Time after a host's last report until its observed connections are removed, in seconds.
pub(super) const RETENTION: f64 = 30.0;

/// Observed connections of a host by application and address: number of open connections, and bytes sent.
#[derive(Debug, Default)]
pub(super) struct ObservedOfHost {
    entries: BTreeMap<(Arc<str>, IpAddr), (u32, u64)>,
    /// Whether an entry has changed since the last call of `ControlPlane::found`.
    changed: bool,
}

impl ObservedOfHost {
    /// Stores an entry. Returns `false` if the maximum number of entries is reached.
    pub fn apply(&mut self, found: &ObservedConnections) -> bool {
        let key = (Arc::clone(&found.application), found.peer);
        if found.open_connections == 0 {
            self.changed |= self.entries.remove(&key).is_some();
            return true;
        }
        if self.entries.len() == MAX_OBSERVED && !self.entries.contains_key(&key) {
            return false;
        }
        let state = (found.open_connections, found.sent_bytes);
        self.changed |= self.entries.insert(key, state) != Some(state);
        true
    }

    pub fn clear(&mut self) {
        self.changed |= !self.entries.is_empty();
        self.entries.clear();
    }
}

impl ControlPlane {
    /// Observed connections of the hosts with changes since the last call. `demand` is always [`Demand::Unknown`].
    pub fn take_observed_changes(&mut self) -> Vec<(u32, Vec<ObservedConnections>)> {
        let changed = (0u32..).zip(&mut self.hosts).filter(|(_, host)| host.observed.changed);
        let by_host = changed.map(|(number, host)| {
            host.observed.changed = false;
            let to_observed = |((application, peer), &(open, sent)): (&(Arc<str>, IpAddr), &(u32, u64))| {
                ObservedConnections {
                    application: Arc::clone(application),
                    peer: *peer,
                    open_connections: open,
                    sent_bytes: sent,
                    demand: Demand::Unknown,
                }
            };
            (number, host.observed.entries.iter().map(to_observed).collect())
        });
        by_host.collect()
    }

    /// Removes a host's observed connections and demands: its agent reports all of them again.
    pub fn clear_observed(&mut self, host: u32) {
        if let Some(host_state) = self.hosts.get_mut(host as usize) {
            host_state.observed.clear();
        }
        if let Some(allocator) = &mut self.allocator {
            allocator.remove_host(host);
        }
    }
}
