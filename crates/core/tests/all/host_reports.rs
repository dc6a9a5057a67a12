//! The engine as live hosts drive it: reported bytes and completions are authoritative, not the computed
//! schedule.

use crate::capacity::check_rates;
use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_core::engine::{Engine, Links};
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, FlowState, ServiceNames, Slot};
use weir_core::policy::{POLICIES, build};
use weir_core::units::{Bytes, Rate, Time};

const PORTS: u32 = 4;

#[derive(Debug, Clone)]
enum Step {
    /// Registers a coflow of flows: source, destination and bytes.
    Register(Vec<(u32, u32, u32)>),
    /// Adds a flow to the n-th active coflow, or changes the ports of one.
    ReplaceFlows(usize, (u32, u32, u32), bool),
    /// The n-th coflow's n-th flow has sent this fraction of its bytes.
    SetSentBytes(usize, usize, f64),
    /// The n-th coflow's n-th flow has completed.
    CloseFlow(usize, usize),
    /// Withdraws the n-th coflow.
    Withdraw(usize),
    /// Advances the time and schedules.
    Schedule(f64),
}

fn any_flow() -> impl Strategy<Value = (u32, u32, u32)> {
    (0..PORTS, 0..PORTS, 1..50u32)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec(any_flow(), 1..6).prop_map(Step::Register),
        1 => (any::<usize>(), any_flow(), any::<bool>()).prop_map(|(c, f, more)| Step::ReplaceFlows(c, f, more)),
        4 => (any::<usize>(), any::<usize>(), 0.0..1.3).prop_map(|(c, f, part)| Step::SetSentBytes(c, f, part)),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(c, f)| Step::CloseFlow(c, f)),
        1 => any::<usize>().prop_map(Step::Withdraw),
        6 => (0.0..1.0).prop_map(Step::Schedule),
    ]
}

fn coflow_spec(id: u64, flows: &[(u32, u32, u32)]) -> CoflowSpec {
    let flow =
        |&(src, dst, bytes): &(u32, u32, u32)| FlowSpec::new(src, dst, Bytes::new(f64::from(bytes)).unwrap());
    CoflowSpec::new(id, Time::ZERO, flows.iter().map(flow).collect())
}

/// Applies reports, corrections and withdrawals in any order under a policy. Checks that reported values are
/// stored, no port exceeds its capacity, and no state leaks.
fn run_steps(policy: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    let fabric = Fabric::big_switch(PORTS, Rate::new(10.0).unwrap());
    let mut engine =
        Engine::new(Links::one_switch(fabric), build(policy).unwrap(), &ServiceNames::default()).unwrap();
    let (mut now, mut next) = (0.0, 0);
    let mut flows: BTreeMap<Slot, Vec<(u32, u32, u32)>> = BTreeMap::new();
    let mut ended = Vec::new();
    for step in steps {
        let active = engine.network().active_coflows().to_vec();
        let slot = |n: usize| (!active.is_empty()).then(|| active[n % active.len()]);
        let flow = |slot: Slot, n: usize| (n % engine.network().coflow(slot).width()) as u32;
        match step {
            Step::Register(list) => {
                next += 1;
                let slot = engine.release_coflow(&coflow_spec(next, list), 0, now, &mut ended);
                flows.insert(slot, list.clone());
            }
            Step::ReplaceFlows(c, one, more) => {
                let Some(slot) = slot(*c) else { continue };
                let coflow = engine.network().coflow(slot);
                let (id, seq) = (coflow.id, coflow.seq);
                let mut before = BTreeMap::new();
                for flow in 0..coflow.width() as u32 {
                    let known = (engine.sent_bytes(slot, flow, now), coflow.flow_state(flow));
                    before.insert(coflow.spec_index(flow), known);
                }
                let list = flows.get_mut(&slot).unwrap();
                let place = if *more { list.len() } else { 0 };
                let same = list.get(place).is_some_and(|f| (f.0, f.1) == (one.0, one.1));
                list.splice(place..list.len().min(place + 1), [*one]);
                engine.replace_flows(slot, &coflow_spec(id, list), now);
                let coflow = engine.network().coflow(slot);
                prop_assert_eq!((coflow.id, coflow.seq), (id, seq));
                for flow in 0..coflow.width() as u32 {
                    let original = coflow.spec_index(flow);
                    let sent = engine.sent_bytes(slot, flow, now);
                    if original as usize == place && !same {
                        prop_assert_eq!((sent, coflow.flow_state(flow)), (0.0, FlowState::Live));
                    } else if original as usize != place {
                        let (bytes, state) = before[&original];
                        prop_assert!((sent - bytes).abs() < 1e-9 * bytes.max(1.0), "{} {}", sent, bytes);
                        prop_assert_eq!(coflow.flow_state(flow), state);
                    }
                }
            }
            Step::SetSentBytes(c, f, part) => {
                let Some(slot) = slot(*c) else { continue };
                let flow = flow(slot, *f);
                let coflow = engine.network().coflow(slot);
                if coflow.flow_state(flow) == FlowState::Completed {
                    continue;
                }
                let size = f64::from(flows[&slot][coflow.spec_index(flow) as usize].2);
                engine.set_flow_sent_bytes(slot, flow, size * part, now);
                let known = engine.sent_bytes(slot, flow, now);
                let bytes = if *part < 1.0 { size * part } else { size - 1.0 };
                prop_assert!((known - bytes).abs() < 1e-9, "{} {}", known, bytes);
                prop_assert_eq!(engine.network().coflow(slot).flow_state(flow), FlowState::Live);
            }
            Step::CloseFlow(c, f) => {
                let Some(slot) = slot(*c) else { continue };
                let flow = flow(slot, *f);
                let was_done = engine.network().coflow(slot).flow_state(flow) == FlowState::Completed;
                engine.close_flow(slot, flow, 0.75, now);
                let coflow = engine.network().coflow(slot);
                prop_assert_eq!(coflow.flow_state(flow), FlowState::Completed);
                prop_assert!(was_done || engine.sent_bytes(slot, flow, now) == 0.75);
                if coflow.completed_count() == coflow.width() {
                    engine.remove_coflow(slot, now);
                }
            }
            Step::Withdraw(c) => {
                let Some(slot) = slot(*c) else { continue };
                engine.withdraw_coflow(slot, now);
                prop_assert!(!engine.network().active_coflows().contains(&slot));
            }
            Step::Schedule(time) => {
                now += time;
                engine.correct_overdue_flows(0.5, now);
                engine.schedule(now).unwrap();
                let wake = engine.next_wakeup(now).unwrap();
                prop_assert!(!wake.is_nan());
                if let Err(e) = check_rates(&engine) {
                    prop_assert!(false, "{}: {}", policy, e);
                }
            }
        }
    }
    for slot in engine.network().active_coflows().to_vec() {
        engine.withdraw_coflow(slot, now);
    }
    engine.schedule(now + 1.0).unwrap();
    prop_assert!(engine.network().active_coflows().is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(crate::common::config_with_cases(100))]

    #[test]
    fn engine_state_equals_host_reports_under_every_policy(steps in prop::collection::vec(any_step(), 1..60)) {
        for entry in POLICIES {
            run_steps(entry.name, &steps)?;
        }
    }
}
