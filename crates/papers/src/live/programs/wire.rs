//! What comes out of the cables of hosts: packets of programs, by their marks.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use weir_testbed::{Node, namespace};

/// The header of Ethernet.
const ETHERNET: usize = 14;

/// What is looked at of a packet.
const HEAD: usize = 128;

/// Packets that came so far, by the port of their program, their mark (DSCP), and whether they begin a connection (SYN).
pub type Packets = BTreeMap<(u16, u8, bool), Count>;

/// How many, and their bytes with all headers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

/// Looks at what comes until it is dropped.
pub struct Capture {
    stop: Arc<AtomicBool>,
    packets: Arc<Mutex<Packets>>,
    threads: Vec<JoinHandle<()>>,
}

impl Capture {
    /// Packets of TCP from an address with one of these ports, at either end, as they come to these hosts.
    ///
    /// # Errors
    /// If that cannot be looked at.
    pub fn begin(at: &[&Node], from: Ipv4Addr, ports: &[u16]) -> io::Result<Capture> {
        let packets = Arc::new(Mutex::new(Packets::new()));
        let mut capture = Capture { stop: Arc::new(AtomicBool::new(false)), packets, threads: Vec::new() };
        for node in at {
            let socket = namespace::inside(&node.namespace, open)??;
            let (stop, packets, ports) =
                (Arc::clone(&capture.stop), Arc::clone(&capture.packets), ports.to_vec());
            capture.threads.push(thread::spawn(move || look(&socket, from, &ports, &stop, &packets)));
        }
        Ok(capture)
    }

    /// What came so far.
    pub fn packets(&self) -> Packets {
        self.packets.lock().expect("nobody panics while holding it").clone()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn open() -> nix::Result<OwnedFd> {
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000))?;
    setsockopt(&socket, sockopt::RcvBuf, &(8 << 20))?;
    Ok(socket)
}

fn look(socket: &OwnedFd, from: Ipv4Addr, ports: &[u16], stop: &AtomicBool, packets: &Mutex<Packets>) {
    let mut head = [0; HEAD];
    while !stop.load(Ordering::Relaxed) {
        let Ok(length) = recv(socket.as_raw_fd(), &mut head, MsgFlags::empty()) else { continue };
        let Some((key, bytes)) = parse(&head[..length], from, ports) else { continue };
        let mut packets = packets.lock().expect("nobody panics while holding it");
        let count = packets.entry(key).or_default();
        count.packets += 1;
        count.bytes += bytes;
    }
}

/// Nothing of what is no packet of TCP over IPv4, or of somebody else.
fn parse(frame: &[u8], from: Ipv4Addr, ports: &[u16]) -> Option<((u16, u8, bool), u64)> {
    const TCP: u8 = 6;
    let ip = frame.get(ETHERNET..)?;
    let source: [u8; 4] = ip.get(12..16)?.try_into().ok()?;
    if ip[0] >> 4 != 4 || ip[9] != TCP || Ipv4Addr::from(source) != from {
        return None;
    }
    let tcp = ip.get(usize::from(ip[0] & 15) * 4..)?;
    let number = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
    let ends = [number(0)?, number(2)?];
    let port = *ports.iter().find(|port| ends.contains(port))?;
    let bytes = u64::from(u16::from_be_bytes([ip[2], ip[3]])) + ETHERNET as u64;
    Some(((port, ip[1] >> 2, tcp.get(13)? & 2 != 0), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_known_by_their_ports() {
        let from = Ipv4Addr::new(10, 0, 0, 1);
        let mut frame = [0; 54];
        frame[14] = 0x45;
        frame[15] = 3 << 2 | 1;
        frame[17] = 40;
        frame[23] = 6;
        frame[26..30].copy_from_slice(&from.octets());
        frame[36..38].copy_from_slice(&8000u16.to_be_bytes());
        frame[47] = 0x12;
        assert_eq!(parse(&frame, from, &[5201, 8000]), Some(((8000, 3, true), 54)));
        assert_eq!(parse(&frame, from, &[5201]), None);
        assert_eq!(parse(&frame, Ipv4Addr::new(10, 0, 0, 2), &[8000]), None);
        assert!((0..54).all(|length| length >= 48 || parse(&frame[..length], from, &[8000]).is_none()));
    }
}
