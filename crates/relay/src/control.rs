//! The stream to the coordinator: reports what the relay measures, and applies orders.

use std::convert::Infallible;
use std::error::Error;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use weir_proto::relay::wire::controller_message::Body;
use weir_proto::relay::wire::relay_control_client::RelayControlClient;
use weir_proto::relay::wire::{ControllerMessage, RelayMessage};
use weir_proto::relay::{
    GroupProgress, MAX_RELAY_ORDER_BYTES, MAX_RELAY_REPORT_BYTES, MAX_REPORTED_GROUPS, PathSample,
    RelayHello, RelayOrder, RelayReport, RelayWelcome, UnruledFlow,
};
use weir_tls::{LogLimit, is_plain_text};

use crate::io::{Command, Handle, LinkStatus, Status};
use crate::orders::Orders;

/// The maximum time without a message from the coordinator, which renews a lease at least once a second.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(3);

/// The wait after the first failure, and the maximum wait.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// How long a stream must last for the next attempt to be the first one again.
const STABLE_STREAM: Duration = Duration::from_secs(10);

/// The maximum time for the coordinator to read the last report.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum report interval that a relay accepts.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// An accepted stream.
pub struct Session {
    welcome: RelayWelcome,
    reports: mpsc::Sender<RelayMessage>,
    messages: tonic::Streaming<ControllerMessage>,
}

impl Session {
    /// The number of this relay.
    pub fn id(&self) -> u16 {
        self.welcome.id
    }
}

/// The wait before the next attempt to connect; none before the first.
#[derive(Debug, Default)]
struct Backoff(Option<Duration>);

impl Backoff {
    /// Waits, and doubles the next wait.
    async fn wait(&mut self) {
        if let Some(wait) = self.0 {
            sleep(wait).await;
        }
        self.0 = Some(self.0.map_or(FIRST_WAIT, |wait| (wait * 2).min(MAX_WAIT)));
    }

    /// Notes how long a stream has lasted. Streams that end at once must not be opened without a wait.
    fn note_stream(&mut self, duration: Duration) {
        if duration >= STABLE_STREAM {
            self.0 = None;
        }
    }
}

/// Opens a stream for the relay `name`. Tries again until the coordinator accepts it, and logs why it does not.
/// `coordinator`: the endpoint for the next connection, with the certificate at that time.
pub async fn connect(coordinator: &impl Fn() -> Endpoint, name: &str) -> Session {
    reconnect(coordinator, name, &mut Backoff::default()).await
}

async fn reconnect(coordinator: &impl Fn() -> Endpoint, name: &str, backoff: &mut Backoff) -> Session {
    let (start, mut log_limit) = (Instant::now(), LogLimit::default());
    loop {
        backoff.wait().await;
        let reason = match timeout(MESSAGE_TIMEOUT, open(&coordinator(), name)).await {
            Ok(Ok(session)) => {
                tracing::info!(relay = name, id = session.id(), "connected with the coordinator");
                return session;
            }
            Ok(Err(reason)) => reason,
            Err(_) => format!("the coordinator sent no message for {} s", MESSAGE_TIMEOUT.as_secs()),
        };
        if log_limit.permits("", &reason, start.elapsed()) {
            tracing::warn!(%reason, "no coordinator; trying again");
        }
    }
}

async fn open(coordinator: &Endpoint, name: &str) -> Result<Session, String> {
    let channel = coordinator.connect().await.map_err(|error| connect_failure(&error))?;
    let mut client = RelayControlClient::new(channel)
        .max_decoding_message_size(MAX_RELAY_ORDER_BYTES)
        .max_encoding_message_size(MAX_RELAY_REPORT_BYTES);
    let (reports, receiver) = mpsc::channel(1);
    let hello = RelayMessage::from(&RelayHello::new(name));
    let outgoing = tokio_stream::once(hello).chain(ReceiverStream::new(receiver));
    let is_plain_text = coordinator.uri().scheme_str() == Some("http");
    let reason = |status: tonic::Status| first_answer_failure(&status, is_plain_text);
    let answer = client.stream_relay_orders(outgoing).await.map_err(reason)?;
    let mut messages = answer.into_inner();
    let first = messages.message().await.map_err(reason)?;
    let Some(Body::Welcome(welcome)) = first.and_then(|message| message.body) else {
        return Err("the coordinator did not begin the stream with a welcome".to_owned());
    };
    let welcome = RelayWelcome::try_from(welcome).map_err(|error| error.to_string())?;
    if welcome.report_interval > MAX_INTERVAL {
        return Err(format!("the coordinator requests a report every {:?}", welcome.report_interval));
    }
    Ok(Session { welcome, reports, messages })
}

