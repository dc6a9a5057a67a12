//! `weir agent run` at switches: all ports have a queue for each service, and an operator changes the
//! services' weights.
//! The tests run on a testbed of namespaces, and skip without the privileges for one.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::bed::{Bed, LINE, PORT, Process, address, in_namespace};
use crate::certificates::Authority;
use crate::common::{counted, wait_for, wait_within};
use crate::kernel::sent_by;
use nix::sys::socket::{setsockopt, sockopt};

/// Two services of weights 1 and 3. The last host runs the coordinator.
fn config(hosts: u32, switches: &str) -> String {
    let each: String = (0..hosts).map(|host| format!("h{host} = \"40Mbit\"\n")).collect();
    let listen = format!("[listen]\nagents = \"{}:{PORT}\"\napi = \"127.0.0.1:7701\"\n", address(hosts - 1));
    format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nqueues = \"services\"\n\
         [host]\n{each}[switch]\n{switches}[service.one]\n[service.three]\nweight = 3\n{listen}\
         [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n"
    )
}

/// A coordinator on the last host.
struct Coordinator<'a> {
    bed: &'a Bed,
    hosts: u32,
    _process: Process,
}

impl<'a> Coordinator<'a> {
    /// Starts a coordinator, and writes its configuration and the certificates of the server, of the switches
    /// and of an operator.
    fn start(bed: &'a Bed, hosts: u32, switches: &[(&str, &str)]) -> Coordinator<'a> {
        let authority = Authority::new();
        authority.server_at(&bed.place.path("."), &[&address(hosts - 1).to_string(), "127.0.0.1"]);
        let names = switches.iter().map(|(name, _)| (*name, format!("weir://agent/{name}")));
        for (name, identity) in names.chain([("ann", "weir://operator/ann".to_owned())]) {
            let pair = authority.signed(&[&identity]);
            bed.place.write(&format!("{name}.pem"), &pair.certificate);
            bed.place.write(&format!("{name}.key"), &pair.key);
        }
        let ports: String = switches.iter().map(|(name, ports)| format!("{name} = {ports}\n")).collect();
        bed.place.write("serve.toml", &config(hosts, &ports));
        let mut command = bed.inside(hosts - 1, Path::new(env!("CARGO_BIN_EXE_weir")));
        command.args(["serve", "--config", "serve.toml"]);
        command.current_dir(bed.place.path(".")).stderr(Stdio::null());
        let started = Coordinator { bed, hosts, _process: Process(command.spawn().unwrap()) };
        wait_for("the coordinator", || started.ctl("hosts").0);
        started
    }

    fn ctl(&self, words: &str) -> (bool, String) {
        let mut command = self.bed.inside(self.hosts - 1, Path::new(env!("CARGO_BIN_EXE_weir")));
        command.arg("ctl").args(words.split(' ')).args(credentials("ann"));
        let output = command.current_dir(self.bed.place.path(".")).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    /// Waits until a switch is connected, or until it is disconnected.
    fn is_present(&self, switch: &str, there: bool) {
        let line = format!("{switch},{there},");
        wait_for(&line, || self.ctl("switches --format csv").1.lines().any(|found| found.starts_with(&line)));
    }

    /// Starts the agent of a switch in a namespace, for its first `ports` ports.
    fn agent(&self, (switch, number): (&str, u32), namespace: &str, ports: u32) -> Process {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_weir"), "agent", "run"]);
        command.args(["--host", &number.to_string()]);
        command.args(["--coordinator", &format!("{}:{PORT}", address(self.hosts - 1))]);
        command.args(credentials(switch));
        for port in 0..ports {
            command.args(["--port", &format!("eth{port}=40Mbit")]);
        }
        Process(command.current_dir(self.bed.place.path(".")).spawn().unwrap())
    }
}

/// The options for a certificate, its key and the authority.
fn credentials(name: &str) -> [String; 6] {
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

fn switch(bed: &Bed, hosts: u32) -> String {
    let all = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let all = String::from_utf8(all.stdout).unwrap();
    let hosts: Vec<String> = (0..hosts).map(|host| bed.namespace(host)).collect();
    let own = |name: &&str| name.starts_with(&bed.prefix()) && !hosts.iter().any(|host| host == name);
    all.lines().filter_map(|line| line.split(' ').next()).find(own).unwrap().to_owned()
}

fn tc(namespace: &str, line: &str) -> String {
    let output = Command::new("tc").args(["-n", namespace]).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Deletes the testbed's own queues at the first ports, so that the agent can add its queues, which have the
/// same rate.
fn give_way(namespace: &str, ports: u32) {
    for port in 0..ports {
        tc(namespace, &format!("qdisc del dev eth{port} root"));
    }
}

/// Stops an agent, and asserts that its ports have the kernel's default queues again.
fn end(mut agent: Process, namespace: &str, ports: u32) {
    assert!(Command::new("kill").arg(agent.0.id().to_string()).status().unwrap().success());
    assert!(agent.0.wait().unwrap().success());
    for port in 0..ports {
        let queues = tc(namespace, &format!("qdisc show dev eth{port}"));
        assert!(queues.starts_with("qdisc noqueue"), "eth{port} of {namespace}: {queues}");
    }
}

/// Waits until the first of two services has a given share of the bytes of both. The wait also covers packets
/// in queues and in flight.
fn comes_to(expected: f64, read: impl Fn() -> [u64; 2]) {
    let share = || {
        let before = read();
        thread::sleep(Duration::from_millis(1500));
        let after = read();
        let [one, three] = [0, 1].map(|at| after[at].saturating_sub(before[at]) as f64);
        eprintln!("{:.3} of the line, the first has {:.3}", (one + three) / 1.5 / LINE, one / (one + three));
        one / (one + three)
    };
    wait_within(Duration::from_secs(20), &format!("a share of {expected}"), || {
        (share() - expected).abs() < 0.03
    });
}

/// Sends from one host to another with a mark while the receiver listens. Returns the counter of received
/// bytes.
fn flood(bed: &Bed, (from, host): (u32, u32), mark: i32) -> Arc<AtomicU64> {
    let to = SocketAddr::from((address(host), 9000 + from as u16));
    let listener = in_namespace(&bed.namespace(host), move || TcpListener::bind(to).unwrap());
    let mut stream = in_namespace(&bed.namespace(from), move || TcpStream::connect(to).unwrap());
    setsockopt(&stream, sockopt::Ipv4Tos, &(mark << 2)).unwrap();
    let arrived = counted(move || listener.accept().unwrap().0);
    thread::spawn(move || while stream.write_all(&[0; 1 << 14]).is_ok() {});
    arrived
}

#[test]
fn switch_ports_share_bandwidth_by_service_weights() {
    const HOSTS: u32 = 4;
    let Some(bed) = Bed::up("switch", HOSTS) else { return };
    let namespace = switch(&bed, HOSTS);
    give_way(&namespace, HOSTS);
    // One port of the switch for each host, in order.
    let coordinator = Coordinator::start(&bed, HOSTS, &[("edge", "[\"h0\", \"h1\", \"h2\", \"h3\"]")]);
    let agent = || coordinator.agent(("edge", HOSTS), &namespace, HOSTS);
    let mut first = agent();
    coordinator.is_present("edge", true);

    let counts = [flood(&bed, (0, 2), 1), flood(&bed, (1, 2), 2)];
    let arrived = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    comes_to(0.25, arrived);
    assert!(coordinator.ctl("weight one 9").0);
    comes_to(0.75, arrived);
    let weights = coordinator.ctl("queues --format csv").1;
    assert!(weights.lines().any(|line| line == "h2,in,0.75 0.25,0 1"), "{weights}");

    // Without an agent, queues and weights stay. The next agent changes none of them.
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    coordinator.is_present("edge", false);
    comes_to(0.75, arrived);
    let classes = || (0..HOSTS).map(|port| tc(&namespace, &format!("class show dev eth{port}")));
    let before: Vec<String> = classes().collect();
    let second = agent();
    coordinator.is_present("edge", true);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(classes().collect::<Vec<_>>(), before);
    end(second, &namespace, HOSTS);
}

/// Two hosts at each of two switches. The cable between the switches is the only bottleneck. The coordinator
/// is connected to both switches by ports without queues, so that its orders are not delayed.
const TWO: &str = "weir-fabric = 1\nkind = \"links\"\nhosts = [\"h0\", \"h1\", \"h2\", \"h3\", \"h4\"]\n\
                   [[switch]]\nname = \"left\"\ntier = 1\n[[switch]]\nname = \"right\"\ntier = 1\n";

#[test]
fn ports_between_switches_share_bandwidth_by_service_weights() {
    const HOSTS: u32 = 5;
    const PORTS: u32 = 3;
    let cables = ["h0 left", "h1 left", "left right", "h2 right", "h3 right", "h4 left", "h4 right"];
    let cables = cables.map(|cable| {
        let (one, other) = cable.split_once(' ').unwrap();
        format!("[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"40Mbit\"\n")
    });
    let Some(bed) = Bed::of("cable", HOSTS, &format!("{TWO}{}", cables.concat())) else { return };
    (0..4).for_each(|host| bed.acknowledge_at_once(host));
    let namespaces = ["left", "right"].map(|name| format!("{}{name}", bed.prefix()));
    // A host with two cables has routes to hosts only; its agent connections need routes to the switches.
    for (switch, interface) in [("10.1.0.1", "eth0"), ("10.1.0.2", "eth1")] {
        let mut command = Command::new("ip");
        command.args(["-n", &bed.namespace(4), "route", "add", switch, "src", &address(4).to_string()]);
        command.args(["via", "169.254.0.1", "dev", interface, "onlink"]);
        assert!(command.status().unwrap().success(), "a route to {switch}");
    }
    let switches = [("left", "[\"h0\", \"h1\", \"right\"]"), ("right", "[\"left\", \"h2\", \"h3\"]")];
    let coordinator = Coordinator::start(&bed, HOSTS, &switches);
    let agents: Vec<Process> = ["left", "right"]
        .into_iter()
        .zip(HOSTS..)
        .zip(&namespaces)
        .map(|(switch, namespace)| {
            give_way(namespace, PORTS);
            coordinator.agent(switch, namespace, PORTS)
        })
        .collect();
    ["left", "right"].iter().for_each(|switch| coordinator.is_present(switch, true));

    let _floods = [flood(&bed, (0, 2), 1), flood(&bed, (1, 3), 2)];
    // The queues of both services at the left switch's port to the right switch, which is the only
    // bottleneck.
    let port = || tc(&namespaces[0], "-s class show dev eth2");
    let queues = ["7765:100", "7765:101"];
    wait_for("queues", || queues.iter().all(|queue| port().contains(&format!("class htb {queue} "))));
    let sent = || {
        let printed = port();
        queues.map(|queue| sent_by(&printed, queue))
    };
    comes_to(0.25, sent);
    assert!(coordinator.ctl("weight one 9").0);
    comes_to(0.75, sent);
    let weights = coordinator.ctl("queues --format csv").1;
    for line in ["left,to right,0.75 0.25,0 1", "right,to left,0.75 0.25,0 1"] {
        assert!(weights.lines().any(|found| found == line), "{line}: {weights}");
    }
    for (agent, namespace) in agents.into_iter().zip(&namespaces) {
        end(agent, namespace, PORTS);
    }
}
