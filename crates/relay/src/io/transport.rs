//! A connection with a relay or a program: plain text or TLS.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::time::SystemTime;

use rustix::net::SendFlags;
use weir_tls::{TlsSession, WrongName};

use super::socket::ready;

/// The bytes of a connection that does not block.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) stream: TcpStream,
    tls: Option<TlsSession>,
    /// Whether the connection is shut down for writing once the buffered bytes are written.
    is_ending: bool,
}

impl Transport {
    pub(crate) fn new(stream: TcpStream, tls: Option<TlsSession>) -> Transport {
        Transport { stream, tls, is_ending: false }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Whether the handshake is incomplete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsSession::is_handshaking)
    }

    /// Whether a certificate of one end has expired since the handshake.
    pub(crate) fn has_expired(&self, now: SystemTime) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_expired(now))
    }

    /// Continues the handshake. Returns whether it is complete.
    pub(crate) fn handshake(&mut self) -> io::Result<bool> {
        self.tls.as_mut().map_or(Ok(true), |tls| tls.handshake(&self.stream))
    }

    /// Reads bytes; none if there are no bytes at the moment, 0 at the end. Less than requested: there are no more at the moment.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => ready(rustix::io::read(&self.stream, bytes)),
            Some(tls) => tls.read(&self.stream, bytes),
        }
    }

    /// Writes bytes; none if the connection accepts none at the moment. Less than all: it accepts no more at the moment.
    pub(crate) fn write(&mut self, bytes: &[u8], has_more: bool) -> io::Result<Option<usize>> {
        if let Some(tls) = &mut self.tls {
            return tls.write(&self.stream, bytes);
        }
        let more = if has_more { SendFlags::MORE } else { SendFlags::empty() };
        ready(rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL | more))
    }

    /// Writes encrypted bytes; returns whether all are written.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        let is_flushed = tls.flush(&self.stream)?;
        if is_flushed && std::mem::take(&mut self.is_ending) {
            self.stream.shutdown(Shutdown::Write)?;
        }
        Ok(is_flushed)
    }

    /// Shuts the connection down for writing, after all written bytes.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.stream.shutdown(Shutdown::Write) };
        tls.end();
        self.is_ending = true;
        self.flush().map(drop)
    }

    /// Whether the other end may use the connection: its certificate has this name. Plain text has no names.
    ///
    /// # Errors
    /// Another name, or none.
    pub(crate) fn check_peer(&self, expected: &str) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let name = tls.peer_name()?;
        if name == expected {
            return Ok(());
        }
        Err(WrongName(format!("the certificate has the name {name}; expected {expected}")).into())
    }
}
