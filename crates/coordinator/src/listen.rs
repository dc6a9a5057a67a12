//! Incoming connections: accepts them, authenticates the peer and passes the connection to a server.
//!
//! [`Admission`] limits the number of connections, and no connection waits for another. A handshake has to complete
//! within [`PATIENCE`]. The kernel closes a connection whose peer does not acknowledge data for [`STUCK`].

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

use crate::admission::{Admission, Place};
use crate::identity::Identity;
use crate::tls;

/// Maximum duration of a handshake.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Time after which the kernel closes a connection with unacknowledged data, and idle time after which it sends
/// keepalive probes.
pub const STUCK: Duration = Duration::from_secs(30);

/// An authenticated connection.
pub struct Peer {
    /// Identity of the client.
    pub identity: Identity,
    /// Address of the client.
    pub address: SocketAddr,
    /// The connection's bytes.
    pub stream: Stream,
    /// For a [probe](crate::admission): notified when a newer probe replaces it.
    pub closed: Option<Arc<Notify>>,
}

/// Bytes of a connection, which counts for its limits until the stream is dropped.
pub struct Stream {
    inner: Inner,
    _place: Place,
}

enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The peers that connect to `listener`, until the receiver is dropped. Without TLS, only peers on this host are accepted.
pub fn peers(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    admission: Arc<Admission>,
) -> mpsc::Receiver<Peer> {
    // Connections that wait for the channel hold a place, so they count for the limits.
    let (peers, taken) = mpsc::channel(1);
    tokio::spawn(accept(listener, tls.map(TlsAcceptor::from), admission, peers));
    taken
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    admission: Arc<Admission>,
    peers: mpsc::Sender<Peer>,
) {
    loop {
        let connection = tokio::select! {
            () = peers.closed() => return,
            connection = listener.accept() => connection,
        };
        match connection {
            Ok((socket, address)) => match admission.admit(address.ip()) {
                Some(place) => {
                    tokio::spawn(welcome(socket, address, tls.clone(), place, peers.clone()));
                }
                None => debug!(%address, "connection refused: too many connections"),
            },
            Err(error) => {
                // For example too many open files: open connections have to end first.
                warn!(%error, "no connection can be taken");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Authenticates the other end of a connection and passes the connection to the server.
async fn welcome(
    socket: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    place: Place,
    peers: mpsc::Sender<Peer>,
) {
    let closed = place.closed();
    let greeted = timeout(PATIENCE, greet(socket, address, tls, place));
    match unless_closed(closed.as_deref(), greeted).await {
        // An error means that the server has ended.
        Some(Ok(Ok(peer))) => drop(peers.send(peer).await),
        Some(Ok(Err(error))) => debug!(%address, %error, "connection refused"),
        Some(Err(_)) => debug!(%address, "connection refused: its handshake took too long"),
        None => debug!(%address, "connection refused: too many connections"),
    }
}

/// Returns the result of `work`, or `None` once a newer probe replaces this one.
pub async fn unless_closed<T>(closed: Option<&Notify>, work: impl Future<Output = T>) -> Option<T> {
    let Some(closed) = closed else { return Some(work.await) };
    tokio::select! {
        () = closed.notified() => None,
        done = work => Some(done),
    }
}

async fn greet(
    socket: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    place: Place,
) -> io::Result<Peer> {
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    options.set_tcp_keepalive(&TcpKeepalive::new().with_time(STUCK).with_interval(STUCK / 6))?;
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(STUCK))?;
    let (identity, inner, place) = match tls {
        None if address.ip().to_canonical().is_loopback() => (Identity::Local, Inner::Plain(socket), place),
        None => return Err(io::Error::other("plain text from another host")),
        Some(tls) => {
            let stream = tls.accept(socket).await?;
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate = certificate.ok_or_else(|| io::Error::other("no certificate"))?;
            let identity = tls::identity(certificate).map_err(io::Error::other)?;
            let place = place.identify(identity.to_string());
            let place = place.ok_or_else(|| io::Error::other("too many connections of this identity"))?;
            (identity, Inner::Tls(Box::new(stream)), place)
        }
    };
    let closed = place.closed();
    Ok(Peer { identity, address, stream: Stream { inner, _place: place }, closed })
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Inner::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Inner::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Inner::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Inner::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
