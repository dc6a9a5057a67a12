//! Tests `weir serve` and `weir agent run` with unmodified programs in cgroups: registered applications get the
//! shares that the coordinator computes.
//! The tests skip without the privileges or the BPF programs.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::campaign::{seeds, test_scale};
use crate::common::{TestDir, wait_within};
use crate::group::TestCgroup;
use crate::host_pair::{HostPair, Process, start_sender};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The capacity of the host's link, in bits per second.
const LINK: u64 = 40_000_000;

/// Host `a` runs the coordinator and the agent; programs send to `b`.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n";

/// Slowdown models 1 + c (1 - b)^2. The shares that minimize the sum of two slowdowns have the ratio of their
/// c.
fn sensitivity_table(light: f64, heavy: f64) -> String {
    let model = |name: &str, c: f64| {
        format!("[[application]]\nname = \"{name}\"\ncoefficients = [{}, {}, {c}]\n", 1.0 + c, -2.0 * c)
    };
    format!("version = 1\n{}{}", model("light", light), model("heavy", heavy))
}

/// The rates of the queues' classes, as `tc` prints them.
fn class_rates(hosts: &HostPair) -> Vec<String> {
    let text = hosts.tc("class");
    let queue = |line: &str| {
        let (class, rest) = line.strip_prefix("class htb 7765:10")?.split_once(' ')?;
        Some(format!("{class} {}", rest.split_once("rate ")?.1.split(' ').next()?))
    };
    let mut rates: Vec<String> = text.lines().filter_map(queue).collect();
    rates.sort();
    rates
}

/// The number of BPF programs and maps that are pinned for a namespace.
fn count_pinned_objects(namespace: &str) -> usize {
    let number = fs::metadata(format!("/run/netns/{namespace}")).unwrap().ino();
    let folders = fs::read_dir("/sys/fs/bpf/weir").into_iter().flatten().map(|entry| entry.unwrap().path());
    let own_prefix = format!("{number}-");
    let own_folders =
        folders.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&own_prefix));
    own_folders.map(|path| fs::read_dir(path).unwrap().count()).sum()
}

fn start_agent(hosts: &HostPair, dir: &Path, groups: &[&TestCgroup]) -> Process {
    hosts.start_agent(&dir.join("local_socket"), groups.iter().map(|group| (&*group.name, &*group.path)))
}

/// Asserts that an agent with `--dry-run` prints its commands and changes no queue.
fn assert_dry_run_changes_nothing(hosts: &HostPair, dir: &TestDir) {
    let mut command = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
    command.args([
        "agent",
        "run",
        "--name",
        "a",
        "--rate",
        &format!("{LINK}bit"),
        "--interface",
        "e0",
        "--dry-run",
    ]);
    let before = [hosts.tc("qdisc"), hosts.tc("class")];
    let dry_run = Process(command.stdout(File::create(dir.path("would")).unwrap()).spawn().unwrap());
    wait_within(Duration::from_secs(20), "commands", || dir.read("would").contains("tc class add dev e0"));
    drop(dry_run);
    assert_eq!([hosts.tc("qdisc"), hosts.tc("class")], before);
}

/// The first application's share of the payload that arrives within 1.5 s.
fn first_share(received: &[Arc<AtomicU64>; 2]) -> f64 {
    let read = || received.each_ref().map(|count| count.load(Ordering::Relaxed));
    let before = read();
    thread::sleep(Duration::from_millis(1500));
    let after = read();
    let [first, second] = [0, 1].map(|index| (after[index] - before[index]) as f64);
    eprintln!(
        "{:.1} Mbit/s of payload, of which the first application has {:.3}",
        (first + second) * 8e-6 / 1.5,
        first / (first + second)
    );
    first / (first + second)
}

