//! Every policy over links between regions (Siphon, ATC '18, section 3.1), and the link's random bandwidth.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{
    CapacityChecker, POLICIES, WorkloadFeatures, any_workload, assert_near, cases, coflow, is_near, time,
    timed_event, workload,
};
use proptest::prelude::*;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{PortSide, WideArea, Workload, WorkloadChange};
use weir_core::policy::{AnyPolicy, build};
use weir_core::units::Rate;
use weir_sim::regions::bandwidth::Bandwidth;
use weir_sim::{NoObserver, Observer, Outcome, RegionLinks, ReplayError, ReplayOptions, replay};

/// The policies of Siphon's evaluation, and plain TCP.
const REGION_POLICIES: [&str; 7] = [
    "siphon:samples=50",
    "siphon:samples=50:detours=on",
    "siphon:samples=50:groups=on",
    "mrtf",
    "mrtf:detours=on:groups=on",
    "fair",
    "fair:detours=on",
];

/// The ordered pairs of three regions, in the order of their links.
const PAIRS: [(usize, usize); 6] = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];

/// Three regions; each link has these samples, in bytes per second. With fewer lists than links, the last one applies to the others.
pub fn area_with(samples: &[&[f64]], correlation: f64) -> WideArea {
    let links = PAIRS.into_iter().enumerate();
    let measured = links.map(|(link, (from, to))| LinkMeasurement {
        from,
        to,
        samples: samples[link.min(samples.len() - 1)].iter().map(|&rate| Rate::new(rate).unwrap()).collect(),
    });
    let names = ["a", "b", "c"].map(str::to_owned);
    WideArea::new(names.into(), measured.collect(), time(1.0), correlation).unwrap()
}

fn area(samples: &[f64], correlation: f64) -> WideArea {
    area_with(&[samples], correlation)
}

/// Coflows of three ports, one in each region: the arrival, and the bytes on links.
pub fn on_links(coflows: &[(f64, Vec<(u32, f64)>)]) -> Workload {
    let flow = |&(link, bytes): &(u32, f64)| {
        let (from, to) = PAIRS[link as usize];
        (from as u32, to as u32, bytes)
    };
    let coflows = (1..)
        .zip(coflows)
        .map(|(id, (arrival, flows))| coflow(id, *arrival, &flows.iter().map(flow).collect::<Vec<_>>()));
    workload(3, coflows.collect())
}

pub fn try_replay(
    all: &Workload,
    area: &WideArea,
    policy: AnyPolicy,
    bandwidth_seed: u64,
    observer: &mut dyn Observer,
) -> Result<Outcome, ReplayError> {
    let regions = RegionLinks { area: Arc::new(area.clone()), bandwidth_seed };
    let options = ReplayOptions { keep_flow_ends: true, ..ReplayOptions::between_regions(regions) };
    replay(all, policy, &options, observer)
}

pub fn replay_between(all: &Workload, area: &WideArea, policy: &str, bandwidth_seed: u64) -> Outcome {
    try_replay(all, area, build(policy).unwrap(), bandwidth_seed, &mut NoObserver)
        .unwrap_or_else(|error| panic!("{policy}: {error}"))
}

fn any_coflows() -> impl Strategy<Value = Vec<(f64, Vec<(u32, f64)>)>> {
    let flows = prop::collection::btree_map(0..6u32, 0.5..200.0f64, 1..6);
    prop::collection::vec((0.0..20.0f64, flows), 0..12).prop_map(|all| {
        let to_vec = |map: BTreeMap<u32, f64>| map.into_iter().collect::<Vec<_>>();
        all.into_iter().map(|(arrival, map)| (arrival, to_vec(map))).collect()
    })
}

