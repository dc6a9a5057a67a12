//! Links between switches with less capacity than ports: examples by hand, and properties of every policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{
    Kinds, POLICIES, Schedule, all_is_sent, assert_near, cases, coflow, event, near, options, workload,
    workloads,
};
use proptest::prelude::*;
use weir_core::allocation::Common;
use weir_core::model::topology::Builder;
use weir_core::model::{Change, FlowState, Plan, Side, Trunks, TrunksError, Workload};
use weir_core::policy;
use weir_core::units::Rate;
use weir_sim::{NetworkModel, NoObserver, Observer, Options, Outcome, ReplayError, Snapshot, replay};

/// Ports of 1 byte/s. With an oversubscription below 1, links between switches carry more than ports.
fn network(spines: u32, leaves: u32, hosts: u32, oversubscription: f64, seed: u64) -> Trunks {
    let rate = Rate::new(1.0).unwrap();
    let plan = Plan::LeafSpine { spines, leaves, hosts, rate, oversubscription };
    Trunks::new(plan.build().unwrap(), seed).unwrap()
}

fn over(trunks: &Trunks, interval: f64) -> Options {
    Options { behind: Some(NetworkModel::Trunks(Arc::new(trunks.clone()))), ..options(1.0, interval) }
}

fn run(all: &Workload, policy: &str, options: &Options) -> Outcome {
    let built = policy::build(policy).unwrap();
    replay(all, built, options, &mut NoObserver).unwrap_or_else(|error| panic!("{policy}: {error}"))
}

/// Whether a policy leaves rates to queues at ports, which are not supported over links between switches.
fn queues(policy: &str) -> bool {
    policy.starts_with("aalo")
}

#[test]
fn two_flows_share_an_uplink() {
    // Two leaves of two hosts each, with an uplink of one host's rate.
    let narrow = over(&network(1, 2, 2, 2.0, 0), 0.0);
    let one = workload(4, vec![coflow(1, 0.0, &[(0, 2, 4.0), (1, 3, 2.0)])]);
    // Half of the uplink each until the shorter one ends at 4; the other then uses its whole port.
    for policy in ["fair", "saath", "varys", "pfp", "fifo", "sincronia", "django"] {
        let found = run(&one, policy, &narrow);
        assert_near(&found.coflows[0].flow_ends, &[6.0, 4.0], 1e-9, policy);
    }
    // No link is a bottleneck inside a leaf.
    let under = workload(4, vec![coflow(1, 0.0, &[(0, 1, 4.0), (2, 3, 2.0)])]);
    for policy in ["fair", "saath"] {
        let found = run(&under, policy, &narrow);
        assert_near(&found.coflows[0].flow_ends, &[4.0, 2.0], 1e-9, policy);
    }
}

#[test]
fn flow_below_its_uplink_share_keeps_its_rate() {
    // Port 0 sends to 2 and 3, port 1 to 3. Max-min gives port 3's flows a half each, and port 0's other flow
    // its other half.
    let all = workload(4, vec![coflow(1, 0.0, &[(0, 2, 9.0), (0, 3, 9.0), (1, 3, 9.0)])]);
    // The uplink carries 1.2 of these 1.5: 0.4 each.
    let narrow = over(&network(1, 2, 2, 2.0 / 1.2, 0), 0.0);
    assert_near(&run(&all, "fair", &narrow).coflows[0].flow_ends, &[22.5; 3], 1e-9, "fair");
    // An uplink of 1.5 changes no rate.
    let wide = over(&network(1, 2, 2, 2.0 / 1.5, 0), 0.0);
    let plain = run(&all, "fair", &options(1.0, 0.0));
    assert_near(
        &run(&all, "fair", &wide).coflows[0].flow_ends,
        &plain.coflows[0].flow_ends,
        1e-9,
        "a link that carries all",
    );
}

#[test]
fn pfp_over_trunks_reorders_when_a_flow_becomes_shorter() {
    // Receivers of 0.5 and 0.8: port 0 gives 0.5 to its flow to port 2, and the other half to port 1 under
    // the same leaf. The uplink carries 0.2, so after 1 / 0.3 s the other flow, at first longer by a byte, is
    // the shorter one.
    let flows = [(0, 2, 4.0), (0, 1, 5.0)];
    let mut all = workload(4, vec![coflow(1, 0.0, &flows)]);
    let rate = |port, factor| event(0.0, Change::PortRate { port, side: Side::Receive, factor });
    all.events = vec![rate(2, 0.5), rate(1, 0.8)];
    let found = run(&all, "pfp", &over(&network(1, 2, 2, 10.0, 0), 0.0));
    // 5 / 3 bytes by then, the remaining bytes at 0.8.
    assert_near(&found.coflows[0].flow_ends, &[20.0, 7.5], 1e-9, "pfp");
}

