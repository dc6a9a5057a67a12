//! Regression tests for errors of earlier coflow simulators, on every policy to which they apply.

use crate::common::{
    POLICIES, assert_near, coflow, replay_at_unit_rate, replay_with, time, timed_event, workload,
};
use weir_core::model::{PortSide, WorkloadChange};
use weir_core::policy::{Reaction, build};
use weir_core::units::Time;
use weir_sim::{NoObserver, Observer, ReplayError, ReplayOptions, Snapshot, replay};
use weir_trace::generate::{Preset, generate};
use weir_trace::{Limits, TraceUnit};

fn starts_at_once(policy: &str) -> bool {
    build(policy).unwrap().timing().start == Reaction::AtOnce
}

#[test]
fn coflows_start_at_the_first_schedule_after_arrival() {
    for policy in POLICIES {
        for (arrival, start) in [(0.0, 0.0), (3.0, 8.0), (8.0, 8.0), (8.5, 16.0), (23.999, 24.0)] {
            let w = workload(2, vec![coflow(1, arrival, &[(0, 1, 1.0)])]);
            let start = if starts_at_once(policy) { arrival } else { start };
            let out = replay_with(&w, policy, 1.0, 8.0, &mut NoObserver).unwrap();
            assert_near(&[out.coflows[0].end], &[start + 1.0], 1e-9, policy);
            // Completion times count from the arrival.
            assert_near(&out.ccts(), &[start + 1.0 - arrival], 1e-9, policy);
            let out = replay_at_unit_rate(&w, policy);
            assert_near(&out.ccts(), &[1.0], 1e-9, policy);
        }
    }
}

#[test]
fn ports_idle_after_a_completion_until_the_policy_reacts() {
    for policy in POLICIES {
        let w = workload(3, vec![coflow(1, 0.0, &[(0, 1, 3.0)]), coflow(2, 0.0, &[(0, 2, 9.0)])]);
        let out = replay_with(&w, policy, 1.0, 8.0, &mut NoObserver).unwrap();
        // One after the other: 0 to 3 and 8 to 17, or 3 to 12. `fair` gives each a half until 6. Both coflows are new under `weir`, so
        // hosts serve the second one.
        let timing = build(policy).unwrap().timing();
        let expected = match timing.completion {
            _ if *policy == "fair" => [6.0, 12.0],
            _ if timing.hosts_serve_between_schedules() => [3.0, 12.0],
            Reaction::AtOnce => [3.0, 12.0],
            Reaction::AtInterval => [3.0, 17.0],
        };
        if !policy.contains("2B") {
            assert_near(&out.ccts(), &expected, 1e-9, policy);
        }
    }
}

#[test]
fn rates_are_recomputed_at_every_flow_completion() {
    // Rates change at flow completions too, not only when a coflow arrives or ends: the end of one flow
    // speeds up the other.
    let w = workload(3, vec![coflow(1, 0.0, &[(0, 1, 1.0), (0, 2, 3.0)])]);
    for policy in POLICIES {
        assert_near(&replay_at_unit_rate(&w, policy).ccts(), &[4.0], 1e-9, policy);
    }
}

#[test]
fn fair_is_max_min() {
    // P4 receives four flows at a quarter each. P0 sends one of them, so its other two flows get 3/8 each,
    // whereas min(1/senders, 1/receivers) gives 1/3.
    let flows = [(0, 4, 1.0), (1, 4, 1.0), (2, 4, 1.0), (3, 4, 1.0), (0, 5, 0.375), (0, 6, 0.75)];
    let coflows = flows.iter().enumerate().map(|(id, &flow)| coflow(id as u64, 0.0, &[flow]));
    let ends = replay_at_unit_rate(&workload(7, coflows.collect()), "fair").ccts();
    assert_near(&ends[4..5], &[1.0], 1e-9, "3/8 until 1");
    // Then 3/4 for the remaining bytes of the last flow.
    assert_near(&ends[5..], &[1.5], 1e-9, "3/4 from 1 on");
}

