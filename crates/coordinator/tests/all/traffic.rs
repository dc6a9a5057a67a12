//! Tests of the traffic of applications: from the API and the store to the orders of hosts.

use std::time::Duration;

use crate::api::{CONFIG, TIMEOUT, TestServer, get, put, send_json_request};
use crate::certificates::Authority;
use crate::roles::SecureServer;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use weir_proto::{ApplicationTraffic, Order, Report};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn with_service_queues(text: &str) -> String {
    text.replace("policy =", "queues = \"services\"\npolicy =")
}

fn start_server() -> TestServer {
    TestServer::start_with(tempfile::tempdir().unwrap(), with_service_queues(CONFIG))
}

/// The stream of a host's orders.
struct Host {
    number: u32,
    orders: mpsc::Receiver<Order>,
    applied: (u64, u64),
}

impl Host {
    fn connect(server: &TestServer, number: u32) -> Host {
        let orders = block_on(server.registry().handle().subscribe_to_orders(number)).unwrap().unwrap();
        Host { number, orders, applied: (0, 0) }
    }

    /// The traffic of the next order that sets it, which the host confirms. Orders are accepted as by an agent.
    fn next_traffic(&mut self, server: &TestServer) -> (bool, Vec<ApplicationTraffic>) {
        block_on(async {
            loop {
                let report = Report { applied: self.applied, ..Report::default() };
                server.registry().handle().report(self.number, report).await.unwrap();
                let order = tokio::time::timeout(TIMEOUT, self.orders.recv()).await.unwrap().unwrap();
                self.applied = (order.epoch, order.seq);
                if order.is_full || order.traffic.is_some() {
                    return (order.is_full, order.traffic.unwrap_or_default());
                }
            }
        })
    }

    /// Whether an order sets traffic within some intervals.
    fn has_order_with_traffic(&mut self) -> bool {
        block_on(async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            std::iter::from_fn(|| self.orders.try_recv().ok()).any(|order| order.traffic.is_some())
        })
    }
}

fn entry(application: &str, cgroups: &[&str], ports: &[u16]) -> ApplicationTraffic {
    let cgroups = cgroups.iter().map(|&path| path.to_owned()).collect();
    ApplicationTraffic { application: application.into(), cgroups, ports: ports.to_vec() }
}

fn put_traffic(server: &TestServer, id: &str, traffic: Value) -> (u16, Value) {
    put(server, &format!("/v1/applications/{id}"), &json!({ "service": "ads", "traffic": traffic }))
}

#[test]
fn hosts_receive_traffic_of_applications_until_they_are_deregistered() {
    let mut server = start_server();
    let [mut a, mut b] = [0, 1].map(|number| Host::connect(&server, number));
    assert_eq!([&mut a, &mut b].map(|host| host.next_traffic(&server)), [(true, vec![]), (true, vec![])]);

    let batch = json!({ "cgroups": ["system.slice/job-*.service"], "slices": ["batch-sort.slice"], "pods": ["2f0e-7a50"] });
    let (status, answer) = put_traffic(&server, "batch", batch.clone());
    assert_eq!((status, &answer["traffic"]), (200, &batch));
    let cgroups = ["system.slice/job-*.service", "batch.slice/batch-sort.slice", "pod:2f0e-7a50"];
    let batch_entry = || entry("batch", &cgroups, &[]);
    assert_eq!(
        [&mut a, &mut b].map(|host| host.next_traffic(&server)),
        [(); 2].map(|()| (false, vec![batch_entry()]))
    );

    // Only some hosts. Others get no order.
    assert_eq!(put_traffic(&server, "web", json!({ "ports": [8080, 53], "hosts": ["b"] })).0, 200);
    assert_eq!(b.next_traffic(&server), (false, vec![batch_entry(), entry("web", &[], &[8080, 53])]));
    assert!(!a.has_order_with_traffic());
    // A framework repeats its registration without traffic, which stays.
    let (status, answer) = put(&server, "/v1/applications/web", &json!({ "service": "ads" }));
    assert_eq!((status, &answer["traffic"]["hosts"]), (200, &json!(["b"])));
    assert!(!b.has_order_with_traffic());

    // A restarted coordinator has it in the store, and a host that connects again gets all of it.
    server.restart(|text| text);
    let [mut a, mut b] = [0, 1].map(|number| Host::connect(&server, number));
    assert_eq!(a.next_traffic(&server), (true, vec![batch_entry()]));
    assert_eq!(b.next_traffic(&server), (true, vec![batch_entry(), entry("web", &[], &[8080, 53])]));

    // Another traffic replaces it, and an empty one removes it.
    assert_eq!(put_traffic(&server, "batch", json!({ "cgroups": ["batch"] })).0, 200);
    assert_eq!(a.next_traffic(&server), (false, vec![entry("batch", &["batch"], &[])]));
    let (status, answer) = put_traffic(&server, "batch", json!({}));
    assert_eq!((status, answer.get("traffic")), (200, None));
    assert_eq!(a.next_traffic(&server), (false, vec![]));
    assert_eq!(b.next_traffic(&server).1.len(), 2);
    assert_eq!(b.next_traffic(&server).1, [entry("web", &[], &[8080, 53])]);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/applications/web", b"").0, 204);
    assert_eq!(b.next_traffic(&server), (false, vec![]));
}

