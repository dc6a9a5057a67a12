//! Tests of links that fail: orders of the control plane, one call at a time, and the API.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;
use weir_coordinator::control_plane::{
    ControlPlane, Demand, FlowProgress, OrderedRate, Report, SenderState, ServiceWeights,
};
use weir_coordinator::registry::check_record;
use weir_coordinator::store::Table;
use weir_core::model::topology::CableChange;
use weir_core::model::{LinkBudget, LinkId, Topology, TopologyTemplate, Trunks};
use weir_core::policy::build;
use weir_core::units::Rate;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{AgentMessage, CoordinatorMessage};

use crate::api::{CONFIG, EventStream, TIMEOUT, TestServer, get, get_text, put, send_json_request};
use crate::reported_flows::report_flows;
use crate::roles::SecureServer;
use crate::small_cluster::{
    HOSTS, INTERVAL, LINK_RATE, address, control_plane, flow_key, links_of, plane_over, registration,
};

/// The four hosts under two leaves and two spines. The two uplinks of a leaf together carry as much as one host.
fn two_leaves() -> Topology {
    let rate = Rate::new(LINK_RATE).unwrap();
    TopologyTemplate::LeafSpine { spines: 2, leaves: 2, hosts: 2, rate, oversubscription: 2.0 }
        .build()
        .unwrap()
}

/// The cables between the first leaf and these spines fail.
fn fail_uplinks(topology: &Topology, spines: &[&str]) -> Vec<(LinkId, CableChange)> {
    let node = |name: &str| topology.find_node(name).unwrap();
    let link = |spine: &&str| topology.link_between(node("leaf0"), node(spine)).unwrap();
    spines.iter().map(|spine| (link(spine), CableChange::Down)).collect()
}

/// What a flow of coflows that gets a rate sends of it, as a fraction of the rate.
fn coflow_part() -> f64 {
    let budget = LinkBudget::DEFAULT;
    let settings = weir_coordinator::control_plane::Settings::default();
    budget.coflow_payload_fraction(settings.reserve) * weir_proto::FRAME_BYTES as f64
        / weir_proto::PAYLOAD_BYTES as f64
}

/// All hosts report: the flows of these coflows from host 0 to host 2 and to host 1 have data, by UDP, so that they have rates without
/// competition, too. Returns the rates of the flows as fractions of what a coflow gets of a host's link; none for the reserve.
fn rates(plane: &mut ControlPlane, coflows: &[&str], now: f64) -> Vec<Option<f64>> {
    for (host, status) in (0..).zip(plane.host_statuses()) {
        let ready = |id: &&str| FlowProgress {
            udp: true,
            ..FlowProgress::new(flow_key(id, 0), 0, SenderState::Ready)
        };
        let mut flows: Vec<FlowProgress> = coflows.iter().map(ready).collect();
        flows.retain(|_| host == 0);
        plane.report(host, &Report { applied: (1, status.ordered_seq), flows, ..Report::default() }, now);
    }
    plane.tick(now);
    let rate = |id: &&str| match plane.coflow_status(id).unwrap().flows[0].ordered_rate {
        Some(OrderedRate::Rate(rate)) => Some((rate as f64 / LINK_RATE / coflow_part() * 1e3).round() / 1e3),
        _ => None,
    };
    coflows.iter().map(rate).collect()
}

