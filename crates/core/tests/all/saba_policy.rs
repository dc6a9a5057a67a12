//! The policy `saba` with limits of levels, queues and C_saba, against the plans of the controller.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use crate::common::config_with_cases;
use crate::tree::{FlowTuple, PORTS, TOLERANCE, coflow_spec, fabric, names_of, run_to_completion};
use proptest::collection::vec;
use proptest::prelude::*;
use weir_core::engine::{Engine, Links};
use weir_core::policy;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::controller::{AppId, ConnectionId, ControllerSettings, PortLimits};
use weir_core::saba::{Controller, Fraction, Sensitivity};
use weir_core::solve::Polynomial;

/// An engine with one service of `applications` applications, and a coflow of each element of `coflows`: an application and
/// its flows.
fn engine_with(spec: &str, applications: usize, coflows: &[(u32, Vec<FlowTuple>)]) -> Engine {
    let links = Links::one_switch(fabric(PORTS));
    let mut engine = Engine::new(links, policy::build(spec).unwrap(), &names_of(1, applications)).unwrap();
    let mut ended = Vec::new();
    for (id, (application, flows)) in coflows.iter().enumerate() {
        engine.release_coflow(&coflow_spec(id as u64, (0, *application), flows), id, 0.0, &mut ended);
    }
    engine.schedule(0.0).unwrap();
    engine
}

/// D(b) = 1 + k (1 - b)^2, with k = 4 (s - 1) for the slowdown s at half of the bandwidth.
fn sensitivity(slowdown: f64) -> Sensitivity {
    let k = 4.0 * (slowdown - 1.0);
    Sensitivity::new(Polynomial::new(&[1.0 + k, -2.0 * k, k]).unwrap())
}

#[test]
fn limits_of_queues_merge_the_most_similar_applications() {
    // One flow of each application leaves port 0. k is 8, 2 and 1: without limits, Eq. 2 gives 1 - p / k with p = 1.65333,
    // and the third application has its minimum.
    let least = 0.1 / 3.0;
    let (first, second) = (0.793_333_333, 0.173_333_333);
    for (limits, expected) in [
        ("", [first, second, least]),
        (":queues=3", [first, second, least]),
        (":levels=3", [first, second, least]),
        (":levels=8:queues=8", [first, second, least]),
        // The second and the third application share a queue, and its flows are equally fast.
        (":queues=2", [first, (second + least) / 2.0, (second + least) / 2.0]),
        (":levels=2", [first, (second + least) / 2.0, (second + least) / 2.0]),
        (":levels=2:queues=5", [first, (second + least) / 2.0, (second + least) / 2.0]),
        (":levels=1", [1.0 / 3.0; 3]),
        (":queues=1", [1.0 / 3.0; 3]),
        (":queues=2:min-weight=0.3", [0.7, 0.15, 0.15]),
        (":queues=3:min-weight=0.15", [0.7, 0.15, 0.15]),
        (":queues=3:min-weight=0.05", [0.79, 0.16, 0.05]),
        // Of 0.9, the applications get 0.774, 0.096 and 0.03. No other traffic uses the remaining tenth.
        (":share=0.9", [0.86, 0.096 / 0.9, least]),
        (":share=0.9:queues=4", [0.86, 0.096 / 0.9, least]),
        (":share=0.9:levels=3", [0.86, 0.096 / 0.9, least]),
        // The third queue is reserved.
        (":share=0.9:queues=3", [0.86, 0.07, 0.07]),
        (":share=0.9:queues=2", [1.0 / 3.0; 3]),
    ] {
        let coflows: Vec<_> = (0..3).map(|app| (app, vec![(0, 1 + app, 9.0)])).collect();
        let engine = engine_with(&format!("saba:slowdown=3/1.5/1.25{limits}"), 3, &coflows);
        let rates: Vec<f64> = (0..3).map(|slot| engine.network().rate(slot, 0)).collect();
        let is_near = rates.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 1e-7);
        assert!(is_near, "saba{limits}: {rates:?}, expected {expected:?}");
    }
}

#[test]
fn flows_in_a_shared_queue_are_max_min_fair() {
    // Applications 1 and 2 share the queue with 0.206667 of port 0. The first flow of application 1 is one of 20 flows to
    // port 1, which therefore limits it to 0.05; the other two flows of the queue divide the rest of the queue.
    let mut coflows = vec![
        (0, vec![(0, 2, 9.0)]),
        (1, vec![(0, 1, 9.0), (0, 3, 9.0)]),
        (2, vec![(0, 3, 9.0)]),
        (1, vec![(1, 1, 9.0); 19]),
    ];
    let rates = |coflows: &[(u32, Vec<FlowTuple>)]| -> Vec<f64> {
        let engine = engine_with("saba:slowdown=3/1.5/1.25:queues=2", 3, coflows);
        [(0, 0), (1, 0), (1, 1), (2, 0)].map(|(slot, flow)| engine.network().rate(slot, flow)).into()
    };
    let queue = 0.173_333_333 + 0.1 / 3.0;
    let rest = (queue - 0.05) / 2.0;
    let found = rates(&coflows);
    let is_near = |expected: [f64; 4]| {
        found.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 1e-7)
    };
    assert!(is_near([1.0 - queue, 0.05, rest, rest]), "{found:?}");
    // Without the flows to port 1, all three are equally fast.
    coflows.pop();
    let found = rates(&coflows);
    let is_near = |expected: [f64; 4]| {
        found.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 1e-7)
    };
    assert!(is_near([1.0 - queue, queue / 3.0, queue / 3.0, queue / 3.0]), "{found:?}");
}

