//! The segment since the last schedule, and the division of its lost time.

use weir_core::allocation::{OrderCriterion, Rule};

use super::limit::HolderRates;
use super::link::Link;
use super::report::{Holder, ProgressState, Segment, SlowdownCause};

/// The explanation from the last schedule on, closed at the next one.
pub(super) struct OpenSegment {
    pub state: ProgressState,
    pub queue: usize,
    pub order_criterion: OrderCriterion,
    pub rule: Rule,
    pub cause: SlowdownCause,
    /// The link at which the remaining bytes take longest at present, if it is below its nominal rate.
    pub slow_link: Option<Link>,
    /// The pace relative to running alone on present capacities.
    pub present_pace: f64,
    /// The other coflows that use the limiting link, the fastest first.
    pub holders: Vec<HolderRates>,
}

/// What a coflow did in a part of a segment.
pub(super) struct Progress {
    pub bytes: f64,
    /// Seconds by which the remaining time alone shrank: on nominal capacities, and on present ones.
    pub alone_seconds: f64,
    pub present_seconds: f64,
}

/// Lost time that has no cause so far.
struct UndividedLoss {
    seconds: f64,
    by_cause: Vec<(SlowdownCause, f64)>,
}

impl UndividedLoss {
    /// Charges a cause with at most `seconds`.
    fn charge(&mut self, cause: SlowdownCause, seconds: f64) {
        let charged = seconds.clamp(0.0, self.seconds);
        self.seconds -= charged;
        if charged > 0.0 {
            self.by_cause.push((cause, charged));
        }
    }
}

impl OpenSegment {
    /// The explanation of a coflow before its first schedule.
    pub fn waiting(
        queue: usize,
        order_criterion: OrderCriterion,
        rule: Rule,
        cause: SlowdownCause,
    ) -> OpenSegment {
        OpenSegment {
            state: ProgressState::Waiting,
            queue,
            order_criterion,
            rule,
            cause,
            slow_link: None,
            present_pace: 0.0,
            holders: Vec::new(),
        }
    }

    /// The segment from `start` to `end`.
    pub fn close(&self, start: f64, end: f64, progress: &Progress) -> Segment {
        let time = end - start;
        let &Progress { bytes, alone_seconds, present_seconds } = progress;
        let mut loss = UndividedLoss { seconds: (time - alone_seconds).max(0.0), by_cause: Vec::new() };
        if let Some(link) = self.slow_link {
            loss.charge(SlowdownCause::SlowLink(link), present_seconds - alone_seconds);
        }
        let used_seconds: f64 = self.holders.iter().map(|holder| holder.used_seconds(time)).sum();
        let charged_fraction = if used_seconds > 0.0 { (loss.seconds / used_seconds).min(1.0) } else { 0.0 };
        match self.cause {
            SlowdownCause::ContendedLink(_) => {
                loss.charge(self.cause, used_seconds);
                let idle_seconds: f64 = self.holders.iter().map(|holder| holder.idle_seconds(time)).sum();
                loss.charge(SlowdownCause::NextSchedule, idle_seconds);
                let used_fraction: f64 = self.holders.iter().map(HolderRates::used_fraction).sum();
                loss.charge(SlowdownCause::Policy, (1.0 - self.present_pace - used_fraction) * time);
            }
            SlowdownCause::SlowLink(_) | SlowdownCause::Policy => {
                loss.charge(self.cause, (1.0 - self.present_pace) * time);
            }
            SlowdownCause::NextSchedule | SlowdownCause::NoData => loss.charge(self.cause, loss.seconds),
            SlowdownCause::None => {}
        }
        loss.charge(SlowdownCause::None, loss.seconds);
        let holder = |holder: &HolderRates| Holder {
            coflow: holder.coflow,
            queue: holder.queue,
            order_criterion: holder.order_criterion,
            // An integral over time until the segment is complete.
            rate_share: holder.rate_share * holder.sending_seconds(time),
            lost_seconds: holder.used_seconds(time) * charged_fraction,
        };
        Segment {
            start,
            end,
            bytes,
            alone_seconds,
            state: self.state,
            queue: self.queue,
            order_criterion: self.order_criterion,
            rule: self.rule,
            cause: self.cause,
            holders: self.holders.iter().map(holder).collect(),
            losses: loss.by_cause,
        }
    }
}
