//! Tests of hosts that join by the rules of the configuration and leave, over the streams of agents and the API.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{AgentMessage, CoordinatorMessage, coordinator_message::Body};
use weir_proto::{Network, Order, Report};

use weir_agent::live::endpoint::CoordinatorEndpoint;

use crate::certificates::Authority;
use crate::expiry::write_agent_files;
use crate::roles::SecureServer;

use crate::api::{CONFIG, EventStream, TIMEOUT, TestServer, get, put, send_json_request};

const GIGABIT: u64 = 125_000_000;

/// The hosts `a`, `b` and `c`, of which `a` has an address, and two hosts that may join.
const RULE: &str = "[address]\na = [\"10.0.0.1\"]\n[[join]]\nnames = \"node-*\"\nnetworks = [\"10.0.0.0/16\", \"fd00::/8\"]\n\
                    max-rate = \"1Gbit\"\nmax-hosts = 2\n";

fn start_server() -> TestServer {
    TestServer::start_with(tempfile::tempdir().unwrap(), format!("{CONFIG}{RULE}"))
}

/// The stream of an agent. Its coordinator keeps it for 5 s without a report.
pub struct Agent {
    runtime: Runtime,
    reports: mpsc::Sender<AgentMessage>,
    orders: Streaming<CoordinatorMessage>,
    pub number: u32,
}

impl Agent {
    /// Connects the agent of a host with a rate, and with addresses and networks.
    pub fn connect(agents: SocketAddr, name: &str, rate: u64, addresses: &[&str]) -> Result<Agent, Status> {
        let addresses: Vec<Network> =
            addresses.iter().map(|text| Network::parse_short(text).unwrap()).collect();
        Agent::open(agents, AgentMessage::hello(name, vec![rate], &addresses))
    }

    /// Connects the agent of a host with these labels.
    fn connect_labelled(agents: SocketAddr, name: &str, labels: &[(&str, &str)]) -> Result<Agent, Status> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Agent::open(agents, AgentMessage::hello(name, vec![GIGABIT], &[]).with_labels(&labels))
    }

    fn open(agents: SocketAddr, hello: AgentMessage) -> Result<Agent, Status> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opened: Result<_, Status> = runtime.block_on(async {
            let channel = Endpoint::from_shared(format!("http://{agents}")).unwrap().connect().await.unwrap();
            let (reports, receiver) = mpsc::channel(1);
            reports.send(hello).await.unwrap();
            let answer = ControlClient::new(channel).stream_orders(ReceiverStream::new(receiver)).await?;
            let mut orders = answer.into_inner();
            let Some(Body::Welcome(welcome)) = orders.message().await?.and_then(|message| message.body)
            else {
                panic!("the first message is a welcome")
            };
            Ok((reports, orders, welcome.number))
        });
        let (reports, orders, number) = opened?;
        Ok(Agent { runtime, reports, orders, number })
    }

    /// Reports that the host has received these orders, and returns the next one.
    pub fn next_order(&mut self, applied: (u64, u64)) -> Order {
        self.next_order_after(&Report { applied, ..Report::default() })
    }

    /// Sends a report, and returns the next order.
    pub fn next_order_after(&mut self, report: &Report) -> Order {
        let Agent { runtime, reports, orders, .. } = self;
        runtime.block_on(async {
            reports.send(AgentMessage::report(report)).await.unwrap();
            let message = tokio::time::timeout(TIMEOUT, orders.message()).await.unwrap().unwrap().unwrap();
            match message.body {
                Some(Body::Order(order)) => Order::try_from(order).unwrap(),
                other => panic!("{other:?}"),
            }
        })
    }

    /// The status with which the stream ends.
    pub fn final_status(&mut self) -> Status {
        self.runtime.block_on(async {
            loop {
                match tokio::time::timeout(TIMEOUT, self.orders.message()).await.unwrap() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("the stream ended without a status"),
                    Err(status) => return status,
                }
            }
        })
    }
}

fn refusal(server: &TestServer, name: &str, rate: u64, addresses: &[&str]) -> (Code, String) {
    let status = Agent::connect(server.agents, name, rate, addresses).err().unwrap();
    (status.code(), status.message().to_owned())
}

fn host(server: &TestServer, name: &str) -> Option<Value> {
    let hosts = get(server, "/v1/hosts").1;
    hosts.as_array().unwrap().iter().find(|host| host["name"] == name).cloned()
}

