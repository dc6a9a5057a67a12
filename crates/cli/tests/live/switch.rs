//! Tests `weir agent run` at switches: each port has a queue for each service, and an operator changes the
//! weights of services.
//! The tests run on a testbed of namespaces, and skip without the privileges for one.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::bed::{Bed, COORDINATOR_PORT, LINK_FRAME_BYTES_PER_SEC, Process, address};
use crate::certificates::Authority;
use crate::common::{count_received_bytes, wait_for, wait_within};
use crate::kernel::sent_by_class;
use nix::sys::socket::{setsockopt, sockopt};

/// Two services of weights 1 and 3. The last host runs the coordinator.
fn config(hosts: u32, switches: &str) -> String {
    let host_lines: String = (0..hosts).map(|host| format!("h{host} = \"40Mbit\"\n")).collect();
    let listen = format!(
        "[listen]\nagents = \"{}:{COORDINATOR_PORT}\"\napi = \"127.0.0.1:7701\"\n",
        address(hosts - 1)
    );
    format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nqueues = \"services\"\n\
         [host]\n{host_lines}[switch]\n{switches}[service.one]\n[service.three]\nweight = 3\n{listen}\
         [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n"
    )
}

/// A coordinator on the last host.
pub struct Coordinator<'a> {
    bed: &'a Bed,
    hosts: u32,
    _process: Process,
}

