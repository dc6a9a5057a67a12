//! "Django: Bilateral Coflow Scheduling with Predictive Concurrent Connections", JPDC '21.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_core::model::{FlowState, PortSide, Workload, WorkloadChange};
use weir_sim::{Observer, Snapshot};

use crate::common::{
    CapacityChecker, WorkloadFeatures, any_workload, cases, check_ccts, coflow, mean, replay_ccts,
    replay_with, timed_event, with_any_reducers, with_reducers, workload,
};

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
    // Queues at the senders order the flows of one sender. Two senders to one receiver share it evenly.
    for policy in ["aalo", "aalo:sharing=strict", "aalo+:start=1.5B", "aalo+:start=1.5B:sharing=strict"] {
        check_ccts(&shared_receiver(), policy, &[2.0, 3.0]);
    }
    for policy in ["aalo", "aalo:sharing=strict", "aalo+", "aalo+:start=1.5B:sharing=strict"] {
        check_ccts(&shared_sender(), policy, &[1.0, 3.0]);
    }
    assert_eq!(mean(&replay_ccts(&shared_receiver(), "aalo")), 2.5);
    assert_eq!(mean(&replay_ccts(&shared_sender(), "aalo")), 2.0);
}

#[test]
fn figure_1_receiver_driven() {
    // A network with queues at receivers mirrors one with queues at senders, with all flows reversed. A
    // shared sender is left to TCP.
    let mirror = |mut w: Workload| {
        for flow in w.coflows.iter_mut().flat_map(|c| &mut c.flows) {
            (flow.src, flow.dst) = (flow.dst, flow.src);
        }
        w
    };
    for policy in ["aalo", "aalo:sharing=strict"] {
        check_ccts(&mirror(shared_receiver()), policy, &[1.0, 3.0]);
        check_ccts(&mirror(shared_sender()), policy, &[2.0, 3.0]);
    }
}

#[test]
fn figure_1_fair_sharing_at_both_ends() {
    for w in [shared_receiver(), shared_sender()] {
        check_ccts(&w, "fair", &[2.0, 3.0]);
        assert_eq!(mean(&replay_ccts(&w, "fair")), 2.5);
    }
}

#[test]
fn figure_1_django() {
    // Section 3 discusses both: 2 in each.
    for w in [shared_receiver(), shared_sender()] {
        check_ccts(&w, "django", &[1.0, 3.0]);
    }
}

#[test]
fn figure_1_both_ends_coordinated() {
    for w in [shared_receiver(), shared_sender()] {
        for policy in ["pfp", "fifo", "scf", "srtf", "lwtf", "varys", "sincronia", "saath", "aalo:at=both"] {
            check_ccts(&w, policy, &[1.0, 3.0]);
        }
    }
}

#[test]
fn section_4_2_smaller_coflow_preempts_and_returns_connections() {
    // One connection in total: the second coflow preempts the first and returns the connection at its end.
    let w = workload(3, vec![coflow(1, 0.0, &[(0, 2, 4.0)]), coflow(2, 1.0, &[(1, 2, 1.0)])]);
    check_ccts(&w, "django:connections=1", &[5.0, 1.0]);
    // With two, beta m is one: the connection of the first stays open, and both share the receiver's link.
    check_ccts(&w, "django:connections=2", &[5.0, 2.0]);
}

#[test]
fn section_4_2_reducers_without_priority_use_vacant_bandwidth() {
    // The smaller coflow arrives at half of the receiver's rate, since its sender serves another receiver at
    // the same rate.
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 2, 1.0), (0, 3, 1.0)]), coflow(2, 0.0, &[(1, 2, 4.0)])]);
    // The second schedule has measured the vacancy: half of the link, and alpha is a tenth of it.
    check_ccts(&w, "django", &[2.0, 5.0]);
    check_ccts(&w, "django:alpha=0.6", &[2.0, 6.0]);
    check_ccts(&w, "django:theta=0.4", &[2.0, 5.0]);
    check_ccts(&w, "django:theta=0.5", &[2.0, 6.0]);
}

#[test]
fn section_4_4_prefers_a_sender_that_serves_the_coflow_first() {
    // Sender 0 is idle, but a smaller coflow waits there (its receiver has no free connection). Sender 1 uses
    // a tenth of its link for a larger coflow.
    let others =
        [coflow(1, 0.0, &[(4, 3, 3.0)]), coflow(2, 0.0, &[(0, 3, 3.5)]), coflow(3, 0.0, &[(1, 5, 100.0)])];
    let both = coflow(4, 1.0, &[(0, 2, 10.0), (1, 2, 10.0)]);
    let mut w = workload(6, others.into_iter().chain([both]).collect());
    w.events
        .push(timed_event(0.0, WorkloadChange::PortRate { port: 5, side: PortSide::Receive, factor: 0.1 }));
    assert_eq!(first_sender(&w, "django:connections=1"), 1);
    assert_eq!(first_sender(&w, "django:connections=1:lambda=0.05"), 0);
}

