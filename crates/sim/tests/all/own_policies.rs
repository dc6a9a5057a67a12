//! Policies of other crates: what a replay returns for each invalid decision, and the building blocks of such a policy.

use proptest::prelude::*;
use weir_core::allocation::{
    Allocation, CommonRate, InterQueueSharing, IntraQueueSharing, QueueDiscipline, ReceiverMode,
};
use weir_core::model::{Knowledge, SizesEstimated, SizesKnown, SizesUnknown, Slot, Trunks, View, Workload};
use weir_core::policy::{
    AnyPolicy, CoflowOrder, InvalidDecision, OrderedPolicy, POLICIES, Policy, Thresholds, TrunkSupport, build,
};
use weir_core::units::Bytes;
use weir_sim::{NoObserver, ReplayError, ReplayOptions, replay};

use crate::common::{
    WorkloadFeatures, any_workload, assert_near, cases, coflow, is_near, leaf_spine, options, options_over,
    workload,
};

/// The rate of a port, in bytes per second.
const RATE: f64 = 125e6;

/// A policy whose decisions and wake-ups are functions.
struct Scripted<K: Knowledge> {
    schedule: fn(&mut View<'_, K>, &mut Allocation),
    next_wakeup: fn(f64) -> f64,
    trunk_support: TrunkSupport,
}

impl<K: Knowledge> Scripted<K> {
    fn new(schedule: fn(&mut View<'_, K>, &mut Allocation)) -> Scripted<K> {
        Scripted { schedule, next_wakeup: |_| f64::INFINITY, trunk_support: TrunkSupport::Decides }
    }
}

impl<K: Knowledge> Policy for Scripted<K> {
    type Knowledge = K;

    fn trunk_support(&self) -> TrunkSupport {
        self.trunk_support
    }

    fn schedule(&mut self, view: &mut View<'_, K>, out: &mut Allocation) {
        (self.schedule)(view, out);
    }

