//! The overlay in [`regions`](crate::regions): a coordinator, and a relay at the gateway of each region.
//!
//! The coordinator runs at the first gateway. Without certificates it listens on loopback only, so a forwarder passes on the
//! connections of the other relays. Orders and reports cross the same links as data.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_client::Coordinator;
use weir_console::interrupt;
use weir_core::model::WideArea;

use crate::regions::{RegionNode, Regions};
use crate::{LabError, Process};

/// The ports of the coordinator for relays, and for the API.
const RELAY_STREAM_PORT: u16 = 7_700;
const API_PORT: u16 = 7_701;

/// The ports of relays for other relays, and for programs.
const PEER_PORT: u16 = 7_710;
const PROGRAM_PORT: u16 = 7_711;

/// The maximum number of measurements of a link in the coordinator's configuration.
const MAX_SAMPLES: usize = 128;

/// The time for all relays to connect.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The time between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running overlay. Dropping the value ends its processes.
#[derive(Debug)]
pub struct Overlay {
    processes: Vec<Process>,
    _forwarder: Forwarder,
    folder: TempDir,
}

impl Overlay {
    /// Starts the coordinator and the relays, and waits until all relays are connected. `area` is the first estimate of the bandwidth.
    ///
    /// # Errors
    /// If a program cannot be started, or the relays do not connect.
    pub fn start(regions: &Regions, area: &WideArea, policy: &str, weir: &Path) -> Result<Overlay, LabError> {
        let gateways: Vec<&RegionNode> = regions.gateways().collect();
        let folder = tempfile::tempdir().map_err(LabError::system("a temporary folder"))?;
        let config = folder.path().join("weir.toml");
        fs::write(&config, configuration(&gateways, area, policy))
            .map_err(LabError::system(config.display().to_string()))?;
        let controller = gateways[0];
        let address = SocketAddrV4::new(controller.address, RELAY_STREAM_PORT);
        let forwarder = Forwarder::start(regions, &controller.region, address)?;
        let mut overlay = Overlay { processes: Vec::new(), _forwarder: forwarder, folder };
        let mut serve = Command::new(weir);
        serve.args(["serve", "--config"]).arg(&config);
        overlay.spawn(regions, controller, "coordinator", serve)?;
        for gateway in &gateways {
            let mut relay = Command::new(weir);
            relay.args(["relay", "run", "--insecure", "--name", &gateway.region]);
            relay.args(["--coordinator", &address.to_string()]);
            relay.args(["--programs", &SocketAddrV4::new(gateway.address, PROGRAM_PORT).to_string()]);
            relay.args(["--relays", &SocketAddrV4::new(gateway.address, PEER_PORT).to_string()]);
            overlay.spawn(regions, gateway, &gateway.region, relay)?;
        }
        let count = gateways.len();
        regions.network().run_inside(&controller.region, || overlay.wait_until_connected(count))??;
        Ok(overlay)
    }

    fn spawn(
        &mut self,
        regions: &Regions,
        node: &RegionNode,
        name: &str,
        mut command: Command,
    ) -> Result<(), LabError> {
        let path = self.folder.path().join(format!("{name}.log"));
        let log = File::create(&path).map_err(LabError::system(path.display().to_string()))?;
        command.stdout(Stdio::null()).stderr(log);
        self.processes.push(Process::spawn_inside(regions.network(), &node.region, command)?);
        Ok(())
    }

