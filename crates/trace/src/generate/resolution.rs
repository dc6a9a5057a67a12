//! Rounds generated sizes and arrivals to values that a format expresses.

use crate::coflow_benchmark::TraceUnit;

/// The rounding of sizes and arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Whole megabytes, at least one, and whole milliseconds, as in the public trace.
    PublicTrace,
    /// Millionths of a megabyte and of a millisecond, computed as readers of the coflow-benchmark format do: that format
    /// cannot express every whole number of bytes or nanoseconds to the last bit.
    CoflowBenchmark,
    /// Whole bytes and nanoseconds, which Weir's own format expresses.
    Weir,
}

impl Resolution {
    /// A size in megabytes of this unit, rounded and in bytes.
    pub(super) fn round_size(self, megabytes: f64, unit: TraceUnit) -> f64 {
        match self {
            Resolution::PublicTrace => megabytes.round().max(1.0) * unit.bytes(),
            Resolution::CoflowBenchmark => (megabytes * 1e6).round() / 1e6 * unit.bytes(),
            Resolution::Weir => (megabytes * unit.bytes()).round(),
        }
    }

    /// A rounded time in seconds.
    pub(super) fn round_time(self, seconds: f64) -> f64 {
        match self {
            Resolution::PublicTrace => (seconds * 1e3).round() / 1e3,
            Resolution::CoflowBenchmark => (seconds * 1e9).round() / 1e6 / 1e3,
            Resolution::Weir => (seconds * 1e9).round() / 1e9,
        }
    }
}
