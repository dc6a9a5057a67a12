//! Coflows over fabrics whose links between switches are oversubscribed: a control plane and ideal hosts, next to the
//! simulator on the same fabric.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_coordinator::control_plane::{
    ControlPlane, FlowKey, FlowProgress, OrderedRate, Registration, Report, SenderState, Settings, Transfer,
};
use weir_core::model::{
    CoflowSpec, FlowSpec, LinkBudget, NodeId, Routes, ServiceNames, Topology, TopologyTemplate, Trunks,
    Workload,
};
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate, Time};
use weir_proto::estimate_sent_bytes;
use weir_sim::{NetworkModel, NoObserver, ReplayOptions, replay};

use crate::small_cluster::{INTERVAL, LINK_RATE, flow_key, links_of};

/// Waiting flows send at their part of the reserve, which the simulator does not know: it is negligible here.
const RESERVE: f64 = 3e-5;

const EPOCH: u64 = 1;

/// Four leaves with two hosts each. The uplinks of a leaf carry together a half of what its hosts send.
fn four_leaves(spines: u32) -> Topology {
    let rate = Rate::new(LINK_RATE).unwrap();
    let plan = TopologyTemplate::LeafSpine { spines, leaves: 4, hosts: 2, rate, oversubscription: 2.0 };
    plan.build().unwrap()
}

/// Coflows of up to three by three flows, of 10 to 400 kB each, that arrive within two seconds. The first one goes from each host to
/// the next: the simulator, which numbers ports in the order of their use, then serves flows in the coordinator's order.
fn random_workload(seed: u64, hosts: u32) -> Workload {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut number = |max: u32| random.next_u32() % max;
    let mut arrivals: Vec<f64> = (0..16).map(|_| f64::from(number(2_000_000)) * 1e-6).collect();
    arrivals.sort_by(f64::total_cmp);
    let neighbours = (1..hosts).map(|host| FlowSpec::new(host - 1, host, Bytes::new(10_000.0).unwrap()));
    let mut coflows = vec![CoflowSpec::new(0, Time::new(1e-6).unwrap(), neighbours.collect())];
    for (id, arrival) in (1u64..).zip(arrivals) {
        let mut flows = Vec::new();
        let (senders, receivers) = (1 + number(3), 1 + number(3));
        let (first_sender, first_receiver) = (number(hosts), number(hosts));
        for (sender, receiver) in (0..senders).flat_map(|sender| (0..receivers).map(move |to| (sender, to))) {
            let (src, dst) = ((first_sender + 3 * sender) % hosts, (first_receiver + 2 * receiver) % hosts);
            let bytes = Bytes::new(f64::from(10_000 + number(390_000))).unwrap();
            if src != dst {
                flows.push(FlowSpec::new(src, dst, bytes));
            }
        }
        if !flows.is_empty() {
            coflows.push(CoflowSpec::new(id, Time::new(arrival).unwrap(), flows));
        }
    }
    Workload { ports: hosts, coflows, events: Vec::new(), names: ServiceNames::default() }
}

/// Highest load of a link between switches as a fraction of its capacity, if switches divide flows evenly.
fn max_utilization(routes: &mut Routes, rates: impl Iterator<Item = (u32, u32, f64)>) -> f64 {
    let mut loads = vec![0.0; routes.topology().links().len()];
    let mut shares = Vec::new();
    for (src, dst, rate) in rates {
        routes.compute_ecmp_shares(NodeId(src), NodeId(dst), &mut shares);
        shares.iter().for_each(|(link, share)| loads[link.index()] += share * rate);
    }
    let links = routes.topology().links().iter().zip(loads);
    links.map(|(link, load)| load / link.rate.get()).fold(0.0, f64::max)
}

/// A flow of the workload, and the bytes that it has sent.
struct SentFlow {
    key: FlowKey,
    spec: FlowSpec,
    sent_bytes: f64,
    rate: u64,
}

