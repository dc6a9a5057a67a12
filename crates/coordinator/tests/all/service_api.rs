//! Tests of minimum and maximum bandwidths of services in the configuration and in the API, of clusters with more services than queues,
//! and of weights of connections in the API.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weir_coordinator::config::{self, Config};
use weir_proto::{
    Demand, Mark, ObservedConnections, Order, Queues, RateBounds, Report, UdpFlow, UdpLimit, UdpMeasurement,
};

use crate::api::{CONFIG, TIMEOUT, TestServer, get, put, send_json_request};

/// The configuration of a service with a minimum and a maximum.
const LIMITS: &str = r#"weir-serve = 1
store = "store.redb"
policy = "saath"
queues = "services"
[host]
node-1 = "1Gbit"
node-2 = "1Gbit"
[listen]
agents = "127.0.0.1:17700"
api = "127.0.0.1:17701"
[service.online]
applications = ["web"]
weight = 1
min-bandwidth = "100Mbit"
max-bandwidth = "200Mbit"
"#;

fn parse(text: &str) -> Result<Config, String> {
    config::parse(text, "serve.toml", Path::new("folder")).map_err(|error| error.to_string())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// A server whose queues belong to services, with more lines of configuration.
fn start(keys: &str, more: &str) -> TestServer {
    let text = CONFIG.replace("policy =", &format!("queues = \"services\"\n{keys}policy =")) + more;
    TestServer::start_with(tempfile::tempdir().unwrap(), text)
}

/// The first order to a host after it connects with a report.
fn first_order(server: &TestServer, host: u32, report: Report) -> Order {
    let registry = server.registry();
    block_on(async {
        let mut orders = registry.handle().subscribe_to_orders(host).await.unwrap().unwrap();
        registry.handle().report(host, report).await.unwrap();
        tokio::time::timeout(TIMEOUT, orders.recv()).await.unwrap().unwrap()
    })
}

fn queues(server: &TestServer, host: u32) -> Queues {
    let order = first_order(server, host, Report::default());
    order.queues.into_iter().map(|(_, queues)| queues).next().unwrap()
}

fn bounds(min: u64, max: Option<u64>) -> RateBounds {
    RateBounds { min, max }
}

#[test]
fn bandwidths_of_the_configuration_are_read_and_shown() {
    let config = parse(LIMITS).unwrap();
    let shown = config.to_string();
    let line = "service   online: weight 1, min-bandwidth 100Mbit, max-bandwidth 200Mbit; applications default, web\n";
    assert!(shown.contains(line), "{shown}");
    assert!(config.can_limit_services() && !config.allocator);
}

#[test]
fn configured_bandwidths_that_cannot_hold_are_refused() {
    let refusal = |from: &str, to: &str| parse(&LIMITS.replace(from, to)).map(drop).unwrap_err();
    for (from, to, expected) in [
        (
            "min-bandwidth = \"100Mbit\"",
            "min-bandwidth = \"300Mbit\"",
            "expected at most the maximum, 200Mbit",
        ),
        ("max-bandwidth = \"200Mbit\"", "max-bandwidth = \"104kbit\"", "of at least 105kbit"),
        ("max-bandwidth =", "max-bandwidth-per-host = \"9kbit\"\n# ", "of at least 105kbit"),
        ("min-bandwidth = \"100Mbit\"", "min-bandwidth = \"7kbit\"", "of at least 8kbit"),
        ("max-bandwidth = \"200Mbit\"", "max-bandwidth = \"fast\"", "expected"),
        ("queues = \"services\"\n", "", "`queues = \"services\"`"),
        ("policy =", "interval = \"100ms\"\npolicy =", "an `interval` of at most 50ms"),
        ("node-2 = \"1Gbit\"", "node-2 = \"100Mbit\"", "the link out of node-2 (100Mbit)"),
    ] {
        let error = refusal(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
    // A host without room for both minima.
    let second = "[service.batch]\nmin-bandwidth-per-host = \"900Mbit\"\n";
    let error = parse(&format!("{LIMITS}{second}")).unwrap_err();
    for part in
        ["found batch 900Mbit, online 100Mbit", "bandwidths of 1Gbit", "the link out of node-1 (1Gbit)"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(parse(&format!("{LIMITS}{}", second.replace("900", "800"))).is_ok());
}

/// The uplinks of each leaf carry as much as one of its two hosts.
#[test]
fn link_groups_between_switches_have_to_carry_the_minima() {
    let folder = tempfile::tempdir().unwrap();
    let network = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 2\nleaves = 2\nhosts = 4\nrate = \"1Gbit\"\noversubscription = 4\n";
    std::fs::write(folder.path().join("net.toml"), network).unwrap();
    let parse_with = |min: &str| {
        let hosts = LIMITS.find("[host]").unwrap()..LIMITS.find("[listen]").unwrap();
        let mut text = LIMITS.replace("\"100Mbit\"", min).replace("\"200Mbit\"", "\"1Gbit\"");
        text.replace_range(hosts, "");
        let text = text.replace("policy =", "topology = \"net.toml\"\npolicy =");
        config::parse(&text, "serve.toml", folder.path()).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(parse_with("\"900Mbit\""), Ok(()));
    let error = parse_with("\"950Mbit\"").unwrap_err();
    assert!(error.contains("services divide"), "{error}");
}

#[test]
fn api_sets_bandwidths_and_a_restart_keeps_them() {
    let mut server = start("", "");
    assert_eq!(queues(&server, 0).rate_bounds, []);
    let body = json!({ "min_bandwidth": "100Mbit", "max_bandwidth": "200Mbit", "max_bandwidth_per_host": "150Mbit" });
    assert_eq!(put(&server, "/v1/services/ads", &body), (204, Value::Null));
    let shown = |server: &TestServer| {
        let ads = get(server, "/v1/services").1[1].clone();
        ["weight", "min_bandwidth", "max_bandwidth", "min_bandwidth_per_host", "max_bandwidth_per_host"]
            .map(|key| ads[key].clone())
    };
    let expected = [Value::Null, json!("100Mbit"), json!("200Mbit"), Value::Null, json!("150Mbit")];
    assert_eq!(shown(&server), expected);
    let of_ads = bounds(12_500_000, Some(18_750_000));
    assert_eq!(queues(&server, 0).rate_bounds, [bounds(0, None), of_ads]);
    server.restart(|text| text);
    assert_eq!(shown(&server), expected);
    assert_eq!(queues(&server, 1).rate_bounds, [bounds(0, None), of_ads]);
    // Other parameters stay.
    assert_eq!(
        put(&server, "/v1/services/ads", &json!({ "weight": 2, "max_bandwidth_per_host": null })).0,
        204
    );
    let [weight, min, max, _, max_per_host] = shown(&server);
    assert_eq!(
        (weight, min, max, max_per_host),
        (json!(2.0), json!("100Mbit"), json!("200Mbit"), Value::Null)
    );
    // A value that was edited in the configuration replaces all of the service.
    server.restart(|text| {
        text.replace("applications = [\"sort\"]", "applications = [\"sort\"]\nmax-bandwidth = \"300Mbit\"")
    });
    let [_, min, max, ..] = shown(&server);
    assert_eq!((min, max), (Value::Null, json!("300Mbit")));
}

#[test]
fn api_refuses_bandwidths_that_links_cannot_hold() {
    let server = start("", "[address]\na = [\"10.0.0.1\"]\n");
    let refused = |service: &str, body: Value| {
        let (status, problem) = put(&server, &format!("/v1/services/{service}"), &body);
        (status, problem["detail"].as_str().unwrap().to_owned())
    };
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "min_bandwidth": "500Mbit" })).0, 204);
    let (status, detail) = refused("default", json!({ "min_bandwidth_per_host": "500Mbit", "weight": 7 }));
    assert_eq!(status, 409, "{detail}");
    for part in ["ads 500Mbit, default 500Mbit", "the link out of a (1Gbit)", "1Gbit in total"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    let default = get(&server, "/v1/services").1[0].clone();
    assert_eq!((&default["weight"], &default["min_bandwidth_per_host"]), (&Value::Null, &Value::Null));
    let (status, detail) = refused("ads", json!({ "max_bandwidth": "400Mbit" }));
    assert_eq!((status, detail.contains("/min_bandwidth: `500Mbit`")), (422, true), "{detail}");
    let (status, detail) = refused("default", json!({ "max_bandwidth": "104kbit" }));
    assert_eq!((status, detail.contains("of at least 105kbit")), (422, true), "{detail}");
    assert_eq!(put(&server, "/v1/services/default", &json!({ "max_bandwidth": "105kbit" })).0, 204);
    let (status, detail) = refused("ads", json!({ "max_bandwidth": "fast" }));
    assert_eq!((status, detail.contains("/max_bandwidth: `fast`")), (422, true), "{detail}");
    assert_eq!(refused("ads", json!({})).0, 422);
    assert_eq!(refused("web", json!({ "max_bandwidth": "1Gbit" })).0, 404);
    // The higher one of the two minima counts on a link, so this fits.
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "min_bandwidth_per_host": "300Mbit" })).0, 204);
}

