//! `weir serve`, `weir agent run` and unmodified programs in cgroups: registered applications get the shares
//! that the coordinator computes.
//! The tests skip without the privileges or the BPF programs.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::campaign::campaign;
use crate::common::{Place, wait_within};
use crate::group::Group;
use crate::pair::{Pair, Process};

/// The capacity of the host's link, in bits per second.
const LINK: u64 = 40_000_000;

/// Host `a` runs the coordinator and the agent; programs send to `b`.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n";

/// Slowdown models 1 + c (1 - b)^2. The shares that minimise the sum of two slowdowns have the ratio of their
/// c.
fn table(light: f64, heavy: f64) -> String {
    let model = |name: &str, c: f64| {
        format!("[[application]]\nname = \"{name}\"\ncoefficients = [{}, {}, {c}]\n", 1.0 + c, -2.0 * c)
    };
    format!("version = 1\n{}{}", model("light", light), model("heavy", heavy))
}

/// The rates of the queues' classes, as `tc` prints them.
fn rates(pair: &Pair) -> Vec<String> {
    let text = pair.tc("class");
    let queue = |line: &str| {
        let (class, rest) = line.strip_prefix("class htb 7765:10")?.split_once(' ')?;
        Some(format!("{class} {}", rest.split_once("rate ")?.1.split(' ').next()?))
    };
    let mut rates: Vec<String> = text.lines().filter_map(queue).collect();
    rates.sort();
    rates
}

/// The number of BPF programs and maps that are pinned for a namespace.
fn pinned(namespace: &str) -> usize {
    let number = fs::metadata(format!("/run/netns/{namespace}")).unwrap().ino();
    let folders = fs::read_dir("/sys/fs/bpf/weir").into_iter().flatten().map(|entry| entry.unwrap().path());
    let own = format!("{number}-");
    let own = folders.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&own));
    own.map(|path| fs::read_dir(path).unwrap().count()).sum()
}

fn agent(pair: &Pair, place: &Path, groups: &[&Group]) -> Process {
    pair.agent(&place.join("local_socket"), groups.iter().map(|group| (&*group.name, &*group.path)))
}

/// Asserts that an agent with `--dry-run` prints its commands and changes no queue.
fn would_have_queues(pair: &Pair, place: &Place) {
    let mut command = pair.host(env!("CARGO_BIN_EXE_weir"));
    command.args([
        "agent",
        "run",
        "--host",
        "0",
        "--rate",
        &format!("{LINK}bit"),
        "--interface",
        "e0",
        "--dry-run",
    ]);
    let before = [pair.tc("qdisc"), pair.tc("class")];
    let running = Process(command.stdout(File::create(place.path("would")).unwrap()).spawn().unwrap());
    wait_within(Duration::from_secs(20), "commands", || place.read("would").contains("tc class add dev e0"));
    drop(running);
    assert_eq!([pair.tc("qdisc"), pair.tc("class")], before);
}

/// The first application's share of the payload that arrives within 1.5 s.
fn share(arrived: &[Arc<AtomicU64>; 2]) -> f64 {
    let read = || arrived.each_ref().map(|count| count.load(Ordering::Relaxed));
    let before = read();
    thread::sleep(Duration::from_millis(1500));
    let after = read();
    let [one, other] = [0, 1].map(|at| (after[at] - before[at]) as f64);
    eprintln!(
        "{:.1} Mbit/s of payload, the first has {:.3}",
        (one + other) * 8e-6 / 1.5,
        one / (one + other)
    );
    one / (one + other)
}

