//! Reads jobs from TOML: which workloads run on which hosts of a network, and when.
//!
//! `docs/jobs-format.md` is the reference. Rates, sizes and times have units; unknown keys are refused. A reader returns
//! consistent [`Jobs`], or a [`TraceError`] that names the line, the field, the value and the expected value.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use weir_core::model::{NodeId, Topology};
use weir_core::units::{Bytes, Time};

use crate::error::TraceError;
use crate::fields::{self, Fields, Value};
use crate::scenario::{fabric, hosts, tables};
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
pub const MAX_DATA: f64 = 1e6;

/// The latest start, in seconds: one year.
pub const MAX_START: f64 = 31_536_000.0;

/// The key that contains the version.
const MAGIC: &str = "weir-jobs";

/// The content of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Jobs {
    /// The network.
    pub topology: Topology,
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

/// A step of a workload, the same on each server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Computing time before the transfer starts.
    pub compute: Time,
    /// Computing time in parallel with the transfer.
    pub beside: Time,
    /// Bytes that each server sends to the others in total, and receives from them.
    pub bytes: Bytes,
    /// The maximum time to wait for the transfer, if any.
    pub limit: Option<Time>,
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its name, unique in the file.
    pub name: String,
    /// Its workload.
    pub workload: Of,
    /// Its hosts, each once.
    pub servers: Vec<u32>,
    /// The amount of data divided by that of the workload in the paper; only for [`Of::Known`].
    pub data: f64,
    /// The start time.
    pub start: Time,
    /// The model that Saba uses for it; none if the job is not compliant.
    pub model: Option<Model>,
}

/// The origin of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Defined in the file, by index.
    File(usize),
    /// One of the caller's workloads, by index.
    Known(usize),
}

/// The origin of a sensitivity model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// A row of the sensitivity table.
    Row(usize),
    /// The result of profiling a workload.
    Profiled(Of),
}

/// Reads the jobs at `path`; `-` is the standard input. Names of files in it are relative to its folder. A job's workload
/// is one that the file defines, or one of `known`.
///
/// # Errors
/// [`TraceError::Io`] if a file cannot be read; [`TraceError::Field`] for the first invalid field.
pub fn read(path: &Path, known: &[&str]) -> Result<Jobs, TraceError> {
    fields::open_in_folder(path, |input, name, folder| read_from(input, name, folder, known))
}

/// Reads jobs from `input`, which errors call `name`. Names of files in it are relative to `folder`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str, folder: &Path, known: &[&str]) -> Result<Jobs, TraceError> {
    fields::read_versioned(input, name, MAX_FILE_BYTES, (MAGIC, VERSION), |fields| {
        from_fields(fields, folder, known)
    })
}

/// The jobs described by the keys of a file.
fn from_fields(mut fields: Fields<'_>, folder: &Path, known: &[&str]) -> Result<Jobs, TraceError> {
    let topology = fabric(&mut fields, folder)?;
    let sensitivity = table_of(&mut fields, folder)?;
    let mut names: BTreeMap<String, Of> = BTreeMap::new();
    names.extend(known.iter().enumerate().map(|(at, name)| ((*name).to_owned(), Of::Known(at))));
    let mut workloads = Vec::new();
    if let Some(value) = fields.maybe("workload") {
        for (name, mut own) in fields.tables(&value, |name| format!("workload `{name}` "))? {
            if names.insert(name.to_owned(), Of::File(workloads.len())).is_some() {
                return Err(own.wrong_at("name", name, "a name that no workload of the paper has"));
            }
            workloads.push(workload(name, &mut own)?);
        }
    }
    let value = fields.need("job", "a list of tables")?;
    let mut list = tables(&fields, "job", &value)?;
    fields.finish()?;
    if list.is_empty() || list.len() > MAX_JOBS {
        return Err(fields.wrong(&value, &format!("1 to {MAX_JOBS} jobs")));
    }
    let mut read =
        Reader { topology: &topology, sensitivity: sensitivity.as_ref(), names, taken: BTreeMap::new() };
    let jobs = (1..).zip(&mut list).map(|(number, fields)| read.job(number, fields));
    let jobs = jobs.collect::<Result<Vec<Job>, TraceError>>()?;
    Ok(Jobs { topology, workloads, sensitivity, jobs })
}

/// The sensitivity table that a file names.
fn table_of(fields: &mut Fields<'_>, folder: &Path) -> Result<Option<SensitivityTable>, TraceError> {
    const TABLE: &str = "the name of a sensitivity table";
    let Some(value) = fields.maybe("sensitivity") else { return Ok(None) };
    sensitivity::read(&folder.join(fields.text(&value, TABLE)?)).map(Some)
}

fn workload(name: &str, fields: &mut Fields<'_>) -> Result<Workload, TraceError> {
    const ROUNDS: &str = "a whole number, at least 1";
    const STAGES: &str = "a list of stages, such as [{ compute = \"3s\", bytes = \"2GB\" }]";
    let rounds = match fields.maybe("rounds") {
        Some(value) => match fields.whole(&value, ROUNDS)? as usize {
            0 => return Err(fields.wrong(&value, ROUNDS)),
            rounds => rounds,
        },
        None => 1,
    };
    let value = fields.need("stages", STAGES)?;
    let list = fields.list(&value, STAGES)?;
    fields.finish()?;
    if list.is_empty() || list.len().saturating_mul(rounds) > MAX_STAGES {
        return Err(fields.wrong(&value, &format!("1 to {MAX_STAGES} stages, with each round's")));
    }
    let stage = |(number, value): (usize, &Value<'_>)| {
        stage(&mut fields.table(value, format!("workload `{name}` stage {number} "))?)
    };
    let stages = (1..).zip(&list).map(stage).collect::<Result<Vec<Stage>, TraceError>>()?;
    let takes = |stage: &Stage| {
        let moves = stage.bytes.get() > 0.0 && stage.limit.is_none_or(|limit| limit.get() > 0.0);
        stage.compute.get() > 0.0 || stage.beside.get() > 0.0 || moves
    };
    if !stages.iter().any(takes) {
        return Err(fields.wrong(&value, "a stage that computes or moves something"));
    }
    Ok(Workload { name: name.to_owned(), stages: stages.repeat(rounds) })
}