fn delete(server: &TestServer, path: &str) -> (u16, Value) {
    send_json_request(server, "DELETE", path, b"")
}

fn coflow_to(host: &str) -> Value {
    json!({ "flows": [{ "from": "a", "to": host, "bytes": 1_000_000 }] })
}

#[test]
fn host_joins_takes_part_in_a_coflow_and_is_removed() {
    let server = start_server();
    let mut events = EventStream::open(&server);
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_to("node-1")).0, 422);
    assert_eq!(get(&server, "/v1/hosts").1.as_array().unwrap().len(), 3);
    let mut agent = Agent::connect(server.agents, "node-1", GIGABIT, &["10.0.1.1", "fd00::1"]).unwrap();
    assert_eq!(agent.number, 3);
    while !events.next_with_prefix("data: ").contains("host-joined") {}
    let joined = host(&server, "node-1").unwrap();
    assert_eq!(joined["joined"], true);
    assert_eq!(joined["addresses"], json!(["10.0.1.1", "fd00::1"]));
    assert_eq!(joined["send_bytes_per_second"].as_f64(), Some(GIGABIT as f64));
    assert_eq!(host(&server, "a").unwrap()["joined"], false);
    // The next agent of the host states a lower rate.
    drop(agent);
    agent = Agent::connect(server.agents, "node-1", GIGABIT / 2, &["10.0.1.1"]).unwrap();
    let changed = host(&server, "node-1").unwrap();
    assert_eq!(changed["send_bytes_per_second"].as_f64(), Some((GIGABIT / 2) as f64));

    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_to("node-1")).0, 200);
    // The flow leaves `a` at the rate at which it can arrive.
    let mut sender = Agent::connect(server.agents, "a", GIGABIT, &[]).unwrap();
    let mut order = sender.next_order((0, 0));
    assert_eq!(order.flows.len(), 1, "{order:?}");
    order = agent.next_order((0, 0));
    assert!(order.is_full);

    let conflict = |path: &str, text: &str| {
        let (status, problem) = delete(&server, path);
        assert!(status == 409 && problem["detail"].as_str().unwrap().contains(text), "{problem}");
    };
    conflict("/v1/hosts/a", "host `a` is in the configuration file; expected a host that has joined");
    conflict("/v1/hosts/node-1", "host `node-1` has flows of the active coflow `c1`; expected none");
    assert_eq!(delete(&server, "/v1/hosts/node-2").0, 404);
    assert_eq!(delete(&server, "/v1/coflows/c1").0, 204);
    assert_eq!(delete(&server, "/v1/hosts/node-1").0, 204);
    assert_eq!(agent.final_status().code(), Code::Aborted);
    while !events.next_with_prefix("data: ").contains("host-removed") {}
    assert_eq!(host(&server, "node-1"), None);
    assert_eq!(put(&server, "/v1/coflows/c2", &coflow_to("node-1")).0, 422);
    // Its slot and its address are free again. An order has a higher number than those that the agents have seen.
    let mut next = Agent::connect(server.agents, "node-2", GIGABIT, &["10.0.1.1"]).unwrap();
    assert_eq!(next.number, 3);
    assert!(next.next_order((0, 0)).seq > order.seq);
}

