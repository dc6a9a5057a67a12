//! The parts of an explanation.

use std::collections::BTreeMap;

use weir_core::allocation::{OrderCriterion, Rule};
use weir_core::rounding;

use super::collision::PathCollision;
use super::link::Link;
use crate::outcome::CoflowOutcome;

/// The progress of a coflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgressState {
    /// No flow moves.
    Waiting,
    /// Slower than alone.
    Slowed,
    /// As fast as alone.
    FullPace,
}

impl ProgressState {
    /// The state's name.
    pub const fn name(self) -> &'static str {
        match self {
            ProgressState::Waiting => "waiting",
            ProgressState::Slowed => "slowed",
            ProgressState::FullPace => "full",
        }
    }
}

/// The minimum pace at which a coflow is not slowed.
const MIN_FULL_PACE: f64 = 0.999;

impl ProgressState {
    /// The state of a period with a pace, in which flows move or not.
    pub(super) fn from_pace(pace: f64, moves: bool) -> ProgressState {
        match pace {
            _ if !moves => ProgressState::Waiting,
            pace if pace < MIN_FULL_PACE => ProgressState::Slowed,
            _ => ProgressState::FullPace,
        }
    }
}

/// The reason why a coflow is slower than alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlowdownCause {
    /// No cause. Time can still be lost, because the bottleneck became another link between two schedules.
    None,
    /// The coflow was released between two schedules, or flows of other coflows ended and the limiting link was idle until the next
    /// schedule.
    NextSchedule,
    /// All its flows at the bottleneck wait for their data.
    NoData,
    /// Other coflows use this link.
    ContendedLink(Link),
    /// This link has less than its nominal rate, and the coflow uses all of it.
    SlowLink(Link),
    /// The policy assigns less than other coflows and slow links leave.
    Policy,
}

impl SlowdownCause {
    /// The cause's name.
    pub const fn name(self) -> &'static str {
        match self {
            SlowdownCause::None => "nothing",
            SlowdownCause::NextSchedule => "next-schedule",
            SlowdownCause::NoData => "no-data",
            SlowdownCause::ContendedLink(Link::Trunk(_)) => "trunk",
            SlowdownCause::ContendedLink(_) => "port",
            SlowdownCause::SlowLink(Link::Trunk(_)) => "slow-trunk",
            SlowdownCause::SlowLink(_) => "slow-port",
            SlowdownCause::Policy => "policy",
        }
    }

    /// The link that is the cause, if any.
    pub const fn link(self) -> Option<Link> {
        match self {
            SlowdownCause::ContendedLink(link) | SlowdownCause::SlowLink(link) => Some(link),
            _ => None,
        }
    }
}

/// A coflow that uses a link that the explained coflow needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holder {
    /// Its id in the trace.
    pub coflow: u64,
    /// Its queue; the last one if it changed.
    pub queue: usize,
    /// The values that determine its place in the order; the last ones if they changed.
    pub order_criterion: OrderCriterion,
    /// Its mean share of the link's nominal rate over the segment.
    pub rate_share: f64,
    /// Seconds that it cost: a part of [`Segment::lost_seconds`].
    pub lost_seconds: f64,
}

/// A period with one explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Its start, in seconds.
    pub start: f64,
    /// Its end, in seconds.
    pub end: f64,
    /// Bytes moved, including those that a restart lost later.
    pub bytes: f64,
    /// Seconds by which the remaining time alone shrank.
    pub alone_seconds: f64,
    /// The coflow's progress.
    pub state: ProgressState,
    /// The coflow's queue.
    pub queue: usize,
    /// The values that determine its place in the order, at the end of the segment.
    pub order_criterion: OrderCriterion,
    /// The rule that served it.
    pub rule: Rule,
    /// The reason why it is slower than alone.
    pub cause: SlowdownCause,
    /// The coflows that use the limiting link, the largest share first.
    pub holders: Vec<Holder>,
    /// Seconds lost to each cause. Their sum is [`Segment::lost_seconds`].
    pub losses: Vec<(SlowdownCause, f64)>,
}

impl Segment {
    /// The duration, in seconds.
    pub fn duration_seconds(&self) -> f64 {
        self.end - self.start
    }

    /// Appends the next part, with the same explanation.
    pub(super) fn append(&mut self, part: Segment) {
        self.end = part.end;
        self.bytes += part.bytes;
        self.alone_seconds += part.alone_seconds;
        self.order_criterion = part.order_criterion;
        for holder in part.holders {
            match self.holders.iter_mut().find(|h| h.coflow == holder.coflow) {
                Some(existing) => {
                    (existing.queue, existing.order_criterion) = (holder.queue, holder.order_criterion);
                    existing.rate_share += holder.rate_share;
                    existing.lost_seconds += holder.lost_seconds;
                }
                None => self.holders.push(holder),
            }
        }
        for (cause, seconds) in part.losses {
            match self.losses.iter_mut().find(|loss| loss.0 == cause) {
                Some(existing) => existing.1 += seconds,
                None => self.losses.push((cause, seconds)),
            }
        }
    }

