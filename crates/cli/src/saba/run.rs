//! Runs `weir saba run`: simulates the jobs of a file on its network under each mode of sharing links.

mod report;

use report::Report;
use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::progress::Progress;
use weir_console::run::run_concurrently;
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::Degree;
use weir_sim::stage::Stage;
use weir_sim::stage::cluster::ClusterError;
use weir_sim::stage::fabric::PathSelection;
use weir_sim::stage::job_set::{Job, JobSet, JobWork, ModelRef, place_jobs};
use weir_sim::stage::sharing::{ConnectionLifetime, ControllerKind, SabaParameters, SharingRule};
use weir_sim::stage::workload::Workload;
use weir_trace::jobs::{self, Jobs, WorkloadRef};

use crate::args::{self, SharingMode};
use crate::render;

/// The maximum number of queues at all distinct links, which bounds memory.
const MAX_QUEUES: usize = 50_000_000;

/// Runs `weir saba run`.
pub fn run(args: &args::SabaRun) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.jobs_file)?;
    let builtin_workloads = Workload::all();
    let builtin_names: Vec<&str> = builtin_workloads.iter().map(|workload| workload.name).collect();
    let file = jobs::read(&args.jobs_file, &builtin_names)?;
    let modes = unique_modes(args);
    let needs_models = modes.iter().any(|mode| mode.is_saba());
    check_shares(args, &file, needs_models)?;

    let (works, specs) = build_jobs(&file, &builtin_workloads, needs_models);
    let rows = file.sensitivity.iter().flat_map(|table| table.rows());
    let given_models: Vec<Sensitivity> = rows.map(|row| row.sensitivity).collect();
    let degree = Degree::ALL[usize::from(args.degree) - 1];
    let (placed_jobs, models) =
        place_jobs(&file.topology, &works, &specs, &given_models, degree).map_err(Failure::runtime)?;
    let paths = args.hash.map_or(PathSelection::EvenSplit, PathSelection::Hashed);
    let jobs =
        JobSet::new(&file.topology, placed_jobs, paths).map_err(|error| cluster_failure("jobs", &error))?;
    check_queues(args, &jobs)?;
    let job_count = jobs.jobs().len();
    let progress = Progress::new(args.run_options.quiet);
    let bar = progress.add_step_bar("jobs alone, then together", job_count + modes.len());
    let keep_running = |_| !interrupt::is_requested();
    let mut durations = run_concurrently(job_count + modes.len(), args.run_options.jobs, |index| {
        let (run_name, durations) = match index.checked_sub(job_count) {
            None => ("a job alone".to_owned(), jobs.run_alone(index, keep_running)),
            Some(mode) => (
                modes[mode].name(),
                jobs.run_together(&to_sharing(modes[mode], &jobs, &models, args), keep_running),
            ),
        };
        bar.inc(1);
        durations.map_err(|error| cluster_failure(&run_name, &error))
    })?;
    bar.finish_and_clear();
    let durations_by_mode = durations.split_off(job_count);
    let alone_secs = durations.iter().map(|durations| durations.seconds[0]).collect();
    let report = Report {
        jobs_file: &file,
        builtin_names: &builtin_names,
        link_counts: jobs.link_counts(),
        modes: &modes,
        alone_secs,
        durations_by_mode,
    };
    let path = args.jobs_file.display().to_string();
    sink.write_text(render::list(args.output.format, || report.tables(&path), || report.records()))
}

