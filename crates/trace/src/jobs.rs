//! Reads jobs from TOML: which workloads run on which hosts of a network, and when.
//!
//! `docs/jobs-format.md` is the reference. Rates, sizes and times have units; unknown keys are refused. A reader returns
//! consistent [`Jobs`], or a [`FileError`] that names the line, the field, the value and the expected value.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use weir_core::model::topology::CableEvent;
use weir_core::model::{NodeId, ServiceNames, Stage, Topology};
use weir_core::units::{Bytes, Time};
use weir_fields::{FileError, FileKind, TableFields, Value};

use crate::scenario::{read_fabric, read_hosts, read_table_list};
use crate::sensitivity::{self, SensitivityTable};

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The maximum number of jobs in a file.
pub const MAX_JOBS: usize = 1000;

/// The maximum number of stages of a workload, including repetitions by rounds.
pub const MAX_STAGES: usize = 10_000;

/// The maximum of `data`; the minimum is 1 divided by it.
pub const MAX_DATA_SCALE: f64 = 1e6;

/// The latest start, in seconds: one year.
pub const MAX_START_SECONDS: f64 = 31_536_000.0;

/// The content of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Jobs {
    /// The network.
    pub topology: Topology,
    /// The events of the network's cables.
    pub cable_events: Vec<CableEvent>,
    /// The workloads that the file defines.
    pub workloads: Vec<Workload>,
    /// The sensitivity table that the file names.
    pub sensitivity: Option<SensitivityTable>,
    /// The jobs, at least one.
    pub jobs: Vec<Job>,
}

/// The stages that a job runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Its stages, in order.
    pub stages: Vec<Stage>,
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its name, unique in the file.
    pub name: String,
    /// Its workload.
    pub workload: WorkloadRef,
    /// Its hosts, each once.
    pub servers: Vec<u32>,
    /// The amount of data divided by that of the workload in the paper; only for [`WorkloadRef::Predefined`].
    pub data_scale: f64,
    /// The start time.
    pub start: Time,
    /// The model that Saba uses for it.
    pub model: ModelRef,
}

/// The origin of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadRef {
    /// Defined in the file, by index.
    InFile(usize),
    /// One of the caller's workloads, by index.
    Predefined(usize),
}

/// The origin of a sensitivity model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelRef {
    /// A row of the sensitivity table.
    TableRow(usize),
    /// The result of profiling a workload.
    Profiled(WorkloadRef),
}

/// Reads the jobs at `path`; `-` is the standard input. Names of files in it are relative to its folder. A job's workload
/// is one that the file defines, or one of `predefined`.
///
/// # Errors
/// [`FileError::Io`] if a file cannot be read; [`FileError::Field`] for the first invalid field.
pub fn read(path: &Path, predefined: &[&str]) -> Result<Jobs, FileError> {
    weir_fields::read_file_in_folder(path, |input, name, folder| read_from(input, name, folder, predefined))
}

/// Reads jobs from `input`, which errors call `name`. Names of files in it are relative to `folder`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(
    input: R,
    name: &str,
    folder: &Path,
    predefined: &[&str],
) -> Result<Jobs, FileError> {
    weir_fields::read_versioned(input, name, MAX_FILE_BYTES, (FileKind::Jobs, VERSION), |fields| {
        from_fields(fields, folder, predefined)
    })
}

