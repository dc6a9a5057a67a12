//! Times as a trace states them, and the shift to an earlier origin.
//!
//! A binary64 represents 10^9 s to 10^-7 s, so that flows of microseconds at Unix times would get wrong durations. The
//! times of a trace that starts late are therefore shifted before they become seconds.

use std::cmp::Ordering;

use weir_core::model::{CoflowSpec, Workload, WorkloadChange};
use weir_core::units::Time;

use crate::bounds::MAX_SECONDS;
use crate::number;

/// A trace starts late if all its coflows without parents arrive after this time, in seconds. Until then, times are
/// precise to 10^-10 s.
const LATE_SECONDS: f64 = 1e6;

/// The latest time that a shift accepts, in seconds (about 3,000 years).
const MAX_LATE_SECONDS: f64 = 1e11;

const FEMTOSECONDS_PER_SECOND: i128 = 1_000_000_000_000_000;

/// The units of time in a trace, in femtoseconds. A unit follows those that end with it.
const UNITS: [(&str, i128); 7] = [
    ("ps", 1_000),
    ("ns", 1_000_000),
    ("us", 1_000_000_000),
    ("ms", 1_000_000_000_000),
    ("min", 60 * FEMTOSECONDS_PER_SECOND),
    ("s", FEMTOSECONDS_PER_SECOND),
    ("h", 3600 * FEMTOSECONDS_PER_SECOND),
];

/// A point in time of a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileTime {
    /// The time to a femtosecond.
    femtoseconds: i128,
    /// The time to the precision of a binary64.
    pub(crate) time: Time,
}

impl FileTime {
    pub(crate) const ZERO: FileTime = FileTime { time: Time::ZERO, femtoseconds: 0 };

    /// The time that `text` states, which the caller has parsed as `time`: a number with a unit, or else in `default_unit`.
    pub(crate) fn new(time: Time, text: &str, default_unit: &str) -> FileTime {
        let split =
            UNITS.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim_end(), *scale)));
        let scale_of_default =
            || UNITS.iter().find(|(unit, _)| *unit == default_unit).map(|(_, scale)| *scale);
        let (number, scale) =
            split.unwrap_or_else(|| (text, scale_of_default().unwrap_or(FEMTOSECONDS_PER_SECOND)));
        // Numbers with more digits than an i128 keep the precision of `time`.
        let rounded = || (time.get() * FEMTOSECONDS_PER_SECOND as f64) as i128;
        FileTime { time, femtoseconds: number::parse_scaled(number, scale).unwrap_or_else(rounded) }
    }

    /// The time whose shortest text is that of `time`.
    fn exact(time: Time) -> FileTime {
        FileTime::new(time, &number::format_exact(time.get()), "s")
    }

    /// A time that was made earlier by `shift`, before that. The shortest text is that of the file if a binary64 represents it.
    fn before_shift(time: Time, shift: TimeShift) -> FileTime {
        let femtoseconds = FileTime::exact(time).femtoseconds + shift.femtoseconds;
        let time = Time::new(time.get() + shift.duration().get()).unwrap_or(time);
        FileTime { femtoseconds, time }
    }

    /// The duration from an earlier point in time.
    pub(crate) fn since(&self, earlier: &FileTime) -> Time {
        let femtoseconds = (self.femtoseconds - earlier.femtoseconds).max(0);
        Time::new(femtoseconds as f64 / FEMTOSECONDS_PER_SECOND as f64).unwrap_or(Time::ZERO)
    }

    /// The order in time.
    pub(crate) fn cmp(&self, other: &FileTime) -> Ordering {
        let by_seconds = self.time.get().total_cmp(&other.time.get());
        by_seconds.then(self.femtoseconds.cmp(&other.femtoseconds))
    }
}

/// The duration that is subtracted from all times of a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeShift {
    femtoseconds: i128,
}

impl TimeShift {
    /// The latest time that a reader accepts, in seconds, before it knows all arrivals.
    pub(crate) fn max_seconds(step: Option<Time>) -> f64 {
        if step.is_some() { MAX_LATE_SECONDS } else { MAX_SECONDS }
    }

