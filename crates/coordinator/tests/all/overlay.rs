//! Tests of the overlay's state machine with relays that apply orders, without clock, threads and sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_coordinator::coflow_status::{CoflowSummary, Phase};
use weir_coordinator::config;
use weir_coordinator::control_plane::{Refusal, Settings};
use weir_coordinator::overlay::decision::decide;
use weir_coordinator::overlay::{
    Flow, Handle, MAX_FAILED_COFLOWS, Overlay, Registration, Restored, find_common_number,
};
use weir_coordinator::quota::QuotaReached;
use weir_coordinator::quota::{CoflowQuota, CoflowUsage, ServiceQuota};
use weir_core::wide_area_policy::WideAreaPolicy;
use weir_proto::relay::wire::{self, controller_message};
use weir_proto::relay::{
    GroupProgress, PathSample, RegionPair, RelayCoflow, RelayMatch, RelayOrder, RelayPeer, RelayReport,
    RelayRule, RuleScope, UnruledFlow,
};

const MB: u64 = 1_000_000;

/// Regions 1, 2 and 3 with one relay each; 50 MB take one second on each link.
const THREE_REGIONS: &str = r#"weir-serve = 1
store = "weir.redb"
listen = { agents = "127.0.0.1:0", api = "127.0.0.1:0" }

[overlay]
policy = "POLICY"
max-detoured = 1

[overlay.relay]
r1 = { region = "dc1", address = "10.1.0.1:7710", networks = ["10.1.0.0/16"] }
r2 = { region = "dc2", address = "10.2.0.1:7710", networks = ["10.2.0.0/16"] }
r3 = { region = "dc3", address = "10.3.0.1:7710", networks = ["10.3.0.0/16"] }

[overlay.link]
dc1 = { dc2 = "400Mbit", dc3 = "400Mbit" }
dc2 = { dc1 = "400Mbit", dc3 = "400Mbit" }
dc3 = { dc1 = "400Mbit", dc2 = "400Mbit" }
"#;

/// What a relay knows after its orders.
#[derive(Debug, Clone, Default, PartialEq)]
struct FakeRelay {
    applied: (u64, u64),
    coflows: BTreeMap<u32, RelayCoflow>,
    rules: BTreeMap<RelayMatch, RelayRule>,
    peer_count: usize,
}

impl FakeRelay {
    fn apply(&mut self, order: RelayOrder) {
        if order.is_full {
            self.coflows.clear();
            self.rules.clear();
            self.peer_count = order.peers.len();
        } else {
            assert_eq!((order.epoch, order.seq), (self.applied.0, self.applied.1 + 1));
        }
        for number in &order.removed_coflows {
            assert!(self.coflows.remove(number).is_some(), "coflow {number} is unknown");
            self.rules.retain(|flows, _| flows.coflow != *number);
        }
        for flows in &order.removed_rules {
            assert!(self.rules.remove(flows).is_some(), "rule {flows:?} is unknown");
        }
        self.coflows.extend(order.coflows.into_iter().map(|coflow| (coflow.number, coflow)));
        for rule in order.rules {
            assert!(self.coflows.contains_key(&rule.flows.coflow));
            self.rules.insert(rule.flows, rule);
        }
        self.applied = (order.epoch, order.seq);
    }

    /// Priority and next regions of a match.
    fn rule(&self, coflow: u32, scope: RuleScope) -> Option<(u16, Vec<(u16, f64)>)> {
        let rule = self.rules.get(&RelayMatch { coflow, scope })?;
        Some((rule.priority, rule.paths.iter().map(|path| (path.next_region, path.fraction)).collect()))
    }
}

/// An overlay, its decisions and its relays.
struct Cluster {
    config: Arc<config::Overlay>,
    overlay: Overlay,
    policy: WideAreaPolicy,
    relays: Vec<FakeRelay>,
    is_connected: Vec<bool>,
    now: f64,
}

fn parse(text: &str) -> Arc<config::Overlay> {
    let config = config::parse(text, "serve.toml", Path::new("")).unwrap();
    Arc::new(config.overlay.unwrap())
}

fn limits() -> Settings {
    Settings { max_coflows: 100, max_flows: 1000, keep_completed: 60.0, ..Settings::default() }
}

impl Cluster {
    fn new(policy: &str) -> Cluster {
        Cluster::with_config(&THREE_REGIONS.replace("POLICY", policy))
    }

    fn with_config(text: &str) -> Cluster {
        let config = parse(text);
        let relays = config.relays.len();
        let mut cluster = Cluster {
            overlay: Overlay::new(Arc::clone(&config), limits(), 5),
            policy: WideAreaPolicy::new(&config.policy).unwrap(),
            relays: vec![FakeRelay::default(); relays],
            is_connected: vec![true; relays],
            now: 0.0,
            config,
        };
        (0..relays as u16).for_each(|relay| cluster.overlay.connect(relay, 0.0));
        cluster.step();
        cluster
    }

    /// Replaces the overlay by one with other limits, without coflows.
    fn set_limits(&mut self, limits: Settings) {
        self.overlay = Overlay::new(Arc::clone(&self.config), limits, 5);
        (0..self.relays.len() as u16).for_each(|relay| self.overlay.connect(relay, self.now));
        self.step();
    }

    /// Sends orders, reports them as applied, and decides.
    fn step(&mut self) -> Vec<(u16, RelayOrder)> {
        self.now += 0.02;
        let orders = self.overlay.tick(self.now, |_| true);
        for (relay, order) in &orders {
            assert!(self.is_connected[usize::from(*relay)]);
            // Orders are valid messages.
            let encoded = wire::ControllerMessage::from(order).body;
            let Some(controller_message::Body::Order(encoded)) = encoded else { panic!("{encoded:?}") };
            assert_eq!(RelayOrder::try_from(encoded).as_ref(), Ok(order));
            self.relays[usize::from(*relay)].apply(order.clone());
        }
        for relay in 0..self.relays.len() as u16 {
            if self.is_connected[usize::from(relay)] {
                self.report(relay, RelayReport::default());
            }
        }
        if let Some(request) = self.overlay.take_request(self.now) {
            self.overlay.apply(decide(&mut self.policy, request));
        }
        orders
    }

    fn report(&mut self, relay: u16, report: RelayReport) {
        let applied = self.relays[usize::from(relay)].applied;
        self.overlay.report(relay, &RelayReport { applied, ..report }, self.now);
    }

    /// Reports acknowledged bytes of a coflow between two relays, without open flows.
    fn progress(&mut self, coflow: u32, source: u16, destination: u16, acked_bytes: u64) {
        self.report_group((coflow, source, destination), acked_bytes, 0);
    }

    /// Reports open flows and acknowledged bytes of coflow 0 from relay 0 to relay 1.
    fn open(&mut self, open_flows: u32, acked_bytes: u64) {
        self.report_group((0, 0, 1), acked_bytes, open_flows);
    }

    fn report_group(
        &mut self,
        (coflow, source, destination): (u32, u16, u16),
        acked_bytes: u64,
        open_flows: u32,
    ) {
        let group = GroupProgress { coflow, source, destination, acked_bytes, open_flows, detoured_bytes: 0 };
        self.report(source, RelayReport { groups: vec![group], ..RelayReport::default() });
    }

    /// Lets time pass, with a step each half second.
    fn wait(&mut self, seconds: f64) {
        let end = self.now + seconds;
        while self.now < end {
            self.now += 0.48;
            self.step();
        }
    }

    fn summary(&self, id: &str) -> CoflowSummary {
        self.overlay.coflow_status(id).unwrap().summary
    }

    fn registration(&self, flows: &[(&str, &str, u64)]) -> Registration {
        let flow = |&(from, to, bytes): &(&str, &str, u64)| Flow {
            from: from.to_owned(),
            to: to.to_owned(),
            pair: RegionPair {
                source: self.config.region_of_end(from).unwrap(),
                destination: self.config.region_of_end(to).unwrap(),
            },
            bytes,
            numbers: None,
        };
        Registration {
            service: "ads".to_owned(),
            application: "default".to_owned(),
            flows: flows.iter().map(flow).collect(),
        }
    }

    fn register(&mut self, id: &str, flows: &[(&str, &str, u64)]) {
        let registration = self.registration(flows);
        assert_eq!(self.overlay.register(id, registration, self.now), Ok(true));
    }

    /// Registers a coflow. Relays know the coflow after the first step, and have its rules after the second.
    fn schedule(&mut self, id: &str, flows: &[(&str, &str, u64)]) {
        self.register(id, flows);
        self.step();
        self.step();
    }
}

const DIRECT: Vec<(u16, f64)> = Vec::new();

fn pair(source: u16, destination: u16) -> RuleScope {
    RuleScope::Pair(RegionPair { source, destination })
}

/// Flows with these numbers between two regions.
fn numbers(source: u16, destination: u16, first: u32, last: u32) -> RuleScope {
    RuleScope::Flows { pair: Some(RegionPair { source, destination }), first, last }
}

