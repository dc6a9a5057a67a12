//! Coflows: traces, jobs and services.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use weir_console::failure::Failure;
use weir_core::units::Time;
use weir_experiment::descriptions::trace_object;
use weir_experiment::network;
use weir_experiment::options::shift_step;
use weir_experiment::source::Source;
use weir_trace::describe::{self, WorkloadStatistics};
use weir_trace::{Format, InputFormat, Limits, OutputFormat, TraceOptions};

use crate::argument;
use crate::error::{Error, Result, to_json};
use crate::frame::{self, FrameText};
use crate::generation::{Generator, GeneratorArguments, output_format};
use crate::reading::{ReadArguments, limits};
use crate::table::Table;
use crate::workload_table;

/// The coflows of a trace, of jobs, of services, or of several of these. They do not change.
#[pyclass(frozen, module = "weir._native")]
pub struct Trace {
    source: Arc<Source>,
}

impl Trace {
    /// The coflows for replays with this interval. A reader subtracts a multiple of the interval from late times: with another interval
    /// than the default one, they are shifted again. Coflows arrive faster by the factor `arrival`. With `per_stage`, the coflows of each
    /// job, stage and wave are merged after that, so that releases of later stages are scaled too.
    pub fn source(
        &self,
        interval: Option<Time>,
        arrival: f64,
        per_stage: bool,
    ) -> std::result::Result<Arc<Source>, Failure> {
        let source = self.shifted_source(interval)?;
        if arrival == 1.0 && !per_stage {
            return Ok(source);
        }
        let mut changed = Source::clone(&source);
        if arrival != 1.0 {
            changed.workload = changed.workload.with_faster_arrivals(arrival);
        }
        if per_stage {
            changed.workload = source.merge_stages(&changed.workload)?;
        }
        Ok(Arc::new(changed))
    }

    fn shifted_source(&self, interval: Option<Time>) -> std::result::Result<Arc<Source>, Failure> {
        let mut source = Arc::clone(&self.source);
        let [of_reader, requested] =
            [None, interval].map(|interval| shift_step([network::interval(interval)]));
        if let Some(step) = requested.filter(|_| requested != of_reader && source.time_shift != Time::ZERO) {
            Arc::make_mut(&mut source).shift_again(step)?;
        }
        Ok(source)
    }
}

impl Trace {
    fn from_trace(name: &str, trace: weir_trace::Trace) -> Result<Trace> {
        Ok(Trace { source: Arc::new(Source::from_trace(name, trace)?) })
    }

    /// The coflows of a trace alone, without jobs and services, which have their own files.
    fn trace_alone(&self) -> Result<weir_trace::Trace> {
        let source = &self.source;
        let (Some(format), None, None) = (source.format(), &source.jobs, &source.services) else {
            return Err(Error::input(format_args!(
                "{}: jobs or services; expected a trace alone",
                source.name
            )));
        };
        Ok(weir_trace::Trace {
            workload: source.workload.clone(),
            format,
            time_shift: source.time_shift,
            port_names: source.port_names.clone(),
            warnings: Vec::new(),
        })
    }
}

fn services_error(source: &Source) -> Error {
    let message = "connections of services have no sizes; expected a trace or jobs";
    Error::input(format_args!("{}: {message}", source.name))
}

#[pymethods]
impl Trace {
    /// Reads a trace, a file of jobs, one of services, or several of these.
    #[staticmethod]
    fn read(py: Python<'_>, files: Vec<PathBuf>, arguments: ReadArguments<'_>) -> Result<Trace> {
        let (options, unit) = arguments.parse()?;
        let source = py.detach(|| {
            let source = Source::read(&files, &options, false)?;
            source.check_unit(unit)?;
            Ok::<_, Failure>(source)
        })?;
        Ok(Trace { source: Arc::new(source) })
    }

    /// Reads the bytes of a file.
    #[staticmethod]
    fn from_bytes(
        py: Python<'_>,
        data: PyBackedBytes,
        name: &str,
        arguments: ReadArguments<'_>,
    ) -> Result<Trace> {
        let (options, unit) = arguments.parse()?;
        py.detach(|| {
            let trace = Trace::from_trace(name, weir_trace::read_from(&data[..], name, &options)?)?;
            trace.source.check_unit(unit)?;
            Ok(trace)
        })
    }

    /// Reads a table of flows.
    #[staticmethod]
    fn from_frame(
        py: Python<'_>,
        frame: &Bound<'_, PyAny>,
        columns: Vec<frame::Request>,
        optional: bool,
        name: &str,
        arguments: ReadArguments<'_>,
    ) -> Result<Trace> {
        let (options, _) = arguments.parse()?;
        let FrameText { text, columns } = frame::read(frame, &columns, optional, name)?;
        let options = TraceOptions { format: Some(InputFormat::Flows(Box::new(columns))), ..options };
        py.detach(|| Trace::from_trace(name, weir_trace::read_from(&text[..], name, &options)?))
    }

    /// Generates a random trace.
    #[staticmethod]
    fn generate(py: Python<'_>, name: &str, arguments: GeneratorArguments<'_>) -> Result<Trace> {
        let Generator { options, format, unit, limits } = arguments.parse()?;
        py.detach(|| {
            let workload = options.generate(format.resolution(), unit, &limits)?;
            let format = match format {
                OutputFormat::Weir => Format::Weir,
                OutputFormat::CoflowBenchmark(unit) => Format::CoflowBenchmark(unit),
            };
            let (port_names, warnings) = (Vec::new(), Vec::new());
            let trace = weir_trace::Trace { workload, format, time_shift: Time::ZERO, port_names, warnings };
            Trace::from_trace(name, trace)
        })
    }

