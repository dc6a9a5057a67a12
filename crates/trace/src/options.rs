//! How to read a trace.

use weir_core::units::Time;

use crate::bounds::Limits;
use crate::coflow_benchmark::TraceUnit;
use crate::import::Columns;

/// How to read a trace.
#[derive(Debug, Clone, Default)]
pub struct TraceOptions {
    /// The unit of sizes in formats that do not define it.
    pub unit: TraceUnit,
    /// Limits of memory.
    pub limits: Limits,
    /// If all coflows without parents arrive after 10^6 s, as at Unix times, all times are earlier by the largest multiple of this that
    /// leaves no arrival negative.
    pub shift_step: Option<Time>,
    /// The format. By default, the first lines decide.
    pub format: Option<InputFormat>,
    /// Whether flows from a port to itself keep their bytes, and use the port in both directions. By default, they do in the public format
    /// and in Weir's own, and not in formats of other programs.
    pub keeps_local_flows: Option<bool>,
}

/// A format to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputFormat {
    /// [`crate::coflow_benchmark`].
    CoflowBenchmark,
    /// [`mod@crate::format`].
    Weir,
    /// Sunflow's variant of the public format.
    Sunflow,
    /// The output of Sincronia's generator.
    Sincronia,
    /// Connections of the packet simulator htsim.
    Htsim,
    /// The list of flows of the simulator of HPCC.
    Hpcc,
    /// The event log of a Spark application.
    Spark,
    /// A table with a flow in each line.
    Flows(Box<Columns>),
}