    fn next_wakeup(&mut self, view: &mut View<'_, K>, _: &Allocation) -> f64 {
        (self.next_wakeup)(view.now())
    }
}

/// Coflow 7 of two flows from port 2, which the simulator numbers as port 0, released after 500 ms.
fn two_flows() -> Workload {
    workload(4, vec![coflow(7, 0.5, &[(2, 3, 25e6), (2, 1, 25e6)])])
}

fn error_over(workload: &Workload, policy: AnyPolicy, options: &ReplayOptions) -> String {
    let error = replay(workload, policy.checked("wrong"), options, &mut NoObserver).unwrap_err();
    assert!(matches!(error, ReplayError::Policy { .. }), "{error}");
    error.to_string()
}

/// The error of a replay of [`two_flows`].
fn error_of(policy: AnyPolicy) -> String {
    error_over(&two_flows(), policy, &options(RATE, 0.0))
}

/// The error of a policy without knowledge of sizes.
fn error_without_sizes(schedule: fn(&mut View<'_, SizesUnknown>, &mut Allocation)) -> String {
    error_of(AnyPolicy::from(Scripted::new(schedule)))
}

/// The error of a policy that knows sizes.
fn error_with_sizes(schedule: fn(&mut View<'_, SizesKnown>, &mut Allocation)) -> String {
    error_of(AnyPolicy::from(Scripted::new(schedule)))
}

/// The error of a policy without rates that sets these queues, and this class of each coflow.
fn error_with_queues(schedule: fn(&mut View<'_, SizesUnknown>, &mut Allocation)) -> String {
    let scripted = Scripted { trunk_support: TrunkSupport::Transport, ..Scripted::new(schedule) };
    error_of(AnyPolicy::from(scripted))
}

fn queues(weights: &[f64]) -> QueueDiscipline {
    QueueDiscipline {
        inter_queue: InterQueueSharing::Weighted(weights.to_vec()),
        intra_queue: IntraQueueSharing::MaxMin,
        receiver_mode: ReceiverMode::Transport,
    }
}

#[test]
fn equal_rates_with_known_sizes_are_an_error() {
    let expected = "policy `wrong` at 500ms: coflow 7: equal rates, although the policy uses sizes; expected \
                    `CommonRate::CompleteTogether`";
    assert_eq!(
        error_with_sizes(|view, out| out.set_common(view.active_coflows()[0], CommonRate::Equal(1.0))),
        expected
    );
    let estimated = Scripted::<SizesEstimated>::new(|view, out| {
        out.set_common(view.active_coflows()[0], CommonRate::Equal(1.0));
    });
    assert_eq!(error_of(AnyPolicy::from(estimated)), expected);
}

#[test]
fn rates_by_size_without_sizes_are_an_error() {
    let error = error_without_sizes(|view, out| {
        out.set_common(view.active_coflows()[0], CommonRate::CompleteTogether(1.0));
    });
    let expected = "policy `wrong` at 500ms: coflow 7: rates at which the flows complete together, although the policy does \
                    not use sizes; expected `CommonRate::Equal`";
    assert_eq!(error, expected);
}

#[test]
fn rate_set_twice_is_an_error() {
    let error = error_without_sizes(|view, out| {
        let slot = view.active_coflows()[0];
        [0, 1, 0].into_iter().for_each(|flow| out.add_flow_rate(slot, flow, 1.0));
    });
    let expected = "policy `wrong` at 500ms: coflow 7, port 2 (sending), port 3 (receiving): two rates for one flow; expected \
                    one call of `Allocation::add_flow_rate`";
    assert_eq!(error, expected);
}

#[test]
fn rates_above_the_capacity_of_a_port_are_an_error() {
    let expected = "policy `wrong` at 500ms: coflow 7, port 2 (sending): the rates on the link sum to 2Gbit; expected at most \
                    its capacity of 1Gbit";
    let equal =
        error_without_sizes(|view, out| out.set_common(view.active_coflows()[0], CommonRate::Equal(RATE)));
    assert_eq!(equal, expected);
    // 50 MB in 200 ms.
    let together = error_with_sizes(|view, out| {
        out.set_common(view.active_coflows()[0], CommonRate::CompleteTogether(0.2));
    });
    assert_eq!(together, expected);
    let own = error_with_sizes(|view, out| {
        let slot = view.active_coflows()[0];
        [0, 1].into_iter().for_each(|flow| out.add_flow_rate(slot, flow, RATE));
    });
    assert_eq!(own, expected);
}

#[test]
fn error_names_the_coflow_with_the_highest_rate_on_the_link() {
    let all = workload(3, vec![coflow(4, 0.0, &[(0, 2, 1e9)]), coflow(5, 0.0, &[(1, 2, 1e9)])]);
    let scripted = Scripted::<SizesUnknown>::new(|view, out| {
        for (&slot, gbits) in view.active_coflows().iter().zip([0.5, 0.75]) {
            out.add_flow_rate(slot, 0, gbits * RATE);
        }
    });
    let error = error_over(&all, AnyPolicy::from(scripted), &options(RATE, 0.0));
    let expected = "policy `wrong` at 0s: coflow 5, port 2 (receiving): the rates on the link sum to 1.25Gbit; expected at most \
                    its capacity of 1Gbit";
    assert_eq!(error, expected);
}

#[test]
fn rates_above_the_capacity_of_a_trunk_are_an_error() {
    // Two hosts a leaf, and one link of 1 B/s from each leaf to the spine.
    let trunks = Trunks::new(leaf_spine(1, 2, 2, 2.0), 1).unwrap();
    let all = workload(4, vec![coflow(7, 0.0, &[(0, 2, 1.0), (1, 3, 1.0)])]);
    let scripted = Scripted::<SizesUnknown>::new(|view, out| {
        out.set_common(view.active_coflows()[0], CommonRate::Equal(0.75));
    });
    let error = error_over(&all, AnyPolicy::from(scripted), &options_over(&trunks, 0.0));
    let expected = "policy `wrong` at 0s: coflow 7, leaf0 -> spine0: the rates on the link sum to 12bit; expected at most its \
                    capacity of 8bit";
    assert_eq!(error, expected);
}

#[test]
fn rate_within_rounding_of_the_capacity_is_valid() {
    let scripted = Scripted::<SizesUnknown>::new(|view, out| {
        out.set_common(view.active_coflows()[0], CommonRate::Equal(RATE / 2.0 * (1.0 + 1e-10)));
    });
    let policy = AnyPolicy::from(scripted).checked("right");
    let outcome = replay(&two_flows(), policy, &options(RATE, 0.0), &mut NoObserver).unwrap();
    assert_near(&outcome.ccts(), &[0.4], 1e-9, "two flows at half of a port's rate");
}

#[test]
fn rates_of_single_flows_that_are_not_above_0_are_an_error() {
    let negative = error_without_sizes(|view, out| out.add_flow_rate(view.active_coflows()[0], 0, -1.0));
    let nan = error_without_sizes(|view, out| out.add_flow_rate(view.active_coflows()[0], 0, f64::NAN));
    for (error, rate) in [(negative, "-1 B/s"), (nan, "NaN B/s")] {
        let expected = format!(
            "policy `wrong` at 500ms: coflow 7, port 2 (sending), port 3 (receiving): the rate of a flow is {rate}; expected a \
             rate above 0"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn negative_common_rates_are_an_error() {
    let negative =
        error_without_sizes(|view, out| out.set_common(view.active_coflows()[0], CommonRate::Equal(-1.0)));
    let expected = "policy `wrong` at 500ms: coflow 7: equal rates of -1 B/s; expected rates of at least 0";
    assert_eq!(negative, expected);
    let nan = error_with_sizes(|view, out| {
        out.set_common(view.active_coflows()[0], CommonRate::CompleteTogether(f64::NAN));
    });
    let expected =
        "policy `wrong` at 500ms: coflow 7: the flows complete together after NaN s; expected a time above 0";
    assert_eq!(nan, expected);
}

#[test]
fn wakeup_that_is_not_in_the_future_is_an_error() {
    let wakeups: [fn(f64) -> f64; 3] = [|now| now, |now| now / 2.0, |_| f64::NAN];
    for (next_wakeup, time) in wakeups.into_iter().zip(["500ms", "250ms", "NaN s"]) {
        let valid = |view: &mut View<'_, SizesUnknown>, out: &mut Allocation| {
            out.set_common(view.active_coflows()[0], CommonRate::Equal(1.0));
        };
        let scripted = Scripted { next_wakeup, ..Scripted::new(valid) };
        let expected = format!(
            "policy `wrong` at 500ms: a wake-up at {time}; expected a later time, or an infinite one for none"
        );
        assert_eq!(error_of(AnyPolicy::from(scripted)), expected);
    }
}

#[test]
fn rates_of_flows_that_are_not_live_are_an_error() {
    let error = error_without_sizes(|view, out| out.add_flow_rate(view.active_coflows()[0], 2, 1.0));
    let expected = "policy `wrong` at 500ms: coflow 7: a rate for flow 2, which is not live; expected one of `Coflow::live_flows`";
    assert_eq!(error, expected);
}

#[test]
fn decisions_about_vacant_slots_are_an_error() {
    let expected = "policy `wrong` at 500ms: a decision about slot 9, which holds no coflow; expected one of \
                    `View::active_coflows`";
    assert_eq!(error_without_sizes(|_, out| out.set_common(9, CommonRate::Equal(1.0))), expected);
    assert_eq!(error_without_sizes(|_, out| out.add_flow_rate(9, 0, 1.0)), expected);
}

#[test]
fn completion_times_of_outgrown_estimates_are_an_error() {
    let scripted = Scripted::<SizesEstimated>::new(|view, out| {
        let slot = view.active_coflows()[0];
        // Not above the bytes that the flow has sent.
        view.set_estimates(slot, |_, _, sent| sent);
        out.set_common(slot, CommonRate::CompleteTogether(1.0));
    });
    let expected = "policy `wrong` at 500ms: coflow 7: a flow has sent its whole estimated size; expected a higher estimate by \
                    `View::raise_estimates`";
    assert_eq!(error_of(AnyPolicy::from(scripted)), expected);
}

#[test]
fn invalid_queues_are_an_error() {
    let undeclared = error_without_sizes(|_, out| out.set_queue_discipline(queues(&[1.0])));
    let expected = "policy `wrong` at 500ms: queues, although `Policy::trunk_support` is Decides; expected \
                    `TrunkSupport::Transport`, or rates";
    assert_eq!(undeclared, expected);
    let expected = "policy `wrong` at 500ms: queues without a valid weight each; expected 1 to 65536 queues, and weights above 0";
    assert_eq!(error_with_queues(|_, out| out.set_queue_discipline(queues(&[1.0, f64::NAN]))), expected);
    assert_eq!(error_with_queues(|_, out| out.set_queue_discipline(queues(&[]))), expected);
    let class = error_with_queues(|view, out| {
        out.set_queue_discipline(queues(&[1.0, 1.0]));
        out.set_class(view.active_coflows()[0], 2);
    });
    assert_eq!(
        class,
        "policy `wrong` at 500ms: coflow 7: queue 2; expected a queue below 2, the number of queues"
    );
    let rates = error_with_queues(|view, out| {
        out.set_queue_discipline(queues(&[1.0]));
        out.set_common(view.active_coflows()[0], CommonRate::Equal(1.0));
    });
    let expected = "policy `wrong` at 500ms: coflow 7: a rate, although the policy leaves rates to queues; expected rates or \
                    queues";
    assert_eq!(rates, expected);
}

#[test]
fn queues_that_change_are_an_error() {
    let scripted = Scripted::<SizesUnknown> {
        next_wakeup: |now| now + 0.1,
        trunk_support: TrunkSupport::Transport,
        ..Scripted::new(|view, out| {
            out.set_queue_discipline(queues(&[1.0, 1.0][..if view.now() > 0.5 { 2 } else { 1 }]));
        })
    };
    let expected = "policy `wrong` at 600ms: other queues than at the first schedule; expected equal queues at every schedule";
    assert_eq!(error_of(AnyPolicy::from(scripted)), expected);
}

/// Queues by total bytes sent, with checks of the totals and of the wake-ups.
struct CheckedQueues {
    thresholds: Thresholds,
    /// By slot: the coflow's number in the order of release, and its queue at the last schedule.
    queues: Vec<(u64, usize)>,
}

impl CoflowOrder for CheckedQueues {
    fn prepare(&mut self, view: &View<'_, SizesKnown>) {
        self.queues.resize(view.slots(), (u64::MAX, 0));
        for &slot in view.active_coflows() {
            let (coflow, sent) = (view.coflow(slot), view.total_sent_bytes(slot));
            let sum: f64 = (0..coflow.width() as u32).map(|flow| view.sent_bytes(slot, flow)).sum();
            assert!(is_near(sent, sum, 1e-9), "coflow {}: {sent} in total, {sum} by flow", coflow.id);
            let (seq, queue) = self.queues[slot as usize];
            if seq == coflow.seq && queue + 1 < self.thresholds.queue_count() {
                // Ports carry 1 byte/s, and a wake-up is at most 1 us late.
                let ports = view.fabric().ports() as f64;
                let latest = self.thresholds.upper_threshold(queue) + 1e-6 * ports + 1e-9;
                assert!(sent <= latest, "coflow {}: {sent} in queue {queue}", coflow.id);
            }
            self.queues[slot as usize] = (coflow.seq, self.queue(slot, view));
        }
    }

    fn queue(&self, slot: Slot, view: &View<'_, SizesKnown>) -> usize {
        self.thresholds.queue_by_sent_bytes(view.total_sent_bytes(slot))
    }

    fn next_wakeup(&mut self, view: &View<'_, SizesKnown>) -> f64 {
        self.thresholds.next_queue_change(view)
    }
}

proptest! {
    #![proptest_config(cases(100))]

    /// Ports keep their rate, which bounds the bytes that a coflow sends until a late wake-up.
    #[test]
    fn totals_equal_the_sums_of_flows_and_queues_change_in_time(
        w in any_workload(WorkloadFeatures { port_changes: false, ..WorkloadFeatures::ALL }),
    ) {
        let thresholds = Thresholds::new(Bytes::new(1.5).unwrap(), 2.0, 4);
        let order = CheckedQueues { thresholds, queues: Vec::new() };
        let policy = AnyPolicy::from(OrderedPolicy::new(order)).checked("queues");
        replay(&w, policy, &options(1.0, 0.0), &mut NoObserver).unwrap();
    }

    /// The check accepts the allocations of Weir's policies, and changes none. Some of these policies return the present time as the time
    /// of a wake-up, which the simulator moves by an interval.
    #[test]
    fn decisions_of_all_policies_are_valid(
        w in any_workload(WorkloadFeatures::ALL),
        interval in prop::sample::select(vec![0.0, 0.7]),
    ) {
        for entry in POLICIES {
            let policy = build(entry.name).unwrap();
            let plain = replay(&w, policy, &options(1.0, interval), &mut NoObserver).unwrap();
            let checked = build(entry.name).unwrap().checked(entry.name);
            let checked = replay(&w, checked, &options(1.0, interval), &mut NoObserver);
            match checked {
                Ok(checked) => prop_assert_eq!(plain.ccts(), checked.ccts(), "{}", entry.name),
                Err(ReplayError::Policy { error, .. }) if matches!(error.reason, InvalidDecision::Wakeup(_)) => {}
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
    }
}
