//! Why handshakes fail.

use std::fmt;
use std::io::{self, ErrorKind};

use rustls::{CertificateError, Error, InvalidMessage};

/// A certificate is valid and has the wrong name: that of another role, host, service or relay, or none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongName(pub String);

impl From<WrongName> for io::Error {
    fn from(error: WrongName) -> io::Error {
        io::Error::other(error)
    }
}

/// Why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The certificate of the other end has expired.
    Expired,
    /// The certificate of the other end is not valid yet.
    NotYetValid,
    /// No own authority has signed the certificate of the other end.
    UnknownAuthority,
    /// The other end has no certificate.
    NoCertificate,
    /// The certificate of the other end has the wrong name.
    WrongName,
    /// The other end uses plain text.
    PlainText,
    /// The other end has refused the handshake, for example because of the own certificate.
    RefusedByPeer,
    /// The other end has closed the connection, or did not answer in time.
    Incomplete,
    /// Any other reason.
    Other,
}

impl HandshakeFailure {
    /// All reasons.
    pub const ALL: [HandshakeFailure; 9] = [
        HandshakeFailure::Expired,
        HandshakeFailure::NotYetValid,
        HandshakeFailure::UnknownAuthority,
        HandshakeFailure::NoCertificate,
        HandshakeFailure::WrongName,
        HandshakeFailure::PlainText,
        HandshakeFailure::RefusedByPeer,
        HandshakeFailure::Incomplete,
        HandshakeFailure::Other,
    ];

    /// The reason of an error of a handshake, or of a check of names after it.
    pub fn of(error: &io::Error) -> HandshakeFailure {
        let cause = error.get_ref();
        if cause.is_some_and(|cause| cause.is::<WrongName>()) {
            return HandshakeFailure::WrongName;
        }
        match cause.and_then(|cause| cause.downcast_ref::<Error>()) {
            Some(error) => HandshakeFailure::from_tls_error(error),
            None if is_incomplete(error.kind()) => HandshakeFailure::Incomplete,
            None => HandshakeFailure::Other,
        }
    }

    fn from_tls_error(error: &Error) -> HandshakeFailure {
        match error {
            Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => HandshakeFailure::Expired,
            Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => HandshakeFailure::NotYetValid,
            // Two authorities may have the same name.
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                HandshakeFailure::UnknownAuthority
            }
            Error::NoCertificatesPresented => HandshakeFailure::NoCertificate,
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => HandshakeFailure::PlainText,
            Error::AlertReceived(_) => HandshakeFailure::RefusedByPeer,
            _ => HandshakeFailure::Other,
        }
    }

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            HandshakeFailure::Expired => "expired",
            HandshakeFailure::NotYetValid => "not-yet-valid",
            HandshakeFailure::UnknownAuthority => "unknown-authority",
            HandshakeFailure::NoCertificate => "no-certificate",
            HandshakeFailure::WrongName => "wrong-name",
            HandshakeFailure::PlainText => "plain-text",
            HandshakeFailure::RefusedByPeer => "refused-by-peer",
            HandshakeFailure::Incomplete => "incomplete",
            HandshakeFailure::Other => "other",
        }
    }

    /// What an operator can do; none if the error says it.
    pub fn help(self) -> Option<&'static str> {
        match self {
            HandshakeFailure::Expired => Some("install a new certificate at the peer"),
            HandshakeFailure::NotYetValid => Some("correct the clock of this host, or of the authority"),
            HandshakeFailure::UnknownAuthority => {
                Some("give both ends certificates of one authority, and its certificate")
            }
            HandshakeFailure::NoCertificate | HandshakeFailure::PlainText => {
                Some("start the agent, relay or client with --certificate, --key and --authority")
            }
            HandshakeFailure::WrongName => {
                Some("use the certificate of this host, service or relay, and the right port")
            }
            HandshakeFailure::RefusedByPeer => Some("see the log of the peer; check the own certificate"),
            HandshakeFailure::Incomplete | HandshakeFailure::Other => None,
        }
    }
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn is_incomplete(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::TimedOut
    )
}

/// The number of failed handshakes by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailureCounts([u64; HandshakeFailure::ALL.len()]);

impl FailureCounts {
    /// Counts a failure.
    pub fn add(&mut self, failure: HandshakeFailure) {
        self.0[failure as usize] += 1;
    }

    /// All counts.
    pub fn iter(&self) -> impl Iterator<Item = (HandshakeFailure, u64)> {
        HandshakeFailure::ALL.into_iter().zip(self.0)
    }
}
