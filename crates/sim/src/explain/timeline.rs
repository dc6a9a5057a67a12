//! Shortens a timeline: merges neighbouring segments, the shortest first.

use super::Segment;

/// Consecutive segments of an explanation, merged into one entry. Times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry<'a> {
    /// The longest of the segments, which stands for all of them.
    pub main: &'a Segment,
    /// The start of the first segment.
    pub from: f64,
    /// The end of the last segment.
    pub to: f64,
    /// Bytes moved in all segments.
    pub bytes: f64,
    /// Seconds by which the remaining time alone shrank.
    pub alone: f64,
    /// The number of merged segments.
    pub segments: usize,
}

impl<'a> Entry<'a> {
    /// `None` for no segments.
    fn new(segments: &'a [Segment]) -> Option<Entry<'a>> {
        let (first, last) = (segments.first()?, segments.last()?);
        let main = segments.iter().fold(first, |a, b| if b.time() > a.time() { b } else { a });
        Some(Entry {
            main,
            from: first.from,
            to: last.to,
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            alone: segments.iter().map(|segment| segment.alone).sum(),
            segments: segments.len(),
        })
    }

    /// The average pace; see [`Segment::pace`].
    pub fn pace(&self) -> f64 {
        let time = self.to - self.from;
        if time > 0.0 { self.alone / time } else { 0.0 }
    }
}

/// Merges neighbouring segments, the shortest first, until at most `max_entries` entries remain.
pub fn timeline(segments: &[Segment], max_entries: usize) -> Vec<Entry<'_>> {
    let total: f64 = segments.iter().map(Segment::time).sum();
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
fn merge_shorter(segments: &[Segment], min_time: f64) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    let mut start = 0;
    for (at, segment) in segments.iter().enumerate() {
        if segment.time() >= min_time {
            entries.extend(Entry::new(&segments[start..at]));
            entries.extend(Entry::new(&segments[at..=at]));
            start = at + 1;
        } else if segment.to - segments[start].from >= min_time {
            entries.extend(Entry::new(&segments[start..=at]));
            start = at + 1;
        }
    }
    entries.extend(Entry::new(&segments[start..]));
    entries
}

#[cfg(test)]
mod tests {
    use weir_core::allocation::{Rule, Standing};

    use super::super::{Cause, State};
    use super::*;

    fn segments(ends: &[f64]) -> Vec<Segment> {
        let mut from = 0.0;
        let segment = |&to: &f64| Segment {
            from: std::mem::replace(&mut from, to),
            to,
            bytes: 1.0,
            alone: 0.0,
            state: State::Waiting,
            queue: 0,
            standing: Standing::Unsaid,
            rule: Rule::Unsaid,
            cause: Cause::Policy,
            holders: Vec::new(),
        };
        ends.iter().map(segment).collect()
    }

    #[test]
    fn timeline_keeps_all_segments_within_the_limit() {
        let segments = segments(&[1.0, 1.5, 9.0]);
        let entries = timeline(&segments, 3);
        assert_eq!(entries.iter().map(|entry| entry.segments).collect::<Vec<_>>(), [1, 1, 1]);
        assert!(timeline(&[], 3).is_empty());
    }

    #[test]
    fn timeline_merges_short_segments_under_the_longest() {
        let segments = segments(&[5.0, 5.1, 5.3, 5.4, 10.0]);
        let entries = timeline(&segments, 3);
        assert_eq!(entries.iter().map(|entry| entry.segments).collect::<Vec<_>>(), [1, 3, 1]);
        assert_eq!((entries[1].from, entries[1].to, entries[1].bytes), (5.0, 5.4, 3.0));
        assert_eq!(*entries[1].main, segments[2]);
    }
}
