use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use weir_core::model::topology::{CableChange, CableEvent};
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{
    FlowSpec, LinkId, PortSide, ServiceNames, TimedEvent, Topology, TopologyTemplate, Trunks, WideArea,
    WorkloadChange,
};
use weir_core::policy::{self, POLICIES};
use weir_core::units::Bytes;

use crate::regions::RegionLinks;
use crate::replay::{NoObserver, replay};

const UNIT_RATE: f64 = 1.0;

fn rate() -> Rate {
    Rate::new(UNIT_RATE).unwrap()
}

fn coflow(id: u64, arrival: f64, flows: &[(u32, u32, f64)]) -> CoflowSpec {
    let flows = flows.iter().map(|&(s, d, b)| FlowSpec::new(s, d, Bytes::new(b).unwrap())).collect();
    CoflowSpec::new(id, Time::new(arrival).unwrap(), flows)
}

fn workload(ports: u32, coflows: Vec<CoflowSpec>) -> Workload {
    Workload { ports, coflows, events: Vec::new(), names: ServiceNames::default() }
}

/// Two leaves of two hosts, and one spine.
fn topology(oversubscription: f64) -> Topology {
    TopologyTemplate::LeafSpine { spines: 1, leaves: 2, hosts: 2, rate: rate(), oversubscription }
        .build()
        .unwrap()
}

fn leaf_spine(oversubscription: f64) -> Trunks {
    Trunks::new(topology(oversubscription), 0).unwrap()
}

fn options_over(network: NetworkModel) -> ReplayOptions {
    ReplayOptions { port_rate: rate(), interval: Time::ZERO, network, ..ReplayOptions::default() }
}

fn with_trunks(trunks: Trunks) -> ReplayOptions {
    options_over(NetworkModel { trunks: Some(Arc::new(trunks)), ..NetworkModel::default() })
}

/// The bound of the mean on one switch.
fn min_mean_cct(workload: &Workload) -> f64 {
    LowerBounds::new(workload, &options_over(NetworkModel::default())).min_mean_cct
}

/// The minimum total time of jobs with integer lengths and releases on one machine: tries every choice, including
/// idling, at every unit of time.
fn min_total_time_by_search(jobs: &[(u32, u32)], left: &mut Vec<u32>, now: u32) -> u32 {
    if left.iter().all(|&l| l == 0) {
        return 0;
    }
    let mut best = None;
    for chosen in 0..jobs.len() {
        if left[chosen] == 0 || jobs[chosen].0 > now {
            continue;
        }
        left[chosen] -= 1;
        let ended = if left[chosen] == 0 { now + 1 - jobs[chosen].0 } else { 0 };
        let total = ended + min_total_time_by_search(jobs, left, now + 1);
        left[chosen] += 1;
        best = Some(best.map_or(total, |b: u32| b.min(total)));
    }
    best.unwrap_or_else(|| min_total_time_by_search(jobs, left, now + 1))
}

proptest! {
    #[test]
    fn bound_equals_optimum_on_one_port(jobs in prop::collection::vec((0u32..4, 1u32..4), 1..4)) {
        let coflows = jobs.iter().enumerate().map(|(id, &(release, length))| {
            // Distinct receivers: only the sending port is a bottleneck.
            coflow(id as u64, release.into(), &[(0, id as u32, length.into())])
        });
        let w = workload(4, coflows.collect());
        let mut left = jobs.iter().map(|job| job.1).collect();
        let best = f64::from(min_total_time_by_search(&jobs, &mut left, 0)) / jobs.len() as f64;
        let bound = min_mean_cct(&w);
        prop_assert!((bound - best).abs() < 1e-9, "{bound} against {best}");
    }
}

