//! Tests of relays' streams and of the overlay in the API, over loopback.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Status, Streaming};
use weir_coordinator::agents::{PeerInfo, ProvenPeer, Served};
use weir_coordinator::relays::relay_service;
use weir_proto::relay::wire::relay_control_client::RelayControlClient;
use weir_proto::relay::wire::{self, ControllerMessage, RelayMessage, controller_message, relay_message};
use weir_proto::relay::{
    GroupProgress, MAX_RELAY_REPORT_BYTES, PathSample, RelayHello, RelayOrder, RelayReport, RelayWelcome,
};

use crate::api::{EventStream, TestServer, get, get_text, put, send_json_request};

/// A coordinator without hosts, with one relay in each of two regions.
pub const CONFIG: &str = r#"weir-serve = 1
store = "weir.redb"

[listen]
agents = "127.0.0.1:0"
api = "127.0.0.1:0"

[overlay]
policy = "siphon:detours=on:groups=on"

[overlay.relay]
eu-1 = { region = "eu", address = "10.1.0.2:7710", networks = ["10.1.0.0/16"] }
us-1 = { region = "us", address = "10.2.0.2:7710", networks = ["10.2.0.0/16"] }

[overlay.link]
eu = { us = "80Mbit" }
us = { eu = "80Mbit" }
"#;

fn start_server() -> TestServer {
    TestServer::start_with(tempfile::tempdir().unwrap(), CONFIG.to_owned())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        timeout(Duration::from_secs(30), future).await.expect("the test ends within 30 s")
    })
}

/// A relay's end of a stream.
struct RelayStream {
    sender: mpsc::Sender<RelayMessage>,
    receiver: Streaming<ControllerMessage>,
}

impl RelayStream {
    async fn open(address: std::net::SocketAddr, first: RelayMessage) -> Result<RelayStream, Status> {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        RelayStream::open_with(RelayControlClient::new(channel), first).await
    }

    async fn open_with(
        mut client: RelayControlClient<Channel>,
        first: RelayMessage,
    ) -> Result<RelayStream, Status> {
        let (sender, messages) = mpsc::channel(1);
        sender.send(first).await.unwrap();
        let receiver = client.stream_relay_orders(ReceiverStream::new(messages)).await?.into_inner();
        Ok(RelayStream { sender, receiver })
    }

    /// Opens the stream of a relay, and reads the welcome.
    async fn connect(server: &TestServer, name: &str, id: u16) -> RelayStream {
        let hello = RelayMessage::from(&RelayHello::new(name));
        let mut stream = RelayStream::open(server.agents, hello).await.unwrap();
        let Some(controller_message::Body::Welcome(welcome)) = stream.next_message().await.unwrap() else {
            panic!("the first message is a welcome")
        };
        let report_interval = Duration::from_millis(100);
        assert_eq!(RelayWelcome::try_from(welcome), Ok(RelayWelcome { id, report_interval, version: 1 }));
        stream
    }

    async fn next_message(&mut self) -> Result<Option<controller_message::Body>, Status> {
        Ok(self.receiver.message().await?.and_then(|message| message.body))
    }

