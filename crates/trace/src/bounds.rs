//! Bounds of the values in a trace, and limits of a reader's memory.
//!
//! Readers and writers use the same bounds, so readers accept the output of writers within [`Limits`].

use weir_core::model::{Workload, WorkloadChange};
use weir_core::units::Time;

use crate::error::WriteError;

/// The bytes of a whole trace are less than this. Below it, a binary64 represents every integer exactly.
pub const MAX_BYTES: f64 = 9_007_199_254_740_992.0;

/// The latest time and the longest duration, in seconds (about 31 years).
pub const MAX_SECONDS: f64 = 1e9;

/// The minimum size of a coflow-benchmark reducer other than 0, in the trace's megabytes: a millionth of a byte. Below it,
/// splitting a size over mappers would not be reversible.
pub const MIN_REDUCER_MEGABYTES: f64 = 1e-12;

/// The minimum weight of a coflow.
pub const MIN_WEIGHT: f64 = 1e-9;

/// The maximum weight of a coflow.
pub const MAX_WEIGHT: f64 = 1e9;

/// The maximum factor by which an event changes a port's rate.
pub const MAX_PORT_RATE_FACTOR: f64 = 1e6;

/// Limits of the memory that a reader uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of flows. The same limit applies to events and to parents.
    pub max_flows: usize,
    /// The maximum length of a line, in bytes.
    pub max_line_bytes: usize,
    /// The maximum size of a compressed trace after decompression, in bytes. The other limits do not bound the time to skip blank lines.
    pub max_decompressed_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_flows: 5_000_000, max_line_bytes: 64 << 20, max_decompressed_bytes: 16 << 30 }
    }
}

impl Limits {
    /// The expected value in an error about too many of `items`.
    pub(crate) fn expected_at_most(&self, items: &str) -> String {
        format!("at most {} {items} in total (--max-flows raises this limit)", self.max_flows)
    }
}

/// Checks that a reader would accept this workload.
///
/// # Errors
/// If the workload is inconsistent, or a number is out of the bounds of traces.
pub fn check_workload(workload: &Workload) -> Result<(), WriteError> {
    workload.check()?;
    let mut total_bytes = 0.0;
    for coflow in &workload.coflows {
        let subject = || format!("coflow {}", coflow.id);
        let times = [coflow.arrival, coflow.compute_before, coflow.overlapped_compute, coflow.compute_after];
        let releases = coflow.flows.iter().map(|f| f.data_delay);
        let optional = coflow.deadline.into_iter().chain(coflow.max_transfer_time);
        times.into_iter().chain(optional).chain(releases).try_for_each(|t| check_time(t, subject))?;
        if !(MIN_WEIGHT..=MAX_WEIGHT).contains(&coflow.weight) {
            let reason =
                format!("its weight {:e} is outside {MIN_WEIGHT:e} to {MAX_WEIGHT:e}", coflow.weight);
            return Err(WriteError::Inexpressible { subject: subject(), reason });
        }
        // The sizes of endless coflows are no data of a trace.
        total_bytes += if coflow.is_endless { 0.0 } else { coflow.total_bytes() };
        if total_bytes >= MAX_BYTES {
            let reason = "the trace reaches 2^53 bytes with it".to_owned();
            return Err(WriteError::Inexpressible { subject: subject(), reason });
        }
    }
    let mut previous_time = Time::ZERO;
    for (position, event) in workload.events.iter().enumerate() {
        let subject = || format!("event {}", position + 1);
        check_time(event.time, subject)?;
        let problem = match event.change {
            _ if event.time < previous_time => Some("the time is earlier than that of the previous event"),
            WorkloadChange::PortRate { factor, .. } if factor > MAX_PORT_RATE_FACTOR => {
                Some("the rate factor is above a million")
            }
            WorkloadChange::DelayFlow { until, .. } if until < event.time => {
                Some("the end precedes the start")
            }
            _ => None,
        };
        if let Some(reason) = problem {
            return Err(WriteError::Inexpressible { subject: subject(), reason: reason.to_owned() });
        }
        if let WorkloadChange::DelayFlow { until, .. } = event.change {
            check_time(until, subject)?;
        }
        previous_time = event.time;
    }
    Ok(())
}

/// Checks that a reader would accept `time`.
fn check_time(time: Time, subject: impl Fn() -> String) -> Result<(), WriteError> {
    if time.get() <= MAX_SECONDS {
        return Ok(());
    }
    let reason = format!("a time is {:e} s, beyond {MAX_SECONDS:e} s", time.get());
    Err(WriteError::Inexpressible { subject: subject(), reason })
}
