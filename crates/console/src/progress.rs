//! Shows the progress of long work at a terminal.

use std::io::{self, IsTerminal};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use weir_sim::{CoflowOutcome, Observer, Snapshot};

use crate::interrupt;

/// The progress bars of running work.
pub struct Progress(MultiProgress);

impl Progress {
    /// Shows bars if the standard error is a terminal and `quiet` is false. Signals then stop work by [`interrupt`].
    pub fn new(quiet: bool) -> Progress {
        interrupt::record_signals();
        let is_shown = !quiet && io::stderr().is_terminal();
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Progress(MultiProgress::with_draw_target(target))
    }

    /// A bar for a replay of `coflows` coflows.
    pub fn add_replay_bar(&self, name: &str, coflows: usize) -> ReplayProgress {
        let bar = self.0.add(ProgressBar::new(coflows as u64));
        let style =
            ProgressStyle::with_template("{prefix}  {bar:30}  {pos}/{len} coflows  {elapsed}, {eta} to go");
        bar.set_style(style.expect("the template is a valid constant"));
        bar.set_prefix(name.to_owned());
        ReplayProgress { bar }
    }
}

impl Progress {
    /// A bar with `steps` steps, which may show a message.
    pub fn add_step_bar(&self, name: &str, steps: usize) -> ProgressBar {
        let bar = self.0.add(ProgressBar::new(steps as u64));
        let style = ProgressStyle::with_template("{prefix}  {bar:30}  {pos}/{len}  {elapsed}  {msg}");
        bar.set_style(style.expect("the template is a valid constant"));
        bar.set_prefix(name.to_owned());
        bar
    }
}

/// Observes one replay: counts its coflows, and stops it after a signal.
pub struct ReplayProgress {
    bar: ProgressBar,
}

impl ReplayProgress {
    /// Sets the number of completed coflows. Returns whether to continue.
    pub fn set_completed(&self, completed: usize) -> bool {
        self.bar.set_position(completed as u64);
        !interrupt::is_requested()
    }
}

impl Observer for ReplayProgress {
    fn on_schedule(&mut self, _: &Snapshot<'_>) -> bool {
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
