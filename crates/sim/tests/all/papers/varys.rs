//! Chowdhury, Zhong, Stoica, "Efficient Coflow Scheduling with Varys", SIGCOMM '14.

use weir_core::model::{PortSide, WorkloadChange};
use weir_sim::outcome::DeadlineOutcome;

use crate::common::{assert_near, check_ccts, coflow, replay_at_unit_rate, time, timed_event, workload};

#[test]
fn section_5_1_smallest_effective_bottleneck_first() {
    // C1 has fewer bytes, but all at one port; C2's bottleneck duration is smaller.
    let w = workload(6, vec![coflow(1, 0.0, &[(0, 2, 3.0)]), coflow(2, 0.0, &[(0, 3, 2.0), (1, 4, 2.0)])]);
    check_ccts(&w, "varys", &[5.0, 2.0]);
    check_ccts(&w, "scf", &[3.0, 5.0]);
}

#[test]
fn section_5_1_order_uses_remaining_bytes() {
    // At 4, C1 has 1 left, and C2 arrives with 2.
    let w = workload(3, vec![coflow(1, 0.0, &[(0, 1, 5.0)]), coflow(2, 4.0, &[(0, 2, 2.0)])]);
    check_ccts(&w, "varys", &[5.0, 3.0]);
    // At 1, C1 has 4 left.
    let w = workload(3, vec![coflow(1, 0.0, &[(0, 1, 5.0)]), coflow(2, 1.0, &[(0, 2, 2.0)])]);
    check_ccts(&w, "varys", &[7.0, 2.0]);
}

#[test]
fn section_5_2_madd_ends_all_flows_together() {
    // P0 sends 4, so the flow of 2 from P1 needs half its port. C2 gets the other half, and ends at 2.
    let w = workload(
        6,
        vec![coflow(1, 0.0, &[(0, 2, 3.0), (0, 3, 1.0), (1, 4, 2.0)]), coflow(2, 0.0, &[(1, 5, 5.0)])],
    );
    let out = replay_at_unit_rate(&w, "varys");
    assert_near(&out.coflows[0].flow_ends, &[4.0, 4.0, 4.0], 1e-9, "C1");
    // 2 of its 5 bytes by 4, and the rest alone.
    assert_near(&out.ccts(), &[4.0, 7.0], 1e-9, "varys");
}

#[test]
fn section_5_3_backfilling_leaves_no_port_idle() {
    // P0 is not available to C2, but its other flow can send.
    let w = workload(6, vec![coflow(1, 0.0, &[(0, 2, 1.0)]), coflow(2, 0.0, &[(0, 3, 2.0), (1, 4, 2.0)])]);
    let out = replay_at_unit_rate(&w, "varys");
    assert_near(&out.coflows[1].flow_ends, &[3.0, 2.0], 1e-9, "C2");
}

#[test]
fn section_5_4_admitted_coflows_end_at_their_deadlines() {
    let workload_with_deadlines = |coflows: &[(u64, f64, f64, Option<f64>)]| {
        let coflows = coflows.iter().map(|&(id, arrival, size, deadline)| {
            let mut c = coflow(id, arrival, &[(0, id as u32, size)]);
            c.deadline = deadline.map(time);
            c
        });
        workload(8, coflows.collect())
    };
    let policy = "varys:deadlines=on";
    // C1 takes half the port for its deadline; C2, without one, has the other half.
    let two = [(1, 0.0, 4.0, Some(8.0)), (2, 0.0, 4.0, None)];
    check_ccts(&workload_with_deadlines(&two), policy, &[8.0, 8.0]);
    // C3 is not admitted: it does not affect the others, and ends after them.
    let rejected = [two[0], two[1], (3, 0.0, 2.0, Some(2.0))];
    check_ccts(&workload_with_deadlines(&rejected), policy, &[8.0, 8.0, 10.0]);
    let deadlines: Vec<_> = replay_at_unit_rate(&workload_with_deadlines(&rejected), policy)
        .coflows
        .iter()
        .map(|c| c.deadline)
        .collect();
    assert_eq!(deadlines, [Some(DeadlineOutcome::Met), None, Some(DeadlineOutcome::Rejected)]);
    // C4 just fits, and meets its deadline. C2 gets no bandwidth meanwhile.
    let admitted = [two[0], two[1], (4, 0.0, 2.0, Some(4.0))];
    check_ccts(&workload_with_deadlines(&admitted), policy, &[8.0, 10.0, 4.0]);
    // C5 arrives later: 1.5 bytes in 3 seconds fit.
    let later = [two[0], two[1], (5, 1.0, 1.5, Some(3.0))];
    check_ccts(&workload_with_deadlines(&later), policy, &[8.0, 9.5, 3.0]);
    // Without the deadline mode, deadlines are ignored.
    check_ccts(&workload_with_deadlines(&rejected), "varys", &[6.0, 10.0, 2.0]);
}

#[test]
fn section_5_4_a_slow_port_makes_an_admitted_coflow_late() {
    let mut w = workload(2, vec![coflow(1, 0.0, &[(0, 1, 4.0)]), coflow(2, 0.0, &[(0, 1, 8.0)])]);
    w.coflows[0].deadline = Some(time(8.0));
    // At 7, half a byte is left, and the port rate falls to a quarter: 2 more seconds.
    w.events =
        vec![timed_event(7.0, WorkloadChange::PortRate { port: 0, side: PortSide::Send, factor: 0.25 })];
    let out = replay_at_unit_rate(&w, "varys:deadlines=on");
    assert_near(&[out.coflows[0].cct()], &[9.0], 1e-9, "late");
    assert_eq!(out.coflows[0].deadline, Some(DeadlineOutcome::Missed));
}
