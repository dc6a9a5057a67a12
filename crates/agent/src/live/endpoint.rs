//! Builds the endpoint of a coordinator from its address and the agent's TLS files.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

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
}

/// A coordinator at `HOST:PORT`: over TLS with the agent's certificate, its key and the authority that signed the coordinator's
/// certificate, as files in PEM; over plain text without files.
///
/// # Errors
/// If the address or a file is malformed, or a file cannot be read.
pub fn endpoint(address: &str, files: Option<[&Path; 3]>) -> Result<Endpoint, EndpointError> {
    let Some([certificate, key, authority]) = files else {
        return Ok(Endpoint::from_shared(format!("http://{address}"))?);
    };
    let read =
        |path: &Path| fs::read(path).map_err(|source| EndpointError::File { path: path.to_owned(), source });
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(authority)?))
        .identity(Identity::from_pem(read(certificate)?, read(key)?));
    Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls).map_err(|error| EndpointError::Tls {
        files: [certificate, key, authority].map(Path::to_owned),
        reason: error.source().map_or_else(|| error.to_string(), |source| source.to_string()),
    })
}
