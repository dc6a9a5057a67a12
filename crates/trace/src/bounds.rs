//! Bounds of the sizes and times in a trace.
//!
//! Readers and writers use the same bounds, so readers accept the output of writers.

use weir_core::model::{Change, Workload};
use weir_core::units::Time;

use crate::error::WriteError;

/// The bytes of a whole trace are less than this. Below it, a binary64 represents every integer exactly.
pub const MAX_BYTES: f64 = 9_007_199_254_740_992.0;

/// The latest time and the longest duration, in seconds (about 31 years).
pub const MAX_SECONDS: f64 = 1e9;

/// The minimum size of a coflow-benchmark reducer other than 0, in the trace's megabytes: a millionth of a byte. Below it,
/// splitting a size over mappers would not be reversible.
pub const MIN_MEGABYTES: f64 = 1e-12;

/// The minimum weight of a coflow.
pub const MIN_WEIGHT: f64 = 1e-9;

/// The maximum weight of a coflow.
pub const MAX_WEIGHT: f64 = 1e9;

/// The maximum factor by which an event changes a port's rate.
pub const MAX_FACTOR: f64 = 1e6;

/// Limits of the memory that a reader uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of flows. The same limit applies to events and to parents.
    pub max_flows: usize,
    /// The maximum length of a line, in bytes.
    pub max_line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_flows: 5_000_000, max_line_bytes: 64 << 20 }
    }
}

impl Limits {
    /// The expected value in an error about too many of `what`.
    pub(crate) fn expected(&self, what: &str) -> String {
        format!("at most {} {what} in all (--max-flows raises this limit)", self.max_flows)
    }
}

/// Checks that a reader would accept this workload.
pub(crate) fn check(workload: &Workload) -> Result<(), WriteError> {
    workload.check()?;
    let mut total = 0.0;
    for coflow in &workload.coflows {
        let place = || format!("coflow {}", coflow.id);
        let times = [coflow.arrival, coflow.compute_before, coflow.compute_after];
        let releases = coflow.flows.iter().map(|f| f.release);
        times.into_iter().chain(coflow.deadline).chain(releases).try_for_each(|t| time(t, place))?;
        if !(MIN_WEIGHT..=MAX_WEIGHT).contains(&coflow.weight) {
            let what = format!("its weight {:e} is outside {MIN_WEIGHT:e} to {MAX_WEIGHT:e}", coflow.weight);
            return Err(WriteError::Inexpressible { place: place(), what });
        }
        total += coflow.bytes();
        if total >= MAX_BYTES {
            let what = "the trace reaches 2^53 bytes with it".to_owned();
            return Err(WriteError::Inexpressible { place: place(), what });
        }
    }
    let mut last = Time::ZERO;
    for (position, event) in workload.events.iter().enumerate() {
        let place = || format!("event {}", position + 1);
        time(event.at, place)?;
        let problem = match event.what {
            _ if event.at < last => Some("it is before the event that it follows"),
            Change::PortRate { factor, .. } if factor > MAX_FACTOR => Some("its rate is above a million"),
            Change::Late { until, .. } if until < event.at => Some("it ends before it begins"),
            _ => None,
        };
        if let Some(what) = problem {
            return Err(WriteError::Inexpressible { place: place(), what: what.to_owned() });
        }
        if let Change::Late { until, .. } = event.what {
            time(until, place)?;
        }
        last = event.at;
    }
    Ok(())
}

/// Checks that a reader would accept `time`.
fn time(time: Time, place: impl Fn() -> String) -> Result<(), WriteError> {
    if time.get() <= MAX_SECONDS {
        return Ok(());
    }
    let what = format!("it has a time of {:e} s, beyond {MAX_SECONDS:e} s", time.get());
    Err(WriteError::Inexpressible { place: place(), what })
}
