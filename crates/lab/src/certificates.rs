//! Certificates of Weir's relays, by an authority that exists for one experiment.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

use crate::LabError;

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Result<Authority, LabError> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = KeyPair::generate().and_then(|key| CertifiedIssuer::self_signed(params, key));
        issuer.map(Authority).map_err(failure)
    }

    /// Writes the files for a relay of this name. Returns the options of `weir relay run` that name them.
    pub(crate) fn write_files(&self, folder: &Path, relay: &str) -> Result<Vec<String>, LabError> {
        let mut params = CertificateParams::default();
        let uri = Ia5String::try_from(format!("weir://relay/{relay}")).map_err(failure)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        let key = KeyPair::generate().map_err(failure)?;
        let certificate = params.signed_by(&key, &self.0).map_err(failure)?;
        let files = [
            ("--certificate", "pem", certificate.pem()),
            ("--key", "key", key.serialize_pem()),
            ("--authority", "authority", self.0.pem()),
        ];
        let mut options = Vec::new();
        for (option, extension, text) in files {
            let path: PathBuf = folder.join(format!("{relay}.{extension}"));
            fs::write(&path, text).map_err(LabError::system(path.display().to_string()))?;
            options.extend([option.to_owned(), path.display().to_string()]);
        }
        Ok(options)
    }
}

fn failure(error: rcgen::Error) -> LabError {
    LabError::Other(format!("certificates: {error}"))
}
