//! Tests that programs behind tunnels and in cgroups inside of each other get the shares of their classes. Without the privileges or the
//! compiler, these tests print that and skip.

use std::collections::BTreeMap;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use weir_agent::queues::{DesiredQueues, Device, ReplaceableRoots, Shares};
use weir_agent::traffic::{EventKind, Traffic, TrafficError};

use crate::group::TestCgroup;
use crate::namespace_pair::{NamespacePair, create_pair, interface};
use crate::programs::{application_rules, read_events, start_receiver};
use crate::wait::wait_for;

/// The address of the host, at its interface `e0`.
const HOST: &str = "10.9.0.1";

/// The address of its peer.
const PEER: &str = "10.9.0.2";

/// Adds a VXLAN tunnel between host and peer, whose ends have these addresses.
fn add_tunnel(pair: &NamespacePair, addresses: [&str; 2]) {
    for (node, local, remote, address) in [("a", HOST, PEER, addresses[0]), ("b", PEER, HOST, addresses[1])] {
        let vxlan = format!("type vxlan id 7 dstport 4789 local {local} remote {remote} dev e0");
        let lines = format!("link add vx0 {vxlan}\nlink set vx0 up\naddr add {address}/24 dev vx0\n");
        pair.network().run_ip(node, &lines).unwrap();
    }
}

/// Sets up queues of 50 Mbit/s at the host's interface, with the weights 1 and 3 for the classes 1 and 2.
fn set_up_queues() {
    let desired = DesiredQueues::new(
        "50Mbit".parse().unwrap(),
        Device::read(&interface()).unwrap().segments,
        &Shares::by_weight(&[1.0, 3.0]),
        &BTreeMap::new(),
    );
    interface().reconcile(&desired.unwrap(), ReplaceableRoots::Restorable).unwrap();
}

/// Observes the traffic of these applications; none if the programs were not built.
fn start_traffic(test: &str, groups: &[(&TestCgroup, u8)]) -> Option<Traffic> {
    match Traffic::start(&application_rules(groups), &[interface()]) {
        Err(TrafficError::NotBuilt(why)) => {
            eprintln!("{test} skips, since the programs were not built: {why}");
            None
        }
        traffic => Some(traffic.unwrap()),
    }
}

/// A program that sends until this is dropped, and how much of it has arrived.
struct Sender {
    program: Child,
    received_bytes: Arc<AtomicU64>,
}

impl Sender {
    /// Starts a program in a cgroup at a node, which sends to an address of the peer over TCP.
    fn start(pair: &NamespacePair, group: &TestCgroup, node: &str, address: &str) -> Sender {
        let (receiver, received_bytes) = start_receiver(pair, 0);
        let script = format!("exec cat /dev/zero > /dev/tcp/{address}/{}", receiver.port());
        let namespace = format!("--net=/run/netns/{}", pair.network().namespace(node));
        let program = group.command("nsenter").args([&namespace, "bash", "-c", &script]).spawn().unwrap();
        Sender { program, received_bytes }
    }

    fn received(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Waits until the first sender has a share of a quarter. Packets without a class would have less, and without queues about half.
fn wait_for_quarter(senders: [&Sender; 2]) {
    wait_for("a share of 0.25", || {
        let before = senders.map(Sender::received);
        thread::sleep(Duration::from_secs(1));
        let after = senders.map(Sender::received);
        let [light, heavy] = [0, 1].map(|index| (after[index] - before[index]) as f64);
        let share = light / (light + heavy);
        eprintln!("{:.2} Mbit of payload, share {share:.4}", (light + heavy) * 8e-6);
        (share - 0.25).abs() < 0.03
    });
}

/// Starts a sender of class 1 and one of class 2, each at a node and to an address, and waits for their shares.
fn check_shares(test: &str, pair: &NamespacePair, light: [&str; 2], heavy: [&str; 2]) {
    let groups = [TestCgroup::new(&format!("{test}-1")), TestCgroup::new(&format!("{test}-2"))];
    let Some(traffic) = start_traffic(test, &[(&groups[0], 1), (&groups[1], 2)]) else { return };
    set_up_queues();
    let senders = [
        Sender::start(pair, &groups[0], light[0], light[1]),
        Sender::start(pair, &groups[1], heavy[0], heavy[1]),
    ];
    wait_for_quarter([&senders[0], &senders[1]]);
    drop(senders);
    assert_eq!(traffic.stop().unwrap(), 0);
}

#[test]
fn program_behind_a_tunnel_shares_with_direct_traffic_by_weight() {
    let test = "tunnel";
    let Some(pair) = create_pair(test) else { return };
    add_tunnel(&pair, ["10.9.5.1", "10.9.5.2"]);
    check_shares(test, &pair, ["a", "10.9.5.2"], ["a", PEER]);
    check_shares(test, &pair, ["a", PEER], ["a", "10.9.5.2"]);
}

#[test]
fn traffic_belongs_to_the_innermost_cgroup_with_a_class() {
    let test = "nested";
    let Some(pair) = create_pair(test) else { return };
    let outer = TestCgroup::new(test);
    let inner = TestCgroup::new(&format!("{test}/inner"));
    let Some(mut traffic) = start_traffic(test, &[(&outer, 1)]) else { return };
    set_up_queues();
    let first = Sender::start(&pair, &outer, "a", PEER);
    let second = Sender::start(&pair, &inner, "a", PEER);
    read_events(&mut traffic, |list| list.len() == 2);
    let names = |traffic: &Traffic| {
        let list = traffic.connections().unwrap();
        let name = |id| traffic.application_name(id).unwrap().to_owned();
        let mut names: Vec<String> = list.iter().map(|(_, known)| name(known.application)).collect();
        names.sort();
        names
    };
    assert_eq!(names(&traffic), [&*outer.name, &*outer.name]);
    drop(traffic);

    // The next agent has the inner cgroup as another application, which takes over its connection.
    let mut rules = application_rules(&[(&outer, 1), (&inner, 2)]);
    rules[1].name = "inner".to_owned();
    let mut traffic = Traffic::start(&rules, &[interface()]).unwrap();
    wait_for_quarter([&first, &second]);
    let kinds: Vec<EventKind> =
        read_events(&mut traffic, |list| list.len() == 2).iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::Closed, EventKind::Opened]);
    assert_eq!(names(&traffic), ["inner", &*outer.name]);

    // Without a class of its own, the inner application has that of the outer one.
    assert!(traffic.set_class("inner", None).unwrap());
    let third = TestCgroup::new(&format!("{test}-2"));
    drop(first);
    drop(traffic);
    rules[1].class = None;
    rules.extend(application_rules(&[(&third, 2)]));
    let traffic = Traffic::start(&rules, &[interface()]).unwrap();
    let heavy = Sender::start(&pair, &third, "a", PEER);
    wait_for_quarter([&second, &heavy]);
    assert_eq!(traffic.stop().unwrap(), 0);
}
