//! Tests of pauses and of shadow mode: orders of the control plane, one call at a time, and the API.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_coordinator::control_plane::{
    ControlPlane, Demand, FlowKey, FlowProgress, FlowStatus, HostPause, LivePolicy, ObservedConnections,
    Order, OrderedRate, PauseMode, Pauses, Queues, Registration, Report, SenderState, ServiceWeights,
    Settings, UdpControl, UdpLimit,
};
use weir_coordinator::registry::check_record;
use weir_coordinator::store::{self, Table};
use weir_core::model::ServiceNames;
use weir_core::policy::{build, django_settings};
use weir_proto::{ApplicationTraffic, BandwidthLimit, MatchingReport, UnclassifiedShare};

use crate::api::{CONFIG, EventStream, TIMEOUT, TestServer, get, get_text, put};
use crate::reported_flows::{report_flows, report_udp, udp};
use crate::roles::SecureServer;
use crate::small_cluster::{
    HOSTS, INTERVAL, LINK_RATE, address, control_plane, equal_links, flow_key, registration, throttling_plane,
};

const PAUSED: HostPause = HostPause { mode: PauseMode::Paused, with_queues: false };
const WITHOUT_QUEUES: HostPause = HostPause { mode: PauseMode::Paused, with_queues: true };
const SHADOW: HostPause = HostPause { mode: PauseMode::Shadow, with_queues: false };

fn pause_host(host: u32, pause: HostPause) -> Pauses {
    Pauses { hosts: BTreeMap::from([(host, pause)]), ..Pauses::default() }
}

/// The numbers of the services `default` and `ads` of [`names`].
const DEFAULT: u32 = 0;
const ADS: u32 = 1;

fn pause_service(service: u32, mode: PauseMode) -> Pauses {
    Pauses { services: BTreeMap::from([(service, mode)]), ..Pauses::default() }
}

/// All hosts report, each with its flows among these, and get their next orders.
fn step(plane: &mut ControlPlane, flows: &[(u32, FlowProgress)], now: f64) -> BTreeMap<u32, Order> {
    for (host, status) in (0..).zip(plane.host_statuses()) {
        let of_host = flows.iter().filter(|(sender, _)| *sender == host);
        let flows = of_host.map(|(_, progress)| progress.clone()).collect();
        plane.report(host, &Report { applied: (1, status.ordered_seq), flows, ..Report::default() }, now);
    }
    plane.tick(now).into_iter().collect()
}

fn ready(key: FlowKey) -> FlowProgress {
    FlowProgress::new(key, 0, SenderState::Ready)
}

fn rates(order: Option<&Order>) -> Vec<(FlowKey, OrderedRate)> {
    order.map(|order| order.flows.clone()).unwrap_or_default()
}

fn flow(plane: &ControlPlane, coflow: &str, flow: usize) -> FlowStatus {
    plane.coflow_status(coflow).unwrap().flows[flow]
}

/// Names of the services `default` and `ads`.
fn names() -> ServiceNames {
    let mut names = ServiceNames::default();
    names.intern("ads", ServiceNames::DEFAULT).unwrap();
    names
}

/// The coflow `first` of the service `ads` from hosts 0 and 1 to host 2, and the coflow `second` of the default service from host 0 to
/// host 3, under a policy that serves the first one first.
fn two_coflows() -> (ControlPlane, Vec<(u32, FlowProgress)>) {
    let mut plane =
        ControlPlane::new(equal_links(), build("fifo").unwrap(), names(), Settings::default(), 1).unwrap();
    let first = Registration { service: "ads".to_owned(), ..registration(&[(0, 2, 9e6), (1, 2, 9e6)]) };
    plane.register("first", first, 0.0).unwrap();
    plane.register("second", registration(&[(0, 3, 9e6)]), 0.0).unwrap();
    let keys = [(0, flow_key("first", 0)), (1, flow_key("first", 1)), (0, flow_key("second", 0))];
    (plane, keys.map(|(host, key)| (host, ready(key))).to_vec())
}

fn is_limited(rate: Option<OrderedRate>) -> bool {
    matches!(rate, Some(OrderedRate::Rate(_) | OrderedRate::Reserve(_)))
}

