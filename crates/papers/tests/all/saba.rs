//! Tests Eq. 2 with any curve (Saba, EuroSys '23, section 5.1), the workloads of section 8.1 and the scenarios of section 8.5.

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::model::Stage;
use weir_core::model::topology::route::Routes;
use weir_core::model::topology::{NodeId, TopologyTemplate};
use weir_core::saba::Fraction;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::controller::AppId;
use weir_core::solve::SeparableSolver;
use weir_core::solve::polynomial::{Degree, Polynomial};
use weir_core::solve::separable::SeparableProblem;
use weir_core::units::{Bytes, Rate, Time};
use weir_papers::saba::curve::{ConvexCurve, curve_sharing, optimal_weights};
use weir_papers::saba::lockstep::fabric::JobLinks;
use weir_papers::saba::lockstep::sharing::SharingRule;
use weir_papers::saba::lockstep::{PlacedJob, run};
use weir_papers::saba::scenario::{self, INSTANCES, Network};
use weir_papers::saba::synthetic::{SyntheticWorkload, WORKLOADS, place_jobs};
use weir_sim::NoObserver;
use weir_sim::jobs;
use weir_sim::jobs::workload::testbed_link_rate;

#[test]
fn weights_of_inverse_costs_are_proportional_to_square_roots() {
    // The minimum of a / v + b / w with v + w = 1 has v : w = sqrt(a) : sqrt(b).
    let sizes = [1.0, 4.0, 25.0, 0.25];
    let curves: Vec<ConvexCurve> =
        sizes.iter().map(|size| ConvexCurve::lower_hull(|w| 7.0 + size / w)).collect();
    let roots: f64 = sizes.iter().map(|size: &f64| size.sqrt()).sum();
    for (weight, size) in optimal_weights(curves.iter(), 0.01).iter().zip(sizes) {
        let expected = size.sqrt() / roots;
        // Adjacent points of a curve are 4.4 % apart.
        assert!((weight / expected - 1.0).abs() < 0.045, "{weight} for {expected}");
    }
}

#[test]
fn identical_curves_get_equal_weights_and_one_curve_gets_all() {
    let curve = ConvexCurve::lower_hull(|w| 1.0 / w);
    assert_eq!(optimal_weights([&curve].into_iter(), 0.1), [1.0]);
    for weight in optimal_weights([&curve; 7].into_iter(), 0.01) {
        assert!((weight - 1.0 / 7.0).abs() < 1e-12, "{weight}");
    }
}

proptest! {
    #![proptest_config(config_with_cases(64))]

    #[test]
    fn curve_weights_of_convex_cubics_match_the_exact_solver(
        all in prop::collection::vec((0.0..20.0f64, 0.0..20.0f64, 0.0..5.0f64), 2..16),
    ) {
        // c (1 - w)^3 + b (1 - w)^2 + a (1 - w) decreases and is convex up to 1.
        let cubic = |&(a, b, c): &(f64, f64, f64)| {
            Polynomial::new(&[a + b + c, -(a + 2.0 * b + 3.0 * c), b + 3.0 * c, -c]).unwrap()
        };
        let costs: Vec<Polynomial> = all.iter().map(cubic).collect();
        let lower = 0.1 / costs.len() as f64;
        let exact = SeparableSolver::default()
            .minimize(&SeparableProblem { costs: &costs, total: 1.0, lower, upper: 1.0 }, 0)
            .unwrap();
        let curves: Vec<ConvexCurve> = costs.iter().map(|cost| ConvexCurve::lower_hull(|w| cost.evaluate(w))).collect();
        let weights = optimal_weights(curves.iter(), lower);
        prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        prop_assert!(weights.iter().all(|w| *w >= lower * (1.0 - 1e-12)));
        let value: f64 = costs.iter().zip(&weights).map(|(cost, &w)| cost.evaluate(w)).sum();
        // The line between two points is above the cubic by at most its curvature times the squared distance of the points, over 8.
        let max_chord_error: f64 = all.iter().map(|(_, b, c)| (2.0 * b + 6.0 * c) * 0.045f64.powi(2) / 8.0).sum();
        prop_assert!(value >= exact.lower_bound - 1e-9 && value <= exact.cost + max_chord_error + 1e-9, "{value} {}", exact.cost);
    }
}

fn job_ends(bytes: &[f64], sharing: &SharingRule) -> Vec<f64> {
    let job = |&bytes: &f64| PlacedJob {
        stages: vec![Stage {
            compute: Time::ZERO,
            overlapped_compute: Time::ZERO,
            bytes: Bytes::new(bytes).unwrap(),
            max_transfer_time: None,
        }],
        servers: vec![0, 1],
        model: None,
        start: Time::ZERO,
    };
    let jobs: Vec<PlacedJob> = bytes.iter().map(job).collect();
    let plan = TopologyTemplate::BigSwitch { hosts: 2, rate: Rate::new(10.0).unwrap() };
    let servers: Vec<Vec<u32>> = jobs.iter().map(|job| job.servers.clone()).collect();
    let links = JobLinks::new(&plan.build().unwrap(), &servers).unwrap();
    let ended = run(&jobs, &links, sharing, &mut NoObserver).unwrap();
    ended.ends.into_iter().map(Time::get).collect()
}

