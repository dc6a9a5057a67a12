//! The address at which agents and relays serve metrics (`--metrics`).

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use weir_console::failure::Failure;
use weir_metrics::MetricsTls;
use weir_tls::{TlsError, TlsFiles};

use crate::args::Credentials;

/// TLS for metrics at an address; none for plain text, at loopback addresses or with `is_insecure`.
pub fn read_tls(
    address: SocketAddr,
    credentials: &Credentials,
    is_insecure: bool,
) -> Result<Option<MetricsTls>, Failure> {
    if address.ip().is_loopback() || is_insecure {
        return Ok(None);
    }
    let Credentials { certificate: Some(certificate), key: Some(key), authority: Some(authority) } =
        credentials
    else {
        return Err(Failure::input(format_args!(
            "--metrics: {address} can be reached from other hosts over plain text; expected a loopback address, --certificate with \
             --key and --authority, or --insecure"
        )));
    };
    let files = TlsFiles { certificate: certificate.clone(), key: key.clone(), clients: authority.clone() };
    MetricsTls::read(&files).map(Some).map_err(|error: TlsError| Failure::input(error))
}

/// The URL of metrics.
pub fn url(address: SocketAddr, has_tls: bool) -> String {
    format!("{}://{address}/metrics", if has_tls { "https" } else { "http" })
}

/// Listens at an address.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| Failure::runtime(listen_message("--metrics", address, "", &error)))
}

/// The message of a failure to listen at an address of an option, which may come from a file.
pub fn listen_message(option: &str, address: SocketAddr, origin: &str, error: &io::Error) -> String {
    format!(
        "{option}: {address}{origin}: cannot listen: {error}; expected a free port of an address of this host"
    )
}
