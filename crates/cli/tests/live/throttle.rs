//! Rate throttling between agents: what a host sends of UDP is little more than what arrives of it, and the rest of its link is for others.
//! Processes in namespaces, with certificates. Without the privileges or the programs in the kernel for that, the test says so and skips.
//!
//! Host `a` sends over a link of 100 Mbit: UDP to `b`, whose link carries 20, and TCP to `c`. A switch between them has the coordinator.

use std::env;
use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::certificates::Authority;
use crate::common::{Place, counted, wait_within};
use crate::group::Group;
use crate::kernel::{Reading, Speed, sent_by};
use crate::turn::{self, Turn};
use nix::sched::{CloneFlags, setns};

/// What the first link carries and what the second does, in bytes per second.
const FIRST: f64 = 12.5e6;
const SECOND: f64 = 2.5e6;

/// What is sent of UDP: the bytes of a datagram, of its packet, and of all of them in a second.
const DATAGRAM: usize = 1400;
const PACKET: f64 = 1442.0;
const SENT: f64 = 10e6;

/// What comes in bursts: packets, and how often. No link is too slow for them.
const BURST: u32 = 20;
const EACH: Duration = Duration::from_millis(40);

/// Where UDP and TCP arrive.
const UDP: &str = "10.8.2.2:9000";
const TCP: &str = "10.8.3.2:9000";

/// How long anything may take that is to come.
const SOON: Duration = Duration::from_secs(60);

/// Leases are longer than a busy machine lets a report wait, and each service has half of the first link where both want it.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nlease = \"2s\"\nqueues = \"services\"\n\
                      [listen]\nagents = \"10.8.1.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n\
                      [host]\na = \"100Mbit\"\nb = \"20Mbit\"\nc = \"100Mbit\"\n\
                      [address]\na = [\"10.8.1.2\"]\nb = [\"10.8.2.2\"]\nc = [\"10.8.3.2\"]\n\
                      [service.udp]\n[service.tcp]\n";