#[test]
fn coflow_order_uses_arrival_not_trace_position() {
    let w = workload(
        4,
        vec![coflow(1, 2.0, &[(0, 1, 5.0)]), coflow(2, 1.0, &[(0, 2, 5.0)]), coflow(3, 0.0, &[(0, 3, 5.0)])],
    );
    for policy in ["fifo", "saath", "saath:lcof=off", "aalo", "aalo:at=both", "aalo:sharing=strict"] {
        assert_near(&replay_at_unit_rate(&w, policy).ccts(), &[13.0, 9.0, 5.0], 1e-9, policy);
    }
}

/// Records the maximum number of coflows that the network holds at once.
#[derive(Default)]
struct ActiveCoflowCounter {
    max_active: usize,
    slot_count: u32,
}

impl Observer for ActiveCoflowCounter {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        self.max_active = self.max_active.max(snapshot.active().len());
        self.slot_count = self.slot_count.max(snapshot.active().iter().max().map_or(0, |slot| slot + 1));
        true
    }
}

#[test]
fn completed_coflows_are_removed_from_the_network() {
    let coflows = (0..50).map(|i| coflow(i, 2.0 * i as f64, &[(0, 1, 1.0), (1, 0, 0.5)])).collect();
    let w = workload(2, coflows);
    for policy in POLICIES {
        let mut most = ActiveCoflowCounter::default();
        replay_with(&w, policy, 1.0, 0.0, &mut most).unwrap();
        assert_eq!((most.max_active, most.slot_count), (1, 1), "{policy}");
    }
}

#[test]
fn restarted_flow_sends_all_bytes_again() {
    let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 1, 4.0)])]);
    w.events = vec![timed_event(3.0, WorkloadChange::RestartFlow { coflow: 0, flow: 0 })];
    for policy in POLICIES {
        assert_near(&replay_at_unit_rate(&w, policy).ccts(), &[7.0], 1e-9, policy);
        let out = replay_with(&w, policy, 1.0, 0.8, &mut NoObserver).unwrap();
        assert_near(&out.ccts(), &[7.0], 1e-9, policy);
    }
}

#[test]
fn failed_port_stops_its_flows_immediately() {
    for side in [PortSide::Send, PortSide::Both] {
        let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 1, 4.0)])]);
        let rate = |at, factor| timed_event(at, WorkloadChange::PortRate { port: 0, side, factor });
        w.events = vec![rate(1.0, 0.0), rate(3.0, 0.5), rate(5.0, 1.0)];
        for policy in POLICIES {
            // 1, a pause, 1, and then the other 2.
            assert_near(&replay_at_unit_rate(&w, policy).ccts(), &[7.0], 1e-9, policy);
        }
        w.events.truncate(1);
        for policy in POLICIES {
            let failed = replay_with(&w, policy, 1.0, 0.0, &mut NoObserver);
            let Err(ReplayError::Stalled(stall)) = failed else { panic!("{policy}") };
            assert_eq!((stall.coflows.len(), stall.coflows[0].id), (1, 1), "{policy}");
        }
    }
}

#[test]
fn events_apply_on_time_while_a_coflow_waits_for_a_schedule() {
    for policy in POLICIES {
        let mut w = workload(4, vec![coflow(1, 0.0, &[(0, 1, 100.0)]), coflow(2, 3.0, &[(2, 3, 1.0)])]);
        let rate =
            |at, factor| timed_event(at, WorkloadChange::PortRate { port: 0, side: PortSide::Both, factor });
        w.events = vec![rate(5.0, 0.0), rate(25.0, 1.0)];
        let out = replay_with(&w, policy, 1.0, 10.0, &mut NoObserver).unwrap();
        assert_near(&out.ccts()[..1], &[120.0], 1e-9, policy);
    }
}

