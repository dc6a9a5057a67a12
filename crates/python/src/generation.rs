//! Generates traces from keyword arguments.

use std::path::PathBuf;

use pyo3::prelude::*;
use weir_core::units::Rate;
use weir_trace::generate::{Cdf, CdfError, FlowSizes, GeneratorOptions};
use weir_trace::{Limits, OutputFormat, TraceUnit};

use crate::argument::{SEED, count, integer, number, parsed, rate};
use crate::error::{Error, Result};
use crate::reading::limits;

/// The options of `weir trace generate`; all are missing or have a value.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct GeneratorArguments<'py> {
    preset: Option<Bound<'py, PyAny>>,
    seed: Option<Bound<'py, PyAny>>,
    ports: Option<Bound<'py, PyAny>>,
    coflows: Option<Bound<'py, PyAny>>,
    mappers: Option<Bound<'py, PyAny>>,
    reducers: Option<Bound<'py, PyAny>>,
    size: Option<Bound<'py, PyAny>>,
    skew: Option<Bound<'py, PyAny>>,
    arrival: Option<Bound<'py, PyAny>>,
    cdf: Option<PathBuf>,
    load: Option<Bound<'py, PyAny>>,
    port_rate: Option<Bound<'py, PyAny>>,
    incast_degree: Option<Bound<'py, PyAny>>,
    incast_load: Option<Bound<'py, PyAny>>,
    incast_size: Option<Bound<'py, PyAny>>,
    services: Option<Bound<'py, PyAny>>,
    applications: Option<Bound<'py, PyAny>>,
    unit: Option<Bound<'py, PyAny>>,
    max_flows: Option<Bound<'py, PyAny>>,
    to: Option<Bound<'py, PyAny>>,
}

/// What a generator needs.
pub struct Generator {
    /// The options.
    pub options: GeneratorOptions,
    /// The format whose resolution sizes and arrivals have.
    pub format: OutputFormat,
    /// The unit of megabytes.
    pub unit: TraceUnit,
    /// The maximum number of flows.
    pub limits: Limits,
}

impl GeneratorArguments<'_> {
    /// The requested generator.
    ///
    /// # Errors
    /// If a value is invalid, or the distribution of sizes cannot be read.
    pub fn parse(&self) -> Result<Generator> {
        const COUNT: &str = "a whole number of 1 or more";
        let default = GeneratorOptions::default();
        let options = GeneratorOptions {
            preset: optional(&self.preset, |value| parsed("preset", value))?,
            seed: optional(&self.seed, |value| integer("seed", value, SEED))?.unwrap_or(default.seed),
            ports: optional(&self.ports, |value| count("ports", value))?,
            coflows: optional(&self.coflows, |value| integer("coflows", value, COUNT))?,
            mappers: optional(&self.mappers, |value| parsed("mappers", value))?,
            reducers: optional(&self.reducers, |value| parsed("reducers", value))?,
            size: optional(&self.size, |value| parsed("size", value))?,
            skew: optional(&self.skew, |value| parsed("skew", value))?,
            arrival: optional(&self.arrival, |value| parsed("arrival", value))?,
            sizes: self.cdf.as_deref().map(Cdf::find).transpose().map_err(cdf_error)?,
            load: optional(&self.load, |value| number("load", value))?,
            port_rate: optional(&self.port_rate, |value| rate("port_rate", value))?.unwrap_or(Rate::GBIT),
            incast_degree: optional(&self.incast_degree, |value| count("incast_degree", value))?,
            incast_load: optional(&self.incast_load, |value| number("incast_load", value))?,
            incast_size: optional(&self.incast_size, |value| parsed("incast_size", value))?,
            services: optional(&self.services, |value| integer("services", value, COUNT))?.unwrap_or(1),
            applications: optional(&self.applications, |value| integer("applications", value, COUNT))?
                .unwrap_or(1),
        };
        let unit = optional(&self.unit, |value| parsed("unit", value))?.unwrap_or_default();
        let to: Option<String> = optional(&self.to, |value| parsed("to", value))?;
        let format = output_format(to.as_deref(), unit)?;
        let limits = limits(self.max_flows.as_ref())?;
        Ok(Generator { options, format, unit, limits })
    }
}

fn optional<'py, T>(
    value: &Option<Bound<'py, PyAny>>,
    parse: impl FnOnce(&Bound<'py, PyAny>) -> Result<T>,
) -> Result<Option<T>> {
    value.as_ref().map(parse).transpose()
}

fn cdf_error(error: CdfError) -> Error {
    match error {
        CdfError::NotFound { name, source } => {
            let names = FlowSizes::ALL.map(|sizes| sizes.to_string()).join(", ");
            Error::parameter("cdf", name, format_args!("a file, or one of {names} ({source})"))
        }
        CdfError::File(error) => error.into(),
    }
}

/// The format of a name; Weir's own by default.
pub fn output_format(name: Option<&str>, unit: TraceUnit) -> Result<OutputFormat> {
    match name {
        None | Some("weir") => Ok(OutputFormat::Weir),
        Some("coflow-benchmark") => Ok(OutputFormat::CoflowBenchmark(unit)),
        Some(other) => Err(Error::parameter("to", other, "weir or coflow-benchmark")),
    }
}
