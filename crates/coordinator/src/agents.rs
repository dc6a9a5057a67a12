//! gRPC server for agents: one stream for each host or switch, with reports to the coordinator and orders to the agent.
//!
//! A stream is for the host that its connection has proven: the listener puts the proven [`Identity`] into the
//! request's extensions. Without one, which is for loopback only, the agent's own claim counts.
//!
//! A host that is silent or does not take its messages loses its stream, and may connect again. A host that sends too
//! many reports is read more slowly. At most one report of a host is in memory, and the length of each message is
//! checked before it is read.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpIncoming};
use tonic::{Request, Response, Status, Streaming};
use weir_proto::wire::control_server::{Control, ControlServer};
use weir_proto::wire::up::What;
use weir_proto::wire::{Down, Up};
use weir_proto::{MAX_ORDER, MAX_REPORT, Order, Report};

use crate::master::{Handle, Stopped};

/// Time after which a silent host, or one that takes no messages, loses its stream.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum number of reports of a host that are read per interval, and maximum burst after a pause.
const REPORTS: u32 = 4;

/// The host or switch that a connection has proven to be, by number; an extension of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub u32);

/// The gRPC service for agents.
pub struct Agents {
    handle: Handle,
}

/// The service, with its limits on message lengths.
pub fn service(handle: Handle) -> ControlServer<Agents> {
    ControlServer::new(Agents { handle })
        .max_decoding_message_size(MAX_REPORT)
        .max_encoding_message_size(MAX_ORDER)
}

/// Serves agents without authentication. Runs until an error, or until it is dropped.
///
/// # Errors
/// The server cannot accept connections any more.
pub async fn serve(listener: TcpListener, handle: Handle) -> Result<(), tonic::transport::Error> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    serve_connections(incoming, handle, std::future::pending()).await
}

/// Serves agents on connections whose [`Connected::connect_info`] is an [`Identity`] if they have proven one. Ends with
/// an error, or once `stop` has completed.
///
/// # Errors
/// The server cannot accept connections any more.
pub async fn serve_connections<C>(
    incoming: impl Stream<Item = io::Result<C>>,
    handle: Handle,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let server = Server::builder()
        .max_concurrent_streams(4)
        .http2_keepalive_interval(Some(PATIENCE))
        .http2_keepalive_timeout(Some(PATIENCE));
    server.serve_with_incoming_shutdown(service(handle), incoming, stop).await
}

#[tonic::async_trait]
impl Control for Agents {
    type AttendStream = ReceiverStream<Result<Down, Status>>;

    async fn attend(&self, request: Request<Streaming<Up>>) -> Result<Response<Self::AttendStream>, Status> {
        let proven = request.extensions().get::<Identity>().copied();
        let mut reports = request.into_inner();
        let Some(What::Hello(hello)) = next(&mut reports).await? else {
            return Err(Status::invalid_argument("expected a hello first"));
        };
        let host = hello.host;
        if proven.is_some_and(|Identity(proven)| proven != host) {
            return Err(Status::permission_denied(format!("host {host}: the connection is another host's")));
        }
        let orders = self.handle.attend(host).await?.ok_or_else(|| {
            let last = self.handle.hosts().saturating_sub(1);
            Status::not_found(format!("host {host}: expected 0 to {last}"))
        })?;
        let (down, answer) = mpsc::channel(1);
        let handle = self.handle.clone();
        let welcome = Down::welcome(handle.interval(), handle.throttles(), handle.allocates());
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = hear(&handle, host, reports) => ended,
                ended = tell(welcome, orders, &down) => ended,
            };
            if let Err(why) = ended {
                // An order may still wait in the channel. If the agent does not take the order either, it gets no
                // status.
                let _ = timeout(PATIENCE, down.send(Err(why))).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(answer)))
    }
}

impl From<Stopped> for Status {
    fn from(stopped: Stopped) -> Status {
        Status::unavailable(stopped.to_string())
    }
}

/// The next message of a host; `None` at the end of the stream.
async fn next(reports: &mut Streaming<Up>) -> Result<Option<What>, Status> {
    let silent = |_| Status::deadline_exceeded(format!("nothing was said for {} s", PATIENCE.as_secs()));
    Ok(timeout(PATIENCE, reports.message()).await.map_err(silent)??.and_then(|up| up.what))
}

/// Applies a host's reports until the end of the stream.
async fn hear(handle: &Handle, host: u32, mut reports: Streaming<Up>) -> Result<(), Status> {
    let turn = handle.interval() / REPORTS;
    let mut due = Instant::now();
    while let Some(what) = next(&mut reports).await? {
        let What::Report(report) = what else {
            return Err(Status::invalid_argument("expected reports after the hello"));
        };
        let report = Report::try_from(report).map_err(|why| Status::invalid_argument(why.to_string()))?;
        handle.report(host, report).await?;
        let now = Instant::now();
        // After a pause, a host may send a burst of [`REPORTS`].
        due = due.max(now - turn * REPORTS) + turn;
        sleep_until(due).await;
    }
    Ok(())
}

/// Sends the welcome message and then the host's orders, until another stream subscribes to them.
async fn tell(
    welcome: Down,
    mut orders: mpsc::Receiver<Order>,
    down: &mpsc::Sender<Result<Down, Status>>,
) -> Result<(), Status> {
    let mut message = welcome;
    loop {
        match timeout(PATIENCE, down.send(Ok(message))).await {
            Err(_) => return Err(Status::deadline_exceeded("orders were not taken")),
            Ok(Err(_)) => return Ok(()),
            Ok(Ok(())) => {}
        }
        let Some(order) = orders.recv().await else {
            return Err(Status::aborted("another agent has connected for this host"));
        };
        message = Down::order(&order);
    }
}
