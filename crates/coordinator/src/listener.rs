//! Accepts connections, authenticates their peers and passes the connections to a server.
//!
//! [`Admission`] limits the number of connections. Handshakes are concurrent, and each has to complete within
//! [`HANDSHAKE_TIMEOUT`]. A connection ends with the first of the certificates of both ends that expires. The kernel closes a connection whose peer does not acknowledge data for [`UNACKED_TIMEOUT`].

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info, warn};
use weir_tls::{chain_expiry, is_plain_text};

use crate::admission::{Admission, ConnectionSlot};
use crate::expiry::Expiry;
use crate::identity::Identity;
use crate::tls::{self, ListenerTls};

/// Maximum duration of a handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after which the kernel closes a connection with unacknowledged data, and idle time after which it sends
/// keepalive probes.
pub const UNACKED_TIMEOUT: Duration = Duration::from_secs(30);

/// Minimum time between two log lines about plain text from one address.
const PLAIN_TEXT_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of addresses in such lines per interval.
const MAX_WARNED_ADDRESSES: usize = 64;

/// Addresses of peers that used plain text where TLS is required, with the time of the last log line.
#[derive(Debug, Default)]
struct PlainTextWarnings(Mutex<BTreeMap<IpAddr, Instant>>);

impl PlainTextWarnings {
    /// Whether to log a further connection from this address.
    fn permits(&self, address: IpAddr) -> bool {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.retain(|_, time| time.elapsed() < PLAIN_TEXT_WARNING_INTERVAL);
        let is_due = times.len() < MAX_WARNED_ADDRESSES && !times.contains_key(&address);
        if is_due {
            times.insert(address, Instant::now());
        }
        is_due
    }
}

/// An authenticated connection.
pub struct PeerConnection {
    /// Identity of the client.
    pub identity: Identity,
    /// Address of the client.
    pub address: SocketAddr,
    /// The connection's bytes.
    pub stream: PeerStream,
    /// For a [probe](crate::admission): notified when a newer probe replaces this one.
    pub close_signal: Option<Arc<Notify>>,
}

/// Bytes of a connection. The connection counts for the limits until the stream is dropped. Reads and writes fail once a
/// certificate of one end has expired.
pub struct PeerStream {
    transport: Transport,
    /// When it ends; none for plain text.
    expiry: Option<Expiry>,
    is_expiry_logged: bool,
    address: SocketAddr,
    identity: Identity,
    _slot: ConnectionSlot,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Accepts peers at `listener` until the receiver is dropped. Without TLS, only peers on this host are accepted.
pub fn accept_peers(
    listener: TcpListener,
    tls: Option<ListenerTls>,
    admission: Arc<Admission>,
) -> mpsc::Receiver<PeerConnection> {
    // Connections that wait for the channel count for the limits, since they keep their slots.
    let (peers, receiver) = mpsc::channel(1);
    tokio::spawn(accept_connections(listener, tls, admission, peers));
    receiver
}

async fn accept_connections(
    listener: TcpListener,
    tls: Option<ListenerTls>,
    admission: Arc<Admission>,
    peers: mpsc::Sender<PeerConnection>,
) {
    let warnings = Arc::new(PlainTextWarnings::default());
    loop {
        let connection = tokio::select! {
            () = peers.closed() => return,
            connection = listener.accept() => connection,
        };
        match connection {
            Ok((socket, address)) => match admission.admit(address.ip()) {
                Some(slot) => {
                    let (tls, peers, warnings) = (tls.clone(), peers.clone(), Arc::clone(&warnings));
                    tokio::spawn(handshake(socket, address, tls, slot, peers, warnings));
                }
                None => debug!(%address, "connection refused: too many connections"),
            },
            Err(error) => {
                // Such as too many open files, until open connections end.
                warn!(%error, "cannot accept connections");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Authenticates the other end of a connection and passes the connection to the server.
async fn handshake(
    socket: TcpStream,
    address: SocketAddr,
    tls: Option<ListenerTls>,
    slot: ConnectionSlot,
    peers: mpsc::Sender<PeerConnection>,
    warnings: Arc<PlainTextWarnings>,
) {
    let close_signal = slot.close_signal();
    let authenticated = timeout(HANDSHAKE_TIMEOUT, authenticate(socket, address, tls, slot));
    match run_unless_closed(close_signal.as_deref(), authenticated).await {
        // Sending fails only if the server has ended.
        Some(Ok(Ok(peer))) => drop(peers.send(peer).await),
        Some(Ok(Err(error))) if is_plain_text(&error) && warnings.permits(address.ip()) => warn!(
            %address,
            "connection refused: the peer uses plain text; expected TLS; help: start the agent, relay or client with --certificate, \
             --key and --authority"
        ),
        Some(Ok(Err(error))) => debug!(%address, %error, "connection refused"),
        Some(Err(_)) => debug!(%address, "connection refused: handshake not completed in time"),
        None => debug!(%address, "connection refused: too many connections"),
    }
}

/// Returns the result of `work`, or `None` if a newer probe replaces this one before.
pub async fn run_unless_closed<T>(close_signal: Option<&Notify>, work: impl Future<Output = T>) -> Option<T> {
    let Some(closed) = close_signal else { return Some(work.await) };
    tokio::select! {
        () = closed.notified() => None,
        done = work => Some(done),
    }
}

async fn authenticate(
    socket: TcpStream,
    address: SocketAddr,
    tls: Option<ListenerTls>,
    slot: ConnectionSlot,
) -> io::Result<PeerConnection> {
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    options.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(UNACKED_TIMEOUT).with_interval(UNACKED_TIMEOUT / 6),
    )?;
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(UNACKED_TIMEOUT))?;
    let (identity, transport, expiry, slot) = match tls {
        None if address.ip().to_canonical().is_loopback() => {
            (Identity::Local, Transport::Plain(socket), None, slot)
        }
        None => return Err(io::Error::other("plain text from another host; expected TLS")),
        Some(tls) => {
            let stream = TlsAcceptor::from(tls.config).accept(socket).await?;
            let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let certificate =
                chain.first().ok_or_else(|| io::Error::other("client presented no certificate"))?;
            let identity = tls::certificate_identity(certificate).map_err(io::Error::other)?;
            let expiry = Expiry::new(tls.expiry.min(chain_expiry(chain)));
            let slot = slot.identify(identity.to_string());
            let slot = slot.ok_or_else(|| io::Error::other("too many connections of this identity"))?;
            (identity, Transport::Tls(Box::new(stream)), Some(expiry), slot)
        }
    };
    let close_signal = slot.close_signal();
    let stream = PeerStream {
        transport,
        expiry,
        is_expiry_logged: false,
        address,
        identity: identity.clone(),
        _slot: slot,
    };
    Ok(PeerConnection { identity, address, stream, close_signal })
}

impl PeerStream {
    /// Fails once a certificate has expired, and wakes the task then.
    fn check_expiry(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(expiry) = &mut self.expiry else { return Ok(()) };
        let checked = expiry.check(cx);
        if checked.is_err() && !std::mem::replace(&mut self.is_expiry_logged, true) {
            info!(
                address = %self.address, identity = %self.identity,
                "connection closed: a certificate has expired; expected a connection with a new one"
            );
        }
        checked
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_expiry(cx)?;
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check_expiry(cx)?;
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
