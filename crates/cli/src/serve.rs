//! Runs `weir serve`: starts the coordinator, and checks configurations and stores.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tracing::Level;
use weir_console::failure::Failure;
use weir_console::{interrupt, output};
use weir_coordinator::config;
use weir_coordinator::registry::check_record;
use weir_coordinator::reload::Reloader;
use weir_coordinator::server::Coordinator;
use weir_coordinator::store::{self, StoreSummary};
use weir_tls::TlsError;

use crate::args::{self, LogFormat};

/// The interval between checks for a signal.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `weir serve`.
pub fn serve(args: &args::Serve) -> Result<(), Failure> {
    if let Some(path) = &args.check {
        let config = config::read(path)?;
        config.check_certificate().map_err(Failure::input)?;
        return Ok(output::print(format!("{config}\n{}: no error found\n", path.display()))?);
    }
    if let Some(path) = &args.check_store {
        return check_store(path);
    }
    let path = args.config.as_deref().expect("clap requires --config without --check and --check-store");
    let config = config::read(path)?;
    init_log(args.log);
    if let Err(error @ TlsError::NotValidNow { .. }) = config.check_certificate() {
        // The clock may be corrected while the coordinator runs, and it reads a new certificate.
        tracing::warn!("{error}");
    }
    interrupt::record_signals();
    let reload_requested = interrupt::record_reload_signals();
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Failure::runtime)?;
    runtime.block_on(async {
        let coordinator = Coordinator::new(config).await.map_err(Failure::runtime)?;
        let (agents, api) = coordinator.addresses().map_err(Failure::runtime)?;
        tracing::info!(%agents, %api, "listening");
        let (stop_sender, stop_receiver) = watch::channel(false);
        tokio::spawn(reload_after_signals(coordinator.reloader(), reload_requested));
        let stop_after_signal = async move {
            wait_for_stop_signal().await;
            // Sending fails if the coordinator has already ended.
            let _ = stop_sender.send(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = coordinator.run(stop_receiver) => result.map_err(Failure::runtime),
            () = stop_after_signal => Ok(()),
        }
    })
}

/// Reloads the configuration at each SIGHUP. The coordinator logs the result.
async fn reload_after_signals(reloader: Reloader, requested: Arc<AtomicBool>) {
    loop {
        tokio::time::sleep(SIGNAL_POLL_INTERVAL).await;
        if requested.swap(false, Ordering::Relaxed) {
            let _ = reloader.reload(false).await;
        }
    }
}

/// Verifies a store and prints its contents.
fn check_store(path: &Path) -> Result<(), Failure> {
    let StoreSummary { version, epoch, bytes, records } =
        store::verify(path, check_record).map_err(Failure::runtime)?;
    let mut text = format!("{}: no damage found\n", path.display());
    let numbers = [("version", version), ("epoch", epoch), ("bytes", bytes)].into_iter();
    for (name, number) in numbers.chain(records) {
        text += &format!("{name:<13}{number}\n");
    }
    Ok(output::print(text)?)
}

/// Starts logging: one line per event, on the standard error.
pub fn init_log(log: LogFormat) {
    let subscriber =
        tracing_subscriber::fmt().with_max_level(Level::INFO).with_writer(io::stderr).with_ansi(false);
    // Otherwise, the subscriber panics if the reader of the log has exited.
    let subscriber = subscriber.log_internal_errors(false);
    match log {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
}

/// Logs a failure as JSON.
pub fn log_failure(failure: &Failure) {
    if !tracing::dispatcher::has_been_set() {
        init_log(LogFormat::Json);
    }
    tracing::error!("{failure}");
}

/// Waits for SIGINT or SIGTERM.
pub async fn wait_for_stop_signal() {
    while !interrupt::is_requested() {
        tokio::time::sleep(SIGNAL_POLL_INTERVAL).await;
    }
}