#[test]
fn quota_counts_the_coflows_between_regions_of_a_service() {
    let mut cluster = Cluster::new("fifo");
    let quota = Some(ServiceQuota { coflows: 2, flows: 3, applications: 1, connections: 1 });
    let flow = ("dc1", "dc2", MB);
    let one = cluster.registration(&[flow]);
    let reached = |objects, max| Err(QuotaReached { service: "ads".to_owned(), objects, max });
    let check_new = |cluster: &Cluster, id, quota: Option<ServiceQuota>| {
        cluster.overlay.check_new_quota(id, &one.service, one.flows.len(), quota.as_ref())
    };
    let check_update =
        |cluster: &Cluster, flows| cluster.overlay.check_update_quota("a", flows, quota.as_ref());
    cluster.register("a", &[flow]);
    assert_eq!(check_new(&cluster, "b", quota), Ok(()));
    assert_eq!([check_update(&cluster, 3), check_update(&cluster, 4)], [Ok(()), reached("flows", 3)]);
    cluster.overlay.update("a", cluster.registration(&[flow; 3]).flows).unwrap();
    assert_eq!(
        [check_new(&cluster, "b", quota), check_new(&cluster, "a", quota)],
        [reached("flows", 3), Ok(())]
    );
    cluster.overlay.update("a", one.flows.clone()).unwrap();
    cluster.register("b", &[flow]);
    assert_eq!(
        [check_new(&cluster, "c", quota), check_new(&cluster, "c", None)],
        [reached("coflows", 2), Ok(())]
    );
    cluster.overlay.deregister("b").unwrap();
    assert_eq!(check_new(&cluster, "c", quota), Ok(()));
    let usage = cluster.overlay.usage_by_service().of("ads");
    assert_eq!((usage.coflows, usage.flows), (1, 1));
}

/// Siphon, Fig. 3-5: R1 receives 150 MB from datacenter 1 and 50 MB from 3, R2 receives 100 and 50 MB. The largest group is first.
#[test]
fn largest_flow_group_of_siphon_fig_3_is_served_first() {
    let mut cluster = Cluster::new("siphon:groups=on");
    let [first, second] = ["10.2.0.11", "10.2.0.12"];
    cluster.register(
        "shuffle",
        &[
            ("dc1", second, 100 * MB),
            ("dc1", first, 150 * MB),
            ("dc3", second, 50 * MB),
            ("dc3", first, 50 * MB),
        ],
    );
    cluster.step();
    // Before the decision, the relays know the coflow and have no rules.
    assert_eq!(cluster.relays[0].coflows[&0].name.as_ref(), "shuffle");
    assert_eq!(cluster.relays[0].coflows[&0].service.as_ref(), "ads");
    assert!(cluster.relays[0].rules.is_empty());
    cluster.step();
    for (relay, flows) in [(0, [0, 1]), (2, [2, 3])] {
        let rules = flows.map(|flow| cluster.relays[relay].rule(0, numbers(relay as u16, 1, flow, flow)));
        assert_eq!(rules, [Some((1, DIRECT)), Some((0, DIRECT))]);
        // Flows that are not registered come last.
        assert_eq!(cluster.relays[relay].rule(0, pair(relay as u16, 1)), Some((1, DIRECT)));
        assert_eq!(cluster.relays[relay].rules.len(), 3);
    }
    assert!(cluster.relays[1].rules.is_empty());
    // The link from datacenter 1 is the bottleneck: 250 MB at 50 MB/s.
    let status = cluster.overlay.coflow_status("shuffle").unwrap();
    assert!((status.summary.wide_area.predicted_seconds.unwrap() - 5.0).abs() < 0.1, "{status:?}");
    let (routes, _) = cluster.overlay.routes(None, 10);
    let routes: Vec<_> = routes.iter().map(|route| (&*route.from, &*route.to, route.priority)).collect();
    assert_eq!(routes, [("dc1", "dc2", Some(0)), ("dc3", "dc2", Some(0))]);
}

/// Region 1 has a relay on each of two hosts, and region 2 two relays for the same network.
fn config_with_two_relays(policy: &str) -> String {
    let further = r#"r4 = { region = "dc1", address = "10.1.9.1:7710", networks = ["10.1.9.0/24"] }
r5 = { region = "dc2", address = "10.2.0.2:7710", networks = ["10.2.0.0/16"] }
"#;
    let text = THREE_REGIONS.replace("POLICY", policy);
    text.replace("\n[overlay.link]", &format!("{further}\n[overlay.link]"))
}

#[test]
fn relays_of_a_region_have_the_same_rules_and_sum_up_progress() {
    let mut cluster = Cluster::with_config(&config_with_two_relays("fifo"));
    cluster.schedule("a", &[("10.1.0.7", "10.2.0.8", 30 * MB), ("10.1.9.7", "10.2.0.9", 20 * MB)]);
    let (first, second) = (&cluster.relays[0], &cluster.relays[3]);
    assert_eq!((first.rules.len(), first.rule(0, pair(0, 1))), (1, Some((0, DIRECT))));
    assert_eq!((&second.rules, &second.coflows), (&first.rules, &first.coflows));
    assert!([1, 4].iter().all(|&relay| cluster.relays[relay].coflows == first.coflows));
    assert!(cluster.relays[2].coflows.is_empty());
    cluster.report_group((0, 0, 1), 20 * MB, 0);
    cluster.report_group((0, 0, 4), 10 * MB, 0);
    cluster.report_group((0, 3, 4), 20 * MB, 1);
    let (routes, _) = cluster.overlay.routes(None, 10);
    let [route] = &routes[..] else { panic!("{routes:?}") };
    assert_eq!((route.acked_bytes, route.open_flows), (50 * MB, 1));
    assert!(!cluster.summary("a").state.is_completed_or_abandoned());
    // A restarted relay counts from 0, for itself.
    cluster.report_group((0, 0, 1), MB, 0);
    assert_eq!(cluster.summary("a").sent_bytes, 51e6);
    // Flows of a lost relay are not open; the other relay's flows are.
    cluster.overlay.disconnect(0, cluster.now);
    cluster.is_connected[0] = false;
    cluster.wait(4.0);
    assert!(!cluster.summary("a").state.is_completed_or_abandoned());
    cluster.report_group((0, 3, 4), 20 * MB, 0);
    assert_eq!(
        (cluster.summary("a").state.is_completed_or_abandoned(), cluster.summary("a").completed_flow_count),
        (true, 2)
    );
}

#[test]
fn coflow_is_interrupted_only_by_relays_that_it_uses() {
    for (lost, is_ended) in [(3, false), (4, false), (0, true), (1, true)] {
        let mut cluster = Cluster::with_config(&config_with_two_relays("fifo"));
        cluster.register("a", &[("dc1", "dc2", 50 * MB)]);
        cluster.step();
        cluster.open(1, 10 * MB);
        cluster.overlay.disconnect(lost, cluster.now);
        cluster.is_connected[usize::from(lost)] = false;
        cluster.open(0, 10 * MB);
        cluster.wait(310.0);
        assert_eq!(cluster.summary("a").state.is_completed_or_abandoned(), is_ended, "{lost}");
    }
}

#[test]
fn detour_needs_one_relay_of_its_region() {
    let north = "r4 = { region = \"dc3\", address = \"10.3.0.2:7710\", networks = [\"10.3.0.0/16\"] }\n\n[overlay.link]";
    let text = detour_config("max-detoured = 1").replace("\n[overlay.link]", north);
    let mut cluster = Cluster::with_config(&text);
    cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
    let detour = cluster.relays[0].rule(0, pair(0, 1)).unwrap();
    assert_eq!(detour.1.iter().map(|path| path.0).collect::<Vec<_>>(), [1, 2]);
    assert!([2, 3].iter().all(|&relay| cluster.relays[relay].rule(0, pair(0, 1)) == Some((0, DIRECT))));
    for (lost, has_detour) in [(2, true), (3, false)] {
        cluster.overlay.disconnect(lost, cluster.now);
        cluster.is_connected[usize::from(lost)] = false;
        cluster.step();
        assert_eq!(cluster.relays[0].rule(0, pair(0, 1)).unwrap().1.len() > 1, has_detour, "{lost}");
    }
}

/// Flows between regions with the numbers of their flow group.
fn with_numbers(cluster: &Cluster, flows: &[(&str, &str, u64, (u32, u32))]) -> Vec<Flow> {
    let plain: Vec<(&str, &str, u64)> = flows.iter().map(|&(from, to, bytes, _)| (from, to, bytes)).collect();
    let registration = cluster.registration(&plain).flows.into_iter();
    registration.zip(flows).map(|(flow, &(.., numbers))| Flow { numbers: Some(numbers), ..flow }).collect()
}

