//! Starts and stops a coordinator: its store, control plane, listeners and servers.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{Stream, StreamExt, unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tonic::transport::server::Connected;
use tracing::{error, info};
use weir_core::wide_area_policy::WideAreaPolicy;
use weir_tls::WrongName;

use crate::admission::{Admission, Quota};
use crate::agents::{self, PeerInfo, ProvenPeer};
use crate::config::{self, Config};
use crate::control_plane::{AgentNames, ControlPlane};
use crate::control_thread;
use crate::identity::Identity;
use crate::listener::{self, PeerConnection};
use crate::overlay::{self, Overlay};
use crate::peers::Peers;
use crate::registry::Registry;
use crate::rest::{self, PortStatus};
use crate::store::Store;
use crate::tls::{self, Port, ServerCertificate};

/// A coordinator whose listeners are open.
pub struct Coordinator {
    config: Config,
    registry: Arc<Registry>,
    certificate: Option<Arc<ServerCertificate>>,
    agents: TcpListener,
    api: TcpListener,
}

impl Coordinator {
    /// Opens the listeners and the store, and loads the store into a control plane. Connections wait in the kernel until
    /// [`Coordinator::run`].
    ///
    /// # Errors
    /// A certificate, an address, the store or the policy cannot be used, or the operating system cannot create a thread.
    pub async fn new(config: Config) -> Result<Coordinator, String> {
        let certificate = config.tls.as_ref().map(tls::read_certificate).transpose();
        let certificate = certificate.map_err(|error| error.to_string())?;
        let listen = async |key: &str, address: SocketAddr| {
            let error = |error| {
                format!(
                    "[listen] {key}: {address}: cannot listen: {error}; expected a free port of an address of this host"
                )
            };
            TcpListener::bind(address).await.map_err(error)
        };
        let agents = listen("agents", config.agents_address).await?;
        let api = listen("api", config.api_address).await?;
        let store = Store::open(&config.store_path).map_err(|error| error.to_string())?;
        let policy = config.policy.build(&config.names, &config.weights);
        let control_plane = ControlPlane::new(
            config.network_links(),
            policy,
            config.names.clone(),
            config.settings,
            store.epoch(),
        );
        let mut control_plane = control_plane
            .map_err(|error| format!("policy: {error}"))?
            .with_switches(config.hosts_at_ports())
            .with_agent_names(AgentNames::new(config.agent_names().map(str::to_owned)))
            .with_first_generation(store.first_generation());
        if config.allocator {
            control_plane = control_plane.with_allocation(config.addresses.clone());
        } else if config.can_limit_services() {
            control_plane = control_plane.with_maxima(config.addresses.clone());
        }
        if let Some(model) = &config.connection_model {
            control_plane = control_plane.with_connection_predictor(model.predictor.clone());
        }
        if config.has_throttling {
            control_plane = control_plane.with_throttling(config.addresses.clone());
        }
        // The thread ends when the last handle is dropped. Pending requests can hold handles, so nothing waits for the thread.
        let (handle, _) = control_thread::start(control_plane)
            .map_err(|error| format!("control thread: cannot be created: {error}"))?;
        let overlay = config.overlay.as_ref().map(|overlay| start_overlay(&config, overlay, store.epoch()));
        let registry = Arc::new(Registry::new(&config, store, handle, overlay.transpose()?).await?);
        Ok(Coordinator { config, registry, certificate, agents, api })
    }

