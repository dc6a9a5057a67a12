//! Wakes a sender that waits for its connection: another thread may let it write, or cancel it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// An event that other threads signal.
#[derive(Debug)]
pub(crate) struct Wake {
    event: OwnedFd,
    is_cancelled: AtomicBool,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake { event, is_cancelled: AtomicBool::new(false) })
    }

    /// Wakes the waiting thread, or the next one that waits.
    pub(crate) fn signal(&self) {
        // The only failure is a counter at its maximum, which is a signal, too.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Removes earlier signals.
    pub(crate) fn reset(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Waits for a signal.
    pub(crate) fn wait(&self, max_wait: Duration) {
        // A time that the kernel cannot represent means no limit.
        let timeout = Timespec::try_from(max_wait).ok();
        let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], timeout.as_ref());
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        self.signal();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
