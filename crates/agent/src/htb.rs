//! Computes the parameters of HTB classes (hierarchical token bucket, `tc-htb(8)`): one class at the rate of a link, or one per
//! weight and one for packets without a mark.
//!
//! A simulated link sends at its rate under any load. HTB does the same if its parameters fit:
//!
//! - Kernels forward several packets of a connection as one (GSO). HTB sends such a packet as a whole, so it has to be small
//!   relative to the burst. [`max_segments`] limits it to a millisecond of the slowest link.
//! - A class catches up after its timer was late: its burst limits the number of bytes that it sends at once. The burst of a very low
//!   rate is smaller, since the kernel counts it as a time.
//! - The rates of weighted queues are proportional to the weights, and hold while all queues are busy. Each queue may borrow up
//!   to the link's rate. HTB divides borrowed bandwidth by quanta. Quanta are proportional to the weights up to a ratio of 100,
//!   and at least the size of the largest packet; with smaller quanta, all queues would borrow equal amounts.
//! - Queue limits are in bytes, not packets, so that a packet of several segments counts with its size. They are a time of the link,
//!   but hold at least some packets, since a shorter queue keeps a connection from filling the link.
//!
//! [`LinkBudget`] has the guaranteed rates.

use std::fmt;

use weir_core::model::LinkBudget;
use weir_core::units::Rate;

pub use weir_proto::{FRAME_BYTES, PAYLOAD_BYTES};

/// The maximum delay of a timer that a burst compensates, in seconds.
const MAX_TIMER_DELAY_SECS: f64 = 1e-3;

/// The length of a queue, in seconds of its link.
const QUEUE_LIMIT_SECS: f64 = 20e-3;

/// The minimum length of a queue, in full packets: the first packets of a connection, which it sends at once.
const MIN_QUEUED_FRAMES: u32 = 10;

/// The minimum length of a queue, in packets before the card splits them.
const MIN_QUEUED_PACKETS: u32 = 2;

/// The minimum burst, in bytes.
const MIN_BURST: u32 = 16 << 10;

/// The maximum burst, in seconds of its rate. `tc` passes a burst as a time, in 32 bits of 64 ns (274 s): of a longer one, only the
/// remainder arrives.
const MAX_BURST_SECS: u64 = 256;

/// The maximum number of segments of a packet: 64 KiB in total.
const MAX_SEGMENTS: u32 = 43;

/// The maximum ratio of quanta: otherwise the turn of a service would take too long. For unused bandwidth, weights below this part of the
/// highest one count as this part, so the ratios of the higher ones hold.
const MAX_QUANTUM_RATIO: f64 = 100.0;

/// The maximum number of services with separate queues: each has a mark.
pub const MAX_SERVICES: usize = weir_proto::MAX_CLASSES;

/// The mark (DSCP) of a service's packets. Services from [`MAX_SERVICES`] on share the last mark.
pub fn dscp(service: usize) -> u8 {
    (service + 1).min(MAX_SERVICES) as u8
}

/// The maximum number of segments of a packet, at which it takes at most a millisecond on the slowest link.
pub fn max_segments(min_link_rate: Rate) -> u32 {
    (min_link_rate.get() * MAX_TIMER_DELAY_SECS / f64::from(FRAME_BYTES)).clamp(1.0, f64::from(MAX_SEGMENTS))
        as u32
}

/// The parameters of an HTB class, in bits per second and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HtbClass {
    /// Guaranteed rate.
    pub rate: u64,
    /// Maximum rate, with borrowed bandwidth.
    pub ceil: u64,
    /// Maximum number of bytes that are sent at once, as far as the kernel can count it: see [`HtbClass::bursts`].
    pub burst: u32,
    /// Bytes per turn while the class borrows.
    pub quantum: u32,
    /// Maximum number of bytes in the queue.
    pub queue_limit: u32,
}

/// The burst of a class: a late timer, a minimum and the largest packet each give a lower bound.
fn burst_bytes(link: Rate, segments: u32) -> u32 {
    ((link.get() * MAX_TIMER_DELAY_SECS) as u32).max(MIN_BURST).max(segments * FRAME_BYTES)
}

