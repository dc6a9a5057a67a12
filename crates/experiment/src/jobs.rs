//! Jobs of a replay: reads them from a file, and reports their times.

use std::path::Path;

use weir_console::failure::Failure;
use weir_console::run::{self, ReplayTask};
use weir_console::table::{Alignment, Table, format_number, format_optional};
use weir_core::model::topology::{NodeId, Topology};
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Stage, Workload};
use weir_core::saba::Sensitivity;
use weir_core::solve::polynomial::Degree;
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::jobs::workload::{PROFILER_NODES, Workload as PublishedWorkload};
use weir_sim::jobs::{self, Job};
use weir_sim::outcome::mean;
use weir_sim::{JobOutcome, Outcome, ReplayOptions};
use weir_trace::jobs::{Jobs as JobsFile, ModelRef, WorkloadRef};
use weir_trace::sensitivity::SensitivityTable;

use crate::embedded_network::EmbeddedNetwork;

/// The maximum number of jobs in the table; `--per-job` has all.
const MAX_TABLE_ROWS: usize = 40;

/// The jobs of a file.
#[derive(Clone)]
pub struct Jobs {
    /// The name of the file, as given.
    pub name: String,
    jobs: Vec<Job>,
    /// By job: the name of its workload, and its sensitivity to bandwidth.
    workload_names: Vec<String>,
    sensitivities: Vec<Sensitivity>,
    /// The number of the first job in the replayed workload; the others follow.
    first_number: u64,
}

impl Jobs {
    /// Reads the jobs and the network of a file, and adds the jobs' coflows to `workload`.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid, a workload cannot be profiled, or the coflows do not fit.
    pub fn read(
        path: &Path,
        workload: &mut Workload,
        max_flows: usize,
    ) -> Result<(Jobs, EmbeddedNetwork), Failure> {
        let published = PublishedWorkload::all();
        let published_names: Vec<&str> = published.iter().map(|workload| workload.name).collect();
        let file = weir_trace::jobs::read(path, &published_names)?;
        let name = path.display().to_string();
        let job = |job: &weir_trace::jobs::Job| {
            let nodes = job.servers.len() as f64 / f64::from(PROFILER_NODES);
            let slowest = slowest_cable(&file.topology, &job.servers);
            let stages = stages(&file, &published, job.workload, (job.data_scale, nodes), slowest);
            Job { name: job.name.clone(), stages, hosts: job.servers.clone(), start: job.start }
        };
        let jobs: Vec<Job> = file.jobs.iter().map(job).collect();
        let sensitivities = sensitivities(&file, &published)
            .map_err(|reason| Failure::input(format_args!("{name}: {reason}")))?;
        let workload_name = |job: &weir_trace::jobs::Job| match job.workload {
            WorkloadRef::InFile(index) => file.workloads[index].name.clone(),
            WorkloadRef::Predefined(index) => published_names[index].to_owned(),
        };
        let workload_names = file.jobs.iter().map(workload_name).collect();
        let added = jobs::add_jobs(workload, &jobs, max_flows);
        let first_number = added.map_err(|error| Failure::input(format_args!("{name}: {error}")))?;
        let JobsFile { topology, cable_events, .. } = file;
        let network = EmbeddedNetwork { name: name.clone(), topology, cable_events, path_seed: 0 };
        Ok((Jobs { name, jobs, workload_names, sensitivities, first_number }, network))
    }

    /// The number of jobs.
    pub fn count(&self) -> usize {
        self.jobs.len()
    }

    /// The position in the file of the job with this number in the workload, if it is of this file.
    pub fn position(&self, number: u64) -> Option<usize> {
        let index = usize::try_from(number.checked_sub(self.first_number)?).ok()?;
        (index < self.jobs.len()).then_some(index)
    }

    /// The name of the job with this number in the workload, if it is of this file.
    pub fn name_of(&self, number: u64) -> Option<&str> {
        self.position(number).map(|index| self.jobs[index].name.as_str())
    }

