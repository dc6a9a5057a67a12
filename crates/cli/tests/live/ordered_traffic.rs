//! Tests that operators add applications of unmodified programs to a running agent. The test skips without the privileges or the BPF
//! programs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{TestDir, wait_within};
use crate::group::TestCgroup;
use crate::host_pair::{HostPair, Process, start_sender};

const START_TIMEOUT: Duration = Duration::from_secs(20);

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nqueues = \"services\"\n\
                      [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                      [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n[service.web]\nweight = 3\n[service.batch]\n";

const PORTS: &str = "--port 9 --port 11 --port 13 --port 15 --port 17";

fn ctl(hosts: &HostPair, line: &str) -> String {
    let mut command = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
    let output = command.arg("ctl").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "ctl {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The mark (DSCP) of packets of an application, from its level.
fn mark(hosts: &HostPair, application: &str) -> u8 {
    let list: Value = serde_json::from_str(&ctl(hosts, "applications --format json")).unwrap();
    let found = list.as_array().unwrap().iter().find(|known| known["id"] == application).unwrap();
    found["level"].as_u64().unwrap() as u8 + 1
}

/// The mark (DSCP) of a packet that an unmodified program in the cgroup sends; none if it does not arrive.
fn sent_mark(hosts: &HostPair, group: &TestCgroup) -> Option<u8> {
    hosts.sent_tos(group).map(|tos| tos >> 2)
}

/// Prints the time until a socket has a mark. The documented one is 0.5 s, but each check here starts processes.
fn wait_for_mark(hosts: &HostPair, group: &TestCgroup, expected: u8, event: &str) {
    let began = Instant::now();
    wait_within(START_TIMEOUT, &format!("mark {expected} after {event}"), || {
        sent_mark(hosts, group) == Some(expected)
    });
    eprintln!("mark {expected} {:.0} ms after {event}", began.elapsed().as_secs_f64() * 1e3);
}

/// The first sender's share of the payload that arrives within 1.5 s.
fn first_share(received: &[Arc<AtomicU64>; 2]) -> f64 {
    let read = || received.each_ref().map(|count| count.load(Ordering::Relaxed));
    let before = read();
    thread::sleep(Duration::from_millis(1500));
    let after = read();
    let [first, second] = [0, 1].map(|at| (after[at] - before[at]) as f64);
    first / (first + second)
}

#[test]
fn applications_are_added_to_a_running_agent_and_removed() {
    let test = "ordered";
    let Some(hosts) = HostPair::up(test) else { return };
    let (dir, web) = (TestDir::new(), TestCgroup::new("ordered-web"));
    if !hosts.has_bpf_programs(test, &web.path) {
        return;
    }
    dir.write("serve.toml", CONFIG);
    let mut coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let mut command = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
    command.args(["agent", "run", "--name", "a", "--rate", "40Mbit", "--interface", "e0", "--socket"]);
    command.arg(dir.path("local_socket")).stderr(File::create(dir.path("log")).unwrap());
    let mut agent = Process(command.spawn().unwrap());
    wait_within(START_TIMEOUT, "queues", || hosts.tc("class").contains("7765:100"));
    assert_eq!(sent_mark(&hosts, &web), Some(0));

    // By pattern, and by the path of a cgroup that does not exist yet.
    let prefix = web.name.strip_suffix("ordered-web").unwrap();
    ctl(&hosts, &format!("application register web --service web --cgroup {prefix}*-web --hosts a"));
    wait_for_mark(&hosts, &web, mark(&hosts, "web"), "the registration");
    ctl(&hosts, &format!("application register batch --service batch --cgroup {prefix}ordered-batch"));
    let batch = TestCgroup::new("ordered-batch");
    wait_for_mark(&hosts, &batch, mark(&hosts, "batch"), "the creation of the cgroup");
    assert_ne!(mark(&hosts, "web"), mark(&hosts, "batch"));

    // Unmodified programs share the link by the weights of their services, and their connections are observed.
    let sinks = [hosts.start_sink(), hosts.start_sink()];
    let senders = [(&web, sinks[0].0), (&batch, sinks[1].0)]
        .map(|(group, address)| start_sender(&hosts.network, group, address));
    let received = sinks.map(|(_, received)| received);
    wait_within(START_TIMEOUT, "a share of 0.75", || (first_share(&received) - 0.75).abs() < 0.03);
    wait_within(START_TIMEOUT, "observed connections", || {
        let list: Value = serde_json::from_str(&ctl(&hosts, "observed --format json")).unwrap();
        list.as_array().unwrap().iter().filter(|entry| entry["registered"] == true).count() == 2
    });
    drop(senders);

    // Overlapping traffic is a conflict.
    let overlap = format!("application register other --service web --cgroup {prefix}ordered-web --port 9");
    ctl(&hosts, &overlap);
    wait_within(START_TIMEOUT, "a conflict", || {
        ctl(&hosts, "hosts --format csv").contains("overlaps with application")
    });
    ctl(&hosts, "application deregister other");
    wait_within(START_TIMEOUT, "no conflict", || !ctl(&hosts, "hosts --format csv").contains("overlaps"));

    // Marks stay without a coordinator, and the next one has the traffic in its store.
    coordinator.kill();
    thread::sleep(Duration::from_secs(2));
    assert!(sent_mark(&hosts, &web).is_some_and(|mark| mark > 0));
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    wait_within(START_TIMEOUT, "the next coordinator", || {
        dir.read("log").matches("has a coordinator").count() == 2
    });
    wait_for_mark(&hosts, &web, mark(&hosts, "web"), "the next coordinator");

    ctl(&hosts, "application deregister web");
    wait_for_mark(&hosts, &web, 0, "the deregistration");
    assert_eq!(sent_mark(&hosts, &batch), Some(mark(&hosts, "batch")));
    agent.interrupt();
    assert!(!hosts.bpf_folder().exists());
}

/// The agent has no option `--application`, so only orders tell which programs of an earlier agent are still needed.
#[test]
fn next_agent_removes_ordered_traffic_that_ended_while_no_agent_ran() {
    let test = "unordered";
    let Some(hosts) = HostPair::up(test) else { return };
    let (dir, web) = (TestDir::new(), TestCgroup::new(test));
    if !hosts.has_bpf_programs(test, &web.path) {
        return;
    }
    dir.write("serve.toml", CONFIG);
    let mut coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let register = format!("application register web --service web --cgroup {} {PORTS}", web.name);
    let mut agent = hosts.start_agent(&dir.path("first"), std::iter::empty());
    ctl(&hosts, &register);
    wait_within(START_TIMEOUT, "a mark", || sent_mark(&hosts, &web) > Some(0));
    // The ports share one program.
    wait_within(START_TIMEOUT, "the program of ports", || hosts.bpf_folder().join("ports-follow").exists());
    let hosts_list: Value = serde_json::from_str(&ctl(&hosts, "hosts --format json")).unwrap();
    assert_eq!(hosts_list[0]["conflicts"], serde_json::json!([]));
    agent.kill();
    ctl(&hosts, "application deregister web");
    assert!(sent_mark(&hosts, &web) > Some(0));
    let mut agent = hosts.start_agent(&dir.path("second"), std::iter::empty());
    wait_within(START_TIMEOUT, "no mark", || sent_mark(&hosts, &web) == Some(0));
    wait_within(START_TIMEOUT, "no programs", || !hosts.bpf_folder().exists());

    // Ctrl-C removes them without any order.
    ctl(&hosts, &register);
    wait_within(START_TIMEOUT, "a mark", || sent_mark(&hosts, &web) > Some(0));
    agent.kill();
    coordinator.kill();
    let socket = dir.path("third");
    let mut agent = hosts.start_agent(&socket, std::iter::empty());
    wait_within(START_TIMEOUT, "the third agent", || socket.exists());
    assert!(sent_mark(&hosts, &web) > Some(0));
    agent.interrupt();
    assert_eq!((sent_mark(&hosts, &web), hosts.bpf_folder().exists()), (Some(0), false));
}

/// Folders of cgroups, as of a kubelet, which are removed when this is dropped, the innermost first. Those of a kubelet stay.
struct Kubepods(Vec<PathBuf>);

impl Kubepods {
    /// Creates the cgroup of a container below the root of cgroups, and the folders around it.
    fn create(root: &Path, path: &str) -> (Kubepods, TestCgroup) {
        let (mut folder, mut created) = (root.to_owned(), Vec::new());
        for name in path.split('/') {
            folder.push(name);
            if fs::create_dir(&folder).is_ok() {
                created.insert(0, folder.clone());
            }
        }
        // The container removes its own.
        created.remove(0);
        (Kubepods(created), TestCgroup { name: path.to_owned(), path: folder })
    }
}

impl Drop for Kubepods {
    fn drop(&mut self) {
        for folder in &self.0 {
            if let Err(error) = fs::remove_dir(folder) {
                eprintln!("{}: {error}", folder.display());
            }
        }
    }
}

/// In the cgroups in which the drivers systemd and cgroupfs place pods, which exist after the registration.
#[test]
fn pod_is_found_by_its_uid() {
    let test = "poduid";
    let Some(hosts) = HostPair::up(test) else { return };
    let (dir, outside) = (TestDir::new(), TestCgroup::new(test));
    if !hosts.has_bpf_programs(test, &outside.path) {
        return;
    }
    dir.write("serve.toml", CONFIG);
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let _agent = hosts.start_agent(&dir.path("local_socket"), std::iter::empty());
    let root = outside.path.parent().unwrap();
    for (number, place) in [
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-1.scope",
        "kubepods/besteffort/podUID/1",
    ]
    .into_iter()
    .enumerate()
    {
        let uid = format!("7e57{number}-{}", std::process::id());
        let uid_in_path = if place.contains(".slice") { uid.replace('-', "_") } else { uid.clone() };
        ctl(&hosts, &format!("application register pod{number} --service web --pod {uid}"));
        let (_folders, container) = Kubepods::create(root, &place.replace("UID", &uid_in_path));
        let name = format!("pod{number}");
        wait_for_mark(&hosts, &container, mark(&hosts, &name), "the start of the pod");
        assert_eq!(sent_mark(&hosts, &outside), Some(0));
        // `_folders` is dropped after the container.
        drop(container);
    }
}

/// Also if an option of the agent sets the class.
#[test]
fn service_in_shadow_mode_has_no_marks() {
    let test = "shadowed";
    let Some(hosts) = HostPair::up(test) else { return };
    let (dir, web) = (TestDir::new(), TestCgroup::new(test));
    if !hosts.has_bpf_programs(test, &web.path) {
        return;
    }
    dir.write("serve.toml", CONFIG);
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    ctl(&hosts, "application register web --service web");
    let option = format!("{}:7", web.path.display());
    let _agent = hosts.start_agent(&dir.path("local_socket"), std::iter::once(("web", Path::new(&option))));
    let ordered = mark(&hosts, "web");
    assert_ne!(ordered, 7);
    wait_for_mark(&hosts, &web, ordered, "the first order");
    ctl(&hosts, "pause --service web --shadow");
    wait_for_mark(&hosts, &web, 0, "shadow mode");
    ctl(&hosts, "resume --service web");
    wait_for_mark(&hosts, &web, ordered, "its end");
}
