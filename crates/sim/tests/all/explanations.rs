//! Explanations of every policy: the parts of the time add up, and no coflow is charged more than its bytes take alone.

use std::collections::BTreeMap;

use crate::common::{
    POLICIES, WorkloadFeatures, any_workload, cases, coflow, leaf_spine, options, options_over, time,
    workload,
};
use proptest::prelude::*;
use weir_core::engine::DecidesOver;
use weir_core::model::{PortSide, TimedEvent, Trunks, Workload, WorkloadChange};
use weir_core::policy;
use weir_sim::explain::{Explainer, Explanation, Link, SlowdownCause};
use weir_sim::{CoflowOutcome, Observer, ReplayOptions, Snapshot, replay};

/// Explains all coflows of a replay.
struct Explainers(Vec<Explainer>);

impl Observer for Explainers {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        self.0.iter_mut().all(|explainer| explainer.on_schedule(snapshot))
    }

    fn on_coflow_completed(&mut self, outcome: &CoflowOutcome) {
        self.0.iter_mut().for_each(|explainer| explainer.on_coflow_completed(outcome));
    }
}

fn explain_all(w: &Workload, policy: &str, options: &ReplayOptions) -> Vec<Explanation> {
    let mut explainers = Explainers((0..w.coflows.len()).map(Explainer::new).collect());
    let built = policy::build(policy).unwrap();
    replay(w, built, options, &mut explainers).unwrap_or_else(|error| panic!("{policy}: {error}"));
    explainers.0.into_iter().map(|explainer| explainer.finish().expect("all coflows complete")).collect()
}

/// By coflow and link: the seconds that the bytes of the coflow take alone on the link, at its lowest capacity above zero.
fn max_charges(w: &Workload, trunks: Option<&Trunks>) -> BTreeMap<(u64, Link), f64> {
    let mut seconds: BTreeMap<(u64, Link), f64> = BTreeMap::new();
    let min_factor = |port: u32, receives: bool| {
        let factors = w.events.iter().filter_map(|event| match event.change {
            WorkloadChange::PortRate { port: changed, side, factor } => {
                let skipped = if receives { PortSide::Send } else { PortSide::Receive };
                (changed == port && side != skipped && factor > 0.0).then_some(factor)
            }
            _ => None,
        });
        factors.fold(1.0, f64::min)
    };
    let mut paths = trunks.cloned();
    for (index, coflow) in w.coflows.iter().enumerate() {
        for (position, flow) in (0..).zip(&coflow.flows) {
            let bytes = flow.bytes.get();
            let mut add = |link, rate: f64| *seconds.entry((coflow.id, link)).or_default() += bytes / rate;
            add(Link::Sender(flow.src), min_factor(flow.src, false));
            add(Link::Receiver(flow.dst), min_factor(flow.dst, true));
            if let Some(paths) = &mut paths {
                let mut path = Vec::new();
                paths.compute_path(flow.src, flow.dst, index, position, &mut path);
                path.iter().for_each(|&trunk| add(Link::Trunk(trunk), paths.capacities()[trunk as usize]));
            }
        }
    }
    seconds
}

fn check_explanation(
    found: &Explanation,
    max_charges: &BTreeMap<(u64, Link), f64>,
    context: &str,
) -> Result<(), TestCaseError> {
    let cct = found.outcome.cct();
    let tolerance = 1e-9 * cct.max(1.0);
    let lost: f64 = found.lost_seconds_by_cause().iter().map(|(_, seconds)| seconds).sum();
    let sum = found.alone_seconds + lost;
    prop_assert!((sum - cct).abs() <= tolerance, "{}: {} of {}: {:?}", context, sum, cct, found);
    let mut charges: BTreeMap<(u64, Link), f64> = BTreeMap::new();
    let (mut to_coflows, mut to_links) = (0.0, 0.0);
    for segment in &found.segments {
        for (cause, seconds) in &segment.losses {
            prop_assert!(*seconds > 0.0, "{}: {:?}", context, segment);
            to_links += if matches!(cause, SlowdownCause::ContendedLink(_)) { *seconds } else { 0.0 };
        }
        for holder in &segment.holders {
            let link = segment.cause.link().expect("coflows are named on a link");
            *charges.entry((holder.coflow, link)).or_default() += holder.lost_seconds;
            to_coflows += holder.lost_seconds;
        }
    }
    let difference: f64 = to_coflows - to_links;
    prop_assert!(difference.abs() <= tolerance, "{}: {} of {}: {:?}", context, to_coflows, to_links, found);
    for (key, charged) in charges {
        let max = max_charges.get(&key).copied().unwrap_or(0.0);
        prop_assert!(
            charged <= max + tolerance,
            "{}: {:?} is charged {}, and takes {} alone: {:?}",
            context,
            key,
            charged,
            max,
            found
        );
    }
    Ok(())
}

