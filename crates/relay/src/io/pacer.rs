//! Finds the rate of a path that keeps its queues short.
//!
//! A queue in the network delays short messages of a high priority, and no relay can reorder it. Congestion control fills such a queue:
//! CUBIC until it overflows, BBR with up to one bandwidth-delay product. The pacer compares round-trip times with their minimum: those of
//! heartbeats, which wait in the network only behind other data, and those of the bulk connection between the kernels, which do not
//! include the time that busy relays need. If both say that the path has a queue, it limits the bulk connection to a little less than the path delivers, so that the queue drains; without
//! a queue it raises the limit.

use std::time::Duration;

use super::links::RoundTrip;
use super::socket::ConnectionInfo;

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

/// The highest rate that is limited, in bytes per second. The kernel paces with a timer for each 64 KiB; at higher rates its timers cost
/// more than all else that a relay does, and a megabyte in a queue takes 2 ms at most.
const MAX_RATE: f64 = 500e6;

/// The pacing of one path.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// Bytes per second.
    limit: Option<f64>,
    /// The rate when the limit began.
    initial: f64,
    paused_until: Duration,
    last_acked: u64,
    was_backlogged: bool,
    last_step: Duration,
    /// The highest rate with data waiting since the last report, in bytes per second.
    max_rate: f64,
    /// The smoothed rate with data waiting; 0 if data never waited.
    smoothed_rate: f64,
}

impl Pacer {
    /// Advances by a step. `info`: the bulk connection; `is_backlogged`: data waits for it now. Returns the limit in bytes per second.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        info: &ConnectionInfo,
        is_backlogged: bool,
        round_trip: &RoundTrip,
    ) -> Option<u64> {
        let elapsed = now.saturating_sub(self.last_step).as_secs_f64();
        let rate = info.acked_bytes.saturating_sub(self.last_acked) as f64 / elapsed.max(1e-3);
        (self.last_acked, self.last_step) = (info.acked_bytes, now);
        let was_backlogged = std::mem::replace(&mut self.was_backlogged, is_backlogged);
        if is_backlogged && was_backlogged {
            self.max_rate = self.max_rate.max(rate);
            let former = if self.smoothed_rate > 0.0 { self.smoothed_rate } else { rate };
            self.smoothed_rate = (former * 7.0 + rate) / 8.0;
            let has_queue = has_queue(round_trip.min, round_trip.recent)
                && has_queue(info.min_round_trip, info.round_trip);
            self.adapt(now, rate, has_queue);
        }
        self.limit.map(|limit| limit as u64)
    }

    fn adapt(&mut self, now: Duration, rate: f64, has_queue: bool) {
        if rate > MAX_RATE {
            self.limit = None;
        }
        if now < self.paused_until || !(MIN_RATE..=MAX_RATE).contains(&rate) {
            return;
        }
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

    /// The smoothed rate, in bytes per second; 0 if data never waited.
    pub(crate) fn smoothed_rate(&self) -> u64 {
        self.smoothed_rate as u64
    }

    /// The highest rate since the last call, in bytes per second; 0 if data never waited.
    pub(crate) fn take_rate(&mut self) -> u64 {
        std::mem::take(&mut self.max_rate) as u64
    }
}

fn has_queue(min: Duration, round_trip: Duration) -> bool {
    round_trip > min + MIN_QUEUE.max(min / 20)
}
