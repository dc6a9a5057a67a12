//! Tests of flows with a maximum rate: other flows get the capacity that becomes free.

use proptest::prelude::*;
use weir_core::allocation::{CommonRate, IntraQueueSharing};
use weir_core::engine::{Engine, Links};
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, ServiceNames, Slot};
use weir_core::policy::{self, POLICIES};
use weir_core::units::{Bytes, Rate, Time};

use crate::capacity::check_rates;
use crate::common::config_with_cases;

const PORTS: u32 = 4;

fn engine(policy: policy::AnyPolicy, names: &ServiceNames) -> Engine {
    let fabric = Fabric::big_switch(PORTS, Rate::new(1.0).unwrap());
    Engine::new(Links::one_switch(fabric), policy, names).unwrap()
}

fn release(engine: &mut Engine, id: u64, flows: &[(u32, u32, f64)]) -> Slot {
    let flow = |&(src, dst, bytes): &(u32, u32, f64)| FlowSpec::new(src, dst, Bytes::new(bytes).unwrap());
    let spec = CoflowSpec::new(id, Time::ZERO, flows.iter().map(flow).collect());
    engine.release_coflow(&spec, id as usize, 0.0, &mut Vec::new())
}

/// The rates of all flows of these coflows after a schedule.
fn scheduled_rates(engine: &mut Engine, slots: &[Slot]) -> Vec<f64> {
    engine.schedule(0.0).unwrap();
    check_rates(engine).unwrap();
    let engine = &*engine;
    let flows = |&slot: &Slot| {
        let width = engine.network().coflow(slot).width() as u32;
        (0..width).map(move |flow| engine.flow_rate(slot, flow)).collect::<Vec<_>>()
    };
    slots.iter().flat_map(flows).collect()
}

fn are_near(rates: &[f64], expected: &[f64]) -> bool {
    let is_near = |(rate, expected): (&f64, &f64)| (rate - expected).abs() < 1e-9;
    rates.len() == expected.len() && rates.iter().zip(expected).all(is_near)
}

fn assert_near(rates: &[f64], expected: &[f64]) {
    assert!(are_near(rates, expected), "{rates:?}, expected {expected:?}");
}

/// Both ports of the first coflow serve the next one in the policy's order with what the first one does not use.
#[test]
fn freed_capacity_goes_to_the_next_coflow_in_the_order_of_the_policy() {
    for name in ["saath", "fifo", "scf", "varys", "weir", "philae", "sincronia", "gittins"] {
        let mut engine = engine(policy::build(name).unwrap(), &ServiceNames::default());
        let slots = [1.0, 2.0, 3.0].map(|bytes| release(&mut engine, bytes as u64, &[(0, 1, bytes)]));
        let without_limit = scheduled_rates(&mut engine, &slots);
        assert_near(&without_limit, &[1.0, 0.0, 0.0]);
        assert!(engine.set_flow_max_rate(slots[0], 0, Some(0.1)), "{name}");
        assert!(!engine.set_flow_max_rate(slots[0], 0, Some(0.1)), "{name}");
        assert!(engine.has_new_events() && engine.has_max_rates(), "{name}");
        assert_near(&scheduled_rates(&mut engine, &slots), &[0.1, 0.9, 0.0]);
        // The maximum of a flow also limits its part of the rest.
        engine.set_flow_max_rate(slots[1], 0, Some(0.25));
        assert_near(&scheduled_rates(&mut engine, &slots), &[0.1, 0.25, 0.65]);
        engine.set_flow_max_rate(slots[0], 0, None);
        engine.set_flow_max_rate(slots[1], 0, None);
        assert_near(&scheduled_rates(&mut engine, &slots), &without_limit);
    }
}

