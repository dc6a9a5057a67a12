//! Certificates for tests, generated on each run.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, date_time_ymd,
};
use weir_tls::TlsFiles;

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Files in a folder of an end with this name, that trusts this authority.
    pub fn write_files(&self, folder: &Path, name: &str) -> TlsFiles {
        self.write(folder, &[name], 4000, self)
    }

    /// Files with a certificate that is valid for four to five seconds.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn write_short_files(&self, folder: &Path, name: &str) -> TlsFiles {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let set_end = |params: &mut CertificateParams| {
            params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(now + 4);
        };
        self.write_until(folder, &[name], set_end, self)
    }

    /// Files of a server at an address.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn write_server_files(&self, folder: &Path, address: IpAddr) -> TlsFiles {
        let set_address = |params: &mut CertificateParams| {
            params.subject_alt_names = vec![SanType::IpAddress(address)];
            params.not_after = date_time_ymd(4000, 1, 1);
        };
        self.write_until(folder, &["server"], set_address, self)
    }

    /// Files with an expired certificate.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn write_expired_files(&self, folder: &Path, name: &str) -> TlsFiles {
        self.write(folder, &[name], 2021, self)
    }

    /// Files with a certificate of this authority, of an end that trusts another one.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn write_files_that_trust(&self, other: &Authority, folder: &Path, name: &str) -> TlsFiles {
        self.write(folder, &[name], 4000, other)
    }

    /// Files with an expired certificate of this authority, of an end that trusts another one.
    #[allow(dead_code, reason = "each test has its own copy of this file")]
    pub fn write_expired_files_that_trust(&self, other: &Authority, folder: &Path, name: &str) -> TlsFiles {
        self.write(folder, &[name], 2021, other)
    }

    fn write(&self, folder: &Path, names: &[&str], last_year: i32, trusted: &Authority) -> TlsFiles {
        self.write_until(folder, names, |params| params.not_after = date_time_ymd(last_year, 1, 1), trusted)
    }

    fn write_until(
        &self,
        folder: &Path,
        names: &[&str],
        set_end: impl FnOnce(&mut CertificateParams),
        trusted: &Authority,
    ) -> TlsFiles {
        let mut params = CertificateParams::default();
        let uri = |name: &&str| SanType::URI(Ia5String::try_from(*name).unwrap());
        params.subject_alt_names = names.iter().map(uri).collect();
        params.not_before = date_time_ymd(2020, 1, 1);
        set_end(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        let stem = names.join("+").replace([':', '/'], "-");
        let file = |suffix: &str, text: &str| {
            let path = folder.join(format!("{stem}-{suffix}"));
            fs::write(&path, text).unwrap();
            path
        };
        TlsFiles {
            certificate: file("certificate.pem", &certificate),
            key: file("key.pem", &key.serialize_pem()),
            clients: file("authority.pem", &trusted.0.pem()),
        }
    }
}
