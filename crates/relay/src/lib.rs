//! The overlay between datacenters (Siphon, ATC '18, section 4.2): relays that cut flows into messages, forward them by rules, and deliver
//! them in order.
//!
//! [`Relay`] is the protocol, without clock, thread or socket.

pub mod forwarding;
pub mod message;
pub mod output_queue;
pub mod receive_window;
pub mod relay;
pub mod send_window;

pub use relay::Relay;