#[test]
fn paused_host_sends_as_plain_tcp_and_others_keep_their_rates() {
    let (mut plane, flows) = two_coflows();
    let orders = step(&mut plane, &flows, 0.0);
    assert!(rates(orders.get(&0)).iter().all(|(_, rate)| is_limited(Some(*rate))), "{orders:?}");
    let shared = flow(&plane, "first", 1).ordered_rate;
    plane.set_pauses(pause_host(0, PAUSED), INTERVAL);
    assert!(plane.has_changed_flows(), "an early schedule applies the pause");
    let orders = step(&mut plane, &[], INTERVAL);
    let order = &orders[&0];
    assert!(order.is_full && !order.without_queues);
    let unlimited =
        [flow_key("first", 0), flow_key("second", 0)].map(|key| (key, OrderedRate::Unlimited)).to_vec();
    assert_eq!(order.flows, unlimited);
    // The other flow of the coflow has what the paused flow has left at the receiver, and competes with no other coflow.
    assert!(is_limited(shared));
    assert_eq!(flow(&plane, "first", 1).ordered_rate, Some(OrderedRate::Unlimited));
    let status = flow(&plane, "first", 0);
    assert_eq!((status.pause, status.shadow_rate), (Some(PauseMode::Paused), None));
    let pauses = |id: &str| plane.coflow_status(id).unwrap().summary.pause;
    assert_eq!(
        (pauses("first"), plane.host_statuses()[0].pause),
        (Some(PauseMode::Paused), Some(PauseMode::Paused))
    );
    assert_eq!(plane.host_statuses()[1].pause, None);
    // Progress and completion count as always, and the lease is renewed.
    let done = FlowProgress::new(flow_key("second", 0), 9_000_000, SenderState::Completed);
    step(&mut plane, &[(0, done)], 60.0);
    assert_eq!(plane.is_completed("second"), Some(true));
    plane.set_pauses(Pauses::default(), 60.0 + INTERVAL);
    let orders = step(&mut plane, &[], 60.0 + INTERVAL);
    assert!(orders[&0].is_full);
    assert_eq!(flow(&plane, "first", 0).pause, None);
}

/// A resumed flow has a rate again, at once: its agent has reported during the pause.
#[test]
fn resumed_host_has_its_rates_again_with_the_next_order() {
    let (mut plane, flows) = two_coflows();
    let before = rates(step(&mut plane, &flows, 0.0).get(&0));
    for (pause, now) in [(PAUSED, 0.1), (SHADOW, 0.2), (WITHOUT_QUEUES, 0.3)] {
        plane.set_pauses(Pauses { all: Some(pause), ..Pauses::default() }, now);
        for (host, order) in step(&mut plane, &flows, now) {
            assert!(order.is_full, "{host}");
            assert!(order.flows.iter().all(|(_, rate)| *rate == OrderedRate::Unlimited), "{order:?}");
            assert_eq!(order.without_queues, pause != PAUSED);
        }
        plane.set_pauses(Pauses::default(), now + INTERVAL);
        let orders = step(&mut plane, &flows, now + INTERVAL);
        assert_eq!((orders[&0].is_full, rates(orders.get(&0))), (true, before.clone()));
    }
}

#[test]
fn shadow_mode_shows_the_rates_that_orders_would_have() {
    let (mut plane, flows) = two_coflows();
    step(&mut plane, &flows, 0.0);
    let expected =
        [("first", 0), ("first", 1), ("second", 0)].map(|(id, at)| flow(&plane, id, at).ordered_rate);
    assert!(expected.iter().all(|rate| is_limited(*rate)), "{expected:?}");
    plane.set_pauses(pause_host(0, SHADOW), INTERVAL);
    let orders = step(&mut plane, &flows, INTERVAL);
    assert!(orders[&0].is_full && orders[&0].without_queues);
    let of_host_0 = [("first", 0, 0), ("second", 0, 2)];
    for (id, at, position) in of_host_0 {
        let status = flow(&plane, id, at);
        assert_eq!(
            (status.ordered_rate, status.pause),
            (Some(OrderedRate::Unlimited), Some(PauseMode::Shadow))
        );
        assert_eq!(status.shadow_rate, expected[position]);
    }
    // The schedule counts the rate of the other flow, so this one keeps its rate.
    assert_eq!(flow(&plane, "first", 1).ordered_rate, expected[1]);
    let allocations = plane.flow_allocations(None, 10);
    let shown: Vec<_> = allocations.iter().map(|flow| flow.shadow_rate).collect();
    assert_eq!(shown, [expected[0], None, expected[2]]);
}

