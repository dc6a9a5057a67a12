//! Links between switches with less capacity than ports: examples by hand, and properties of every policy.

use std::collections::BTreeMap;

use crate::common::{
    POLICIES, SHARED_QUEUES, Schedule, WorkloadFeatures, any_workload, assert_near, cases,
    check_all_sent_bytes, coflow, leaf_spine, options, options_over, replay_with_options, timed_event,
    workload,
};
use proptest::prelude::*;
use weir_core::allocation::CommonRate;
use weir_core::model::topology::TopologyBuilder;
use weir_core::model::{
    FlowState, PortSide, TopologyTemplate, Trunks, TrunksError, Workload, WorkloadChange,
};
use weir_core::policy;
use weir_core::units::Rate;
use weir_sim::{NoObserver, Observer, ReplayError, Snapshot, replay};

fn leaf_spine_trunks(spines: u32, leaves: u32, hosts: u32, oversubscription: f64, seed: u64) -> Trunks {
    Trunks::new(leaf_spine(spines, leaves, hosts, oversubscription), seed).unwrap()
}

#[test]
fn two_flows_share_an_uplink() {
    // Two leaves of two hosts each, with an uplink of one host's rate.
    let narrow = options_over(&leaf_spine_trunks(1, 2, 2, 2.0, 0), 0.0);
    let one = workload(4, vec![coflow(1, 0.0, &[(0, 2, 4.0), (1, 3, 2.0)])]);
    // Half of the uplink each until the shorter one ends at 4; the other then uses its whole port.
    for policy in ["fair", "saath", "pfp", "django"] {
        let found = replay_with_options(&one, policy, &narrow);
        assert_near(&found.coflows[0].flow_ends, &[6.0, 4.0], 1e-9, policy);
    }
    // The 6 bytes complete together, or one flow after the other in the order of ports.
    for (policy, ends) in [("varys", [6.0, 6.0]), ("fifo", [6.0, 6.0]), ("sincronia", [4.0, 6.0])] {
        let found = replay_with_options(&one, policy, &narrow);
        assert_near(&found.coflows[0].flow_ends, &ends, 1e-9, policy);
    }
    // No link is a bottleneck inside a leaf.
    let under = workload(4, vec![coflow(1, 0.0, &[(0, 1, 4.0), (2, 3, 2.0)])]);
    for policy in ["fair", "saath"] {
        let found = replay_with_options(&under, policy, &narrow);
        assert_near(&found.coflows[0].flow_ends, &[4.0, 2.0], 1e-9, policy);
    }
}

#[test]
fn flow_below_its_uplink_share_keeps_its_rate() {
    // Port 0 sends to 2 and 3, port 1 to 3. Max-min gives port 3's flows a half each, and port 0's other flow
    // its other half.
    let all = workload(4, vec![coflow(1, 0.0, &[(0, 2, 9.0), (0, 3, 9.0), (1, 3, 9.0)])]);
    // The uplink carries 1.2 of these 1.5: 0.4 each.
    let narrow = options_over(&leaf_spine_trunks(1, 2, 2, 2.0 / 1.2, 0), 0.0);
    assert_near(&replay_with_options(&all, "fair", &narrow).coflows[0].flow_ends, &[22.5; 3], 1e-9, "fair");
    // An uplink of 1.5 changes no rate.
    let wide = options_over(&leaf_spine_trunks(1, 2, 2, 2.0 / 1.5, 0), 0.0);
    let plain = replay_with_options(&all, "fair", &options(1.0, 0.0));
    assert_near(
        &replay_with_options(&all, "fair", &wide).coflows[0].flow_ends,
        &plain.coflows[0].flow_ends,
        1e-9,
        "a link that is not a bottleneck",
    );
}

