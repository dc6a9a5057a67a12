//! `weir serve`: the coordinator.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::TcpListener;
use tokio::runtime::Builder;
use weir_coordinator::plane::{Link, Plane, Settings};
use weir_coordinator::{agents, master};
use weir_core::model::Names;

use crate::args;
use crate::failure::Failure;
use crate::interrupt;
use crate::spec;

/// How often to look whether somebody asked to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// The shortest and the longest time between two schedules, in seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.001..=1.0;

/// Runs `weir serve`.
///
/// # Errors
/// If it cannot begin, or has to end.
pub fn serve(args: &args::Serve) -> Result<(), Failure> {
    args.plain_text.check(args.listen)?;
    let interval = args.interval.get();
    if !INTERVALS.contains(&interval) {
        return Err(Failure::input(format_args!("--interval {}: expected 1ms to 1s", args.interval)));
    }
    let policy = spec::build(&args.policy, None)?;
    let links = vec![Link { send: args.rate, recv: args.rate }; args.hosts as usize];
    let settings = Settings { interval, lease: 10.0 * interval, ..Settings::default() };
    let epoch = epoch(args.epoch_file.as_deref())?;
    let plane = Plane::new(&links, policy, Names::default(), settings, epoch).map_err(Failure::input)?;
    interrupt::watch();
    let (handle, _) = master::start(plane).map_err(Failure::undone)?;
    let runtime =
        Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::undone)?;
    runtime.block_on(async {
        let listen = args.listen;
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|error| Failure::undone(format_args!("{listen}: cannot be listened at: {error}")))?;
        let at = listener.local_addr().unwrap_or(listen);
        eprintln!("weir serve: {} hosts, policy {}, epoch {epoch}, listens at {at}", args.hosts, args.policy);
        tokio::select! {
            ended = agents::serve(listener, handle) => ended.map_err(Failure::undone),
            () = asked_to_stop() => Ok(()),
        }
    })
}

/// Waits until somebody asks to stop.
pub async fn asked_to_stop() {
    while !interrupt::asked() {
        tokio::time::sleep(GLANCE).await;
    }
}

impl args::PlainText {
    /// Whether an address may be used without encryption.
    ///
    /// # Errors
    /// If it leads out of this machine, and nobody said that it may.
    pub fn check(&self, address: std::net::SocketAddr) -> Result<(), Failure> {
        if self.insecure || address.ip().is_loopback() {
            return Ok(());
        }
        Err(Failure::input(format_args!(
            "{address} is not on this machine: expected an address of loopback, or --insecure"
        )))
    }
}

/// A number above that of every coordinator before: milliseconds of the clock, and at least one more than the file has.
fn epoch(file: Option<&Path>) -> Result<u64, Failure> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64);
    let Some(path) = file else { return Ok(clock) };
    let before = match fs::read_to_string(path) {
        Ok(text) => text.trim().parse::<u64>().map_err(|_| {
            Failure::input(format_args!("{}: `{}`: expected a whole number", path.display(), text.trim()))
        })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => {
            return Err(Failure::undone(format_args!("{}: cannot be read: {error}", path.display())));
        }
    };
    let epoch = clock.max(before.saturating_add(1));
    let new = path.with_extension("new");
    fs::write(&new, format!("{epoch}\n"))
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| Failure::output(path, &error))?;
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_rise_whatever_the_clock_says() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("epoch");
        let first = epoch(Some(&file)).unwrap();
        let second = epoch(Some(&file)).unwrap();
        assert!(second > first);
        // The clock was an hour ahead then.
        fs::write(&file, format!("{}\n", first + 3_600_000)).unwrap();
        assert_eq!(epoch(Some(&file)).unwrap(), first + 3_600_001);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", first + 3_600_001));
        fs::write(&file, "x").unwrap();
        assert_eq!(epoch(Some(&file)).unwrap_err().code, 2);
    }
}
