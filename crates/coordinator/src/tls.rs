//! Configures mutual TLS: the coordinator presents its certificate, and requires one of each client.
//!
//! Only TLS 1.3 is accepted. One of the configured authorities must have signed a client's certificate. The certificate has
//! exactly one name of the form `weir://ROLE/NAME`, a URI in its subject alternative names; see [`Identity`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::TlsFiles;
use crate::identity::Identity;

/// Reason for which TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file has unexpected contents.
    #[error("{}: cannot be used; expected {expected} ({message})", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The expected contents.
        expected: &'static str,
        /// The cause.
        message: String,
    },
    /// The certificate and the key do not match, or cannot be used.
    #[error("{} with key {}: cannot be used: {message}", .certificate.display(), .key.display())]
    KeyMismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The cause.
        message: String,
    },
}

impl TlsError {
    fn file(path: &Path, expected: &'static str, message: impl ToString) -> TlsError {
        TlsError::File { path: path.to_owned(), expected, message: message.to_string() }
    }
}

/// TLS configuration of a server with these files, for clients that use `protocol` (ALPN).
///
/// # Errors
/// [`TlsError`]: a file cannot be read or parsed, or the certificate and the key do not match.
pub fn server_config(files: &TlsFiles, protocol: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = Arc::new(read_authorities(files)?);
    let clients = WebPkiClientVerifier::builder_with_provider(authorities, Arc::clone(&provider))
        .build()
        .map_err(|error| TlsError::file(&files.clients, EXPECTED_AUTHORITIES, error))?;
    let (chain, key) = read_identity(files)?;
    let key_mismatch = |error| key_mismatch(files, &error);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(key_mismatch)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(key_mismatch)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

/// TLS configuration of a client with these files, for servers that use `protocol` (ALPN) and whose certificates the same authorities
/// have signed.
///
/// # Errors
/// As for [`server_config`].
pub fn client_config(files: &TlsFiles, protocol: &[u8]) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = read_identity(files)?;
    let key_mismatch = |error| key_mismatch(files, &error);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(key_mismatch)?
        .with_root_certificates(read_authorities(files)?)
        .with_client_auth_cert(chain, key)
        .map_err(key_mismatch)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

const EXPECTED_AUTHORITIES: &str = "certificates of authorities in PEM";

fn read_authorities(files: &TlsFiles) -> Result<RootCertStore, TlsError> {
    let mut authorities = RootCertStore::empty();
    for certificate in read_certificates(&files.clients, EXPECTED_AUTHORITIES)? {
        authorities
            .add(certificate)
            .map_err(|error| TlsError::file(&files.clients, EXPECTED_AUTHORITIES, error))?;
    }
    Ok(authorities)
}

type CertifiedKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read_identity(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(&files.certificate, "certificates in PEM")?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| TlsError::file(&files.key, "a private key in PEM", error))?;
    Ok((chain, key))
}

fn key_mismatch(files: &TlsFiles, error: &rustls::Error) -> TlsError {
    TlsError::KeyMismatch {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        message: error.to_string(),
    }
}

/// The certificates of a file; at least one.
fn read_certificates(path: &Path, expected: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file_error = |error: pem::Error| TlsError::file(path, expected, error);
    let certificates = CertificateDer::pem_file_iter(path).map_err(file_error)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(file_error)?;
    if certificates.is_empty() {
        Err(TlsError::file(path, expected, "the file contains no certificate"))
    } else {
        Ok(certificates)
    }
}

/// The identity in a verified certificate.
///
/// # Errors
/// The certificate has no identity, more than one, or a malformed one.
pub fn certificate_identity(certificate: &CertificateDer<'_>) -> Result<Identity, String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
    let mut names = certificate.valid_uri_names().filter(|name| name.starts_with(Identity::SCHEME));
    match (names.next(), names.next()) {
        (Some(name), None) => {
            name.parse().map_err(|error: crate::identity::InvalidIdentity| error.to_string())
        }
        (None, _) => Err("certificate has no name `weir://ROLE/NAME`; expected one".to_owned()),
        (Some(_), Some(_)) => {
            Err("certificate has several names `weir://ROLE/NAME`; expected one".to_owned())
        }
    }
}
