//! Weir's relay and the programs that it is compared with, as pairs of an ingress and an egress relay.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::certificates::Authority;
use crate::chain::{
    Chain, EGRESS, EGRESS_LAN, EGRESS_WAN, INGRESS, INGRESS_LAN, INGRESS_WAN, SOURCE, receiver, sink_address,
};
use crate::traffic::{COFLOW, Route};
use crate::{LabError, Process};

/// The port of receivers of bulk flows.
pub const BULK_PORT: u16 = 7_000;
/// The port of the receiver of the probe.
pub const PROBE_PORT: u16 = 7_001;
/// The port of receivers that read slowly.
pub const SLOW_PORT: u16 = 7_002;
const RECEIVER_PORTS: [u16; 3] = [BULK_PORT, PROBE_PORT, SLOW_PORT];

/// The flow of the probe, which has a higher priority at Weir's relays than all others.
pub const PROBE_FLOW: u32 = 0;

/// The port of Weir's relays for other relays, and for programs.
const WEIR_PEER_PORT: u16 = 7_710;
const WEIR_LOCAL_PORT: u16 = 7_910;

/// The time for relays to start.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// A program that relays flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Relay {
    /// No relay: programs connect to receivers.
    Direct,
    /// HAProxy with forced splice and pipes of 1 MiB.
    HaproxySplice,
    /// HAProxy without splice and with buffers of 256 KiB.
    Haproxy,
    /// The stream module of nginx with buffers of 256 KiB.
    Nginx,
    /// socat with buffers of 256 KiB, a process for each flow.
    Socat,
    /// Weir's relay.
    Weir,
    /// Weir's relay with TLS between relays, and plain text with programs. Only for processors that are saturated.
    WeirTls,
}

impl fmt::Display for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Relay::Direct => "no relay",
            Relay::HaproxySplice => "HAProxy, forced splice, 1 MiB",
            Relay::Haproxy => "HAProxy, no splice, 256 KiB",
            Relay::Nginx => "nginx stream, 256 KiB",
            Relay::Socat => "socat, 256 KiB",
            Relay::Weir => "Weir",
            Relay::WeirTls => "Weir, TLS between relays",
        })
    }
}

/// The programs, where their names differ from those of the system.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Weir's command line.
    pub weir: PathBuf,
    /// Further arguments of `weir relay run`.
    pub weir_args: Vec<String>,
}

/// Running relays. Dropping the value ends them.
#[derive(Debug)]
pub struct RunningRelays {
    processes: Vec<Process>,
    folder: TempDir,
}

impl RunningRelays {
    /// The processor time of all relays.
    pub fn cpu_time(&self) -> Duration {
        self.processes.iter().map(Process::cpu_time).sum()
    }

    /// The last line that a relay has logged, for messages.
    pub fn last_message(&self) -> Option<String> {
        let files = fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        let logs =
            files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|ext| ext == "log"));
        logs.filter_map(|path| Some(fs::read_to_string(path).ok()?.trim().lines().last()?.to_owned())).next()
    }
}

impl Relay {
    /// Whether the program is installed; otherwise why not.
    pub fn missing(self, programs: &Programs) -> Option<String> {
        let (program, args): (&Path, &[&str]) = match self {
            Relay::Direct => return None,
            Relay::HaproxySplice | Relay::Haproxy => (Path::new("haproxy"), &["-v"]),
            Relay::Nginx => (Path::new("nginx"), &["-v"]),
            Relay::Socat => (Path::new("socat"), &["-V"]),
            Relay::Weir | Relay::WeirTls => (&programs.weir, &["relay", "run", "--help"]),
        };
        let status = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        match status {
            Ok(status) if status.success() && self == Relay::Nginx && !nginx_has_streams() => {
                Some(format!("nginx has no stream module; expected {NGINX_STREAM_MODULE}"))
            }
            Ok(status) if status.success() => None,
            Ok(_) => Some(format!("`{} {}` fails", program.display(), args.join(" "))),
            Err(error) => Some(format!("{} cannot be run: {error}", program.display())),
        }
    }