fn stage(fields: &mut Fields<'_>) -> Result<Stage, TraceError> {
    let mut time = |key| fields.maybe(key).map(|value| fields.read_time(&value)).transpose();
    let (compute, beside, limit) = (time("compute")?, time("beside")?, time("limit")?);
    let bytes = fields.maybe("bytes").map(|value| fields.read_bytes(&value)).transpose()?;
    fields.finish()?;
    Ok(Stage {
        compute: compute.unwrap_or(Time::ZERO),
        beside: beside.unwrap_or(Time::ZERO),
        bytes: bytes.unwrap_or(Bytes::ZERO),
        limit,
    })
}

/// The objects that jobs can refer to.
struct Reader<'a> {
    topology: &'a Topology,
    sensitivity: Option<&'a SensitivityTable>,
    names: BTreeMap<String, Of>,
    /// The names of the jobs read so far, and their numbers.
    taken: BTreeMap<String, usize>,
}

impl Reader<'_> {
    fn job(&mut self, number: usize, fields: &mut Fields<'_>) -> Result<Job, TraceError> {
        let known = || self.names.keys().cloned().collect::<Vec<_>>().join(", ");
        let value = fields.need("workload", "the name of a workload")?;
        let named = fields.text(&value, "the name of a workload")?;
        let Some(&workload) = self.names.get(named) else {
            return Err(fields.wrong(&value, &format!("one of {}", known())));
        };
        let (name, value) = match fields.maybe("name") {
            Some(value) => (fields.text(&value, NAME)?.to_owned(), value),
            None => (format!("{named}-{number}"), value),
        };
        let plain = |c: char| !c.is_whitespace() && !c.is_control();
        if !(1..=64).contains(&name.chars().count()) || !name.chars().all(plain) {
            return Err(fields.wrong(&value, NAME));
        }
        if let Some(other) = self.taken.insert(name.clone(), number) {
            return Err(fields.wrong_at("name", &name, &format!("another name than that of job {other}")));
        }
        let servers = self.servers(fields)?;
        let data = data(fields, workload)?;
        let start = match fields.maybe("start") {
            Some(value) => {
                let start = fields.read_time(&value)?;
                if start.get() > MAX_START {
                    return Err(fields.wrong(&value, "a time of a year at most"));
                }
                start
            }
            None => Time::ZERO,
        };
        let model = self.model(fields, named)?;
        fields.finish()?;
        Ok(Job { name, workload, servers, data, start, model })
    }

    fn servers(&self, fields: &mut Fields<'_>) -> Result<Vec<u32>, TraceError> {
        let topology = self.topology;
        let servers = hosts(fields, "servers", topology)?;
        let name = |server: &NodeId| topology.name(*server).to_owned();
        let mut sorted = servers.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(fields.wrong_at("servers", &name(&pair[0]), "each host once"));
        }
        if let Some(server) = sorted.iter().find(|server| topology.out(**server).len() != 1) {
            return Err(fields.wrong_at("servers", &name(server), "hosts with one cable"));
        }
        if servers.is_empty() {
            return Err(fields.wrong_at("servers", "[]", "at least one host"));
        }
        Ok(servers.into_iter().map(|server| server.0).collect())
    }

    fn model(&self, fields: &mut Fields<'_>, workload: &str) -> Result<Option<Model>, TraceError> {
        let complies = match fields.maybe("compliant") {
            Some(value) => fields.truth(&value)?,
            None => true,
        };
        let value = fields.maybe("model");
        let name = match &value {
            Some(value) if complies => fields.text(value, "the name of a model")?,
            Some(value) => return Err(fields.wrong(value, "no model where `compliant` is false")),
            None => workload,
        };
        if !complies {
            return Ok(None);
        }
        let (found, known) = match self.sensitivity {
            Some(table) => {
                let names: Vec<&str> = table.rows().iter().map(|row| row.name.as_str()).collect();
                (table.position(name).map(Model::Row), names.join(", "))
            }
            None => {
                let names: Vec<&str> = self.names.keys().map(String::as_str).collect();
                (self.names.get(name).copied().map(Model::Profiled), names.join(", "))
            }
        };
        match found {
            Some(model) => Ok(Some(model)),
            None => Err(fields.wrong_at("model", name, &format!("one of {known}"))),
        }
    }
}

const NAME: &str = "a name of 1 to 64 characters, none of them blank";

/// The amount of a job's data.
fn data(fields: &mut Fields<'_>, workload: Of) -> Result<f64, TraceError> {
    let Some(value) = fields.maybe("data") else { return Ok(1.0) };
    if let Of::File(_) = workload {
        return Err(fields.wrong(&value, "no data where the workload is the file's own"));
    }
    let data = fields.float(&value)?;
    if !(1.0 / MAX_DATA..=MAX_DATA).contains(&data) {
        return Err(fields.wrong(&value, "a number from 1e-6 to 1e6"));
    }
    Ok(data)
}
