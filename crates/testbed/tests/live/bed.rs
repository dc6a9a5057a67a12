//! Tests beds of network namespaces, with real traffic. Without the privileges, these tests print that and skip.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use weir_agent::traffic::TrafficError;
use weir_core::model::scenario::{NetworkQueues, PortQueues, Queue, Scenario};
use weir_core::model::{Topology, TopologyTemplate as Fabric};
use weir_core::netshare::RateThrottle;
use weir_core::saba::Fraction;
use weir_core::units::Time;
use weir_testbed::bed::{self, BedEntry};
use weir_testbed::congestion::{CongestionControl, CongestionError, REDUCED_DCTCP};
use weir_testbed::incast::{ConnectionStarts, IncastBed, IncastError, IncastParameters, IncastSample};
use weir_testbed::tcp_bed::{TcpBedError, TcpOptions};
use weir_testbed::{Bed, BedError, BedName, Phase, namespace, run, testing};

/// The name of a test's bed, which is removed when the test ends. Beds are independent, so tests run concurrently.
struct TestBed {
    name: BedName,
}

/// None if this machine cannot create a bed.
fn test_bed(test: &str) -> Option<TestBed> {
    if testing::skips(test) {
        return None;
    }
    let name = format!("{test}{}", std::process::id()).parse().unwrap();
    Some(TestBed { name })
}

impl Drop for TestBed {
    fn drop(&mut self) {
        // A failed test has reported its error already.
        let _ = bed::down(&self.name);
    }
}

impl TestBed {
    fn up(&self, topology: &Topology) -> Bed {
        Bed::up(&self.name, topology, &|| true).unwrap()
    }

    fn bed_entry(&self) -> Option<BedEntry> {
        bed::list().unwrap().into_iter().find(|bed| bed.name == self.name)
    }
}

fn big_switch(hosts: u32, rate: &str) -> Topology {
    Fabric::BigSwitch { hosts, rate: rate.parse().unwrap() }.build().unwrap()
}

fn leaf_spine(spines: u32) -> Topology {
    let rate = "50Mbit".parse().unwrap();
    Fabric::LeafSpine { spines, leaves: 2, hosts: 2, rate, oversubscription: 1.0 }.build().unwrap()
}