    /// Whether the program is Weir's.
    pub fn is_weir(self) -> bool {
        matches!(self, Relay::Weir | Relay::WeirTls)
    }

    /// The maximum number of flows.
    pub fn max_flows(self) -> u32 {
        // socat starts two processes for each flow.
        if self == Relay::Socat { 200 } else { u32::MAX }
    }

    /// How flows reach the receivers at a port, one route for each peer.
    pub fn routes(self, chain: &Chain, port: u16) -> Vec<Route> {
        let route = |peer| {
            let receiver = receiver(peer, port);
            let connect = match self {
                Relay::Direct => receiver,
                Relay::Weir | Relay::WeirTls => SocketAddrV4::new(INGRESS_LAN, WEIR_LOCAL_PORT),
                _ => SocketAddrV4::new(INGRESS_LAN, proxy_port(peer, port)),
            };
            Route { connect, receiver }
        };
        (0..chain.peers()).map(route).collect()
    }

    /// Starts the relays, and waits until they accept connections.
    ///
    /// # Errors
    /// If a relay does not start.
    pub fn start(self, chain: &Chain, programs: &Programs) -> Result<RunningRelays, LabError> {
        let folder = tempfile::tempdir().map_err(LabError::system("a temporary folder"))?;
        let mut relays = RunningRelays { processes: Vec::new(), folder };
        let authority = (self == Relay::WeirTls).then(Authority::new).transpose()?;
        for (number, hop) in hops(self, chain).into_iter().enumerate() {
            let folder = relays.folder.path();
            for command in self.commands(folder, number, &hop, chain, programs, authority.as_ref())? {
                let log =
                    File::create(folder.join(format!("{number}.log"))).map_err(LabError::system("a log"))?;
                let mut command = command;
                command.stdout(log.try_clone().map_err(LabError::system("a log"))?).stderr(log);
                relays.processes.push(Process::spawn_inside(chain.network(), hop.node, command)?);
            }
        }
        for hop in hops(self, chain) {
            let from = if hop.node == INGRESS { SOURCE } else { INGRESS };
            for address in hop.listens(self) {
                wait_until_accepting(chain, from, address, &mut relays)?;
            }
        }
        if self.is_weir() {
            wait_until_connected(chain.peers(), &relays)?;
        }
        Ok(relays)
    }

    /// The commands that run a relay: one, or one for each pair of addresses.
    fn commands(
        self,
        folder: &Path,
        number: usize,
        hop: &Hop,
        chain: &Chain,
        programs: &Programs,
        authority: Option<&Authority>,
    ) -> Result<Vec<Command>, LabError> {
        let write = |text: String| {
            let path = folder.join(format!("{number}.conf"));
            fs::write(&path, text).map_err(LabError::system(path.display().to_string()))?;
            Ok::<_, LabError>(path)
        };
        let command = |program: &Path, args: &[&str], path: &Path| {
            let mut command = Command::new(program);
            command.args(args).arg(path);
            vec![command]
        };
        Ok(match self {
            Relay::Direct => Vec::new(),
            Relay::HaproxySplice | Relay::Haproxy => {
                let path = write(haproxy_configuration(self == Relay::HaproxySplice, &hop.pairs))?;
                command(Path::new("haproxy"), &["-db", "-f"], &path)
            }
            Relay::Nginx => {
                let path = write(nginx_configuration(folder, number, &hop.pairs))?;
                command(Path::new("nginx"), &["-e", "stderr", "-c"], &path)
            }
            Relay::Socat => hop.pairs.iter().map(|&pair| socat(pair)).collect(),
            Relay::Weir | Relay::WeirTls => {
                let path = write(weir_overlay(chain.peers()))?;
                let programs_address = hop.listens(self)[0].to_string();
                let name = weir_name(hop.peer);
                let args = [
                    "relay",
                    "run",
                    "--insecure",
                    "--name",
                    &name,
                    "--programs",
                    &programs_address,
                    "--overlay",
                ];
                let mut commands = command(&programs.weir, &args, &path);
                commands[0].args(&programs.weir_args);
                if let Some(authority) = authority {
                    commands[0].args(authority.write_files(folder, &name)?);
                }
                commands
            }
        })
    }
}

