//! The decisions of the last minutes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_core::allocation::Rule;
use weir_proto::OrderedRate;

use super::ControlPlane;

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

/// Decisions in force, and earlier ones.
#[derive(Debug, Default)]
pub(super) struct History {
    /// By coflow.
    in_force: BTreeMap<Arc<str>, Decision>,
    /// In the order of their ends.
    ended: VecDeque<Decision>,
}

impl History {
    /// Replaces the decisions in force at `now`; `decisions` has one for each active coflow. O(active coflows).
    fn update(&mut self, decisions: Vec<Decision>, now: f64) {
        let mut former = std::mem::take(&mut self.in_force);
        for decision in decisions {
            let kept = match former.remove(&decision.coflow) {
                Some(last) if !last.differs(&decision) => last,
                Some(last) => {
                    self.end(last, now);
                    decision
                }
                None => decision,
            };
            self.in_force.insert(Arc::clone(&kept.coflow), kept);
        }
        former.into_values().for_each(|last| self.end(last, now));
        self.drop_old(now);
    }

    fn drop_old(&mut self, now: f64) {
        let is_old = |decision: &Decision| decision.until.is_some_and(|end| now - end > KEPT_SECONDS);
        while self.ended.len() > MAX_DECISIONS || self.ended.front().is_some_and(is_old) {
            self.ended.pop_front();
        }
    }

    fn end(&mut self, decision: Decision, now: f64) {
        self.ended.push_back(Decision { until: Some(now), ..decision });
    }
}

impl ControlPlane {
    /// Records the decisions of the last schedule, with the rates of its orders. O(flows).
    pub(super) fn record_decisions(&mut self) {
        let allocation = self.engine.allocation();
        let decisions = self.coflows.iter().filter_map(|(id, coflow)| {
            let slot = coflow.slot?;
            let mut rate = Some(0.0);
            for flow in coflow.flows.iter().filter(|flow| !flow.is_completed) {
                match self.ordered_rate_of(flow) {
                    Some(OrderedRate::Rate(of_flow)) => rate = rate.map(|sum| sum + of_flow as f64),
                    Some(OrderedRate::Unlimited) => rate = None,
                    Some(OrderedRate::Removed) | None => {}
                }
            }
            let (rule, class) = (allocation.rule(slot), allocation.class(slot));
            Some(Decision { coflow: Arc::clone(id), from: self.now, until: None, rate, rule, class })
        });
        let decisions = decisions.collect();
        self.history.update(decisions, self.now);
    }

    /// The decisions of the last five minutes, at most 50,000: first those that ended, by their end, then those in force.
    pub fn decisions(&mut self, now: f64) -> Vec<Decision> {
        // Without events, no schedule drops old decisions.
        self.history.drop_old(now);
        self.history.ended.iter().chain(self.history.in_force.values()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(coflow: &str, from: f64, rate: f64) -> Decision {
        let rule = Rule::AllOrNone;
        Decision { coflow: coflow.into(), from, until: None, rate: Some(rate), rule, class: 0 }
    }

    #[test]
    fn small_changes_of_a_rate_continue_a_decision() {
        let mut history = History::default();
        history.update(vec![decision("a", 0.0, 100.0)], 0.0);
        history.update(vec![decision("a", 1.0, 100.5), decision("b", 1.0, 7.0)], 1.0);
        assert!(history.ended.is_empty());
        assert_eq!(history.in_force["a"].from, 0.0);
        history.update(vec![decision("a", 2.0, 102.0)], 2.0);
        let ended: Vec<_> = history.ended.iter().map(|d| (&*d.coflow, d.from, d.until)).collect();
        assert_eq!(ended, [("a", 0.0, Some(2.0)), ("b", 1.0, Some(2.0))]);
        assert_eq!(history.in_force["a"].rate, Some(102.0));
        let other_rule = Decision { rule: Rule::WorkConservation, ..decision("a", 3.0, 102.0) };
        history.update(vec![other_rule], 3.0);
        assert_eq!(history.ended.len(), 3);
    }

    #[test]
    fn old_and_too_many_decisions_are_dropped() {
        let mut history = History::default();
        for step in 0..=MAX_DECISIONS + 10 {
            history.update(vec![decision("a", 0.0, 2.0_f64.powi(step as i32 % 2))], step as f64 * 1e-3);
        }
        assert_eq!(history.ended.len(), MAX_DECISIONS);
        let now = history.ended.back().unwrap().until.unwrap() + KEPT_SECONDS + 1.0;
        history.update(Vec::new(), now);
        assert_eq!(history.ended.len(), 1, "the decision in force has ended just now");
        history.drop_old(now + KEPT_SECONDS + 1.0);
        assert!(history.ended.is_empty());
    }
}