/// The completion times of coflows whose hosts receive and report without delay. Checks that no link is ordered more than
/// it carries. The flows use UDP, since TCP flows without competition have no rate.
fn live_ccts(policy: &str, topology: &Topology, workload: &Workload) -> Vec<f64> {
    let settings = Settings { reserve: RESERVE, ..Settings::default() };
    let policy_built = build(policy).unwrap();
    let mut plane =
        ControlPlane::new(links_of(topology), policy_built, ServiceNames::default(), settings, EPOCH)
            .unwrap();
    let mut routes = Routes::new(topology.clone(), 0);
    let mut flows: BTreeMap<FlowKey, (usize, SentFlow)> = BTreeMap::new();
    let mut applied_seqs = vec![0; topology.hosts()];
    let mut ends = vec![0.0f64; workload.coflows.len()];
    let mut arrivals = workload.coflows.iter().enumerate().peekable();
    for step in 1.. {
        let now = f64::from(step) * INTERVAL;
        assert!(now < 200.0, "{policy}: coflows do not complete");
        let mut reports: Vec<Report> =
            applied_seqs.iter().map(|&seq| Report { applied: (EPOCH, seq), ..Report::default() }).collect();
        flows.retain(|_, (coflow, flow)| {
            let remaining = flow.spec.bytes.get() - flow.sent_bytes;
            let sent = estimate_sent_bytes(flow.rate, INTERVAL);
            let closed = sent >= remaining;
            if closed {
                let end = now - INTERVAL + INTERVAL * remaining / sent;
                ends[*coflow] = ends[*coflow].max(end);
            }
            flow.sent_bytes += sent.min(remaining);
            let progress = FlowProgress::new(
                flow.key.clone(),
                flow.sent_bytes as u64,
                if closed { SenderState::Completed } else { SenderState::Ready },
            );
            reports[flow.spec.src as usize].flows.push(FlowProgress { udp: true, ..progress });
            !closed
        });
        while let Some((index, coflow)) = arrivals.next_if(|(_, coflow)| coflow.arrival.get() <= now) {
            let id = coflow.id.to_string();
            let transfer = |f: &FlowSpec| Transfer { src: f.src, dst: f.dst, bytes: Some(f.bytes) };
            let registration = Registration {
                generation: 1,
                service: ServiceNames::DEFAULT.to_owned(),
                application: ServiceNames::DEFAULT.to_owned(),
                weight: 1.0,
                deadline: None,
                flows: coflow.flows.iter().map(transfer).collect(),
            };
            plane.register(&id, registration, coflow.arrival.get()).unwrap();
            for (number, spec) in (0u32..).zip(&coflow.flows) {
                let key = flow_key(&id, number);
                let progress = FlowProgress::new(key.clone(), 0, SenderState::Ready);
                reports[spec.src as usize].flows.push(FlowProgress { udp: true, ..progress });
                let flow = SentFlow { key: key.clone(), spec: *spec, sent_bytes: 0.0, rate: 0 };
                flows.insert(key, (index, flow));
            }
        }
        (0u32..).zip(&reports).for_each(|(host, report)| plane.report(host, report, now));
        for (host, order) in plane.tick(now) {
            applied_seqs[host as usize] = order.seq;
            for (key, rate) in order.flows {
                let (OrderedRate::Rate(rate) | OrderedRate::Reserve(rate)) = rate else { continue };
                if let Some((_, flow)) = flows.get_mut(&key) {
                    flow.rate = rate;
                }
            }
        }
        let rates = flows.values().map(|(_, flow)| (flow.spec.src, flow.spec.dst, flow.rate as f64));
        let utilization = max_utilization(&mut routes, rates);
        assert!(utilization <= 1.0, "{policy}, at {now} s: a link is ordered {utilization} of its capacity");
        if arrivals.peek().is_none() && flows.is_empty() {
            break;
        }
    }
    ends.iter().zip(&workload.coflows).map(|(end, coflow)| end - coflow.arrival.get()).collect()
}

/// The completion times in the simulator, whose links carry the payload without the reserve.
fn simulated_ccts(policy: &str, topology: &Topology, workload: &Workload) -> Vec<f64> {
    let usable_fraction = LinkBudget::DEFAULT.coflow_payload_fraction(RESERVE);
    let trunks = Trunks::even_split(topology.clone()).scaled(usable_fraction);
    let network = NetworkModel { trunks: Some(Arc::new(trunks)), ..NetworkModel::default() };
    let interval = Time::new(INTERVAL).unwrap();
    let options = ReplayOptions { interval, network, ..ReplayOptions::default() };
    replay(workload, build(policy).unwrap(), &options, &mut NoObserver).unwrap().ccts()
}

/// The completion times of both drivers. With one spine, paths are unique. With two, both divide flows evenly.
fn compare(policy: &str, check: impl Fn(&[f64], &[f64], &str)) {
    for (seed, spines) in [(1, 1), (2, 2), (3, 1), (4, 2)] {
        let topology = four_leaves(spines);
        let workload = random_workload(seed, topology.hosts() as u32);
        let live = live_ccts(policy, &topology, &workload);
        let simulated = simulated_ccts(policy, &topology, &workload);
        let subject =
            format!("{policy}, seed {seed}, {spines} spines: live {live:.3?}, simulated {simulated:.3?}");
        check(&live, &simulated, &subject);
    }
}

#[test]
fn live_coflows_over_an_oversubscribed_fabric_complete_within_an_interval_of_the_simulator() {
    // Hosts of the live system react to nothing without the coordinator, so these policies do not in the simulator either.
    for policy in ["saath", "varys", "srtf", "scf", "fifo", "lwtf"] {
        compare(policy, |live, simulated, subject| {
            for (live, simulated) in live.iter().zip(simulated) {
                assert!((live - simulated).abs() <= INTERVAL, "{subject}");
            }
        });
    }
}

/// `weir` orders coflows by estimates. Some bytes of the reserve can swap two coflows with almost equal keys, and later estimates
/// then differ: single completion times are not comparable.
#[test]
fn mean_completion_time_of_live_weir_is_near_that_of_the_simulator() {
    let mean = |ccts: &[f64]| ccts.iter().sum::<f64>() / ccts.len() as f64;
    compare("weir", |live, simulated, subject| {
        let ratio = mean(live) / mean(simulated);
        eprintln!("{subject}: ratio of means {ratio:.4}");
        assert!((ratio - 1.0).abs() < 0.05, "{subject}: {ratio}");
    });
}
