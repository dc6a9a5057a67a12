//! The engine on real hosts: frameworks register coflows, hosts report what was sent, and are told what to do.
//!
//! - [`Plane`] is all of that without a clock, thread or socket, so that tests can drive it through any loss and delay.
//! - [`master`] gives it a clock and a thread, and [`Handle`]s to whoever serves frameworks and hosts.
//! - [`agents`] serves hosts over gRPC.

pub mod agents;
pub mod config;
pub mod identity;
pub mod listen;
pub mod master;
pub mod plane;
pub mod policy;
pub mod store;
pub mod tls;

pub use master::Handle;
pub use plane::Plane;
