//! The certificate of a relay, which is read again when its files change.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use weir_agent::live::endpoint::CoordinatorEndpoint;
use weir_console::failure::Failure;
use weir_relay::io::RelayTls;
use weir_tls::{
    RELOAD_INTERVAL, Refresh, Reloaded, Tls, TlsError, TlsFiles, check_own_certificate, relay_name,
};

use crate::args;

/// A relay's certificate.
pub type RelayCertificate = Arc<Reloaded<RelayTls>>;

/// Reads the certificate, and checks that other relays accept it. None for plain text.
pub fn read(args: &args::RelayRun) -> Result<Option<RelayCertificate>, Failure> {
    let args::Credentials { certificate, key, authority } = &args.credentials;
    let (Some(certificate), Some(key), Some(authority)) = (certificate, key, authority) else {
        return Ok(None);
    };
    let files = TlsFiles { certificate: certificate.clone(), key: key.clone(), clients: authority.clone() };
    let (name, is_insecure, is_local) = (relay_name(&args.name), args.insecure, args.tls_local);
    let make = move |files: &TlsFiles| relay_tls(files, &name, is_insecure, is_local);
    let certificate = Reloaded::new(&files, make).map_err(|error| match error {
        // The file or the clock may be corrected while systemd starts the relay again.
        TlsError::NotValidNow { .. } if !args.dry_run => Failure::runtime(error),
        _ => Failure::input(error),
    })?;
    Ok(Some(Arc::new(certificate)))
}

fn relay_tls(
    files: &TlsFiles,
    expected: &str,
    is_insecure: bool,
    is_local: bool,
) -> Result<RelayTls, TlsError> {
    let read = |protocol: &[u8]| Tls::read(files, protocol);
    let programs = if is_insecure { None } else { Some(read(b"weir-flow")?.with_local(is_local)) };
    let tls = RelayTls { relays: read(b"weir-relay")?, programs };
    let found = tls.relays.name();
    if found != expected {
        return Err(TlsError::OtherName {
            certificate: files.certificate.clone(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        });
    }
    check_own_certificate(files)?;
    Ok(tls)
}

/// Reads changed files until the future is dropped. Connections that follow, also with the coordinator, use the new certificate, which
/// `apply` passes to the relay.
pub async fn reload(
    certificate: Option<RelayCertificate>,
    coordinator: Option<CoordinatorEndpoint>,
    apply: impl Fn(RelayTls),
) -> Infallible {
    let Some(certificate) = certificate else { return std::future::pending().await };
    loop {
        sleep(RELOAD_INTERVAL).await;
        let (read, endpoint) = (Arc::clone(&certificate), coordinator.clone());
        let refresh = spawn_blocking(move || {
            let refresh = read.refresh();
            // The same files, so an error is the same.
            endpoint.map(|endpoint| endpoint.refresh());
            refresh
        });
        match refresh.await {
            Ok(Refresh::Reloaded) => {
                let days = certificate.status().seconds_left() / 86_400.0;
                tracing::info!("new certificate in use; it is valid for {days:.1} days");
                apply(RelayTls::clone(&certificate.current()));
            }
            Ok(Refresh::Failed(reason)) => tracing::error!(
                %reason, "new certificate files are unusable; the former certificate stays in use"
            ),
            Ok(Refresh::Unchanged) => {}
            Err(error) => tracing::error!(%error, "certificate files cannot be read"),
        }
    }
}