/// The sender of the first connection of receiver 2.
fn first_sender(w: &Workload, policy: &str) -> u32 {
    struct FirstSender(Option<u32>);
    impl Observer for FirstSender {
        fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
            let rated = snapshot.allocation().flow_rates();
            let mut ends = rated.iter().map(|rated| snapshot.coflow(rated.slot).flow_ports(rated.flow));
            let first = ends.find(|&(_, dst)| snapshot.workload_port(dst) == 2);
            self.0 = self.0.or(first.map(|(src, _)| snapshot.workload_port(src)));
            true
        }
    }
    let mut first = FirstSender(None);
    replay_with(w, policy, 1.0, 0.0, &mut first).unwrap();
    first.0.expect("receiver 2 has a connection")
}

/// The times at which the connections of receiver 3 change, and the coflow and flow of each open connection then. Schedules that follow
/// at once are a nanosecond later, so times are rounded to microseconds.
type Connections = Vec<(f64, Vec<(usize, usize)>)>;

fn connections(w: &Workload, policy: &str) -> Connections {
    let mut checker = CapacityChecker::default();
    replay_with(w, policy, 1.0, 0.0, &mut checker).unwrap();
    assert_eq!(checker.violation, None);
    let mut connections = Connections::new();
    for (time, rates) in checker.schedules {
        let sending = rates.iter().filter(|&&(.., rate)| rate > 0.0).map(|&(coflow, flow, _)| (coflow, flow));
        let mut open: Vec<_> =
            sending.filter(|&(coflow, flow)| w.coflows[coflow].flows[flow].dst == 3).collect();
        open.sort_unstable();
        if !open.is_empty() && connections.last().is_none_or(|(_, last)| *last != open) {
            connections.push(((time * 1e6).round() / 1e6, open));
        }
    }
    connections
}

/// As [`connections`], of a workload with one coflow at receiver 3.
fn connected_flows(w: &Workload, policy: &str) -> Vec<(f64, Vec<usize>)> {
    let flows = |open: Vec<(usize, usize)>| open.into_iter().map(|(_, flow)| flow).collect();
    connections(w, policy).into_iter().map(|(time, open)| (time, flows(open))).collect()
}

/// Sets the sending rates of ports from the start on.
fn slow_senders(w: &mut Workload, ports: &[u32], factor: f64) {
    w.events.extend(
        ports
            .iter()
            .map(|&port| timed_event(0.0, WorkloadChange::PortRate { port, side: PortSide::Send, factor })),
    );
}

#[test]
fn algorithm_2_line_1_reducer_with_fewest_remaining_bytes_of_a_coflow_is_first() {
    let flows = [(0, 3, 4.0), (1, 3, 4.0), (2, 3, 3.0)];
    let w = workload(4, vec![coflow(1, 0.0, &flows)]);
    // As one reducer: the flow with the most remaining bytes first (Algorithm 3, line 10; here also between equal senders).
    let as_one = connected_flows(&w, "django:connections=2");
    assert_eq!(as_one, [(0.0, vec![0]), (4.0, vec![1]), (8.0, vec![2])]);
    // Of two reducers, the one with 3 bytes is before the one with 8.
    let as_two = connected_flows(&with_reducers(w, &[vec![0, 0, 1]]), "django:connections=2");
    assert_eq!(as_two, [(0.0, vec![2]), (3.0, vec![0]), (7.0, vec![1])]);
}

#[test]
fn algorithm_2_line_1_coflow_size_is_the_first_keyword_and_reducer_size_the_second() {
    let first = coflow(1, 0.0, &[(0, 3, 3.0), (1, 3, 2.0)]);
    // The smallest reducer at the host is that of a larger coflow.
    let second = coflow(2, 0.0, &[(2, 3, 1.0), (2, 4, 5.0)]);
    let w = with_reducers(workload(5, vec![first, second]), &[vec![0, 1], vec![0, 0]]);
    let opened = connections(&w, "django:connections=1");
    assert_eq!(opened, [(0.0, vec![(0, 1)]), (2.0, vec![(0, 0)]), (5.0, vec![(1, 0)])]);
}