#[test]
fn flow_groups_are_ordered_by_size_over_all_regions() {
    let mut cluster = Cluster::with_config(&config_with_two_relays("mrtf:groups=on"));
    // Group A has 60 MB, group B 70 MB, and group C 65 MB, of which 40 MB stay in region 2.
    let (a, b, c) = ((0, 9), (10, 19), (20, u32::MAX));
    let flows = with_numbers(
        &cluster,
        &[
            ("10.1.0.1", "dc2", 25 * MB, a),
            ("10.1.9.1", "dc2", 25 * MB, a),
            ("dc1", "dc2", 30 * MB, b),
            ("dc3", "dc2", 40 * MB, b),
            ("dc3", "dc2", 10 * MB, a),
            ("dc2", "dc2", 40 * MB, c),
            ("dc1", "dc2", 25 * MB, c),
        ],
    );
    let registration = Registration { flows, ..cluster.registration(&[]) };
    assert_eq!(cluster.overlay.register("a", registration, cluster.now), Ok(true));
    cluster.step();
    cluster.step();
    let priorities = |relay: usize, source: u16| {
        [a, b, c].map(|(first, last)| {
            let rule = cluster.relays[relay].rule(0, numbers(source, 1, first, last));
            rule.map(|(priority, _)| priority)
        })
    };
    for relay in [0, 3] {
        assert_eq!(priorities(relay, 0), [Some(2), Some(0), Some(1)]);
        assert_eq!(cluster.relays[relay].rules.len(), 4);
    }
    // Priorities of a region have no gaps.
    assert_eq!(priorities(2, 2), [Some(1), Some(0), None]);
    // A larger group A is served first.
    let mut flows = cluster.overlay.coflow_status("a").unwrap().registration.flows.clone();
    flows[0].bytes = 500 * MB;
    cluster.overlay.update("a", flows).unwrap();
    cluster.step();
    cluster.step();
    let rule = cluster.relays[3].rule(0, numbers(0, 1, 0, 9));
    assert_eq!(rule.map(|(priority, _)| priority), Some(0));
}

/// From an update to the next decision, groups keep their order and their paths. A new group is served like unregistered flows.
#[test]
fn updates_keep_rules_until_the_next_decision() {
    let text = detour_config("max-detoured = 1").replace("siphon:detours=on", "mrtf:detours=on:groups=on");
    let mut cluster = Cluster::with_config(&text);
    let group = |number: u32| (10 * number, 10 * number + 9);
    let flows = with_numbers(
        &cluster,
        &[
            ("dc1", "dc2", 200 * MB, group(0)),
            ("dc1", "dc2", 300 * MB, group(1)),
            ("dc1", "dc2", MB, group(2)),
        ],
    );
    let registration = Registration { flows: flows.clone(), ..cluster.registration(&[]) };
    assert_eq!(cluster.overlay.register("a", registration, cluster.now), Ok(true));
    cluster.step();
    cluster.step();
    let rule = |cluster: &Cluster, number: u32| {
        let (first, last) = group(number);
        cluster.relays[0].rule(0, numbers(0, 1, first, last))
    };
    let before = [0, 1, 2].map(|number| rule(&cluster, number));
    assert_eq!(before.clone().map(|rule| rule.unwrap().0), [1, 0, 2]);
    assert_eq!(before[0].as_ref().unwrap().1.len(), 2);
    // Group 0 has no flows any more, and group 3, the largest one, is new and first in the list.
    let new = with_numbers(&cluster, &[("dc1", "dc2", 900 * MB, group(3))]);
    cluster.overlay.update("a", [&new[..], &flows[1..]].concat()).unwrap();
    let orders = cluster.overlay.tick(cluster.now + 0.02, |_| true);
    assert!(orders.iter().all(|(_, order)| order.rules.is_empty() && order.removed_rules.is_empty()));
    cluster.step();
    cluster.step();
    let after = [0, 1, 2, 3].map(|number| rule(&cluster, number).map(|rule| rule.0));
    assert_eq!(after, [None, Some(1), Some(2), Some(0)]);
}

/// A coflow with as many groups from region 1 to region 2 as `sizes`, in units of 1 MB. Group `n` has the number `n`.
fn register_groups(cluster: &mut Cluster, id: &str, sizes: impl Iterator<Item = u64>) {
    let flows: Vec<_> =
        (0..).zip(sizes).map(|(number, size)| ("dc1", "dc2", size * MB, (number, number))).collect();
    let registration = Registration { flows: with_numbers(cluster, &flows), ..cluster.registration(&[]) };
    assert_eq!(cluster.overlay.register(id, registration, cluster.now), Ok(true));
}

/// A relay has at most 16,384 rules.
#[test]
fn coflows_beyond_the_limit_of_rules_keep_their_paths_and_their_order() {
    const MAX: usize = 16_384;
    let text = detour_config("max-detoured = 1").replace("siphon:detours=on", "fifo:detours=on:groups=on");
    let mut cluster = Cluster::with_config(&text);
    cluster.set_limits(Settings { max_flows: 100_000, ..limits() });
    register_groups(&mut cluster, "a", 1..=15_000);
    register_groups(&mut cluster, "b", 1..=5_000);
    cluster.step();
    cluster.step();
    let rules = &cluster.relays[0].rules;
    assert_eq!(
        (rules.len(), cluster.overlay.relay_states(cluster.now)[0].omitted_rules),
        (MAX, 20_002 - MAX)
    );
    let rule = |coflow, scope| cluster.relays[0].rule(coflow, scope).unwrap();
    let [(last_of_a, paths_of_a), (last_of_b, paths_of_b)] = [0, 1].map(|coflow| rule(coflow, pair(0, 1)));
    assert_eq!((paths_of_a.len(), paths_of_b.len()), (2, 2));
    // The largest groups of the second coflow have rules; the others have the priority of its last group.
    let kept = MAX - 2 - 15_000;
    let ranges: Vec<RuleScope> =
        rules.keys().filter(|flows| flows.coflow == 1).map(|flows| flows.scope).collect();
    let expected = (5_000 - kept as u32..5_000).map(|number| numbers(0, 1, number, number));
    assert_eq!(ranges, std::iter::once(pair(0, 1)).chain(expected).collect::<Vec<_>>());
    assert_eq!(rule(0, numbers(0, 1, 14_999, 14_999)), (0, paths_of_a));
    assert_eq!(rule(1, numbers(0, 1, 4_999, 4_999)), (last_of_a + 1, paths_of_b));
    assert_eq!((last_of_a, last_of_b), (14_999, 15_000 + kept as u16));
}

/// Relays serve flows without a rule at priority 65,535.
#[test]
fn priorities_of_many_groups_stay_below_that_of_flows_without_a_rule() {
    let mut cluster = Cluster::new("fifo:groups=on");
    cluster.set_limits(Settings { max_flows: 100_000, ..limits() });
    // The relay of region 1 has no rules of the first coflow, which has more groups than there are priorities.
    let numbers_of = |number| (number, number);
    let flows: Vec<_> = (0..66_000).map(|number| ("dc3", "dc2", MB, numbers_of(number))).collect();
    let registration = Registration { flows: with_numbers(&cluster, &flows), ..cluster.registration(&[]) };
    assert_eq!(cluster.overlay.register("a", registration, cluster.now), Ok(true));
    register_groups(&mut cluster, "b", 1..=2);
    cluster.step();
    cluster.step();
    let priority = |number| cluster.relays[0].rule(1, numbers(0, 1, number, number)).map(|rule| rule.0);
    assert_eq!([1, 0].map(priority), [Some(0), Some(1)]);
    let highest = |relay: usize| cluster.relays[relay].rules.values().map(|rule| rule.priority).max();
    assert_eq!((highest(0), highest(2)), (Some(1), Some(16_383)));
}

/// A shuffle has thousands of flows, and coflows are kept for minutes after their completion.
#[test]
fn completed_coflow_counts_one_flow_for_each_pair_of_regions() {
    let mut cluster = Cluster::new("mrtf:groups=on");
    let flow = |to, number| ("dc1", to, MB, (number, number));
    let flows: Vec<_> = (0..200).map(|number| flow(["dc2", "dc1"][number as usize % 2], number)).collect();
    let first = Registration { flows: with_numbers(&cluster, &flows), ..cluster.registration(&[]) };
    assert_eq!(cluster.overlay.register("a", first.clone(), cluster.now), Ok(true));
    cluster.step();
    cluster.step();
    assert_eq!(cluster.relays[0].rules.len(), 101);
    cluster.progress(0, 0, 1, 100 * MB);
    cluster.step();
    assert_eq!(cluster.overlay.counts(), [1, 0, 200]);
    cluster.wait(3.0);
    assert_eq!(cluster.overlay.counts(), [1, 0, 2]);
    let usage = cluster.overlay.usage_by_service().of("ads");
    assert_eq!((usage.coflows, usage.flows), (1, 2));
    let status = cluster.overlay.coflow_status("a").unwrap();
    let kept: Vec<_> = status
        .registration
        .flows
        .iter()
        .map(|flow| (flow.from.as_str(), flow.to.as_str(), flow.bytes, flow.numbers))
        .collect();
    assert_eq!(kept, [("dc1", "dc1", 100 * MB, None), ("dc1", "dc2", 100 * MB, None)]);
    let CoflowSummary { flow_count, completed_flow_count, sent_bytes, .. } = status.summary;
    assert_eq!((flow_count, completed_flow_count, sent_bytes), (200, 200, 100e6));
    // A repeated registration is compared with the first one.
    let other = Registration { flows: first.flows[1..].to_vec(), ..first.clone() };
    assert_eq!(cluster.overlay.register("a", first.clone(), cluster.now), Ok(false));
    assert_eq!(cluster.overlay.register("a", other, cluster.now), Err(Refusal::IdTaken("a".to_owned())));
    // An update continues the coflow, with its progress.
    let further = [&first.flows[..], &with_numbers(&cluster, &[flow("dc3", 200)])].concat();
    cluster.overlay.update("a", further).unwrap();
    assert_eq!(cluster.overlay.counts(), [1, 1, 201]);
    assert_eq!(cluster.summary("a").sent_bytes, 100e6);
    cluster.step();
    cluster.step();
    assert!(cluster.relays[0].rule(0, numbers(0, 1, 0, 0)).is_some());
}

