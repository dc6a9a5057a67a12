//! Tests the lease state against a simple model: the list of all accepted orders.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::config_with_cases;
use proptest::collection::vec;
use proptest::prelude::*;
use weir_agent::lease::{ApplicationPeer, FlowLimit, LeaseState, RefusalReason};
use weir_core::units::Rate;
use weir_proto::{
    ApplicationTraffic, BandwidthLimit, CounterTotals, FlowKey, Limit, MAX_OBSERVED, Order, OrderedRate,
    Queues, RefusedOrders,
};

const LINKS: [u64; 2] = [1_000_000, 10_000_000];

fn new_lease_state() -> LeaseState {
    LeaseState::new(LINKS.map(|rate| Rate::new(rate as f64).unwrap()).to_vec())
}

fn key(flow: u32) -> FlowKey {
    FlowKey { coflow: "a".into(), generation: 1, flow }
}

fn order(epoch: u64, seq: u64, is_full: bool, flows: &[(u32, OrderedRate)]) -> Order {
    let flows = flows.iter().map(|&(flow, ordered_rate)| (key(flow), ordered_rate)).collect();
    Order { epoch, seq, lease: ms(80), is_full, flows, ..Order::default() }
}

fn queues(weights: &[f64], class: u32) -> Queues {
    let queue_of = (0..weights.len() as u32).collect();
    Queues {
        weights: weights.to_vec(),
        queue_of_class: queue_of,
        class_of_application: vec![("web".into(), class)],
        ..Queues::default()
    }
}

