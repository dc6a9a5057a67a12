//! Creates a pair of network namespaces, for tests that send real traffic.

use std::thread;

use weir_agent::queues::{self, Interface};
use weir_agent::traffic;
use weir_testbed::{Network, namespace, testing};

/// Two namespaces with a cable between them, which are deleted when this is dropped. The test's thread is in the first.
pub struct NamespacePair(Network);

/// Creates a pair. Its ends have the addresses 10.9.0.1 and 10.9.0.2, and fd09::1 and fd09::2.
pub fn create_pair(test: &str) -> Option<NamespacePair> {
    testing::pair(test).map(NamespacePair::enter)
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        // A failed test has reported its error already.
        let _ = traffic::cleanup();
        let _ = queues::cleanup();
    }
}

impl NamespacePair {
    /// Adds the addresses of version 6 to a network whose nodes `a` and `b` are connected, and enters the first.
    pub fn enter(network: Network) -> NamespacePair {
        for (node, number) in [("a", 1), ("b", 2)] {
            network.run_ip(node, &format!("addr add fd09::{number}/64 dev e0 nodad\n")).unwrap();
        }
        namespace::enter(&network.namespace("a")).unwrap();
        NamespacePair(network)
    }

    pub fn network(&self) -> &Network {
        &self.0
    }

    /// Runs `work` at the other end, in a thread.
    pub fn run_at_peer<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let name = self.0.namespace("b");
        thread::spawn(move || {
            namespace::enter(&name).unwrap();
            work()
        })
    }
}

pub fn interface() -> Interface {
    "e0".parse().unwrap()
}
