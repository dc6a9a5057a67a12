//! Finds the rate of a path that keeps its queues short.
//!
//! A queue in the network delays short messages of a high priority, and no relay can reorder it. Congestion control fills such a queue:
//! CUBIC until it overflows, BBR with up to one bandwidth-delay product. The pacer compares the round-trip time with its minimum. If
//! the path has a queue, it limits the bulk connection to a little less than the path delivers, so that the queue drains; without
//! a queue it raises the limit.

use std::time::Duration;

use super::links::RoundTrip;

/// A queue below this delay is tolerated.
const MIN_QUEUE: Duration = Duration::from_micros(500);

/// The limit of a path with a queue, relative to its measured rate.
const DECREASE: f64 = 0.96;

/// The growth of the limit in each step without a queue.
const INCREASE: f64 = 1.01;

/// If the queue stays although the limit fell by this factor, others cause it: the limit ends for a while.
const MIN_SHARE: f64 = 0.85;

/// How long there is no limit after that.
const PAUSE: Duration = Duration::from_secs(10);

/// The lowest limit, in bytes per second.
const MIN_RATE: f64 = 125_000.0;

/// The pacing of one path.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// Bytes per second.
    limit: Option<f64>,
    /// The rate when the limit began.
    initial: f64,
    paused_until: Duration,
    last_acked: u64,
    last_step: Duration,
    /// The highest rate with data waiting since the last report, in bytes per second.
    max_rate: f64,
}

impl Pacer {
    /// Advances by a step. `acked_bytes`: what the path has delivered since its connection began; `is_backlogged`: data waited for it
    /// during the step. Returns the limit in bytes per second.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        acked_bytes: u64,
        is_backlogged: bool,
        round_trip: &RoundTrip,
    ) -> Option<u64> {
        let elapsed = now.saturating_sub(self.last_step).as_secs_f64();
        let rate = acked_bytes.saturating_sub(self.last_acked) as f64 / elapsed.max(1e-3);
        (self.last_acked, self.last_step) = (acked_bytes, now);
        if is_backlogged {
            self.max_rate = self.max_rate.max(rate);
            self.adapt(now, rate, round_trip);
        }
        self.limit.map(|limit| limit as u64)
    }

    fn adapt(&mut self, now: Duration, rate: f64, round_trip: &RoundTrip) {
        if now < self.paused_until || rate < MIN_RATE {
            return;
        }
        let tolerated = round_trip.min + MIN_QUEUE.max(round_trip.min / 20);
        let has_queue = round_trip.recent > tolerated;
        match self.limit {
            None if has_queue => {
                self.initial = rate;
                self.limit = Some(rate * DECREASE);
            }
            None => {}
            Some(limit) if has_queue => {
                let lower = limit.min(rate) * DECREASE;
                if lower < self.initial * MIN_SHARE {
                    self.limit = None;
                    self.paused_until = now + PAUSE;
                } else {
                    self.limit = Some(lower);
                }
            }
            Some(limit) => {
                self.limit = Some(limit * INCREASE);
                self.initial = self.initial.max(limit);
            }
        }
    }

    /// The highest rate since the last call, in bytes per second; 0 if data never waited.
    pub(crate) fn take_rate(&mut self) -> u64 {
        std::mem::take(&mut self.max_rate) as u64
    }
}
