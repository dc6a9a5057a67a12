//! Tests of the API over sockets on loopback, without TLS; `roles.rs` tests with certificates.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::api::{TIMEOUT, TestServer, get, get_text, put, send_json_request, send_raw};
use serde_json::{Value, json};
use weir_proto::{
    Demand, FlowKey, FlowProgress, ObservedConnections, Queues, RefusedOrders, Report, SenderState,
    UnclassifiedShare,
};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn send_report(server: &TestServer, host: u32, report: Report) {
    block_on(server.registry().handle().report(host, report)).unwrap();
}

/// The generation of a registered coflow.
fn generation(server: &TestServer, id: &str) -> u64 {
    block_on(server.registry().coflow(id)).unwrap().registration.generation
}

fn coflow_body(to: &str) -> Value {
    json!({ "flows": [{ "from": "a", "to": to, "bytes": 1_000_000 }, { "from": "b", "to": to }] })
}

#[test]
fn repeated_put_is_idempotent_and_another_body_gets_409() {
    let server = TestServer::start();
    let first = put(&server, "/v1/coflows/c1", &coflow_body("c"));
    assert_eq!(first.0, 200);
    assert_eq!(first.1, json!({ "id": "c1", "service": "default", "application": "default", "flows": 2 }));
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_body("c")), first);
    let (status, problem) = put(&server, "/v1/coflows/c1", &coflow_body("b"));
    assert_eq!((status, problem["status"].as_u64()), (409, Some(409)));
    let (status, coflow) = get(&server, "/v1/coflows/c1");
    assert_eq!((status, coflow["completed"].as_bool()), (200, Some(false)));
    assert_eq!(coflow["flows"][0]["bytes"], json!(1e6));
    assert_eq!(coflow["flows"][1]["bytes"], Value::Null);
    // Tasks move to other hosts.
    let moved = json!([{ "from": "b", "to": "c", "bytes": 5 }]);
    assert_eq!(put(&server, "/v1/coflows/c1/flows", &moved).0, 204);
    assert_eq!(put(&server, "/v1/coflows/c1/flows", &moved).0, 204);
    assert_eq!(get(&server, "/v1/coflows/c1").1["flows"][0]["from"], "b");
    assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c1", b"").0, 204);
    for (method, path) in [
        ("GET", "/v1/coflows/c1"),
        ("DELETE", "/v1/coflows/c1"),
        ("GET", "/v1/nothing"),
        ("GET", "/v1/coflows/%00"),
    ] {
        assert_eq!(send_json_request(&server, method, path, b"").0, 404, "{method} {path}");
    }
    assert_eq!(
        send_json_request(&server, "PUT", "/v1/coflows/c1/flows", moved.to_string().as_bytes()).0,
        404
    );
    assert_eq!(send_json_request(&server, "POST", "/v1/coflows/c1", b"").0, 405);
}

/// A client that did not receive the first answer registers again, which must not restart a completed coflow.
#[test]
fn completed_coflows_are_not_restarted() {
    let mut server = TestServer::start();
    let mut events = crate::api::EventStream::open(&server);
    let first = put(&server, "/v1/coflows/c1", &coflow_body("c"));
    let generation = generation(&server, "c1");
    for host in 0..2 {
        let key = FlowKey { coflow: "c1".into(), generation, flow: host };
        let progress = FlowProgress::new(key, 5, SenderState::Completed);
        let report = Report { flows: vec![progress], ..Report::default() };
        send_report(&server, host, report);
    }
    // The server sends this event after it has removed the coflow from the store.
    while !events.next_with_prefix("data: ").contains("coflow-completed") {}
    drop(events);
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_body("c")), first);
    assert_eq!(get(&server, "/v1/coflows/c1").1["completed"], true);
    server.restart(|text| text);
    assert_eq!(get(&server, "/v1/coflows").1["coflows"], json!([]));
}

/// The bytes of a removed coflow do not count for the next one with its id, also after restarts of the coordinator.
#[test]
fn coflow_registered_again_starts_without_bytes_of_the_former_one() {
    let mut server = TestServer::start();
    let mut former = Vec::new();
    for _ in 0..3 {
        assert_eq!(put(&server, "/v1/coflows/c1", &coflow_body("c")).0, 200);
        let registered = generation(&server, "c1");
        server.restart(|text| text);
        assert_eq!(generation(&server, "c1"), registered);
        assert!(former.iter().all(|&former| former < registered), "{registered} after {former:?}");
        // The agent still has a socket of each former registration.
        let progress = |&generation| {
            FlowProgress::new(
                FlowKey { coflow: "c1".into(), generation, flow: 0 },
                1_000_000,
                SenderState::Completed,
            )
        };
        let flows = former.iter().map(progress).collect();
        send_report(&server, 0, Report { flows, ..Report::default() });
        let flow = &get(&server, "/v1/coflows/c1").1["flows"][0];
        assert_eq!((&flow["sent_bytes"], &flow["done"]), (&json!(0.0), &json!(false)));
        let (_, metrics) = get_text(&server, "/metrics");
        let rejected = former.len();
        former.push(registered);
        let expected =
            format!("weir_report_entries_rejected_total{{reason=\"former-generation\"}} {rejected}\n");
        assert!(metrics.contains(&expected), "{metrics}");
        assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c1", b"").0, 204);
    }
}

/// The first answer may get lost, and the framework may update the coflow before it registers again.
#[test]
fn first_body_is_accepted_after_an_update() {
    let mut server = TestServer::start();
    let body_with_flows = |flows: Value| json!({ "weight": 0.1, "deadline": "0.7s", "flows": flows });
    let (first, other) = (
        body_with_flows(coflow_body("c")["flows"].clone()),
        body_with_flows(coflow_body("b")["flows"].clone()),
    );
    let answer = put(&server, "/v1/coflows/c1", &first);
    assert_eq!(answer.0, 200);
    let mut moved = Value::Null;
    for from in ["b", "c"] {
        moved = json!([{ "from": from, "to": "a", "bytes": 5_000_000 }]);
        assert_eq!(put(&server, "/v1/coflows/c1/flows", &moved).0, 204);
    }
    for _ in 0..3 {
        assert_eq!(put(&server, "/v1/coflows/c1", &first), answer);
        assert_eq!(put(&server, "/v1/coflows/c1", &body_with_flows(moved.clone())).0, 200);
        assert_eq!(put(&server, "/v1/coflows/c1", &other).0, 409);
        let status = get(&server, "/v1/coflows/c1").1;
        let flows = status["flows"].as_array().unwrap();
        assert_eq!((flows.len(), &flows[0]["from"]), (1, &json!("c")), "{status}");
        server.restart(|text| text);
    }
    // After the coflow is removed, another coflow can use the id with another body.
    assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c1", b"").0, 204);
    assert_eq!(put(&server, "/v1/coflows/c1", &other).0, 200);
    server.restart(|text| text);
    assert_eq!(put(&server, "/v1/coflows/c1", &first).0, 409);
}

