//! Shared parts of the gRPC streams of agents and relays.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};
use weir_proto::NEW_CONFIGURATION;

/// Time without a message from the peer, or without reading by the peer, after which the server ends the stream.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of reports of a peer that the server reads per interval, and maximum burst after a pause.
pub(crate) const MAX_REPORTS_PER_INTERVAL: u32 = 4;

/// The peer of a connection; an extension of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its address.
    pub address: SocketAddr,
    /// What its certificate proves; none without TLS.
    pub proven: Option<ProvenPeer>,
}

/// What the certificate of a connection proves about the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProvenPeer {
    /// The agent of the host or switch of this name.
    Agent(String),
    /// The relay of this name.
    Relay(String),
}

/// The next message of a peer; `None` at the end of the stream.
pub(crate) async fn next_message<T>(messages: &mut Streaming<T>) -> Result<Option<T>, Status> {
    let timed_out =
        |_| Status::deadline_exceeded(format!("peer: no message for {} s", IDLE_TIMEOUT.as_secs()));
    timeout(IDLE_TIMEOUT, messages.message()).await.map_err(timed_out)?
}

/// Sends the welcome and then the peer's orders, until another stream subscribes to them: then, returns the status `replaced`.
pub(crate) async fn send_orders<M, O>(
    welcome: M,
    mut orders: mpsc::Receiver<O>,
    encode: impl Fn(&O) -> M,
    messages: &mpsc::Sender<Result<M, Status>>,
    replaced: impl FnOnce() -> Status,
) -> Result<(), Status> {
    let mut message = welcome;
    loop {
        match timeout(IDLE_TIMEOUT, messages.send(Ok(message))).await {
            Err(_) => {
                let message = format!("peer: did not read its orders for {} s", IDLE_TIMEOUT.as_secs());
                return Err(Status::deadline_exceeded(message));
            }
            Ok(Err(_)) => return Ok(()),
            Ok(Ok(())) => {}
        }
        let Some(order) = orders.recv().await else {
            return Err(replaced());
        };
        message = encode(&order);
    }
}

/// Applies the reports of a peer until the end of its stream. `wire_report`: the report in a message, if it has one.
pub(crate) async fn apply_reports<M, W, R, F>(
    mut messages: Streaming<M>,
    interval: Duration,
    wire_report: impl Fn(M) -> Option<W>,
    apply: impl Fn(R) -> F,
) -> Result<(), Status>
where
    R: TryFrom<W, Error: Display>,
    F: Future<Output = Result<(), Status>>,
{
    let report_gap = interval / MAX_REPORTS_PER_INTERVAL;
    let mut next_read_at = Instant::now();
    while let Some(message) = next_message(&mut messages).await? {
        let report = wire_report(message).ok_or_else(|| {
            Status::invalid_argument("a message after the hello is not a report; expected reports only")
        })?;
        let report =
            R::try_from(report).map_err(|error| Status::invalid_argument(format!("report: {error}")))?;
        apply(report).await?;
        let now = Instant::now();
        // After a pause, a peer may send a burst of `MAX_REPORTS_PER_INTERVAL` reports.
        next_read_at = next_read_at.max(now - report_gap * MAX_REPORTS_PER_INTERVAL) + report_gap;
        sleep_until(next_read_at).await;
    }
    Ok(())
}

/// Waits until another configuration replaces the present one: then the peer has to open another stream.
pub(crate) async fn wait_for_configuration<T>(mut current: watch::Receiver<T>) -> Status {
    if current.changed().await.is_err() {
        // The coordinator stops.
        std::future::pending::<()>().await;
    }
    Status::aborted(NEW_CONFIGURATION)
}

/// Runs the two directions of a stream until one ends, and sends its status.
pub(crate) async fn run_stream<M>(
    reports: impl Future<Output = Result<(), Status>>,
    orders: impl Future<Output = Result<(), Status>>,
    messages: &mpsc::Sender<Result<M, Status>>,
) {
    let result = tokio::select! {
        ended = reports => ended,
        ended = orders => ended,
    };
    if let Err(status) = result {
        // An order may still wait in the channel. A peer that does not read the order does not get the status either.
        let _ = timeout(IDLE_TIMEOUT, messages.send(Err(status))).await;
    }
}