    async fn next_order(&mut self) -> RelayOrder {
        match self.next_message().await.unwrap().unwrap() {
            controller_message::Body::Order(order) => order.try_into().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn send(&self, report: &RelayReport) {
        self.sender.send(report.into()).await.unwrap();
    }

    /// Sends a report, and waits until the coordinator has it.
    async fn send_and_await_arrival(&self, server: &TestServer, relay: u16) {
        let registry = server.registry();
        let last_report_at = || registry.overlay().unwrap().call(|overlay, _| overlay.last_report_at(relay));
        let before = last_report_at();
        self.send(&RelayReport::default()).await;
        while last_report_at() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn final_code(&mut self) -> Code {
        loop {
            match self.next_message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    }
}

/// Bytes from eu-1 to us-1 that receivers have acknowledged. A quarter took a detour.
fn progress(coflow: u32, acked_bytes: u64) -> RelayReport {
    let detoured_bytes = acked_bytes / 4;
    let group =
        GroupProgress { coflow, source: 0, destination: 1, acked_bytes, open_flows: 0, detoured_bytes };
    RelayReport { groups: vec![group], ..RelayReport::default() }
}

fn coflow() -> Value {
    let flow = |to: &str| json!({ "from": "10.1.0.7", "to": to, "bytes": 5_000_000 });
    json!({ "flows": [flow("10.2.0.8"), flow("us")] })
}

#[test]
fn coflow_between_regions_is_ordered_measured_and_kept_over_a_restart() {
    let mut server = start_server();
    let mut events = EventStream::open(&server);
    let answer = json!({ "id": "c1", "service": "default", "application": "default", "flows": 2 });
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow()), (200, answer.clone()));
    let order = block_on(async {
        let mut relay = RelayStream::connect(&server, "eu-1", 0).await;
        let mut order = relay.next_order().await;
        assert!(order.is_full && order.peers.len() == 2 && order.coflows[0].name.as_ref() == "c1");
        // The decision may follow in the next order.
        if order.rules.is_empty() {
            order = relay.next_order().await;
        }
        // Two receivers are two flow groups, and flows of equal groups are served in the order of the registration. Other flows are last.
        assert_eq!(order.rules.iter().map(|rule| rule.priority).collect::<Vec<_>>(), [1, 0, 1]);
        let path = PathSample {
            peer: 1,
            is_connected: true,
            rate: Some(9_000_000),
            sent_bytes: 7,
            ..PathSample::default()
        };
        let applied = (order.epoch, order.seq);
        let paths = vec![PathSample {
            min_rtt: Some(Duration::from_millis(40)),
            segments: 4,
            retransmitted_segments: 1,
            ..path
        }];
        relay.send(&RelayReport { applied, paths, ..progress(0, 4_000_000) }).await;
        relay.next_order().await
    });
    let (_, state) = get(&server, "/v1/coflows/c1");
    assert_eq!(
        (&state["flows"][0]["sent_bytes"], &state["flows"][1]["from"]),
        (&json!(2e6), &json!("10.1.0.7"))
    );
    assert_eq!(state["detoured_bytes"], 1_000_000);
    assert!((state["predicted_seconds"].as_f64().unwrap() - 1.0).abs() < 0.9, "{state}");
    let (_, relays) = get(&server, "/v1/relays");
    assert_eq!((&relays[0]["name"], &relays[0]["rules"]), (&json!("eu-1"), &json!(3)));
    assert_eq!(relays[1]["present"], false);
    let (_, routes) = get(&server, "/v1/routes?limit=1");
    let route = json!({ "coflow": "c1", "from": "eu", "to": "us", "priority": 0, "via": [], "bytes": 10_000_000,
        "acked_bytes": 4_000_000, "detoured_bytes": 1_000_000, "open_flows": 0 });
    assert_eq!(routes, json!({ "routes": [route], "next": "c1" }));
    let (_, paths) = get(&server, "/v1/paths");
    let path = &paths[0];
    assert_eq!((&path["to_region"], &path["retransmitted"]), (&json!("us"), &json!(0.25)));
    assert_eq!((&path["bytes_per_second"], &path["min_rtt_seconds"]), (&json!(9_000_000), &json!(0.04)));
    let (_, metrics) = get_text(&server, "/metrics");
    for line in [
        "weir_relays 2",
        "weir_wan_sent_bytes_total{from=\"eu\",to=\"us\"} 7",
        "weir_relay_rules{relay=\"eu-1\"} 3",
        "weir_relay_omitted_rules{relay=\"eu-1\"} 0",
        "weir_relay_report_age_seconds{relay=\"eu-1\"}",
    ] {
        assert!(metrics.contains(line), "`{line}` in\n{metrics}");
    }
    while !events.next_with_prefix("data: ").contains("relay-connected") {}
    drop(events);
    let predicted = state["predicted_seconds"].clone();
    // The estimate is written to the store after the event.
    std::thread::sleep(Duration::from_millis(300));
    server.restart(|text| text);
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow()), (200, answer));
    let mut events = EventStream::open(&server);
    block_on(async {
        let mut relay = RelayStream::connect(&server, "eu-1", 0).await;
        let next = relay.next_order().await;
        assert!(next.is_full && next.epoch > order.epoch && next.coflows[0].number == 0);
        relay.send(&progress(0, 10_000_000)).await;
        relay.next_order().await
    });
    while !events.next_with_prefix("data: ").contains("coflow-completed") {}
    drop(events);
    let (_, list) = get(&server, "/v1/coflows");
    let [summary] = &list["coflows"].as_array().unwrap()[..] else { panic!("{list}") };
    assert_eq!((&summary["done"], &summary["predicted_seconds"]), (&json!(2), &predicted));
    assert!(summary["measured_seconds"].as_f64().unwrap() > 0.3, "{summary}");
    server.restart(|text| text);
    assert_eq!(get(&server, "/v1/coflows").1["coflows"], json!([]));
}

