//! The forwarding table: the paths and the class of each flow (Siphon, ATC '18, section 4.2.1).
//!
//! A rule applies to flows with certain numbers, to all flows of a coflow between two regions, or to all flows of a coflow; the most
//! specific rule decides. A flow without a rule uses the direct path to its destination in [`Class::DEFAULT`]. In the paper, a relay then
//! consults the controller; here it forwards at once, and reports the flow.

use std::collections::BTreeMap;

use weir_proto::relay::{RegionPair, RelayMatch, RuleScope};

use crate::message::{FlowId, RelayId};

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

/// The number of a region, given by the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u16);

/// A path, and the fraction of the flow's bytes that uses it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// The next region: that of the destination for the direct path, or that of a detour.
    pub next: RegionId,
    /// The fraction, above 0.
    pub fraction: f64,
}

/// A rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The class at every next hop.
    pub class: Class,
    /// The paths, each region once; their fractions sum to 1. None: the direct path.
    pub paths: Vec<Path>,
}

/// The rules of a relay. A lookup is O(log rules).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ForwardingTable {
    /// Ranges of flows of a coflow with equal regions do not overlap.
    rules: BTreeMap<RelayMatch, Rule>,
}

impl ForwardingTable {
    /// Sets or replaces a rule.
    pub fn insert(&mut self, flows: RelayMatch, rule: Rule) {
        self.rules.insert(flows, rule);
    }

    /// Removes a rule, if it exists.
    pub fn remove(&mut self, flows: RelayMatch) {
        self.rules.remove(&flows);
    }

    /// Removes the rules of coflows for which `is_known` is false.
    pub fn retain_coflows(&mut self, is_known: impl Fn(u32) -> bool) {
        self.rules.retain(|flows, _| is_known(flows.coflow));
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule for a flow between two regions.
    pub fn lookup(&self, flow: FlowId, pair: RegionPair) -> Option<&Rule> {
        let whole = |scope| self.rules.get(&RelayMatch { coflow: flow.coflow, scope });
        let by_number = self.lookup_number(flow, Some(pair)).or_else(|| self.lookup_number(flow, None));
        by_number.or_else(|| whole(RuleScope::Pair(pair))).or_else(|| whole(RuleScope::Coflow))
    }

    /// The rule of the range that contains the flow's number.
    fn lookup_number(&self, flow: FlowId, pair: Option<RegionPair>) -> Option<&Rule> {
        let at = |first| RelayMatch {
            coflow: flow.coflow,
            scope: RuleScope::Flows { pair, first, last: u32::MAX },
        };
        let lowest = RelayMatch { coflow: flow.coflow, scope: RuleScope::Flows { pair, first: 0, last: 0 } };
        let (found, rule) = self.rules.range(lowest..=at(flow.flow)).next_back()?;
        matches!(found.scope, RuleScope::Flows { last, .. } if flow.flow <= last).then_some(rule)
    }
}

/// Splits a flow among its paths, such that the bytes of each follow its fraction.
#[derive(Debug, Clone, Default)]
pub struct Splitter {
    /// Bytes by next region since the paths last changed.
    sent_bytes: BTreeMap<RegionId, u64>,
}

impl Splitter {
    /// The next region of the next message, among the usable ones; none if none is usable.
    ///
    /// Chooses the path that is furthest behind its fraction. The bytes of a path deviate from its fraction by less than the largest
    /// message times the number of paths.
    pub fn choose(&self, paths: &[Path], is_usable: impl Fn(RegionId) -> bool) -> Option<RegionId> {
        let progress = |path: &Path| {
            // The constant orders paths without bytes: the largest fraction is first.
            (self.sent_bytes.get(&path.next).copied().unwrap_or(0) as f64 + 1.0) / path.fraction
        };
        let usable = paths.iter().filter(|path| is_usable(path.next));
        usable.min_by(|a, b| progress(a).total_cmp(&progress(b))).map(|path| path.next)
    }

    /// Charges a message to a path.
    pub fn charge(&mut self, next: RegionId, bytes: u32) {
        *self.sent_bytes.entry(next).or_default() += u64::from(bytes);
    }

