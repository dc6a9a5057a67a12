//! Reads event logs of Spark applications, and estimates their coflows.
//!
//! Each stage that reads a shuffle over the network is a coflow; the stages that it reads from are its parents. A log has, for each task,
//! the bytes that it read from other hosts and the bytes that it wrote, but not from which hosts it read. The estimates:
//!
//! - *Flows*: what tasks of a host read from other hosts is divided among the hosts in proportion to what these wrote in the parent stages.
//!   Bytes that tasks read from their own host are left out. If all executors are on one host, as in tests, executors take the place of
//!   hosts.
//! - *Computing*: a stage takes the time from its first task to its end. The part of it in which its tasks do not wait for the shuffle
//!   follows the flows ([`CoflowSpec::compute_after`]).
//! - *Arrivals*: coflows without parents arrive when their job is submitted, and are released when the stages without a shuffle end from
//!   which they read, if those end later ([`CoflowSpec::compute_before`]).
//!
//! A skipped stage stands for the earlier stage with the same data sets. Only tasks that succeed count, the first of each partition.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::BufRead;

use serde::Deserialize;
use weir_core::model::{CoflowSpec, FlowSpec, Workload};
use weir_core::units::{Bytes, Time};
use weir_fields::FileError;

use crate::Parsed;
use crate::builder::{TimeUnit, WorkloadBuilder};
use crate::lines::{Line, LineReader};
use crate::options::TraceOptions;

/// Whether the first line of a file looks like this format.
pub(crate) fn is_likely(line: Line<'_>) -> bool {
    line.text.starts_with("{\"Event\":\"")
}

