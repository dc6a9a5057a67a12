//! Keeps a stream to the coordinator open: when the stream ends, opens it again, with increasing waits between attempts.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{AgentMessage, coordinator_message::Body};
use weir_proto::{
    MAX_ORDER_BYTES, MAX_REPORT_BYTES, NEW_CONFIGURATION, NEW_MEASUREMENTS, Network, Order, Report,
    UdpControl, wire,
};
use weir_tls::{LogLimit, RELOAD_INTERVAL, Refresh};

use super::endpoint::CoordinatorEndpoint;
use super::interface_addresses;
use crate::queues::Interface;

/// The maximum time without a message from the coordinator, which renews a lease at least once a second.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// The wait after the first failure.
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// The maximum wait between two attempts.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// How often the agent checks the addresses of its interfaces.
const ADDRESS_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Why a stream ends when the addresses of the host have changed.
const ADDRESSES_CHANGED: &str = "the addresses of the interfaces have changed";

/// The maximum report interval that an agent accepts.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// An event on the stream.
pub enum StreamEvent {
    /// The coordinator has accepted the stream.
    Started {
        /// The number of the host or switch at the coordinator.
        number: u32,
        /// How often to report.
        report_interval: Duration,
        /// How UDP is limited, and which of its rates to report.
        udp_control: Option<UdpControl>,
        /// Whether to report the demands of applications.
        wants_demands: bool,
        /// The coordinator's address, to which reports go.
        coordinator: SocketAddr,
        /// The lowest generation of the coordinator's store.
        first_generation: u64,
        /// The rates of the agent's links in the coordinator's configuration, in bytes per second; 0 if not configured.
        link_rates: Vec<u64>,
        /// Takes the reports to send.
        report_sender: mpsc::Sender<Report>,
    },
    /// An order arrived.
    Order(Box<Order>),
    /// The stream ended.
    Ended,
}

/// What an agent states when it opens a stream.
#[derive(Debug, Clone)]
pub struct AgentIdentity {
    /// The name of the host or switch.
    pub name: String,
    /// The rates of its links, in bytes per second.
    pub link_rates: Vec<u64>,
    /// The interfaces whose addresses are those of the host or switch.
    pub interfaces: Vec<Interface>,
    /// The networks of its pods.
    pub networks: Vec<Network>,
    /// Its labels, by name.
    pub labels: BTreeMap<String, String>,
}

/// Keeps a stream open for a host or switch, until the receiver of events is dropped. Uses new certificate files for the next stream, and
/// opens another stream when the addresses of the host have changed.
pub async fn keep_open(
    coordinator: &CoordinatorEndpoint,
    identity: &AgentIdentity,
    events: mpsc::Sender<StreamEvent>,
) {
    tokio::select! {
        () = run_streams(coordinator, identity, &events) => {}
        never = reload_certificate(coordinator) => match never {},
    }
}

/// Opens streams one after the other.
async fn run_streams(
    coordinator: &CoordinatorEndpoint,
    identity: &AgentIdentity,
    events: &mpsc::Sender<StreamEvent>,
) {
    // Agents that lost the same coordinator do not connect again at the same time.
    let spread = 0.75 + (hash(&identity.name) % 64) as f64 / 128.0;
    let start = Instant::now();
    let mut wait = FIRST_WAIT;
    let mut log_limit = LogLimit::default();
    let mut addresses = read_addresses(&identity.interfaces).await;
    let mut connection = None;
    loop {
        let began = Instant::now();
        let endpoint = coordinator.current();
        let mut reason = tokio::select! {
            reason = run_stream(&endpoint, &mut connection, identity, &addresses, events) => reason,
            () = wait_for_change(&identity.interfaces, &addresses) => ADDRESSES_CHANGED.to_owned(),
        };
        if events.send(StreamEvent::Ended).await.is_err() {
            return;
        }
        // The coordinator requests another stream, and the connection stays: leases hold until the first order.
        if [NEW_MEASUREMENTS, NEW_CONFIGURATION].contains(&&*reason) && began.elapsed() > FIRST_WAIT {
            tracing::info!("{}", describe_stream_end(&reason));
            continue;
        }
        connection = None;
        if began.elapsed() > MAX_WAIT {
            (wait, log_limit) = (FIRST_WAIT, LogLimit::default());
        }
        // A coordinator that refuses the certificate closes the connection, sometimes before its reason has arrived.
        let own = coordinator.clone();
        let problem = spawn_blocking(move || own.certificate_problem("agent")).await;
        if let Ok(Some(problem)) = problem {
            reason = format!("{problem} ({reason})");
        }
        if log_limit.permits("", &reason, start.elapsed()) {
            let line = describe_stream_end(&reason);
            match &*reason {
                NEW_MEASUREMENTS | NEW_CONFIGURATION | ADDRESSES_CHANGED => tracing::info!("{line}"),
                _ => tracing::warn!("{line}"),
            }
        }
        sleep(wait.mul_f64(spread)).await;
        addresses = read_addresses(&identity.interfaces).await;
        wait = (wait * 2).min(MAX_WAIT);
    }
}