#[test]
fn coflows_are_listed_in_pages() {
    let server = TestServer::start();
    for n in 0..25 {
        assert_eq!(put(&server, &format!("/v1/coflows/c{n:02}"), &coflow_body("c")).0, 200);
    }
    let (mut path, mut ids, mut pages) = ("/v1/coflows?limit=10".to_owned(), Vec::new(), 0);
    loop {
        let (status, page) = get(&server, &path);
        assert_eq!(status, 200);
        ids.extend(page["coflows"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/coflows?limit=10&after={next}");
    }
    assert_eq!((pages, ids.len()), (3, 25));
    assert!(ids.is_sorted());
    for query in ["limit=0", "limit=1001", "limit=x", "from=1"] {
        let (status, problem) = get(&server, &format!("/v1/coflows?{query}"));
        assert_eq!(status, 422, "{query}: {problem}");
    }
}

#[test]
fn problems_name_the_field_by_its_json_pointer() {
    let server = TestServer::start();
    // `problems.rs` has more cases.
    let negative = "/flows/0/bytes: `-1` is invalid; expected a whole number";
    let numbers = "/flows/0/numbers: `[0, 9]` is invalid; expected no value, since the flow is between hosts";
    for (body, status, pointer, detail) in [
        ("{", 400, "", "request body is not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("", 400, "", "request body is not valid JSON: EOF while parsing a value at line 1 column 0"),
        (
            r#"{"flows": []} x"#,
            400,
            "",
            "request body is not valid JSON: trailing characters at line 1 column 15",
        ),
        ("5", 422, "", "request body: `5` is invalid; expected an object"),
        (r#"{"flows": [{"from": "a", "to": "b", "bytes": -1}]}"#, 422, "/flows/0/bytes", negative),
        (r#"{"flows": [{"from": "a", "to": "b", "numbers": [0, 9]}]}"#, 422, "/flows/0/numbers", numbers),
    ] {
        let (found, problem) = send_json_request(&server, "PUT", "/v1/coflows/c1", body.as_bytes());
        let found = (found, problem["pointer"].as_str(), problem["detail"].as_str());
        assert_eq!(found, (status, Some(pointer), Some(detail)), "{body}");
    }
    assert_eq!(put(&server, "/v1/coflows/c2", &coflow_body("b")).0, 200);
    let (status, problem) = put(&server, "/v1/coflows/c2/flows", &json!([{ "from": "a", "to": "x" }]));
    assert_eq!((status, problem["pointer"].as_str()), (422, Some("/0/to")), "{problem}");
    let (status, problem) = put(&server, "/v1/coflows/c2/flows", &json!({}));
    let detail = "request body: `map` is invalid; expected an array";
    assert_eq!((status, problem["detail"].as_str()), (422, Some(detail)));
    assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c2", b"").0, 204);
    let deep = "[".repeat(100_000);
    assert_eq!(send_json_request(&server, "PUT", "/v1/coflows/c1", deep.as_bytes()).0, 422);
    assert_eq!(send_json_request(&server, "PUT", "/v1/policy", deep.as_bytes()).0, 422);
    let deep = format!("{{\"flows\": {deep}");
    assert_eq!(send_json_request(&server, "PUT", "/v1/coflows/c1", deep.as_bytes()).0, 422);
    let (status, problem) = put(&server, &format!("/v1/coflows/{}", "x".repeat(129)), &coflow_body("c"));
    assert_eq!((status, problem["parameter"].as_str()), (422, Some("id")));
    assert_eq!(get(&server, "/v1/coflows").1["coflows"], json!([]));
}

#[test]
fn oversized_and_slow_requests_are_refused() {
    let server = TestServer::start();
    // The stated length is checked before the body is read.
    let head = "PUT /v1/coflows/c1 HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n";
    assert!(send_raw(&server, head.as_bytes()).starts_with("HTTP/1.1 413 "));
    // Without a stated length, the received length is checked.
    let mut chunked =
        b"PUT /v1/coflows/c1 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..25 {
        chunked.extend_from_slice(b"2000\r\n");
        chunked.extend(std::iter::repeat_n(b' ', 0x2000));
        chunked.extend_from_slice(b"\r\n");
    }
    assert!(send_raw(&server, &chunked).starts_with("HTTP/1.1 413 "));
    // A body that does not arrive.
    let head = "PUT /v1/coflows/c1 HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{";
    let impatient_server = TestServer::start_impatient();
    assert!(send_raw(&impatient_server, head.as_bytes()).starts_with("HTTP/1.1 408 "));
    // A head without an end.
    let head = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(100_000));
    assert!(send_raw(&server, head.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert_eq!(get(&server, "/livez").0, 200);
}

#[test]
fn changed_policy_reports_whether_weights_are_used() {
    let server = TestServer::start();
    assert_eq!(get(&server, "/v1/policy"), (200, json!({ "policy": "saath" })));
    put(&server, "/v1/coflows/c1", &coflow_body("c"));
    let weights_used = |server: &TestServer| get(server, "/v1/services").1[0]["weights_used"].clone();
    assert_eq!(weights_used(&server), false);
    assert_eq!(put(&server, "/v1/policy", &json!({ "policy": "netshare" })).0, 204);
    assert_eq!(weights_used(&server), true);
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": 3 })).0, 204);
    let services = get(&server, "/v1/services").1;
    let ads = services.as_array().unwrap().iter().find(|s| s["name"] == "ads").unwrap();
    assert_eq!((&ads["weight"], &ads["applications"]), (&json!(3.0), &json!(["default", "sort"])));
    assert_eq!(put(&server, "/v1/services/none", &json!({ "weight": 3 })).0, 404);
    for weight in [json!(0), json!(-1), json!(1e300), json!("1"), Value::Null] {
        assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": weight })).0, 422);
    }
    let tree = "weir-tree = 1\n[service.ads]\npolicy = \"saath\"\n[default]\npolicy = \"fair\"\n";
    assert_eq!(put(&server, "/v1/policy", &json!({ "tree": tree })).0, 204);
    assert_eq!(get(&server, "/v1/policy").1, json!({ "tree": tree }));
    // A coflow with a flow of unknown size is active.
    let (status, problem) = put(&server, "/v1/policy", &json!({ "policy": "varys" }));
    assert_eq!((status, problem["pointer"].as_str()), (422, Some("/policy")));
    for (body, line) in [
        (json!({ "policy": "none" }), None),
        (json!({ "tree": "weir-tree = 1\n[servic.x]\n" }), Some(2)),
        (
            json!({ "tree": "weir-tree = 1\n[default]\napplications = \"saba\"\nsensitivity = \"/etc/passwd\"\n" }),
            None,
        ),
        (json!({ "policy": "fair", "tree": "" }), None),
    ] {
        let (status, problem) = put(&server, "/v1/policy", &body);
        assert_eq!(status, 422, "{body}: {problem}");
        assert_eq!(problem["line"].as_u64(), line, "{problem}");
        assert!(!problem.to_string().contains("root:"), "{problem}");
    }
    assert_eq!(get(&server, "/v1/policy").1, json!({ "tree": tree }));
    assert_eq!(get(&server, "/v1/coflows/c1").0, 200);
}

const TABLE: &str = "version = 1\n[[application]]\nname = \"sort\"\ncoefficients = [5.0, -4.0]\n\
                     [[application]]\nname = \"scan\"\ncoefficients = [1.2, -0.2]\n";

/// One entry of `/v1/queues`.
fn queues_of<'a>(queues: &'a Value, host: &str, direction: &str) -> &'a Value {
    queues.as_array().unwrap().iter().find(|q| q["host"] == host && q["direction"] == direction).unwrap()
}

/// Queues of a host or switch in its first order after it connects, by link number.
fn ordered_queues(server: &TestServer, host: u32) -> Vec<(u32, Queues)> {
    let registry = server.registry();
    let order = block_on(async {
        let mut orders = registry.handle().subscribe_to_orders(host).await.unwrap().unwrap();
        registry.handle().report(host, Report::default()).await.unwrap();
        tokio::time::timeout(TIMEOUT, orders.recv()).await.unwrap().unwrap()
    });
    assert!(order.is_full);
    order.queues
}

fn first_ordered_queues(server: &TestServer, host: u32) -> Option<Queues> {
    ordered_queues(server, host).into_iter().map(|(_, queues)| queues).next()
}

/// Saba, section 6: register, create a connection, destroy the connection, deregister.
#[test]
fn applications_get_levels_and_links_get_queues() {
    let server = TestServer::start();
    let sort = json!({ "service": "ads", "model": "sort" });
    assert_eq!(put(&server, "/v1/applications/s1", &sort).0, 422);
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", b"version = 2").0, 422);
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", TABLE.as_bytes()).0, 204);
    let (status, first) = put(&server, "/v1/applications/s1", &sort);
    assert_eq!((status, first["level"].is_u64()), (200, true), "{first}");
    assert_eq!(put(&server, "/v1/applications/s1", &sort), (200, first.clone()));
    assert_eq!(put(&server, "/v1/applications/s1", &json!({ "service": "ads", "model": "scan" })).0, 409);
    let (_, second) = put(&server, "/v1/applications/s2", &json!({ "model": "scan" }));
    assert_ne!(second["level"], get(&server, "/v1/applications/s1").1["level"]);
    for (id, application, from) in [("x1", "s1", "a"), ("x2", "s2", "a"), ("x3", "s2", "b")] {
        let body = json!({ "application": application, "from": from, "to": "c" });
        let (status, open) = put(&server, &format!("/v1/connections/{id}"), &body);
        assert_eq!(status, 200, "{open}");
        assert_eq!(put(&server, &format!("/v1/connections/{id}"), &body), (200, open));
    }
    let queues = get(&server, "/v1/queues").1;
    let weights_of = |host: &str, direction: &str| queues_of(&queues, host, direction)["weights"].clone();
    // The more sensitive application gets the larger weight. An application alone on a link gets the whole link.
    let shared: Vec<f64> = serde_json::from_value(weights_of("a", "out")).unwrap();
    assert!((shared.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shared:?}");
    assert_eq!(shared.iter().filter(|weight| **weight > 0.0).count(), 2);
    let alone: Vec<f64> = serde_json::from_value(weights_of("b", "out")).unwrap();
    assert_eq!(alone.iter().copied().fold(0.0, f64::max), 1.0);
    // A connection counts in both directions.
    assert_eq!(weights_of("a", "in"), weights_of("a", "out"));
    assert_eq!(queues.as_array().unwrap().len(), 6);
    // Orders to sending hosts contain weights of empty queues, and the classes of all applications.
    let ordered = first_ordered_queues(&server, 0).unwrap();
    let min_weight = shared.iter().copied().filter(|&weight| weight > 0.0).fold(1.0, f64::min);
    let expected: Vec<f64> = shared.iter().map(|&weight| weight.max(min_weight)).collect();
    assert_eq!(ordered.weights, expected);
    // The mark of a packet is that of its level, and each port maps marks to its own queues.
    assert_eq!(json!(ordered.queue_of_class), queues_of(&queues, "a", "out")["queue_of"]);
    let class = |level: &Value| level.as_u64().unwrap() as u32 + 1;
    let s1 = get(&server, "/v1/applications/s1").1["level"].clone();
    assert_eq!(
        ordered.class_of_application,
        [("s1".into(), class(&s1)), ("s2".into(), class(&second["level"]))]
    );
    assert!(self::first_ordered_queues(&server, 2).is_some());
    // Objects in use cannot be removed.
    assert_eq!(send_json_request(&server, "DELETE", "/v1/applications/s1", b"").0, 409);
    let smaller_table = "version = 1\n[[application]]\nname = \"scan\"\ncoefficients = [1.2, -0.2]\n";
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", smaller_table.as_bytes()).0, 409);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/connections/x1", b"").0, 204);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/applications/s1", b"").0, 204);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/applications/s1", b"").0, 404);
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", smaller_table.as_bytes()).0, 204);
    let unknown = json!({ "application": "s1", "from": "a", "to": "c" });
    assert_eq!(put(&server, "/v1/connections/x9", &unknown).0, 404);
}

