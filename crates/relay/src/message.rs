//! The messages between relays (Siphon, ATC '18, section 4.2.1).
//!
//! A relay cuts the stream of a flow into messages. Each has a header of [`HEADER_BYTES`] bytes in network byte order:
//!
//! | Bytes | Field |
//! |---|---|
//! | 0 | kind |
//! | 1 | remaining hops: a relay forwards a message only if it is above 0, so rules with a loop cannot flood the overlay |
//! | 2-3 | generation of the flow |
//! | 4-7 | length of the payload |
//! | 8-15 | flow: number of the coflow, and of the flow in it |
//! | 16-23 | offset: the sequence number, in bytes of the stream |
//! | 24-27 | relay of the sender, and relay of the receiver |
//! | 28-31 | CRC-32C of the bytes 0 to 27 |
//!
//! The checksum covers the header only. Programs at the ends check the payload.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub use weir_flow::MAX_OFFSET;
use weir_flow::Reason;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;

/// The maximum length of a payload: what one call moves through a pipe.
pub const MAX_PAYLOAD_BYTES: u32 = 1 << 20;

/// The maximum number of relays after the one at the source. Detours use one relay between source and destination.
pub const MAX_HOPS: u8 = 3;

/// The number of a relay, given by the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub u16);

/// The id of a flow. Ids are hierarchical, so that a rule can apply to all flows of a coflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The number that the controller gave to the coflow.
    pub coflow: u32,
    /// The position of the flow in the coflow.
    pub flow: u32,
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.coflow, self.flow)
    }
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A flow begins at the offset. The payload is an encoded [`SocketAddr`]: the receiver. Travels to the destination.
    Open,
    /// Bytes of the stream, from the offset on. Travels to the destination.
    Data,
    /// The stream ends at the offset. Travels to the destination.
    End,
    /// The source gives up this generation. Travels to the destination.
    Abort,
    /// The receiver has acknowledged all bytes before the offset. The payload is the offset before which the source may send.
    /// Travels to the source.
    Ack,
    /// The flow cannot continue over the overlay; the offset is the position of the reason in [`Reason::ALL`]. Travels to the source.
    Reset,
    /// A heartbeat between two relays; the offset is a time that the other relay repeats in a [`Kind::Pong`].
    Ping,
    /// The answer to a heartbeat.
    Pong,
}

const KINDS: [Kind; 8] =
    [Kind::Open, Kind::Data, Kind::End, Kind::Abort, Kind::Ack, Kind::Reset, Kind::Ping, Kind::Pong];

/// Bytes of an address in the payload of [`Kind::Open`]: IPv6 or mapped IPv4 (RFC 4291, section 2.5.5.2), then the port.
pub const ADDRESS_BYTES: usize = 18;

/// Bytes of a limit in the payload of [`Kind::Ack`].
pub const LIMIT_BYTES: usize = 8;

impl Kind {
    /// Whether messages of this kind travel to the source of the flow.
    pub fn is_answer(self) -> bool {
        matches!(self, Kind::Ack | Kind::Reset)
    }

    fn has_length(self, length: u32) -> bool {
        match self {
            Kind::Data => (1..=MAX_PAYLOAD_BYTES).contains(&length),
            Kind::Open => length as usize == ADDRESS_BYTES,
            Kind::Ack => length as usize == LIMIT_BYTES,
            Kind::End | Kind::Abort | Kind::Reset | Kind::Ping | Kind::Pong => length == 0,
        }
    }
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the message is for.
    pub kind: Kind,
    /// The number of relays that may still forward it, at most [`MAX_HOPS`].
    pub hops: u8,
    /// The generation of the flow.
    pub generation: u16,
    /// Length of the payload in bytes: 1 to [`MAX_PAYLOAD_BYTES`] for [`Kind::Data`], fixed for other kinds.
    pub length: u32,
    /// The flow.
    pub flow: FlowId,
    /// A position in the stream, at most [`MAX_OFFSET`].
    pub offset: u64,
    /// The relay of the sender.
    pub source: RelayId,
    /// The relay of the receiver.
    pub destination: RelayId,
}

