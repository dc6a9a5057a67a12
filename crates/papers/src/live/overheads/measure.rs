//! Runs a coordinator and the agents of [`AGENT_PROCESSES`] hosts as processes, simulates the other agents, and samples the
//! processor time and memory of the processes.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Builder;
use tonic::transport::Endpoint;
use weir_agent::live::{self, load_generator};
use weir_client::Agent;
use weir_console::failure::Failure;
use weir_core::units::Rate;

use super::super::cluster::{self, Coordinator, Process};

/// The number of hosts whose agents are processes.
pub const AGENT_PROCESSES: u32 = 4;

/// The interval between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// The rate of each host's link, in bytes per second.
const LINK_BYTES_PER_SEC: f64 = 125e6;

/// The use of resources by a process between two samples.
pub struct Usage {
    /// The mean number of processors in use.
    pub cpu: f64,
    /// The resident memory at the later sample.
    pub memory_bytes: f64,
}

/// The figures of a coordinator with `hosts` hosts.
pub struct Overheads {
    pub hosts: u32,
    /// The latencies of orders, in seconds.
    pub latencies_secs: Vec<f64>,
    /// The mean and an upper bound of the 90th percentile of schedules, in seconds.
    pub schedule_secs: (f64, f64),
    pub coordinator: Vec<Usage>,
    /// The samples of all agent processes.
    pub agents: Vec<Usage>,
}

/// Measures a coordinator with `hosts` hosts, and agents with `sockets` sockets each, for [`load_generator::DURATION`].
pub fn measure(policy: &str, hosts: u32, sockets: u32) -> Result<Overheads, Failure> {
    live::raise_file_limit();
    let link = Rate::new(LINK_BYTES_PER_SEC).expect("the constant is a valid rate");
    let names = (0..hosts).map(|host| (format!("h{host}"), link));
    let coordinator = Coordinator::start(None, &format!("policy = \"{policy}\"\n"), names)?;
    for (number, id) in (0u32..).zip(load_generator::coflow_ids()) {
        let receiver = |from: u32| (from + 1 + number % (hosts - 1)) % hosts;
        let flow = |from: u32| json!({ "from": format!("h{from}"), "to": format!("h{}", receiver(from)) });
        let flows: Vec<Value> = (0..hosts).map(flow).collect();
        coordinator.put(&format!("/v1/coflows/{id}"), &json!({ "flows": flows }).to_string())?;
    }
    // Coflow N has the flows of host N beyond those of the coflows above.
    let more_flows = sockets.saturating_sub(load_generator::STEADY_COFLOWS);
    for host in (0..AGENT_PROCESSES).filter(|_| more_flows > 0) {
        let receiver = |flow: u32| (host + 1 + flow % (hosts - 1)) % hosts;
        let flow = |flow: u32| json!({ "from": format!("h{host}"), "to": format!("h{}", receiver(flow)) });
        let flows: Vec<Value> = (0..more_flows).map(flow).collect();
        coordinator.put(&format!("/v1/coflows/{}", wide_id(host)), &json!({ "flows": flows }).to_string())?;
    }
    let directory = tempfile::tempdir().map_err(Failure::runtime)?;
    let path = |host| directory.path().join(format!("agent{host}"));
    let start = |host| Host::start(&coordinator, host, link, &path(host), more_flows);
    let agent_hosts = (0..AGENT_PROCESSES).map(start).collect::<Result<Vec<Host>, Failure>>()?;
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Failure::runtime)?;
    let endpoint =
        Endpoint::from_shared(format!("http://{}", coordinator.agents_address)).map_err(Failure::runtime)?;
    let latencies = runtime.spawn(load_generator::run_agents(endpoint, AGENT_PROCESSES..hosts, link));
    let (mut coordinator_usage, mut agent_usage) = (Vec::new(), Vec::new());
    let sample = || -> Result<Vec<Sample>, Failure> {
        let processes =
            [&coordinator.process].into_iter().chain(agent_hosts.iter().map(|host| &host.process));
        processes.map(Sample::read).collect()
    };
    let mut before = sample()?;
    while !latencies.is_finished() {
        Failure::check_interrupt()?;
        thread::sleep(SAMPLE_INTERVAL);
        agent_hosts.iter().for_each(Host::send);
        let now = sample()?;
        let mut usage = before.iter().zip(&now).map(|(before, now)| now.usage_since(before));
        coordinator_usage.extend(usage.next());
        agent_usage.extend(usage);
        before = now;
    }
    let latencies = runtime.block_on(latencies).map_err(Failure::runtime)?;
    let latencies: Vec<f64> = latencies.iter().map(Duration::as_secs_f64).collect();
    if latencies.is_empty() {
        return Err(Failure::runtime("agents of the load generator: received no orders"));
    }
    let schedule = mean_and_p90_schedule(&coordinator.get_text("/metrics")?).ok_or_else(|| {
        Failure::runtime("coordinator: no schedules in its metrics; expected weir_schedule_seconds")
    })?;
    Ok(Overheads {
        hosts,
        latencies_secs: latencies,
        schedule_secs: schedule,
        coordinator: coordinator_usage,
        agents: agent_usage,
    })
}

