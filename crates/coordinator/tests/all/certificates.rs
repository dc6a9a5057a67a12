//! Certificates for tests, generated on each run.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use weir_coordinator::config::TlsFiles;

/// A certificate and its key, in PEM.
pub struct CertifiedKey {
    pub certificate: String,
    pub key: String,
}

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    fn sign(&self, params: &CertificateParams) -> CertifiedKey {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        CertifiedKey { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn params_for(names: &[&str]) -> CertificateParams {
        let mut params = CertificateParams::default();
        let uri = |name: &&str| SanType::URI(Ia5String::try_from(*name).unwrap());
        params.subject_alt_names = names.iter().map(uri).collect();
        params
    }

    /// A client's certificate with these URIs.
    pub fn client_certificate(&self, names: &[&str]) -> CertifiedKey {
        self.sign(&Authority::params_for(names))
    }

    /// An expired client's certificate with these URIs.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn expired_certificate(&self, names: &[&str]) -> CertifiedKey {
        let mut params = Authority::params_for(names);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(&params)
    }

    /// A client's certificate with these URIs that is not valid yet.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn future_certificate(&self, names: &[&str]) -> CertifiedKey {
        let mut params = Authority::params_for(names);
        params.not_before = date_time_ymd(3000, 1, 1);
        self.sign(&params)
    }

    /// A client's certificate with these URIs that is valid for four to five seconds.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn short_certificate(&self, names: &[&str]) -> CertifiedKey {
        let mut params = Authority::params_for(names);
        end_soon(&mut params);
        self.sign(&params)
    }

    /// Replaces the server's certificate of [`Authority::write_server_files`] by one that is valid for four to five seconds.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn write_short_server_files(&self, folder: &Path) -> TlsFiles {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        end_soon(&mut params);
        self.write_pair(folder, &self.sign(&params))
    }

    /// Files of a server with the name `localhost` that trusts this authority.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn write_server_files(&self, folder: &Path) -> TlsFiles {
        self.write_server_files_for(folder, &["localhost", "127.0.0.1"])
    }

    /// Files of a server with these names and addresses.
    pub fn write_server_files_for(&self, folder: &Path, names: &[&str]) -> TlsFiles {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.write_pair(folder, &self.sign(&CertificateParams::new(names).unwrap()))
    }

    fn write_pair(&self, folder: &Path, pair: &CertifiedKey) -> TlsFiles {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        TlsFiles {
            certificate: file("server.pem", &pair.certificate),
            key: file("server.key", &pair.key),
            clients: file("authority.pem", &self.pem()),
        }
    }
}

/// Sets the last second of validity to the fourth after this one.
fn end_soon(params: &mut CertificateParams) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(now + 4);
}

/// A client that trusts the authority, with or without a certificate.
#[allow(dead_code, reason = "each test has its own copy of this file")]
pub fn client_config(authority: &Authority, pair: Option<CertifiedKey>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match pair {
        None => builder.with_no_client_auth(),
        Some(CertifiedKey { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    }
}
