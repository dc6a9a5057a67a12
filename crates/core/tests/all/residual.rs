//! Residual capacity during the construction of a schedule.

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::engine::{Engine, Links};
use weir_core::model::{
    CoflowSpec, Fabric, FlowSpec, FlowState, ServiceNames, Slot, TopologyTemplate, Trunks,
};
use weir_core::policy::build;
use weir_core::solve::ResidualCapacity;
use weir_core::units::{Bytes, Rate, Time};

const PORTS: u32 = 70;

/// A change of a flow, and the residual capacities of some links afterwards.
#[derive(Debug, Clone)]
struct Step {
    slot: usize,
    flow: u32,
    change: u8,
    residuals: Vec<(usize, u8)>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let residuals = prop::collection::vec((0..4 * PORTS as usize, 0..4u8), 0..6);
    let step = (0..3usize, 0..40u32, 0..5u8, residuals).prop_map(|(slot, flow, change, residuals)| Step {
        slot,
        flow,
        change,
        residuals,
    });
    prop::collection::vec(step, 1..40)
}

fn change_flow(engine: &mut Engine, slot: Slot, step: &Step) {
    let flow = step.flow % engine.network().coflow(slot).width() as u32;
    match (step.change, engine.network().coflow(slot).flow_state(flow)) {
        (0, _) => engine.close_flow(slot, flow, 1.0, 0.0),
        (1, FlowState::Live) => assert!(engine.set_flow_waiting(slot, flow, 0.0)),
        (1, FlowState::Waiting) => assert_eq!(engine.set_flow_live(slot, flow, 8.0, 0.0), FlowState::Live),
        _ => {}
    }
}

/// The flows that get a rate, and the rates: by searches that repeat earlier ones, or by a visit of every live flow.
fn fill(
    residual: &mut ResidualCapacity,
    residuals: &[f64],
    engine: &Engine,
    searches: bool,
) -> Vec<(Slot, u32, f64)> {
    let mut rates = Vec::new();
    residual.set_residuals(engine.network().fabric(), residuals);
    for &slot in engine.network().active_coflows() {
        let coflow = engine.network().coflow(slot);
        let add = |flow, rate| rates.push((slot, flow, rate));
        if searches {
            residual.fill_flows(coflow, add);
        } else {
            residual.fill_limited_flows(coflow, |_| f64::INFINITY, add);
        }
    }
    rates
}

/// Links of one switch, or of leaves and spines with as many hosts.
fn links(spines: Option<u32>) -> Links {
    let rate = Rate::new(4.0).unwrap();
    let fabric = Fabric::big_switch(PORTS, rate);
    let Some(spines) = spines else { return Links::one_switch(fabric) };
    let template =
        TopologyTemplate::LeafSpine { spines, leaves: 7, hosts: PORTS / 7, rate, oversubscription: 2.5 };
    let trunks = Trunks::new(template.build().unwrap(), 1).unwrap();
    Links { trunks: Some(trunks), ..Links::one_switch(fabric) }
}

proptest! {
    #![proptest_config(config_with_cases(200))]

    #[test]
    fn searches_find_the_flows_that_a_visit_of_every_flow_finds(
        spines in prop::option::of(1..5u32),
        flows in prop::collection::vec(prop::collection::vec((0..PORTS, 0..PORTS), 1..40), 3),
        steps in steps(),
    ) {
        let mut engine = Engine::new(links(spines), build("fifo").unwrap(), &ServiceNames::default()).unwrap();
        let mut slots = Vec::new();
        for (id, flows) in (0..).zip(&flows) {
            let flow = |&(src, dst): &(u32, u32)| FlowSpec::new(src, dst, Bytes::new(8.0).unwrap());
            let spec = CoflowSpec::new(id, Time::new(0.0).unwrap(), flows.iter().map(flow).collect());
            slots.push(engine.release_coflow(&spec, id as usize, 0.0, &mut Vec::new()));
        }
        let (mut searched, mut visited) = (ResidualCapacity::default(), ResidualCapacity::default());
        let mut residuals = vec![2.0; engine.network().fabric().links()];
        for step in steps {
            change_flow(&mut engine, slots[step.slot], &step);
            for &(link, residual) in &step.residuals {
                let link = link % residuals.len();
                residuals[link] = f64::from(residual);
            }
            prop_assert_eq!(
                fill(&mut searched, &residuals, &engine, true),
                fill(&mut visited, &residuals, &engine, false)
            );
        }
    }
}
