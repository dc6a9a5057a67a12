//! Saba's controller against its definition, recomputed for each port after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::controller::{
    AppId, ConnectionId, ControllerError, ControllerSettings, Port, PortLimits, UpdateResult,
};
use weir_core::saba::{Controller, Fraction, LevelMapping, Sensitivity};
use weir_core::solve::separable::{SeparableProblem, total_cost};
use weir_core::solve::{Polynomial, SeparableSolver};

fn model(coefficients: &[f64]) -> Sensitivity {
    Sensitivity::new(Polynomial::new(coefficients).unwrap())
}

fn settings(c_saba: f64, levels: u16) -> ControllerSettings {
    ControllerSettings {
        c_saba: Fraction::new(c_saba).unwrap(),
        min_share: DEFAULT_MIN_SHARE,
        max_levels: NonZeroU16::new(levels).unwrap(),
    }
}

/// Models of several shapes: convex, concave, increasing, constant.
fn sensitivity_table() -> Vec<Sensitivity> {
    vec![
        model(&[4.0, -6.0, 3.0]),
        model(&[5.0, -9.0, 6.0, -1.0]),
        model(&[2.0, -1.0]),
        model(&[1.5, -0.5]),
        model(&[3.0, -7.0, 9.0, -4.0]),
        model(&[1.0]),
        model(&[1.2, 0.3, -0.5]),
        model(&[9.0, -30.0, 44.0, -22.0]),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Register(u64, usize),
    Deregister(u64),
    Open(u64, u64, Vec<Port>),
    Close(u64),
    Update,
}

const PORTS: Port = 6;

fn random_steps() -> impl Strategy<Value = Vec<Step>> {
    let path = proptest::sample::subsequence((0..PORTS).collect::<Vec<_>>(), 0..=4).prop_shuffle();
    let step = prop_oneof![
        2 => (0..12u64, 0..8usize).prop_map(|(app, model)| Step::Register(app, model)),
        1 => (0..12u64).prop_map(Step::Deregister),
        5 => (0..40u64, 0..12u64, path).prop_map(|(c, app, path)| Step::Open(c, app, path)),
        3 => (0..40u64).prop_map(Step::Close),
        2 => Just(Step::Update),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A log of the applied steps, in plain data structures.
#[derive(Default)]
struct ExpectedState {
    apps: BTreeMap<AppId, usize>,
    connections: BTreeMap<ConnectionId, (AppId, Vec<Port>)>,
}

impl ExpectedState {
    /// Applies a step. Returns whether it should succeed.
    fn expect_step(&mut self, step: &Step) -> bool {
        match step {
            Step::Register(app, model) => {
                let new = !self.apps.contains_key(&AppId(*app));
                if new {
                    self.apps.insert(AppId(*app), *model);
                }
                new
            }
            Step::Deregister(app) => {
                let idle = self.connections.values().all(|(owner, _)| owner.0 != *app);
                idle && self.apps.remove(&AppId(*app)).is_some()
            }
            Step::Open(connection, app, path) => {
                let good = self.apps.contains_key(&AppId(*app))
                    && !self.connections.contains_key(&ConnectionId(*connection));
                if good {
                    self.connections.insert(ConnectionId(*connection), (AppId(*app), path.clone()));
                }
                good
            }
            Step::Close(connection) => self.connections.remove(&ConnectionId(*connection)).is_some(),
            Step::Update => true,
        }
    }

    fn apps_at(&self, port: Port) -> BTreeSet<AppId> {
        self.connections.values().filter(|(_, path)| path.contains(&port)).map(|(app, _)| *app).collect()
    }
}

fn apply_step(controller: &mut Controller, step: &Step) -> Result<UpdateResult, ControllerError> {
    match step {
        Step::Register(app, model) => {
            controller.register(AppId(*app), *model).map(|_| UpdateResult::default())
        }
        Step::Deregister(app) => controller.deregister(AppId(*app)).map(|_| UpdateResult::default()),
        Step::Open(c, app, path) => {
            controller.open_connection(ConnectionId(*c), AppId(*app), path).map(|_| UpdateResult::default())
        }
        Step::Close(connection) => {
            controller.close_connection(ConnectionId(*connection)).map(|()| UpdateResult::default())
        }
        Step::Update => Ok(controller.update_plans()),
    }
}

/// Checks every port's plan against the definition.
fn check_plans(
    controller: &Controller,
    record: &ExpectedState,
    mapping: &LevelMapping,
    settings: ControllerSettings,
    queues: &[u16],
) -> Result<(), TestCaseError> {
    let table = sensitivity_table();
    prop_assert_eq!(controller.mapping(), mapping);
    let c_saba = settings.c_saba.get();
    for port in 0..PORTS {
        let apps = record.apps_at(port);
        let Some(plan) = controller.queue_plan(port) else {
            prop_assert!(apps.is_empty());
            continue;
        };
        let found: BTreeSet<AppId> = plan.app_weights.weights.iter().map(|(app, _)| *app).collect();
        prop_assert_eq!(&found, &apps);
        // Eq. 2: the weights are feasible, and as good as those of a separate solution.
        let costs: Vec<Polynomial> =
            plan.app_weights.weights.iter().map(|(app, _)| *table[record.apps[app]].model()).collect();
        let weights: Vec<f64> = plan.app_weights.weights.iter().map(|(_, weight)| *weight).collect();
        let lower = DEFAULT_MIN_SHARE.get() * c_saba / costs.len() as f64;
        prop_assert!((weights.iter().sum::<f64>() - c_saba).abs() < 1e-9);
        prop_assert!(weights.iter().all(|w| *w >= lower));
        let problem = SeparableProblem { costs: &costs, total: c_saba, lower, upper: c_saba };
        let alone = SeparableSolver::default().minimize(&problem, 1000).unwrap();
        prop_assert!((total_cost(&costs, &weights) - alone.cost).abs() < 1e-8);
        prop_assert!(
            (plan.app_weights.total_slowdown - alone.cost).abs() < 1e-8
                && plan.app_weights.optimality_gap < 1e-8
        );
        // Section 5.3.2: a queue's weight is the sum of its applications' weights.
        let own = usize::from(queues[port as usize]) - usize::from(c_saba < 1.0);
        let mut sums = vec![0.0; queues[port as usize].into()];
        for (app, weight) in &plan.app_weights.weights {
            let queue = usize::from(
                plan.queue_by_level[usize::from(mapping.level_of_model(record.apps[app]).unwrap())],
            );
            prop_assert!(queue < own);
            sums[queue] += weight;
        }
        if c_saba < 1.0 {
            sums[own] = 1.0 - c_saba;
        }
        for (sum, weight) in sums.iter().zip(&plan.weights) {
            prop_assert!((sum - weight).abs() < 1e-12);
        }
        prop_assert_eq!(plan.queue_by_level.len(), mapping.level_count());
        // The first level of the hierarchy that fits into the queues.
        let levels: BTreeSet<u16> =
            apps.iter().map(|app| mapping.level_of_model(record.apps[app]).unwrap()).collect();
        prop_assert_eq!(plan.hierarchy_level == 1, levels.len() <= own);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config_with_cases(400))]

    #[test]
    fn saba_plans_match_the_definition(
        steps in random_steps(), c_saba in prop_oneof![Just(1.0), 0.1..1.0f64],
        levels in 1u16..6, queues in proptest::collection::vec(2u16..5, PORTS as usize),
    ) {
        let settings = settings(c_saba, levels);
        let mut central = Controller::new_central(sensitivity_table(), settings, &queues).unwrap();
        let mut record = ExpectedState::default();
        for step in steps.iter().chain(&[Step::Update]) {
            let before: Vec<_> = (0..PORTS).map(|p| central.queue_plan(p).cloned()).collect();
            let answer = apply_step(&mut central, step);
            prop_assert_eq!(answer.is_ok(), record.expect_step(step), "{:?}: {:?}", step, answer);
            if let Step::Update = step {
                let mut counts = vec![0; sensitivity_table().len()];
                record.apps.values().for_each(|&model| counts[model] += 1);
                check_plans(&central, &record, &LevelMapping::new(&sensitivity_table(), &counts, settings.max_levels), settings, &queues)?;
                let changed: Vec<Port> =
                    (0..PORTS).filter(|&p| central.queue_plan(p) != before[p as usize].as_ref()).collect();
                prop_assert_eq!(answer.unwrap().changed_ports, changed);
            }
        }
    }

    #[test]
    fn distributed_saba_controllers_match_the_central_one(
        steps in random_steps(), owners in proptest::collection::vec(0..3usize, PORTS as usize), levels in 1u16..6,
    ) {
        let settings = settings(0.9, levels);
        let queues = [3u16; PORTS as usize];
        let all: Vec<Port> = (0..PORTS).collect();
        let mut single_instance = Controller::new_instance(sensitivity_table(), settings, &queues, &all).unwrap();
        let mut instances: Vec<Controller> = (0..3)
            .map(|owner| {
                let own: Vec<Port> = all.iter().copied().filter(|p| owners[*p as usize] == owner).collect();
                Controller::new_instance(sensitivity_table(), settings, &queues, &own).unwrap()
            })
            .collect();
        let mut record = ExpectedState::default();
        for step in steps.iter().chain(&[Step::Update]) {
            let good = record.expect_step(step);
            prop_assert_eq!(apply_step(&mut single_instance, step).is_ok(), good);
            match step {
                _ if !good => {}
                Step::Open(connection, app, path) => {
                    // Section 5.4: each controller forwards the request to the next one on the path.
                    let mut left = path.clone();
                    while let Some(&next) = left.first() {
                        let part = &mut instances[owners[next as usize]];
                        left = part.open_connection(ConnectionId(*connection), AppId(*app), &left).unwrap();
                    }
                }
                Step::Close(_) => {
                    for part in &mut instances {
                        // Controllers outside the path receive no request.
                        let _ = apply_step(part, step);
                    }
                }
                _ => {
                    for part in &mut instances {
                        apply_step(part, step).unwrap();
                    }
                }
            }
        }
        let mapping = LevelMapping::new(&sensitivity_table(), &[1; 8], settings.max_levels);
        check_plans(&single_instance, &record, &mapping, settings, &queues)?;
        for port in 0..PORTS {
            prop_assert_eq!(instances[owners[port as usize]].queue_plan(port), single_instance.queue_plan(port));
        }
    }
}

/// Two applications and four ports with two queues each.
fn two_app_controller() -> Controller {
    let mut controller = Controller::new_central(sensitivity_table(), settings(1.0, 4), &[2u16; 4]).unwrap();
    controller.register(AppId(1), 0).unwrap();
    controller.register(AppId(2), 1).unwrap();
    controller
}

#[test]
fn each_new_application_set_is_solved_once() {
    let mut controller = two_app_controller();
    controller.open_connection(ConnectionId(1), AppId(1), &[0, 1, 2]).unwrap();
    controller.open_connection(ConnectionId(2), AppId(2), &[1, 2, 3]).unwrap();
    // {1} at port 0, {1, 2} at 1 and 2, {2} at 3.
    assert_eq!(
        controller.update_plans(),
        UpdateResult { changed_ports: vec![0, 1, 2, 3], solution_count: 3 }
    );
    // Another connection of the same application changes no shares.
    controller.open_connection(ConnectionId(3), AppId(1), &[0, 1, 2]).unwrap();
    assert_eq!(controller.update_plans(), UpdateResult::default());
    controller.close_connection(ConnectionId(1)).unwrap();
    assert_eq!(controller.update_plans(), UpdateResult::default());
    // The solution for {1, 2} is cached.
    controller.open_connection(ConnectionId(4), AppId(2), &[0]).unwrap();
    assert_eq!(controller.update_plans(), UpdateResult { changed_ports: vec![0], solution_count: 0 });
    // A registration may change queues, but not shares.
    controller.register(AppId(3), 7).unwrap();
    assert_eq!(controller.update_plans().solution_count, 0);
    controller.close_connection(ConnectionId(3)).unwrap();
    assert_eq!(controller.update_plans(), UpdateResult { changed_ports: vec![0, 1, 2], solution_count: 0 });
}

#[test]
fn saba_gives_lr_a_larger_share_than_pr() {
    // Section 2.2: LR is the more sensitive workload. Slowdowns from the text of sections 2 and 4.2, fitted
    // with parabolas.
    use weir_core::solve::polynomial::{Degree, fit_polynomial};
    let lr =
        fit_polynomial(&[(0.10, 4.5), (0.25, 3.4), (0.50, 2.26), (0.75, 1.3), (1.0, 1.0)], Degree::Quadratic)
            .unwrap()
            .polynomial;
    let pr = fit_polynomial(&[(0.25, 1.4), (0.50, 1.21), (0.75, 1.02), (1.0, 1.0)], Degree::Quadratic)
        .unwrap()
        .polynomial;
    let table = vec![Sensitivity::new(lr), Sensitivity::new(pr)];
    let mut controller = Controller::new_central(table, settings(1.0, 2), &[2u16]).unwrap();
    controller.register(AppId(1), 0).unwrap();
    controller.register(AppId(2), 1).unwrap();
    controller.open_connection(ConnectionId(1), AppId(1), &[0]).unwrap();
    controller.open_connection(ConnectionId(2), AppId(2), &[0]).unwrap();
    controller.update_plans();
    let shares = &controller.queue_plan(0).unwrap().app_weights;
    assert!(shares.weights[0].1 > 0.75, "{shares:?}");
    // Better than equal shares, and than the skewed 75 and 25 % of Fig. 1b.
    assert!(shares.total_slowdown < lr.evaluate(0.75) + pr.evaluate(0.25));
    assert!(lr.evaluate(0.75) + pr.evaluate(0.25) < lr.evaluate(0.5) + pr.evaluate(0.5));
}

#[test]
fn registration_can_move_other_applications_to_other_levels() {
    // Lines: D = 2 - s b. Levels form from the slopes 1, 1.1 and 5, then from 1, 1.1, 5 and 50 with two
    // available levels.
    let table: Vec<_> = [1.0, 5.0, 1.1, 50.0].iter().map(|s| model(&[2.0, -s])).collect();
    let mut controller = Controller::new_central(table, settings(1.0, 2), &[2u16]).unwrap();
    assert_eq!(controller.register(AppId(10), 0).unwrap().level, Some(0));
    assert_eq!(controller.register(AppId(11), 1).unwrap().level, Some(1));
    assert_eq!(controller.register(AppId(12), 2).unwrap().level, Some(0));
    let joined = controller.register(AppId(13), 3).unwrap();
    assert_eq!((joined.level, joined.changed_levels), (Some(1), vec![(AppId(11), 0)]));
    assert_eq!(controller.app_level(AppId(11)), Some(0));
    let left = controller.deregister(AppId(13)).unwrap();
    assert_eq!((left.level, left.changed_levels), (None, vec![(AppId(11), 1)]));
}

#[test]
fn last_queue_is_reserved_for_non_saba_traffic() {
    // Section 3.
    let mut controller = Controller::new_central(sensitivity_table(), settings(0.8, 4), &[3u16]).unwrap();
    controller.register(AppId(1), 0).unwrap();
    controller.open_connection(ConnectionId(1), AppId(1), &[0]).unwrap();
    controller.update_plans();
    let plan = controller.queue_plan(0).unwrap();
    assert_eq!((plan.weights[0], plan.weights[1]), (0.8, 0.0));
    assert!((plan.weights[2] - 0.2).abs() < 1e-12);
}

/// D(b) = 1 + k (1 - b)^2. Without bounds, Eq. 2 gives the weights 1 - p / k for one number p.
fn parabola(k: f64) -> Sensitivity {
    model(&[1.0 + k, -2.0 * k, k])
}

#[test]
fn ports_have_the_queues_and_minimum_weights_of_their_switches() {
    // (queues, minimum weight, expected weights of applications, expected weights of queues).
    let least = 0.1 / 3.0;
    let ports = [
        // p = 1.65333 for k = 8 and 2; the third application has its own minimum, a tenth of an even share.
        (3, 0.0, [0.793_333_333, 0.173_333_333, least], vec![0.793_333_333, 0.173_333_333, least]),
        (2, 0.0, [0.793_333_333, 0.173_333_333, least], vec![0.793_333_333, 0.206_666_667]),
        // One queue is below the minimum. The others divide 0.95 with p = 1.68.
        (3, 0.05, [0.79, 0.16, 0.05], vec![0.79, 0.16, 0.05]),
        // With 0.15 for the third queue, the second one is below the minimum, too: 0.08 of 0.85.
        (3, 0.15, [0.7, 0.15, 0.15], vec![0.7, 0.15, 0.15]),
        (3, 1.0 / 3.0, [1.0 / 3.0; 3], vec![1.0 / 3.0; 3]),
        // The two applications of the second queue divide 0.3 by Eq. 2.
        (2, 0.3, [0.7, 0.3 - least, least], vec![0.7, 0.3]),
        (1, 1.0, [0.793_333_333, 0.173_333_333, least], vec![1.0]),
        // An unused queue has the weight 0, not the minimum.
        (4, 0.05, [0.79, 0.16, 0.05], vec![0.79, 0.16, 0.05, 0.0]),
    ];
    let limits: Vec<PortLimits> =
        ports.iter().map(|&(queues, min_weight, ..)| PortLimits { queues, min_weight }).collect();
    let table = [8.0, 2.0, 1.0].map(parabola).to_vec();
    let mut controller = Controller::new_central(table, settings(1.0, 4), &limits).unwrap();
    let path: Vec<Port> = (0..ports.len() as Port).collect();
    for app in 0..3u64 {
        controller.register(AppId(app), app as usize).unwrap();
        controller.open_connection(ConnectionId(app), AppId(app), &path).unwrap();
    }
    // All ports have the same applications.
    assert_eq!(controller.update_plans().solution_count, 1);
    for (port, (queues, min_weight, apps, weights)) in (0..).zip(ports) {
        let plan = controller.queue_plan(port).unwrap();
        let found: Vec<f64> = plan.app_weights.weights.iter().map(|(_, weight)| *weight).collect();
        let is_equal =
            |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-8);
        assert!(is_equal(&found, &apps), "{queues} queues, {min_weight}: {found:?}");
        assert!(is_equal(&plan.weights, &weights), "{queues} queues, {min_weight}: {:?}", plan.weights);
    }
}

#[test]
fn applications_share_evenly_if_minimum_weights_leave_less_than_their_minimum() {
    // Twelve queues. Eleven have one application each; the last one has 20, whose own minimum is 0.1 / 31 each.
    let table: Vec<Sensitivity> = (0..12)
        .map(|at| if at == 11 { parabola(1e5) } else { parabola(1.0 + 0.1 * f64::from(at)) })
        .collect();
    let limits = [PortLimits { queues: 12, min_weight: 1.0 / 12.0 }];
    let mut controller = Controller::new_central(table, settings(1.0, 12), &limits).unwrap();
    for app in 0..31u64 {
        controller.register(AppId(app), (app as usize).min(11)).unwrap();
        controller.open_connection(ConnectionId(app), AppId(app), &[0]).unwrap();
    }
    controller.update_plans();
    let plan = controller.queue_plan(0).unwrap();
    assert!(plan.weights.iter().all(|weight| (weight - 1.0 / 12.0).abs() < 1e-9), "{:?}", plan.weights);
    assert!(plan.app_weights.weights[11..].iter().all(|(_, weight)| (weight - 1.0 / 240.0).abs() < 1e-9));
}

/// Checks the conditions of optimality (Karush, Kuhn and Tucker), which are sufficient for convex models.
fn check_min_weights(
    controller: &Controller,
    record: &ExpectedState,
    table: &[Sensitivity],
    limits: &[PortLimits],
) -> Result<(), TestCaseError> {
    const NEAR: f64 = 1e-7;
    for (port, &PortLimits { min_weight, .. }) in (0..).zip(limits) {
        let Some(plan) = controller.queue_plan(port) else {
            prop_assert!(record.apps_at(port).is_empty());
            continue;
        };
        let weights = &plan.app_weights.weights;
        let c_saba = controller.settings().c_saba.get();
        prop_assert!((weights.iter().map(|(_, weight)| weight).sum::<f64>() - c_saba).abs() < 1e-9);
        let least = DEFAULT_MIN_SHARE.get() * c_saba / weights.len() as f64;
        // By queue: the range of the slopes that its applications allow.
        let mut slopes: BTreeMap<u16, (f64, f64)> = BTreeMap::new();
        for &(app, weight) in weights {
            let polynomial = table[record.apps[&app]].model();
            let queue = plan.queue_by_level[usize::from(controller.app_level(app).unwrap())];
            let (low, high) = slopes.entry(queue).or_insert((f64::NEG_INFINITY, f64::INFINITY));
            let slope = polynomial.slope(weight);
            prop_assert!(weight > least - NEAR);
            // An application at its minimum may have a weaker slope than its queue.
            *high = high.min(slope + NEAR);
            if weight > least + NEAR {
                *low = low.max(slope - NEAR);
            }
        }
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for (queue, (queue_low, queue_high)) in slopes {
            prop_assert!(queue_low <= queue_high, "slopes in queue {queue}: {queue_low} to {queue_high}");
            let weight = plan.weights[usize::from(queue)];
            prop_assert!(weight > min_weight - NEAR, "queue {queue} has {weight} of {min_weight}");
            high = high.min(queue_high);
            if weight > min_weight + NEAR {
                low = low.max(queue_low);
            }
        }
        prop_assert!(low <= high, "slopes of queues: {low} to {high} in {plan:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(config_with_cases(300))]

    #[test]
    fn plans_with_minimum_weights_are_optimal_for_convex_models(
        steps in random_steps(), c_saba in prop_oneof![Just(1.0), 0.1..1.0f64], levels in 1u16..8,
        ports in proptest::collection::vec((2u16..6, prop_oneof![Just(0.0), 0.0..0.8f64]), PORTS as usize),
    ) {
        let table = [8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 3.0, 20.0].map(parabola).to_vec();
        let settings = settings(c_saba, levels);
        let limits: Vec<PortLimits> = ports
            .iter()
            .map(|&(queues, part)| {
                PortLimits { queues, min_weight: part * PortLimits::max_min_weight(queues, settings.c_saba) }
            })
            .collect();
        let mut central = Controller::new_central(table.clone(), settings, &limits).unwrap();
        let mut record = ExpectedState::default();
        for step in steps.iter().chain(&[Step::Update]) {
            prop_assert_eq!(apply_step(&mut central, step).is_ok(), record.expect_step(step));
            if let Step::Update = step {
                check_min_weights(&central, &record, &table, &limits)?;
            }
        }
    }
}

#[test]
fn rejected_saba_requests_leave_state_unchanged() {
    let mut controller = two_app_controller();
    controller.open_connection(ConnectionId(1), AppId(1), &[0]).unwrap();
    controller.update_plans();
    let text = |error: ControllerError| error.to_string();
    let open = |controller: &mut Controller, connection, app, path: &[Port]| {
        text(controller.open_connection(ConnectionId(connection), AppId(app), path).unwrap_err())
    };
    assert_eq!(open(&mut controller, 1, 1, &[1]), "connection 1 is already open; expected a new id");
    assert_eq!(
        open(&mut controller, 2, 9, &[1]),
        "application 9 is not registered; expected a registered one"
    );
    assert_eq!(open(&mut controller, 2, 1, &[1, 4]), "port 4 does not exist; expected 0 to 3");
    assert_eq!(open(&mut controller, 2, 1, &[1, 2, 1]), "path: port 1 occurs twice; expected each port once");
    assert_eq!(
        text(controller.close_connection(ConnectionId(7)).unwrap_err()),
        "connection 7 is not open; expected an open one"
    );
    assert_eq!(
        text(controller.register(AppId(1), 0).unwrap_err()),
        "application 1 is already registered; expected a new id"
    );
    assert_eq!(
        text(controller.register(AppId(5), 8).unwrap_err()),
        "model 8 is not a row of the sensitivity table; expected 0 to 7"
    );
    assert_eq!(
        text(controller.deregister(AppId(1)).unwrap_err()),
        "application 1 has 1 open connections; help: close them first"
    );
    assert_eq!(controller.update_plans(), UpdateResult::default());
    let refused = |c_saba, queues: &[u16]| {
        text(Controller::new_central(sensitivity_table(), settings(c_saba, 1), queues).unwrap_err())
    };
    assert_eq!(refused(1.0, &[1, 0]), "port 1: too few queues (0); expected at least 1");
    assert_eq!(refused(0.5, &[1]), "port 0: too few queues (1); expected at least 2");
    let error = Controller::new_instance(sensitivity_table(), settings(1.0, 1), &[1u16], &[1]).unwrap_err();
    assert_eq!(text(error), "port 1 does not exist; expected 0 to 0");
    let refused = |c_saba, queues, min_weight| {
        let limits = [PortLimits { queues, min_weight }];
        text(Controller::new_central(sensitivity_table(), settings(c_saba, 1), &limits).unwrap_err())
    };
    assert_eq!(
        refused(1.0, 4, 0.26),
        "port 0: minimum weight 0.26 of 4 queues is out of range; expected 0 to 0.25"
    );
    // Three queues divide 0.75, and one has the other quarter.
    assert_eq!(
        refused(0.75, 4, 0.26),
        "port 0: minimum weight 0.26 of 4 queues is out of range; expected 0 to 0.25"
    );
    // The reserved queue has a quarter.
    assert_eq!(
        refused(0.75, 2, 0.26),
        "port 0: minimum weight 0.26 of 2 queues is out of range; expected 0 to 0.25"
    );
    assert_eq!(
        refused(1.0, 4, f64::NAN),
        "port 0: minimum weight NaN of 4 queues is out of range; expected 0 to 0.25"
    );
}