/// Appended to the services of the default test configuration.
const SWITCH: &str = "[switch]\nedge = [\"b\", \"c\"]\n[address]\nc = [\"10.0.0.3\"]\n";

/// The link into a host is a port of its switch, also for observed connections.
#[test]
fn orders_to_switches_carry_queues_of_links_into_hosts() {
    let mut server = TestServer::start();
    server.restart(|text| text + SWITCH);
    let state = &get(&server, "/v1/switches").1[0];
    assert_eq!(
        (&state["name"], &state["ports"], &state["present"]),
        (&json!("edge"), &json!(["b", "c"]), &json!(false))
    );
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", TABLE.as_bytes()).0, 204);
    for (id, model) in [("s1", "sort"), ("s2", "scan")] {
        assert_eq!(put(&server, &format!("/v1/applications/{id}"), &json!({ "model": model })).0, 200);
    }
    let body = json!({ "application": "s1", "from": "a", "to": "c" });
    assert_eq!(put(&server, "/v1/connections/x1", &body).0, 200);
    report_connection(&server, "s2");
    // Both connections end at host c.
    let both_queues_used = |queues: &Value| {
        let queues =
            queues.as_array().unwrap().iter().find(|q| q["host"] == "c" && q["direction"] == "in").cloned();
        queues.is_some_and(|q| q["weights"].as_array().unwrap().iter().filter(|w| **w != 0.0).count() == 2)
    };
    wait_for(&server, "/v1/queues", both_queues_used);
    let ordered = ordered_queues(&server, 3);
    let [(1, queues)] = &ordered[..] else { panic!("{ordered:?}") };
    assert!(queues.class_of_application.is_empty());
    assert_eq!(json!(queues.queue_of_class), queues_of(&get(&server, "/v1/queues").1, "c", "in")["queue_of"]);
    wait_for(&server, "/v1/switches", |switches| switches[0]["present"] == true);
}

