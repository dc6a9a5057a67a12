//! `weir saba run`: the jobs of a file together on its network, under each mode of sharing links.

mod report;

use report::Report;
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::progress::Progress;
use weir_console::run::pool;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::Degree;
use weir_sim::stage::Stage;
use weir_sim::stage::cluster::ClusterError;
use weir_sim::stage::fabric::Paths;
use weir_sim::stage::job_set::{Job, JobSet, Model, Work, place};
use weir_sim::stage::sharing::{Connections, Controllers, Saba, Sharing};
use weir_sim::stage::workload::Workload;
use weir_trace::jobs::{self, Jobs, Of};

use crate::args::{self, SharingMode};
use crate::render;

/// The most queues of all distinct links, which bounds memory.
const MAX_QUEUES: usize = 50_000_000;

/// Runs `weir saba run`.
pub fn run(args: &args::SabaRun) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.jobs_file)?;
    let known = Workload::all();
    let names: Vec<&str> = known.iter().map(|workload| workload.name).collect();
    let file = jobs::read(&args.jobs_file, &names)?;
    let modes = modes(args);
    let needs_models = modes.iter().any(|mode| mode.is_saba());
    check_shares(args, &file, needs_models)?;

    let (works, specs) = jobs_of(&file, &known, needs_models);
    let rows = file.sensitivity.iter().flat_map(|table| table.rows());
    let given: Vec<Sensitivity> = rows.map(|row| row.sensitivity).collect();
    let degree = Degree::ALL[usize::from(args.degree) - 1];
    let (placed, models) = place(&file.topology, &works, &specs, &given, degree).map_err(Failure::undone)?;
    let paths = args.hash.map_or(Paths::Even, Paths::Hashed);
    let jobs = JobSet::new(&file.topology, placed, paths).map_err(|error| failure("jobs", &error))?;
    check_queues(args, &jobs)?;
    let alone = jobs.jobs().len();
    let progress = Progress::new(args.running.quiet);
    let bar = progress.steps("jobs alone, then together", alone + modes.len());
    let go_on = |_| !interrupt::asked();
    let mut durations = pool(alone + modes.len(), args.running.jobs, |at| {
        let (what, durations) = match at.checked_sub(alone) {
            None => ("a job alone".to_owned(), jobs.alone(at, go_on)),
            Some(mode) => {
                (modes[mode].name(), jobs.together(&sharing(modes[mode], &jobs, &models, args), go_on))
            }
        };
        bar.inc(1);
        durations.map_err(|error| failure(&what, &error))
    })?;
    bar.finish_and_clear();
    let together = durations.split_off(alone);
    let alone = durations.iter().map(|durations| durations.seconds[0]).collect();
    let report = Report { file: &file, known: &names, links: jobs.links(), modes: &modes, alone, together };
    let path = args.jobs_file.display().to_string();
    sink.fill(render::list(args.output.format, || report.tables(&path), || report.records()))
}

/// The baseline, then the other requested modes, each once.
fn modes(args: &args::SabaRun) -> Vec<SharingMode> {
    let mut modes = vec![args.baseline];
    for &mode in &args.sharing {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

/// Refuses a C_saba that leaves no queue to jobs that need one.
fn check_shares(args: &args::SabaRun, file: &Jobs, needs_models: bool) -> Result<(), Failure> {
    let c_saba = args.shares.c_saba;
    let without_model = file.jobs.iter().find(|job| job.model.is_none());
    if let Some(job) = without_model.filter(|_| needs_models && c_saba == Fraction::ALL) {
        return Err(Failure::input(format_args!(
            "{}: job `{}` does not comply, and --c-saba is 1: expected below 1, which leaves it a queue",
            args.jobs_file.display(),
            job.name
        )));
    }
    if c_saba < Fraction::ALL && args.queues.get() < 2 {
        return Err(Failure::input(
            "--queues: `1`: expected at least 2, since --c-saba below 1 reserves the last queue for jobs that do not comply",
        ));
    }
    Ok(())
}

fn check_queues(args: &args::SabaRun, jobs: &JobSet<'_>) -> Result<(), Failure> {
    let queues = jobs.links().1.saturating_mul(usize::from(args.queues.get()));
    if queues > MAX_QUEUES {
        return Err(Failure::input(format_args!(
            "--queues: `{}`: {queues} queues on all links: expected at most {MAX_QUEUES}",
            args.queues
        )));
    }
    Ok(())
}

/// The works and jobs of the file: works of `known` first, then its own. Without `needs_models`, no work is profiled.
fn jobs_of<'a>(file: &Jobs, known: &'a [Workload], needs_models: bool) -> (Vec<Work<'a>>, Vec<Job>) {
    let stage = |&jobs::Stage { compute, beside, bytes, limit }: &_| Stage {
        compute,
        beside,
        bytes,
        patience: limit,
    };
    let own = file.workloads.iter().map(|work| Work::Stages(work.stages.iter().map(stage).collect()));
    let works = known.iter().map(Work::Workload).chain(own).collect();
    let position = |of| match of {
        Of::Known(at) => at,
        Of::File(at) => known.len() + at,
    };
    let job = |job: &jobs::Job| {
        let model = job.model.and_then(|model| match model {
            jobs::Model::Row(row) => Some(Model::Given(row)),
            jobs::Model::Profiled(of) => needs_models.then(|| Model::Profiled(position(of))),
        });
        let (work, servers) = (position(job.workload), job.servers.clone());
        Job { work, servers, data: job.data, start: job.start, model }
    };
    (works, file.jobs.iter().map(job).collect())
}

fn sharing(mode: SharingMode, jobs: &JobSet<'_>, models: &[Sensitivity], args: &args::SabaRun) -> Sharing {
    let controllers = match mode {
        SharingMode::Fair => return Sharing::Flows,
        SharingMode::Applications => return Sharing::Applications,
        SharingMode::Homa => return Sharing::Sizes(jobs.cutoffs(args.queues.get().into())),
        SharingMode::Sincronia => return Sharing::Coflows,
        SharingMode::Saba => Controllers::Central,
        SharingMode::SabaDistributed => Controllers::Distributed,
    };
    Sharing::Saba(Saba {
        models: models.to_vec(),
        queues: args.queues.get(),
        levels: args.levels,
        c_saba: args.shares.c_saba,
        floor: args.shares.floor,
        connections: Connections::Transfer,
        controllers,
    })
}

fn failure(what: &str, error: &ClusterError) -> Failure {
    let Failure { code, message } = Failure::jobs(error);
    Failure { code, message: format!("{what}: {message}") }
}