fn wide_id(host: u32) -> String {
    format!("wide-{host}")
}

/// A host with an agent process, and with connections whose sockets the agent paces.
struct Host {
    process: Process,
    _agent: Agent,
    connections: Vec<TcpStream>,
}

impl Host {
    /// Hands over a socket of each steady coflow, and `more_flows` of another coflow.
    fn start(
        coordinator: &Coordinator,
        host: u32,
        link: Rate,
        socket: &Path,
        more_flows: u32,
    ) -> Result<Host, Failure> {
        let name = format!("h{host}");
        let command = cluster::agent_command(None, &coordinator.agents_address, &name, link, socket)?;
        let process = Process::start(&format!("agent of {name}"), command)?;
        let agent = cluster::connect_agent(socket)?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(Failure::runtime)?;
        let to = listener.local_addr().map_err(Failure::runtime)?;
        let mut connections = Vec::new();
        let steady = load_generator::coflow_ids().take(load_generator::STEADY_COFLOWS as usize);
        let flows = steady.map(|id| (id, host)).chain((0..more_flows).map(|flow| (wide_id(host), flow)));
        for (id, flow) in flows {
            let stream = TcpStream::connect(to).map_err(Failure::runtime)?;
            let (mut peer, _) = listener.accept().map_err(Failure::runtime)?;
            let read_all = move || std::io::copy(&mut peer, &mut std::io::sink());
            thread::Builder::new().stack_size(64 << 10).spawn(read_all).map_err(Failure::runtime)?;
            stream.set_nonblocking(true).map_err(Failure::runtime)?;
            agent.hand_over(&id, flow, &stream).map_err(Failure::runtime)?;
            connections.push(stream);
        }
        Ok(Host { process, _agent: agent, connections })
    }

    /// Sends up to 4 kB on each connection.
    fn send(&self) {
        for mut stream in &self.connections {
            // If the buffer of the socket is full, the connection sends nothing.
            let _ = stream.write(&[0; 4096]);
        }
    }
}

/// The processor time that a process has used so far, in seconds, and its resident bytes.
struct Sample {
    time: Instant,
    cpu_secs: f64,
    memory_bytes: f64,
}

impl Sample {
    fn read(process: &Process) -> Result<Sample, Failure> {
        let path = format!("/proc/{}/status", process.id());
        let status = fs::read_to_string(&path)
            .map_err(|error| Failure::runtime(format_args!("{path}: cannot be read: {error}")))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        let kib = kib.ok_or_else(|| Failure::runtime(format_args!("{path}: the process has exited")))?;
        Ok(Sample { time: Instant::now(), cpu_secs: process.processor_secs()?, memory_bytes: kib * 1024.0 })
    }

    fn usage_since(&self, before: &Sample) -> Usage {
        let seconds = self.time.duration_since(before.time).as_secs_f64();
        Usage { cpu: (self.cpu_secs - before.cpu_secs) / seconds, memory_bytes: self.memory_bytes }
    }
}

/// The mean time of schedules, and the upper bound of the histogram bucket of the 90th percentile, both in seconds. `metrics` is
/// the text of the coordinator's `/metrics`.
fn mean_and_p90_schedule(metrics: &str) -> Option<(f64, f64)> {
    let number = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    let find = |name: &str| metrics.lines().find(|line| line.starts_with(name)).and_then(number);
    let (sum, count) = (find("weir_schedule_seconds_sum")?, find("weir_schedule_seconds_count")?);
    let mut buckets = metrics.lines().filter_map(|line| {
        let line = line.strip_prefix("weir_schedule_seconds_bucket{le=\"")?;
        let (bound, rest) = line.split_once('"')?;
        Some((bound.parse::<f64>().ok()?, number(rest)?))
    });
    let (bound, _) = buckets.find(|(_, count_below)| *count_below >= 0.9 * count)?;
    Some((sum / count, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_times_are_read_from_the_histogram() {
        let text = "weir_schedule_seconds_sum 0.02\nweir_schedule_seconds_count 10\n\
                    weir_schedule_seconds_bucket{le=\"0.001\"} 8\nweir_schedule_seconds_bucket{le=\"0.004\"} 9\n\
                    weir_schedule_seconds_bucket{le=\"+Inf\"} 10\n";
        assert_eq!(mean_and_p90_schedule(text), Some((0.002, 0.004)));
        assert_eq!(mean_and_p90_schedule("weir_hosts 3\n"), None);
    }
}