#[test]
fn flows_over_the_failed_link_of_a_host_wait_and_others_get_its_bandwidth() {
    let mut plane = control_plane("fifo", 1);
    plane.register("first", registration(&[(0, 2, 1e9)]), 0.0).unwrap();
    plane.register("second", registration(&[(0, 1, 1e9)]), 0.0).unwrap();
    let coflows = ["first", "second"];
    assert_eq!(rates(&mut plane, &coflows, 0.0), [Some(1.0), None]);
    plane.set_cut_off_hosts(BTreeSet::from([2]), INTERVAL);
    assert!(plane.has_changed_flows(), "an early schedule applies the failure");
    assert_eq!(rates(&mut plane, &coflows, INTERVAL), [None, Some(1.0)]);
    // The share of the reserve lets its socket send soon after the repair.
    let Some(OrderedRate::Reserve(reserve)) = plane.coflow_status("first").unwrap().flows[0].ordered_rate
    else {
        panic!("the flow has a share of the reserve")
    };
    assert!(reserve as f64 > 0.005 * LINK_RATE, "{reserve}");
    // New flows wait, too. Those of a host whose own link has failed as well.
    plane.register("third", registration(&[(0, 2, 1e9)]), 2.0 * INTERVAL).unwrap();
    let all = ["first", "second", "third"];
    assert_eq!(rates(&mut plane, &all, 2.0 * INTERVAL), [None, Some(1.0), None]);
    plane.set_cut_off_hosts(BTreeSet::from([0]), 3.0 * INTERVAL);
    assert_eq!(rates(&mut plane, &all, 3.0 * INTERVAL), [None; 3]);
    plane.set_cut_off_hosts(BTreeSet::new(), 4.0 * INTERVAL);
    assert_eq!(rates(&mut plane, &all, 4.0 * INTERVAL), [Some(1.0), None, None]);
    assert_eq!(HOSTS, 4);
}

#[test]
fn flows_use_the_links_between_switches_that_are_up() {
    let topology = two_leaves();
    for policy in ["fifo", "saath", "fair", "varys"] {
        let mut plane = plane_over(links_of(&topology), policy, 1);
        plane.register("first", registration(&[(0, 2, 1e9)]), 0.0).unwrap();
        let rate_after = |plane: &mut ControlPlane, spines: &[&str], now: f64| {
            let trunks = Trunks::even_split_after(topology.clone(), &fail_uplinks(&topology, spines));
            plane.set_trunks(trunks, build(policy).unwrap(), now).unwrap();
            assert!(plane.has_changed_flows(), "{policy}: an early schedule applies the failure");
            rates(plane, &["first"], now)[0]
        };
        // Both uplinks together carry what the host sends. Under `fair`, TCP divides the links.
        let expected = |rate: f64| (policy != "fair").then_some(rate);
        assert_eq!(rate_after(&mut plane, &[], 0.1), expected(1.0), "{policy}");
        assert_eq!(rate_after(&mut plane, &["spine0"], 0.2), expected(0.5), "{policy}");
        assert_eq!(rate_after(&mut plane, &["spine0", "spine1"], 0.3), None, "{policy}");
        // Flows below the leaf need no uplink.
        plane.register("second", registration(&[(0, 1, 1e9)]), 0.4).unwrap();
        assert_eq!(rates(&mut plane, &["first", "second"], 0.4), [None, expected(1.0)], "{policy}");
        plane.deregister("second", 0.5).unwrap();
        assert_eq!(rate_after(&mut plane, &["spine1"], 0.6), expected(0.5), "{policy}");
        assert_eq!(rate_after(&mut plane, &[], 0.7), expected(1.0), "{policy}");
    }
}

#[test]
fn progress_of_coflows_survives_a_failure_between_switches() {
    let topology = two_leaves();
    let mut plane = plane_over(links_of(&topology), "saath", 1);
    plane.register("first", registration(&[(0, 2, 1e9), (1, 3, 1e9)]), 0.0).unwrap();
    let report = |plane: &mut ControlPlane, state, sent, now| {
        let flows = vec![FlowProgress::new(flow_key("first", 0), sent, state)];
        plane.report(0, &Report { applied: (1, 1), flows, ..Report::default() }, now);
        plane.tick(now);
    };
    report(&mut plane, SenderState::Ready, 0, 0.0);
    report(&mut plane, SenderState::Ready, 500_000, 1.0);
    let trunks = Trunks::even_split_after(topology.clone(), &fail_uplinks(&topology, &["spine0", "spine1"]));
    plane.set_trunks(trunks, build("saath").unwrap(), 1.0).unwrap();
    let sent = |plane: &ControlPlane| plane.coflow_status("first").unwrap().flows[0].sent_bytes;
    assert_eq!(sent(&plane), 500_000.0);
    // No progress is estimated without a path; what the host reports counts.
    plane.tick(20.0);
    assert_eq!(sent(&plane), 500_000.0);
    report(&mut plane, SenderState::Completed, 1_000_000_000, 2000.0);
    assert!(plane.coflow_status("first").unwrap().flows[0].is_completed);
    assert_eq!(plane.is_completed("first"), Some(false));
}