    /// The pace: 1 is as fast as alone on nominal capacities.
    pub fn pace(&self) -> f64 {
        pace(self.alone_seconds, self.duration_seconds())
    }

    /// Whether a flow moves.
    pub(super) fn moves(&self) -> bool {
        self.state != ProgressState::Waiting
    }

    /// Sets the state to that of the pace in the whole segment.
    pub(super) fn set_state_by_pace(&mut self) {
        self.state = ProgressState::from_pace(self.pace(), self.moves());
    }

    /// Seconds lost compared with running alone.
    pub fn lost_seconds(&self) -> f64 {
        (self.duration_seconds() - self.alone_seconds).max(0.0)
    }
}

/// The seconds by which the remaining time alone shrank, per second of a period. Rounding can make them negative.
pub(super) fn pace(alone_seconds: f64, duration_seconds: f64) -> f64 {
    if duration_seconds > 0.0 { (alone_seconds / duration_seconds).max(0.0) } else { 0.0 }
}

/// The explanation of a coflow's completion time. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The coflow's outcome.
    pub outcome: CoflowOutcome,
    /// Its completion time alone on healthy links.
    pub alone_seconds: f64,
    /// The collision of its flows on links between switches, if other paths would have saved time.
    pub collision: Option<PathCollision>,
    /// Bytes moved in vain by flows that restarted.
    pub lost_bytes: f64,
    /// Segments without gaps from release to completion; empty if the CCT is 0.
    pub segments: Vec<Segment>,
}

impl Explanation {
    /// The mean pace in a period, and the state in it as a whole.
    pub fn progress_between(&self, start: f64, end: f64) -> (f64, ProgressState) {
        let overlap = |segment: &Segment| segment.end.min(end) - segment.start.max(start);
        let min_overlap = rounding::DURATION * (end - start);
        let overlapping = || self.segments.iter().filter(|segment| overlap(segment) > min_overlap);
        let alone_seconds: f64 = overlapping().map(|segment| segment.pace() * overlap(segment)).sum();
        let pace = pace(alone_seconds, end - start);
        (pace, ProgressState::from_pace(pace, overlapping().any(Segment::moves)))
    }

    /// Seconds in a state.
    pub fn seconds_in_state(&self, state: ProgressState) -> f64 {
        self.segments
            .iter()
            .filter(|s| s.state == state)
            .map(Segment::duration_seconds)
            .fold(0.0, |sum, time| sum + time)
    }

    /// Seconds under each rule, in descending order.
    pub fn seconds_under_each_rule(&self) -> Vec<(Rule, f64)> {
        let mut sums: Vec<(Rule, f64)> = Vec::new();
        for segment in self.segments.iter().filter(|s| s.cause != SlowdownCause::NextSchedule) {
            match sums.iter_mut().find(|(rule, _)| *rule == segment.rule) {
                Some((_, sum)) => *sum += segment.duration_seconds(),
                None => sums.push((segment.rule, segment.duration_seconds())),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }

    /// Seconds lost by cause, in descending order.
    pub fn lost_seconds_by_cause(&self) -> Vec<(SlowdownCause, f64)> {
        let mut sums: BTreeMap<SlowdownCause, f64> = BTreeMap::new();
        for &(cause, seconds) in self.segments.iter().flat_map(|segment| &segment.losses) {
            *sums.entry(cause).or_default() += seconds;
        }
        sort_descending(sums, self.outcome.cct())
    }

    /// Seconds to repeat the progress that restarts of flows lost.
    pub fn restart_seconds(&self) -> f64 {
        if self.lost_bytes == 0.0 {
            return 0.0;
        }
        let lost: f64 = self.segments.iter().map(Segment::lost_seconds).sum();
        (self.outcome.cct() - self.alone_seconds - lost).max(0.0)
    }

    /// Seconds lost to each coflow, in descending order. If several coflows use the limiting link, each counts by its share.
    pub fn lost_seconds_by_coflow(&self) -> Vec<(u64, f64)> {
        let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
        for holder in self.segments.iter().flat_map(|s| &s.holders) {
            *sums.entry(holder.coflow).or_default() += holder.lost_seconds;
        }
        sort_descending(sums, self.outcome.cct())
    }
}

/// The sums above rounding, in descending order.
fn sort_descending<K>(sums: BTreeMap<K, f64>, cct: f64) -> Vec<(K, f64)> {
    let mut sums: Vec<(K, f64)> =
        sums.into_iter().filter(|(_, sum)| *sum > rounding::DURATION * cct).collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums
}
