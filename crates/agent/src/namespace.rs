//! Reads the cookie of a network namespace: a number that the kernel does not use again until the next boot.

use std::io;
use std::os::unix::net::UnixDatagram;

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;

#[derive(Clone, Copy)]
struct Cookie;

nix::getsockopt_impl!(Cookie, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, u64, GetStruct<u64>);

/// The cookie of the calling thread's network namespace.
///
/// # Errors
/// If the kernel has no such cookies: they exist from Linux 5.14 on.
pub fn cookie() -> io::Result<u64> {
    Ok(getsockopt(&UnixDatagram::unbound()?, Cookie)?)
}
