//! The utilization of each link over time.
//!
//! The time is divided into parts. At the end of each part, every live flow adds the bytes that it has sent since the last part to
//! its links; a flow that completes or changes its path adds them at once. Rates between these times do not matter, so the number
//! of schedules does not either.

use weir_core::model::Slot;

use super::Replay;

/// The maximum number of parts into which the time is divided.
const MAX_PARTS: usize = 128;

/// The maximum number of values by part and link; networks of more links have fewer parts.
const MAX_VALUES: usize = 1 << 22;

/// The minimum length of the last part, as a fraction of the others. A shorter rest belongs to the part before it, since a rounding
/// error in its end would be a large part of it.
const MIN_LAST_PART: f64 = 0.01;

impl Replay<'_> {
    /// Counts the bytes of live flows at the ends of parts of the time until `until`.
    pub(super) fn count_link_use_until(&mut self, until: f64) {
        let Some(mut link_use) = self.link_use.take() else { return };
        while let Some(at) = link_use.end_of_part(until) {
            for &slot in self.engine.network().active_coflows() {
                for flow in self.engine.network().coflow(slot).live_flows() {
                    let index = self.flow_index(slot, flow);
                    let size = self.flow_size(index.coflow, index.flow);
                    let sent_bytes = self.engine.sent_bytes(slot, flow, at).min(size);
                    link_use.count_bytes(index, sent_bytes, self.engine.flow_links(slot, flow));
                }
            }
            link_use.begin_part();
        }
        self.link_use = Some(link_use);
    }

    /// Counts the bytes of a flow whose path or progress is about to change, or that stops.
    pub(super) fn count_link_use(&mut self, slot: Slot, flow: u32, sent_bytes: f64) {
        let Some(mut link_use) = self.link_use.take() else { return };
        link_use.count_bytes(self.flow_index(slot, flow), sent_bytes, self.engine.flow_links(slot, flow));
        self.link_use = Some(link_use);
    }

    fn flow_index(&self, slot: Slot, flow: u32) -> FlowIndex {
        let coflow = self.engine.network().coflow(slot);
        FlowIndex {
            coflow: self.coflow_by_slot[slot as usize],
            width: coflow.width(),
            flow: coflow.spec_index(flow),
        }
    }

    /// Records that the capacities of links have changed at `now`.
    pub(super) fn record_capacities(&mut self, now: f64) {
        // The recorded time ends with the last completion.
        if let Some(link_use) = &mut self.link_use
            && self.completed_count < self.workload.coflows.len()
        {
            link_use.set_capacities(self.engine.link_capacities(), now);
        }
    }

    /// Records that a flow skips bytes, which its links do not carry, or, below zero, that it sends bytes again.
    pub(super) fn skip_link_use(&mut self, slot: Slot, flow: u32, bytes: f64) {
        let Some(mut link_use) = self.link_use.take() else { return };
        *link_use.counted_bytes(self.flow_index(slot, flow)) += bytes;
        self.link_use = Some(link_use);
    }
}

/// A flow, by the index of its coflow in the workload, the coflow's number of flows, and the flow's index in it.
#[derive(Debug, Clone, Copy)]
struct FlowIndex {
    coflow: usize,
    width: usize,
    flow: u32,
}

/// Records the utilization of each link. Parts of the time have equal lengths, which double when the time needs more parts than
/// the maximum.
#[derive(Debug)]
pub(super) struct LinkUseRecorder {
    link_count: usize,
    max_parts: usize,
    part_seconds: f64,
    /// Number of parts that have ended; the next bytes belong to the part after them.
    ended_parts: usize,
    /// By part and link: bytes that the link carried.
    carried: Vec<f64>,
    /// By part and link: bytes that the link could have carried.
    capacity: Vec<f64>,
    /// By coflow and flow of the workload: the sent bytes that are in `carried`. Empty unless the coflow is active.
    counted: Vec<Vec<f64>>,
    /// By link: its capacity from `since` on, in bytes per second.
    link_capacities: Vec<f64>,
    since: f64,
}

impl LinkUseRecorder {
    /// `capacities` are those of the recorded links at the start, in bytes per second: the first ones of all links. Records until
    /// `min_end` at least.
    pub fn new(capacities: Vec<f64>, min_end: f64) -> LinkUseRecorder {
        let mut max_parts = MAX_PARTS;
        while max_parts > 2 && max_parts * capacities.len() > MAX_VALUES {
            max_parts /= 2;
        }
        let mut part_seconds = 1e-6;
        while min_end > part_seconds * max_parts as f64 {
            part_seconds *= 2.0;
        }
        LinkUseRecorder {
            link_count: capacities.len(),
            max_parts,
            part_seconds,
            ended_parts: 0,
            carried: vec![0.0; max_parts * capacities.len()],
            capacity: vec![0.0; max_parts * capacities.len()],
            counted: Vec::new(),
            link_capacities: capacities,
            since: 0.0,
        }
    }