#[test]
fn curve_weights_are_computed_for_active_jobs() {
    // The weights are 2 : 1 (square roots) of a rate of 10. The first job sends its 30 bytes in 4.5 s; then the other has the whole rate.
    let curves: Vec<ConvexCurve> = [4.0, 1.0].map(|size| ConvexCurve::lower_hull(|w| size / w)).to_vec();
    let found = job_ends(&[30.0, 30.0], &curve_sharing(curves, DEFAULT_MIN_SHARE));
    assert!((found[0] / 4.5 - 1.0).abs() < 0.045 && (found[1] - 6.0).abs() < 1e-9, "{found:?}");
    // A job whose cost does not depend on its weight gets the minimum weight: a tenth of a half.
    let curves = vec![ConvexCurve::lower_hull(|w| 1.0 / w), ConvexCurve::lower_hull(|_| 1.0)];
    let found = job_ends(&[95.0, 95.0], &curve_sharing(curves, Fraction::new(0.1).unwrap()));
    assert!((found[0] - 10.0).abs() < 1e-6, "{found:?}");
}

#[test]
fn scenario_ports_are_on_paths_between_its_servers() {
    let plan = TopologyTemplate::LeafSpine {
        spines: 3,
        leaves: 4,
        hosts: 16,
        rate: Rate::new(1e9).unwrap(),
        oversubscription: 1.0,
    };
    let topology = plan.build().unwrap();
    let network = Network::new(&topology);
    let mut controller = scenario::controller(&network, 1, 3, Degree::Quadratic).unwrap();
    let active = scenario::draw(5, 0, network.servers(), 3, 2);
    assert_eq!((active.len(), network.ports()), (2, topology.links().len()));
    scenario::open_connections(&mut controller, &network, &active).unwrap();
    assert!(controller.update_plans().solution_count > 0);
    let mut routes = Routes::new(topology.clone(), 0);
    let mut link_shares = Vec::new();
    let mut expected = vec![Vec::new(); network.ports()];
    for (application, servers) in &active {
        assert_eq!(servers.len(), INSTANCES);
        for (&from, &to) in servers.iter().flat_map(|from| servers.iter().map(move |to| (from, to))) {
            routes.compute_ecmp_shares(NodeId(from), NodeId(to), &mut link_shares);
            for (link, _) in &link_shares {
                expected[link.index()].push(AppId(*application as u64));
            }
        }
    }
    for (port, expected) in expected.iter_mut().enumerate() {
        expected.sort_unstable();
        expected.dedup();
        let plan = controller.queue_plan(port as u32);
        let found: Vec<AppId> =
            plan.map_or(Vec::new(), |plan| plan.app_weights.weights.iter().map(|(app, _)| *app).collect());
        assert_eq!(&found, expected, "port {port}");
    }
    scenario::close_connections(&mut controller, &active).unwrap();
    controller.update_plans();
    assert!((0..network.ports()).all(|port| controller.queue_plan(port as u32).is_none()));
}

#[test]
fn scenario_draws_are_deterministic_and_differ_by_index() {
    let draw = |index| scenario::draw(1, index, 1944, 1000, 250);
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
    let mut applications: Vec<usize> = draw(3).iter().map(|(application, _)| *application).collect();
    applications.dedup();
    assert_eq!((applications.len(), applications.iter().max() < Some(&1000)), (250, true));
}

#[test]
fn synthetic_workload_profiles_match_their_formula() {
    let workloads = SyntheticWorkload::draw(1, WORKLOADS);
    assert_eq!(workloads, SyntheticWorkload::draw(1, WORKLOADS));
    assert_ne!(workloads, SyntheticWorkload::draw(2, WORKLOADS));
    for workload in &workloads {
        let profile = jobs::profile(&workload.stages, testbed_link_rate()).unwrap();
        for sample in profile.runs() {
            let formula = workload.slowdown(sample.bandwidth.get());
            assert!((sample.slowdown / formula - 1.0).abs() < 1e-9, "{sample:?}");
        }
        let all = profile.runs().last().unwrap().time.get();
        assert!((all / workload.seconds - 1.0).abs() < 1e-9);
        assert!((2..=10).contains(&workload.stages.len()) && (60.0..=600.0).contains(&workload.seconds));
    }
    assert!(
        workloads.windows(2).all(|pair| pair[0].transfer_fraction < pair[1].transfer_fraction),
        "workloads are not in the order of their transfers"
    );
    assert!(workloads[WORKLOADS - 1].slowdown(0.05) > 10.0);
}

#[test]
fn placed_instances_use_distinct_servers() {
    let jobs = place_jobs(1, 1944, WORKLOADS, 97);
    let mut all: Vec<u32> = jobs.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1940, "a server has two instances");
    assert!(all.iter().all(|server| *server < 1944) && jobs.iter().all(|job| job.len() == 97));
    let twice = place_jobs(1, 1944, 2 * WORKLOADS, 97);
    assert_eq!(twice[..WORKLOADS], jobs);
    assert_ne!(twice[WORKLOADS], jobs[0]);
}