#[test]
fn registered_applications_keep_their_shares_without_an_agent() {
    let test = "host";
    let Some(pair) = Pair::up() else {
        eprintln!("{test} skips, since this machine makes no namespaces");
        return;
    };
    let groups = [Group::new("light"), Group::new("heavy")];
    let both = groups.each_ref();
    let place = Place::new();
    place.write("serve.toml", CONFIG);
    if !pair.finds(test, &both[0].path) {
        return;
    }
    let mut serving = pair.serve(&place.path("serve.toml"));
    pair.put("/v1/sensitivity", &table(1.0, 3.0));
    for (group, model) in both.iter().zip(["light", "heavy"]) {
        let name = &group.name;
        pair.put(&format!("/v1/applications/{name}"), &format!("{{\"model\": \"{model}\"}}"));
    }
    // A program registers the first application's connection; the agent observes the second's.
    let name = &both[0].name;
    let connection = format!("{{\"application\": \"{name}\", \"from\": \"a\", \"to\": \"b\"}}");
    pair.put("/v1/connections/first", &connection);
    would_have_queues(&pair, &place);
    let mut first = agent(&pair, &place.path(""), &both);
    // A queue for each of the two applications, and six unused queues.
    wait_within(Duration::from_secs(20), "queues", || rates(&pair).len() == 8);
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
    wait_within(Duration::from_secs(20), "what was found", || {
        pair.ask("GET", "/v1/observed", "").contains(&heavy)
    });
    // Waits until queued packets have drained and the measurement is accurate.
    let comes_to = |expected: f64| {
        wait_within(Duration::from_secs(20), &format!("a share of {expected}"), || {
            (share(&arrived) - expected).abs() < 0.03
        });
    };
    comes_to(0.25);
    // With another sensitivity table, the next packets have other weights.
    pair.put("/v1/sensitivity", &table(3.0, 1.0));
    comes_to(0.75);
    // Without an agent, queues and weights stay.
    first.kill();
    let (queues, before) = (pair.tc("qdisc"), rates(&pair));
    pair.put("/v1/sensitivity", &table(1.0, 3.0));
    let found = share(&arrived);
    assert!((found - 0.75).abs() < 0.03, "{found}");
    assert_eq!((pair.tc("qdisc"), rates(&pair)), (queues.clone(), before.clone()));
    // The next agent applies the weights that the coordinator computed meanwhile, and keeps the queues.
    let mut second = agent(&pair, &place.path(""), &both);
    wait_within(Duration::from_secs(20), "other rates", || rates(&pair) != before);
    assert_eq!(pair.tc("qdisc"), queues);
    comes_to(0.25);
    serving.kill();
    // Weights without a service's guarantee end 30 s after the last order. Tests of leases cover this without
    // waiting.
    if campaign(false, true) {
        wait_within(Duration::from_secs(60), "one queue", || rates(&pair).len() == 1);
        assert_eq!(pair.tc("qdisc").matches("parent 7765:1").count(), 2, "{}", pair.tc("qdisc"));
    }
    second.end();
    assert!(!pair.tc("qdisc").contains("7765:"), "{}", pair.tc("qdisc"));
    let left = pair.host(env!("CARGO_BIN_EXE_weir")).args(["agent", "cleanup"]).output().unwrap();
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "nothing to remove\n");
}

/// The agent is killed at varying times. The next agent takes over its queues, and `weir agent cleanup`
/// removes all of them.
#[test]
fn cleanup_removes_everything_after_repeatedly_killed_agents() {
    let test = "kills";
    let Some(pair) = Pair::up() else {
        eprintln!("{test} skips, since this machine makes no namespaces");
        return;
    };
    let groups = [Group::new("kills-light"), Group::new("kills-heavy")];
    let place = Place::new();
    place.write("serve.toml", &CONFIG.replace("policy =", "queues = \"services\"\npolicy ="));
    if !pair.finds(test, &groups[0].path) {
        return;
    }
    let _serving = pair.serve(&place.path("serve.toml"));
    let pinned = || pinned(&pair.name("a"));
    let (before, files) = (pair.tc("qdisc"), pinned());
    let both = groups.each_ref();
    let mut running = agent(&pair, &place.path(""), &both);
    wait_within(Duration::from_secs(20), "queues", || rates(&pair).len() == 1);
    running.kill();
    let (made, pins) = (pair.tc("qdisc"), pinned());
    for cycle in 0..campaign(40, 200u64) {
        let mut running = agent(&pair, &place.path(""), &both);
        // From before the agent reads anything to after its first orders.
        thread::sleep(Duration::from_micros(cycle * 7919 % 90_000));
        running.kill();
    }
    assert_eq!((pair.tc("qdisc"), rates(&pair).len(), pinned()), (made, 1, pins));
    let cleanup = || {
        let done = pair.host(env!("CARGO_BIN_EXE_weir")).args(["agent", "cleanup"]).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let done = cleanup();
    assert!(done.contains("e0: restored") && done.contains("BPF programs: removed"), "{done}");
    assert_eq!((pair.tc("qdisc"), pinned()), (before, files));
    assert_eq!(cleanup(), "nothing to remove\n");
}
