//! Receives flows, counts their bytes and acknowledges them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::epoll;
use weir_testbed::Network;

use super::{Worker, discard, wait_for_events};
use crate::LabError;

/// The maximum length of a first line.
const MAX_LINE_BYTES: usize = 256;

/// The maximum number of events that are processed before the next wait.
const EVENT_BATCH: usize = 64;

/// The number in events of the listening socket.
const LISTENER: u64 = u64::MAX;

/// How a receiver reads.
#[derive(Debug, Clone, Copy)]
pub struct ReceiverSettings {
    /// Where to listen.
    pub address: SocketAddrV4,
    /// The bytes that may be unacknowledged. At the start of a flow, half of its bytes may be.
    pub ack_bytes: u64,
    /// The maximum bytes of a read.
    pub read_bytes: usize,
    /// The pause after each round of reads.
    pub pause: Duration,
}

impl ReceiverSettings {
    /// Reads as fast as possible, and acknowledges as the protocol asks for.
    pub fn fast(address: SocketAddrV4) -> ReceiverSettings {
        ReceiverSettings { address, ack_bytes: 128 << 10, read_bytes: 1 << 20, pause: Duration::ZERO }
    }

    /// Reads at most 64 KiB of each flow in 50 ms.
    pub fn slow(address: SocketAddrV4) -> ReceiverSettings {
        let (ack_bytes, read_bytes) = (64 << 10, 64 << 10);
        ReceiverSettings { address, ack_bytes, read_bytes, pause: Duration::from_millis(50) }
    }

    /// Acknowledges each request of `bytes` bytes.
    pub fn echo(address: SocketAddrV4, bytes: u64) -> ReceiverSettings {
        ReceiverSettings { ack_bytes: bytes, ..ReceiverSettings::fast(address) }
    }
}

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    flows: AtomicUsize,
}

/// A running receiver. Dropping the value closes its connections.
#[derive(Debug)]
pub struct Receiver {
    counters: Arc<Counters>,
    _worker: Worker,
}

impl Receiver {
    /// Listens at a node.
    ///
    /// # Errors
    /// If the address is not free.
    pub fn start(network: &Network, node: &str, settings: ReceiverSettings) -> Result<Receiver, LabError> {
        let address = settings.address;
        let listener = network
            .run_inside(node, || TcpListener::bind(address))?
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(LabError::system(format!("listen at {address}")))?;
        let counters = Arc::new(Counters::default());
        let shared = Arc::clone(&counters);
        let worker = Worker::start("receiver", move |stop| run(&listener, settings, &shared, stop))?;
        Ok(Receiver { counters, _worker: worker })
    }

    /// The bytes that have arrived after first lines.
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    /// The number of flows whose first lines have arrived.
    pub fn flows(&self) -> usize {
        self.counters.flows.load(Ordering::Relaxed)
    }
}

fn run(
    listener: &TcpListener,
    settings: ReceiverSettings,
    counters: &Counters,
    stop: &AtomicBool,
) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENT_BATCH);
    let mut buffer = vec![0; settings.read_bytes];
    while !stop.load(Ordering::Relaxed) {
        wait_for_events(&epoll, &mut events)?;
        for event in &events {
            let number = event.data.u64();
            if number == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    let data = epoll::EventData::new_u64(connections.len() as u64);
                    epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
                    connections.push(Some(Connection::new(stream)?));
                }
                continue;
            }
            let slot = &mut connections[number as usize];
            let Some(connection) = slot else { continue };
            // A connection that fails or ends is closed; its sender reports the failure.
            if !connection.read(&mut buffer, settings.ack_bytes, counters).unwrap_or(false) {
                *slot = None;
            }
        }
        std::thread::sleep(settings.pause);
    }
    Ok(())
}

/// A connection of a flow.
struct Connection {
    stream: TcpStream,
    /// The first line so far; none after its end.
    line: Option<Vec<u8>>,
    offset: u64,
    acknowledged: u64,
}

impl Connection {
    fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, line: Some(Vec::new()), offset: 0, acknowledged: 0 })
    }

    /// Reads once. Returns whether the connection is open.
    fn read(&mut self, buffer: &mut [u8], ack_bytes: u64, counters: &Counters) -> io::Result<bool> {
        let bytes = match &mut self.line {
            Some(line) => {
                let Some(bytes) = read_line(&self.stream, line)? else { return Ok(true) };
                self.line = None;
                counters.flows.fetch_add(1, Ordering::Relaxed);
                self.acknowledge()?;
                bytes
            }
            None => match discard(&self.stream, buffer)? {
                Some(0) => return Ok(false),
                Some(bytes) => bytes,
                None => return Ok(true),
            },
        };
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.offset += bytes;
        let pending = self.offset - self.acknowledged;
        if pending > 0 && pending >= ack_bytes.min(self.offset / 2) {
            self.acknowledge()?;
        }
        Ok(true)
    }

    fn acknowledge(&mut self) -> io::Result<()> {
        self.acknowledged = self.offset;
        let line = format!("ack {}\n", self.offset);
        match self.stream.write(line.as_bytes()) {
            Ok(written) if written == line.len() => Ok(()),
            // The line would be torn. The sender does not read, so the flow has failed.
            Ok(_) => Err(ErrorKind::WriteZero.into()),
            Err(error) => Err(error),
        }
    }
}

/// Reads the first line. None if it is incomplete, otherwise the number of bytes after it.
fn read_line(mut stream: &TcpStream, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    let mut bytes = [0; MAX_LINE_BYTES];
    let count = match stream.read(&mut bytes) {
        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    let end = bytes[..count].iter().position(|&byte| byte == b'\n');
    line.extend_from_slice(&bytes[..end.unwrap_or(count)]);
    match end {
        Some(end) if line.starts_with(b"weir-flow/2 ") => Ok(Some((count - end - 1) as u64)),
        None if line.len() < MAX_LINE_BYTES => Ok(None),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}
