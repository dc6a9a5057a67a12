//! The keeper of orders, against a plain account of all that was believed.

#![cfg(target_os = "linux")]

#[path = "../../core/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use weir_agent::lease::{Keeper, Order, Pace, Refusals, Refused, Told};
use weir_core::units::Rate;

const LINKS: [f64; 2] = [1e6, 1e7];

fn keeper() -> Keeper<u8> {
    Keeper::new(LINKS.map(|rate| Rate::new(rate).unwrap()).to_vec())
}

fn order(epoch: u64, seq: u64, whole: bool, flows: &[(u8, Told)]) -> Order<u8> {
    Order { epoch, seq, lease: 0.08, whole, flows: flows.to_vec(), weights: vec![] }
}

fn rate(rate: f64) -> Told {
    Told::Rate { interface: 0, rate }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn orders_hold_until_their_lease_ends() {
    let mut keeper = keeper();
    assert_eq!((keeper.pace(&1, ms(0)), keeper.obeys(), keeper.ends()), (Pace::Free, (0, 0), None));
    let first =
        Order { weights: vec![(1, vec![1.0, 3.0])], ..order(1, 1, true, &[(1, rate(5e5)), (2, Told::Free)]) };
    keeper.accept(first, ms(10)).unwrap();
    let paced = |bytes| Pace::Rate { interface: 0, rate: Rate::new(bytes).unwrap() };
    assert_eq!((keeper.obeys(), keeper.ends()), ((1, 1), Some(ms(90))));
    assert_eq!([1, 2, 3].map(|key| keeper.pace(&key, ms(89))), [paced(5e5), Pace::Free, Pace::Free]);
    // Open from then on, and the weights stay.
    assert_eq!((keeper.pace(&1, ms(90)), keeper.rates(ms(90)).count()), (Pace::Free, 0));
    assert_eq!((keeper.weights(1), keeper.weights(0)), (Some(&[1.0, 3.0][..]), None));
    // The next goes on where the last was, late as it is.
    keeper.accept(order(1, 2, false, &[(2, rate(1e6))]), ms(500)).unwrap();
    assert_eq!(keeper.rates(ms(501)).map(|(key, ..)| *key).collect::<Vec<_>>(), [1, 2]);
    keeper.accept(order(1, 3, false, &[(1, Told::Gone)]), ms(510)).unwrap();
    assert_eq!(keeper.rates(ms(511)).map(|(key, ..)| *key).collect::<Vec<_>>(), [2]);
    // Another coordinator names everything.
    keeper.accept(order(2, 1, true, &[(3, rate(1.0))]), ms(520)).unwrap();
    assert_eq!(keeper.rates(ms(521)).map(|(key, ..)| *key).collect::<Vec<_>>(), [3]);
    assert_eq!(keeper.refusals(), Refusals::default());
}

#[test]
fn what_is_refused_changes_nothing_and_is_counted() {
    let mut keeper = keeper();
    keeper.accept(order(5, 7, true, &[(1, rate(5e5))]), ms(0)).unwrap();
    let next = |flows: &[(u8, Told)]| order(5, 8, false, flows);
    let leased = |lease| Order { lease, ..next(&[]) };
    let weighted =
        |interface, weights: &[f64]| Order { weights: vec![(interface, weights.to_vec())], ..next(&[]) };
    let elsewhere = Told::Rate { interface: 2, rate: 1.0 };
    let cases = [
        (order(4, 9, true, &[]), Refused::Older),
        (order(5, 7, true, &[]), Refused::Repeated),
        (order(5, 6, false, &[]), Refused::Repeated),
        (order(5, 9, false, &[]), Refused::Gap),
        (order(6, 8, false, &[]), Refused::Gap),
        (leased(0.0), Refused::Lease),
        (leased(f64::NAN), Refused::Lease),
        (leased(f64::INFINITY), Refused::Lease),
        (leased(-1.0), Refused::Lease),
        (next(&[(2, Told::Free), (1, Told::Free)]), Refused::Unsorted),
        (next(&[(2, Told::Free), (2, Told::Gone)]), Refused::Unsorted),
        (next(&[(1, Told::Gone), (2, elsewhere)]), Refused::Interface),
        (weighted(2, &[1.0]), Refused::Interface),
        (next(&[(1, Told::Gone), (2, rate(0.0))]), Refused::Rate),
        (next(&[(2, rate(f64::NAN))]), Refused::Rate),
        (next(&[(2, rate(1e6 + 1.0))]), Refused::Rate),
        (next(&[(2, rate(-1.0))]), Refused::Rate),
        (weighted(0, &[]), Refused::Weights),
        (weighted(0, &[1.0; 64]), Refused::Weights),
        (weighted(0, &[1.0, f64::NAN]), Refused::Weights),
        (weighted(0, &[0.0]), Refused::Weights),
    ];
    let in_force = |keeper: &Keeper<u8>| {
        let rates: Vec<_> = keeper.rates(ms(1)).map(|(key, at, rate)| (*key, at, rate)).collect();
        (rates, keeper.obeys(), keeper.ends(), keeper.weights(0).map(<[f64]>::to_vec))
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
        lease: 4,
        unsorted: 2,
        flows: 0,
        interface: 2,
        rate: 4,
        weights: 4,
    };
    assert_eq!(keeper.refusals(), counts);
    keeper.accept(next(&[]), ms(1)).unwrap();
}

#[test]
fn there_is_an_end_to_flows() {
    let mut keeper: Keeper<u32> = Keeper::new(vec![]);
    let all = |from: u32, count: u32| (from..from + count).map(|key| (key, Told::Free)).collect();
    let order = |seq, whole, flows| Order { epoch: 1, seq, lease: 1.0, whole, flows, weights: vec![] };
    assert_eq!(keeper.accept(order(1, true, all(0, (1 << 20) + 1)), ms(0)), Err(Refused::Flows));
    keeper.accept(order(1, true, all(0, 1 << 20)), ms(0)).unwrap();
    assert_eq!(keeper.accept(order(2, false, all(1 << 20, 1)), ms(0)), Err(Refused::Flows));
    assert_eq!(keeper.refusals().flows, 2);
    keeper.accept(order(2, true, all(1 << 20, 1)), ms(0)).unwrap();
}

fn told() -> impl Strategy<Value = Told> {
    let number = prop_oneof![6 => 1.0..1.1e7, 1 => Just(0.0), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => -1.0..0.0];
    prop_oneof![
        4 => (0usize..3, number).prop_map(|(interface, rate)| Told::Rate { interface, rate }),
        3 => Just(Told::Free),
        3 => Just(Told::Gone),
    ]
}

/// An order, its epoch and number as steps from the last ones believed, and the time since the one before.
#[derive(Debug, Clone)]
struct Step {
    epoch: i64,
    seq: i64,
    order: Order<u8>,
    after: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let lease = prop_oneof![8 => 0.001..0.2, 1 => Just(f64::NAN), 1 => -1.0..1e3];
    let flows = vec((0u8..8, told()), 0..4);
    let weights = prop_oneof![5 => Just(vec![]), 1 => vec((0usize..3, vec(-0.1..5.0, 0..4)), 0..2)];
    let numbers = (
        prop_oneof![8 => Just(0i64), 1 => Just(1), 1 => Just(-1)],
        prop_oneof![8 => Just(1i64), 2 => -3i64..5],
    );
    (numbers, lease, prop::bool::weighted(0.3), flows, weights, 0u64..150, prop::bool::weighted(0.95))
        .prop_map(|((epoch, seq), lease, whole, mut flows, weights, after, sorted)| {
            if sorted {
                flows.sort_by_key(|(key, _)| *key);
                flows.dedup_by_key(|(key, _)| *key);
            }
            Step { epoch, seq, order: Order { epoch: 0, seq: 0, lease, whole, flows, weights }, after }
        })
}

type Rates = BTreeMap<u8, (usize, f64)>;

type Weights = BTreeMap<usize, Vec<f64>>;

/// What is in force by all orders that were believed, from the first on.
fn account(believed: &[(Order<u8>, u64)], now: u64) -> (Rates, Weights) {
    let mut weights = BTreeMap::new();
    believed.iter().for_each(|(order, _)| weights.extend(order.weights.clone()));
    let Some((last, at)) = believed.last() else { return (BTreeMap::new(), weights) };
    if Duration::from_millis(now) >= Duration::from_millis(*at) + Duration::from_secs_f64(last.lease) {
        return (BTreeMap::new(), weights);
    }
    let from = believed.iter().rposition(|(order, _)| order.whole).expect("the first of an epoch is whole");
    let mut last_word = BTreeMap::new();
    believed[from..].iter().for_each(|(order, _)| last_word.extend(order.flows.iter().copied()));
    let rates = last_word.into_iter().filter_map(|(key, told)| match told {
        Told::Rate { interface, rate } => Some((key, (interface, rate))),
        Told::Free | Told::Gone => None,
    });
    (rates.collect(), weights)
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn in_force_is_what_was_believed_and_holds(steps in vec(step(), 1..40)) {
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
                for (&key, interface, rate) in keeper.rates(ms(at)) {
                    prop_assert!(rate.get() > 0.0 && rate.get() <= LINKS[interface]);
                    prop_assert_eq!(keeper.pace(&key, ms(at)), Pace::Rate { interface, rate });
                    rates.insert(key, (interface, rate.get()));
                }
                let weights = (0..3).filter_map(|at| Some((at, keeper.weights(at)?.to_vec()))).collect();
                prop_assert_eq!((rates, weights), account(&believed, at));
                prop_assert!(later < 100_000 || keeper.rates(ms(at)).next().is_none());
            }
            let Refusals { older, repeated, gap, lease, unsorted, flows, interface, rate, weights } = keeper.refusals();
            prop_assert_eq!(older + repeated + gap + lease + unsorted + flows + interface + rate + weights, refused);
        }
    }
}
