//! The forwarding table: the next hops and the class of each flow (Siphon, ATC '18, section 4.2.1).
//!
//! A rule applies to one flow, to all flows of a coflow between two relays, or to all flows of a coflow; the most specific rule
//! decides. A flow without a rule uses the direct path to its destination in [`Class::DEFAULT`]. In the paper, a relay then consults
//! the controller; here it forwards at once, and reports the flow.

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
    /// The class at every next hop.
    pub class: Class,
    /// The next hops, each once; their fractions sum to 1. None: the direct path.
    pub paths: Vec<Path>,
}

/// What a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// One flow.
    Flow(FlowId),
    /// All flows of a coflow from the programs of one relay to those of another one: a flow group of the paper.
    Group {
        /// The number of the coflow.
        coflow: u32,
        /// The relay of the senders.
        source: RelayId,
        /// The relay of the receivers.
        destination: RelayId,
    },
    /// All flows of a coflow.
    Coflow(u32),
}

impl Match {
    /// The number of the coflow.
    pub fn coflow(&self) -> u32 {
        match *self {
            Match::Flow(FlowId { coflow, .. }) | Match::Group { coflow, .. } | Match::Coflow(coflow) => {
                coflow
            }
        }
    }
}

/// The rules of a relay. A lookup is O(log rules).
#[derive(Debug, Clone, Default, PartialEq)]
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

    /// Removes the rules of coflows for which `is_known` is false.
    pub fn retain_coflows(&mut self, is_known: impl Fn(u32) -> bool) {
        self.rules.retain(|what, _| is_known(what.coflow()));
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule for a flow between two relays.
    pub fn lookup(&self, flow: FlowId, source: RelayId, destination: RelayId) -> Option<&Rule> {
        let group = Match::Group { coflow: flow.coflow, source, destination };
        let matches = [Match::Flow(flow), group, Match::Coflow(flow.coflow)];
        matches.iter().find_map(|what| self.rules.get(what))
    }
}

/// Splits a flow among its paths, such that the bytes of each follow its fraction.
#[derive(Debug, Clone, Default)]
pub struct Splitter {
    /// Bytes by next hop since the paths last changed.
    sent_bytes: BTreeMap<RelayId, u64>,
}

impl Splitter {
    /// The next hop of the next message, among the usable ones; none if none is usable.
    ///
    /// Chooses the path that is furthest behind its fraction. The bytes of a path deviate from its fraction by less than the largest
    /// message times the number of paths.
    pub fn choose(&self, paths: &[Path], is_usable: impl Fn(RelayId) -> bool) -> Option<RelayId> {
        let progress = |path: &Path| {
            // The constant orders paths without bytes: the largest fraction is first.
            (self.sent_bytes.get(&path.next).copied().unwrap_or(0) as f64 + 1.0) / path.fraction
        };
        let usable = paths.iter().filter(|path| is_usable(path.next));
        usable.min_by(|a, b| progress(a).total_cmp(&progress(b))).map(|path| path.next)
    }

    /// Charges a message to a path.
    pub fn charge(&mut self, next: RelayId, bytes: u32) {
        *self.sent_bytes.entry(next).or_default() += u64::from(bytes);
    }

    /// Forgets the sent bytes: after a change of paths, or of those that are usable. Otherwise, a path that returns after a failure
    /// would get all messages until it has its fraction.
    pub fn reset(&mut self) {
        self.sent_bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECT: Path = Path { next: RelayId(1), fraction: 0.75 };
    const DETOUR: Path = Path { next: RelayId(2), fraction: 0.25 };

    #[test]
    fn bytes_of_paths_follow_their_fractions() {
        let mut splitter = Splitter::default();
        let mut sent = BTreeMap::from([(RelayId(1), 0), (RelayId(2), 0)]);
        for _ in 0..100 {
            let next = splitter.choose(&[DIRECT, DETOUR], |_| true).unwrap();
            splitter.charge(next, 1000);
            *sent.get_mut(&next).unwrap() += 1;
        }
        assert_eq!(sent, BTreeMap::from([(RelayId(1), 75), (RelayId(2), 25)]));
        assert_eq!(splitter.choose(&[DIRECT, DETOUR], |next| next == RelayId(2)), Some(RelayId(2)));
        assert_eq!(splitter.choose(&[DIRECT, DETOUR], |_| false), None);
    }

    #[test]
    fn most_specific_rule_decides() {
        let flow = FlowId { coflow: 7, flow: 3 };
        let (source, destination) = (RelayId(1), RelayId(2));
        let rule = |priority| {
            let class = Class { priority, weight: 1.0 };
            Rule { class, paths: vec![] }
        };
        let mut table = ForwardingTable::default();
        let priority =
            |table: &ForwardingTable| table.lookup(flow, source, destination).map(|rule| rule.class.priority);
        assert_eq!(priority(&table), None);
        table.insert(Match::Coflow(7), rule(3));
        assert_eq!(priority(&table), Some(3));
        table.insert(Match::Group { coflow: 7, source, destination }, rule(2));
        assert_eq!(priority(&table), Some(2));
        table.insert(Match::Flow(flow), rule(1));
        assert_eq!(priority(&table), Some(1));
        assert_eq!(table.lookup(flow, destination, source).unwrap().class.priority, 1);
        table.retain_coflows(|coflow| coflow != 7);
        assert_eq!(priority(&table), None);
    }
}
