//! The header of a message: the unit that relays forward (Siphon, ATC '18, section 4.2.1).
//!
//! A relay cuts the bytes of a flow into messages. Each has a header of [`HEADER_BYTES`] bytes in network byte order:
//!
//! | Bytes | Field |
//! |---|---|
//! | 0 | kind |
//! | 1 | remaining hops: a relay forwards a message only if it is above 0, so rules with a loop cannot flood the overlay |
//! | 2-3 | zero |
//! | 4-7 | length of the payload |
//! | 8-15 | flow: number of the coflow, and of the flow in it |
//! | 16-23 | offset: the sequence number, in bytes of the flow |
//! | 24-27 | CRC-32C of the bytes 0 to 23 |
//!
//! The checksum covers the header only. Programs at the ends check the payload.

use std::fmt;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 28;

/// The maximum length of a payload: what one call moves through a pipe.
pub const MAX_PAYLOAD_BYTES: u32 = 1 << 20;

/// The maximum number of relays after the one at the source. Detours use one relay between source and destination.
pub const MAX_HOPS: u8 = 3;

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
    /// Bytes of the flow, from the offset on. Travels to the destination.
    Data,
    /// The flow ends at the offset. Travels to the destination.
    End,
    /// The destination has delivered all bytes before the offset. Travels to the source.
    Ack,
    /// Messages from the offset on were lost before the destination. Travels to the source, which sends them again.
    Lost,
    /// The flow cannot continue over the overlay. Travels to the source.
    Reset,
}

impl Kind {
    /// Whether messages of this kind travel to the destination of the flow; others travel to its source.
    pub fn is_for_destination(self) -> bool {
        matches!(self, Kind::Data | Kind::End)
    }
}

const KINDS: [Kind; 5] = [Kind::Data, Kind::End, Kind::Ack, Kind::Lost, Kind::Reset];

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the message is for.
    pub kind: Kind,
    /// The number of relays that may still forward it, at most [`MAX_HOPS`].
    pub hops: u8,
    /// Length of the payload in bytes; 0 for all kinds but [`Kind::Data`], which has 1 to [`MAX_PAYLOAD_BYTES`].
    pub length: u32,
    /// The flow.
    pub flow: FlowId,
    /// A position in the flow, in bytes. Offset and length sum to at most 2^63.
    pub offset: u64,
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
    /// The kind is unknown, or bytes that have to be zero are not.
    #[error("header: kind {0}; expected 0 to {max}; help: relays may differ by one version at most", max = KINDS.len() - 1)]
    Kind(u8),
    /// The number of hops is above [`MAX_HOPS`].
    #[error("header: {0} hops; expected at most {MAX_HOPS}")]
    Hops(u8),
    /// The length does not fit the kind.
    #[error("header: payload of {0} bytes; expected 1 to {MAX_PAYLOAD_BYTES} with data, 0 without")]
    Length(u32),
    /// The offset is above 2^63 minus the length.
    #[error("header: offset {0}; expected less than 2^63")]
    Offset(u64),
}

impl Header {
    /// The header in network byte order.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.hops;
        bytes[4..8].copy_from_slice(&self.length.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.flow.coflow.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.flow.flow.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        let checksum = crc32c::crc32c(&bytes[..24]);
        bytes[24..].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Decodes and checks a header.
    ///
    /// # Errors
    /// [`HeaderError`], in the order of its variants.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (found, expected) = (word(24), crc32c::crc32c(&bytes[..24]));
        if found != expected {
            return Err(HeaderError::Checksum { found, expected });
        }
        let kind = match KINDS.get(usize::from(bytes[0])) {
            Some(&kind) if bytes[2..4] == [0, 0] => kind,
            _ => return Err(HeaderError::Kind(bytes[0])),
        };
        let (hops, length) = (bytes[1], word(4));
        if hops > MAX_HOPS {
            return Err(HeaderError::Hops(hops));
        }
        let is_valid =
            if kind == Kind::Data { (1..=MAX_PAYLOAD_BYTES).contains(&length) } else { length == 0 };
        if !is_valid {
            return Err(HeaderError::Length(length));
        }
        let offset = u64::from(word(16)) << 32 | u64::from(word(20));
        if offset > i64::MAX as u64 - u64::from(length) {
            return Err(HeaderError::Offset(offset));
        }
        Ok(Header { kind, hops, length, flow: FlowId { coflow: word(8), flow: word(12) }, offset })
    }

    /// The offset after the payload.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}
