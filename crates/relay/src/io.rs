//! Runs a relay: sockets, pipes and one thread with epoll.

mod congestion;
mod lane;
mod links;
mod pacer;
mod pipe;
mod program;
mod server;
mod socket;
mod traffic;

pub use links::{LinkStatus, PeerTls};
pub use server::{Command, Handle, Server, ServerError, ServerSettings, Status};