/// A relay on the way: the pairs of addresses where it listens and where it forwards to.
struct Hop {
    node: &'static str,
    /// The number among the egress relays; none at the ingress.
    peer: Option<u8>,
    pairs: Vec<(SocketAddrV4, SocketAddrV4)>,
}

impl Hop {
    /// Where the relay listens.
    fn listens(&self, relay: Relay) -> Vec<SocketAddrV4> {
        match (relay, self.peer) {
            (Relay::Weir | Relay::WeirTls, None) => vec![SocketAddrV4::new(INGRESS_LAN, WEIR_LOCAL_PORT)],
            (Relay::Weir | Relay::WeirTls, Some(peer)) => {
                vec![SocketAddrV4::new(EGRESS_LAN, WEIR_LOCAL_PORT + u16::from(peer))]
            }
            _ => self.pairs.iter().map(|pair| pair.0).collect(),
        }
    }
}

/// The port at which relays without knowledge of flows listen for those to a port of receivers.
fn proxy_port(peer: u8, port: u16) -> u16 {
    port + 1_000 + 10 * u16::from(peer)
}

/// The ingress relay, and an egress relay for each peer.
fn hops(relay: Relay, chain: &Chain) -> Vec<Hop> {
    if relay == Relay::Direct {
        return Vec::new();
    }
    let pair = |node: &str, peer, port| {
        let egress = SocketAddrV4::new(EGRESS_WAN, proxy_port(peer, port));
        match node {
            INGRESS => (SocketAddrV4::new(INGRESS_LAN, proxy_port(peer, port)), egress),
            _ => (egress, receiver(peer, port)),
        }
    };
    let pairs = |node: &'static str, peers: std::ops::Range<u8>| -> Vec<_> {
        peers.flat_map(|peer| RECEIVER_PORTS.map(|port| pair(node, peer, port))).collect()
    };
    let ingress = Hop { node: INGRESS, peer: None, pairs: pairs(INGRESS, 0..chain.peers()) };
    let egress = |peer| Hop { node: EGRESS, peer: Some(peer), pairs: pairs(EGRESS, peer..peer + 1) };
    std::iter::once(ingress).chain((0..chain.peers()).map(egress)).collect()
}