#[test]
fn api_refuses_bandwidths_where_queues_or_rates_cannot_hold_them() {
    let server = TestServer::start();
    let refused = |server: &TestServer, body: Value| {
        let (status, problem) = put(server, "/v1/services/ads", &body);
        assert_eq!(status, 409, "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    };
    assert!(refused(&server, json!({ "min_bandwidth": "1Mbit" })).contains("`queues = \"services\"`"));
    let slow = start("interval = \"100ms\"\n", "");
    assert!(refused(&slow, json!({ "max_bandwidth": "1Mbit" })).contains("an `interval` of at most 50ms"));
    assert_eq!(put(&slow, "/v1/services/ads", &json!({ "min_bandwidth": "1Mbit" })).0, 204);
}

/// Bandwidths in the store that a later configuration cannot hold are ignored.
#[test]
fn stored_minima_that_no_longer_fit_are_ignored() {
    let mut server = start("", "");
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "min_bandwidth": "500Mbit" })).0, 204);
    server.restart(|text| text.replace("a = \"1Gbit\"", "a = \"100Mbit\""));
    assert_eq!(get(&server, "/v1/services").1[1]["min_bandwidth"], Value::Null);
}

#[test]
fn guaranteed_fractions_of_queues_include_minima() {
    let server = start("", "");
    assert_eq!(
        put(&server, "/v1/services/ads", &json!({ "weight": 1, "min_bandwidth": "698.2Mbit" })).0,
        204
    );
    let (_, all) = get(&server, "/v1/queues");
    let weights: Vec<f64> = serde_json::from_value(all[0]["weights"].clone()).unwrap();
    // Services divide 931.095 Mbit/s of the link.
    assert!((weights[1] - 698.2 / 931.095).abs() < 1e-6, "{weights:?}");
    assert!((weights[0] + weights[1] - 1.0).abs() < 1e-12, "{weights:?}");
    // Orders have the weights by configuration, and the minimum: agents know the rates of their links.
    let ordered = queues(&server, 0);
    assert_eq!((ordered.weights, ordered.rate_bounds[1].min), (vec![0.5, 0.5], 87_275_000));
}

