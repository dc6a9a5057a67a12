//! Properties of every policy over a wide area (Siphon, ATC '18, section 3.1).

use std::collections::BTreeMap;

use crate::common::{bytes, coflow, is_near, time, workload};
use proptest::prelude::*;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{PortSide, WideArea, Workload, WorkloadChange};
use weir_core::units::Rate;
use weir_core::wide_area::build;
use weir_sim::wide_area::bandwidth::Bandwidth;
use weir_sim::wide_area::{
    CoflowDemand, FlowGroup, GroupOrder, WideAreaOptions, WideAreaReplayError, WideAreaRun, coflow_demands,
    replay, run,
};

const POLICIES: [&str; 6] = [
    "siphon:samples=100",
    "siphon:samples=100:detours=on",
    "mrtf",
    "mrtf:detours=on",
    "fifo",
    "fair:detours=on",
];

const OPTIONS: WideAreaOptions =
    WideAreaOptions { seed: 1, group_order: GroupOrder::Concurrent, keep_flow_ends: true };

/// Three regions with the same samples, in bytes per second, on all links.
fn area(samples: &[f64], correlation: f64) -> WideArea {
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    let measured = pairs.map(|(from, to)| LinkMeasurement {
        from,
        to,
        samples: samples.iter().map(|&rate| Rate::new(rate).unwrap()).collect(),
    });
    let names = ["a", "b", "c"].map(str::to_owned);
    WideArea::new(names.into(), measured.into(), time(1.0), correlation).unwrap()
}

fn demand(arrival: f64, flows: &[(u32, f64)]) -> CoflowDemand {
    let bytes = flows.iter().map(|flow| flow.1).sum();
    CoflowDemand {
        arrival,
        service_and_application: (0, 0),
        groups: vec![FlowGroup { bytes, flows: flows.to_vec() }],
    }
}

fn run_policy(
    demands: &[CoflowDemand],
    area: &WideArea,
    policy: &str,
    options: &WideAreaOptions,
) -> WideAreaRun {
    run(demands, area, build(policy).unwrap(), options, |_| true).unwrap()
}

