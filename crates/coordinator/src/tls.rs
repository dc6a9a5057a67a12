//! Mutual TLS: the coordinator presents its certificate, and requires one of each client.
//!
//! The certificate of a client has exactly one name of the form `weir://ROLE/NAME`; see [`Identity`].

use rustls::pki_types::CertificateDer;
pub use weir_tls::{TlsError, server_config};

use crate::identity::Identity;

/// The identity in a verified certificate.
///
/// # Errors
/// The certificate has no identity, more than one, or a malformed one.
pub fn certificate_identity(certificate: &CertificateDer<'_>) -> Result<Identity, String> {
    let name = weir_tls::certificate_name(certificate)?;
    name.parse().map_err(|error: crate::identity::InvalidIdentity| error.to_string())
}