/// Fair leaves decide no order, so their flows share what a limited flow does not use.
#[test]
fn flows_of_fair_leaves_share_the_freed_capacity() {
    let mut names = ServiceNames::default();
    let other = names.intern("other", "other").unwrap();
    let mut engine = engine(policy::build("netshare").unwrap(), &names);
    let mut release_of = |(service, application), id| {
        let flow = FlowSpec::new(0, 1, Bytes::new(9.0).unwrap());
        let spec = CoflowSpec { service, application, ..CoflowSpec::new(id, Time::ZERO, vec![flow]) };
        engine.release_coflow(&spec, id as usize, 0.0, &mut Vec::new())
    };
    let slots = [release_of((0, 0), 0), release_of(other, 1), release_of(other, 2)];
    assert_near(&scheduled_rates(&mut engine, &slots), &[0.5, 0.25, 0.25]);
    engine.set_flow_max_rate(slots[1], 0, Some(0.05));
    assert_near(&scheduled_rates(&mut engine, &slots), &[0.6, 0.05, 0.35]);
}

/// Queues with a limited flow have no transport, so the bytes of flows move between the transport and the network.
#[test]
fn flows_in_queues_keep_their_progress_when_a_maximum_rate_begins_and_ends() {
    for name in ["aalo", "aalo+"] {
        let mut engine = engine(policy::build(name).unwrap(), &ServiceNames::default());
        let slots = [release(&mut engine, 0, &[(0, 1, 10.0)]), release(&mut engine, 1, &[(2, 3, 10.0)])];
        for (now, max_rate, expected) in [(0.0, None, 0.0), (2.0, Some(0.5), 2.0), (4.0, None, 3.0)] {
            engine.set_flow_max_rate(slots[0], 0, max_rate);
            engine.schedule(now).unwrap();
            assert_near(&[engine.flow_rate(slots[0], 0)], &[max_rate.unwrap_or(1.0)]);
            let sent = slots.map(|slot| engine.sent_bytes(slot, 0, now));
            assert_near(&sent, &[expected, now]);
        }
        assert_near(&[engine.next_completion()], &[10.0]);
        let mut completed = Vec::new();
        engine.complete_flows_until(11.5, &mut completed);
        let ends: Vec<f64> = completed.iter().map(|flow| flow.completed_at).collect();
        assert_near(&ends, &[10.0, 11.0]);
    }
}

/// A slot is used again, and the next coflow in it has no maximum rate.
#[test]
fn maximum_rates_end_with_their_coflow() {
    let mut engine = engine(policy::build("saath").unwrap(), &ServiceNames::default());
    let first = release(&mut engine, 0, &[(0, 1, 1.0)]);
    engine.set_flow_max_rate(first, 0, Some(0.1));
    scheduled_rates(&mut engine, &[first]);
    engine.withdraw_coflow(first, 0.0);
    let next = release(&mut engine, 1, &[(0, 1, 1.0)]);
    assert_eq!((first, engine.flow_max_rate(next, 0)), (next, None));
    assert_near(&scheduled_rates(&mut engine, &[next]), &[1.0]);
}

/// A flow without a maximum rate that could send more: each of its links has residual capacity.
fn underserved_flow(engine: &Engine) -> Option<(Slot, u32)> {
    let network = engine.network();
    let (mut send, mut recv) = ([0.0; PORTS as usize], [0.0; PORTS as usize]);
    let live = || {
        let coflows = network.active_coflows().iter();
        coflows.flat_map(|&slot| network.coflow(slot).live_flows().map(move |flow| (slot, flow)))
    };
    for (slot, flow) in live() {
        let (src, dst) = network.coflow(slot).flow_ports(flow);
        send[src as usize] += engine.flow_rate(slot, flow);
        recv[dst as usize] += engine.flow_rate(slot, flow);
    }
    live().find(|&(slot, flow)| {
        let (src, dst) = network.coflow(slot).flow_ports(flow);
        engine.flow_max_rate(slot, flow).is_none() && send[src as usize].max(recv[dst as usize]) < 1.0 - 1e-6
    })
}

