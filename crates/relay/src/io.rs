//! Runs a relay: sockets, pipes and one thread with epoll.

mod congestion;
mod connection_count;
mod expiry;
mod lane;
mod links;
mod pacer;
mod parallel;
mod pipe;
mod program;
mod programs;
mod receive_buffers;
mod reverse_queue;
mod server;
mod socket;
mod traffic;
mod transport;

pub use links::LinkStatus;
pub use server::{Command, Handle, RelayTls, Server, ServerError, ServerSettings, Status};