/// Observed connections of applications to 10.0.0.3.
fn observed(applications: &[&str]) -> Report {
    let entry = |application: &&str| ObservedConnections {
        application: (*application).into(),
        peer: "10.0.0.3".parse().unwrap(),
        open_connections: 1,
        sent_bytes: 7,
        demand: Demand::Unlimited,
    };
    Report { observed: applications.iter().map(entry).collect(), ..Report::default() }
}

/// Waits until the observed connections have these limits, in the order of hosts and applications.
fn wait_for_limits(server: &TestServer, expected: &[Option<u64>]) {
    let limits = || {
        let (_, found) = get(server, "/v1/observed");
        let found = found.as_array().unwrap().iter();
        found.map(|entry| entry["limit_bytes_per_second"].as_u64()).collect::<Vec<_>>()
    };
    for _ in 0..500 {
        if limits() == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(limits(), expected);
}

fn send_report(server: &TestServer, host: u32, report: Report) {
    block_on(server.registry().handle().report(host, report)).unwrap();
}

#[test]
fn maximum_from_the_api_limits_connections_without_an_allocator() {
    let server = start("", "");
    let measured = server.registry().handle().measured();
    assert!(!measured.borrow().wants_demands);
    for (id, service) in [("job", "ads"), ("web", "default")] {
        assert_eq!(put(&server, &format!("/v1/applications/{id}"), &json!({ "service": service })).0, 200);
    }
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "max_bandwidth": "200Mbit" })).0, 204);
    // Agents measure demands from now on.
    assert!(measured.has_changed().unwrap() && measured.borrow().wants_demands);
    send_report(&server, 0, observed(&["job", "web"]));
    send_report(&server, 1, observed(&["job"]));
    wait_for_limits(&server, &[Some(12_500_000), None, Some(12_500_000)]);
    assert_eq!(put(&server, "/v1/services/ads", &json!({ "max_bandwidth": null })).0, 204);
    wait_for_limits(&server, &[None, None, None]);
}

