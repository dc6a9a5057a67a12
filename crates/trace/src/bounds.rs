//! How large things in a trace can be.
//!
//! Readers and writers keep to the same bounds, so that what one accepts the other does too.

use weir_core::model::{Change, Workload};
use weir_core::units::Time;

use crate::error::WriteError;

/// Bytes of a whole trace stay below this: up to here a binary64 counts every single one.
pub const MAX_BYTES: f64 = 9_007_199_254_740_992.0;

/// The latest time, and the longest duration, in seconds (about 31 years).
pub const MAX_SECONDS: f64 = 1e9;

/// The smallest size of a coflow-benchmark reducer other than zero, in its megabytes: a millionth of a
/// byte. Below, splitting sizes over mappers would not be reversible.
pub const MIN_MEGABYTES: f64 = 1e-12;

/// The least weight of a coflow.
pub const MIN_WEIGHT: f64 = 1e-9;

/// The greatest weight of a coflow.
pub const MAX_WEIGHT: f64 = 1e9;

/// The greatest factor by which an event can change a port's rate.
pub const MAX_FACTOR: f64 = 1e6;

/// What a reader may use up before it gives the trace back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most flows in all. As many events, and as many parents, are allowed too.
    pub max_flows: usize,
    /// The longest line, in bytes.
    pub max_line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_flows: 5_000_000, max_line_bytes: 64 << 20 }
    }
}

impl Limits {
    /// What an error says was expected, where there are too many of `what`.
    pub(crate) fn expected(&self, what: &str) -> String {
        format!("at most {} {what} in all (--max-flows raises this limit)", self.max_flows)
    }
}

/// Whether a reader would take this workload back.
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

/// Whether `time` is one that a reader takes.
fn time(time: Time, place: impl Fn() -> String) -> Result<(), WriteError> {
    if time.get() <= MAX_SECONDS {
        return Ok(());
    }
    let what = format!("it has a time of {:e} s, beyond {MAX_SECONDS:e} s", time.get());
    Err(WriteError::Inexpressible { place: place(), what })
}