impl<'a> Coordinator<'a> {
    /// Starts a coordinator, and writes its configuration and the certificates of the server, of the switches
    /// and of an operator. A switch without ports is the agent of a host.
    pub fn start(bed: &'a Bed, hosts: u32, switches: &[(&str, &str)]) -> Coordinator<'a> {
        let ports: String = switches
            .iter()
            .filter(|(_, ports)| !ports.is_empty())
            .map(|(name, ports)| format!("{name} = {ports}\n"))
            .collect();
        let names: Vec<&str> = switches.iter().map(|(name, _)| *name).collect();
        Coordinator::start_with(bed, hosts, &names, &config(hosts, &ports))
    }

    /// Starts a coordinator with a configuration, and writes the certificates of the agents.
    pub fn start_with(bed: &'a Bed, hosts: u32, agents: &[&str], config: &str) -> Coordinator<'a> {
        let authority = Authority::new();
        authority.write_server_files_for(&bed.dir.path("."), &[&address(hosts - 1).to_string(), "127.0.0.1"]);
        let names = agents.iter().map(|name| (*name, format!("weir://agent/{name}")));
        for (name, identity) in names.chain([("ann", "weir://operator/ann".to_owned())]) {
            let pair = authority.client_certificate(&[&identity]);
            bed.dir.write(&format!("{name}.pem"), &pair.certificate);
            bed.dir.write(&format!("{name}.key"), &pair.key);
        }
        bed.dir.write("serve.toml", config);
        let mut command = bed.command_on_host(hosts - 1, Path::new(env!("CARGO_BIN_EXE_weir")));
        command.args(["serve", "--config", "serve.toml"]);
        command.current_dir(bed.dir.path(".")).stderr(Stdio::null());
        let coordinator = Coordinator { bed, hosts, _process: Process(command.spawn().unwrap()) };
        wait_for("the coordinator", || coordinator.ctl("hosts").0);
        coordinator
    }

    pub fn ctl(&self, words: &str) -> (bool, String) {
        let mut command = self.bed.command_on_host(self.hosts - 1, Path::new(env!("CARGO_BIN_EXE_weir")));
        command.arg("ctl").args(words.split(' ')).args(credential_options("ann"));
        let output = command.current_dir(self.bed.dir.path(".")).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    /// Waits until a switch is connected, or until it is disconnected.
    fn wait_for_presence(&self, switch: &str, is_connected: bool) {
        let line = format!("{switch},{is_connected},");
        wait_for(&line, || {
            self.ctl("switches --format csv")
                .1
                .lines()
                .any(|line_of_switch| line_of_switch.starts_with(&line))
        });
    }

    /// Starts the agent of a switch in a namespace, for its first `ports` ports.
    fn start_agent(&self, switch: &str, namespace: &str, ports: u32) -> Process {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_weir"), "agent", "run"]);
        command.args(["--coordinator", &format!("{}:{COORDINATOR_PORT}", address(self.hosts - 1))]);
        command.args(credential_options(switch));
        for port in 0..ports {
            command.args(["--port", &format!("eth{port}=40Mbit")]);
        }
        Process(command.current_dir(self.bed.dir.path(".")).spawn().unwrap())
    }
}

/// The options for a certificate, its key and the authority.
pub fn credential_options(name: &str) -> [String; 6] {
    let file = |end: &str| format!("{name}.{end}");
    let authority = "authority.pem".to_owned();
    [
        "--certificate".to_owned(),
        file("pem"),
        "--key".to_owned(),
        file("key"),
        "--authority".to_owned(),
        authority,
    ]
}

pub fn switch_namespace(bed: &Bed, hosts: u32) -> String {
    let namespaces = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let namespaces = String::from_utf8(namespaces.stdout).unwrap();
    let hosts: Vec<String> = (0..hosts).map(|host| bed.namespace(host)).collect();
    let is_switch = |name: &&str| name.starts_with(&bed.prefix()) && !hosts.iter().any(|host| host == name);
    namespaces.lines().filter_map(|line| line.split(' ').next()).find(is_switch).unwrap().to_owned()
}

pub fn tc(namespace: &str, line: &str) -> String {
    let output = Command::new("tc").args(["-n", namespace]).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Deletes the testbed's own queues at the first ports, so that the agent can add its queues, which have the
/// same rate.
pub fn delete_testbed_queues(namespace: &str, ports: u32) {
    for port in 0..ports {
        tc(namespace, &format!("qdisc del dev eth{port} root"));
    }
}

/// Stops an agent, and asserts that its ports have the kernel's default queues again.
fn interrupt_agent(mut agent: Process, namespace: &str, ports: u32) {
    assert!(Command::new("kill").args(["-INT", &agent.0.id().to_string()]).status().unwrap().success());
    assert!(agent.0.wait().unwrap().success());
    for port in 0..ports {
        let queues = tc(namespace, &format!("qdisc show dev eth{port}"));
        assert!(queues.starts_with("qdisc noqueue"), "eth{port} of {namespace}: {queues}");
    }
}

/// Waits until the first of two services has a given share of the bytes of both. The wait also covers packets
/// in queues and in flight.
fn wait_for_share(expected: f64, read_bytes: impl Fn() -> [u64; 2]) {
    let share = || {
        let before = read_bytes();
        thread::sleep(Duration::from_millis(1500));
        let after = read_bytes();
        let [first, second] = [0, 1].map(|index| after[index].saturating_sub(before[index]) as f64);
        eprintln!(
            "services use {:.3} of the link, of which the first has {:.3}",
            (first + second) / 1.5 / LINK_FRAME_BYTES_PER_SEC,
            first / (first + second)
        );
        first / (first + second)
    };
    wait_within(Duration::from_secs(20), &format!("a share of {expected}"), || {
        (share() - expected).abs() < 0.03
    });
}

/// Sends from one host to another with a mark, to the port 9000 plus the sender's number, while the receiver listens. Returns the
/// counter of received bytes.
pub fn start_flood(bed: &Bed, (from, host): (u32, u32), dscp: i32) -> Arc<AtomicU64> {
    let to = SocketAddr::from((address(host), 9000 + from as u16));
    let listener = bed.run_on_host(host, || TcpListener::bind(to).unwrap());
    let mut stream = bed.run_on_host(from, || TcpStream::connect(to).unwrap());
    setsockopt(&stream, sockopt::Ipv4Tos, &(dscp << 2)).unwrap();
    let received = count_received_bytes(move || listener.accept().unwrap().0);
    thread::spawn(move || while stream.write_all(&[0; 1 << 14]).is_ok() {});
    received
}

#[test]
fn switch_ports_share_bandwidth_by_service_weights() {
    const HOSTS: u32 = 4;
    let Some(bed) = Bed::up("switch", HOSTS) else { return };
    let namespace = switch_namespace(&bed, HOSTS);
    delete_testbed_queues(&namespace, HOSTS);
    // One port of the switch for each host, in order.
    let coordinator = Coordinator::start(&bed, HOSTS, &[("edge", "[\"h0\", \"h1\", \"h2\", \"h3\"]")]);
    let start_agent = || coordinator.start_agent("edge", &namespace, HOSTS);
    let mut first = start_agent();
    coordinator.wait_for_presence("edge", true);

    let counts = [start_flood(&bed, (0, 2), 1), start_flood(&bed, (1, 2), 2)];
    let received = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    wait_for_share(0.25, received);
    assert!(coordinator.ctl("weight one 9").0);
    wait_for_share(0.75, received);
    let weights = coordinator.ctl("queues --format csv").1;
    assert!(weights.lines().any(|line| line == "h2,in,0.75 0.25,0 1"), "{weights}");

    // Without an agent, queues and weights stay. The next agent changes none of them.
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    coordinator.wait_for_presence("edge", false);
    wait_for_share(0.75, received);
    let classes = || (0..HOSTS).map(|port| tc(&namespace, &format!("class show dev eth{port}")));
    let before: Vec<String> = classes().collect();
    let second = start_agent();
    coordinator.wait_for_presence("edge", true);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(classes().collect::<Vec<_>>(), before);
    interrupt_agent(second, &namespace, HOSTS);
}

/// Two hosts at each of two switches. The cable between the switches is the only bottleneck. The coordinator
/// is connected to both switches by ports without queues, so that its orders are not delayed.
const TWO_SWITCHES: &str = "weir-fabric = 1\nkind = \"links\"\nhosts = [\"h0\", \"h1\", \"h2\", \"h3\", \"h4\"]\n\
                   [[switch]]\nname = \"left\"\ntier = 1\n[[switch]]\nname = \"right\"\ntier = 1\n";

#[test]
fn ports_between_switches_share_bandwidth_by_service_weights() {
    const HOSTS: u32 = 5;
    const PORTS: u32 = 3;
    let cables = ["h0 left", "h1 left", "left right", "h2 right", "h3 right", "h4 left", "h4 right"];
    let cables = cables.map(|cable| {
        let (first, second) = cable.split_once(' ').unwrap();
        format!("[[link]]\nends = [\"{first}\", \"{second}\"]\nrate = \"40Mbit\"\n")
    });
    let Some(bed) = Bed::with_fabric("cable", HOSTS, &format!("{TWO_SWITCHES}{}", cables.concat())) else {
        return;
    };
    (0..4).for_each(|host| bed.acknowledge_at_once(host));
    let namespaces = ["left", "right"].map(|name| format!("{}{name}", bed.prefix()));
    // A host with two cables has routes to hosts only; its agent connections need routes to the switches.
    for (switch, interface) in [("10.1.0.1", "eth0"), ("10.1.0.2", "eth1")] {
        let mut command = Command::new("ip");
        command.args(["-n", &bed.namespace(4), "route", "add", switch, "src", &address(4).to_string()]);
        command.args(["via", "169.254.0.1", "dev", interface, "onlink"]);
        assert!(command.status().unwrap().success(), "the route to {switch} was not added");
    }
    let switches = [("left", "[\"h0\", \"h1\", \"right\"]"), ("right", "[\"left\", \"h2\", \"h3\"]")];
    let coordinator = Coordinator::start(&bed, HOSTS, &switches);
    let agents: Vec<Process> = ["left", "right"]
        .into_iter()
        .zip(&namespaces)
        .map(|(switch, namespace)| {
            delete_testbed_queues(namespace, PORTS);
            coordinator.start_agent(switch, namespace, PORTS)
        })
        .collect();
    ["left", "right"].iter().for_each(|switch| coordinator.wait_for_presence(switch, true));

    let _floods = [start_flood(&bed, (0, 2), 1), start_flood(&bed, (1, 3), 2)];
    // The queues of both services at the left switch's port to the right switch, which is the only
    // bottleneck.
    let port_classes = || tc(&namespaces[0], "-s class show dev eth2");
    let queues = ["7765:100", "7765:101"];
    wait_for("queues", || queues.iter().all(|queue| port_classes().contains(&format!("class htb {queue} "))));
    let sent_bytes = || {
        let classes = port_classes();
        queues.map(|queue| sent_by_class(&classes, queue))
    };
    wait_for_share(0.25, sent_bytes);
    assert!(coordinator.ctl("weight one 9").0);
    wait_for_share(0.75, sent_bytes);
    let weights = coordinator.ctl("queues --format csv").1;
    for line in ["left,to right,0.75 0.25,0 1", "right,to left,0.75 0.25,0 1"] {
        assert!(weights.lines().any(|found| found == line), "{line}: {weights}");
    }
    for (agent, namespace) in agents.into_iter().zip(&namespaces) {
        interrupt_agent(agent, namespace, PORTS);
    }
}
