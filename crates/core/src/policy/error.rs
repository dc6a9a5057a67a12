//! Errors of policies of other crates.

use std::fmt;

use super::TrunkSupport;
use crate::model::Slot;
use crate::units::{Rate, Time};

/// An invalid decision of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyError {
    /// The specification of the policy.
    pub policy: String,
    /// The time of the decision, in seconds.
    pub time: f64,
    /// The slot of the coflow that the decision is about, if it is about one.
    pub slot: Option<Slot>,
    /// The links that the decision is about: one link, or all links of a flow.
    pub links: Vec<usize>,
    /// Why the decision is invalid.
    pub reason: InvalidDecision,
}

impl PolicyError {
    /// The names of the coflow and of the links, for [`PolicyError::message`].
    pub fn name_subjects(
        &self,
        coflow_name: impl FnOnce(Slot) -> String,
        link_name: impl FnMut(usize) -> String,
    ) -> Vec<String> {
        self.slot.map(coflow_name).into_iter().chain(self.links.iter().copied().map(link_name)).collect()
    }

    /// The message, with the names of the coflow and of the links.
    pub fn message(&self, subjects: &[String]) -> String {
        let subject = if subjects.is_empty() { String::new() } else { format!("{}: ", subjects.join(", ")) };
        format!("policy `{}` at {}: {subject}{}", self.policy, time_text(self.time), self.reason)
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subjects = self.name_subjects(|slot| format!("slot {slot}"), |link| format!("link {link}"));
        f.write_str(&self.message(&subjects))
    }
}

impl std::error::Error for PolicyError {}

/// Why a policy cannot decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFailure {
    /// The slot of the coflow that the failure is about, if it is about one.
    pub slot: Option<Slot>,
    /// The failure, and the expected state if there is one.
    pub reason: String,
}

/// Why a decision of a policy is invalid. Rates are in bytes per second, times in seconds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidDecision {
    /// A common rate is not of the kind that the knowledge of the policy allows.
    #[error("equal rates, although the policy uses sizes; expected `CommonRate::CompleteTogether`")]
    EqualRates,
    /// As [`InvalidDecision::EqualRates`], the other way round.
    #[error(
        "rates at which the flows complete together, although the policy does not use sizes; expected `CommonRate::Equal`"
    )]
    RatesBySize,
    /// An equal rate of all flows.
    #[error("equal rates of {}; expected rates of at least 0", rate_text(*.0))]
    CommonRate(f64),
    /// A time of completion.
    #[error("the flows complete together after {}; expected a time above 0", time_text(*.0))]
    CompletionTime(f64),
    /// A flow has sent its whole estimate, so that it has no rate at which it completes with the others.
    #[error(
        "a flow has sent its whole estimated size; expected a higher estimate by `View::raise_estimates`"
    )]
    OutgrownEstimate,
    /// An own rate of one flow.
    #[error("the rate of a flow is {}; expected a rate above 0", rate_text(*.0))]
    FlowRate(f64),
    /// A flow has two own rates.
    #[error("two rates for one flow; expected one call of `Allocation::add_flow_rate`")]
    RateSetTwice,
    /// A flow with an own rate is not live.
    #[error("a rate for flow {0}, which is not live; expected one of `Coflow::live_flows`")]
    FlowNotLive(u32),
    /// The slot of a decision holds no active coflow.
    #[error("a decision about slot {0}, which holds no coflow; expected one of `View::active_coflows`")]
    VacantSlot(u32),
    /// The rates on a link exceed its capacity.
    #[error("the rates on the link sum to {}; expected at most its capacity of {}", rate_text(*.rate), rate_text(*.capacity))]
    AboveCapacity {
        /// The sum of the rates on the link.
        rate: f64,
        /// The capacity of the link.
        capacity: f64,
    },
    /// The policy sets queues without saying so.
    #[error(
        "queues, although `Policy::trunk_support` is {0:?}; expected `TrunkSupport::Transport`, or rates"
    )]
    UndeclaredQueues(TrunkSupport),
    /// The queues changed.
    #[error("other queues than at the first schedule; expected equal queues at every schedule")]
    QueuesChanged,
    /// The policy sets both rates and queues.
    #[error("a rate, although the policy leaves rates to queues; expected rates or queues")]
    RatesAndQueues,
    /// The weights of the queues, or their number.
    #[error("queues without a valid weight each; expected 1 to 65536 queues, and weights above 0")]
    Queues,
    /// The class of a coflow.
    #[error("queue {class}; expected a queue below {count}, the number of queues")]
    Class {
        /// The class.
        class: usize,
        /// The number of queues.
        count: usize,
    },
    /// The time of the next schedule.
    #[error("a wake-up at {}; expected a later time, or an infinite one for none", time_text(*.0))]
    Wakeup(f64),
    /// The policy itself reports that it cannot decide: see [`Policy::failure`](super::Policy::failure).
    #[error("{0}")]
    Failure(String),
}

/// A rate with a unit, also if it is no valid rate.
fn rate_text(bytes_per_second: f64) -> String {
    Rate::new(bytes_per_second).map_or_else(|| format!("{bytes_per_second} B/s"), |rate| rate.to_string())
}

/// A time with a unit, also if it is no valid time.
fn time_text(seconds: f64) -> String {
    Time::new(seconds).map_or_else(|| format!("{seconds} s"), |time| time.to_string())
}
