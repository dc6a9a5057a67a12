//! Relays that forward the flows of coflows between datacenters (Siphon, ATC '18, sections 4.1 and 4.2).
//!
//! [`relay::Relay`] decides and does no I/O, so tests simulate whole overlays over many seeds. [`message`] is the protocol between
//! relays; `docs/flow-protocol.md` describes the protocol between programs and relays.

#[cfg(test)]
#[path = "../../tls/tests/all/certificates.rs"]
mod certificates;
pub mod control;
pub mod forwarding;
pub mod hello;
pub mod io;
pub mod message;
pub mod metrics;
pub mod orders;
pub mod overlay;
pub mod overlay_file;
pub mod ready_queue;
pub mod reason_counts;
pub mod relay;
pub mod reorder_buffer;
