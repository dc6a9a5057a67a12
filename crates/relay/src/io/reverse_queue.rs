//! Measures the queue of the path from another relay to this one.
//!
//! A round-trip time includes the queues of both directions. A relay cannot shorten the queue of the reverse direction, so its
//! [pacer](super::pacer) has to ignore it. Heartbeats contain the time of the other relay: the difference to the local time, less its
//! minimum, is the delay in the reverse queue. The clocks need not agree. If one of them jumps, the pacer may not limit the path for some
//! minutes, as if there were none.

use std::time::Duration;

/// How long a minimum counts, at least. The clocks of two hosts may drift by some 10 us in a second.
const MIN_AGE: Duration = Duration::from_secs(60);

/// The number of heartbeats whose median counts: some may have waited for a busy relay.
const RECENT: usize = 5;

/// Shorter delays may be those of busy relays.
const MIN_DELAY: Duration = Duration::from_millis(2);

/// The delays of heartbeats, plus the unknown difference of the clocks, in microseconds.
#[derive(Debug)]
pub(crate) struct ReverseQueue {
    recent: [i64; RECENT],
    /// The minimum of this period and of the one before.
    minima: [i64; 2],
    period_start: Duration,
}

impl Default for ReverseQueue {
    fn default() -> ReverseQueue {
        ReverseQueue { recent: [i64::MAX; RECENT], minima: [i64::MAX; 2], period_start: Duration::ZERO }
    }
}

impl ReverseQueue {
    /// Adds a heartbeat with the time of the other relay.
    pub(crate) fn add(&mut self, sent_us: u64, now: Duration) {
        let [now_us, sent_us] =
            [now.as_micros().try_into(), sent_us.try_into()].map(|us| us.unwrap_or(i64::MAX));
        let delay = now_us.saturating_sub(sent_us);
        if now >= self.period_start + MIN_AGE {
            self.minima = [i64::MAX, self.minima[0]];
            self.period_start = now;
        }
        self.minima[0] = self.minima[0].min(delay);
        self.recent.rotate_right(1);
        self.recent[0] = delay;
    }

    /// The delay in the queue; zero if it is unknown or below [`MIN_DELAY`].
    pub(crate) fn delay(&self) -> Duration {
        let mut recent = self.recent;
        recent.sort_unstable();
        let median = recent[RECENT / 2];
        let [first, second] = self.minima;
        if median == i64::MAX {
            return Duration::ZERO;
        }
        let excess = u64::try_from(median.saturating_sub(first.min(second))).unwrap_or(0);
        Some(Duration::from_micros(excess)).filter(|&delay| delay >= MIN_DELAY).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock of the other relay is ahead by this.
    const AHEAD: Duration = Duration::from_secs(100);

    fn add(queue: &mut ReverseQueue, now: Duration, delays_ms: &[u64]) {
        for (index, &delay) in (0..).zip(delays_ms) {
            let sent = now + Duration::from_millis(200) * index;
            queue.add((AHEAD + sent).as_micros() as u64, sent + Duration::from_millis(delay));
        }
    }

    #[test]
    fn queue_is_the_delay_above_the_minimum_of_clocks_that_differ() {
        let mut queue = ReverseQueue::default();
        assert_eq!(queue.delay(), Duration::ZERO);
        add(&mut queue, Duration::ZERO, &[25, 26, 25]);
        assert_eq!(queue.delay(), Duration::ZERO);
        add(&mut queue, Duration::from_secs(10), &[125, 95, 105, 95, 105]);
        assert_eq!(queue.delay(), Duration::from_millis(80));
    }

    #[test]
    fn late_heartbeats_of_a_busy_relay_are_no_queue() {
        let mut queue = ReverseQueue::default();
        add(&mut queue, Duration::ZERO, &[25, 25, 80, 25, 80]);
        assert_eq!(queue.delay(), Duration::ZERO);
    }

    #[test]
    fn minimum_of_a_former_path_is_forgotten() {
        let mut queue = ReverseQueue::default();
        add(&mut queue, Duration::ZERO, &[25, 25, 25, 25, 25]);
        for seconds in 1..=125 {
            add(&mut queue, Duration::from_secs(seconds), &[75]);
        }
        assert_eq!(queue.delay(), Duration::ZERO);
    }
}