/// A scenario on this fabric, from the tables of its services and demands.
fn scenario(topology: &Topology, end: &str, tables: &str) -> Scenario {
    let mut topology_file = Vec::new();
    weir_trace::topology::write(topology, &mut topology_file).unwrap();
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("weir-bed-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("fabric.toml"), topology_file).unwrap();
    let text = format!("weir-scenario = 1\nend = \"{end}\"\nfabric = \"fabric.toml\"\n{tables}");
    let read = weir_trace::scenario::read_from(text.as_bytes(), "test", &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    read.unwrap()
}

fn service(name: &str, weight: u32) -> String {
    format!("[[service]]\nname = \"{name}\"\nweight = {weight}\n")
}

fn demand(service: &str, from: &str, to: &str, fields: &str) -> String {
    format!("[[demand]]\nservice = \"{service}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{fields}\n")
}

const ELASTIC: &str = "sending = \"elastic\"";

/// The arriving rate of each demand, in Mbit/s, over the second half of the scenario.
fn measure(bed: &Bed, scenario: &Scenario) -> Vec<f64> {
    measure_with(bed, scenario, None)
}

fn measure_with(bed: &Bed, scenario: &Scenario, throttle: Option<&RateThrottle>) -> Vec<f64> {
    let phases = run(bed.plan(), scenario, &[(Time::ZERO, scenario.end)], throttle, |_| true).unwrap();
    let [Phase { second_half_rates: late, .. }] = &phases[..] else { panic!("{phases:?}") };
    late.iter().map(|bytes| bytes * 8e-6).collect()
}

/// Asserts that measured rates, in Mbit/s, are as expected. A scenario lasts so long that its second half is longer than TCP takes to
/// recover from losses.
fn assert_rates(subject: &str, found: &[f64], is_expected: impl Fn(&[f64]) -> bool) {
    eprintln!("{subject}: {found:.2?} Mbit");
    assert!(is_expected(found), "{subject}: {found:.2?} Mbit");
}

/// Whether all rates differ from the expected ones by less than `tolerance`, in Mbit/s.
fn is_near(found: &[f64], expected: &[f64], tolerance: f64) -> bool {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < tolerance)
}

#[test]
fn links_carry_traffic_at_their_rates() {
    let Some(test_bed) = test_bed("links") else { return };
    for (rate, expected) in [("20Mbit", 20.0), ("100Mbit", 100.0)] {
        let topology = big_switch(3, rate);
        let bed = test_bed.up(&topology);
        let elastic = scenario(&topology, "4s", &(service("a", 1) + &demand("a", "h0", "h1", ELASTIC)));
        // Twice the rate of the link: half of the packets are lost.
        let flood = format!("sending = \"unresponsive\"\nrate = \"{}Mbit\"", expected * 2.0);
        let flood = scenario(&topology, "2s", &(service("a", 1) + &demand("a", "h1", "h2", &flood)));
        for (what, scenario) in [("TCP", elastic), ("UDP", flood)] {
            let what = format!("{what} over {rate}");
            let found = measure(&bed, &scenario);
            assert_rates(&what, &found, |found| is_near(found, &[expected], 0.03 * expected));
        }
        bed.down().unwrap();
    }
}

#[test]
fn weights_share_links_between_services() {
    let Some(test_bed) = test_bed("weights") else { return };
    let topology = big_switch(4, "100Mbit");
    let bed = test_bed.up(&topology);
    let names = ["a", "b", "c"];
    let services: String = names.iter().zip([1, 3, 9]).map(|(name, weight)| service(name, weight)).collect();
    let check_shares = |sending: [&str; 3], expected: [f64; 3]| {
        let demands = (0..3).map(|i| demand(names[i], &format!("h{i}"), "h3", sending[i]));
        let scenario = scenario(&topology, "6s", &(services.clone() + &demands.collect::<String>()));
        let what = format!("of 100 Mbit, expected {expected:.2?}");
        assert_rates(&what, &measure(&bed, &scenario), |found| is_near(found, &expected, 2.0));
    };
    let udp_90_mbit = "sending = \"unresponsive\"\nrate = \"90Mbit\"";
    let capped_10_mbit = "sending = \"capped\"\nrate = \"10Mbit\"";
    bed.set_queues(Some(&NetworkQueues::by_service(&topology, &[1.0, 3.0, 9.0], &[]))).unwrap();
    check_shares([ELASTIC; 3], [1, 3, 9].map(|weight| 100.0 * f64::from(weight) / 13.0));
    // An unresponsive source gets no more than its weighted share; unused bandwidth is divided by weight.
    check_shares([udp_90_mbit, ELASTIC, capped_10_mbit], [22.5, 67.5, 10.0]);
    // Two services in one queue: the unresponsive source gets its sending rate, and TCP gets the rest.
    let to = topology.find_node("h3").unwrap();
    let links = vec![topology.outgoing_links(to)[0].reverse()];
    let queue = |weight, services: &[usize]| Queue { weight, services: services.to_vec() };
    let port = PortQueues { links, queues: vec![queue(3.0, &[0]), queue(1.0, &[1, 2])] };
    bed.set_queues(Some(&NetworkQueues::by_service(&topology, &[1.0; 3], &[port]))).unwrap();
    let udp_10_mbit = "sending = \"unresponsive\"\nrate = \"10Mbit\"";
    check_shares([ELASTIC, udp_10_mbit, ELASTIC], [75.0, 10.0, 15.0]);
    // One queue for all: the unresponsive source gets nearly all bandwidth.
    bed.set_queues(None).unwrap();
    let scenario = scenario(
        &topology,
        "4s",
        &(services.clone() + &demand("a", "h0", "h3", udp_90_mbit) + &demand("c", "h2", "h3", ELASTIC)),
    );
    // UDP gets its sending rate, and TCP gets the rest.
    let all = "one queue, UDP and TCP";
    assert_rates(all, &measure(&bed, &scenario), |found| is_near(found, &[90.0, 10.0], 5.0));
    let floods: String = (0..2).map(|i| demand(names[i], &format!("h{i}"), "h3", udp_90_mbit)).collect();
    let floods = self::scenario(&topology, "4s", &(services + &floods));
    assert_rates("one queue, UDP", &measure(&bed, &floods), |found| is_near(found, &[50.0; 2], 10.0));
    bed.down().unwrap();
}

/// The classes and queues of a bed's ports, as `tc` prints them.
fn read_queues(bed: &Bed) -> Vec<String> {
    let node_queues = |node: &weir_testbed::Node| {
        let show = |what: &str| {
            let args = ["-n", &node.namespace, what, "show"];
            let mut command = Command::new("tc");
            command.args(args);
            if what == "class" {
                command.args(["dev", "eth0"]);
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        show("class") + &show("qdisc")
    };
    bed.plan().nodes.iter().map(node_queues).collect()
}

#[test]
fn throttled_hosts_are_limited_until_restored() {
    let Some(test_bed) = test_bed("less") else { return };
    let topology = big_switch(3, "40Mbit");
    let bed = test_bed.up(&topology);
    let before = read_queues(&bed);
    let demands = demand("a", "h0", "h1", ELASTIC) + &demand("a", "h1", "h2", ELASTIC);
    let scenario = scenario(&topology, "4s", &(service("a", 1) + &demands));
    bed.throttle(&[0], Fraction::new(0.25).unwrap()).unwrap();
    let fits = |found: &[f64]| is_near(&found[..1], &[10.0], 0.5) && is_near(&found[1..], &[40.0], 2.0);
    assert_rates("of 10 and 40 Mbit", &measure(&bed, &scenario), fits);
    bed.throttle(&[0], Fraction::ALL).unwrap();
    assert_eq!(read_queues(&bed), before);
    // While services have queues, a port has more than the class of the link, and cannot be throttled.
    bed.set_service_queues(&[1.0, 3.0]).unwrap();
    assert_ne!(read_queues(&bed)[0], before[0]);
    assert!(matches!(bed.throttle(&[0], Fraction::ALL), Err(BedError::Command(_))));
    bed.down().unwrap();
}

/// NetShare 5.3, the last phase, on links of 50 Mbit: without throttling, A2 loses packets at its second link, and these packets take
/// bandwidth from A1 at the first link.
#[test]
fn throttling_frees_bandwidth_of_packets_lost_downstream() {
    let Some(test_bed) = test_bed("throttle") else { return };
    let rate = "50Mbit".parse().unwrap();
    let fabric = Fabric::LeafSpine { spines: 1, leaves: 3, hosts: 4, rate, oversubscription: 4.0 };
    let topology = fabric.build().unwrap();
    let bed = test_bed.up(&topology);
    let flood = "sending = \"unresponsive\"\nrate = \"50Mbit\"";
    let tables = service("A1", 1)
        + &service("A2", 3)
        + &service("A3", 9)
        + &demand("A1", "h0", "h4", ELASTIC)
        + &demand("A2", "h1", "h8", flood)
        + &demand("A3", "h5", "h9", flood);
    let scenario = scenario(&topology, "8s", &tables);
    bed.set_queues(Some(&NetworkQueues::by_service(&topology, &[1.0, 3.0, 9.0], &[]))).unwrap();
    let throttle = RateThrottle::new(scenario.min_limit);
    for (throttle, expected) in [(None, [12.5, 12.5, 37.5]), (Some(&throttle), [36.25, 12.5, 37.5])] {
        let what = format!("of 50 Mbit, expected {expected:.2?}");
        let found = measure_with(&bed, &scenario, throttle);
        assert_rates(&what, &found, |found| is_near(found, &expected, 1.5));
    }
    bed.down().unwrap();
}

/// Bytes that left an interface.
fn sent_bytes(namespace: &str, interface: &str) -> f64 {
    let output = namespace::command(namespace, "cat").arg("/proc/net/dev").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{interface}:")));
    line.unwrap().split_whitespace().nth(8).unwrap().parse().unwrap()
}

#[test]
fn ecn_marks_reduce_loss() {
    let Some(test_bed) = test_bed("marks") else { return };
    let bed = test_bed.up(&big_switch(9, "100Mbit"));
    let read_ecn_setting = || {
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap();
        namespace::run_inside(&bed.plan().nodes[1].namespace, read).unwrap()
    };
    let before = read_ecn_setting();
    let read_routes = || {
        let output =
            Command::new("ip").args(["-n", &bed.plan().nodes[1].namespace, "route", "show"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let routes = read_routes();
    assert!(routes.contains("congctl cubic"), "{routes}");
    let starts = ConnectionStarts::Together;
    let incast =
        IncastParameters { buffer_packets: 100, connections: 8, bytes_per_connection: 1_000_000, starts };
    let measure_loss = |marks: Option<u32>| {
        let incast_bed = IncastBed::new(
            &bed,
            &TcpOptions { congestion_control: Some("reno".to_owned()), ecn_threshold: marks },
        )?;
        assert_eq!(incast_bed.congestion_control().name(), "reno");
        assert!(marks.is_none() || read_ecn_setting().trim() == "1");
        assert!(read_routes().contains("congctl reno"), "{}", read_routes());
        Ok::<f64, IncastError>(incast_bed.run(&incast, &|| true)?.loss)
    };
    let loss_without_ecn = measure_loss(None).unwrap();
    let loss_with_ecn = match measure_loss(Some(10)) {
        Err(IncastError::Bed(TcpBedError::EcnMarker(
            why @ (TrafficError::NotBuilt(_) | TrafficError::File { .. }),
        ))) => {
            eprintln!("ECN marks are not tested: {why}");
            0.0
        }
        other => other.unwrap(),
    };
    eprintln!("{loss_without_ecn} of the packets are lost without marks, {loss_with_ecn} with them");
    assert!(
        loss_without_ecn > 0.01 && loss_with_ecn < loss_without_ecn / 2.0,
        "{loss_without_ecn} without, {loss_with_ecn} with"
    );
    assert_eq!(read_ecn_setting(), before);
    assert_eq!(read_routes(), routes);

    let unknown = TcpOptions { congestion_control: Some("nothing".to_owned()), ecn_threshold: None };
    let error = IncastBed::new(&bed, &unknown).expect_err("refused").to_string();
    assert!(
        error.starts_with("congestion control `nothing` cannot be used: ")
            && error.contains("that this kernel has ("),
        "{error}"
    );
    bed.down().unwrap();
}

/// The congestion controls that the kernel offers.
fn available_congestion_controls() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// The congestion controls of the sockets in a namespace that have sent or received data, as `ss` prints them.
fn socket_congestion_controls(namespace: &str) -> Vec<String> {
    let output = namespace::command(namespace, "ss").arg("-tinH").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The details of a socket are in an indented line, which starts with the congestion control.
    let details =
        text.lines().filter(|line| line.starts_with(char::is_whitespace) && line.contains(" bytes_"));
    details.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}

/// Two connections, which fill the buffer under reno without marks.
#[test]
fn reduced_dctcp_keeps_the_queue_short_while_the_bed_uses_it() {
    let Some(test_bed) = test_bed("dctcp") else { return };
    let bed = test_bed.up(&big_switch(3, "100Mbit"));
    let tcp = |congestion_control: &str, ecn_threshold| TcpOptions {
        congestion_control: Some(congestion_control.to_owned()),
        ecn_threshold,
    };
    let measure = |incast_bed: &IncastBed<'_>, should_continue: &dyn Fn() -> bool| -> IncastSample {
        let incast = IncastParameters {
            buffer_packets: 200,
            connections: 2,
            bytes_per_connection: 4_000_000,
            starts: ConnectionStarts::Together,
        };
        incast_bed.run(&incast, should_continue).unwrap()
    };
    let dctcp_bed = match IncastBed::new(&bed, &tcp(REDUCED_DCTCP, Some(20))) {
        Err(IncastError::Bed(TcpBedError::CongestionControl(
            why @ (CongestionError::NotBuilt(_) | CongestionError::Load(_)),
        ))) => {
            eprintln!("the reduced DCTCP is not tested: {why}");
            return;
        }
        other => other.unwrap(),
    };
    assert!(available_congestion_controls().contains(REDUCED_DCTCP));
    // A second bed cannot load it at the same time.
    let second = CongestionControl::new(Some(REDUCED_DCTCP)).unwrap_err().to_string();
    assert!(
        second.contains("another process, such as a second testbed, has registered weir_dctcp"),
        "{second}"
    );
    let observed = RefCell::new(BTreeSet::new());
    let observe = || {
        for node in bed.plan().nodes.iter().filter(|node| !node.is_switch) {
            let names = socket_congestion_controls(&node.namespace);
            observed.borrow_mut().extend(names.into_iter().map(|name| (node.name.clone(), name)));
        }
        true
    };
    let with_dctcp = measure(&dctcp_bed, &observe);
    // The receiver and both senders, and no other congestion control.
    let expected = ["h0", "h1", "h2"].map(|host| (host.to_owned(), REDUCED_DCTCP.to_owned()));
    assert_eq!(observed.into_inner(), BTreeSet::from(expected));
    drop(dctcp_bed);
    assert!(!available_congestion_controls().contains(REDUCED_DCTCP));

    let with_reno = measure(&IncastBed::new(&bed, &tcp("reno", None)).unwrap(), &|| true);
    let [dctcp, reno] = [with_dctcp, with_reno].map(|sample| sample.queue.unwrap());
    eprintln!("queues: {dctcp:?} with DCTCP, {reno:?} with reno and without marks");
    assert!(reno.max >= 199, "reno fills the buffer: {reno:?}");
    assert!(dctcp.max >= 20 && dctcp.mean < reno.mean / 2.0, "{dctcp:?} with DCTCP, {reno:?} with reno");
    bed.down().unwrap();
}

#[test]
fn connections_spread_over_equal_paths() {
    let Some(test_bed) = test_bed("paths") else { return };
    let topology = leaf_spine(2);
    let bed = test_bed.up(&topology);
    let many = scenario(
        &topology,
        "2s",
        &(service("a", 1) + &demand("a", "h0", "h2", &format!("{ELASTIC}\nconnections = 32"))),
    );
    assert_rates("32 connections over two paths", &measure(&bed, &many), |found| found[0] > 45.0);
    let leaf = &bed.plan().node(topology.find_node("leaf0").unwrap());
    let uplink_bytes = ["eth0", "eth1"].map(|interface| sent_bytes(&leaf.namespace, interface));
    eprintln!("bytes {uplink_bytes:?}");
    // All connections on one path, or all but one, has a probability of 1 in 65 million.
    assert!(
        uplink_bytes.iter().all(|bytes| *bytes > 0.05 * (uplink_bytes[0] + uplink_bytes[1])),
        "{uplink_bytes:?}"
    );
    bed.down().unwrap();
}

#[test]
fn every_host_receives_from_every_other() {
    let Some(test_bed) = test_bed("pairs") else { return };
    let topology = Fabric::NetShareFig7.build().unwrap();
    let bed = test_bed.up(&topology);
    let hosts = (1..=12).map(|host| format!("H{host}"));
    let capped = "sending = \"capped\"\nrate = \"500kbit\"";
    let demands: String = hosts.map(|host| demand("a", "*", &host, capped)).collect();
    let all = scenario(&topology, "4s", &(service("a", 1) + &demands));
    // Each host receives from eleven others; the second half may contain one packet more or less of each.
    let tolerance = 11.0 * 1514.0 * 8e-6 + 0.3;
    assert_rates("eleven others", &measure(&bed, &all), |found| is_near(found, &[5.5; 12], tolerance));
    bed.down().unwrap();
}

#[test]
fn down_removes_all_objects_of_a_bed() {
    let Some(test_bed) = test_bed("fifty") else { return };
    let list_links = || Command::new("ip").args(["-o", "link"]).output().unwrap().stdout;
    let before = list_links();
    let fabric = Fabric::LeafSpine {
        spines: 2,
        leaves: 5,
        hosts: 10,
        rate: "100Mbit".parse().unwrap(),
        oversubscription: 1.0,
    };
    let started = Instant::now();
    drop(test_bed.up(&fabric.build().unwrap()));
    eprintln!("50 hosts: up in {:.2?}", started.elapsed());
    let listed = test_bed.bed_entry().unwrap();
    assert_eq!(
        (listed.namespace_count, listed.is_busy, listed.topology),
        (57, false, Some(fabric.build().unwrap()))
    );
    assert!(matches!(
        Bed::up(&test_bed.name, &big_switch(2, "1Gbit"), &|| true),
        Err(BedError::AlreadyUp(name)) if name == test_bed.name
    ));
    let started = Instant::now();
    assert!(bed::down(&test_bed.name).unwrap());
    eprintln!("50 hosts: down in {:.2?}", started.elapsed());
    assert_eq!(test_bed.bed_entry(), None);
    assert_eq!(list_links(), before);
    assert!(!bed::down(&test_bed.name).unwrap());
}

#[test]
fn beds_are_independent() {
    let Some(test_bed) = test_bed("both") else { return };
    let other: BedName = format!("{}b", test_bed.name).parse().unwrap();
    let first = test_bed.up(&big_switch(2, "1Gbit"));
    let second = Bed::up(&other, &leaf_spine(1), &|| true).unwrap();
    assert_eq!(test_bed.bed_entry().map(|bed| (bed.namespace_count, bed.is_busy)), Some((3, true)));
    // A bed that is in use cannot be removed.
    assert!(matches!(bed::down(&test_bed.name), Err(BedError::Busy(_))));
    first.down().unwrap();
    assert_eq!(test_bed.bed_entry(), None);
    drop(second);
    let again = Bed::open(&other).unwrap().unwrap();
    assert_eq!(*again.topology(), leaf_spine(1));
    again.down().unwrap();
}

#[test]
fn interrupted_bed_is_removed_and_unfinished_bed_is_replaced() {
    let Some(test_bed) = test_bed("partly") else { return };
    for steps in [0, 1, 4, 9, 14] {
        let remaining_steps = AtomicUsize::new(steps);
        let should_continue = || {
            remaining_steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
        };
        let made = Bed::up(&test_bed.name, &leaf_spine(1), &should_continue);
        assert!(matches!(made, Err(BedError::Command(_))), "after {steps} steps");
        assert_eq!(test_bed.bed_entry(), None, "after {steps} steps");
    }
    let leftover = format!("weir-{}-left", test_bed.name);
    assert!(Command::new("ip").args(["netns", "add", &leftover]).status().unwrap().success());
    assert_eq!(test_bed.bed_entry().map(|bed| (bed.namespace_count, bed.topology)), Some((1, None)));
    assert!(Bed::open(&test_bed.name).unwrap().is_none());
    drop(test_bed.up(&leaf_spine(1)));
    assert_eq!(test_bed.bed_entry().map(|bed| bed.namespace_count), Some(7));
    // A bed without one of its namespaces is unfinished.
    let removed = format!("weir-{}-h0", test_bed.name);
    assert!(Command::new("ip").args(["netns", "del", &removed]).status().unwrap().success());
    assert!(Bed::open(&test_bed.name).unwrap().is_none());
    assert!(bed::down(&test_bed.name).unwrap());
    assert_eq!(test_bed.bed_entry(), None);
}
