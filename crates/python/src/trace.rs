//! Coflows: traces, jobs and services.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use weir_console::failure::Failure;
use weir_core::units::Time;
use weir_experiment::network;
use weir_experiment::options::shift_step;
use weir_experiment::source::Source;
use weir_trace::{Limits, TraceOptions, TraceUnit};

use crate::error::to_exception;

/// The coflows of a trace, of jobs, of services, or of several of these. They do not change.
#[pyclass(frozen, module = "weir._native")]
pub struct Trace {
    source: Arc<Source>,
    /// The files and how they were read; none for coflows that do not come from files.
    files: Option<TraceFiles>,
}

/// Files of coflows.
struct TraceFiles {
    paths: Vec<PathBuf>,
    options: TraceOptions,
}

impl Trace {
    /// The coflows for replays with this interval. A reader subtracts a multiple of the interval from late times: with another interval
    /// than the default one, such files are read again. With `per_stage`, the coflows of each job, stage and wave are merged.
    pub fn source(&self, interval: Option<Time>, per_stage: bool) -> Result<Arc<Source>, Failure> {
        let source = self.shifted_source(interval)?;
        if !per_stage {
            return Ok(source);
        }
        let mut merged = Source::clone(&source);
        merged.workload = source.merge_stages(&source.workload)?;
        Ok(Arc::new(merged))
    }

    fn shifted_source(&self, interval: Option<Time>) -> Result<Arc<Source>, Failure> {
        let Some(TraceFiles { paths, options }) = &self.files else { return Ok(Arc::clone(&self.source)) };
        let step = shift_step([network::interval(interval)]);
        if self.source.time_shift == Time::ZERO || options.shift_step.is_none() || options.shift_step == step
        {
            return Ok(Arc::clone(&self.source));
        }
        let options = TraceOptions { shift_step: step, ..options.clone() };
        Source::read(paths, &options, false).map(Arc::new)
    }
}

#[pymethods]
impl Trace {
    /// Reads a trace, a file of jobs, one of services, or several of these.
    #[staticmethod]
    #[pyo3(signature = (files, *, unit=None, max_flows=None, keep_arrivals=false))]
    fn read(
        py: Python<'_>,
        files: Vec<PathBuf>,
        unit: Option<&str>,
        max_flows: Option<usize>,
        keep_arrivals: bool,
    ) -> PyResult<Trace> {
        let parse = |text: &str| {
            let message = |error| PyValueError::new_err(format!("unit: `{text}`: {error}"));
            text.parse::<TraceUnit>().map_err(message)
        };
        let unit = unit.map(parse).transpose()?;
        let limits = Limits::default();
        let options = TraceOptions {
            shift_step: if keep_arrivals { None } else { shift_step([network::interval(None)]) },
            unit: unit.unwrap_or_default(),
            limits: Limits { max_flows: max_flows.unwrap_or(limits.max_flows), ..limits },
            ..TraceOptions::default()
        };
        let read = || {
            let source = Source::read(&files, &options, false)?;
            source.check_unit(unit)?;
            Ok(source)
        };
        let source = py.detach(read).map_err(to_exception)?;
        Ok(Trace { source: Arc::new(source), files: Some(TraceFiles { paths: files, options }) })
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
