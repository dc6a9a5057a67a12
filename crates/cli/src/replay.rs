//! Runs the replays of a command.

use weir_console::failure::Failure;
use weir_console::output::OutputFile;
use weir_console::progress::Progress;
use weir_console::run::{self, PartialResults, ReplayTask};
use weir_console::table::format_seconds;
use weir_console::trace_events::TraceEvents;
use weir_core::model::Workload;
use weir_core::saba::Sensitivity;
use weir_experiment::network::Network;
use weir_sim::outcome::mean;
use weir_sim::{Observer, Outcome};

use crate::args;

/// A replay to run.
pub struct Replay<'a> {
    /// The policy and its parameters.
    pub policy: String,
    /// The workload.
    pub workload: &'a Workload,
    /// The network.
    pub network: &'a Network,
    /// The sensitivities of all applications to bandwidth, if they are known.
    pub sensitivities: &'a [Sensitivity],
}

impl Replay<'_> {
    fn task(&self) -> ReplayTask<'_> {
        ReplayTask {
            policy: self.policy.clone(),
            workload: self.workload,
            options: self.network.options().clone(),
            sensitivities: self.sensitivities,
        }
    }

    /// Runs the replay, and passes its events to `observers`.
    ///
    /// # Errors
    /// If the replay fails, or a signal arrives.
    pub fn run_observed(&self, observers: &mut [&mut dyn Observer], quiet: bool) -> Result<Outcome, Failure> {
        self.task().run_observed(&Progress::new(quiet), observers)
    }

    /// Runs the replay as [`Replay::run_observed`], and writes its trace events to `file`: all, or those of the coflow at one position.
    ///
    /// # Errors
    /// If the replay fails, a signal arrives, or the file cannot be written.
    pub fn run_with_events(
        &self,
        file: &mut OutputFile,
        only: Option<usize>,
        observer: Option<&mut dyn Observer>,
        quiet: bool,
    ) -> Result<Outcome, Failure> {
        let ports = self.workload.ports as usize;
        let link_name = |link: usize| match link {
            _ if link < ports => format!("port {link} (sending)"),
            _ if link < 2 * ports => format!("port {} (receiving)", link - ports),
            _ => self.network.trunk_name(link - 2 * ports),
        };
        let mut events = TraceEvents::new(&mut *file, self.workload, only, &link_name);
        let outcome = match observer {
            Some(observer) => self.run_observed(&mut [&mut events, observer], quiet),
            None => self.run_observed(&mut [&mut events], quiet),
        };
        let written = events.finish();
        // A failed write stops the replay.
        written.map_err(|error| file.failure(&error))?;
        outcome
    }
}

/// Runs all replays, at most `run_options.jobs` concurrently. Outcomes are in the order of `replays`.
///
/// # Errors
/// If a check of a policy or a replay fails, or a signal arrives. All policies are checked before the first replay.
pub fn run_replays(replays: &[Replay<'_>], run_options: &args::RunOptions) -> Result<Vec<Outcome>, Failure> {
    run_replays_until_interrupted(&replays.iter().collect::<Vec<_>>(), run_options, |_, _| ())?.complete()
}

/// As [`run_replays`], but a signal keeps the outcomes of the replays that have finished. Each is passed to `on_finished` when it is
/// available.
///
/// # Errors
/// If a check of a policy or a replay fails for another reason than a signal.
pub fn run_replays_until_interrupted(
    replays: &[&Replay<'_>],
    run_options: &args::RunOptions,
    on_finished: impl Fn(&Replay<'_>, &Outcome) + Sync,
) -> Result<PartialResults<Outcome>, Failure> {
    let tasks: Vec<ReplayTask<'_>> = replays.iter().map(|replay| replay.task()).collect();
    let progress = Progress::new(run_options.quiet);
    run::run_replays_until_interrupted(&tasks, run_options.jobs, &progress, |index, outcome| {
        on_finished(replays[index], &outcome);
        if tasks.len() > 1 {
            let result = match outcome.coflows.is_empty() {
                true => "complete".to_owned(),
                false => format!("mean completion time {}", format_seconds(mean(&outcome.ccts()))),
            };
            progress.print_finished(&format!("{}: {result}", tasks[index].policy));
        }
        outcome
    })
}
