//! Groups of flows at a common rate: against the per-flow solver where both are defined, and against the
//! definition.

use proptest::prelude::*;
use weir_core::solve::wfq::{Queue, QueuedClass, Source};
use weir_core::solve::{GroupRateSolver, WfqSolver};

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

/// Load of each link.
fn link_loads(groups: &[(Vec<(u32, f64)>, u32)], rates: &[f64]) -> Vec<f64> {
    let mut loads = vec![0.0; LINKS];
    for ((links, _), rate) in groups.iter().zip(rates) {
        for &(link, flows) in links {
            loads[link as usize] += flows * rate;
        }
    }
    loads
}

proptest! {
    #![proptest_config(config_with_cases(256))]

    #[test]
    fn lockstep_groups_with_uniform_flow_counts_match_the_class_solver((capacities, weights, groups) in random_network()) {
        // With one queue per link, rates are unique, so both solvers must agree.
        let queues: Vec<Queue> = (0..LINKS as u32).map(|link| Queue { link, weight: weights[link as usize] }).collect();
        let same = |links: &[(u32, f64)]| links.iter().map(|&(link, _)| (link, links[0].1)).collect::<Vec<_>>();
        let footprints: Vec<Vec<(u32, f64)>> = groups.iter().map(|(links, _)| same(links)).collect();
        let paths: Vec<Vec<u32>> = footprints.iter().map(|f| f.iter().map(|(link, _)| *link).collect()).collect();
        let classes: Vec<QueuedClass<'_>> = paths.iter().zip(&footprints)
            .map(|(queues, f)| QueuedClass { queues, flows: f[0].1, source: Source::Elastic }).collect();
        let mut wfq = WfqSolver::new(&capacities, &queues).unwrap();
        wfq.solve(&classes).unwrap();
        let mut lockstep = GroupRateSolver::new(&capacities, &queues, &footprints).unwrap();
        prop_assert_eq!(lockstep.solve_weighted(&vec![true; groups.len()], |_, link| link), 0.0);
        for (a, b) in lockstep.rates().iter().zip(wfq.rates()) {
            prop_assert!((a - b.delivered_rate).abs() <= 1e-8 * b.delivered_rate, "{a} {b:?}");
        }
        lockstep.solve_ranked(&vec![Some(3); groups.len()]);
        for (a, b) in lockstep.rates().iter().zip(wfq.rates()) {
            prop_assert!((a - b.delivered_rate).abs() <= 1e-8 * b.delivered_rate, "{a} {b:?}");
        }
    }

    #[test]
    fn lockstep_weighted_rates_satisfy_the_definition((capacities, weights, groups) in random_network()) {
        let footprints: Vec<Vec<(u32, f64)>> = groups.iter().map(|(links, _)| links.clone()).collect();
        let mut lockstep = GroupRateSolver::new(&capacities, &queues_with_weights(&weights), &footprints).unwrap();
        let residual =
            lockstep.solve_weighted(&vec![true; groups.len()], |group, link| link * QUEUES + groups[group as usize].1);
        let rates = lockstep.rates().to_vec();
        let loads = link_loads(&groups, &rates);
        for (load, capacity) in loads.iter().zip(&capacities) {
            prop_assert!(*load <= capacity * (1.0 + 1e-6), "{load} of {capacity}");
        }
        prop_assume!(residual == 0.0);
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
    fn lockstep_rates_of_a_rank_are_independent_of_later_ranks((capacities, weights, groups) in random_network()) {
        let footprints: Vec<Vec<(u32, f64)>> = groups.iter().map(|(links, _)| links.clone()).collect();
        let mut lockstep = GroupRateSolver::new(&capacities, &queues_with_weights(&weights), &footprints).unwrap();
        let ranks: Vec<Option<u32>> = groups.iter().map(|(_, rank)| Some(*rank)).collect();
        lockstep.solve_ranked(&ranks);
        let all = lockstep.rates().to_vec();
        for top in 0..QUEUES {
            let some: Vec<Option<u32>> = ranks.iter().map(|rank| rank.filter(|rank| *rank <= top)).collect();
            lockstep.solve_ranked(&some);
            for ((rank, a), b) in some.iter().zip(&all).zip(lockstep.rates()) {
                prop_assert_eq!(if rank.is_some() { *a } else { 0.0 }, *b);
            }
            // Each served group has a full link on which it is as fast as all others of its rank.
            let loads = link_loads(&groups, lockstep.rates());
            for ((links, rank), rate) in groups.iter().zip(lockstep.rates()) {
                let limits = |&(link, _): &(u32, f64)| {
                    let alike = groups.iter().zip(lockstep.rates()).filter(|((g, r), _)| r == rank && g.iter().any(|(l, _)| *l == link));
                    let fastest = alike.map(|(_, r)| *r).fold(0.0, f64::max);
                    loads[link as usize] >= capacities[link as usize] * (1.0 - 1e-9) && *rate >= fastest * (1.0 - 1e-9)
                };
                prop_assert!(*rank > top || links.iter().any(limits), "{links:?} at {rate}");
            }
        }
    }
}
