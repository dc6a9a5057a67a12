//! Reads the addresses at which the coordinator listens, and the certificates of TLS.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use weir_fields::{FileError, TableFields, Value};
use weir_tls::TlsFiles;

pub(super) fn read_tls(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    folder: &Path,
) -> Result<TlsFiles, FileError> {
    const EXPECTED_FILE: &str = "a file in PEM";
    let mut tls = fields.read_table(value, "tls ".to_owned())?;
    let mut file = |key: &'static str| -> Result<PathBuf, FileError> {
        let value = tls.required(key, EXPECTED_FILE)?;
        Ok(folder.join(tls.read_string(&value, EXPECTED_FILE)?))
    };
    let files = TlsFiles { certificate: file("certificate")?, key: file("key")?, clients: file("clients")? };
    tls.finish()?;
    Ok(files)
}

/// The addresses for agents and for the API.
pub(super) fn read_listen(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    tls: &Option<TlsFiles>,
) -> Result<(SocketAddr, SocketAddr), FileError> {
    let mut listen = fields.read_table(value, "listen ".to_owned())?;
    let (agents, api) = (read_address(&mut listen, "agents", tls)?, read_address(&mut listen, "api", tls)?);
    if overlaps(agents, api) {
        let expected = format!("another address than that of `agents`, {agents}");
        return Err(listen.key_error("api", &api.to_string(), &expected));
    }
    listen.finish()?;
    Ok((agents, api))
}

fn read_address(
    fields: &mut TableFields<'_>,
    key: &'static str,
    tls: &Option<TlsFiles>,
) -> Result<SocketAddr, FileError> {
    const EXPECTED_ADDRESS: &str = "an address and a port, such as \"127.0.0.1:7700\"";
    let value = fields.required(key, EXPECTED_ADDRESS)?;
    let address: SocketAddr = fields
        .read_string(&value, EXPECTED_ADDRESS)?
        .parse()
        .map_err(|_| fields.value_error(&value, EXPECTED_ADDRESS))?;
    if tls.is_none() && !address.ip().is_loopback() {
        let expected = "a loopback address, such as \"127.0.0.1:7700\", or a table `[tls]`";
        return Err(fields.value_error(&value, expected));
    }
    Ok(address)
}

/// Whether one socket would receive the connections of both addresses. The system selects port 0, a different one for each socket.
fn overlaps(one: SocketAddr, other: SocketAddr) -> bool {
    // `::` receives connections by IPv4 too, but `0.0.0.0` none by IPv6.
    let includes = |one: IpAddr, other: IpAddr| {
        one == other || one.is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    one.port() == other.port()
        && one.port() != 0
        && (includes(one.ip(), other.ip()) || includes(other.ip(), one.ip()))
}