/// A flow can begin at a relay before the relay receives the order that withdraws its coflow.
#[test]
fn flow_that_begins_at_the_withdrawal_makes_the_coflow_active_again() {
    let mut cluster = Cluster::new("fifo");
    cluster.schedule("a", &[("dc1", "dc2", 20 * MB), ("dc1", "dc2", 30 * MB)]);
    cluster.progress(0, 0, 1, 50 * MB);
    cluster.wait(3.0);
    assert!(cluster.relays[0].coflows.is_empty());
    cluster.open(1, 50 * MB);
    cluster.step();
    cluster.step();
    assert!(!cluster.summary("a").state.is_completed_or_abandoned());
    assert_eq!(cluster.relays[0].rule(0, pair(0, 1)), Some((0, DIRECT)));
    // The relay removed the flow with the coflow, and counts from 0.
    cluster.open(0, 0);
    cluster.wait(3.0);
    assert!(cluster.summary("a").state.is_completed_or_abandoned() && cluster.relays[0].coflows.is_empty());
}

/// With a relay on each host, flows inside a region use relays.
#[test]
fn flows_between_relays_of_a_region_are_ignored() {
    let mut cluster = Cluster::with_config(&config_with_two_relays("fifo"));
    cluster.schedule("a", &[("10.1.0.7", "10.2.0.8", 30 * MB), ("10.1.0.7", "10.1.9.7", 20 * MB)]);
    cluster.report_group((0, 0, 3), 20 * MB, 1);
    assert_eq!((cluster.overlay.rejected_entries(), cluster.summary("a").sent_bytes), (0, 0.0));
    cluster.report_group((0, 0, 1), 30 * MB, 0);
    assert!(cluster.summary("a").state.is_completed_or_abandoned());
    cluster.report_group((7, 0, 3), MB, 0);
    assert_eq!(cluster.overlay.rejected_entries(), 1);
}

#[test]
fn flows_of_a_group_with_consecutive_numbers_share_a_rule() {
    let mut cluster = Cluster::new("mrtf:groups=on");
    let [first, second] = ["10.2.0.11", "10.2.0.12"];
    let flows = [(first, 1), (first, 2), (second, 1), (first, 4)].map(|(to, size)| ("dc1", to, size * MB));
    cluster.schedule("a", &flows);
    let rules: Vec<RuleScope> = cluster.relays[0].rules.keys().map(|flows| flows.scope).collect();
    assert_eq!(rules, [pair(0, 1), numbers(0, 1, 0, 1), numbers(0, 1, 2, 2), numbers(0, 1, 3, 3)]);
}

#[test]
fn common_numbers_of_groups_between_the_same_regions_are_found() {
    let cluster = Cluster::new("fifo");
    let find = |flows: &[(&str, &str, u64, (u32, u32))]| find_common_number(&with_numbers(&cluster, flows));
    // The same group, other regions, and adjacent numbers.
    let valid = [("dc1", "dc2", 1, (0, 9)), ("10.1.0.1", "dc2", 1, (0, 9)), ("dc3", "dc2", 1, (0, 9))];
    assert_eq!(find(&valid), None);
    assert_eq!(find(&[("dc1", "dc2", 1, (10, 19)), ("dc1", "10.2.0.1", 1, (0, 9))]), None);
    // Other receivers, and other numbers.
    assert_eq!(find(&[valid[0], ("dc1", "10.2.0.1", 1, (0, 9))]), Some((0, 1)));
    assert_eq!(find(&[("dc1", "dc2", 1, (9, 9)), valid[0], valid[1]]), Some((2, 0)));
    // Without numbers, a flow has its index.
    let mut flows = with_numbers(&cluster, &[("dc1", "dc2", 1, (2, 3)), ("dc1", "dc2", 1, (2, 2))]);
    flows[1].numbers = None;
    assert_eq!(find_common_number(&flows), None);
    flows[0].numbers = Some((0, 1));
    assert_eq!(find_common_number(&flows), Some((0, 1)));
}

#[test]
fn short_coflow_precedes_an_earlier_long_one() {
    for policy in ["siphon", "mrtf"] {
        let mut cluster = Cluster::new(policy);
        cluster.schedule("long", &[("dc1", "dc2", 500 * MB)]);
        let between = pair(0, 1);
        assert_eq!(cluster.relays[0].rule(0, between), Some((0, DIRECT)));
        cluster.schedule("short", &[("dc1", "10.2.0.9", 50 * MB), ("dc2", "dc3", MB)]);
        assert_eq!(cluster.relays[0].rule(1, between), Some((0, DIRECT)), "{policy}");
        assert_eq!(cluster.relays[0].rule(0, between), Some((1, DIRECT)), "{policy}");
        let seconds = |id: &str| {
            cluster.overlay.coflow_status(id).unwrap().summary.wide_area.predicted_seconds.unwrap()
        };
        // The estimate of the long coflow is that of its registration.
        assert!((seconds("long") - 10.0).abs() < 0.1 && (seconds("short") - 1.0).abs() < 0.1);
    }
}

/// Three regions, with the name of a relay instead of its IP address.
fn with_name(name: &str) -> String {
    THREE_REGIONS.replace("POLICY", "fifo").replace("10.3.0.1:7710", name)
}

#[test]
fn relays_with_names_are_peers_when_their_addresses_are_known() {
    let mut cluster = Cluster::with_config(&with_name("r3.example:7710"));
    assert!(cluster.relays.iter().all(|relay| relay.peer_count == 2));
    let peers_after = |cluster: &mut Cluster, address: &str| -> Vec<Vec<RelayPeer>> {
        cluster.overlay.set_address(2, address.parse().unwrap());
        cluster.step().into_iter().map(|(_, order)| order.peers).collect()
    };
    for address in ["10.3.0.1:7710", "10.3.0.2:7710"] {
        let peers = peers_after(&mut cluster, address);
        assert!(peers.len() == 3 && peers.iter().all(|peers| peers.len() == 3), "{peers:?}");
        assert!(peers.iter().all(|peers| peers[2].id == 2 && peers[2].address.to_string() == address));
    }
    assert_eq!(peers_after(&mut cluster, "10.3.0.2:7710"), Vec::<Vec<RelayPeer>>::new());
    // A stored address does not replace a newer one.
    cluster.overlay.restore_address(2, "10.3.0.9:7710".parse().unwrap());
    assert_eq!(cluster.overlay.addresses()[2], "10.3.0.2:7710".parse().ok());
    assert_eq!(cluster.overlay.take_changed_addresses(), [(2, "10.3.0.2:7710".parse().unwrap())]);
}

#[test]
fn names_of_relays_are_resolved_while_the_overlay_runs() {
    let config = parse(&with_name("localhost:7710"));
    let overlay = Overlay::new(Arc::clone(&config), limits(), 5);
    let handle = Handle::start(overlay, config, WideAreaPolicy::new("fifo").unwrap()).unwrap();
    let mut orders = handle.subscribe_to_orders(0, "10.1.0.1:4000".parse().unwrap()).unwrap();
    // The first order may precede the answer. Only full orders have peers.
    let resolved =
        std::iter::from_fn(|| orders.blocking_recv()).take(100).find(|order| order.peers.len() == 3);
    let peers = resolved.expect("`localhost` has an address").peers;
    assert!(peers[2].address.ip().is_loopback() && peers[2].address.port() == 7710, "{peers:?}");
}

#[test]
fn orders_contain_only_changes_and_renew_leases() {
    let mut cluster = Cluster::new("fifo");
    assert!(cluster.relays.iter().all(|relay| relay.peer_count == 3));
    cluster.schedule("a", &[("dc1", "dc2", 50 * MB)]);
    cluster.register("b", &[("dc1", "dc2", 50 * MB)]);
    let orders = cluster.step();
    assert_eq!(orders.iter().map(|(relay, _)| *relay).collect::<Vec<_>>(), [0, 1]);
    let RelayOrder { is_full, peers, coflows, rules, removed_coflows, removed_rules, .. } = &orders[0].1;
    assert!(!is_full && peers.is_empty() && rules.is_empty() && removed_coflows.is_empty());
    assert!(removed_rules.is_empty());
    assert_eq!(coflows.iter().map(|coflow| coflow.number).collect::<Vec<_>>(), [1]);
    let orders = cluster.step();
    assert_eq!((orders.len(), orders[0].1.rules.len(), orders[0].1.coflows.len()), (1, 1, 0));
    // The first coflow completes.
    cluster.progress(0, 0, 1, 50 * MB);
    let summary = cluster.overlay.coflow_status("a").unwrap().summary;
    assert!((summary.wide_area.measured_seconds.unwrap() - 0.08).abs() < 0.021, "{summary:?}");
    assert_eq!((summary.state.is_completed_or_abandoned(), summary.completed_flow_count), (true, 1));
    // The second coflow moves up. Relays know the first one for a while, since libraries' bytes count and further flows may begin.
    cluster.step();
    let orders = cluster.step();
    assert_eq!((orders.len(), orders[0].1.rules[0].priority), (1, 0));
    assert!(orders[0].1.removed_coflows.is_empty());
    cluster.progress(0, 0, 1, 51 * MB);
    let summary = cluster.overlay.coflow_status("a").unwrap().summary;
    assert!((summary.wide_area.measured_seconds.unwrap() - 0.12).abs() < 0.021, "{summary:?}");
    cluster.now += 2.0;
    let orders = cluster.step();
    assert_eq!(orders[0].1.removed_coflows, [0]);
    // Without changes, an order a second renews the lease of each relay.
    let orders: Vec<_> = (0..101).flat_map(|_| cluster.step()).collect();
    assert!((6..=9).contains(&orders.len()), "{}", orders.len());
    assert!(orders.iter().all(|(_, order)| order.rules.is_empty() && !order.is_full));
}

