//! Captures the packets that arrive at the other end of the cable.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;

use crate::namespace_pair::NamespacePair;

/// The addresses of this end, and of a pod behind it.
const SOURCES: [&str; 3] = ["10.9.0.1", "fd09::1", "10.9.1.2"];

/// A TCP or UDP packet from this end.
#[derive(Debug)]
pub struct CapturedPacket {
    pub ip_version: u8,
    pub mark: u8,
    /// The source port.
    pub source_port: u16,
    /// The TCP flags, and the number of bytes after the header; none for UDP.
    pub tcp: Option<(u8, usize)>,
}

impl CapturedPacket {
    pub fn kind(&self) -> &'static str {
        match self.tcp {
            None => "udp",
            Some((flags, _)) if flags & 4 != 0 => "rst",
            Some((flags, _)) if flags & 0x12 == 0x12 => "syn ack",
            Some((flags, _)) if flags & 2 != 0 => "syn",
            Some((flags, _)) if flags & 1 != 0 => "fin",
            Some((_, 0)) => "ack",
            Some(_) => "data",
        }
    }

    fn parse(frame: &[u8]) -> Option<CapturedPacket> {
        let ip = frame.get(14..)?;
        let version = ip[0] >> 4;
        let first_word = u16::from_be_bytes([ip[0], ip[1]]);
        let (mark, protocol, length, header, source) = match version {
            4 => {
                let header = usize::from(ip[0] & 15) * 4;
                let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
                let source: [u8; 4] = ip.get(12..16)?.try_into().ok()?;
                (first_word >> 2 & 63, ip[9], length, header, IpAddr::from(source))
            }
            6 => {
                let length = usize::from(u16::from_be_bytes([ip[4], ip[5]])) + 40;
                let source: [u8; 16] = ip.get(8..24)?.try_into().ok()?;
                (first_word >> 6 & 63, ip[6], length, 40, IpAddr::from(source))
            }
            _ => return None,
        };
        if !SOURCES.contains(&source.to_string().as_str()) {
            return None;
        }
        let transport = ip.get(header..)?;
        let source_port = u16::from_be_bytes([*transport.first()?, *transport.get(1)?]);
        let tcp = match protocol {
            6 => Some((
                *transport.get(13)?,
                length.saturating_sub(header + usize::from(transport[12] >> 4) * 4),
            )),
            17 => None,
            _ => return None,
        };
        Some(CapturedPacket { ip_version: version, mark: mark as u8, source_port, tcp })
    }
}

/// A running capture.
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<CapturedPacket>>,
}

pub fn start_capture(pair: &NamespacePair) -> Capture {
    let stop = Arc::new(AtomicBool::new(false));
    let stop_flag = Arc::clone(&stop);
    let (ready_sender, ready_receiver) = mpsc::channel();
    let thread = pair.run_at_peer(move || {
        let flags = SockFlag::empty();
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000)).unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).unwrap();
        ready_sender.send(()).unwrap();
        let (mut packets, mut buffer) = (Vec::new(), [0; 256]);
        // Packets that are queued at the end are read as well, for at most a second.
        let mut stopped_at = None;
        while stopped_at.is_none_or(|last: Instant| last.elapsed() < Duration::from_secs(1)) {
            if stop_flag.load(Ordering::Relaxed) {
                stopped_at.get_or_insert_with(Instant::now);
            }
            match recv(socket.as_raw_fd(), &mut buffer, nix::sys::socket::MsgFlags::empty()) {
                Ok(length) => packets.extend(CapturedPacket::parse(&buffer[..length])),
                Err(nix::Error::EAGAIN) if stopped_at.is_some() => break,
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
        packets
    });
    ready_receiver.recv().unwrap();
    Capture { stop, thread }
}

impl Capture {
    pub fn stop(self) -> Vec<CapturedPacket> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
