//! When to report.

use std::time::{Duration, Instant};

/// The part of an order's lateness that is believed: clocks drift, but by less than a ten thousandth.
const DRIFT: u32 = 128;

/// The schedules of a coordinator, an interval apart, as far as orders show: they come some time after.
///
/// What is reported shortly before the next schedule waits least, and what comes at other times than all the rest is taken in at once. So
/// hosts report between three and eight sixteenths of an interval after the first order, each at its own time. What is left of the
/// interval is for reports that are late.
#[derive(Debug, Clone, Copy)]
pub struct ReportTimer {
    every: Duration,
    /// How long after a schedule to report.
    turn: Duration,
    /// When one was made.
    last: Option<Instant>,
}

impl ReportTimer {
    /// For a host, by its number, before it has any order.
    pub fn new(host: u32, every: Duration) -> ReportTimer {
        let turn = every.mul_f64(0.1875 + f64::from(host % 64) * 0.3125 / 64.0);
        ReportTimer { every, turn, last: None }
    }

    /// An order has come; the answer is when to report next.
    pub fn order(&mut self, now: Instant) -> Instant {
        let since = self.last.map_or(Duration::ZERO, |last| now - last);
        let late = Duration::from_nanos((since.as_nanos() % self.every.as_nanos().max(1)) as u64);
        // An order that is late says little, as others may have been sent before it; one that is earlier than any has been says when
        // schedules are.
        let is_early = late > self.every * 3 / 4;
        let last = if is_early { now } else { now - late + late / DRIFT };
        self.last = Some(last);
        let next = last + self.turn;
        if next > now { next } else { next + self.every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(8);

    #[test]
    fn reports_follow_the_earliest_orders() {
        let began = Instant::now();
        let after = |us| began + Duration::from_micros(us);
        // Host 0 reports 1.5 ms after a schedule.
        let mut report_timer = ReportTimer::new(0, EVERY);
        assert_eq!(report_timer.order(after(0)), after(1500));
        // Later by 1.28 ms, of which little is believed.
        assert_eq!(report_timer.order(after(24_000 + 1280)), after(24_000 + 10 + 1500));
        // Its turn is over: the next one is.
        assert_eq!(report_timer.order(after(48_010 + 3840)), after(48_010 + 30 + 8000 + 1500));
        // Earlier than any.
        assert_eq!(report_timer.order(after(72_000)), after(73_500));
        // The last host of a round reports nearly half an interval after it.
        let mut last = ReportTimer::new(63, EVERY);
        let turn = last.order(began) - began;
        assert!(turn < EVERY / 2 && turn > EVERY * 7 / 16, "{turn:?}");
    }

    #[test]
    fn a_clock_that_is_slower_is_followed() {
        let began = Instant::now();
        let mut report_timer = ReportTimer::new(0, EVERY);
        let mut at = began;
        for _ in 0..1000 {
            // One in ten thousand.
            at += Duration::from_nanos(24_002_400);
            let next = report_timer.order(at);
            assert!(next > at && next <= at + EVERY);
        }
        let next = report_timer.order(at) - at;
        assert!(next > Duration::from_micros(1000) && next <= Duration::from_micros(1500), "{next:?}");
    }
}
