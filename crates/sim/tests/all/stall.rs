//! Replays in which some coflows cannot complete.

use crate::common::{
    POLICIES, assert_near, coflow, leaf_spine, options, options_over, time, timed_event, workload,
};
use weir_core::model::{PortSide, Trunks, Workload, WorkloadChange};
use weir_core::policy;
use weir_sim::lower_bound::LowerBounds;
use weir_sim::{NoObserver, Outcome, ReplayOptions, replay_until_stalled};

fn replay_all(all: &Workload, policy: &str, options: &ReplayOptions) -> Outcome {
    let built = policy::build(policy).unwrap();
    replay_until_stalled(all, built, options, &mut NoObserver).unwrap_or_else(|e| panic!("{policy}: {e}"))
}

/// Port 1 fails at 1 s and is not repaired. Coflow 2 has sent a byte to it then; coflow 3 waits for coflow 2.
fn failing_host() -> Workload {
    let mut all = workload(
        5,
        vec![
            coflow(1, 0.0, &[(2, 3, 4.0)]),
            coflow(2, 0.0, &[(0, 1, 3.0)]),
            coflow(3, 0.0, &[(2, 3, 7.0), (3, 2, 1.0)]),
            coflow(4, 5.0, &[(4, 3, 2.0)]),
        ],
    );
    all.coflows[2].parents = vec![1];
    (all.coflows[0].job, all.coflows[1].job, all.coflows[3].job) = (Some(7), Some(8), Some(8));
    let fails = WorkloadChange::PortRate { port: 1, side: PortSide::Both, factor: 0.0 };
    all.events = vec![timed_event(1.0, fails)];
    all
}

#[test]
fn stalled_replay_has_the_completed_coflows_and_the_links_of_the_others() {
    let all = failing_host();
    for policy in POLICIES {
        let outcome = replay_all(&all, policy, &options(1.0, 0.0));
        let completed: Vec<u64> = outcome.coflows.iter().map(|coflow| coflow.id).collect();
        assert_eq!(completed, [1, 4], "{policy}");
        assert_near(&outcome.ccts(), &[4.0, 2.0], 1e-9, policy);
        assert!(outcome.coflow(1).is_none() && outcome.coflow(3).is_some_and(|coflow| coflow.id == 4));
        // Job 8 has a coflow that stalls.
        assert_eq!(outcome.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [7], "{policy}");
        let stall = outcome.stall.as_ref().unwrap();
        assert_near(&[stall.time, outcome.makespan], &[7.0, 7.0], 1e-9, policy);
        let [second, third] = &stall.coflows[..] else { panic!("{policy}: {stall}") };
        assert_eq!((second.id, &second.links[..]), (2, &["port 1 (receiving)".to_owned()][..]), "{policy}");
        assert_eq!((third.id, &third.links[..], &third.parents[..]), (3, &[][..], &[2][..]), "{policy}");
        assert_near(&[second.remaining_bytes, third.remaining_bytes], &[2.0, 8.0], 1e-9, policy);
        // Ports carried what was sent: port 0 one byte of 7, port 2 four, port 3 six.
        assert_near(&outcome.send_utilization, &[1.0 / 7.0, 0.0, 4.0 / 7.0, 0.0, 2.0 / 7.0], 1e-9, policy);
        assert_near(&outcome.recv_utilization, &[0.0, 1.0 / 7.0, 0.0, 6.0 / 7.0, 0.0], 1e-9, policy);
        // Port 1 was full until it failed.
        let used = outcome.link_use.as_ref().unwrap();
        for (part, &utilization) in used.recv[1].iter().enumerate() {
            let expected = if part as f64 * used.part_seconds < 1.0 { 1.0 } else { 0.0 };
            assert_near(&[utilization], &[expected], 1e-9, policy);
        }
        assert_eq!(LowerBounds::new(&all, &options(1.0, 0.0)).check(&outcome), Ok(()), "{policy}");
    }
}

#[test]
fn message_lists_stalled_coflows_with_their_links() {
    let outcome = replay_all(&failing_host(), "saath", &options(1.0, 0.0));
    assert_eq!(
        outcome.stall.unwrap().to_string(),
        "no flow can send after 7s; help: check that links recover\n  \
         coflow 2: 2B left; without capacity: port 1 (receiving)\n  coflow 3: 8B left; waits for coflow 2"
    );
}

#[test]
fn flow_with_late_data_to_a_failed_host_stalls() {
    let mut all = failing_host();
    all.coflows[3].flows[0].dst = 1;
    all.coflows[3].flows[0].data_delay = time(0.5);
    for policy in POLICIES {
        let outcome = replay_all(&all, policy, &options(1.0, 0.0));
        assert_near(&outcome.ccts(), &[4.0], 1e-9, policy);
        let stalled: Vec<u64> = outcome.stall.unwrap().coflows.iter().map(|coflow| coflow.id).collect();
        assert_eq!(stalled, [2, 3, 4], "{policy}");
    }
}

#[test]
fn trunks_carry_what_stalled_flows_have_sent() {
    // Host 0 of leaf 0 sends to host 2 of leaf 1, which fails after a byte.
    let trunks = Trunks::new(leaf_spine(1, 2, 2, 1.0), 0).unwrap();
    let mut all = workload(4, vec![coflow(1, 0.0, &[(0, 2, 3.0)]), coflow(2, 0.0, &[(1, 3, 2.0)])]);
    let fails = WorkloadChange::PortRate { port: 2, side: PortSide::Receive, factor: 0.0 };
    all.events = vec![timed_event(1.0, fails)];
    for policy in ["fair", "saath", "varys", "weir"] {
        let outcome = replay_all(&all, policy, &options_over(&trunks, 0.0));
        assert_near(&outcome.ccts(), &[2.0], 1e-9, policy);
        // Three bytes on the uplink of two hosts and on a downlink, in two seconds.
        let mut used = outcome.trunk_utilization;
        used.sort_by(f64::total_cmp);
        assert_near(&used, &[0.0, 0.0, 0.75, 0.75], 1e-9, policy);
    }
}
