//! Defines forwarding rules: which flows a rule applies to, their priority and weight, and their paths.

use super::{MAX_RULE_PATHS, check_strictly_sorted, parse_number, wire};
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

/// Flows of a coflow. The rule with the most specific scope applies to a flow: numbers between two regions, then numbers, then two
/// regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleScope {
    /// All flows of the coflow.
    Coflow,
    /// All flows between two regions.
    Pair(RegionPair),
    /// Flows with certain numbers. Ranges of a coflow with equal regions do not overlap.
    Flows {
        /// The regions; none: all regions.
        pair: Option<RegionPair>,
        /// The first number.
        first: u32,
        /// The last number, at least the first.
        last: u32,
    },
}

/// Two regions, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionPair {
    /// The region of the senders.
    pub source: u16,
    /// The region of the receivers.
    pub destination: u16,
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
    /// The paths, sorted, at most [`MAX_RULE_PATHS`]. Their fractions sum to 1. Empty: the direct path.
    pub paths: Vec<RelayPath>,
}

/// A path of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelayPath {
    /// The number of the next region. That of the receiver is the direct path; in another one, each flow uses one relay.
    pub next_region: u16,
    /// The fraction of the bytes that uses this path, above 0.
    pub fraction: f64,
}

impl RelayMatch {
    /// Whether rules for both matches would conflict: they are equal, or ranges of one coflow and equal regions with a common number.
    pub fn conflicts_with(&self, other: &RelayMatch) -> bool {
        match (self.scope, other.scope) {
            (
                RuleScope::Flows { pair, first, last },
                RuleScope::Flows { pair: other_pair, first: from, last: to },
            ) => self.coflow == other.coflow && pair == other_pair && first <= to && from <= last,
            _ => self == other,
        }
    }
}

/// Checks that matches are sorted, and that those of equal specificity do not overlap.
pub(super) fn check_matches<'a>(
    list: &'static str,
    mut matches: impl Iterator<Item = &'a RelayMatch>,
) -> Result<(), MessageError> {
    let Some(mut former) = matches.next() else { return Ok(()) };
    for flows in matches {
        if flows <= former {
            return Err(MessageError::Unsorted(list));
        }
        if former.conflicts_with(flows) {
            let expected = "ranges of flows that do not overlap";
            return Err(MessageError::Invalid { field: list, expected });
        }
        former = flows;
    }
    Ok(())
}

impl From<RelayMatch> for wire::RelayMatch {
    fn from(RelayMatch { coflow, scope }: RelayMatch) -> wire::RelayMatch {
        let (pair, numbers) = match scope {
            RuleScope::Coflow => (None, None),
            RuleScope::Pair(pair) => (Some(pair), None),
            RuleScope::Flows { pair, first, last } => (pair, Some((first, last))),
        };
        wire::RelayMatch {
            coflow,
            first_flow: numbers.map(|(first, _)| first),
            last_flow: numbers.map(|(_, last)| last),
            source_region: pair.map(|pair| pair.source.into()),
            destination_region: pair.map(|pair| pair.destination.into()),
        }
    }
}

impl TryFrom<wire::RelayMatch> for RelayMatch {
    type Error = MessageError;

    fn try_from(flows: wire::RelayMatch) -> Result<RelayMatch, MessageError> {
        let invalid = |expected| MessageError::Invalid { field: "match", expected };
        let pair = match (flows.source_region, flows.destination_region) {
            (None, None) => None,
            (Some(source), Some(destination)) => Some(RegionPair {
                source: parse_number("source region", source)?,
                destination: parse_number("destination region", destination)?,
            }),
            _ => return Err(invalid("a source region with a destination region, or neither")),
        };
        let scope = match (flows.first_flow, flows.last_flow, pair) {
            (None, None, None) => RuleScope::Coflow,
            (None, None, Some(pair)) => RuleScope::Pair(pair),
            (Some(first), Some(last), pair) if first <= last => RuleScope::Flows { pair, first, last },
            _ => return Err(invalid("a first and a last flow, which is not before the first, or neither")),
        };
        Ok(RelayMatch { coflow: flows.coflow, scope })
    }
}

impl From<&RelayRule> for wire::RelayRule {
    fn from(rule: &RelayRule) -> wire::RelayRule {
        let path = |path: &RelayPath| wire::RelayPath {
            next_region: path.next_region.into(),
            fraction: path.fraction,
        };
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
        check_strictly_sorted("paths of a rule", &paths, |path| path.next_region)?;
        let sum: f64 = paths.iter().map(|path| path.fraction).sum();
        if !paths.is_empty() && (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(invalid("fractions of a rule", "a sum of 1"));
        }
        Ok(RelayRule { flows, priority, weight: rule.weight, paths })
    }
}

impl TryFrom<wire::RelayPath> for RelayPath {
    type Error = MessageError;

    fn try_from(path: wire::RelayPath) -> Result<RelayPath, MessageError> {
        let wire::RelayPath { next_region, fraction } = path;
        if !(fraction > 0.0 && fraction <= 1.0) {
            let expected = "a number above 0 and at most 1";
            return Err(MessageError::Invalid { field: "fraction of a path", expected });
        }
        Ok(RelayPath { next_region: parse_number("next region", next_region)?, fraction })
    }
}
