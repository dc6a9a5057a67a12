//! Reading the trace that a command is about.

use serde_json::Value;
use weir_core::model::Workload;
use weir_trace::{Format, Limits, TraceUnit};

use crate::args;
use weir_console::failure::Failure;

/// A trace that was read, and what it was read as.
pub struct Source {
    /// The name it was asked for by.
    pub name: String,
    /// What it says.
    pub workload: Workload,
    /// How it said so.
    pub format: Format,
}

/// Bounds of what is read.
pub fn limits(reading: &args::Reading) -> Limits {
    Limits { max_flows: reading.max_flows, ..Limits::default() }
}

impl Source {
    /// Reads what `input` names; one coflow for every stage if asked.
    ///
    /// # Errors
    /// If it cannot be read, or is not a trace.
    pub fn read(input: &args::Input, per_stage: bool) -> Result<Source, Failure> {
        let trace = weir_trace::read(&input.trace, input.reading.trace_unit, &limits(&input.reading))?;
        let mut source = Source {
            name: input.trace.display().to_string(),
            workload: trace.workload,
            format: trace.format,
        };
        if per_stage {
            source.workload = source.per_stage(&source.workload)?;
        }
        Ok(source)
    }

    /// One coflow for every stage of a workload that is this one, or this one at another speed.
    ///
    /// # Errors
    /// Stages that wait for each other in a circle, where their coflows do not.
    pub fn per_stage(&self, workload: &Workload) -> Result<Workload, Failure> {
        let merged = workload.per_stage();
        let wrong = |error| Failure::input(format_args!("{}: with --per-stage: {error}", self.name));
        merged.check().map_err(wrong)?;
        Ok(merged)
    }

    /// What a megabyte of the trace was taken for, where the trace itself does not say.
    pub fn unit(&self) -> Option<TraceUnit> {
        match self.format {
            Format::CoflowBenchmark(unit) => Some(unit),
            Format::Weir => None,
        }
    }

    /// The unit as programs read it.
    pub fn unit_value(&self) -> Value {
        self.unit().map_or(Value::Null, |unit| unit.to_string().into())
    }

    /// The format, and the unit in words.
    pub fn understood(&self) -> String {
        match self.unit() {
            Some(unit) => format!("coflow-benchmark format, {unit} = {} bytes", unit.bytes()),
            None => "Weir's format, sizes with units".to_owned(),
        }
    }
}