#[test]
fn trunk_replay_rejects_unsupported_input() {
    let built = |policy| policy::build(policy).unwrap();
    let one = workload(5, vec![coflow(1, 0.0, &[(0, 2, 4.0)])]);
    let narrow = over(&network(1, 2, 2, 2.0, 0), 0.0);
    let refused = replay(&one, built("fair"), &narrow, &mut NoObserver).unwrap_err();
    assert_eq!(refused, ReplayError::Hosts { ports: 5, hosts: 4 });
    let one = workload(4, one.coflows);
    for policy in POLICIES {
        let found = replay(&one, built(policy), &narrow, &mut NoObserver);
        assert_eq!(found.is_err(), queues(policy), "{policy}");
        if let Err(error) = found {
            assert_eq!(error, ReplayError::Queues);
        }
    }
    let mut builder = Builder::new();
    builder.host("a").unwrap();
    builder.host("b").unwrap();
    builder.switch("s", 1).unwrap();
    builder.cable("a", "s", Rate::new(1.0).unwrap()).unwrap();
    builder.cable("b", "s", Rate::new(2.0).unwrap()).unwrap();
    let refused = Trunks::new(builder.build().unwrap(), 0).unwrap_err();
    assert!(matches!(&refused, TrunksError::Rate { host, .. } if host == "b"), "{refused}");
}

/// Records the schedules, and looks for flows with too much or too little bandwidth.
struct Recorder {
    trunks: Trunks,
    fair: bool,
    /// Sizes of all flows; for each flow, the bytes sent until the last schedule, its time and the rate since
    /// then.
    bytes: Vec<Vec<f64>>,
    moved: BTreeMap<(usize, u32), f64>,
    schedules: Vec<Schedule>,
    broken: Option<String>,
}

/// A flow: its links, its decided rate if that is a single number, and its actual rate.
struct Live {
    links: Vec<usize>,
    decided: Option<f64>,
    rate: f64,
}

impl Recorder {
    fn new(trunks: &Trunks, policy: &str, all: &Workload) -> Recorder {
        let sizes =
            |coflow: &weir_core::model::CoflowSpec| coflow.flows.iter().map(|f| f.bytes.get()).collect();
        Recorder {
            trunks: trunks.clone(),
            fair: policy == "fair",
            bytes: all.coflows.iter().map(sizes).collect(),
            moved: BTreeMap::new(),
            schedules: Vec::new(),
            broken: None,
        }
    }

    fn sent(&self, coflow: usize, flow: u32) -> f64 {
        self.moved.get(&(coflow, flow)).copied().unwrap_or(0.0)
    }

    /// Adds the bytes sent at the rates of the last schedule.
    fn advance(&mut self, now: f64) {
        if let Some((from, rates)) = self.schedules.last() {
            for &(coflow, flow, rate) in rates {
                *self.moved.entry((coflow, flow as u32)).or_default() += rate * (now - from);
            }
        }
    }

    fn live(&mut self, moment: &Snapshot<'_>) -> Vec<Live> {
        let ports = moment.fabric().ports();
        let (mut all, mut rates, mut path) = (Vec::new(), Vec::new(), Vec::new());
        for &slot in moment.active() {
            let coflow = moment.coflow(slot);
            for flow in 0..coflow.width() as u32 {
                if coflow.state(flow) != FlowState::Live {
                    continue;
                }
                let ((src, dst), original) = (coflow.ends_of(flow), coflow.original(flow));
                let (from, to) = (moment.port(src), moment.port(dst));
                self.trunks.path(from, to, coflow.index, original, &mut path);
                let mut links = vec![src as usize, ports + dst as usize];
                links.extend(path.iter().map(|&link| 2 * ports + link as usize));
                let own =
                    moment.allocation().flows().iter().filter(|own| (own.slot, own.flow) == (slot, flow));
                let own: f64 = own.map(|own| own.rate).sum();
                let decided = match moment.allocation().common(slot) {
                    Common::None => Some(own),
                    Common::Each(rate) => Some(rate + own),
                    Common::Together(seconds) => {
                        let left =
                            self.bytes[coflow.index][original as usize] - self.sent(coflow.index, original);
                        // The last remaining bytes are mostly rounding errors.
                        (left > 1e-3).then_some(left / seconds + own)
                    }
                };
                let rate = moment.rate(slot, flow);
                rates.push((coflow.index, original as usize, rate));
                all.push(Live { links, decided, rate });
            }
        }
        self.schedules.push((moment.now(), rates));
        all
    }
}