impl HtbClass {
    /// The class of a whole link.
    pub fn for_link(link: Rate, segments: u32) -> HtbClass {
        let packet_bytes = segments * FRAME_BYTES;
        let rate = to_bits_per_sec(link.get());
        let min_queue_limit = (MIN_QUEUED_FRAMES * FRAME_BYTES).max(MIN_QUEUED_PACKETS * packet_bytes);
        HtbClass {
            rate,
            ceil: rate,
            burst: burst_bytes(link, segments),
            quantum: packet_bytes,
            queue_limit: ((link.get() * QUEUE_LIMIT_SECS) as u32).max(min_queue_limit),
        }
    }

    /// The classes of a link, by a budget: those of services with these weights, then that of packets without a mark, which borrows by
    /// `unclassified_weight`.
    pub fn weighted(
        link: Rate,
        segments: u32,
        budget: &LinkBudget,
        weights: &[f64],
        unclassified_weight: f64,
    ) -> Vec<HtbClass> {
        let (services, sum) = (budget.services(link).get(), weights.iter().sum::<f64>());
        let rates: Vec<f64> = weights.iter().map(|weight| services * weight / sum).collect();
        HtbClass::guaranteed(link, segments, budget, &rates, weights, unclassified_weight)
    }

    /// The classes of a link, by a budget: those of services with these guaranteed rates, in bytes per second, which borrow by weight,
    /// then that of packets without a mark, which borrows by `unclassified_weight`.
    pub fn guaranteed(
        link: Rate,
        segments: u32,
        budget: &LinkBudget,
        rates: &[f64],
        weights: &[f64],
        unclassified_weight: f64,
    ) -> Vec<HtbClass> {
        let link_class = HtbClass::for_link(budget.shaped(link), segments);
        let weights_of_all = || weights.iter().copied().chain([unclassified_weight]);
        let max_weight = weights_of_all().fold(0.0, f64::max);
        let min_weight = weights_of_all().fold(f64::INFINITY, f64::min).max(max_weight / MAX_QUANTUM_RATIO);
        let class = |rate: f64, weight: f64| HtbClass {
            rate: to_bits_per_sec(rate),
            quantum: (f64::from(link_class.quantum) * (weight / min_weight).max(1.0)) as u32,
            ..link_class
        };
        let classes = rates.iter().zip(weights).map(|(&rate, &weight)| class(rate, weight));
        classes.chain([class(budget.unclassified(link).get(), unclassified_weight)]).collect()
    }

    /// The same class with a maximum rate in bytes per second, and the queue of a link of that rate.
    pub fn with_max(self, max: f64, segments: u32) -> HtbClass {
        let limited = HtbClass::for_link(Rate::new(max).unwrap_or(Rate::ZERO), segments);
        let ceil = limited.ceil.min(self.ceil);
        let queue_limit = limited.queue_limit.min(self.queue_limit);
        HtbClass { rate: self.rate.min(ceil), ceil, queue_limit, ..self }
    }

    /// The bursts at the guaranteed and at the maximum rate, in bytes: at most 256 s of these rates, since the kernel cannot count more.
    pub fn bursts(&self) -> [u32; 2] {
        let max_burst = |rate: u64| (rate / 8).max(1) * MAX_BURST_SECS;
        [self.rate, self.ceil].map(|rate| u64::from(self.burst).min(max_burst(rate)) as u32)
    }

    /// The class of the streams between agents and the coordinator.
    pub fn control(link: Rate, segments: u32, budget: &LinkBudget) -> HtbClass {
        let link_class = HtbClass::for_link(budget.shaped(link), segments);
        HtbClass { rate: to_bits_per_sec(budget.control(link).get()), ..link_class }
    }
}

/// The parameters as `tc` expects them after `htb`.
impl fmt::Display for HtbClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (HtbClass { rate, ceil, quantum, .. }, [burst, cburst]) = (self, self.bursts());
        write!(f, "rate {rate}bit ceil {ceil}bit burst {burst} cburst {cburst} quantum {quantum}")
    }
}

/// Whole bits per second. HTB counts bytes, so the minimum is one byte.
fn to_bits_per_sec(bytes_per_sec: f64) -> u64 {
    (bytes_per_sec * 8.0).round().max(8.0) as u64
}
