//! Mutual TLS: the coordinator presents its certificate, and requires one of each client.
//!
//! The certificate of a client has exactly one name of the form `weir://ROLE/NAME`; see [`Identity`].

use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
pub use weir_tls::{TlsError, TlsFiles};

use crate::identity::Identity;

/// TLS of a listener.
#[derive(Clone)]
pub struct ListenerTls {
    /// The configuration of its connections.
    pub config: Arc<ServerConfig>,
    /// The first time after the validity of the coordinator's certificate.
    pub expiry: SystemTime,
}

impl ListenerTls {
    /// TLS with these files, for clients that use `protocol` (ALPN).
    ///
    /// # Errors
    /// As for [`weir_tls::server_config`].
    pub fn read(files: &TlsFiles, protocol: &[u8]) -> Result<ListenerTls, TlsError> {
        Ok(ListenerTls {
            config: weir_tls::server_config(files, protocol)?,
            expiry: weir_tls::own_expiry(files)?,
        })
    }
}

/// The identity in a verified certificate.
///
/// # Errors
/// The certificate has no identity, more than one, or a malformed one.
pub fn certificate_identity(certificate: &CertificateDer<'_>) -> Result<Identity, String> {
    let name = weir_tls::certificate_name(certificate)?;
    name.parse().map_err(|error: crate::identity::InvalidIdentity| error.to_string())
}