#[test]
fn invalid_limits_name_the_parameter_and_the_expected_value() {
    for (spec, expected) in [
        ("levels=0", "`levels=0` is invalid; expected a whole number from 1 to 65535"),
        ("queues=0", "`queues=0` is invalid; expected a whole number from 1 to 65535"),
        (
            "queues=1:share=0.5",
            "`queues=1` is invalid; expected a whole number from 2 to 65535, since `share` reserves one queue",
        ),
        ("share=0", "`share=0` is invalid; expected a number above 0 and up to 1"),
        ("share=1.1", "`share=1.1` is invalid; expected a number above 0 and up to 1"),
        ("share=nan", "`share=nan` is invalid; expected a number above 0 and up to 1"),
        ("min-weight=0.1", "`min-weight=0.1` is invalid; expected 0, or also `queues=N`"),
        (
            "queues=4:min-weight=0.3",
            "`min-weight=0.3` is invalid; expected a number from 0 to 0.25, the maximum for 4 queues",
        ),
        (
            "queues=4:share=0.8:min-weight=0.3",
            "`min-weight=0.3` is invalid; expected a number from 0 to 0.2, the maximum for 4 queues",
        ),
    ] {
        let error = policy::build(&format!("saba:{spec}")).err().map(|error| error.to_string());
        assert_eq!(error, Some(format!("policy `saba`: {expected}")), "{spec}");
    }
    assert!(policy::build("saba:queues=4:share=0.8:min-weight=0.2").is_ok());
}

/// Slowdowns of applications, limits, and coflows.
#[derive(Debug, Clone)]
struct Case {
    slowdowns: Vec<f64>,
    levels: u16,
    queues: u16,
    share: f64,
    /// The minimum weight, as a fraction of the maximum.
    min_weight: f64,
    coflows: Vec<(u32, Vec<FlowTuple>)>,
}

/// Sending and receiving ports of flows around port 0, which have unique rates. Other flows to two of the receivers leave
/// from separate ports.
const STAR_ENDS: [(u32, u32); 5] = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 1)];

/// Cases with flows between these ports.
fn cases_between(ends: Vec<(u32, u32)>) -> impl Strategy<Value = Case> {
    (2..6usize).prop_flat_map(move |count| {
        let size = prop_oneof![Just(1.0), 0.2..3.0f64];
        let flow = (prop::sample::select(ends.clone()), size).prop_map(|((src, dst), size)| (src, dst, size));
        let flows = vec(flow, 1..5);
        (
            vec(prop_oneof![Just(2.0), 1.05..5.0f64], count),
            1..6u16,
            1..5u16,
            prop_oneof![Just(1.0), 0.2..1.0f64],
            prop_oneof![Just(0.0), 0.0..0.9f64],
            vec((0..count as u32, flows), 1..8),
        )
            .prop_map(|(slowdowns, levels, queues, share, min_weight, coflows)| {
                let queues = if share < 1.0 { queues + 1 } else { queues };
                Case { slowdowns, levels, queues, share, min_weight, coflows }
            })
    })
}

fn any_case() -> impl Strategy<Value = Case> {
    cases_between((0..PORTS).flat_map(|src| (0..PORTS).map(move |dst| (src, dst))).collect())
}

impl Case {
    fn share(&self) -> Fraction {
        Fraction::new(self.share).unwrap()
    }

    fn limits(&self) -> PortLimits {
        let max = PortLimits::max_min_weight(self.queues, self.share());
        PortLimits { queues: self.queues, min_weight: self.min_weight * max }
    }

    fn slowdown_text(&self) -> String {
        self.slowdowns.iter().map(f64::to_string).collect::<Vec<_>>().join("/")
    }

    fn engine(&self) -> Engine {
        let PortLimits { queues, min_weight } = self.limits();
        let Case { levels, share, .. } = self;
        let slowdowns = self.slowdown_text();
        let spec = format!(
            "saba:slowdown={slowdowns}:levels={levels}:queues={queues}:share={share}:min-weight={min_weight}"
        );
        engine_with(&spec, self.slowdowns.len(), &self.coflows)
    }

    /// The controller of all links, with the connections of the live flows: sending sides, then receiving sides.
    fn controller(&self, flows: &[LiveFlow]) -> Controller {
        let settings = ControllerSettings {
            c_saba: self.share(),
            min_share: DEFAULT_MIN_SHARE,
            max_levels: NonZeroU16::new(self.levels).unwrap(),
        };
        let models = self.slowdowns.iter().map(|&slowdown| sensitivity(slowdown)).collect();
        let (limits, owned) = (vec![self.limits(); 2 * PORTS as usize], (0..2 * PORTS).collect::<Vec<_>>());
        let mut controller = Controller::new_instance(models, settings, &limits, &owned).unwrap();
        for app in 0..self.slowdowns.len() {
            controller.register(AppId(app as u64), app).unwrap();
        }
        for (connection, (app, sides, _)) in (0..).zip(flows) {
            let app = AppId(u64::from(*app));
            controller
                .open_connection(ConnectionId(connection), app, &sides.map(|side| side as u32))
                .unwrap();
        }
        controller.update_plans();
        controller
    }
}

