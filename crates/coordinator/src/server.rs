//! Starts and stops a coordinator: its store, control plane, listeners and servers.
//!
//! A *term* is the time with one configuration. A reload (`reload.rs`) builds the next term while the present one serves, from the
//! configuration and the store, as a start does. Listeners and connections stay. Requests that have begun are answered by the term that
//! they began in; its store refuses their changes once the next term has begun.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
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
use crate::agents::{self, PeerInfo, ProvenPeer, Served};
use crate::audit::AuditLog;
use crate::config::{self, Config};
use crate::control_plane::{AgentNames, ControlPlane};
use crate::control_thread;
use crate::listener::{self, PeerConnection};
use crate::overlay::{self, Overlay};
use crate::peers::Peers;
use crate::registry::Registry;
use crate::reload::{Reload, Reloader, next_term};
use crate::rest::{self, PortStatus};
use crate::store::Store;
use crate::tls::{self, Port, ServerCertificate};

/// A coordinator whose listeners are open.
pub struct Coordinator {
    agents: TcpListener,
    api: TcpListener,
    certificate: Option<Arc<ServerCertificate>>,
    term: Term,
    reloader: Reloader,
    reloads: mpsc::Receiver<Reload>,
}

/// What a coordinator has from one configuration, until the configuration is reloaded.
pub(crate) struct Term {
    pub config: Config,
    pub registry: Arc<Registry>,
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
        let audit = Arc::new(open_audit_log(&config)?);
        let term = Term::load(config, store, audit).await?;
        term.registry.begin().await;
        let (requests, reloads) = mpsc::channel(1);
        Ok(Coordinator { agents, api, certificate, term, reloader: Reloader::new(requests), reloads })
    }

    /// Local addresses of the listeners for agents and for the API.
    ///
    /// # Errors
    /// The operating system cannot return them.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.agents.local_addr()?, self.api.local_addr()?))
    }

    /// The registry of the configuration with which the coordinator has started.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.term.registry)
    }

    /// Sends requests to reload the configuration.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Serves until `stop` is true. Then the coordinator refuses new connections and completes pending requests. Agents apply
    /// their last orders until the end of their lease.
    ///
    /// # Errors
    /// The server for agents has failed.
    pub async fn run(self, stop: watch::Receiver<bool>) -> Result<(), String> {
        let Coordinator { agents, api, certificate, term, reloader, reloads } = self;
        term.log_start();
        let audit = Arc::clone(term.registry.audit());
        let agent_admission = Admission::new(term.agent_quota());
        let api_admission = Admission::new(term.config.limits.connection_quota());
        let (agent_known, api_known) = (Peers::new(Port::Agents), Peers::new(Port::Api));
        let agent_peers = listener::accept_peers(
            agents,
            certificate.clone(),
            Arc::clone(&agent_admission),
            Arc::clone(&agent_known),
        );
        let api_peers = listener::accept_peers(
            api,
            certificate.clone(),
            Arc::clone(&api_admission),
            Arc::clone(&api_known),
        );
        let ports = PortStatus {
            admission: Arc::clone(&api_admission),
            peers: [Arc::clone(&agent_known), api_known],
            certificate: certificate.clone(),
        };
        let (end, ended) = watch::channel(false);
        let router = rest::router(&term.registry, &reloader, &ports, term.config.limits, ended);
        let (routers, router) = watch::channel(router);
        let (served_terms, served) = watch::channel(term.served());
        let terms = Terms { agent_admission, api_admission, ports, reloader, routers, served_terms };
        let connections = match &certificate {
            Some(_) => proven_peers(agent_peers, served.clone(), agent_known).left_stream(),
            None => local_peers(agent_peers).right_stream(),
        };
        let mut stopped = stop.clone();
        let stopped = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let serve_agents = async move {
            let served = agents::serve_connections(connections, served, stopped).await;
            served.map_err(|error| format!("server for agents: {error}"))?;
            std::future::pending().await
        };
        let serve_terms = terms.serve((term, end), reloads, stop.clone());
        let serve_api = rest::serve(api_peers, router, stop.clone());
        let reload_certificate = async move {
            match certificate {
                Some(certificate) => tls::reload_certificate(certificate).await,
                None => std::future::pending().await,
            }
        };
        let mut stop_signal = stop.clone();
        tokio::select! {
            failed = serve_agents => return failed,
            // Agents keep their streams open, so shutdown does not wait for them.
            ((), ()) = async { tokio::join!(serve_api, serve_terms) } => {}
            () = wait_for_drain(&mut stop_signal) => {}
            () = reload_certificate => {}
        }
        // Some requests still hold the registry, so the audit log may outlive this call.
        if let Err(error) = spawn_blocking(move || audit.flush(rest::DRAIN_TIMEOUT)).await {
            error!(%error, "audit log may be incomplete");
        }
        info!("stopped");
        Ok(())
    }
}

