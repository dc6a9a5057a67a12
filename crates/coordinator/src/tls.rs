//! Mutual TLS: the coordinator presents its certificate, and requires one of each client.
//!
//! The certificate of a client has exactly one name of the form `weir://ROLE/NAME`; see [`Identity`].

use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{error, info};
use weir_tls::{RELOAD_INTERVAL, Refresh, Reloaded};
pub use weir_tls::{TlsError, TlsFiles};

use crate::identity::Identity;

/// A port of the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// For agents and relays.
    Agents,
    /// For frameworks and operators.
    Api,
}

impl Port {
    /// The name in the configuration and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Port::Agents => "agents",
            Port::Api => "api",
        }
    }

    /// The protocol of its connections (ALPN).
    fn protocol(self) -> &'static [u8] {
        match self {
            Port::Agents => b"h2",
            Port::Api => b"http/1.1",
        }
    }
}

/// The coordinator's certificate, as configurations of TLS.
pub struct ServerTls {
    agents: Arc<ServerConfig>,
    api: Arc<ServerConfig>,
    expiry: SystemTime,
}

impl ServerTls {
    /// TLS with these files.
    ///
    /// # Errors
    /// As for [`weir_tls::server_config`].
    pub fn read(files: &TlsFiles) -> Result<ServerTls, TlsError> {
        Ok(ServerTls {
            agents: weir_tls::server_config(files, Port::Agents.protocol())?,
            api: weir_tls::server_config(files, Port::Api.protocol())?,
            expiry: weir_tls::own_expiry(files)?,
        })
    }

    /// The configuration of a new connection.
    pub fn config(&self, port: Port) -> Arc<ServerConfig> {
        Arc::clone(match port {
            Port::Agents => &self.agents,
            Port::Api => &self.api,
        })
    }

    /// The first time after the validity of the certificate.
    pub fn expiry(&self) -> SystemTime {
        self.expiry
    }
}

/// The coordinator's certificate, which is read again when its files change.
pub type ServerCertificate = Reloaded<ServerTls>;

/// Reads the certificate of these files.
///
/// # Errors
/// As for [`ServerTls::read`].
pub fn read_certificate(files: &TlsFiles) -> Result<Arc<ServerCertificate>, TlsError> {
    Reloaded::new(files, ServerTls::read).map(Arc::new)
}

/// Reads changed files until the future is dropped. New connections use the new certificate.
pub async fn reload_certificate(certificate: Arc<ServerCertificate>) {
    loop {
        sleep(RELOAD_INTERVAL).await;
        let read = Arc::clone(&certificate);
        match spawn_blocking(move || read.refresh()).await {
            Ok(Refresh::Unchanged) => {}
            Ok(Refresh::Reloaded) => {
                let days = certificate.status().seconds_left() / 86_400.0;
                info!("new certificate in use; it is valid for {days:.1} days");
            }
            Ok(Refresh::Failed(reason)) => {
                error!(%reason, "new certificate files are unusable; the former certificate stays in use");
            }
            Err(error) => error!(%error, "certificate files cannot be read"),
        }
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
