//! Tests `policy = "django"` with a coordinator, agents and programs as processes on loopback that are killed or stopped.

use std::env;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_client::{Agent, Coflow, Coordinator, Flow, FlowReceiver, FlowSender, Registration, Route};

use crate::common::serving::CoordinatorProcess;
use crate::common::{TestDir, wait_for};

const HOSTS: [&str; 3] = ["left", "right", "receiver"];

/// The longest time that a flow may take, whatever fails: many leases, and the time for which a process is stopped.
const TIMEOUT: Duration = Duration::from_secs(30);

/// For how long a process is stopped.
const STOP: Duration = Duration::from_millis(400);

const FLOW_BYTES: usize = 6_000_000;

/// The environment variable with the arguments of [`sending_program`].
const PROGRAM_VARIABLE: &str = "WEIR_TEST_SENDING_PROGRAM";

/// Whether a random fault kills a process, or stops it for a time.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillAgent(usize),
    StopAgent(usize),
    KillCoordinator,
    StopCoordinator,
    KillProgram,
}

const FAULTS: [Fault; 7] = [
    Fault::KillAgent(2),
    Fault::StopAgent(2),
    Fault::KillAgent(0),
    Fault::StopAgent(0),
    Fault::KillCoordinator,
    Fault::StopCoordinator,
    Fault::KillProgram,
];

struct Cluster {
    dir: TestDir,
    coordinator: Option<CoordinatorProcess>,
    agents: Vec<Child>,
}

impl Cluster {
    fn start() -> Cluster {
        let dir = TestDir::new();
        let mut cluster = Cluster { dir, coordinator: None, agents: Vec::new() };
        cluster.start_coordinator("127.0.0.1:0", "127.0.0.1:0");
        cluster.agents = (0..HOSTS.len()).map(|host| cluster.spawn_agent(host)).collect();
        cluster.wait_for_hosts();
        cluster
    }

    fn start_coordinator(&mut self, agents: &str, api: &str) {
        let config = format!(
            "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"django:connections=2\"\n[listen]\nagents = \"{agents}\"\n\
             api = \"{api}\"\n[host]\nleft = \"10Gbit\"\nright = \"10Gbit\"\nreceiver = \"10Gbit\"\n"
        );
        self.dir.write("serve.toml", &config);
        self.coordinator = Some(CoordinatorProcess::start(&self.dir.path("serve.toml")));
    }

    fn coordinator(&self) -> &CoordinatorProcess {
        self.coordinator.as_ref().expect("the coordinator was started")
    }

    fn socket_of(&self, host: usize) -> PathBuf {
        self.dir.path(HOSTS[host])
    }

    fn spawn_agent(&self, host: usize) -> Child {
        Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["agent", "run", "--name", HOSTS[host], "--rate", "10Gbit", "--coordinator"])
            .arg(&self.coordinator().agents_address)
            .arg("--socket")
            .arg(self.socket_of(host))
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn wait_for_hosts(&self) {
        wait_for("the hosts", || {
            let hosts = self.coordinator().hosts();
            let hosts = hosts.as_array().or_else(|| hosts["hosts"].as_array()).expect("a list of hosts");
            hosts.iter().filter(|host| host["present"] == true).count() == HOSTS.len()
        });
    }