proptest! {
    #![proptest_config(cases(40))]

    /// All policies deliver all bytes within the capacity of links, with features of any workload.
    #[test]
    fn links_between_regions_deliver_all_bytes_within_capacity(
        all in any_workload(WorkloadFeatures::ALL),
        samples in prop::collection::vec(1.0..100.0f64, 1..5),
        correlation in 0.0..0.99f64,
        seed in 0..1000u64,
    ) {
        let area = area(&samples, correlation);
        for policy in POLICIES.iter().chain(&REGION_POLICIES) {
            let mut checker = CapacityChecker::default();
            // A port that fails for good stalls its flows, as on one switch.
            let built = build(policy).unwrap();
            let found = match try_replay(&all, &area, built, seed, &mut checker) {
                Err(ReplayError::Stalled(_) | ReplayError::TooManyBandwidthChanges { .. }) => continue,
                other => other.map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?,
            };
            prop_assert_eq!(&checker.violation, &None, "{}", policy);
            for utilization in &found.trunk_utilization {
                prop_assert!(*utilization <= 1.0 + 1e-9, "{}: {}", policy, utilization);
            }
            prop_assert_eq!(found.coflows.len(), all.coflows.len());
            for (coflow, spec) in found.coflows.iter().zip(&all.coflows) {
                prop_assert_eq!((coflow.width, coflow.flow_ends.len()), (spec.flows.len(), spec.flows.len()));
                for (flow, end) in spec.flows.iter().zip(&coflow.flow_ends) {
                    // Alone at the best rate, or twice that with the only detour.
                    let is_inside = area.region_of_port(flow.src, all.ports) == area.region_of_port(flow.dst, all.ports);
                    let fastest = samples.iter().copied().fold(0.0, f64::max) * 2.0;
                    let least = if is_inside { 0.0 } else { flow.bytes.get() / fastest };
                    prop_assert!(end - coflow.released_at >= least * (1.0 - 1e-9) - 1e-8, "{}", policy);
                }
            }
            let again = try_replay(&all, &area, build(policy).unwrap(), seed, &mut NoObserver).unwrap();
            prop_assert_eq!(&again.coflows, &found.coflows, "{}: again", policy);
        }
    }

    /// Without detours, links are independent: a work-conserving link completes its last flow at the same time for any order.
    #[test]
    fn links_between_regions_are_work_conserving(all in any_coflows(), samples in prop::collection::vec(1.0..100.0f64, 1..5)) {
        let area = area(&samples, 0.5);
        let workload = on_links(&all);
        let completion_by_link = |policy| {
            let found = replay_between(&workload, &area, policy, 1);
            let mut lasts = [0.0f64; 6];
            for ((_, flows), coflow) in all.iter().zip(&found.coflows) {
                for (&(link, _), &end) in flows.iter().zip(&coflow.flow_ends) {
                    lasts[link as usize] = lasts[link as usize].max(end);
                }
            }
            lasts
        };
        let one = completion_by_link("mrtf");
        for policy in ["siphon:samples=50", "fair", "varys", "sincronia"] {
            for (a, b) in completion_by_link(policy).iter().zip(one) {
                prop_assert!(is_near(*a, b, 1e-6), "{}: {} and {}", policy, a, b);
            }
        }
    }
}

