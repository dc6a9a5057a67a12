//! TLS for flows.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use weir_tls::{Tls, TlsFiles, check_own_certificate, relay_name};

/// The environment variables with the files in PEM, and with `1` to apply TLS inside a host, too.
const FILE_VARIABLES: [&str; 3] = ["WEIR_CERTIFICATE", "WEIR_KEY", "WEIR_AUTHORITY"];
const LOCAL_VARIABLE: &str = "WEIR_TLS_LOCAL";

/// The protocol of flows (ALPN).
const PROTOCOL: &[u8] = b"weir-flow";

/// TLS for flows. The certificate of a program has the name `weir://framework/SERVICE`, with the service of its coflows.
///
/// Connections inside a host use plain text, as relays expect by default.
#[derive(Debug, Clone)]
pub struct FlowTls(Tls);

impl FlowTls {
    /// TLS with these files in PEM. `authority` has signed the certificates of relays and of other programs.
    ///
    /// # Errors
    /// If a file cannot be used, the certificate has no name `weir://ROLE/NAME`, has expired, or was signed by another authority.
    pub fn new(certificate: &Path, key: &Path, authority: &Path) -> io::Result<FlowTls> {
        let files = TlsFiles { certificate: certificate.into(), key: key.into(), clients: authority.into() };
        let tls = Tls::read(&files, PROTOCOL).and_then(|tls| check_own_certificate(&files).map(|()| tls));
        tls.map(FlowTls).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))
    }

    /// TLS with the files in the environment variables `WEIR_CERTIFICATE`, `WEIR_KEY` and `WEIR_AUTHORITY`; none without all of them.
    /// `WEIR_TLS_LOCAL=1` applies it inside a host, too; 0 is the default.
    ///
    /// # Errors
    /// If some variables are missing, a file cannot be used, or `WEIR_TLS_LOCAL` has another value.
    pub fn from_environment() -> io::Result<Option<FlowTls>> {
        let is_local_included = parse_local(env::var_os(LOCAL_VARIABLE))?;
        let files = FILE_VARIABLES.map(|name| env::var_os(name).filter(|path| !path.is_empty()));
        let tls = match files.map(|file| file.map(PathBuf::from)) {
            [None, None, None] => return Ok(None),
            [Some(certificate), Some(key), Some(authority)] => FlowTls::new(&certificate, &key, &authority)?,
            _ => {
                let message =
                    format!("{}: some are missing; expected all three, or none", FILE_VARIABLES.join(", "));
                return Err(io::Error::new(ErrorKind::InvalidInput, message));
            }
        };
        Ok(Some(if is_local_included { tls.with_local() } else { tls }))
    }

    /// Applies TLS inside a host, too. The relays need `--tls-local`.
    #[must_use]
    pub fn with_local(self) -> FlowTls {
        FlowTls(self.0.with_local(true))
    }

    pub(crate) fn tls(&self) -> &Tls {
        &self.0
    }

    /// Checks that a name is that of a program of the same service.
    pub(crate) fn check_program(&self, name: &str) -> io::Result<()> {
        if name == self.0.name() {
            return Ok(());
        }
        Err(name_error(name, self.0.name()))
    }
}

fn name_error(name: &str, expected: &str) -> io::Error {
    let message = format!("the certificate has the name {name}; expected {expected}");
    io::Error::new(ErrorKind::PermissionDenied, message)
}

/// Whether an error of a handshake or of a check means that this end refuses the certificate of the other end.
pub(crate) fn is_certificate_refused(error: &io::Error) -> bool {
    let is_name_refused = error.kind() == ErrorKind::PermissionDenied;
    error.get_ref().is_some_and(|cause| {
        let tls_error = cause.downcast_ref::<rustls::Error>();
        is_name_refused || matches!(tls_error, Some(rustls::Error::InvalidCertificate(_)))
    })
}

/// Whether TLS applies inside a host.
fn parse_local(value: Option<OsString>) -> io::Result<bool> {
    let value = value.unwrap_or_default();
    match value.to_str() {
        Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        _ => {
            let message = format!("{LOCAL_VARIABLE}: {value:?} is invalid; expected 1 or 0");
            Err(io::Error::new(ErrorKind::InvalidInput, message))
        }
    }
}

/// Checks that a name is that of a relay.
pub(crate) fn check_relay(name: &str) -> io::Result<()> {
    let prefix = relay_name("");
    if name.starts_with(&prefix) {
        return Ok(());
    }
    Err(name_error(name, &format!("{prefix}NAME")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_tls_is_set_by_1_and_other_words_are_refused() {
        let parse = |text: &str| parse_local(Some(text.into()));
        assert!(!parse_local(None).unwrap() && !parse("").unwrap() && !parse("0").unwrap());
        assert!(parse("1").unwrap());
        for text in ["yes", "true", "2", " 1"] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("WEIR_TLS_LOCAL: \"{text}\" is invalid; expected 1 or 0"));
        }
    }
}
