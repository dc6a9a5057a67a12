//! The numbers of a link: one HTB class at what it carries, or one for each service.
//!
//! A simulated link carries its rate whatever comes; HTB (hierarchical token bucket) does so if its numbers fit:
//!
//! - Kernels hand on several packets of a connection as one (GSO). Such a one leaves a class whole, so it has to be small against
//!   what a class may send at once. [`segments`] keeps it to a millisecond of the slowest link.
//! - A class sends what it saved up when its timer was late: its burst is what that may be.
//! - Weighted queues have rates in proportion, which hold while all are busy, and may borrow up to the link's rate. What they
//!   borrow goes by quanta: these are in proportion too, and none below the largest packet, or all would come out equal.
//! - Queues hold bytes, not packets, so that packets of several segments count as what they are.

use std::fmt;

use weir_core::units::Rate;

pub use weir_proto::{FRAME, PAYLOAD};

/// What a late timer may cost, in seconds.
const LATE: f64 = 1e-3;

/// What a queue holds, in seconds of its link.
const BUFFER: f64 = 20e-3;

/// The least burst, in bytes.
const MIN_BURST: u32 = 16 << 10;

/// The most segments of one packet: 64 KiB in all.
const MAX_SEGMENTS: u32 = 43;

/// Left-over bandwidth is split by weight up to this ratio: a service's turn would take too long otherwise.
const MAX_TURN: f64 = 100.0;

/// What packets without a mark have for sure, as a part of the link; they are none of a scenario's.
const REST: f64 = 1e-3;

/// The most services with queues of their own: each has a mark.
pub const MAX_SERVICES: usize = weir_proto::MAX_CLASSES;

/// The mark of a service's packets. Those beyond [`MAX_SERVICES`] share the last.
pub fn dscp(service: usize) -> u8 {
    (service + 1).min(MAX_SERVICES) as u8
}

/// The most segments that one packet has, so that it takes at most a millisecond of a link at `slowest`.
pub fn segments(slowest: Rate) -> u32 {
    (slowest.get() * LATE / f64::from(FRAME)).clamp(1.0, f64::from(MAX_SEGMENTS)) as u32
}

/// A class of HTB, in bits per second and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// What it has for sure.
    pub rate: u64,
    /// What it may have.
    pub ceil: u64,
    /// What it may send at once.
    pub burst: u32,
    /// Its turn when it borrows.
    pub quantum: u32,
    /// What waits at most.
    pub buffer: u32,
}

/// What a class may send at once.
fn burst(link: Rate, segments: u32) -> u32 {
    ((link.get() * LATE) as u32).max(MIN_BURST).max(segments * FRAME)
}

impl Class {
    /// A link as a whole.
    pub fn whole(link: Rate, segments: u32) -> Class {
        let packet = segments * FRAME;
        let rate = bits(link.get());
        Class {
            rate,
            ceil: rate,
            burst: burst(link, segments),
            quantum: packet,
            buffer: ((link.get() * BUFFER) as u32).max(16 * packet),
        }
    }

    /// The classes of services with these weights, then that of the packets without a mark.
    pub fn weighted(link: Rate, segments: u32, weights: &[f64]) -> Vec<Class> {
        let whole = Class::whole(link, segments);
        let sum: f64 = weights.iter().sum();
        let least = weights.iter().copied().fold(f64::INFINITY, f64::min);
        let class = |part: f64, turn: f64| Class {
            rate: bits(link.get() * part),
            quantum: (f64::from(whole.quantum) * turn) as u32,
            ..whole
        };
        let services = weights.iter().map(|weight| class(weight / sum, (weight / least).min(MAX_TURN)));
        services.chain([class(REST, 1.0)]).collect()
    }
}

/// As `tc` is told, after `htb`.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Class { rate, ceil, burst, quantum, .. } = self;
        write!(f, "rate {rate}bit ceil {ceil}bit burst {burst} cburst {burst} quantum {quantum}")
    }
}

/// Whole bits per second; HTB counts bytes, so at least one of those.
fn bits(bytes: f64) -> u64 {
    (bytes * 8.0).round().max(8.0) as u64
}
