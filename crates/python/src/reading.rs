//! How to read traces, from keyword arguments.

use pyo3::prelude::*;
use weir_experiment::network;
use weir_experiment::options::shift_step;
use weir_trace::import::{Columns, ColumnsError};
use weir_trace::{InputFormat, Limits, TraceOptions, TraceUnit};

use crate::argument::{self, integer};
use crate::error::{Error, Result};

/// How to read a trace, as keyword arguments.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ReadArguments<'py> {
    unit: Option<Bound<'py, PyAny>>,
    max_flows: Option<Bound<'py, PyAny>>,
    keep_arrivals: bool,
    format: Option<String>,
    columns: Option<String>,
    local_flows: Option<String>,
}

impl ReadArguments<'_> {
    /// The options of a reader, and the unit that was requested.
    /// # Errors
    /// If a value is invalid.
    pub fn parse(&self) -> Result<(TraceOptions, Option<TraceUnit>)> {
        let unit = self.unit.as_ref().map(|unit| argument::parsed("unit", unit)).transpose()?;
        let columns = self.columns.as_deref().map(str::parse).transpose();
        let columns = columns
            .map_err(|error: ColumnsError| Error::parameter("columns", error.value, error.expected))?;
        let keeps_local_flows = match self.local_flows.as_deref() {
            None => None,
            Some("drop") => Some(false),
            Some("keep") => Some(true),
            Some(other) => return Err(Error::parameter("local_flows", other, "keep or drop")),
        };
        let options = TraceOptions {
            shift_step: if self.keep_arrivals { None } else { shift_step([network::interval(None)]) },
            unit: unit.unwrap_or_default(),
            limits: limits(self.max_flows.as_ref())?,
            format: input_format(self.format.as_deref(), columns)?,
            keeps_local_flows,
        };
        Ok((options, unit))
    }
}

/// The format with this name; none if the first lines decide.
fn input_format(name: Option<&str>, columns: Option<Columns>) -> Result<Option<InputFormat>> {
    Ok(match (name, columns) {
        (None | Some("flows"), Some(columns)) => Some(InputFormat::Flows(Box::new(columns))),
        (Some(name), Some(_)) => {
            return Err(Error::parameter("format", name, "`flows`, or no format, with `columns`"));
        }
        (Some("flows"), None) => {
            let expected =
                "`columns` too, such as columns={\"src\": \"1\", \"dst\": \"2\", \"bytes\": \"3\"}";
            return Err(Error::parameter("format", "flows", expected));
        }
        (None, None) => None,
        (Some(name), None) => Some(match name {
            "coflow-benchmark" => InputFormat::CoflowBenchmark,
            "weir" => InputFormat::Weir,
            "sunflow" => InputFormat::Sunflow,
            "sincronia" => InputFormat::Sincronia,
            "htsim" => InputFormat::Htsim,
            "hpcc" => InputFormat::Hpcc,
            "spark" => InputFormat::Spark,
            _ => {
                let expected = "coflow-benchmark, weir, sunflow, sincronia, htsim, hpcc, spark or flows";
                return Err(Error::parameter("format", name, expected));
            }
        }),
    })
}

/// The limits of a reader or a generator.
pub fn limits(max_flows: Option<&Bound<'_, PyAny>>) -> Result<Limits> {
    let limits = Limits::default();
    let parse = |value| {
        let flows = integer("max_flows", value, MAX_FLOWS)?;
        match (1..=100_000_000).contains(&flows) {
            true => Ok(flows),
            false => Err(Error::parameter("max_flows", flows, MAX_FLOWS)),
        }
    };
    Ok(Limits { max_flows: max_flows.map_or(Ok(limits.max_flows), parse)?, ..limits })
}

/// The range of the maximum number of flows, as for the command line.
const MAX_FLOWS: &str = "a whole number from 1 to 100000000";