#[test]
fn algorithm_2_line_1_equal_reducers_of_a_coflow_follow_their_numbers() {
    let w = workload(4, vec![coflow(1, 0.0, &[(0, 3, 2.0), (1, 3, 2.0)])]);
    let w = with_reducers(w, &[vec![7, 3]]);
    let opened = connected_flows(&w, "django:connections=1");
    assert_eq!(opened, [(0.0, vec![1]), (2.0, vec![0])]);
}

#[test]
fn algorithm_2_lines_4_to_6_give_connections_to_another_reducer_of_the_prioritized_coflow() {
    let mut w = workload(4, vec![coflow(1, 0.0, &[(0, 3, 4.25), (1, 3, 4.0), (2, 3, 1.0)])]);
    slow_senders(&mut w, &[0, 1, 2], 0.25);
    // As one reducer, the coflow has floor(beta m) = 2 connections.
    let as_one = connected_flows(&w, "django:connections=4");
    assert_eq!(as_one, [(0.0, vec![0, 1]), (16.0, vec![0, 2]), (17.0, vec![2])]);
    // As two: the first reducer has one flow. The other one gets a connection in the next schedule (0 connections are at most
    // eta rem = 1.5), and in the one after it (1 is at most eta rem = 1).
    let as_two = connected_flows(&with_reducers(w, &[vec![0, 0, 1]]), "django:connections=4");
    let at_start = [(0.0, vec![2]), (0.0, vec![0, 2]), (0.0, vec![0, 1, 2])];
    assert_eq!(as_two[..3], at_start);
    assert_eq!(as_two[3..], [(4.0, vec![0, 1]), (16.0, vec![0])]);
}

#[test]
fn algorithm_2_line_10_reducer_preempts_another_one_of_its_coflow() {
    let reducers = coflow(1, 0.0, &[(0, 3, 4.0), (1, 3, 4.5)]);
    // Hosts decide again when this coflow arrives. Then, 3 and 1.5 bytes remain.
    let other = coflow(2, 4.0, &[(2, 4, 1.0)]);
    let mut w = with_reducers(workload(5, vec![reducers, other]), &[vec![0, 1], vec![0]]);
    slow_senders(&mut w, &[0], 0.25);
    let opened = connected_flows(&w, "django:connections=2");
    // The connection of the previously prioritized reducer closes, and the other one then uses the whole link.
    let expected = [(0.0, vec![0]), (0.0, vec![0, 1]), (4.0, vec![1]), (5.5, vec![0])];
    assert_eq!(opened, expected);
}

/// Invariants of Django at every schedule.
struct ConnectionChecker {
    connections: usize,
    interval: f64,
    /// Since when no flow sends although there is data.
    idle_since: Option<f64>,
    broken: Option<String>,
}

impl Observer for ConnectionChecker {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let mut open: BTreeMap<u32, usize> = BTreeMap::new();
        for rated in snapshot.allocation().flow_rates() {
            *open.entry(snapshot.coflow(rated.slot).flow_ports(rated.flow).1).or_default() += 1;
        }
        if let Some((port, count)) = open.iter().find(|(_, count)| **count > self.connections) {
            self.broken = Some(format!("at {}: {count} connections at {port}", snapshot.now()));
        }
        // Theorem 4.2. All links are up.
        let is_live = |&slot: &u32| {
            let coflow = snapshot.coflow(slot);
            (0..coflow.width() as u32).any(|flow| coflow.flow_state(flow) == FlowState::Live)
        };
        if snapshot.active().iter().any(is_live) && open.is_empty() {
            // New connections wait for the next multiple of the interval.
            let since = *self.idle_since.get_or_insert(snapshot.now());
            if snapshot.now() - since >= self.interval {
                self.broken = Some(format!("since {since}: no flow sends"));
            }
        } else {
            self.idle_since = None;
        }
        self.broken.is_none()
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn theorem_4_2_no_deadlock_and_at_most_m_connections(
        w in with_any_reducers(any_workload(WorkloadFeatures {
            port_changes: false,
            ..WorkloadFeatures::ALL.with_distinct_values()
        })),
        connections in 1usize..6,
        interval in prop::sample::select(vec![0.0, 0.7]),
    ) {
        let mut promises = ConnectionChecker { connections, interval, idle_since: None, broken: None };
        let ran = replay_with(&w, &format!("django:connections={connections}"), 1.0, interval, &mut promises);
        prop_assert_eq!(promises.broken, None);
        prop_assert!(ran.is_ok(), "{:?}", ran.err());
    }
}