#[test]
fn pfp_over_trunks_reorders_when_a_flow_becomes_shorter() {
    // Receivers of 0.5 and 0.8: port 0 gives 0.5 to its flow to port 2, and the other half to port 1 under
    // the same leaf. The uplink carries 0.2, so after 1 / 0.3 s the other flow, at first longer by a byte, is
    // the shorter one.
    let flows = [(0, 2, 4.0), (0, 1, 5.0)];
    let mut all = workload(4, vec![coflow(1, 0.0, &flows)]);
    let rate =
        |port, factor| timed_event(0.0, WorkloadChange::PortRate { port, side: PortSide::Receive, factor });
    all.events = vec![rate(2, 0.5), rate(1, 0.8)];
    let found = replay_with_options(&all, "pfp", &options_over(&leaf_spine_trunks(1, 2, 2, 10.0, 0), 0.0));
    // 5 / 3 bytes by then, the remaining bytes at 0.8.
    assert_near(&found.coflows[0].flow_ends, &[20.0, 7.5], 1e-9, "pfp");
}

#[test]
fn trunk_replay_rejects_unsupported_input() {
    let build_policy = |policy| policy::build(policy).unwrap();
    let one = workload(5, vec![coflow(1, 0.0, &[(0, 2, 4.0)])]);
    let narrow = options_over(&leaf_spine_trunks(1, 2, 2, 2.0, 0), 0.0);
    let refused = replay(&one, build_policy("fair"), &narrow, &mut NoObserver).unwrap_err();
    assert_eq!(refused, ReplayError::TooFewHosts { ports: 5, hosts: 4 });
    let mut builder = TopologyBuilder::new();
    builder.add_host("a").unwrap();
    for switch in ["s", "t"] {
        builder.add_switch(switch, 1).unwrap();
        builder.add_cable("a", switch, Rate::new(1.0).unwrap()).unwrap();
    }
    let refused = Trunks::new(builder.build().unwrap(), 0).unwrap_err();
    assert_eq!(refused, TrunksError::CableCount { host: "a".to_owned(), cables: 2 });
}

#[test]
fn hosts_have_the_rates_of_their_cables() {
    // A server of 4 bytes/s sends 8 bytes to each of three hosts of 1, 2 and 3 bytes/s under the same switch.
    let mut builder = TopologyBuilder::new();
    builder.add_switch("s", 1).unwrap();
    for (host, rate) in [("server", 4.0), ("a", 1.0), ("b", 2.0), ("c", 3.0)] {
        builder.add_host(host).unwrap();
        builder.add_cable(host, "s", Rate::new(rate).unwrap()).unwrap();
    }
    let trunks = Trunks::new(builder.build().unwrap(), 0).unwrap();
    let mut all = workload(4, vec![coflow(1, 0.0, &[(0, 1, 8.0), (0, 2, 8.0), (0, 3, 8.0)])]);
    let options = options_over(&trunks, 0.0);
    // Max-min: 1, 1.5 and 1.5 until the last two end; the first uses its whole port all the time.
    let ends =
        |all: &Workload, policy| replay_with_options(all, policy, &options).coflows[0].flow_ends.clone();
    assert_near(&ends(&all, "fair"), &[8.0, 16.0 / 3.0, 16.0 / 3.0], 1e-9, "fair");
    // All flows at 1, or one flow after the other at the rest of the server's port.
    assert_near(&ends(&all, "saath"), &[8.0; 3], 1e-9, "saath");
    assert_near(&ends(&all, "sincronia"), &[8.0, 4.0, 16.0 / 3.0], 1e-9, "sincronia");
    // An event scales the port's own rate.
    let change = WorkloadChange::PortRate { port: 1, side: PortSide::Receive, factor: 0.5 };
    all.events = vec![timed_event(0.0, change)];
    assert_near(&ends(&all, "saath"), &[16.0; 3], 1e-9, "saath with half of a port");
    assert_near(
        &replay_with_options(&all, "fair", &options).recv_utilization,
        &[0.0, 0.5, 0.25, 1.0 / 6.0],
        1e-9,
        "",
    );
}

