//! Senders and receivers of flows, and a probe of latency. All of them speak the flow protocol of `docs/flow-protocol.md` as far as relays
//! see it: a first line, bytes, and acknowledgements on the way back. Relays without knowledge of the protocol forward the same bytes.
//!
//! Chunks are left out, since relays do not look at them. Receivers let the kernel discard the bytes without a copy, so that on a small
//! machine the relays get most of the processors.

mod probe;
mod receive;
mod send;

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

pub use probe::probe;
pub use receive::{Receiver, ReceiverSettings};
pub use send::{ConnectedFlows, Route, Sender, SenderSettings};

use crate::LabError;

/// The coflow of all flows.
pub const COFLOW: &str = "bench";

/// The maximum time between two checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The first line of a flow.
fn first_line(flow: u32, receiver: SocketAddrV4) -> String {
    format!("weir-flow/2 {COFLOW} {flow} 0 0 {receiver}\n")
}

/// A thread that works until this value is dropped or stopped.
#[derive(Debug)]
struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Worker {
    fn start(
        name: &str,
        work: impl FnOnce(&AtomicBool) -> io::Result<()> + Send + 'static,
    ) -> Result<Worker, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name(name.to_owned()).spawn({
            let stop = Arc::clone(&stop);
            move || work(&stop)
        });
        Ok(Worker { stop, thread: Some(thread.map_err(LabError::system("a thread"))?) })
    }

    /// Stops the thread, and returns its error.
    fn stop(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take() {
            Some(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))),
            None => Ok(()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // An error is returned by `stop`, and a panic has printed its message.
        let _ = self.stop();
    }
}

/// Waits for events, at most until the next check whether to stop.
fn wait_for_events(epoll: &impl rustix::fd::AsFd, events: &mut Vec<epoll::Event>) -> io::Result<()> {
    events.clear();
    let timeout = Timespec::try_from(STOP_CHECK_INTERVAL).expect("the interval is below a second");
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Receives at most `buffer.len()` bytes, which the kernel discards; none if no bytes have arrived. 0 bytes are the end.
fn discard(stream: &std::net::TcpStream, buffer: &mut [u8]) -> io::Result<Option<u64>> {
    match rustix::net::recv(stream, buffer, rustix::net::RecvFlags::TRUNC) {
        Ok((bytes, _)) => Ok(Some(bytes as u64)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
