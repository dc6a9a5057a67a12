//! Throttles a UDP connection by its receiver (NetShare, section 3.2): the receiver reports the arriving rate every 50 ms, and
//! the sender applies Algorithm 1 ([`RateThrottle`]).
//!
//! Reports are datagrams in the reverse direction of the connection, with the mark of its service. They use the same links and
//! may be lost. Where the paper is silent:
//!
//! - *A lost report* changes nothing. A late report is ignored, since a later one has been applied.
//! - *The end of a flow*: a second after the last arrival, the receiver stops reporting.
//! - *A restarted flow*, from another socket, is another flow, without a limit at first.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weir_core::netshare::{MEASUREMENT_PERIOD, RateThrottle};
use weir_core::units::Rate;

/// The start of a report.
const REPORT_MAGIC: [u8; 8] = *b"weirRT01";

/// The length of a report: its start, a number that rises by one with each report, and bytes per second.
const REPORT_BYTES: usize = 20;

/// The time without an arrival after which a flow has ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

fn encode_report(seq: u32, rate: u64) -> [u8; REPORT_BYTES] {
    let mut report = [0; REPORT_BYTES];
    report[..8].copy_from_slice(&REPORT_MAGIC);
    report[8..12].copy_from_slice(&seq.to_be_bytes());
    report[12..].copy_from_slice(&rate.to_be_bytes());
    report
}

/// Parses a report into its number and rate; none if it is not a report.
fn decode_report(datagram: &[u8]) -> Option<(u32, Rate)> {
    let (magic, rest) = datagram.split_first_chunk::<8>()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    let rate = u64::from_be_bytes(rest.try_into().ok()?);
    (*magic == REPORT_MAGIC).then_some((u32::from_be_bytes(*number), Rate::new(rate as f64)?))
}

/// Measures the arriving rate at the receiver, period by period.
pub struct Meter {
    period_start: Instant,
    /// Bytes on the wire since then.
    bytes: f64,
    last_source: Option<(SocketAddr, Instant)>,
    seq: u32,
}

impl Meter {
    /// The maximum time to wait for data, so that reports are not late.
    pub const READ_TIMEOUT: Duration = Duration::from_millis(5);

    pub fn new(now: Instant) -> Meter {
        Meter { period_start: now, bytes: 0.0, last_source: None, seq: 0 }
    }

    /// Counts bytes on the wire that arrived.
    pub fn count_bytes(&mut self, from: SocketAddr, bytes: f64, now: Instant) {
        self.last_source = Some((from, now));
        self.bytes += bytes;
    }

    /// Sends a report if one is due.
    pub fn send_report(&mut self, socket: &UdpSocket, now: Instant) -> io::Result<()> {
        let elapsed_secs = now.saturating_duration_since(self.period_start).as_secs_f64();
        if elapsed_secs < MEASUREMENT_PERIOD.get() {
            return Ok(());
        }
        let rate = (std::mem::take(&mut self.bytes) / elapsed_secs) as u64;
        self.period_start = now;
        let Some((to, _)) =
            self.last_source.filter(|(_, last)| now.saturating_duration_since(*last) < IDLE_TIMEOUT)
        else {
            return Ok(());
        };
        self.seq = self.seq.wrapping_add(1);
        match socket.send_to(&encode_report(self.seq, rate), to) {
            // A packet that the host's queue drops is lost, as on any other link.
            Err(error) if !is_datagram_lost(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The limit at the sender.
pub struct SenderLimit {
    throttle: RateThrottle,
    last_seq: u32,
}

impl SenderLimit {
    pub fn new(throttle: RateThrottle) -> SenderLimit {
        SenderLimit { throttle, last_seq: 0 }
    }

    /// The limit after all reports that have arrived; none before the first. `socket` must not block.
    pub fn update(&mut self, socket: &UdpSocket) -> io::Result<Option<Rate>> {
        // One byte more than a report, to detect longer datagrams.
        let mut datagram = [0; REPORT_BYTES + 1];
        loop {
            match socket.recv(&mut datagram) {
                Ok(length) => {
                    if let Some((number, rate)) =
                        decode_report(&datagram[..length]).filter(|(n, _)| *n > self.last_seq)
                    {
                        self.last_seq = number;
                        self.throttle.update_limit(rate);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(self.throttle.limit()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_datagram_lost(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
        || error.raw_os_error() == Some(nix::libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn mbit(rate: Option<Rate>) -> f64 {
        rate.map_or(f64::INFINITY, |rate| rate.get() * 8e-6)
    }

    #[test]
    fn malformed_reports_are_ignored() {
        assert_eq!(decode_report(&encode_report(7, 125_000)), Some((7, Rate::new(125e3).unwrap())));
        let report = encode_report(1, 1);
        for length in 0..REPORT_BYTES {
            assert_eq!(decode_report(&report[..length]), None);
        }
        assert_eq!(decode_report(&[&report[..], &[0]].concat()), None);
        let mut other = report;
        other[0] = 0;
        assert_eq!(decode_report(&other), None);
        // The highest rate: the limit stays finite.
        assert!(decode_report(&encode_report(1, u64::MAX)).is_some());
    }

    #[test]
    fn limits_follow_reports_over_real_sockets() {
        let local = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (sender, receiver) = (local(), local());
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        sender.set_nonblocking(true).unwrap();
        let (mut limit, start) =
            (SenderLimit::new(RateThrottle::new(Rate::new(125e3).unwrap())), Instant::now());
        let mut meter = Meter::new(start);
        let from = sender.local_addr().unwrap();
        let mut period = |number: u32, bytes: f64| {
            let now = start + Duration::from_millis(50) * number;
            if bytes > 0.0 {
                meter.count_bytes(from, bytes, now - Duration::from_millis(1));
            }
            meter.send_report(&receiver, now - Duration::from_nanos(1)).unwrap();
            meter.send_report(&receiver, now).unwrap();
            limit.update(&sender).unwrap()
        };
        // Section 3.2: 20 % above a rate that rises, 10 % above one that does not, and never below the minimum.
        assert_eq!(mbit(period(1, 625e3)), 120.0);
        assert!((mbit(period(2, 625e3)) - 110.0).abs() < 1e-9);
        assert!((mbit(period(3, 312.5e3)) - 55.0).abs() < 1e-9);
        assert_eq!(mbit(period(4, 0.0)), 1.0);
        assert!(mbit(period(5, 625e3)) > 100.0);
        // The flow has ended: no report is sent, and the limit stays.
        assert!(mbit(period(40, 0.0)) > 100.0);
        // A report with an old number is ignored.
        receiver.send_to(&encode_report(1, 1), from).unwrap();
        receiver.send_to(b"something else", from).unwrap();
        assert!(mbit(limit.update(&sender).unwrap()) > 100.0);
    }
}