#[test]
fn paused_service_leaves_its_rates_to_others_at_all_hosts() {
    let (mut plane, flows) = two_coflows();
    step(&mut plane, &flows, 0.0);
    plane.set_pauses(pause_service(ADS, PauseMode::Paused), INTERVAL);
    let orders = step(&mut plane, &flows, INTERVAL);
    // Queues and the rates of other services stay, so no full order is necessary.
    assert!(orders.values().all(|order| !order.is_full && !order.without_queues));
    let ordered = |plane: &ControlPlane| {
        [("first", 0), ("first", 1), ("second", 0)].map(|(id, at)| flow(plane, id, at).ordered_rate)
    };
    assert_eq!(ordered(&plane), [Some(OrderedRate::Unlimited); 3]);
    // A flow that is registered during the pause is paused, too.
    let third = Registration { service: "ads".to_owned(), ..registration(&[(1, 2, 9e6)]) };
    plane.register("third", third, 2.0 * INTERVAL).unwrap();
    step(&mut plane, &[(1, ready(flow_key("third", 0)))], 2.0 * INTERVAL);
    let third = flow(&plane, "third", 0);
    assert_eq!((third.ordered_rate, third.pause), (Some(OrderedRate::Unlimited), Some(PauseMode::Paused)));
    // In shadow mode, the flows count in the schedule.
    plane.set_pauses(pause_service(ADS, PauseMode::Shadow), 3.0 * INTERVAL);
    step(&mut plane, &flows, 3.0 * INTERVAL);
    assert_eq!(ordered(&plane)[..2], [Some(OrderedRate::Unlimited); 2]);
    assert!(is_limited(flow(&plane, "second", 0).ordered_rate));
    assert!(is_limited(flow(&plane, "first", 0).shadow_rate));
}

#[test]
fn stronger_pause_applies_to_a_flow() {
    let (mut plane, flows) = two_coflows();
    let mut pauses = Pauses { all: Some(SHADOW), ..pause_host(0, PAUSED) };
    plane.set_pauses(pauses.clone(), 0.0);
    let orders = step(&mut plane, &flows, 0.0);
    assert_eq!(flow(&plane, "first", 0).pause, Some(PauseMode::Paused));
    assert_eq!(flow(&plane, "first", 1).pause, Some(PauseMode::Shadow));
    assert!(orders[&0].without_queues, "queues end in shadow mode of all");
    pauses.services = BTreeMap::from([(ADS, PauseMode::Paused)]);
    plane.set_pauses(pauses, INTERVAL);
    assert_eq!(flow(&plane, "first", 1).pause, Some(PauseMode::Paused));
}

#[test]
fn orders_during_a_pause_without_queues_name_none_and_the_next_order_names_all() {
    let mut plane = control_plane("fair", 1).with_switches(vec![vec![Some(0), Some(1)]]);
    let queues = Queues {
        weights: vec![1.0, 2.0],
        queue_of_class: vec![0, 1],
        class_of_application: vec![("web".into(), 1)],
        guaranteed: true,
        unclassified: UnclassifiedShare::default(),
        rate_bounds: Vec::new(),
    };
    let traffic =
        vec![ApplicationTraffic { application: "web".into(), cgroups: Vec::new(), ports: vec![80] }];
    let (host, switch) = (0, HOSTS);
    plane.set_queues(host, 0, queues.clone());
    plane.set_queues(switch, 1, queues.clone());
    plane.set_traffic(host, traffic.clone());
    plane.set_pauses(Pauses { all: Some(PAUSED), ..Pauses::default() }, 0.0);
    let orders = step(&mut plane, &[], 0.0);
    assert_eq!((orders[&host].queues.len(), orders[&host].traffic.as_ref()), (1, Some(&traffic)));
    let parts =
        |order: &Order| (order.is_full, order.queues.len(), order.traffic.is_some(), order.without_queues);
    for pause in [WITHOUT_QUEUES, SHADOW] {
        plane.set_pauses(Pauses { all: Some(pause), ..Pauses::default() }, 1.0);
        let orders = step(&mut plane, &[], 1.0);
        assert_eq!(parts(&orders[&host]), (true, 0, false, true));
        assert_eq!(parts(&orders[&switch]), (true, 0, false, true));
        // A change during the pause is sent at its end.
        plane.set_queues(switch, 0, queues.clone());
        assert!(step(&mut plane, &[], 2.0).values().all(|order| order.queues.is_empty()));
        plane.set_pauses(Pauses::default(), 3.0);
        let orders = step(&mut plane, &[], 3.0);
        assert_eq!(parts(&orders[&host]), (true, 1, true, false));
        assert_eq!(parts(&orders[&switch]), (true, 2, false, false));
    }
}

