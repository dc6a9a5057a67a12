//! Tests the lease state against a simple model: the list of all accepted orders.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use weir_agent::lease::{LeaseState, Peer, Refused};
use weir_core::units::Rate;
use weir_proto::{FlowKey, Limit, MAX_FOUND, Order, Pace, Queues, Refusals, Totals};

const LINKS: [u64; 2] = [1_000_000, 10_000_000];

fn keeper() -> LeaseState {
    LeaseState::new(LINKS.map(|rate| Rate::new(rate as f64).unwrap()).to_vec())
}

fn key(flow: u32) -> FlowKey {
    FlowKey { coflow: "a".into(), flow }
}

fn order(epoch: u64, seq: u64, whole: bool, flows: &[(u32, Pace)]) -> Order {
    let flows = flows.iter().map(|&(flow, pace)| (key(flow), pace)).collect();
    Order { epoch, seq, lease: ms(80), whole, flows, ..Order::default() }
}

fn queues(weights: &[f64], class: u32) -> Queues {
    let queue_of = (0..weights.len() as u32).collect();
    Queues { weights: weights.to_vec(), queue_of, classes: vec![("web".into(), class)], guaranteed: false }
}

fn limit(to: u8, pace: Pace) -> Limit {
    Limit { application: "web".into(), peer: [10, 0, 0, to].into(), pace }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn orders_hold_until_their_lease_ends() {
    let mut keeper = keeper();
    assert_eq!((keeper.rate(&key(1), ms(0)), keeper.obeys(), keeper.ends()), (None, (0, 0), None));
    let flows = [(1, Pace::Rate(500_000)), (2, Pace::Free)];
    let first = Order { queues: vec![(1, queues(&[1.0, 3.0], 2))], ..order(1, 1, true, &flows) };
    keeper.accept(first, ms(10)).unwrap();
    assert_eq!((keeper.obeys(), keeper.ends()), ((1, 1), Some(ms(90))));
    assert_eq!([1, 2, 3].map(|flow| keeper.rate(&key(flow), ms(89))), [Some(500_000), None, None]);
    // The rates end, and the queues stay.
    assert_eq!((keeper.rate(&key(1), ms(90)), keeper.rates(ms(90)).count()), (None, 0));
    assert_eq!(*keeper.queues(ms(90)), BTreeMap::from([(1, queues(&[1.0, 3.0], 2))]));
    let paced = |keeper: &LeaseState, now| keeper.rates(now).map(|(key, _)| key.flow).collect::<Vec<_>>();
    // The next order continues from the last one, although the lease has ended.
    keeper.accept(order(1, 2, false, &[(2, Pace::Rate(1_000_000))]), ms(500)).unwrap();
    assert_eq!(paced(&keeper, ms(501)), [1, 2]);
    keeper.accept(order(1, 3, false, &[(1, Pace::Gone)]), ms(510)).unwrap();
    assert_eq!(paced(&keeper, ms(511)), [2]);
    // Another coordinator starts with a complete order.
    keeper.accept(order(2, 1, true, &[(3, Pace::Rate(1))]), ms(520)).unwrap();
    assert_eq!(paced(&keeper, ms(521)), [3]);
    keeper.accept(order(2, 2, false, &[(3, Pace::Free)]), ms(530)).unwrap();
    assert_eq!(keeper.rates(ms(531)).count(), 0);
    assert_eq!(keeper.refusals(), Refusals::default());
}

#[test]
fn limits_of_applications_hold_as_rates_of_flows_do() {
    let mut keeper = keeper();
    let ordered = |seq, whole, limits| Order { limits, ..order(1, seq, whole, &[]) };
    let in_force = |keeper: &LeaseState, now| {
        let limits = keeper.limits(ms(now)).into_iter().flatten();
        limits.map(|((_, peer), rate)| (peer.to_string(), *rate)).collect::<Vec<_>>()
    };
    assert_eq!(in_force(&keeper, 0), []);
    let both = vec![limit(1, Pace::Rate(5)), limit(2, Pace::Rate(7))];
    keeper.accept(ordered(1, true, both), ms(0)).unwrap();
    keeper.accept(ordered(2, false, vec![limit(1, Pace::Free)]), ms(10)).unwrap();
    assert_eq!(in_force(&keeper, 89), [("10.0.0.2".to_owned(), 7)]);
    assert_eq!(in_force(&keeper, 90), []);
    keeper.accept(ordered(3, true, vec![limit(3, Pace::Rate(9))]), ms(100)).unwrap();
    assert_eq!(in_force(&keeper, 101), [("10.0.0.3".to_owned(), 9)]);
    // The number of limits is bounded.
    let many = |count: usize| {
        let to = |at: usize| (at as u32).to_be_bytes();
        let one = |at| Limit { peer: to(at).into(), ..limit(0, Pace::Rate(1)) };
        (0..count).map(one).collect::<Vec<_>>()
    };
    assert_eq!(keeper.accept(ordered(4, false, many(MAX_FOUND)), ms(101)), Err(Refused::Limits));
    keeper.accept(ordered(4, true, many(MAX_FOUND)), ms(101)).unwrap();
    assert_eq!(keeper.refusals().limits, 1);
    // Changed limits do not count twice, and a new limit may replace a removed one in the same order.
    keeper.accept(ordered(5, false, many(MAX_FOUND)), ms(101)).unwrap();
    let mut changes = vec![Limit { pace: Pace::Free, ..many(1).remove(0) }];
    changes.push(Limit { peer: [255, 0, 0, 1].into(), ..many(1).remove(0) });
    keeper.accept(ordered(6, false, changes), ms(101)).unwrap();
    assert_eq!(in_force(&keeper, 102).len(), MAX_FOUND);
}

#[test]
fn weights_of_applications_expire_and_those_of_services_do_not() {
    let mut keeper = keeper();
    let promised = Queues { guaranteed: true, ..queues(&[1.0, 3.0], 2) };
    let both = vec![(0, queues(&[1.0, 3.0], 2)), (1, promised.clone())];
    let first = Order { queues: both, ..order(1, 1, true, &[]) };
    keeper.accept(first, ms(0)).unwrap();
    // An order without queues renews the weights.
    keeper.accept(order(1, 2, false, &[]), ms(1000)).unwrap();
    assert_eq!(keeper.queues(ms(30_999))[&0], queues(&[1.0, 3.0], 2));
    assert!(keeper.weigh(ms(30_999)) && !keeper.weigh(ms(31_000)));
    // One queue for all packets, with the same marks.
    let open = Queues { weights: vec![1.0], queue_of: vec![0, 0], ..queues(&[], 2) };
    let after = keeper.queues(ms(31_000)).into_owned();
    assert_eq!(after, BTreeMap::from([(0, open), (1, promised)]));
    // Any order restores the weights.
    keeper.accept(order(1, 3, false, &[]), ms(40_000)).unwrap();
    assert_eq!(keeper.queues(ms(40_000))[&0], queues(&[1.0, 3.0], 2));
    // A longer lease extends the time.
    let long = Order { lease: ms(50_000), ..order(1, 4, false, &[]) };
    keeper.accept(long, ms(50_000)).unwrap();
    assert!(keeper.weigh(ms(99_999)) && !keeper.weigh(ms(100_000)));
}

#[test]
fn refused_orders_leave_state_unchanged_and_are_counted() {
    let mut keeper = keeper();
    keeper.accept(order(5, 7, true, &[(1, Pace::Rate(500_000))]), ms(0)).unwrap();
    let next = |flows: &[(u32, Pace)]| order(5, 8, false, flows);
    let leased = |lease| Order { lease, ..next(&[]) };
    let classed = |interface, weights: &[f64], class| Order {
        queues: vec![(interface, queues(weights, class))],
        ..next(&[])
    };
    let weighted = |interface, weights: &[f64]| classed(interface, weights, 1);
    let known = |queue_of: &[u32]| {
        let queues = Queues { queue_of: queue_of.to_vec(), classes: vec![], ..queues(&[1.0, 3.0], 1) };
        Order { queues: vec![(0, queues)], ..next(&[]) }
    };
    let fastest = LINKS[1];
    let limited = |limits: &[(u8, u64)]| {
        let limits = limits.iter().map(|&(to, rate)| limit(to, Pace::Rate(rate))).collect();
        Order { limits, ..next(&[]) }
    };
    let cases = [
        (order(4, 9, true, &[]), Refused::Older),
        (order(5, 7, true, &[]), Refused::Repeated),
        (order(5, 6, false, &[]), Refused::Repeated),
        (order(5, 9, false, &[]), Refused::Gap),
        (order(6, 8, false, &[]), Refused::Gap),
        (leased(ms(0)), Refused::Lease),
        (leased(ms(60_001)), Refused::Lease),
        (next(&[(2, Pace::Free), (1, Pace::Free)]), Refused::Unsorted),
        (next(&[(2, Pace::Free), (2, Pace::Gone)]), Refused::Unsorted),
        (weighted(2, &[1.0]), Refused::Interface),
        (next(&[(1, Pace::Gone), (2, Pace::Rate(0))]), Refused::Rate),
        (next(&[(2, Pace::Rate(fastest + 1))]), Refused::Rate),
        (next(&[(2, Pace::Rate(u64::MAX))]), Refused::Rate),
        (weighted(0, &[]), Refused::Weights),
        (weighted(0, &[1.0; 64]), Refused::Weights),
        (weighted(0, &[1.0, f64::NAN]), Refused::Weights),
        (weighted(0, &[0.0]), Refused::Weights),
        (classed(0, &[1.0, 3.0], 3), Refused::Classes),
        (classed(0, &[1.0, 3.0], 0), Refused::Classes),
        (known(&[]), Refused::Classes),
        (known(&[0; 64]), Refused::Classes),
        (known(&[0, 2]), Refused::Classes),
        (limited(&[(1, fastest + 1)]), Refused::Rate),
        (limited(&[(1, 0)]), Refused::Rate),
        (limited(&[(2, 1), (1, 1)]), Refused::Unsorted),
        (limited(&[(1, 1), (1, 1)]), Refused::Unsorted),
    ];
    let in_force = |keeper: &LeaseState| {
        let rates: Vec<_> = keeper.rates(ms(1)).map(|(key, rate)| (key.clone(), rate)).collect();
        (
            rates,
            keeper.limits(ms(1)).cloned(),
            keeper.obeys(),
            keeper.ends(),
            keeper.queues(ms(1)).into_owned(),
        )
    };
    let before = in_force(&keeper);
    for (order, why) in cases {
        assert_eq!(keeper.accept(order.clone(), ms(1)), Err(why), "{order:?}");
        assert_eq!(in_force(&keeper), before, "{order:?}");
    }
    let counts = Refusals {
        older: 1,
        repeated: 2,
        gap: 2,
        lease: 2,
        unsorted: 4,
        flows: 0,
        interface: 1,
        rate: 5,
        weights: 4,
        classes: 5,
        limits: 0,
    };
    assert_eq!(keeper.refusals(), counts);
    keeper.accept(next(&[(2, Pace::Rate(fastest))]), ms(1)).unwrap();
}

#[test]
fn flows_per_host_and_in_all_are_limited() {
    let mut keeper = keeper();
    let all = |from: u32, count: u32| (from..from + count).map(|flow| (key(flow), Pace::Rate(1))).collect();
    let order =
        |seq, whole, flows| Order { epoch: 1, seq, lease: ms(1000), whole, flows, ..Order::default() };
    assert_eq!(keeper.accept(order(1, true, all(0, (1 << 20) + 1)), ms(0)), Err(Refused::Flows));
    keeper.accept(order(1, true, all(0, 1 << 20)), ms(0)).unwrap();
    assert_eq!(keeper.accept(order(2, false, all(1 << 20, 1)), ms(0)), Err(Refused::Flows));
    assert_eq!(keeper.refusals().flows, 2);
    keeper.accept(order(2, true, all(1 << 20, 1)), ms(0)).unwrap();
}

fn pace() -> impl Strategy<Value = Pace> {
    let rate = prop_oneof![6 => 1..11_000_000u64, 1 => Just(0), 1 => Just(u64::MAX)];
    prop_oneof![4 => rate.prop_map(Pace::Rate), 3 => Just(Pace::Free), 3 => Just(Pace::Gone)]
}

/// An order, the steps of its epoch and sequence number from the last accepted ones, and the time since the previous order.
#[derive(Debug, Clone)]
struct Step {
    epoch: i64,
    seq: i64,
    order: Order,
    after: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let lease = prop_oneof![8 => 1u64..200, 1 => Just(0), 1 => 0u64..1_000_000].prop_map(ms);
    let flows = vec(((0u32..8).prop_map(key), pace()), 0..4);
    let one = (0u32..3, vec(-0.1..5.0, 0..4), 0u32..3);
    let one = one.prop_map(|(interface, weights, class)| (interface, queues(&weights, class)));
    let queues = prop_oneof![5 => Just(vec![]), 1 => vec(one, 0..2)];
    let limits = vec((0u8..4, pace()).prop_map(|(to, pace)| limit(to, pace)), 0..3);
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
        .prop_map(|((epoch, seq), lease, whole, mut flows, (queues, mut limits), after, sorted)| {
            if sorted {
                flows.sort_by_key(|(key, _)| key.flow);
                flows.dedup_by_key(|(key, _)| key.flow);
                limits.sort_by_key(|limit| limit.peer);
                limits.dedup_by_key(|limit| limit.peer);
            }
            Step {
                epoch,
                seq,
                order: Order { lease, whole, flows, queues, limits, ..Order::default() },
                after,
            }
        })
}

type Rates = BTreeMap<FlowKey, u64>;

type Limits = BTreeMap<Peer, u64>;

type AllQueues = BTreeMap<u32, Queues>;

/// The rates, limits and queues by all accepted orders, from the first on.
fn account(believed: &[(Order, u64)], now: u64) -> (Rates, Limits, AllQueues) {
    let mut queues: AllQueues = BTreeMap::new();
    believed.iter().for_each(|(order, _)| queues.extend(order.queues.clone()));
    let Some((last, at)) = believed.last() else { return (BTreeMap::new(), BTreeMap::new(), queues) };
    let passed = Duration::from_millis(now) - Duration::from_millis(*at);
    if passed >= last.lease.max(Duration::from_secs(30)) {
        for queues in queues.values_mut() {
            *queues =
                Queues { weights: vec![1.0], queue_of: vec![0; queues.queue_of.len()], ..queues.clone() };
        }
    }
    if passed >= last.lease {
        return (BTreeMap::new(), BTreeMap::new(), queues);
    }
    let from = believed.iter().rposition(|(order, _)| order.whole).expect("the first of an epoch is whole");
    let mut last_word = BTreeMap::new();
    believed[from..].iter().for_each(|(order, _)| last_word.extend(order.flows.iter().cloned()));
    let rates = last_word.into_iter().filter_map(|(key, pace)| match pace {
        Pace::Rate(rate) => Some((key, rate)),
        Pace::Free | Pace::Gone => None,
    });
    let mut limits = BTreeMap::new();
    for Limit { application, peer, pace } in believed[from..].iter().flat_map(|(order, _)| &order.limits) {
        match pace {
            Pace::Rate(rate) => limits.insert((application.clone(), *peer), *rate),
            Pace::Free | Pace::Gone => limits.remove(&(application.clone(), *peer)),
        };
    }
    (rates.collect(), limits, queues)
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn rates_in_force_are_those_of_the_last_accepted_order(steps in vec(step(), 1..40)) {
        let mut keeper = keeper();
        let (mut believed, mut now, mut refused) = (Vec::new(), 0u64, 0u64);
        for Step { epoch, seq, mut order, after } in steps {
            now += after;
            let (was_epoch, was_seq) = keeper.obeys();
            order.epoch = was_epoch.saturating_add_signed(epoch);
            order.seq = was_seq.saturating_add_signed(seq);
            match keeper.accept(order.clone(), ms(now)) {
                Ok(()) => {
                    prop_assert!((order.epoch, order.seq) > (was_epoch, was_seq));
                    prop_assert!(order.whole || !believed.is_empty() && (order.epoch, order.seq) == (was_epoch, was_seq + 1));
                    believed.push((order, now));
                }
                Err(_) => refused += 1,
            }
            for later in [0, 1, 100, 100_000] {
                let at = now + later;
                let mut rates = BTreeMap::new();
                for (key, rate) in keeper.rates(ms(at)) {
                    prop_assert!(rate > 0 && rate <= LINKS[1]);
                    prop_assert_eq!(keeper.rate(key, ms(at)), Some(rate));
                    rates.insert(key.clone(), rate);
                }
                let limits = keeper.limits(ms(at)).cloned().unwrap_or_default();
                prop_assert_eq!((rates, limits, keeper.queues(ms(at)).into_owned()), account(&believed, at));
                prop_assert!(later < 100_000 || keeper.rates(ms(at)).next().is_none());
            }
            let all = keeper.refusals().by_name();
            prop_assert_eq!(all.into_iter().map(|(_, count)| count).sum::<u64>(), refused);
        }
    }
}
