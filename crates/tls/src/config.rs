//! Reads certificates, and configures both ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::validity::check_period;
use crate::{TlsSession, certificate_name, chain_expiry};

/// Certificate files, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The own certificate, and the intermediate certificates up to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates of the authorities that sign the certificates of other ends.
    pub clients: PathBuf,
}

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
    /// The own certificate is outside its validity.
    #[error(
        "{}: the certificate {problem}; expected one that is valid now; help: make a new certificate, or correct the clock of this host",
        .certificate.display()
    )]
    NotValidNow {
        /// The certificate's file.
        certificate: PathBuf,
        /// `has expired` or `is not valid yet`.
        problem: &'static str,
    },
    /// The own certificate has the name of another end.
    #[error("{}: the certificate has the name {found}; expected {expected}", .certificate.display())]
    OtherName {
        /// The certificate's file.
        certificate: PathBuf,
        /// Its name.
        found: String,
        /// The name of this end.
        expected: String,
    },
    /// No authority of the file has signed the own certificate.
    #[error(
        "{}: no authority in {} has signed the certificate ({message}); expected a certificate of this authority",
        .certificate.display(), .authorities.display()
    )]
    OtherAuthority {
        /// The certificate's file.
        certificate: PathBuf,
        /// The authorities' file.
        authorities: PathBuf,
        /// The cause.
        message: String,
    },
}

impl TlsError {
    fn file(path: &Path, expected: &'static str, message: impl ToString) -> TlsError {
        TlsError::File { path: path.to_owned(), expected, message: message.to_string() }
    }
}

/// TLS configuration of a server with these files, for clients that use `protocol` (ALPN). Clients cannot resume sessions: a
/// handshake that resumes one does not verify the client's certificate.
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
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// TLS configuration of a client with these files, for servers that use `protocol` (ALPN) and whose certificates the same authorities
/// have signed. The caller has to check the name in the server's certificate: [`TlsSession::peer_name`].
///
/// # Errors
/// As for [`server_config`].
pub fn client_config(files: &TlsFiles, protocol: &[u8]) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = AuthorityVerifier {
        authorities: read_authorities(files)?,
        algorithms: provider.signature_verification_algorithms,
    };
    let (chain, key) = read_identity(files)?;
    let key_mismatch = |error| key_mismatch(files, &error);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(key_mismatch)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain, key)
        .map_err(key_mismatch)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    // The verifier ignores the name of the server, so none is sent.
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The first time after the validity of the own certificate.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn own_expiry(files: &TlsFiles) -> Result<SystemTime, TlsError> {
    Ok(chain_expiry(&read_identity(files)?.0))
}

/// The name in the own certificate.
///
/// # Errors
/// A file cannot be read or parsed, or the certificate has no name `weir://ROLE/NAME`, or several.
pub fn own_name(files: &TlsFiles) -> Result<String, TlsError> {
    name_of(files, &read_identity(files)?.0)
}

fn name_of(files: &TlsFiles, chain: &[CertificateDer<'_>]) -> Result<String, TlsError> {
    certificate_name(&chain[0]).map_err(|error| {
        TlsError::file(&files.certificate, "a certificate with a name `weir://ROLE/NAME`", error)
    })
}

/// Checks that other ends with the same authorities accept the own certificate now.
///
/// # Errors
/// As for [`server_config`], or the certificate is outside its validity, or another authority has signed it.
pub fn check_own_certificate(files: &TlsFiles) -> Result<(), TlsError> {
    let (chain, _) = read_identity(files)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = read_authorities(files)?;
    let (certificate, intermediates) = chain.split_first().expect("a file with certificates is not empty");
    let now = UnixTime::now();
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities.clone()), Arc::clone(&provider))
            .build()
            .map_err(|error| TlsError::file(&files.clients, EXPECTED_AUTHORITIES, error))?;
    let as_server = AuthorityVerifier { authorities, algorithms: provider.signature_verification_algorithms };
    // A certificate may be for one end of connections only.
    let verified = clients.verify_client_cert(certificate, intermediates, now).map(drop).or_else(|_| {
        let unused_name = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        as_server.verify_server_cert(certificate, intermediates, &unused_name, &[], now).map(drop)
    });
    verified.map_err(|error| {
        let certificate = files.certificate.clone();
        match error {
            rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => TlsError::NotValidNow { certificate, problem: "has expired" },
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => TlsError::NotValidNow { certificate, problem: "is not valid yet" },
            rustls::Error::InvalidCertificate(error) => TlsError::OtherAuthority {
                certificate,
                authorities: files.clients.clone(),
                message: error.to_string(),
            },
            error => TlsError::file(&files.certificate, "a certificate of the authority", error),
        }
    })
}

