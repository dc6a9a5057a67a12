//! Writes a replay as trace events ([`weir_trace::trace_events`]).
//!
//! | Group | Contents |
//! |---|---|
//! | `coflows` | A track for each coflow: a slice from release to completion, slices for its rules, instants for its queues |
//! | `rates of coflows` | The rate of each coflow as a counter, in Gbit/s |
//! | `links` | The rate of each link as a counter, in Gbit/s |
//!
//! Rates are sampled at schedules. Long replays have too many of them to display: two samples are at least 1/20,000 of the time between
//! the first and the last arrival apart. Times of release and completion are exact.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;
use weir_core::allocation::Rule;
use weir_core::model::{Coflow, FlowState, LinkKind, Slot, Workload};
use weir_sim::{CoflowOutcome, Observer, Snapshot};
use weir_trace::trace_events::{EventWriter, Track};

use crate::interrupt;

/// The number of samples between the first and the last arrival, at most.
const MAX_SAMPLES: f64 = 20_000.0;

/// Relative changes of a rate below this are not written.
const MIN_CHANGE: f64 = 1e-3;

/// The groups, as processes of the format.
const COFLOWS: u32 = 1;
const COFLOW_RATES: u32 = 2;
const LINKS: u32 = 3;

/// An observer that writes trace events of a replay.
pub struct TraceEvents<'a, W: Write> {
    out: EventWriter<W>,
    /// The only coflow to write, as its position in the workload.
    only: Option<usize>,
    /// The name of a link, by its position in [`Snapshot::link_capacities`] with the workload's port numbers.
    link_name: &'a dyn Fn(usize) -> String,
    min_step: f64,
    next_sample: f64,
    /// The sampled coflows, by position in the workload.
    coflows: BTreeMap<usize, CoflowTrack>,
    links: Vec<LinkTrack>,
    /// The last completion.
    end: f64,
}

/// A link, and its last written rate. Rates are in bytes per second.
struct LinkTrack {
    name: String,
    is_written: bool,
    rate: f64,
    written_rate: f64,
}

/// A coflow, and its last written state.
struct CoflowTrack {
    id: u64,
    rule: Rule,
    /// Start of the slice of this rule.
    since: f64,
    queue: usize,
    rate: f64,
}

