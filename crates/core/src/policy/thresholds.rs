//! Queues by bytes with exponentially growing thresholds, defined by Aalo and reused by Saath.

use super::interface::MIN_WAKEUP_SECONDS;
use super::{Params, ParamsError};
use crate::model::{TotalsKnown, View};
use crate::rounding;
use crate::units::Bytes;

/// Queues by bytes: queue k ends at the threshold S E^k, and the last of K queues has no upper threshold.
///
/// Source: Chowdhury and Stoica, "Efficient Coflow Scheduling Without Prior Knowledge" (Aalo), SIGCOMM '15, section 4.
#[derive(Debug, Clone)]
pub struct Thresholds {
    first_threshold: f64,
    growth: f64,
    queue_count: usize,
    /// By slot: the rates of coflows, in memory that is used again.
    coflow_rates: Vec<f64>,
}

impl Thresholds {
    /// Creates `queues` queues. `first` is the upper threshold of the first queue (S), and each later threshold is `growth` (E) times
    /// the one before.
    ///
    /// # Panics
    /// If `first` is 0, `growth` is not a number above 1, or `queues` is 0.
    pub fn new(first: Bytes, growth: f64, queues: usize) -> Thresholds {
        assert!(first.get() > 0.0 && growth > 1.0 && growth.is_finite() && queues > 0, "invalid thresholds");
        Thresholds { first_threshold: first.get(), growth, queue_count: queues, coflow_rates: Vec::new() }
    }

    /// Reads the parameters `start` (S), `growth` (E) and `queues` (K). Defaults: 10 MB, 10, 10 (Saath, section 6).
    ///
    /// # Errors
    /// If a value is malformed or out of range.
    pub fn from_params(params: &mut Params) -> Result<Thresholds, ParamsError> {
        let ten_mb = Bytes::from_valid(10e6);
        let start =
            params.take_value("start", ten_mb, |b: &Bytes| b.get() > 0.0, "a size above 0 such as 10MB")?;
        let is_growth = |growth: &f64| growth.is_finite() && *growth > 1.0;
        let growth = params.take_value("growth", 10.0, is_growth, "a number above 1")?;
        let is_count = |count: &usize| (1..=64).contains(count);
        let queues = params.take_value("queues", 10, is_count, "a whole number from 1 to 64")?;
        Ok(Thresholds::new(start, growth, queues))
    }

    /// The upper threshold of a queue in bytes. Queues past the last one continue the series.
    pub fn upper_threshold(&self, queue: usize) -> f64 {
        self.first_threshold * self.growth.powi(queue as i32)
    }

    /// Number of queues.
    pub fn queue_count(&self) -> usize {
        self.queue_count
    }

    /// The queue of a coflow that has sent `bytes`. A coflow leaves a queue when it reaches the threshold.
    pub fn queue_by_sent_bytes(&self, bytes: f64) -> usize {
        self.find_queue(|upper| bytes >= upper * (1.0 - rounding::PROGRESS))
    }

    /// The queue of a coflow with `bytes` remaining. A coflow enters a queue when its remaining bytes fall to the
    /// threshold.
    pub fn queue_by_remaining_bytes(&self, bytes: f64) -> usize {
        self.find_queue(|upper| bytes > upper * (1.0 + rounding::PROGRESS))
    }

    /// The time until a coflow in `queue` that has sent `sent` bytes reaches the threshold of the queue at `rate` bytes per second, in
    /// seconds; infinite in the last queue, and without a rate.
    pub fn seconds_to_next_queue(&self, queue: usize, sent: f64, rate: f64) -> f64 {
        if queue + 1 >= self.queue_count || rate <= 0.0 {
            return f64::INFINITY;
        }
        (self.upper_threshold(queue) - sent).max(0.0) / rate
    }

    /// The earliest time at which the total bytes sent by a coflow reach the threshold of its queue at the applied rates, in seconds;
    /// infinite if no coflow does. For [`super::CoflowOrder::next_wakeup`] and [`super::Policy::next_wakeup`]. The cost is that of
    /// [`View::coflow_rates`], and of [`View::total_sent_bytes`] for each coflow with a rate.
    pub fn next_queue_change<K: TotalsKnown>(&mut self, view: &View<'_, K>) -> f64 {
        let mut rates = std::mem::take(&mut self.coflow_rates);
        view.coflow_rates(&mut rates);
        let served = view.active_coflows().iter().filter(|&&slot| rates[slot as usize] > 0.0);
        let seconds = served.map(|&slot| {
            let sent = view.total_sent_bytes(slot);
            self.seconds_to_next_queue(self.queue_by_sent_bytes(sent), sent, rates[slot as usize])
        });
        let next = seconds.fold(f64::INFINITY, f64::min);
        self.coflow_rates = rates;
        // By rounding, a coflow can be at its threshold and still in the queue.
        view.now() + next.max(MIN_WAKEUP_SECONDS)
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