fn check_workload(w: &Workload) -> Result<(), TestCaseError> {
    let trunks = Trunks::new(leaf_spine(2, 2, 4, 2.0), 17).unwrap();
    for interval in [0.0, 0.7] {
        let over_links = options_over(&trunks, interval);
        let mut at_ports = over_links.clone();
        at_ports.network.decides_over = DecidesOver::Ports;
        let networks =
            [(options(1.0, interval), None), (over_links, Some(&trunks)), (at_ports, Some(&trunks))];
        for (number, (options, trunks)) in networks.iter().enumerate() {
            let max_charges = max_charges(w, *trunks);
            for policy in POLICIES.iter().chain(&["netshare", "saba"]) {
                for found in explain_all(w, policy, options) {
                    let context = format!("{policy}, interval {interval}, network {number}");
                    check_explanation(&found, &max_charges, &context)?;
                }
            }
        }
    }
    Ok(())
}

/// The flow completes between two multiples of the interval, and takes effect before the schedule at 17.25 s.
#[test]
fn explained_time_ends_when_the_data_of_a_flow_without_bytes_exists() {
    let mut w = workload(2, vec![coflow(1, 15.0, &[(0, 0, 0.0)])]);
    w.coflows[0].flows[0].data_delay = time(2.0);
    let change = WorkloadChange::PortRate { port: 0, side: PortSide::Send, factor: 0.5 };
    w.events.push(TimedEvent { time: time(17.25), change });
    check_workload(&w).unwrap();
}

/// Coflows of up to eight flows between the hosts of two leaves.
fn any_crossing_coflow() -> impl Strategy<Value = Workload> {
    let size = prop_oneof![Just(1.0), (1..20u32).prop_map(f64::from)];
    prop::collection::vec((0..4u32, 4..8u32, size), 1..9)
        .prop_map(|flows| workload(8, vec![coflow(1, 0.0, &flows)]))
}

const FEATURES: WorkloadFeatures = WorkloadFeatures {
    distinct_values: false,
    empty_flows: true,
    late_data: true,
    restarts: false,
    port_changes: true,
    deadlines: true,
    parents: true,
};

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn parts_add_up_and_charges_are_at_most_the_bytes_under_events(w in any_workload(FEATURES)) {
        check_workload(&w)?;
    }

    #[test]
    fn parts_add_up_and_charges_are_at_most_the_bytes_at_slow_ports(
        mut w in any_workload(WorkloadFeatures::PLAIN.with_distinct_values()),
        factors in prop::collection::vec(prop::sample::select(vec![0.1, 0.3, 1.0]), 8),
    ) {
        for (port, factor) in (0..w.ports).zip(factors) {
            let change = WorkloadChange::PortRate { port, side: PortSide::Both, factor };
            w.events.push(TimedEvent { time: time(0.0), change });
        }
        check_workload(&w)?;
    }

    /// Other seeds choose other paths. None of them is faster than the lower bound, and a path that costs time is a collision.
    #[test]
    fn collision_is_named_if_other_paths_are_faster(w in any_crossing_coflow(), at_ports in any::<bool>()) {
        let explain = |seed: u64| {
            let trunks = Trunks::new(leaf_spine(3, 2, 4, 3.0), seed).unwrap();
            let mut options = options_over(&trunks, 0.0);
            options.network.decides_over = if at_ports { DecidesOver::Ports } else { DecidesOver::Links };
            explain_all(&w, "fair", &options).remove(0)
        };
        let all: Vec<Explanation> = (0..40).map(explain).collect();
        let shortest = all.iter().map(|found| found.alone_seconds).fold(f64::INFINITY, f64::min);
        for found in &all {
            match &found.collision {
                None => prop_assert!(found.alone_seconds <= shortest * (1.0 + 1e-9), "{}: {:?}", shortest, found),
                Some(collision) => {
                    prop_assert_eq!(collision.seconds, found.alone_seconds);
                    prop_assert!(collision.even_seconds <= shortest * (1.0 + 1e-9), "{}: {:?}", shortest, found);
                    prop_assert!(collision.flow_count >= 2, "{:?}", found);
                }
            }
        }
    }
}
