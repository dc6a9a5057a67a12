//! Resolves the names of relays while the coordinator runs.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tracing::warn;

use crate::config::{self, RelayAddress};

/// The time between two queries for a name.
pub(super) const QUERY_INTERVAL: Duration = Duration::from_secs(30);

/// The maximum time of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The names of relays, and their addresses.
pub(super) struct Names {
    relays: Vec<NamedRelay>,
    /// The relays whose names could not be resolved, which the log has named.
    failed: BTreeSet<u16>,
}

/// A relay with a name instead of an IP address.
pub(super) struct NamedRelay {
    pub id: u16,
    pub name: String,
    pub host: String,
    port: u16,
}

impl Names {
    /// The relays of a configuration that have names instead of IP addresses.
    pub fn of(config: &config::Overlay) -> Names {
        let named = |(id, relay): (u16, &config::Relay)| match &relay.address {
            RelayAddress::Fixed(_) => None,
            RelayAddress::Name { host, port } => {
                Some(NamedRelay { id, name: relay.name.clone(), host: host.clone(), port: *port })
            }
        };
        Names { relays: (0..).zip(&config.relays).filter_map(named).collect(), failed: BTreeSet::new() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.relays.is_empty()
    }

    /// Queries all names at the same time. Returns the relays whose names could be resolved, with their addresses.
    pub async fn resolve(&mut self) -> Vec<(&NamedRelay, Vec<SocketAddr>)> {
        let answers = join_all(self.relays.iter().map(query)).await;
        let mut resolved = Vec::new();
        for (relay, answer) in self.relays.iter().zip(answers) {
            match answer {
                Ok(found) => {
                    self.failed.remove(&relay.id);
                    resolved.push((relay, found));
                }
                Err(error) => {
                    if self.failed.insert(relay.id) {
                        warn!(relay = %relay.name, name = %relay.host, %error, "cannot resolve the name of a relay");
                    }
                }
            }
        }
        resolved
    }
}

/// The addresses of a relay.
async fn query(relay: &NamedRelay) -> io::Result<Vec<SocketAddr>> {
    let lookup = timeout(QUERY_TIMEOUT, lookup_host((&*relay.host, relay.port)));
    let found: Vec<SocketAddr> = lookup.await??.collect();
    if found.is_empty() { Err(io::Error::other("the name has no addresses")) } else { Ok(found) }
}