/// A control plane with an allocator, and UDP limits of the allocator. Applications `s0` and `s1` belong to the services.
fn allocating_plane() -> ControlPlane {
    let policy = build("fair").unwrap();
    let plane = ControlPlane::new(equal_links(), policy, names(), Settings::default(), 1).unwrap();
    let addresses = || (0..HOSTS).map(|host| (address(host).into(), host)).collect();
    let mut plane = plane.with_allocation(addresses()).with_throttling(addresses());
    let services = BTreeMap::from([("s0".into(), 0), ("s1".into(), 1)]);
    plane.set_services(ServiceWeights::new(vec![1.0, 1.0], None, services).unwrap());
    plane
}

#[test]
fn limits_of_the_allocator_end_with_a_pause_and_others_get_the_bandwidth() {
    let mut plane = allocating_plane();
    let flows = [(0, 0, 3, Demand::Unlimited), (1, 1, 3, Demand::Unlimited)];
    let key = |host: u32, service: &str| (host, service.into(), address(3).into());
    let limits = report_flows(&mut plane, &flows, 0.0);
    let (half, all) = (limits[&key(0, "s0")], 2 * limits[&key(1, "s1")]);
    plane.set_pauses(pause_host(0, PAUSED), INTERVAL);
    let limits = report_flows(&mut plane, &flows, INTERVAL);
    assert!(!limits.contains_key(&key(0, "s0")) && plane.shadow_limits().is_empty());
    assert!(limits[&key(1, "s1")].abs_diff(all) < 2, "{limits:?}");
    // In shadow mode, the limit is shown and counts.
    for pauses in [pause_host(0, SHADOW), pause_service(DEFAULT, PauseMode::Shadow)] {
        plane.set_pauses(pauses, 2.0 * INTERVAL);
        let limits = report_flows(&mut plane, &flows, 2.0 * INTERVAL);
        assert_eq!(limits.keys().cloned().collect::<Vec<_>>(), [key(1, "s1")]);
        assert_eq!((limits[&key(1, "s1")], plane.shadow_limits()[&key(0, "s0")]), (half, half));
    }
    plane.set_pauses(Pauses::default(), 3.0 * INTERVAL);
    assert_eq!(report_flows(&mut plane, &flows, 3.0 * INTERVAL)[&key(0, "s0")], half);
}

/// The order that pauses a service ends the limits that the agent has.
#[test]
fn order_of_a_pause_removes_limits_of_connections() {
    let mut plane = allocating_plane();
    let observed = |application: &str| ObservedConnections {
        application: application.into(),
        peer: address(3).into(),
        open_connections: 1,
        sent_bytes: 1,
        demand: Demand::Unlimited,
    };
    let report = |plane: &ControlPlane| {
        let applied = (1, plane.host_statuses()[0].ordered_seq);
        Report { applied, observed: vec![observed("s0"), observed("s1")], ..Report::default() }
    };
    let first = report(&plane);
    plane.report(0, &first, 0.0);
    let orders: BTreeMap<u32, Order> = plane.tick(0.0).into_iter().collect();
    assert_eq!(orders[&0].limits.len(), 2);
    plane.set_pauses(pause_service(ADS, PauseMode::Paused), INTERVAL);
    let second = report(&plane);
    plane.report(0, &second, INTERVAL);
    let orders: BTreeMap<u32, Order> = plane.tick(INTERVAL).into_iter().collect();
    let limits: Vec<_> = orders[&0].limits.iter().map(|limit| (&*limit.application, limit.rate)).collect();
    assert!(
        matches!(limits[..], [("s0", OrderedRate::Rate(_)), ("s1", OrderedRate::Unlimited)]),
        "{limits:?}"
    );
}