#[test]
fn registered_applications_keep_their_shares_without_an_agent() {
    let test = "host";
    let Some(hosts) = HostPair::up(test) else { return };
    let groups = [TestCgroup::new("light"), TestCgroup::new("heavy")];
    let group_refs = groups.each_ref();
    let dir = TestDir::new();
    dir.write("serve.toml", CONFIG);
    if !hosts.has_bpf_programs(test, &group_refs[0].path) {
        return;
    }
    let mut coordinator_process = hosts.start_coordinator(&dir.path("serve.toml"));
    hosts.put("/v1/sensitivity", &sensitivity_table(1.0, 3.0));
    for (group, model) in group_refs.iter().zip(["light", "heavy"]) {
        let name = &group.name;
        hosts.put(&format!("/v1/applications/{name}"), &format!("{{\"model\": \"{model}\"}}"));
    }
    // A program registers the first application's connection; the agent observes the second's.
    let name = &group_refs[0].name;
    let connection = format!("{{\"application\": \"{name}\", \"from\": \"a\", \"to\": \"b\"}}");
    hosts.put("/v1/connections/first", &connection);
    assert_dry_run_changes_nothing(&hosts, &dir);
    let mut first = start_agent(&hosts, &dir.path(""), &group_refs);
    // A queue for each of the two applications, and six unused queues.
    wait_within(Duration::from_secs(20), "queues", || class_rates(&hosts).len() == 8);
    let sinks = [hosts.start_sink(), hosts.start_sink()];
    let _sending = [0, 1].map(|index| start_sender(&hosts.network, group_refs[index], sinks[index].0));
    let received = sinks.map(|(_, arrived)| arrived);
    let expected_connection = format!(
        "{{\"host\":\"a\",\"application\":\"{}\",\"peer\":\"10.9.0.2\",\"connections\":1,",
        group_refs[1].name
    );
    wait_within(Duration::from_secs(20), "the observed connection", || {
        hosts.request("GET", "/v1/observed", "").contains(&expected_connection)
    });
    // Waits until queued packets have drained and the measurement is accurate.
    let wait_for_share = |expected: f64| {
        wait_within(Duration::from_secs(20), &format!("a share of {expected}"), || {
            (first_share(&received) - expected).abs() < 0.03
        });
    };
    wait_for_share(0.25);
    // With another sensitivity table, the next packets have other weights.
    hosts.put("/v1/sensitivity", &sensitivity_table(3.0, 1.0));
    wait_for_share(0.75);
    // Without an agent, queues and weights stay.
    first.kill();
    let (queues, before) = (hosts.tc("qdisc"), class_rates(&hosts));
    hosts.put("/v1/sensitivity", &sensitivity_table(1.0, 3.0));
    wait_for_share(0.75);
    assert_eq!((hosts.tc("qdisc"), class_rates(&hosts)), (queues.clone(), before.clone()));
    // The next agent applies the weights that the coordinator computed meanwhile, and keeps the queues.
    let mut second = start_agent(&hosts, &dir.path(""), &group_refs);
    wait_within(Duration::from_secs(20), "the class rates of the next order", || {
        class_rates(&hosts) != before
    });
    assert_eq!(hosts.tc("qdisc"), queues);
    wait_for_share(0.25);
    coordinator_process.kill();
    // Weights without a service's guarantee end 30 s after the last order. Tests of leases cover this without
    // waiting.
    if test_scale(false, true) {
        wait_within(Duration::from_secs(60), "one queue", || class_rates(&hosts).len() == 1);
        // The coordinator's streams and other packets have a queue each, too.
        assert_eq!(hosts.tc("qdisc").matches("parent 7765:1").count(), 3, "{}", hosts.tc("qdisc"));
    }
    second.interrupt();
    assert!(!hosts.tc("qdisc").contains("7765:"), "{}", hosts.tc("qdisc"));
    let cleanup =
        hosts.command_on_host(env!("CARGO_BIN_EXE_weir")).args(["agent", "cleanup"]).output().unwrap();
    assert_eq!(String::from_utf8(cleanup.stdout).unwrap(), "nothing to remove\n");
}

/// The agent is killed at varying times. The next agent takes over its queues, and `weir agent cleanup`
/// removes all of them.
#[test]
fn cleanup_removes_everything_after_repeatedly_killed_agents() {
    let test = "kills";
    let Some(hosts) = HostPair::up(test) else { return };
    let groups = [TestCgroup::new("kills-light"), TestCgroup::new("kills-heavy")];
    let dir = TestDir::new();
    dir.write("serve.toml", &CONFIG.replace("policy =", "queues = \"services\"\npolicy ="));
    if !hosts.has_bpf_programs(test, &groups[0].path) {
        return;
    }
    let _coordinator_process = hosts.start_coordinator(&dir.path("serve.toml"));
    let pinned_objects = || count_pinned_objects(&hosts.network.namespace("a"));
    let (before, files) = (hosts.tc("qdisc"), pinned_objects());
    let group_refs = groups.each_ref();
    let mut agent_process = start_agent(&hosts, &dir.path(""), &group_refs);
    wait_within(Duration::from_secs(20), "queues", || class_rates(&hosts).len() == 1);
    agent_process.kill();
    let (queues_after_kill, pinned_after_kill) = (hosts.tc("qdisc"), pinned_objects());
    for seed in seeds(40, 200) {
        let mut agent_process = start_agent(&hosts, &dir.path(""), &group_refs);
        // From before the agent reads anything to after its first orders.
        let delay = ChaCha8Rng::seed_from_u64(seed).next_u32() % 90_000;
        thread::sleep(Duration::from_micros(u64::from(delay)));
        agent_process.kill();
    }
    assert_eq!(
        (hosts.tc("qdisc"), class_rates(&hosts).len(), pinned_objects()),
        (queues_after_kill, 1, pinned_after_kill)
    );
    let cleanup = || {
        let output =
            hosts.command_on_host(env!("CARGO_BIN_EXE_weir")).args(["agent", "cleanup"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let cleanup_output = cleanup();
    assert!(
        cleanup_output.contains("e0: restored") && cleanup_output.contains("BPF programs: removed"),
        "{cleanup_output}"
    );
    assert_eq!((hosts.tc("qdisc"), pinned_objects()), (before, files));
    assert_eq!(cleanup(), "nothing to remove\n");
}