#[test]
fn measured_bandwidths_are_kept_over_a_restart() {
    let mut server = start_server();
    let rates = |server: &TestServer| -> Vec<f64> {
        let history = server.registry().overlay().unwrap().call(|overlay, _| overlay.history());
        history.seconds_per_byte(0).iter().map(|seconds| (1.0 / seconds).round()).collect()
    };
    let path = PathSample { peer: 1, is_connected: true, rate: Some(9_000_000), ..PathSample::default() };
    let report = RelayReport { paths: vec![path], ..RelayReport::default() };
    block_on(async {
        let relay = RelayStream::connect(&server, "eu-1", 0).await;
        while rates(&server).len() < 3 {
            relay.send(&report).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    server.restart(|text| text);
    assert_eq!(rates(&server), [9e6, 9e6, 10e6]);
    // Another configured bandwidth replaces the measurements.
    server.restart(|text| text.replace("{ us = \"80Mbit\"", "{ us = \"800Mbit\""));
    assert_eq!(rates(&server), [100e6]);
    server.restart(|text| text.replace("{ us = \"800Mbit\"", "{ us = \"80Mbit\""));
    assert_eq!(rates(&server), [9e6, 9e6, 10e6]);
    // A region that the configuration no longer has.
    server.restart(|text| {
        text.replace("\"eu\"", "\"ue\"").replace("eu = {", "ue = {").replace("{ eu =", "{ ue =")
    });
    assert_eq!(rates(&server), [10e6]);
    server.restart(|text| {
        text.replace("\"ue\"", "\"eu\"").replace("ue = {", "eu = {").replace("{ ue =", "{ eu =")
    });
    assert_eq!(rates(&server), [9e6, 9e6, 10e6]);
}

#[test]
fn addresses_of_names_are_kept_over_a_restart() {
    let text = CONFIG.replace("10.1.0.2:7710", "eu-1.invalid:7710");
    let mut server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    let resolved = |server: &TestServer| {
        let (_, relays) = get(server, "/v1/relays");
        (relays[0]["resolved"].clone(), relays[1]["resolved"].clone())
    };
    assert_eq!(resolved(&server), (Value::Null, Value::Null));
    let address = "10.1.0.9:7710".parse().unwrap();
    server.registry().overlay().unwrap().call(|overlay, _| overlay.set_address(0, address));
    assert_eq!(resolved(&server), (json!("10.1.0.9:7710"), Value::Null));
    server.restart(|text| text);
    assert_eq!(resolved(&server), (json!("10.1.0.9:7710"), Value::Null));
    // Another name has another address.
    server.restart(|text| text.replace("eu-1.invalid", "eu-2.invalid"));
    assert_eq!(resolved(&server), (Value::Null, Value::Null));
}

#[test]
fn coflows_of_hosts_and_of_regions_share_one_list_of_ids() {
    let text = format!("policy = \"saath\"\n{CONFIG}[host]\na = \"1Gbit\"\nb = \"1Gbit\"\n");
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    let local = json!({ "flows": [{ "from": "a", "to": "b", "bytes": 1 }] });
    for (id, body) in [("a", &local), ("b", &coflow()), ("c", &local), ("d", &coflow())] {
        assert_eq!(put(&server, &format!("/v1/coflows/{id}"), body).0, 200);
    }
    assert_eq!(put(&server, "/v1/coflows/a", &coflow()).0, 409);
    assert_eq!(put(&server, "/v1/coflows/b", &local).0, 409);
    let (mut path, mut ids) = ("/v1/coflows?limit=3".to_owned(), Vec::new());
    loop {
        let (_, page) = get(&server, &path);
        ids.extend(page["coflows"].as_array().unwrap().iter().map(|coflow| coflow["id"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/coflows?limit=3&after={next}");
    }
    assert_eq!(ids, ["a", "b", "c", "d"]);
    assert_eq!(put(&server, "/v1/coflows/b/flows", &coflow()["flows"]).0, 204);
    for id in ["a", "b"] {
        assert_eq!(send_json_request(&server, "DELETE", &format!("/v1/coflows/{id}"), b"").0, 204);
        assert_eq!(get(&server, &format!("/v1/coflows/{id}")).0, 404);
    }
}

fn delete(server: &TestServer, path: &str) -> (u16, Value) {
    send_json_request(server, "DELETE", path, b"")
}

#[test]
fn failed_coflow_stays_visible_with_its_reason_until_it_is_registered_again() {
    let mut server = start_server();
    let fail = "/v1/coflows/c1?failed=direct:%20lost%20(2%20flows)";
    assert_eq!(delete(&server, fail).0, 404);
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow()).0, 200);
    assert_eq!(get(&server, "/v1/coflows/c1").1["state"], "active");
    assert_eq!(delete(&server, fail).0, 204);
    // A repeated request changes nothing.
    assert_eq!(delete(&server, "/v1/coflows/c1?failed=other").0, 204);
    let (_, state) = get(&server, "/v1/coflows/c1");
    assert_eq!(
        (&state["state"], &state["reason"], &state["completed"]),
        (&json!("failed"), &json!("direct: lost (2 flows)"), &json!(false))
    );
    let [flow] = &state["flows"].as_array().unwrap()[..] else { panic!("{state}") };
    assert_eq!(
        (&flow["from"], &flow["to"], &flow["bytes"], &flow["sent_bytes"]),
        (&json!("eu"), &json!("us"), &json!(1e7), &json!(0.0))
    );
    let (_, list) = get(&server, "/v1/coflows");
    let [summary] = &list["coflows"].as_array().unwrap()[..] else { panic!("{list}") };
    assert_eq!(
        (&summary["state"], &summary["reason"], &summary["flows"], &summary["done"]),
        (&json!("failed"), &json!("direct: lost (2 flows)"), &json!(2), &json!(0))
    );
    assert_eq!(get(&server, "/v1/coflows?after=c1").1["coflows"], json!([]));
    assert_eq!(get(&server, "/v1/routes").1["routes"], json!([]));
    assert_eq!(put(&server, "/v1/coflows/c1/flows", &coflow()["flows"]).0, 404);
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow()).0, 200);
    let (_, state) = get(&server, "/v1/coflows/c1");
    assert_eq!((&state["state"], &state["reason"]), (&json!("active"), &Value::Null));
    assert_eq!(delete(&server, "/v1/coflows/c1").0, 204);
    assert_eq!(get(&server, "/v1/coflows/c1").0, 404);
    for id in ["c1", "c2"] {
        assert_eq!(put(&server, &format!("/v1/coflows/{id}"), &coflow()).0, 200);
        assert_eq!(delete(&server, &format!("/v1/coflows/{id}?failed=lost")).0, 204);
    }
    assert_eq!(delete(&server, "/v1/coflows/c1").0, 204);
    assert_eq!(get(&server, "/v1/coflows").1["coflows"][0]["id"], "c2");
    server.restart(|text| text);
    assert_eq!(get(&server, "/v1/coflows").1["coflows"], json!([]));
}

#[test]
fn completed_coflow_does_not_become_failed() {
    let server = start_server();
    for id in ["c0", "c1"] {
        assert_eq!(put(&server, &format!("/v1/coflows/{id}"), &coflow()).0, 200);
    }
    let state = |id: &str| get(&server, &format!("/v1/coflows/{id}")).1;
    block_on(async {
        let relay = RelayStream::connect(&server, "eu-1", 0).await;
        relay.send(&progress(0, 10_000_000)).await;
        while state("c0")["state"] != "completed" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for id in ["c0", "c0", "c1", "c1"] {
        assert_eq!(delete(&server, &format!("/v1/coflows/{id}?failed=lost")).0, 204);
    }
    let completed = state("c0");
    assert_eq!((&completed["state"], &completed["reason"]), (&json!("completed"), &Value::Null));
    assert!(completed["measured_seconds"].is_number(), "{completed}");
    assert_eq!(state("c1")["state"], "failed");
    let (_, metrics) = get_text(&server, "/metrics");
    assert!(metrics.contains("weir_wan_coflows_failed_total 1\n"), "{metrics}");
    assert_eq!(delete(&server, "/v1/coflows/c0").0, 204);
    assert_eq!(get(&server, "/v1/coflows/c0").0, 404);
}

#[test]
fn failed_coflow_is_in_the_audit_log_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let text = format!("audit = \"audit.jsonl\"\n{CONFIG}");
    let server = TestServer::start_with(folder, text);
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow()).0, 200);
    assert_eq!(delete(&server, "/v1/coflows/c1?failed=lost").0, 204);
    server.registry().audit().flush(Duration::from_secs(10));
    let entries = std::fs::read_to_string(file).unwrap();
    let entries: Vec<Value> = entries.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = entries.last().unwrap();
    assert_eq!(
        (&last["action"], &last["before"]["flows"], &last["after"]),
        (&json!("deregister_coflow"), &json!(2), &json!({ "failed": "lost" }))
    );
}

#[test]
fn invalid_failures_leave_the_coflow_active() {
    let text = format!("policy = \"saath\"\n{CONFIG}[host]\na = \"1Gbit\"\nb = \"1Gbit\"\n");
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    let local = json!({ "flows": [{ "from": "a", "to": "b", "bytes": 1 }] });
    assert_eq!(put(&server, "/v1/coflows/hosts", &local).0, 200);
    assert_eq!(put(&server, "/v1/coflows/regions", &coflow()).0, 200);
    let long = "x".repeat(201);
    for (id, reason, expected) in [
        ("regions", "", "1 to 200 printable ASCII characters"),
        ("regions", &*long, "1 to 200 printable ASCII characters"),
        ("regions", "a%0Ab", "1 to 200 printable ASCII characters"),
        ("regions", "%C3%A4", "1 to 200 printable ASCII characters"),
        ("hosts", "lost", "no value, since the coflow is not between regions"),
    ] {
        let (status, problem) = delete(&server, &format!("/v1/coflows/{id}?failed={reason}"));
        assert_eq!((status, &problem["parameter"]), (422, &json!("failed")), "{problem}");
        assert_eq!(problem["expected"], expected);
        assert_eq!(get(&server, &format!("/v1/coflows/{id}")).1["state"], "active");
    }
    assert_eq!(delete(&server, "/v1/coflows/regions?reason=lost").0, 422);
    assert_eq!(delete(&server, &format!("/v1/coflows/regions?failed={}", &long[1..])).0, 204);
}

#[test]
fn invalid_coflows_between_regions_name_the_field() {
    let server = start_server();
    let body = |key: &str, value: Value| {
        let mut body = coflow();
        match key {
            "from" | "to" | "bytes" | "numbers" => body["flows"][1][key] = value,
            _ => body[key] = value,
        }
        body
    };
    let local = json!([{ "from": "eu", "to": "10.1.0.9", "bytes": 1 }]);
    for (body, pointer) in [
        (body("from", json!("10.3.0.1")), "/flows/1/from"),
        (body("to", json!("us-1")), "/flows/1/to"),
        (body("numbers", json!([2, 1])), "/flows/1/numbers"),
        (body("numbers", json!([0, 7])), "/flows/1/numbers"),
        (body("bytes", Value::Null), "/flows/1/bytes"),
        (body("weight", json!(2)), "/weight"),
        (body("deadline", json!("1s")), "/deadline"),
        (body("service", json!("ads")), "/service"),
        (body("flows", local), "/flows"),
        (body("flows", json!([])), "/flows"),
    ] {
        let (status, problem) = put(&server, "/v1/coflows/c1", &body);
        assert_eq!((status, &problem["pointer"]), (422, &json!(pointer)), "{problem}");
    }
    let detail = &put(&server, "/v1/coflows/c1", &body("bytes", Value::Null)).1["detail"];
    assert!(
        detail.as_str().unwrap().starts_with("/flows/1/bytes: `nothing` is invalid; expected `bytes`"),
        "{detail}"
    );
    assert_eq!(get(&server, "/v1/coflows").1["coflows"], json!([]));
}

#[test]
fn invalid_hellos_and_reports_end_the_stream_of_a_relay() {
    let server = start_server();
    block_on(async {
        let address = server.agents;
        let code = |first: RelayMessage| async move {
            RelayStream::open(address, first).await.err().unwrap().code()
        };
        assert_eq!(code((&RelayHello::new("eu-2")).into()).await, Code::NotFound);
        assert_eq!(code((&RelayHello::new("")).into()).await, Code::InvalidArgument);
        assert_eq!(code((&RelayReport::default()).into()).await, Code::InvalidArgument);
        assert_eq!(code(RelayMessage { body: None }).await, Code::InvalidArgument);
        let newer = RelayHello { min_version: 2, max_version: 3, ..RelayHello::new("eu-1") };
        assert_eq!(code((&newer).into()).await, Code::FailedPrecondition);
        let group = wire::GroupProgress { source: 65_536, ..wire::GroupProgress::default() };
        let malformed = wire::RelayReport { groups: vec![group], ..wire::RelayReport::default() };
        let long = wire::RelayReport {
            groups: vec![wire::GroupProgress { acked_bytes: u64::MAX, ..group }; MAX_RELAY_REPORT_BYTES / 8],
            ..wire::RelayReport::default()
        };
        for (report, code) in [(malformed, Code::InvalidArgument), (long, Code::OutOfRange)] {
            let mut relay = RelayStream::connect(&server, "eu-1", 0).await;
            let body = Some(relay_message::Body::Report(report));
            relay.sender.send(RelayMessage { body }).await.unwrap();
            assert_eq!(relay.final_code().await, code);
        }
    });
}

#[test]
fn second_relay_of_a_name_is_refused_while_the_first_one_reports() {
    let server = start_server();
    block_on(async {
        let mut first = RelayStream::connect(&server, "eu-1", 0).await;
        assert!(first.next_order().await.is_full);
        let hello = || RelayMessage::from(&RelayHello::new("eu-1"));
        for _ in 0..15 {
            let reported_at = Instant::now();
            first.send_and_await_arrival(&server, 0).await;
            let Err(refused) = RelayStream::open(server.agents, hello()).await else {
                // The machine was so busy that the first relay counts as silent.
                assert!(reported_at.elapsed() > Duration::from_secs(1));
                break;
            };
            assert_eq!(refused.code(), Code::AlreadyExists);
            let message = refused.message();
            let begin = "another relay named eu-1 is connected from 127.0.0.1:";
            assert!(message.starts_with(begin), "{message}");
            assert!(message.ends_with("; help: give each relay its own --name"), "{message}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The first relay is silent, so a restarted relay takes its place.
        tokio::time::sleep(Duration::from_millis(1200)).await;
        let mut second = RelayStream::connect(&server, "eu-1", 0).await;
        assert_eq!(first.final_code().await, Code::Aborted);
        assert!(second.next_order().await.is_full);
        // The connection of the second relay ends with it. The reports in its name show that it is not replaced because of silence.
        drop(second);
        let report = || {
            server
                .registry()
                .overlay()
                .unwrap()
                .call(|overlay, now| overlay.report(0, &RelayReport::default(), now))
        };
        report();
        while RelayStream::open(server.agents, hello()).await.is_err() {
            report();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// A relay or agent with a proven identity can open no stream but its own.
#[test]
fn proven_relay_opens_only_its_own_stream() {
    let server = start_server();
    block_on(async {
        for (proven, allowed) in [
            (ProvenPeer::Relay("eu-1".to_owned()), true),
            (ProvenPeer::Relay("eu-2".to_owned()), false),
            (ProvenPeer::Agent("eu-1".to_owned()), false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let peer = PeerInfo { address: ([127, 0, 0, 1], 1).into(), proven: Some(proven) };
            let inserted = peer.clone();
            let add_identity = move |mut request: Request<()>| {
                request.extensions_mut().insert(inserted.clone());
                Ok(request)
            };
            let registry = server.registry();
            let (handle, overlay) = (registry.handle().clone(), registry.overlay().cloned());
            let served = Served { handle, overlay, registry: None };
            let service = InterceptedService::new(relay_service(watch::channel(served).1), add_identity);
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            tokio::spawn(Server::builder().serve_with_incoming(service, incoming));
            let opened = RelayStream::open(address, (&RelayHello::new("eu-1")).into()).await;
            let code = opened.err().map(|status| status.code());
            assert_eq!(code, (!allowed).then_some(Code::PermissionDenied), "{peer:?}");
        }
    });
}
