//! The name in a certificate.

use rustls::pki_types::CertificateDer;

use crate::SCHEME;

/// The name `weir://ROLE/NAME` in a verified certificate: a URI in its subject alternative names.
///
/// # Errors
/// The certificate has no such name, or more than one.
pub fn certificate_name(certificate: &CertificateDer<'_>) -> Result<String, String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
    let mut names = certificate.valid_uri_names().filter(|name| name.starts_with(SCHEME));
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name.to_owned()),
        (None, _) => Err("certificate has no name `weir://ROLE/NAME`; expected one".to_owned()),
        (Some(_), Some(_)) => {
            Err("certificate has several names `weir://ROLE/NAME`; expected one".to_owned())
        }
    }
}

/// The name of a relay.
pub fn relay_name(relay: &str) -> String {
    format!("{SCHEME}relay/{relay}")
}

/// The name of the programs of a service.
pub fn framework_name(service: &str) -> String {
    format!("{SCHEME}framework/{service}")
}
