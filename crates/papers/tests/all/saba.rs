//! Eq. 2 with any curve (Saba, EuroSys '23, section 5.1), the workloads of section 8.1 and the scenarios of section 8.5.

use proptest::prelude::*;
use weir_core::model::topology::route::Routes;
use weir_core::model::topology::{NodeId, Plan};
use weir_core::saba::Fraction;
use weir_core::saba::controller::AppId;
use weir_core::saba::profile::{FRACTIONS, Profile};
use weir_core::saba::share::FLOOR;
use weir_core::solve::Solver;
use weir_core::solve::polynomial::{Degree, Polynomial};
use weir_core::solve::separable::Problem;
use weir_core::units::{Bytes, Rate, Time};
use weir_papers::saba::curve::{Curve, cheapest, sharing};
use weir_papers::saba::scenario::{self, INSTANCES, Network};
use weir_papers::saba::synthetic::{PROFILER, Synthetic, WORKLOADS, place};
use weir_sim::stage::cluster::{Coupling, Options, Placed, run};
use weir_sim::stage::sharing::Sharing;
use weir_sim::stage::workload::link;
use weir_sim::stage::{Profiled, Stage};

#[test]
fn weights_of_inverse_costs_are_proportional_to_square_roots() {
    // The least a / v + b / w with v + w = 1 has v : w = sqrt(a) : sqrt(b).
    let sizes = [1.0, 4.0, 25.0, 0.25];
    let curves: Vec<Curve> = sizes.iter().map(|size| Curve::of(|w| 7.0 + size / w)).collect();
    let roots: f64 = sizes.iter().map(|size: &f64| size.sqrt()).sum();
    for (weight, size) in cheapest(curves.iter(), 0.01).iter().zip(sizes) {
        let wanted = size.sqrt() / roots;
        // Points of a table are 4.4 % apart.
        assert!((weight / wanted - 1.0).abs() < 0.045, "{weight} for {wanted}");
    }
}