/// The jobs described by the keys of a file.
fn from_fields(mut fields: TableFields<'_>, folder: &Path, predefined: &[&str]) -> Result<Jobs, FileError> {
    let (topology, cable_events) = read_fabric(&mut fields, folder)?;
    let sensitivity = read_sensitivity_table(&mut fields, folder)?;
    let mut names: BTreeMap<String, WorkloadRef> = BTreeMap::new();
    names.extend(
        predefined
            .iter()
            .enumerate()
            .map(|(index, name)| ((*name).to_owned(), WorkloadRef::Predefined(index))),
    );
    let mut workloads = Vec::new();
    if let Some(value) = fields.optional("workload") {
        for (name, mut table) in fields.read_tables(&value, |name| format!("workload `{name}` "))? {
            if names.insert(name.to_owned(), WorkloadRef::InFile(workloads.len())).is_some() {
                return Err(table.key_error(
                    "name",
                    name,
                    "a name other than those of the predefined workloads",
                ));
            }
            workloads.push(read_workload(name, &mut table)?);
        }
    }
    let value = fields.required("job", "a list of tables")?;
    let mut list = read_table_list(&fields, "job", &value)?;
    fields.finish()?;
    if list.is_empty() || list.len() > MAX_JOBS {
        return Err(fields.value_error(&value, &format!("1 to {MAX_JOBS} jobs")));
    }
    let mut reader = JobReader {
        topology: &topology,
        sensitivity: sensitivity.as_ref(),
        workloads: names,
        job_numbers: BTreeMap::new(),
    };
    let jobs = (1..).zip(&mut list).map(|(number, fields)| reader.read_job(number, fields));
    let jobs = jobs.collect::<Result<Vec<Job>, FileError>>()?;
    Ok(Jobs { topology, cable_events, workloads, sensitivity, jobs })
}

/// The sensitivity table that a file names.
fn read_sensitivity_table(
    fields: &mut TableFields<'_>,
    folder: &Path,
) -> Result<Option<SensitivityTable>, FileError> {
    const TABLE: &str = "the name of a sensitivity table";
    let Some(value) = fields.optional("sensitivity") else { return Ok(None) };
    let path = folder.join(fields.read_string(&value, TABLE)?);
    fields.referenced(&value, sensitivity::read(&path)).map(Some)
}

fn read_workload(name: &str, fields: &mut TableFields<'_>) -> Result<Workload, FileError> {
    const ROUNDS: &str = "a whole number, at least 1";
    const STAGES: &str = "a list of stages, such as [{ compute = \"3s\", bytes = \"2GB\" }]";
    let rounds = match fields.optional("rounds") {
        Some(value) => match fields.read_u32(&value, ROUNDS)? as usize {
            0 => return Err(fields.value_error(&value, ROUNDS)),
            rounds => rounds,
        },
        None => 1,
    };
    let value = fields.required("stages", STAGES)?;
    let list = fields.read_list(&value, STAGES)?;
    fields.finish()?;
    if list.is_empty() || list.len().saturating_mul(rounds) > MAX_STAGES {
        return Err(fields.value_error(&value, &format!("1 to {MAX_STAGES} stages, counted in every round")));
    }
    let stage = |(number, value): (usize, &Value<'_>)| {
        read_stage(&mut fields.read_table(value, format!("workload `{name}` stage {number} "))?)
    };
    let stages = (1..).zip(&list).map(stage).collect::<Result<Vec<Stage>, FileError>>()?;
    let takes_time = |stage: &Stage| {
        let transfers_data =
            stage.bytes.get() > 0.0 && stage.max_transfer_time.is_none_or(|limit| limit.get() > 0.0);
        stage.compute.get() > 0.0 || stage.overlapped_compute.get() > 0.0 || transfers_data
    };
    if !stages.iter().any(takes_time) {
        return Err(fields.value_error(&value, "at least one stage with computation or a transfer"));
    }
    Ok(Workload { name: name.to_owned(), stages: stages.repeat(rounds) })
}

fn read_stage(fields: &mut TableFields<'_>) -> Result<Stage, FileError> {
    let mut time = |key| fields.optional(key).map(|value| fields.read_time(&value)).transpose();
    let (compute, overlapped, limit) = (time("compute")?, time("overlapped-compute")?, time("limit")?);
    let bytes = fields.optional("bytes").map(|value| fields.read_bytes(&value)).transpose()?;
    fields.finish()?;
    Ok(Stage {
        compute: compute.unwrap_or(Time::ZERO),
        overlapped_compute: overlapped.unwrap_or(Time::ZERO),
        bytes: bytes.unwrap_or(Bytes::ZERO),
        max_transfer_time: limit,
    })
}

