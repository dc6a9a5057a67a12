//! Reproduces the evaluations of the papers that Weir implements: pages with published figures next to measured ones.
//!
//! Each paper has a module, whose documentation lists the measurements of the paper and the reproduced ones.
//! [`composition`] and [`live`] combine papers, [`fabrics`] compares their policies on networks with several links, and
//! [`own_policy`] compares them with Weir's own policy.
//! Published figures are constants with a citation. The command that writes a page computes all other figures.

mod claim;
pub mod composition;
pub mod django;
pub mod fabrics;
#[cfg(all(feature = "live", target_os = "linux"))]
pub mod live;
mod markdown;
pub mod netshare;
pub mod own_policy;
mod picture;
pub mod saath;
pub mod saba;
pub mod siphon;

pub use picture::{FOLDER as PICTURE_FOLDER, Page, Picture};

use weir_console::progress::Progress;
use weir_core::model::Workload;
use weir_trace::TraceUnit;

/// How an evaluation runs.
pub struct RunContext<'a> {
    /// The maximum number of concurrent replays.
    pub jobs: usize,
    /// The progress bars.
    pub progress: &'a Progress,
}

/// A trace that an evaluation replays.
pub struct Trace {
    /// The name of its file, without directories.
    pub name: String,
    /// The coflows.
    pub workload: Workload,
    /// The size of a megabyte in the trace.
    pub unit: TraceUnit,
}

impl Trace {
    /// The options of `weir reproduce` for this trace and its unit.
    fn options(&self) -> String {
        match self.unit {
            TraceUnit::MB => format!("--trace {}", self.name),
            unit => format!("--trace {} --trace-unit {unit}", self.name),
        }
    }
}
