//! Computes when in an interval an agent reports: in time for the next schedule, and at a different time for each host.

use std::time::{Duration, Instant};

/// The fraction of an order's delay that counts as drift: clocks drift by less than a ten thousandth.
const DRIFT_DIVISOR: u32 = 128;

/// Estimates the times of a coordinator's schedules, an interval apart, from the orders, which arrive some time after a schedule.
///
/// A report waits least if it arrives shortly before the next schedule, and the coordinator processes it at once if few others arrive
/// at the same time. Hosts therefore report between 3/16 and 8/16 of an interval after the schedule, each at a different time. The
/// rest of the interval is for late reports.
#[derive(Debug, Clone, Copy)]
pub struct ReportTimer {
    interval: Duration,
    /// The time between a schedule and the report.
    report_offset: Duration,
    /// The estimated time of the last schedule; none before the first order.
    schedule_time: Option<Instant>,
}

impl ReportTimer {
    /// For a host, by its number at the coordinator, before the first order.
    pub fn new(host: u32, interval: Duration) -> ReportTimer {
        let report_offset = interval.mul_f64(0.1875 + f64::from(host % 64) * 0.3125 / 64.0);
        ReportTimer { interval, report_offset, schedule_time: None }
    }

    /// Records the arrival of an order, and returns the time of the next report.
    pub fn record_order(&mut self, now: Instant) -> Instant {
        let elapsed = self.schedule_time.map_or(Duration::ZERO, |last| now - last);
        let delay = Duration::from_nanos((elapsed.as_nanos() % self.interval.as_nanos().max(1)) as u64);
        // A late order says little about the schedule, since others may have been sent before it. An order that is earlier than all earlier
        // ones gives the time of the schedule.
        let is_early = delay > self.interval * 3 / 4;
        let schedule_time = if is_early { now } else { now - delay + delay / DRIFT_DIVISOR };
        self.schedule_time = Some(schedule_time);
        let next = schedule_time + self.report_offset;
        if next > now { next } else { next + self.interval }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(8);

    #[test]
    fn reports_follow_the_earliest_orders() {
        let began = Instant::now();
        let after = |us| began + Duration::from_micros(us);
        // Host 0 reports 1.5 ms after a schedule.
        let mut report_timer = ReportTimer::new(0, INTERVAL);
        assert_eq!(report_timer.record_order(after(0)), after(1500));
        // 1.28 ms late, of which 1/128 counts as drift.
        assert_eq!(report_timer.record_order(after(24_000 + 1280)), after(24_000 + 10 + 1500));
        // The time to report has passed already, so the next interval's is returned.
        assert_eq!(report_timer.record_order(after(48_010 + 3840)), after(48_010 + 30 + 8000 + 1500));
        // Earlier than all orders before.
        assert_eq!(report_timer.record_order(after(72_000)), after(73_500));
        // The last host of a round reports nearly half an interval after the schedule.
        let mut last = ReportTimer::new(63, INTERVAL);
        let report_offset = last.record_order(began) - began;
        assert!(report_offset < INTERVAL / 2 && report_offset > INTERVAL * 7 / 16, "{report_offset:?}");
    }

    #[test]
    fn timer_follows_clock_drift() {
        let began = Instant::now();
        let mut report_timer = ReportTimer::new(0, INTERVAL);
        let mut at = began;
        for _ in 0..1000 {
            // A drift of one ten thousandth.
            at += Duration::from_nanos(24_002_400);
            let next = report_timer.record_order(at);
            assert!(next > at && next <= at + INTERVAL);
        }
        let next = report_timer.record_order(at) - at;
        assert!(next > Duration::from_micros(1000) && next <= Duration::from_micros(1500), "{next:?}");
    }
}
