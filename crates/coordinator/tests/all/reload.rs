//! Tests of the reload of the configuration of a running coordinator.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use weir_proto::{FlowProgress, NEW_CONFIGURATION, Report, SenderState};

use crate::api::{CONFIG, EventStream, TestServer, get, get_text, put, send_json_request};
use crate::joins::Agent;

const GIGABIT: u64 = 125_000_000;

/// Overwrites the configuration file, and lets the coordinator reload it.
fn reload(server: &TestServer, change: impl Fn(String) -> String) -> (u16, Value) {
    fs::write(server.folder.path().join("serve.toml"), change(CONFIG.to_owned())).unwrap();
    send_json_request(server, "POST", "/v1/reload", b"")
}

fn with_host_d(text: String) -> String {
    text.replace("c = \"1Gbit\"\n", "c = \"2Gbit\"\nd = \"1Gbit\"\n")
}

fn epoch(server: &TestServer) -> u64 {
    metric(server, "weir_epoch").parse().unwrap()
}

fn metric(server: &TestServer, name: &str) -> String {
    let (status, text) = get_text(server, "/metrics");
    assert_eq!(status, 200);
    text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap().to_owned()
}

fn flow(from: &str, to: &str) -> Value {
    json!({ "from": from, "to": to, "bytes": 1_000_000_000 })
}

#[test]
fn reload_adds_hosts_and_weights_and_keeps_coflows_and_the_progress_of_their_flows() {
    let server = TestServer::start();
    let registered = put(&server, "/v1/coflows/x", &json!({ "flows": [flow("a", "b"), flow("b", "c")] }));
    assert_eq!(registered.0, 200, "{registered:?}");
    let mut agent = Agent::connect(server.agents, "a", GIGABIT, &[]).unwrap();
    let first = agent.next_order((0, 0));
    let progress = vec![FlowProgress::new(first.flows[0].0.clone(), 20_000, SenderState::Ready)];
    let applied = (first.epoch, first.seq);
    let second = agent.next_order_after(&Report { applied, flows: progress.clone(), ..Report::default() });
    assert_eq!(second.epoch, server.epoch);
    let mut events = EventStream::open(&server);

    let (status, answer) = reload(&server, |text| {
        with_host_d(text).replace("applications = [\"sort\"]", "applications = [\"sort\"]\nweight = 3")
    });
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["applied"], true);
    let lines: Vec<&str> =
        answer["difference"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    for expected in ["- host      c: 1Gbit", "+ host      c: 2Gbit", "+ host      d: 1Gbit"] {
        assert!(lines.contains(&expected), "{lines:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("+ service   ads: weight 3")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("host      a")), "{lines:?}");

    // The agent has to connect again, and the next epoch has the flow and its bytes.
    assert_eq!(agent.final_status().message(), NEW_CONFIGURATION);
    assert_eq!(epoch(&server), server.epoch + 1);
    let mut agent = Agent::connect(server.agents, "a", GIGABIT, &[]).unwrap();
    let applied = (second.epoch, second.seq);
    let order = agent.next_order_after(&Report { applied, flows: progress, ..Report::default() });
    assert_eq!((order.epoch, order.is_full, order.flows.len()), (server.epoch + 1, true, 1));
    let coflow = get(&server, "/v1/coflows/x").1;
    assert!(coflow["flows"][0]["sent_bytes"].as_f64().unwrap() >= 20_000.0, "{coflow}");
    let registered = put(&server, "/v1/coflows/y", &json!({ "flows": [flow("a", "d")] }));
    assert_eq!(registered.0, 200, "{registered:?}");
    let services = get(&server, "/v1/services").1;
    assert_eq!(services[1]["weight"], 3.0, "{services}");
    // Streams of events end with the former configuration: the last chunk is empty.
    assert_eq!(events.next_with_prefix("0"), "");
}

#[test]
fn reload_that_is_refused_changes_nothing() {
    let server = TestServer::start();
    let registered = put(&server, "/v1/coflows/x", &json!({ "service": "ads", "flows": [flow("a", "c")] }));
    assert_eq!(registered.0, 200, "{registered:?}");
    type Change = fn(String) -> String;
    let cases: [(Change, u16, &str); 5] = [
        (
            |text| text.replace("c = \"1Gbit\"", "c = \"1Gbyte\""),
            422,
            "serve.toml:13: field `host c`: `\"1Gbyte\"`",
        ),
        (
            |text| text.replace("c = \"1Gbit\"\n", ""),
            409,
            "registered objects do not fit the configuration: coflow `x`: /flows/0/to: `c` is invalid",
        ),
        (
            |text| text.replace("[service.ads]\napplications = [\"sort\"]", ""),
            409,
            "coflow `x`: /service: `ads` is invalid",
        ),
        (|text| text.replace("api = \"127.0.0.1:0\"", "api = \"127.0.0.1:1\""), 422, "`listen` has changed"),
        (|text| text.replace("\"weir.redb\"", "\"other.redb\""), 422, "`store` has changed"),
    ];
    for (change, expected_status, expected) in cases {
        let (status, problem) = reload(&server, change);
        assert_eq!(status, expected_status, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(expected), "{detail}");
        assert_eq!(metric(&server, "weir_reload_successful"), "0");
    }
    assert_eq!(epoch(&server), server.epoch);
    assert_eq!(get(&server, "/v1/hosts").1.as_array().unwrap().len(), 3);
    // Changes have not stopped.
    assert_eq!(put(&server, "/v1/coflows/y", &json!({ "flows": [flow("a", "c")] })).0, 200);

    // Without the coflows, the host can leave.
    for id in ["x", "y"] {
        assert_eq!(send_json_request(&server, "DELETE", &format!("/v1/coflows/{id}"), b"").0, 204);
    }
    let (status, answer) = reload(&server, |text| text.replace("c = \"1Gbit\"\n", ""));
    assert_eq!((status, &answer["difference"]), (200, &json!(["- host      c: 1Gbit"])));
    assert_eq!(metric(&server, "weir_reload_successful"), "1");
    assert_eq!(get(&server, "/v1/hosts").1.as_array().unwrap().len(), 2);
}

#[test]
fn check_shows_the_difference_and_changes_nothing() {
    let server = TestServer::start();
    fs::write(server.folder.path().join("serve.toml"), with_host_d(CONFIG.to_owned())).unwrap();
    let (status, answer) = send_json_request(&server, "POST", "/v1/reload?check=true", b"");
    let difference = ["- host      c: 1Gbit", "+ host      c: 2Gbit", "+ host      d: 1Gbit"];
    assert_eq!((status, answer), (200, json!({ "applied": false, "difference": difference })));
    assert_eq!(epoch(&server), server.epoch);
    assert_eq!(get(&server, "/v1/hosts").1.as_array().unwrap().len(), 3);
}

/// The rule by which `node-1` joins, with the networks that it allows.
fn join_rule(network: &str) -> String {
    format!("[[join]]\nnames = \"node-*\"\nnetworks = [\"{network}\"]\nmax-rate = \"1Gbit\"\nmax-hosts = 2\n")
}

#[test]
fn hosts_that_have_joined_fit_the_next_configuration_or_the_reload_is_refused() {
    let text = format!("{CONFIG}{}", join_rule("10.0.0.0/16"));
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text.clone());
    let agent = Agent::connect(server.agents, "node-1", GIGABIT, &["10.0.1.1"]).unwrap();
    let (status, problem) = reload(&server, |text| text + &join_rule("10.1.0.0/16"));
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 409 && detail.contains("host `node-1`") && detail.contains("10.0.1.1"), "{detail}");
    let (status, problem) =
        reload(&server, |text| text + "[address]\na = [\"10.0.1.0/24\"]\n" + &join_rule("10.0.0.0/16"));
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 409 && detail.contains("host `node-1`"), "{detail}");
    // A configuration may list the host from now on.
    let listed = |text: String| text.replace("[host]\n", "[host]\nnode-1 = \"1Gbit\"\n");
    let (status, answer) = reload(&server, listed);
    assert_eq!(status, 200, "{answer}");
    let hosts = get(&server, "/v1/hosts").1;
    assert!(hosts.as_array().unwrap().iter().any(|host| host["name"] == "node-1"), "{hosts}");
    drop(agent);
}

