//! What happens at once under each policy, and what waits for the next multiple of the interval.

use crate::common::{assert_near, coflow, is_near, replay_with, workload};
use crate::tree::{assign_services, tree_of_two_services};
use weir_core::policy::{Reaction, all, build};
use weir_sim::{NoObserver, Outcome, replay};

/// The default interval, in seconds.
const INTERVAL: f64 = 8e-3;
const GBIT: f64 = 1.25e8;

fn with_interval(all: &weir_core::model::Workload, policy: &str, rate: f64) -> Outcome {
    replay_with(all, policy, rate, INTERVAL, &mut NoObserver)
        .unwrap_or_else(|error| panic!("{policy}: {error}"))
}

/// Policies on one switch, and `saath` as its hosts can react.
fn policies() -> Vec<String> {
    let on_one_switch = all().map(|entry| entry.name).filter(|name| !["siphon", "mrtf"].contains(name));
    on_one_switch.map(str::to_owned).chain(["saath:local=on".to_owned()]).collect()
}

#[test]
fn tcp_does_not_wait_for_a_schedule() {
    let all = workload(
        4,
        vec![
            coflow(1, 0.0, &[(0, 3, 20e3)]),
            coflow(2, 100e-6, &[(1, 3, 1500e3)]),
            coflow(3, 110e-6, &[(2, 3, 20e3)]),
        ],
    );
    for policy in ["fair", "netshare"] {
        let ccts = with_interval(&all, policy, 100.0 * GBIT).ccts();
        assert_near(&ccts, &[1.6e-6, 121.6e-6, 3.2e-6], 1e-14, policy);
    }
}

#[test]
fn a_flow_uses_the_capacity_of_a_completed_one_at_once() {
    let all = workload(2, vec![coflow(1, 0.0, &[(0, 1, 1.1e6)]), coflow(2, 0.0, &[(0, 1, 2.3e6)])]);
    assert_near(&with_interval(&all, "fair", GBIT).ccts(), &[17.6e-3, 27.2e-3], 1e-12, "fair");
}

#[test]
fn flows_start_when_their_policy_says() {
    // The link is idle: the flow takes 4 ms from its start on.
    let all = workload(2, vec![coflow(1, 1e-3, &[(0, 1, 5e5)])]);
    for policy in policies() {
        let starts_at = match build(&policy).unwrap().timing().start {
            Reaction::AtOnce => 1e-3,
            Reaction::AtInterval => INTERVAL,
        };
        let ends_at = with_interval(&all, &policy, GBIT).coflows[0].end;
        assert_near(&[ends_at], &[starts_at + 4e-3], 1e-9, &policy);
    }
}

#[test]
fn capacity_is_used_again_when_the_policy_says() {
    // Each flow takes 4 ms alone. Flows that share the link complete together. New coflows of `weir` use the capacity of each other.
    let all = workload(2, vec![coflow(1, 0.0, &[(0, 1, 5e5)]), coflow(2, 0.0, &[(0, 1, 5e5)])]);
    for policy in policies().into_iter().filter(|policy| policy != "django") {
        let ends = with_interval(&all, &policy, GBIT).ccts();
        let timing = build(&policy).unwrap().timing();
        let last = match timing.completion {
            Reaction::AtInterval if !timing.hosts_serve_between_schedules() => INTERVAL + 4e-3,
            Reaction::AtInterval | Reaction::AtOnce => 8e-3,
        };
        assert!(
            is_near(ends[0].max(ends[1]), last, 1e-9),
            "{policy}: found {ends:?}, expected the last at {last}"
        );
    }
}

#[test]
fn open_connections_of_django_use_capacity_at_once() {
    // Both connections share the receiver until the smaller flow ends after 4 ms.
    let all = workload(3, vec![coflow(1, 0.0, &[(0, 2, 5e5), (1, 2, 2.5e5)])]);
    assert_near(&with_interval(&all, "django", GBIT).ccts(), &[6e-3], 1e-9, "django");
}

#[test]
fn aalo_changes_queues_at_the_interval() {
    // The first coflow reaches the threshold of its queue (3 ms of the link) after 3 ms. The second one, which comes after 4 ms,
    // then waits in the same queue until the schedule at 8 ms.
    let all = workload(3, vec![coflow(1, 0.0, &[(0, 1, 2e6)]), coflow(2, 4e-3, &[(0, 2, 2.5e5)])]);
    let ends = |policy: &str| {
        with_interval(&all, policy, GBIT).coflows.iter().map(|coflow| coflow.end).collect::<Vec<_>>()
    };
    assert_near(&ends("aalo:start=375kB:sharing=strict"), &[18e-3, 10e-3], 1e-9, "aalo");
}

#[test]
fn leaves_of_a_tree_react_by_their_own_policies() {
    // Each service has its own links. `saath` waits for the schedule, `fair` does not.
    let coflows = vec![coflow(1, 1e-3, &[(0, 1, 5e5)]), coflow(2, 1e-3, &[(2, 3, 5e5)])];
    let all = assign_services(workload(4, coflows), &[0, 1]);
    let options = crate::common::options(GBIT, INTERVAL);
    let outcome = replay(&all, tree_of_two_services("saath", "fair"), &options, &mut NoObserver).unwrap();
    assert_near(&outcome.ccts(), &[7e-3 + 4e-3, 4e-3], 1e-9, "tree");
}

#[test]
fn leaf_that_waits_keeps_its_rates_while_another_leaf_takes_free_capacity() {
    // Both services send from port 0, with weights 2:1. At 0 ms, `saath` alone sends at the full rate. The flow of `fair`
    // that starts at 1 ms gets capacity with the schedule at 8 ms, and then the rest when the other one completes.
    let coflows = vec![coflow(1, 0.0, &[(0, 1, 2e6)]), coflow(2, 1e-3, &[(0, 2, 5e5)])];
    let all = assign_services(workload(3, coflows), &[0, 1]);
    let options = crate::common::options(GBIT, INTERVAL);
    let outcome = replay(&all, tree_of_two_services("saath", "fair"), &options, &mut NoObserver).unwrap();
    // From 8 ms on a third of the link carries 0.5 MB in 12 ms; the other flow has sent 1 MB + 1 MB by 20 ms.
    let ends: Vec<f64> = outcome.coflows.iter().map(|coflow| coflow.end).collect();
    assert_near(&ends, &[20e-3, 20e-3], 1e-9, "tree");
}