/// The events that matter.
#[derive(Deserialize)]
#[serde(tag = "Event")]
enum Event {
    #[serde(rename = "SparkListenerJobStart")]
    JobStart {
        #[serde(rename = "Job ID")]
        job: u64,
        #[serde(rename = "Submission Time")]
        submitted: u64,
        #[serde(rename = "Stage Infos")]
        stages: Vec<StageInfo>,
    },
    #[serde(rename = "SparkListenerTaskEnd")]
    TaskEnd(TaskEnd),
    #[serde(rename = "SparkListenerStageCompleted")]
    StageCompleted {
        #[serde(rename = "Stage Info")]
        stage: StageInfo,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct StageInfo {
    #[serde(rename = "Stage ID")]
    id: u32,
    #[serde(rename = "Parent IDs", default)]
    parents: Vec<u32>,
    #[serde(rename = "RDD Info", default)]
    data_sets: Vec<DataSet>,
    #[serde(rename = "Submission Time", default)]
    submitted: Option<u64>,
    #[serde(rename = "Completion Time", default)]
    completed: Option<u64>,
}

#[derive(Deserialize)]
struct DataSet {
    #[serde(rename = "RDD ID")]
    id: u64,
}

#[derive(Deserialize)]
struct TaskEnd {
    #[serde(rename = "Stage ID")]
    stage: u32,
    #[serde(rename = "Task End Reason")]
    end: EndReason,
    #[serde(rename = "Task Info")]
    info: TaskInfo,
    #[serde(rename = "Task Metrics", default)]
    metrics: Option<TaskMetrics>,
}

#[derive(Deserialize)]
struct EndReason {
    #[serde(rename = "Reason")]
    reason: String,
}

#[derive(Deserialize)]
struct TaskInfo {
    #[serde(rename = "Index")]
    index: u32,
    #[serde(rename = "Executor ID")]
    executor: String,
    #[serde(rename = "Host")]
    host: String,
    #[serde(rename = "Launch Time")]
    launched: u64,
    #[serde(rename = "Finish Time")]
    finished: u64,
}

#[derive(Deserialize)]
struct TaskMetrics {
    #[serde(rename = "Shuffle Read Metrics", default)]
    read: ShuffleRead,
    #[serde(rename = "Shuffle Write Metrics", default)]
    written: ShuffleWrite,
}

#[derive(Deserialize, Default)]
struct ShuffleRead {
    #[serde(rename = "Remote Bytes Read", default)]
    remote: u64,
    #[serde(rename = "Local Bytes Read", default)]
    local: u64,
    #[serde(rename = "Fetch Wait Time", default)]
    wait: u64,
}

#[derive(Deserialize, Default)]
struct ShuffleWrite {
    #[serde(rename = "Shuffle Bytes Written", default)]
    bytes: u64,
}

/// A stage whose tasks ran. Times are in milliseconds.
#[derive(Default)]
struct Stage {
    /// The line of its first task.
    line: usize,
    done_tasks: BTreeSet<u32>,
    submitted: Option<u64>,
    launched: Option<u64>,
    completed: u64,
    task_time: u64,
    wait_time: u64,
    /// By executor: bytes that its tasks read from elsewhere, and bytes that they wrote.
    read: BTreeMap<usize, u64>,
    written: BTreeMap<usize, u64>,
}

impl Stage {
    fn add(&mut self, task: &TaskEnd, executor: usize) {
        if !self.done_tasks.insert(task.info.index) {
            return;
        }
        let first = self.launched.map_or(task.info.launched, |first| first.min(task.info.launched));
        self.launched = Some(first);
        self.completed = self.completed.max(task.info.finished);
        let duration = task.info.finished.saturating_sub(task.info.launched);
        self.task_time = self.task_time.saturating_add(duration);
        if let Some(TaskMetrics { read, written }) = &task.metrics {
            self.wait_time = self.wait_time.saturating_add(read.wait.min(duration));
            *self.read.entry(executor).or_default() += read.remote;
            *self.written.entry(executor).or_default() += written.bytes;
        }
    }

    /// The seconds for which the stage computes.
    fn computing(&self) -> f64 {
        let duration = self.launched.map_or(0, |launched| self.completed.saturating_sub(launched)) as f64;
        let busy = self.task_time.saturating_sub(self.wait_time) as f64;
        if self.task_time == 0 { 0.0 } else { duration / 1e3 * busy / self.task_time as f64 }
    }

    fn reads_remotely(&self) -> bool {
        self.read.values().any(|&bytes| bytes > 0)
    }
}

/// A log so far.
#[derive(Default)]
struct Log {
    stages: BTreeMap<u32, Stage>,
    /// By stage, also skipped ones: its parents, its data sets, and its job with the time of its submission.
    parents: BTreeMap<u32, Vec<u32>>,
    data_sets: BTreeMap<u32, BTreeSet<u64>>,
    job_of_stage: BTreeMap<u32, (u64, u64)>,
    executors: Executors,
    local_bytes: u64,
}

/// The executors, by the order of their first task.
#[derive(Default)]
struct Executors {
    index: HashMap<(String, String), usize>,
    names: Vec<(String, String)>,
}

impl Executors {
    fn index(&mut self, task: &TaskInfo) -> usize {
        let key = (task.host.clone(), task.executor.clone());
        *self.index.entry(key.clone()).or_insert_with(|| {
            self.names.push(key);
            self.names.len() - 1
        })
    }

    /// The port of each executor, and the names of the ports: hosts, or executors if there is only one host.
    fn ports(&self) -> (Vec<u32>, Vec<String>) {
        let hosts: BTreeSet<&str> = self.names.iter().map(|(host, _)| host.as_str()).collect();
        let mut names: Vec<String> = Vec::new();
        let ports = self.names.iter().map(|(host, executor)| {
            let name = if hosts.len() > 1 { host.clone() } else { format!("{host}/{executor}") };
            let name = name.replace(|c: char| c.is_whitespace() || c.is_control() || c == '#', "_");
            names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            }) as u32
        });
        (ports.collect(), names)
    }
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    options: &TraceOptions,
) -> Result<Parsed, FileError> {
    let mut log = Log::default();
    let mut tasks = 0;
    while let Some(line) = lines.next_content()? {
        let event: Event = serde_json::from_str(line.text)
            .map_err(|error| line.error("event", line.text, format!("an event of Spark: {error}")))?;
        match event {
            Event::JobStart { job, submitted, stages } => {
                for stage in &stages {
                    log.job_of_stage.entry(stage.id).or_insert((job, submitted));
                    log.add_stage(stage);
                }
            }
            Event::StageCompleted { stage } => {
                log.add_stage(&stage);
                let (submitted, completed) = (stage.submitted, stage.completed.unwrap_or(0));
                let stage = log.stages.entry(stage.id).or_default();
                stage.submitted = stage.submitted.or(submitted);
                stage.completed = stage.completed.max(completed);
            }
            Event::TaskEnd(task) if task.end.reason == "Success" => {
                tasks += 1;
                if tasks > options.limits.max_flows {
                    return Err(line.error("tasks", tasks, options.limits.expected_at_most("tasks")));
                }
                let executor = log.executors.index(&task.info);
                if log.executors.names.len() > Workload::MAX_PORTS as usize {
                    let expected = format!("at most {} executors", Workload::MAX_PORTS);
                    return Err(line.error("executors", log.executors.names.len(), expected));
                }
                log.local_bytes += task.metrics.as_ref().map_or(0, |metrics| metrics.read.local);
                let stage = log.stages.entry(task.stage).or_default();
                stage.line = if stage.launched.is_none() { line.number } else { stage.line };
                stage.add(&task, executor);
            }
            Event::TaskEnd(_) | Event::Other => {}
        }
    }
    let end = lines.end_of_input();
    let mut builder = WorkloadBuilder::new(options);
    let port_names = log.add_coflows(&mut builder, end)?;
    let local = Bytes::new(log.local_bytes as f64).unwrap_or(Bytes::ZERO);
    if builder.is_empty() {
        let expected = format!(
            "a stage that reads a shuffle from another executor; the {tasks} tasks of the log read {local} from their own one, \
             and nothing from others"
        );
        return Err(end.error("coflows", "none", expected));
    }
    let warning = format!(
        "the sources of flows and the times to compute are estimates; {local} that tasks read from their own host or executor are left out"
    );
    let (workload, shift) = builder.finish(port_names.len().max(1) as u32, lines)?;
    Ok(Parsed { port_names, warnings: vec![warning], ..Parsed::new(workload, shift) })
}

