//! Creates testbeds for the time of one command, and runs scenarios on them.

use weir_core::model::Topology;
use weir_core::model::scenario::Scenario;
use weir_core::netshare::Throttle;
use weir_core::units::Time;
use weir_sim::service::{Mechanism, Shared};
use weir_testbed::bed::GoOn;
use weir_testbed::probe::{self, Check};
use weir_testbed::{Bed, BedError, CommandError, Name, Phase, RunError, run};

use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Progress;

/// Whether work on a testbed continues, checked between two steps: false after a signal.
pub const GO_ON: GoOn<'static> = &|| !interrupt::asked();

/// The failure for an error of a bed, with a list of what this machine lacks.
pub fn failure(error: &BedError) -> Failure {
    match error {
        BedError::Command(CommandError::Interrupted) => {
            Failure::interrupted("interrupted; nothing of the bed is left")
        }
        BedError::Plan(_) => Failure::input(error),
        BedError::Command(_) | BedError::File { .. } => {
            let mut message = error.to_string();
            let missing: Vec<Check> =
                probe::probe().into_iter().filter(|check| check.missing.is_some()).collect();
            for Check { what, needed_for, missing } in &missing {
                let why = missing.as_deref().unwrap_or_default();
                message.push_str(&format!("\n  missing: {what}: {why}; needed for {needed_for}"));
            }
            if !missing.is_empty() {
                message.push_str(&format!("\n{}", probe::STILL_WORKS));
            }
            Failure::undone(message)
        }
        BedError::Up(_) | BedError::Busy(_) | BedError::Left(..) => Failure::undone(error),
    }
}

/// A bed that is removed when this is dropped.
struct Passing(Option<Bed>);

impl Drop for Passing {
    fn drop(&mut self) {
        // Only after a panic: `on_a_bed` removes the bed where an error can be reported.
        if let Some(bed) = self.0.take() {
            let _ = bed.down();
        }
    }
}

/// Runs `work` on the bed of this name, or on a bed that exists only for this call.
///
/// # Errors
/// The error of `work`, or an error in creating, resetting or removing the bed.
pub fn on_a_bed<T>(
    name: &Name,
    topology: &Topology,
    work: impl FnOnce(&Bed) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some(bed) = Bed::open(name).map_err(|error| failure(&error))? {
        if bed.topology() != topology {
            let why = format_args!(
                "bed `{name}` has another network: expected another --name, or `weir testbed down --name {name}` before"
            );
            return Err(Failure::input(why));
        }
        let done = work(&bed);
        bed.set_queues(None).map_err(|error| failure(&error))?;
        return done;
    }
    let mut passing = Passing(Some(Bed::up(name, topology, GO_ON).map_err(|error| failure(&error))?));
    let done = work(passing.0.as_ref().expect("`passing` was built with a bed above"));
    let gone = passing.0.take().map_or(Ok(()), Bed::down);
    let done = done?;
    gone.map_err(|error| failure(&error))?;
    Ok(done)
}

/// Runs a scenario under a mechanism on an existing testbed, in the phases of its simulation.
///
/// # Errors
/// If the testbed or a connection fails, or a signal stops the work.
pub fn measure(
    bed: &Bed,
    scenario: &Scenario,
    mechanism: Mechanism,
    shared: &Shared,
    progress: &Progress,
) -> Result<Vec<Phase>, Failure> {
    let queueing = mechanism.queues().then(|| scenario.queueing());
    bed.set_queues(queueing.as_ref()).map_err(|error| failure(&error))?;
    let phases: Vec<(Time, Time)> = shared.phases.iter().map(|phase| (phase.from, phase.to)).collect();
    let throttle = mechanism.throttles().then(|| Throttle::new(scenario.floor));
    let name = mechanism.name();
    let bar = progress.steps(&format!("{name}, in real time"), scenario.end.get().ceil() as usize);
    let measured = run(bed.plan(), scenario, &phases, throttle.as_ref(), |at| {
        bar.set_position(at.get() as u64);
        !interrupt::asked()
    });
    bar.finish_and_clear();
    measured.map_err(|error| match error {
        RunError::Interrupted { .. } => Failure::interrupted(format!("{name}: {error}; nothing was written")),
        RunError::Connections(_) => Failure::input(error),
        RunError::Socket { .. } => Failure::undone(error),
    })
}
