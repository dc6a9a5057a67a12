//! Reads the trace of a command, and describes it.

use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::table::{format_bytes, format_count};
use weir_core::model::Workload;
use weir_trace::{Format, Limits, TraceUnit};

use crate::args;

/// A trace, and the format in which it was read.
pub struct Source {
    /// The name of the file, as given.
    pub name: String,
    /// The content of the trace.
    pub workload: Workload,
    /// The format of the file.
    pub format: Format,
}

/// The limits on the size of a trace.
pub fn limits(read_options: &args::ReadOptions) -> Limits {
    Limits { max_flows: read_options.max_flows, ..Limits::default() }
}

impl Source {
    /// Reads a trace. With `per_stage`, merges the coflows of each job, stage and wave.
    ///
    /// # Errors
    /// If the file cannot be read or is not a valid trace, or if merged stages wait for each other in a cycle.
    pub fn read(input: &args::TraceInput, per_stage: bool) -> Result<Source, Failure> {
        let trace =
            weir_trace::read(&input.trace, input.read_options.trace_unit, &limits(&input.read_options))?;
        let name = input.trace.display().to_string();
        let mut source = Source { name, workload: trace.workload, format: trace.format };
        if per_stage {
            source.workload = source.merge_stages(&source.workload)?;
        }
        Ok(source)
    }

    /// Merges the coflows of each job, stage and wave of `workload`, which is this trace, possibly with scaled arrivals.
    ///
    /// # Errors
    /// If merged stages wait for each other in a cycle.
    pub fn merge_stages(&self, workload: &Workload) -> Result<Workload, Failure> {
        let merged = workload.merge_stages();
        let to_failure = |error| Failure::input(format_args!("{}: with --per-stage: {error}", self.name));
        merged.check().map_err(to_failure)?;
        Ok(merged)
    }

    /// The unit of sizes, for formats whose sizes have no unit.
    pub fn unit(&self) -> Option<TraceUnit> {
        match self.format {
            Format::CoflowBenchmark(unit) => Some(unit),
            Format::Weir => None,
        }
    }

    /// The unit for records; null for formats whose sizes have units.
    pub fn unit_value(&self) -> Value {
        self.unit().map_or(Value::Null, |unit| unit.to_string().into())
    }

    /// The format and the unit as text.
    pub fn format_text(&self) -> String {
        match self.unit() {
            Some(unit) => format!("coflow-benchmark format, {unit} = {} bytes", unit.bytes()),
            None => "Weir's format, sizes with units".to_owned(),
        }
    }

    /// The total bytes of all coflows.
    pub fn bytes(&self) -> f64 {
        self.workload.coflows.iter().map(|coflow| coflow.total_bytes()).sum()
    }

    /// A line about the size and the format of the trace.
    pub fn caption(&self) -> String {
        format!(
            "{}: {}, {}, {} on {} ({})\n",
            self.name,
            format_count(self.workload.coflows.len(), "coflow"),
            format_count(self.workload.flow_count(), "flow"),
            format_bytes(self.bytes()),
            format_count(self.workload.ports, "port"),
            self.format_text(),
        )
    }
}