fn wait_until_accepting(
    chain: &Chain,
    from: &str,
    address: SocketAddrV4,
    relays: &mut RunningRelays,
) -> Result<(), LabError> {
    let started = Instant::now();
    loop {
        let connect = || TcpStream::connect_timeout(&address.into(), START_TIMEOUT);
        let Err(error) = chain.network().run_inside(from, connect)? else { return Ok(()) };
        let exited =
            relays.processes.iter_mut().any(|process| !matches!(process.wait(Duration::ZERO), Ok(None)));
        if exited || started.elapsed() > START_TIMEOUT {
            let message = relays.last_message().unwrap_or_default();
            return Err(LabError::Other(format!(
                "{address} does not accept connections: {error}: {message}"
            )));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the ingress relay is connected with all egress relays: before, it refuses flows.
fn wait_until_connected(peers: u8, relays: &RunningRelays) -> Result<(), LabError> {
    let started = Instant::now();
    let ingress = relays.folder.path().join("0.log");
    loop {
        let log = fs::read_to_string(&ingress).map_err(LabError::system(ingress.display().to_string()))?;
        let connected = log.matches("relay is connected").count();
        if connected >= peers.into() {
            return Ok(());
        }
        if started.elapsed() > START_TIMEOUT {
            return Err(LabError::Other(format!("{connected} of {peers} relays are connected: {log}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// One thread, as for all programs, and the settings that the name of the variant states.
fn haproxy_configuration(splice: bool, pairs: &[(SocketAddrV4, SocketAddrV4)]) -> String {
    let mut out = String::from("global\n  nbthread 1\n  maxconn 1500\n");
    out += if splice { "  maxpipes 3000\n  tune.pipesize 1048576\n" } else { "  tune.bufsize 262144\n" };
    out += "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n";
    out += if splice { "  option splice-request\n  option splice-response\n" } else { "" };
    for (number, (listen, to)) in pairs.iter().enumerate() {
        let _ = write!(out, "listen l{number}\n  bind {listen}\n  server next {to}\n");
    }
    out
}

/// The stream module of nginx, where packages install it.
const NGINX_STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Whether nginx was built with the stream module, or has it as a file.
fn nginx_has_streams() -> bool {
    let is_built_in =
        |text: &[u8]| String::from_utf8_lossy(text).split(' ').any(|arg| arg == "--with-stream");
    Path::new(NGINX_STREAM_MODULE).exists()
        || Command::new("nginx").arg("-V").output().is_ok_and(|output| is_built_in(&output.stderr))
}

fn nginx_configuration(folder: &Path, number: usize, pairs: &[(SocketAddrV4, SocketAddrV4)]) -> String {
    let load = match Path::new(NGINX_STREAM_MODULE).exists() {
        true => format!("load_module {NGINX_STREAM_MODULE};\n"),
        false => String::new(),
    };
    let pid = folder.join(format!("{number}.pid"));
    let mut out = format!(
        "{load}daemon off;\nworker_processes 1;\nworker_rlimit_nofile 16384;\npid {};\nerror_log stderr;\n\
         events {{ worker_connections 8192; multi_accept on; }}\nstream {{\nproxy_buffer_size 256k;\n",
        pid.display()
    );
    for (listen, to) in pairs {
        let _ = writeln!(out, "server {{ listen {listen} backlog=4096; proxy_pass {to}; }}");
    }
    out + "}\n"
}

fn socat((listen, to): (SocketAddrV4, SocketAddrV4)) -> Command {
    let mut command = Command::new("socat");
    let from = format!(
        "TCP-LISTEN:{},bind={},fork,reuseaddr,nodelay,backlog=1024,max-children=1000",
        listen.port(),
        listen.ip()
    );
    command.args(["-b", "262144", &from, &format!("TCP:{to},nodelay")]);
    command
}

/// An overlay without a coordinator. All flows have one priority, except the probe's.
fn weir_overlay(peers: u8) -> String {
    let mut out = String::new();
    let mut relay = |name: String, address: SocketAddrV4, network: Ipv4Addr, bits: u8| {
        let _ = write!(
            out,
            "[[relays]]\nname = \"{name}\"\naddress = \"{address}\"\nnetworks = [\"{network}/{bits}\"]\n"
        );
    };
    relay(weir_name(None), SocketAddrV4::new(INGRESS_WAN, WEIR_PEER_PORT), Ipv4Addr::new(10, 9, 0, 0), 24);
    for peer in 0..peers {
        let address = SocketAddrV4::new(EGRESS_WAN, WEIR_PEER_PORT + u16::from(peer));
        relay(weir_name(Some(peer)), address, sink_address(peer), 32);
    }
    let _ = write!(
        out,
        "[[coflows]]\nname = \"{COFLOW}\"\n\
         [[rules]]\ncoflow = \"{COFLOW}\"\nflow = {PROBE_FLOW}\npriority = 0\n\
         [[rules]]\ncoflow = \"{COFLOW}\"\npriority = 1\n"
    );
    out
}

fn weir_name(peer: Option<u8>) -> String {
    peer.map_or("ingress".to_owned(), |peer| format!("egress-{peer}"))
}
