//! TLS for requests. Unlike the library's connector, it accepts IPv6 addresses, which have brackets in URLs.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// Adds TLS to connections for `https`.
#[derive(Debug)]
pub struct TlsConnector {
    /// The configuration.
    pub config: Arc<ClientConfig>,
    /// The certificate of this client, with its intermediates.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']'));
        let name = name.map_err(|_| Error::BadUri(format!("`{host}` is neither a name nor an address")))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), name.to_owned())
            .map_err(|error| Error::Io(io::Error::other(error)))?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let stream = StreamOwned::new(connection, TransportAdapter::new(transport.boxed()));
        Ok(Some(Either::B(TlsTransport { buffers, stream, certificates: Arc::clone(&self.certificates) })))
    }
}

/// A connection over TLS.
pub struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    /// The certificate of this client, with its intermediates.
    certificates: Arc<[CertificateDer<'static>]>,
}

impl TlsTransport {
    /// The reason why a connection has ended, which a coordinator does not send: it closes connections when a certificate of either end
    /// expires.
    fn expiry_error(&self) -> Option<Error> {
        let peer = self.stream.conn.peer_certificates()?;
        let owner = if has_expired(&self.certificates) {
            "this client"
        } else if has_expired(peer) {
            "the coordinator"
        } else {
            return None;
        };
        let reason = format!("the certificate of {owner} has expired, which has ended the connection");
        Some(Error::Io(io::Error::other(reason)))
    }

    /// The error for an error of the connection, without the address of the TLS library's documentation.
    fn error(&self, error: io::Error) -> Error {
        self.expiry_error().unwrap_or_else(|| match error.kind() {
            ErrorKind::UnexpectedEof => Error::Io(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the coordinator has closed the connection",
            )),
            _ => error.into(),
        })
    }
}

/// Whether a verified chain of certificates, that of one end first, has expired.
#[cfg(target_os = "linux")]
fn has_expired(chain: &[CertificateDer<'_>]) -> bool {
    weir_tls::chain_expiry(chain) <= std::time::SystemTime::now()
}

#[cfg(not(target_os = "linux"))]
fn has_expired(_chain: &[CertificateDer<'_>]) -> bool {
    false
}

impl std::fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount]).map_err(|error| self.error(error))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = match self.stream.read(self.buffers.input_append_buf()) {
            Ok(0) => return self.expiry_error().map_or(Ok(false), Err),
            Ok(amount) => amount,
            Err(error) => return Err(self.error(error)),
        };
        self.buffers.input_appended(amount);
        Ok(true)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