fn limit(to: u8, ordered_rate: OrderedRate) -> Limit {
    Limit { application: "web".into(), peer: [10, 0, 0, to].into(), rate: ordered_rate }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn sockets_join_the_newest_registration_and_stay_with_it() {
    let of = |generation| FlowKey { generation, ..key(1) };
    let named = |seq, is_full, flows: &[(u64, OrderedRate)]| Order {
        flows: flows.iter().map(|&(generation, rate)| (of(generation), rate)).collect(),
        ..order(1, seq, is_full, &[])
    };
    let coflow: std::sync::Arc<str> = "a".into();
    let mut lease = new_lease_state();
    assert_eq!((lease.newest_generation(&coflow), lease.new_generation(&of(0))), (None, None));
    // An unlimited flow has no rate, and its generation is known.
    lease.accept(named(1, true, &[(5, OrderedRate::Unlimited)]), ms(0)).unwrap();
    assert_eq!((lease.newest_generation(&coflow), lease.new_generation(&of(0))), (Some(5), Some(5)));
    // The coflow is removed and registered again.
    let again = [(5, OrderedRate::Removed), (9, OrderedRate::Rate(7))];
    lease.accept(named(2, false, &again), ms(1)).unwrap();
    let new_generations = |lease: &LeaseState| [0, 5, 9].map(|own| lease.new_generation(&of(own)));
    assert_eq!(new_generations(&lease), [Some(9), None, None]);
    assert_eq!(
        [5, 9].map(|own| lease.flow_limit(&of(own), ms(1))),
        [FlowLimit::Unlimited, FlowLimit::Rate(7)]
    );
    // Also while no coordinator is connected.
    assert_eq!(
        (lease.flow_limit(&of(9), ms(1000)), lease.newest_generation(&coflow)),
        (FlowLimit::Unlimited, Some(9))
    );
    let other: std::sync::Arc<str> = "b".into();
    assert_eq!(lease.newest_generation(&other), None);
}

/// A coordinator with a new store does not know the registrations of the lost one. Their sockets belong to the coflow that the
/// framework registers again, and then stay with it.
#[test]
fn sockets_of_a_lost_store_join_the_repeated_registration() {
    let of = |generation| FlowKey { generation, ..key(1) };
    let named = |epoch, seq, is_full, generations: &[u64]| Order {
        flows: generations.iter().map(|&generation| (of(generation), OrderedRate::Rate(7))).collect(),
        ..order(epoch, seq, is_full, &[])
    };
    let mut lease = new_lease_state();
    lease.set_first_generation(5);
    lease.accept(named(1, 1, true, &[6]), ms(0)).unwrap();
    assert_eq!(lease.new_generation(&of(6)), None);
    lease.set_first_generation(100);
    // The old orders hold until the new coordinator has sent one.
    assert_eq!(lease.new_generation(&of(6)), None);
    lease.accept(named(2, 1, true, &[]), ms(1)).unwrap();
    assert_eq!(lease.new_generation(&of(6)), None);
    lease.accept(named(2, 2, false, &[101]), ms(2)).unwrap();
    assert_eq!([6, 101].map(|own| lease.new_generation(&of(own))), [Some(101), None]);
    // A restored store knows registrations of the backup.
    lease.accept(named(3, 1, true, &[6]), ms(3)).unwrap();
    assert_eq!([0, 6, 7].map(|own| lease.new_generation(&of(own))), [Some(6), None, None]);
}

#[test]
fn orders_hold_until_their_lease_ends() {
    let mut lease = new_lease_state();
    assert_eq!(
        (lease.flow_limit(&key(1), ms(0)), lease.applied(), lease.lease_end()),
        (FlowLimit::Unlimited, (0, 0), None)
    );
    let flows = [
        (1, OrderedRate::Rate(500_000)),
        (2, OrderedRate::Unlimited),
        (4, OrderedRate::Paused),
        (5, OrderedRate::Reserve(7)),
    ];
    let first = Order { queues: vec![(1, queues(&[1.0, 3.0], 2))], ..order(1, 1, true, &flows) };
    lease.accept(first, ms(10)).unwrap();
    assert_eq!((lease.applied(), lease.lease_end()), ((1, 1), Some(ms(90))));
    assert_eq!(
        [1, 2, 3, 4, 5].map(|flow| lease.flow_limit(&key(flow), ms(89))),
        [
            FlowLimit::Rate(500_000),
            FlowLimit::Unlimited,
            FlowLimit::Unlimited,
            FlowLimit::Paused,
            FlowLimit::Reserve(7)
        ]
    );
    // Rates and pauses end, and the queues stay.
    assert_eq!([1, 4, 5].map(|flow| lease.flow_limit(&key(flow), ms(90))), [FlowLimit::Unlimited; 3]);
    assert_eq!(lease.rates(ms(90)).count(), 0);
    assert_eq!(*lease.queues(ms(90)), BTreeMap::from([(1, queues(&[1.0, 3.0], 2))]));
    let paced = |lease: &LeaseState, now| lease.rates(now).map(|(key, _)| key.flow).collect::<Vec<_>>();
    // The next order continues from the last one, although the lease has ended.
    lease.accept(order(1, 2, false, &[(2, OrderedRate::Rate(1_000_000))]), ms(500)).unwrap();
    assert_eq!(paced(&lease, ms(501)), [1, 2, 5]);
    lease.accept(order(1, 3, false, &[(1, OrderedRate::Removed)]), ms(510)).unwrap();
    assert_eq!(paced(&lease, ms(511)), [2, 5]);
    // Another coordinator starts with a full order.
    lease.accept(order(2, 1, true, &[(3, OrderedRate::Rate(1))]), ms(520)).unwrap();
    assert_eq!(paced(&lease, ms(521)), [3]);
    lease.accept(order(2, 2, false, &[(3, OrderedRate::Unlimited)]), ms(530)).unwrap();
    assert_eq!(lease.rates(ms(531)).count(), 0);
    assert_eq!(lease.refusals(), RefusedOrders::default());
}

#[test]
fn limits_of_applications_hold_as_rates_of_flows_do() {
    let mut lease = new_lease_state();
    let limit_order = |seq, is_full, limits| Order { limits, ..order(1, seq, is_full, &[]) };
    let active_limits = |lease: &LeaseState, now| {
        let limits = lease.limits(ms(now)).into_iter().flatten();
        limits.map(|((_, peer), rate)| (peer.to_string(), *rate)).collect::<Vec<_>>()
    };
    assert_eq!(active_limits(&lease, 0), []);
    let both = vec![limit(1, OrderedRate::Rate(5)), limit(2, OrderedRate::Rate(7))];
    lease.accept(limit_order(1, true, both), ms(0)).unwrap();
    lease.accept(limit_order(2, false, vec![limit(1, OrderedRate::Unlimited)]), ms(10)).unwrap();
    assert_eq!(active_limits(&lease, 89), [("10.0.0.2".to_owned(), 7)]);
    assert_eq!(active_limits(&lease, 90), []);
    lease.accept(limit_order(3, true, vec![limit(3, OrderedRate::Rate(9))]), ms(100)).unwrap();
    assert_eq!(active_limits(&lease, 101), [("10.0.0.3".to_owned(), 9)]);
    // The number of limits is bounded.
    let limits_for_peers = |count: usize| {
        let address = |at: usize| (at as u32).to_be_bytes();
        let limit_for_peer = |at| Limit { peer: address(at).into(), ..limit(0, OrderedRate::Rate(1)) };
        (0..count).map(limit_for_peer).collect::<Vec<_>>()
    };
    assert_eq!(
        lease.accept(limit_order(4, false, limits_for_peers(MAX_OBSERVED)), ms(101)),
        Err(RefusalReason::Limits)
    );
    lease.accept(limit_order(4, true, limits_for_peers(MAX_OBSERVED)), ms(101)).unwrap();
    assert_eq!(lease.refusals().limits, 1);
    // Changed limits do not count twice, and a new limit may replace a removed one in the same order.
    lease.accept(limit_order(5, false, limits_for_peers(MAX_OBSERVED)), ms(101)).unwrap();
    let mut changes = vec![Limit { rate: OrderedRate::Unlimited, ..limits_for_peers(1).remove(0) }];
    changes.push(Limit { peer: [255, 0, 0, 1].into(), ..limits_for_peers(1).remove(0) });
    lease.accept(limit_order(6, false, changes), ms(101)).unwrap();
    assert_eq!(active_limits(&lease, 102).len(), MAX_OBSERVED);
}

#[test]
fn weights_of_applications_expire_and_those_of_services_do_not() {
    let mut lease = new_lease_state();
    let guaranteed = Queues { guaranteed: true, ..queues(&[1.0, 3.0], 2) };
    let both = vec![(0, queues(&[1.0, 3.0], 2)), (1, guaranteed.clone())];
    let first = Order { queues: both, ..order(1, 1, true, &[]) };
    lease.accept(first, ms(0)).unwrap();
    // An order without queues renews the weights.
    lease.accept(order(1, 2, false, &[]), ms(1000)).unwrap();
    assert_eq!(lease.queues(ms(30_999))[&0], queues(&[1.0, 3.0], 2));
    assert!(lease.are_weights_valid(ms(30_999)) && !lease.are_weights_valid(ms(31_000)));
    // One queue for all packets, with the same marks.
    let without_weights = Queues { weights: vec![1.0], queue_of_class: vec![0, 0], ..queues(&[], 2) };
    let after = lease.queues(ms(31_000)).into_owned();
    assert_eq!(after, BTreeMap::from([(0, without_weights), (1, guaranteed)]));
    // Any order restores the weights.
    lease.accept(order(1, 3, false, &[]), ms(40_000)).unwrap();
    assert_eq!(lease.queues(ms(40_000))[&0], queues(&[1.0, 3.0], 2));
    // A longer lease extends the time.
    let long = Order { lease: ms(50_000), ..order(1, 4, false, &[]) };
    lease.accept(long, ms(50_000)).unwrap();
    assert!(lease.are_weights_valid(ms(99_999)) && !lease.are_weights_valid(ms(100_000)));
}

#[test]
fn limit_of_bandwidth_ends_ten_seconds_after_the_last_order() {
    let limited = |seq, limit| Order { bandwidth_limit: limit, ..order(1, seq, seq == 1, &[]) };
    let quarter = BandwidthLimit::new(0.25);
    let mut lease = new_lease_state();
    assert_eq!(lease.bandwidth_limit(ms(0)), None);
    lease.accept(limited(1, quarter), ms(0)).unwrap();
    lease.accept(limited(2, quarter), ms(1000)).unwrap();
    // It holds while an order is late.
    assert!(!lease.is_lease_valid(ms(1080)));
    assert_eq!([10_999, 11_000].map(|now| lease.bandwidth_limit(ms(now))), [quarter, None]);
    // Each order has the limit.
    lease.accept(limited(3, None), ms(2000)).unwrap();
    assert_eq!(lease.bandwidth_limit(ms(2000)), None);
}

#[test]
fn queues_end_with_an_order_without_queues_and_return_with_one_that_names_them() {
    let named = |seq, without_queues, queues: Vec<(u32, Queues)>| Order {
        queues,
        without_queues,
        ..order(1, seq, true, &[(1, OrderedRate::Unlimited)])
    };
    let both = vec![(0, queues(&[1.0], 1)), (1, queues(&[2.0], 1))];
    let mut lease = new_lease_state();
    lease.accept(named(1, false, both.clone()), ms(0)).unwrap();
    assert_eq!((lease.queues(ms(1)).len(), lease.without_queues()), (2, false));
    lease.accept(named(2, true, Vec::new()), ms(1)).unwrap();
    assert_eq!((lease.queues(ms(2)).len(), lease.without_queues()), (0, true));
    // The coordinator still knows the flows.
    assert!(lease.names_flow(&key(1)));
    // Without orders, nothing returns.
    assert_eq!((lease.queues(ms(100_000)).len(), lease.without_queues()), (0, true));
    lease.accept(named(3, false, both), ms(3)).unwrap();
    assert_eq!((lease.queues(ms(3)).len(), lease.without_queues()), (2, false));
}

#[test]
fn traffic_of_applications_stays_until_an_order_replaces_it() {
    let traffic =
        |port| vec![ApplicationTraffic { application: "web".into(), cgroups: vec![], ports: vec![port] }];
    let with_traffic = |seq, is_full, traffic| Order { traffic, ..order(1, seq, is_full, &[]) };
    let mut lease = new_lease_state();
    assert_eq!(lease.traffic(), []);
    lease.accept(with_traffic(1, true, Some(traffic(80))), ms(0)).unwrap();
    // An order without traffic changes nothing.
    lease.accept(with_traffic(2, false, None), ms(1)).unwrap();
    assert!(!lease.is_lease_valid(ms(100_000)));
    assert_eq!(lease.traffic(), traffic(80));
    lease.accept(with_traffic(3, false, Some(traffic(81))), ms(2)).unwrap();
    assert_eq!(lease.traffic(), traffic(81));
    assert_eq!(lease.accept(with_traffic(3, false, Some(traffic(82))), ms(3)), Err(RefusalReason::Duplicate));
    assert_eq!(lease.traffic(), traffic(81));
    // A coordinator of an earlier version orders none.
    lease.accept(with_traffic(4, true, None), ms(4)).unwrap();
    assert_eq!(lease.traffic(), []);
    lease.accept(with_traffic(5, false, Some(traffic(83))), ms(5)).unwrap();
    lease.accept(with_traffic(6, false, Some(vec![])), ms(6)).unwrap();
    assert_eq!(lease.traffic(), []);
}

#[test]
fn refused_orders_leave_state_unchanged_and_are_counted() {
    let mut lease = new_lease_state();
    lease.accept(order(5, 7, true, &[(1, OrderedRate::Rate(500_000))]), ms(0)).unwrap();
    let next = |flows: &[(u32, OrderedRate)]| order(5, 8, false, flows);
    let with_lease = |lease| Order { lease, ..next(&[]) };
    let with_class = |interface, weights: &[f64], class| Order {
        queues: vec![(interface, queues(weights, class))],
        ..next(&[])
    };
    let with_weights = |interface, weights: &[f64]| with_class(interface, weights, 1);
    let with_queue_of = |queue_of: &[u32]| {
        let queues = Queues {
            queue_of_class: queue_of.to_vec(),
            class_of_application: vec![],
            ..queues(&[1.0, 3.0], 1)
        };
        Order { queues: vec![(0, queues)], ..next(&[]) }
    };
    let fastest = LINKS[1];
    let with_limits = |limits: &[(u8, u64)]| {
        let limits = limits.iter().map(|&(to, rate)| limit(to, OrderedRate::Rate(rate))).collect();
        Order { limits, ..next(&[]) }
    };
    let cases = [
        (order(4, 9, true, &[]), RefusalReason::StaleEpoch),
        (order(5, 7, true, &[]), RefusalReason::Duplicate),
        (order(5, 6, false, &[]), RefusalReason::Duplicate),
        (order(5, 9, false, &[]), RefusalReason::Gap),
        (order(6, 8, false, &[]), RefusalReason::Gap),
        (with_lease(ms(0)), RefusalReason::Lease),
        (with_lease(ms(60_001)), RefusalReason::Lease),
        (next(&[(2, OrderedRate::Unlimited), (1, OrderedRate::Unlimited)]), RefusalReason::Unsorted),
        (next(&[(2, OrderedRate::Unlimited), (2, OrderedRate::Removed)]), RefusalReason::Unsorted),
        (with_weights(2, &[1.0]), RefusalReason::Interface),
        (next(&[(1, OrderedRate::Removed), (2, OrderedRate::Rate(0))]), RefusalReason::Rate),
        (next(&[(2, OrderedRate::Rate(fastest + 1))]), RefusalReason::Rate),
        (next(&[(2, OrderedRate::Rate(u64::MAX))]), RefusalReason::Rate),
        (with_weights(0, &[]), RefusalReason::Weights),
        (with_weights(0, &[1.0; 64]), RefusalReason::Weights),
        (with_weights(0, &[1.0, f64::NAN]), RefusalReason::Weights),
        (with_weights(0, &[0.0]), RefusalReason::Weights),
        (with_class(0, &[1.0, 3.0], 3), RefusalReason::Classes),
        (with_queue_of(&[]), RefusalReason::Classes),
        (with_queue_of(&[0; 64]), RefusalReason::Classes),
        (with_queue_of(&[0, 2]), RefusalReason::Classes),
        (with_limits(&[(1, fastest + 1)]), RefusalReason::Rate),
        (with_limits(&[(1, 0)]), RefusalReason::Rate),
        (with_limits(&[(2, 1), (1, 1)]), RefusalReason::Unsorted),
        (with_limits(&[(1, 1), (1, 1)]), RefusalReason::Unsorted),
    ];
    let snapshot = |lease: &LeaseState| {
        let rates: Vec<_> = lease.rates(ms(1)).map(|(key, rate)| (key.clone(), rate)).collect();
        (
            rates,
            lease.limits(ms(1)).cloned(),
            lease.applied(),
            lease.lease_end(),
            lease.queues(ms(1)).into_owned(),
        )
    };
    let before = snapshot(&lease);
    for (order, reason) in cases {
        assert_eq!(lease.accept(order.clone(), ms(1)), Err(reason), "{order:?}");
        assert_eq!(snapshot(&lease), before, "{order:?}");
    }
    let counts = RefusedOrders {
        stale_epoch: 1,
        duplicate: 2,
        gap: 2,
        lease: 2,
        unsorted: 4,
        flows: 0,
        interface: 1,
        rate: 5,
        weights: 4,
        classes: 4,
        limits: 0,
    };
    assert_eq!(lease.refusals(), counts);
    lease.accept(next(&[(2, OrderedRate::Rate(fastest))]), ms(1)).unwrap();
}

#[test]
fn flows_per_host_and_in_all_are_limited() {
    let mut lease = new_lease_state();
    let flows_from =
        |from: u32, count: u32| (from..from + count).map(|flow| (key(flow), OrderedRate::Rate(1))).collect();
    let order =
        |seq, is_full, flows| Order { epoch: 1, seq, lease: ms(1000), is_full, flows, ..Order::default() };
    assert_eq!(lease.accept(order(1, true, flows_from(0, (1 << 20) + 1)), ms(0)), Err(RefusalReason::Flows));
    lease.accept(order(1, true, flows_from(0, 1 << 20)), ms(0)).unwrap();
    assert_eq!(lease.accept(order(2, false, flows_from(1 << 20, 1)), ms(0)), Err(RefusalReason::Flows));
    assert_eq!(lease.refusals().flows, 2);
    lease.accept(order(2, true, flows_from(1 << 20, 1)), ms(0)).unwrap();
}

fn ordered_rate() -> impl Strategy<Value = OrderedRate> {
    let rate = prop_oneof![6 => 1..11_000_000u64, 1 => Just(0), 1 => Just(u64::MAX)];
    prop_oneof![4 => rate.prop_map(OrderedRate::Rate), 3 => Just(OrderedRate::Unlimited), 3 => Just(OrderedRate::Removed)]
}

/// An order, the steps of its epoch and sequence number from the last accepted ones, and the time since the previous order.
#[derive(Debug, Clone)]
struct Step {
    epoch: i64,
    seq: i64,
    order: Order,
    after_ms: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let lease = prop_oneof![8 => 1u64..200, 1 => Just(0), 1 => 0u64..1_000_000].prop_map(ms);
    let share = (1..11_000_000u64).prop_map(OrderedRate::Reserve);
    let flow_rate = prop_oneof![4 => ordered_rate(), 1 => share];
    let flows = vec(((0u32..8).prop_map(key), flow_rate), 0..4);
    let one_queue = (0u32..3, vec(-0.1..5.0, 0..4), 0u32..3);
    let one = one_queue.prop_map(|(interface, weights, class)| (interface, queues(&weights, class)));
    let queues = prop_oneof![5 => Just(vec![]), 1 => vec(one, 0..2)];
    let limits = vec((0u8..4, ordered_rate()).prop_map(|(to, ordered_rate)| limit(to, ordered_rate)), 0..3);
    let numbers = (
        prop_oneof![8 => Just(0i64), 1 => Just(1), 1 => Just(-1)],
        prop_oneof![8 => Just(1i64), 2 => -3i64..5],
    );
    (
        numbers,
        lease,
        prop::bool::weighted(0.3),
        flows,
        (queues, limits),
        0u64..150,
        prop::bool::weighted(0.95),
    )
        .prop_map(|((epoch, seq), lease, is_full, mut flows, (queues, mut limits), after, sorted)| {
            if sorted {
                flows.sort_by_key(|(key, _)| key.flow);
                flows.dedup_by_key(|(key, _)| key.flow);
                limits.sort_by_key(|limit| limit.peer);
                limits.dedup_by_key(|limit| limit.peer);
            }
            Step {
                epoch,
                seq,
                order: Order { lease, is_full, flows, queues, limits, ..Order::default() },
                after_ms: after,
            }
        })
}

type Rates = BTreeMap<FlowKey, u64>;

type Limits = BTreeMap<ApplicationPeer, u64>;

type AllQueues = BTreeMap<u32, Queues>;

/// The rates, limits and queues by all accepted orders, from the first on.
fn expected_state(accepted: &[(Order, u64)], now: u64) -> (Rates, Limits, AllQueues) {
    let mut queues: AllQueues = BTreeMap::new();
    accepted.iter().for_each(|(order, _)| queues.extend(order.queues.clone()));
    let Some((last, at)) = accepted.last() else { return (BTreeMap::new(), BTreeMap::new(), queues) };
    let elapsed = Duration::from_millis(now) - Duration::from_millis(*at);
    if elapsed >= last.lease.max(Duration::from_secs(30)) {
        for queues in queues.values_mut() {
            *queues = Queues {
                weights: vec![1.0],
                queue_of_class: vec![0; queues.queue_of_class.len()],
                ..queues.clone()
            };
        }
    }
    if elapsed >= last.lease {
        return (BTreeMap::new(), BTreeMap::new(), queues);
    }
    let from = accepted
        .iter()
        .rposition(|(order, _)| order.is_full)
        .expect("the first order of an epoch is complete");
    let mut last_rates = BTreeMap::new();
    accepted[from..].iter().for_each(|(order, _)| last_rates.extend(order.flows.iter().cloned()));
    let rates = last_rates.into_iter().filter_map(|(key, ordered_rate)| match ordered_rate {
        OrderedRate::Rate(rate) | OrderedRate::Reserve(rate) => Some((key, rate)),
        _ => None,
    });
    let mut limits = BTreeMap::new();
    for Limit { application, peer, rate: ordered_rate } in
        accepted[from..].iter().flat_map(|(order, _)| &order.limits)
    {
        match ordered_rate {
            OrderedRate::Rate(rate) => limits.insert((application.clone(), *peer), *rate),
            _ => limits.remove(&(application.clone(), *peer)),
        };
    }
    (rates.collect(), limits, queues)
}

proptest! {
    #![proptest_config(config_with_cases(512))]

    #[test]
    fn rates_in_force_are_those_of_the_last_accepted_order(steps in vec(step(), 1..40)) {
        let mut lease = new_lease_state();
        let (mut accepted, mut now, mut refused) = (Vec::new(), 0u64, 0u64);
        for Step { epoch, seq, mut order, after_ms } in steps {
            now += after_ms;
            let (was_epoch, was_seq) = lease.applied();
            order.epoch = was_epoch.saturating_add_signed(epoch);
            order.seq = was_seq.saturating_add_signed(seq);
            match lease.accept(order.clone(), ms(now)) {
                Ok(()) => {
                    prop_assert!((order.epoch, order.seq) > (was_epoch, was_seq));
                    prop_assert!(order.is_full || !accepted.is_empty() && (order.epoch, order.seq) == (was_epoch, was_seq + 1));
                    accepted.push((order, now));
                }
                Err(_) => refused += 1,
            }
            for later in [0, 1, 100, 100_000] {
                let at = now + later;
                let mut rates = BTreeMap::new();
                for (key, rate) in lease.rates(ms(at)) {
                    prop_assert!(rate > 0 && rate <= LINKS[1]);
                    let limits = [FlowLimit::Rate(rate), FlowLimit::Reserve(rate)];
                    prop_assert!(limits.contains(&lease.flow_limit(key, ms(at))));
                    rates.insert(key.clone(), rate);
                }
                let limits = lease.limits(ms(at)).cloned().unwrap_or_default();
                prop_assert_eq!((rates, limits, lease.queues(ms(at)).into_owned()), expected_state(&accepted, at));
                prop_assert!(later < 100_000 || lease.rates(ms(at)).next().is_none());
            }
            let all = lease.refusals().by_name();
            prop_assert_eq!(all.into_iter().map(|(_, count)| count).sum::<u64>(), refused);
        }
    }
}
