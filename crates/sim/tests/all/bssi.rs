//! Sincronia's BSSI in floating point against exact integer arithmetic.

use crate::common::{cases, coflow, workload};
use crate::public_trace::public_trace;
use num_bigint::BigInt;
use proptest::prelude::*;
use weir_core::model::Workload;
use weir_core::policy::sincronia::{CoflowDemand, bssi};
use weir_trace::TraceOptions;

/// Exact bytes at sending and then receiving ports, and a weight.
#[derive(Debug, Clone)]
struct ExactDemand {
    weight: BigInt,
    ports: Vec<(usize, BigInt)>,
}

fn gcd(mut a: BigInt, mut b: BigInt) -> BigInt {
    let zero = BigInt::from(0);
    while b != zero {
        (a, b) = (b.clone(), a % b);
    }
    a
}

/// BSSI without fractions: every step multiplies all weights by one factor, which preserves their order. Ties
/// between ports go to the sending side, there to the highest port. Of tied coflows, the later one goes last.
fn exact_bssi(demands: &[ExactDemand], ports: usize) -> Vec<usize> {
    let zero = BigInt::from(0);
    let mut weights: Vec<BigInt> = demands.iter().map(|d| d.weight.clone()).collect();
    let mut totals = vec![zero.clone(); ports];
    let mut users = vec![Vec::new(); ports];
    for (c, demand) in demands.iter().enumerate() {
        for (port, size) in &demand.ports {
            totals[*port] += size;
            users[*port].push((c, size.clone()));
        }
    }
    let mut is_unordered = vec![true; demands.len()];
    let mut order = Vec::new();
    while order.len() < demands.len() {
        users.iter_mut().for_each(|list| list.retain(|(c, _)| is_unordered[*c]));
        // Later candidates win ties: receiving ports come first, then sending ports in increasing order.
        let candidates = (ports / 2..ports).rev().chain(0..ports / 2).filter(|&p| !users[p].is_empty());
        let Some(bottleneck) = candidates.max_by(|&a, &b| {
            totals[a].cmp(&totals[b]).then_with(|| {
                let rank = |p: usize| if p < ports / 2 { (1, p) } else { (0, p) };
                rank(a).cmp(&rank(b))
            })
        }) else {
            order.extend((0..demands.len()).rev().filter(|&c| is_unordered[c]));
            break;
        };
        let mut last = &users[bottleneck][0];
        for user in &users[bottleneck][1..] {
            if &weights[user.0] * &last.1 <= &weights[last.0] * &user.1 {
                last = user;
            }
        }
        let (last, size) = last.clone();
        // Only the ratio of sizes at this port matters.
        let common = users[bottleneck].iter().fold(zero.clone(), |g, (_, size)| gcd(g, size.clone()));
        let scale = weights[last].clone();
        let factor = &size / &common;
        for c in (0..demands.len()).filter(|&c| is_unordered[c]) {
            weights[c] *= &factor;
        }
        for (c, size) in &users[bottleneck] {
            weights[*c] -= &scale * (size / &common);
        }
        assert_eq!(weights[last], zero);
        assert!(weights.iter().all(|w| *w >= zero));
        let divisor = weights
            .iter()
            .zip(&is_unordered)
            .filter(|(_, open)| **open)
            .fold(zero.clone(), |g, (w, _)| if g == BigInt::from(1) { g } else { gcd(g, w.clone()) });
        if divisor > BigInt::from(1) {
            weights.iter_mut().for_each(|w| *w /= &divisor);
        }
        is_unordered[last] = false;
        order.push(last);
        for (port, size) in &demands[last].ports {
            totals[*port] -= size;
        }
    }
    order.reverse();
    order
}

