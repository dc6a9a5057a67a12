//! Reads counters of the kernel. Counters in threads of a test are late on a busy machine, by more than a test can tolerate.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::os::fd::AsFd;
use std::time::Instant;

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;

/// The first bytes of `struct tcp_info`, up to and including `tcpi_bytes_acked`.
type Info = [u8; 128];

#[derive(Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Info, GetStruct<Info>);

#[derive(Clone, Copy)]
struct MaxPacing;

nix::getsockopt_impl!(MaxPacing, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, GetStruct<u64>);

/// Bytes that the peer of a connection has acknowledged.
pub fn acked(socket: &impl AsFd) -> u64 {
    let info = getsockopt(socket, TcpInfo).unwrap();
    u64::from_ne_bytes(info[120..].try_into().unwrap())
}

/// The pacing rate of a socket, in bytes of payload per second; none without a limit.
pub fn pace(socket: &impl AsFd) -> Option<u64> {
    let pace = getsockopt(socket, MaxPacing).unwrap();
    (pace != u64::MAX).then_some(pace)
}

/// Bytes that a class has sent, from the output of `tc -s class show`.
pub fn sent_by(printed: &str, class: &str) -> u64 {
    let begin = format!("class htb {class} ");
    let mut lines = printed.lines().skip_while(|line| !line.starts_with(&begin));
    let sent = lines.nth(1).unwrap_or_else(|| panic!("no class {class}: {printed}"));
    let bytes = sent.trim().strip_prefix("Sent ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    bytes.unwrap_or_else(|| panic!("class {class}: {sent}"))
}

/// A count, and the times before and after it was read. The reading thread may be delayed at either end.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    count: u64,
    before: Instant,
    after: Instant,
}

/// Bounds of the rate per second between two readings. They differ by the time that the readings took.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    pub least: f64,
    pub most: f64,
}

impl Reading {
    pub fn of(count: impl FnOnce() -> u64) -> Reading {
        let before = Instant::now();
        let count = count();
        Reading { count, before, after: Instant::now() }
    }

    /// The rate since an earlier reading.
    pub fn since(&self, earlier: &Reading) -> Speed {
        let count = self.count.saturating_sub(earlier.count) as f64;
        Speed {
            least: count / (self.after - earlier.before).as_secs_f64(),
            most: count / (self.before - earlier.after).as_secs_f64(),
        }
    }
}

impl Speed {
    /// The rate as a fraction of `whole`.
    pub fn of(self, whole: f64) -> Speed {
        Speed { least: self.least / whole, most: self.most / whole }
    }

    /// Whether the rate may have been below a bound.
    pub fn may_be_under(self, bound: f64) -> bool {
        self.least < bound
    }

    /// Whether the rate may have been above a bound.
    pub fn may_be_over(self, bound: f64) -> bool {
        self.most > bound
    }

    /// Whether the rate was certainly between two bounds.
    pub fn is_within(self, low: f64, high: f64) -> bool {
        self.least > low && self.most < high
    }
}