    fn cause(&mut self, fault: Fault, program: &mut Child) {
        let stop_for_a_time = |child: &Child| {
            let process = Pid::from_raw(child.id() as i32);
            kill(process, Signal::SIGSTOP).unwrap();
            thread::sleep(STOP);
            kill(process, Signal::SIGCONT).unwrap();
        };
        match fault {
            Fault::StopAgent(host) => stop_for_a_time(&self.agents[host]),
            Fault::StopCoordinator => stop_for_a_time(&self.coordinator().child),
            Fault::KillAgent(host) => {
                self.agents[host].kill().unwrap();
                self.agents[host].wait().unwrap();
                self.agents[host] = self.spawn_agent(host);
            }
            Fault::KillCoordinator => {
                let (agents, api) =
                    (self.coordinator().agents_address.clone(), self.coordinator().api_address.clone());
                self.coordinator = None;
                self.start_coordinator(&agents, &api);
            }
            Fault::KillProgram => program.kill().unwrap(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// The data of a flow: other data at other positions, and of other flows.
fn data(flow: u32) -> Vec<u8> {
    let word = |at: u32| at.wrapping_mul(2_654_435_761).wrapping_add(flow).to_le_bytes();
    (0..FLOW_BYTES as u32 / 4).flat_map(word).collect()
}

fn send(coflow: &str, flow: u32, agent: &Agent, receiver: std::net::SocketAddr) -> std::io::Result<()> {
    let route = Route::direct(receiver)?;
    let mut sender = FlowSender::new(coflow, flow, route)?.with_timeout(TIMEOUT).with_agent(agent);
    sender.write_all(&data(flow))?;
    sender.finish().map(drop)
}

/// The program of the last flow of a coflow: this test, in another process.
#[test]
fn sending_program() {
    let Ok(arguments) = env::var(PROGRAM_VARIABLE) else { return };
    let [coflow, flow, socket, receiver] = arguments.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{arguments}")
    };
    send(coflow, flow.parse().unwrap(), &Agent::connect(socket).unwrap(), receiver.parse().unwrap()).unwrap();
}

fn spawn_program(coflow: &str, flow: u32, cluster: &Cluster, receiver: std::net::SocketAddr) -> Child {
    let socket = cluster.socket_of(1);
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "matching::sending_program"])
        .env(PROGRAM_VARIABLE, format!("{coflow} {flow} {} {receiver}", socket.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Sends a coflow of six flows to one host, which may have two connections, while a process fails. All flows arrive exactly, except that
/// of a killed program.
fn send_coflow(cluster: &mut Cluster, coflow: &str, fault: Fault, moment: Duration) {
    let flow_from = |from: &str| Flow {
        from: from.to_owned(),
        to: "receiver".to_owned(),
        bytes: Some(FLOW_BYTES as u64),
    };
    let last = 5;
    let flows = (0..=last).map(|flow| flow_from(HOSTS[flow as usize % 2])).collect();
    let coordinator = Coordinator::local(&cluster.coordinator().api_address).unwrap();
    let registration = Registration { flows, ..Registration::default() };
    Coflow::register(&coordinator, coflow, &registration).unwrap();
    let agents: Vec<Agent> = (0..2).map(|host| Agent::connect(cluster.socket_of(host)).unwrap()).collect();
    let receiver = FlowReceiver::bind("127.0.0.1:0").unwrap();
    let address = receiver.address();
    let mut program = spawn_program(coflow, last, cluster, address);
    let has_begun = [const { AtomicBool::new(false) }; 6];
    let start = Instant::now();
    let received: Vec<Vec<u8>> = thread::scope(|scope| {
        let read = |flow| {
            let (receiver, has_begun) = (&receiver, &has_begun);
            scope.spawn(move || {
                let mut incoming = receiver.receive(coflow, flow, TIMEOUT).unwrap();
                has_begun[flow as usize].store(true, Ordering::Relaxed);
                incoming.set_reconnect_timeout(Duration::from_secs(2));
                let mut all = Vec::new();
                // The flow of a killed program has no end.
                let _ = incoming.read_to_end(&mut all);
                all
            })
        };
        let readers: Vec<_> = (0..=last).map(read).collect();
        for flow in 0..last {
            let agent = &agents[flow as usize % 2];
            scope.spawn(move || send(coflow, flow, agent, address).unwrap());
        }
        if matches!(fault, Fault::KillProgram) {
            wait_for("the program's flow", || has_begun[last as usize].load(Ordering::Relaxed));
        }
        thread::sleep(moment);
        cluster.cause(fault, &mut program);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let killed = program.wait().unwrap();
    assert!(start.elapsed() < TIMEOUT, "{fault:?} after {moment:?}: {:?}", start.elapsed());
    for (flow, bytes) in (0..).zip(&received) {
        let sent = data(flow);
        let is_whole = flow < last || killed.success();
        assert!(
            if is_whole { *bytes == sent } else { sent.starts_with(bytes) },
            "{fault:?} after {moment:?}: flow {flow} arrived with {} bytes, which differ",
            bytes.len()
        );
    }
    assert!(killed.success() || matches!(fault, Fault::KillProgram), "{fault:?}: the program failed");
    eprintln!("{fault:?} after {moment:?}: {:?}", start.elapsed());
}

/// Agents, the coordinator and a program are killed or stopped at 20 random moments. No flow waits for ever, and no byte is lost or
/// repeated.
#[test]
fn flows_arrive_exactly_whatever_fails() {
    let mut cluster = Cluster::start();
    let mut random = ChaCha8Rng::seed_from_u64(49);
    for round in 0..20 {
        let moment = Duration::from_millis(u64::from(random.next_u32() % 150));
        let fault = FAULTS[round % FAULTS.len()];
        send_coflow(&mut cluster, &format!("round-{round}"), fault, moment);
        cluster.wait_for_hosts();
    }
}