#[test]
fn identical_curves_get_equal_weights_and_one_curve_gets_all() {
    let curve = Curve::of(|w| 1.0 / w);
    assert_eq!(cheapest([&curve].into_iter(), 0.1), [1.0]);
    for weight in cheapest([&curve; 7].into_iter(), 0.01) {
        assert!((weight - 1.0 / 7.0).abs() < 1e-12, "{weight}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn curve_weights_of_convex_cubics_match_the_exact_solver(
        all in prop::collection::vec((0.0..20.0f64, 0.0..20.0f64, 0.0..5.0f64), 2..16),
    ) {
        // c (1 - w)^3 + b (1 - w)^2 + a (1 - w) falls and is convex up to 1.
        let cubic = |&(a, b, c): &(f64, f64, f64)| {
            Polynomial::new(&[a + b + c, -(a + 2.0 * b + 3.0 * c), b + 3.0 * c, -c]).unwrap()
        };
        let costs: Vec<Polynomial> = all.iter().map(cubic).collect();
        let lower = 0.1 / costs.len() as f64;
        let exact = Solver::default()
            .minimise(&Problem { costs: &costs, total: 1.0, lower, upper: 1.0 }, 0)
            .unwrap();
        let curves: Vec<Curve> = costs.iter().map(|cost| Curve::of(|w| cost.at(w))).collect();
        let weights = cheapest(curves.iter(), lower);
        prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        prop_assert!(weights.iter().all(|w| *w >= lower * (1.0 - 1e-12)));
        let value: f64 = costs.iter().zip(&weights).map(|(cost, &w)| cost.at(w)).sum();
        // A table's lines are above the curve by its curvature times the square of the distance of its points, over 8.
        let above: f64 = all.iter().map(|(_, b, c)| (2.0 * b + 6.0 * c) * 0.045f64.powi(2) / 8.0).sum();
        prop_assert!(value >= exact.bound - 1e-9 && value <= exact.value + above + 1e-9, "{value} {}", exact.value);
    }
}

fn ends(bytes: &[f64], sharing: &Sharing) -> Vec<f64> {
    let job = |&bytes: &f64| Placed {
        stages: vec![Stage {
            compute: Time::ZERO,
            beside: Time::ZERO,
            bytes: Bytes::new(bytes).unwrap(),
            patience: None,
        }],
        servers: vec![0, 1],
        model: None,
        start: Time::ZERO,
    };
    let jobs: Vec<Placed> = bytes.iter().map(job).collect();
    let options = Options { servers: 2, rate: Rate::new(10.0).unwrap(), coupling: Coupling::Lockstep };
    run(&jobs, &options, sharing).unwrap().into_iter().map(Time::get).collect()
}

#[test]
fn curve_weights_are_computed_for_active_jobs() {
    // Square roots: 2 : 1 of 10 until the first has moved its 30, after 4.5 s; then the other has all.
    let curves: Vec<Curve> = [4.0, 1.0].map(|size| Curve::of(|w| size / w)).to_vec();
    let found = ends(&[30.0, 30.0], &sharing(curves, FLOOR));
    assert!((found[0] / 4.5 - 1.0).abs() < 0.045 && (found[1] - 6.0).abs() < 1e-9, "{found:?}");
    // What wants nothing gets the least: a tenth of a half.
    let curves = vec![Curve::of(|w| 1.0 / w), Curve::of(|_| 1.0)];
    let found = ends(&[95.0, 95.0], &sharing(curves, Fraction::new(0.1).unwrap()));
    assert!((found[0] - 10.0).abs() < 1e-6, "{found:?}");
}

#[test]
fn scenario_ports_are_on_paths_between_its_servers() {
    let plan = Plan::LeafSpine {
        spines: 3,
        leaves: 4,
        hosts: 16,
        rate: Rate::new(1e9).unwrap(),
        oversubscription: 1.0,
    };
    let topology = plan.build().unwrap();
    let network = Network::new(&topology);
    let mut controller = scenario::controller(&network, 1, 3, Degree::Two).unwrap();
    let active = scenario::draw(5, 0, network.servers(), 3, 2);
    assert_eq!((active.len(), network.ports()), (2, topology.links().len()));
    scenario::open(&mut controller, &network, &active).unwrap();
    assert!(controller.update().solved > 0);
    let mut routes = Routes::new(topology.clone(), 0);
    let mut spread = Vec::new();
    let mut wanted = vec![Vec::new(); network.ports()];
    for (application, servers) in &active {
        assert_eq!(servers.len(), INSTANCES);
        for (&from, &to) in servers.iter().flat_map(|from| servers.iter().map(move |to| (from, to))) {
            routes.spread(NodeId(from), NodeId(to), &mut spread);
            for (link, _) in &spread {
                wanted[link.index()].push(AppId(*application as u64));
            }
        }
    }
    for (port, wanted) in wanted.iter_mut().enumerate() {
        wanted.sort_unstable();
        wanted.dedup();
        let plan = controller.plan(port as u32);
        let found: Vec<AppId> =
            plan.map_or(Vec::new(), |plan| plan.shares.apps.iter().map(|(app, _)| *app).collect());
        assert_eq!(&found, wanted, "port {port}");
    }
    scenario::close(&mut controller, &active).unwrap();
    controller.update();
    assert!((0..network.ports()).all(|port| controller.plan(port as u32).is_none()));
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
    let workloads = Synthetic::draw(1, WORKLOADS);
    assert_eq!(workloads, Synthetic::draw(1, WORKLOADS));
    assert_ne!(workloads, Synthetic::draw(2, WORKLOADS));
    for workload in &workloads {
        let mut job = Profiled { stages: workload.stages.clone(), servers: PROFILER, rate: link() };
        let profile = Profile::of(&mut job, &FRACTIONS).unwrap();
        for sample in profile.samples() {
            let formula = workload.slowdown(sample.bandwidth.get());
            assert!((sample.slowdown / formula - 1.0).abs() < 1e-9, "{sample:?}");
        }
        let all = profile.samples().last().unwrap().time.get();
        assert!((all / workload.seconds - 1.0).abs() < 1e-9);
        assert!((2..=10).contains(&workload.stages.len()) && (60.0..=600.0).contains(&workload.seconds));
    }
    assert!(workloads.windows(2).all(|pair| pair[0].moving < pair[1].moving), "from little to much");
    assert!(workloads[WORKLOADS - 1].slowdown(0.05) > 10.0);
}

#[test]
fn placed_instances_use_distinct_servers() {
    let jobs = place(1, 1944, WORKLOADS, 97);
    let mut all: Vec<u32> = jobs.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1940, "no server has two");
    assert!(all.iter().all(|server| *server < 1944) && jobs.iter().all(|job| job.len() == 97));
    let twice = place(1, 1944, 2 * WORKLOADS, 97);
    assert_eq!(twice[..WORKLOADS], jobs);
    assert_ne!(twice[WORKLOADS], jobs[0]);
}