    fn wait_until_connected(&mut self, relays: usize) -> Result<(), LabError> {
        let coordinator = coordinator()?;
        let started = Instant::now();
        loop {
            let paths = coordinator.get("/v1/paths");
            let connected = paths.as_ref().ok().and_then(|paths| paths.as_array());
            let connected = connected.map_or(0, |paths| {
                paths.iter().filter(|path| path["connected"].as_bool() == Some(true)).count()
            });
            if connected == relays * (relays - 1) {
                return Ok(());
            }
            if interrupt::is_requested() {
                return Err(LabError::Interrupted);
            }
            let exited =
                self.processes.iter_mut().any(|process| !matches!(process.wait(Duration::ZERO), Ok(None)));
            if exited || started.elapsed() > START_TIMEOUT {
                let reason = paths.err().map(|error| format!(": {error}")).unwrap_or_default();
                return Err(LabError::Other(format!(
                    "the overlay has not started{reason}{}",
                    self.last_messages()
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// The processor time of all processes.
    pub fn cpu_time(&self) -> Duration {
        self.processes.iter().map(Process::cpu_time).sum()
    }

    /// The last line that each process has logged, for messages.
    pub fn last_messages(&self) -> String {
        let mut out = String::new();
        for file in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            let path = file.path();
            if path.extension().is_some_and(|extension| extension == "log")
                && let Ok(text) = fs::read_to_string(&path)
                && let Some(line) = text.trim().lines().last()
            {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let _ = write!(out, "\n  {name}: {line}");
            }
        }
        out
    }
}

/// A client of the coordinator, for threads inside the namespace of the first gateway.
pub(crate) fn coordinator() -> Result<Coordinator, LabError> {
    let address = format!("127.0.0.1:{API_PORT}");
    Coordinator::local(&address).map_err(|error| LabError::Other(error.to_string()))
}

/// Where the relay of a gateway accepts programs.
pub(crate) fn program_address(gateway: &RegionNode) -> SocketAddrV4 {
    SocketAddrV4::new(gateway.address, PROGRAM_PORT)
}

fn configuration(gateways: &[&RegionNode], area: &WideArea, policy: &str) -> String {
    let mut out = format!(
        "weir-serve = 1\nstore = \"weir.redb\"\n\
         [listen]\nagents = \"127.0.0.1:{RELAY_STREAM_PORT}\"\napi = \"127.0.0.1:{API_PORT}\"\n\
         [overlay]\npolicy = \"{policy}\"\n[overlay.relay]\n"
    );
    for RegionNode { region, address, .. } in gateways {
        let [a, b, c, _] = address.octets();
        let _ = writeln!(
            out,
            "{region} = {{ region = \"{region}\", address = \"{address}:{PEER_PORT}\", networks = [\"{a}.{b}.{c}.0/24\"] }}"
        );
    }
    out += "[overlay.link]\n";
    for from in 0..gateways.len() {
        let rate = |to: usize| {
            let link = area.link_between(from, to).expect("a wide area has a link for each pair");
            let samples = area.samples(link);
            // Sorted, so every part of them counts.
            let step = samples.len().div_ceil(MAX_SAMPLES);
            let bits = samples.iter().step_by(step).map(|rate| format!("\"{:.0}bit\"", 8.0 * rate.get()));
            let rates: Vec<String> = bits.collect();
            format!("{} = [{}]", gateways[to].region, rates.join(", "))
        };
        let rates: Vec<String> = (0..gateways.len()).filter(|to| *to != from).map(rate).collect();
        let _ = writeln!(out, "{} = {{ {} }}", gateways[from].region, rates.join(", "));
    }
    out
}

/// Forwards connections to an address to the same port on loopback, in the same namespace.
#[derive(Debug)]
struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Forwarder {
    fn start(regions: &Regions, node: &str, address: SocketAddrV4) -> Result<Forwarder, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let start = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let stop = Arc::clone(&stop);
            // A thread inherits the namespace of the one that starts it.
            thread::Builder::new()
                .name("forwarder".to_owned())
                .spawn(move || forward_all(&listener, address.port(), &stop))
        };
        let thread =
            regions.network().run_inside(node, start)?.map_err(LabError::system(address.to_string()))?;
        Ok(Forwarder { stop, thread: Some(thread) })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn forward_all(listener: &TcpListener, port: u16, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // The other end notices a connection that is not forwarded, and connects again.
            Ok((stream, _)) => drop(forward(stream, port)),
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Copies both directions of a connection, in threads that end with it.
fn forward(outer: TcpStream, port: u16) -> io::Result<()> {
    outer.set_nonblocking(false)?;
    let inner = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    for stream in [&outer, &inner] {
        stream.set_nodelay(true)?;
    }
    let ends = [(outer.try_clone()?, inner.try_clone()?), (inner, outer)];
    for (mut from, mut to) in ends {
        thread::Builder::new().name("forwarder".to_owned()).spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        })?;
    }
    Ok(())
}