/// Two leaves with two hosts each, and two spines. The switches' numbers follow the four hosts, in this order.
const LEAF_SPINE: &str = "[switch]\nleaf-1 = [\"a\", \"b\", \"spine-1\", \"spine-2\"]\n\
                          leaf-2 = [\"spine-1\", \"spine-2\", \"c\", \"d\"]\n\
                          spine-1 = [\"leaf-1\", \"leaf-2\"]\nspine-2 = [\"leaf-1\", \"leaf-2\"]\n\
                          [address]\nc = [\"10.0.0.3\"]\n";

fn leaf_spine(text: &str) -> String {
    text.replace("c = \"1Gbit\"\n", "c = \"1Gbit\"\nd = \"1Gbit\"\n") + LEAF_SPINE
}

/// Links of a switch for which its first order has queues, in order.
fn ordered_links(server: &TestServer, switch: u32) -> Vec<u32> {
    let ordered = ordered_queues(server, switch);
    assert!(ordered.iter().all(|(_, queues)| queues.class_of_application.is_empty()), "{ordered:?}");
    ordered.iter().map(|(link, _)| *link).collect()
}

/// Saba, section 5: at each link, the applications count whose connections can cross it.
#[test]
fn applications_count_on_switch_links_they_cross() {
    let mut server = TestServer::start();
    server.restart(|text| leaf_spine(&text));
    assert_eq!(get(&server, "/v1/switches").1[2]["ports"], json!(["leaf-1", "leaf-2"]));
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", TABLE.as_bytes()).0, 204);
    for (id, model) in [("inside", "sort"), ("across", "scan"), ("later", "sort")] {
        assert_eq!(put(&server, &format!("/v1/applications/{id}"), &json!({ "model": model })).0, 200);
    }
    for (id, application, to) in [("x1", "inside", "b"), ("x2", "across", "c")] {
        let body = json!({ "application": application, "from": "a", "to": to });
        assert_eq!(put(&server, &format!("/v1/connections/{id}"), &body).0, 200);
    }
    let directions = |queues: &Value| {
        let direction =
            |q: &Value| format!("{} {}", q["host"].as_str().unwrap(), q["direction"].as_str().unwrap());
        queues.as_array().unwrap().iter().map(direction).collect::<Vec<_>>()
    };
    // Packets of both directions cross links between the leaves.
    let leaves_and_spines =
        ["leaf-1", "leaf-2"].map(|leaf| ["spine-1", "spine-2"].map(|spine| format!("{leaf} to {spine}")));
    let spines_and_leaves =
        ["spine-1", "spine-2"].map(|spine| ["leaf-1", "leaf-2"].map(|leaf| format!("{spine} to {leaf}")));
    let crossed: Vec<String> = [leaves_and_spines, spines_and_leaves].as_flattened().as_flattened().to_vec();
    let at_hosts = ["a", "b", "c"].map(|host| ["out", "in"].map(|direction| format!("{host} {direction}")));
    let at_hosts = at_hosts.as_flattened();
    let queues = get(&server, "/v1/queues").1;
    assert_eq!(directions(&queues), [at_hosts, &crossed].concat());
    let used_queues = |queues: &Value, host: &str, direction: &str| {
        queues_of(queues, host, direction)["weights"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|w| **w != 0.0)
            .count()
    };
    // Both applications use the host's link out, and the one inside the leaf uses no link between switches.
    assert_eq!(used_queues(&queues, "a", "out"), 2);
    for link in &crossed {
        let (switch, direction) = link.split_once(' ').unwrap();
        assert_eq!(used_queues(&queues, switch, direction), 1, "{link}");
    }
    // Orders refer to ports by their index at the switch.
    let links_by_switch: Vec<Vec<u32>> = (4..8).map(|switch| ordered_links(&server, switch)).collect();
    assert_eq!(links_by_switch, [&[0, 1, 2, 3][..], &[0, 1, 2], &[0, 1], &[0, 1]]);
    // Observed connections count at these links as well, and connections of the store cross the same links.
    report_connection(&server, "later");
    wait_for(&server, "/v1/queues", |queues| used_queues(queues, "spine-2", "to leaf-2") == 2);
    server.restart(|text| text);
    assert_eq!(directions(&get(&server, "/v1/queues").1), [at_hosts, &crossed].concat());
    assert_eq!(ordered_links(&server, 6), [0, 1]);
    // After its connection is closed, the application does not count at the links.
    assert_eq!(send_json_request(&server, "DELETE", "/v1/connections/x2", b"").0, 204);
    assert_eq!(directions(&get(&server, "/v1/queues").1), ["a out", "a in", "b out", "b in"]);
}