impl<'a, W: Write> TraceEvents<'a, W> {
    /// Writes the events of a replay of `workload` to `out`. With `only`, those of the coflow at this position and of its links.
    /// `link_name` receives the number of a link: ports of the workload that send, ports that receive, then trunks.
    pub fn new(
        out: W,
        workload: &Workload,
        only: Option<usize>,
        link_name: &'a dyn Fn(usize) -> String,
    ) -> TraceEvents<'a, W> {
        let arrivals = || workload.coflows.iter().map(|coflow| coflow.arrival.get());
        let span = (arrivals().fold(0.0, f64::max) - arrivals().fold(f64::INFINITY, f64::min)).max(0.0);
        let mut out = EventWriter::new(out);
        let groups = [(COFLOWS, "coflows"), (COFLOW_RATES, "rates of coflows"), (LINKS, "links")];
        groups.iter().for_each(|&(group, name)| out.name_group(group, name));
        TraceEvents {
            out,
            only,
            link_name,
            min_step: if only.is_some() { 0.0 } else { span / MAX_SAMPLES },
            next_sample: 0.0,
            coflows: BTreeMap::new(),
            links: Vec::new(),
            end: 0.0,
        }
    }

    /// Writes the end: no link sends any more.
    ///
    /// # Errors
    /// The first error in writing.
    pub fn finish(mut self) -> io::Result<()> {
        self.links.iter_mut().for_each(|link| link.rate = 0.0);
        self.write_links(self.end);
        self.out.finish()
    }

    fn is_written(&self, index: usize) -> bool {
        self.only.is_none_or(|only| only == index)
    }

    fn name_links(&mut self, snapshot: &Snapshot<'_>) {
        let ports = snapshot.fabric().ports();
        let port = |number: u32| snapshot.workload_port(number) as usize;
        let name_of = |link: usize| match snapshot.link_kind(link) {
            LinkKind::Sender(number) => (self.link_name)(port(number)),
            LinkKind::Receiver(number) => (self.link_name)(ports + port(number)),
            LinkKind::Trunk(trunk) => (self.link_name)(2 * ports + trunk as usize),
        };
        let track = |link| LinkTrack {
            name: name_of(link),
            is_written: self.only.is_none(),
            rate: 0.0,
            written_rate: 0.0,
        };
        self.links = (0..snapshot.link_capacities().count()).map(track).collect();
    }

    /// Adds the rates of a coflow's flows to its links. Returns their sum.
    fn add_rates(&mut self, snapshot: &Snapshot<'_>, slot: Slot, coflow: &Coflow) -> f64 {
        let is_only = self.only == Some(coflow.workload_index);
        let mut total = 0.0;
        for flow in (0..coflow.width() as u32).filter(|&flow| coflow.flow_state(flow) == FlowState::Live) {
            let rate = snapshot.rate(slot, flow);
            total += rate;
            if rate == 0.0 && !is_only {
                continue;
            }
            for link in snapshot.flow_links(slot, flow) {
                self.links[link].rate += rate;
                self.links[link].is_written |= is_only;
            }
        }
        total
    }

    fn write_coflow(&mut self, snapshot: &Snapshot<'_>, slot: Slot, coflow: &Coflow, rate: f64) {
        let now = snapshot.now();
        let (index, allocation) = (coflow.workload_index, snapshot.allocation());
        let (rule, queue) = (allocation.rule(slot), allocation.class(slot));
        let out = &mut self.out;
        let track = self.coflows.entry(index).or_insert_with(|| {
            out.name_track(track_of(index), &format!("coflow {}", coflow.id));
            CoflowTrack { id: coflow.id, rule, since: now, queue, rate: 0.0 }
        });
        if track.rule != rule {
            write_slice(out, index, track, now);
            (track.rule, track.since) = (rule, now);
        }
        if track.queue != queue {
            out.instant(track_of(index), &format!("queue {queue}"), now);
            track.queue = queue;
        }
        if has_changed(track.rate, rate) {
            out.rate(COFLOW_RATES, &format!("coflow {}", track.id), now, rate);
            track.rate = rate;
        }
    }

    /// Writes the rates of links that changed.
    fn write_links(&mut self, now: f64) {
        for link in self.links.iter_mut().filter(|link| link.is_written) {
            if has_changed(link.written_rate, link.rate) {
                self.out.rate(LINKS, &link.name, now, link.rate);
                link.written_rate = link.rate;
            }
        }
    }
}

impl<W: Write> Observer for TraceEvents<'_, W> {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let now = snapshot.now();
        if now < self.next_sample {
            return true;
        }
        self.next_sample = now + self.min_step;
        if self.links.is_empty() {
            self.name_links(snapshot);
        }
        self.links.iter_mut().for_each(|link| link.rate = 0.0);
        for &slot in snapshot.active() {
            let coflow = snapshot.coflow(slot);
            let rate = self.add_rates(snapshot, slot, coflow);
            if self.is_written(coflow.workload_index) {
                self.write_coflow(snapshot, slot, coflow, rate);
            }
        }
        self.write_links(now);
        self.out.is_ok() && !interrupt::is_requested()
    }

    fn on_coflow_completed(&mut self, outcome: &CoflowOutcome) {
        if !self.is_written(outcome.index) {
            return;
        }
        let facts =
            json!({ "width": outcome.width, "bytes": outcome.bytes, "completion time (s)": outcome.cct() });
        let (name, end) = (format!("coflow {}", outcome.id), outcome.end);
        self.end = self.end.max(end);
        self.out.slice(track_of(outcome.index), &name, [outcome.released_at, end], &facts);
        if let Some(track) = self.coflows.remove(&outcome.index) {
            write_slice(&mut self.out, outcome.index, &track, end);
            self.out.rate(COFLOW_RATES, &name, end, 0.0);
        }
    }
}

/// Writes the slice of a coflow's rule, until `end`.
fn write_slice<W: Write>(out: &mut EventWriter<W>, index: usize, track: &CoflowTrack, end: f64) {
    let facts = json!({ "queue": track.queue });
    out.slice(track_of(index), track.rule.name(), [track.since, end], &facts);
}

/// The track of a coflow, by its position in the workload.
fn track_of(index: usize) -> Track {
    Track { group: COFLOWS, number: index }
}

