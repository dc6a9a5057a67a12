//! Observed connections: which connections of unmodified programs each host has reported.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_proto::{Demand, Found, MAX_FOUND};

use super::ControlPlane;

/// Time after a host's last report until its observed connections are removed, in seconds.
pub(super) const KEPT: f64 = 30.0;

/// Observed connections of a host by application and address: number of open connections, and bytes sent.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: BTreeMap<(Arc<str>, IpAddr), (u32, u64)>,
    /// Whether an entry has changed since the last call of `ControlPlane::found`.
    changed: bool,
}

impl Connections {
    /// Stores an entry. Returns `false` if the maximum number of entries is reached.
    pub fn see(&mut self, found: &Found) -> bool {
        let key = (Arc::clone(&found.application), found.peer);
        if found.open == 0 {
            self.changed |= self.open.remove(&key).is_some();
            return true;
        }
        if self.open.len() == MAX_FOUND && !self.open.contains_key(&key) {
            return false;
        }
        let is = (found.open, found.sent);
        self.changed |= self.open.insert(key, is) != Some(is);
        true
    }

    pub fn forget(&mut self) {
        self.changed |= !self.open.is_empty();
        self.open.clear();
    }
}

impl ControlPlane {
    /// Observed connections of the hosts with changes since the last call. `demand` is always [`Demand::Unknown`].
    pub fn found(&mut self) -> Vec<(u32, Vec<Found>)> {
        let changed = (0u32..).zip(&mut self.hosts).filter(|(_, host)| host.found.changed);
        let all = changed.map(|(number, host)| {
            host.found.changed = false;
            let found = |((application, peer), &(open, sent)): (&(Arc<str>, IpAddr), &(u32, u64))| Found {
                application: Arc::clone(application),
                peer: *peer,
                open,
                sent,
                demand: Demand::Unknown,
            };
            (number, host.found.open.iter().map(found).collect())
        });
        all.collect()
    }

    /// Removes a host's observed connections and demands: its agent reports all of them again.
    pub fn forget_found(&mut self, host: u32) {
        if let Some(known) = self.hosts.get_mut(host as usize) {
            known.found.forget();
        }
        if let Some(allocator) = &mut self.allocator {
            allocator.forget(host);
        }
    }
}
