//! Runs a relay: sockets, pipes and one thread with epoll.

mod additional;
mod congestion;
mod connection_count;
mod expiry;
mod lane;
mod link;
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
mod token;
mod traffic;
mod transport;

pub use link::LinkStatus;
pub use server::{Command, Handle, RelayTls, Server, ServerError, ServerSettings, Status};