#[test]
fn allocator_leaves_out_connections_without_a_path() {
    let topology = two_leaves();
    let addresses = (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    let mut plane = plane_over(links_of(&topology), "fair", 1).with_allocation(addresses);
    let services = [("s0".into(), 0), ("s1".into(), 1)];
    plane.set_services(ServiceWeights::new(vec![1.0, 1.0], None, BTreeMap::from(services)).unwrap());
    // Both receive at host 3; the first one crosses the uplinks of the first leaf.
    let flows = [(0, 0, 3, Demand::Unlimited), (1, 2, 3, Demand::Unlimited)];
    let mut step = 0.0;
    let mut limits = |plane: &mut ControlPlane| {
        step += 1.0;
        let limits = report_flows(plane, &flows, step);
        let limit = |service: usize, host: u32| {
            let limit = limits.get(&(host, format!("s{service}").into(), address(3).into()))?;
            Some((*limit as f64 / LINK_RATE / 0.99 / 0.99 * 1e3).round() / 1e3)
        };
        [limit(0, 0), limit(1, 2)]
    };
    assert_eq!(limits(&mut plane), [Some(0.5), Some(0.5)]);
    plane.set_cut_off_hosts(BTreeSet::from([0]), 1.5);
    assert_eq!(limits(&mut plane), [None, Some(1.0)]);
    plane.set_cut_off_hosts(BTreeSet::new(), 2.5);
    assert_eq!(limits(&mut plane), [Some(0.5), Some(0.5)]);
    let fail = |plane: &mut ControlPlane, spines: &[&str], now| {
        let trunks = Trunks::even_split_after(topology.clone(), &fail_uplinks(&topology, spines));
        plane.set_trunks(trunks, build("fair").unwrap(), now).unwrap();
    };
    fail(&mut plane, &["spine0", "spine1"], 3.5);
    assert_eq!(limits(&mut plane), [None, Some(1.0)]);
    fail(&mut plane, &[], 4.5);
    assert_eq!(limits(&mut plane), [Some(0.5), Some(0.5)]);
}

#[test]
fn reports_of_links_are_taken_once() {
    let mut plane = control_plane("saath", 1);
    assert_eq!(plane.take_link_reports(), None);
    let report = |links_down: &[u32]| Report { links_down: links_down.to_vec(), ..Report::default() };
    plane.report(1, &report(&[0]), 0.0);
    assert_eq!(plane.take_link_reports(), Some(BTreeMap::from([(1, vec![0])])));
    plane.report(1, &report(&[0]), 1.0);
    assert_eq!(plane.take_link_reports(), None);
    plane.report(1, &report(&[]), 2.0);
    assert_eq!(plane.take_link_reports(), Some(BTreeMap::new()));
}

/// The hosts `a`, `b` and `c` at two switches with two cables between them, which are one of the topology, and a third one between them.
const NETWORK: &str = "weir-fabric = 1\nkind = \"links\"\nhosts = [\"a\", \"b\", \"c\"]\n\
    [[switch]]\nname = \"s1\"\ntier = 1\n[[switch]]\nname = \"s2\"\ntier = 1\n[[switch]]\nname = \"s3\"\ntier = 2\n\
    [[link]]\nends = [\"a\", \"s1\"]\nrate = \"1Gbit\"\n[[link]]\nends = [\"b\", \"s1\"]\nrate = \"1Gbit\"\n\
    [[link]]\nends = [\"c\", \"s2\"]\nrate = \"1Gbit\"\n[[link]]\nends = [\"s1\", \"s2\"]\nrate = \"2Gbit\"\n\
    [[link]]\nends = [\"s1\", \"s3\"]\nrate = \"1Gbit\"\n[[link]]\nends = [\"s3\", \"s2\"]\nrate = \"1Gbit\"\n";

const SWITCHES: &str = "[switch]\ns1 = [\"a\", \"b\", \"s2\", \"s2\"]\ns2 = [\"c\", \"s1\", \"s1\"]\n";

/// A link is up again this long after the last agent has withdrawn its report.
const HOLD_TIME: Duration = Duration::from_secs(2);

fn start_server() -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.toml"), NETWORK).unwrap();
    let (before, after) = CONFIG.split_once("[host]").unwrap();
    let (_, services) = after.split_once("[service.default]").unwrap();
    let before = before.replace("policy =", "topology = \"net.toml\"\npolicy =");
    TestServer::start_with(folder, format!("{before}[service.default]{services}{SWITCHES}"))
}