#[test]
fn reconnected_and_unconfirming_relays_receive_full_orders() {
    let mut cluster = Cluster::new("fifo");
    cluster.schedule("a", &[("dc1", "dc2", 50 * MB)]);
    let before = cluster.relays[0].clone();
    cluster.overlay.connect(0, cluster.now);
    let orders = cluster.step();
    assert!(orders.iter().any(|(relay, order)| *relay == 0 && order.is_full));
    let FakeRelay { coflows, rules, .. } = &cluster.relays[0];
    assert_eq!((coflows, rules), (&before.coflows, &before.rules));
    // An order that is not confirmed within 3 s is followed by a full one.
    let applied = cluster.relays[0].applied;
    let mut full_after = None;
    for _ in 0..250 {
        cluster.now += 0.02;
        for (relay, order) in cluster.overlay.tick(cluster.now, |_| true) {
            if relay == 0 && order.is_full {
                full_after.get_or_insert(cluster.now);
            }
        }
        cluster.overlay.report(0, &RelayReport { applied, ..RelayReport::default() }, cluster.now);
    }
    let seconds = full_after.expect("a full order follows") - 0.06;
    assert!((2.9..4.5).contains(&seconds), "{seconds}");
    // A relay of an earlier epoch, and one that claims an order of the future.
    for applied in [(4, 1), (5, 1_000_000)] {
        cluster.overlay.report(0, &RelayReport { applied, ..RelayReport::default() }, cluster.now);
        cluster.now += 3.1;
        cluster.overlay.report(0, &RelayReport { applied, ..RelayReport::default() }, cluster.now);
        let orders = cluster.overlay.tick(cluster.now, |_| true);
        assert!(orders.iter().any(|(relay, order)| *relay == 0 && order.is_full), "{applied:?}");
    }
    // Orders wait while a relay does not read them.
    cluster.overlay.connect(0, cluster.now);
    assert!(cluster.overlay.tick(cluster.now, |relay| relay != 0).iter().all(|(relay, _)| *relay != 0));
}

/// Link 1-2 has a seventh of the bandwidth of the links over datacenter 3.
fn detour_config(max_detoured: &str) -> String {
    let slow = THREE_REGIONS.replace("dc1 = { dc2 = \"400Mbit\"", "dc1 = { dc2 = \"100Mbit\"");
    let faster = slow.replace("dc3 = \"400Mbit\" }\ndc2", "dc3 = \"700Mbit\" }\ndc2");
    let faster =
        faster.replace("dc1 = \"400Mbit\", dc2 = \"400Mbit\" }", "dc1 = \"400Mbit\", dc2 = \"700Mbit\" }");
    faster.replace("POLICY", "siphon:detours=on").replace("max-detoured = 1", max_detoured)
}

#[test]
fn detours_become_fractions_and_avoid_absent_relays() {
    let mut cluster = Cluster::with_config(&detour_config("max-detoured = 1"));
    cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
    let between = pair(0, 1);
    let (priority, paths) = cluster.relays[0].rule(0, between).unwrap();
    assert_eq!((priority, paths.len(), paths[0].0, paths[1].0), (0, 2, 1, 2));
    assert!((paths[0].1 - 0.125).abs() < 1e-3 && (paths[1].1 - 0.875).abs() < 1e-3, "{paths:?}");
    assert_eq!(cluster.relays[2].rule(0, between), Some((0, DIRECT)));
    assert_eq!(cluster.relays[2].coflows.len(), 1);
    let seconds = cluster.overlay.coflow_status("a").unwrap().summary.wide_area.predicted_seconds.unwrap();
    assert!((seconds - 8.0).abs() < 0.1, "{seconds}");
    // Without the relay of the detour, all bytes take the direct path.
    cluster.overlay.disconnect(2, cluster.now);
    cluster.is_connected[2] = false;
    cluster.step();
    assert_eq!(cluster.relays[0].rule(0, between), Some((0, DIRECT)));
    cluster.overlay.connect(2, cluster.now);
    cluster.is_connected[2] = true;
    // The rules follow the decision.
    cluster.step();
    cluster.step();
    assert_eq!(cluster.relays[0].rule(0, between), Some((0, paths)));
}

/// Four regions with one relay each. The link from region 1 to region 2 has a quarter of the bandwidth of the others, 50 MB/s.
fn four_regions() -> String {
    let text = THREE_REGIONS.replace("POLICY", "siphon:detours=on");
    let mut text = text.split("\n[overlay.link]").next().unwrap().to_owned();
    text += "r4 = { region = \"dc4\", address = \"10.4.0.1:7710\", networks = [\"10.4.0.0/16\"] }\n[overlay.link]\n";
    for from in 1..=4 {
        let rate = |to| if (from, to) == (1, 2) { "100Mbit" } else { "400Mbit" };
        let links = (1..=4).filter(|&to| to != from).map(|to| format!("dc{to} = \"{}\"", rate(to)));
        text += &format!("dc{from} = {{ {} }}\n", links.collect::<Vec<_>>().join(", "));
    }
    text
}

#[test]
fn decisions_use_only_regions_that_have_a_relay() {
    let mut cluster = Cluster::with_config(&four_regions());
    let assert_paths = |cluster: &Cluster, coflow: u32, expected: &[(u16, f64)]| {
        let (_, found) = cluster.relays[0].rule(coflow, pair(0, 1)).unwrap();
        let is_near =
            |(one, other): (&(u16, f64), &(u16, f64))| one.0 == other.0 && (one.1 - other.1).abs() < 1e-3;
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_near), "{found:?}");
    };
    let (all, without_third) = ([(1, 1.0 / 9.0), (2, 4.0 / 9.0), (3, 4.0 / 9.0)], [(1, 0.2), (3, 0.8)]);
    cluster.schedule("a", &[("dc1", "dc2", 900 * MB)]);
    assert_paths(&cluster, 0, &all);
    cluster.overlay.disconnect(2, cluster.now);
    cluster.is_connected[2] = false;
    cluster.step();
    cluster.step();
    assert_paths(&cluster, 0, &without_third);
    cluster.overlay.deregister("a").unwrap();
    cluster.schedule("b", &[("dc1", "dc2", 500 * MB)]);
    assert_paths(&cluster, 1, &without_third);
    // The direct link carries 100 MB at 12.5 MB/s.
    let seconds = cluster.summary("b").wide_area.predicted_seconds.unwrap();
    assert!((seconds - 8.0).abs() < 0.1, "{seconds}");
    cluster.overlay.connect(2, cluster.now);
    cluster.is_connected[2] = true;
    cluster.step();
    cluster.step();
    assert_paths(&cluster, 1, &all);
}

#[test]
fn detours_avoid_a_draining_relay_that_still_receives_orders() {
    let mut cluster = Cluster::with_config(&detour_config("max-detoured = 1"));
    cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
    let between = pair(0, 1);
    assert_eq!(cluster.relays[0].rule(0, between).unwrap().1.len(), 2);
    let mut orders = 0;
    for _ in 0..200 {
        cluster.report(2, RelayReport { is_draining: true, ..RelayReport::default() });
        orders += cluster.step().iter().filter(|(relay, _)| *relay == 2).count();
        assert_eq!(cluster.relays[0].rule(0, between), Some((0, DIRECT)));
    }
    assert!(orders >= 3, "{orders} orders renew the lease");
    cluster.step();
    assert_eq!(cluster.relays[0].rule(0, between).unwrap().1.len(), 2);
}

/// Coflow `a` from r1 to r2 with an open flow and 10 of 50 MB, whose relay `lost` is restarted. Its flow continues directly.
fn interrupted_coflow(lost: u16) -> Cluster {
    let mut cluster = Cluster::new("fifo");
    cluster.register("a", &[("dc1", "dc2", 50 * MB)]);
    cluster.step();
    cluster.open(1, 10 * MB);
    cluster.overlay.disconnect(lost, cluster.now);
    cluster.step();
    cluster.overlay.connect(lost, cluster.now);
    if lost == 1 {
        cluster.progress(0, 0, 1, 10 * MB);
    }
    cluster.wait(290.0);
    assert!(!cluster.summary("a").state.is_completed_or_abandoned());
    cluster
}

