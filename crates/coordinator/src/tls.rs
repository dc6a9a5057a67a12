//! Mutual TLS: the coordinator shows its certificate, and asks everybody for theirs.
//!
//! Only TLS 1.3 is spoken. A client's certificate has to come from one of the configured authorities, and to say who it is in exactly one
//! name of the form `weir://ROLE/NAME` (a URI among its alternative names); see [`Identity`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::TlsFiles;
use crate::identity::Identity;

/// Why connections cannot be protected.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that is not what it should be.
    #[error("{}: expected {expected}: {message}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should have.
        expected: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// A certificate and a key that do not go together, or cannot be used.
    #[error("{}, with {}: {message}", .certificate.display(), .key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        message: String,
    },
}

impl TlsError {
    fn file(path: &Path, expected: &'static str, message: impl ToString) -> TlsError {
        TlsError::File { path: path.to_owned(), expected, message: message.to_string() }
    }
}

/// How a coordinator with these files answers, to clients that speak `protocol`.
///
/// # Errors
/// The file that is wrong.
pub fn server(files: &TlsFiles, protocol: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    const AUTHORITIES: &str = "certificates of authorities in PEM";
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(&files.clients, AUTHORITIES)? {
        authorities.add(certificate).map_err(|error| TlsError::file(&files.clients, AUTHORITIES, error))?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider))
        .build()
        .map_err(|error| TlsError::file(&files.clients, AUTHORITIES, error))?;
    let chain = certificates(&files.certificate, "certificates in PEM")?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| TlsError::file(&files.key, "a private key in PEM", error))?;
    let pair = |error: rustls::Error| TlsError::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        message: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pair)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

/// The certificates of a file, of which there is at least one.
fn certificates(path: &Path, expected: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error: pem::Error| TlsError::file(path, expected, error);
    let found = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(wrong)?;
    if found.is_empty() { Err(TlsError::file(path, expected, "there are none")) } else { Ok(found) }
}

/// Who a certificate says that it is, which was verified before.
///
/// # Errors
/// If it does not say, or says more than one thing.
pub fn identity(certificate: &CertificateDer<'_>) -> Result<Identity, String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
    let mut names = certificate.valid_uri_names().filter(|name| name.starts_with(Identity::SCHEME));
    match (names.next(), names.next()) {
        (Some(name), None) => name.parse().map_err(|error: crate::identity::NoIdentity| error.to_string()),
        (None, _) => Err("no name `weir://ROLE/NAME` in the certificate: expected one".to_owned()),
        (Some(_), Some(_)) => Err("two names `weir://ROLE/NAME` in the certificate: expected one".to_owned()),
    }
}
