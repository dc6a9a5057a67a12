//! Policies and parameters that only simulations have: a coordinator refuses what agents cannot enforce.

use std::fmt;

use weir_core::rounding;
use weir_core::units::Time;

/// A value of a parameter of a policy that agents cannot enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulationOnly {
    /// The name of the policy.
    pub policy: &'static str,
    /// The parameter and its value.
    pub parameter: (&'static str, &'static str),
    /// What agents or the network would have to do.
    pub reason: &'static str,
    /// What to use instead.
    pub instead: &'static str,
}

const fn value(policy: &'static str, key: &'static str, value: &'static str) -> SimulationOnly {
    SimulationOnly { policy, parameter: (key, value), reason: "", instead: "" }
}

const RECEIVERS: &str = "receivers share links as TCP does";
const DETOURS: &str = "hosts have no paths through a third region";

/// All of them, in the order of `weir policies`.
pub const SIMULATION_ONLY: [SimulationOnly; 6] = [
    SimulationOnly { reason: DETOURS, instead: "`detours=off`", ..value("fair", "detours", "on") },
    SimulationOnly { reason: RECEIVERS, instead: "`at=senders`", ..value("aalo", "at", "both") },
    SimulationOnly { reason: RECEIVERS, instead: "`at=senders`", ..value("aalo+", "at", "both") },
    SimulationOnly {
        reason: "agents serve the next flow only after an order",
        instead: "`local=off`",
        ..value("saath", "local", "on")
    },
    SimulationOnly { reason: DETOURS, instead: "`detours=off`", ..value("siphon", "detours", "on") },
    SimulationOnly { reason: DETOURS, instead: "`detours=off`", ..value("mrtf", "detours", "on") },
];

/// `turn` of `aalo:sharing=turns` without a value, in seconds.
const DEFAULT_TURN: f64 = 8e-3;

/// Why a coordinator refuses a policy that is valid in simulations.
#[derive(Debug, Clone, PartialEq)]
pub enum NotEnforceable {
    /// Agents cannot enforce it.
    SimulationOnly(SimulationOnly),
    /// Django is a leaf of a policy tree.
    MatchingLeaf,
    /// Aalo's turns are shorter than the interval between two schedules.
    ShortTurn {
        /// The interval.
        interval: Time,
    },
}

impl fmt::Display for NotEnforceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotEnforceable::SimulationOnly(SimulationOnly { policy, parameter, reason, instead }) => {
                let (key, value) = parameter;
                write!(
                    f,
                    "policy `{policy}`: `{key}={value}` is for simulations only, since {reason}; expected {instead}"
                )
            }
            NotEnforceable::MatchingLeaf => f.write_str(
                "policy `django` is a leaf of a policy tree, and for simulations only there, since receivers open connections for all coflows; expected another policy in the tree",
            ),
            NotEnforceable::ShortTurn { interval } => {
                write!(
                    f,
                    "policy `aalo`: `turn` is shorter than the interval; expected at least `turn={interval}`"
                )
            }
        }
    }
}

/// The value of a parameter in a valid specification, `name:key=value:key=value`.
fn parameter<'a>(spec: &'a str, key: &str) -> Option<&'a str> {
    let mut parameters = spec.split(':').skip(1).filter_map(|part| part.split_once('='));
    parameters.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

/// Checks that agents can enforce a valid policy of this specification, with schedules at this interval in seconds.
///
/// # Errors
/// [`NotEnforceable`]
pub fn check_enforceable(spec: &str, interval: f64) -> Result<(), NotEnforceable> {
    let name = spec.split(':').next().unwrap_or_default().trim();
    let is_given = |only: &&SimulationOnly| {
        only.policy == name && parameter(spec, only.parameter.0) == Some(only.parameter.1)
    };
    if let Some(only) = SIMULATION_ONLY.iter().find(is_given) {
        return Err(NotEnforceable::SimulationOnly(*only));
    }
    if name == "aalo" && parameter(spec, "sharing") == Some("turns") {
        let turn = parameter(spec, "turn").and_then(|turn| turn.parse().ok());
        if turn.map_or(DEFAULT_TURN, |turn: Time| turn.get()) < interval * (1.0 - rounding::DURATION) {
            let interval = Time::new(interval).unwrap_or(Time::ZERO);
            return Err(NotEnforceable::ShortTurn { interval });
        }
    }
    Ok(())
}