/// A live flow: its application, its two port sides and its rate.
type LiveFlow = (u32, [usize; 2], f64);

fn live_flows(engine: &Engine, case: &Case) -> Vec<LiveFlow> {
    let network = engine.network();
    let mut flows = Vec::new();
    for &slot in network.active_coflows() {
        let coflow = network.coflow(slot);
        for flow in coflow.live_flows() {
            let (src, dst) = coflow.flow_ports(flow);
            let sides = [src as usize, (PORTS + dst) as usize];
            flows.push((case.coflows[coflow.workload_index].0, sides, network.rate(slot, flow)));
        }
    }
    flows
}

/// Checks the sides of every flow. A *bottleneck* is a full side where no flow of its queue is faster, and no queue has more in
/// proportion to its weight. With `is_unique`, every flow has a bottleneck. In any case, every flow has a side where its queue has
/// at least its part by weight.
fn check_rates(engine: &Engine, case: &Case, is_unique: bool) -> Result<(), TestCaseError> {
    let flows = live_flows(engine, case);
    let controller = case.controller(&flows);
    let queue_of = |app: u32, side: usize| {
        let level = controller.app_level(AppId(u64::from(app))).unwrap();
        controller.queue_plan(side as u32).unwrap().queue_by_level[usize::from(level)]
    };
    for &(app, sides, rate) in &flows {
        let here = |side: usize| flows.iter().filter(move |flow| flow.1.contains(&side));
        let weights = |side: usize| &controller.queue_plan(side as u32).unwrap().weights;
        let used_by_queue = |side: usize| {
            let mut used: BTreeMap<u16, f64> = BTreeMap::new();
            here(side).for_each(|flow| *used.entry(queue_of(flow.0, side)).or_default() += flow.2);
            used
        };
        let has_weighted_part = |side: usize| {
            let (used, own) = (used_by_queue(side), queue_of(app, side));
            let total: f64 = used.keys().map(|&queue| weights(side)[usize::from(queue)]).sum();
            used[&own] >= weights(side)[usize::from(own)] / total - TOLERANCE
        };
        prop_assert!(sides.into_iter().any(has_weighted_part), "{app} {sides:?} at {rate}: {flows:?}");
        if !is_unique {
            continue;
        }
        let is_bottleneck = |side: usize| {
            let (used, own) = (used_by_queue(side), queue_of(app, side));
            let by_weight = |queue: u16| used[&queue] / weights(side)[usize::from(queue)];
            used.values().sum::<f64>() >= 1.0 - TOLERANCE
                && here(side).all(|flow| queue_of(flow.0, side) != own || flow.2 <= rate + TOLERANCE)
                && used
                    .keys()
                    .all(|&queue| by_weight(queue) <= by_weight(own) * (1.0 + TOLERANCE) + TOLERANCE * 10.0)
        };
        prop_assert!(sides.into_iter().any(is_bottleneck), "{app} {sides:?} at {rate}: {flows:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(config_with_cases(300))]

    /// Weighted hierarchical max-min, with the queues and weights of the controller at each side.
    #[test]
    fn every_flow_has_a_bottleneck_in_its_queue(case in cases_between(STAR_ENDS.to_vec())) {
        run_to_completion(case.engine(), |engine| check_rates(engine, &case, true))?;
    }

    /// Around a loop of links, rates need not be unique. Over long chains of bottlenecks, the bounds of the tree may not meet.
    #[test]
    fn every_queue_gets_its_part_by_weight_at_a_side_of_each_flow(case in any_case()) {
        run_to_completion(case.engine(), |engine| {
            crate::capacity::check_rates(engine).map_err(TestCaseError::fail)?;
            check_rates(engine, &case, false)
        })?;
    }

    /// With enough levels and queues, the limits change nothing.
    #[test]
    fn limits_above_the_number_of_applications_change_nothing(case in any_case()) {
        let mut slowdowns = case.slowdowns.clone();
        // Applications with equal models share a level.
        slowdowns.iter_mut().enumerate().for_each(|(app, slowdown)| *slowdown += 0.001 * app as f64);
        let case = Case { slowdowns, ..case };
        let (slowdowns, share) = (case.slowdown_text(), case.share);
        let flows = |limits: &str| {
            let spec = format!("saba:slowdown={slowdowns}:share={share}{limits}");
            live_flows(&engine_with(&spec, case.slowdowns.len(), &case.coflows), &case)
        };
        let without = flows("");
        for limits in [":queues=7", ":levels=6", ":levels=9:queues=8"] {
            prop_assert_eq!(&flows(limits), &without, "{}", limits);
        }
    }
}
