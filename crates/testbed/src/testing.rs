//! Networks of namespaces for tests, also of other crates. Their names are unique, so tests run concurrently.

use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::network::{CableEnd, Network};
use crate::probe;

/// The requirements of a bed that this machine lacks, as one text; none if it meets all.
pub fn problems() -> Option<&'static str> {
    static PROBLEMS: OnceLock<Option<String>> = OnceLock::new();
    PROBLEMS.get_or_init(probe::unmet_requirements).as_deref()
}

/// Whether a test cannot run, since this machine lacks a requirement of a bed; prints a message in this case.
pub fn skips(test: &str) -> bool {
    let problems = problems();
    if let Some(problems) = problems {
        eprintln!("{test} skips, since this machine lacks {problems}");
    }
    problems.is_some()
}

/// A network with these nodes, which are not connected yet; none if the test skips.
///
/// # Panics
/// If the network cannot be created on a machine that meets the requirements.
pub fn network(test: &str, nodes: &[&str]) -> Option<Network> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if skips(test) {
        return None;
    }
    let name = format!("{test}{}n{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    Some(Network::create(&name, nodes).unwrap_or_else(|error| panic!("{test}: {error}")))
}

/// Two nodes `a` and `b` with a cable between them: `e0` with 10.9.0.1 and `e0` with 10.9.0.2; none if the test skips.
///
/// # Panics
/// As [`network`].
pub fn pair(test: &str) -> Option<Network> {
    let network = network(test, &["a", "b"])?;
    let ends = [("a", 1), ("b", 2)].map(|(node, number)| CableEnd {
        node,
        interface: "e0",
        address: Ipv4Addr::new(10, 9, 0, number),
        prefix: 24,
    });
    network.add_cable(ends).unwrap_or_else(|error| panic!("{test}: {error}"));
    Some(network)
}
