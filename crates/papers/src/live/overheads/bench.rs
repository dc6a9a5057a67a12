//! A coordinator and its agents, as processes, with what they take.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Builder;
use tonic::transport::Endpoint;
use weir_agent::live::crowd;
use weir_client::Agent;
use weir_core::units::Rate;

use super::super::process::{Process, find};
use weir_console::failure::Failure;

/// How many hosts have an agent that is a process.
pub const REAL: u32 = 4;

/// What each host's link carries, in bits per second.
const RATE: u64 = 1_000_000_000;

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What the kernel counts the time of processes in, to whoever reads it, in seconds.
const TICK: f64 = 0.01;

/// What a process took in a while: parts of a processor, and bytes.
pub struct Used {
    pub cpu: f64,
    pub memory: f64,
}

/// A coordinator with so many hosts.
pub struct Measured {
    pub hosts: u32,
    /// How long orders took, from the shortest.
    pub waits: Vec<Duration>,
    /// What a schedule takes: the mean, and a bound that nine in ten are within, in seconds.
    pub schedule: (f64, f64),
    pub coordinator: Vec<Used>,
    /// Of all that are processes.
    pub agents: Vec<Used>,
}

impl Measured {
    /// The time that so many per cent of orders stay within.
    pub fn within(&self, percent: usize) -> Duration {
        self.waits[(self.waits.len() * percent).div_ceil(100).max(1) - 1]
    }
}

/// Measures for [`crowd::TIME`].
///
/// # Errors
/// If something cannot begin, or somebody asks to stop.
pub fn measure(hosts: u32) -> Result<Measured, Failure> {
    let place = tempfile::tempdir().map_err(Failure::undone)?;
    let (coordinator, agents, api) = serve(&place, hosts)?;
    for (number, id) in (0u32..).zip(crowd::coflows()) {
        let flow = |src: u32| json!({ "from": format!("h{src}"), "to": format!("h{}", (src + 1 + number % (hosts - 1)) % hosts) });
        let flows: Vec<Value> = (0..hosts).map(flow).collect();
        ask(&api, "PUT", &format!("/v1/coflows/{id}"), &json!({ "flows": flows }).to_string())?;
    }
    let real =
        (0..REAL).map(|host| Host::begin(&place, host, &agents)).collect::<Result<Vec<Host>, Failure>>()?;
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Failure::undone)?;
    let endpoint = Endpoint::from_shared(format!("http://{agents}")).map_err(Failure::undone)?;
    let rate = Rate::new(RATE as f64 / 8.0).expect("a constant");
    let waits = runtime.spawn(crowd::attend(endpoint, REAL..hosts, rate));
    let (mut of_coordinator, mut of_agents) = (Vec::new(), Vec::new());
    let look = || -> Result<Vec<Look>, Failure> {
        let all = [&coordinator].into_iter().chain(real.iter().map(|host| &host.process));
        all.map(|process| Look::at(process.0.id())).collect()
    };
    let mut before = look()?;
    while !waits.is_finished() {
        Failure::unless_asked()?;
        thread::sleep(LOOK);
        real.iter().for_each(Host::send);
        let now = look()?;
        let mut used = before.iter().zip(&now).map(|(before, now)| now.since(before));
        of_coordinator.extend(used.next());
        of_agents.extend(used);
        before = now;
    }
    let waits = runtime.block_on(waits).map_err(Failure::undone)?;
    if waits.is_empty() {
        return Err(Failure::undone("agents that are tasks got no orders"));
    }
    let schedule = schedules(&ask(&api, "GET", "/metrics", "")?)?;
    Ok(Measured { hosts, waits, schedule, coordinator: of_coordinator, agents: of_agents })
}

/// A coordinator, and where it waits for agents and for all others.
fn serve(place: &TempDir, hosts: u32) -> Result<(Process, String, String), Failure> {
    let mut config = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath\"\n\
                      [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n[host]\n"
        .to_owned();
    for host in 0..hosts {
        writeln!(config, "h{host} = \"{RATE}bit\"").expect("memory takes all");
    }
    let path = place.path().join("serve.toml");
    fs::write(&path, config).map_err(|error| Failure::output(&path, &error))?;
    let mut command = Command::new(env::current_exe().map_err(Failure::undone)?);
    command.args(["serve", "--log", "json", "--config"]).arg(&path);
    let mut process = Process::heard(command, Stdio::piped()).map_err(unbegun)?;
    let said = process.0.stderr.take().expect("it was asked for");
    let (agents, api) = addresses(said)?;
    Ok((process, agents, api))
}

