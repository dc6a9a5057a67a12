//! Reads counters of the kernel. Counts that threads of a test keep would be too late on a busy machine.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::os::fd::AsFd;
use std::time::Instant;

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;

/// The first bytes of `struct tcp_info`, up to and including `tcpi_bytes_acked`.
type TcpInfoBytes = [u8; 128];

#[derive(Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfoBytes, GetStruct<TcpInfoBytes>);

#[derive(Clone, Copy)]
struct MaxPacing;

nix::getsockopt_impl!(MaxPacing, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, GetStruct<u64>);

/// Bytes that the peer of a connection has acknowledged.
pub fn acked_bytes(socket: &impl AsFd) -> u64 {
    let info = getsockopt(socket, TcpInfo).unwrap();
    u64::from_ne_bytes(info[120..].try_into().unwrap())
}

/// The pacing rate of a socket, in bytes of payload per second; none without a limit.
pub fn pacing_rate(socket: &impl AsFd) -> Option<u64> {
    let rate = getsockopt(socket, MaxPacing).unwrap();
    (rate != u64::MAX).then_some(rate)
}

/// Bytes that a class has sent, from the output of `tc -s class show`.
pub fn sent_by_class(printed: &str, class: &str) -> u64 {
    let begin = format!("class htb {class} ");
    let mut lines = printed.lines().skip_while(|line| !line.starts_with(&begin));
    let sent = lines.nth(1).unwrap_or_else(|| panic!("no class {class}: {printed}"));
    let bytes = sent.trim().strip_prefix("Sent ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    bytes.unwrap_or_else(|| panic!("class {class}: {sent}"))
}

/// A count, and the times before and after it was read. The reading thread may be delayed at either end.
#[derive(Debug, Clone, Copy)]
pub struct CounterReading {
    count: u64,
    before: Instant,
    after: Instant,
}

/// Bounds of the rate per second between two readings. They differ by the time that the readings took.
#[derive(Debug, Clone, Copy)]
pub struct RateBounds {
    pub min: f64,
    pub max: f64,
}

impl CounterReading {
    pub fn read(read_count: impl FnOnce() -> u64) -> CounterReading {
        let before = Instant::now();
        let count = read_count();
        CounterReading { count, before, after: Instant::now() }
    }

    /// The rate since an earlier reading.
    pub fn rate_since(&self, earlier: &CounterReading) -> RateBounds {
        let count = self.count.saturating_sub(earlier.count) as f64;
        RateBounds {
            min: count / (self.after - earlier.before).as_secs_f64(),
            max: count / (self.before - earlier.after).as_secs_f64(),
        }
    }
}

impl RateBounds {
    /// The rate as a fraction of `reference`.
    pub fn relative_to(self, reference: f64) -> RateBounds {
        RateBounds { min: self.min / reference, max: self.max / reference }
    }

    /// Whether the rate may have been below a bound.
    pub fn may_be_under(self, bound: f64) -> bool {
        self.min < bound
    }

    /// Whether the rate may have been above a bound.
    pub fn may_be_over(self, bound: f64) -> bool {
        self.max > bound
    }

    /// Whether the rate was certainly between two bounds.
    pub fn is_within(self, low: f64, high: f64) -> bool {
        self.min > low && self.max < high
    }
}
