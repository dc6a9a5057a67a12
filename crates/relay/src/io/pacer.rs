//! Finds the rate of a path that keeps its queues short.
//!
//! A queue in the network delays short messages of a high priority, and no relay can reorder it. Congestion control fills such a queue:
//! CUBIC until it overflows, BBR with up to one bandwidth-delay product. The pacer compares the bulk connections' round-trip time
//! between the kernels, less the queue of the reverse path, with its minimum: the time that busy relays need hardly counts. If the path
//! has a queue, it limits the bulk connections to a little less than the path delivers, so that the queue drains; without a queue it
//! raises the limit.
//!
//! The bandwidth of a path may change. If the path has a queue and delivers clearly less than the limit, the bandwidth has fallen, and
//! the limit follows. If the limit exceeds the last known bandwidth and no queue appears, the bandwidth has risen, and the limit grows
//! faster with each step.

use std::time::Duration;

use super::socket::ConnectionInfo;

/// A queue below this delay is tolerated.
const MIN_QUEUE: Duration = Duration::from_micros(500);

/// The bytes that the sender passes to the network at once. They wait for each other, which is no queue that a lower rate would drain.
const BURST_BYTES: f64 = (24 << 10) as f64;

/// The limit of a path with a queue, relative to its measured rate.
const DECREASE: f64 = 0.96;

/// The growth of the limit in each step without a queue, from [`DECREASE`] of the last known bandwidth on.
const INCREASE: f64 = 0.01;

/// From this multiple of the last known bandwidth on, the limit grows by so little that a queue that begins stays below the tolerated
/// delay until it is noticed: within [`NOTICE`], and within these limits.
const NEAR: f64 = 0.985;
const NOTICE: Duration = Duration::from_millis(200);
const MIN_PROBE: f64 = 0.004;
const MAX_PROBE: f64 = 0.02;

/// If no queue appears at this multiple of the last known bandwidth, the bandwidth has risen: the growth doubles with each step.
const RISEN: f64 = 1.02;

/// The maximum growth in a step.
const MAX_INCREASE: f64 = 0.25;

/// The maximum limit, relative to the rate of the path.
const MAX_EXCESS: f64 = 1.5;

/// A limit of less than this, relative to the rate of the path, is what the path carries. A higher one limits nothing.
const MIN_FREE: f64 = 1.2;

/// If the path delivers less than this part of the limit while it has a queue, for this number of steps, its bandwidth has fallen. A queue
/// of the reverse path that grows delays acknowledgements, so that the path seems slow for a moment.
const FALLEN: f64 = 0.9;
const FALLEN_STEPS: u32 = 3;

/// The time between two steps, at least.
const MIN_STEP: Duration = Duration::from_millis(50);

/// The number of steps whose mean rate counts.
const RATE_STEPS: usize = 4;

/// The lowest limit, relative to the last known bandwidth. A queue that was filled before the limit drains at the rest of the bandwidth;
/// a long one needs more of it to drain within [`DRAIN`].
const MIN_SHARE: f64 = 0.85;
const MIN_LONG_SHARE: f64 = 0.5;
const DRAIN: Duration = Duration::from_secs(1);

/// If a queue stays for this long, others cause it: the limit ends for a while.
const MAX_DRAIN: Duration = Duration::from_secs(3);

/// How long there is no limit after that.
const PAUSE: Duration = Duration::from_secs(10);

/// The lowest rate that is limited, in bytes per second.
const MIN_RATE: f64 = 125_000.0;

/// The highest rate that is limited, in bytes per second. The kernel paces with a timer for each 64 KiB; at higher rates its timers cost
/// more than all else that a relay does, and a megabyte in a queue takes 2 ms at most.
const MAX_RATE: f64 = 500e6;