/// Bytes of every flow times `scale`, which must be integers then, summed by port.
fn exact_demands(
    workload: &Workload,
    scale: &BigInt,
    flow_bytes: impl Fn(usize, usize) -> (BigInt, BigInt),
) -> Vec<ExactDemand> {
    let ports = workload.ports as usize;
    let exact = |(index, coflow): (usize, &weir_core::model::CoflowSpec)| {
        let mut bytes_by_side = vec![BigInt::from(0); 2 * ports];
        for (place, flow) in coflow.flows.iter().enumerate() {
            let (numerator, denominator) = flow_bytes(index, place);
            let size = numerator * scale / denominator;
            bytes_by_side[flow.src as usize] += &size;
            bytes_by_side[ports + flow.dst as usize] += &size;
        }
        let ports =
            bytes_by_side.into_iter().enumerate().filter(|(_, size)| *size > BigInt::from(0)).collect();
        ExactDemand { weight: BigInt::from(coflow.weight as u64), ports }
    };
    workload.coflows.iter().enumerate().map(exact).collect()
}

fn float_demands(workload: &Workload) -> Vec<CoflowDemand> {
    let ports = workload.ports as usize;
    let demand = |coflow: &weir_core::model::CoflowSpec| {
        let mut bytes_by_side = vec![0.0; 2 * ports];
        for flow in &coflow.flows {
            bytes_by_side[flow.src as usize] += flow.bytes.get();
            bytes_by_side[ports + flow.dst as usize] += flow.bytes.get();
        }
        let ports = bytes_by_side.into_iter().enumerate().filter(|(_, size)| *size > 0.0).collect();
        CoflowDemand { weight: coflow.weight, link_seconds: ports }
    };
    workload.coflows.iter().map(demand).collect()
}

fn small_workload() -> impl Strategy<Value = Workload> {
    let flow = (0u32..4, 0u32..4, 0u32..8);
    let one = (1u32..5, prop::collection::vec(flow, 1..5));
    prop::collection::vec(one, 1..10).prop_map(|drafts| {
        let coflows = drafts.into_iter().enumerate().map(|(id, (weight, flows))| {
            let flows: Vec<_> = flows.into_iter().map(|(s, d, b)| (s, d, f64::from(b))).collect();
            let mut c = coflow(id as u64, 0.0, &flows);
            c.weight = f64::from(weight);
            c
        });
        workload(4, coflows.collect())
    })
}

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn bssi_order_is_exact_on_small_numbers(w in small_workload()) {
        let one = BigInt::from(1);
        let demands = exact_demands(&w, &one, |c, f| {
            (BigInt::from(w.coflows[c].flows[f].bytes.get() as u64), one.clone())
        });
        let found = bssi(&float_demands(&w), 2 * w.ports as usize, |link| usize::from(link >= w.ports as usize));
        prop_assert_eq!(found, exact_bssi(&demands, 2 * w.ports as usize));
    }
}

#[test]
fn bssi_order_is_exact_on_the_public_trace() {
    let Some(path) = public_trace() else { return };
    let w = weir_trace::read(&path, &TraceOptions::default()).expect("the public trace").workload;
    assert_eq!(w.coflows.len(), 526);
    // The bytes of a reducer, in whole megabytes, are split evenly over the mappers; their number differs by
    // line.
    let text = std::fs::read_to_string(&path).expect("it was read before");
    let mappers: Vec<u64> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(2).map(|m| m.parse().expect("a number of mappers")))
        .collect();
    let scale = mappers.iter().fold(BigInt::from(1), |lcm, &m| {
        let m = BigInt::from(m);
        &lcm * &m / gcd(lcm.clone(), m)
    });
    let demands = exact_demands(&w, &scale, |c, f| {
        let megabytes = w.coflows[c].flows[f].bytes.get() * mappers[c] as f64 / 1e6;
        assert!((megabytes - megabytes.round()).abs() < 1e-6, "{megabytes} MB");
        (BigInt::from(megabytes.round() as u64), BigInt::from(mappers[c]))
    });
    let ports = 2 * w.ports as usize;
    assert_eq!(
        bssi(&float_demands(&w), ports, |link| usize::from(link >= ports / 2)),
        exact_bssi(&demands, ports)
    );
}
