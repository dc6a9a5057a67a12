//! `weir serve` and `weir agent run` as processes, and unmodified programs in cgroups: applications that are registered have the shares
//! that the coordinator gives them. Without the privileges or the programs in the kernel for that, the test says so and skips.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../agent/tests/group/mod.rs"]
mod group;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{Place, counted, wait_within};
use group::Group;
use nix::sched::{CloneFlags, setns};

/// What the host's link carries, in bits per second.
const LINK: u64 = 40_000_000;

/// The host with the coordinator and the agent is `a`; programs send to `b`.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n";

/// Slowdowns 1 + c (1 - b)^2: of two applications the shares that minimise their sum are as c is to c.
fn table(light: f64, heavy: f64) -> String {
    let model = |name: &str, c: f64| {
        format!("[[application]]\nname = \"{name}\"\ncoefficients = [{}, {}, {c}]\n", 1.0 + c, -2.0 * c)
    };
    format!("version = 1\n{}{}", model("light", light), model("heavy", heavy))
}

/// Two namespaces and a cable between them, gone in the end with whatever is in them.
struct Pair(String);

fn ip(line: &str) -> bool {
    Command::new("ip")
        .args(line.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Pair {
    fn up() -> Option<Pair> {
        let pair = Pair(format!("weirhost{}", std::process::id()));
        let [a, b] = ["a", "b"].map(|end| pair.name(end));
        let cable = format!("link add e0 netns {a} type veth peer name e0 netns {b}");
        if ![format!("netns add {a}"), format!("netns add {b}"), cable].iter().all(|line| ip(line)) {
            return None;
        }
        for (name, address) in [(a, 1), (b, 2)] {
            for line in ["link set lo up", &format!("addr add 10.9.0.{address}/24 dev e0"), "link set e0 up"]
            {
                assert!(ip(&format!("-n {name} {line}")), "{line}");
            }
        }
        Some(pair)
    }

    fn name(&self, end: &str) -> String {
        format!("{}{end}", self.0)
    }

    /// A command of the host's, which sees the cgroups, as `ip netns exec` would not have it.
    fn host(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name("a"))).arg(program).stdin(Stdio::null());
        command
    }

    fn inside<T: Send>(&self, end: &str, work: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.name(end))).unwrap();
        let work = move || {
            setns(space, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    /// Asks the coordinator for something, which has to be done.
    fn put(&self, path: &str, body: &str) {
        self.ask("PUT", path, body);
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let answer = self.inside("a", || {
            let mut socket = TcpStream::connect("127.0.0.1:7701").unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            socket.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            answer
        });
        assert!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
        answer
    }

    fn tc(&self, what: &str) -> String {
        let output = self.host("tc").args([what, "show", "dev", "e0"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The rates of the queues' classes, in bits per second as they are printed.
    fn rates(&self) -> Vec<String> {
        let text = self.tc("class");
        let queue = |line: &str| {
            let (class, rest) = line.strip_prefix("class htb 7765:10")?.split_once(' ')?;
            Some(format!("{class} {}", rest.split_once("rate ")?.1.split(' ').next()?))
        };
        let mut rates: Vec<String> = text.lines().filter_map(queue).collect();
        rates.sort();
        rates
    }

    /// Where everything that comes is counted.
    fn sink(&self) -> (SocketAddr, Arc<AtomicU64>) {
        let listener = self.inside("b", || TcpListener::bind("10.9.0.2:0").unwrap());
        (listener.local_addr().unwrap(), counted(move || listener.accept().unwrap().0))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.host(env!("CARGO_BIN_EXE_weir")).args(["agent", "cleanup"]).output();
        for end in ["a", "b"] {
            ip(&format!("netns del {}", self.name(end)));
        }
    }
}

/// A process that is killed in the end.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// SIGTERM, by the system's own program.
    fn end(&mut self) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn agent(pair: &Pair, place: &Path, groups: &[&Group]) -> Process {
    let mut command = pair.host(env!("CARGO_BIN_EXE_weir"));
    command.args(["agent", "run", "--host", "0", "--rate", &format!("{LINK}bit"), "--interface", "e0"]);
    command.arg("--socket").arg(place.join("door"));
    for group in groups {
        command.arg("--application").arg(format!("{}={}", group.name, group.path.display()));
    }
    Process(command.spawn().unwrap())
}

/// The first one's part of what arrives in the next second and a half.
fn share(arrived: &[Arc<AtomicU64>; 2]) -> f64 {
    let read = || arrived.each_ref().map(|count| count.load(Ordering::Relaxed));
    let before = read();
    thread::sleep(Duration::from_millis(1500));
    let [one, other] = [0, 1].map(|at| (read()[at] - before[at]) as f64);
    eprintln!(
        "{:.1} Mbit/s of payload, the first has {:.3}",
        (one + other) * 8e-6 / 1.5,
        one / (one + other)
    );
    one / (one + other)
}

#[test]
fn registered_applications_have_their_shares_and_keep_them_without_an_agent() {
    let test = "host";
    let Some(pair) = Pair::up() else {
        eprintln!("{test} skips, since this machine makes no namespaces");
        return;
    };
    let groups = [Group::new("light"), Group::new("heavy")];
    let both = groups.each_ref();
    let place = Place::new();
    place.write("serve.toml", CONFIG);
    let mut traffic = pair.host(env!("CARGO_BIN_EXE_weir"));
    traffic.args(["agent", "traffic", "--interface", "nowhere", "--application"]);
    let said = traffic.arg(format!("x={}", both[0].path.display())).output().unwrap().stderr;
    if String::from_utf8_lossy(&said).contains("built without") {
        eprintln!("{test} skips, since the programs were not built");
        return;
    }
    let mut serve = pair.host(env!("CARGO_BIN_EXE_weir"));
    serve.args(["serve", "--config"]).arg(place.path("serve.toml")).stderr(Stdio::null());
    let _serving = Process(serve.spawn().unwrap());
    wait_within(Duration::from_secs(20), "the coordinator", || {
        pair.inside("a", || TcpStream::connect("127.0.0.1:7701").is_ok())
    });
    pair.put("/v1/sensitivity", &table(1.0, 3.0));
    for (group, model) in both.iter().zip(["light", "heavy"]) {
        let name = &group.name;
        pair.put(&format!("/v1/applications/{name}"), &format!("{{\"model\": \"{model}\"}}"));
    }
    // Of the other the agent finds it.
    let name = &both[0].name;
    let connection = format!("{{\"application\": \"{name}\", \"from\": \"a\", \"to\": \"b\"}}");
    pair.put("/v1/connections/first", &connection);
    let mut first = agent(&pair, &place.path(""), &both);
    // One for each, and six that nobody is in.
    wait_within(Duration::from_secs(20), "queues", || pair.rates().len() == 8);
    let sinks = [pair.sink(), pair.sink()];
    let _sending = [0, 1].map(|at| {
        let mut command = both[at].command("nsenter");
        command.arg(format!("--net=/run/netns/{}", pair.name("a"))).args(["bash", "-c"]);
        command.arg(format!("exec cat /dev/zero > /dev/tcp/10.9.0.2/{}", sinks[at].0.port()));
        Process(command.spawn().unwrap())
    });
    let arrived = sinks.map(|(_, arrived)| arrived);
    let heavy = format!(
        "{{\"host\":\"a\",\"application\":\"{}\",\"peer\":\"10.9.0.2\",\"connections\":1,",
        both[1].name
    );
    wait_within(Duration::from_secs(5), "what was found", || {
        pair.ask("GET", "/v1/found", "").contains(&heavy)
    });
    thread::sleep(Duration::from_millis(500));
    let found = share(&arrived);
    assert!((found - 0.25).abs() < 0.03, "{found}");
    // Another table: the next packets have other weights.
    pair.put("/v1/sensitivity", &table(3.0, 1.0));
    thread::sleep(Duration::from_millis(500));
    let found = share(&arrived);
    assert!((found - 0.75).abs() < 0.03, "{found}");
    // Nobody is there, and all stays.
    first.kill();
    let (queues, rates) = (pair.tc("qdisc"), pair.rates());
    pair.put("/v1/sensitivity", &table(1.0, 3.0));
    let found = share(&arrived);
    assert!((found - 0.75).abs() < 0.03, "{found}");
    assert_eq!((pair.tc("qdisc"), pair.rates()), (queues.clone(), rates.clone()));
    // What was decided meanwhile is there at once; nothing is made anew.
    let mut second = agent(&pair, &place.path(""), &both);
    wait_within(Duration::from_secs(1), "other rates", || pair.rates() != rates);
    assert_eq!(pair.tc("qdisc"), queues);
    thread::sleep(Duration::from_millis(500));
    let found = share(&arrived);
    assert!((found - 0.25).abs() < 0.03, "{found}");
    second.end();
    assert!(!pair.tc("qdisc").contains("7765:"), "{}", pair.tc("qdisc"));
    let left = pair.host(env!("CARGO_BIN_EXE_weir")).args(["agent", "cleanup"]).output().unwrap();
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "nothing of Weir's was there\n");
}
