//! Tests with real traffic in network namespaces. Without the privileges, these tests print that and skip.

#![cfg(target_os = "linux")]

mod delay_line;
mod network;
mod regions;
mod relays;

use weir_lab::Network;
use weir_testbed::probe;

/// A network for one test; none if this machine cannot create it.
fn test_network(test: &str, nodes: &[&str]) -> Option<Network> {
    if let Some(problems) = probe::unmet_requirements() {
        eprintln!("{test} skips, since this machine lacks {problems}");
        return None;
    }
    Some(Network::create(&format!("{test}{}", std::process::id()), nodes).unwrap())
}
