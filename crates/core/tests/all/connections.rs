//! Steady-state rates of open connections, against their definition.

use crate::common::config_with_cases;
use crate::steady_state::{self, Division, Flows, Link};
use proptest::prelude::*;
use weir_core::solve::connections::{Connection, ConnectionSolver};
use weir_core::solve::wfq::Source;

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

/// Checks rates against the definition: senders serve ranks in strict order, and receivers share between all connections.
fn check_definition(send: &[f64], recv: &[f64], open: &[Connection], rates: &[f64]) -> Result<(), String> {
    let links = send.iter().chain(recv).map(|&capacity| Link { capacity, division: Division::Strict });
    let flows = open.iter().zip(rates).map(|(connection, &rate)| Flows {
        path: vec![
            (connection.src as usize, connection.rank as usize),
            (send.len() + connection.dst as usize, 0),
        ],
        count: 1.0,
        source: Source::Elastic,
        rate,
    });
    steady_state::check(&links.collect::<Vec<_>>(), &flows.collect::<Vec<_>>(), 1e-9)
}

proptest! {
    #![proptest_config(config_with_cases(10_000))]

    #[test]
    fn connection_rates_are_a_steady_state(
        send in prop::collection::vec(prop_oneof![Just(1.0), 0.1..2.0f64], 3),
        recv in prop::collection::vec(prop_oneof![Just(1.0), 0.1..2.0f64], 3),
        ends in prop::collection::vec((0u32..3, 0u32..3, 0u32..4), 0..9),
    ) {
        let open: Vec<Connection> = ends.iter().map(|&(src, dst, rank)| connection(src, dst, rank)).collect();
        check_definition(&send, &recv, &open, &compute_rates(&send, &recv, &open)).map_err(TestCaseError::fail)?;
    }
}
