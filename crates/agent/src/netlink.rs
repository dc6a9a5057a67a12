//! Reads netlink messages and their attributes (`netlink(7)`), and requests lists of kernel objects and single ones.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;

/// The size of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// The size of `struct nlattr`.
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// The bits of an attribute's type without its flags (`NLA_TYPE_MASK`).
const ATTRIBUTE_TYPE_MASK: u16 = 0x3fff;

/// The flag of an attribute that contains others (`NLA_F_NESTED`).
const NESTED_FLAG: u16 = 0x8000;

/// Types of messages that end a list.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// `NLM_F_REQUEST`.
const REQUEST_FLAGS: u16 = 1;

/// `NLM_F_REQUEST | NLM_F_DUMP`.
const LIST_FLAGS: u16 = 0x301;

/// How long the kernel may take for an answer, or a part of a list.
const TIMEOUT: TimeVal = TimeVal::new(1, 0);

/// The maximum length of a list, in bytes: 30,000 interfaces with all of their attributes.
const MAX_LIST_BYTES: usize = 64 << 20;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its type.
    pub kind: u16,
    /// The number of the request that it answers.
    pub sequence: u32,
    /// What follows its header.
    pub payload: &'a [u8],
}

/// The messages in a buffer, up to the first malformed one.
#[derive(Debug, Clone)]
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = read_u32(self.0, 0)? as usize;
        let (kind, sequence) = (read_u16(self.0, 4)?, read_u32(self.0, 8)?);
        let payload = self.0.get(HEADER_BYTES..length)?;
        // Messages are aligned to 4 bytes.
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, sequence, payload })
    }
}

/// The attributes in a buffer, each with its type, up to the first malformed one.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The value of the first attribute of a type.
    pub fn find(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(present, value)| (present == kind).then_some(value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(read_u16(self.0, 0)?);
        let kind = read_u16(self.0, 2)? & ATTRIBUTE_TYPE_MASK;
        let value = self.0.get(ATTRIBUTE_HEADER_BYTES..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Encodes an attribute, with its padding.
pub fn encode_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (ATTRIBUTE_HEADER_BYTES + value.len()) as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Encodes an attribute that contains others.
pub fn encode_nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    encode_attribute(kind | NESTED_FLAG, attributes)
}

fn open_socket(protocol: SockProtocol) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TIMEOUT)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    Ok(socket)
}

/// Receives a datagram into a buffer. Returns its length; 0 for one that does not fit.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC) {
            Err(Errno::EINTR) => {}
            Ok(length) => return Ok(if length > buffer.len() { 0 } else { length }),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends requests that have one answer each in one datagram, in the network namespace of the calling thread. Calls `visit` with the
/// position of each request, and its answer or the kernel's error.
///
/// # Errors
/// If the kernel does not accept the requests or answer in time, and the error that `visit` returns first.
pub fn ask(
    protocol: SockProtocol,
    kind: u16,
    requests: &[Vec<u8>],
    mut visit: impl FnMut(usize, Result<&[u8], Errno>) -> Result<(), Errno>,
) -> io::Result<()> {
    let socket = open_socket(protocol)?;
    let numbered = requests.iter().zip(0..);
    let encoded: Vec<Vec<u8>> =
        numbered.map(|(request, sequence)| encode_request(kind, REQUEST_FLAGS, sequence, request)).collect();
    send(socket.as_raw_fd(), &encoded.concat(), MsgFlags::empty())?;
    let (mut buffer, mut missing) = (vec![0; 1 << 16], requests.len());
    while missing > 0 {
        let length = receive(&socket, &mut buffer)?;
        let mut messages = Messages(&buffer[..length]).peekable();
        if messages.peek().is_none() {
            return Err(io::Error::other("the kernel's answer is malformed"));
        }
        for message in messages {
            let answer = match message.kind {
                NLMSG_ERROR => Err(error_of(message.payload)),
                _ => Ok(message.payload),
            };
            visit(message.sequence as usize, answer)?;
            missing = missing.saturating_sub(1);
        }
    }
    Ok(())
}

/// Requests a list in the network namespace of the calling thread, and calls `visit` with the payload of each of its messages.
///
/// # Errors
/// If the kernel refuses the request, or does not answer in time.
pub fn list(
    protocol: SockProtocol,
    kind: u16,
    request: &[u8],
    mut visit: impl FnMut(&[u8]),
) -> io::Result<()> {
    let socket = open_socket(protocol)?;
    send(socket.as_raw_fd(), &encode_request(kind, LIST_FLAGS, 0, request), MsgFlags::empty())?;
    let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
    while total <= MAX_LIST_BYTES {
        let length = receive(&socket, &mut buffer)?;
        if length == 0 {
            break;
        }
        total += length;
        for message in Messages(&buffer[..length]) {
            match message.kind {
                NLMSG_DONE | NLMSG_ERROR => return to_result(message.payload),
                _ => visit(message.payload),
            }
        }
    }
    Err(io::Error::other("the kernel's list is malformed or too long"))
}

fn encode_request(kind: u16, flags: u16, sequence: u32, request: &[u8]) -> Vec<u8> {
    let length = (HEADER_BYTES + request.len()) as u32;
    // At the end of the header: the port of the sender, which the kernel fills in.
    let (kind, flags, sequence) = (kind.to_ne_bytes(), flags.to_ne_bytes(), sequence.to_ne_bytes());
    let mut bytes = [&length.to_ne_bytes()[..], &kind, &flags, &sequence, &[0; 4], request].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The result in a message that ends a list: 0, or a negative error.
fn to_result(payload: &[u8]) -> io::Result<()> {
    match read_u32(payload, 0) {
        None | Some(0) => Ok(()),
        Some(_) => Err(error_of(payload).into()),
    }
}

/// The error in a message, which has its negative number.
fn error_of(payload: &[u8]) -> Errno {
    Errno::from_raw(read_u32(payload, 0).map_or(0, |number| (number as i32).wrapping_neg()))
}

/// The number at an offset, in the byte order of this machine.
pub fn read_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    let bytes = bytes.get(offset..offset + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

/// The number at an offset, in the byte order of this machine.
pub fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_encoding() {
        let bytes = [encode_attribute(1, b"vxlan\0"), encode_attribute(0x8002, &[1, 2, 3, 4])].concat();
        let list: Vec<_> = Attributes(&bytes).collect();
        // The flag of nested attributes is no part of the type.
        assert_eq!(list, [(1, &b"vxlan\0"[..]), (2, &[1, 2, 3, 4])]);
        assert_eq!(Attributes(&bytes).find(2), Some(&[1, 2, 3, 4][..]));
        assert_eq!(Attributes(&bytes).find(3), None);
    }

    #[test]
    fn malformed_attributes_end_the_sequence() {
        let first = encode_attribute(7, &[1]);
        for length in [0u16, 3, 6, u16::MAX] {
            let bytes = [&first[..], &length.to_ne_bytes(), &[0, 0, 0]].concat();
            assert_eq!(Attributes(&bytes).collect::<Vec<_>>(), [(7, &[1][..])], "{length}");
        }
    }

    #[test]
    fn list_of_a_request_that_the_kernel_refuses_is_an_error() {
        // No message of routing has this type.
        let error = list(SockProtocol::NetlinkRoute, u16::MAX, &[0; 16], |_| ()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EOPNOTSUPP as i32));
    }
}
