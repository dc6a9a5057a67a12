//! The engine on real hosts: frameworks register coflows, hosts report what was sent, and are told what to do.
//!
//! - [`ControlPlane`] is all of that without a clock, thread or socket, so that tests can drive it through any loss and delay.
//! - [`master`] gives it a clock and a thread, and [`Handle`]s to whoever serves frameworks and hosts.
//! - [`agents`] serves hosts over gRPC, [`rest`] frameworks and people over HTTP; [`listen`] and [`tls`] authenticate them, and
//!   [`admission`] limits their connections.
//! - [`registry`] is what they register and change, which [`store`] keeps over restarts; [`config`] is what it starts
//!   from, and [`serve`] puts all of it together.

pub mod admission;
pub mod agents;
pub mod config;
pub mod events;
pub mod identity;
pub mod listen;
pub mod master;
pub mod plane;
pub mod policy;
pub mod problem;
pub mod registry;
pub mod rest;
pub mod serve;
pub mod store;
pub mod tls;

pub use master::Handle;
pub use plane::ControlPlane;