/// Why the coordinator did not accept a stream.
fn first_answer_failure(status: &tonic::Status, is_plain_text: bool) -> String {
    // A coordinator that requires TLS closes the connection without a status.
    if is_plain_text && status.source().is_some() {
        return "the coordinator closed the connection; help: if it uses TLS, start the relay with --certificate, --key and \
                --authority"
            .to_owned();
    }
    status_reason(status)
}

fn status_reason(status: &tonic::Status) -> String {
    if status.code() == tonic::Code::Unimplemented {
        return "the coordinator has no overlay, or another version; help: add [overlay] to its configuration"
            .to_owned();
    }
    // The cause can be an alert: the coordinator refuses the certificate.
    status.source().map_or_else(|| status.message().to_owned(), error_chain)
}

/// Why the coordinator cannot be reached.
fn connect_failure(error: &tonic::transport::Error) -> String {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(is_plain_text) {
            return "the coordinator uses plain text; expected TLS; help: set [tls] in its configuration"
                .to_owned();
        }
        cause = error.source();
    }
    error_chain(error)
}

/// An error with its causes.
fn error_chain(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", error_chain(source)),
        None => error.to_string(),
    }
}

/// Why [`run`] has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The relay has another number now, and its connections with other relays carry the old one.
    #[error("the coordinator now calls this relay number {found} instead of {expected}; start it again")]
    Renumbered {
        /// The number at the start.
        expected: u16,
        /// The number now.
        found: u16,
    },
    /// The thread of the relay has ended.
    #[error("the relay has ended")]
    RelayEnded,
}

/// The state of orders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OrderStatus {
    /// Whether the stream to the coordinator is open.
    pub is_connected: bool,
    /// The epoch and the sequence number of the last order; zeros before the first.
    pub applied: (u64, u64),
    /// When it was applied; none before the first.
    pub applied_at: Option<Instant>,
    /// When the lease ends; none without a lease.
    pub lease_end: Option<Instant>,
    /// The number of refused orders.
    pub refused: u64,
}

impl OrderStatus {
    fn new(orders: &Orders, start: Instant, is_connected: bool) -> OrderStatus {
        OrderStatus {
            is_connected,
            applied: orders.applied(),
            applied_at: orders.applied_at().map(|at| start + at),
            lease_end: orders.lease_end().map(|end| start + end),
            refused: orders.refused(),
        }
    }
}

/// Applies orders to the relay and reports its state, over as many streams as it takes. Sends the state of orders to `statuses`. When
/// `finish` completes, delivers a last report if the coordinator is connected, and returns.
///
/// # Errors
/// [`ControlError`].
pub async fn run(
    coordinator: impl Fn() -> Endpoint,
    name: &str,
    first: Session,
    relay: Handle,
    statuses: watch::Sender<OrderStatus>,
    finish: impl Future<Output = ()>,
) -> Result<(), ControlError> {
    let mut finish = pin!(finish);
    let (start, id) = (Instant::now(), first.id());
    let mut orders = Orders::default();
    // The attempt that has opened the first stream.
    let mut backoff = Backoff(Some(FIRST_WAIT));
    let mut session = first;
    loop {
        let stream_start = Instant::now();
        let served = serve(session, &mut orders, &relay, start, &statuses, finish.as_mut());
        let Some(reason) = served.await? else { return Ok(()) };
        tracing::warn!(%reason, "the stream to the coordinator has ended");
        backoff.note_stream(stream_start.elapsed());
        statuses.send_replace(OrderStatus::new(&orders, start, false));
        session = tokio::select! {
            session = reconnect(&coordinator, name, &mut backoff) => session,
            never = expire_forever(&mut orders, &relay, start) => match never {},
            () = &mut finish => return Ok(()),
        };
        if session.id() != id {
            return Err(ControlError::Renumbered { expected: id, found: session.id() });
        }
    }
}

/// Ends the lease when its time has passed, and then waits forever.
async fn expire_forever(orders: &mut Orders, relay: &Handle, start: Instant) -> Infallible {
    wait_for_lease_end(orders, start).await;
    expire(orders, relay, start);
    std::future::pending().await
}

async fn wait_for_lease_end(orders: &Orders, start: Instant) {
    match orders.lease_end() {
        Some(end) => sleep_until(start + end).await,
        None => std::future::pending().await,
    }
}

fn expire(orders: &mut Orders, relay: &Handle, start: Instant) {
    if orders.expire(start.elapsed()) {
        tracing::warn!("no order within the lease; flows take the direct path");
        relay.send(Command::SetOverlay(orders.overlay().clone()));
    }
}