/// Records the schedules, and looks for flows with too much or too little bandwidth.
struct TrunkChecker {
    trunks: Trunks,
    is_fair: bool,
    /// Sizes of all flows; for each flow, the bytes sent until the last schedule, its time and the rate since
    /// then.
    bytes: Vec<Vec<f64>>,
    sent_bytes: BTreeMap<(usize, u32), f64>,
    schedules: Vec<Schedule>,
    violation: Option<String>,
}

/// A flow: its links, its decided rate if that is a single number, and its actual rate.
struct LiveFlow {
    links: Vec<usize>,
    decided_rate: Option<f64>,
    rate: f64,
}

impl TrunkChecker {
    fn new(trunks: &Trunks, policy: &str, all: &Workload) -> TrunkChecker {
        let sizes =
            |coflow: &weir_core::model::CoflowSpec| coflow.flows.iter().map(|f| f.bytes.get()).collect();
        TrunkChecker {
            trunks: trunks.clone(),
            is_fair: policy == "fair",
            bytes: all.coflows.iter().map(sizes).collect(),
            sent_bytes: BTreeMap::new(),
            schedules: Vec::new(),
            violation: None,
        }
    }

    fn sent_bytes(&self, coflow: usize, flow: u32) -> f64 {
        self.sent_bytes.get(&(coflow, flow)).copied().unwrap_or(0.0)
    }

    /// Adds the bytes sent at the rates of the last schedule.
    fn advance(&mut self, now: f64) {
        if let Some((from, rates)) = self.schedules.last() {
            for &(coflow, flow, rate) in rates {
                *self.sent_bytes.entry((coflow, flow as u32)).or_default() += rate * (now - from);
            }
        }
    }

    fn live_flows(&mut self, snapshot: &Snapshot<'_>) -> Vec<LiveFlow> {
        let ports = snapshot.fabric().ports();
        let (mut all, mut rates, mut path) = (Vec::new(), Vec::new(), Vec::new());
        for &slot in snapshot.active() {
            let coflow = snapshot.coflow(slot);
            for flow in 0..coflow.width() as u32 {
                if coflow.flow_state(flow) != FlowState::Live {
                    continue;
                }
                let ((src, dst), original) = (coflow.flow_ports(flow), coflow.spec_index(flow));
                let (from, to) = (snapshot.workload_port(src), snapshot.workload_port(dst));
                self.trunks.compute_path(from, to, coflow.workload_index, original, &mut path);
                let mut links = vec![src as usize, ports + dst as usize];
                links.extend(path.iter().map(|&link| 2 * ports + link as usize));
                let own = snapshot
                    .allocation()
                    .flow_rates()
                    .iter()
                    .filter(|own| (own.slot, own.flow) == (slot, flow));
                let own: f64 = own.map(|own| own.rate).sum();
                let decided = match snapshot.allocation().common(slot) {
                    CommonRate::None => Some(own),
                    CommonRate::Equal(rate) => Some(rate + own),
                    CommonRate::CompleteTogether(_) => {
                        let left = self.bytes[coflow.workload_index][original as usize]
                            - self.sent_bytes(coflow.workload_index, original);
                        // The last remaining bytes are mostly rounding errors.
                        (left > 1e-3).then(|| snapshot.decided_common_rate(slot, flow) + own)
                    }
                };
                // With queues, the transport sets the rates.
                let decided = decided.filter(|_| snapshot.allocation().queue_discipline().is_none());
                let rate = snapshot.rate(slot, flow);
                rates.push((coflow.workload_index, original as usize, rate));
                all.push(LiveFlow { links, decided_rate: decided, rate });
            }
        }
        self.schedules.push((snapshot.now(), rates));
        all
    }
}

