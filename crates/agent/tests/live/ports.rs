//! Tests the traffic of ports, in a pair of namespaces. Without the privileges or the compiler, these tests print that and skip.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::capture::start_capture;
use crate::group::TestCgroup;
use crate::namespace_pair::{create_pair, interface};
use crate::programs::{PythonProgram, application_rules, has_program, read_events, start_receiver};
use crate::wait::wait_for;
use weir_agent::traffic::{EventKind, Rule, Traffic, TrafficError, cleanup};

/// The observed traffic of applications with ports; none if this machine does not support it.
fn start_with_ports(test: &str, rules: &[Rule]) -> Option<Traffic> {
    match Traffic::start(rules, &[interface()]) {
        Err(TrafficError::NotBuilt(why)) => {
            eprintln!("{test} skips, since the programs were not built: {why}");
            None
        }
        Err(why @ TrafficError::File { .. }) if why.to_string().contains("the root of all cgroups") => {
            eprintln!("{test} skips: {why}");
            None
        }
        traffic => Some(traffic.unwrap()),
    }
}

/// An application can be a port, for connections of any program outside the cgroups of other applications.
#[test]
fn port_application_excludes_programs_in_other_cgroups() {
    let test = "ports";
    let group = TestCgroup::new(test);
    let Some(pair) = create_pair(test) else { return };
    let [(first, _), (second, _)] = [start_receiver(&pair, 1), start_receiver(&pair, 1)];
    let udp = pair.run_at_peer(|| UdpSocket::bind("10.9.0.2:0").unwrap()).join().unwrap();
    let mut rules_with_ports = application_rules(&[(&group, 9)]);
    let ports = [("tcp", first.port()), ("udp", udp.local_addr().unwrap().port())];
    let ports = ports.map(|(name, port)| format!("{name}=port/{port}:7").parse::<Rule>().unwrap());
    // The order of rules does not matter.
    rules_with_ports.splice(0..0, ports);
    let Some(mut traffic) = start_with_ports(test, &rules_with_ports) else { return };
    let capture = start_capture(&pair);
    // IPv4 and IPv6 to the port, and IPv4 to another port.
    let send = |host: &str, port: u16| {
        let mut stream = TcpStream::connect((host, port)).unwrap();
        let local_port = stream.local_addr().unwrap().port();
        stream.write_all(&[0; 3000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        local_port
    };
    let marked_ports = [send("10.9.0.2", first.port()), send("fd09::2", first.port())];
    let other_port = send("10.9.0.2", second.port());
    let datagrams = UdpSocket::bind("10.9.0.1:0").unwrap();
    datagrams.send_to(b"x", udp.local_addr().unwrap()).unwrap();
    let udp_port = datagrams.local_addr().unwrap().port();
    // From the cgroup, to the same port.
    let command = format!("exec 3<>/dev/tcp/10.9.0.2/{}; echo x >&3", first.port());
    assert!(group.command("bash").args(["-c", &command]).status().unwrap().success());
    let events = read_events(&mut traffic, |list| {
        list.iter().filter(|event| event.kind == EventKind::Opened).count() == 3
    });
    let names: Vec<&str> = events
        .iter()
        .filter(|event| event.kind == EventKind::Opened)
        .map(|event| traffic.application_name(event.connection.application).unwrap())
        .collect();
    assert_eq!(names, ["tcp", "tcp", &group.name]);
    let cgroup_port = events.iter().rfind(|event| event.kind == EventKind::Opened).unwrap().ends.local.port();
    let packets = capture.stop();
    let marks = |from: u16| {
        let mut marks: Vec<u8> =
            packets.iter().filter(|packet| packet.source_port == from).map(|packet| packet.mark).collect();
        assert!(!marks.is_empty());
        marks.dedup();
        marks
    };
    assert_eq!([marks(marked_ports[0]), marks(marked_ports[1]), marks(udp_port)], [[7], [7], [7]]);
    // Answers of the kernel for a closed socket belong to no cgroup, so only the first mark counts.
    assert_eq!((marks(other_port), marks(cgroup_port)[0]), (vec![0], 9));
    traffic.stop().unwrap();

    // A connection that opened before its cgroup became an application moves to that application, and continues.
    let port_rules = [rules_with_ports[0].clone()];
    let mut traffic = Traffic::start(&port_rules, &[interface()]).unwrap();
    let text = "
import socket, sys
with socket.create_connection(('10.9.0.2', int(sys.argv[1]))) as s:
    while True:
        print(flush=True)
        if not sys.stdin.readline():
            break
        s.sendall(bytes(5000))
";
    if !has_program(test, "python3") {
        return;
    }
    let mut python = PythonProgram::start(&group, text, &[first.port().to_string()]);
    python.read_line();
    let opened = read_events(&mut traffic, |list| !list.is_empty());
    assert_eq!(traffic.application_name(opened[0].connection.application), Some("tcp"));
    drop(traffic);
    let mut traffic = Traffic::start(&rules_with_ports, &[interface()]).unwrap();
    let mut sends_as_the_cgroup = || {
        python.start_next_step();
        python.read_line();
        let list = traffic.connections().unwrap();
        list.iter().any(|(_, one)| traffic.application_name(one.application) == Some(&group.name))
    };
    wait_for("the cgroup's application", &mut sends_as_the_cgroup);
    assert!(sends_as_the_cgroup());
    let kinds = read_events(&mut traffic, |list| list.len() == 2).into_iter().map(|event| event.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), [EventKind::Closed, EventKind::Opened]);
    traffic.stop().unwrap();
}

/// The kernel allows 64 programs of a kind at a cgroup (`BPF_CGROUP_MAX_PROGS`).
const MAX_CGROUP_PROGRAMS: u16 = 64;

#[test]
fn more_ports_than_programs_at_a_cgroup_are_followed() {
    let test = "manyports";
    let Some(pair) = create_pair(test) else { return };
    let (address, _) = start_receiver(&pair, 1);
    let rule = |port: u16| format!("p{port}=port/{port}").parse::<Rule>().unwrap();
    let other_ports = (1..).filter(|port| *port != address.port()).take(usize::from(MAX_CGROUP_PROGRAMS));
    let mut rules: Vec<Rule> = other_ports.map(rule).collect();
    rules.push(rule(address.port()));
    let Some(mut traffic) = start_with_ports(test, &rules) else { return };
    let connect = || drop(TcpStream::connect(("10.9.0.2", address.port())).unwrap());
    connect();
    let opened = read_events(&mut traffic, |list| !list.is_empty())[0];
    let name = format!("p{}", address.port());
    assert_eq!(traffic.application_name(opened.connection.application), Some(name.as_str()));
    drop(traffic);

    // The next agent has one port less, whose connections are followed no longer.
    rules.pop();
    let mut traffic = Traffic::start(&rules, &[interface()]).unwrap();
    while traffic.next_event().is_some() {}
    connect();
    assert_eq!((traffic.next_event(), traffic.connections().unwrap()), (None, vec![]));
    assert_eq!(traffic.stop().unwrap(), 0);
    assert!(!cleanup().unwrap());
}

/// The pacing rate of a connection ends with the rule of its port, although the program of the ports stays.
#[test]
fn connection_of_a_removed_port_loses_its_pacing_rate() {
    let test = "removedport";
    let group = TestCgroup::new(test);
    let Some(pair) = create_pair(test) else { return };
    let (address, received) = start_receiver(&pair, 0);
    let port = address.port();
    let rules: Vec<Rule> =
        ["kept=port/9".to_owned(), format!("removed=port/{port}")].map(|text| text.parse().unwrap()).into();
    let Some(mut traffic) = start_with_ports(test, &rules) else { return };
    let command = format!("exec cat /dev/zero > /dev/tcp/10.9.0.2/{port}");
    let mut sender = group.command("bash").args(["-c", &command]).spawn().unwrap();
    let ends = read_events(&mut traffic, |list| !list.is_empty())[0].ends;
    let rate = "5Mbit".parse().unwrap();
    assert!(traffic.set_pacing_rate(ends, Some(rate), Duration::from_secs(60)).unwrap());
    wait_for("the pacing rate", || {
        traffic.connections().unwrap().iter().any(|(_, known)| known.pacing_rate.is_some())
    });
    drop(traffic);
    let traffic = Traffic::start(&rules[..1], &[interface()]).unwrap();
    assert_eq!(traffic.connections().unwrap(), []);
    // At the pacing rate, the connection would need 20 s.
    let before = received.load(Ordering::Relaxed);
    let began = Instant::now();
    wait_for("data of an unpaced connection", || received.load(Ordering::Relaxed) > before + 12_500_000);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert_eq!(traffic.stop().unwrap(), 0);
}