/// Hosts of the same rule, one with the network of its pods.
#[test]
fn networks_of_hosts_that_join_do_not_overlap() {
    let rule = RULE.replace("\"10.0.0.0/16\"", "\"10.0.0.0/16\", \"10.244.0.0/16\"");
    let mut server = TestServer::start_with(tempfile::tempdir().unwrap(), format!("{CONFIG}{rule}"));
    let _first = Agent::connect(server.agents, "node-1", GIGABIT, &["10.244.1.0/24", "10.0.1.1"]).unwrap();
    let addresses = json!(["10.0.1.1", "10.244.1.0/24"]);
    assert_eq!(host(&server, "node-1").unwrap()["addresses"], addresses);
    for (network, owner) in [
        ("10.244.1.0/24", "node-1"),
        ("10.244.1.7", "node-1"),
        ("10.244.1.128/25", "node-1"),
        ("10.244.0.0/16", "node-1"),
        ("10.0.0.0/24", "a"),
    ] {
        let (code, message) = refusal(&server, "node-2", GIGABIT, &[network]);
        assert_eq!(code, Code::AlreadyExists, "{message}");
        let expected = format!("host `node-2`: its address {network} is that of host `{owner}`; expected");
        assert!(message.starts_with(&expected), "{message}");
    }
    // Operators see the last one at its owner.
    let conflicts = |name: &str| host(&server, name).unwrap()["conflicts"].clone();
    let claim = "10.0.0.0/24: also claimed by host node-2, which was refused";
    assert_eq!((conflicts("a"), conflicts("node-1")), (json!([claim]), json!([])));
    let (code, message) = refusal(&server, "node-2", GIGABIT, &["10.0.0.0/8"]);
    assert_eq!(code, Code::FailedPrecondition, "{message}");
    let _second = Agent::connect(server.agents, "node-2", GIGABIT, &["10.244.2.0/24"]).unwrap();
    assert_eq!(conflicts("a"), json!([]));
    // The next coordinator has the networks in its store.
    drop((_first, _second));
    server.restart(|text| text);
    assert_eq!(host(&server, "node-1").unwrap()["addresses"], addresses);
    assert_eq!(host(&server, "node-2").unwrap()["addresses"], json!(["10.244.2.0/24"]));
}

