//! Divides one link among its queues, and one queue among its flows.

use super::Queue;

/// The demand at a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueDemand {
    pub(super) queue: u32,
    /// Start and end of its classes in the list of demands.
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) unresponsive_rate: f64,
    pub(super) total_rate: f64,
    /// Whether the queue gets less than its demand.
    pub(super) is_limited: bool,
}

/// The share of a queue of weight 1. Clears `is_limited` of the queues that demand at most their share.
pub(super) fn unit_share(capacity: f64, demands: &mut [QueueDemand], queues: &[Queue]) -> f64 {
    loop {
        let (mut left, mut weights) = (capacity, 0.0);
        for demand in demands.iter() {
            if demand.is_limited {
                weights += queues[demand.queue as usize].weight;
            } else {
                left -= demand.total_rate;
            }
        }
        let share = left.max(0.0) / weights;
        let mut all = true;
        for demand in demands.iter_mut().filter(|demand| demand.is_limited) {
            if demand.total_rate <= share * queues[demand.queue as usize].weight {
                demand.is_limited = false;
                all = false;
            }
        }
        if all {
            return share;
        }
    }
}

/// The level at which classes share `queue_rate`, which their demands exceed. Each step fixes the classes with demands up to the
/// level so far, so the level only rises.
pub(super) fn fill_level(queue_rate: f64, elastic: &[(f64, f64)]) -> f64 {
    let mut level = 0.0;
    loop {
        let (mut left, mut flows) = (queue_rate, 0.0);
        for &(ask, n) in elastic {
            if ask <= level {
                left -= ask * n;
            } else {
                flows += n;
            }
        }
        let higher = left / flows;
        if flows == 0.0 || higher <= level {
            return level;
        }
        level = higher;
    }
}