    /// Advice about a time beyond [`TimeShift::max_seconds`], which a shift would accept.
    pub(crate) fn advice(step: Option<Time>, time: Time) -> &'static str {
        match step.is_none() && (MAX_SECONDS..=MAX_LATE_SECONDS).contains(&time.get()) {
            true => "; help: a trace that is read alone, and without --keep-arrivals, may have later times",
            false => "",
        }
    }

    /// The largest multiple of `step` up to the earliest arrival, for a trace that starts late. Coflows with parents do not
    /// count: they can arrive any time before their parents' end.
    pub(crate) fn new(step: Option<Time>, coflows: &[CoflowSpec], arrivals: &[FileTime]) -> TimeShift {
        let roots = coflows.iter().zip(arrivals).filter(|(coflow, _)| coflow.parents.is_empty());
        let first = roots.map(|(_, arrival)| arrival).min_by(|a, b| a.cmp(b));
        let step = step.map(|step| (step.get() * FEMTOSECONDS_PER_SECOND as f64).round() as i128);
        let femtoseconds = match (step, first) {
            (Some(step), Some(first)) if step > 0 && first.time.get() > LATE_SECONDS => {
                first.femtoseconds - first.femtoseconds % step
            }
            _ => 0,
        };
        TimeShift { femtoseconds }
    }

    /// The duration.
    pub(crate) fn duration(self) -> Time {
        Time::new(self.femtoseconds as f64 / FEMTOSECONDS_PER_SECOND as f64).unwrap_or(Time::ZERO)
    }

    /// A shifted time; 0 for a time before the origin, whose events still happen before all coflows. `None` beyond the
    /// bound of traces.
    pub(crate) fn apply(self, of_file: FileTime) -> Option<Time> {
        let time = match self.femtoseconds {
            0 => of_file.time,
            shift => {
                let femtoseconds = (of_file.femtoseconds - shift).max(0);
                Time::new(femtoseconds as f64 / FEMTOSECONDS_PER_SECOND as f64)?
            }
        };
        (time.get() <= MAX_SECONDS).then_some(time)
    }

    /// The expected value in errors about times beyond the bound.
    pub(crate) fn expected(self) -> String {
        match self.femtoseconds {
            0 => format!("a time of at most {MAX_SECONDS:e} seconds"),
            _ => format!("a time of at most {MAX_SECONDS:e} seconds after {}", self.duration()),
        }
    }
}

/// Shifts the times of a workload, which its reader made earlier by `shift`, as the reader would have with another `step`. Returns the
/// new shift. Times before the origin, which the reader made 0, stay before all coflows without parents.
///
/// # Errors
/// If a time is beyond the bound of traces; the text states the expectation.
pub fn shift_again(workload: &mut Workload, shift: Time, step: Time) -> Result<Time, String> {
    let old = TimeShift { femtoseconds: FileTime::exact(shift).femtoseconds };
    // Coflows without parents arrive at the origin or later. Other times that are 0 were not stated, or are before the origin.
    let before_shift =
        |time| if time == Time::ZERO { FileTime::ZERO } else { FileTime::before_shift(time, old) };
    let before = |coflow: &CoflowSpec| match coflow.parents.is_empty() {
        true => FileTime::before_shift(coflow.arrival, old),
        false => before_shift(coflow.arrival),
    };
    let arrivals: Vec<FileTime> = workload.coflows.iter().map(before).collect();
    let new = TimeShift::new(Some(step), &workload.coflows, &arrivals);
    let apply = |time: FileTime| new.apply(time).ok_or_else(|| new.expected());
    for (coflow, arrival) in workload.coflows.iter_mut().zip(arrivals) {
        coflow.arrival = apply(arrival)?;
    }
    for event in &mut workload.events {
        event.time = apply(before_shift(event.time))?;
        if let WorkloadChange::DelayFlow { until, .. } = &mut event.change {
            *until = apply(before_shift(*until))?;
        }
    }
    Ok(new.duration())
}
