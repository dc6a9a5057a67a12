//! The utilization of each link over time.

use std::ops::Range;

use weir_core::model::CompletedFlow;

use super::snapshot::Snapshot;

/// The maximum number of parts into which the time is divided.
const MAX_PARTS: usize = 128;

/// A flow that sends since the last schedule.
#[derive(Debug, Clone)]
struct SendingFlow {
    /// Its number in the coflow.
    number: u32,
    /// In bytes per second.
    rate: f64,
    /// Its links, as positions in the recorder's list.
    links: Range<usize>,
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
    /// The flows that send since the last schedule, coflow by coflow.
    flows: Vec<SendingFlow>,
    links: Vec<u32>,
    /// By link: the rates of these flows, in bytes per second.
    link_rates: Vec<f64>,
    /// Flows that have completed since the last schedule, with their ends.
    ended: Vec<(f64, SendingFlow)>,
    /// By slot: the positions of the coflow's flows in `flows`.
    positions: Vec<Range<usize>>,
    /// By link: its capacity since the last schedule, in bytes per second.
    link_capacities: Vec<f64>,
    /// The time of the last schedule.
    since: f64,
}

impl LinkUseRecorder {
    /// `capacities` are those of the recorded links at the start, in bytes per second: the first ones of all links.
    pub fn new(capacities: Vec<f64>) -> LinkUseRecorder {
        LinkUseRecorder {
            link_count: capacities.len(),
            part_seconds: 1e-6,
            carried: Vec::new(),
            capacity: Vec::new(),
            flows: Vec::new(),
            links: Vec::new(),
            link_rates: vec![0.0; capacities.len()],
            ended: Vec::new(),
            positions: Vec::new(),
            link_capacities: capacities,
            since: 0.0,
        }
    }

    /// Records the rates of a schedule. O(flows that send, with their links, and links).
    pub fn on_schedule(&mut self, snapshot: &Snapshot<'_>) {
        self.advance(snapshot.now());
        for &slot in snapshot.active() {
            let start = self.flows.len();
            for number in snapshot.coflow(slot).live_flows() {
                let rate = snapshot.rate(slot, number);
                if rate > 0.0 {
                    let links_start = self.links.len();
                    for link in snapshot.flow_links(slot, number) {
                        if let Some(link_rate) = self.link_rates.get_mut(link) {
                            *link_rate += rate;
                            self.links.push(link as u32);
                        }
                    }
                    self.flows.push(SendingFlow { number, rate, links: links_start..self.links.len() });
                }
            }
            let slot = slot as usize;
            self.positions.resize(self.positions.len().max(slot + 1), 0..0);
            self.positions[slot] = start..self.flows.len();
        }
        self.link_capacities.clear();
        self.link_capacities.extend(snapshot.link_capacities().take(self.link_count));
    }

    /// Records that flows have completed since the last schedule.
    pub fn end_flows(&mut self, completed: &[CompletedFlow]) {
        for &CompletedFlow { slot, flow, completed_at } in completed {
            let Some(positions) = self.positions.get(slot as usize) else { continue };
            let sending = self.flows[positions.clone()].iter().find(|sending| sending.number == flow);
            self.ended.extend(sending.map(|sending| (completed_at, sending.clone())));
        }
    }

    /// Adds the bytes since the last schedule. O(links, and links of flows that have completed).
    fn advance(&mut self, now: f64) {
        self.make_room(now);
        for (part, seconds) in parts_between(self.since, now, self.part_seconds) {
            let of_part = part * self.link_count..(part + 1) * self.link_count;
            add_bytes(&mut self.carried[of_part.clone()], &self.link_rates, seconds);
            add_bytes(&mut self.capacity[of_part], &self.link_capacities, seconds);
        }
        for (end, flow) in &self.ended {
            for (part, seconds) in parts_between(*end, now, self.part_seconds) {
                for &link in &self.links[flow.links.clone()] {
                    let bytes = &mut self.carried[part * self.link_count + link as usize];
                    *bytes = (*bytes - flow.rate * seconds).max(0.0);
                }
            }
        }
        self.flows.clear();
        self.links.clear();
        self.ended.clear();
        self.link_rates.fill(0.0);
        self.positions.fill(0..0);
        self.since = now;
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

/// The parts between two times, each with the seconds in it.
fn parts_between(since: f64, until: f64, part_seconds: f64) -> impl Iterator<Item = (usize, f64)> {
    let [first, last] = [since, until].map(|time| ((time / part_seconds) as usize).min(MAX_PARTS - 1));
    (first..=last).filter_map(move |part| {
        let start = since.max(part as f64 * part_seconds);
        let end = if part == last { until } else { (part + 1) as f64 * part_seconds };
        (end > start).then_some((part, end - start))
    })
}

/// Adds what links carry in some seconds. `bytes` and `rates` are by link.
fn add_bytes(bytes: &mut [f64], rates: &[f64], seconds: f64) {
    bytes.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate * seconds);
}

/// Adds the bytes of each two neighbouring parts. `bytes` are by part and link.
fn merge_halves(bytes: &mut [f64], link_count: usize) {
    for position in 0..bytes.len() {
        let (part, link) = (position / link_count, position % link_count);
        let moved = std::mem::take(&mut bytes[position]);
        bytes[part / 2 * link_count + link] += moved;
    }
}