/// Serves one stream, and closes it. Returns why it ended; none if `finish` has completed.
async fn serve(
    mut session: Session,
    orders: &mut Orders,
    relay: &Handle,
    start: Instant,
    statuses: &watch::Sender<OrderStatus>,
    mut finish: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<String>, ControlError> {
    let id = session.id();
    let mut next_report = Instant::now();
    let mut deadline = next_report + MESSAGE_TIMEOUT;
    loop {
        statuses.send_replace(OrderStatus::new(orders, start, true));
        tokio::select! {
            message = session.messages.message() => {
                deadline = Instant::now() + MESSAGE_TIMEOUT;
                let order = match message {
                    Err(status) => return Ok(Some(status_reason(&status))),
                    Ok(None) => return Ok(Some("the coordinator closed the stream".to_owned())),
                    Ok(Some(message)) => message.body,
                };
                let Some(Body::Order(order)) = order else {
                    return Ok(Some("the coordinator sent a message that is not an order".to_owned()));
                };
                let order = match RelayOrder::try_from(order) {
                    Err(error) => return Ok(Some(format!("the coordinator sent an invalid order: {error}"))),
                    Ok(order) => order,
                };
                apply(&order, id, orders, relay, start);
            }
            () = sleep_until(next_report) => {
                next_report = Instant::now() + session.welcome.report_interval;
                let status = status(relay).await.ok_or(ControlError::RelayEnded)?;
                let report = RelayMessage::from(&report(id, status, orders));
                if session.reports.try_send(report).is_err() && session.reports.is_closed() {
                    return Ok(Some("the coordinator closed the stream".to_owned()));
                }
            }
            () = wait_for_lease_end(orders, start) => expire(orders, relay, start),
            () = sleep_until(deadline) => {
                return Ok(Some(format!("the coordinator sent no message for {} s", MESSAGE_TIMEOUT.as_secs())));
            }
            () = &mut finish => {
                let status = status(relay).await.ok_or(ControlError::RelayEnded)?;
                let last = RelayMessage::from(&report(id, status, orders));
                if timeout(LAST_REPORT_TIMEOUT, deliver(session, last)).await.is_err() {
                    tracing::warn!("the coordinator did not read the last report in time");
                }
                return Ok(None);
            }
        }
    }
}

/// Sends the last report, and waits until the coordinator has read it and ended the stream.
async fn deliver(session: Session, last: RelayMessage) {
    let Session { reports, mut messages, .. } = session;
    // Sending fails if the stream has ended.
    let _ = reports.send(last).await;
    drop(reports);
    while let Ok(Some(_)) = messages.message().await {}
}

fn apply(order: &RelayOrder, id: u16, orders: &mut Orders, relay: &Handle, start: Instant) {
    let is_renewal = !order.is_full
        && order.peers.is_empty()
        && order.coflows.is_empty()
        && order.removed_coflows.is_empty()
        && order.rules.is_empty()
        && order.removed_rules.is_empty();
    match orders.apply(order, id, start.elapsed()) {
        Ok(()) if is_renewal => {}
        Ok(()) => relay.send(Command::SetOverlay(orders.overlay().clone())),
        Err(reason) => tracing::warn!(epoch = order.epoch, seq = order.seq, %reason, "order is refused"),
    }
}

async fn status(relay: &Handle) -> Option<Status> {
    let (sender, answer) = oneshot::channel();
    // The stream may have ended before the answer.
    relay.send(Command::Report(Box::new(move |status| drop(sender.send(status)))));
    answer.await.ok()
}

fn report(id: u16, status: Status, orders: &Orders) -> RelayReport {
    let known = |micros: Duration| (!micros.is_zero()).then_some(micros);
    let path = |(relay, link): (&crate::message::RelayId, &LinkStatus)| PathSample {
        peer: relay.0,
        is_connected: link.is_up,
        rate: (link.rate > 0).then_some(link.rate),
        min_rtt: known(link.min_round_trip),
        rtt: known(link.round_trip),
        segments: link.segments,
        retransmitted_segments: link.retransmitted_segments,
        sent_bytes: link.counters.sent_bytes,
        detoured_bytes: link.counters.detoured_bytes,
    };
    let groups = status.groups.iter().take(MAX_REPORTED_GROUPS);
    RelayReport {
        applied: orders.applied(),
        paths: status.links.iter().map(path).collect(),
        groups: groups
            .map(|(&(coflow, destination), progress)| GroupProgress {
                coflow,
                source: id,
                destination: destination.0,
                acked_bytes: progress.acked_bytes,
                open_flows: progress.open_flows,
                detoured_bytes: progress.detoured_bytes,
            })
            .collect(),
        unruled_flows: status
            .unruled_flows
            .iter()
            .map(|(flow, destination)| UnruledFlow {
                coflow: flow.coflow,
                flow: flow.flow,
                destination: destination.0,
            })
            .collect(),
        refused_orders: orders.refused(),
        is_draining: status.is_draining,
    }
}
