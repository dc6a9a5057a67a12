//! Reads the trace, the jobs and the services of a command, and describes them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::table::{format_bytes, format_count};
use weir_core::model::{CoflowKey, ServiceNames, Workload};
use weir_core::saba::Sensitivity;
use weir_core::units::Time;
use weir_fields::FileError;
use weir_trace::{Format, SourceKind, Trace, TraceOptions, TraceUnit, WriteError};

use crate::embedded_network::EmbeddedNetwork;
use crate::jobs::Jobs;
use crate::services::{self, Services};

/// The coflows of a trace, of jobs, of services, or of several of these.
#[derive(Clone)]
pub struct Source {
    /// The names of the files, as given.
    pub name: String,
    /// All coflows.
    pub workload: Workload,
    /// The jobs of a file.
    pub jobs: Option<Jobs>,
    /// The services of a file.
    pub services: Option<Services>,
    /// The network that a file contains.
    pub network: Option<EmbeddedNetwork>,
    /// The sensitivities of all applications to bandwidth; empty without jobs.
    pub sensitivities: Vec<Sensitivity>,
    /// The keys in which coflows of the trace differ. The applications of jobs and services are not keys.
    pub trace_keys: Vec<CoflowKey>,
    /// The duration by which all times are earlier than in the trace.
    pub time_shift: Time,
    /// The names of the first ports of the trace.
    pub port_names: Vec<String>,
    /// What the trace contains that its workload does not express.
    pub warnings: Vec<String>,
    /// The name and the format of the trace.
    trace: Option<(String, Format)>,
}

/// Checks that the coflows of all sources are within the bounds of traces. `name` is the file that was added last.
///
/// # Errors
/// If a value is out of bounds.
fn check_bounds(name: &str, workload: &Workload) -> Result<(), Failure> {
    weir_trace::check_workload(workload).map_err(|error| match error {
        WriteError::Inexpressible { subject, reason } => {
            Failure::input(format_args!("{name}: {subject}: {reason}; expected less data and shorter times"))
        }
        other => Failure::input(format_args!("{name}: {other}")),
    })
}

/// The file of each kind: of traces, of jobs and of services.
///
/// # Errors
/// If a file does not exist, or two files are of one kind.
fn files_by_kind(files: &[PathBuf]) -> Result<[Option<&Path>; 3], Failure> {
    let mut found =
        [(SourceKind::Trace, TRACES), (SourceKind::Jobs, "jobs"), (SourceKind::Services, "services")]
            .map(|(kind, name)| (kind, name, None));
    for file in files {
        if file.as_os_str() != "-" {
            let name = || file.display().to_string();
            std::fs::metadata(file).map_err(|source| FileError::Io { file: name(), source })?;
        }
        let detected = SourceKind::detect(file);
        for (_, name, of_kind) in found.iter_mut().filter(|(kind, ..)| *kind == detected) {
            if let Some(first) = of_kind.replace(file.as_path()) {
                return Err(two_of_a_kind(first, file, name));
            }
        }
    }
    Ok(found.map(|(.., file)| file))
}

/// Several traces, in messages.
const TRACES: &str = "traces";

fn two_of_a_kind(first: &Path, second: &Path, kind: &str) -> Failure {
    let help = if kind == TRACES { "; help: `weir sweep` replays several traces" } else { "" };
    Failure::input(format_args!(
        "{} and {} are both {kind}; expected at most one trace, one file of jobs and one of services{help}",
        first.display(),
        second.display()
    ))
}