/// Checks that the own certificate is valid now. Any authority may have signed it: servers and clients can have different
/// authorities.
///
/// # Errors
/// [`TlsError::NotValidNow`], or a file cannot be read or parsed.
pub fn check_validity(files: &TlsFiles) -> Result<(), TlsError> {
    let (chain, _) = read_identity(files)?;
    let certificate = || files.certificate.clone();
    check_period(&chain[0], UnixTime::now()).map_err(|error| match error {
        webpki::Error::CertExpired { .. } => {
            TlsError::NotValidNow { certificate: certificate(), problem: "has expired" }
        }
        webpki::Error::CertNotValidYet { .. } => {
            TlsError::NotValidNow { certificate: certificate(), problem: "is not valid yet" }
        }
        error => TlsError::file(&files.certificate, "certificates in PEM", error),
    })
}

/// Accepts servers with certificates of these authorities, whatever their names.
#[derive(Debug)]
struct AuthorityVerifier {
    authorities: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AuthorityVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.authorities,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// TLS between relays, or between relays and programs. Names take the place of host names: the caller checks
/// [`TlsSession::peer_name`].
#[derive(Debug, Clone)]
pub struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: String,
    expiry: SystemTime,
    is_local_included: bool,
}

impl Tls {
    /// TLS with these files, for `protocol` (ALPN).
    ///
    /// # Errors
    /// As for [`server_config`], or the certificate has no name `weir://ROLE/NAME`.
    pub fn read(files: &TlsFiles, protocol: &[u8]) -> Result<Tls, TlsError> {
        let (chain, _) = read_identity(files)?;
        let name = name_of(files, &chain)?;
        Ok(Tls {
            server: server_config(files, protocol)?,
            client: client_config(files, protocol)?,
            name,
            expiry: chain_expiry(&chain),
            is_local_included: false,
        })
    }

    /// Applies TLS also to connections inside a host. Default: they use plain text.
    #[must_use]
    pub fn with_local(self, is_local_included: bool) -> Tls {
        Tls { is_local_included, ..self }
    }

    /// The name in the own certificate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first time after the validity of the own certificate.
    pub fn expiry(&self) -> SystemTime {
        self.expiry
    }

    /// Whether a connection between these addresses uses TLS. Equal addresses are those of one host. Both ends get the same result.
    pub fn applies_to(&self, local: io::Result<SocketAddr>, remote: io::Result<SocketAddr>) -> bool {
        let (Ok(local), Ok(remote)) = (local, remote) else { return true };
        let (local, remote) = (local.ip().to_canonical(), remote.ip().to_canonical());
        self.is_local_included || !(local.is_loopback() || remote.is_loopback() || local == remote)
    }

    /// The session of an accepted connection.
    ///
    /// # Errors
    /// If the configuration is unusable.
    pub fn accept(&self) -> io::Result<TlsSession> {
        let server = ServerConnection::new(Arc::clone(&self.server)).map_err(io::Error::other)?;
        Ok(TlsSession::new(server, self.expiry))
    }

    /// The session of a connection to another end.
    ///
    /// # Errors
    /// If the configuration is unusable.
    pub fn connect(&self) -> io::Result<TlsSession> {
        // The verifier ignores it.
        let name = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let client = ClientConnection::new(Arc::clone(&self.client), name).map_err(io::Error::other)?;
        Ok(TlsSession::new(client, self.expiry))
    }
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