    /// Local addresses of the listeners for agents and for the API.
    ///
    /// # Errors
    /// The operating system cannot return them.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.agents.local_addr()?, self.api.local_addr()?))
    }

    /// The registry.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// Serves until `stop` is true. Then the coordinator refuses new connections and completes pending requests. Agents apply
    /// their last orders until the end of their lease.
    ///
    /// # Errors
    /// The server for agents has failed.
    pub async fn run(self, stop: watch::Receiver<bool>) -> Result<(), String> {
        let Coordinator { config, registry, certificate, agents, api } = self;
        // An agent or relay has one connection, and a second one until it detects that the first has failed.
        let relays: Vec<String> = config
            .overlay
            .iter()
            .flat_map(|overlay| &overlay.relays)
            .map(|relay| relay.name.clone())
            .collect();
        let total = 2 * (config.agent_names().count() + relays.len()) + 16;
        let per_address =
            if config.tls.is_some() { config.limits.max_connections_per_address as usize } else { total };
        let quota = Quota { total, reserved: 2, per_address, per_identity: 4, probes: 0 };
        let agent_peers = Peers::new(Port::Agents);
        let admission = Admission::new(quota);
        let peers = listener::accept_peers(agents, certificate.clone(), admission, Arc::clone(&agent_peers));
        let (handle, overlay) = (registry.handle().clone(), registry.overlay().cloned());
        let mut stopped = stop.clone();
        let stopped = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let connections = match &config.tls {
            Some(_) => {
                let known_agents = Arc::clone(&agent_peers);
                proven_peers(peers, Arc::clone(&registry), relays, known_agents).left_stream()
            }
            None => local_peers(peers).right_stream(),
        };
        let served = (handle, Some(Arc::clone(&registry)));
        let serve_agents = async move {
            let served = agents::serve_connections(connections, served, overlay, stopped).await;
            served.map_err(|error| format!("server for agents: {error}"))?;
            std::future::pending().await
        };
        let admission = Admission::new(config.limits.connection_quota());
        let api_known = Peers::new(Port::Api);
        let api_peers =
            listener::accept_peers(api, certificate.clone(), Arc::clone(&admission), Arc::clone(&api_known));
        let ports =
            PortStatus { admission, peers: [agent_peers, api_known], certificate: certificate.clone() };
        let serve_api = rest::serve(api_peers, ports, Arc::clone(&registry), config.limits, stop.clone());
        let reload = async move {
            match certificate {
                Some(certificate) => tls::reload_certificate(certificate).await,
                None => std::future::pending().await,
            }
        };
        let watch_registry = registry.watch(stop.clone());
        info!(epoch = registry.epoch(), hosts = config.hosts.len(), "serving");
        let mut stop_signal = stop;
        tokio::select! {
            failed = serve_agents => return failed,
            // Agents keep their streams open, so shutdown does not wait for them.
            ((), ()) = async { tokio::join!(serve_api, watch_registry) } => {}
            () = wait_for_drain(&mut stop_signal) => {}
            () = reload => {}
        }
        // Some requests still hold the registry, so the audit log may outlive this call.
        if let Err(error) = spawn_blocking(move || registry.audit().flush(rest::DRAIN_TIMEOUT)).await {
            error!(%error, "audit log may be incomplete");
        }
        info!("stopped");
        Ok(())
    }
}

/// Waits until `stop` is true, and then 1.2 times [`rest::DRAIN_TIMEOUT`].
async fn wait_for_drain(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        error!("signals cannot stop the coordinator: their handler has ended");
    }
    tokio::time::sleep(rest::DRAIN_TIMEOUT + rest::DRAIN_TIMEOUT / 5).await;
}

/// Starts the overlay of a configuration.
fn start_overlay(config: &Config, overlay: &config::Overlay, epoch: u64) -> Result<overlay::Handle, String> {
    let policy = WideAreaPolicy::new(&overlay.policy).map_err(|error| format!("overlay policy: {error}"))?;
    let overlay = Arc::new(overlay.clone());
    overlay::Handle::start(Overlay::new(Arc::clone(&overlay), config.settings, epoch), overlay, policy)
        .map_err(|error| format!("overlay: a thread cannot be created: {error}"))
}

/// A connection of an agent or relay, and its proven identity.
struct AgentConnection {
    peer: PeerConnection,
    proven_peer: Option<ProvenPeer>,
}

/// Connections of agents and relays, with the host, switch or relay of their certificate.
fn proven_peers(
    peers: mpsc::Receiver<PeerConnection>,
    registry: Arc<Registry>,
    relays: Vec<String>,
    known: Arc<Peers>,
) -> impl Stream<Item = io::Result<AgentConnection>> {
    unfold((peers, registry, relays, known), |(mut peers, registry, relays, known)| async {
        loop {
            let peer = peers.recv().await?;
            let proven_peer = match &peer.identity {
                Identity::Agent(name) => registry.knows_agent(name).then(|| ProvenPeer::Agent(name.clone())),
                Identity::Relay(name) => {
                    let number = relays.iter().position(|known| known == name);
                    number.map(|number| ProvenPeer::Relay(number as u16))
                }
                _ => None,
            };
            let Some(proven_peer) = proven_peer else {
                let reason = format!(
                    "{} is not an agent or relay of the configuration, and no `[[join]]` lets it join; expected one on this port",
                    peer.identity
                );
                known.note_failure(peer.address, &WrongName(reason).into());
                continue;
            };
            return Some((
                Ok(AgentConnection { peer, proven_peer: Some(proven_peer) }),
                (peers, registry, relays, known),
            ));
        }
    })
}

/// Connections of agents and relays on this host, without a proven identity.
fn local_peers(peers: mpsc::Receiver<PeerConnection>) -> impl Stream<Item = io::Result<AgentConnection>> {
    unfold(peers, |mut peers| async {
        let peer = peers.recv().await?;
        Some((Ok(AgentConnection { peer, proven_peer: None }), peers))
    })
}

impl Connected for AgentConnection {
    type ConnectInfo = PeerInfo;

    fn connect_info(&self) -> PeerInfo {
        PeerInfo { address: self.peer.address, proven: self.proven_peer.clone() }
    }
}

impl AsyncRead for AgentConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.peer.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for AgentConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.peer.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.peer.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.peer.stream).poll_shutdown(cx)
    }
}