/// Saba, 5.3.2: the number of queues differs by switch. All ports of a link group have the strictest limits of its switches.
#[test]
fn queues_and_minimum_weights_are_those_of_the_switch_of_a_port() {
    let mut server = TestServer::start();
    server.restart(|text| {
        leaf_spine(&text)
            .replace("leaf-1 = [\"a\"", "leaf-1 = { queues = 2, min-weight = 0.4, ports = [\"a\"")
            .replace("\"spine-2\"]\nleaf-2", "\"spine-2\"] }\nleaf-2")
            .replace(
                "spine-1 = [\"leaf-1\", \"leaf-2\"]",
                "spine-1 = { ports = [\"leaf-1\", \"leaf-2\"], queues = 4 }",
            )
            .replace(
                "spine-2 = [\"leaf-1\", \"leaf-2\"]",
                "spine-2 = { ports = [\"leaf-1\", \"leaf-2\"], min-weight = 0.1 }",
            )
    });
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", TABLE.as_bytes()).0, 204);
    for (id, model) in [("s1", "sort"), ("s2", "scan")] {
        assert_eq!(put(&server, &format!("/v1/applications/{id}"), &json!({ "model": model })).0, 200);
        for to in ["b", "c"] {
            let body = json!({ "application": id, "from": "a", "to": to });
            assert_eq!(put(&server, &format!("/v1/connections/{id}-{to}"), &body).0, 200);
        }
    }
    // Both models are lines, so the flatter one gets the minimum: a tenth of an even share, or that of a queue.
    let [eight, two, four] = [(8, 0.05), (2, 0.4), (4, 0.1)];
    let queues = get(&server, "/v1/queues").1;
    for (host, direction, (count, min)) in [
        ("a", "out", eight),
        ("b", "in", two),
        ("c", "in", eight),
        ("leaf-1", "to spine-1", two),
        ("leaf-1", "to spine-2", two),
        ("spine-1", "to leaf-2", four),
        ("spine-2", "to leaf-2", four),
    ] {
        let weights: Vec<f64> =
            serde_json::from_value(queues_of(&queues, host, direction)["weights"].clone()).unwrap();
        let mut expected = vec![0.0; count];
        (expected[0], expected[1]) = (1.0 - min, min);
        let is_near =
            weights.iter().zip(&expected).all(|(weight, expected)| (weight - expected).abs() < 1e-9);
        assert!(weights.len() == count && is_near, "{host} {direction}: {weights:?}");
    }
    // Unused queues have the smallest weight, and packets without a class borrow as one of the queues.
    let [(2, queues), (3, _)] = &ordered_queues(&server, 4)[2..] else { panic!("leaf-1") };
    assert_eq!((queues.weights.len(), queues.unclassified.weight), (2, 0.5));
    let [_, (1, queues)] = &ordered_queues(&server, 6)[..] else { panic!("spine-1") };
    assert!(queues.weights[1..].iter().all(|weight| (weight - 0.1).abs() < 1e-9), "{:?}", queues.weights);
    assert_eq!(queues.unclassified.weight, 0.25);
}

/// All ports have the queues of services, independent of connections.
#[test]
fn services_have_queues_between_switches() {
    let mut server = TestServer::start();
    server.restart(|text| leaf_spine(&text.replace("policy =", "queues = \"services\"\npolicy =")));
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": 3 })).0, 204);
    let expected = Queues {
        weights: vec![0.25, 0.75],
        queue_of_class: vec![0, 1],
        class_of_application: vec![],
        guaranteed: true,
        unclassified: UnclassifiedShare { fraction: 0.05, weight: 0.25 },
        rate_bounds: Vec::new(),
    };
    for (switch, ports) in [(4, 4), (5, 4), (6, 2), (7, 2)] {
        let all: Vec<_> = (0..ports).map(|port| (port, expected.clone())).collect();
        assert_eq!(ordered_queues(&server, switch), all);
    }
    let queues = get(&server, "/v1/queues").1;
    assert_eq!(queues.as_array().unwrap().len(), 2 * 4 + 8);
    assert_eq!(queues_of(&queues, "spine-2", "to leaf-1")["weights"], json!([0.25, 0.75]));
    let metrics = get_text(&server, "/metrics").1;
    assert!(metrics.contains("weir_service_class{service=\"ads\",class=\"2\"} 1\n"), "{metrics}");
}

/// Saba, section 3: the part of a link that `share` leaves is for packets without a class, and so it is in no queue with a class.
#[test]
fn share_of_saba_leaves_the_rest_to_packets_without_a_class() {
    let mut server = TestServer::start();
    let unclassified = |server: &TestServer| {
        assert_eq!(send_json_request(server, "PUT", "/v1/sensitivity", TABLE.as_bytes()).0, 204);
        assert_eq!(put(server, "/v1/applications/job", &json!({ "model": "sort" })).0, 200);
        let connection = json!({ "application": "job", "from": "a", "to": "b" });
        assert_eq!(put(server, "/v1/connections/x", &connection).0, 200);
        let queues = first_ordered_queues(server, 0).unwrap();
        (queues.weights.len(), queues.unclassified)
    };
    assert_eq!(unclassified(&server), (8, UnclassifiedShare { fraction: 0.05, weight: 0.125 }));
    server.restart(|text| text + "[saba]\nshare = 0.6\n");
    assert_eq!(unclassified(&server), (7, UnclassifiedShare { fraction: 0.4, weight: 0.4 }));
}

/// NetShare, section 4.1: each service has a queue with its weight at every port, independent of connections.
#[test]
fn queues_by_service_have_service_weights() {
    let mut server = TestServer::start();
    let with_service_queues =
        |text: String| text.replace("policy =", "queues = \"services\"\npolicy =") + SWITCH;
    server.restart(with_service_queues);
    assert_eq!(get(&server, "/v1/services").1[1]["weights_used"], true);
    let (_, job) = put(&server, "/v1/applications/job", &json!({ "service": "ads" }));
    assert_eq!((&job["level"], &job["model"]), (&json!(1), &Value::Null));
    // A model is unnecessary, but a wrong one is a mistake.
    let (status, problem) = put(&server, "/v1/applications/other", &json!({ "model": "srot" }));
    assert_eq!((status, problem["detail"].as_str().unwrap().contains("srot")), (422, true), "{problem}");
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": 3 })).0, 204);
    let expected = |classes: Vec<_>| Queues {
        weights: vec![0.25, 0.75],
        queue_of_class: vec![0, 1],
        class_of_application: classes,
        guaranteed: true,
        // A service of weight 1 next to weights 1 and 3.
        unclassified: UnclassifiedShare { fraction: 0.05, weight: 0.25 },
        rate_bounds: Vec::new(),
    };
    for host in 0..3 {
        assert_eq!(ordered_queues(&server, host), [(0, expected(vec![("job".into(), 2)]))]);
    }
    assert_eq!(ordered_queues(&server, 3), [(0, expected(vec![])), (1, expected(vec![]))]);
    // The registration is stored.
    server.restart(|text| text);
    assert_eq!(ordered_queues(&server, 3), [(0, expected(vec![])), (1, expected(vec![]))]);
    assert_eq!(get(&server, "/v1/applications/job").1, job);
    assert_eq!(
        put(&server, "/v1/connections/x1", &json!({ "application": "job", "from": "a", "to": "b" })).0,
        200
    );
    assert_eq!(send_json_request(&server, "DELETE", "/v1/connections/x1", b"").0, 204);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/applications/job", b"").0, 204);
    assert_eq!(ordered_queues(&server, 0), [(0, expected(vec![]))]);
    // If queues belong to applications, an application needs a model.
    server.restart(|text| text.replace("queues = \"services\"\n", ""));
    assert_eq!(put(&server, "/v1/applications/job", &json!({ "service": "ads" })).0, 422);
}