impl Source {
    /// Reads a trace, a file of jobs, one of services, or several of these. With `per_stage`, merges the coflows of each job, stage and
    /// wave.
    ///
    /// # Errors
    /// If a file cannot be read or is none of these, two files are of one kind, there are no coflows, or merged stages wait for each
    /// other in a cycle.
    pub fn read(files: &[PathBuf], options: &TraceOptions, per_stage: bool) -> Result<Source, Failure> {
        let [trace_file, job_file, service_file] = files_by_kind(files)?;
        let read_trace = |file: &Path| {
            // Jobs and services have times from 0.
            let step = options.shift_step.filter(|_| job_file.is_none() && service_file.is_none());
            let trace = weir_trace::read(file, &TraceOptions { shift_step: step, ..options.clone() })?;
            Ok::<_, Failure>((file.display().to_string(), trace))
        };
        let trace = trace_file.map(read_trace).transpose()?;
        let max_flows = options.limits.max_flows;
        let mut source = Source::combine(trace, job_file, service_file, max_flows)?;
        source.name = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        if source.workload.coflows.is_empty() {
            return Err(Failure::input(format_args!("{}: no coflows; expected at least one", source.name)));
        }
        if per_stage {
            source.workload = source.merge_stages(&source.workload)?;
        }
        Ok(source)
    }

    /// A trace with its name.
    ///
    /// # Errors
    /// If there are no coflows.
    pub fn from_trace(name: &str, trace: Trace) -> Result<Source, Failure> {
        let source = Source::combine(Some((name.to_owned(), trace)), None, None, usize::MAX)?;
        match source.workload.coflows.is_empty() {
            true => Err(Failure::input(format_args!("{name}: no coflows; expected at least one"))),
            false => Ok(source),
        }
    }

    /// The coflows of a trace, of jobs and of services together, in this order.
    fn combine(
        trace: Option<(String, Trace)>,
        job_file: Option<&Path>,
        service_file: Option<&Path>,
        max_flows: usize,
    ) -> Result<Source, Failure> {
        let mut source = Source::empty();
        if let Some((name, trace)) = trace {
            source.warnings = trace.warnings.iter().map(|warning| format!("{name}: {warning}")).collect();
            source.workload = trace.workload;
            (source.time_shift, source.port_names) = (trace.time_shift, trace.port_names);
            source.trace_keys =
                CoflowKey::ALL.into_iter().filter(|key| source.workload.differs_in(*key)).collect();
            source.name.clone_from(&name);
            source.trace = Some((name, trace.format));
        }
        let workload = &mut source.workload;
        let read_jobs = |file: &Path| {
            let (jobs, network) = Jobs::read(file, workload, max_flows)?;
            check_bounds(&jobs.name, workload)?;
            Ok::<_, Failure>((jobs, network))
        };
        let (jobs, jobs_network) = job_file.map(read_jobs).transpose()?.unzip();
        let scenario = service_file.map(services::read).transpose()?;
        let (scenario, services_network) = scenario.unzip();
        let network = match (jobs_network, services_network) {
            (Some(jobs), Some(services)) => Some(EmbeddedNetwork::combine(jobs, services)?),
            (jobs, services) => jobs.or(services),
        };
        let events = network.as_ref().map_or(&[][..], |network| &network.cable_events);
        let workload = &mut source.workload;
        let add = |scenario| {
            let services = Services::add(scenario, workload, events, max_flows)?;
            check_bounds(&services.name, workload)?;
            Ok::<_, Failure>(services)
        };
        source.services = scenario.map(add).transpose()?;
        source.sensitivities =
            jobs.as_ref().map_or_else(Vec::new, |jobs: &Jobs| jobs.sensitivities(&source.workload.names));
        (source.jobs, source.network) = (jobs, network);
        Ok(source)
    }

    fn empty() -> Source {
        Source {
            name: String::new(),
            workload: Workload {
                ports: 1,
                coflows: Vec::new(),
                events: Vec::new(),
                names: ServiceNames::empty(),
            },
            jobs: None,
            services: None,
            network: None,
            sensitivities: Vec::new(),
            trace_keys: Vec::new(),
            time_shift: Time::ZERO,
            port_names: Vec::new(),
            warnings: Vec::new(),
            trace: None,
        }
    }

    /// Shifts late times as the reader of the trace would with another step than that of [`TraceOptions`]; only if it has shifted them.
    ///
    /// # Errors
    /// If times are too late with this step.
    pub fn shift_again(&mut self, step: Time) -> Result<(), Failure> {
        let shift =
            weir_trace::shift_again(&mut self.workload, self.time_shift, step).map_err(|expected| {
                Failure::input(format_args!(
                    "{}: times are too late for this interval; expected {expected}",
                    self.name
                ))
            })?;
        self.time_shift = shift;
        Ok(())
    }