#[test]
fn orders_end_limits_of_udp_that_is_paused() {
    let offered = LINK_RATE as u64;
    // By the allocator: the mark of the second service is 2.
    let mut plane = allocating_plane();
    assert_eq!(plane.udp_control(), Some(UdpControl::Allocation));
    let measured = [udp(1, 0, 3, offered), udp(2, 0, 3, offered), udp(2, 1, 3, offered)];
    let limited = |limits: Vec<(u32, UdpLimit)>| -> Vec<(u32, u8, bool)> {
        let ends = |limit: UdpLimit| limit.rate == UdpLimit::ENDED;
        limits.into_iter().map(|(host, limit)| (host, limit.flow.mark.get(), ends(limit))).collect()
    };
    assert_eq!(
        limited(report_udp(&mut plane, &measured, 0.0)),
        [(0, 1, false), (0, 2, false), (1, 2, false)]
    );
    for mode in [PauseMode::Paused, PauseMode::Shadow] {
        plane.set_pauses(pause_service(ADS, mode), 0.1);
        assert_eq!(
            limited(report_udp(&mut plane, &measured, 0.1)),
            [(0, 1, false), (0, 2, true), (1, 2, true)]
        );
    }
    plane.set_pauses(pause_host(0, PAUSED), 0.2);
    assert_eq!(limited(report_udp(&mut plane, &measured, 0.2)), [(0, 1, true), (0, 2, true), (1, 2, false)]);
    // By measurements of the receiver.
    let mut plane = throttling_plane(equal_links(), "fair", 1);
    plane.set_pauses(pause_host(0, SHADOW), 0.0);
    step(&mut plane, &[], 0.0);
    let udp_measurements = vec![udp(1, 0, 3, 1000), udp(1, 1, 3, 1000)];
    plane.report(3, &Report { applied: (1, 1), udp_measurements, ..Report::default() }, INTERVAL);
    let orders = step(&mut plane, &[], INTERVAL);
    assert_eq!(orders[&0].udp_measurements, []);
    assert_eq!(orders[&0].udp_limits, [UdpLimit { flow: udp(1, 0, 3, 1).flow, rate: UdpLimit::ENDED }]);
    assert_eq!((orders[&1].udp_measurements.len(), orders[&1].udp_limits.len()), (1, 0));
}

/// A flow over UDP has no filter with a rate.
#[test]
fn coflow_over_udp_is_unlimited_in_a_pause() {
    let mut plane = control_plane("saath", 1);
    plane.register("a", registration(&[(0, 1, 5e5)]), 0.0).unwrap();
    let progress = FlowProgress { udp: true, ..ready(flow_key("a", 0)) };
    step(&mut plane, &[(0, progress.clone())], 0.0);
    assert!(is_limited(flow(&plane, "a", 0).ordered_rate));
    plane.set_pauses(pause_host(0, PAUSED), INTERVAL);
    let orders = step(&mut plane, &[(0, progress)], INTERVAL);
    assert_eq!(rates(orders.get(&0)), [(flow_key("a", 0), OrderedRate::Unlimited)]);
}

