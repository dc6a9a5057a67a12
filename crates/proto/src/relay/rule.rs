//! Defines forwarding rules: which flows a rule applies to, their priority and weight, and their next hops.

use super::{MAX_RULE_PATHS, check_strictly_sorted, parse_relay_number, wire};
use crate::MessageError;
use crate::encoding::check_max_length;

/// The tolerated difference of a sum of fractions from 1.
const SUM_TOLERANCE: f64 = 1e-6;

/// The flows that a rule applies to. Sorted by coflow, then from the least specific scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayMatch {
    /// The number of the coflow.
    pub coflow: u32,
    /// Its flows.
    pub scope: RuleScope,
}

/// Flows of a coflow. The rule with the most specific scope applies to a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleScope {
    /// All flows of the coflow.
    Coflow,
    /// All flows between two relays.
    Pair {
        /// The relay of the senders.
        source: u16,
        /// The relay of the receivers.
        destination: u16,
    },
    /// One flow.
    Flow(u32),
}

/// How a relay forwards the flows of a match.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayRule {
    /// The flows.
    pub flows: RelayMatch,
    /// Strict priority at each next hop: the lowest number is served first.
    pub priority: u16,
    /// The share of each flow among flows of the same priority; finite and above 0.
    pub weight: f64,
    /// The next hops, sorted, at most [`MAX_RULE_PATHS`]. Their fractions sum to 1. Empty: the direct path.
    pub paths: Vec<RelayPath>,
}

/// A next hop of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelayPath {
    /// The number of the next relay.
    pub next: u16,
    /// The fraction of the bytes that uses this path, above 0.
    pub fraction: f64,
}

impl From<RelayMatch> for wire::RelayMatch {
    fn from(RelayMatch { coflow, scope }: RelayMatch) -> wire::RelayMatch {
        let whole = wire::RelayMatch { coflow, ..wire::RelayMatch::default() };
        match scope {
            RuleScope::Coflow => whole,
            RuleScope::Pair { source, destination } => wire::RelayMatch {
                source: Some(source.into()),
                destination: Some(destination.into()),
                ..whole
            },
            RuleScope::Flow(flow) => wire::RelayMatch { flow: Some(flow), ..whole },
        }
    }
}

impl TryFrom<wire::RelayMatch> for RelayMatch {
    type Error = MessageError;

    fn try_from(flows: wire::RelayMatch) -> Result<RelayMatch, MessageError> {
        let scope = match (flows.flow, flows.source, flows.destination) {
            (None, None, None) => RuleScope::Coflow,
            (Some(flow), None, None) => RuleScope::Flow(flow),
            (None, Some(source), Some(destination)) => RuleScope::Pair {
                source: parse_relay_number("source", source)?,
                destination: parse_relay_number("destination", destination)?,
            },
            _ => {
                let expected = "a flow, a source and a destination, or none of them";
                return Err(MessageError::Invalid { field: "match", expected });
            }
        };
        Ok(RelayMatch { coflow: flows.coflow, scope })
    }
}

impl From<&RelayRule> for wire::RelayRule {
    fn from(rule: &RelayRule) -> wire::RelayRule {
        let path = |path: &RelayPath| wire::RelayPath { next: path.next.into(), fraction: path.fraction };
        wire::RelayRule {
            r#match: Some(rule.flows.into()),
            priority: rule.priority.into(),
            weight: rule.weight,
            paths: rule.paths.iter().map(path).collect(),
        }
    }
}

impl TryFrom<wire::RelayRule> for RelayRule {
    type Error = MessageError;

    fn try_from(rule: wire::RelayRule) -> Result<RelayRule, MessageError> {
        let invalid = |field, expected| MessageError::Invalid { field, expected };
        let flows = rule.r#match.ok_or(invalid("match", "a match in each rule"))?.try_into()?;
        let priority = rule.priority.try_into();
        let priority = priority.map_err(|_| invalid("priority", "a number of at most 65535"))?;
        if !(rule.weight.is_finite() && rule.weight > 0.0) {
            return Err(invalid("weight", "a finite number above 0"));
        }
        check_max_length("paths of a rule", rule.paths.len(), MAX_RULE_PATHS)?;
        let paths: Vec<RelayPath> =
            rule.paths.into_iter().map(RelayPath::try_from).collect::<Result<_, _>>()?;
        check_strictly_sorted("paths of a rule", &paths, |path| path.next)?;
        let sum: f64 = paths.iter().map(|path| path.fraction).sum();
        if !paths.is_empty() && (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(invalid("fractions of a rule", "a sum of 1"));
        }
        Ok(RelayRule { flows, priority, weight: rule.weight, paths })
    }
}

impl TryFrom<wire::RelayPath> for RelayPath {
    type Error = MessageError;

    fn try_from(wire::RelayPath { next, fraction }: wire::RelayPath) -> Result<RelayPath, MessageError> {
        if !(fraction > 0.0 && fraction <= 1.0) {
            let expected = "a number above 0 and at most 1";
            return Err(MessageError::Invalid { field: "fraction of a path", expected });
        }
        Ok(RelayPath { next: parse_relay_number("next hop", next)?, fraction })
    }
}
