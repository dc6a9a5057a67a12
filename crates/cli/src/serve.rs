//! `weir serve`: the coordinator.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tracing::Level;
use weir_console::failure::Failure;
use weir_console::{interrupt, output};
use weir_coordinator::config;
use weir_coordinator::serve::Coordinator;
use weir_coordinator::store::{self, Contents};

use crate::args::{self, Log};

/// How often to check for a signal.
const GLANCE: Duration = Duration::from_millis(50);

/// Runs `weir serve`.
pub fn serve(args: &args::Serve) -> Result<(), Failure> {
    if let Some(path) = &args.check {
        return Ok(output::print(config::read(path)?.to_string())?);
    }
    if let Some(path) = &args.check_store {
        return check_store(path);
    }
    let path = args.config.as_deref().expect("clap requires --config without --check and --check-store");
    let config = config::read(path)?;
    log(args.log);
    interrupt::watch();
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Failure::undone)?;
    runtime.block_on(async {
        let coordinator = Coordinator::new(config).await.map_err(Failure::undone)?;
        let (agents, api) = coordinator.addresses().map_err(Failure::undone)?;
        tracing::info!(%agents, %api, "listening");
        let (stop, asked) = watch::channel(false);
        let stopping = async move {
            asked_to_stop().await;
            // The coordinator may have ended already.
            let _ = stop.send(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = coordinator.run(asked) => ended.map_err(Failure::undone),
            () = stopping => Ok(()),
        }
    })
}

/// Verifies a store and prints its contents.
fn check_store(path: &Path) -> Result<(), Failure> {
    let Contents { version, epoch, bytes, records } = store::verify(path).map_err(Failure::undone)?;
    let mut text = format!("{}: no damage found\n", path.display());
    let numbers = [("version", version), ("epoch", epoch), ("bytes", bytes)].into_iter();
    for (name, number) in numbers.chain(records) {
        text += &format!("{name:<13}{number}\n");
    }
    Ok(output::print(text)?)
}

/// What happens goes to the standard error, a line each.
fn log(log: Log) {
    let lines =
        tracing_subscriber::fmt().with_max_level(Level::INFO).with_writer(io::stderr).with_ansi(false);
    match log {
        Log::Text => lines.init(),
        Log::Json => lines.json().init(),
    }
}

/// Waits for a signal that asks to stop.
pub async fn asked_to_stop() {
    while !interrupt::asked() {
        tokio::time::sleep(GLANCE).await;
    }
}