#[test]
fn paused_host_takes_no_part_in_matching() {
    let settings = django_settings("django:connections=1").unwrap().unwrap();
    let policy = LivePolicy::matching(settings);
    let mut plane = ControlPlane::new(equal_links(), policy, names(), Settings::default(), 1).unwrap();
    let gated = |key| FlowProgress { gated: true, ..ready(key) };
    let report_all = |plane: &mut ControlPlane, now: f64| -> BTreeMap<u32, Order> {
        for (host, status) in (0..).zip(plane.host_statuses()) {
            let flows = if host < 2 { vec![gated(flow_key("a", host))] } else { Vec::new() };
            let matching = status.pause.is_none().then(|| MatchingReport {
                vacant_uplink: LINK_RATE as u64,
                vacant_downlink: LINK_RATE as u64,
                ..MatchingReport::default()
            });
            let applied = (1, status.ordered_seq);
            plane.report(host, &Report { applied, flows, matching, ..Report::default() }, now);
        }
        plane.tick(now).into_iter().collect()
    };
    plane.register("a", registration(&[(0, 2, 5e5), (1, 3, 5e5)]), 0.0).unwrap();
    let orders = report_all(&mut plane, 0.0);
    assert!(orders.values().all(|order| order.matching.is_some()), "{orders:?}");
    report_all(&mut plane, INTERVAL);
    let ordered = |plane: &ControlPlane| [0, 1].map(|at| flow(plane, "a", at).ordered_rate);
    assert_eq!(ordered(&plane), [Some(OrderedRate::Paused); 2]);
    // The sender is paused: the receiver does not decide about its flow.
    plane.set_pauses(pause_host(0, PAUSED), 2.0 * INTERVAL);
    let orders = report_all(&mut plane, 2.0 * INTERVAL);
    assert_eq!((orders[&0].is_full, &orders[&0].matching), (true, &None));
    assert_eq!(ordered(&plane), [Some(OrderedRate::Unlimited), Some(OrderedRate::Paused)]);
    let part = orders[&2].matching.as_ref().unwrap();
    assert_eq!(part.flows.iter().map(|flow| flow.remaining_bytes).collect::<Vec<_>>(), [0]);
    // The receiver is paused: flows to it need no connection.
    plane.set_pauses(pause_host(3, PAUSED), 3.0 * INTERVAL);
    let orders = report_all(&mut plane, 3.0 * INTERVAL);
    assert_eq!((orders[&3].is_full, &orders[&3].matching), (true, &None));
    assert_eq!(ordered(&plane), [Some(OrderedRate::Paused), Some(OrderedRate::Unlimited)]);
    // After the pause, the receiver decides again.
    plane.set_pauses(Pauses::default(), 4.0 * INTERVAL);
    let orders = report_all(&mut plane, 4.0 * INTERVAL);
    assert_eq!(orders[&3].matching.as_ref().map(|part| part.flows.len()), Some(1));
    assert_eq!(ordered(&plane), [Some(OrderedRate::Paused); 2]);
}

#[test]
fn pause_ends_the_bandwidth_limit_of_a_profile() {
    let mut plane = control_plane("saath", 1);
    step(&mut plane, &[], 0.0);
    let limit = BandwidthLimit::new(0.5).unwrap();
    plane.limit_bandwidth(0, "p", limit, 60.0, 0.0).unwrap();
    assert_eq!(step(&mut plane, &[], INTERVAL)[&0].bandwidth_limit, Some(limit));
    plane.set_pauses(pause_host(0, PAUSED), 2.0 * INTERVAL);
    assert_eq!(step(&mut plane, &[], 2.0 * INTERVAL)[&0].bandwidth_limit, None);
    assert_eq!(plane.host_statuses()[0].bandwidth_fraction, None);
}

fn pause(mode: &str, keys: Value) -> Value {
    let mut body = json!({ "mode": mode });
    body.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    body
}

/// The pauses without their times.
fn pauses(server: &TestServer) -> Vec<(Value, Value, Value, Value)> {
    let (status, list) = get(server, "/v1/pause");
    assert_eq!(status, 200, "{list}");
    let fields = |pause: &Value| {
        let since = pause["since"].as_str().unwrap();
        assert!(since.starts_with("20") && since.ends_with('Z') && pause["by"] == "plain text", "{pause}");
        (pause["target"].clone(), pause["name"].clone(), pause["mode"].clone(), pause["queues"].clone())
    };
    list.as_array().unwrap().iter().map(fields).collect()
}

