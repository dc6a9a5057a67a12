//! gRPC server for relays: one stream for each relay, with reports to the coordinator and orders to the relay.
//!
//! *Authentication.* As for agents, a stream must be for the relay that the certificate of its connection proves. On loopback, there are
//! no certificates, and the server accepts the name in the hello.
//!
//! *Names.* While a relay reports, the server refuses other relays with its name.
//!
//! *Limits.* Those of agents: time without messages, reports per interval, and the length of each message.

use std::future::ready;

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weir_proto::relay::wire::relay_control_server::{RelayControl, RelayControlServer};
use weir_proto::relay::wire::relay_message::Body;
use weir_proto::relay::wire::{ControllerMessage, RelayMessage};
use weir_proto::relay::{
    MAX_RELAY_ORDER_BYTES, MAX_RELAY_REPORT_BYTES, MAX_RELAY_VERSION, MIN_RELAY_VERSION, RelayHello,
    RelayOrder, RelayReport, RelayWelcome,
};

use crate::agents::Served;
use crate::overlay::{NameTaken, REPORT_INTERVAL};
use crate::streams::{
    PeerInfo, ProvenPeer, apply_reports, next_message, run_stream, send_orders, wait_for_configuration,
};

/// The gRPC service for relays.
pub struct RelayService(watch::Receiver<Served>);

/// The service, with limits on the lengths of messages.
pub fn relay_service(served: watch::Receiver<Served>) -> RelayControlServer<RelayService> {
    RelayControlServer::new(RelayService(served))
        .max_decoding_message_size(MAX_RELAY_REPORT_BYTES)
        .max_encoding_message_size(MAX_RELAY_ORDER_BYTES)
}

#[tonic::async_trait]
impl RelayControl for RelayService {
    type StreamRelayOrdersStream = ReceiverStream<Result<ControllerMessage, Status>>;

    async fn stream_relay_orders(
        &self,
        request: Request<Streaming<RelayMessage>>,
    ) -> Result<Response<Self::StreamRelayOrdersStream>, Status> {
        let peer = request.extensions().get::<PeerInfo>().cloned();
        let address = peer.as_ref().map(|peer| peer.address).or_else(|| request.remote_addr());
        let address = address.ok_or_else(|| Status::internal("the address of the relay is unknown"))?;
        let mut current = self.0.clone();
        let handle = current.borrow_and_update().overlay.clone();
        let handle =
            handle.ok_or_else(|| Status::failed_precondition("the configuration has no `overlay`"))?;
        let mut reports = request.into_inner();
        let Some(Body::Hello(hello)) = next_message(&mut reports).await?.and_then(|message| message.body)
        else {
            return Err(Status::invalid_argument("the first message is not a hello; expected a hello"));
        };
        let hello = RelayHello::try_from(hello)
            .map_err(|error| Status::invalid_argument(format!("hello: {error}")))?;
        let name = &hello.name;
        let id = handle.config().numbers.get(name).copied().ok_or_else(|| {
            Status::not_found(format!(
                "relay `{name}` is not in the configuration; expected a name of `[overlay.relay]`"
            ))
        })?;
        if peer.and_then(|peer| peer.proven).is_some_and(|proven| proven != ProvenPeer::Relay(name.clone())) {
            return Err(Status::permission_denied(format!(
                "relay `{name}`: the certificate of this connection is for another relay or host"
            )));
        }
        let version = hello.common_version().ok_or_else(|| {
            let (min, max) = (hello.min_version, hello.max_version);
            Status::failed_precondition(format!(
                "relay `{name}` speaks versions {min} to {max} of the protocol; expected {MIN_RELAY_VERSION} to {MAX_RELAY_VERSION}"
            ))
        })?;
        let orders = handle.subscribe_to_orders(id, address).map_err(|NameTaken(connected)| {
            Status::already_exists(name_taken(name, &connected.to_string()))
        })?;
        let welcome =
            ControllerMessage::from(&RelayWelcome { id, report_interval: REPORT_INTERVAL, version });
        let (messages, message_receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let other_stream = || {
                let address = handle.relay_address(id).map(|address| address.to_string());
                Status::aborted(name_taken(&hello.name, address.as_deref().unwrap_or("an unknown address")))
            };
            let orders =
                send_orders(welcome, orders, |order: &RelayOrder| order.into(), &messages, other_stream);
            let wire_report = |message: RelayMessage| match message.body? {
                Body::Report(report) => Some(report),
                Body::Hello(_) => None,
            };
            let apply = |report: RelayReport| {
                handle.call(|overlay, now| overlay.report(id, &report, now));
                ready(Ok(()))
            };
            let reports = async {
                tokio::select! {
                    ended = apply_reports(reports, REPORT_INTERVAL, wire_report, apply) => ended,
                    status = wait_for_configuration(current) => Err(status),
                }
            };
            run_stream(reports, orders, &messages).await;
        });
        Ok(Response::new(ReceiverStream::new(message_receiver)))
    }
}

/// What a relay logs whose name another relay uses.
fn name_taken(name: &str, address: &str) -> String {
    format!("another relay named {name} is connected from {address}; help: give each relay its own --name")
}