#[test]
fn bandwidth_has_the_sample_distribution_and_given_correlation() {
    let samples: Vec<f64> = (1..=10).map(f64::from).collect();
    for correlation in [0.0, 0.5, 0.9] {
        let area = area(&samples, correlation);
        let mut bandwidth = Bandwidth::new(&area, 3);
        let mut seen = Vec::new();
        for _ in 0..40_000 {
            seen.push(bandwidth.rates()[0]);
            bandwidth.apply_change().unwrap();
        }
        for sample in &samples {
            let part = seen.iter().filter(|rate| *rate == sample).count() as f64 / seen.len() as f64;
            assert!((part - 0.1).abs() < 0.02, "{correlation}: {part} of {sample}");
        }
        let mean = 5.5;
        let autocovariance = |lag: usize| {
            seen.iter().zip(&seen[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>()
                / (seen.len() - lag) as f64
        };
        // Rank correlation is 6 / pi asin(c / 2), slightly below the correlation of the normal variables.
        let expected = 6.0 / std::f64::consts::PI * (correlation / 2.0f64).asin();
        let found = autocovariance(1) / autocovariance(0);
        assert!((found - expected).abs() < 0.03, "{correlation}: {found}, expected {expected}");
    }
}

#[test]
fn seed_gives_equal_bandwidth_to_every_policy() {
    // A single coflow completes at the same time under every policy; another seed gives another time.
    let area = area(&[1.0, 2.0, 5.0], 0.0);
    let alone = on_links(&[(0.0, vec![(0, 50.0), (3, 40.0)])]);
    let ends_of = |policy, seed| replay_between(&alone, &area, policy, seed).coflows[0].flow_ends.clone();
    for policy in ["siphon", "mrtf", "varys"] {
        assert_near(&ends_of(policy, 1), &ends_of("fair", 1), 1e-9, policy);
    }
    assert_ne!(ends_of("fair", 1), ends_of("fair", 2));
}

#[test]
fn workloads_are_spread_over_regions() {
    let area = area(&[1.0], 0.0);
    // Ports 0 and 1 are in the first region, 2 and 3 in the second, 4 and 5 in the third.
    let all = workload(
        6,
        vec![
            coflow(1, 0.0, &[(0, 2, 3.0), (1, 3, 4.0), (0, 1, 100.0), (4, 0, 1.0)]),
            coflow(2, 1.0, &[(0, 1, 5.0)]),
        ],
    );
    let outcome = replay_between(&all, &area, "mrtf", 1);
    // Seven bytes on one link, zero time for the flow inside a region, a byte on another link.
    assert_eq!(outcome.coflows[0].flow_ends, [7.0, 7.0, 0.0, 1.0]);
    let paths: Vec<usize> = outcome.coflows[0].flow_paths.iter().map(|path| path.len()).collect();
    assert_eq!(paths, [1, 1, 0, 1]);
    assert_eq!(outcome.coflows[0].flow_paths[0], outcome.coflows[0].flow_paths[1]);
    assert_eq!(outcome.ccts(), [7.0, 0.0]);
    assert_eq!((outcome.flow_count, outcome.makespan), (5, 7.0));
    assert_eq!((outcome.trunk_utilization[0], outcome.send_utilization.len()), (1.0, 0));
    // Under `fair`, the flows to different ports share the link.
    assert_eq!(replay_between(&all, &area, "fair", 1).coflows[0].flow_ends, [6.0, 7.0, 0.0, 1.0]);
}

/// Late data, parents, computing and restarts work as on one switch.
#[test]
fn coflows_between_regions_have_all_features_of_a_workload() {
    let area = area(&[1.0], 0.0);
    let mut all = on_links(&[(0.0, vec![(0, 4.0), (3, 3.0)]), (0.0, vec![(0, 2.0)])]);
    all.coflows[0].flows[1].data_delay = time(2.0);
    all.coflows[1].parents = vec![0];
    all.coflows[1].compute_before = time(1.0);
    // The first flow loses the 3 bytes that it has sent by then.
    all.events = vec![timed_event(3.0, WorkloadChange::RestartFlow { coflow: 0, flow: 0 })];
    for policy in ["siphon", "mrtf", "fair", "varys"] {
        let found = replay_between(&all, &area, policy, 1);
        assert_near(&found.coflows[0].flow_ends, &[7.0, 5.0], 1e-9, policy);
        assert_near(&found.coflows[1].flow_ends, &[10.0], 1e-9, policy);
        assert_near(&found.trunk_utilization[..1], &[0.9], 1e-9, policy);
    }
    // A port that fails holds up its flow.
    let failure = |factor| WorkloadChange::PortRate { port: 0, side: PortSide::Both, factor };
    all.events = vec![timed_event(1.0, failure(0.0)), timed_event(2.0, failure(1.0))];
    assert_near(
        &replay_between(&all, &area, "mrtf", 1).coflows[0].flow_ends,
        &[5.0, 5.0],
        1e-9,
        "failed port",
    );
}

/// Ports 0 and 1 are in the first region. The failure of one does not concern the flow of the other.
#[test]
fn failing_port_holds_up_only_its_own_flows() {
    let area = area(&[1.0], 0.0);
    let mut all = workload(6, vec![coflow(1, 0.0, &[(0, 2, 2.0), (1, 2, 2.0)])]);
    let failure = |factor| WorkloadChange::PortRate { port: 1, side: PortSide::Send, factor };
    all.events = vec![timed_event(0.0, failure(0.0)), timed_event(5.0, failure(1.0))];
    for policy in ["siphon", "mrtf", "fair", "varys"] {
        let found = replay_between(&all, &area, policy, 1);
        assert_near(&found.coflows[0].flow_ends, &[2.0, 7.0], 1e-9, policy);
    }
}

#[test]
fn slower_port_limits_no_flow_between_regions() {
    let area = area(&[1.0], 0.0);
    let mut all = on_links(&[(0.0, vec![(0, 4.0)])]);
    let slower = WorkloadChange::PortRate { port: 0, side: PortSide::Send, factor: 0.01 };
    all.events = vec![timed_event(1.0, slower)];
    for policy in ["siphon", "mrtf", "fair", "varys", "saath"] {
        assert_near(&replay_between(&all, &area, policy, 1).ccts(), &[4.0], 1e-9, policy);
    }
}

#[test]
fn saath_deadline_counts_the_rate_of_links_between_regions() {
    // The two narrow coflows go first, by contention. They end before the deadline of the wide one, 2 * 1 * 2 bytes / 1 byte/s.
    let area = area(&[1.0], 0.0);
    let all = on_links(&[(0.0, vec![(0, 1.0), (3, 1.0)]), (0.0, vec![(0, 1.5)]), (0.0, vec![(3, 1.5)])]);
    let found = replay_between(&all, &area, "saath:start=2B:growth=2:queues=4", 1);
    assert_near(&found.ccts(), &[2.5, 1.5, 1.5], 1e-9, "saath");
}

#[test]
fn saath_learns_the_length_of_a_flow_inside_a_region_at_the_release() {
    // By the 3 bytes inside the region, the remainder of the other flow is 0.5 bytes at 2.5: the first queue until 3.
    let area = area(&[1.0], 0.0);
    // Of six ports, 0 and 1 are in the first region, 2 and 3 in the second.
    let first = coflow(1, 0.0, &[(0, 1, 3.0), (0, 2, 4.0)]);
    let second = coflow(2, 2.5, &[(0, 2, 1.5)]);
    let all = workload(6, vec![first, second]);
    let found = replay_between(&all, &area, "saath:start=2B:growth=2:queues=4:d=inf:requeue=on", 1);
    assert_near(&found.ccts(), &[5.5, 2.0], 1e-9, "saath");
}

#[test]
fn saath_changes_queue_when_a_late_flow_inside_a_region_completes() {
    // At 1, the first coflow has sent 5 bytes by one of two flows, and leaves the first queue.
    let area = area(&[1.0], 0.0);
    let mut first = coflow(1, 0.0, &[(0, 1, 5.0), (0, 2, 4.0)]);
    first.flows[0].data_delay = time(1.0);
    let all = workload(6, vec![first, coflow(2, 0.5, &[(0, 2, 3.0)])]);
    let policy = "saath:start=4B:growth=2:queues=4:d=inf:all-or-none=off";
    assert_near(&replay_between(&all, &area, policy, 1).ccts(), &[7.0, 3.5], 1e-9, policy);
}

#[test]
fn saath_admits_two_coflows_at_a_port_that_limits_no_flow() {
    let area = area(&[1.0], 0.0);
    let all = on_links(&[(0.0, vec![(0, 2.0)]), (0.0, vec![(1, 1.0)])]);
    let policy = "saath:available=full:work-conservation=off:backfill=missed";
    assert_near(&replay_between(&all, &area, policy, 1).ccts(), &[2.0, 1.0], 1e-9, policy);
}

#[test]
fn aalo_queues_share_a_link_and_not_the_port_between_regions() {
    // The first coflow is in the last queue when the second one arrives. TCP divides the link evenly between the two flows.
    let area = area_with(&[&[10.0], &[0.2]], 0.0);
    let all = on_links(&[(0.0, vec![(0, 100.0)]), (1.0, vec![(0, 1.9)])]);
    let policy = "aalo:start=2B:growth=2:queues=4";
    assert_near(&replay_between(&all, &area, policy, 1).ccts(), &[10.19, 0.38], 1e-9, policy);
}

#[test]
fn aalo_counts_bytes_inside_a_region() {
    // The first coflow has sent 5 bytes at its release, so the second one goes first until its end.
    let area = area(&[1.0], 0.0);
    let first = coflow(1, 0.0, &[(0, 1, 5.0), (0, 2, 3.0)]);
    let all = workload(6, vec![first, coflow(2, 0.0, &[(0, 2, 3.0)])]);
    let policy = "aalo:start=2B:growth=2:queues=4:sharing=strict";
    assert_near(&replay_between(&all, &area, policy, 1).ccts(), &[6.0, 3.0], 1e-9, policy);
}

#[test]
fn region_replay_rejects_detours_elsewhere_and_too_many_changes() {
    let area = area(&[1.0, 2.0], 0.0);
    let all = on_links(&[(1e9, vec![(0, 1.0)])]);
    let error = try_replay(&all, &area, build("mrtf").unwrap(), 1, &mut NoObserver).unwrap_err();
    assert!(matches!(error, ReplayError::TooManyBandwidthChanges { .. }), "{error}");
    let error = replay(&all, build("fair:detours=on").unwrap(), &ReplayOptions::default(), &mut NoObserver)
        .unwrap_err();
    assert_eq!(error, ReplayError::DetoursWithoutRegions);
}

#[test]
fn flows_inside_a_region_end_at_their_release_or_when_their_port_is_up() {
    // Ports 0 and 1 are in one region. Port 3 fails before the second coflow and is up again at 21 s.
    let inside = |id, arrival, from, to| coflow(id, arrival, &[(from, to, 1000.0)]);
    let mut all =
        workload(6, vec![inside(1, 1.0, 0, 1), inside(2, 3.0, 2, 3), coflow(3, 0.0, &[(0, 4, 1.0)])]);
    let scale =
        |at, factor| timed_event(at, WorkloadChange::PortRate { port: 3, side: PortSide::Both, factor });
    all.events = vec![scale(2.0, 0.0), scale(21.0, 1.0)];
    let regions = RegionLinks { area: Arc::new(area(&[1.0], 0.0)), bandwidth_seed: 0 };
    let options = ReplayOptions { interval: time(8.0), ..ReplayOptions::between_regions(regions) };
    for entry in weir_core::policy::all() {
        let policy = build(entry.name).unwrap();
        match replay(&all, policy, &options, &mut NoObserver) {
            Ok(outcome) => {
                let ends = [outcome.coflows[0].end, outcome.coflows[1].end];
                assert_near(&ends, &[1.0, 21.0], 0.0, entry.name);
            }
            Err(error) => assert!(matches!(error, ReplayError::Tree(_)), "{}: {error}", entry.name),
        }
    }
}

/// Section 3.2 inside the coflows of a trace: all flows to one port are a group, and the largest group goes
/// first under any policy.
#[test]
fn the_largest_group_of_a_coflow_goes_first() {
    let rate = Rate::new(100.0).unwrap();
    let pairs = [(0, 1), (1, 0)];
    let measured = pairs.map(|(from, to)| LinkMeasurement { from, to, samples: vec![rate] });
    let names = ["a", "b"].map(str::to_owned);
    let area = WideArea::new(names.into(), measured.into(), time(1.0), 0.0).unwrap();
    // Ports 0 and 1 are in the first region, 2 and 3 in the second. Port 3 waits for 250 bytes from the first
    // region and 50 from the second.
    let wide = coflow(1, 0.0, &[(0, 2, 200.0), (0, 3, 150.0), (1, 3, 100.0), (2, 3, 50.0)]);
    let short = coflow(2, 1.0, &[(1, 2, 40.0), (0, 3, 60.0)]);
    let both = workload(4, vec![wide, short]);
    let ends_of = |policy: &str| -> Vec<Vec<f64>> {
        let found = replay_between(&both, &area, policy, 1);
        found.coflows.into_iter().map(|coflow| coflow.flow_ends).collect()
    };
    // The short coflow arrives at 1 s and goes first until 2 s; the wide one has sent 100 bytes by then.
    for policy in ["mrtf", "siphon"] {
        let plain = ends_of(policy);
        assert!(plain[0][..3].iter().all(|end| is_near(*end, 5.5, 1e-9)), "{policy}: {plain:?}");
        let grouped = ends_of(&format!("{policy}:groups=on"));
        let expected = [[5.5, 3.5, 3.5, 0.0].as_slice(), &[2.0, 1.6]];
        for (found, expected) in grouped.iter().zip(expected) {
            assert!(found.iter().zip(expected).all(|(a, b)| is_near(*a, *b, 1e-9)), "{policy}: {grouped:?}");
        }
    }
    assert!(build("fair:groups=on").is_err());
}
