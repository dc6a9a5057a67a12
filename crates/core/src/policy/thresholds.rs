//! Queues by bytes with exponentially growing thresholds, defined by Aalo and reused by Saath.

use super::{Params, ParamsError};
use crate::units::Bytes;

/// Upper thresholds of the queues, Q_hi, in bytes. The last queue has no upper threshold.
#[derive(Debug, Clone)]
pub(super) struct Thresholds {
    first_threshold: f64,
    growth: f64,
    queue_count: usize,
}

impl Thresholds {
    /// Reads the parameters S, E and K. Defaults: 10 MB, 10, 10 (Saath, section 6).
    pub(super) fn from_params(params: &mut Params) -> Result<Thresholds, ParamsError> {
        let ten_mb = Bytes::from_valid(10e6);
        let start =
            params.take_value("start", ten_mb, |b: &Bytes| b.get() > 0.0, "a size above 0 such as 10MB")?;
        Ok(Thresholds {
            first_threshold: start.get(),
            growth: params.take_value(
                "growth",
                10.0,
                |g: &f64| g.is_finite() && *g > 1.0,
                "a number above 1",
            )?,
            queue_count: params.take_value(
                "queues",
                10,
                |k: &usize| (1..=64).contains(k),
                "a whole number from 1 to 64",
            )?,
        })
    }

    /// The upper threshold of a queue in bytes. Queues past the last one continue the series.
    pub(super) fn upper_threshold(&self, queue: usize) -> f64 {
        self.first_threshold * self.growth.powi(queue as i32)
    }

    /// Number of queues.
    pub(super) fn queue_count(&self) -> usize {
        self.queue_count
    }

    /// The queue of a coflow that has sent `bytes`. A coflow leaves a queue when it reaches the threshold.
    pub(super) fn queue_by_sent_bytes(&self, bytes: f64) -> usize {
        self.find_queue(|upper| bytes >= upper * (1.0 - 1e-12))
    }

    /// The queue of a coflow with `bytes` remaining. A coflow enters a queue when its remaining bytes fall to the
    /// threshold.
    pub(super) fn queue_by_remaining_bytes(&self, bytes: f64) -> usize {
        self.find_queue(|upper| bytes > upper * (1.0 + 1e-12))
    }

    fn find_queue(&self, is_past: impl Fn(f64) -> bool) -> usize {
        let mut upper = self.first_threshold;
        for queue in 0..self.queue_count - 1 {
            if !is_past(upper) {
                return queue;
            }
            upper *= self.growth;
        }
        self.queue_count - 1
    }
}
