//! Steady connections: their number stays constant, and they start at different times.
//!
//! The first connections start one after the other during the first half of the warm-up. A connection that completes is replaced at
//! once by a new one from the same host. The receiver counts payload and completions during a window after the warm-up.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use super::{
    IncastError, IncastParameters, IncastSample, RUN_TIMEOUT, STACK_BYTES, connect, send_all, spawn_threads,
    wait_until_readable,
};
use crate::tcp_bed::PacketCounts;

/// The times of a run with steady connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteadyTimes {
    /// The time before the window. The first connections start in its first half.
    pub warm_up: Duration,
    /// The time during which the receiver counts.
    pub window: Duration,
}

/// The senders of a run.
pub(super) struct SteadySenders<F> {
    /// Moves the current thread to the host of a connection, by its number.
    pub enter_host: F,
    /// The receiver's address.
    pub to: SocketAddrV4,
}

/// A connection that the receiver has accepted.
struct AcceptedConnection {
    stream: TcpStream,
    accepted_at: Instant,
    received_bytes: u64,
}

/// The counts of a window.
#[derive(Debug, Default)]
struct WindowCounts {
    received_bytes: u64,
    /// Durations of the connections that completed, in seconds.
    completion_secs: Vec<f64>,
}

/// Runs steady connections. `packet_counts` reads the counters of the switch.
///
/// # Errors
/// If a sender cannot connect, a socket or thread fails, the counters cannot be read, or `should_continue` returns false.
pub(super) fn run<F: Fn(usize) -> io::Result<()> + Sync>(
    listener: TcpListener,
    senders: &SteadySenders<F>,
    incast: &IncastParameters,
    times: SteadyTimes,
    packet_counts: &dyn Fn() -> Result<PacketCounts, IncastError>,
    should_continue: &dyn Fn() -> bool,
) -> Result<IncastSample, IncastError> {
    let to_error = |error| IncastError::Socket { connections: incast.connections, error };
    let stop = AtomicBool::new(false);
    let (failed, failures) = mpsc::channel();
    thread::scope(|scope| {
        let work = |number: usize| {
            let (failed, stop) = (failed.clone(), &stop);
            let delay = times.warm_up / 2 * number as u32 / incast.connections as u32;
            move || {
                thread::sleep(delay);
                let sent = send_until_stopped(senders, number, incast.bytes_per_connection, stop);
                if let Err(error) = sent
                    && !stop.load(Ordering::SeqCst)
                {
                    // The receiver has ended if it does not listen any more.
                    let _ = failed.send(error);
                }
            }
        };
        let started = spawn_threads(scope, incast.connections, STACK_BYTES, work).map_err(to_error);
        let mut receiver =
            SteadyReceiver { listener: &listener, connections: Vec::new(), buffer: vec![0; 64 << 10] };
        let sample =
            started.and_then(|()| receiver.measure(incast, times, &failures, packet_counts, should_continue));
        stop.store(true, Ordering::SeqCst);
        // Senders that wait for the receiver fail, and end.
        drop(receiver);
        drop(listener);
        sample
    })
}

/// Opens one connection after the other, each with `bytes` bytes. Waits for the receiver to close each.
fn send_until_stopped<F: Fn(usize) -> io::Result<()>>(
    senders: &SteadySenders<F>,
    number: usize,
    bytes: u64,
    stop: &AtomicBool,
) -> io::Result<()> {
    (senders.enter_host)(number)?;
    while !stop.load(Ordering::SeqCst) {
        let mut stream = connect(senders.to)?;
        stream.set_read_timeout(Some(RUN_TIMEOUT))?;
        send_all(&mut stream, bytes)?;
        stream.shutdown(Shutdown::Write)?;
        // The receiver sends nothing. It closes the connection when it has all bytes.
        io::copy(&mut stream, &mut io::sink())?;
    }
    Ok(())
}

struct SteadyReceiver<'a> {
    listener: &'a TcpListener,
    connections: Vec<AcceptedConnection>,
    buffer: Vec<u8>,
}

