//! Mutual TLS 1.3. Both ends have a certificate with one name `weir://ROLE/NAME`, signed by an authority that the other end trusts.

mod config;
mod failure;
mod log_limit;
mod name;
mod reload;
mod session;
mod validity;

pub use config::{
    Tls, TlsError, TlsFiles, check_own_certificate, check_validity, client_config, own_expiry, own_name,
    server_config,
};
pub use failure::{FailureCounts, HandshakeFailure, WrongName};
pub use log_limit::LogLimit;
pub use name::{certificate_name, framework_name, relay_name};
pub use reload::{CertificateStatus, RELOAD_INTERVAL, Refresh, Reloaded, seconds_until};
pub use session::{TlsSession, is_plain_text, is_tls_record};
pub use validity::{ConnectionExpired, chain_expiry};

/// The start of all names in certificates.
pub const SCHEME: &str = "weir://";