#[test]
fn forced_removal_keeps_the_slot_while_a_coflow_names_the_host() {
    let server = start_server();
    let _first = Agent::connect(server.agents, "node-1", GIGABIT, &["10.0.1.1"]).unwrap();
    let second = Agent::connect(server.agents, "node-2", GIGABIT, &["10.0.1.2"]).unwrap();
    assert_eq!(second.number, 4);
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_to("node-1")).0, 200);
    assert_eq!(delete(&server, "/v1/hosts/node-1?force=true").0, 204);
    assert_eq!(host(&server, "node-1"), None);
    assert_eq!(get(&server, "/v1/coflows/c1").1["flows"][0]["to"], "node-1");
    // A repeated registration is the same one.
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_to("node-1")).0, 200);
    let (code, message) = refusal(&server, "node-3", GIGABIT, &[]);
    assert_eq!(code, Code::ResourceExhausted, "{message}");
    assert_eq!(delete(&server, "/v1/coflows/c1").0, 204);
    let end = Instant::now() + TIMEOUT;
    let third = loop {
        match Agent::connect(server.agents, "node-3", GIGABIT, &["10.0.1.1"]) {
            Ok(agent) => break agent,
            Err(status) => {
                assert!(status.code() == Code::ResourceExhausted && Instant::now() < end, "{status}")
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(third.number, 3);
}

#[test]
fn pause_belongs_to_the_name_of_a_host_that_leaves_and_joins_again() {
    let server = start_server();
    let join = |name: &str| Agent::connect(server.agents, name, GIGABIT, &[]).unwrap().number;
    let pause = |name: &str| host(&server, name).unwrap()["pause"].clone();
    assert_eq!(join("node-1"), 3);
    assert_eq!(put(&server, "/v1/pause", &json!({ "mode": "paused", "hosts": ["node-1"] })).0, 204);
    assert_eq!(pause("node-1"), "paused");
    assert_eq!(delete(&server, "/v1/hosts/node-1").0, 204);
    // Another host has the slot.
    assert_eq!(join("node-2"), 3);
    assert_eq!(pause("node-2"), Value::Null);
    assert_eq!(join("node-1"), 4);
    assert_eq!((pause("node-1"), pause("node-2")), (json!("paused"), Value::Null));
    // A pause of all is also one of hosts that join later.
    assert_eq!(put(&server, "/v1/pause", &json!({ "mode": "shadow", "all": true })).0, 204);
    assert_eq!(delete(&server, "/v1/hosts/node-2").0, 204);
    assert_eq!(join("node-3"), 3);
    assert_eq!(pause("node-3"), "shadow");
}

#[test]
fn hosts_that_break_a_rule_are_refused_with_the_expected_value() {
    let server = start_server();
    let refused = |name, rate, addresses: &[&str], expected: (Code, &str)| {
        let (code, message) = refusal(&server, name, rate, addresses);
        assert!(code == expected.0 && message.contains(expected.1), "{code:?} {message}");
    };
    refused(
        "other",
        GIGABIT,
        &[],
        (Code::NotFound, "`other` is not a host or switch of the configuration; expected a, b, c, node-*"),
    );
    let rate = "host `node-1`: rate 2Gbit of its options; expected at most 1Gbit, the `max-rate` of `[[join]]` for node-*";
    refused("node-1", 2 * GIGABIT, &[], (Code::FailedPrecondition, rate));
    refused("node-1", 0, &[], (Code::FailedPrecondition, "rate 0bit of its options"));
    let network =
        "its address 10.1.0.1 is not allowed; expected addresses and networks in 10.0.0.0/16, fd00::/8";
    refused("node-1", GIGABIT, &["10.0.1.1", "10.1.0.1"], (Code::FailedPrecondition, network));
    let taken = "host `node-1`: its address 10.0.0.1 is that of host `a`; expected addresses and networks that no other host has";
    refused("node-1", GIGABIT, &["10.0.0.1"], (Code::AlreadyExists, taken));
    assert_eq!(host(&server, "node-1"), None);

    let _first = Agent::connect(server.agents, "node-1", GIGABIT, &["10.0.1.1"]).unwrap();
    refused("node-2", GIGABIT, &["10.0.1.1"], (Code::AlreadyExists, "is that of host `node-1`"));
    assert_eq!(host(&server, "node-1").unwrap()["addresses"], json!(["10.0.1.1"]));
    // A refused claim of the first host leaves its rate unchanged.
    refused("node-1", 2 * GIGABIT, &["10.0.1.1"], (Code::FailedPrecondition, "rate 2Gbit"));
    assert_eq!(host(&server, "node-1").unwrap()["send_bytes_per_second"].as_f64(), Some(GIGABIT as f64));
    let _second = Agent::connect(server.agents, "node-2", GIGABIT, &[]).unwrap();
    refused(
        "node-3",
        GIGABIT,
        &[],
        (Code::ResourceExhausted, "2 hosts have joined by the rule for node-*; expected fewer"),
    );
}

#[tokio::test]
async fn certificate_decides_the_name_of_a_host_that_joins() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.write_server_files(folder.path());
    let server = SecureServer::start_with_config(authority, folder, &format!("{CONFIG}{RULE}"));
    let (address, folder) =
        (format!("localhost:{}", server.server().agents.port()), tempfile::tempdir().unwrap());
    let open = async |certified: &str, name: &str| {
        let pair = server.authority().client_certificate(&[&format!("weir://agent/{certified}")]);
        let [certificate, key, authority] = write_agent_files(&folder, &pair, server.authority());
        let endpoint = CoordinatorEndpoint::new(&address, Some([&certificate, &key, &authority])).unwrap();
        let mut control = ControlClient::new(endpoint.current().connect_lazy());
        let (reports, receiver) = mpsc::channel(1);
        reports.send(AgentMessage::hello(name, vec![GIGABIT], &[])).await.unwrap();
        control
            .stream_orders(ReceiverStream::new(receiver))
            .await
            .map(|answer| (reports, answer.into_inner()))
    };
    let claims_other_name = open("node-1", "node-2").await.err().unwrap();
    assert_eq!(claims_other_name.code(), Code::PermissionDenied, "{claims_other_name}");
    // Also the name of a host of the configuration, whose certificate it does not have.
    assert_eq!(open("node-1", "a").await.err().unwrap().code(), Code::PermissionDenied);
    // The port closes connections of names that no rule lets join.
    assert!(open("other", "node-1").await.is_err());
    assert_eq!(server.server().registry().hosts().number("node-1"), None);
    let _joined = open("node-1", "node-1").await.unwrap();
    assert_eq!(server.server().registry().hosts().number("node-1"), Some(3));
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
}

#[test]
fn joined_hosts_and_their_coflows_survive_a_restart() {
    let mut server = start_server();
    let first = Agent::connect(server.agents, "node-1", GIGABIT, &["10.0.1.1"]).unwrap();
    let second = Agent::connect(server.agents, "node-2", GIGABIT / 4, &["10.0.1.2"]).unwrap();
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_to("node-2")).0, 200);
    drop(first);
    assert_eq!(delete(&server, "/v1/hosts/node-1").0, 204);
    let before = host(&server, "node-2").unwrap();
    server.restart(|text| text);
    let after = host(&server, "node-2").unwrap();
    for key in ["addresses", "send_bytes_per_second", "joined"] {
        assert_eq!(before[key], after[key]);
    }
    assert_eq!(get(&server, "/v1/coflows/c1").1["flows"][0]["to"], "node-2");
    let again = Agent::connect(server.agents, "node-2", GIGABIT / 4, &["10.0.1.2"]).unwrap();
    assert_eq!(again.number, second.number);
    drop((second, again));
    // Without a rule that lets it join, the host is gone.
    server.restart(|text| text.replace("node-*", "rack-*"));
    assert_eq!(host(&server, "node-2"), None);
    assert_eq!(get(&server, "/v1/coflows/c1").0, 404);
}

