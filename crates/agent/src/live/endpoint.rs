//! The endpoint of a coordinator: its address, and the TLS files of an agent or relay.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use weir_tls::{CertificateStatus, Refresh, Reloaded, SCHEME, TlsError, TlsFiles, own_name};

/// Why a coordinator's address or files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not an address.
    #[error(transparent)]
    Address(#[from] tonic::transport::Error),
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Files that are not a certificate, its key and an authority.
    #[error(
        "{}, {} and {} are invalid: {reason}; expected a certificate, its key and the authority's certificate in PEM",
        .files[0].display(), .files[1].display(), .files[2].display()
    )]
    Tls {
        /// The certificate, its key and the authority.
        files: [PathBuf; 3],
        /// The cause.
        reason: String,
    },
    /// A file that is not a certificate.
    #[error(transparent)]
    Certificate(#[from] TlsError),
}

/// A coordinator at `HOST:PORT`: over TLS with the agent's certificate, its key and the authority that signed the coordinator's
/// certificate, as files in PEM; over plain text without files. New files are used for the connections that follow.
#[derive(Clone)]
pub struct CoordinatorEndpoint {
    endpoint: Endpoint,
    tls: Option<Arc<Reloaded<ClientTls>>>,
}

/// A certificate for connections to the coordinator.
struct ClientTls {
    config: ClientTlsConfig,
    /// The name in the certificate, or why no name was found.
    name: Result<String, String>,
}

impl From<Endpoint> for CoordinatorEndpoint {
    fn from(endpoint: Endpoint) -> CoordinatorEndpoint {
        CoordinatorEndpoint { endpoint, tls: None }
    }
}

impl CoordinatorEndpoint {
    /// A coordinator at an address, with the certificate, its key and the authority as files.
    ///
    /// # Errors
    /// If the address or a file is malformed, or a file cannot be read.
    pub fn new(address: &str, files: Option<[&Path; 3]>) -> Result<CoordinatorEndpoint, EndpointError> {
        let Some([certificate, key, authority]) = files.map(|files| files.map(Path::to_owned)) else {
            return Ok(Endpoint::from_shared(format!("http://{address}"))?.into());
        };
        let endpoint = Endpoint::from_shared(format!("https://{address}"))?;
        let files = TlsFiles { certificate, key, clients: authority };
        let checked = endpoint.clone();
        let tls = Reloaded::new(&files, move |files| client_tls(&checked, files))?;
        Ok(CoordinatorEndpoint { endpoint, tls: Some(Arc::new(tls)) })
    }

    /// The endpoint for one connection. It shares no sessions with other connections, so a connection cannot resume one.
    pub fn current(&self) -> Endpoint {
        let endpoint = self.endpoint.clone();
        match &self.tls {
            None => endpoint,
            Some(tls) => endpoint
                .tls_config(tls.current().config.clone())
                .expect("the same configuration was applied when its files were read"),
        }
    }

    /// The state of the own certificate; none for plain text.
    pub fn certificate_status(&self) -> Option<CertificateStatus> {
        self.tls.as_ref().map(|tls| tls.status())
    }

    /// Reads the files again if they have changed. It can block.
    pub fn refresh(&self) -> Refresh {
        self.tls.as_ref().map_or(Refresh::Unchanged, |tls| tls.refresh())
    }

    /// The NAME of the own certificate, whose name is `weir://ROLE/NAME`; none without a certificate.
    ///
    /// # Errors
    /// The certificate has no name, or the name of another role.
    pub fn certified_name(&self, role: &str) -> Result<Option<String>, String> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let expected = format!("{SCHEME}{role}/");
        let tls = tls.current();
        let name = tls.name.as_ref().map_err(Clone::clone)?;
        match name.strip_prefix(&expected) {
            Some(name) => Ok(Some(name.to_owned())),
            None => Err(format!("the certificate has the name {name}; expected {expected}NAME")),
        }
    }

    /// Why the coordinator refuses the own certificate: it is not valid now, or not that of this role. None if it is, or without one. It
    /// can block.
    pub fn certificate_problem(&self, role: &str) -> Option<String> {
        let tls = self.tls.as_ref()?;
        tls.problem().or_else(|| self.certified_name(role).err())
    }
}

/// The configuration of TLS with these files, which an endpoint accepts.
fn client_tls(endpoint: &Endpoint, files: &TlsFiles) -> Result<ClientTls, EndpointError> {
    let read =
        |path: &Path| fs::read(path).map_err(|source| EndpointError::File { path: path.to_owned(), source });
    let TlsFiles { certificate, key, clients } = files;
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(clients)?))
        .identity(Identity::from_pem(read(certificate)?, read(key)?));
    endpoint.clone().tls_config(config.clone()).map_err(|error| EndpointError::Tls {
        files: [certificate, key, clients].map(PathBuf::clone),
        reason: error.source().map_or_else(|| error.to_string(), |source| source.to_string()),
    })?;
    Ok(ClientTls { config, name: own_name(files).map_err(|error| error.to_string()) })
}
