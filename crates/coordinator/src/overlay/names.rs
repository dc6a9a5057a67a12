//! Resolves the names of relays while the coordinator runs.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tracing::{info, warn};

use super::handle::Handle;
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

struct NamedRelay {
    id: u16,
    name: String,
    host: String,
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

    /// Queries all names at the same time, and applies new addresses. A relay keeps its address while its name cannot be resolved.
    pub async fn resolve(&mut self, handle: &Handle) {
        let answers = join_all(self.relays.iter().map(query)).await;
        for (relay, answer) in self.relays.iter().zip(answers) {
            match answer {
                Ok(found) => {
                    self.failed.remove(&relay.id);
                    let present = handle.call(|overlay, _| overlay.addresses()[usize::from(relay.id)]);
                    let is_present = present.is_some_and(|present| found.contains(&present));
                    if let Some(&address) = found.first().filter(|_| !is_present) {
                        note_address(relay, address, handle);
                    }
                }
                Err(error) => {
                    if self.failed.insert(relay.id) {
                        warn!(relay = %relay.name, name = %relay.host, %error, "cannot resolve the name of a relay");
                    }
                }
            }
        }
    }
}

/// Applies the new address of a relay.
fn note_address(relay: &NamedRelay, address: SocketAddr, handle: &Handle) {
    info!(relay = %relay.name, name = %relay.host, %address, "resolved the name of a relay");
    let has_other_hosts = |relay: &config::Relay| match relay.address {
        RelayAddress::Fixed(address) => !address.ip().is_loopback(),
        RelayAddress::Name { .. } => false,
    };
    if address.ip().is_loopback() && handle.config().relays.iter().any(has_other_hosts) {
        warn!(
            relay = %relay.name, name = %relay.host, %address,
            "other hosts cannot reach the address of a relay; help: the coordinator's host resolves its own name to a loopback address: \
             write the IP address into the configuration"
        );
    }
    handle.call(|overlay, _| overlay.set_address(relay.id, address));
}

/// The addresses of a relay.
async fn query(relay: &NamedRelay) -> io::Result<Vec<SocketAddr>> {
    let lookup = timeout(QUERY_TIMEOUT, lookup_host((&*relay.host, relay.port)));
    let found: Vec<SocketAddr> = lookup.await??.collect();
    if found.is_empty() { Err(io::Error::other("the name has no addresses")) } else { Ok(found) }
}
