//! Chowdhury, Stoica, "Efficient Coflow Scheduling Without Prior Knowledge", SIGCOMM '15.

use weir_sim::NoObserver;

use crate::common::{assert_near, check_ccts, coflow, replay_at_unit_rate, replay_with, workload};

#[test]
fn section_4_1_fifo_inside_a_queue_is_by_arrival() {
    // The order of the trace differs from the order of arrival.
    let w = workload(
        6,
        vec![coflow(3, 2.0, &[(0, 1, 3.0)]), coflow(1, 0.0, &[(0, 2, 3.0)]), coflow(2, 1.0, &[(0, 3, 3.0)])],
    );
    for policy in ["aalo", "aalo:sharing=strict", "aalo:at=both", "aalo:at=both:sharing=strict", "fifo"] {
        check_ccts(&w, policy, &[7.0, 3.0, 5.0]);
    }
}

#[test]
fn section_4_1_queues_share_a_port_by_their_weights() {
    // C1 is in the second queue from 10 on. C2 arrives at 20: the queues share 10 to 9 until C2 completes.
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 1, 100.0)]), coflow(2, 20.0, &[(0, 2, 5.0)])]);
    for at in ["senders", "both"] {
        check_ccts(&w, &format!("aalo:start=10B:at={at}"), &[105.0, 9.5]);
        check_ccts(&w, &format!("aalo:start=10B:sharing=strict:at={at}"), &[105.0, 5.0]);
        // Two queues: 2 to 1.
        check_ccts(&w, &format!("aalo:start=10B:queues=2:at={at}"), &[105.0, 7.5]);
    }
}

#[test]
fn aalo_turns_divide_time_by_queue_weights() {
    // As above with two queues: from 20 on, C2 sends for two seconds, C1 for one.
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 1, 100.0)]), coflow(2, 20.0, &[(0, 2, 5.0)])]);
    for at in ["senders", "both"] {
        check_ccts(&w, &format!("aalo:start=10B:queues=2:sharing=turns:turn=1s:at={at}"), &[105.0, 7.0]);
        // C1's turn is from 10 to 40.
        check_ccts(&w, &format!("aalo:start=10B:queues=2:sharing=turns:turn=30s:at={at}"), &[105.0, 25.0]);
    }
}

/// Regression: a turn does not last one interval longer if its end is before the schedule by a rounding
/// error.
#[test]
fn aalo_turns_of_whole_intervals_have_exact_length() {
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 1, 1000.0)]), coflow(2, 200.0, &[(0, 2, 95.0)])]);
    for at in ["senders", "both"] {
        let policy = format!("aalo:start=100B:sharing=turns:at={at}");
        // 80 ms for C2, then 72 ms for C1, and so on.
        let out = replay_with(&w, &policy, 1.0, 0.008, &mut NoObserver).unwrap();
        assert_near(&out.ccts(), &[1095.0, 180.5], 1e-3, &policy);
    }
}

#[test]
fn section_4_1_queue_depends_on_the_bytes_of_all_flows() {
    // C1 sends 2 bytes a second. It leaves the first queue at 2, when C2 takes priority.
    let w = workload(
        6,
        vec![coflow(1, 0.0, &[(0, 2, 3.0), (1, 3, 3.0)]), coflow(2, 1.0, &[(0, 4, 1.0), (1, 5, 1.0)])],
    );
    for at in ["senders", "both"] {
        check_ccts(&w, &format!("aalo:start=4B:sharing=strict:at={at}"), &[4.0, 2.0]);
    }
}

#[test]
fn section_5_senders_do_not_coordinate_at_a_shared_receiver() {
    // P0 and P1 each serve their first coflow; these share P2. Each sender gives its unused bandwidth to its
    // other coflows.
    let w = workload(
        6,
        vec![coflow(1, 0.0, &[(0, 2, 1.0)]), coflow(2, 0.0, &[(1, 2, 1.0)]), coflow(3, 0.0, &[(0, 3, 2.0)])],
    );
    let out = replay_at_unit_rate(&w, "aalo");
    assert_near(&out.ccts(), &[2.0, 2.0, 3.0], 1e-9, "at=senders");
    // Coordinated: the receiver serves C1 first.
    check_ccts(&w, "aalo:at=both", &[1.0, 2.0, 3.0]);
}
