//! Connections between hosts of a bed that send for as long as a test needs them.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{Bed, address};
use crate::common::count_received_bytes;
use nix::sys::socket::{setsockopt, sockopt};

/// Connections that send until they are dropped.
pub struct Senders {
    streams: Vec<TcpStream>,
    received: Vec<Arc<AtomicU64>>,
}

impl Senders {
    /// Connects a host to a port of another one, `count` times, with a congestion control and a mark (DSCP). A program with a `rate`, in
    /// bytes per second, writes no more to each connection.
    pub fn start(
        bed: &Bed,
        [from, to]: [u32; 2],
        port: u16,
        count: usize,
        control: &'static str,
        mark: i32,
        rate: Option<f64>,
    ) -> Senders {
        let receiver = SocketAddr::from((address(to), port));
        Senders::start_via(bed, [from, to], receiver, count, control, mark, rate)
    }

    /// As [`Senders::start`], to the port of an address that is replaced by that of the receiver.
    pub fn start_via(
        bed: &Bed,
        [from, to]: [u32; 2],
        target: SocketAddr,
        count: usize,
        control: &'static str,
        mark: i32,
        rate: Option<f64>,
    ) -> Senders {
        let mut senders = Senders { streams: Vec::new(), received: Vec::new() };
        let receiver = SocketAddr::from((address(to), target.port()));
        let listener = bed.run_on_host(to, || TcpListener::bind(receiver).unwrap());
        for _ in 0..count {
            let stream = bed.run_on_host(from, || TcpStream::connect(target).unwrap());
            setsockopt(&stream, sockopt::TcpCongestion, &control.into()).unwrap();
            setsockopt(&stream, sockopt::Ipv4Tos, &(mark << 2)).unwrap();
            let accepted = listener.accept().unwrap().0;
            senders.streams.push(stream.try_clone().unwrap());
            senders.received.push(count_received_bytes(move || accepted));
            thread::spawn(move || send(stream, rate));
        }
        senders
    }

    /// The bytes that have arrived.
    pub fn received_bytes(&self) -> u64 {
        self.received.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

fn send(mut stream: TcpStream, rate: Option<f64>) {
    let (began, mut written) = (Instant::now(), 0.0);
    while stream.write_all(&[0; 1 << 14]).is_ok() {
        written += f64::from(1 << 14);
        if let Some(rate) = rate {
            thread::sleep(Duration::from_secs_f64(written / rate).saturating_sub(began.elapsed()));
        }
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
