//! gRPC server for agents: one stream for each host or switch, with reports to the coordinator and orders to the agent.
//!
//! *Authentication.* The listener adds the [`PeerInfo`] of a connection to the extensions of its requests, and a stream must be
//! for the host that the certificate proves. On loopback, connections have no proven peer, and the server accepts the name in the hello.
//!
//! *Limits.* The server ends a stream whose agent sends no message or reads no order for 5 s; the agent can connect again.
//! It reads at most four reports of a host per interval, and one report of a host is in memory at a time. It checks the
//! length of each message before it reads the message.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpIncoming};
use tonic::{Request, Response, Status, Streaming};
use weir_core::model::ServiceNames;
use weir_proto::wire::agent_message::Body;
use weir_proto::wire::control_server::{Control, ControlServer};
use weir_proto::wire::{AgentMessage, CoordinatorMessage};
use weir_proto::{MAX_ORDER_BYTES, MAX_REPORT_BYTES, NEW_MEASUREMENTS, Report};

use crate::audit::Actor;
use crate::control_plane::{ControlPlane, join_names};
use crate::control_thread::{Handle, Measured, Stopped};
use crate::identity::Identity;
use crate::overlay;
use crate::registry::{HostClaim, JoinRefusal, Registry};
use crate::relays::relay_service;
use crate::streams::{
    IDLE_TIMEOUT, apply_reports, next_message, run_stream, send_orders, wait_for_configuration,
};
pub use crate::streams::{PeerInfo, ProvenPeer};

/// What streams of agents and relays are served from, until another configuration replaces it.
#[derive(Clone)]
pub struct Served {
    /// The control plane.
    pub handle: Handle,
    /// The relays; none without an overlay.
    pub overlay: Option<overlay::Handle>,
    /// Lets hosts join that are not configured; none if the control plane's hosts are fixed.
    pub registry: Option<Arc<Registry>>,
}

impl Served {
    /// A control plane with the hosts of its configuration, which is never replaced.
    pub fn fixed(handle: Handle) -> watch::Receiver<Served> {
        watch::channel(Served { handle, overlay: None, registry: None }).1
    }

    /// The agent or relay of an identity, if it may connect.
    pub fn proven_peer(&self, identity: &Identity) -> Option<ProvenPeer> {
        match identity {
            Identity::Agent(name) => {
                let is_known = self.registry.as_ref().is_some_and(|registry| registry.knows_agent(name));
                is_known.then(|| ProvenPeer::Agent(name.clone()))
            }
            Identity::Relay(name) => {
                let is_known = self.overlay.as_ref()?.config().numbers.contains_key(name);
                is_known.then(|| ProvenPeer::Relay(name.clone()))
            }
            _ => None,
        }
    }
}

/// The gRPC service for agents.
pub struct AgentService(watch::Receiver<Served>);

/// The service, with limits on the lengths of messages.
pub fn agent_service(served: watch::Receiver<Served>) -> ControlServer<AgentService> {
    ControlServer::new(AgentService(served))
        .max_decoding_message_size(MAX_REPORT_BYTES)
        .max_encoding_message_size(MAX_ORDER_BYTES)
}

/// Serves agents without authentication. Runs until an error occurs, or the future is dropped.
///
/// # Errors
/// The server cannot accept connections any more.
pub async fn serve(listener: TcpListener, handle: Handle) -> Result<(), tonic::transport::Error> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    serve_connections(incoming, Served::fixed(handle), std::future::pending()).await
}

/// Serves agents, and relays if there is an overlay, on connections. [`Connected::connect_info`] is a [`PeerInfo`]. Ends with
/// an error, or when `stop` completes. With a registry, hosts can join.
///
/// # Errors
/// The server cannot accept connections any more.
pub async fn serve_connections<C>(
    incoming: impl Stream<Item = io::Result<C>>,
    served: watch::Receiver<Served>,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let mut server = Server::builder()
        .max_concurrent_streams(4)
        .http2_keepalive_interval(Some(IDLE_TIMEOUT))
        .http2_keepalive_timeout(Some(IDLE_TIMEOUT));
    let services = server.add_service(agent_service(served.clone())).add_service(relay_service(served));
    services.serve_with_incoming_shutdown(incoming, stop).await
}

#[tonic::async_trait]
impl Control for AgentService {
    type StreamOrdersStream = ReceiverStream<Result<CoordinatorMessage, Status>>;

