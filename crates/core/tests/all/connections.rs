//! Steady-state rates of open connections, against their definition.

use crate::common::config_with_cases;
use proptest::prelude::*;
use weir_core::solve::connections::{Connection, ConnectionSolver};

fn connection(src: u32, dst: u32, rank: u32) -> Connection {
    Connection { src, dst, rank }
}

fn compute_rates(send: &[f64], recv: &[f64], open: &[Connection]) -> Vec<f64> {
    let mut rates = Vec::new();
    ConnectionSolver::default().compute_rates(send, recv, open, &mut rates);
    rates
}

#[test]
fn senders_serve_connections_in_rank_order() {
    let open = [connection(0, 0, 1), connection(0, 1, 0)];
    assert_eq!(compute_rates(&[1.0], &[1.0, 1.0], &open), [0.0, 1.0]);
    // The second connection receives the capacity that the first cannot use.
    assert_eq!(compute_rates(&[1.0], &[1.0, 0.25], &open), [0.75, 0.25]);
}

#[test]
fn receivers_ignore_ranks_and_share_equally() {
    let open = [connection(0, 0, 0), connection(1, 0, 1)];
    assert_eq!(compute_rates(&[1.0, 1.0], &[1.0], &open), [0.5, 0.5]);
    assert_eq!(compute_rates(&[0.2, 1.0], &[1.0], &open), [0.2, 0.8]);
}

#[test]
fn equal_ranks_share_a_sender() {
    let open = [connection(0, 0, 0), connection(0, 1, 0), connection(0, 2, 0)];
    assert_eq!(compute_rates(&[1.2], &[1.0, 1.0, 0.2], &open), [0.5, 0.5, 0.2]);
}

#[test]
fn residual_sender_capacity_goes_to_its_next_rank() {
    // Sender 0 serves receiver 0 first, which it shares with sender 1. Receiver 1 gets the residual capacity
    // of sender 0.
    let open = [connection(0, 0, 0), connection(1, 0, 0), connection(0, 1, 1)];
    assert_eq!(compute_rates(&[1.0, 0.25], &[1.0, 1.0], &open), [0.75, 0.25, 0.25]);
}

/// Regression: each pass of the solver moves only 1e-5 from one connection to the other.
#[test]
fn connection_rates_are_exact_if_receiver_slightly_exceeds_sender() {
    let open = [connection(0, 0, 0), connection(0, 0, 1)];
    let found = compute_rates(&[1.0], &[1.0 + 1e-5], &open);
    assert!((found[0] - 1.0).abs() < 1e-9 && found[1] < 1e-9, "{found:?}");
}

#[test]
fn connections_on_a_zero_capacity_port_have_rate_zero() {
    let open = [connection(0, 0, 0), connection(1, 0, 0), connection(1, 1, 1)];
    assert_eq!(compute_rates(&[0.0, 1.0], &[1.0, 0.0], &open), [0.0, 1.0, 0.0]);
}

#[test]
fn connection_to_a_far_slower_receiver_keeps_its_rate() {
    assert_eq!(compute_rates(&[1.0], &[1e-10], &[connection(0, 0, 0)]), [1e-10]);
}

/// Checks that each connection has a bottleneck. Either its receiver is full and no connection there is
/// faster, or its sender is full with connections of higher or equal rank, and none of equal rank is faster.
fn check_bottlenecks(
    send: &[f64],
    recv: &[f64],
    open: &[Connection],
    rates: &[f64],
) -> Result<(), TestCaseError> {
    const NEAR: f64 = 1e-6;
    let sum = |here: &dyn Fn(&Connection) -> bool| -> f64 {
        open.iter().zip(rates).filter(|(c, _)| here(c)).map(|(_, rate)| rate).sum()
    };
    for (port, &capacity) in send.iter().enumerate() {
        prop_assert!(sum(&|c| c.src as usize == port) <= capacity * (1.0 + 1e-9), "sender {port}: {rates:?}");
    }
    for (port, &capacity) in recv.iter().enumerate() {
        prop_assert!(
            sum(&|c| c.dst as usize == port) <= capacity * (1.0 + 1e-9),
            "receiver {port}: {rates:?}"
        );
    }
    for (own, &rate) in open.iter().zip(rates) {
        prop_assert!(rate >= 0.0);
        let fastest = |here: &dyn Fn(&Connection) -> bool| {
            open.iter().zip(rates).filter(|(c, _)| here(c)).all(|(_, &other)| rate >= other - NEAR)
        };
        let received = sum(&|c| c.dst == own.dst);
        let by_receiver = received >= recv[own.dst as usize] - NEAR && fastest(&|c| c.dst == own.dst);
        let before = sum(&|c| c.src == own.src && c.rank <= own.rank);
        let by_sender =
            before >= send[own.src as usize] - NEAR && fastest(&|c| (c.src, c.rank) == (own.src, own.rank));
        prop_assert!(by_receiver || by_sender, "{own:?} at {rate}: {open:?} {rates:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(config_with_cases(2000))]

    #[test]
    fn every_open_connection_has_a_bottleneck(
        send in prop::collection::vec(prop_oneof![Just(1.0), 0.1..2.0f64], 5),
        recv in prop::collection::vec(prop_oneof![Just(1.0), 0.1..2.0f64], 5),
        ends in prop::collection::vec((0u32..5, 0u32..5, 0u32..4), 0..24),
    ) {
        let open: Vec<Connection> = ends.iter().map(|&(src, dst, rank)| connection(src, dst, rank)).collect();
        check_bottlenecks(&send, &recv, &open, &compute_rates(&send, &recv, &open))?;
    }
}