#[test]
fn coflow_that_lost_a_relay_ends_after_five_idle_minutes() {
    // The relay of the senders, then that of the receivers.
    for lost in [0, 1] {
        let mut cluster = interrupted_coflow(lost);
        cluster.overlay.take_changed();
        cluster.wait(11.0);
        let summary = cluster.summary("a");
        assert_eq!((summary.state.is_completed_or_abandoned(), summary.completed_flow_count), (true, 0));
        assert_eq!((summary.wide_area.measured_seconds, summary.sent_bytes), (None, 10e6));
        assert_eq!(cluster.overlay.take_changed(), ["a".into()].into());
        assert_eq!(cluster.overlay.counts()[1], 0);
        // A flow may begin again as long as the coflow is kept.
        cluster.wait(30.0);
        assert!(cluster.relays[0].coflows.contains_key(&0));
        cluster.open(1, 20 * MB);
        assert!(!cluster.summary("a").state.is_completed_or_abandoned());
        cluster.progress(0, 0, 1, 50 * MB);
        assert!(cluster.summary("a").wide_area.measured_seconds.unwrap() > 300.0);
    }
    let mut cluster = interrupted_coflow(0);
    cluster.wait(80.0);
    assert!(cluster.overlay.coflow_status("a").is_none());
}

#[test]
fn failed_coflows_expire_and_the_oldest_one_gives_way() {
    let mut cluster = Cluster::new("fifo");
    for number in 0..=MAX_FAILED_COFLOWS {
        // The first one in the order of time is the last one in the order of ids.
        let id = format!("c{:04}", MAX_FAILED_COFLOWS - number);
        cluster.register(&id, &[("dc1", "dc2", 1000)]);
        assert_eq!(cluster.overlay.fail(&id, "lost", number as f64), Ok(true));
    }
    assert_eq!((cluster.overlay.counts(), cluster.overlay.failed_count()), ([0, 0, 0], 1001));
    let failed = |cluster: &Cluster| cluster.overlay.coflow_summaries(None, usize::MAX).len();
    assert_eq!(failed(&cluster), MAX_FAILED_COFLOWS);
    assert_eq!(cluster.summary("c0000").state, Phase::Failed);
    assert!(cluster.overlay.coflow_status("c1000").is_none());
    cluster.overlay.tick(560.0, |_| true);
    // Those from 500 s to 1,000 s.
    assert_eq!(failed(&cluster), 501);
    cluster.overlay.tick(1060.5, |_| true);
    assert_eq!(failed(&cluster), 0);
}

#[test]
fn resumed_and_uninterrupted_coflows_do_not_end_early() {
    for lost in [0, 1] {
        let mut cluster = interrupted_coflow(lost);
        // A slow flow for ten minutes, then a pause.
        for _ in 0..60 {
            cluster.open(1, 10 * MB);
            cluster.wait(10.0);
        }
        cluster.progress(0, 0, 1, 10 * MB);
        cluster.wait(280.0);
        assert!(!cluster.summary("a").state.is_completed_or_abandoned());
        cluster.progress(0, 0, 1, 60 * MB);
        assert!(cluster.summary("a").wide_area.measured_seconds.is_some());
    }
    // A coflow that pauses, or has not begun, without the loss of one of its relays.
    let mut cluster = Cluster::new("fifo");
    cluster.register("a", &[("dc1", "dc2", 50 * MB)]);
    cluster.register("b", &[("dc1", "dc3", 50 * MB)]);
    cluster.step();
    cluster.progress(0, 0, 1, 10 * MB);
    cluster.overlay.disconnect(2, cluster.now);
    cluster.overlay.connect(2, cluster.now);
    cluster.wait(1000.0);
    assert_eq!(cluster.overlay.counts()[1], 2);
}

#[test]
fn coflow_whose_relay_is_lost_after_its_last_byte_completes() {
    let mut cluster = Cluster::new("fifo");
    cluster.register("a", &[("dc1", "dc2", 50 * MB)]);
    cluster.step();
    cluster.open(1, 50 * MB);
    cluster.overlay.disconnect(0, cluster.now);
    cluster.is_connected[0] = false;
    cluster.wait(4.0);
    let summary = cluster.summary("a");
    assert!(
        summary.state.is_completed_or_abandoned() && summary.wide_area.measured_seconds.is_some(),
        "{summary:?}"
    );
}

#[test]
fn detoured_bytes_stay_below_the_limit() {
    for (key, detoured) in [("max-detoured = 0.25", Some(0.25)), ("max-detoured = 0", None)] {
        let mut cluster = Cluster::with_config(&detour_config(key));
        cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
        let (_, paths) = cluster.relays[0].rule(0, pair(0, 1)).unwrap();
        let fraction = paths.iter().find(|(next, _)| *next == 2).map(|(_, fraction)| *fraction);
        assert_eq!(fraction.is_some(), detoured.is_some(), "{paths:?}");
        assert!((fraction.unwrap_or(0.0) - detoured.unwrap_or(0.0)).abs() < 1e-9, "{paths:?}");
    }
}

/// Reports a rate from relay 0 to relay 1 in each interval.
fn measure(cluster: &mut Cluster, seconds: f64, rate: u64) {
    let end = cluster.now + seconds;
    while cluster.now < end {
        let path = PathSample { peer: 1, rate: Some(rate), ..PathSample::default() };
        cluster.report(0, RelayReport { paths: vec![path], ..RelayReport::default() });
        cluster.now += 0.08;
        cluster.step();
    }
}

#[test]
fn paths_change_with_the_bandwidth_of_a_link() {
    let mut cluster = Cluster::new("siphon:detours=on");
    cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
    let direct_fraction = |cluster: &Cluster| {
        let (priority, paths) = cluster.relays[0].rule(0, pair(0, 1)).unwrap();
        assert_eq!((priority, paths.len(), paths[0].0, paths[1].0), (0, 2, 1, 2));
        paths[0].1
    };
    // Both paths have 50 MB/s.
    assert!((direct_fraction(&cluster) - 0.5).abs() < 1e-6);
    measure(&mut cluster, 1.5, 12_500_000);
    assert!((direct_fraction(&cluster) - 0.5).abs() < 1e-6);
    measure(&mut cluster, 3.0, 12_500_000);
    assert!((direct_fraction(&cluster) - 0.2).abs() < 1e-6);
    // Small changes do not count.
    measure(&mut cluster, 10.0, 14_000_000);
    assert!((direct_fraction(&cluster) - 0.2).abs() < 1e-6);
    measure(&mut cluster, 6.0, 50_000_000);
    assert!((direct_fraction(&cluster) - 0.5).abs() < 0.05);
}

/// The fraction of coflow `number` from region 1 to region 2 that takes the direct link.
fn direct_fraction(cluster: &Cluster, number: u32) -> f64 {
    let (_, paths) = cluster.relays[0].rule(number, pair(0, 1)).unwrap();
    paths.iter().filter(|(next, _)| *next == 1).map(|(_, fraction)| fraction).sum()
}

fn assert_direct_fraction(cluster: &Cluster, number: u32, expected: f64) {
    let found = direct_fraction(cluster, number);
    assert!((found - expected).abs() < 1e-6, "{found} instead of {expected} at {} s", cluster.now);
}

/// Data avoids a link, so nothing measures its bandwidth.
#[test]
fn paths_try_an_avoided_link_again_after_longer_and_longer_times() {
    let mut cluster = Cluster::new("siphon:detours=on");
    cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
    cluster.open(1, 10 * MB);
    for minutes in [1.0, 2.0, 4.0] {
        // The bandwidth has not risen.
        measure(&mut cluster, 10.0, 12_500_000);
        assert_direct_fraction(&cluster, 0, 0.2);
        cluster.wait(60.0 * minutes - 5.0);
        assert_direct_fraction(&cluster, 0, 0.2);
        cluster.wait(10.0);
        assert_direct_fraction(&cluster, 0, 0.5);
    }
    // It has risen, and falls again later.
    measure(&mut cluster, 10.0, 50 * MB);
    assert_direct_fraction(&cluster, 0, 0.5);
    measure(&mut cluster, 10.0, 12_500_000);
    assert_direct_fraction(&cluster, 0, 0.2);
    cluster.wait(65.0);
    assert_direct_fraction(&cluster, 0, 0.5);
    // Without data, the trial ends.
    cluster.progress(0, 0, 1, 800 * MB);
    cluster.wait(2.0);
    cluster.schedule("b", &[("dc1", "dc2", 800 * MB)]);
    assert_direct_fraction(&cluster, 1, 0.2);
}

#[test]
fn link_without_data_keeps_its_measured_bandwidth() {
    let mut cluster = Cluster::new("siphon:detours=on");
    cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
    cluster.open(1, 10 * MB);
    measure(&mut cluster, 10.0, 12_500_000);
    assert_direct_fraction(&cluster, 0, 0.2);
    cluster.progress(0, 0, 1, 800 * MB);
    cluster.wait(7200.0);
    cluster.schedule("b", &[("dc1", "dc2", 800 * MB)]);
    assert_direct_fraction(&cluster, 1, 0.2);
    // A registered coflow whose flows have not begun.
    cluster.wait(600.0);
    assert_direct_fraction(&cluster, 1, 0.2);
}

