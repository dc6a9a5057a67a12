//! Queues by bytes with exponentially growing thresholds, defined by Aalo and reused by Saath.

use super::{Params, ParamsError};
use crate::units::Bytes;

/// Upper thresholds of the queues, Q_hi, in bytes. The last queue has no upper threshold.
#[derive(Debug, Clone)]
pub(super) struct Thresholds {
    start: f64,
    growth: f64,
    queues: usize,
}

impl Thresholds {
    /// Reads the parameters S, E and K. Defaults: 10 MB, 10, 10 (Saath, section 6).
    pub(super) fn read(params: &mut Params) -> Result<Thresholds, ParamsError> {
        let ten_mb = Bytes::of(10e6);
        let start =
            params.take_with("start", ten_mb, |b: &Bytes| b.get() > 0.0, "a size above 0 such as 10MB")?;
        Ok(Thresholds {
            start: start.get(),
            growth: params.take_with(
                "growth",
                10.0,
                |g: &f64| g.is_finite() && *g > 1.0,
                "a number above 1",
            )?,
            queues: params.take_with(
                "queues",
                10,
                |k: &usize| (1..=64).contains(k),
                "a whole number from 1 to 64",
            )?,
        })
    }

    /// The upper threshold of a queue in bytes. Queues past the last one continue the series.
    pub(super) fn upper(&self, queue: usize) -> f64 {
        self.start * self.growth.powi(queue as i32)
    }

    /// Number of queues.
    pub(super) fn queues(&self) -> usize {
        self.queues
    }

    /// The queue of a coflow that has sent `bytes`. A coflow leaves a queue when it reaches the threshold.
    pub(super) fn by_sent(&self, bytes: f64) -> usize {
        self.position(|upper| bytes >= upper * (1.0 - 1e-12))
    }

    /// The queue of a coflow with `bytes` remaining. A coflow enters a queue when its remaining bytes fall to the
    /// threshold.
    pub(super) fn by_left(&self, bytes: f64) -> usize {
        self.position(|upper| bytes > upper * (1.0 + 1e-12))
    }

    fn position(&self, past: impl Fn(f64) -> bool) -> usize {
        let mut upper = self.start;
        for queue in 0..self.queues - 1 {
            if !past(upper) {
                return queue;
            }
            upper *= self.growth;
        }
        self.queues - 1
    }
}