/// Waits until the addresses of interfaces differ from these.
async fn wait_for_change(interfaces: &[Interface], addresses: &[IpAddr]) {
    while read_addresses(interfaces).await == addresses {
        sleep(ADDRESS_CHECK_INTERVAL).await;
    }
}

/// Reads the addresses of interfaces in another thread: the kernel's list waits for its lock of interfaces.
async fn read_addresses(interfaces: &[Interface]) -> Vec<IpAddr> {
    let interfaces = interfaces.to_vec();
    spawn_blocking(move || interface_addresses::read(&interfaces)).await.unwrap_or_default()
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

/// The log line of a stream that has ended for a reason.
fn describe_stream_end(reason: &str) -> String {
    let event = if [NEW_MEASUREMENTS, NEW_CONFIGURATION, ADDRESSES_CHANGED].contains(&reason) {
        "connecting again"
    } else {
        "no coordinator"
    };
    format!("{event}: {reason}")
}

/// Reads new certificate files, and logs if they are unusable.
async fn reload_certificate(coordinator: &CoordinatorEndpoint) -> Infallible {
    loop {
        sleep(RELOAD_INTERVAL).await;
        let read = coordinator.clone();
        match spawn_blocking(move || read.refresh()).await {
            Ok(Refresh::Reloaded) => tracing::info!("new certificate in use"),
            Ok(Refresh::Failed(reason)) => tracing::error!(
                "new certificate files are unusable; the former certificate stays in use: {reason}"
            ),
            Ok(Refresh::Unchanged) | Err(_) => {}
        }
    }
}

/// The coordinator's message, or why the connection failed. A status of an unknown method is without one: another version names the
/// method otherwise.
fn status_reason(status: &tonic::Status) -> String {
    if status.code() == tonic::Code::Unimplemented {
        return "the coordinator has another protocol; help: install the same version of weir".to_owned();
    }
    // The cause can be an alert: the coordinator refuses the certificate.
    match status.source() {
        Some(source) => error_chain(source),
        None => status.message().to_owned(),
    }
}

/// Opens one stream, on the open connection if there is one, and forwards its orders as events. Returns why the stream ended.
async fn run_stream(
    coordinator: &Endpoint,
    connection: &mut Option<(Channel, SocketAddr)>,
    identity: &AgentIdentity,
    addresses: &[IpAddr],
    events: &mpsc::Sender<StreamEvent>,
) -> String {
    let to_timeout_error = |_| format!("the coordinator sent no message for {} s", MESSAGE_TIMEOUT.as_secs());
    match timeout(MESSAGE_TIMEOUT, open_stream(coordinator, connection, identity, addresses))
        .await
        .map_err(to_timeout_error)
        .and_then(|opened| opened)
    {
        Err(reason) => reason,
        Ok(OpenStream { address, welcome, report_sender, mut orders }) => {
            let report_interval = welcome.interval();
            let (udp_control, wants_demands) = (welcome.control_of_udp(), welcome.wants_demands);
            if events
                .send(StreamEvent::Started {
                    number: welcome.number,
                    report_interval,
                    udp_control,
                    wants_demands,
                    coordinator: address,
                    first_generation: welcome.first_generation,
                    link_rates: welcome.link_rates,
                    report_sender,
                })
                .await
                .is_err()
            {
                return String::new();
            }
            tracing::info!(
                "{} has a coordinator, reports every {} ms",
                identity.name,
                report_interval.as_secs_f64() * 1e3
            );
            loop {
                // The coordinator sends orders to a host after the host's first report, so the first order may take longer.
                let order = match timeout(MESSAGE_TIMEOUT, orders.message()).await.map_err(to_timeout_error) {
                    Err(reason) => return reason,
                    Ok(Err(status)) => return status_reason(&status),
                    Ok(Ok(None)) => return "the coordinator closed the stream".to_owned(),
                    Ok(Ok(Some(message))) => message.body,
                };
                let Some(Body::Order(order)) = order else {
                    return "the coordinator sent a message that is not an order".to_owned();
                };
                let order = match Order::try_from(order) {
                    Err(reason) => return format!("the coordinator sent an invalid order: {reason}"),
                    Ok(order) => order,
                };
                if events.send(StreamEvent::Order(Box::new(order))).await.is_err() {
                    return String::new();
                }
            }
        }
    }
}

struct OpenStream {
    /// The coordinator's address.
    address: SocketAddr,
    welcome: wire::Welcome,
    report_sender: mpsc::Sender<Report>,
    orders: tonic::Streaming<wire::CoordinatorMessage>,
}

/// Connects to the coordinator. Returns the address too, since a name can have several.
async fn connect(coordinator: &Endpoint) -> Result<(Channel, SocketAddr), String> {
    let address = Arc::new(OnceLock::new());
    let connected = Arc::clone(&address);
    let connector = tower::service_fn(move |uri: Uri| {
        let connected = Arc::clone(&connected);
        async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or_default())).await?;
            // Reports and orders are small and must not wait for each other.
            stream.set_nodelay(true)?;
            // The channel is used for one connection.
            let _ = connected.set(stream.peer_addr()?);
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    let channel = coordinator.connect_with_connector(connector).await.map_err(|error| error_chain(&error))?;
    let address = *address.get().ok_or("the connection has no address")?;
    Ok((channel, SocketAddr::new(address.ip().to_canonical(), address.port())))
}

async fn open_stream(
    coordinator: &Endpoint,
    connection: &mut Option<(Channel, SocketAddr)>,
    identity: &AgentIdentity,
    addresses: &[IpAddr],
) -> Result<OpenStream, String> {
    let (channel, address) = match connection {
        Some(open) => open.clone(),
        None => connection.insert(connect(coordinator).await?).clone(),
    };
    let mut control = ControlClient::new(channel)
        .max_decoding_message_size(MAX_ORDER_BYTES)
        .max_encoding_message_size(MAX_REPORT_BYTES);
    let (report_sender, reports) = mpsc::channel(1);
    let messages = ReceiverStream::new(reports).map(|report| AgentMessage::report(&report));
    let own_addresses = addresses.iter().map(|address| Network::from(*address));
    let networks: Vec<Network> = identity.networks.iter().copied().chain(own_addresses).collect();
    let hello = AgentMessage::hello(&identity.name, identity.link_rates.clone(), &networks);
    let hello = hello.with_labels(&identity.labels);
    let messages = tokio_stream::once(hello).chain(messages);
    let answer = control.stream_orders(messages).await.map_err(|status| status_reason(&status))?;
    let mut orders = answer.into_inner();
    let first = orders.message().await.map_err(|status| status_reason(&status))?;
    let Some(Body::Welcome(welcome)) = first.and_then(|message| message.body) else {
        return Err("the coordinator did not begin the stream with a welcome".to_owned());
    };
    let report_interval = welcome.interval();
    if report_interval.is_zero() || report_interval > MAX_INTERVAL {
        return Err(format!(
            "the coordinator requests a report every {} s; expected more than 0 s, and at most {} s",
            report_interval.as_secs_f64(),
            MAX_INTERVAL.as_secs()
        ));
    }
    Ok(OpenStream { address, welcome, report_sender, orders })
}

/// An error with its causes, without the address of the TLS library's documentation.
fn error_chain(error: &dyn Error) -> String {
    let text = error.to_string();
    match error.source() {
        Some(source) => format!("{text}: {}", error_chain(source)),
        None => text.split_once(": https://docs.rs/").map_or(&*text, |(reason, _)| reason).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_that_ends_for_other_measurements_is_no_failure() {
        let end = describe_stream_end(&status_reason(&tonic::Status::aborted(NEW_MEASUREMENTS)));
        assert_eq!(end, "connecting again: the coordinator requests other measurements");
        let replaced = tonic::Status::aborted("another stream has begun for this peer");
        let end = describe_stream_end(&status_reason(&replaced));
        assert_eq!(end, "no coordinator: another stream has begun for this peer");
    }

    #[test]
    fn reasons_have_no_address_of_the_tls_library() {
        // The error of rustls for a connection that ends without an alert.
        let text = "peer closed connection without sending TLS close_notify: \
                    https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof";
        let eof = io::Error::new(io::ErrorKind::UnexpectedEof, text);
        assert_eq!(error_chain(&eof), "peer closed connection without sending TLS close_notify");
        assert_eq!(error_chain(&io::Error::other("10.0.0.1: refused")), "10.0.0.1: refused");
    }
}
