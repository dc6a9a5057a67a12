//! Runs a coordinator in this process, with its socket for agents in a host of a testbed, and starts agents at other hosts and at switches.
//!
//! `weir serve` refuses plain text from other hosts, so the coordinator is a library here.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use weir_console::failure::Failure;
use weir_coordinator::{agents, config, server};
use weir_testbed::{Node, namespace};

use super::cluster::{self, Process};

/// The port of the coordinator for agents.
const PORT: u16 = 7470;

/// The `[listen]` table of a configuration: listeners on loopback that only this process uses.
pub const LISTEN: &str = "[listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n";

/// A coordinator whose agents are at hosts and switches of a testbed. Stop the agents before dropping it.
pub struct HostedCoordinator {
    /// The API, from this process.
    pub api: weir_client::Coordinator,
    /// The address for agents.
    agents_address: String,
    _stop: watch::Sender<bool>,
    _runtime: Runtime,
    directory: TempDir,
}

impl HostedCoordinator {
    /// Starts a coordinator with a configuration, whose agents reach it at the host `node`.
    pub fn start(node: &Node, configuration: &str) -> Result<HostedCoordinator, Failure> {
        let directory = tempfile::tempdir().map_err(Failure::runtime)?;
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::runtime)?;
        let config =
            config::parse(configuration, "serve.toml", directory.path()).map_err(Failure::runtime)?;
        let coordinator = runtime.block_on(server::Coordinator::new(config)).map_err(Failure::runtime)?;
        let (_, api) = coordinator.addresses().map_err(Failure::runtime)?;
        let address = SocketAddr::from((node.address, PORT));
        let listener = namespace::run_inside(&node.namespace, || TcpListener::bind(address))
            .flatten()
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| Failure::runtime(format_args!("{address}: cannot be bound: {error}")))?;
        let handle = coordinator.registry().handle().clone();
        // If a task fails, agents do not connect, which `wait_for_agents` reports.
        runtime.spawn(async move {
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                let _ = agents::serve(listener, handle).await;
            }
        });
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(coordinator.run(stopped));
        Ok(HostedCoordinator {
            api: weir_client::Coordinator::local(&api.to_string())?,
            agents_address: address.to_string(),
            _stop: stop,
            _runtime: runtime,
            directory,
        })
    }

    /// Waits until this number of hosts and of switches send reports.
    pub fn wait_for_agents(&self, hosts: usize, switches: usize) -> Result<(), Failure> {
        let present = |path: &str| {
            let answer = self.api.get(path)?;
            let entries = answer.as_array().map_or(&[][..], Vec::as_slice);
            Ok::<_, Failure>(entries.iter().filter(|entry: &&Value| entry["present"] == true).count())
        };
        cluster::wait_until("connections of all agents", || {
            Ok(present("/v1/hosts")? == hosts && present("/v1/switches")? == switches)
        })
    }

    /// `weir agent run` for a host with one cable. The caller may add arguments.
    pub fn agent_command(&self, node: &Node) -> Result<Command, Failure> {
        let [port, ..] = &node.ports[..] else {
            return Err(Failure::runtime(format_args!("{}: no cable", node.name)));
        };
        delete_queue(node, &port.interface)?;
        let socket = self.directory.path().join(format!("agent-{}", node.name));
        let mut command =
            cluster::agent_command(Some(node), &self.agents_address, &node.name, port.rate, &socket)?;
        command.args(["--interface", &port.interface]);
        Ok(command)
    }

    /// Starts the agent of a switch for its first ports.
    pub fn start_switch_agent(&self, node: &Node, ports: usize) -> Result<Process, Failure> {
        let mut command = cluster::switch_agent_command(node, &self.agents_address)?;
        for port in &node.ports[..ports] {
            delete_queue(node, &port.interface)?;
            command.args(["--port", &format!("{}={}", port.interface, port.rate)]);
        }
        Process::start(&format!("agent of {}", node.name), command)
    }
}

/// Deletes the queue of the testbed, which agents do not replace. [`weir_testbed::Bed::set_queues`] restores it.
fn delete_queue(node: &Node, interface: &str) -> Result<(), Failure> {
    let mut command = Command::new("tc");
    command.args(["-n", &node.namespace, "qdisc", "del", "dev", interface, "root"]);
    cluster::run(command)
}
