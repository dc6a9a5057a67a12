//! Measures Fig. 1b of Saba: profiled jobs share the links of a testbed with equal shares and with Saba's weights.

mod agents;

use std::fs;
use std::num::NonZeroU16;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use weir_console::failure::Failure;
use weir_console::profile::{self, ProfileTarget, TimedCommand};
use weir_console::progress::Progress;
use weir_console::table::format_whole_percent;
use weir_console::testbed;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::controller::{AppId, ConnectionId, Controller, ControllerSettings};
use weir_core::saba::{Fraction, Sensitivity};
use weir_core::solve::polynomial::Degree;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::queues::dscp;
use weir_testbed::{Bed, BedName};
use weir_trace::sensitivity::ProfiledApplication;

use super::LINK_BYTES_PER_SEC;
use crate::markdown::{format_cell, table};

/// The number of hosts under the switch. Every job runs on all of them.
const HOSTS: u32 = 3;

/// The module that the jobs import.
const HOSTS_MODULE: (&str, &str) = ("hosts", include_str!("../../../../examples/jobs/hosts.py"));

/// The jobs, from the most to the least sensitive. Their slowdowns at 25 % of the bandwidth are those of LR (3.4), of the average workload
/// (2.1) and of PR (1.4) in Fig. 1a. The last job takes longer than the first, as PR takes longer than LR.
const JOBS: [(&str, &str); 3] = [
    ("shuffle", include_str!("../../../../examples/jobs/shuffle.py")),
    ("rounds", include_str!("../../../../examples/jobs/rounds.py")),
    ("derive", include_str!("../../../../examples/jobs/derive.py")),
];

/// The number of runs of each job at each fraction of the bandwidth, alone, and together under each setup.
const RUNS: usize = 3;

