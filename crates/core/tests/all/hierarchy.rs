//! Weighted hierarchical max-min against NetShare's examples, its definition, and a reference implementation.

mod changes;
mod definition;
mod input;
mod networks;
mod paper;
mod reference;

use reference::{FlowClass, ServiceNetwork};
use weir_core::solve::{ClassId, HierarchicalMaxMin, ServiceShares};

const INF: f64 = f64::INFINITY;

fn class_flows(service: usize, links: &[u32], flows: u32, demand: f64) -> FlowClass {
    FlowClass { service, links: links.to_vec(), flows, demand }
}

fn build_hierarchy(net: &ServiceNetwork, shares: ServiceShares) -> (HierarchicalMaxMin, Vec<ClassId>) {
    let mut hierarchy = HierarchicalMaxMin::new(&net.capacities, shares).unwrap();
    let add = |f: &FlowClass| hierarchy.add_class(f.service, &f.links, f.flows, f.demand).unwrap();
    let ids = net.flows.iter().map(add).collect();
    (hierarchy, ids)
}

fn rates(hierarchy: &HierarchicalMaxMin, ids: &[ClassId]) -> Vec<f64> {
    ids.iter().map(|&id| hierarchy.rate(id)).collect()
}

fn assert_close(rates: &[f64], expected: &[f64]) {
    assert_eq!(rates.len(), expected.len());
    for (rate, expected) in rates.iter().zip(expected) {
        assert!((rate - expected).abs() <= 1e-9 * expected.max(1.0), "{rates:?}: {expected} expected");
    }
}

fn is_close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3)
}
