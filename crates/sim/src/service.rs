//! Simulates services that share a network over time, with and without NetShare's mechanisms (UCSD 2010, sections 3 and 5).
//!
//! [`run_scenario`] runs a [`Scenario`] under a [`Mechanism`]. Between two changes, rates are the steady-state rates of the
//! queues ([`weir_core::solve::wfq`]). TCP and queues reach them within some round trips (the paper: under 1 ms); here they
//! need no time. Mechanisms with limits at hosts measure for 50 ms, and then set the limits for the next 50 ms.
//!
//! Choices that the paper leaves open:
//!
//! - *Queues* of services are at the links out of switches ("for every switch and every outbound link"). A host's own link
//!   has one queue. A scenario can configure a port differently.
//! - *Guarantees* on a link apply to the allocator. Under `queues+central`, the weights of the port's queues give each service
//!   at least its guarantee, at every rate of the link. A `[[port]]` table of the scenario replaces these weights.
//! - *Paths*: a hash selects a path for each connection (ECMP), which it keeps until a cable fails or is restored. Then every
//!   connection immediately gets the path that its hash selects among the links that are up. Only connections over the
//!   failed cable move ([`weir_core::model::topology::route`]), and they move back afterwards. A connection without a path
//!   sends nothing.
//! - *Streams*: connections of one demand on one path are identical, so one limit applies to all of them. A connection that
//!   moves to a path with others of its demand gets their limit. On a path without others of its demand, it counts as new.
//! - *Control traffic*: reports and limits arrive without delay. Measuring periods start at time 0 for all. The bytes of a
//!   connection are divided by the whole period even if it began in the middle.
//! - *New connections*, including restarted ones, are not limited until they have been measured once.
//! - *Acknowledgements* are not modelled: they use no bandwidth and are not lost.

mod control;
mod mechanism;
mod outcome;
mod streams;

use weir_core::model::scenario::{Scenario, ScenarioError};
use weir_core::netshare;
use weir_core::units::Time;

use control::Control;
pub use mechanism::Mechanism;
pub use outcome::{Phase, ScenarioOutcome, Segment, ServicePhase};
use streams::Streams;

/// The reason why a run has no outcome.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioRunError {
    /// The scenario is inconsistent.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The outcome and the paths would need too much memory.
    #[error(
        "the outcome has up to {values} values; expected at most {max}; help: use fewer demands, a shorter scenario or shorter \
         paths"
    )]
    TooLarge {
        /// An upper bound of their number.
        values: u64,
        /// The limit.
        max: u64,
    },
    /// The caller stopped the run.
    #[error("interrupted at {time}")]
    Interrupted {
        /// The simulated time.
        time: Time,
    },
}

/// The most numbers of an outcome, and links of paths, together.
const MAX_NUMBERS: u64 = 100_000_000;

/// Times that are this close are one, in seconds.
const SAME_TIME: f64 = 1e-9;

/// Measuring periods in a second.
const PERIODS: f64 = 1.0 / netshare::MEASUREMENT_PERIOD.get();

/// Runs a scenario under a mechanism. Calls `should_continue` before every step, with the simulated time; if it returns
/// `false`, the run stops.
///
/// # Errors
/// If the scenario is inconsistent or too large, or the caller stops the run.
pub fn run_scenario(
    scenario: &Scenario,
    mechanism: Mechanism,
    mut should_continue: impl FnMut(Time) -> bool,
) -> Result<ScenarioOutcome, ScenarioRunError> {
    scenario.check()?;
    let changes = changes(scenario);
    let mut streams = Streams::new(scenario, mechanism);
    check_size(scenario, mechanism, &changes, &streams)?;
    let mut control = Control::new(scenario, mechanism, &streams);
    let mut shared = ScenarioOutcome::new(scenario);
    let mut events = scenario.events.iter().peekable();
    for phase in changes.windows(2) {
        let mut reroute = false;
        while let Some(event) = events.next_if(|event| event.time.get() <= phase[0]) {
            streams.change(scenario, event);
            control.change(event);
            reroute |= event.change.changes_routes();
        }
        if reroute {
            streams.find_paths(scenario);
            check_size(scenario, mechanism, &changes, &streams)?;
            control.extend(&streams);
        }
        streams.activate(scenario, at(phase[0]));
        for stream in streams.started() {
            control.start(stream);
        }
        if !scenario.demands.iter().any(|demand| demand.is_active(at(phase[0]))) {
            continue;
        }
        shared.begin(phase[0], scenario, &streams);
        let mut now = phase[0];
        while now < phase[1] {
            if !should_continue(at(now)) {
                return Err(ScenarioRunError::Interrupted { time: at(now) });
            }
            let until = control.until(now, phase[1]);
            let settled = streams.solve(|stream| control.limit(stream));
            shared.unsettled(settled.residual);
            let steady = control.measure(&streams, now, until);
            // What did not change anything goes on, to the last full period of the phase.
            let to = if steady { control.last_full(until, phase[1]) } else { until };
            shared.add(now, to, &streams);
            now = to;
        }
        shared.end(phase[1], &streams);
    }
    Ok(shared.finish(streams))
}

fn at(seconds: f64) -> Time {
    Time::new(seconds).expect("times are from 0 to the end of the scenario")
}

/// When demands begin and end and cables change, from 0 to the end of the scenario, in seconds.
fn changes(scenario: &Scenario) -> Vec<f64> {
    let intervals = scenario.demands.iter().flat_map(|demand| &demand.active_intervals);
    let mut times: Vec<f64> = intervals.flat_map(|(from, to)| [from.get(), to.get()]).collect();
    times.extend(scenario.events.iter().map(|event| event.time.get()));
    times.extend([0.0, scenario.end.get()]);
    times.sort_unstable_by(f64::total_cmp);
    times.dedup();
    times
}

fn check_size(
    scenario: &Scenario,
    mechanism: Mechanism,
    changes: &[f64],
    streams: &Streams,
) -> Result<(), ScenarioRunError> {
    let periods = if mechanism.has_limits() { scenario.end.get() * PERIODS } else { 0.0 };
    let steps = changes.len() as u64 + periods as u64;
    // Two numbers of each demand a step, one of each stream a phase, and the links of each stream.
    let of_streams = (changes.len() * streams.len() + streams.hops()) as u64;
    let numbers = steps * 2 * scenario.demands.len() as u64 + of_streams;
    if numbers > MAX_NUMBERS {
        return Err(ScenarioRunError::TooLarge { values: numbers, max: MAX_NUMBERS });
    }
    Ok(())
}
