//! Coflows with a maximum transfer time, and computing in parallel with flows.

use crate::common::{
    POLICIES, assert_near, coflow, leaf_spine, options_over, replay_at_unit_rate, replay_with,
    replay_with_options, time, workload,
};
use weir_core::model::{CoflowSpec, Trunks};
use weir_sim::NoObserver;

fn limited(seconds: f64, coflow: CoflowSpec) -> CoflowSpec {
    CoflowSpec { max_transfer_time: Some(time(seconds)), ..coflow }
}

#[test]
fn flows_end_at_the_limit_and_their_remaining_bytes_are_dropped() {
    // Both coflows use port 0 from 1 s on. The first has more bytes than it can send until 4 s.
    let all =
        workload(3, vec![limited(4.0, coflow(1, 0.0, &[(0, 1, 10.0)])), coflow(2, 1.0, &[(0, 2, 6.0)])]);
    for policy in POLICIES {
        let outcome = replay_at_unit_rate(&all, policy);
        let [first, second] = &outcome.coflows[..] else { panic!("two coflows") };
        assert_near(&[first.end], &[4.0], 1e-9, policy);
        // The port is busy until the last bytes, those of the second coflow or of the first.
        let carried = 10.0 - first.dropped_bytes + 6.0;
        assert_near(&[second.end.max(4.0)], &[carried], 1e-9, policy);
        assert_near(&outcome.send_utilization, &[1.0, 0.0, 0.0], 1e-9, policy);
        assert_eq!(second.dropped_bytes, 0.0, "{policy}");
    }
}

#[test]
fn limit_does_not_wait_for_the_interval_and_starts_at_the_release() {
    let all = workload(2, vec![limited(4.0, coflow(1, 3.0, &[(0, 1, 10.0)]))]);
    for policy in ["fair", "saath"] {
        let outcome = replay_with(&all, policy, 1.0, 3.0, &mut NoObserver).unwrap();
        assert_eq!((outcome.coflows[0].released_at, outcome.coflows[0].end), (3.0, 7.0), "{policy}");
        assert_eq!(outcome.coflows[0].dropped_bytes, 6.0, "{policy}");
    }
}

#[test]
fn reached_limit_ends_flows_that_wait_for_data_and_spares_completed_coflows() {
    let mut waiting = limited(4.0, coflow(1, 0.0, &[(0, 1, 1.0), (0, 1, 2.0)]));
    waiting.flows[1].data_delay = time(5.0);
    let all = workload(2, vec![waiting, limited(4.0, coflow(2, 0.0, &[(1, 0, 2.0)]))]);
    // All-or-none without work conservation sends nothing before all data exists.
    for policy in POLICIES.iter().filter(|policy| !policy.contains("work-conservation=off")) {
        let outcome = replay_at_unit_rate(&all, policy);
        assert_near(&outcome.ccts(), &[4.0, 2.0], 1e-9, policy);
        let dropped: Vec<f64> = outcome.coflows.iter().map(|coflow| coflow.dropped_bytes).collect();
        assert_near(&dropped, &[2.0, 0.0], 1e-9, policy);
    }
}

#[test]
fn trunks_do_not_carry_dropped_bytes() {
    let trunks = Trunks::new(leaf_spine(1, 2, 1, 2.0), 0).unwrap();
    let all = workload(2, vec![limited(4.0, coflow(1, 0.0, &[(0, 1, 10.0)]))]);
    for policy in ["fair", "saath", "varys"] {
        let outcome = replay_with_options(&all, policy, &options_over(&trunks, 0.0));
        // The uplink of half a byte per second is full, and carries 2 bytes.
        assert_near(&[outcome.coflows[0].dropped_bytes], &[8.0], 1e-9, policy);
        let used: Vec<f64> = outcome.trunk_utilization.iter().copied().filter(|used| *used > 0.0).collect();
        assert_near(&used, &[1.0, 1.0], 1e-9, policy);
        assert_near(&outcome.send_utilization, &[0.5, 0.0], 1e-9, policy);
    }
}

#[test]
fn children_and_jobs_wait_for_overlapped_computing() {
    // Computes 5 s during its flow of 2 s, then 1 s; its child computes 3 s during its flow of 4 s.
    let parent = CoflowSpec {
        overlapped_compute: time(5.0),
        compute_after: time(1.0),
        job: Some(1),
        ..coflow(1, 0.0, &[(0, 1, 2.0)])
    };
    let child = CoflowSpec {
        overlapped_compute: time(3.0),
        parents: vec![0],
        job: Some(1),
        ..coflow(2, 0.0, &[(0, 1, 4.0)])
    };
    let outcome = replay_at_unit_rate(&workload(2, vec![parent, child]), "saath");
    assert_near(&outcome.ccts(), &[2.0, 4.0], 1e-9, "completion times");
    assert_eq!((outcome.coflows[1].released_at, outcome.jobs[0].end), (6.0, 10.0));
}

#[test]
fn merged_stages_keep_the_latest_limit_and_computing() {
    let part = |id, arrival, limit: Option<f64>, overlapped| CoflowSpec {
        job: Some(1),
        max_transfer_time: limit.map(time),
        overlapped_compute: time(overlapped),
        ..coflow(id, arrival, &[(0, 1, 1.0)])
    };
    let merged =
        |other| workload(2, vec![part(1, 1.0, Some(4.0), 6.0), other]).merge_stages().coflows.remove(0);
    let both = merged(part(2, 3.0, Some(3.0), 2.0));
    assert_eq!((both.max_transfer_time, both.overlapped_compute), (Some(time(5.0)), time(6.0)));
    assert_eq!(merged(part(2, 3.0, None, 0.0)).max_transfer_time, None);
}