fn set(server: &TestServer, links: &[&str], state: &str) -> (u16, Value) {
    put(server, "/v1/links", &json!({ "links": links, "state": state }))
}

/// The links that are down, with the reasons.
fn down(server: &TestServer) -> Vec<(String, Vec<String>)> {
    let (status, list) = get(server, "/v1/links");
    assert_eq!(status, 200, "{list}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let links = list.as_array().unwrap().iter().filter(|link| link["state"] == "down");
    let reasons = |link: &Value| link["reasons"].as_array().unwrap().iter().map(text).collect();
    links.map(|link| (text(&link["name"]), reasons(link))).collect()
}

fn wait_until_down(server: &TestServer, expected: &[(&str, &[&str])]) {
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected: Vec<_> =
        expected.iter().map(|(name, reasons)| (name.to_string(), owned(reasons))).collect();
    let began = Instant::now();
    while down(server) != expected {
        assert!(began.elapsed() < TIMEOUT, "{:?}, not {expected:?}", down(server));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The stream of the agent of a host or switch. It repeats its last report each second, since the coordinator closes a silent stream.
struct Agent {
    _runtime: Runtime,
    links_down: watch::Sender<Vec<u32>>,
    _orders: Streaming<CoordinatorMessage>,
}

impl Agent {
    fn connect(server: &TestServer, name: &str) -> Agent {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (reports, orders) = runtime.block_on(async {
            let endpoint = Endpoint::from_shared(format!("http://{}", server.agents)).unwrap();
            let (reports, receiver) = mpsc::channel(1);
            reports.send(AgentMessage::hello(name, Vec::new(), &[])).await.unwrap();
            let mut client = ControlClient::new(endpoint.connect().await.unwrap());
            (reports, client.stream_orders(ReceiverStream::new(receiver)).await.unwrap().into_inner())
        });
        let (links_down, mut last) = watch::channel(Vec::new());
        runtime.spawn(async move {
            loop {
                let report = Report { links_down: last.borrow_and_update().clone(), ..Report::default() };
                if reports.send(AgentMessage::report(&report)).await.is_err() {
                    return;
                }
                let _ = tokio::time::timeout(Duration::from_secs(1), last.changed()).await;
            }
        });
        Agent { _runtime: runtime, links_down, _orders: orders }
    }

    fn report_down(&self, links_down: &[u32]) {
        self.links_down.send_replace(links_down.to_vec());
    }
}

#[test]
fn links_have_names_ends_and_capacities() {
    let server = start_server();
    let row = |link: &Value| {
        let fields = [&link["name"], &link["ends"], &link["bytes_per_second"], &link["state"]];
        assert_eq!((&link["reasons"], &link["since"], &link["by"]), (&json!([]), &Value::Null, &Value::Null));
        json!(fields)
    };
    let found: Vec<Value> = get(&server, "/v1/links").1.as_array().unwrap().iter().map(row).collect();
    let expected = json!([
        ["a", ["a", "s1"], 125e6, "up"],
        ["b", ["b", "s1"], 125e6, "up"],
        ["c", ["c", "s2"], 125e6, "up"],
        ["s1:s2", ["s1", "s2"], 125e6, "up"],
        ["s1:s2:2", ["s1", "s2"], 125e6, "up"],
        ["s1:s3", ["s1", "s3"], 125e6, "up"],
        ["s3:s2", ["s3", "s2"], 125e6, "up"],
    ]);
    assert_eq!(json!(found), expected);
}

#[test]
fn links_taken_down_by_an_operator_stay_down_over_a_restart() {
    let mut server = start_server();
    let mut events = EventStream::open(&server);
    assert_eq!(set(&server, &["c", "s1:s2"], "down").0, 204);
    let first = get(&server, "/v1/links");
    assert_eq!(set(&server, &["c", "s1:s2"], "down").0, 204);
    assert_eq!(get(&server, "/v1/links"), first, "a repeated request changes nothing");
    let operator: (&str, &[&str]) = ("c", &["operator"]);
    wait_until_down(&server, &[operator, ("s1:s2", &["operator"])]);
    let link = &first.1[2];
    assert!(link["since"].as_str().unwrap().starts_with("20") && link["by"] == "plain text", "{link}");
    for name in ["c", "s1:s2"] {
        let line = events.next_with_prefix("data: ");
        assert!(line.contains("link-down") && line.contains(&format!("\"{name}\"")), "{line}");
    }
    assert!(get_text(&server, "/metrics").1.contains("weir_links_down 2"));
    assert_eq!(put(&server, "/v1/coflows/c1", &json!({ "flows": [{ "from": "a", "to": "c" }] })).0, 200);
    server.restart(|text| text);
    wait_until_down(&server, &[operator, ("s1:s2", &["operator"])]);
    let mut events = EventStream::open(&server);
    assert_eq!(set(&server, &["s1:s2"], "up").0, 204);
    wait_until_down(&server, &[operator]);
    assert!(events.next_with_prefix("data: ").contains("link-up"));
    // The configuration loses a link that is down. It can be taken up, and no other unknown one.
    assert_eq!(set(&server, &["s1:s2:2"], "down").0, 204);
    server.restart(|text| {
        text.replace("s1 = [\"a\", \"b\", \"s2\", \"s2\"]", "s1 = [\"a\", \"b\", \"s2\"]")
            .replace("s2 = [\"c\", \"s1\", \"s1\"]", "s2 = [\"c\", \"s1\"]")
    });
    wait_until_down(&server, &[operator]);
    assert_eq!(set(&server, &["s1:s2:2"], "up").0, 204);
    for (links, text) in [
        (&["s1:s2:2"][..], "/links/0: `s1:s2:2` is invalid; expected a link of GET /v1/links"),
        (&["c", "nowhere"], "/links/1: `nowhere` is invalid"),
        (&[], "/links: nothing is named; expected a link of GET /v1/links"),
    ] {
        let (status, problem) = set(&server, links, "up");
        assert!(status == 422 && problem["detail"].as_str().unwrap().contains(text), "{problem}");
    }
    wait_until_down(&server, &[operator]);
}

#[test]
fn link_is_down_while_an_agent_of_either_end_reports_so() {
    let server = start_server();
    let [host, first, second] = ["a", "s1", "s2"].map(|name| Agent::connect(&server, name));
    first.report_down(&[3]);
    wait_until_down(&server, &[("s1:s2:2", &["reported by s1"])]);
    second.report_down(&[2]);
    wait_until_down(&server, &[("s1:s2:2", &["reported by s1", "reported by s2"])]);
    first.report_down(&[0]);
    wait_until_down(&server, &[("a", &["reported by s1"]), ("s1:s2:2", &["reported by s2"])]);
    host.report_down(&[0]);
    second.report_down(&[]);
    wait_until_down(&server, &[("a", &["reported by a", "reported by s1"])]);
    // An operator cannot take up what an agent reports as down, and `up` ends only what operators have stated.
    assert_eq!(set(&server, &["a"], "down").0, 204);
    wait_until_down(&server, &[("a", &["operator", "reported by a", "reported by s1"])]);
    first.report_down(&[]);
    host.report_down(&[]);
    wait_until_down(&server, &[("a", &["operator"])]);
    assert_eq!(set(&server, &["a"], "up").0, 204);
    wait_until_down(&server, &[]);
    // A port or link that does not exist changes nothing.
    first.report_down(&[2, 900]);
    wait_until_down(&server, &[("s1:s2", &["reported by s1"])]);
}

/// A coordinator with this configuration, and with an application whose connection leads from a host to another one.
fn start_with_connection(folder: TempDir, text: String, [from, to]: [&str; 2]) -> TestServer {
    let server = TestServer::start_with(folder, text);
    let table = "version = 1\n[[application]]\nname = \"sort\"\ncoefficients = [5.0, -4.0]\n";
    assert_eq!(send_json_request(&server, "PUT", "/v1/sensitivity", table.as_bytes()).0, 204);
    assert_eq!(put(&server, "/v1/applications/sort", &json!({ "model": "sort" })).0, 200);
    let connection = json!({ "application": "sort", "from": from, "to": to });
    assert_eq!(put(&server, "/v1/connections/x", &connection).0, 200);
    server
}

/// A coordinator with three hosts at three switches that are connected with each other, and a connection from `a` to `b`.
fn start_triangle() -> TestServer {
    let triangle = "[switch]\ns1 = [\"a\", \"s2\", \"s3\"]\ns2 = [\"b\", \"s1\", \"s3\"]\ns3 = [\"c\", \"s1\", \"s2\"]\n";
    start_with_connection(tempfile::tempdir().unwrap(), format!("{CONFIG}{triangle}"), ["a", "b"])
}

/// Links between switches with queues of applications: those that their connections can cross.
fn queues_between_switches(server: &TestServer) -> Vec<String> {
    let queues = get(server, "/v1/queues").1;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = queues.as_array().unwrap().iter().map(|q| text(&q["host"]) + " " + &text(&q["direction"]));
    of.filter(|link| link.contains(" to ")).collect()
}

fn wait_for_queues(server: &TestServer, expected: &[&str]) {
    let began = Instant::now();
    while queues_between_switches(server) != expected {
        assert!(began.elapsed() < TIMEOUT, "{:?}, not {expected:?}", queues_between_switches(server));
        std::thread::sleep(Duration::from_millis(20));
    }
}

const DIRECT: [&str; 2] = ["s1 to s2", "s2 to s1"];
const DETOUR: [&str; 4] = ["s1 to s3", "s2 to s3", "s3 to s1", "s3 to s2"];

#[test]
fn queues_follow_links_between_switches() {
    let server = start_triangle();
    assert_eq!(queues_between_switches(&server), DIRECT);
    assert_eq!(set(&server, &["s1:s2"], "down").0, 204);
    wait_for_queues(&server, &DETOUR);
    // A new connection finds the same way, and the one before can be closed.
    let connection = json!({ "application": "sort", "from": "a", "to": "c" });
    assert_eq!(put(&server, "/v1/connections/y", &connection).0, 200);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/connections/x", b"").0, 204);
    assert_eq!(queues_between_switches(&server), ["s1 to s3", "s3 to s1"]);
    assert_eq!(set(&server, &["s1:s2"], "up").0, 204);
    let connection = json!({ "application": "sort", "from": "a", "to": "b" });
    assert_eq!(put(&server, "/v1/connections/x", &connection).0, 200);
    wait_for_queues(&server, &["s1 to s2", "s1 to s3", "s2 to s1", "s3 to s1"]);
}

/// The paths change once, at the first report, and again after the hold time.
#[test]
fn flapping_link_stays_down_until_the_end_of_the_hold_time() {
    let server = start_triangle();
    let mut events = EventStream::open(&server);
    let switch = Agent::connect(&server, "s1");
    switch.report_down(&[1]);
    wait_for_queues(&server, &DETOUR);
    for _ in 0..5 {
        for links_down in [&[][..], &[1]] {
            switch.report_down(links_down);
            // The coordinator applies reports every 0.25 s.
            std::thread::sleep(Duration::from_millis(350));
            assert_eq!(down(&server), [("s1:s2".to_owned(), vec!["reported by s1".to_owned()])]);
            assert_eq!(queues_between_switches(&server), DETOUR);
        }
    }
    let withdrawn_at = Instant::now();
    switch.report_down(&[]);
    wait_until_down(&server, &[]);
    assert!(withdrawn_at.elapsed() >= HOLD_TIME, "{:?}", withdrawn_at.elapsed());
    wait_for_queues(&server, &DIRECT);
    let mut next_of_links = || loop {
        let line = events.next_with_prefix("data: ");
        if line.contains("link-") {
            return line;
        }
    };
    assert!(next_of_links().contains("link-down"));
    assert!(next_of_links().contains("link-up"));
}

#[test]
fn operators_end_the_hold_time_of_a_link() {
    let server = start_triangle();
    let switch = Agent::connect(&server, "s1");
    switch.report_down(&[1]);
    wait_until_down(&server, &[("s1:s2", &["reported by s1"])]);
    assert_eq!(set(&server, &["s1:s2"], "up").0, 204);
    wait_until_down(&server, &[("s1:s2", &["reported by s1"])]);
    let withdrawn_at = Instant::now();
    switch.report_down(&[]);
    while !down(&server).is_empty() {
        assert!(withdrawn_at.elapsed() < HOLD_TIME, "`up` ends the hold time");
        assert_eq!(set(&server, &["s1:s2"], "up").0, 204);
    }
}

/// The computation of paths between 2000 leaves takes longer than requests.
#[test]
fn requests_are_answered_while_paths_are_computed() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 2\nleaves = 2000\nhosts = 1\nrate = \"1Gbit\"\noversubscription = 1.0\n";
    fs::write(folder.path().join("net.toml"), fabric).unwrap();
    let (before, after) = CONFIG.split_once("[host]").unwrap();
    let (_, services) = after.split_once("[service.default]").unwrap();
    let before = before.replace("policy =", "topology = \"net.toml\"\npolicy =");
    let switches = "[switch]\nleaf0 = [\"h0\", \"spine0\", \"spine1\"]\nleaf1 = [\"h1\", \"spine0\", \"spine1\"]\n\
        spine0 = [\"leaf0\", \"leaf1\"]\nspine1 = [\"leaf0\", \"leaf1\"]\n";
    let text = format!("{before}[service.default]{services}{switches}");
    let server = start_with_connection(folder, text, ["h0", "h1"]);
    let former = queues_between_switches(&server);
    assert_eq!(set(&server, &["leaf0:spine0"], "down").0, 204);
    assert!(get_text(&server, "/metrics").1.contains("weir_links_down 1"));
    assert_eq!(queues_between_switches(&server), former, "the computation has not completed");
    assert_eq!(down(&server), [("leaf0:spine0".to_owned(), vec!["operator".to_owned()])]);
    wait_for_queues(&server, &["leaf0 to spine1", "leaf1 to spine1", "spine1 to leaf0", "spine1 to leaf1"]);
}

#[test]
fn stored_links_are_checked() {
    let check =
        |value: Value| check_record(Table::Settings, "links", value.to_string().as_bytes(), &BTreeSet::new());
    assert_eq!(check(json!({ "c": { "since": "2026-01-01T00:00:00Z", "by": "plain text" } })), Ok(()));
    assert!(check(json!({ "c": { "since": "2026-01-01T00:00:00Z" } })).is_err());
}

#[test]
fn operators_change_links_and_other_roles_see_them() {
    let server = SecureServer::new();
    let body = json!({ "links": ["a"], "state": "down" }).to_string();
    for (name, put_status, get_status) in [
        ("weir://agent/a", 403, 403),
        ("weir://framework/ads", 403, 200),
        ("weir://reader/bob", 403, 200),
        ("weir://operator/ann", 204, 200),
    ] {
        let client = server.client_with_identity(name);
        assert_eq!(server.request(&client, "PUT", "/v1/links", &body).unwrap().0, put_status, "{name}");
        assert_eq!(server.request(&client, "GET", "/v1/links", "").unwrap().0, get_status, "{name}");
    }
    let reader = server.client_with_identity("weir://reader/bob");
    let links: Value =
        serde_json::from_str(&server.request(&reader, "GET", "/v1/links", "").unwrap().1).unwrap();
    assert_eq!((&links[0]["name"], &links[0]["by"]), (&json!("a"), &json!("weir://operator/ann")));
}