const ADDRESSES: &str = "[address]\na = [\"10.0.0.1\"]\nb = [\"10.0.0.2\"]\nc = [\"10.0.0.3\"]\n";

#[test]
fn weights_of_connections_are_stored_and_divide_the_share_of_their_service() {
    let mut server = start("allocator = true\n", ADDRESSES);
    assert_eq!(put(&server, "/v1/applications/job", &json!({ "service": "ads" })).0, 200);
    let connect = |server: &TestServer, id: &str, from: &str, to: &str, weight: Value| {
        let body = json!({ "application": "job", "from": from, "to": to, "weight": weight });
        put(server, &format!("/v1/connections/{id}"), &body)
    };
    for weight in [json!(0), json!(1e-9), json!(1001), json!(-1)] {
        assert_eq!(connect(&server, "x", "a", "c", weight).0, 422);
    }
    let report = |server: &TestServer| (0..2).for_each(|host| send_report(server, host, observed(&["job"])));
    report(&server);
    // 98.01 % of 1 Gbit/s.
    wait_for_limits(&server, &[Some(61_256_250), Some(61_256_250)]);
    // Two connections between the same hosts, one of them opened from the other end.
    assert_eq!(connect(&server, "x1", "b", "c", json!(1)).0, 200);
    let (status, shown) = connect(&server, "x2", "c", "b", json!(2));
    assert_eq!((status, &shown["weight"]), (200, &json!(2.0)));
    // A connection without a weight does not count.
    assert_eq!(connect(&server, "x3", "a", "10.0.0.3", Value::Null).0, 200);
    wait_for_limits(&server, &[Some(30_628_125), Some(91_884_375)]);
    server.restart(|text| text);
    assert_eq!(get(&server, "/v1/connections/x2").1, shown);
    report(&server);
    wait_for_limits(&server, &[Some(30_628_125), Some(91_884_375)]);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/connections/x2", b"").0, 204);
    wait_for_limits(&server, &[Some(61_256_250), Some(61_256_250)]);
}

/// A hundred services of weight 1, each with an application of its name; `keys` are more keys of the one with this number.
fn tenants((number, keys): (usize, &str)) -> String {
    let service = |at: usize| {
        let keys = if at == number { keys } else { "" };
        format!("[service.ns{at}]\napplications = [\"a{at}\"]\nweight = 1\n{keys}")
    };
    (0..100).map(service).collect()
}

fn start_with_tenants(keys: &str, special: (usize, &str)) -> TestServer {
    let text = CONFIG.replace("policy =", &format!("queues = \"services\"\n{keys}policy ="));
    let from = text.find("[service.default]").unwrap();
    let until = text.find("[limits]").unwrap();
    let text = text[..from].to_owned() + &text[until..] + ADDRESSES + &tenants(special);
    TestServer::start_with(tempfile::tempdir().unwrap(), text)
}