/// NetShare, section 3.3: connections of registered applications are limited by the weights and excess weights of their
/// services.
#[test]
fn observed_connections_get_service_limits() {
    let mut server = TestServer::start();
    server.restart(|text| {
        text.replace("policy =", "allocator = true\nqueues = \"services\"\npolicy =")
            + "[address]\na = [\"10.0.0.1\"]\nb = [\"10.0.0.2\"]\nc = [\"10.0.0.3\"]\n"
    });
    let observed_entry = |application: &str| ObservedConnections {
        application: application.into(),
        peer: "10.0.0.3".parse().unwrap(),
        open_connections: 2,
        sent_bytes: 7,
        demand: Demand::Unlimited,
    };
    let found = vec![observed_entry("job"), observed_entry("other"), observed_entry("web")];
    let report = Report { observed: found, ..Report::default() };
    send_report(&server, 1, report);
    for (id, service) in [("job", "ads"), ("web", "default")] {
        assert_eq!(put(&server, &format!("/v1/applications/{id}"), &json!({ "service": service })).0, 200);
    }
    let wait_for_limits = |expected: [Option<u64>; 3]| {
        wait_for(&server, "/v1/observed", |found| {
            let limit = |entry: &Value| entry["limit_bytes_per_second"].as_u64();
            found.as_array().is_some_and(|found| {
                found.len() == 3
                    && found.iter().zip(expected).all(|(found, expected)| limit(found) == expected)
            })
        });
    };
    // Links have 1 Gbit/s, of which a hundredth is the reserve.
    wait_for_limits([Some(61_256_250), None, Some(61_256_250)]);
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "weight": 3 })).0, 204);
    wait_for_limits([Some(91_884_375), None, Some(30_628_125)]);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/applications/web", b"").0, 204);
    wait_for_limits([Some(122_512_500), None, None]);
}

/// The second host reports an open connection of an application to the third.
fn report_connection(server: &TestServer, application: &str) {
    let observed = ObservedConnections {
        application: application.into(),
        peer: "10.0.0.3".parse().unwrap(),
        open_connections: 1,
        sent_bytes: 7,
        demand: Demand::Unknown,
    };
    let report = Report { observed: vec![observed], ..Report::default() };
    send_report(server, 1, report);
}

/// Repeats a GET request until its answer meets the condition.
fn wait_for(server: &TestServer, path: &str, condition: impl Fn(&Value) -> bool) {
    for _ in 0..500 {
        if condition(&get(server, path).1) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{path}: {}", get(server, path).1);
}

#[test]
fn observed_connections_count_as_connections() {
    let server = TestServer::start();
    send_json_request(&server, "PUT", "/v1/sensitivity", TABLE.as_bytes());
    let report_applications = |applications: &[&str], open| {
        let peer = "10.0.0.2".parse().unwrap();
        let observed_entry = |&application: &&str| ObservedConnections {
            application: application.into(),
            peer,
            open_connections: open,
            sent_bytes: 7,
            demand: Demand::Unknown,
        };
        let report =
            Report { observed: applications.iter().map(observed_entry).collect(), ..Report::default() };
        send_report(&server, 1, report);
    };
    report_applications(&["other", "s1"], 2);
    wait_for(&server, "/v1/observed", |found| found.as_array().unwrap().len() == 2);
    let first = json!({ "host": "b", "application": "other", "peer": "10.0.0.2", "connections": 2, "sent_bytes": 7,
                "registered": false, "limit_bytes_per_second": null });
    assert_eq!(get(&server, "/v1/observed").1[0], first);
    // Connections of an unregistered application have no queues. They get queues when the application registers.
    assert_eq!(get(&server, "/v1/queues").1, json!([]));
    let sort = json!({ "model": "sort" });
    assert_eq!(put(&server, "/v1/applications/s1", &sort).0, 200);
    let has_queues_at_b = |queues: &Value| queues.as_array().unwrap().len() == 1 && queues[0]["host"] == "b";
    assert!(has_queues_at_b(&get(&server, "/v1/queues").1));
    // Observed connections remain when the table is replaced, and when the application is deregistered and registered
    // again.
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", TABLE.as_bytes()).0, 204);
    assert!(has_queues_at_b(&get(&server, "/v1/queues").1));
    assert_eq!(send_json_request(&server, "DELETE", "/v1/applications/s1", b"").0, 204);
    assert_eq!(get(&server, "/v1/queues").1, json!([]));
    assert_eq!(put(&server, "/v1/applications/s1", &sort).0, 200);
    assert!(has_queues_at_b(&get(&server, "/v1/queues").1));
    report_applications(&["s1"], 0);
    wait_for(&server, "/v1/queues", |queues| *queues == json!([]));
    assert_eq!(get(&server, "/v1/observed").1.as_array().unwrap().len(), 1);
    // After it reconnects, an agent reports all observed connections again.
    report_applications(&["s1"], 1);
    wait_for(&server, "/v1/queues", has_queues_at_b);
    assert_eq!(first_ordered_queues(&server, 1).unwrap().class_of_application.len(), 1);
    wait_for(&server, "/v1/observed", |found| *found == json!([]));
    wait_for(&server, "/v1/queues", |queues| *queues == json!([]));
    // The host keeps its queues, but packets of the application lose their class, which another one may get.
    assert_eq!(send_json_request(&server, "DELETE", "/v1/applications/s1", b"").0, 204);
    assert_eq!(first_ordered_queues(&server, 1).unwrap().class_of_application, []);
}

#[test]
fn answered_requests_survive_a_restart() {
    let mut server = TestServer::start();
    send_json_request(&server, "PUT", "/v1/sensitivity", TABLE.as_bytes());
    put(&server, "/v1/policy", &json!({ "policy": "netshare" }));
    put(&server, "/v1/services/ads", &json!({ "weight": 3 }));
    put(&server, "/v1/coflows/c1", &coflow_body("c"));
    put(&server, "/v1/coflows/c2", &coflow_body("b"));
    put(&server, "/v1/coflows/c2/flows", &json!([{ "from": "c", "to": "a", "bytes": 5 }]));
    put(&server, "/v1/coflows/c3", &coflow_body("b"));
    send_json_request(&server, "DELETE", "/v1/coflows/c3", b"");
    put(&server, "/v1/applications/s1", &json!({ "model": "sort" }));
    put(&server, "/v1/connections/x1", &json!({ "application": "s1", "from": "a", "to": "c" }));
    let paths = [
        "/v1/policy",
        "/v1/services",
        "/v1/coflows",
        "/v1/coflows/c1",
        "/v1/coflows/c2",
        "/v1/sensitivity",
        "/v1/applications",
        "/v1/connections/x1",
        "/v1/queues",
    ];
    let answers_before: Vec<_> = paths.iter().map(|path| get_text(&server, path)).collect();
    assert!(answers_before.iter().all(|(status, _)| *status == 200));
    let epoch = server.epoch;
    server.restart(|text| text);
    assert!(server.epoch > epoch);
    let answers_after: Vec<_> = paths.iter().map(|path| get_text(&server, path)).collect();
    assert_eq!(answers_after, answers_before);
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow_body("c")).0, 200);
    // A changed configuration takes precedence over the value that was set under the former configuration.
    server.restart(|text| text.replace("\"saath\"", "\"aalo\""));
    assert_eq!(get(&server, "/v1/policy").1, json!({ "policy": "aalo" }));
    assert_eq!(get(&server, "/v1/services").1[1]["weight"], json!(3.0));
}

