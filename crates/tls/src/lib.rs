//! Mutual TLS 1.3. Both ends have a certificate with one name `weir://ROLE/NAME`, signed by an authority that the other end trusts.

mod config;
mod name;
mod session;
mod validity;

pub use config::{
    Tls, TlsError, TlsFiles, check_own_certificate, check_validity, client_config, own_expiry, server_config,
};
pub use name::{certificate_name, framework_name, relay_name};
pub use session::{TlsSession, is_plain_text, is_tls_record};
pub use validity::{ConnectionExpired, chain_expiry};

/// The start of all names in certificates.
pub const SCHEME: &str = "weir://";
