//! Sends flows as fast as the network takes them.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll;
use weir_testbed::Network;

use super::{Worker, discard, first_line, wait_for_events};
use crate::LabError;

/// The bytes that are sent on a connection before the next one.
const TURN_BYTES: usize = 1 << 20;

/// The maximum number of events that are processed before the next wait.
const EVENT_BATCH: usize = 64;

/// The time for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a sender sends.
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// The numbers of the flows.
    pub flows: Range<u32>,
    /// Where the flows connect to, and their receivers. Flows take turns.
    pub routes: Vec<Route>,
    /// The bytes of a write.
    pub message_bytes: usize,
}

/// Where a flow connects to: a relay, or the receiver itself.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The address to connect to.
    pub connect: SocketAddrV4,
    /// The address in the first line.
    pub receiver: SocketAddrV4,
}

/// Connected flows that do not send yet.
#[derive(Debug)]
pub struct ConnectedFlows {
    streams: Vec<TcpStream>,
    message_bytes: usize,
}

/// A running sender. Dropping the value closes its connections.
#[derive(Debug)]
pub struct Sender {
    worker: Worker,
}

impl ConnectedFlows {
    /// Connects all flows from a node, and sends their first lines.
    ///
    /// # Errors
    /// If a connection cannot be established.
    pub fn connect(network: &Network, node: &str, settings: &SenderSettings) -> Result<Self, LabError> {
        let flows = settings.flows.clone().zip(settings.routes.iter().copied().cycle());
        let connect = || flows.map(|(flow, route)| connect(flow, route)).collect::<io::Result<Vec<_>>>();
        let streams = network.run_inside(node, connect)?.map_err(LabError::system("connect a flow"))?;
        Ok(ConnectedFlows { streams, message_bytes: settings.message_bytes })
    }

    /// Starts to send.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn send(self) -> Result<Sender, LabError> {
        let worker = Worker::start("sender", move |stop| run(&self.streams, self.message_bytes, stop))?;
        Ok(Sender { worker })
    }
}

impl Sender {
    /// Stops sending.
    ///
    /// # Errors
    /// If a connection has failed before.
    pub fn stop(mut self) -> Result<(), LabError> {
        self.worker.stop().map_err(LabError::system("send"))
    }
}

fn connect(flow: u32, route: Route) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&route.connect.into(), CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.write_all(first_line(flow, route.receiver).as_bytes())?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn run(streams: &[TcpStream], message_bytes: usize, stop: &AtomicBool) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT;
    for (number, stream) in (0..).zip(streams) {
        epoll::add(&epoll, stream, epoll::EventData::new_u64(number), interest)?;
    }
    let message = vec![0x5a; message_bytes];
    let mut replies = vec![0; 64 << 10];
    let mut events = Vec::with_capacity(EVENT_BATCH);
    while !stop.load(Ordering::Relaxed) {
        wait_for_events(&epoll, &mut events)?;
        for event in &events {
            let (flags, data) = (event.flags, event.data);
            let stream = &streams[data.u64() as usize];
            if flags.contains(epoll::EventFlags::IN) && discard(stream, &mut replies)? == Some(0) {
                return Err(ErrorKind::ConnectionReset.into());
            }
            if flags.contains(epoll::EventFlags::OUT) {
                send_turn(stream, &message)?;
            }
        }
    }
    Ok(())
}

/// Sends messages until the socket is full or another connection has its turn.
fn send_turn(mut stream: &TcpStream, message: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < TURN_BYTES {
        match stream.write(message) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
