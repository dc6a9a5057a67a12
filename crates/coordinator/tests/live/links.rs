//! Links of a host and a switch that lose their carrier, in a network namespace with virtual interfaces. Without the privileges, this test
//! prints that and skips.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use weir_agent::batch::run_tool;
use weir_agent::live::Link;
use weir_coordinator::config;
use weir_coordinator::control_plane::{OrderedRate, Registration, Transfer};
use weir_coordinator::registry::{LinkCondition, Registry};
use weir_coordinator::server;
use weir_core::model::ServiceNames;
use weir_core::units::{Bytes, Rate};
use weir_testbed::namespace;

use crate::live::{LINK_RATE, RunningAgent, lock_tests};
use crate::wait::wait_for;

/// The interfaces of the host `h0`, then those of the switch `s1` towards `h0`, `h2` and the switch `s2`. Each is one end of a pair.
const INTERFACES: [&str; 4] = ["weir-link0", "weir-link1", "weir-link2", "weir-link3"];

const CONFIG: &str = r#"weir-serve = 1
store = "weir.redb"
policy = "saath"
lease = "20s"
[listen]
agents = "127.0.0.1:0"
api = "127.0.0.1:0"
[host]
h0 = "32Mbit"
h1 = "32Mbit"
h2 = "32Mbit"
[service.default]
[switch]
s1 = ["h0", "h2", "s2"]
s2 = ["h1", "s1"]
"#;

/// A coordinator that runs until it is dropped.
struct RunningCoordinator {
    registry: Option<Arc<Registry>>,
    agents: SocketAddr,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

impl RunningCoordinator {
    fn start() -> RunningCoordinator {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("serve.toml");
        fs::write(&file, CONFIG).unwrap();
        let config = config::read(&file).unwrap();
        let (stop, stopped) = watch::channel(false);
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || {
            Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(async {
                let coordinator = server::Coordinator::new(config).await.unwrap();
                sender.send((coordinator.addresses().unwrap().0, coordinator.registry())).unwrap();
                coordinator.run(stopped).await.unwrap();
            });
        });
        let (agents, registry) = receiver.recv().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        RunningCoordinator {
            registry: Some(registry),
            agents,
            runtime,
            stop,
            thread: Some(thread),
            _folder: folder,
        }
    }

    fn registry(&self) -> &Registry {
        self.registry.as_ref().unwrap()
    }

    /// The links that are down, and why.
    fn down(&self) -> Vec<String> {
        let states = self.runtime.block_on(self.registry().link_states());
        let down = states.into_iter().filter(|link| link.state == LinkCondition::Down);
        down.map(|link| format!("{}: {}", link.name, link.reasons.join(", "))).collect()
    }

    fn wait_until_down(&self, expected: &[&str]) {
        let began = Instant::now();
        wait_for("the state of links", || self.down() == expected);
        eprintln!("{expected:?} after {:?}", began.elapsed());
    }

    fn register(&self, id: &'static str, dst: u32) {
        let registration = Registration {
            generation: 1,
            service: ServiceNames::DEFAULT.to_owned(),
            application: ServiceNames::DEFAULT.to_owned(),
            weight: 1.0,
            deadline: None,
            flows: vec![Transfer { src: 0, dst, bytes: Bytes::new(1e12) }],
        };
        let register = self.registry().handle().call(move |plane, now| plane.register(id, registration, now));
        self.runtime.block_on(register).unwrap().unwrap();
    }

    fn rate(&self, id: &'static str) -> Option<OrderedRate> {
        let rate = self
            .registry()
            .handle()
            .call(move |plane, _| plane.coflow_status(id).and_then(|coflow| coflow.flows[0].ordered_rate));
        self.runtime.block_on(rate).unwrap()
    }
}

impl Drop for RunningCoordinator {
    fn drop(&mut self) {
        self.registry = None;
        let _ = self.stop.send(true);
        let ended = self.thread.take().unwrap().join();
        assert!(thread::panicking() || ended.is_ok());
    }
}

fn ip(command: &str) -> bool {
    run_tool("ip", &command.split(' ').collect::<Vec<_>>()).is_ok()
}

/// Moves the calling thread to a namespace with the interfaces.
fn enter_namespace() -> bool {
    let has_interfaces = namespace::enter_new().is_ok()
        && INTERFACES.iter().all(|name| {
            ip(&format!("link add {name} type veth peer name {name}p"))
                && ip(&format!("link set {name} up"))
                && ip(&format!("link set {name}p up"))
        });
    if !has_interfaces {
        eprintln!("links skips: a network namespace with interfaces needs root and ip");
    }
    has_interfaces
}

#[test]
fn links_without_a_carrier_are_down_until_they_have_one() {
    let _turn = lock_tests();
    if !enter_namespace() {
        return;
    }
    let coordinator = RunningCoordinator::start();
    let link =
        |name: &str| Link { rate: Rate::new(LINK_RATE).unwrap(), interfaces: vec![name.parse().unwrap()] };
    let start = |name: &str, interfaces: &[&str]| {
        let links = interfaces.iter().map(|name| link(name)).collect();
        RunningAgent::start_with_links(coordinator.agents, name.to_owned(), links, false, None)
    };
    let _host = start("h0", &INTERFACES[..1]);
    let _switch = start("s1", &INTERFACES[1..]);
    coordinator.register("first", 2);
    coordinator.register("second", 1);
    wait_for("the orders", || coordinator.rate("second").is_some());
    assert_eq!(coordinator.down(), Vec::<String>::new());
    // The other end of the cable is down, so the host has no carrier.
    assert!(ip("link set weir-link0p down"));
    coordinator.wait_until_down(&["h0: reported by h0"]);
    assert!(ip("link set weir-link0p up"));
    coordinator.wait_until_down(&[]);
    // A port of the switch towards the receiver of the first flow: the second one gets the link.
    assert!(!matches!(coordinator.rate("second"), Some(OrderedRate::Unlimited)));
    assert!(ip("link set weir-link2 down"));
    coordinator.wait_until_down(&["h2: reported by s1"]);
    wait_for("the rates without the first flow", || {
        matches!(coordinator.rate("first"), Some(OrderedRate::Reserve(_)))
            && coordinator.rate("second") == Some(OrderedRate::Unlimited)
    });
    assert!(ip("link set weir-link3p down"));
    coordinator.wait_until_down(&["h2: reported by s1", "s1:s2: reported by s1"]);
    // An interface that another process deletes.
    assert!(ip("link del weir-link1"));
    coordinator.wait_until_down(&["h0: reported by s1", "h2: reported by s1", "s1:s2: reported by s1"]);
    assert!(ip("link set weir-link2 up") && ip("link set weir-link3p up"));
    coordinator.wait_until_down(&["h0: reported by s1"]);
}
