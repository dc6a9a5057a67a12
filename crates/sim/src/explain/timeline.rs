//! Shortens a timeline: merges neighbouring segments, the shortest first.

use super::report::pace;
use super::{ProgressState, Segment};

/// Consecutive segments of an explanation, merged into one entry. Times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimelineEntry<'a> {
    /// The segment that loses the most time, or the longest one if none loses time. Its queue, rule and cause stand for all of them.
    pub main: &'a Segment,
    /// The start of the first segment.
    pub start: f64,
    /// The end of the last segment.
    pub end: f64,
    /// Bytes moved in all segments.
    pub bytes: f64,
    /// Seconds by which the remaining time alone shrank.
    pub alone_seconds: f64,
    /// The number of merged segments.
    pub segment_count: usize,
    /// Whether a flow moves in a segment.
    moves: bool,
}

impl<'a> TimelineEntry<'a> {
    /// `None` for no segments.
    fn new(segments: &'a [Segment]) -> Option<TimelineEntry<'a>> {
        let (first, last) = (segments.first()?, segments.last()?);
        let main = segments.iter().fold(first, |a, b| if time_lost(b) > time_lost(a) { b } else { a });
        Some(TimelineEntry {
            main,
            start: first.start,
            end: last.end,
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            alone_seconds: segments.iter().map(|segment| segment.alone_seconds).sum(),
            segment_count: segments.len(),
            moves: segments.iter().any(Segment::moves),
        })
    }

    /// The average pace; see [`Segment::pace`].
    pub fn pace(&self) -> f64 {
        pace(self.alone_seconds, self.end - self.start)
    }

    /// The state in the period as a whole, which agrees with [`TimelineEntry::pace`].
    pub fn state(&self) -> ProgressState {
        ProgressState::from_pace(self.pace(), self.moves)
    }
}

/// The time that a segment loses, and its length, in seconds. At full pace it loses none, whatever rounding says.
fn time_lost(segment: &Segment) -> (f64, f64) {
    let seconds = segment.duration_seconds();
    let is_full = segment.state == ProgressState::FullPace;
    (if is_full { 0.0 } else { seconds - segment.alone_seconds }, seconds)
}

/// Merges neighbouring segments, the shortest first, until at most `max_entries` entries remain.
pub fn build_timeline(segments: &[Segment], max_entries: usize) -> Vec<TimelineEntry<'_>> {
    let total: f64 = segments.iter().map(Segment::duration_seconds).sum();
    let mut min_time = 0.0;
    loop {
        let entries = merge_shorter(segments, min_time);
        if entries.len() <= max_entries || min_time > total {
            return entries;
        }
        min_time = if min_time == 0.0 { total / 4096.0 } else { min_time * 1.5 };
    }
}

/// Each segment of at least `min_time` seconds as its own entry. Runs of shorter segments are merged into entries of at
/// least that length if the run is long enough.
fn merge_shorter(segments: &[Segment], min_time: f64) -> Vec<TimelineEntry<'_>> {
    let mut entries = Vec::new();
    let mut start = 0;
    for (index, segment) in segments.iter().enumerate() {
        if segment.duration_seconds() >= min_time {
            entries.extend(TimelineEntry::new(&segments[start..index]));
            entries.extend(TimelineEntry::new(&segments[index..=index]));
            start = index + 1;
        } else if segment.end - segments[start].start >= min_time {
            entries.extend(TimelineEntry::new(&segments[start..=index]));
            start = index + 1;
        }
    }
    entries.extend(TimelineEntry::new(&segments[start..]));
    entries
}

#[cfg(test)]
mod tests {
    use weir_core::allocation::{OrderCriterion, Rule};

    use super::super::SlowdownCause;
    use super::*;

    fn segments(ends: &[f64]) -> Vec<Segment> {
        let mut from = 0.0;
        let segment = |&to: &f64| Segment {
            start: std::mem::replace(&mut from, to),
            end: to,
            bytes: 1.0,
            alone_seconds: 0.0,
            state: ProgressState::Waiting,
            queue: 0,
            order_criterion: OrderCriterion::Constant,
            rule: Rule::Unexplained,
            cause: SlowdownCause::Policy,
            holders: Vec::new(),
            losses: Vec::new(),
        };
        ends.iter().map(segment).collect()
    }

    #[test]
    fn timeline_keeps_all_segments_within_the_limit() {
        let segments = segments(&[1.0, 1.5, 9.0]);
        let entries = build_timeline(&segments, 3);
        assert_eq!(entries.iter().map(|entry| entry.segment_count).collect::<Vec<_>>(), [1, 1, 1]);
        assert!(build_timeline(&[], 3).is_empty());
    }

    #[test]
    fn timeline_merges_short_segments_under_the_one_that_loses_most() {
        let segments = segments(&[5.0, 5.1, 5.3, 5.4, 10.0]);
        let entries = build_timeline(&segments, 3);
        assert_eq!(entries.iter().map(|entry| entry.segment_count).collect::<Vec<_>>(), [1, 3, 1]);
        assert_eq!((entries[1].start, entries[1].end, entries[1].bytes), (5.0, 5.4, 3.0));
        assert_eq!(*entries[1].main, segments[2]);
    }

    #[test]
    fn cause_of_merged_segments_is_that_of_the_most_lost_time() {
        let mut segments = segments(&[5.0, 6.0, 6.5]);
        (segments[0].alone_seconds, segments[0].state) = (5.0 - 1e-9, ProgressState::FullPace);
        (segments[1].alone_seconds, segments[1].state) = (0.9, ProgressState::Slowed);
        (segments[2].alone_seconds, segments[2].state) = (0.2, ProgressState::Slowed);
        assert_eq!(*TimelineEntry::new(&segments).unwrap().main, segments[2]);
        assert_eq!(*TimelineEntry::new(&segments[..1]).unwrap().main, segments[0]);
    }

    #[test]
    fn state_of_merged_segments_agrees_with_their_pace() {
        let state = |paces: [f64; 3]| {
            let mut segments = segments(&[5.0, 5.2, 10.0]);
            for (segment, pace) in segments.iter_mut().zip(paces) {
                segment.alone_seconds = pace * segment.duration_seconds();
                segment.state = ProgressState::from_pace(pace, pace > 0.0);
            }
            let entry = TimelineEntry::new(&segments).unwrap();
            (entry.main.state, entry.state())
        };
        let (waiting, slowed, full) =
            (ProgressState::Waiting, ProgressState::Slowed, ProgressState::FullPace);
        assert_eq!(state([1.0, 0.0, 1.0]), (waiting, slowed), "98 % is not full pace");
        assert_eq!(state([0.0, 0.001, 0.0]), (waiting, slowed), "bytes move");
        assert_eq!(state([0.0; 3]), (waiting, waiting));
        assert_eq!(state([1.0; 3]), (full, full));
    }
}
