//! Shows the progress of long work: bars at a terminal, otherwise a line from time to time.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use weir_sim::{CoflowOutcome, Observer, Snapshot};

use crate::interrupt;

/// The time between two lines of one replay.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of running work, on the standard error.
pub struct Progress {
    bars: MultiProgress,
    is_quiet: bool,
    is_terminal: bool,
    started_at: Instant,
}

impl Progress {
    /// Shows nothing if `quiet` is true. Signals then stop work by [`interrupt`].
    pub fn new(quiet: bool) -> Progress {
        interrupt::record_signals();
        let is_terminal = io::stderr().is_terminal();
        let is_shown = !quiet && is_terminal;
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        Progress { bars, is_quiet: quiet, is_terminal, started_at: Instant::now() }
    }

    /// A bar for a replay of `coflows` coflows. Without a terminal, a replay that takes long prints a line every ten seconds.
    pub fn add_replay_bar(&self, name: &str, coflows: usize) -> ReplayProgress {
        let bar = self.bars.add(ProgressBar::new(coflows as u64));
        let style =
            ProgressStyle::with_template("{prefix}  {bar:30}  {pos}/{len} coflows  {elapsed}, {eta} to go");
        bar.set_style(style.expect("the template is a valid constant"));
        bar.set_prefix(name.to_owned());
        let prints_lines = !self.is_quiet && !self.is_terminal;
        ReplayProgress { bar, last_line: prints_lines.then(Instant::now) }
    }

    /// A bar with `steps` steps, which may show a message.
    pub fn add_step_bar(&self, name: &str, steps: usize) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new(steps as u64));
        let style = ProgressStyle::with_template("{prefix}  {bar:30}  {pos}/{len}  {elapsed}  {msg}");
        bar.set_style(style.expect("the template is a valid constant"));
        bar.set_prefix(name.to_owned());
        bar
    }

    /// Prints a line about a part of the work that has finished, for those who wait: at a terminal always, otherwise once the
    /// work takes long.
    pub fn print_finished(&self, line: &str) {
        if self.is_quiet {
            return;
        }
        if self.is_terminal {
            // A terminal that cannot be written to loses the line only.
            let _ = self.bars.println(line);
        } else if self.started_at.elapsed() >= LINE_INTERVAL {
            eprintln!("{line}");
        }
    }
}

/// Observes one replay: counts its coflows, and stops it after a signal.
pub struct ReplayProgress {
    bar: ProgressBar,
    /// The time of the last line; none if no lines are printed.
    last_line: Option<Instant>,
}

impl Observer for ReplayProgress {
    fn on_schedule(&mut self, _: &Snapshot<'_>) -> bool {
        if let Some(last_line) = &mut self.last_line
            && last_line.elapsed() >= LINE_INTERVAL
        {
            *last_line = Instant::now();
            let (name, seconds) = (self.bar.prefix(), self.bar.elapsed().as_secs());
            let (completed, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!("{name}: {completed} of {total} coflows after {seconds} s");
        }
        !interrupt::is_requested()
    }

    fn on_coflow_completed(&mut self, _: &CoflowOutcome) {
        self.bar.inc(1);
    }
}

impl Drop for ReplayProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
