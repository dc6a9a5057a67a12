//! Connections, from the socket to where it is known who is at the other end.
//!
//! There are at most so many at once, those that have not yet said who they are included; more of them wait in the system. A handshake
//! has to be done within [`PATIENCE`], and a peer that does not take what it is sent for [`STUCK`] is cut off by the system.

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

use crate::identity::Identity;
use crate::tls;

/// How long a handshake may take.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long bytes may be on their way without being taken, and how long nothing may be heard at all of the other machine.
pub const STUCK: Duration = Duration::from_secs(30);

/// A connection with somebody who is known.
pub struct Peer {
    /// Who that is.
    pub identity: Identity,
    /// Where they are.
    pub address: SocketAddr,
    /// The connection.
    pub stream: Stream,
}

/// A connection's bytes.
pub struct Stream {
    inner: Inner,
    /// Its place among the connections there may be.
    _place: OwnedSemaphorePermit,
}

enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connections to `listener` from those who may have one, at most `most` at a time. It goes on until nobody takes them any more. Without
/// TLS, only connections from this host are taken.
pub fn peers(listener: TcpListener, tls: Option<Arc<ServerConfig>>, most: usize) -> mpsc::Receiver<Peer> {
    // None waits here that does not count.
    let (peers, taken) = mpsc::channel(1);
    tokio::spawn(accept(listener, tls.map(TlsAcceptor::from), most, peers));
    taken
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, most: usize, peers: mpsc::Sender<Peer>) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            Some((place, listener.accept().await))
        };
        let accepted = tokio::select! {
            () = peers.closed() => return,
            accepted = accepted => accepted,
        };
        let Some((place, connection)) = accepted else { return };
        match connection {
            Ok((socket, address)) => {
                let (tls, peers) = (tls.clone(), peers.clone());
                tokio::spawn(async move {
                    match timeout(PATIENCE, greet(socket, address, tls, place)).await {
                        // Nobody to take it: the server ends.
                        Ok(Ok(peer)) => drop(peers.send(peer).await),
                        Ok(Err(error)) => debug!(%address, %error, "connection refused"),
                        Err(_) => debug!(%address, "connection refused: its handshake took too long"),
                    }
                });
            }
            Err(error) => {
                // Such as too many open files: those that are open have to end first.
                warn!(%error, "no connection can be taken");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn greet(
    socket: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    place: OwnedSemaphorePermit,
) -> io::Result<Peer> {
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    options.set_tcp_keepalive(&TcpKeepalive::new().with_time(STUCK).with_interval(STUCK / 6))?;
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(STUCK))?;
    let (identity, inner) = match tls {
        None if address.ip().to_canonical().is_loopback() => (Identity::Local, Inner::Plain(socket)),
        None => return Err(io::Error::other("plain text from another host")),
        Some(tls) => {
            let stream = tls.accept(socket).await?;
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate = certificate.ok_or_else(|| io::Error::other("no certificate"))?;
            let identity = tls::identity(certificate).map_err(io::Error::other)?;
            (identity, Inner::Tls(Box::new(stream)))
        }
    };
    Ok(Peer { identity, address, stream: Stream { inner, _place: place } })
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
