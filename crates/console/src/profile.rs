//! Saba's offline profiler (sections 4 and 7.1) on a real command: runs it at several fractions of the bandwidth.

mod command;
mod estimate;
mod place;

use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar};
use weir_core::saba::Fraction;
use weir_core::saba::profile::{FRACTIONS, Job, Profile, ProfileError};
use weir_core::units::Time;
use weir_sim::outcome::percentile;

pub use command::Timed;
pub use place::Place;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::table::whole_percent;

/// The measured runs of a command.
pub struct Runs {
    /// The durations in seconds, by fraction of the bandwidth in ascending order.
    pub times: Vec<(Fraction, Vec<f64>)>,
    /// The profile, from the medians.
    pub profile: Profile,
}

/// A command as a job: it runs several times at each fraction, and the median counts.
struct Repeated<'a> {
    command: &'a Timed,
    place: &'a Place<'a>,
    runs: usize,
    /// The durations so far, by fraction in descending order.
    times: Vec<(Fraction, Vec<f64>)>,
    bar: ProgressBar,
}

impl Repeated<'_> {
    fn once(&self) -> Result<f64, Failure> {
        let took = self.command.run(self.place, || self.bar.tick())?;
        self.bar.inc(1);
        Ok(took.as_secs_f64())
    }

    /// Shows the estimated time of the remaining runs.
    fn tell(&self) {
        let done: Vec<(f64, f64)> =
            self.times.iter().map(|(part, times)| (part.get(), median(times))).collect();
        let over = |part: &&Fraction| {
            let times = self.times.iter().find(|(at, _)| at == *part).map_or(0, |(_, times)| times.len());
            self.runs - times
        };
        let ahead = FRACTIONS.iter().flat_map(|part| std::iter::repeat_n(part.get(), over(&part)));
        if let Some(left) = estimate::left(&done, &ahead.collect::<Vec<f64>>()) {
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            self.bar.set_message(format!("about {} to go", HumanDuration(left)));
        }
    }
}

impl Job for Repeated<'_> {
    type Error = Failure;

    fn run(&mut self, bandwidth: Fraction) -> Result<Time, Failure> {
        self.place.limit(bandwidth)?;
        self.times.push((bandwidth, Vec::with_capacity(self.runs)));
        for _ in 0..self.runs {
            let took = self.once()?;
            self.times.last_mut().expect("`times` got an entry above").1.push(took);
            self.tell();
        }
        let times = &self.times.last().expect("`times` got an entry above").1;
        Ok(Time::new(median(times)).expect("a duration is finite and not negative"))
    }
}

fn median(times: &[f64]) -> f64 {
    percentile(times, 50.0)
}

/// Profiles a command at a place: one run to warm up, then `runs` runs at each fraction of the bandwidth. The last limit stays in place.
///
/// # Errors
/// The first run that fails, or durations that give no slowdown.
pub fn measure(
    name: &str,
    command: &Timed,
    place: &Place<'_>,
    runs: usize,
    progress: &Progress,
) -> Result<Runs, Failure> {
    let bar = progress.steps(name, 1 + runs * FRACTIONS.len());
    let mut job = Repeated { command, place, runs, times: Vec::with_capacity(FRACTIONS.len()), bar };
    let failed = |why: &str, failure: Failure| Failure {
        code: failure.code,
        message: format!("{name}, {why}: {}", failure.message),
    };
    let warmed = place.limit(Fraction::ALL).and_then(|()| job.once());
    let profile = match warmed {
        Ok(_) => Profile::of(&mut job, &FRACTIONS).map_err(|error| match error {
            ProfileError::Run { bandwidth, source } => {
                let run = job.times.last().map_or(0, |(_, times)| times.len()) + 1;
                failed(&format!("run {run} at {} of the bandwidth", whole_percent(bandwidth.get())), source)
            }
            error => Failure::undone(format_args!("{name}: {error}")),
        }),
        Err(failure) => Err(failed("the run that warms up", failure)),
    };
    job.bar.finish_and_clear();
    let mut times = job.times;
    times.reverse();
    Ok(Runs { times, profile: profile? })
}