#[test]
fn late_data_is_available_to_a_simultaneous_schedule() {
    // Multiples of the interval that rounding moves slightly after or before the schedule.
    for k in 1..60 {
        let until = f64::from(8 * k) / 1000.0 + f64::from(k % 3) * 1e-10;
        let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 1, 1.0)])]);
        w.events =
            vec![timed_event(0.001, WorkloadChange::DelayFlow { coflow: 0, flow: 0, until: time(until) })];
        for policy in ["saath", "fair", "varys", "aalo"] {
            let out = replay_with(&w, policy, 1.0, 0.008, &mut NoObserver);
            let end = out.unwrap_or_else(|e| panic!("{policy}, until {until}: {e}")).coflows[0].end;
            // The flow sent for a millisecond before.
            assert_near(&[end], &[until + 0.999], 1e-9, policy);
        }
    }
}

#[test]
fn empty_flow_completes_when_its_data_is_available() {
    // An empty coflow completes at once, without waiting for the next schedule, and releases its dependants
    // then.
    let empty = coflow(1, 0.0, &[(0, 1, 0.0)]);
    let mut w = workload(2, vec![empty.clone(), empty, coflow(3, 0.0, &[(0, 1, 1.0)])]);
    w.coflows[0].flows[0].data_delay = time(1.0);
    (w.coflows[1].id, w.coflows[2].parents) = (2, vec![0, 1]);
    w.events = vec![timed_event(0.0, WorkloadChange::DelayFlow { coflow: 1, flow: 0, until: time(2.5) })];
    for policy in POLICIES {
        let out = replay_with(&w, policy, 1.0, 8.0, &mut NoObserver).unwrap();
        let ends: Vec<f64> = out.coflows.iter().map(|c| c.end).collect();
        let last = if starts_at_once(policy) { 3.5 } else { 9.0 };
        assert_near(&ends, &[1.0, 2.5, last], 1e-9, policy);
        assert_near(&[out.coflows[2].released_at], &[2.5], 1e-9, policy);
    }
}

#[test]
fn data_delay_below_clock_resolution_does_not_block_a_flow() {
    let mut w = workload(2, vec![coflow(1, 1e8, &[(0, 1, 1.0)])]);
    w.coflows[0].flows[0].data_delay = time(1e-9);
    for policy in POLICIES {
        assert_near(&replay_at_unit_rate(&w, policy).ccts(), &[1.0], 1e-6, policy);
    }
}

#[test]
fn data_is_not_available_before_its_release() {
    // The flow is delayed by an event until 3, but its data only exists from 10 on.
    let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 1, 1.0)])]);
    w.coflows[0].flows[0].data_delay = time(10.0);
    let delay_flow =
        |at, until| timed_event(at, WorkloadChange::DelayFlow { coflow: 0, flow: 0, until: time(until) });
    for at in [0.0, 1.0] {
        w.events = vec![delay_flow(at, 3.0)];
        for policy in POLICIES {
            assert_near(&replay_at_unit_rate(&w, policy).ccts(), &[11.0], 1e-9, policy);
        }
    }
    // The first event stays in effect although the second one ends sooner.
    w.events = vec![delay_flow(0.0, 20.0), delay_flow(2.0, 12.0)];
    for policy in POLICIES {
        assert_near(&replay_at_unit_rate(&w, policy).ccts(), &[21.0], 1e-9, policy);
    }
}

#[test]
fn pfp_prefers_a_flow_once_it_has_fewer_bytes_left() {
    // P0 sends at a quarter rate. Its 2 bytes are the shorter flow, and the other 3 get the residual capacity
    // of P0's receiving side. At 2 both have exactly 1.5 left; from then on the second flow is the shorter
    // one.
    let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 0, 2.0)]), coflow(2, 0.0, &[(1, 0, 3.0)])]);
    w.events =
        vec![timed_event(0.0, WorkloadChange::PortRate { port: 0, side: PortSide::Send, factor: 0.25 })];
    assert_near(&replay_at_unit_rate(&w, "pfp").ccts(), &[9.5, 3.5], 1e-6, "pfp");
}