fn any_demands() -> impl Strategy<Value = Vec<CoflowDemand>> {
    let flows = prop::collection::btree_map(0..6u32, 0.5..200.0f64, 0..6);
    prop::collection::vec((0.0..20.0f64, flows), 0..12).prop_map(|all| {
        let flows = |map: BTreeMap<u32, f64>| map.into_iter().collect::<Vec<_>>();
        all.into_iter().map(|(arrival, map)| demand(arrival, &flows(map))).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wide_area_links_deliver_all_bytes_within_capacity(
        all in any_demands(),
        samples in prop::collection::vec(1.0..100.0f64, 1..5),
        correlation in 0.0..0.99f64,
        seed in 0..1000u64,
    ) {
        let area = area(&samples, correlation);
        for policy in POLICIES {
            let options = WideAreaOptions { seed, ..OPTIONS };
            let found = run_policy(&all, &area, policy, &options);
            let wanted: f64 = found.routes.iter().map(|routes| routes.link_bytes.iter().sum::<f64>()).sum();
            prop_assert!(is_near(found.carried_bytes.iter().sum(), wanted, 1e-9), "{}: conservation", policy);
            for (carried, could) in found.carried_bytes.iter().zip(&found.capacity_bytes) {
                prop_assert!(*carried <= could * (1.0 + 1e-9) + 1e-6, "{}: {} of {}", policy, carried, could);
            }
            for (demand, ends) in all.iter().zip(&found.transfer_ends) {
                for (flow, end) in demand.groups[0].flows.iter().zip(&ends[0]) {
                    // Lower bound: its link alone at the best rate, or twice that if all detours are allowed.
                    let fastest = area.samples(flow.0).last().unwrap().get() * if policy.contains("on") { 2.0 } else { 1.0 };
                    prop_assert!(end - demand.arrival >= flow.1 / fastest * (1.0 - 1e-9) - 1e-8, "{}", policy);
                }
            }
            prop_assert_eq!(run_policy(&all, &area, policy, &options).transfer_ends, found.transfer_ends, "{}: again", policy);
        }
    }

    #[test]
    fn wide_area_links_without_detours_are_work_conserving(all in any_demands(), samples in prop::collection::vec(1.0..100.0f64, 1..5)) {
        // Links are independent and work-conserving: the completion time is the same for any order.
        let area = area(&samples, 0.5);
        let completion_by_link = |policy| {
            let found = run_policy(&all, &area, policy, &OPTIONS);
            let mut lasts = [0.0f64; 6];
            for (demand, ends) in all.iter().zip(&found.transfer_ends) {
                for (flow, &end) in demand.groups[0].flows.iter().zip(&ends[0]) {
                    lasts[flow.0 as usize] = lasts[flow.0 as usize].max(end);
                }
            }
            lasts
        };
        let one = completion_by_link("fifo");
        for policy in ["siphon:samples=50", "mrtf", "fair"] {
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
    let alone = [demand(0.0, &[(0, 50.0), (3, 40.0)])];
    let ends_of =
        |policy, seed| run_policy(&alone, &area, policy, &WideAreaOptions { seed, ..OPTIONS }).transfer_ends;
    for policy in ["siphon", "mrtf", "fair"] {
        assert_eq!(ends_of(policy, 1), ends_of("fifo", 1), "{policy}");
    }
    assert_ne!(ends_of("fifo", 1), ends_of("fifo", 2));
}

#[test]
fn workloads_are_spread_over_regions() {
    let area = area(&[1.0], 0.0);
    // Ports 0 and 1 are in the first region, 2 and 3 in the second, 4 and 5 in the third.
    let workload = workload(
        6,
        vec![
            coflow(1, 0.0, &[(0, 2, 3.0), (1, 3, 4.0), (0, 1, 100.0), (4, 0, 1.0)]),
            coflow(2, 1.0, &[(0, 1, 5.0)]),
        ],
    );
    let outcome = replay(&workload, &area, build("fifo").unwrap(), &OPTIONS, |_| true).unwrap();
    // Seven bytes on one link, zero time for the flow inside a region, a byte on another link.
    assert_eq!(outcome.coflows[0].flow_ends, [7.0, 7.0, 0.0, 1.0]);
    assert_eq!(outcome.ccts(), [7.0, 0.0]);
    assert_eq!((outcome.flow_count, outcome.makespan), (5, 7.0));
    assert_eq!(outcome.send_utilization[0], 1.0);
}

#[test]
fn wide_area_rejects_unsupported_workload_features() {
    let area = area(&[1.0], 0.0);
    let plain = || workload(3, vec![coflow(1, 0.0, &[(0, 1, 1.0)]), coflow(2, 0.0, &[(0, 1, 1.0)])]);
    let error_of = |change: &dyn Fn(&mut Workload)| {
        let mut workload = plain();
        change(&mut workload);
        coflow_demands(&workload, &area).unwrap_err().to_string()
    };
    assert!(error_of(&|w| w.coflows[1].parents = vec![0]).starts_with("coflow 2 has parents"));
    assert!(error_of(&|w| w.coflows[0].compute_after = time(1.0)).starts_with("coflow 1 has computing"));
    assert!(error_of(&|w| w.coflows[0].flows[0].data_delay = time(1.0)).contains("late data"));
    let event = WorkloadChange::PortRate { port: 0, side: PortSide::Both, factor: 0.5 };
    assert!(
        error_of(&|w| w.events.push(crate::common::timed_event(1.0, event)))
            .contains("events are not supported")
    );
    assert!(error_of(&|w| w.coflows[0].flows.clear()).contains("no flows"));
    assert_eq!(bytes(1.0), plain().coflows[0].flows[0].bytes);
    let stopped = replay(&plain(), &area, build("fifo").unwrap(), &OPTIONS, |done| done < 1);
    assert_eq!(stopped.unwrap_err(), WideAreaReplayError::Interrupted { completed: 1, total: 2 });
}

#[test]
fn wide_area_replay_rejects_too_many_bandwidth_changes() {
    let area = area(&[1.0, 2.0], 0.0);
    let all = [demand(1e9, &[(0, 1.0)])];
    let error = run(&all, &area, build("fifo").unwrap(), &OPTIONS, |_| true).unwrap_err();
    assert!(matches!(error, WideAreaReplayError::TooManyChanges { .. }), "{error}");
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
    // region and 50 of its own region.
    let wide = coflow(1, 0.0, &[(0, 2, 200.0), (0, 3, 150.0), (1, 3, 100.0), (2, 3, 50.0)]);
    let short = coflow(2, 1.0, &[(1, 2, 40.0), (0, 3, 60.0)]);
    let both = workload(4, vec![wide, short]);
    let ends_of = |policy: &str| -> Vec<Vec<f64>> {
        let found = replay(&both, &area, build(policy).unwrap(), &OPTIONS, |_| true).unwrap();
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