#[test]
fn slow_event_clients_get_a_missed_event() {
    let server = TestServer::start();
    let mut fast = crate::api::EventStream::open(&server);
    let mut slow = crate::api::EventStream::open(&server);
    put(&server, "/v1/coflows/c1", &coflow_body("c"));
    put(&server, "/v1/policy", &json!({ "policy": "aalo" }));
    let event = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let registered = json!({ "event": "coflow-registered", "subject": "c1", "service": "default" });
    assert_eq!(event(&fast.next_with_prefix("data: ")), registered);
    assert_eq!(event(&fast.next_with_prefix("data: "))["event"], "policy-changed");
    // More data than the sockets and the server buffer for a client that does not read.
    let registry = server.registry();
    let service = "s".repeat(60_000);
    for n in 0..400 {
        registry.events.send(
            weir_coordinator::events::EventKind::WeightChanged,
            &n.to_string(),
            Some(service.clone()),
        );
    }
    slow.next_with_prefix("event: missed");
    let missed: u64 = slow.next_with_prefix("data: ").parse().unwrap();
    assert!(missed > 0 && missed <= 400, "{missed}");
    // The newest events still arrive.
    while event(&slow.next_with_prefix("data: "))["subject"] != "399" {}
}

#[test]
fn trace_has_the_decisions_for_active_and_ended_coflows() {
    let server = TestServer::start();
    put(&server, "/v1/coflows/c1", &coflow_body("c"));
    let events_of = |trace: &Value, kind: &str| -> Vec<Value> {
        let events = trace["traceEvents"].as_array().unwrap().iter();
        events.filter(|event| event["ph"] == kind).cloned().collect()
    };
    wait_for(&server, "/v1/trace", |trace| !events_of(trace, "X").is_empty());
    let trace = get(&server, "/v1/trace").1;
    let named = events_of(&trace, "M");
    let names: Vec<&str> = named.iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    assert_eq!(names, ["coflows", "ordered rates of coflows", "coflow c1"]);
    let [lifetime, decision] = &events_of(&trace, "X")[..] else { panic!("{trace}") };
    assert_eq!(lifetime["name"], "coflow c1");
    assert_eq!((&decision["ts"], &decision["dur"]), (&lifetime["ts"], &lifetime["dur"]));
    assert!(decision["dur"].as_f64().unwrap() >= 0.0 && decision["args"]["queue"] == 0, "{decision}");
    assert_eq!(events_of(&trace, "C").len(), 1, "{trace}");
    // The last rate of a coflow that has ended is zero.
    assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c1", b"").0, 204);
    wait_for(&server, "/v1/trace", |trace| events_of(trace, "C").len() == 2);
    let last = &events_of(&get(&server, "/v1/trace").1, "C")[1];
    assert_eq!((&last["name"], &last["args"]["Gbit/s"]), (&json!("coflow c1"), &json!(0.0)));
}

#[test]
fn health_checks_and_metrics_report_the_current_state() {
    let mut server = TestServer::start();
    assert_eq!(get_text(&server, "/livez"), (200, "alive\n".to_owned()));
    assert_eq!(get_text(&server, "/readyz").0, 200);
    put(&server, "/v1/coflows/c1", &coflow_body("c"));
    let metric_value = |text: &str, name: &str| -> f64 {
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} in\n{text}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    let began = std::time::Instant::now();
    let text = loop {
        let (status, text) = get_text(&server, "/metrics");
        assert_eq!(status, 200);
        if metric_value(&text, "weir_schedule_seconds_count") > 2.0 {
            break text;
        }
        assert!(began.elapsed() < TIMEOUT, "no schedules:\n{text}");
    };
    let metric = |name: &str| metric_value(&text, name);
    assert_eq!(metric("weir_epoch"), server.epoch as f64);
    assert_eq!((metric("weir_coflows_active"), metric("weir_flows")), (1.0, 2.0));
    assert_eq!((metric("weir_hosts"), metric("weir_hosts_present")), (3.0, 0.0));
    assert_eq!(metric("weir_report_entries_rejected_total{reason=\"above-link-rate\"}"), 0.0);
    assert_eq!(metric("weir_schedule_seconds_bucket{le=\"+Inf\"}"), metric("weir_schedule_seconds_count"));
    assert!(text.ends_with("# EOF\n"));
    // A host has no rates before its first report.
    assert_eq!(get(&server, "/v1/allocation").1, json!({ "flows": [], "more": false }));
    // Metrics count the orders that agents refused.
    let refused = "weir_orders_refused_total{reason=\"stale-epoch\"}";
    assert_eq!(metric(refused), 0.0);
    let report = Report {
        refused_orders: RefusedOrders { stale_epoch: 2, ..RefusedOrders::default() },
        ..Report::default()
    };
    send_report(&server, 0, report);
    assert_eq!(metric_value(&get_text(&server, "/metrics").1, refused), 2.0);
    assert_eq!(get(&server, "/v1/hosts").1.as_array().unwrap().len(), 3);
    // An open event stream does not delay shutdown: its last chunk arrives before the connection is closed.
    let events = crate::api::EventStream::open(&server);
    server.stop();
    let rest = events.read_to_end();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest:?}");
}