proptest! {
    #[test]
    fn no_policy_is_below_the_bound(
        coflows in prop::collection::vec(
            (0u32..20, prop::collection::vec((0u32..4, 0u32..4, 0u32..8), 1..6)),
            1..8,
        ),
        interval in prop::sample::select(vec![0.0, 0.5]),
        oversubscription in prop::option::of(prop::sample::select(vec![1.0, 2.0, 4.0])),
    ) {
        let coflows = coflows.iter().enumerate().map(|(id, (arrival, flows))| {
            let flows: Vec<_> = flows.iter().map(|&(s, d, b)| (s, d, b.into())).collect();
            coflow(id as u64, (*arrival).into(), &flows)
        });
        let w = workload(4, coflows.collect());
        let trunks = oversubscription.map(leaf_spine);
        let network = NetworkModel { trunks: trunks.map(Arc::new), ..NetworkModel::default() };
        let options =
            ReplayOptions { interval: Time::new(interval).unwrap(), ..options_over(network) };
        let bound = LowerBounds::new(&w, &options).min_mean_cct;
        for entry in POLICIES {
            let policy = policy::build(entry.name).unwrap();
            let found = mean(&replay(&w, policy, &options, &mut NoObserver).unwrap().ccts());
            prop_assert!(found >= bound * (1.0 - 1e-9), "{}: {found} beats {bound}", entry.name);
        }
    }
}

#[test]
fn bound_includes_the_bottleneck_of_coflows_on_other_ports() {
    // Port 0 sends 1 and 2: 1 + 3. Coflow 3 is alone on port 1 and takes 5, for both of its flows.
    let w = workload(
        4,
        vec![
            coflow(1, 0.0, &[(0, 2, 1.0)]),
            coflow(2, 0.0, &[(0, 3, 2.0)]),
            coflow(3, 0.0, &[(1, 0, 2.0), (1, 1, 3.0)]),
        ],
    );
    assert_eq!(min_mean_cct(&w), (1.0 + 3.0 + 5.0) / 3.0);
    assert_eq!(alone_seconds(&w.coflows[2], 4, rate()), 5.0);
}

#[test]
fn bound_counts_trunks() {
    // Two coflows of 1 byte share an uplink that carries half a port: they take 2 and 4. One switch carries both in 1.
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 2, 1.0)]), coflow(2, 0.0, &[(1, 3, 1.0)])]);
    assert_eq!(min_mean_cct(&w), 1.0);
    assert_eq!(LowerBounds::new(&w, &with_trunks(leaf_spine(4.0))).min_mean_cct, 3.0);
}

#[test]
fn bound_counts_child_coflows_by_their_bottleneck() {
    let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 0, 1.0)]), coflow(2, 0.0, &[(0, 0, 2.0)])]);
    assert_eq!(min_mean_cct(&w), 2.0);
    w.coflows[1].parents = vec![0];
    assert_eq!(min_mean_cct(&w), 1.5);
}

#[test]
fn bound_follows_the_rate_of_a_port() {
    // 1 byte is sent at 0.5 bytes/s until 1, then at 2 bytes/s.
    let mut w = workload(1, vec![coflow(1, 0.0, &[(0, 0, 1.0)])]);
    let rates = |changes: &[(f64, f64)]| -> Vec<TimedEvent> {
        let event = |&(at, factor): &(f64, f64)| TimedEvent {
            time: Time::new(at).unwrap(),
            change: WorkloadChange::PortRate { port: 0, side: PortSide::Both, factor },
        };
        changes.iter().map(event).collect()
    };
    w.events = rates(&[(0.0, 0.5), (1.0, 2.0)]);
    assert_eq!(min_mean_cct(&w), 1.25);
    // The port fails until 3.
    w.events = rates(&[(0.5, 0.0), (3.0, 1.0)]);
    assert_eq!(min_mean_cct(&w), 3.5);
    // A second coflow of 1 byte follows it.
    w.coflows.push(coflow(2, 1.0, &[(0, 0, 1.0)]));
    assert_eq!(min_mean_cct(&w), (3.5 + 3.5) / 2.0);
    // Forever.
    w.events = rates(&[(0.5, 0.0)]);
    assert_eq!(min_mean_cct(&w), f64::INFINITY);
    assert_eq!(min_mean_cct(&workload(1, Vec::new())), 0.0);
}

#[test]
fn bound_follows_the_rate_of_a_cable() {
    // 2 bytes cross an uplink of 1 byte/s, which has half of that from 1 on.
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 2, 1.0), (1, 3, 1.0)])]);
    let topology = topology(2.0);
    let uplink = (0..).map(LinkId).find(|&link| !topology.is_host_link(topology.link(link))).unwrap();
    let event = |change| CableEvent { time: Time::new(1.0).unwrap(), cable: uplink, change };
    let mut options = with_trunks(leaf_spine(2.0));
    options.network.cable_events = [event(CableChange::Rate(Rate::new(0.5).unwrap()))].into();
    assert_eq!(LowerBounds::new(&w, &options).min_mean_cct, 3.0);
    // Flows may take another uplink once this one fails: only ports count.
    options.network.cable_events = [event(CableChange::Down)].into();
    assert_eq!(LowerBounds::new(&w, &options).min_mean_cct, 1.0);
}

