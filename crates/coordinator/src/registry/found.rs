//! Connections that agents find: an application that has some from a host is there as if it had opened one.
//!
//! They pass the host's link out. Which host an address is nobody says, so links into hosts do not count them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use weir_core::saba::controller::{AppId, ConnectionId, ControllerError};

use super::Registry;
use super::sharing::Sharing;
use crate::master::Stopped;

/// The connections that were found of an application, from a host to an address.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FoundState {
    /// The host that sends.
    pub host: String,
    /// What the host calls the application, which need not be registered.
    pub application: String,
    /// The address of the other end.
    pub peer: String,
    /// How many there are.
    pub connections: u32,
    /// All bytes that were sent by them.
    pub sent_bytes: u64,
}

impl Sharing {
    /// Makes the controller know of connections that were found, of applications that are registered, and of no others.
    pub(super) fn settle(&mut self) -> Result<(), ControllerError> {
        let seen =
            self.seen.iter().flat_map(|(&host, found)| found.iter().map(move |f| (host, &f.application)));
        let registered = seen.filter(|(_, application)| self.applications.contains_key(&**application));
        let wanted: BTreeSet<(u32, Arc<str>)> =
            registered.map(|(host, application)| (host, Arc::clone(application))).collect();
        for (_, number) in self.found.extract_if(.., |key, _| !wanted.contains(key)) {
            self.controller.close(ConnectionId(number))?;
        }
        for (host, application) in wanted {
            if self.found.contains_key(&(host, Arc::clone(&application))) {
                continue;
            }
            let app = AppId(self.applications[&application].number);
            self.controller.open(ConnectionId(self.next), app, &[2 * host])?;
            self.found.insert((host, application), self.next);
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
        let changed = sharing.controller.update().changed;
        self.order(&sharing, changed).await
    }

    /// What agents have found, in order of hosts, applications and addresses.
    pub async fn found(&self) -> Vec<FoundState> {
        let sharing = self.sharing.lock().await;
        let of = |(&host, found): (&u32, &Vec<weir_proto::Found>)| {
            let state = |found: &weir_proto::Found| FoundState {
                host: self.hosts[host as usize].name.clone(),
                application: found.application.to_string(),
                peer: found.peer.to_string(),
                connections: found.open,
                sent_bytes: found.sent,
            };
            found.iter().map(state).collect::<Vec<_>>()
        };
        sharing.seen.iter().flat_map(of).collect()
    }
}