/// The objects that jobs can refer to.
struct JobReader<'a> {
    topology: &'a Topology,
    sensitivity: Option<&'a SensitivityTable>,
    workloads: BTreeMap<String, WorkloadRef>,
    /// The names of the jobs read so far, and their numbers.
    job_numbers: BTreeMap<String, usize>,
}

impl JobReader<'_> {
    fn read_job(&mut self, number: usize, fields: &mut TableFields<'_>) -> Result<Job, FileError> {
        let known_names = || self.workloads.keys().cloned().collect::<Vec<_>>().join(", ");
        let value = fields.required("workload", "the name of a workload")?;
        let workload_name = fields.read_string(&value, "the name of a workload")?;
        let Some(&workload) = self.workloads.get(workload_name) else {
            return Err(fields.value_error(&value, &format!("one of {}", known_names())));
        };
        let (name, value) = match fields.optional("name") {
            Some(value) => (fields.read_string(&value, ServiceNames::NAME_RULE)?.to_owned(), value),
            None => (format!("{workload_name}-{number}"), value),
        };
        if !ServiceNames::is_name(&name) {
            return Err(fields.value_error(&value, ServiceNames::NAME_RULE));
        }
        if let Some(other) = self.job_numbers.insert(name.clone(), number) {
            return Err(fields.key_error("name", &name, &format!("a name other than that of job {other}")));
        }
        let servers = self.read_servers(fields)?;
        let data = read_data_scale(fields, workload)?;
        let start = match fields.optional("start") {
            Some(value) => {
                let start = fields.read_time(&value)?;
                if start.get() > MAX_START_SECONDS {
                    return Err(fields.value_error(&value, "a time of at most one year"));
                }
                start
            }
            None => Time::ZERO,
        };
        let model = self.read_model(fields, workload_name)?;
        fields.finish()?;
        Ok(Job { name, workload, servers, data_scale: data, start, model })
    }

    fn read_servers(&self, fields: &mut TableFields<'_>) -> Result<Vec<u32>, FileError> {
        let topology = self.topology;
        let servers = read_hosts(fields, "servers", topology)?;
        let name = |server: &NodeId| topology.name(*server).to_owned();
        let mut sorted = servers.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(fields.key_error("servers", &name(&pair[0]), "each host once"));
        }
        if let Some(server) = sorted.iter().find(|server| topology.outgoing_links(**server).len() != 1) {
            return Err(fields.key_error("servers", &name(server), "hosts with one cable"));
        }
        if servers.is_empty() {
            return Err(fields.key_error("servers", "[]", "at least one host"));
        }
        Ok(servers.into_iter().map(|server| server.0).collect())
    }

    fn read_model(&self, fields: &mut TableFields<'_>, workload: &str) -> Result<ModelRef, FileError> {
        let value = fields.optional("model");
        let name = match &value {
            Some(value) => fields.read_string(value, "the name of a model")?,
            None => workload,
        };
        let (model, known_names) = match self.sensitivity {
            Some(table) => {
                let names: Vec<&str> = table.rows().iter().map(|row| row.name.as_str()).collect();
                (table.position(name).map(ModelRef::TableRow), names.join(", "))
            }
            None => {
                let names: Vec<&str> = self.workloads.keys().map(String::as_str).collect();
                (self.workloads.get(name).copied().map(ModelRef::Profiled), names.join(", "))
            }
        };
        match model {
            Some(model) => Ok(model),
            None => Err(fields.key_error("model", name, &format!("one of {known_names}"))),
        }
    }
}

/// The amount of a job's data.
fn read_data_scale(fields: &mut TableFields<'_>, workload: WorkloadRef) -> Result<f64, FileError> {
    let Some(value) = fields.optional("data") else { return Ok(1.0) };
    if let WorkloadRef::InFile(_) = workload {
        return Err(fields.value_error(&value, "no `data` for a workload that the file defines"));
    }
    let data = fields.read_number(&value)?;
    if !(1.0 / MAX_DATA_SCALE..=MAX_DATA_SCALE).contains(&data) {
        return Err(fields.value_error(&value, "a number from 1e-6 to 1e6"));
    }
    Ok(data)
}