/// What a coordinator says first; the rest is read, and nobody's business.
fn addresses(said: ChildStderr) -> Result<(String, String), Failure> {
    let mut said = BufReader::new(said);
    let mut line = String::new();
    while said.read_line(&mut line).map_err(Failure::undone)? > 0 {
        let fields = serde_json::from_str::<Value>(&line).unwrap_or_default()["fields"].take();
        if let (Some(agents), Some(api)) = (fields["agents"].as_str(), fields["api"].as_str()) {
            let found = (agents.to_owned(), api.to_owned());
            thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
            return Ok(found);
        }
        line.clear();
    }
    Err(Failure::undone("the coordinator ended"))
}

fn unbegun(error: std::io::Error) -> Failure {
    Failure::undone(format_args!("a process cannot begin: {error}"))
}

/// A host whose agent is a process, with connections of its own.
struct Host {
    process: Process,
    _agent: Agent,
    connections: Vec<TcpStream>,
}

impl Host {
    fn begin(place: &TempDir, host: u32, coordinator: &str) -> Result<Host, Failure> {
        let door = place.path().join(format!("agent{host}"));
        let mut command = Command::new(env::current_exe().map_err(Failure::undone)?);
        command.args(["agent", "run", "--host", &host.to_string(), "--rate", &format!("{RATE}bit")]);
        command.args(["--coordinator", coordinator, "--socket"]).arg(&door);
        let process = Process::begin(command).map_err(unbegun)?;
        let agent = find(&door, Instant::now())?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(Failure::undone)?;
        let to = listener.local_addr().map_err(Failure::undone)?;
        let mut connections = Vec::new();
        for id in crowd::coflows().take(crowd::STEADY as usize) {
            let stream = TcpStream::connect(to).map_err(Failure::undone)?;
            let (mut other, _) = listener.accept().map_err(Failure::undone)?;
            thread::spawn(move || std::io::copy(&mut other, &mut std::io::sink()));
            stream.set_nonblocking(true).map_err(Failure::undone)?;
            agent.open(&id, host, &stream).map_err(Failure::undone)?;
            connections.push(stream);
        }
        Ok(Host { process, _agent: agent, connections })
    }

    /// Sends a little on all connections.
    fn send(&self) {
        for mut stream in &self.connections {
            // What the kernel has no room for waits for the next time.
            let _ = stream.write(&[0; 4096]);
        }
    }
}

/// What a process has taken so far.
struct Look {
    at: Instant,
    cpu: f64,
    memory: f64,
}

impl Look {
    fn at(process: u32) -> Result<Look, Failure> {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            let text = fs::read_to_string(&path);
            text.map_err(|error| Failure::undone(format_args!("{path}: cannot be read: {error}")))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        // After the program's name, which may have anything in it.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        match (ticks(11), ticks(12), kib) {
            (Some(user), Some(system), Some(kib)) => {
                Ok(Look { at: Instant::now(), cpu: (user + system) * TICK, memory: kib * 1024.0 })
            }
            _ => Err(Failure::undone(format_args!("process {process} has ended"))),
        }
    }

    fn since(&self, before: &Look) -> Used {
        let time = self.at.duration_since(before.at).as_secs_f64();
        Used { cpu: (self.cpu - before.cpu) / time, memory: self.memory }
    }
}

/// The mean of schedules, and the end of the bucket in which nine in ten are, from a coordinator's metrics.
fn schedules(metrics: &str) -> Result<(f64, f64), Failure> {
    let number = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    let of = |name: &str| metrics.lines().find(|line| line.starts_with(name)).and_then(number);
    let (sum, count) = (of("weir_schedule_seconds_sum"), of("weir_schedule_seconds_count"));
    let missing = || Failure::undone("the coordinator's metrics have no schedules");
    let (sum, count) = (sum.ok_or_else(missing)?, count.ok_or_else(missing)?);
    let buckets = metrics.lines().filter_map(|line| {
        let line = line.strip_prefix("weir_schedule_seconds_bucket{le=\"")?;
        let (end, rest) = line.split_once('"')?;
        Some((end.parse::<f64>().ok()?, number(rest)?))
    });
    let bound = buckets.filter(|bucket| bucket.1 >= 0.9 * count).map(|bucket| bucket.0).next();
    Ok((sum / count, bound.ok_or_else(missing)?))
}

/// What the coordinator answers.
fn ask(api: &str, method: &str, path: &str, body: &str) -> Result<String, Failure> {
    let answer = || -> std::io::Result<String> {
        let mut socket = TcpStream::connect(api)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes())?;
        socket.write_all(body.as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = answer().map_err(|error| Failure::undone(format_args!("{api}: {error}")))?;
    if !answer.starts_with("HTTP/1.1 200 ") {
        let line = answer.lines().next().unwrap_or_default();
        return Err(Failure::undone(format_args!("{method} {path}: {line}")));
    }
    Ok(answer)
}