/// Why bytes are not a header. The connection they came from cannot be used any more: the next header is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The checksum is wrong.
    #[error("header: checksum {found:#010x}; expected {expected:#010x}")]
    Checksum {
        /// The checksum in the header.
        found: u32,
        /// The checksum of its bytes.
        expected: u32,
    },
    /// The kind is unknown.
    #[error("header: kind {0}; expected 0 to {max}; help: relays may differ by one version at most", max = KINDS.len() - 1)]
    Kind(u8),
    /// The number of hops is above [`MAX_HOPS`].
    #[error("header: {0} hops; expected at most {MAX_HOPS}")]
    Hops(u8),
    /// The length does not fit the kind.
    #[error("header: payload of {length} bytes; expected {expected} for {kind:?}", expected = match kind {
        Kind::Data => "1 to 1048576",
        Kind::Open => "18",
        Kind::Ack => "8",
        _ => "0",
    })]
    Length {
        /// The kind of the message.
        kind: Kind,
        /// Its length.
        length: u32,
    },
    /// The offset is above [`MAX_OFFSET`].
    #[error("header: offset {0}; expected at most 2^62")]
    Offset(u64),
}

impl Header {
    /// The header in network byte order.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.hops;
        bytes[2..4].copy_from_slice(&self.generation.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.flow.coflow.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.flow.flow.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..26].copy_from_slice(&self.source.0.to_be_bytes());
        bytes[26..28].copy_from_slice(&self.destination.0.to_be_bytes());
        let checksum = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Decodes and checks a header.
    ///
    /// # Errors
    /// [`HeaderError`], in the order of its variants.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
        let (found, expected) = (word(28), crc32c::crc32c(&bytes[..28]));
        if found != expected {
            return Err(HeaderError::Checksum { found, expected });
        }
        let kind = *KINDS.get(usize::from(bytes[0])).ok_or(HeaderError::Kind(bytes[0]))?;
        let (hops, length) = (bytes[1], word(4));
        if hops > MAX_HOPS {
            return Err(HeaderError::Hops(hops));
        }
        if !kind.has_length(length) {
            return Err(HeaderError::Length { kind, length });
        }
        let offset = u64::from(word(16)) << 32 | u64::from(word(20));
        if offset > MAX_OFFSET {
            return Err(HeaderError::Offset(offset));
        }
        Ok(Header {
            kind,
            hops,
            generation: short(2),
            length,
            flow: FlowId { coflow: word(8), flow: word(12) },
            offset,
            source: RelayId(short(24)),
            destination: RelayId(short(26)),
        })
    }

    /// The relay that the message is for; none if it is for the next relay.
    pub fn target(&self) -> Option<RelayId> {
        match self.kind {
            Kind::Ping | Kind::Pong => None,
            kind if kind.is_answer() => Some(self.source),
            _ => Some(self.destination),
        }
    }

    /// The offset after the payload.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// The payload of [`Kind::Open`].
pub fn encode_address(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// The address in the payload of [`Kind::Open`].
pub fn decode_address(bytes: &[u8; ADDRESS_BYTES]) -> SocketAddr {
    let mut ip = [0; 16];
    ip.copy_from_slice(&bytes[..16]);
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), u16::from_be_bytes([bytes[16], bytes[17]]))
}

/// The offset of [`Kind::Reset`].
pub fn encode_reason(reason: Reason) -> u64 {
    let position = Reason::ALL.iter().position(|&known| known == reason);
    position.unwrap_or(Reason::ALL.len()) as u64
}

/// The reason in the offset of [`Kind::Reset`]; [`Reason::Lost`] for reasons of later versions.
pub fn decode_reason(offset: u64) -> Reason {
    usize::try_from(offset)
        .ok()
        .and_then(|position| Reason::ALL.get(position))
        .copied()
        .unwrap_or(Reason::Lost)
}