    /// Forgets the sent bytes: after a change of paths, or of those that are usable. Otherwise, a path that returns after a failure
    /// would get all messages until it has its fraction.
    pub fn reset(&mut self) {
        self.sent_bytes.clear();
    }
}

/// The relays of a list, the one for this flow first. Divides flows evenly among the relays of a region.
///
/// Spark's plugin chooses the relay of the sender by another hash (`BlockServer.relayIndex`): with the same one, each relay would send
/// to one relay of the next region only.
pub fn relays_for(flow: FlowId, relays: &[RelayId]) -> impl Iterator<Item = RelayId> {
    // Fibonacci hashing: the high half of the product depends on all bits, also those of consecutive numbers.
    let key = u64::from(flow.coflow) << 32 | u64::from(flow.flow);
    let hash = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    let first = hash.checked_rem(relays.len()).unwrap_or(0);
    let (before, from) = relays.split_at(first);
    from.iter().chain(before).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECT: Path = Path { next: RegionId(1), fraction: 0.75 };
    const DETOUR: Path = Path { next: RegionId(2), fraction: 0.25 };

    #[test]
    fn bytes_of_paths_follow_their_fractions() {
        let mut splitter = Splitter::default();
        let mut sent = BTreeMap::from([(RegionId(1), 0), (RegionId(2), 0)]);
        for _ in 0..100 {
            let next = splitter.choose(&[DIRECT, DETOUR], |_| true).unwrap();
            splitter.charge(next, 1000);
            *sent.get_mut(&next).unwrap() += 1;
        }
        assert_eq!(sent, BTreeMap::from([(RegionId(1), 75), (RegionId(2), 25)]));
        assert_eq!(splitter.choose(&[DIRECT, DETOUR], |next| next == RegionId(2)), Some(RegionId(2)));
        assert_eq!(splitter.choose(&[DIRECT, DETOUR], |_| false), None);
    }

    const PAIR: RegionPair = RegionPair { source: 1, destination: 2 };

    fn set(table: &mut ForwardingTable, coflow: u32, scope: RuleScope, priority: u16) {
        let rule = Rule { class: Class { priority, weight: 1.0 }, paths: vec![] };
        table.insert(RelayMatch { coflow, scope }, rule);
    }

    fn priority(table: &ForwardingTable, flow: u32, pair: RegionPair) -> Option<u16> {
        table.lookup(FlowId { coflow: 7, flow }, pair).map(|rule| rule.class.priority)
    }

    #[test]
    fn most_specific_rule_decides() {
        let mut table = ForwardingTable::default();
        assert_eq!(priority(&table, 3, PAIR), None);
        let numbers = |pair| RuleScope::Flows { pair, first: 3, last: 4 };
        let scopes = [RuleScope::Coflow, RuleScope::Pair(PAIR), numbers(None), numbers(Some(PAIR))];
        for (scope, number) in scopes.into_iter().zip(0..) {
            set(&mut table, 7, scope, number);
            assert_eq!(priority(&table, 3, PAIR), Some(number));
        }
        assert_eq!(priority(&table, 5, PAIR), Some(1));
        let back = RegionPair { source: 2, destination: 1 };
        assert_eq!((priority(&table, 4, back), priority(&table, 5, back)), (Some(2), Some(0)));
        table.retain_coflows(|coflow| coflow != 7);
        assert_eq!(priority(&table, 3, PAIR), None);
    }

    #[test]
    fn range_with_the_number_of_a_flow_is_found() {
        let mut table = ForwardingTable::default();
        let other = RegionPair { source: 1, destination: 3 };
        let ranges = [(PAIR, 0, 0), (PAIR, 10, 19), (PAIR, 20, 29), (PAIR, 100, u32::MAX), (other, 0, 99)];
        for ((pair, first, last), number) in ranges.into_iter().zip(0..) {
            set(&mut table, 7, RuleScope::Flows { pair: Some(pair), first, last }, number);
        }
        set(&mut table, 6, RuleScope::Flows { pair: Some(PAIR), first: 0, last: u32::MAX }, 9);
        let found = [0, 1, 9, 10, 19, 20, 29, 30, 99, 100, u32::MAX].map(|flow| priority(&table, flow, PAIR));
        let none = None;
        let expected =
            [Some(0), none, none, Some(1), Some(1), Some(2), Some(2), none, none, Some(3), Some(3)];
        assert_eq!(found, expected);
        assert_eq!((priority(&table, 99, other), priority(&table, 100, other)), (Some(4), None));
        table.remove(RelayMatch {
            coflow: 7,
            scope: RuleScope::Flows { pair: Some(PAIR), first: 10, last: 19 },
        });
        assert_eq!((priority(&table, 10, PAIR), priority(&table, 20, PAIR)), (None, Some(2)));
    }

    #[test]
    fn flows_divide_evenly_among_relays_in_any_numbering() {
        let relays = [1, 2, 3].map(RelayId);
        // Consecutive numbers, and those of Spark's plugin: groups, executors and counters.
        for step in [1, 1 << 10, 1 << 22] {
            let mut counts = BTreeMap::new();
            for number in 0..600u32 {
                let flow = FlowId { coflow: 0, flow: number.wrapping_mul(step) };
                let order: Vec<RelayId> = relays_for(flow, &relays).collect();
                assert_eq!(order.len(), 3);
                *counts.entry(order[0]).or_insert(0) += 1;
            }
            assert!(counts.values().all(|count| (150..=250).contains(count)), "{step}: {counts:?}");
        }
        assert_eq!(relays_for(FlowId { coflow: 0, flow: 0 }, &[]).next(), None);
    }
}