#[test]
fn bandwidth_measured_before_a_restart_counts_for_the_first_decision() {
    for (samples, expected) in [(5, 0.2), (3, 0.2), (2, 0.5)] {
        let mut cluster = Cluster::new("siphon:detours=on");
        let link = cluster.config.link_between(0, 1).unwrap();
        cluster.overlay.restore_samples(link, &vec![12_500_000; samples]);
        cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
        assert_direct_fraction(&cluster, 0, expected);
    }
}

/// A relay reports 1 byte per second if data waits and nothing is acknowledged.
#[test]
fn paths_avoid_a_link_that_carries_nothing() {
    let mut cluster = Cluster::new("siphon:detours=on");
    cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
    measure(&mut cluster, 5.0, 1);
    assert!(direct_fraction(&cluster, 0) < 0.01, "{}", direct_fraction(&cluster, 0));
}

/// Policies decide when coflows change, as in the simulator.
#[test]
fn order_of_coflows_does_not_change_with_the_bandwidth_alone() {
    let mut cluster = Cluster::new("mrtf");
    let between = |cluster: &Cluster, coflow| cluster.relays[0].rule(coflow, pair(0, 1)).unwrap();
    // With 50 MB/s, the first coflow takes 2 s, the second one 2.4 s. With 5 MB/s from region 1 to region 2, the second one is faster.
    cluster.schedule("a", &[("dc1", "dc2", 100 * MB)]);
    cluster.schedule("b", &[("dc1", "dc2", 60 * MB), ("dc3", "dc2", 120 * MB)]);
    measure(&mut cluster, 10.0, 5 * MB);
    assert_eq!([0, 1].map(|coflow| between(&cluster, coflow)), [(0, DIRECT), (1, DIRECT)]);
    cluster.schedule("c", &[("dc2", "dc3", MB)]);
    assert_eq!([0, 1].map(|coflow| between(&cluster, coflow)), [(1, DIRECT), (0, DIRECT)]);
}

#[test]
fn paths_stay_if_others_are_hardly_faster() {
    let mut cluster = Cluster::new("siphon:detours=on");
    // Half of the bytes take 8 s on each path. With 61 MB/s on the direct one, other fractions take 7.2 s.
    cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
    let before = cluster.relays[0].rule(0, pair(0, 1)).unwrap();
    assert_eq!(before.1.len(), 2);
    measure(&mut cluster, 10.0, 61_000_000);
    assert_eq!(cluster.relays[0].rule(0, pair(0, 1)).unwrap(), before);
    // The change counts from that bandwidth.
    measure(&mut cluster, 10.0, 65_000_000);
    assert_eq!(cluster.relays[0].rule(0, pair(0, 1)).unwrap(), before);
    measure(&mut cluster, 10.0, 80_000_000);
    let (_, paths) = cluster.relays[0].rule(0, pair(0, 1)).unwrap();
    assert!((paths[0].1 - 80.0 / 130.0).abs() < 1e-6, "{paths:?}");
}

#[test]
fn detours_do_not_exceed_the_rate_of_the_senders_interface() {
    for (rate, has_detour) in [("400Mbit", false), ("1Gbit", true)] {
        let text = THREE_REGIONS.replace("POLICY", "siphon:detours=on");
        let networks = "networks = [\"10.1.0.0/16\"]";
        let text = text.replace(networks, &format!("{networks}, rate = \"{rate}\""));
        let mut cluster = Cluster::with_config(&text);
        cluster.schedule("a", &[("dc1", "dc2", 800 * MB)]);
        let (_, paths) = cluster.relays[0].rule(0, pair(0, 1)).unwrap();
        assert_eq!(paths.len() == 2, has_detour, "{rate}: {paths:?}");
    }
}

#[test]
fn implausible_report_entries_are_counted_and_change_nothing() {
    let mut cluster = Cluster::new("fifo");
    cluster.register("a", &[("dc1", "dc2", 50 * MB)]);
    cluster.step();
    let group = |coflow, source, destination| GroupProgress {
        coflow,
        source,
        destination,
        acked_bytes: u64::MAX,
        open_flows: 0,
        detoured_bytes: 0,
    };
    // Another relay's group, unknown coflows and relays, a pair without flows.
    let groups = [group(0, 0, 1), group(0, 1, 0), group(0, 1, 9), group(7, 1, 0)];
    cluster.report(1, RelayReport { groups: groups.to_vec(), ..RelayReport::default() });
    let path =
        |peer| PathSample { peer, rate: Some(u64::MAX), sent_bytes: u64::MAX, ..PathSample::default() };
    cluster.report(1, RelayReport { paths: vec![path(1), path(3), path(65_535)], ..RelayReport::default() });
    assert_eq!(cluster.overlay.rejected_entries(), 7);
    assert!(!cluster.overlay.coflow_status("a").unwrap().summary.state.is_completed_or_abandoned());
    assert!(cluster.overlay.path_samples().is_empty());
    // A relay that does not exist.
    cluster.overlay.report(9, &RelayReport::default(), cluster.now);
    // Extreme but valid numbers.
    cluster.report(1, RelayReport { paths: vec![path(0), path(2)], ..RelayReport::default() });
    let flow = UnruledFlow { coflow: 7, flow: 0, destination: 65_535 };
    cluster.report(
        1,
        RelayReport { unruled_flows: vec![flow], refused_orders: u64::MAX, ..RelayReport::default() },
    );
    cluster.report(1, RelayReport { paths: vec![path(0), path(2)], ..RelayReport::default() });
    cluster.now += 2.0;
    cluster.step();
    assert_eq!(cluster.overlay.relay_states(cluster.now)[1].unruled_flows, 1);
    cluster.schedule("b", &[("dc2", "dc1", 50 * MB)]);
    cluster.progress(0, 0, 1, u64::MAX);
    assert!(cluster.overlay.coflow_status("a").unwrap().summary.state.is_completed_or_abandoned());
}

#[test]
fn measured_rates_become_samples_of_the_link() {
    let text = THREE_REGIONS.replace("POLICY", "mrtf").replace(
        "[overlay.link]",
        "r4 = { region = \"dc1\", address = \"10.1.9.1:7710\", networks = [\"10.1.9.0/24\"] }\n[overlay.link]",
    );
    let mut cluster = Cluster::with_config(&text);
    let link = cluster.config.link_between(0, 1).unwrap();
    for _ in 0..3 {
        for (relay, rate) in [(0, 10 * MB), (3, 20 * MB)] {
            let path = PathSample { peer: 1, rate: Some(rate), ..PathSample::default() };
            cluster.report(relay, RelayReport { paths: vec![path], ..RelayReport::default() });
        }
        cluster.now += 1.0;
        cluster.step();
    }
    let history = cluster.overlay.history();
    let rates: Vec<f64> =
        history.seconds_per_byte(link).iter().map(|seconds| (1.0 / seconds).round()).collect();
    assert_eq!(rates, [30e6, 30e6, 30e6, 50e6]);
    assert_eq!(history.seconds_per_byte(cluster.config.link_between(1, 0).unwrap()).len(), 1);
}

#[test]
fn last_1024_samples_of_a_link_count() {
    let mut cluster = Cluster::new("mrtf");
    let samples: Vec<u64> = (0..1100).map(|sample| (sample * 7919) % 1100 * MB + MB).collect();
    cluster.overlay.restore_samples(0, &samples);
    let mut expected = samples[76..].to_vec();
    expected.sort_unstable();
    let history = cluster.overlay.history();
    let rates = history.seconds_per_byte(0).iter().map(|seconds| (1.0 / seconds).round() as u64);
    assert_eq!(rates.collect::<Vec<u64>>(), expected);
    assert_eq!(cluster.overlay.take_unstored_samples(), []);
}

/// Two relays of region 1 have the link to region 2 in turn, then at the same time.
#[test]
fn bandwidth_of_a_link_is_the_rate_of_its_relays_together() {
    let mut cluster = Cluster::with_config(&config_with_two_relays("mrtf"));
    let link = cluster.config.link_between(0, 1).unwrap();
    let report = |cluster: &mut Cluster, relay: u16, rate: Option<u64>| {
        let path = PathSample { peer: 1, rate, ..PathSample::default() };
        cluster.report(relay, RelayReport { paths: vec![path], ..RelayReport::default() });
    };
    let mut samples = |rates: [[Option<u64>; 2]; 2]| -> Vec<f64> {
        let before = cluster.overlay.history().seconds_per_byte(link).len();
        for step in 0..30 {
            // Reports of both relays have a constant distance.
            for (relay, rate) in [0, 3].into_iter().zip(rates[step / 3 % 2]) {
                cluster.now += 0.05;
                report(&mut cluster, relay, rate);
            }
        }
        let history = cluster.overlay.history();
        let mut rates: Vec<f64> =
            history.seconds_per_byte(link).iter().map(|seconds| 1e-6 / seconds).collect();
        rates.retain(|rate| (rate - 50.0).abs() > 1e-6);
        assert!(history.seconds_per_byte(link).len() >= before + 2);
        rates
    };
    let in_turn = samples([[Some(40 * MB), None], [None, Some(40 * MB)]]);
    assert!(in_turn.iter().all(|rate| (34.0..47.0).contains(rate)), "{in_turn:?}");
    let together = samples([[Some(15 * MB), Some(25 * MB)]; 2]);
    assert!(together.iter().all(|rate| (34.0..47.0).contains(rate)), "{together:?}");
}

