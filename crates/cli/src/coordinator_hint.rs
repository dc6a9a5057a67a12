//! Explains why an agent or a relay has no coordinator.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a coordinator may take before its address is examined.
pub const HINT_DELAY: Duration = Duration::from_secs(1);

/// How long a connection, or an answer, may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to the address of a coordinator, and returns what a user can do if this is not an address for agents and relays.
pub fn explain(address: &str, has_certificate: bool) -> Option<String> {
    let expected = "expected the address `agents` of the coordinator's configuration, such as 127.0.0.1:7700";
    let Some(target) = address.to_socket_addrs().ok().and_then(|mut targets| targets.next()) else {
        return Some(format!("--coordinator: the name in `{address}` has no address; {expected}"));
    };
    let mut stream = match TcpStream::connect_timeout(&target, TIMEOUT) {
        Ok(stream) => stream,
        Err(error) => {
            return Some(format!(
                "--coordinator: no coordinator accepts connections at {address} ({error}); {expected}; help: start it (`weir serve`)"
            ));
        }
    };
    if has_certificate {
        return None;
    }
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).ok()?;
    match &answer {
        b"HTTP/" => {
            Some(format!("--coordinator: {address} serves HTTP/1.1, as the coordinator's API; {expected}"))
        }
        // An alert of TLS.
        [0x15, ..] => Some(format!(
            "--coordinator: {address} expects TLS; expected a certificate; help: add --certificate, --key and --authority"
        )),
        _ => None,
    }
}
