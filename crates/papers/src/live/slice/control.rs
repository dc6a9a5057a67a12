//! A coordinator and agents on a bed: the coordinator in this process, with its sockets in the last host, and agents as processes of theirs.

use std::env;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_client::Agent;
use weir_coordinator::plane::{Link, Plane, Registration, Settings, Transfer};
use weir_coordinator::{agents, master};
use weir_core::model::{CoflowSpec, Names};
use weir_core::units::Rate;
use weir_testbed::{Node, Plan, namespace};

use super::super::process::{Process, find, pause};
use super::made::HOSTS;
use weir_console::failure::Failure;
use weir_console::spec;

/// Where the coordinator listens in its host.
const PORT: u16 = 7470;

/// Whom programs ask to be paced. All of it is gone with this.
pub struct Control {
    runtime: Option<Runtime>,
    handle: master::Handle,
    /// By host.
    agents: Vec<Agent>,
    processes: Vec<Process>,
    /// Where the agents' Unix sockets are, and what they say.
    _place: TempDir,
}

impl Drop for Control {
    fn drop(&mut self) {
        // Agents first, so that none of them misses its coordinator.
        self.processes.clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Control {
    /// Begins, and waits until all agents attend.
    ///
    /// # Errors
    /// If it cannot, or somebody asks to stop.
    pub fn begin(plan: &Plan, policy: &str, rate: Rate) -> Result<Control, Failure> {
        let links = [Link { send: rate, recv: rate }; HOSTS as usize];
        let decides = spec::build(policy, None)?;
        let plane =
            Plane::new(&links, decides, Names::default(), Settings::default(), 1).map_err(Failure::input)?;
        let (handle, _) = master::start(plane).map_err(Failure::undone)?;
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::undone)?;
        let last = &plan.nodes[HOSTS as usize];
        let address = SocketAddr::from((last.address, PORT));
        listen(last, address, &runtime, handle.clone())
            .map_err(|error| Failure::undone(format_args!("{address}: cannot be listened at: {error}")))?;
        let place = tempfile::tempdir().map_err(Failure::undone)?;
        let door = |host: u32| place.path().join(format!("agent{host}"));
        let mut processes = Vec::new();
        for host in 0..HOSTS {
            let process = agent(&plan.nodes[host as usize], host, rate, address, door(host));
            let process =
                process.map_err(|error| Failure::undone(format_args!("an agent cannot begin: {error}")))?;
            processes.push(process);
        }
        let began = Instant::now();
        let agents =
            (0..HOSTS).map(|host| find(&door(host), began)).collect::<Result<Vec<Agent>, Failure>>()?;
        let control = Control { runtime: Some(runtime), handle, agents, processes, _place: place };
        while control.attending()? < HOSTS as usize {
            pause(began, "agents do not attend")?;
        }
        Ok(control)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the end")
    }

    fn attending(&self) -> Result<usize, Failure> {
        Ok(self.runtime().block_on(self.handle.overview()).map_err(Failure::undone)?.attending)
    }

    /// The agent of a host.
    pub fn agent(&self, host: u32) -> &Agent {
        &self.agents[host as usize]
    }

    /// A coflow arrives. Sizes are for policies that know them.
    ///
    /// # Errors
    /// If it is declined.
    pub fn register(&self, coflow: &CoflowSpec) -> Result<(), Failure> {
        let transfer = |flow: &weir_core::model::FlowSpec| Transfer {
            src: flow.src,
            dst: flow.dst,
            bytes: Some(flow.bytes),
        };
        let registration = Registration {
            service: Names::DEFAULT.to_owned(),
            application: Names::DEFAULT.to_owned(),
            weight: coflow.weight,
            deadline: None,
            flows: coflow.flows.iter().map(transfer).collect(),
        };
        let registered = self.handle.register(coflow.id.to_string(), registration);
        self.runtime().block_on(registered).map(drop).map_err(Failure::undone)
    }
}

/// Listens for agents in a host. Connections are where their listener is.
fn listen(
    node: &Node,
    address: SocketAddr,
    runtime: &Runtime,
    handle: master::Handle,
) -> std::io::Result<()> {
    let listener = namespace::inside(&node.namespace, || TcpListener::bind(address))??;
    listener.set_nonblocking(true)?;
    let _inside = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // It ends with the runtime; agents that find nobody there are waited for in vain, which is said.
    drop(runtime.spawn(agents::serve(listener, handle)));
    Ok(())
}

fn agent(
    node: &Node,
    host: u32,
    rate: Rate,
    coordinator: SocketAddr,
    door: PathBuf,
) -> std::io::Result<Process> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &node.namespace]).arg(env::current_exe()?);
    command.args(["agent", "run", "--insecure", "--host", &host.to_string()]);
    command.args(["--rate", &format!("{}bit", rate.get() * 8.0), "--coordinator", &coordinator.to_string()]);
    command.arg("--socket").arg(door);
    Process::begin(command)
}