    /// The sensitivities of all applications of a trace, in the order of `names`; those that are not jobs have the default.
    pub fn sensitivities(&self, names: &ServiceNames) -> Vec<Sensitivity> {
        let services =
            (0..names.services() as u32).map(|service| (names.service(service), names.applications(service)));
        let applications =
            services.flat_map(|(service, names)| names.iter().map(move |name| (service, name)));
        let of_application = |(service, name): (&str, &String)| {
            let job = (service == jobs::SERVICE).then(|| self.jobs.iter().position(|job| job.name == *name));
            job.flatten().map_or_else(Sensitivity::default, |job| self.sensitivities[job])
        };
        applications.map(of_application).collect()
    }

    /// Replays each job of `workload` alone under `fair`, on the paths that its flows take there, and returns the durations in
    /// seconds; none for a job that cannot complete. `replay` runs a replay, of which at most `concurrent` run at a time.
    ///
    /// # Errors
    /// If a replay fails, or a signal arrives.
    pub fn durations_alone(
        &self,
        workload: &Workload,
        options: &ReplayOptions,
        concurrent: usize,
        replay: impl Fn(&ReplayTask<'_>) -> Result<Outcome, Failure> + Sync,
    ) -> Result<Vec<Option<f64>>, Failure> {
        run::run_concurrently(self.jobs.len(), concurrent, |index| {
            let alone = only_job(workload, self.first_number + index as u64);
            let task = ReplayTask {
                policy: "fair".to_owned(),
                workload: &alone,
                options: options.clone(),
                sensitivities: &[],
            };
            let outcome = replay(&task).map_err(|failure| {
                let message = format!("job {} alone, under {}", self.jobs[index].name, failure.message);
                Failure { message, ..failure }
            });
            // A job without work has no coflows.
            outcome.map(|outcome| match outcome.stall {
                Some(_) => None,
                None => Some(outcome.jobs.first().map_or(0.0, duration)),
            })
        })
    }

    /// The times of the jobs under each policy.
    pub fn times<'a>(&'a self, alone: &'a [Option<f64>], outcomes: &[Outcome]) -> Vec<Vec<JobTime<'a>>> {
        let of_outcome = |outcome: &Outcome| {
            let of_job = |(index, job): (usize, &'a Job)| {
                let number = self.first_number + index as u64;
                let found = outcome.jobs.binary_search_by_key(&number, |job| job.id).ok();
                // A job without work has no coflows.
                let without_job = outcome.stall.is_none().then_some(0.0);
                let duration = found.map(|found| duration(&outcome.jobs[found])).or(without_job);
                JobTime { job, workload: &self.workload_names[index], duration, alone: alone[index] }
            };
            self.jobs.iter().enumerate().map(of_job).collect()
        };
        outcomes.iter().map(of_outcome).collect()
    }
}

/// The time of a job under a policy. Times are in seconds.
pub struct JobTime<'a> {
    /// The job.
    pub job: &'a Job,
    /// The name of its workload.
    pub workload: &'a str,
    /// Its duration; none if it cannot complete.
    pub duration: Option<f64>,
    /// Its duration alone, under `fair`; none if it cannot complete.
    pub alone: Option<f64>,
}

impl JobTime<'_> {
    fn slowdown(&self) -> Option<f64> {
        Some(slowdown(self.duration?, self.alone?))
    }
}

/// A duration divided by that alone; 1 for a job without any work.
pub fn slowdown(duration: f64, alone: f64) -> f64 {
    if alone > 0.0 { duration / alone } else { 1.0 }
}

