//! Random networks.

use proptest::prelude::*;
use weir_core::solve::{Guarantee, ServiceShares};

use super::INF;
use super::reference::{FlowClass, ServiceNetwork};

fn capacity() -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 5 => (1u32..5).prop_map(f64::from), 4 => 0.1f64..10.0]
}

fn weight() -> impl Strategy<Value = f64> {
    prop_oneof![3 => Just(1.0), 3 => (1u32..10).prop_map(f64::from), 1 => 0.01f64..100.0]
}

/// Networks with paths of at most `longest` links.
pub fn random_networks(longest: usize) -> impl Strategy<Value = ServiceNetwork> {
    (prop::collection::vec(capacity(), 1..7), prop::collection::vec(weight(), 1..5)).prop_flat_map(
        move |(capacities, weights)| {
            let (links, services) = (capacities.len(), weights.len());
            let class = (
                0..services,
                prop::sample::subsequence((0..links as u32).collect::<Vec<_>>(), 1..=longest.min(links)),
                prop_oneof![1 => Just(0u32), 9 => 1u32..6],
                prop_oneof![5 => Just(INF), 1 => Just(0.0), 4 => 0.01f64..5.0],
            )
                .prop_map(|(service, links, flows, demand)| FlowClass {
                    service,
                    links,
                    flows,
                    demand,
                });
            // Guarantees of up to a whole link; some services have no excess weight.
            let guaranteed = prop_oneof![
                2 => Just(vec![]),
                1 => prop::collection::vec((0.0f64..1.0, any::<bool>()), services),
            ];
            let classes = prop::collection::vec(class, 0..14);
            (Just(capacities), Just(weights), guaranteed, classes).prop_map(
                |(capacities, weights, g, flows)| {
                    let mut net = ServiceNetwork::weighted(&capacities, &weights, flows);
                    let all: f64 = g.iter().map(|g| g.0).sum();
                    for (service, &(part, greedy)) in g.iter().enumerate() {
                        for (link, capacity) in capacities.iter().enumerate() {
                            net.guarantees[link][service] = capacity * part / all.max(1.0);
                        }
                        if !greedy {
                            net.excess[service] = 0.0;
                        }
                    }
                    net
                },
            )
        },
    )
}

pub fn shares_of_network(net: &ServiceNetwork) -> ServiceShares {
    let mut guarantees = Vec::new();
    for (link, row) in net.guarantees.iter().enumerate() {
        for (service, &rate) in row.iter().enumerate() {
            guarantees.push(Guarantee { link: link as u32, service, rate });
        }
    }
    ServiceShares::with_guarantees(guarantees, &net.excess).unwrap()
}
