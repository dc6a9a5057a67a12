//! Provides the shared code of the commands of `weir` and the evaluations in `weir-papers`: failures with exit codes,
//! interruption by signals, progress bars, tables, charts, drawings, records, output files, trace events, and replays that several
//! threads run.

pub mod chart;
pub mod checksum;
pub mod confidence_interval;
pub mod drawing;
pub mod failure;
pub mod interrupt;
pub mod output;
pub mod policy_spec;
pub mod problem;
#[cfg(all(feature = "live", target_os = "linux"))]
pub mod profile;
pub mod progress;
pub mod record;
pub mod report;
pub mod run;
pub mod table;
#[cfg(all(feature = "live", target_os = "linux"))]
pub mod testbed;
pub mod trace_events;
