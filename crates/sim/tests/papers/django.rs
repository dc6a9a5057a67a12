//! "Django: Bilateral Coflow Scheduling with Predictive Concurrent Connections", JPDC '21. Fig. 1 shows what scheduling at
//! one end alone costs; Django's own policy counts connections, which nothing here does yet, so the figure's
//! numbers are those of the policies that decide at one end or at both.

use weir_core::model::Workload;

use crate::common::{ccts, check, coflow, mean, workload};

/// Fig. 1 (a): coflows of 1 and 2 bytes from two senders to one receiver.
fn shared_receiver() -> Workload {
    workload(3, vec![coflow(1, 0.0, &[(0, 2, 1.0)]), coflow(2, 0.0, &[(1, 2, 2.0)])])
}

/// Fig. 1 (b): the same from one sender to two receivers.
fn shared_sender() -> Workload {
    workload(3, vec![coflow(1, 0.0, &[(0, 1, 1.0)]), coflow(2, 0.0, &[(0, 2, 2.0)])])
}

#[test]
fn figure_1_sender_driven() {
    // Queues at the senders order what one sender sends. Where two send to one receiver they share it evenly.
    for policy in ["aalo", "aalo:sharing=strict"] {
        check(&shared_receiver(), policy, &[2.0, 3.0]);
        check(&shared_sender(), policy, &[1.0, 3.0]);
    }
    assert_eq!(mean(&ccts(&shared_receiver(), "aalo")), 2.5);
    assert_eq!(mean(&ccts(&shared_sender(), "aalo")), 2.0);
}

#[test]
fn figure_1_nobody_orders() {
    // Receiver-driven scheduling leaves a shared sender to TCP: 2.5, as `fair` has it in both.
    for w in [shared_receiver(), shared_sender()] {
        check(&w, "fair", &[2.0, 3.0]);
        assert_eq!(mean(&ccts(&w, "fair")), 2.5);
    }
}

#[test]
fn figure_1_both_ends_coordinated() {
    // What Django is to reach: 2 in both.
    for w in [shared_receiver(), shared_sender()] {
        for policy in ["pfp", "fifo", "scf", "srtf", "lwtf", "varys", "sincronia", "saath", "aalo:at=both"] {
            check(&w, policy, &[1.0, 3.0]);
        }
    }
}
