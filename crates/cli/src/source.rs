//! Reads the trace and the jobs of a command, and describes them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::table::{format_bytes, format_count};
use weir_core::model::{ServiceNames, Workload};
use weir_core::saba::Sensitivity;
use weir_trace::{Format, Limits, TraceUnit};

use crate::args;
use crate::jobs::Jobs;

/// The coflows of a trace, of jobs, or of both.
pub struct Source {
    /// The names of the files, as given.
    pub name: String,
    /// All coflows.
    pub workload: Workload,
    /// The jobs of a file.
    pub jobs: Option<Jobs>,
    /// The sensitivities of all applications to bandwidth; empty without jobs.
    pub sensitivities: Vec<Sensitivity>,
    /// The name and the format of the trace.
    trace: Option<(String, Format)>,
}

/// The limits on the size of a trace.
pub fn limits(read_options: &args::ReadOptions) -> Limits {
    Limits { max_flows: read_options.max_flows, ..Limits::default() }
}

fn two_of_a_kind(first: &Path, second: &Path, kind: &str) -> Failure {
    Failure::input(format_args!(
        "{} and {} are both {kind}; expected one trace, one file of jobs, or one of each",
        first.display(),
        second.display()
    ))
}

impl Source {
    /// Reads a trace, a file of jobs, or one of each. With `per_stage`, merges the coflows of each job, stage and wave.
    ///
    /// # Errors
    /// If a file cannot be read or is neither, both files are of one kind, or merged stages wait for each other in a cycle.
    pub fn read(
        files: &[PathBuf],
        read_options: &args::ReadOptions,
        per_stage: bool,
    ) -> Result<Source, Failure> {
        let (job_files, traces): (Vec<&PathBuf>, Vec<&PathBuf>) =
            files.iter().partition(|file| weir_trace::jobs::is_jobs_file(file));
        if let [first, second, ..] = job_files[..] {
            return Err(two_of_a_kind(first, second, "jobs"));
        }
        if let [first, second, ..] = traces[..] {
            return Err(two_of_a_kind(first, second, "traces"));
        }
        let mut workload =
            Workload { ports: 1, coflows: Vec::new(), events: Vec::new(), names: ServiceNames::empty() };
        let mut trace_format = None;
        if let [file] = traces[..] {
            let trace = weir_trace::read(file, read_options.trace_unit, &limits(read_options))?;
            workload = trace.workload;
            trace_format = Some((file.display().to_string(), trace.format));
        }
        let read_jobs = |file: &&PathBuf| Jobs::read(file, &mut workload, read_options.max_flows);
        let jobs = job_files.first().map(read_jobs).transpose()?;
        let name = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        let sensitivities = jobs.as_ref().map_or_else(Vec::new, |jobs| jobs.sensitivities(&workload.names));
        let mut source = Source { name, workload, jobs, sensitivities, trace: trace_format };
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
        match self.trace {
            Some((_, Format::CoflowBenchmark(unit))) => Some(unit),
            Some((_, Format::Weir)) | None => None,
        }
    }

    /// The unit for records; null for formats whose sizes have units.
    fn unit_value(&self) -> Value {
        self.unit().map_or(Value::Null, |unit| unit.to_string().into())
    }

    /// The format and the unit as text, and the number of jobs.
    pub fn format_text(&self) -> String {
        let trace = self.trace.as_ref().map(|(_, format)| match format {
            Format::CoflowBenchmark(unit) => {
                format!("coflow-benchmark format, {unit} = {} bytes", unit.bytes())
            }
            Format::Weir => "Weir's format, sizes with units".to_owned(),
        });
        let jobs = self.jobs.as_ref().map(|jobs| format_count(jobs.count(), "job"));
        trace.into_iter().chain(jobs).collect::<Vec<_>>().join("; ")
    }

    /// The fields that describe the files in a record.
    pub fn record_fields(&self) -> Vec<(&'static str, Value)> {
        let trace = self.trace.as_ref().map_or(Value::Null, |(name, _)| name.as_str().into());
        let jobs = self.jobs.as_ref().map(|jobs| ("jobs_file", jobs.name.as_str().into()));
        [("trace", trace), ("trace_unit", self.unit_value())].into_iter().chain(jobs).collect()
    }

    /// The name of a job: that of the file of jobs, or its number in the trace.
    pub fn job_name(&self, number: u64) -> String {
        let name = self.jobs.as_ref().and_then(|jobs| jobs.name_of(number));
        name.map_or_else(|| number.to_string(), str::to_owned)
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
