//! Rate throttling between agents: a host sends slightly more UDP than arrives, and the rest of its link is
//! free for other traffic.
//! Processes run in namespaces, with certificates. The tests skip without the privileges or the BPF programs.
//!
//! Host `a` sends UDP to `b` and TCP to `c`. The link of `a` has 100 Mbit/s, the link of `b` 20 Mbit/s. The
//! switch between them runs the coordinator.

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

/// The capacities of the links of `a` and of `b`, in bytes per second.
const FIRST: f64 = 12.5e6;
const SECOND: f64 = 2.5e6;

/// The UDP source: bytes of a datagram, bytes of its packet, and bytes per second.
const DATAGRAM: usize = 1400;
const PACKET: f64 = 1442.0;
const SENT: f64 = 10e6;

/// The bursty UDP source: packets of a burst, and time between bursts. The mean rate is below the capacity of
/// both links.
const BURST: u32 = 20;
const EACH: Duration = Duration::from_millis(40);

/// The addresses that receive UDP and TCP.
const UDP: &str = "10.8.2.2:9000";
const TCP: &str = "10.8.3.2:9000";

/// The timeout of each step.
const SOON: Duration = Duration::from_secs(60);

/// A lease is longer than a busy machine delays a report. Each service has half of the first link while both
/// send.
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

/// A process, which is killed when dropped.
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

/// A switch and three hosts, which are deleted when dropped.
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
        // The queues of the agent of `a` limit the first link.
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

    /// A command in a node's namespace, and in a cgroup if given. Unlike under `ip netns exec`, the command
    /// sees the cgroups.
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

    /// Runs an ignored test of this binary as a process in a cgroup of host `a`.
    fn run(&self, group: &Group, test: &str) -> Process {
        let mut command = self.command("a", Some(group));
        command.arg(env::current_exe().unwrap()).args(["--exact", test, "--ignored", "--nocapture"]);
        Process(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// Starts the coordinator, with or without throttling.
    fn serve(&self, throttling: bool) -> Process {
        self.place.write("serve.toml", &format!("throttling = {throttling}\n{CONFIG}"));
        let mut command = self.weir("s", "serve --config serve.toml");
        Process(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Starts the agent of a host, with applications of given classes.
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

    /// Bytes that host `a` has sent, of UDP and of TCP.
    fn sent(&self) -> [u64; 2] {
        let output =
            self.command("a", None).args(["tc", "-s", "class", "show", "dev", "e0"]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        ["7765:100", "7765:101"].map(|class| sent_by(&printed, class))
    }

    /// Bytes that host `b` has received.
    fn arrived(&self) -> u64 {
        let work =
            self.command("b", None).args(["ip", "-j", "-s", "link", "show", "dev", "e0"]).output().unwrap();
        let links: serde_json::Value = serde_json::from_slice(&work.stdout).unwrap();
        links[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
    }

    /// Whether the agent of host `a` has configured queues.
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

/// The process that sends UDP at a constant rate.
#[test]
#[ignore = "a process of another test"]
fn source() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(UDP).unwrap();
    let (mut due, turn) = (Instant::now(), Duration::from_secs_f64(PACKET / SENT));
    loop {
        // The interface drops packets beyond its queue.
        let _ = socket.send(&[0; DATAGRAM]);
        // After a stall, the source makes up for at most 50 ms.
        due = (due + turn).max(Instant::now() - Duration::from_millis(50));
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// The process that sends UDP in bursts.
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

/// Bytes per second: UDP sent, UDP received, and TCP sent.
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

/// Measures until the measurement fulfils a condition.
fn comes(net: &Net, what: &str, is: impl Fn(&FlowProgress) -> bool) {
    wait_within(SOON, what, || {
        let seen = look(net);
        let mbit = |speed: Speed| (speed.least + speed.most) / 2.0 * 8e-6;
        let [sent, arrived, others] = [seen.sent, seen.arrived, seen.others].map(mbit);
        eprintln!("{what}: UDP sends {sent:.1} Mbit/s, of which {arrived:.1} arrive, and TCP {others:.1}");
        is(&seen)
    });
}

/// Without throttling, UDP and TCP each have half of the first link.
fn is_free(seen: &FlowProgress) -> bool {
    seen.sent.is_within(0.42 * FIRST, 0.58 * FIRST) && seen.others.is_within(0.42 * FIRST, 0.58 * FIRST)
}

/// Algorithm 1: UDP sends 1.1 to 1.2 times the rate that arrives, and TCP uses the rest of the link.
fn is_throttled(seen: &FlowProgress) -> bool {
    let (sent, arrived) = (seen.sent, seen.arrived);
    seen.others.least > 0.68 * FIRST
        && sent.most > 1.05 * arrived.least
        && sent.least < 1.25 * arrived.most
        && arrived.least > 0.85 * SECOND
}

/// The network with certificates; none if this machine cannot run the test.
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

    // UDP uses half of the first link, and the second link drops most of it.
    comes(&net, "without throttling", |seen| is_free(seen) && seen.arrived.most < 1.05 * SECOND);
    serving.kill();
    serving = net.serve(true);
    comes(&net, "with throttling", is_throttled);

    // Without the receiver's agent there are no measurements, and the limit ends. The next agent measures
    // again.
    receiver.kill();
    comes(&net, "without the receiver's agent", is_free);
    receiver = net.agent((1, "b"), &[(sink, 1)]);
    comes(&net, "with another", is_throttled);

    // Without a coordinator, no measurements reach the sender.
    serving.kill();
    comes(&net, "without a coordinator", is_free);
    serving = net.serve(true);
    comes(&net, "with another coordinator", is_throttled);

    // The limits end when the sender's agent is killed.
    sender.kill();
    comes(&net, "without the sender's agent", is_free);
    sender = net.agent((0, "a"), &[(udp, 1), (tcp, 2)]);
    comes(&net, "with another agent of the sender", is_throttled);

    // The limit ends when throttling is disabled in the configuration.
    serving.kill();
    let serving = net.serve(false);
    comes(&net, "once it is not wanted", is_free);
    drop((sender, receiver, serving));
}

#[test]
fn throttling_passes_udp_bursts_below_link_capacity() {
    let test = "bursts";
    let groups = ["udp", "sink"].map(|name| Group::new(&format!("bursts-{name}")));
    let [udp, sink] = &groups;
    let Some(net) = up(test, udp) else { return };
    let _serving = net.serve(true);
    let _sender = net.agent((0, "a"), &[(udp, 1)]);
    let _receiver = net.agent((1, "b"), &[(sink, 1)]);
    let _taken = net.inside("b", || UdpSocket::bind(UDP).unwrap());
    // Throttling limits the constant source first; its limit ends before the bursty source starts.
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
fn agent_without_throttling_support_logs_it_once() {
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
