//! Connections that agents find: an application that has some from a host to another is there as if it had opened one.
//!
//! They pass the host's link out, and if the configuration says whose the address is, the one into the other and those between.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::saba::controller::{AppId, ConnectionId, ControllerError};

use super::Registry;
use super::sharing::{FoundKey, Sharing};
use crate::master::Stopped;

/// The connections that were found of an application, from a host to an address.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FoundState {
    /// The host that sends.
    pub host: String,
    /// What the host calls the application.
    pub application: String,
    /// The address of the other end.
    pub peer: String,
    /// How many there are.
    pub connections: u32,
    /// All bytes that were sent by them.
    pub sent_bytes: u64,
    /// Whether the application is registered: otherwise it has no class and no limit.
    pub registered: bool,
    /// What they may send together, in bytes per second; nothing if they are free.
    pub limit_bytes_per_second: Option<u64>,
}

impl Sharing {
    /// Makes the controller know of connections that were found, of applications that are registered, and of no others.
    pub(super) fn settle(&mut self) -> Result<(), ControllerError> {
        let seen = self.seen.iter().flat_map(|(&host, found)| found.iter().map(move |found| (host, found)));
        let registered = seen.filter(|(_, found)| self.applications.contains_key(&*found.application));
        let way = |(host, found): (u32, &weir_proto::Found)| {
            let to = self.addresses.get(&found.peer.to_canonical()).copied().filter(|&to| to != host);
            (host, Arc::clone(&found.application), to)
        };
        let wanted: BTreeSet<FoundKey> = registered.map(way).collect();
        for (_, number) in self.found.extract_if(.., |way, _| !wanted.contains(way)) {
            self.division.close(ConnectionId(number))?;
        }
        for way in wanted {
            if self.found.contains_key(&way) {
                continue;
            }
            let (host, application, to) = &way;
            let app = AppId(self.applications[application].number);
            let path = self.ways.path(*host, *to);
            self.division.open(ConnectionId(self.next), app, &path)?;
            self.found.insert(way, self.next);
            self.next += 1;
        }
        Ok(())
    }
}

impl Registry {
    /// Takes in what agents have found since the last time.
    pub(super) async fn take_found(&self) -> Result<(), Stopped> {
        let found = self.handle.found().await?;
        if found.is_empty() {
            return Ok(());
        }
        let mut sharing = self.sharing.lock().await;
        sharing.seen.extend(found);
        if let Err(error) = sharing.settle() {
            tracing::error!(%error, "what was found cannot be counted");
        }
        let changed = sharing.division.update();
        self.order(&sharing, changed).await
    }

    /// What agents have found, in order of hosts, applications and addresses.
    ///
    /// # Errors
    /// If nobody knows what they may send.
    pub async fn found(&self) -> Result<Vec<FoundState>, Stopped> {
        let limits = self.handle.limits().await?;
        let sharing = self.sharing.lock().await;
        let of = |(&host, found): (&u32, &Vec<weir_proto::Found>)| {
            let state = |found: &weir_proto::Found| FoundState {
                host: self.hosts[host as usize].name.clone(),
                application: found.application.to_string(),
                registered: sharing.applications.contains_key(&*found.application),
                peer: found.peer.to_string(),
                connections: found.open,
                sent_bytes: found.sent,
                limit_bytes_per_second: limits
                    .get(&(host, Arc::clone(&found.application), found.peer))
                    .copied(),
            };
            found.iter().map(state).collect::<Vec<_>>()
        };
        Ok(sharing.seen.iter().flat_map(of).collect())
    }
}
