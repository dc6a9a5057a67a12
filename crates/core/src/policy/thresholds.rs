//! Queues by bytes with exponentially growing thresholds, as Aalo has them and Saath takes over.

use super::{Params, ParamsError};
use crate::units::Bytes;

/// Thresholds of the queues, Q_hi, in bytes; the last queue has none.
#[derive(Debug, Clone)]
pub(super) struct Thresholds {
    start: f64,
    growth: f64,
    queues: usize,
}

impl Thresholds {
    /// Reads S, E and K. Defaults: 10 MB, 10, 10 (section 6).
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

    /// The upper threshold of a queue, also of those past the last.
    pub(super) fn upper(&self, queue: usize) -> f64 {
        self.start * self.growth.powi(queue as i32)
    }

    /// How many queues there are.
    pub(super) fn queues(&self) -> usize {
        self.queues
    }

    /// The queue of a coflow that has sent `bytes`: it leaves a queue when it reaches the threshold.
    pub(super) fn by_sent(&self, bytes: f64) -> usize {
        self.position(|upper| bytes >= upper * (1.0 - 1e-12))
    }

    /// The queue of a coflow that has `bytes` left: it enters a queue when it falls to the threshold.
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
