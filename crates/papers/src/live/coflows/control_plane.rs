//! Runs a coordinator in this process, with its socket in the last host, and an agent process in every other host.
//!
//! `weir serve` refuses plain text from other hosts, so the coordinator is a library here.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_client::Agent;
use weir_console::failure::Failure;
use weir_coordinator::control_plane::{self, NetworkLinks, Registration, Settings, Transfer};
use weir_coordinator::{agents, control_thread};
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames};
use weir_core::policy::AnyPolicy;
use weir_testbed::{Plan, namespace};

use super::super::cluster::{self, Process};
use super::workload::Scale;

/// The port of the coordinator.
const PORT: u16 = 7470;

/// A coordinator with a connected agent for each host. Dropping it stops the agents, then the coordinator.
pub struct ControlPlane {
    _processes: Vec<Process>,
    /// By host.
    pub agents: Vec<Arc<Agent>>,
    coordinator: control_thread::Handle,
    _runtime: Runtime,
    /// The directory of the agents' sockets.
    _directory: TempDir,
}

impl ControlPlane {
    /// Starts the coordinator and the agents, and waits until all agents are connected.
    pub fn start(
        plan: &Plan,
        scale: Scale,
        policy: AnyPolicy,
        links: NetworkLinks,
    ) -> Result<ControlPlane, Failure> {
        let plane =
            control_plane::ControlPlane::new(links, policy, ServiceNames::default(), Settings::default(), 1)
                .map_err(Failure::input)?;
        let (coordinator, _) = control_thread::start(plane).map_err(Failure::runtime)?;
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::runtime)?;
        let coordinator_node = &plan.nodes[scale.hosts as usize];
        let address = SocketAddr::from((coordinator_node.address, PORT));
        let listener = namespace::run_inside(&coordinator_node.namespace, || TcpListener::bind(address))
            .flatten()
            .map_err(|error| Failure::runtime(format_args!("{address}: cannot be bound: {error}")))?;
        serve(listener, &runtime, coordinator.clone()).map_err(Failure::runtime)?;
        let directory = tempfile::tempdir().map_err(Failure::runtime)?;
        let socket = |host: u32| directory.path().join(format!("agent{host}"));
        let start = |host: u32| {
            let node = &plan.nodes[host as usize];
            let command = cluster::agent_command(
                Some(node),
                &address.to_string(),
                host,
                scale.link_rate(),
                &socket(host),
            )?;
            Process::start(&format!("agent of {}", node.name), command)
        };
        let processes = (0..scale.hosts).map(start).collect::<Result<Vec<_>, Failure>>()?;
        let connect = |host| cluster::connect_agent(&socket(host)).map(Arc::new);
        let agents = (0..scale.hosts).map(connect).collect::<Result<Vec<_>, Failure>>()?;
        cluster::wait_until("connections of all agents", || {
            let overview = runtime.block_on(coordinator.overview()).map_err(Failure::runtime)?;
            Ok(overview.connected_agents == scale.hosts as usize)
        })?;
        Ok(ControlPlane {
            _processes: processes,
            agents,
            coordinator,
            _runtime: runtime,
            _directory: directory,
        })
    }

    /// Registers a coflow with the sizes of its flows, for policies that use them.
    pub async fn register(&self, coflow: &CoflowSpec) -> Result<(), Failure> {
        let to_transfer =
            |flow: &FlowSpec| Transfer { src: flow.src, dst: flow.dst, bytes: Some(flow.bytes) };
        let registration = Registration {
            generation: 1,
            service: ServiceNames::DEFAULT.to_owned(),
            application: ServiceNames::DEFAULT.to_owned(),
            weight: coflow.weight,
            deadline: None,
            flows: coflow.flows.iter().map(to_transfer).collect(),
        };
        self.coordinator
            .register(coflow.id.to_string(), registration, None)
            .await
            .map(drop)
            .map_err(Failure::runtime)
    }
}

/// Serves agents until the runtime ends.
fn serve(
    listener: TcpListener,
    runtime: &Runtime,
    coordinator: control_thread::Handle,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let _context = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // If the task fails, agents do not connect, which `start` reports.
    drop(runtime.spawn(agents::serve(listener, coordinator)));
    Ok(())
}