/// The pacing of one path.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// Bytes per second.
    limit: Option<f64>,
    /// The rate at which the path last had a queue: its bandwidth.
    bandwidth: f64,
    /// The acknowledged bytes and the seconds of the last steps, while data has waited without interruption: acknowledgements arrive in
    /// bursts, so one step may show much less or more than the path delivers.
    recent: [(f64, f64); RATE_STEPS],
    /// The growth of the limit in the last step.
    growth: f64,
    /// The number of steps in which the path has delivered clearly less than the limit.
    fallen_steps: u32,
    /// Since when the path has had a queue without interruption, with a limit.
    queue_start: Option<Duration>,
    paused_until: Duration,
    /// Whether the path had a queue in the last step with waiting data.
    has_queue: bool,
    last_acked: u64,
    was_backlogged: bool,
    last_step: Duration,
    /// The acknowledged bytes and the seconds since the last report while data has waited.
    reported: (f64, f64),
    /// How long data has waited without interruption, in seconds.
    waited: f64,
    /// The smoothed rate with data waiting; 0 if data never waited.
    smoothed_rate: f64,
}

impl Pacer {
    /// Advances by a step. `info`: the bulk connections; `reverse_queue`: the delay in the queue of the reverse path; `is_backlogged`: data
    /// waits for all of them now. Returns the limit in bytes per second.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        info: &ConnectionInfo,
        reverse_queue: Duration,
        is_backlogged: bool,
    ) -> Option<u64> {
        if now < self.last_step + MIN_STEP {
            return self.limit.map(|limit| limit as u64);
        }
        let seconds = (now - self.last_step).as_secs_f64();
        let bytes = info.acked_bytes.saturating_sub(self.last_acked) as f64;
        (self.last_acked, self.last_step) = (info.acked_bytes, now);
        let was_backlogged = std::mem::replace(&mut self.was_backlogged, is_backlogged);
        if is_backlogged && was_backlogged {
            let rate = bytes / seconds;
            self.waited += seconds;
            // Acknowledgements of the first bytes arrive after a round-trip time. After that, a path without them carries nothing.
            if bytes > 0.0 || self.waited > info.round_trip.as_secs_f64() {
                self.reported = (self.reported.0 + bytes, self.reported.1 + seconds);
            }
            let former = if self.smoothed_rate > 0.0 { self.smoothed_rate } else { rate };
            self.smoothed_rate = (former * 7.0 + rate) / 8.0;
            self.recent.rotate_right(1);
            self.recent[0] = (bytes, seconds);
            let sum = |part: fn(&(f64, f64)) -> f64| self.recent.iter().map(part).sum::<f64>();
            let rate = sum(|step| step.0) / sum(|step| step.1);
            self.adapt(now, rate, &Queue::new(info, reverse_queue, rate));
        } else {
            (self.recent, self.waited) = Default::default();
            self.forget_queue();
        }
        self.limit.map(|limit| limit as u64)
    }

    fn adapt(&mut self, now: Duration, rate: f64, queue: &Queue) {
        self.has_queue = queue.is_long();
        if !(MIN_RATE..=MAX_RATE).contains(&rate) {
            self.limit = None;
            self.forget_queue();
            return;
        }
        if now < self.paused_until {
            return;
        }
        self.limit = match self.limit {
            None if queue.is_long() => {
                self.bandwidth = rate;
                self.lower(now, rate, rate, queue)
            }
            None => None,
            Some(limit) if queue.is_long() => self.lower(now, limit, rate, queue),
            Some(limit) => {
                let relative = limit / self.bandwidth;
                self.growth = if relative > RISEN {
                    (self.growth * 2.0).clamp(INCREASE, MAX_INCREASE)
                } else if relative > NEAR {
                    (queue.tolerated.as_secs_f64() / NOTICE.as_secs_f64()).clamp(MIN_PROBE, MAX_PROBE)
                } else {
                    INCREASE
                };
                self.forget_queue();
                let higher = (limit * (1.0 + self.growth)).max(self.bandwidth * DECREASE);
                // A higher limit would only let a queue grow faster when one begins.
                Some(higher.min(rate * MAX_EXCESS))
            }
        };
    }

    fn forget_queue(&mut self) {
        (self.queue_start, self.fallen_steps) = (None, 0);
    }

    /// The next limit while the path has a queue.
    fn lower(&mut self, now: Duration, limit: f64, rate: f64, queue: &Queue) -> Option<f64> {
        self.growth = INCREASE;
        self.fallen_steps = if rate < limit * FALLEN { self.fallen_steps + 1 } else { 0 };
        if self.fallen_steps >= FALLEN_STEPS || (limit > self.bandwidth && self.fallen_steps == 0) {
            self.bandwidth = rate;
        }
        if now > *self.queue_start.get_or_insert(now) + MAX_DRAIN {
            self.queue_start = None;
            self.paused_until = now + PAUSE;
            return None;
        }
        let share = (1.0 - queue.delay.as_secs_f64() / DRAIN.as_secs_f64()).clamp(MIN_LONG_SHARE, MIN_SHARE);
        Some((limit.min(rate) * DECREASE).max(self.bandwidth * share))
    }

    /// Whether the path carries as much as it can: it has a queue, or a limit that prevents one.
    pub(crate) fn is_full(&self) -> bool {
        self.has_queue || self.limit.is_some_and(|limit| limit < self.smoothed_rate * MIN_FREE)
    }

    /// The smoothed rate, in bytes per second; 0 if data never waited.
    pub(crate) fn smoothed_rate(&self) -> u64 {
        self.smoothed_rate as u64
    }

    /// The mean rate since the last call while data waited, in bytes per second: at least 1, or 0 if data never waited. The highest rate of
    /// a step would exceed the bandwidth: acknowledgements arrive in bursts, and relays of one region share the path.
    pub(crate) fn take_rate(&mut self) -> u64 {
        let (bytes, seconds) = std::mem::take(&mut self.reported);
        if seconds > 0.0 { (bytes / seconds).max(1.0) as u64 } else { 0 }
    }
}

