//! A TLS connection over a socket that does not block.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::SystemTime;

use rustls::{Connection, InvalidMessage};

use crate::{ConnectionExpired, WrongName, certificate_name, chain_expiry};

/// The state of a TLS connection. Calls pass its socket.
///
/// Buffers at most 64 KiB of output and two records of input. A call that is blocked by the socket can be repeated when the socket
/// becomes readable or writable. Reads and writes fail with [`ConnectionExpired`] once a certificate of one end has expired.
#[derive(Debug)]
pub struct TlsSession {
    connection: Box<Connection>,
    /// The end of the own certificate, and after the handshake the earlier one of both ends. None if the own certificate had expired
    /// before the handshake: the other end refuses it, and its reason counts.
    expiry: Option<SystemTime>,
}

impl TlsSession {
    /// `own_expiry`: the end of the own certificate.
    pub(crate) fn new(connection: impl Into<Connection>, own_expiry: SystemTime) -> TlsSession {
        let expiry = Some(own_expiry).filter(|&expiry| expiry > SystemTime::now());
        TlsSession { connection: Box::new(connection.into()), expiry }
    }

    /// When the connection ends: the first certificate of both ends expires. None during a handshake that the other end refuses.
    pub fn expiry(&self) -> Option<SystemTime> {
        self.expiry
    }

    /// Whether a certificate of one end has expired since the handshake, which has its own check.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        !self.connection.is_handshaking() && self.expiry.is_some_and(|expiry| now >= expiry)
    }

    fn check_expiry(&self) -> io::Result<()> {
        if self.has_expired(SystemTime::now()) { Err(io::Error::other(ConnectionExpired)) } else { Ok(()) }
    }

    /// Continues the handshake. Returns whether it is complete.
    ///
    /// # Errors
    /// If the socket fails or has ended, or one end refuses the other. The other end then receives the reason.
    pub fn handshake(&mut self, socket: &TcpStream) -> io::Result<bool> {
        while self.connection.is_handshaking() {
            match self.receive(socket)? {
                None => return Ok(false),
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(_) => {}
            }
        }
        self.flush(socket)?;
        Ok(true)
    }

    /// Reads until `bytes` is full or the socket has no bytes. None: there are no bytes at the moment; 0: the connection has ended.
    ///
    /// # Errors
    /// As for [`TlsSession::handshake`].
    pub fn read(&mut self, socket: &TcpStream, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        self.check_expiry()?;
        let mut length = 0;
        while length < bytes.len() {
            match self.connection.reader().read(&mut bytes[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.receive(socket)? {
                    None => return Ok((length > 0).then_some(length)),
                    Some(0) => break,
                    Some(_) => {}
                },
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Some(length))
    }

    /// Receives encrypted bytes, and answers those of a handshake. Returns their number; none if there are none at the moment.
    fn receive(&mut self, socket: &TcpStream) -> io::Result<Option<usize>> {
        self.flush(socket)?;
        let length = match self.connection.read_tls(&mut &*socket) {
            Ok(length) => length,
            Err(error) if is_blocked(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let was_handshaking = self.connection.is_handshaking();
        let processed = self.connection.process_new_packets();
        if was_handshaking && !self.connection.is_handshaking() {
            let peer = self.connection.peer_certificates().unwrap_or_default();
            self.expiry = self.expiry.map(|expiry| expiry.min(chain_expiry(peer)));
        }
        // The answer, or the reason of a refusal.
        let flushed = self.flush(socket);
        processed.map_err(io::Error::other)?;
        flushed?;
        Ok(Some(length))
    }

    /// Writes until the socket accepts no more. None: it accepts nothing at the moment, or the handshake is incomplete.
    ///
    /// # Errors
    /// If the socket fails, or a certificate has expired.
    pub fn write(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.check_expiry()?;
        let mut length = 0;
        while length < bytes.len() && self.flush(socket)? && !self.connection.is_handshaking() {
            length += self.connection.writer().write(&bytes[length..])?;
        }
        self.flush(socket)?;
        Ok((length > 0).then_some(length))
    }

    /// Writes buffered output. Returns whether the socket has accepted all of it.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn flush(&mut self, socket: &TcpStream) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut &*socket) {
                Ok(_) => {}
                Err(error) if is_blocked(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Marks the end of the output. The caller shuts the socket down once [`TlsSession::flush`] returns true.
    pub fn end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether the handshake is incomplete.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether output waits for the socket.
    pub fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether decrypted input waits, which makes no socket readable.
    pub fn has_input(&mut self) -> bool {
        self.connection.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    /// The name in the certificate of the other end, after the handshake.
    ///
    /// # Errors
    /// The certificate has no name `weir://ROLE/NAME`, or several.
    pub fn peer_name(&self) -> io::Result<String> {
        let certificate = self.connection.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.ok_or_else(|| io::Error::other("the other end has no certificate"))?;
        certificate_name(certificate).map_err(|reason| WrongName(reason).into())
    }
}

/// Whether an error of a session means that the other end has sent plain text.
pub fn is_plain_text(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

/// Whether bytes at the beginning of a plain-text connection are a record of TLS: a handshake or an alert.
pub fn is_tls_record(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, ..])
}

fn is_blocked(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
