//! Resolves the names of relays while the coordinator runs.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tracing::{info, warn};

use super::handle::Handle;
use crate::config::{self, RelayAddress};

/// The time between two queries for a name.
pub(super) const QUERY_INTERVAL: Duration = Duration::from_secs(30);

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
    address: Option<SocketAddr>,
}

impl Names {
    /// The relays of a configuration that have names instead of IP addresses.
    pub fn of(config: &config::Overlay) -> Names {
        let named = |(id, relay): (u16, &config::Relay)| match &relay.address {
            RelayAddress::Fixed(_) => None,
            RelayAddress::Name { host, port } => Some(NamedRelay {
                id,
                name: relay.name.clone(),
                host: host.clone(),
                port: *port,
                address: None,
            }),
        };
        Names { relays: (0..).zip(&config.relays).filter_map(named).collect(), failed: BTreeSet::new() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.relays.is_empty()
    }

    /// Queries all names, and applies new addresses. A relay keeps its address while its name cannot be resolved.
    pub fn resolve(&mut self, handle: &Handle) {
        for relay in &mut self.relays {
            match query(relay) {
                Ok(address) => {
                    self.failed.remove(&relay.id);
                    if relay.address.replace(address) != Some(address) {
                        info!(relay = %relay.name, name = %relay.host, %address, "resolved the name of a relay");
                        handle.call(|overlay, _| overlay.set_address(relay.id, address));
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

/// An address of a relay: the present one, if the name still has it.
fn query(relay: &NamedRelay) -> io::Result<SocketAddr> {
    let found: Vec<SocketAddr> = (&*relay.host, relay.port).to_socket_addrs()?.collect();
    let present = relay.address.filter(|address| found.contains(address));
    present.or(found.first().copied()).ok_or_else(|| io::Error::other("the name has no addresses"))
}
