//! Converts payload to bytes on the wire. Packets count as full: an Ethernet header and 1,500 bytes of IP, which include the
//! headers of IP, and of TCP with timestamps or UDP.

use weir_core::model::scenario::SendMode;

pub use crate::queues::PAYLOAD_BYTES as TCP_PAYLOAD;

use crate::queues::FRAME_BYTES;

/// Payload of a full UDP packet, in bytes.
pub const UDP_PAYLOAD: u32 = 1472;

/// Bytes on the wire for each byte of payload.
pub fn header_overhead(sending: SendMode) -> f64 {
    let payload = match sending {
        SendMode::Elastic | SendMode::Capped(_) => TCP_PAYLOAD,
        SendMode::Unresponsive(_) => UDP_PAYLOAD,
    };
    f64::from(FRAME_BYTES) / f64::from(payload)
}
