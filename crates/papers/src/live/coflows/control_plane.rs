//! Runs a coordinator in this process, with its socket in the last host, and an agent process in every other host.
//!
//! `weir serve` refuses plain text from other hosts, so the coordinator is a library here.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_client::Agent;
use weir_console::failure::Failure;
use weir_coordinator::control_plane::{
    self, LivePolicy, MatchingMessages, NetworkLinks, Registration, Settings, Transfer,
};
use weir_coordinator::{agents, control_thread};
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames};
use weir_testbed::{Plan, namespace};

use super::super::cluster::{self, Process};
use super::workload::Scale;

/// The port of the coordinator.
const PORT: u16 = 7470;

/// What a coordinator and its agents have used.
pub struct ControlUse {
    /// The number of schedules.
    pub schedules: u64,
    /// The time of all schedules, until their orders were queued, in seconds.
    pub schedules_secs: f64,
    /// The processor time of all agents, in seconds.
    pub agents_secs: f64,
    /// The messages of Django; none under another policy.
    pub matching_messages: Option<MatchingMessages>,
}

/// A coordinator with a connected agent for each host. Dropping it stops the agents, then the coordinator.
pub struct ControlPlane {
    processes: Vec<Process>,
    /// By host.
    pub agents: Vec<Arc<Agent>>,
    coordinator: control_thread::Handle,
    /// The processor time of all agents when they had connected, in seconds.
    agents_secs_before: f64,
    /// The number of registered coflows.
    registrations: AtomicU64,
    runtime: Runtime,
    /// The directory of the agents' sockets.
    _directory: TempDir,
}

impl ControlPlane {
    /// Starts the coordinator and the agents, and waits until all agents are connected.
    pub fn start(
        plan: &Plan,
        scale: Scale,
        policy: LivePolicy,
        links: NetworkLinks,
    ) -> Result<ControlPlane, Failure> {
        let is_matching = policy.matching.is_some();
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
            let mut command = cluster::agent_command(
                Some(node),
                &address.to_string(),
                &node.name,
                scale.link_rate(),
                &socket(host),
            )?;
            // Django measures what the links leave.
            if is_matching {
                command.args(["--interface", &node.ports[0].interface]);
            }
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
            agents_secs_before: processor_secs(&processes)?,
            processes,
            agents,
            coordinator,
            registrations: AtomicU64::new(0),
            runtime,
            _directory: directory,
        })
    }

    /// What the coordinator and the agents have used since the start.
    pub fn resource_use(&self) -> Result<ControlUse, Failure> {
        let overview = self.runtime.block_on(self.coordinator.overview()).map_err(Failure::runtime)?;
        Ok(ControlUse {
            schedules: overview.schedule_histogram.count(),
            schedules_secs: overview.schedule_histogram.sum().as_secs_f64(),
            agents_secs: processor_secs(&self.processes)? - self.agents_secs_before,
            matching_messages: overview.matching_messages,
        })
    }

    /// Registers a coflow with the sizes of its flows, for policies that use them.
    pub async fn register(&self, coflow: &CoflowSpec) -> Result<(), Failure> {
        let to_transfer =
            |flow: &FlowSpec| Transfer { src: flow.src, dst: flow.dst, bytes: Some(flow.bytes) };
        let registration = Registration {
            generation: self.registrations.fetch_add(1, Ordering::Relaxed) + 1,
            service: ServiceNames::DEFAULT.to_owned(),
            application: ServiceNames::DEFAULT.to_owned(),
            weight: coflow.weight,
            deadline: None,
            flows: coflow.flows.iter().map(to_transfer).collect(),
        };
        let id = coflow.id.to_string();
        let registered = self.coordinator.call(move |plane, now| plane.register(&id, registration, now));
        registered.await.map_err(Failure::runtime)?.map(drop).map_err(Failure::runtime)
    }
}

fn processor_secs(processes: &[Process]) -> Result<f64, Failure> {
    processes.iter().map(Process::processor_secs).sum()
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