#[test]
fn pauses_are_idempotent_and_shown_everywhere() {
    let server = TestServer::start();
    let mut events = EventStream::open(&server);
    assert_eq!(put(&server, "/v1/coflows/c1", &json!({ "flows": [{ "from": "a", "to": "b" }] })).0, 200);
    let body = pause("paused", json!({ "hosts": ["a"], "services": ["ads"] }));
    assert_eq!(put(&server, "/v1/pause", &body).0, 204);
    let first = get(&server, "/v1/pause");
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(put(&server, "/v1/pause", &body).0, 204);
    assert_eq!(get(&server, "/v1/pause"), first, "a repeated pause keeps its beginning");
    let row = |target: &str, name: Value, mode: &str, queues: bool| {
        (json!(target), name, json!(mode), json!(queues))
    };
    let (host, service) =
        (row("host", json!("a"), "paused", false), row("service", json!("ads"), "paused", false));
    assert_eq!(pauses(&server), [host, service.clone()]);
    let of = |path: &str, at: usize| get(&server, path).1[at].get("pause").cloned();
    assert_eq!((of("/v1/hosts", 0), of("/v1/hosts", 1)), (Some(json!("paused")), None));
    assert_eq!((of("/v1/services", 0), of("/v1/services", 1)), (None, Some(json!("paused"))));
    let coflow = get(&server, "/v1/coflows/c1").1;
    assert_eq!((&coflow["pause"], &coflow["flows"][0]["pause"]), (&json!("paused"), &json!("paused")));
    assert_eq!(get(&server, "/v1/coflows").1["coflows"][0]["pause"], "paused");
    let metrics = get_text(&server, "/metrics").1;
    for line in [
        "weir_paused_hosts{mode=\"paused\"} 1",
        "weir_paused_hosts{mode=\"shadow\"} 0",
        "weir_paused_services{mode=\"paused\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let subjects: Vec<String> = std::iter::from_fn(|| {
        let line = events.next_with_prefix("data: ");
        let event: Value = serde_json::from_str(line.trim_start_matches("data: ")).unwrap();
        Some((event["event"] == "pause-changed").then(|| event["subject"].as_str().unwrap().to_owned()))
    })
    .flatten()
    .take(2)
    .collect();
    assert_eq!(subjects, ["a", "ads"]);
    // A profile of a paused host would measure without its limits.
    let limit = json!({ "fraction": 0.5, "lease": "10s", "owner": "p" });
    assert_eq!(put(&server, "/v1/hosts/a/bandwidth", &limit).0, 409);
    assert_eq!(put(&server, "/v1/pause", &pause("enforced", json!({ "hosts": ["a", "b"] }))).0, 204);
    assert_eq!(pauses(&server), std::slice::from_ref(&service));
    assert_eq!(put(&server, "/v1/pause", &pause("shadow", json!({ "all": true }))).0, 204);
    assert_eq!(pauses(&server)[0], row("all", Value::Null, "shadow", true));
    let (status, problem) = put(&server, "/v1/pause", &pause("enforced", json!({ "hosts": ["a"] })));
    assert_eq!(status, 409, "{problem}");
    assert_eq!(put(&server, "/v1/pause", &pause("enforced", json!({ "all": true }))).0, 204);
    assert_eq!(pauses(&server), [service]);
    assert_eq!(put(&server, "/v1/pause", &pause("enforced", json!({ "services": ["ads"] }))).0, 204);
    assert_eq!(pauses(&server), []);
}

#[test]
fn invalid_pauses_are_refused() {
    let server = TestServer::start();
    for (body, pointer) in [
        (pause("paused", json!({ "hosts": ["a", "z"] })), "/hosts/1"),
        (pause("shadow", json!({ "services": ["web"] })), "/services/0"),
        (pause("paused", json!({})), ""),
        (pause("paused", json!({ "services": ["ads"], "queues": true })), "/queues"),
        (pause("enforced", json!({ "hosts": ["a"], "queues": true })), "/queues"),
        (pause("stopped", json!({ "all": true })), "/mode"),
    ] {
        let (status, problem) = put(&server, "/v1/pause", &body);
        assert_eq!((status, problem["pointer"].as_str()), (422, Some(pointer)), "{body}: {problem}");
    }
    assert_eq!(get(&server, "/v1/pause"), (200, json!([])));
}

/// The first order of a coordinator that has restarted.
fn first_order(server: &TestServer, host: u32) -> Order {
    let registry = server.registry();
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let mut orders = registry.handle().subscribe_to_orders(host).await.unwrap().unwrap();
        registry.handle().report(host, Report::default()).await.unwrap();
        tokio::time::timeout(TIMEOUT, orders.recv()).await.unwrap().unwrap()
    })
}

