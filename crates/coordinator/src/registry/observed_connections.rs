//! Observed connections in the division of links: each counts as if its application had opened a connection.
//!
//! An observed connection crosses the link out of its host. If the configuration has the address of the other end, it
//! also crosses the link into that host and the links between the two.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::saba::controller::{AppId, ConnectionId, ControllerError};

use super::Registry;
use super::sharing::{FoundKey, Sharing};
use crate::master::Stopped;

/// Observed connections of an application from a host to an address.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FoundState {
    /// The host that sends.
    pub host: String,
    /// Name of the application at the host.
    pub application: String,
    /// Address of the other end.
    pub peer: String,
    /// Number of open connections.
    pub connections: u32,
    /// Bytes sent by all of them.
    pub sent_bytes: u64,
    /// Whether the application is registered. Without a registration, its connections have no class and no limit.
    pub registered: bool,
    /// Limit of all of them together, in bytes per second; `null` without a limit.
    pub limit_bytes_per_second: Option<u64>,
}

impl Sharing {
    /// Updates the division: opens the observed connections of registered applications and closes all others.
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
    /// Applies observed connections that changed since the last call.
    pub(super) async fn take_found(&self) -> Result<(), Stopped> {
        let found = self.handle.found().await?;
        if found.is_empty() {
            return Ok(());
        }
        let mut sharing = self.sharing.lock().await;
        sharing.seen.extend(found);
        if let Err(error) = sharing.settle() {
            tracing::error!(%error, "observed connections cannot be updated");
        }
        let changed = sharing.division.update();
        self.order(&sharing, changed).await
    }

    /// Observed connections in order of hosts, applications and addresses.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
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
