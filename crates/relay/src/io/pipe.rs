//! A pipe, through which bytes move between two sockets without being copied.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::socket::ready;

/// The requested capacity. An unprivileged process may get less: `fs.pipe-max-size`, and a limit per user.
const CAPACITY: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Bytes inside.
    pub(crate) len: usize,
}

/// The result of filling a pipe.
pub(crate) enum Filled {
    /// The source has no bytes at the moment, or the pipe is full.
    Blocked,
    /// The source has ended.
    Ended,
    /// All requested bytes are in the pipe.
    Complete,
}

impl Pipe {
    pub(crate) fn new() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller pipe is slower and works.
        let _ = fcntl_setpipe_size(&write, CAPACITY);
        Ok(Pipe { read, write, len: 0 })
    }

    /// Moves up to `max` bytes from a socket into the pipe.
    pub(crate) fn fill(&mut self, from: impl AsFd, max: usize) -> io::Result<Filled> {
        let end = self.len + max;
        while self.len < end {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            match ready(splice(&from, None, &self.write, None, end - self.len, flags)) {
                Ok(Some(0)) => return Ok(Filled::Ended),
                Ok(Some(bytes)) => self.len += bytes,
                // The bytes before the error are used; after it, the socket has ended.
                Ok(None) => return Ok(Filled::Blocked),
                Err(_) if self.len > 0 => return Ok(Filled::Blocked),
                Err(error) => return Err(error),
            }
        }
        Ok(Filled::Complete)
    }

    /// Moves bytes from the pipe into a socket, until the pipe is empty (true) or the socket accepts no more (false).
    pub(crate) fn drain(&mut self, to: impl AsFd) -> io::Result<bool> {
        while self.len > 0 {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            match ready(splice(&self.read, None, &to, None, self.len, flags))? {
                None => return Ok(false),
                Some(bytes) => self.len -= bytes,
            }
        }
        Ok(true)
    }

    /// Copies the bytes out of the pipe.
    pub(crate) fn read_to(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        while self.len > 0 {
            match append(bytes, self.len, |bytes| ready(rustix::io::read(&self.read, bytes)))? {
                None | Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(read) => self.len -= read,
            }
        }
        Ok(())
    }
}

/// Appends what `read` reads into at most `max` bytes, and returns its result.
pub(crate) fn append(
    bytes: &mut Vec<u8>,
    max: usize,
    read: impl FnOnce(&mut [u8]) -> io::Result<Option<usize>>,
) -> io::Result<Option<usize>> {
    let start = bytes.len();
    bytes.resize(start + max, 0);
    let result = read(&mut bytes[start..]);
    let appended = if let Ok(Some(appended)) = result { appended } else { 0 };
    bytes.truncate(start + appended);
    result
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn bytes_before_a_reset_are_used() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        io::Write::write_all(&mut sender, b"bytes").unwrap();
        receiver.peek(&mut [0; 5]).unwrap();
        receiver.set_nonblocking(true).unwrap();
        socket2::SockRef::from(&sender).set_linger(Some(Duration::ZERO)).unwrap();
        drop(sender);
        let mut pipe = Pipe::new().unwrap();
        assert!(matches!(pipe.fill(&receiver, 100), Ok(Filled::Blocked | Filled::Ended)));
        assert_eq!(pipe.len, 5);
        let mut bytes = Vec::new();
        pipe.read_to(&mut bytes).unwrap();
        assert_eq!(bytes, b"bytes");
        assert!(matches!(pipe.fill(&receiver, 100), Ok(Filled::Ended) | Err(_)));
    }
}
