//! Tests that the agent finds the hosts behind addresses of services and behind masquerading, which nftables or iptables replace. Without
//! the privileges or these programs, the tests print that and skip.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

use weir_agent::conntrack::find_peers;
use weir_agent::traffic::ConnectionEnds;
use weir_testbed::{Network, testing};

use crate::namespace_pair::{NamespacePair, create_pair};
use crate::programs::has_program;

/// The addresses of a service, which no host has.
const SERVICE: &str = "10.96.0.1";
const SERVICE_6: &str = "fd96::1";

/// The port of a service, and that of its pods.
const PORT: u16 = 80;
const POD_PORT: u16 = 8080;

/// Loads rules of nftables at a node.
fn load_rules(network: &Network, node: &str, rules: &str) {
    let mut nft = network.command(node, "nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success(), "{rules}");
}

fn run_iptables(network: &Network, node: &str, line: &str) {
    let status = network.command(node, "iptables").args(line.split(' ')).status().unwrap();
    assert!(status.success(), "{line}");
}

/// Connects two nodes. Returns the ends of the connection as its client and as its server see it, and the connection.
fn connect(
    network: &Network,
    [client, server]: [&str; 2],
    to: SocketAddr,
    listen: SocketAddr,
) -> ([ConnectionEnds; 2], [TcpStream; 2]) {
    let listener = network.run_inside(server, || TcpListener::bind(listen).unwrap()).unwrap();
    let connected = network.run_inside(client, || TcpStream::connect(to).unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    let streams = [connected, accepted];
    let ends = streams.each_ref().map(|stream| ConnectionEnds {
        local: stream.local_addr().unwrap(),
        remote: stream.peer_addr().unwrap(),
    });
    (ends, streams)
}

/// The hosts at the other ends, as the agent of the first node finds them.
fn peers(ends: &[ConnectionEnds]) -> Vec<String> {
    let found = find_peers(ends);
    assert!(found.error.is_none(), "{:?}", found.error);
    found.addresses.iter().map(|address| address.unwrap().to_string()).collect()
}

fn address(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), port)
}

/// Connects the host to a service whose pod is at its peer, and checks the peer of this connection and of others.
fn check_service(pair: &NamespacePair, service: &str, pod: &str) {
    let (pod_port, port) = (address(pod, POD_PORT), address(service, PORT));
    let ([ends, _], _connection) = connect(pair.network(), ["a", "b"], port, pod_port);
    assert_eq!(ends.remote, port);
    let direct_port = address(pod, POD_PORT + 1);
    let ([direct, _], _direct) = connect(pair.network(), ["a", "b"], direct_port, direct_port);
    let unknown = ConnectionEnds { local: address(&ends.local.ip().to_string(), 1), ..ends };
    // More than fit into one message.
    let many = [vec![ends; 300], vec![direct, unknown]].concat();
    let expected = [vec![pod; 300], vec![pod, service]].concat();
    assert_eq!(peers(&many), expected);
}

#[test]
fn address_of_a_service_by_nftables_is_that_of_its_pod() {
    let test = "natnft";
    let Some(pair) = create_pair(test) else { return };
    if !has_program(test, "nft") {
        return;
    }
    for (family, service, pod) in [("ip", SERVICE, "10.9.0.2"), ("ip6", SERVICE_6, "fd09::2")] {
        pair.network().run_ip("a", &format!("route add {service} via {pod}\n")).unwrap();
        let brackets = if family == "ip6" { format!("[{pod}]") } else { pod.to_owned() };
        let rule = format!("{family} daddr {service} tcp dport {PORT} dnat to {brackets}:{POD_PORT}");
        let chain = format!("chain out {{\ntype nat hook output priority -100\n{rule}\n}}\n");
        load_rules(pair.network(), "a", &format!("table {family} services {{\n{chain}}}\n"));
        check_service(&pair, service, pod);
    }
}

#[test]
fn address_of_a_service_by_iptables_is_that_of_its_pod() {
    let test = "natipt";
    let Some(pair) = create_pair(test) else { return };
    if !has_program(test, "iptables") {
        return;
    }
    pair.network().run_ip("a", &format!("route add {SERVICE} via 10.9.0.2\n")).unwrap();
    let rule = format!("-d {SERVICE} -p tcp --dport {PORT} -j DNAT --to-destination 10.9.0.2:{POD_PORT}");
    run_iptables(pair.network(), "a", &format!("-t nat -A OUTPUT {rule}"));
    check_service(&pair, SERVICE, "10.9.0.2");
}

#[test]
fn host_without_rules_has_the_addresses_of_sockets() {
    let Some(pair) = create_pair("natnone") else { return };
    let port = address("10.9.0.2", POD_PORT);
    let ([ends, _], _connection) = connect(pair.network(), ["a", "b"], port, port);
    assert_eq!(peers(&[ends]), ["10.9.0.2"]);
}

/// Node `a` is the host of pod `c`, which sends to a service behind masquerading, and is itself the pod of a service.
#[test]
fn pods_behind_masquerading_have_the_addresses_of_hosts() {
    let test = "natpod";
    let Some(network) = testing::network(test, &["a", "b", "c"]) else { return };
    if !has_program(test, "nft") {
        return;
    }
    let pod = network.namespace("c");
    let peer = network.namespace("b");
    let pod_link = format!("link add p1 type veth peer name e0 netns {pod}\n");
    let lines = format!("{pod_link}link add e0 type veth peer name e0 netns {peer}\n");
    let addresses =
        "addr add 10.9.1.1/24 dev p1\naddr add 10.9.0.1/24 dev e0\nlink set p1 up\nlink set e0 up\n";
    network.run_ip("a", &format!("{lines}{addresses}")).unwrap();
    network.run_ip("b", "addr add 10.9.0.2/24 dev e0\nlink set e0 up\n").unwrap();
    let pod_lines = "addr add 10.9.1.2/24 dev e0\nlink set e0 up\nroute add default via 10.9.1.1\n";
    network.run_ip("c", pod_lines).unwrap();
    let node_port = 30_080;
    let before = [
        format!("ip daddr {SERVICE} tcp dport {PORT} dnat to 10.9.0.2:{POD_PORT}"),
        format!("ip daddr 10.9.0.1 tcp dport {node_port} dnat to 10.9.1.2:{POD_PORT}"),
    ];
    let before =
        format!("chain before {{\ntype nat hook prerouting priority -100\n{}\n}}\n", before.join("\n"));
    let after = "chain after {\ntype nat hook postrouting priority 100\nmasquerade\n}\n";
    load_rules(&network, "a", &format!("table ip services {{\n{before}{after}}}\n"));
    let pair = NamespacePair::enter(network);

    let service = address(SERVICE, PORT);
    let ([sender, receiver], _out) =
        connect(pair.network(), ["c", "b"], service, address("10.9.0.2", POD_PORT));
    assert_eq!((sender.remote, receiver.remote.ip().to_string()), (service, "10.9.0.1".to_owned()));
    assert_eq!(peers(&[sender]), ["10.9.0.2"]);
    // The receiver's host knows the sender's host by its address.
    let at_receiver = pair.run_at_peer(move || peers(&[receiver])).join().unwrap();
    assert_eq!(at_receiver, ["10.9.0.1"]);

    let (pod_port, node) = (address("10.9.1.2", POD_PORT), address("10.9.0.1", node_port));
    let ([_, accepted], _in) = connect(pair.network(), ["b", "c"], node, pod_port);
    assert_eq!(
        (accepted.remote.ip().to_string(), peers(&[accepted])),
        ("10.9.1.1".to_owned(), vec!["10.9.0.2".to_owned()])
    );
}