/// The host `a` under the leaf `l1`, and the leaf `l2` without hosts.
const LEAVES: &str = "weir-fabric = 1\nkind = \"links\"\nhosts = [\"a\"]\n\
    [[switch]]\nname = \"l1\"\ntier = 1\n[[switch]]\nname = \"l2\"\ntier = 1\n[[switch]]\nname = \"s\"\ntier = 2\n\
    [[link]]\nends = [\"a\", \"l1\"]\nrate = \"1Gbit\"\n[[link]]\nends = [\"l1\", \"s\"]\nrate = \"1Gbit\"\n\
    [[link]]\nends = [\"l2\", \"s\"]\nrate = \"1Gbit\"\n";

#[test]
fn label_tells_the_switch_of_a_host_that_joins_a_topology() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.toml"), LEAVES).unwrap();
    let (before, after) = CONFIG.split_once("[host]").unwrap();
    let (_, services) = after.split_once("[service.default]").unwrap();
    let before = before.replace("policy =", "topology = \"net.toml\"\npolicy =");
    let rule = RULE.replace("max-hosts = 2", "max-hosts = 2\nposition = \"rack\"");
    let mut server = TestServer::start_with(folder, format!("{before}[service.default]{services}{rule}"));
    let join = |server: &TestServer, name: &str, leaf: &str| {
        Agent::connect_labelled(server.agents, name, &[("rack", leaf), ("zone", "z")])
            .map(|agent| agent.number)
    };
    let refused = |joined: Result<u32, Status>, code: Code, text: &str| {
        let status = joined.unwrap_err();
        assert!(status.code() == code && status.message().contains(text), "{status}");
    };
    // The slots of `l1` are 1 and 2, those of `l2` are 3 and 4.
    assert_eq!(join(&server, "node-1", "l2").unwrap(), 3);
    assert_eq!(join(&server, "node-2", "l1").unwrap(), 1);
    assert_eq!(join(&server, "node-3", "l2").unwrap(), 4);
    refused(
        join(&server, "node-4", "l2"),
        Code::ResourceExhausted,
        "2 hosts have joined by the rule for node-* at l2; expected fewer",
    );
    refused(
        join(&server, "node-4", "s"),
        Code::FailedPrecondition,
        "host `node-4`: its label `rack` is `s`; expected one of the switches l1, l2",
    );
    let without = Agent::connect_labelled(server.agents, "node-4", &[("zone", "l1")]);
    refused(without.map(|agent| agent.number), Code::FailedPrecondition, "its label `rack` is missing");
    refused(
        join(&server, "node-1", "l1"),
        Code::FailedPrecondition,
        "its label tells the switch `l1`, and it has joined at `l2`; expected the same",
    );
    let position = |server: &TestServer, name: &str| host(server, name).unwrap()["position"].clone();
    assert_eq!((position(&server, "node-1"), position(&server, "node-2")), (json!("l2"), json!("l1")));
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_to("node-3")).0, 200);
    // The rule has more hosts for each leaf, so the slots of the second leaf move.
    server.restart(|text| text.replace("max-hosts = 2", "max-hosts = 3"));
    assert_eq!(join(&server, "node-1", "l2").unwrap(), 4);
    assert_eq!(join(&server, "node-3", "l2").unwrap(), 5);
    assert_eq!(join(&server, "node-4", "l2").unwrap(), 6);
    assert_eq!(join(&server, "node-2", "l1").unwrap(), 1);
    assert_eq!(get(&server, "/v1/coflows/c1").1["flows"][0]["to"], "node-3");
    // A host that has moved joins again after its removal.
    assert_eq!(delete(&server, "/v1/hosts/node-1").0, 204);
    assert_eq!(join(&server, "node-1", "l1").unwrap(), 2);
    assert_eq!(position(&server, "node-1"), "l1");
}
