//! Runs work on an existing testbed, or on one that exists only for this work, and measures scenarios on it.

use weir_core::model::Topology;
use weir_core::model::scenario::Scenario;
use weir_core::netshare::RateThrottle;
use weir_core::units::Time;
use weir_sim::service::{Mechanism, ScenarioOutcome};
use weir_testbed::bed::ContinueCheck;
use weir_testbed::probe::{self, Requirement};
use weir_testbed::{Bed, BedError, BedName, CommandError, Phase, RunError, run};

use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Progress;

/// Whether work on a testbed continues, checked between two steps: false after a signal.
pub const SHOULD_CONTINUE: ContinueCheck<'static> = &|| !interrupt::is_requested();

/// The failure for an error of a bed, with the unmet requirements of this machine.
pub fn failure(error: &BedError) -> Failure {
    match error {
        BedError::Command(CommandError::Interrupted) => {
            Failure::interrupted("interrupted; the bed was removed")
        }
        BedError::Plan(_) => Failure::input(error),
        BedError::Command(_) | BedError::File { .. } => {
            let mut message = error.to_string();
            let missing: Vec<Requirement> =
                probe::probe().into_iter().filter(|check| check.problem.is_some()).collect();
            for Requirement { name, needed_for, problem } in &missing {
                let problem = problem.as_deref().unwrap_or_default();
                message.push_str(&format!("\n  missing: {name}: {problem}; needed for {needed_for}"));
            }
            if !missing.is_empty() {
                message.push_str(&format!("\n{}", probe::ALTERNATIVES));
            }
            Failure::runtime(message)
        }
        BedError::AlreadyUp(_) | BedError::Busy(_) | BedError::NamespacesLeft(..) => Failure::runtime(error),
    }
}

/// A bed that is removed when this is dropped.
struct TemporaryBed(Option<Bed>);

impl Drop for TemporaryBed {
    fn drop(&mut self) {
        // Only after a panic: `with_bed` removes the bed where an error can be reported.
        if let Some(bed) = self.0.take() {
            let _ = bed.down();
        }
    }
}

/// Runs `work` on the bed of this name, or on a bed that exists only for this call.
///
/// # Errors
/// The error of `work`, or an error in creating, resetting or removing the bed.
pub fn with_bed<T>(
    name: &BedName,
    topology: &Topology,
    work: impl FnOnce(&Bed) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some(bed) = Bed::open(name).map_err(|error| failure(&error))? {
        if bed.topology() != topology {
            let message = format_args!(
                "bed `{name}` has another network; help: use another --name, or run `weir testbed down --name {name}` first"
            );
            return Err(Failure::input(message));
        }
        let result = work(&bed);
        bed.set_queues(None).map_err(|error| failure(&error))?;
        return result;
    }
    let mut temporary =
        TemporaryBed(Some(Bed::up(name, topology, SHOULD_CONTINUE).map_err(|error| failure(&error))?));
    let result = work(temporary.0.as_ref().expect("`temporary` was built with a bed above"));
    let removal = temporary.0.take().map_or(Ok(()), Bed::down);
    let done = result?;
    removal.map_err(|error| failure(&error))?;
    Ok(done)
}

/// Runs a scenario under a mechanism on an existing testbed, in the phases of its simulation.
///
/// # Errors
/// If the testbed or a connection fails, or a signal stops the work.
pub fn measure_scenario(
    bed: &Bed,
    scenario: &Scenario,
    mechanism: Mechanism,
    simulated: &ScenarioOutcome,
    progress: &Progress,
) -> Result<Vec<Phase>, Failure> {
    let queueing = mechanism.has_service_queues().then(|| scenario.network_queues());
    bed.set_queues(queueing.as_ref()).map_err(|error| failure(&error))?;
    let phases: Vec<(Time, Time)> = simulated.phases.iter().map(|phase| (phase.start, phase.end)).collect();
    let throttle = mechanism.has_throttling().then(|| RateThrottle::new(scenario.min_limit));
    let name = mechanism.name();
    let bar = progress.add_step_bar(&format!("{name}, in real time"), scenario.end.get().ceil() as usize);
    let measured = run(bed.plan(), scenario, &phases, throttle.as_ref(), |at| {
        bar.set_position(at.get() as u64);
        !interrupt::is_requested()
    });
    bar.finish_and_clear();
    measured.map_err(|error| match error {
        RunError::Interrupted { .. } => Failure::interrupted(format!("{name}: {error}; nothing was written")),
        RunError::Connections(_) => Failure::input(error),
        RunError::Socket { .. } => Failure::runtime(error),
    })
}