impl SteadyReceiver<'_> {
    fn measure(
        &mut self,
        incast: &IncastParameters,
        times: SteadyTimes,
        failures: &Receiver<io::Error>,
        packet_counts: &dyn Fn() -> Result<PacketCounts, IncastError>,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<IncastSample, IncastError> {
        let mut receive = |duration| self.receive_for(duration, incast, failures, should_continue);
        receive(times.warm_up)?;
        let before = packet_counts()?;
        // Bytes that arrived while the counters were read do not count.
        receive(Duration::ZERO)?;
        let began = Instant::now();
        let mut counts = receive(times.window)?;
        let window_secs = began.elapsed().as_secs_f64();
        let after = packet_counts()?;
        counts.completion_secs.sort_unstable_by(f64::total_cmp);
        Ok(IncastSample {
            loss: after.loss_since(before),
            queue: None,
            goodput: counts.received_bytes as f64 / window_secs,
            completion_secs: counts.completion_secs,
        })
    }

    /// Accepts and reads for at least `duration`, and until no more bytes are available.
    fn receive_for(
        &mut self,
        duration: Duration,
        incast: &IncastParameters,
        failures: &Receiver<io::Error>,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<WindowCounts, IncastError> {
        let to_error = |error| IncastError::Socket { connections: incast.connections, error };
        let began = Instant::now();
        let mut counts = WindowCounts::default();
        loop {
            if !should_continue() {
                return Err(IncastError::Interrupted);
            }
            if let Ok(error) = failures.try_recv() {
                return Err(to_error(error));
            }
            self.accept_waiting().map_err(to_error)?;
            self.read_available(incast.bytes_per_connection, &mut counts).map_err(to_error)?;
            if began.elapsed() >= duration {
                return Ok(counts);
            }
            let streams = self.connections.iter().map(|connection| connection.stream.as_fd());
            wait_until_readable(streams.chain([self.listener.as_fd()])).map_err(to_error)?;
        }
    }

    fn accept_waiting(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    let accepted_at = Instant::now();
                    self.connections.push(AcceptedConnection { stream, accepted_at, received_bytes: 0 });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the available bytes of all connections, and closes those that have completed.
    fn read_available(&mut self, bytes_per_connection: u64, counts: &mut WindowCounts) -> io::Result<()> {
        let mut index = 0;
        while index < self.connections.len() {
            let connection = &mut self.connections[index];
            let before = connection.received_bytes;
            let ended = read_until_blocked(connection, &mut self.buffer)?;
            counts.received_bytes += connection.received_bytes - before;
            if !ended {
                index += 1;
                continue;
            }
            if connection.received_bytes < bytes_per_connection {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            counts.completion_secs.push(connection.accepted_at.elapsed().as_secs_f64());
            self.connections.swap_remove(index);
        }
        Ok(())
    }
}

/// Reads the available bytes of a connection. Returns whether the sender has ended it.
fn read_until_blocked(connection: &mut AcceptedConnection, buffer: &mut [u8]) -> io::Result<bool> {
    loop {
        match connection.stream.read(buffer) {
            Ok(0) => return Ok(true),
            Ok(length) => connection.received_bytes += length as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicUsize;

    use super::super::ConnectionStarts;
    use super::*;

    const TIMES: SteadyTimes =
        SteadyTimes { warm_up: Duration::from_millis(60), window: Duration::from_millis(150) };

    fn incast(connections: usize, bytes_per_connection: u64) -> IncastParameters {
        let starts = ConnectionStarts::Steady(TIMES);
        IncastParameters { buffer_packets: 1, connections, bytes_per_connection, starts }
    }

    /// Runs on the loopback interface, without namespaces.
    fn run_on_loopback(
        incast: &IncastParameters,
        enter_host: impl Fn(usize) -> io::Result<()> + Sync,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<IncastSample, IncastError> {
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        let senders = SteadySenders { enter_host, to };
        // 90 packets more are sent, and 10 more are dropped, at each reading.
        let readings = Cell::new(0);
        let packet_counts = || {
            readings.set(readings.get() + 1);
            Ok(PacketCounts { sent: 90 * readings.get(), dropped: 10 * readings.get() })
        };
        run(listener, &senders, incast, TIMES, &packet_counts, should_continue)
    }

    #[test]
    fn completed_connections_are_replaced() {
        let began = Instant::now();
        let sample = run_on_loopback(&incast(3, 10_000), |_| Ok(()), &|| true).unwrap();
        let run_secs = began.elapsed().as_secs_f64();
        // Each of three connections sends 10 kB. Many more complete in the window.
        assert!(sample.completion_secs.len() > 10, "{}", sample.completion_secs.len());
        assert!(sample.completion_secs.is_sorted());
        // Counted bytes are those of completed connections, except for three connections at the start and at the end of the window,
        // which is longer than the requested time and shorter than the run.
        let completed_bytes = sample.completion_secs.len() as f64 * 10e3;
        assert!(sample.goodput * run_secs > completed_bytes - 3.0 * 10e3, "{sample:?} in {run_secs} s");
        assert!(sample.goodput * TIMES.window.as_secs_f64() < completed_bytes + 3.0 * 10e3, "{sample:?}");
        assert_eq!(sample.loss, 0.1);
    }

    #[test]
    fn connections_start_one_after_the_other_before_the_window() {
        let (first, began) = (AtomicUsize::new(usize::MAX), Instant::now());
        let last_start_ms = AtomicUsize::new(0);
        let enter_host = |number| {
            let now = began.elapsed().as_millis() as usize;
            let time = if number == 0 { &first } else { &last_start_ms };
            if number == 0 || number == 9 {
                time.store(now, Ordering::SeqCst);
            }
            Ok(())
        };
        let sample = run_on_loopback(&incast(10, 1 << 40), enter_host, &|| true).unwrap();
        // The last of ten starts at nine tenths of half the warm-up: 27 ms after the first.
        let gap = last_start_ms.load(Ordering::SeqCst) - first.load(Ordering::SeqCst);
        assert!(gap >= 20, "{gap} ms");
        // No connection completes, but all bytes count.
        assert!(sample.completion_secs.is_empty() && sample.goodput > 0.0);
    }

    #[test]
    fn sender_that_cannot_enter_its_host_ends_the_run() {
        let enter_host = |number| if number == 1 { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) };
        let error = run_on_loopback(&incast(2, 10_000), enter_host, &|| true).unwrap_err();
        assert!(matches!(error, IncastError::Socket { connections: 2, .. }), "{error}");
    }

    #[test]
    fn signal_stops_a_steady_run() {
        let error = run_on_loopback(&incast(2, 10_000), |_| Ok(()), &|| false).unwrap_err();
        assert!(matches!(error, IncastError::Interrupted), "{error}");
    }
}
