//! Groups of flows with one rate, and the bytes that a flow of each group has sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::{BitSet, Slot};
use crate::ordered_f64::OrderedF64;

/// A group of flows.
#[derive(Debug, Clone)]
struct Group {
    /// Flows by the count at which they end; entries of flows that left are stale.
    end_counts: BinaryHeap<Reverse<(OrderedF64, Slot, u32)>>,
    /// The count at which the first of them ends, or a lower one if a flow has left since; infinite without flows.
    first_end_count: f64,
    /// Whether `first_end_count` may be too low.
    is_first_stale: bool,
}

/// A flow that is the next to end in its group, and the count at which it ends.
pub(super) type FirstFlow = (f64, Slot, u32);

/// Groups by number. A group counts the bytes that one of its flows has sent, and a flow ends at a count.
#[derive(Debug)]
pub(super) struct RateGroups {
    groups: Vec<Group>,
    /// By group: bytes that one of its flows has sent until the last update, and the rate since.
    sent_counts: Vec<f64>,
    rates: Vec<f64>,
    /// Groups whose rate is above 0.
    active: BitSet,
    /// By group: the last computed end of its first flow; infinite if the rate is 0.
    ends: Vec<f64>,
    /// Groups whose end must be computed again if their rate is above 0.
    stale_ends: BitSet,
    last_time: f64,
}

impl RateGroups {
    pub fn new(count: usize) -> RateGroups {
        let group =
            Group { end_counts: BinaryHeap::new(), first_end_count: f64::INFINITY, is_first_stale: false };
        RateGroups {
            groups: vec![group; count],
            sent_counts: vec![0.0; count],
            rates: vec![0.0; count],
            active: BitSet::empty(count),
            ends: vec![f64::INFINITY; count],
            stale_ends: BitSet::empty(count),
            last_time: 0.0,
        }
    }

    /// The time of the last update.
    pub fn last_time(&self) -> f64 {
        self.last_time
    }

    /// The rate of a group's flows; 0 for no group.
    #[inline]
    pub fn rate(&self, group: u32) -> f64 {
        self.rates.get(group as usize).copied().unwrap_or(0.0)
    }

    /// The bytes that a flow of a group has sent at `now`; 0 for no group.
    pub fn sent_count(&self, group: u32, now: f64) -> f64 {
        let group = group as usize;
        self.sent_counts.get(group).map_or(0.0, |count| count + self.rates[group] * (now - self.last_time))
    }

    /// Groups whose rate is above 0.
    pub fn active(&self) -> &BitSet {
        &self.active
    }

    /// Changes a rate from the last update on.
    pub fn set_rate(&mut self, group: usize, rate: f64) {
        if self.rates[group] == rate {
            return;
        }
        self.rates[group] = rate;
        self.stale_ends.insert(group);
        if rate > 0.0 {
            self.active.insert(group);
        } else {
            self.active.remove(group);
            self.ends[group] = f64::INFINITY;
        }
    }

    /// Adds the bytes sent until `now` to the counts.
    pub fn advance(&mut self, now: f64) {
        let time = now - self.last_time;
        for group in self.active.iter() {
            self.sent_counts[group] += self.rates[group] * time;
        }
        self.last_time = now;
    }

    /// Adds a flow that ends at this count.
    pub fn add_flow(&mut self, group: u32, (end, slot, flow): FirstFlow) {
        let Some(of_group) = self.groups.get_mut(group as usize) else { return };
        of_group.end_counts.push(Reverse((OrderedF64(end), slot, flow)));
        if end < of_group.first_end_count {
            of_group.first_end_count = end;
            self.stale_ends.insert(group as usize);
        }
    }

    /// Removes a flow that would end at this count.
    pub fn remove_flow(&mut self, group: u32, end: f64) {
        let Some(of_group) = self.groups.get_mut(group as usize) else { return };
        if end <= of_group.first_end_count {
            of_group.is_first_stale = true;
            self.stale_ends.insert(group as usize);
        }
    }

    /// Removes all flows.
    pub fn clear(&mut self, group: usize) {
        let of_group = &mut self.groups[group];
        of_group.end_counts.clear();
        (of_group.first_end_count, of_group.is_first_stale) = (f64::INFINITY, false);
        self.stale_ends.insert(group);
    }

    /// The flow of a group that ends first. `is_current` tells whether an entry is that of a flow in the group.
    fn find_first_flow(
        &mut self,
        group: usize,
        is_current: impl Fn(u32, FirstFlow) -> bool,
    ) -> Option<FirstFlow> {
        let Group { end_counts, first_end_count, is_first_stale } = &mut self.groups[group];
        *is_first_stale = false;
        while let Some(&Reverse((OrderedF64(end), slot, flow))) = end_counts.peek() {
            if is_current(group as u32, (end, slot, flow)) {
                *first_end_count = end;
                return Some((end, slot, flow));
            }
            end_counts.pop();
        }
        *first_end_count = f64::INFINITY;
        None
    }

    /// Computes the end of the first flow of a group whose rate is above 0.
    fn update_end(&mut self, group: usize, is_current: impl Fn(u32, FirstFlow) -> bool) {
        if self.groups[group].is_first_stale {
            self.find_first_flow(group, is_current);
        }
        let left = (self.groups[group].first_end_count - self.sent_counts[group]).max(0.0);
        self.ends[group] = self.last_time + left / self.rates[group];
    }

    /// The end of the next flow; infinite if no flow ends.
    pub fn next_completion(&mut self, is_current: impl Fn(u32, FirstFlow) -> bool) -> f64 {
        // If a rate is constant, so is the end.
        let mut moved = std::mem::take(&mut self.stale_ends);
        for group in moved.iter() {
            if self.rates[group] > 0.0 {
                self.update_end(group, &is_current);
            }
        }
        moved.clear();
        self.stale_ends = moved;
        self.active.iter().fold(f64::INFINITY, |next, group| next.min(self.ends[group]))
    }

    /// The first flow of an active group that ends until `until`, and its end.
    pub fn first_completion(
        &mut self,
        group: usize,
        until: f64,
        is_current: impl Fn(u32, FirstFlow) -> bool,
    ) -> Option<(Slot, u32, f64)> {
        while self.ends[group] <= until {
            let known_end = self.groups[group].first_end_count;
            let Some((end, slot, flow)) = self.find_first_flow(group, &is_current) else {
                self.ends[group] = f64::INFINITY;
                return None;
            };
            // The known end is valid while nothing has moved. Computing it again can make it later by a rounding error each
            // time, and the flow would never end.
            if end == known_end && !self.stale_ends.contains(group) {
                return Some((slot, flow, self.ends[group]));
            }
            self.stale_ends.remove(group);
            self.update_end(group, &is_current);
        }
        None
    }
}
