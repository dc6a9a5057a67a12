//! A step of a job that computes and then transfers bytes.

use crate::units::{Bytes, Rate, Time};

/// A step of a job, the same on each of its hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Computing time before the transfer starts.
    pub compute: Time,
    /// Computing time in parallel with the transfer; the stage lasts until both have ended.
    pub overlapped_compute: Time,
    /// Bytes that each host sends to the others in total, and receives from them.
    pub bytes: Bytes,
    /// The maximum time to wait for the transfer, if any.
    pub max_transfer_time: Option<Time>,
}

impl Stage {
    /// The duration of the stage, in seconds, if each host sends and receives at `rate`.
    pub fn duration_alone(&self, rate: Rate) -> f64 {
        let patience = self.max_transfer_time.map_or(f64::INFINITY, Time::get);
        let moving = if self.bytes == Bytes::ZERO { 0.0 } else { self.bytes.get() / rate.get() };
        self.compute.get() + self.overlapped_compute.get().max(moving.min(patience))
    }
}