/// The baseline, then the other requested modes without duplicates.
fn unique_modes(args: &args::SabaRun) -> Vec<SharingMode> {
    let mut modes = vec![args.baseline];
    for &mode in &args.sharing {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

/// Checks that jobs that are not compliant have a queue and a share of each port.
fn check_shares(args: &args::SabaRun, file: &Jobs, needs_models: bool) -> Result<(), Failure> {
    let c_saba = args.weight_options.c_saba;
    let without_model = file.jobs.iter().find(|job| job.model.is_none());
    if let Some(job) = without_model.filter(|_| needs_models && c_saba == Fraction::ALL) {
        return Err(Failure::input(format_args!(
            "{}: job `{}` is not compliant, and --c-saba is 1; expected --c-saba below 1, which reserves a queue for such jobs",
            args.jobs_file.display(),
            job.name
        )));
    }
    if c_saba < Fraction::ALL && args.queues.get() < 2 {
        return Err(Failure::input(
            "--queues: `1` is too few; expected at least 2, since --c-saba below 1 reserves the last queue for jobs that are not compliant",
        ));
    }
    Ok(())
}

fn check_queues(args: &args::SabaRun, jobs: &JobSet<'_>) -> Result<(), Failure> {
    let queues = jobs.link_counts().1.saturating_mul(usize::from(args.queues.get()));
    if queues > MAX_QUEUES {
        return Err(Failure::input(format_args!(
            "--queues: `{}` makes {queues} queues on all links; expected at most {MAX_QUEUES}",
            args.queues
        )));
    }
    Ok(())
}

/// The works and jobs of a file. Works are the built-in workloads, then the file's own. Without `needs_models`, jobs have no
/// profiled models.
fn build_jobs<'a>(
    file: &Jobs,
    builtin_workloads: &'a [Workload],
    needs_models: bool,
) -> (Vec<JobWork<'a>>, Vec<Job>) {
    let stage = |&jobs::Stage { compute, overlapped_compute, bytes, max_transfer_time }: &_| Stage {
        compute,
        overlapped_compute,
        bytes,
        max_transfer_time,
    };
    let file_works =
        file.workloads.iter().map(|work| JobWork::Stages(work.stages.iter().map(stage).collect()));
    let works = builtin_workloads.iter().map(JobWork::Workload).chain(file_works).collect();
    let position = |workload| match workload {
        WorkloadRef::Predefined(index) => index,
        WorkloadRef::InFile(index) => builtin_workloads.len() + index,
    };
    let job = |job: &jobs::Job| {
        let model = job.model.and_then(|model| match model {
            jobs::ModelRef::TableRow(row) => Some(ModelRef::FromTable(row)),
            jobs::ModelRef::Profiled(workload) => {
                needs_models.then(|| ModelRef::Profiled(position(workload)))
            }
        });
        let (work, servers) = (position(job.workload), job.servers.clone());
        Job { work, servers, data_scale: job.data_scale, start: job.start, model }
    };
    (works, file.jobs.iter().map(job).collect())
}

/// The rule of the simulator for a mode.
fn to_sharing(
    mode: SharingMode,
    jobs: &JobSet<'_>,
    models: &[Sensitivity],
    args: &args::SabaRun,
) -> SharingRule {
    let controller_kind = match mode {
        SharingMode::Fair => return SharingRule::PerFlow,
        SharingMode::Applications => return SharingRule::PerApplication,
        SharingMode::Homa => return SharingRule::SizePriorities(jobs.size_cutoffs(args.queues.get().into())),
        SharingMode::Sincronia => return SharingRule::CoflowOrder,
        SharingMode::Saba => ControllerKind::Central,
        SharingMode::SabaDistributed => ControllerKind::Distributed,
    };
    SharingRule::Saba(SabaParameters {
        models: models.to_vec(),
        queues_per_port: args.queues.get(),
        priority_levels: args.levels,
        c_saba: args.weight_options.c_saba,
        min_share: args.weight_options.floor,
        connection_lifetime: ConnectionLifetime::Transfer,
        controller_kind,
    })
}

/// The failure of a simulation, with the name of its run.
fn cluster_failure(run_name: &str, error: &ClusterError) -> Failure {
    let Failure { exit_code, message } = Failure::from_cluster_error(error);
    Failure { exit_code, message: format!("{run_name}: {message}") }
}
