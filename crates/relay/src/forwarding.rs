//! The forwarding table: the next hops and the class of each flow (Siphon, ATC '18, section 4.2.1).
//!
//! A rule applies to one flow, or to all flows of a coflow; the rule of the flow has precedence. A flow without a rule uses the
//! direct path to its destination in [`Class::DEFAULT`]. In the paper, a relay then consults the controller; here it
//! forwards at once, and reports the flow.

use std::collections::BTreeMap;

use crate::message::FlowId;

/// The number of a relay, given by the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub u16);

/// How a flow competes with others for the same next hop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// Strict priority: the lowest number is served first.
    pub priority: u16,
    /// The share among flows of the same priority; finite and above 0.
    pub weight: f64,
}

impl Class {
    /// The class of flows without a rule: after all flows with one.
    pub const DEFAULT: Class = Class { priority: u16::MAX, weight: 1.0 };
}

/// A next hop, and the fraction of the flow's bytes that uses it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// The next relay: the destination, or the relay of a detour.
    pub next: RelayId,
    /// The fraction, above 0.
    pub fraction: f64,
}

/// A rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    class: Class,
    paths: Vec<Path>,
}

/// Why a rule is invalid.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// The weight is not finite and above 0.
    #[error("weight {0}; expected a finite number above 0")]
    Weight(f64),
    /// There are no paths, or more than [`Rule::MAX_PATHS`].
    #[error("{0} paths; expected 1 to {max}", max = Rule::MAX_PATHS)]
    PathCount(usize),
    /// Two paths have the same next hop.
    #[error("relay {} is the next hop of two paths; expected distinct ones", .0.0)]
    DuplicateHop(RelayId),
    /// A fraction is not above 0, or the fractions do not sum to 1.
    #[error("fractions of paths sum to {0}, or one is not above 0; expected a sum of 1")]
    Fractions(f64),
}

impl Rule {
    /// The maximum number of paths of a flow.
    pub const MAX_PATHS: usize = 64;

    /// Checks a rule. The fractions sum to 1 within 1e-6.
    ///
    /// # Errors
    /// [`RuleError`], in the order of its variants.
    pub fn new(class: Class, paths: Vec<Path>) -> Result<Rule, RuleError> {
        if !(class.weight.is_finite() && class.weight > 0.0) {
            return Err(RuleError::Weight(class.weight));
        }
        if !(1..=Rule::MAX_PATHS).contains(&paths.len()) {
            return Err(RuleError::PathCount(paths.len()));
        }
        let mut hops: Vec<RelayId> = paths.iter().map(|path| path.next).collect();
        hops.sort_unstable();
        if let Some(pair) = hops.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(RuleError::DuplicateHop(pair[0]));
        }
        let sum: f64 = paths.iter().map(|path| path.fraction).sum();
        let are_valid = paths.iter().all(|path| path.fraction > 0.0) && (sum - 1.0).abs() <= 1e-6;
        if !are_valid {
            return Err(RuleError::Fractions(sum));
        }
        Ok(Rule { class, paths })
    }

    /// The class at every next hop.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The paths; their fractions sum to 1.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }
}

/// What a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// One flow.
    Flow(FlowId),
    /// All flows of a coflow, except those with a rule for the flow.
    Coflow(u32),
}

/// The rules of a relay. A lookup is O(log rules).
#[derive(Debug, Clone, Default)]
pub struct ForwardingTable {
    rules: BTreeMap<Match, Rule>,
}

impl ForwardingTable {
    /// Sets or replaces a rule.
    pub fn insert(&mut self, what: Match, rule: Rule) {
        self.rules.insert(what, rule);
    }

    /// Removes a rule, if it exists.
    pub fn remove(&mut self, what: Match) {
        self.rules.remove(&what);
    }

    /// The class of a flow.
    pub fn class(&self, flow: FlowId) -> Class {
        self.lookup(flow).map_or(Class::DEFAULT, Rule::class)
    }

    /// The rule for a flow.
    pub fn lookup(&self, flow: FlowId) -> Option<&Rule> {
        self.rules.get(&Match::Flow(flow)).or_else(|| self.rules.get(&Match::Coflow(flow.coflow)))
    }
}

/// Splits a flow among its paths, such that the bytes of each follow its fraction.
#[derive(Debug, Clone, Default)]
pub struct Splitter {
    /// Bytes by next hop since the paths last changed.
    sent_bytes: BTreeMap<RelayId, u64>,
}

impl Splitter {
    /// The next hop of a message of `length` bytes, among the usable ones; none if none is usable.
    ///
    /// Chooses the path that is furthest behind its fraction after the message. The bytes of a path deviate from its
    /// fraction by less than the largest message times the number of paths.
    pub fn choose(
        &mut self,
        paths: &[Path],
        length: u32,
        is_usable: impl Fn(RelayId) -> bool,
    ) -> Option<RelayId> {
        self.sent_bytes.retain(|hop, _| paths.iter().any(|path| path.next == *hop));
        let progress = |path: &Path| {
            let sent = self.sent_bytes.get(&path.next).copied().unwrap_or(0) + u64::from(length);
            sent as f64 / path.fraction
        };
        let usable = paths.iter().filter(|path| is_usable(path.next));
        let next = usable.min_by(|a, b| progress(a).total_cmp(&progress(b)))?.next;
        *self.sent_bytes.entry(next).or_default() += u64::from(length);
        Some(next)
    }

    /// Whether messages have been sent to this next hop.
    pub fn has_used(&self, hop: RelayId) -> bool {
        self.sent_bytes.contains_key(&hop)
    }

    /// Forgets the sent bytes. Otherwise, a path that returns after a failure would get all messages until it has its fraction.
    pub fn reset(&mut self) {
        self.sent_bytes.clear();
    }
}