#[test]
fn services_beyond_the_queues_share_the_last_one() {
    let server = start_with_tenants("", (80, "min-bandwidth = \"100Mbit\"\n"));
    let mut levels = Vec::new();
    for service in [0, 60, 61, 62, 80, 99] {
        let path = format!("/v1/applications/job{service}");
        let (status, application) = put(&server, &path, &json!({ "service": format!("ns{service}") }));
        assert_eq!(status, 200);
        levels.push(application["level"].as_u64().unwrap());
    }
    // The service with a minimum has a separate queue.
    assert_eq!(levels, [0, 60, 62, 62, 61, 62]);
    let ordered = queues(&server, 0);
    assert_eq!((ordered.weights.len(), ordered.queue_of_class.len()), (63, 63));
    assert!(ordered.weights[..62].iter().all(|weight| (weight - 0.01).abs() < 1e-12));
    // 38 services share it.
    assert!((ordered.weights[62] - 0.38).abs() < 1e-12, "{:?}", ordered.weights);
    assert_eq!(
        (ordered.rate_bounds[61], ordered.rate_bounds[62]),
        (bounds(12_500_000, None), bounds(0, None))
    );
    assert!(ordered.class_of_application.contains(&("job99".into(), 63)));
    // Minima and maxima need a queue.
    for body in [json!({ "min_bandwidth": "1Mbit" }), json!({ "max_bandwidth": "1Mbit" })] {
        let (status, problem) = put(&server, "/v1/services/ns99", &body);
        assert_eq!((status, problem["detail"].as_str().unwrap().contains("shares its queue")), (409, true));
        assert_eq!(put(&server, "/v1/services/ns60", &body).0, 204, "{body}");
    }
}

/// The configuration with a minimum of 1 Mbit/s for these services.
fn with_minima(mut text: String, services: impl IntoIterator<Item = usize>) -> String {
    for at in services {
        let table = format!("[service.ns{at}]\n");
        assert!(text.contains(&table));
        text = text.replace(&table, &format!("{table}min-bandwidth = \"1Mbit\"\n"));
    }
    text
}

#[test]
fn stored_minimum_keeps_its_queue_while_queues_suffice() {
    let mut server = start_with_tenants("", (0, ""));
    assert_eq!(put(&server, "/v1/services/ns60", &json!({ "min_bandwidth": "2Mbit" })).0, 204);
    let shown = |server: &TestServer| get(server, "/v1/services").1[60]["min_bandwidth"].clone();
    // The first 51 services follow in the order of the file.
    server.restart(|text| with_minima(text, 80..90));
    assert_eq!((shown(&server), queues(&server, 0).rate_bounds[51]), (json!("2Mbit"), bounds(250_000, None)));
    // Other services need all queues.
    server.restart(|text| with_minima(text, (0..52).map(|at| if at < 51 { at } else { 99 })));
    assert_eq!(shown(&server), Value::Null);
    let ordered = queues(&server, 0).rate_bounds;
    assert_eq!((ordered[61], ordered[62]), (bounds(125_000, None), bounds(0, None)));
}

#[test]
fn stored_maximum_is_ignored_with_an_interval_that_cannot_hold_it() {
    let mut server = start("", "");
    let body =
        json!({ "min_bandwidth": "1Mbit", "max_bandwidth": "2Mbit", "max_bandwidth_per_host": "2Mbit" });
    assert_eq!(put(&server, "/v1/services/ads", &body).0, 204);
    server.restart(|text| text.replace("policy =", "interval = \"100ms\"\npolicy ="));
    let ads = get(&server, "/v1/services").1[1].clone();
    assert_eq!(
        [&ads["min_bandwidth"], &ads["max_bandwidth"], &ads["max_bandwidth_per_host"]],
        [&json!("1Mbit"), &Value::Null, &Value::Null]
    );
    assert_eq!(queues(&server, 0).rate_bounds[1], bounds(125_000, None));
}

#[test]
fn allocator_divides_links_among_services_that_share_a_queue() {
    let server = start_with_tenants("allocator = true\n", (99, "max-bandwidth = \"100Mbit\"\n"));
    for service in [97, 98, 99] {
        let body = json!({ "service": format!("ns{service}") });
        assert_eq!(put(&server, &format!("/v1/applications/job{service}"), &body).0, 200);
    }
    send_report(&server, 0, observed(&["job97", "job98", "job99"]));
    // 980.1 Mbit/s less 100, in two parts.
    wait_for_limits(&server, &[Some(55_006_250), Some(55_006_250), Some(12_500_000)]);
}

