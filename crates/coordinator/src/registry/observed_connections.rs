//! Applies observed connections to the division of links: each counts as if its application had opened a connection.
//!
//! An observed connection crosses the link out of its host. If the configuration has the address of the other end, the
//! connection also crosses the link into that host and the links between the two hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::saba::controller::{AppId, ConnectionId, ControllerError};

use super::Registry;
use super::sharing::{ObservedKey, SharingState};
use crate::control_thread::Stopped;

/// Observed connections of an application from a host to an address.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ObservedState {
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
    /// The limit that they would have, in shadow mode; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow_limit_bytes_per_second: Option<u64>,
}

impl SharingState {
    /// Updates the division: opens the observed connections of registered applications and closes all others.
    pub(super) fn sync_observed_connections(&mut self) -> Result<(), ControllerError> {
        let observed =
            self.observed.iter().flat_map(|(&host, entries)| entries.iter().map(move |entry| (host, entry)));
        let registered = observed.filter(|(_, entry)| self.applications.contains_key(&*entry.application));
        let to_key = |(host, observed): (u32, &weir_proto::ObservedConnections)| {
            (host, Arc::clone(&observed.application), self.host_of(observed.peer, host))
        };
        let wanted_keys: BTreeSet<ObservedKey> = registered.map(to_key).collect();
        for (_, number) in self.observed_numbers.extract_if(.., |key, _| !wanted_keys.contains(key)) {
            self.division.close(ConnectionId(number))?;
        }
        for key in wanted_keys {
            if self.observed_numbers.contains_key(&key) {
                continue;
            }
            let (host, application, to) = &key;
            let app = AppId(self.applications[application].number);
            let path = self.port_map.path(*host, *to);
            self.division.open(ConnectionId(self.next_number), app, &path)?;
            self.observed_numbers.insert(key, self.next_number);
            self.next_number += 1;
        }
        Ok(())
    }
}

impl Registry {
    /// Applies observed connections that changed since the last call.
    pub(super) async fn apply_observed_changes(&self) -> Result<(), Stopped> {
        let changes = self.handle.call(|plane, _| plane.take_observed_changes()).await?;
        if changes.is_empty() {
            return Ok(());
        }
        let mut sharing = self.sharing.lock().await;
        sharing.observed.extend(changes);
        if let Err(error) = sharing.sync_observed_connections() {
            tracing::error!(%error, "observed connections cannot be applied to the queues");
        }
        let changed_ports = sharing.division.update();
        self.send_queues(&sharing, changed_ports).await
    }

    /// Observed connections in order of hosts, applications and addresses.
    ///
    /// # Errors
    /// [`Stopped`]: the coordinator has stopped.
    pub async fn observed(&self) -> Result<Vec<ObservedState>, Stopped> {
        let (limits, shadow_limits) =
            self.handle.call(|plane, _| (plane.limits(), plane.shadow_limits())).await?;
        let (sharing, hosts) = (self.sharing.lock().await, self.hosts());
        let states_of_host = |(&host, observed): (&u32, &Vec<weir_proto::ObservedConnections>)| {
            let to_state = |entry: &weir_proto::ObservedConnections| {
                let key = (host, Arc::clone(&entry.application), entry.peer);
                ObservedState {
                    host: hosts.name(host).to_owned(),
                    application: entry.application.to_string(),
                    registered: sharing.applications.contains_key(&*entry.application),
                    peer: entry.peer.to_string(),
                    connections: entry.open_connections,
                    sent_bytes: entry.sent_bytes,
                    limit_bytes_per_second: limits.get(&key).copied(),
                    shadow_limit_bytes_per_second: shadow_limits.get(&key).copied(),
                }
            };
            observed.iter().map(to_state).collect::<Vec<_>>()
        };
        Ok(sharing.observed.iter().flat_map(states_of_host).collect())
    }
}
