//! The flows of a coflow by the level at which they complete.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ordered_f64::OrderedF64;

/// A level, and the flow that completes at it.
type Entry = (OrderedF64, u32);

/// The part of the unsorted entries that is sorted next, and its minimum size.
const SORTED_PART: usize = 8;
const MIN_SORTED: usize = 32;

/// A priority queue of flows, of which few are taken before all are replaced: it sorts only the entries that come next.
#[derive(Debug, Clone, Default)]
pub(super) struct CompletionQueue {
    /// The first entries, in descending order: the first to complete is last.
    sorted: Vec<Entry>,
    /// Entries after those of `sorted`.
    unsorted: Vec<Entry>,
    /// Entries that were added later.
    added: BinaryHeap<Reverse<Entry>>,
}

impl CompletionQueue {
    /// An empty queue with room for this number of entries.
    pub fn with_capacity(entries: usize) -> CompletionQueue {
        CompletionQueue { unsorted: Vec::with_capacity(entries), ..CompletionQueue::default() }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.sorted.len() + self.unsorted.len() + self.added.len()
    }

    /// Adds a flow that completes at a level. O(1) before the first access, then O(log entries).
    pub fn push(&mut self, level: f64, flow: u32) {
        let entry = (OrderedF64(level), flow);
        if self.sorted.is_empty() {
            self.unsorted.push(entry);
        } else {
            self.added.push(Reverse(entry));
        }
    }

    /// The first level and flow. Removes the entries before it for which `is_current` returns false.
    pub fn first(&mut self, is_current: impl Fn(f64, u32) -> bool) -> Option<(f64, u32)> {
        let is_stale = |&(OrderedF64(level), flow): &Entry| !is_current(level, flow);
        loop {
            while self.sorted.last().is_some_and(is_stale) {
                self.sorted.pop();
            }
            if !self.sorted.is_empty() || self.unsorted.is_empty() {
                break;
            }
            self.sort_next();
        }
        while self.added.peek().is_some_and(|Reverse(first)| is_stale(first)) {
            self.added.pop();
        }
        let added = self.added.peek().map(|Reverse(first)| first);
        let first = match (self.sorted.last(), added) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        first.map(|&(OrderedF64(level), flow)| (level, flow))
    }

    /// Moves the first of the unsorted entries to `sorted`, which is empty. O(unsorted entries).
    fn sort_next(&mut self) {
        let count = self.unsorted.len();
        let rest = count.saturating_sub(MIN_SORTED.max(count / SORTED_PART));
        if rest > 0 {
            self.unsorted.select_nth_unstable_by(rest, |a, b| b.cmp(a));
        }
        self.sorted.extend(self.unsorted.drain(rest..));
        self.sorted.sort_unstable_by(|a, b| b.cmp(a));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all flows from a queue in order.
    fn take_all(queue: &mut CompletionQueue) -> Vec<u32> {
        let taken = std::cell::RefCell::new(Vec::new());
        while let Some((_, flow)) = queue.first(|_, flow| !taken.borrow().contains(&flow)) {
            taken.borrow_mut().push(flow);
        }
        taken.into_inner()
    }

    #[test]
    fn queue_returns_flows_by_level_and_then_by_number() {
        let mut queue = CompletionQueue::default();
        // More entries than are sorted at once.
        let levels: Vec<f64> = (0..200u32).map(|flow| f64::from(flow * 7 % 50)).collect();
        levels.iter().zip(0..).for_each(|(&level, flow)| queue.push(level, flow));
        let mut expected: Vec<u32> = (0..200).collect();
        expected.sort_by(|&a, &b| levels[a as usize].total_cmp(&levels[b as usize]).then(a.cmp(&b)));
        assert_eq!(take_all(&mut queue), expected);
    }

    #[test]
    fn flows_added_after_the_first_access_are_in_order() {
        let mut queue = CompletionQueue::default();
        [5.0, 3.0].into_iter().zip(0..).for_each(|(level, flow)| queue.push(level, flow));
        assert_eq!(queue.first(|_, _| true), Some((3.0, 1)));
        queue.push(4.0, 2);
        queue.push(1.0, 3);
        assert_eq!(take_all(&mut queue), [3, 1, 2, 0]);
        assert_eq!(queue.len(), 0);
    }
}
