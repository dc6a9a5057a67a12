//! Profiles a real command as Saba's offline profiler does (sections 4 and 7.1): runs it at several fractions of the bandwidth.

mod cluster;
mod command;
mod estimate;
mod target;

use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar};
use weir_core::saba::Fraction;
use weir_core::saba::profile::{Job, PROFILED_FRACTIONS, Profile, ProfileError};
use weir_core::units::Time;
use weir_sim::outcome::percentile;

pub use cluster::ClusterHosts;
pub use command::TimedCommand;
pub use target::ProfileTarget;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::table::format_whole_percent;

/// The measured runs of a command.
pub struct MeasuredRuns {
    /// The durations in seconds, by fraction of the bandwidth in ascending order.
    pub durations: Vec<(Fraction, Vec<f64>)>,
    /// The profile, from the medians.
    pub profile: Profile,
}

/// A command as a job: it runs several times at each fraction, and the median counts.
struct RepeatedCommand<'a> {
    command: &'a TimedCommand,
    target: &'a ProfileTarget<'a>,
    run_count: usize,
    /// The durations so far, by fraction in descending order.
    durations: Vec<(Fraction, Vec<f64>)>,
    bar: ProgressBar,
}

impl RepeatedCommand<'_> {
    fn run_once(&self) -> Result<f64, Failure> {
        let duration = self.command.run(self.target, || self.bar.tick())?;
        self.target.check_limit()?;
        self.bar.inc(1);
        Ok(duration.as_secs_f64())
    }

    /// Shows the estimated time of the remaining runs.
    fn show_estimate(&self) {
        let completed: Vec<(f64, f64)> =
            self.durations.iter().map(|(fraction, times)| (fraction.get(), median(times))).collect();
        let remaining_runs = |fraction: &&Fraction| {
            let times = self
                .durations
                .iter()
                .find(|(known, _)| known == *fraction)
                .map_or(0, |(_, times)| times.len());
            self.run_count - times
        };
        let remaining_fractions = PROFILED_FRACTIONS
            .iter()
            .flat_map(|fraction| std::iter::repeat_n(fraction.get(), remaining_runs(&fraction)));
        if let Some(remaining_secs) =
            estimate::estimate_remaining(&completed, &remaining_fractions.collect::<Vec<f64>>())
        {
            let remaining = Duration::try_from_secs_f64(remaining_secs).unwrap_or(Duration::MAX);
            self.bar.set_message(format!("about {} to go", HumanDuration(remaining)));
        }
    }
}

impl Job for RepeatedCommand<'_> {
    type Error = Failure;

    fn run(&mut self, bandwidth: Fraction) -> Result<Time, Failure> {
        self.target.limit_bandwidth(bandwidth)?;
        self.durations.push((bandwidth, Vec::with_capacity(self.run_count)));
        for _ in 0..self.run_count {
            let duration = self.run_once()?;
            self.durations.last_mut().expect("`durations` got an entry above").1.push(duration);
            self.show_estimate();
        }
        let times = &self.durations.last().expect("`durations` got an entry above").1;
        Ok(Time::new(median(times)).expect("a duration is finite and not negative"))
    }
}

fn median(times: &[f64]) -> f64 {
    percentile(times, 50.0)
}

/// Profiles a command at a target: one warm-up run, then `run_count` runs at each fraction of the bandwidth. The last limit stays set.
///
/// # Errors
/// The first run that fails, or durations that give no slowdown.
pub fn measure(
    name: &str,
    command: &TimedCommand,
    target: &ProfileTarget<'_>,
    run_count: usize,
    progress: &Progress,
) -> Result<MeasuredRuns, Failure> {
    let bar = progress.add_step_bar(name, 1 + run_count * PROFILED_FRACTIONS.len());
    let mut job = RepeatedCommand {
        command,
        target,
        run_count,
        durations: Vec::with_capacity(PROFILED_FRACTIONS.len()),
        bar,
    };
    let to_failure = |run: &str, failure: Failure| Failure {
        message: format!("{name}, {run}: {}", failure.message),
        ..failure
    };
    let warmup = target.limit_bandwidth(Fraction::ALL).and_then(|()| job.run_once());
    let profile = match warmup {
        Ok(_) => Profile::measure(&mut job, &PROFILED_FRACTIONS).map_err(|error| match error {
            ProfileError::RunFailed { bandwidth, source } => {
                let run = job.durations.last().map_or(0, |(_, times)| times.len()) + 1;
                to_failure(
                    &format!("run {run} at {} of the bandwidth", format_whole_percent(bandwidth.get())),
                    source,
                )
            }
            error => Failure::runtime(format_args!("{name}: {error}")),
        }),
        Err(failure) => Err(to_failure("the warm-up run", failure)),
    };
    job.bar.finish_and_clear();
    let mut times = job.durations;
    times.reverse();
    Ok(MeasuredRuns { durations: times, profile: profile? })
}
