//! A connection between a program and a relay or another program: plain text or TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_flow::BackLine;
use weir_tls::{Tls, TlsSession};

use crate::flow_tls::FlowTls;
use crate::wake::Wake;

/// A connection whose socket does not block. Threads may share it.
#[derive(Debug)]
pub(crate) struct FlowConnection {
    stream: TcpStream,
    tls: Option<Mutex<TlsSession>>,
}

fn blocked_unless<T>(value: Option<T>) -> io::Result<T> {
    value.ok_or_else(|| ErrorKind::WouldBlock.into())
}

impl FlowConnection {
    /// A connection to a relay or a program.
    pub(crate) fn connect(stream: TcpStream, tls: Option<&FlowTls>) -> io::Result<FlowConnection> {
        FlowConnection::new(stream, tls, Tls::connect)
    }

    /// A connection that was accepted.
    pub(crate) fn accept(stream: TcpStream, tls: Option<&FlowTls>) -> io::Result<FlowConnection> {
        FlowConnection::new(stream, tls, Tls::accept)
    }

    fn new(
        stream: TcpStream,
        tls: Option<&FlowTls>,
        begin: fn(&Tls) -> io::Result<TlsSession>,
    ) -> io::Result<FlowConnection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let tls = tls.map(FlowTls::tls).filter(|tls| tls.applies_to(stream.local_addr(), stream.peer_addr()));
        Ok(FlowConnection { tls: tls.map(begin).transpose()?.map(Mutex::new), stream })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn session(&self) -> Option<MutexGuard<'_, TlsSession>> {
        self.tls.as_ref().map(|tls| tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the end of the handshake.
    pub(crate) fn finish_handshake(&self, timeout: Duration) -> io::Result<()> {
        let start = Instant::now();
        while let Some(mut session) = self.session()
            && !session.handshake(&self.stream)?
        {
            let has_output = session.has_output();
            drop(session);
            let remaining = timeout.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the TLS handshake did not end in time"));
            }
            self.wait(has_output, Some(remaining));
        }
        Ok(())
    }

    /// Checks the name in the certificate of the other end. Does nothing over plain text.
    pub(crate) fn check_peer(&self, check: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
        self.session().map_or(Ok(()), |session| check(&session.peer_name()?))
    }

    /// Waits until the connection is readable, or writable if there is output, or a certificate expires: the read that follows fails.
    pub(crate) fn wait(&self, has_output: bool, max_wait: Option<Duration>) {
        self.wait_with(has_output, max_wait, None);
    }

    /// As [`FlowConnection::wait`], or until a signal.
    pub(crate) fn wait_with(&self, has_output: bool, mut max_wait: Option<Duration>, wake: Option<&Wake>) {
        if let Some(mut session) = self.session() {
            if session.has_input() {
                return;
            }
            if let Some(expiry) = session.expiry().filter(|_| !session.is_handshaking()) {
                let until_expiry = expiry.duration_since(SystemTime::now()).unwrap_or_default();
                max_wait = Some(max_wait.map_or(until_expiry, |wait| wait.min(until_expiry)));
            }
        }
        let flags = if has_output { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        // A time that the kernel cannot represent means no limit.
        let timeout = max_wait.and_then(|wait| Timespec::try_from(wait).ok());
        let wake = wake.map_or(self.stream.as_fd(), |wake| wake.as_fd());
        let signal = PollFd::from_borrowed_fd(wake, PollFlags::IN);
        // An error is found by the read that follows.
        let _ = poll(&mut [PollFd::new(&self.stream, flags), signal], timeout.as_ref());
    }

    /// Reads bytes; 0 at the end.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.session() {
            None => (&self.stream).read(bytes),
            Some(mut session) => blocked_unless(session.read(&self.stream, bytes)?),
        }
    }

    /// Writes bytes.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.session() {
            None => (&self.stream).write(bytes),
            Some(mut session) => blocked_unless(session.write(&self.stream, bytes)?),
        }
    }

    /// Writes buffered output. Returns whether the kernel has all of it.
    pub(crate) fn flush(&self) -> io::Result<bool> {
        self.session().map_or(Ok(true), |mut session| session.flush(&self.stream))
    }

    /// Whether output waits for the kernel.
    pub(crate) fn has_output(&self) -> bool {
        self.session().is_some_and(|session| session.has_output())
    }

    /// Sends a line if the kernel's buffer has room.
    pub(crate) fn send_line(&self, line: &str) -> io::Result<()> {
        let length = self.write(line.as_bytes())?;
        if length < line.len() || !self.flush()? { Err(ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    /// Sends the last line. The caller drains the connection.
    pub(crate) fn send_last_line(&self, line: BackLine) {
        let _ = self.send_line(&line.encode());
        if let Some(mut session) = self.session() {
            session.end();
            let _ = session.flush(&self.stream);
        }
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes the connection in both directions, also for threads that use it.
    pub(crate) fn shutdown(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
