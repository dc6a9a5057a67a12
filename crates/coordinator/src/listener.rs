//! Accepts connections, authenticates their peers and passes the connections to a server.
//!
//! [`Admission`] limits the number of connections. Handshakes are concurrent, and each has to complete within
//! [`HANDSHAKE_TIMEOUT`]. A connection ends with the first of the certificates of both ends that expires. The kernel closes a
//! connection whose peer does not acknowledge data for [`UNACKED_TIMEOUT`].

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info, warn};
use weir_tls::{WrongName, chain_expiry};

use crate::admission::{Admission, ConnectionSlot};
use crate::expiry::Expiry;
use crate::identity::Identity;
use crate::peers::{ConnectedPeer, Peers};
use crate::tls::{self, ServerCertificate};

/// Maximum duration of a handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after which the kernel closes a connection with unacknowledged data, and idle time after which it sends
/// keepalive probes.
pub const UNACKED_TIMEOUT: Duration = Duration::from_secs(30);

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
    _connected: Option<ConnectedPeer>,
    _slot: ConnectionSlot,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Accepts peers at `listener` until the receiver is dropped. Without TLS, only peers on this host are accepted.
pub fn accept_peers(
    listener: TcpListener,
    certificate: Option<Arc<ServerCertificate>>,
    admission: Arc<Admission>,
    known: Arc<Peers>,
) -> mpsc::Receiver<PeerConnection> {
    // Connections that wait for the channel count for the limits, since they keep their slots.
    let (peers, receiver) = mpsc::channel(1);
    tokio::spawn(accept_connections(listener, Authenticator { certificate, known, admission }, peers));
    receiver
}

/// Authenticates peers.
#[derive(Clone)]
struct Authenticator {
    /// None for plain text.
    certificate: Option<Arc<ServerCertificate>>,
    known: Arc<Peers>,
    admission: Arc<Admission>,
}

async fn accept_connections(
    listener: TcpListener,
    authenticator: Authenticator,
    peers: mpsc::Sender<PeerConnection>,
) {
    loop {
        let connection = tokio::select! {
            () = peers.closed() => return,
            connection = listener.accept() => connection,
        };
        match connection {
            Ok((socket, address)) => match authenticator.admission.admit(address.ip()) {
                Some(slot) => {
                    tokio::spawn(handshake(socket, address, authenticator.clone(), slot, peers.clone()));
                }
                None => authenticator.note_over_limit(&address.ip().to_string()),
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
    authenticator: Authenticator,
    slot: ConnectionSlot,
    peers: mpsc::Sender<PeerConnection>,
) {
    let close_signal = slot.close_signal();
    let authenticated = timeout(HANDSHAKE_TIMEOUT, authenticator.authenticate(socket, address, slot));
    match run_unless_closed(close_signal.as_deref(), authenticated).await {
        // Sending fails only if the server has ended.
        Some(Ok(Ok(peer))) => drop(peers.send(peer).await),
        Some(Ok(Err(Refusal::Handshake(error)))) => authenticator.known.note_failure(address, &error),
        Some(Ok(Err(Refusal::Socket(error)))) => debug!(%address, %error, "connection refused"),
        Some(Ok(Err(Refusal::TooManyConnections(identity)))) => {
            authenticator.note_over_limit(&identity.to_string());
        }
        Some(Err(_)) => {
            let late = io::Error::new(io::ErrorKind::TimedOut, "handshake not completed in time");
            authenticator.known.note_failure(address, &late);
        }
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

/// Why a connection is refused.
enum Refusal {
    /// The kernel refused an option.
    Socket(io::Error),
    /// The handshake failed.
    Handshake(io::Error),
    /// The limit of this identity is reached.
    TooManyConnections(Identity),
}

fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let options = SockRef::from(socket);
    options.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(UNACKED_TIMEOUT).with_interval(UNACKED_TIMEOUT / 6),
    )?;
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(UNACKED_TIMEOUT))?;
    Ok(())
}

impl Authenticator {
    fn note_over_limit(&self, client: &str) {
        self.known.note_over_limit(client, self.admission.over_limit());
    }

    async fn authenticate(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        slot: ConnectionSlot,
    ) -> Result<PeerConnection, Refusal> {
        set_options(&socket).map_err(Refusal::Socket)?;
        let Some(certificate) = &self.certificate else {
            if !address.ip().to_canonical().is_loopback() {
                let error = io::Error::other("plain text from another host; expected TLS");
                return Err(Refusal::Handshake(error));
            }
            let close_signal = slot.close_signal();
            if close_signal.is_some() {
                self.note_over_limit(&address.ip().to_string());
            }
            let stream = PeerStream::new(Transport::Plain(socket), address, Identity::Local, slot);
            return Ok(PeerConnection { identity: Identity::Local, address, stream, close_signal });
        };
        // Such as a check whether the port is open.
        if socket.peek(&mut [0]).await.map_err(Refusal::Socket)? == 0 {
            return Err(Refusal::Socket(io::ErrorKind::UnexpectedEof.into()));
        }
        let own = certificate.current();
        let accepted = TlsAcceptor::from(own.config(self.known.port())).accept(socket).await;
        let stream = accepted.map_err(Refusal::Handshake)?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let no_name = |reason| Refusal::Handshake(WrongName(reason).into());
        let client = chain.first().ok_or_else(|| no_name("client presented no certificate".to_owned()))?;
        let identity = tls::certificate_identity(client).map_err(no_name)?;
        let client_expiry = chain_expiry(chain);
        let Some(slot) = slot.identify(identity.to_string()) else {
            return Err(Refusal::TooManyConnections(identity));
        };
        let close_signal = slot.close_signal();
        if close_signal.is_some() {
            self.note_over_limit(&identity.to_string());
        }
        let mut stream = PeerStream::new(Transport::Tls(Box::new(stream)), address, identity.clone(), slot);
        stream.expiry = Some(Expiry::new(own.expiry().min(client_expiry)));
        stream._connected = Some(self.known.connect(&identity, client_expiry));
        Ok(PeerConnection { identity, address, stream, close_signal })
    }
}

impl PeerStream {
    fn new(
        transport: Transport,
        address: SocketAddr,
        identity: Identity,
        slot: ConnectionSlot,
    ) -> PeerStream {
        PeerStream {
            transport,
            expiry: None,
            is_expiry_logged: false,
            address,
            identity,
            _connected: None,
            _slot: slot,
        }
    }

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