#[test]
fn first_order_after_a_restart_is_paused() {
    let text = CONFIG.replace("policy =", "queues = \"services\"\npolicy =");
    let mut server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    for id in ["web", "sort"] {
        let body = json!({ "service": if id == "web" { "default" } else { "ads" } });
        assert_eq!(put(&server, &format!("/v1/applications/{id}"), &body).0, 200);
    }
    assert!(!first_order(&server, 0).without_queues);
    let body = pause("shadow", json!({ "hosts": ["a"], "services": ["ads"] }));
    assert_eq!(put(&server, "/v1/pause", &body).0, 204);
    let before = get(&server, "/v1/pause");
    for restart in 0..2 {
        let order = first_order(&server, 0);
        assert!(order.is_full && order.without_queues && order.queues.is_empty(), "{restart}: {order:?}");
        // Packets of the service have no mark at other hosts, either, also if options of their agents set one. Its connections are
        // observed.
        let order = first_order(&server, 1);
        let classes = &order.queues[0].1.class_of_application;
        let is_unmarked = |(id, class): &(Arc<str>, u32)| (id.to_string(), *class == Queues::UNMARKED);
        let found: Vec<(String, bool)> = classes.iter().map(is_unmarked).collect();
        assert_eq!(found, [("sort".to_owned(), true), ("web".to_owned(), false)], "{restart}");
        assert_eq!(get(&server, "/v1/pause"), before);
        server.restart(|text| text);
    }
    // Backups and restores check the record.
    server.stop();
    let summary = store::verify(&server.folder.path().join("weir.redb"), check_record).unwrap();
    assert_eq!(summary.records["settings"], 1);
    let damaged = check_record(Table::Settings, "pauses", br#"{"hosts": {"a": "paused"}}"#, &BTreeSet::new());
    assert!(damaged.is_err());
    // A host that the configuration has lost is no error, and its pause can be ended.
    server.restart(|text| text.replace("a = \"1Gbit\"\n", ""));
    assert_eq!(get(&server, "/v1/hosts").1[0].get("pause"), None);
    assert_eq!(put(&server, "/v1/pause", &body).0, 422);
    let body = pause("enforced", json!({ "hosts": ["a"], "services": ["ads"] }));
    assert_eq!(put(&server, "/v1/pause", &body).0, 204);
    assert_eq!(get(&server, "/v1/pause").1, json!([]));
    let order = first_order(&server, 0);
    assert!(order.queues[0].1.class_of_application.iter().all(|(_, class)| *class != Queues::UNMARKED));
}

#[test]
fn operators_pause_and_frameworks_see_their_own_service() {
    let server = SecureServer::new();
    let body = pause("paused", json!({ "hosts": ["a"], "services": ["default"] })).to_string();
    let client = |name: &str| server.client_with_identity(name);
    for (name, put_status, get_status) in [
        ("weir://agent/a", 403, 403),
        ("weir://framework/ads", 403, 200),
        ("weir://reader/bob", 403, 200),
        ("weir://operator/ann", 204, 200),
    ] {
        let client = client(name);
        assert_eq!(server.request(&client, "PUT", "/v1/pause", &body).unwrap().0, put_status, "{name}");
        assert_eq!(server.request(&client, "GET", "/v1/pause", "").unwrap().0, get_status, "{name}");
    }
    let seen = |name: &str| -> Vec<(Value, Value)> {
        let (_, text) = server.request(&client(name), "GET", "/v1/pause", "").unwrap();
        let list: Vec<Value> = serde_json::from_str(&text).unwrap();
        list.into_iter().map(|pause| (pause["name"].clone(), pause["by"].clone())).collect()
    };
    let host = (json!("a"), json!("weir://operator/ann"));
    let service = (json!("default"), json!("weir://operator/ann"));
    assert_eq!(seen("weir://framework/ads"), std::slice::from_ref(&host));
    assert_eq!(seen("weir://reader/bob"), [host, service]);
}

#[test]
fn audit_log_has_the_pauses_before_and_after() {
    let text = CONFIG.replacen("policy = ", "audit = \"audit.jsonl\"\npolicy = ", 1);
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), text);
    assert_eq!(put(&server, "/v1/pause", &pause("paused", json!({ "hosts": ["b"], "queues": true }))).0, 204);
    assert_eq!(put(&server, "/v1/pause", &pause("enforced", json!({ "hosts": ["b"] }))).0, 204);
    // It changes nothing.
    assert_eq!(put(&server, "/v1/pause", &pause("enforced", json!({ "hosts": ["b"] }))).0, 204);
    server.registry().audit().flush(TIMEOUT);
    let text = fs::read_to_string(server.folder.path().join("audit.jsonl")).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let changes: Vec<Value> = entries.filter(|entry| entry["action"] == "set_pause").collect();
    assert_eq!(changes.len(), 2, "{text}");
    let modes =
        |entry: &Value| [&entry["before"], &entry["after"]].map(|state| state["hosts"]["b"]["mode"].clone());
    assert_eq!(modes(&changes[0]), [Value::Null, json!("paused")]);
    assert_eq!(modes(&changes[1]), [json!("paused"), Value::Null]);
    assert_eq!(changes[0]["after"]["hosts"]["b"]["queues"], true);
}