#[test]
fn limits_of_hosts_survive_a_reload_that_renumbers_them() {
    let server = TestServer::start();
    let limit = json!({ "owner": "profiler", "fraction": 0.25, "lease": "60s" });
    assert_eq!(put(&server, "/v1/hosts/b/bandwidth", &limit).0, 200);
    let (status, answer) = reload(&server, |text| text.replace("[host]\n", "[host]\naa = \"1Gbit\"\n"));
    assert_eq!(status, 200, "{answer}");
    let hosts = get(&server, "/v1/hosts").1;
    let limited: Vec<&Value> = hosts
        .as_array()
        .unwrap()
        .iter()
        .filter(|host| !host["bandwidth_fraction"].is_null())
        .map(|host| &host["name"])
        .collect();
    assert_eq!(limited, ["b"], "{hosts}");
}

#[test]
fn acknowledged_requests_survive_reloads_at_the_same_time() {
    let server = TestServer::start();
    let (is_done, count, mut reloads) = (AtomicBool::new(false), AtomicUsize::new(0), 0);
    let acknowledged: Vec<String> = thread::scope(|scope| {
        let client = |client: usize| {
            let (server, is_done, count) = (&server, &is_done, &count);
            scope.spawn(move || {
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                    let id = format!("c{client}-{number}");
                    match put(server, &format!("/v1/coflows/{id}"), &json!({ "flows": [flow("a", "b")] })) {
                        (200, _) => {
                            count.fetch_add(1, Ordering::Relaxed);
                            acknowledged.push(id);
                        }
                        (503, problem) => {
                            let detail = problem["detail"].as_str().unwrap();
                            assert!(detail.contains("another configuration"), "{detail}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
                acknowledged
            })
        };
        let clients: Vec<_> = (0..4).map(client).collect();
        while reloads < 6 || count.load(Ordering::Relaxed) < 40 {
            let change = if reloads % 2 == 0 { with_host_d } else { |text| text };
            let (status, answer) = reload(&server, change);
            assert_eq!(status, 200, "{answer}");
            reloads += 1;
        }
        is_done.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(epoch(&server), server.epoch + reloads);
    for id in acknowledged {
        assert_eq!(get(&server, &format!("/v1/coflows/{id}")).0, 200, "{id}");
    }
}