/// All paths of the OpenAPI document answer, and the document equals that of the library.
#[test]
fn openapi_document_describes_all_paths() {
    let server = TestServer::start();
    let (status, document) = get(&server, "/openapi.json");
    assert_eq!(status, 200);
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 17, "{:?}", paths.keys());
    assert_eq!(document["openapi"].as_str().map(|v| &v[..3]), Some("3.1"));
    assert_eq!(document, serde_json::to_value(weir_coordinator::rest::openapi_document()).unwrap());
    for (path, methods) in paths.iter().filter(|(_, methods)| methods.get("put").is_some()) {
        let content = methods["put"]["requestBody"]["content"].as_object();
        let schema = content.and_then(|content| content.values().next()).map(|media| &media["schema"]);
        assert!(schema.is_some_and(|schema| schema.is_object()), "{path}");
    }
    for (path, methods) in paths {
        // An event stream does not end.
        if path != "/v1/events" && methods.get("get").is_some() {
            let (status, _) = get_text(&server, &path.replace("{id}", "none").replace("{name}", "none"));
            let expected = match path.as_str() {
                // A trace needs a coflow.
                "/v1/workload" => 409,
                path if path.contains('{') => 404,
                _ => 200,
            };
            assert_eq!(status, expected, "{path}");
        }
    }
}

/// Generators of clients need these parts. `make check-api` checks the whole document, and compares it with the answers.
#[test]
fn openapi_operations_have_unique_ids_described_responses_and_typed_parameters() {
    let document = serde_json::to_value(weir_coordinator::rest::openapi_document()).unwrap();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{name}: the operation id {id} is used twice");
            let responses = operation["responses"].as_object().unwrap();
            for (status, response) in responses {
                assert!(response["description"].is_string(), "{name}: {status} has no description");
                let media_types: Vec<&String> =
                    response["content"].as_object().iter().flat_map(|content| content.keys()).collect();
                if status.starts_with(['4', '5']) {
                    assert_eq!(media_types, ["application/problem+json"], "{name}: {status}");
                }
            }
            assert!(["4XX", "5XX"].iter().all(|status| responses.contains_key(*status)), "{name}");
            let parameters = operation["parameters"].as_array();
            let parameters: Vec<&Value> = parameters.into_iter().flatten().collect();
            for parameter in &parameters {
                assert!(parameter["schema"].is_object(), "{name}: {parameter}");
            }
            let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(in_path, path.matches('{').count(), "{name}");
        }
    }
    assert!(ids.len() >= 29, "{ids:?}");
}

/// The bounds of values in the document are those that the server checks.
#[test]
fn values_at_the_bounds_of_the_openapi_document_are_accepted_and_others_refused() {
    let server = TestServer::start();
    let document = get(&server, "/openapi.json").1;
    let schemas = &document["components"]["schemas"];
    let bound = |schema: &str, field: &str, bound: &str| {
        let field = &schemas[schema]["properties"][field];
        // An optional value is one of `null` and its type.
        let types = field["oneOf"].as_array().cloned().unwrap_or_else(|| vec![field.clone()]);
        types
            .iter()
            .find_map(|schema| schema.get(bound).cloned())
            .unwrap_or_else(|| panic!("{schema}: {field}"))
    };
    let register = |id: &str, bytes: u64, weight: f64| {
        let body = json!({ "flows": [{ "from": "a", "to": "b", "bytes": bytes }], "weight": weight });
        send_json_request(&server, "PUT", &format!("/v1/coflows/{id}"), body.to_string().as_bytes())
    };
    let max_bytes = bound("FlowBody", "bytes", "maximum").as_u64().unwrap();
    assert_eq!(["minItems", "maxItems"].map(|side| bound("FlowBody", "numbers", side)), [2, 2]);
    assert_eq!(bound("FlowBody", "numbers", "items")["maximum"], u32::MAX);
    let [min, max] = ["minimum", "maximum"].map(|side| bound("CoflowBody", "weight", side).as_f64().unwrap());
    assert_eq!(register("least", 0, min).0, 200);
    assert_eq!(register("most", max_bytes, max).0, 200);
    let refused = |(status, problem): (u16, Value), pointer: &str| {
        assert_eq!((status, &problem["pointer"]), (422, &json!(pointer)), "{problem}");
    };
    refused(register("x", max_bytes + 1, 1.0), "/flows/0/bytes");
    refused(register("x", 1, 0.9 * min), "/weight");
    refused(register("x", 1, 1.1 * max), "/weight");
    // To JSON Schema, a fraction of zero is an integer.
    for (bytes, status) in [("2.0", 200), ("2.5", 422), ("-1", 422), ("1e300", 422)] {
        let body = format!(r#"{{"flows": [{{"from": "a", "to": "b", "bytes": {bytes}}}]}}"#);
        let (found, problem) = send_json_request(&server, "PUT", "/v1/coflows/fraction", body.as_bytes());
        assert_eq!(found, status, "{bytes}: {problem}");
    }
    for (path, methods) in document["paths"].as_object().unwrap() {
        let parameters = methods["get"]["parameters"].as_array();
        let limit = parameters.into_iter().flatten().find(|parameter| parameter["name"] == "limit");
        let Some(max) = limit.map(|limit| limit["schema"]["maximum"].as_u64().unwrap()) else { continue };
        for (limit, status) in [(0, 422), (1, 200), (max, 200), (max + 1, 422)] {
            assert_eq!(get(&server, &format!("{path}?limit={limit}")).0, status, "{path} {limit}");
        }
    }
}

mod random_bodies {
    use super::*;
    use crate::common::config_with_cases;
    use proptest::prelude::*;

    fn any_body() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            Just("flows"),
            Just("from"),
            Just("to"),
            Just("bytes"),
            Just("a"),
            Just("b"),
            Just("weight"),
            Just("policy"),
            Just("tree"),
            Just("saath"),
            Just("model"),
            Just("service"),
            Just("deadline"),
            Just("1e999s"),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            word.clone().prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((word.clone(), inner), 0..4).prop_map(|pairs| Value::Object(
                    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
                )),
            ]
        });
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            value.prop_map(|value| value.to_string().into_bytes())
        ]
    }

    #[test]
    fn malformed_bodies_get_4xx() {
        let server = TestServer::start();
        let paths = [
            "/v1/coflows/p",
            "/v1/coflows/p/flows",
            "/v1/policy",
            "/v1/services/ads",
            "/v1/sensitivity",
            "/v1/applications/p",
            "/v1/connections/p",
        ];
        proptest!(config_with_cases(200), |(body in any_body(), path in 0..paths.len())| {
            let (status, problem) = send_json_request(&server, "PUT", paths[path], &body);
            prop_assert!((200..300).contains(&status) || (400..500).contains(&status), "{status}: {problem}");
        });
        assert_eq!(get(&server, "/livez").0, 200);
    }
}
