//! The decisions of the last minutes.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_core::allocation::Rule;
use weir_proto::OrderedRate;

use super::{Coflow, ControlPlane, Host};

/// The time for which decisions are kept after their end, in seconds.
const KEPT_SECONDS: f64 = 300.0;

/// The maximum number of kept decisions; the oldest are dropped first.
const MAX_DECISIONS: usize = 50_000;

/// Relative changes of a rate below this are not kept.
const MIN_CHANGE: f64 = 0.01;

/// What the policy decided for a coflow during some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Id of the coflow.
    pub coflow: Arc<str>,
    /// The start, in seconds since the start of the coordinator.
    pub from: f64,
    /// The end; `None` while the decision is in force.
    pub until: Option<f64>,
    /// The ordered rate of all its flows in bytes per second, including headers; `None` if TCP divides the links.
    pub rate: Option<f64>,
    /// The rule that gave the rate.
    pub rule: Rule,
    /// Its class, from 0.
    pub class: usize,
}

impl Decision {
    /// Whether a decision for the same coflow differs by more than a small change of the rate.
    fn differs(&self, other: &Decision) -> bool {
        let is_other_rate = match (self.rate, other.rate) {
            (Some(a), Some(b)) => (a - b).abs() > MIN_CHANGE * a.max(b),
            (a, b) => a != b,
        };
        is_other_rate || (self.rule, self.class) != (other.rule, other.class)
    }
}

/// Decisions that are no longer in force.
#[derive(Debug, Default)]
pub(super) struct History {
    /// In the order of their ends.
    ended: VecDeque<Decision>,
}

impl History {
    /// Adds the decision that was in force for a coflow until `now`, if there is one.
    pub fn end(&mut self, decision: Option<Decision>, now: f64) {
        self.ended.extend(decision.map(|decision| Decision { until: Some(now), ..decision }));
        self.drop_old(now);
    }

    fn drop_old(&mut self, now: f64) {
        let is_old = |decision: &Decision| decision.until.is_some_and(|end| now - end > KEPT_SECONDS);
        while self.ended.len() > MAX_DECISIONS || self.ended.front().is_some_and(is_old) {
            self.ended.pop_front();
        }
    }
}

impl Coflow {
    /// The ordered rate of all flows; `None` if TCP divides the links.
    fn ordered_rate(&self, hosts: &[Host]) -> Option<f64> {
        let rates = self.flows.iter().filter(|flow| !flow.is_completed).map(|flow| flow.applied_rate(hosts));
        rates
            .map(|rate| match rate {
                Some(OrderedRate::Rate(rate) | OrderedRate::Reserve(rate)) => Some(rate as f64),
                Some(OrderedRate::Unlimited) => None,
                Some(OrderedRate::Paused | OrderedRate::Removed) | None => Some(0.0),
            })
            .sum()
    }
}

impl ControlPlane {
    /// Records the decisions of the last schedule, with the rates of its orders. O(flows).
    pub(super) fn record_decisions(&mut self) {
        let (now, allocation) = (self.now, self.engine.allocation());
        for (id, coflow) in &mut self.coflows {
            let decision = coflow.slot.map(|slot| Decision {
                coflow: Arc::clone(id),
                from: now,
                until: None,
                rate: coflow.ordered_rate(&self.hosts),
                rule: allocation.rule(slot),
                class: allocation.class(slot),
            });
            let has_changed = match (&coflow.decision, &decision) {
                (Some(last), Some(decision)) => last.differs(decision),
                (last, decision) => last.is_some() || decision.is_some(),
            };
            if has_changed {
                self.history.end(std::mem::replace(&mut coflow.decision, decision), now);
            }
        }
    }

    /// The decisions of the last five minutes: first those that ended, at most 50,000, by their end, then those in force.
    pub fn decisions(&mut self, now: f64) -> Vec<Decision> {
        // Without events, no decision ends.
        self.history.drop_old(now);
        let in_force = self.coflows.values().filter_map(|coflow| coflow.decision.as_ref());
        self.history.ended.iter().chain(in_force).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(rate: Option<f64>) -> Decision {
        Decision { coflow: "a".into(), from: 0.0, until: None, rate, rule: Rule::AllOrNone, class: 0 }
    }

    #[test]
    fn small_changes_of_a_rate_continue_a_decision() {
        let first = decision(Some(100.0));
        assert!(!first.differs(&Decision { from: 1.0, ..decision(Some(100.5)) }));
        assert!(first.differs(&decision(Some(102.0))));
        assert!(first.differs(&decision(None)) && !decision(None).differs(&decision(None)));
        assert!(first.differs(&Decision { rule: Rule::WorkConservation, ..decision(Some(100.0)) }));
        assert!(first.differs(&Decision { class: 1, ..decision(Some(100.0)) }));
    }

    #[test]
    fn old_and_too_many_decisions_are_dropped() {
        let mut history = History::default();
        for step in 0..MAX_DECISIONS + 10 {
            history.end(Some(decision(Some(1.0))), step as f64 * 1e-3);
        }
        assert_eq!(history.ended.len(), MAX_DECISIONS);
        let now = history.ended.back().unwrap().until.unwrap() + KEPT_SECONDS + 1.0;
        history.end(Some(decision(None)), now);
        assert_eq!(history.ended.len(), 1, "the last decision has ended just now");
        history.drop_old(now + KEPT_SECONDS + 1.0);
        assert!(history.ended.is_empty());
    }
}