/// The mean and the maximum slowdown of the jobs that complete; none without any.
pub fn slowdown_summary(times: &[JobTime<'_>]) -> [Option<f64>; 2] {
    let slowdowns: Vec<f64> = times.iter().filter_map(JobTime::slowdown).collect();
    let max = slowdowns.iter().copied().max_by(f64::total_cmp);
    [max.map(|_| mean(&slowdowns)), max]
}

/// The slowdown of each job under each policy, as a table.
pub fn slowdown_table(policies: &[String], times: &[Vec<JobTime<'_>>]) -> String {
    let [left, right] = [Alignment::Left, Alignment::Right].map(|align| move |name| (name, align));
    let mut columns = vec![left("job"), left("workload"), right("hosts"), right("start s"), right("alone s")];
    columns.extend(policies.iter().map(|policy| right(policy.as_str())));
    let mut table = Table::new(&columns);
    for (index, first) in times[0].iter().enumerate().take(MAX_TABLE_ROWS) {
        let JobTime { job, workload, alone, .. } = first;
        let mut line = vec![job.name.clone(), (*workload).to_owned(), job.hosts.len().to_string()];
        line.extend([format_number(job.start.get()), format_optional(*alone)]);
        line.extend(times.iter().map(|times| format_optional(times[index].slowdown())));
        table.add_row(line);
    }
    let summary = |name: &str, position: usize| {
        let values = times.iter().map(|times| format_optional(slowdown_summary(times)[position]));
        [name, "", "", "", ""].map(str::to_owned).into_iter().chain(values).collect()
    };
    table.add_row(summary("mean", 0));
    table.add_row(summary("maximum", 1));
    let omitted = times[0].len().saturating_sub(MAX_TABLE_ROWS);
    let omitted = match omitted {
        0 => String::new(),
        count => format!("{count} more jobs are not shown; --per-job writes all.\n"),
    };
    format!(
        "\nSlowdowns of jobs: the time under the policy divided by the time alone under `fair`.\n{omitted}\n{table}"
    )
}

/// A workload with the coflows of one job. The others are empty, since the paths of flows depend on the positions of coflows.
fn only_job(workload: &Workload, number: u64) -> Workload {
    let empty =
        |coflow: &CoflowSpec| CoflowSpec::new(coflow.id, Time::ZERO, vec![FlowSpec::new(0, 0, Bytes::ZERO)]);
    let coflows = workload.coflows.iter().map(|coflow| match coflow.job {
        Some(job) if job == number => coflow.clone(),
        _ => empty(coflow),
    });
    let coflows = coflows.collect();
    Workload { ports: workload.ports, coflows, events: Vec::new(), names: workload.names.clone() }
}

fn duration(job: &JobOutcome) -> f64 {
    job.end - job.arrival
}

/// The stages of a workload. Those of published workloads are scaled to the amount of data, the number of hosts divided by the
/// profiler's, and the rate of the slowest cable.
fn stages(
    file: &JobsFile,
    published: &[PublishedWorkload],
    workload: WorkloadRef,
    scale: (f64, f64),
    slowest: Rate,
) -> Vec<Stage> {
    match workload {
        WorkloadRef::InFile(index) => file.workloads[index].stages.clone(),
        WorkloadRef::Predefined(index) => published[index].stages_at_rate(scale.0, scale.1, slowest),
    }
}

/// The rate of the slowest cable of these hosts.
fn slowest_cable<'a>(topology: &Topology, hosts: impl IntoIterator<Item = &'a u32>) -> Rate {
    let rates = hosts.into_iter().map(|&host| topology.link(topology.outgoing_links(NodeId(host))[0]).rate);
    rates.min_by(|a, b| a.get().total_cmp(&b.get())).unwrap_or(Rate::ZERO)
}

/// The sensitivity of each job: of the file's table, or profiled at the rate of the slowest cable of any job.
fn sensitivities(file: &JobsFile, published: &[PublishedWorkload]) -> Result<Vec<Sensitivity>, String> {
    let slowest = slowest_cable(&file.topology, file.jobs.iter().flat_map(|job| &job.servers));
    let rows = file.sensitivity.as_ref().map_or(&[][..], SensitivityTable::rows);
    let mut profiled: Vec<(WorkloadRef, Sensitivity)> = Vec::new();
    let mut sensitivity = |job: &weir_trace::jobs::Job| {
        let workload = match job.model {
            ModelRef::TableRow(row) => return Ok(rows[row].sensitivity),
            ModelRef::Profiled(workload) => workload,
        };
        if let Some((_, known)) = profiled.iter().find(|(other, _)| *other == workload) {
            return Ok(*known);
        }
        let stages = stages(file, published, workload, (1.0, 1.0), slowest);
        let profile = jobs::profile(&stages, slowest).map_err(|error| error.to_string())?;
        let fit = profile.fit(Degree::Cubic).map_err(|error| error.to_string())?;
        profiled.push((workload, fit.sensitivity));
        Ok(fit.sensitivity)
    };
    file.jobs.iter().map(&mut sensitivity).collect()
}