impl Log {
    fn add_stage(&mut self, stage: &StageInfo) {
        self.parents.insert(stage.id, stage.parents.clone());
        self.data_sets.insert(stage.id, stage.data_sets.iter().map(|set| set.id).collect());
    }

    /// The stage that ran for this one: itself, or, if it was skipped, the latest earlier one with the same data sets.
    fn ran_as(&self, id: u32) -> Option<u32> {
        let has_run = |id: &u32| self.stages.get(id).is_some_and(|stage| stage.launched.is_some());
        if has_run(&id) {
            return Some(id);
        }
        let sets = self.data_sets.get(&id)?;
        let earlier = self.stages.range(..id).rev().map(|(id, _)| *id).filter(has_run);
        earlier.into_iter().find(|other| self.data_sets.get(other) == Some(sets))
    }

    fn parents_that_ran(&self, id: u32) -> BTreeSet<u32> {
        let parents = self.parents.get(&id).map_or(&[][..], Vec::as_slice);
        parents.iter().filter_map(|&parent| self.ran_as(parent)).filter(|&parent| parent != id).collect()
    }

    /// Adds a coflow for each stage that reads remotely, and for those between them. Returns the names of the ports.
    fn add_coflows(
        &mut self,
        builder: &mut WorkloadBuilder<'_>,
        end: Line<'_>,
    ) -> Result<Vec<String>, FileError> {
        let (ports, names) = self.executors.ports();
        // By stage: its coflow, or, for those that no transfer precedes, when it ended.
        let mut coflow_of: BTreeMap<u32, usize> = BTreeMap::new();
        let mut computed_at: BTreeMap<u32, u64> = BTreeMap::new();
        // The ids of stages rise from parents to children.
        for (&id, stage) in self.stages.iter().filter(|(_, stage)| stage.launched.is_some()) {
            let parents = self.parents_that_ran(id);
            let computed = parents.iter().filter_map(|parent| computed_at.get(parent).copied()).max();
            let coflows: Vec<usize> =
                parents.iter().filter_map(|parent| coflow_of.get(parent).copied()).collect();
            if !stage.reads_remotely() && coflows.is_empty() {
                computed_at.insert(id, stage.completed.max(computed.unwrap_or(0)));
                continue;
            }
            let line = Line { number: stage.line, ..end };
            let flows = self.flows(stage, &parents, &ports);
            builder.reserve_flows(line, "flows", Some(flows.len()), flows.len())?;
            builder.take_id(line, u64::from(id))?;
            // Under load, Spark drops events.
            let job = self.job_of_stage.get(&id).copied();
            let submitted =
                job.map(|(_, submitted)| submitted).or(stage.submitted).or(stage.launched).unwrap_or(0);
            let mut coflow = CoflowSpec::new(u64::from(id), Time::ZERO, flows);
            builder.add_bytes(line, "shuffle bytes", coflow.total_bytes())?;
            (coflow.job, coflow.stage) = (job.map(|(job, _)| job), Some(id));
            let waits =
                computed.filter(|_| coflows.is_empty()).map_or(0, |end| end.saturating_sub(submitted));
            coflow.compute_before = Time::new(waits as f64 / 1e3).unwrap_or(Time::ZERO);
            coflow.compute_after = Time::new(stage.computing()).unwrap_or(Time::ZERO);
            coflow.parents = coflows;
            let arrival = builder.parse_time(line, "submission", &submitted.to_string(), TimeUnit::MS)?;
            coflow_of.insert(id, coflow_of.len());
            builder.push(coflow, arrival);
        }
        Ok(names)
    }

    /// The flows of a stage: by receiving port, in proportion to what other ports wrote for it. A stage without any has one of 0 bytes.
    fn flows(&self, stage: &Stage, parents: &BTreeSet<u32>, ports: &[u32]) -> Vec<FlowSpec> {
        let by_port = |bytes: &mut dyn Iterator<Item = (usize, u64)>| {
            let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
            bytes.for_each(|(executor, bytes)| *sums.entry(ports[executor]).or_default() += bytes as f64);
            sums
        };
        let pairs = |map: &BTreeMap<usize, u64>| map.iter().map(|(&e, &b)| (e, b)).collect::<Vec<_>>();
        let written = by_port(&mut parents.iter().flat_map(|parent| pairs(&self.stages[parent].written)));
        let mut flows = Vec::new();
        for (dst, bytes) in by_port(&mut pairs(&stage.read).into_iter()) {
            let others = || written.iter().filter(move |(src, written)| **src != dst && **written > 0.0);
            let total: f64 = others().map(|(_, written)| written).sum();
            let flow = |(&src, written): (&u32, &f64)| {
                let bytes = Bytes::new((bytes * written / total).round()).unwrap_or(Bytes::ZERO);
                FlowSpec::new(src, dst, bytes)
            };
            flows.extend(others().map(flow).filter(|flow| flow.bytes != Bytes::ZERO));
        }
        if flows.is_empty() {
            flows.push(FlowSpec::new(0, 0, Bytes::ZERO));
        }
        flows
    }
}