fn has_changed(before: f64, now: f64) -> bool {
    (before - now).abs() > MIN_CHANGE * before.max(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames};
    use weir_core::policy;
    use weir_core::units::{Bytes, Rate, Time};
    use weir_sim::{ReplayOptions, replay};

    /// Two coflows of one flow from port 0, of 1 and 2 bytes, on ports of 1 byte/s.
    fn events_of_two_coflows(only: Option<usize>) -> Vec<Value> {
        let coflow = |id, dst, bytes| {
            CoflowSpec::new(id, Time::ZERO, vec![FlowSpec::new(0, dst, Bytes::new(bytes).unwrap())])
        };
        let workload = Workload {
            ports: 3,
            coflows: vec![coflow(7, 1, 1.0), coflow(8, 2, 2.0)],
            events: Vec::new(),
            names: ServiceNames::default(),
        };
        let options = ReplayOptions {
            port_rate: Rate::new(1.0).unwrap(),
            interval: Time::ZERO,
            ..ReplayOptions::default()
        };
        let link_name = |link: usize| format!("link {link}");
        let mut out = Vec::new();
        let mut events = TraceEvents::new(&mut out, &workload, only, &link_name);
        replay(&workload, policy::build("scf").unwrap(), &options, &mut events).unwrap();
        events.finish().unwrap();
        let all: Value = serde_json::from_slice(&out).unwrap();
        all["traceEvents"].as_array().unwrap().clone()
    }

    fn events_of_kind(all: &[Value], kind: &str, group: u32) -> Vec<(String, f64, f64)> {
        let chosen = all.iter().filter(|event| event["ph"] == kind && event["pid"] == group);
        let text = |event: &Value| event["name"].as_str().unwrap().to_owned();
        let value = |event: &Value| {
            let gbit = event["args"]["Gbit/s"].as_f64().map(|gbit| gbit / 8e-9);
            event["dur"].as_f64().or(gbit).unwrap()
        };
        chosen.map(|event| (text(event), event["ts"].as_f64().unwrap(), value(event))).collect()
    }

    #[test]
    fn coflows_have_slices_and_links_have_counters() {
        // Shortest first: coflow 7 until 1 s, then coflow 8 until 3 s. Their sender is link 0, their receivers are links 4 and 5.
        let all = events_of_two_coflows(None);
        let slices = events_of_kind(&all, "X", COFLOWS);
        let lifetimes: Vec<_> = slices.iter().filter(|slice| slice.0.starts_with("coflow")).collect();
        assert_eq!(lifetimes, [&("coflow 7".to_owned(), 0.0, 1e6), &("coflow 8".to_owned(), 0.0, 3e6)]);
        let count = |name: &str, at: f64, rate: f64| (name.to_owned(), at, rate);
        let rates = events_of_kind(&all, "C", COFLOW_RATES);
        let expected = [
            count("coflow 7", 0.0, 1.0),
            count("coflow 7", 1e6, 0.0),
            count("coflow 8", 1e6, 1.0),
            count("coflow 8", 3e6, 0.0),
        ];
        assert_eq!(rates, expected);
        let links = events_of_kind(&all, "C", LINKS);
        let expected =
            [(0, 0.0, 1.0), (4, 0.0, 1.0), (4, 1e6, 0.0), (5, 1e6, 1.0), (0, 3e6, 0.0), (5, 3e6, 0.0)];
        let expected = expected.map(|(link, at, rate)| count(&format!("link {link}"), at, rate));
        assert_eq!(links, expected);
    }

    #[test]
    fn one_coflow_has_only_its_own_slices() {
        let slices = events_of_kind(&events_of_two_coflows(Some(1)), "X", COFLOWS);
        assert!(slices.iter().any(|slice| slice.0 == "coflow 8"));
        assert!(slices.iter().all(|slice| slice.0 != "coflow 7"));
    }

    #[test]
    fn failed_write_stops_the_replay() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let link_name = |_: usize| String::new();
        let empty =
            Workload { ports: 1, coflows: Vec::new(), events: Vec::new(), names: ServiceNames::default() };
        let events = TraceEvents::new(Full, &empty, None, &link_name);
        assert_eq!(events.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