/// The part of a round-trip time in the queue of this direction.
struct Queue {
    delay: Duration,
    tolerated: Duration,
}

impl Queue {
    /// On a path with this rate.
    fn new(info: &ConnectionInfo, reverse: Duration, rate: f64) -> Queue {
        let min = info.min_round_trip;
        let burst = Duration::try_from_secs_f64(BURST_BYTES / rate).unwrap_or(Duration::MAX);
        // The reverse queue is measured less often than the round-trip time.
        let tolerated = MIN_QUEUE.max(min / 4).max(burst).max(reverse / 2);
        Queue { delay: info.round_trip.saturating_sub(min + reverse), tolerated }
    }

    fn is_long(&self) -> bool {
        self.delay > self.tolerated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);
    const ROUND_TRIP: Duration = Duration::from_millis(50);
    const MBIT: f64 = 125_000.0;

    /// A path with a queue, which a sender without limit keeps full.
    struct Path {
        pacer: Pacer,
        now: Duration,
        queued_bytes: f64,
        delivered_bytes: f64,
    }

    impl Path {
        fn new() -> Path {
            Path { pacer: Pacer::default(), now: Duration::ZERO, queued_bytes: 0.0, delivered_bytes: 0.0 }
        }

        /// Sends for some steps at the limit. Returns the part of the bandwidth that was used, and the mean delay of the queue in seconds.
        fn send(&mut self, bandwidth: f64, steps: u32) -> (f64, f64) {
            let (before, mut total_delay) = (self.delivered_bytes, 0.0);
            for _ in 0..steps {
                let seconds = STEP.as_secs_f64();
                let sent = self.pacer.limit.unwrap_or(f64::INFINITY) * seconds;
                let available = self.queued_bytes + sent.min(2.0 * bandwidth * seconds);
                let delivered = available.min(bandwidth * seconds);
                // The queue holds 100 ms.
                self.queued_bytes = (available - delivered).min(bandwidth * 0.1);
                self.delivered_bytes += delivered;
                self.now += STEP;
                let delay = self.queued_bytes / bandwidth;
                total_delay += delay;
                let round_trip = ROUND_TRIP + Duration::from_secs_f64(delay);
                let info = ConnectionInfo {
                    acked_bytes: self.delivered_bytes as u64,
                    min_round_trip: ROUND_TRIP,
                    round_trip,
                    ..ConnectionInfo::default()
                };
                self.pacer.step(self.now, &info, Duration::ZERO, true);
            }
            let used = (self.delivered_bytes - before) / (bandwidth * STEP.as_secs_f64() * f64::from(steps));
            (used, total_delay / f64::from(steps))
        }
    }

