//! Notices the ends of connections between two measurements (`epoll`).
//!
//! The kernel signals at once that a peer has closed its direction. Once this end is shut down for writing, it also signals that the peer
//! has acknowledged all data: it reports a socket that is shut down as writable when its state changes. Before that, writability would
//! wake the agent each time that a program can write again.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// The number of events that are read at a time.
const MAX_EVENTS: usize = 64;

/// The sockets whose ends the kernel signals.
#[derive(Debug)]
pub struct EndEvents {
    epoll: OwnedFd,
}

impl EndEvents {
    /// No sockets yet.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> io::Result<EndEvents> {
        Ok(EndEvents { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// A duplicate of the file that is readable while there are events.
    ///
    /// # Errors
    /// If the process has too many files.
    pub fn file(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    /// Takes the numbers of sockets with events.
    pub fn take(&self) -> Vec<u64> {
        let (mut ids, mut events) = (Vec::new(), Vec::with_capacity(MAX_EVENTS));
        loop {
            let is_read = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&Timespec::default()));
            let count = is_read.unwrap_or(0);
            ids.extend(events.drain(..).map(|event: Event| event.data.u64()));
            if count < MAX_EVENTS {
                return ids;
            }
        }
    }

    /// Adds the socket with a number.
    pub fn add(&self, socket_id: u64, socket: BorrowedFd<'_>) {
        // Without events, the next measurement finds the end.
        let _ = epoll::add(
            &self.epoll,
            socket,
            EventData::new_u64(socket_id),
            EventFlags::RDHUP | EventFlags::ET,
        );
    }

    /// Lets the kernel signal that the peer has acknowledged all data of a socket that is shut down for writing.
    pub fn expect_end(&self, socket_id: u64, socket: BorrowedFd<'_>) {
        let flags = EventFlags::RDHUP | EventFlags::OUT | EventFlags::ET;
        let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(socket_id), flags);
    }

    /// Removes a socket before its duplicate is closed: the kernel keeps it while the program has the connection open.
    pub fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, socket);
    }
}