#[test]
fn bound_counts_late_data() {
    // Flow 1 of 1 byte has data at 3. The parent's child has unknown times, but the same delay.
    let mut w = workload(3, vec![coflow(1, 0.0, &[(0, 0, 2.0), (0, 1, 1.0)])]);
    w.coflows[0].flows[1].data_delay = Time::new(3.0).unwrap();
    assert_eq!(min_mean_cct(&w), 4.0);
    w.coflows.insert(0, coflow(2, 0.0, &[(2, 2, 1.0)]));
    w.coflows[1].parents = vec![0];
    assert_eq!(LowerBounds::new(&w, &options_over(NetworkModel::default())).min_ccts, [1.0, 4.0]);
}

#[test]
fn bound_in_regions_counts_the_links_of_each_region() {
    // Two regions with links of 1 byte/s, or 2 at times. The coflow sends 4 bytes to the other region, and 9 inside.
    let samples = vec![Rate::new(1.0).unwrap(), Rate::new(2.0).unwrap()];
    let names = vec!["a".to_owned(), "b".to_owned()];
    let links = [(0, 1), (1, 0)].map(|(from, to)| LinkMeasurement { from, to, samples: samples.clone() });
    let area = WideArea::new(names, links.into(), Time::new(1.0).unwrap(), 0.0).unwrap();
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 2, 3.0), (1, 3, 1.0), (0, 1, 9.0)])]);
    let options = ReplayOptions::between_regions(RegionLinks { area: Arc::new(area), bandwidth_seed: 0 });
    let bounds = LowerBounds::new(&w, &options);
    assert_eq!(bounds.min_mean_cct, 2.0);
    let outcome = replay(&w, policy::build("varys").unwrap(), &options, &mut NoObserver).unwrap();
    assert_eq!(bounds.check(&outcome), Ok(()));
}

#[test]
fn bound_preempts_at_releases() {
    // Lengths 5 (released at 0) and 1 (released at 2): the second runs from its release; the times are 6 and 1.
    let w = workload(2, vec![coflow(1, 0.0, &[(0, 0, 5.0)]), coflow(2, 2.0, &[(0, 1, 1.0)])]);
    assert_eq!(min_mean_cct(&w), 3.5);
}

#[test]
fn check_names_the_violated_bound() {
    // Lengths 1 and 3 on one port, and 2 released late: they take at least 1, 3 + 1 and 2.
    let w = workload(
        3,
        vec![coflow(1, 0.0, &[(0, 0, 1.0)]), coflow(2, 0.0, &[(0, 1, 3.0)]), coflow(3, 1e6, &[(1, 2, 2.0)])],
    );
    let options = options_over(NetworkModel::default());
    let bounds = LowerBounds::new(&w, &options);
    assert_eq!(bounds.min_ccts, [1.0, 3.0, 2.0]);
    let found = replay(&w, policy::build("scf").unwrap(), &options, &mut NoObserver).unwrap();
    assert_eq!(bounds.check(&found), Ok(()));
    // Rounding of the clock is tolerated, but nothing more.
    let with_end = |index: usize, end: f64| {
        let mut forged = found.clone();
        forged.coflows[index].end = end;
        bounds.check(&forged)
    };
    assert_eq!(with_end(2, 1e6 + 2.0 - 2e-9), Ok(()));
    let slow = with_end(2, 1e6 + 2.0 - 2e-8).unwrap_err();
    assert!(matches!(slow, BoundViolation::CoflowTooFast { id: 3, min: 2.0, .. }), "{slow}");
    assert_eq!(with_end(0, 0.5), Err(BoundViolation::CoflowTooFast { id: 1, cct: 0.5, min: 1.0 }));
    // Each coflow is as fast as alone, which is impossible on the port that they share.
    assert_eq!(with_end(1, 3.0), Err(BoundViolation::MeanTooLow { mean: 2.0, min: 7.0 / 3.0 }));
    let mut forged = found.clone();
    forged.recv_utilization[2] = 1.0 + 2e-9;
    let message = bounds.check(&forged).unwrap_err().to_string();
    assert_eq!(message, "port 2 received 1.000000002 times its capacity");
}
