//! TLS for flows.

use std::env;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use weir_tls::{Tls, TlsFiles, relay_name};

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
    /// If a file cannot be used, or the certificate has no name `weir://ROLE/NAME`.
    pub fn new(certificate: &Path, key: &Path, authority: &Path) -> io::Result<FlowTls> {
        let files = TlsFiles { certificate: certificate.into(), key: key.into(), clients: authority.into() };
        let tls = Tls::read(&files, PROTOCOL);
        tls.map(FlowTls).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))
    }

    /// TLS with the files in the environment variables `WEIR_CERTIFICATE`, `WEIR_KEY` and `WEIR_AUTHORITY`; none without all of them.
    /// `WEIR_TLS_LOCAL=1` applies it inside a host, too.
    ///
    /// # Errors
    /// If some variables are missing, or a file cannot be used.
    pub fn from_environment() -> io::Result<Option<FlowTls>> {
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
        let is_local_included = env::var_os(LOCAL_VARIABLE).is_some_and(|value| value == "1");
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
        Err(io::Error::other(format!("the certificate has the name {name}; expected {}", self.0.name())))
    }
}

/// Checks that a name is that of a relay.
pub(crate) fn check_relay(name: &str) -> io::Result<()> {
    let prefix = relay_name("");
    if name.starts_with(&prefix) {
        return Ok(());
    }
    Err(io::Error::other(format!("the certificate has the name {name}; expected {prefix}NAME")))
}