impl Observer for TrunkChecker {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        self.advance(snapshot.now());
        let live = self.live_flows(snapshot);
        let ports = 2 * snapshot.fabric().ports();
        let of_ports = &snapshot.fabric().capacities()[..ports];
        let capacities: Vec<f64> = of_ports.iter().chain(self.trunks.capacities()).copied().collect();
        let mut sums = vec![0.0; capacities.len()];
        for flow in &live {
            flow.links.iter().for_each(|&link| sums[link] += flow.rate);
        }
        let overloaded = (0..sums.len()).find(|&link| sums[link] > capacities[link] + 1e-9);
        // A bottleneck: a full link on which no flow is faster. For decided rates only links between switches
        // count.
        let bottleneck = |flow: &LiveFlow| {
            let from = if self.is_fair { 0 } else { ports };
            flow.links.iter().filter(|&&link| link >= from).any(|&link| {
                let others = live.iter().filter(|other| other.links.contains(&link));
                sums[link] > capacities[link] - 1e-9
                    && others.map(|o| o.rate).fold(0.0, f64::max) <= flow.rate + 1e-9
            })
        };
        let is_misallocated = |flow: &&LiveFlow| match flow.decided_rate {
            _ if self.is_fair => !bottleneck(flow),
            Some(decided) => flow.rate > decided + 1e-6 || (flow.rate < decided - 1e-6 && !bottleneck(flow)),
            None => false,
        };
        if let Some(link) = overloaded {
            self.violation = Some(format!("at {}: link {link} carries {}", snapshot.now(), sums[link]));
        } else if let Some(flow) = live.iter().find(is_misallocated) {
            let (decided, rate) = (flow.decided_rate, flow.rate);
            self.violation =
                Some(format!("at {}: {rate} of {decided:?} over {:?}", snapshot.now(), flow.links));
        }
        self.violation.is_none() && self.schedules.len() < 20_000
    }
}

/// A network of two or three tiers with at least `ports` hosts, up to 16.
fn any_trunks(ports: u32) -> impl Strategy<Value = Trunks> {
    let shape = (0..4u8, 1..3u32, 2..4u32);
    (shape, prop::sample::select(vec![1.0, 1.7, 3.0]), 0..100u64).prop_map(
        move |((tiers, spines, leaves), oversubscription, seed)| match tiers {
            0 => {
                let template =
                    TopologyTemplate::FatTree { ports: 4, rate: Rate::new(1.0).unwrap(), oversubscription };
                Trunks::new(template.build().unwrap(), seed).unwrap()
            }
            _ => leaf_spine_trunks(spines, leaves, ports.div_ceil(leaves).max(1), oversubscription, seed),
        },
    )
}

pub fn any_workload_with_trunks(kinds: WorkloadFeatures) -> impl Strategy<Value = (Workload, Trunks)> {
    any_workload(kinds).prop_flat_map(|all| {
        let ports = all.ports;
        (Just(all), any_trunks(ports))
    })
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn trunk_rates_are_max_min_within_capacity(
        (all, trunks) in any_workload_with_trunks(WorkloadFeatures { port_changes: true, late_data: true, ..WorkloadFeatures::PLAIN }),
        interval in prop::sample::select(vec![0.0, 0.5]),
    ) {
        for policy in POLICIES.iter().chain(&["netshare:weights=4/2/1", "saba:slowdown=2.3/1.1", SHARED_QUEUES]) {
            let mut recorder = TrunkChecker::new(&trunks, policy, &all);
            let built = policy::build(policy).unwrap();
            let outcome = replay(&all, built, &options_over(&trunks, interval), &mut recorder);
            prop_assert_eq!(&recorder.violation, &None, "{}", policy);
            let outcome = outcome.map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?;
            // Flows whose data became unavailable may have sent some bytes before.
            if all.events.is_empty() {
                check_all_sent_bytes(&all, &recorder.schedules, &outcome)?;
            }
            prop_assert_eq!(replay_with_options(&all, policy, &options_over(&trunks, interval)).coflows, outcome.coflows, "{}", policy);
        }
    }
}
