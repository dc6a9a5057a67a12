//! What a port knows about its peers: failed handshakes, refused connections, and when the certificates of connected peers expire.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tracing::{debug, warn};
use weir_tls::{FailureCounts, HandshakeFailure, LogLimit};

use crate::identity::Identity;
use crate::tls::Port;

/// The peers of a port.
pub struct Peers {
    port: Port,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    failures: FailureCounts,
    log_limit: LogLimit,
    /// The role and the end of the certificate of each connected peer.
    connected: BTreeMap<u64, (&'static str, SystemTime)>,
    next_id: u64,
}

/// A connected peer. Dropping it ends its entry.
pub struct ConnectedPeer {
    peers: Arc<Peers>,
    id: u64,
}

impl Peers {
    /// No peers yet.
    pub fn new(port: Port) -> Arc<Peers> {
        Arc::new(Peers { port, start: Instant::now(), state: Mutex::default() })
    }

    /// The port.
    pub fn port(&self) -> Port {
        self.port
    }

    /// Counts a failed handshake, or a peer with the wrong role, and logs it. Of one address, a cause is logged once, and again
    /// after a minute if it has changed; closed connections, such as those of port scans, are not.
    pub fn note_failure(&self, address: SocketAddr, error: &io::Error) {
        let failure = HandshakeFailure::of(error);
        let port = self.port.name();
        let mut state = self.lock();
        state.failures.add(failure);
        let problem = match failure {
            HandshakeFailure::PlainText => "the peer uses plain text; expected TLS".to_owned(),
            _ => error.to_string(),
        };
        let is_logged = failure != HandshakeFailure::Incomplete
            && state.log_limit.permits(&address.ip().to_string(), &problem, self.start.elapsed());
        drop(state);
        let help = failure.help().map_or_else(String::new, |help| format!("; help: {help}"));
        if is_logged {
            warn!(port, %address, reason = %failure, "connection refused: {problem}{help}");
        } else {
            debug!(port, %address, reason = %failure, "connection refused: {problem}{help}");
        }
    }

    /// Logs that a client, an address or an identity, has too many connections: once, and again after a minute if there are more.
    /// `over_limit`: the number of connections over a limit since the start.
    pub fn note_over_limit(&self, client: &str, over_limit: u64) {
        let port = self.port.name();
        let text = format!(
            "too many connections: further ones are refused, or can request only health and metrics; {over_limit} so far; help: \
             close idle connections, or raise the limits of connections in `[limits]`"
        );
        if self.lock().log_limit.permits(client, &text, self.start.elapsed()) {
            warn!(port, client, "{text}");
        }
    }

    /// Counts a peer until the result is dropped. `expiry`: the end of its certificate.
    pub fn connect(self: &Arc<Self>, identity: &Identity, expiry: SystemTime) -> ConnectedPeer {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.connected.insert(id, (identity.role(), expiry));
        drop(state);
        ConnectedPeer { peers: Arc::clone(self), id }
    }

    /// The number of failed handshakes by reason.
    pub fn failures(&self) -> FailureCounts {
        self.lock().failures
    }

    /// For each role, the first end of a connected peer's certificate.
    pub fn first_expiries(&self) -> BTreeMap<&'static str, SystemTime> {
        let mut first = BTreeMap::new();
        for &(role, expiry) in self.lock().connected.values() {
            let earliest = first.entry(role).or_insert(expiry);
            *earliest = expiry.min(*earliest);
        }
        first
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectedPeer {
    fn drop(&mut self) {
        self.peers.lock().connected.remove(&self.id);
    }
}
