//! Receives notifications of the kernel about interfaces and their queueing disciplines (`rtnetlink(7)`).

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::netlink::{Messages, read_u32};

/// The group, as a bit, of changes of links.
const RTMGRP_LINK: u32 = 1;

/// The group, as a bit, of changes of queueing disciplines, classes and filters.
const RTMGRP_TC: u32 = 8;

/// The offset of the interface's number in a message, which is after 4 bytes of both `struct ifinfomsg` and `struct tcmsg`.
const INDEX_OFFSET: usize = 4;

/// Interfaces that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedInterfaces {
    /// Interfaces with these numbers.
    Indexes(BTreeSet<u32>),
    /// Any interface: the kernel dropped notifications.
    Any,
}

/// A subscription in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Notifications {
    /// A netlink socket. The runtime only polls it, so the type of socket does not matter.
    socket: UnixDatagram,
}

/// A subscription to changes of interfaces in the network namespace of the thread that opened it, for a caller that looks at times.
#[derive(Debug)]
pub struct InterfaceChanges(OwnedFd);

impl InterfaceChanges {
    /// Subscribes.
    ///
    /// # Errors
    /// If the kernel refuses the socket.
    pub fn open() -> io::Result<InterfaceChanges> {
        subscribe(RTMGRP_LINK).map(InterfaceChanges)
    }

    /// Whether an interface may have changed since the last call.
    pub fn has_any(&self) -> bool {
        let mut has_any = false;
        // A steady stream of notifications must not block the caller. The end of a notification is not needed.
        for _ in 0..1024 {
            match recv(self.0.as_raw_fd(), &mut [0; 16], MsgFlags::empty()) {
                Err(Errno::EAGAIN) => break,
                Ok(_) | Err(_) => has_any = true,
            }
        }
        has_any
    }
}

/// Opens a socket that does not block and receives the notifications of these groups.
fn subscribe(groups: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(socket)
}

impl Notifications {
    /// Subscribes. Needs a runtime with I/O.
    ///
    /// # Errors
    /// If the kernel refuses the socket.
    pub fn open() -> io::Result<Notifications> {
        let socket = subscribe(RTMGRP_LINK | RTMGRP_TC)?;
        Ok(Notifications { socket: UnixDatagram::from_std(socket.into())? })
    }

    /// Waits for a notification, and returns the interfaces of all queued ones.
    ///
    /// # Errors
    /// If the socket fails.
    pub async fn next_change(&mut self) -> io::Result<ChangedInterfaces> {
        self.socket.async_io(Interest::READABLE, || drain(&self.socket)).await
    }
}

/// Reads everything that is queued. Fails with [`ErrorKind::WouldBlock`] if nothing is.
fn drain(socket: &UnixDatagram) -> io::Result<ChangedInterfaces> {
    let mut indexes = BTreeSet::new();
    let mut has_lost_notifications = false;
    let mut buffer = [0; 1 << 15];
    // A steady stream of notifications must not block the caller.
    for _ in 0..1024 {
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
            Ok(0) | Err(Errno::EAGAIN) => break,
            Ok(length) => {
                has_lost_notifications |= length > buffer.len();
                indexes.extend(parse_indexes(&buffer[..length.min(buffer.len())]));
            }
            Err(Errno::ENOBUFS) => has_lost_notifications = true,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match (has_lost_notifications, indexes.is_empty()) {
        (true, _) => Ok(ChangedInterfaces::Any),
        (false, true) => Err(ErrorKind::WouldBlock.into()),
        (false, false) => Ok(ChangedInterfaces::Indexes(indexes)),
    }
}

/// The interfaces' numbers in a sequence of netlink messages, up to the first malformed one.
fn parse_indexes(bytes: &[u8]) -> Vec<u32> {
    Messages(bytes).filter_map(|message| read_u32(message.payload, INDEX_OFFSET)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32, index: u32) -> Vec<u8> {
        let mut bytes = vec![0; 24];
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[20..].copy_from_slice(&index.to_ne_bytes());
        bytes
    }

    #[test]
    fn each_message_names_its_interface() {
        let messages = [message(24, 7), message(24, 9)].concat();
        assert_eq!(parse_indexes(&messages), [7, 9]);
    }

    #[test]
    fn malformed_messages_end_the_sequence() {
        for length in [0, 15, 25, u32::MAX] {
            let bytes = [message(24, 7), message(length, 9), message(24, 8)].concat();
            let expected: &[u32] = if length == 25 { &[7, 9] } else { &[7] };
            assert_eq!(parse_indexes(&bytes), expected, "{length}");
        }
        assert!(parse_indexes(&[]).is_empty());
        assert!(parse_indexes(&[1, 2, 3]).is_empty());
        // A message without a body names no interface.
        assert!(parse_indexes(&message(16, 7)[..16]).is_empty());
    }
}