    async fn stream_orders(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::StreamOrdersStream>, Status> {
        let peer = request.extensions().get::<PeerInfo>().cloned();
        let mut current = self.0.clone();
        let Served { handle, registry, .. } = current.borrow_and_update().clone();
        let mut reports = request.into_inner();
        let Some(Body::Hello(hello)) = next_message(&mut reports).await?.and_then(|message| message.body)
        else {
            return Err(Status::invalid_argument("the first message is not a hello; expected a hello"));
        };
        let addresses =
            hello.networks().map_err(|error| Status::invalid_argument(format!("hello: {error}")))?;
        let labels =
            hello.labels_by_name().map_err(|error| Status::invalid_argument(format!("hello: {error}")))?;
        let name = check_name(hello.name, peer.as_ref().and_then(|peer| peer.proven.as_ref()))?;
        let host = match (&registry, peer) {
            (Some(registry), Some(peer)) => {
                // A switch has a rate for each port.
                let rate = hello.link_rates.first().copied().filter(|_| hello.link_rates.len() == 1);
                join(registry, &peer, HostClaim { name: name.clone(), rate, addresses, labels }).await?
            }
            _ => find_agent(&handle, name.clone()).await?,
        };
        let orders = handle.subscribe_to_orders(host).await?;
        let orders = orders.ok_or_else(|| Status::internal(format!("`{name}` has no number")))?;
        let link_rates =
            handle.call(move |plane, now| plane.set_agent_rates(host, &hello.link_rates, now)).await?;
        let (messages, message_receiver) = mpsc::channel(1);
        let mut measured = handle.measured();
        let Measured { udp_control, wants_demands } = *measured.borrow_and_update();
        let welcome = CoordinatorMessage::welcome(
            handle.interval(),
            handle.first_generation(),
            host,
            link_rates,
            udp_control,
            wants_demands,
        );
        tokio::spawn(async move {
            let other_stream = || {
                Status::aborted(format!(
                    "another stream of `{name}` has begun; help: if two agents have this name, give each its own"
                ))
            };
            let orders = send_orders(welcome, orders, CoordinatorMessage::order, &messages, other_stream);
            let wire_report = |message: AgentMessage| match message.body? {
                Body::Report(report) => Some(report),
                Body::Hello(_) => None,
            };
            let handle = &handle;
            let apply = |report: Report| async move { Ok(handle.report(host, report).await?) };
            let reports = async {
                tokio::select! {
                    ended = apply_reports(reports, handle.interval(), wire_report, apply) => ended,
                    status = wait_for_change(measured) => Err(status),
                    status = wait_for_configuration(current) => Err(status),
                }
            };
            run_stream(reports, orders, &messages).await;
        });
        Ok(Response::new(ReceiverStream::new(message_receiver)))
    }
}

/// The number of the host or switch with a name.
async fn find_agent(handle: &Handle, name: String) -> Result<u32, Status> {
    let find = move |plane: &mut ControlPlane, _| {
        let names = plane.agent_names();
        names.number(&name).ok_or_else(|| {
            let known = join_names(names.iter());
            Status::not_found(format!(
                "`{name}` is not a host or switch of the configuration; expected {known}"
            ))
        })
    };
    handle.call(find).await?
}

/// The number of the host or switch of an agent, which joins if it is not configured.
async fn join(registry: &Arc<Registry>, peer: &PeerInfo, claim: HostClaim) -> Result<u32, Status> {
    let identity = match &peer.proven {
        Some(_) => Identity::Agent(claim.name.clone()),
        None => Identity::Local,
    };
    let object = format!("/v1/hosts/{}", claim.name);
    let actor = Actor::new(Arc::new(identity), peer.address, "join_host".to_owned(), &object);
    let registry = Arc::clone(registry);
    // The change completes even if the agent closes its connection.
    let admitted = tokio::spawn(async move { registry.admit(&actor, claim).await }).await;
    admitted.map_err(|error| Status::internal(error.to_string()))?.map_err(|refusal| {
        let text = refusal.to_string();
        match refusal {
            JoinRefusal::UnknownName { .. } => Status::not_found(text),
            JoinRefusal::AddressTaken { .. } => Status::already_exists(text),
            JoinRefusal::Full { .. } => Status::resource_exhausted(text),
            JoinRefusal::Rate { .. }
            | JoinRefusal::Network { .. }
            | JoinRefusal::Position { .. }
            | JoinRefusal::Moved { .. }
            | JoinRefusal::Bandwidth { .. } => Status::failed_precondition(text),
            JoinRefusal::Store(_) | JoinRefusal::Stopped(_) => Status::unavailable(text),
        }
    })
}

/// The name in a hello, which is that of the certificate if there is one.
fn check_name(name: String, proven: Option<&ProvenPeer>) -> Result<String, Status> {
    if !ServiceNames::is_name(&name) {
        return Err(Status::invalid_argument(format!(
            "hello: the name of the host is invalid; expected {}; help: install the same version of weir",
            ServiceNames::NAME_RULE
        )));
    }
    match proven {
        None => Ok(name),
        Some(ProvenPeer::Agent(proven)) if *proven == name => Ok(name),
        Some(_) => Err(Status::permission_denied(format!(
            "`{name}`: the certificate of this connection is for another host, switch or relay"
        ))),
    }
}

impl From<Stopped> for Status {
    fn from(stopped: Stopped) -> Status {
        Status::unavailable(stopped.to_string())
    }
}

/// Waits until agents have to measure other rates: the welcome of a new stream names them.
async fn wait_for_change(mut measured: watch::Receiver<Measured>) -> Status {
    if measured.changed().await.is_err() {
        // The coordinator stops.
        std::future::pending::<()>().await;
    }
    Status::aborted(NEW_MEASUREMENTS)
}