/// The rate that the policy decided for a flow in the last schedule, which was at 0 s. It does not depend on maximum rates.
fn decided_rate(engine: &Engine, slot: Slot, flow: u32) -> f64 {
    let own = engine.allocation().flow_rates().iter().filter(|own| (own.slot, own.flow) == (slot, flow));
    let common = match engine.allocation().common(slot) {
        CommonRate::None => 0.0,
        CommonRate::Equal(rate) => rate,
        CommonRate::CompleteTogether(seconds) => engine.network().remaining_bytes(slot, flow, 0.0) / seconds,
    };
    common + own.map(|own| own.rate).sum::<f64>()
}

proptest! {
    #![proptest_config(config_with_cases(100))]

    /// Under every policy but `fair`: limited flows get their maximum at most, no port exceeds its capacity, and without maximum rates the
    /// rates are those of an engine that never had any. If a decided rate exceeds a maximum, flows without a maximum use the residual
    /// capacity. Otherwise the decision applies unmodified, and a policy such as Saath may leave capacity that a flow could use.
    #[test]
    fn limited_flows_leave_their_capacity_to_others(
        coflows in prop::collection::vec(prop::collection::vec((0..PORTS, 0..PORTS, 1u32..100), 1..5), 1..6),
        limits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0.0f64..1.2), 1..6),
    ) {
        for entry in POLICIES {
            let names = ServiceNames::default();
            let mut engine = engine(policy::build(entry.name).unwrap(), &names);
            let slots: Vec<Slot> = coflows.iter().zip(0..).map(|(flows, id)| {
                let flows: Vec<_> = flows.iter().map(|&(src, dst, bytes)| (src, dst, f64::from(bytes))).collect();
                release(&mut engine, id, &flows)
            }).collect();
            let before = scheduled_rates(&mut engine, &slots);
            let queues = engine.allocation().queue_discipline();
            let has_queues = queues.is_some();
            if queues.is_some_and(|queues| queues.intra_queue == IntraQueueSharing::MaxMin) {
                continue;
            }
            // A maximum above the capacity of ports limits nothing.
            engine.set_flow_max_rate(slots[0], 0, Some(10.0));
            let unlimited = scheduled_rates(&mut engine, &slots);
            prop_assert!(entry.name == "django" || are_near(&unlimited, &before), "{}: {unlimited:?}, expected {before:?}", entry.name);
            engine.set_flow_max_rate(slots[0], 0, None);
            let mut limited = Vec::new();
            for (coflow, flow, max_rate) in &limits {
                let slot = slots[coflow.index(slots.len())];
                let flow = flow.index(engine.network().coflow(slot).width()) as u32;
                engine.set_flow_max_rate(slot, flow, Some(*max_rate));
                limited.push((slot, flow));
                scheduled_rates(&mut engine, &slots);
            }
            for &(slot, flow) in &limited {
                let (rate, max_rate) = (engine.flow_rate(slot, flow), engine.flow_max_rate(slot, flow).unwrap());
                prop_assert!(rate <= max_rate + 1e-9, "{}: {rate} of at most {max_rate}", entry.name);
            }
            // A later maximum of the same flow replaces an earlier one.
            let is_exceeded = |&(slot, flow): &(Slot, u32)| {
                decided_rate(&engine, slot, flow) > engine.flow_max_rate(slot, flow).unwrap() + 1e-6
            };
            if has_queues || limited.iter().any(is_exceeded) {
                prop_assert_eq!(underserved_flow(&engine), None, "{}", entry.name);
            }
            for &(slot, flow) in &limited {
                engine.set_flow_max_rate(slot, flow, None);
            }
            prop_assert!(!engine.has_max_rates());
            let after = scheduled_rates(&mut engine, &slots);
            // Receivers open more connections at each schedule under `django`.
            prop_assert!(entry.name == "django" || are_near(&after, &before), "{}: {after:?}, expected {before:?}", entry.name);
        }
    }
}
