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
        interrupt::watch();
        let shown = !quiet && io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Progress(MultiProgress::with_draw_target(target))
    }

    /// A bar for a replay of `coflows` coflows.
    pub fn watch(&self, name: &str, coflows: usize) -> Watch {
        let bar = self.0.add(ProgressBar::new(coflows as u64));
        let style =
            ProgressStyle::with_template("{prefix}  {bar:30}  {pos}/{len} coflows  {elapsed}, {eta} to go");
        bar.set_style(style.expect("the template is a valid constant"));
        bar.set_prefix(name.to_owned());
        Watch { bar }
    }
}

impl Progress {
    /// A bar with `steps` steps, which may show a message.
    pub fn steps(&self, name: &str, steps: usize) -> ProgressBar {
        let bar = self.0.add(ProgressBar::new(steps as u64));
        let style = ProgressStyle::with_template("{prefix}  {bar:30}  {pos}/{len}  {elapsed}  {msg}");
        bar.set_style(style.expect("the template is a valid constant"));
        bar.set_prefix(name.to_owned());
        bar
    }
}

/// Observes one replay: counts its coflows, and stops it after a signal.
pub struct Watch {
    bar: ProgressBar,
}

impl Watch {
    /// Sets the number of completed coflows. Returns whether to continue.
    pub fn reached(&self, done: usize) -> bool {
        self.bar.set_position(done as u64);
        !interrupt::asked()
    }
}

impl Observer for Watch {
    fn scheduled(&mut self, _: &Snapshot<'_>) -> bool {
        !interrupt::asked()
    }

    fn done(&mut self, _: &CoflowOutcome) {
        self.bar.inc(1);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
