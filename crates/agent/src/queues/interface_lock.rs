//! Locks the queues of an interface, so that two agents do not undo each other's changes.
//!
//! The lock is an abstract Unix socket, which belongs to the network namespace as the interface does: containers that share the namespace
//! may share no file. The kernel frees it when its process ends, however that ends.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::net::if_::if_nameindex;
use nix::sys::socket::{getsockopt, sockopt};

use super::error::QueueError;
use super::interface::Interface;

/// The lock of an interface's queues, held until this is dropped.
#[derive(Debug)]
pub struct InterfaceLock {
    index: u32,
    _socket: UnixListener,
}

impl InterfaceLock {
    /// Locks the queues of an interface, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the interface does not exist, or another process holds the lock.
    pub fn acquire(interface: &Interface) -> Result<InterfaceLock, QueueError> {
        let index = interface.index().ok_or_else(|| QueueError::MissingInterface(interface.clone()))?;
        let to_error = |error| QueueError::Lock { interface: interface.clone(), error };
        let address = address(index).map_err(to_error)?;
        match UnixListener::bind_addr(&address) {
            Ok(socket) => Ok(InterfaceLock { index, _socket: socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(QueueError::Locked { interface: interface.clone(), holder: describe_holder(&address) })
            }
            Err(error) => Err(to_error(error)),
        }
    }

    /// Whether a process holds the lock of an interface of this network namespace.
    pub fn is_any_held() -> bool {
        let is_held = |index| address(index).is_ok_and(|address| UnixStream::connect_addr(&address).is_ok());
        if_nameindex().is_ok_and(|interfaces| interfaces.iter().any(|interface| is_held(interface.index())))
    }

    /// The number of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }
}

fn address(index: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("weir-queues-{index}"))
}

/// The process that holds a lock: its number and command line, as far as this process can see it.
fn describe_holder(address: &SocketAddr) -> String {
    let holder = UnixStream::connect_addr(address)
        .ok()
        .and_then(|stream| getsockopt(&stream, sockopt::PeerCredentials).ok())
        .map(|credentials| credentials.pid())
        .filter(|&pid| pid > 0);
    let Some(pid) = holder else { return "a process of another container".to_owned() };
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = command.trim_end_matches('\0').replace('\0', " ");
    format!("process {pid} ({})", if command.is_empty() { "unknown command" } else { &command })
}
