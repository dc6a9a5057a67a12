//! The utilization of each link over time.

use std::collections::HashMap;

use weir_core::model::{CompletedFlow, Slot};

use super::snapshot::Snapshot;

/// The maximum number of parts into which the time is divided.
const MAX_PARTS: usize = 128;

/// A flow that sends since the last schedule.
#[derive(Debug, Clone, Copy)]
struct Sender {
    /// In bytes per second.
    rate: f64,
    /// The time until which it sends: infinite unless it has completed.
    end: f64,
    /// The end of its links in the recorder's list.
    links_end: usize,
}

/// Records the utilization of each link. Parts of the time have equal lengths, which double when the time needs more than
/// [`MAX_PARTS`].
#[derive(Debug)]
pub(super) struct LinkUseRecorder {
    link_count: usize,
    part_seconds: f64,
    /// By part and link: bytes that the link carried.
    carried: Vec<f64>,
    /// By part and link: bytes that the link could have carried.
    capacity: Vec<f64>,
    senders: Vec<Sender>,
    links: Vec<u32>,
    /// Positions in `senders`.
    positions: HashMap<(Slot, u32), usize>,
    /// By link: its capacity since the last schedule, in bytes per second.
    link_capacities: Vec<f64>,
    /// The time of the last schedule.
    since: f64,
}

impl LinkUseRecorder {
    /// `capacities` are those of all links at the start, in bytes per second.
    pub fn new(capacities: Vec<f64>) -> LinkUseRecorder {
        LinkUseRecorder {
            link_count: capacities.len(),
            part_seconds: 1e-6,
            carried: Vec::new(),
            capacity: Vec::new(),
            senders: Vec::new(),
            links: Vec::new(),
            positions: HashMap::new(),
            link_capacities: capacities,
            since: 0.0,
        }
    }

    /// Records the rates of a schedule. O(flows that send, with their links, and links).
    pub fn on_schedule(&mut self, snapshot: &Snapshot<'_>) {
        self.advance(snapshot.now());
        for &slot in snapshot.active() {
            for flow in snapshot.coflow(slot).live_flows() {
                let rate = snapshot.rate(slot, flow);
                if rate > 0.0 {
                    self.links.extend(snapshot.flow_links(slot, flow).map(|link| link as u32));
                    self.positions.insert((slot, flow), self.senders.len());
                    self.senders.push(Sender { rate, end: f64::INFINITY, links_end: self.links.len() });
                }
            }
        }
        self.link_capacities.clear();
        self.link_capacities.extend(snapshot.link_capacities());
    }

    /// Records that flows have completed since the last schedule.
    pub fn end_flows(&mut self, completed: &[CompletedFlow]) {
        for &CompletedFlow { slot, flow, completed_at } in completed {
            if let Some(&position) = self.positions.get(&(slot, flow)) {
                self.senders[position].end = completed_at;
            }
        }
    }

    /// Adds the bytes since the last schedule.
    fn advance(&mut self, now: f64) {
        self.make_room(now);
        let (senders, links) = (std::mem::take(&mut self.senders), std::mem::take(&mut self.links));
        let mut carried = std::mem::take(&mut self.carried);
        let mut links_start = 0;
        for sender in &senders {
            for (part, seconds) in self.parts_until(now.min(sender.end)) {
                for &link in &links[links_start..sender.links_end] {
                    carried[part * self.link_count + link as usize] += sender.rate * seconds;
                }
            }
            links_start = sender.links_end;
        }
        self.carried = carried;
        let mut capacity = std::mem::take(&mut self.capacity);
        for (part, seconds) in self.parts_until(now) {
            let of_part = &mut capacity[part * self.link_count..][..self.link_count];
            of_part.iter_mut().zip(&self.link_capacities).for_each(|(sum, rate)| *sum += rate * seconds);
        }
        self.capacity = capacity;
        (self.senders, self.links) = (senders, links);
        self.senders.clear();
        self.links.clear();
        self.positions.clear();
        self.since = now;
    }

    /// The parts between the last schedule and `until`, each with the seconds in it.
    fn parts_until(&self, until: f64) -> impl Iterator<Item = (usize, f64)> + use<> {
        let (since, part_seconds) = (self.since, self.part_seconds);
        let [first, last] = [since, until].map(|time| self.part_at(time));
        (first..=last).filter_map(move |part| {
            let start = since.max(part as f64 * part_seconds);
            let end = if part == last { until } else { (part + 1) as f64 * part_seconds };
            (end > start).then_some((part, end - start))
        })
    }

    fn part_at(&self, time: f64) -> usize {
        ((time / self.part_seconds) as usize).min(MAX_PARTS - 1)
    }

    /// Doubles the length of parts until they contain `until`.
    fn make_room(&mut self, until: f64) {
        let size = MAX_PARTS * self.link_count;
        self.carried.resize(size, 0.0);
        self.capacity.resize(size, 0.0);
        while until > self.part_seconds * MAX_PARTS as f64 {
            // Before the first period, there are no bytes to move.
            if self.since > 0.0 {
                merge_halves(&mut self.carried, self.link_count);
                merge_halves(&mut self.capacity, self.link_count);
            }
            self.part_seconds *= 2.0;
        }
    }

    /// The length of parts in seconds, and the utilization by link and part until `end`.
    pub fn finish(mut self, end: f64) -> (f64, Vec<Vec<f64>>) {
        self.advance(end);
        let parts = (end / self.part_seconds).ceil().min(MAX_PARTS as f64) as usize;
        let of_link = |link: usize| {
            let of_part = |part: usize| {
                let position = part * self.link_count + link;
                let capacity = self.capacity[position];
                if capacity > 0.0 { self.carried[position] / capacity } else { 0.0 }
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