/// Only an operator could correct the stored traffic, not the framework that repeats its registration.
#[test]
fn repeated_registration_keeps_traffic_of_removed_hosts() {
    let mut server = start_server();
    let traffic = json!({ "ports": [53], "hosts": ["b", "c"] });
    assert_eq!(put_traffic(&server, "web", traffic.clone()).0, 200);
    server.restart(|text| text.replace("c = \"1Gbit\"\n", ""));
    let (status, answer) = put(&server, "/v1/applications/web", &json!({ "service": "ads" }));
    assert_eq!((status, &answer["traffic"]), (200, &traffic), "{answer}");
    let (status, problem) = put_traffic(&server, "web", traffic);
    assert_eq!((status, problem["pointer"].as_str()), (422, Some("/traffic/hosts/1")), "{problem}");
}

#[test]
fn invalid_traffic_is_refused_with_the_position_of_its_error() {
    let server = start_server();
    let too_many: Vec<u16> = (1..=257).collect();
    for (traffic, status, pointer) in [
        (json!({ "cgroups": ["ok", "../x"] }), 422, Some("/traffic/cgroups/1")),
        (json!({ "cgroups": [""] }), 422, Some("/traffic/cgroups/0")),
        (json!({ "cgroups": ["/"] }), 422, Some("/traffic/cgroups/0")),
        (json!({ "slices": ["-.slice"] }), 422, Some("/traffic/slices/0")),
        (json!({ "slices": ["web.service"] }), 422, Some("/traffic/slices/0")),
        (json!({ "pods": ["ok", "Web"] }), 422, Some("/traffic/pods/1")),
        (json!({ "ports": [0] }), 422, Some("/traffic/ports/0")),
        (json!({ "ports": [70_000] }), 422, Some("/traffic/ports/0")),
        (json!({ "ports": [80], "hosts": [] }), 422, Some("/traffic/hosts")),
        (json!({ "ports": [80], "hosts": ["a", "z"] }), 422, Some("/traffic/hosts/1")),
        (json!({ "port": 80 }), 422, Some("/traffic/port")),
        (json!({ "ports": too_many }), 429, None),
    ] {
        let (answer_status, problem) = put_traffic(&server, "web", traffic.clone());
        assert_eq!((answer_status, problem["pointer"].as_str()), (status, pointer), "{traffic}: {problem}");
    }
    assert_eq!(get(&server, "/v1/applications").1, json!([]));
    // The limit is that of all applications.
    let ports = |from: u16| json!({ "ports": (from..from + 200).collect::<Vec<u16>>() });
    assert_eq!(put_traffic(&server, "one", ports(1)).0, 200);
    let (status, problem) = put_traffic(&server, "two", ports(1000));
    assert_eq!(status, 429, "{problem}");
    // A replacement counts once.
    assert_eq!(put_traffic(&server, "one", ports(500)).0, 200);
}

/// It claims packets of other programs.
#[test]
fn only_operators_set_traffic() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.write_server_files(folder.path());
    let server = SecureServer::start_with_config(authority, folder, &with_service_queues(CONFIG));
    let [framework, operator] =
        ["weir://framework/ads", "weir://operator/ann"].map(|name| server.client_with_identity(name));
    let plain = json!({ "service": "ads" }).to_string();
    let claim = json!({ "service": "ads", "traffic": { "slices": ["user.slice"] } }).to_string();
    let none = json!({ "service": "ads", "traffic": {} }).to_string();
    let path = "/v1/applications/web";
    for (client, body, status) in [
        (&framework, &claim, 403),
        (&framework, &plain, 200),
        (&framework, &claim, 403),
        (&operator, &claim, 200),
        // Its registration stays valid, and it cannot remove the traffic.
        (&framework, &plain, 200),
        (&framework, &none, 403),
    ] {
        let (answer_status, text) = server.request(client, "PUT", path, body).unwrap();
        assert_eq!(answer_status, status, "{body}: {text}");
    }
    let (_, text) = server.request(&framework, "GET", path, "").unwrap();
    let application: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(application["traffic"]["slices"], json!(["user.slice"]), "{text}");
}