    /// All coflows and events of several traces.
    #[staticmethod]
    fn merge(
        py: Python<'_>,
        traces: Vec<Bound<'_, Trace>>,
        name: &str,
        max_flows: Option<Bound<'_, PyAny>>,
    ) -> Result<Trace> {
        let max_flows = limits(max_flows.as_ref())?.max_flows;
        let traces = traces.iter().map(|trace| trace.get().trace_alone()).collect::<Result<Vec<_>>>()?;
        py.detach(|| {
            let time_shift = traces.iter().map(|trace| trace.time_shift.get()).fold(f64::INFINITY, f64::min);
            let (workload, port_names) = weir_trace::merge::merge(traces).map_err(Error::input)?;
            let flows = workload.flow_count();
            if flows > max_flows {
                let expected = format!("at most {max_flows} in total (`max_flows`)");
                return Err(Error::parameter("flows", flows, expected));
            }
            let time_shift = Time::new(time_shift).unwrap_or(Time::ZERO);
            let (format, warnings) = (Format::Weir, Vec::new());
            Trace::from_trace(name, weir_trace::Trace { workload, format, time_shift, port_names, warnings })
        })
    }

    /// The text of the trace in a format.
    fn to_bytes<'py>(
        &self,
        py: Python<'py>,
        to: &str,
        unit: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyBytes>> {
        let unit = unit.map(|unit| argument::parsed("unit", &unit)).transpose()?.unwrap_or_default();
        let format = output_format(Some(to), unit)?;
        let Source { jobs, services, workload, port_names, .. } = &*self.source;
        if services.is_some() {
            return Err(services_error(&self.source));
        }
        if jobs.is_some() {
            let message = "jobs have a network, which a trace does not express; expected a trace alone";
            return Err(Error::input(format_args!("{}: {message}", self.source.name)));
        }
        let text = py.detach(|| {
            format.write(workload, port_names).map_err(|error| {
                match OutputFormat::needs_weir(&error, workload, port_names) {
                    true => {
                        Error::input(format_args!("{error}; expected the format weir, which can express it"))
                    }
                    false => error.into(),
                }
            })
        })?;
        Ok(PyBytes::new(py, &text))
    }

    /// What another process needs in addition to the bytes in Weir's format: the format, its unit and the shift of times in seconds; none
    /// with jobs or services.
    #[getter]
    fn state(&self) -> Option<(&'static str, Option<String>, f64)> {
        let trace =
            (self.source.jobs.is_none() && self.source.services.is_none()).then(|| self.source.format());
        let format = trace.flatten()?;
        Some((format.name(), format.unit().map(|unit| unit.to_string()), self.source.time_shift.get()))
    }

    /// The trace of such bytes and such a state.
    #[staticmethod]
    fn restore(
        py: Python<'_>,
        data: PyBackedBytes,
        name: &str,
        state: (String, Option<Bound<'_, PyAny>>, f64),
    ) -> Result<Trace> {
        let (format_name, unit, time_shift) = state;
        let unit = unit.map(|unit| argument::parsed("unit", &unit)).transpose()?.unwrap_or_default();
        let format = Format::all(unit).into_iter().find(|format| format.name() == format_name);
        let format =
            format.ok_or_else(|| Error::parameter("format", &format_name, "the name of a format"))?;
        let time_shift = Time::new(time_shift).unwrap_or(Time::ZERO);
        py.detach(|| {
            let limits = Limits { max_flows: usize::MAX, ..Limits::default() };
            let options = TraceOptions { limits, ..TraceOptions::default() };
            let trace = weir_trace::read_from(&data[..], name, &options)?;
            Trace::from_trace(name, weir_trace::Trace { format, time_shift, ..trace })
        })
    }

    /// The statistics of the trace, as JSON.
    fn describe(&self, py: Python<'_>, per_stage: bool) -> Result<String> {
        py.detach(|| {
            let source = self.source(None, 1.0, per_stage)?;
            if source.services.is_some() {
                return Err(services_error(&source));
            }
            let threshold = describe::bin_threshold(source.unit().unwrap_or_default());
            let statistics = WorkloadStatistics::new(&source.workload, threshold).map_err(Error::input)?;
            Ok(to_json(&trace_object(&source, &statistics)))
        })
    }

    /// A row for each coflow.
    #[getter]
    fn coflows(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| workload_table::coflows(&self.source))
    }

    /// A row for each flow.
    #[getter]
    fn flows(&self, py: Python<'_>) -> PyResult<Table> {
        py.detach(|| workload_table::flows(&self.source))
    }

    /// The names of the files, or of the trace.
    #[getter]
    fn name(&self) -> &str {
        &self.source.name
    }

    /// Number of ports.
    #[getter]
    fn ports(&self) -> u32 {
        self.source.workload.ports
    }

    /// The names of ports.
    #[getter]
    fn port_names(&self) -> Vec<String> {
        self.source.port_names.clone()
    }

    /// What the files contain that a replay does not express.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.source.warnings.clone()
    }

    /// One line about size and format.
    #[getter]
    fn caption(&self) -> String {
        self.source.caption().trim_end().to_owned()
    }

    /// Number of coflows.
    fn __len__(&self) -> usize {
        self.source.workload.coflows.len()
    }
}