    /// The end of the present part, if it is not after `until`. Live flows count their bytes until then, and
    /// [`LinkUseRecorder::begin_part`] follows.
    fn end_of_part(&mut self, until: f64) -> Option<f64> {
        self.make_room(until);
        let end = (self.ended_parts + 1) as f64 * self.part_seconds;
        (end <= until && self.ended_parts < self.max_parts).then_some(end)
    }

    fn begin_part(&mut self) {
        self.ended_parts += 1;
    }

    /// Counts the bytes of a flow until now, in the present part: `sent_bytes` in all since it started.
    fn count_bytes(&mut self, index: FlowIndex, sent_bytes: f64, links: impl Iterator<Item = usize>) {
        let counted = std::mem::replace(self.counted_bytes(index), sent_bytes);
        let part = self.ended_parts.min(self.max_parts - 1);
        let of_part = &mut self.carried[part * self.link_count..][..self.link_count];
        for link in links {
            if let Some(bytes) = of_part.get_mut(link) {
                *bytes += sent_bytes - counted;
            }
        }
    }

    /// Frees the state of a coflow that has completed.
    pub fn remove_coflow(&mut self, coflow: usize) {
        if let Some(counted) = self.counted.get_mut(coflow) {
            *counted = Vec::new();
        }
    }

    fn counted_bytes(&mut self, FlowIndex { coflow, width, flow }: FlowIndex) -> &mut f64 {
        self.counted.resize_with(self.counted.len().max(coflow + 1), Vec::new);
        let of_coflow = &mut self.counted[coflow];
        of_coflow.resize(width, 0.0);
        &mut of_coflow[flow as usize]
    }

    /// Records the capacities of all links from `now` on.
    fn set_capacities(&mut self, capacities: impl Iterator<Item = f64>, now: f64) {
        self.count_capacities(now);
        self.link_capacities.clear();
        self.link_capacities.extend(capacities.take(self.link_count));
    }

    fn count_capacities(&mut self, now: f64) {
        self.make_room(now);
        for (part, seconds) in self.parts_until(now) {
            let of_part = &mut self.capacity[part * self.link_count..][..self.link_count];
            of_part.iter_mut().zip(&self.link_capacities).for_each(|(sum, rate)| *sum += rate * seconds);
        }
        self.since = now;
    }

    /// The parts from `since` to `until`, each with the seconds in it.
    fn parts_until(&self, until: f64) -> impl Iterator<Item = (usize, f64)> + use<> {
        let (since, part_seconds) = (self.since, self.part_seconds);
        let [first, last] =
            [since, until].map(|time| ((time / part_seconds) as usize).min(self.max_parts - 1));
        (first..=last).filter_map(move |part| {
            let start = since.max(part as f64 * part_seconds);
            let end = if part == last { until } else { (part + 1) as f64 * part_seconds };
            (end > start).then_some((part, end - start))
        })
    }

    /// Doubles the length of parts until they contain `until`.
    fn make_room(&mut self, until: f64) {
        while until > self.part_seconds * self.max_parts as f64 {
            merge_halves(&mut self.carried, self.link_count);
            merge_halves(&mut self.capacity, self.link_count);
            self.ended_parts /= 2;
            self.part_seconds *= 2.0;
        }
    }

    /// The length of parts in seconds, and the utilization by link and part until `end`.
    pub fn finish(mut self, end: f64) -> (f64, Vec<Vec<f64>>) {
        self.count_capacities(end);
        let min_parts = if end > 0.0 { 1.0 } else { 0.0 };
        let parts = (end / self.part_seconds - MIN_LAST_PART).ceil();
        let parts = parts.clamp(min_parts, self.max_parts as f64) as usize;
        let of_link = |link: usize| {
            let of_part = |part: usize| {
                let until = if part + 1 == parts { self.max_parts } else { part + 1 };
                let sum = |bytes: &[f64]| -> f64 {
                    (part..until).map(|part| bytes[part * self.link_count + link]).sum()
                };
                let (carried, capacity) = (sum(&self.carried), sum(&self.capacity));
                if capacity > 0.0 { carried.max(0.0) / capacity } else { 0.0 }
            };
            (0..parts).map(of_part).collect()
        };
        (self.part_seconds, (0..self.link_count).map(of_link).collect())
    }
}

/// Adds the bytes of each two neighbouring parts. `bytes` are by part and link.
fn merge_halves(bytes: &mut [f64], link_count: usize) {
    for position in 0..bytes.len() {
        let (part, link) = (position / link_count, position % link_count);
        let moved = std::mem::take(&mut bytes[position]);
        bytes[part / 2 * link_count + link] += moved;
    }
}
