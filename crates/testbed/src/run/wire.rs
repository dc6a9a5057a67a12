//! Converts payload to bytes on the wire. Nearly all packets are full: 1,500 bytes of IP and the Ethernet header, which include the headers
//! of IP, and of TCP with timestamps or UDP.

use weir_core::model::scenario::Sending;

pub use crate::queues::PAYLOAD as TCP;

use crate::queues::FRAME;

/// Payload of a full UDP packet, in bytes.
pub const UDP: u32 = 1472;

/// Bytes on the wire for each byte of payload.
pub fn factor(sending: Sending) -> f64 {
    let payload = match sending {
        Sending::Elastic | Sending::Capped(_) => TCP,
        Sending::Unresponsive(_) => UDP,
    };
    f64::from(FRAME) / f64::from(payload)
}
