//! Flows in lockstep: rates by ranks and by weights against each other where both are defined, and against the definitions.

use proptest::prelude::*;
use weir_core::solve::wfq::{FlowCounts, Queue, QueuedClass, Source, WfqStats};
use weir_core::solve::{RankedGroup, WfqSolver, ranked_rates};

use crate::common::config_with_cases;

const LINKS: usize = 6;
const QUEUES: u32 = 3;

/// Capacities, weights and groups. A group has its links, its flows on each link, and its queue.
type GroupNetwork = (Vec<f64>, Vec<f64>, Vec<(Vec<(u32, f64)>, u32)>);

fn random_network() -> impl Strategy<Value = GroupNetwork> {
    let group = (proptest::collection::btree_map(0..LINKS as u32, 1u32..9, 1..=LINKS), 0..QUEUES).prop_map(
        |(links, queue)| (links.into_iter().map(|(link, n)| (link, f64::from(n))).collect(), queue),
    );
    (
        proptest::collection::vec(1.0f64..100.0, LINKS),
        proptest::collection::vec(0.1f64..10.0, LINKS * QUEUES as usize),
        proptest::collection::vec(group, 1..8),
    )
}

fn queues_with_weights(weights: &[f64]) -> Vec<Queue> {
    let queue = |(number, &weight): (usize, &f64)| Queue { link: number as u32 / QUEUES, weight };
    weights.iter().enumerate().map(queue).collect()
}

/// The rates of groups in weighted queues. `queue_of` returns the queue at a link of a group with a queue.
fn weighted_rates(
    capacities: &[f64],
    queues: &[Queue],
    groups: &[(Vec<(u32, f64)>, u32)],
    queue_of: impl Fn(u32, u32) -> u32,
) -> (WfqStats, Vec<f64>) {
    let hops = |(links, queue): &(Vec<(u32, f64)>, u32)| -> (Vec<u32>, Vec<f64>) {
        links.iter().map(|&(link, flows)| (queue_of(link, *queue), flows)).unzip()
    };
    let hops: Vec<(Vec<u32>, Vec<f64>)> = groups.iter().map(hops).collect();
    let class =
        |(queues, flows)| QueuedClass { queues, flows: FlowCounts::ByLink(flows), source: Source::Elastic };
    let classes: Vec<QueuedClass<'_>> = hops.iter().map(|(queues, flows)| class((queues, flows))).collect();
    let mut wfq = WfqSolver::new(capacities, queues).unwrap();
    let settled = wfq.solve(&classes).unwrap();
    (settled, wfq.rates().iter().map(|rates| rates.delivered_rate).collect())
}

/// Load of each link.
fn link_loads<'a>(groups: impl IntoIterator<Item = &'a (Vec<(u32, f64)>, u32)>, rates: &[f64]) -> Vec<f64> {
    let mut loads = vec![0.0; LINKS];
    for ((links, _), rate) in groups.into_iter().zip(rates) {
        for &(link, flows) in links {
            loads[link as usize] += flows * rate;
        }
    }
    loads
}

proptest! {
    #![proptest_config(config_with_cases(256))]

    #[test]
    fn lockstep_rates_with_one_queue_a_link_equal_those_of_one_rank((capacities, weights, groups) in random_network()) {
        // With one queue per link, rates are unique.
        let queues: Vec<Queue> = (0..LINKS as u32).map(|link| Queue { link, weight: weights[link as usize] }).collect();
        let (settled, rates) = weighted_rates(&capacities, &queues, &groups, |link, _| link);
        prop_assert_eq!(settled.residual, 0.0);
        let of_rank: Vec<RankedGroup<'_>> = groups.iter().map(|(links, _)| RankedGroup { rank: 3, links }).collect();
        for (a, b) in rates.iter().zip(ranked_rates(&capacities, &of_rank)) {
            prop_assert!((a - b).abs() <= 1e-8 * b, "{a} {b}");
        }
    }

    #[test]
    fn lockstep_weighted_rates_satisfy_the_definition((capacities, weights, groups) in random_network()) {
        let queues = queues_with_weights(&weights);
        let (settled, rates) = weighted_rates(&capacities, &queues, &groups, |link, queue| link * QUEUES + queue);
        let loads = link_loads(&groups, &rates);
        for (load, capacity) in loads.iter().zip(&capacities) {
            prop_assert!(*load <= capacity * (1.0 + 1e-6), "{load} of {capacity}");
        }
        prop_assume!(settled.residual == 0.0);
        // Each group has a full link where its queue gets at least its weighted share, and no group of the
        // queue is faster.
        for ((links, queue), rate) in groups.iter().zip(&rates) {
            let limits = links.iter().any(|&(link, _)| {
                let at = link as usize;
                let of = |q: u32| -> f64 {
                    let crosses = |g: &Vec<(u32, f64)>| g.iter().find(|(l, _)| *l == link).map_or(0.0, |(_, n)| *n);
                    groups.iter().zip(&rates).filter(|((_, own), _)| *own == q).map(|((g, _), r)| crosses(g) * r).sum()
                };
                let per_weight = |q: u32| of(q) / weights[at * QUEUES as usize + q as usize];
                let fastest = groups.iter().zip(&rates)
                    .filter(|((g, own), _)| own == queue && g.iter().any(|(l, _)| *l == link))
                    .map(|(_, r)| *r).fold(0.0, f64::max);
                loads[at] >= capacities[at] * (1.0 - 1e-6)
                    && (0..QUEUES).all(|q| per_weight(q) <= per_weight(*queue) * (1.0 + 1e-6))
                    && *rate >= fastest * (1.0 - 1e-6)
            });
            prop_assert!(limits, "{rate} of {links:?} in {queue}");
        }
    }

    #[test]
    fn lockstep_rates_of_a_rank_are_independent_of_later_ranks((capacities, _, groups) in random_network()) {
        let served = |top: u32| -> Vec<&(Vec<(u32, f64)>, u32)> { groups.iter().filter(|(_, rank)| *rank <= top).collect() };
        let rates_of = |served: &[&(Vec<(u32, f64)>, u32)]| {
            let groups: Vec<RankedGroup<'_>> = served.iter().map(|(links, rank)| RankedGroup { rank: *rank, links }).collect();
            ranked_rates(&capacities, &groups)
        };
        let all = rates_of(&served(QUEUES));
        for top in 0..QUEUES {
            let some = served(top);
            let rates = rates_of(&some);
            let in_all = groups.iter().zip(&all).filter(|((_, rank), _)| *rank <= top).map(|(_, rate)| *rate);
            prop_assert_eq!(&rates, &in_all.collect::<Vec<f64>>());
            // Each served group has a full link on which it is as fast as all others of its rank.
            let loads = link_loads(some.iter().copied(), &rates);
            for ((links, rank), rate) in some.iter().zip(&rates) {
                let limits = |&(link, _): &(u32, f64)| {
                    let same_rank = some.iter().zip(&rates).filter(|((g, r), _)| r == rank && g.iter().any(|(l, _)| *l == link));
                    let fastest = same_rank.map(|(_, r)| *r).fold(0.0, f64::max);
                    loads[link as usize] >= capacities[link as usize] * (1.0 - 1e-9) && *rate >= fastest * (1.0 - 1e-9)
                };
                prop_assert!(links.iter().any(limits), "{links:?} at {rate}");
            }
        }
    }
}
