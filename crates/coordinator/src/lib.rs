//! The coordinator: frameworks register coflows, agents report progress, and the coordinator sends agents orders.
//!
//! - [`ControlPlane`] is the state machine. It has no clock, thread or socket, so tests can simulate any loss and delay.
//! - [`control_thread`] runs the control plane on one thread with a clock; servers send it calls through [`Handle`]s.
//! - [`overlay`] is the state machine of relays between regions, with its threads; [`relays`] serves relays over gRPC.
//! - [`agents`] serves agents over gRPC, [`rest`] serves frameworks and operators over HTTP. [`listener`] and [`tls`]
//!   authenticate connections, and [`admission`] limits their number.
//! - [`registry`] applies requests and writes them to the [`store`], which is durable, and notes them in the [`audit`] log.
//!   [`config`] reads the configuration, [`server`] starts and stops all parts, and [`reload`] replaces the configuration of
//!   a running coordinator.

pub mod admission;
pub mod agents;
pub mod audit;
pub mod coflow_status;
pub mod config;
pub mod control_plane;
pub mod control_thread;
pub mod events;
mod expiry;
pub mod identity;
pub mod listener;
pub mod network_bounds;
mod order_state;
pub mod overlay;
pub mod peers;
pub mod policy;
pub mod problem;
pub mod quota;
pub mod registry;
pub mod relays;
pub mod reload;
pub mod rest;
pub mod server;
pub mod service_bandwidth;
pub mod service_queues;
pub mod store;
mod streams;
pub mod tls;
mod values;

pub use control_plane::ControlPlane;
pub use control_thread::Handle;