/// What changes with each term of an open coordinator.
struct Terms {
    agent_admission: Arc<Admission>,
    api_admission: Arc<Admission>,
    ports: PortStatus,
    reloader: Reloader,
    routers: watch::Sender<Router>,
    served_terms: watch::Sender<Served>,
}

impl Terms {
    /// Watches the registry of each term, and lets the next one serve after a reload, until `stop` is true. `end` ends the streams of
    /// events of the first term.
    async fn serve(
        self,
        (mut term, mut end): (Term, watch::Sender<bool>),
        mut reloads: mpsc::Receiver<Reload>,
        stop: watch::Receiver<bool>,
    ) {
        loop {
            let next = tokio::select! {
                () = term.registry.watch(stop.clone()) => None,
                next = next_term(&term, &mut reloads) => Some(next),
            };
            let Some(next) = next else {
                let _ = end.send(true);
                return term.registry.store_measurements().await;
            };
            next.term.registry.begin().await;
            next.term.log_start();
            let next_end = self.replace(&next.term);
            // Streams of events end with their term.
            let _ = end.send(true);
            (term, end) = (next.confirm(), next_end);
        }
    }

    /// Lets a term serve the requests and streams from now on. Returns what ends its streams of events.
    fn replace(&self, term: &Term) -> watch::Sender<bool> {
        let limits = term.config.limits;
        self.agent_admission.set_quota(term.agent_quota());
        self.api_admission.set_quota(limits.connection_quota());
        let (end, ended) = watch::channel(false);
        let router = rest::router(&term.registry, &self.reloader, &self.ports, limits, ended);
        drop(self.routers.send_replace(router));
        self.served_terms.send_replace(term.served());
        end
    }
}

impl Term {
    /// Loads the store into a control plane of a configuration.
    pub async fn load(config: Config, store: Store, audit: Arc<AuditLog>) -> Result<Term, String> {
        let control_plane = new_control_plane(&config, &store)?;
        // The thread ends when the last handle is dropped. Pending requests can hold handles, so nothing waits for the thread.
        let (handle, _) = control_thread::start(control_plane)
            .map_err(|error| format!("control thread: cannot be created: {error}"))?;
        let overlay = config.overlay.as_ref().map(|overlay| start_overlay(&config, overlay, store.epoch()));
        let registry = Registry::new(&config, (store, audit), handle, overlay.transpose()?).await?;
        Ok(Term { config, registry: Arc::new(registry) })
    }

    fn log_start(&self) {
        info!(epoch = self.registry.epoch(), hosts = self.config.hosts.len(), "serving");
    }

    fn served(&self) -> Served {
        Served {
            handle: self.registry.handle().clone(),
            overlay: self.registry.overlay().cloned(),
            registry: Some(Arc::clone(&self.registry)),
        }
    }

    /// The limits of connections of agents and relays. Each has one connection, and a second one until it detects that the first has
    /// failed.
    fn agent_quota(&self) -> Quota {
        let Config { limits, overlay, tls, .. } = &self.config;
        let relays = overlay.as_ref().map_or(0, |overlay| overlay.relays.len());
        let total = 2 * (self.config.agent_names().count() + relays) + 16;
        let per_address = if tls.is_some() { limits.max_connections_per_address as usize } else { total };
        Quota { total, reserved: 2, per_address, per_identity: 4, probes: 0 }
    }
}

/// The control plane of a configuration, without the objects of the store.
fn new_control_plane(config: &Config, store: &Store) -> Result<ControlPlane, String> {
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
    Ok(control_plane)
}

fn open_audit_log(config: &Config) -> Result<AuditLog, String> {
    let path = config.audit_path.as_deref();
    AuditLog::start(path).map_err(|error| {
        let file = path.map_or_else(|| "thread".to_owned(), |path| path.display().to_string());
        format!("audit log: {file}: {error}; expected a file that can be opened for appending")
    })
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
    served: watch::Receiver<Served>,
    known: Arc<Peers>,
) -> impl Stream<Item = io::Result<AgentConnection>> {
    unfold((peers, served, known), |(mut peers, served, known)| async {
        loop {
            let peer = peers.recv().await?;
            let proven_peer = served.borrow().proven_peer(&peer.identity);
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
                (peers, served, known),
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