/// The maximum duration of a run: a hundred times the duration on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A row of Fig. 1b: its name, the shares of the jobs, and their slowdowns.
type PublishedRow = (&'static str, [Option<f64>; 3], [Option<f64>; 3]);

/// The rows of Fig. 1b, from the text of section 2.2. LR is in the column of the most sensitive job, PR in that of the least sensitive one.
const PUBLISHED: [PublishedRow; 2] = [
    ("Fig. 1b: max-min", [None, None, None], [Some(2.26), None, Some(1.21)]),
    ("Fig. 1b: skewed", [Some(0.75), None, Some(0.25)], [Some(1.48), None, Some(1.34)]),
];

/// How the jobs share the links, and their times together.
struct Setup {
    name: String,
    /// The queue of each job and the weight of each queue. If `None`, all jobs share one queue.
    queues: Option<(Vec<u16>, Vec<f64>)>,
    /// By repetition and job, in seconds.
    times_secs: Vec<Vec<f64>>,
}

impl Setup {
    /// A percentile of each job's times, divided by its time alone.
    fn slowdowns(&self, p: f64, alone: &[f64]) -> Vec<f64> {
        let slowdown = |(job, alone): (usize, &f64)| {
            percentile(&self.times_secs.iter().map(|times| times[job]).collect::<Vec<_>>(), p) / alone
        };
        alone.iter().enumerate().map(slowdown).collect()
    }

    /// The weight of a job's queue as a fraction of the sum of all weights.
    fn weight(&self, job: usize) -> Option<f64> {
        let (queues, weights) = self.queues.as_ref()?;
        Some(weights[usize::from(queues[job])] / weights.iter().sum::<f64>())
    }

    fn apply(&self, bed: &Bed) -> Result<(), Failure> {
        let applied = match &self.queues {
            Some((_, weights)) => bed.set_service_queues(weights),
            None => bed.set_queues(None),
        };
        applied.map_err(|error| testbed::failure(&error))
    }

    /// The DSCP of a job's packets.
    fn dscp(&self, job: usize) -> u8 {
        self.queues.as_ref().map_or(0, |(queues, _)| dscp(queues[job].into()))
    }
}

/// The profiles of the jobs, and their times alone and together.
struct Measurements {
    profiles: Vec<(profile::MeasuredRuns, ProfiledApplication)>,
    /// The median time of each job alone, in seconds.
    alone_secs: Vec<f64>,
    /// One queue, equal weights, and Saba's weights for each degree of the models.
    setups: Vec<Setup>,
}

/// The section of the page: published and measured slowdowns.
pub(super) fn section(bed: &BedName, progress: &Progress) -> Result<String, Failure> {
    let network = super::big_switch(HOSTS, super::link_rate());
    let measured = testbed::with_bed(bed, &network, |bed| measure(bed, progress))?;
    let profiled: Vec<_> = measured.profiles.iter().map(|(_, fitted)| fitted.clone()).collect();
    Ok(text(&measured) + &agents::section(bed, &profiled, progress)?)
}

fn measure(bed: &Bed, progress: &Progress) -> Result<Measurements, Failure> {
    let job_files = JobFiles::write()?;
    let namespaces: Vec<String> =
        bed.plan().nodes[..HOSTS as usize].iter().map(|node| node.namespace.clone()).collect();
    let target = ProfileTarget::hosts(bed, &[])?;
    let mut profiled = Vec::with_capacity(JOBS.len());
    for (job, (name, _)) in JOBS.iter().enumerate() {
        let runs = target.run_and_restore(|| {
            profile::measure(name, &job_files.command(job, &namespaces, 0), &target, RUNS, progress)
        })?;
        let fitted = ProfiledApplication::new(name, runs.profile.clone()).map_err(Failure::runtime)?;
        profiled.push((runs, fitted));
    }
    let setup = |name: &str, queues| Setup { name: name.to_owned(), queues, times_secs: Vec::new() };
    let equal = ((0..JOBS.len() as u16).collect(), vec![1.0; JOBS.len()]);
    let mut setups = vec![setup("one queue", None), setup("equal weights", Some(equal))];
    for degree in 0..Degree::ALL.len() {
        let models = profiled.iter().map(|(_, fitted)| fitted.fits[degree].sensitivity).collect();
        setups.push(setup(&format!("Saba, k={}", degree + 1), Some(saba_queues(models)?)));
    }
    let bar = progress.add_step_bar("jobs alone and together", RUNS * (JOBS.len() + setups.len()));
    let mut alone = vec![Vec::with_capacity(RUNS); JOBS.len()];
    // Each repetition runs all setups, so that other load on the machine affects all of them.
    for _ in 0..RUNS {
        setups[0].apply(bed)?;
        for (job, times) in alone.iter_mut().enumerate() {
            times.extend(run_together(&target, &[job_files.command(job, &namespaces, 0)])?);
            bar.inc(1);
        }
        for setup in &mut setups {
            setup.apply(bed)?;
            let commands: Vec<TimedCommand> =
                (0..JOBS.len()).map(|job| job_files.command(job, &namespaces, setup.dscp(job))).collect();
            setup.times_secs.push(run_together(&target, &commands)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let alone = alone.iter().map(|times| percentile(times, 50.0)).collect();
    Ok(Measurements { profiles: profiled, alone_secs: alone, setups })
}

/// The jobs as files in a temporary directory.
struct JobFiles(TempDir);

impl JobFiles {
    fn write() -> Result<JobFiles, Failure> {
        let directory = tempfile::tempdir().map_err(Failure::runtime)?;
        for (name, text) in JOBS.into_iter().chain([HOSTS_MODULE]) {
            let path = directory.path().join(format!("{name}.py"));
            fs::write(&path, text).map_err(|error| Failure::output(&path, &error))?;
        }
        Ok(JobFiles(directory))
    }

    /// The command of a job on hosts with these namespaces, whose packets have a DSCP.
    fn command(&self, job: usize, namespaces: &[String], dscp: u8) -> TimedCommand {
        let script = self.0.path().join(format!("{}.py", JOBS[job].0));
        let words =
            ["python3".into(), script.into()].into_iter().chain(namespaces.iter().map(Into::into)).collect();
        TimedCommand {
            command_line: words,
            environment: vec![("WEIR_DSCP", dscp.to_string())],
            timeout: TIMEOUT,
            output_file: None,
        }
    }
}

/// Runs commands at the same time, and returns the time of each in seconds.
fn run_together(target: &ProfileTarget<'_>, commands: &[TimedCommand]) -> Result<Vec<f64>, Failure> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            commands.iter().map(|command| scope.spawn(move || command.run(target, || ()))).collect();
        // All commands end before the first failure is returned.
        let results: Vec<Result<Duration, Failure>> =
            threads.into_iter().map(|thread| thread.join().expect("`run` does not panic")).collect();
        results.into_iter().map(|duration| Ok(duration?.as_secs_f64())).collect()
    })
}

/// The queue of each job and the weight of each queue, by Saba's controller. Every port carries all jobs, so one port suffices.
fn saba_queues(models: Vec<Sensitivity>) -> Result<(Vec<u16>, Vec<f64>), Failure> {
    const PORT: u32 = 0;
    let levels = NonZeroU16::new(8).expect("8 is not 0");
    let settings =
        ControllerSettings { c_saba: Fraction::ALL, min_share: DEFAULT_MIN_SHARE, max_levels: levels };
    let jobs = models.len();
    let mut controller =
        Controller::new_central(models, settings, &[jobs as u16]).map_err(Failure::runtime)?;
    for job in 0..jobs {
        let app = AppId(job as u64);
        controller.register(app, job).map_err(Failure::runtime)?;
        controller.open_connection(ConnectionId(job as u64), app, &[PORT]).map_err(Failure::runtime)?;
    }
    controller.update_plans();
    let plan = controller.queue_plan(PORT).expect("the port has connections");
    let queue = |job: usize| {
        let level = controller.app_level(AppId(job as u64)).expect("every job was registered above");
        plan.queue_by_level[usize::from(level)]
    };
    // Equal jobs share a queue; the last queues are then unused and have no weight.
    let weights = plan.weights.iter().copied().filter(|weight| *weight > 0.0).collect();
    Ok(((0..jobs).map(queue).collect(), weights))
}

fn text(measured: &Measurements) -> String {
    let Measurements { profiles: profiled, alone_secs: alone, setups } = measured;
    let mut out = format!(
        "The jobs of `examples/jobs` mark their packets and use nothing else of Weir: `shuffle` is network-heavy, `rounds` \
         balanced, and `derive` compute-heavy. Their sizes follow Fig. 1a: at 25 % of the bandwidth, LR takes 3.4 times as \
         long, the average workload 2.1 times, and PR 1.4 times. There are {HOSTS} hosts under one switch, with links of {} \
         Mbit/s. Each job is profiled first, as by `weir profile`, with {RUNS} runs at each fraction of the bandwidth of all \
         hosts. The table has the slowdowns, the fits of the models of degree k, and the median times alone.\n",
        format_cell(LINK_BYTES_PER_SEC * 8e-6),
    );
    out.push_str(&profiles_table(profiled, alone));
    out.push_str(&format!(
        "Then all jobs start at the same time on the same hosts. The setups are: one queue at each port (plain TCP); a queue \
         for each job, with equal weights; and the weights that Saba's controller computes from these profiles (Eq. 2). \
         Queues are HTB classes at every port, also at hosts. The controller is part of the command; no coordinator or agent \
         runs. All hosts share the processors of this machine, so jobs also wait for processors. A slowdown is the median \
         time of {RUNS} runs divided by the median time alone. Brackets have the minimum and maximum of the runs. In the \
         rows of Fig. 1b, LR is in the column of `{}` and PR in that of `{}`.\n",
        JOBS[0].0, JOBS[2].0,
    ));
    out + &slowdowns_table(setups, alone)
}

fn profiles_table(profiled: &[(profile::MeasuredRuns, ProfiledApplication)], alone: &[f64]) -> String {
    let parts = profiled[0].0.durations.iter().map(|(part, _)| format_whole_percent(part.get()));
    let fits = (1..=Degree::ALL.len()).map(|degree| format!("R^2, k={degree}"));
    let head: Vec<String> =
        ["job".to_owned()].into_iter().chain(parts).chain(fits).chain(["alone, s".to_owned()]).collect();
    let line = |((runs, fitted), alone): (&(profile::MeasuredRuns, ProfiledApplication), &f64)| {
        let slowdowns = runs.profile.runs().iter().map(|sample| sample.slowdown);
        let numbers = slowdowns.chain(fitted.fits.iter().map(|fit| fit.r2)).chain([*alone]);
        [fitted.name.clone()].into_iter().chain(numbers.map(format_cell)).collect()
    };
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table(&head, 1, &profiled.iter().zip(alone).map(line).collect::<Vec<_>>())
}

fn slowdowns_table(setups: &[Setup], alone: &[f64]) -> String {
    let weights = JOBS.map(|(name, _)| format!("weight of {name}"));
    let head: Vec<&str> = ["setup"]
        .into_iter()
        .chain(weights.iter().map(String::as_str))
        .chain(JOBS.map(|(name, _)| name))
        .chain(["average"])
        .collect();
    let line = |setup: &Setup| {
        let [min, median, max] = [0.0, 50.0, 100.0].map(|p| setup.slowdowns(p, alone));
        let mut line = vec![setup.name.clone()];
        line.extend((0..JOBS.len()).map(|job| setup.weight(job).map_or("-".to_owned(), format_cell)));
        let cell = |job: usize| {
            format!("{} ({} to {})", format_cell(median[job]), format_cell(min[job]), format_cell(max[job]))
        };
        line.extend((0..JOBS.len()).map(cell));
        line.push(format_cell(mean(&median)));
        line
    };
    let published = PUBLISHED.iter().map(|&(name, weights, slowdowns)| {
        let cells = weights.into_iter().chain(slowdowns).map(|cell| cell.map_or("-".to_owned(), format_cell));
        let average = format_cell(mean(&slowdowns.into_iter().flatten().collect::<Vec<_>>()));
        [name.to_owned()].into_iter().chain(cells).chain([average]).collect()
    });
    table(&head, 1, &published.chain(setups.iter().map(line)).collect::<Vec<_>>())
}