/// Services and hosts, each named by its number.
fn large_configuration(services: usize, hosts: usize) -> String {
    let from = CONFIG.find("[host]").unwrap();
    let hosts: String = (0..hosts).map(|at| format!("h{at} = \"10Gbit\"\n")).collect();
    let services: String = (0..services).map(|at| format!("[service.ns{at}]\n")).collect();
    let head = CONFIG[..from].replace("policy =", "queues = \"services\"\npolicy =");
    format!("{head}[host]\n{hosts}{services}")
}

#[test]
fn allocator_with_too_many_services_is_refused_with_the_maximum() {
    let parse_with = |services: usize| {
        let text = large_configuration(services, 1100).replace("queues =", "allocator = true\nqueues =");
        parse(&text).map(drop)
    };
    // 8,388,608 / 2,200 links.
    assert_eq!(parse_with(3813), Ok(()));
    let error = parse_with(3814).unwrap_err();
    for part in ["`3814 services`", "at most 3813 with 2200 links"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(parse(&large_configuration(3814, 1100)).map(drop), Ok(()));
}

#[test]
fn api_refuses_maxima_beyond_those_whose_rates_can_be_computed() {
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), large_configuration(4000, 500));
    let set_max = |service: &str| {
        put(&server, &format!("/v1/services/{service}"), &json!({ "max_bandwidth_per_host": "1Gbit" }))
    };
    assert_eq!([set_max("ns0").0, set_max("ns1").0], [204, 204]);
    let (status, problem) = set_max("ns2");
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!(
        (status, detail.contains("4000 services with 3000 links and maxima")),
        (409, true),
        "{detail}"
    );
    assert_eq!(put(&server, "/v1/services/ns1", &json!({ "max_bandwidth_per_host": null })).0, 204);
    assert_eq!(set_max("ns2").0, 204);
}

/// A maximum reserves a queue, whose bound and mark apply to UDP.
#[test]
fn maximum_among_more_services_than_queues_applies_to_udp() {
    let server = start_with_tenants("", (99, "max-bandwidth = \"100Mbit\"\n"));
    let (_, application) = put(&server, "/v1/applications/job", &json!({ "service": "ns99" }));
    assert_eq!(application["level"], 61);
    assert_eq!(queues(&server, 0).rate_bounds[61], bounds(0, Some(12_500_000)));
    let flow = UdpFlow { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 3].into(), mark: Mark::new(62).unwrap() };
    let shared = UdpFlow { mark: Mark::new(63).unwrap(), ..flow };
    let report = || Report {
        udp_measurements: [flow, shared].map(|flow| UdpMeasurement { flow, rate: 100_000_000 }).to_vec(),
        ..Report::default()
    };
    let registry = server.registry();
    let limits = block_on(async {
        let mut orders = registry.handle().subscribe_to_orders(0).await.unwrap().unwrap();
        for _ in 0..500 {
            registry.handle().report(0, report()).await.unwrap();
            let order = tokio::time::timeout(TIMEOUT, orders.recv()).await.unwrap().unwrap();
            if !order.udp_limits.is_empty() {
                return order.udp_limits;
            }
        }
        panic!("no order limits UDP")
    });
    assert_eq!(limits, [UdpLimit { flow, rate: 12_500_000 }]);
}

#[test]
fn more_minima_and_maxima_than_queues_are_refused_by_name() {
    let hosts = LIMITS.replace("1Gbit", "100Gbit");
    let text = hosts[..hosts.find("[service").unwrap()].to_owned();
    let with_bandwidths = |count: usize| {
        let service = |at: usize| {
            let key = if at.is_multiple_of(2) { "min-bandwidth" } else { "max-bandwidth" };
            let bandwidth = if at < count { format!("{key} = \"1Mbit\"\n") } else { String::new() };
            format!("[service.ns{at}]\n{bandwidth}")
        };
        parse(&(text.clone() + &(0..100).map(service).collect::<String>())).map(|config| config.to_string())
    };
    let shown = with_bandwidths(62).unwrap();
    assert!(shown.contains("38 services share the last of 63"), "{shown}");
    let error = with_bandwidths(63).unwrap_err();
    for part in ["`63 services with a minimum or maximum`", "at most 62", "found ns0, ns1, "] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