#[test]
fn progress_continues_over_restarts_of_coordinator_and_relay() {
    let mut cluster = Cluster::new("fifo");
    cluster.register("a", &[("dc1", "dc2", 50 * MB)]);
    cluster.register("b", &[("dc1", "dc2", 50 * MB)]);
    cluster.overlay.deregister("a").unwrap();
    cluster.step();
    cluster.progress(1, 0, 1, 20 * MB);
    let status = cluster.overlay.coflow_status("b").unwrap();
    // The coordinator restarts with the stored coflow, and the relay has its counts.
    cluster.overlay = Overlay::new(Arc::clone(&cluster.config), limits(), 6);
    let restored = Restored {
        number: status.number,
        registration: (*status.registration).clone(),
        first_digest: None,
        registered_at: -3.0,
        predicted_seconds: Some(2.5),
    };
    cluster.overlay.restore("b", restored.clone()).unwrap();
    assert!(matches!(cluster.overlay.restore("c", restored), Err(Refusal::IdTaken(_))));
    cluster.now = 0.0;
    (0..3).for_each(|relay| cluster.overlay.connect(relay, 0.0));
    let orders = cluster.step();
    assert!(orders.iter().all(|(_, order)| order.is_full && order.epoch == 6));
    assert_eq!(cluster.relays[0].coflows.keys().copied().collect::<Vec<_>>(), [1]);
    cluster.progress(1, 0, 1, 30 * MB);
    // The relay restarts, and counts from 0.
    cluster.progress(1, 0, 1, 5 * MB);
    assert_eq!(cluster.overlay.coflow_status("b").unwrap().summary.sent_bytes, 35e6);
    cluster.progress(1, 0, 1, 20 * MB);
    let summary = cluster.overlay.coflow_status("b").unwrap().summary;
    assert_eq!(
        (summary.state.is_completed_or_abandoned(), summary.wide_area.predicted_seconds),
        (true, Some(2.5))
    );
    assert!((summary.wide_area.measured_seconds.unwrap() - 3.02).abs() < 1e-9);
    // Numbers of restored coflows are not reused.
    cluster.register("d", &[("dc1", "dc2", 1)]);
    assert_eq!(cluster.overlay.coflow_status("d").unwrap().number, 2);
}

#[test]
fn estimate_is_that_of_the_sizes_before_the_first_byte() {
    let mut cluster = Cluster::new("siphon");
    let predicted =
        |cluster: &Cluster| cluster.overlay.coflow_status("a").unwrap().summary.wide_area.predicted_seconds;
    let update = |cluster: &mut Cluster, bytes| {
        let flows = cluster.registration(&[("dc1", "dc2", bytes)]).flows;
        cluster.overlay.update("a", flows).unwrap();
        cluster.step();
        cluster.step();
    };
    cluster.schedule("a", &[("dc1", "dc2", 50 * MB)]);
    assert!((predicted(&cluster).unwrap() - 1.0).abs() < 0.1);
    cluster.now += 3.0;
    update(&mut cluster, 500 * MB);
    assert!((predicted(&cluster).unwrap() - 13.0).abs() < 0.2, "{:?}", predicted(&cluster));
    cluster.progress(0, 0, 1, MB);
    update(&mut cluster, 50 * MB);
    assert!((predicted(&cluster).unwrap() - 13.0).abs() < 0.2, "{:?}", predicted(&cluster));
}

#[test]
fn updates_replace_flows_and_keep_progress() {
    let mut cluster = Cluster::new("siphon");
    let first = [("dc1", "dc2", 50 * MB)];
    cluster.schedule("a", &first);
    cluster.progress(0, 0, 1, 50 * MB);
    assert!(cluster.overlay.coflow_status("a").unwrap().summary.state.is_completed_or_abandoned());
    let flows = cluster.registration(&[("dc1", "dc2", 60 * MB), ("dc3", "dc2", 5 * MB)]).flows;
    cluster.overlay.update("a", flows.clone()).unwrap();
    let status = cluster.overlay.coflow_status("a").unwrap();
    assert!(!status.summary.state.is_completed_or_abandoned());
    assert_eq!(status.flow_progress, [50.0 / 60.0, 0.0]);
    cluster.step();
    cluster.step();
    assert!(cluster.relays[2].rule(0, pair(2, 1)).is_some());
    // A repeated registration is compared with the first one.
    let (repeated, other) = (cluster.registration(&first), cluster.registration(&[("dc1", "dc3", MB)]));
    assert_eq!(cluster.overlay.register("a", repeated, cluster.now), Ok(false));
    assert_eq!(cluster.overlay.register("a", other, cluster.now), Err(Refusal::IdTaken("a".to_owned())));
    assert!(matches!(cluster.overlay.update("b", flows.clone()), Err(Refusal::UnknownCoflow(_))));
    let too_many = vec![flows[0].clone(); 1001];
    assert!(matches!(cluster.overlay.update("a", too_many), Err(Refusal::LimitReached { .. })));
    // An empty coflow completes with its last report; expired coflows are removed.
    cluster.progress(0, 0, 1, 60 * MB);
    cluster.progress(0, 2, 1, 5 * MB);
    cluster.now += 61.0;
    (0..3).for_each(|relay| cluster.report(relay, RelayReport::default()));
    cluster.step();
    assert_eq!(cluster.overlay.counts(), [0, 0, 0]);
    assert_eq!(cluster.overlay.usage_by_service().of("ads"), CoflowUsage::default());
}

/// Something that happens to an overlay.
#[derive(Debug, Clone)]
enum Event {
    Register(u8, Vec<(u16, u16, u64)>),
    Update(u8, Vec<(u16, u16, u64)>),
    Deregister(u8),
    Progress(u8, u16, u16, u64),
    Reconnect(u16),
    Step(u8),
}

fn any_event() -> impl Strategy<Value = Event> {
    let flows = || prop::collection::vec((0..3u16, 0..3u16, 0..100 * MB), 1..6);
    prop_oneof![
        (0..5u8, flows()).prop_map(|(id, flows)| Event::Register(id, flows)),
        (0..5u8, flows()).prop_map(|(id, flows)| Event::Update(id, flows)),
        (0..5u8).prop_map(Event::Deregister),
        (0..8u8, 0..3u16, 0..3u16, 0..200 * MB)
            .prop_map(|(n, from, to, bytes)| Event::Progress(n, from, to, bytes)),
        (0..3u16).prop_map(Event::Reconnect),
        (1..4u8).prop_map(Event::Step),
    ]
}

fn apply(cluster: &mut Cluster, event: Event) {
    let names = ["dc1", "dc2", "dc3"];
    let to_names = |flows: Vec<(u16, u16, u64)>| -> Vec<(&str, &str, u64)> {
        flows.into_iter().map(|(from, to, bytes)| (names[from as usize], names[to as usize], bytes)).collect()
    };
    match event {
        Event::Register(id, flows) => {
            let registration = cluster.registration(&to_names(flows));
            let _ = cluster.overlay.register(&format!("c{id}"), registration, cluster.now);
        }
        Event::Update(id, flows) => {
            let flows = cluster.registration(&to_names(flows)).flows;
            let _ = cluster.overlay.update(&format!("c{id}"), flows);
        }
        Event::Deregister(id) => drop(cluster.overlay.deregister(&format!("c{id}"))),
        Event::Progress(number, from, to, bytes) => cluster.progress(number.into(), from, to, bytes),
        Event::Reconnect(relay) => cluster.overlay.connect(relay, cluster.now),
        Event::Step(count) => (0..count).for_each(|_| drop(cluster.step())),
    }
}

proptest! {
    #![proptest_config(config_with_cases(100))]

    /// A relay with all orders has the same coflows and rules as a relay that connects.
    #[test]
    fn changes_add_up_to_the_full_order(
        policy in prop::sample::select(vec!["siphon:samples=64:detours=on:groups=on", "mrtf:groups=on", "fifo", "fair:detours=on"]),
        events in prop::collection::vec(any_event(), 1..30),
    ) {
        let text = detour_config("max-detoured = 0.5").replace("siphon:detours=on", policy);
        let mut cluster = Cluster::with_config(&text);
        for event in events {
            apply(&mut cluster, event);
        }
        (0..3).for_each(|_| drop(cluster.step()));
        let before = cluster.relays.clone();
        (0..3).for_each(|relay| cluster.overlay.connect(relay, cluster.now));
        cluster.step();
        for (former, relay) in before.iter().zip(&cluster.relays) {
            prop_assert_eq!((&former.coflows, &former.rules), (&relay.coflows, &relay.rules));
        }
    }
}
