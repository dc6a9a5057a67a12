//! What hosts find of connections that programs have by themselves.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_proto::{Demand, Found, MAX_FOUND};

use super::ControlPlane;

/// How long what a host found counts after it was last heard of, in seconds.
pub(super) const KEPT: f64 = 30.0;

/// What one host found: how many connections of an application with an address, and what they have sent.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: BTreeMap<(Arc<str>, IpAddr), (u32, u64)>,
    /// Whether something changed since somebody asked.
    changed: bool,
}

impl Connections {
    /// The answer is whether there is room for it.
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
    /// What hosts have found, of those where something changed since this was asked last. What they ask for is not in it.
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

    /// A host begins anew to say what it finds.
    pub fn forget_found(&mut self, host: u32) {
        if let Some(known) = self.hosts.get_mut(host as usize) {
            known.found.forget();
        }
        if let Some(allocator) = &mut self.allocator {
            allocator.forget(host);
        }
    }
}
