//! The evaluations of the papers that Weir implements, run again: published figures beside measured ones.
//!
//! Each paper has a directory whose module says what the paper measured and what is reproduced. [`composition`] and
//! [`live`] go across papers. A figure of a paper is written down with its place in the paper; every other figure is
//! computed by the command that writes the page.

mod claim;
mod clock;
pub mod composition;
mod confidence_interval;
pub mod django;
#[cfg(all(feature = "live", target_os = "linux"))]
pub mod live;
mod markdown;
pub mod netshare;
pub mod saath;
pub mod saba;
pub mod siphon;

use weir_console::progress::Progress;
use weir_core::model::Workload;
use weir_trace::TraceUnit;

/// How an evaluation runs.
pub struct RunContext<'a> {
    /// The maximum number of concurrent replays.
    pub jobs: usize,
    /// Where progress is shown.
    pub progress: &'a Progress,
}

/// A trace that an evaluation replays.
pub struct Trace {
    /// The name of its file, without directories.
    pub name: String,
    /// The coflows.
    pub workload: Workload,
    /// What a megabyte of the trace is.
    pub unit: TraceUnit,
}

impl Trace {
    /// The options of a command that name this trace and its unit.
    fn options(&self) -> String {
        match self.unit {
            TraceUnit::MB => format!("--trace {}", self.name),
            unit => format!("--trace {} --trace-unit {unit}", self.name),
        }
    }
}