#[test]
fn pfp_reuses_residual_capacity_at_the_other_port_of_a_slow_flow() {
    // P1 sends at a quarter rate. Its flow arrives later and is the shortest, and takes a quarter of P0's
    // receiving rate from the second. The third flow gets the residual sending rate of P0.
    let mut w = workload(
        3,
        vec![coflow(1, 1.0, &[(1, 0, 1.0)]), coflow(2, 0.0, &[(0, 0, 5.0)]), coflow(3, 0.0, &[(0, 2, 6.0)])],
    );
    w.events =
        vec![timed_event(0.0, WorkloadChange::PortRate { port: 1, side: PortSide::Send, factor: 0.25 })];
    // Until 5: 1 + 3 bytes of the second flow, 1 of the third.
    assert_near(&replay_at_unit_rate(&w, "pfp").ccts(), &[4.0, 6.0, 11.0], 1e-9, "pfp");
}

#[test]
fn pfp_gives_residual_capacity_to_the_next_shortest_flow() {
    // P2 sends at half rate. From 1 to 9 the second flow shares P0 with the third, not with the longer
    // fourth.
    let sizes: [(u32, f64); 4] = [(0, 1.0), (2, 4.0), (1, 5.0), (0, 6.0)];
    let coflows = (1..).zip(sizes).map(|(id, (src, bytes))| coflow(id, 0.0, &[(src, 0, bytes)]));
    let mut w = workload(3, coflows.collect());
    w.events =
        vec![timed_event(0.0, WorkloadChange::PortRate { port: 2, side: PortSide::Send, factor: 0.5 })];
    assert_near(&replay_at_unit_rate(&w, "pfp").ccts(), &[1.0, 9.0, 10.0, 16.0], 1e-9, "pfp");
}

#[test]
fn rounding_does_not_prevent_flow_completion() {
    /// Aborts a replay with far more schedules than flow completions.
    struct ScheduleLimit(usize);
    impl Observer for ScheduleLimit {
        fn on_schedule(&mut self, _: &Snapshot<'_>) -> bool {
            self.0 -= 1;
            self.0 > 0
        }
    }
    // Two traces on which a recomputed wake-up time was slightly later than the previous one at every
    // schedule.
    for seed in [3, 6] {
        let spec = Preset::Small.spec(seed);
        let w = generate(&spec, TraceUnit::MB, &Limits::default()).unwrap();
        let options = ReplayOptions { interval: Time::ZERO, ..ReplayOptions::default() };
        let mut patience = ScheduleLimit(4 * w.flow_count());
        let done = replay(&w, build("aalo").unwrap(), &options, &mut patience);
        assert!(done.is_ok(), "seed {seed}: {:?}", done.err());
    }
}

#[test]
fn philae_samples_no_flow_without_bytes() {
    // The pilot goes first. A sample without bytes would end the sampling, and both flows would share the sender.
    let all = workload(4, vec![coflow(1, 0.0, &[(0, 1, 0.0), (0, 2, 4.0), (0, 3, 4.0)])]);
    let found = replay_at_unit_rate(&all, "philae:thin=1");
    assert_near(&found.coflows[0].flow_ends, &[0.0, 4.0, 8.0], 1e-9, "philae");
}

#[test]
fn philae_chooses_pilots_at_the_port_of_a_pilot_without_data() {
    // The first coflow has no data from 1 to 9, so its pilot does not make port 0 busy.
    let first = coflow(1, 0.0, &[(0, 2, 5.0), (0, 2, 5.0)]);
    let second = coflow(2, 2.0, &[(0, 3, 4.0), (1, 3, 4.0)]);
    let mut all = workload(4, vec![first, second]);
    for flow in [0, 1] {
        let late = WorkloadChange::DelayFlow { coflow: 0, flow, until: time(9.0) };
        all.events.push(timed_event(1.0, late));
    }
    let found = replay_at_unit_rate(&all, "philae:thin=1:pilots=0.5");
    assert_near(&found.coflows[1].flow_ends, &[6.0, 10.0], 1e-9, "philae");
}