impl Observer for Recorder {
    fn scheduled(&mut self, moment: &Snapshot<'_>) -> bool {
        self.advance(moment.now());
        let live = self.live(moment);
        let fabric = moment.fabric();
        let capacities: Vec<f64> =
            fabric.send().iter().chain(fabric.recv()).chain(self.trunks.capacities()).copied().collect();
        let mut sums = vec![0.0; capacities.len()];
        for flow in &live {
            flow.links.iter().for_each(|&link| sums[link] += flow.rate);
        }
        let over = (0..sums.len()).find(|&link| sums[link] > capacities[link] + 1e-9);
        // A bottleneck: a full link on which no flow is faster. For decided rates only links between switches
        // count.
        let bottleneck = |flow: &Live| {
            let from = if self.fair { 0 } else { 2 * fabric.ports() };
            flow.links.iter().filter(|&&link| link >= from).any(|&link| {
                let others = live.iter().filter(|other| other.links.contains(&link));
                sums[link] > capacities[link] - 1e-9
                    && others.map(|o| o.rate).fold(0.0, f64::max) <= flow.rate + 1e-9
            })
        };
        let short = |flow: &&Live| match flow.decided {
            _ if self.fair => !bottleneck(flow),
            Some(decided) => flow.rate > decided + 1e-6 || (flow.rate < decided - 1e-6 && !bottleneck(flow)),
            None => false,
        };
        if let Some(link) = over {
            self.broken = Some(format!("at {}: link {link} carries {}", moment.now(), sums[link]));
        } else if let Some(flow) = live.iter().find(short) {
            let (decided, rate) = (flow.decided, flow.rate);
            self.broken = Some(format!("at {}: {rate} of {decided:?} over {:?}", moment.now(), flow.links));
        }
        self.broken.is_none() && self.schedules.len() < 20_000
    }
}

/// A network of at least two leaves with at least `ports` hosts.
fn networks(ports: u32) -> impl Strategy<Value = Trunks> {
    (1..3u32, 2..4u32, prop::sample::select(vec![1.0, 1.7, 3.0]), 0..100u64).prop_map(
        move |(spines, leaves, oversubscription, seed)| {
            network(spines, leaves, ports.div_ceil(leaves).max(1), oversubscription, seed)
        },
    )
}

fn workload_and_network(kinds: Kinds) -> impl Strategy<Value = (Workload, Trunks)> {
    workloads(kinds).prop_flat_map(|all| {
        let ports = all.ports;
        (Just(all), networks(ports))
    })
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn trunk_rates_are_max_min_within_capacity(
        (all, trunks) in workload_and_network(Kinds { ports: true, late: true, ..Kinds::PLAIN }),
        interval in prop::sample::select(vec![0.0, 0.5]),
    ) {
        for policy in POLICIES.iter().filter(|policy| !queues(policy)) {
            let mut recorder = Recorder::new(&trunks, policy, &all);
            let built = policy::build(policy).unwrap();
            let outcome = replay(&all, built, &over(&trunks, interval), &mut recorder);
            prop_assert_eq!(&recorder.broken, &None, "{}", policy);
            let outcome = outcome.map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?;
            // Flows whose data became unavailable may have sent some bytes before.
            if all.events.is_empty() {
                all_is_sent(&all, &recorder.schedules, &outcome)?;
            }
            prop_assert_eq!(run(&all, policy, &over(&trunks, interval)).coflows, outcome.coflows, "{}", policy);
        }
    }

    #[test]
    fn trunks_with_spare_capacity_change_no_replay(all in workloads(Kinds::ALL)) {
        let wide = over(&network(2, 2, all.ports.div_ceil(2), 0.01, 0), 0.5);
        for policy in POLICIES.iter().filter(|policy| !queues(policy)) {
            let plain = run(&all, policy, &options(1.0, 0.5)).coflows;
            let found = run(&all, policy, &wide).coflows;
            if *policy == "fair" {
                for (found, plain) in found.iter().zip(&plain) {
                    prop_assert!(near(found.cct(), plain.cct(), 1e-6), "{} and {}", found.cct(), plain.cct());
                }
            } else {
                prop_assert_eq!(&found, &plain, "{}", policy);
            }
        }
    }
}