fn ip(line: &str) -> bool {
    let done = Command::new("ip").args(line.split(' ')).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// A process that is killed in the end.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A switch and three hosts, gone in the end with whatever is in them.
struct Net {
    name: String,
    place: Place,
    _turn: Turn,
}

impl Net {
    fn up(test: &str) -> Option<Net> {
        let turn = turn::take();
        let name = format!("weir{test}{}", std::process::id());
        let net = Net { name, place: Place::new(), _turn: turn };
        let switch = net.space("s");
        if !ip(&format!("netns add {switch}")) {
            return None;
        }
        let tc = |line: &str| assert!(Command::new("tc").args(line.split(' ')).status().unwrap().success());
        let exec = format!("netns exec {switch} sysctl -qw net.ipv4.ip_forward=1");
        assert!(ip(&exec) && ip(&format!("-n {switch} link set lo up")));
        for (number, host) in [(1, "a"), (2, "b"), (3, "c")] {
            let space = net.space(host);
            for line in [
                format!("netns add {space}"),
                format!("link add e0 netns {space} type veth peer name to-{host} netns {switch}"),
                format!("-n {space} link set lo up"),
                format!("-n {space} addr add 10.8.{number}.2/24 dev e0"),
                format!("-n {space} link set e0 up"),
                format!("-n {switch} addr add 10.8.{number}.1/24 dev to-{host}"),
                format!("-n {switch} link set dev to-{host} up"),
                format!("-n {space} route add default via 10.8.{number}.1"),
            ] {
                assert!(ip(&line), "{line}");
            }
        }
        // The first link is as slow as its agent's queues.
        let second = SECOND * 8.0;
        tc(&format!("-n {switch} qdisc add dev to-b root tbf rate {second}bit burst 10000 limit 50000"));
        Some(net)
    }

    fn space(&self, node: &str) -> String {
        format!("{}{node}", self.name)
    }

    fn inside<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.space(node))).unwrap();
        let work = move || {
            setns(space, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    /// A command of a node's, which sees the cgroups, as `ip netns exec` would not have it; in one of them, if that is said.
    fn command(&self, node: &str, group: Option<&Group>) -> Command {
        let mut command = group.map_or_else(|| Command::new("nsenter"), |group| group.command("nsenter"));
        command.arg(format!("--net=/run/netns/{}", self.space(node)));
        command.current_dir(self.place.path(".")).stdin(Stdio::null());
        command
    }

    fn weir(&self, node: &str, line: &str) -> Command {
        let mut command = self.command(node, None);
        command.arg(env!("CARGO_BIN_EXE_weir")).args(line.split(' '));
        command
    }

    /// A process in a cgroup of the first host: a test of this program that is none.
    fn run(&self, group: &Group, test: &str) -> Process {
        let mut command = self.command("a", Some(group));
        command.arg(env::current_exe().unwrap()).args(["--exact", test, "--ignored", "--nocapture"]);
        Process(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// The coordinator, which has agents throttle or does not.
    fn serve(&self, throttling: bool) -> Process {
        self.place.write("serve.toml", &format!("throttling = {throttling}\n{CONFIG}"));
        let mut command = self.weir("s", "serve --config serve.toml");
        Process(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// The agent of a host whose applications have classes.
    fn agent(&self, (number, host): (u32, &str), applications: &[(&Group, u8)]) -> Process {
        let rate = if host == "a" { FIRST } else { SECOND } * 8.0;
        let mut command = self.weir(
            host,
            &format!(
                "agent run --host {number} --rate {rate}bit --interface e0 --coordinator 10.8.1.1:7700 --socket local_socket-{host} \
                 --certificate {host}.pem --key {host}.key --authority authority.pem"
            ),
        );
        for (group, class) in applications {
            command.arg("--application").arg(format!("{}={}:{class}", group.name, group.path.display()));
        }
        Process(command.spawn().unwrap())
    }

    /// Bytes that have left the first host, of UDP and of TCP.
    fn sent(&self) -> [u64; 2] {
        let output =
            self.command("a", None).args(["tc", "-s", "class", "show", "dev", "e0"]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        ["7765:100", "7765:101"].map(|class| sent_by(&printed, class))
    }

    /// Bytes that have come to the second one.
    fn arrived(&self) -> u64 {
        let work =
            self.command("b", None).args(["ip", "-j", "-s", "link", "show", "dev", "e0"]).output().unwrap();
        let links: serde_json::Value = serde_json::from_slice(&work.stdout).unwrap();
        links[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
    }

    /// Whether the agent of the first host has queues there.
    fn has_queues(&self) -> bool {
        let output = self.command("a", None).args(["tc", "class", "show", "dev", "e0"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("class htb 7765:101 ")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for host in ["a", "b"] {
            let _ = self.weir(host, "agent cleanup").output();
        }
        for node in ["a", "b", "c", "s"] {
            ip(&format!("netns del {}", self.space(node)));
        }
    }
}

/// The program that sends UDP.
#[test]
#[ignore = "a process of another test"]
fn source() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(UDP).unwrap();
    let (mut due, turn) = (Instant::now(), Duration::from_secs_f64(PACKET / SENT));
    loop {
        // What the interface has no room for is lost.
        let _ = socket.send(&[0; DATAGRAM]);
        // Who stood still does not make up for it.
        due = (due + turn).max(Instant::now() - Duration::from_millis(50));
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// The program that sends UDP in bursts.
#[test]
#[ignore = "a process of another test"]
fn bursts() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(UDP).unwrap();
    let mut due = Instant::now();
    loop {
        for _ in 0..BURST {
            let _ = socket.send(&[0; DATAGRAM]);
        }
        due = (due + EACH).max(Instant::now() - EACH);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Bytes in a second, of UDP that left and that arrived, and of TCP that left.
#[derive(Debug)]
struct FlowProgress {
    sent: Speed,
    arrived: Speed,
    others: Speed,
}

fn look(net: &Net) -> FlowProgress {
    let read = || {
        let mut sent = [0, 0];
        let first = Reading::of(|| {
            sent = net.sent();
            sent[0]
        });
        let second = Reading::of(|| sent[1]);
        (first, second, Reading::of(|| net.arrived()))
    };
    let before = read();
    thread::sleep(Duration::from_secs(2));
    let after = read();
    FlowProgress {
        sent: after.0.since(&before.0),
        arrived: after.2.since(&before.2),
        others: after.1.since(&before.1),
    }
}

/// Waits until what is seen is as it is to be.
fn comes(net: &Net, what: &str, is: impl Fn(&FlowProgress) -> bool) {
    wait_within(SOON, what, || {
        let seen = look(net);
        let mbit = |speed: Speed| (speed.least + speed.most) / 2.0 * 8e-6;
        let [sent, arrived, others] = [seen.sent, seen.arrived, seen.others].map(mbit);
        eprintln!("{what}: UDP sends {sent:.1} Mbit/s, of which {arrived:.1} arrive, and TCP {others:.1}");
        is(&seen)
    });
}

/// Half of the first link, and the rest for who has the other.
fn is_free(seen: &FlowProgress) -> bool {
    seen.sent.is_within(0.42 * FIRST, 0.58 * FIRST) && seen.others.is_within(0.42 * FIRST, 0.58 * FIRST)
}

/// Algorithm 1: between 1.1 and 1.2 times as much as arrives, and TCP has all the rest.
fn is_throttled(seen: &FlowProgress) -> bool {
    let (sent, arrived) = (seen.sent, seen.arrived);
    seen.others.least > 0.68 * FIRST
        && sent.most > 1.05 * arrived.least
        && sent.least < 1.25 * arrived.most
        && arrived.least > 0.85 * SECOND
}

/// The network with certificates, if this machine can have it.
fn up(test: &str, udp: &Group) -> Option<Net> {
    let Some(net) = Net::up(test) else {
        eprintln!("{test} skips, since this machine makes no namespaces");
        return None;
    };
    let mut traffic = net.weir("a", "agent traffic --interface nowhere --application");
    let said = traffic.arg(format!("x={}", udp.path.display())).output().unwrap().stderr;
    if String::from_utf8_lossy(&said).contains("built without") {
        eprintln!("{test} skips, since the programs were not built");
        return None;
    }
    let authority = Authority::new();
    authority.server_at(&net.place.path("."), &["10.8.1.1", "127.0.0.1"]);
    for (name, role) in [("a", "agent"), ("b", "agent"), ("c", "agent"), ("ann", "operator")] {
        let pair = authority.signed(&[&format!("weir://{role}/{name}")]);
        net.place.write(&format!("{name}.pem"), &pair.certificate);
        net.place.write(&format!("{name}.key"), &pair.key);
    }
    Some(net)
}

#[test]
fn hosts_send_at_most_slightly_more_than_arrives() {
    let test = "throttle";
    let groups = ["udp", "tcp", "sink"].map(|name| Group::new(&format!("throttle-{name}")));
    let [udp, tcp, sink] = &groups;
    let Some(net) = up(test, udp) else { return };
    let mut serving = net.serve(false);
    let mut sender = net.agent((0, "a"), &[(udp, 1), (tcp, 2)]);
    let mut receiver = net.agent((1, "b"), &[(sink, 1)]);
    wait_within(SOON, "queues", || net.has_queues());
    let _taken = net.inside("b", || UdpSocket::bind(UDP).unwrap());
    let listener = net.inside("c", || TcpListener::bind(TCP).unwrap());
    let arrived: Arc<AtomicU64> = counted(move || listener.accept().unwrap().0);
    let _source = net.run(udp, "throttle::source");
    let mut command = net.command("a", Some(tcp));
    command.args(["bash", "-c", &format!("exec cat /dev/zero > /dev/tcp/{}", TCP.replace(':', "/"))]);
    let _other = Process(command.spawn().unwrap());
    wait_within(SOON, "TCP", || arrived.load(Ordering::Relaxed) > 0);

    // Most of what UDP has of the first link does not get further.
    comes(&net, "without throttling", |seen| is_free(seen) && seen.arrived.most < 1.05 * SECOND);
    serving.kill();
    serving = net.serve(true);
    comes(&net, "with throttling", is_throttled);

    // Nobody measures, and the limit ends; it comes again with who measures.
    receiver.kill();
    comes(&net, "without the receiver's agent", is_free);
    receiver = net.agent((1, "b"), &[(sink, 1)]);
    comes(&net, "with another", is_throttled);

    // Nobody passes measures on.
    serving.kill();
    comes(&net, "without a coordinator", is_free);
    serving = net.serve(true);
    comes(&net, "with another coordinator", is_throttled);

    // The limits of a sender's agent end without it.
    sender.kill();
    comes(&net, "without the sender's agent", is_free);
    sender = net.agent((0, "a"), &[(udp, 1), (tcp, 2)]);
    comes(&net, "with another agent of the sender", is_throttled);

    // Where it is not wanted any more, it ends.
    serving.kill();
    let serving = net.serve(false);
    comes(&net, "once it is not wanted", is_free);
    drop((sender, receiver, serving));
}

#[test]
fn what_comes_in_bursts_arrives() {
    let test = "bursts";
    let groups = ["udp", "sink"].map(|name| Group::new(&format!("bursts-{name}")));
    let [udp, sink] = &groups;
    let Some(net) = up(test, udp) else { return };
    let _serving = net.serve(true);
    let _sender = net.agent((0, "a"), &[(udp, 1)]);
    let _receiver = net.agent((1, "b"), &[(sink, 1)]);
    let _taken = net.inside("b", || UdpSocket::bind(UDP).unwrap());
    // There is throttling, and the limit of who came before is over.
    let mut source = net.run(udp, "throttle::source");
    let came = || Reading::of(|| net.arrived());
    let share = |whole: f64| {
        let before = came();
        thread::sleep(Duration::from_secs(2));
        let share = came().since(&before).of(whole);
        eprintln!("{test}: {share:.3?} of what is sent");
        share
    };
    let _ = share(SENT);
    source.kill();
    let _source = net.run(udp, "throttle::bursts");
    let sent = f64::from(BURST) * PACKET / EACH.as_secs_f64();
    wait_within(SOON, test, || share(sent).is_within(0.85, 1.1));
}

#[test]
fn who_cannot_throttle_says_so_once() {
    let test = "deaf";
    let group = Group::new(test);
    let Some(net) = up(test, &group) else { return };
    let run = |said: &str| {
        let mut command = net.weir(
            "c",
            "agent run --host 2 --rate 100Mbit --interface e0 --coordinator 10.8.1.1:7700 --socket local_socket-c --certificate c.pem \
             --key c.key --authority authority.pem",
        );
        let file = File::create(net.place.path(said)).unwrap();
        Process(command.stderr(file).spawn().unwrap())
    };
    let count = |said: &str, what: &str| net.place.read(said).matches(what).count();
    let (there, deaf) = ("has a coordinator", "nothing is measured or limited here");
    let mut serving = net.serve(false);
    let _agent = run("said");
    wait_within(SOON, "a coordinator", || count("said", there) == 1);
    serving.kill();
    for times in 2..4 {
        let mut serving = net.serve(true);
        wait_within(SOON, "the next coordinator", || count("said", there) == times);
        wait_within(SOON, "what is not there", || count("said", deaf) == 1);
        serving.kill();
    }
    assert_eq!(count("said", deaf), 1);
}