    /// Checks that `--trace-unit` has an effect.
    ///
    /// # Errors
    /// If sizes of the trace have units.
    pub fn check_unit(&self, unit: Option<TraceUnit>) -> Result<(), Failure> {
        match (&self.trace, unit) {
            (Some((name, format)), Some(unit)) if format.unit().is_none() => {
                let problem = format!("{name} is in {}, whose sizes have units", format.name());
                Err(Failure::option("trace-unit", unit, problem, "no --trace-unit"))
            }
            _ => Ok(()),
        }
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
        self.trace.as_ref().and_then(|(_, format)| format.unit())
    }

    /// The format of the trace.
    pub fn format(&self) -> Option<Format> {
        self.trace.as_ref().map(|(_, format)| *format)
    }

    /// The unit for records; null for formats whose sizes have units.
    fn unit_value(&self) -> Value {
        self.unit().map_or(Value::Null, |unit| unit.to_string().into())
    }

    /// The format and the unit as text, and the numbers of jobs and of services.
    pub fn format_text(&self) -> String {
        let trace = self.trace.as_ref().map(|(_, format)| match format.unit() {
            Some(unit) => format!("{}, {unit} = {} bytes", format.name(), unit.bytes()),
            None if *format == Format::Weir => format!("{}, sizes with units", format.name()),
            None => format.name().to_owned(),
        });
        let jobs = self.jobs.as_ref().map(|jobs| format_count(jobs.count(), "job"));
        let services = self.services.as_ref().map(Services::caption);
        let shift = (self.time_shift != Time::ZERO)
            .then(|| format!("times are {} earlier, --keep-arrivals keeps them", self.time_shift));
        trace.into_iter().chain(shift).chain(jobs).chain(services).collect::<Vec<_>>().join("; ")
    }

    /// The fields that describe the files in a record.
    pub fn record_fields(&self) -> Vec<(&'static str, Value)> {
        let trace = self.trace.as_ref().map_or(Value::Null, |(name, _)| name.as_str().into());
        let jobs = self.jobs.as_ref().map(|jobs| ("jobs_file", jobs.name.as_str().into()));
        let services =
            self.services.as_ref().map(|services| ("services_file", services.name.as_str().into()));
        let shift = ("time_shift_s", self.time_shift.get().into());
        let trace = [("trace", trace), ("trace_unit", self.unit_value()), shift];
        trace.into_iter().chain(jobs).chain(services).collect()
    }

    /// The name of a job: that of the file of jobs, or its number in the trace.
    pub fn job_name(&self, number: u64) -> String {
        let name = self.jobs.as_ref().and_then(|jobs| jobs.name_of(number));
        name.map_or_else(|| number.to_string(), str::to_owned)
    }

    /// The total bytes of all finite coflows.
    pub fn bytes(&self) -> f64 {
        self.workload.finite_coflows().iter().map(|coflow| coflow.total_bytes()).sum()
    }

    /// The name of the file with the most ports: the trace, since jobs and services contain their network.
    pub fn largest_file(&self) -> &str {
        self.trace.as_ref().map_or(&self.name, |(name, _)| name)
    }

    /// Whether only services send, whose coflows do not end by sending their bytes.
    pub fn is_services_alone(&self) -> bool {
        self.services.is_some() && self.workload.finite_coflows().is_empty()
    }

    /// A line about the size and the format of the trace.
    pub fn caption(&self) -> String {
        let (ports, format) = (format_count(self.workload.ports, "port"), self.format_text());
        if self.is_services_alone() {
            return format!("{}: {ports} ({format})\n", self.name);
        }
        format!(
            "{}: {}, {}, {} on {ports} ({format})\n",
            self.name,
            format_count(self.workload.finite_coflows().len(), "coflow"),
            format_count(self.workload.finite_flow_count(), "flow"),
            format_bytes(self.bytes()),
        )
    }
}
