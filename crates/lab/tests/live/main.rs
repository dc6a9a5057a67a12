//! Tests with real traffic in network namespaces. Without the privileges, these tests print that and skip.

#![cfg(target_os = "linux")]

mod delay_line;
mod network;
mod regions;
mod relays;

use weir_lab::Network;
use weir_testbed::probe;

/// A network of its own for a test; none if this machine cannot create it.
fn test_network(test: &str, nodes: &[&str]) -> Option<Network> {
    let missing: Vec<String> = probe::probe()
        .into_iter()
        .filter_map(|check| Some(format!("{}: {}", check.name, check.problem?)))
        .collect();
    if !missing.is_empty() {
        eprintln!("{test} skips, since this machine lacks {}", missing.join("; "));
        return None;
    }
    Some(Network::create(&format!("{test}{}", std::process::id()), nodes).unwrap())
}