    /// The accepted mean delay in seconds, for a bandwidth in Mbit/s.
    fn max_delay(bandwidth: f64) -> f64 {
        0.01 + BURST_BYTES / (bandwidth * MBIT)
    }

    #[test]
    fn limit_uses_a_constant_bandwidth_with_a_short_queue() {
        let mut path = Path::new();
        path.send(20.0 * MBIT, 50);
        let (used, delay) = path.send(20.0 * MBIT, 300);
        assert!(used > 0.95 && delay < max_delay(20.0), "{used} {delay}");
    }

    #[test]
    fn limit_follows_a_bandwidth_that_falls_and_rises() {
        let mut path = Path::new();
        path.send(20.0 * MBIT, 50);
        for bandwidth in [5.0, 15.0, 10.0, 12.0, 40.0, 4.0] {
            let (used, _) = path.send(bandwidth * MBIT, 30);
            assert!(used > 0.5, "{used} of {bandwidth} Mbit/s in the first 3 s");
            let (used, delay) = path.send(bandwidth * MBIT, 70);
            assert!(used > 0.9 && delay < max_delay(bandwidth), "{used} of {bandwidth} Mbit/s, {delay} s");
        }
    }

    #[test]
    fn queue_of_the_reverse_path_does_not_lower_the_limit() {
        let mut pacer = Pacer::default();
        let mut acked = 0.0;
        for step in 1..=100 {
            acked += pacer.limit.unwrap_or(20.0 * MBIT) * STEP.as_secs_f64();
            let reverse = Duration::from_millis(100);
            let info = ConnectionInfo {
                acked_bytes: acked as u64,
                min_round_trip: ROUND_TRIP,
                round_trip: ROUND_TRIP + reverse,
                ..ConnectionInfo::default()
            };
            assert_eq!(pacer.step(STEP * step, &info, reverse, true), None);
        }
    }

    #[test]
    fn reported_rate_is_the_mean_while_data_waits() {
        let mut pacer = Pacer::default();
        let mut acked_bytes = 0;
        for step in 1..=40 {
            // Acknowledgements arrive in bursts, and no data waits in the second half.
            acked_bytes += if step % 2 == 0 { 200_000 } else { 0 };
            let info = ConnectionInfo { acked_bytes, ..ConnectionInfo::default() };
            pacer.step(STEP * step, &info, Duration::ZERO, step <= 21);
        }
        let rate = 100_000.0 / STEP.as_secs_f64();
        assert!((pacer.take_rate() as f64 / rate - 1.0).abs() < 1e-3);
        assert_eq!(pacer.take_rate(), 0);
    }

    #[test]
    fn path_that_carries_nothing_while_data_waits_has_the_lowest_rate() {
        let mut pacer = Pacer::default();
        let info = ConnectionInfo { round_trip: STEP * 7 / 2, ..ConnectionInfo::default() };
        let mut rates = Vec::new();
        for step in 1..=8 {
            // Data waits from the first step to the seventh one.
            pacer.step(STEP * step, &info, Duration::ZERO, step <= 7);
            rates.push(pacer.take_rate());
        }
        // The first acknowledgements can arrive after the round-trip time.
        assert_eq!(rates, [0, 0, 0, 0, 1, 1, 1, 0]);
    }

    #[test]
    fn limit_ends_for_a_while_if_others_keep_the_queue_full() {
        let mut pacer = Pacer::default();
        let info = |acked_bytes: f64| ConnectionInfo {
            acked_bytes: acked_bytes as u64,
            min_round_trip: ROUND_TRIP,
            round_trip: 2 * ROUND_TRIP,
            ..ConnectionInfo::default()
        };
        let (mut acked, mut limits) = (0.0, Vec::new());
        for step in 1..=50 {
            acked += pacer.limit.unwrap_or(20.0 * MBIT) * STEP.as_secs_f64();
            limits.push(pacer.step(STEP * step, &info(acked), Duration::ZERO, true));
        }
        let lowest = limits.iter().flatten().min().copied().unwrap_or(0) as f64;
        assert!(lowest >= 20.0 * MBIT * MIN_SHARE * 0.99, "{lowest}");
        assert_eq!(limits.last(), Some(&None));
    }
}
