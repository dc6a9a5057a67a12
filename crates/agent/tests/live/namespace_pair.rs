//! Creates a pair of network namespaces, for tests that send real traffic.

use std::fs::File;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, setns};
use weir_agent::batch::run_batch;
use weir_agent::queues::{self, Interface};
use weir_agent::traffic;

/// Two namespaces with a cable between them, which are deleted when this is dropped. The test's thread is in the first.
pub struct NamespacePair {
    pub names: [String; 2],
}

fn run_ip(lines: &str) -> Result<(), String> {
    run_batch(Command::new("ip"), "ip", String::new, lines).map_err(|error| error.to_string())
}

pub fn enter_namespace(name: &str) {
    setns(File::open(format!("/run/netns/{name}")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
}

/// Creates a pair. Its ends have the addresses 10.9.0.1 and 10.9.0.2, and fd09::1 and fd09::2.
pub fn create_pair(test: &str) -> Option<NamespacePair> {
    let names = ["a", "b"].map(|end| format!("weiragent{}{test}{end}", std::process::id()));
    let [a, b] = &names;
    let pair = NamespacePair { names: names.clone() };
    let created = run_ip(&format!(
        "netns add {a}\nnetns add {b}\nlink add e0 netns {a} type veth peer name e0 netns {b}\n"
    ));
    if let Err(error) = created {
        eprintln!("{test} skips, since this machine cannot create network namespaces: {error}");
        return None;
    }
    for (name, address) in [(b, 2), (a, 1)] {
        enter_namespace(name);
        run_ip(&format!(
            "link set lo up\naddr add 10.9.0.{address}/24 dev e0\naddr add fd09::{address}/64 dev e0 nodad\nlink set e0 up\n"
        ))
        .unwrap();
    }
    Some(pair)
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        // A failed test has reported its error already. If the namespaces do not exist, there is nothing to remove.
        let _ = traffic::cleanup();
        let _ = queues::cleanup();
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

impl NamespacePair {
    /// Runs `work` at the other end, in a thread.
    pub fn run_at_peer<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let name = self.names[1].clone();
        thread::spawn(move || {
            enter_namespace(&name);
            work()
        })
    }
}

pub fn interface() -> Interface {
    "e0".parse().unwrap()
}
