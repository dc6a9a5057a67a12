//! The event loop: drives the engine with virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Instant;

use weir_core::allocation::Allocation;
use weir_core::engine::Engine;
use weir_core::model::{Change, Coflow, Ended, Fabric, FlowState, Slot, Trunks, Workload};
use weir_core::order::Key;
use weir_core::policy::AnyPolicy;
use weir_core::units::Time;

use crate::outcome::{CoflowOutcome, JobOutcome, Outcome, deviation};
use crate::ports::Ports;
use crate::transport::{Transport, realise};

pub(crate) mod error;
pub(crate) mod options;

pub use error::ReplayError;
pub use options::{NetworkModel, Options};

/// The network between two schedules, for an [`Observer`].
///
/// Ports are numbered in the order in which coflows list them; [`Snapshot::port`] returns the workload's number.
pub struct Snapshot<'a> {
    engine: &'a Engine,
    ports: &'a Ports,
    transport: Option<&'a dyn Transport>,
    now: f64,
}

impl Snapshot<'_> {
    /// The start of the time between the schedules, in seconds.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// The ports.
    pub fn fabric(&self) -> &Fabric {
        self.engine.network().fabric()
    }

    /// The workload's number of a port.
    pub fn port(&self, number: u32) -> u32 {
        self.ports.name(number)
    }

    /// The active coflows, in the order of release.
    pub fn active(&self) -> &[Slot] {
        self.engine.network().active()
    }

    /// An active coflow.
    pub fn coflow(&self, slot: Slot) -> &Coflow {
        self.engine.network().coflow(slot)
    }

    /// In a policy tree: the slices of a coflow's leaf, by side of a port; see [`Engine::slices`].
    pub fn slices(&self, slot: Slot) -> Option<&[f64]> {
        self.engine.slices(slot)
    }

    /// The rate of a flow (by its index in the coflow), in bytes per second.
    pub fn rate(&self, slot: Slot, flow: u32) -> f64 {
        let network = self.engine.network();
        match self.transport {
            Some(transport) if network.coflow(slot).state(flow) == FlowState::Live => {
                transport.rate(slot, flow, network)
            }
            Some(_) => 0.0,
            None => network.rate(slot, flow),
        }
    }

    /// The allocation of the schedule.
    pub fn allocation(&self) -> &Allocation {
        self.engine.allocation()
    }
}

/// Observes a replay.
pub trait Observer {
    /// Called after each schedule. Returning `false` stops the replay.
    fn scheduled(&mut self, moment: &Snapshot<'_>) -> bool {
        let _ = moment;
        true
    }

    /// Called when a coflow completes.
    fn done(&mut self, outcome: &CoflowOutcome) {
        let _ = outcome;
    }
}

/// An observer without any effect.
pub struct NoObserver;

impl Observer for NoObserver {}

/// An event of the agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// An event of the workload, by index.
    Event(usize),
    /// A coflow is released.
    Release(usize),
    /// A flow's data becomes available: coflow, and flow in the network's order.
    Data(usize, u32),
}

/// The state of a coflow of the workload during the replay.
#[derive(Debug, Clone, Default)]
struct Progress {
    slot: Option<Slot>,
    parents_left: usize,
    ready_at: f64,
    ends: Vec<f64>,
}

struct Replay<'a> {
    workload: &'a Workload,
    options: &'a Options,
    ports: Ports,
    engine: Engine,
    /// The limit in addition to ports; none if it has no effect.
    behind: Option<NetworkModel>,
    /// The transport, if the policy leaves rates open.
    transport: Option<Box<dyn Transport>>,
    agenda: BinaryHeap<Reverse<(Key, Item)>>,
    /// Times of the remaining events of the workload, the next one last.
    events: Vec<f64>,
    progress: Vec<Progress>,
    children: Vec<Vec<usize>>,
    /// By coflow and flow in the specification's order: the time before which a late event withholds the flow's data.
    not_before: BTreeMap<(usize, u32), f64>,
    /// By coflow and flow, likewise: remaining bytes of flows on the transport whose data was withdrawn.
    held: BTreeMap<(usize, u32), f64>,
    /// By slot, the coflow's index in the workload.
    by_slot: Vec<usize>,
    outcomes: Vec<Option<CoflowOutcome>>,
    done: usize,
    ended: Vec<Ended>,
    lost: Vec<(u32, u32, f64)>,
    schedule_ns: Vec<u32>,
}

/// Replays a workload under a policy.
///
/// # Errors
/// If the workload is inconsistent, the policy tree or the network does not fit it, the transport does not support it, some
/// coflow cannot complete, or the observer stops the replay; see [`ReplayError`].
pub fn replay(
    workload: &Workload,
    policy: AnyPolicy,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Outcome, ReplayError> {
    workload.check()?;
    let started = Instant::now();
    let port_rate = match &options.behind {
        Some(NetworkModel::Trunks(trunks)) => trunks.port_rate(),
        _ => options.port_rate,
    };
    let fabric = Fabric::big_switch(workload.ports, port_rate);
    let count = workload.coflows.len();
    let mut engine = Engine::new(fabric, policy, &workload.names)?;
    let ports = Ports::as_listed(workload);
    let behind = match &options.behind {
        Some(NetworkModel::Goodput(goodput)) if !goodput.costs() => None,
        Some(NetworkModel::Trunks(trunks)) if trunks.ports() < workload.ports as usize => {
            return Err(ReplayError::Hosts { ports: workload.ports as usize, hosts: trunks.ports() });
        }
        Some(NetworkModel::Trunks(trunks)) => {
            Some(NetworkModel::Trunks(Arc::new(Trunks::clone(trunks).plugged(ports.names()))))
        }
        other => other.clone(),
    };
    match &behind {
        Some(NetworkModel::Goodput(goodput)) => engine = engine.carrying(Arc::clone(goodput)),
        Some(NetworkModel::Trunks(trunks)) => engine = engine.crossing(Trunks::clone(trunks)),
        None => {}
    }
    let mut replay = Replay {
        workload,
        options,
        ports,
        engine,
        behind,
        transport: None,
        agenda: BinaryHeap::new(),
        events: Vec::new(),
        progress: vec![Progress::default(); count],
        children: vec![Vec::new(); count],
        not_before: BTreeMap::new(),
        held: BTreeMap::new(),
        by_slot: Vec::new(),
        outcomes: vec![None; count],
        done: 0,
        ended: Vec::new(),
        lost: Vec::new(),
        schedule_ns: Vec::new(),
    };
    replay.fill_agenda();
    replay.run(observer)?;
    Ok(replay.outcome(started.elapsed().as_secs_f64()))
}

impl Replay<'_> {
    fn fill_agenda(&mut self) {
        for (index, coflow) in self.workload.coflows.iter().enumerate() {
            self.progress[index].parents_left = coflow.parents.len();
            self.progress[index].ready_at = coflow.arrival.get();
            for &parent in &coflow.parents {
                self.children[parent].push(index);
            }
            if coflow.parents.is_empty() {
                let at = coflow.arrival.get() + coflow.compute_before.get();
                self.agenda.push(Reverse((Key(at), Item::Release(index))));
            }
        }
        for (position, event) in self.workload.events.iter().enumerate() {
            self.agenda.push(Reverse((Key(event.at.get()), Item::Event(position))));
            self.events.push(event.at.get());
        }
        self.events.sort_unstable_by(|a, b| b.total_cmp(a));
    }

    /// The first multiple of the interval at or after `at`, up to the slack.
    fn tick(&self, at: f64) -> f64 {
        let interval = self.options.interval.get();
        if interval == 0.0 || at.is_infinite() {
            return at;
        }
        // Adding 0 turns -0 into 0.
        let ticks = ((at - self.options.slack()) / interval).ceil() + 0.0;
        // At the boundary, rounding must not make `tick` and `limit` disagree: the event would never become due.
        if self.limit(ticks * interval) < at { (ticks + 1.0) * interval } else { ticks * interval }
    }

    /// The time until which events count as due at `now`.
    fn limit(&self, now: f64) -> f64 {
        now + self.options.slack().max(now * 1e-14)
    }

    fn run(&mut self, observer: &mut dyn Observer) -> Result<(), ReplayError> {
        let mut now = 0.0;
        let mut wake = f64::INFINITY;
        while self.done < self.workload.coflows.len() {
            self.forget_stale();
            let agenda = self.agenda.peek().map_or(f64::INFINITY, |Reverse((Key(at), _))| *at);
            let end = match &mut self.transport {
                Some(transport) => transport.next_end(),
                None => self.engine.next_end(),
            };
            // Events of the workload do not wait for the next multiple of the interval.
            let event = self.events.last().copied().unwrap_or(f64::INFINITY);
            let next = event.min(self.tick(end.min(wake).min(agenda)));
            if next.is_infinite() {
                return Err(self.stalled(now));
            }
            // An event within the slack happens at its exact time, and its effects do not start earlier. Otherwise a port would
            // carry two flows at the same time for that long.
            now = next.max(now);
            let limit = self.limit(now);
            now = self.run_out(limit, now, observer);
            now = self.happen(limit, now, observer);
            if wake <= limit {
                now = now.max(wake);
            }
            if self.done == self.workload.coflows.len() {
                break;
            }
            self.report();
            let started = Instant::now();
            self.engine.schedule(now);
            let mut took = started.elapsed();
            self.settle(now)?;
            self.report();
            let started = Instant::now();
            wake = self.engine.wake(now);
            took += started.elapsed();
            self.schedule_ns.push(took.as_nanos().min(u32::MAX.into()) as u32);
            if self.tick(wake) <= now {
                // The wake-up does not advance time: rounding keeps a threshold just out of reach.
                wake = now + self.options.interval.get().max(1e-9).max(now * 1e-12);
            }
            let (engine, ports) = (&self.engine, &self.ports);
            let moment = Snapshot { engine, ports, transport: self.transport.as_deref(), now };
            if !observer.scheduled(&moment) {
                let coflows = self.workload.coflows.len();
                return Err(ReplayError::Interrupted { done: self.done, coflows });
            }
        }
        Ok(())
    }

    fn stalled(&self, at: f64) -> ReplayError {
        let first = self.outcomes.iter().position(Option::is_none).unwrap_or(0);
        ReplayError::Stalled {
            at,
            left: self.workload.coflows.len() - self.done,
            id: self.workload.coflows[first].id,
        }
    }

    /// Ends flows and coflows until `limit` at the present rates. Returns the time of the last end, at least `now`.
    fn run_out(&mut self, limit: f64, now: f64, observer: &mut dyn Observer) -> f64 {
        self.ended.clear();
        match &mut self.transport {
            None => self.engine.run_out(limit, &mut self.ended),
            Some(transport) => {
                transport.run_out(limit, self.engine.network(), &mut self.ended);
                self.ended.sort_by(|a, b| a.at.total_cmp(&b.at));
                for ended in &self.ended {
                    self.engine.flow_done(ended.slot, ended.flow, ended.at);
                }
            }
        }
        let over = self.ended.iter().map(|ended| ended.at).fold(now, f64::max);
        self.record(observer);
        over
    }

    /// Computes the transport's rates for the decision, if the policy leaves rates open.
    fn settle(&mut self, now: f64) -> Result<(), ReplayError> {
        let network = self.engine.network();
        if self.transport.is_none()
            && let Some(queues) = self.engine.allocation().queues()
        {
            let mut transport = realise(queues, network, self.behind.as_ref())?;
            for &slot in network.active() {
                for flow in network.coflow(slot).live_flows() {
                    let left = self.size(self.by_slot[slot as usize], network.coflow(slot).original(flow));
                    transport.start(slot, flow, left, network, now);
                }
            }
            self.transport = Some(transport);
        }
        if let Some(transport) = &mut self.transport {
            transport.settle(network, self.engine.allocation(), now);
        }
        Ok(())
    }

    /// Reports the bytes that the transport has sent to the engine, as agents do.
    fn report(&mut self) {
        let Some(transport) = &self.transport else { return };
        for i in 0..self.engine.network().active().len() {
            let slot = self.engine.network().active()[i];
            if let Some(progress) = transport.progress(slot) {
                self.engine.report(slot, progress.sent, progress.rate, progress.at);
            }
        }
    }

    fn size(&self, index: usize, original: u32) -> f64 {
        self.workload.coflows[index].flows[original as usize].bytes.get()
    }

    /// Starts a live flow on the transport.
    fn start(&mut self, index: usize, slot: Slot, flow: u32, now: f64) {
        let network = self.engine.network();
        let original = network.coflow(slot).original(flow);
        let size = self.size(index, original);
        let left = self.held.remove(&(index, original)).unwrap_or(size);
        if let Some(transport) = &mut self.transport {
            transport.start(slot, flow, left, self.engine.network(), now);
        }
    }

    /// Stops a flow whose data is about to be withdrawn. The flow keeps its progress.
    fn stop(&mut self, index: usize, slot: Slot, flow: u32, now: f64) {
        let network = self.engine.network();
        if let Some(transport) = &mut self.transport
            && network.coflow(slot).state(flow) == FlowState::Live
        {
            let left = transport.stop(slot, flow, network, now);
            self.held.insert((index, network.coflow(slot).original(flow)), left);
        }
    }

    /// Records the flows in `ended`.
    fn record(&mut self, observer: &mut dyn Observer) {
        for i in 0..self.ended.len() {
            let Ended { slot, flow, at } = self.ended[i];
            let index = self.by_slot[slot as usize];
            let coflow = self.engine.network().coflow(slot);
            self.progress[index].ends[coflow.original(flow) as usize] = at;
            if coflow.done() == coflow.width() && self.ended[i + 1..].iter().all(|e| e.slot != slot) {
                self.complete(index, slot, observer);
            }
        }
        self.ended.clear();
    }

    fn complete(&mut self, index: usize, slot: Slot, observer: &mut dyn Observer) {
        let spec = &self.workload.coflows[index];
        let coflow = self.engine.network().coflow(slot);
        let arrival = coflow.arrival;
        let ends = std::mem::take(&mut self.progress[index].ends);
        let end = ends.iter().copied().fold(arrival, f64::max);
        let first = spec.flows[0].bytes;
        let outcome = CoflowOutcome {
            index,
            id: spec.id,
            arrival,
            end,
            width: spec.flows.len(),
            bytes: spec.bytes(),
            deviation: deviation(ends.iter().map(|e| e - arrival)),
            equal_lengths: spec.flows.iter().all(|f| f.bytes == first),
            met_deadline: spec.deadline.map(|_| end <= coflow.deadline * (1.0 + 1e-12)),
            flow_ends: if self.options.keep_flows { ends } else { Vec::new() },
        };
        self.engine.remove(slot, end);
        self.progress[index].slot = None;
        self.done += 1;
        let free = end + spec.compute_after.get();
        for i in 0..self.children[index].len() {
            let child = self.children[index][i];
            let progress = &mut self.progress[child];
            progress.parents_left -= 1;
            progress.ready_at = progress.ready_at.max(free);
            if progress.parents_left == 0 {
                let at = progress.ready_at + self.workload.coflows[child].compute_before.get();
                self.agenda.push(Reverse((Key(at), Item::Release(child))));
            }
        }
        observer.done(&outcome);
        self.outcomes[index] = Some(outcome);
    }

    /// Executes the agenda until `limit`. Returns the time of the last event, at least `now`.
    fn happen(&mut self, limit: f64, mut now: f64, observer: &mut dyn Observer) -> f64 {
        while let Some(&Reverse((Key(at), item))) = self.agenda.peek() {
            if at > limit {
                break;
            }
            self.agenda.pop();
            now = now.max(at);
            match item {
                Item::Release(index) => self.release(index, at, now, observer),
                Item::Data(index, flow) => self.data(index, flow, at, now, observer),
                Item::Event(position) => {
                    self.events.pop();
                    self.event(position, now);
                }
            }
        }
        now
    }

    fn release(&mut self, index: usize, at: f64, now: f64, observer: &mut dyn Observer) {
        let workload = self.workload;
        let mut spec = workload.coflows[index].clone();
        for flow in &mut spec.flows {
            (flow.src, flow.dst) = (self.ports.number(flow.src), self.ports.number(flow.dst));
        }
        for (&(_, flow), &later) in self.not_before.range((index, 0)..=(index, u32::MAX)) {
            if later > at + spec.flows[flow as usize].release.get() {
                let release = Time::new(later - at).expect("`later` is after `at`, and both are finite");
                spec.flows[flow as usize].release = release;
            }
        }
        self.progress[index].ends = vec![at; spec.flows.len()];
        self.ended.clear();
        let slot = self.engine.release(&spec, index, at, &mut self.ended);
        if slot as usize >= self.by_slot.len() {
            self.by_slot.resize(slot as usize + 1, usize::MAX);
        }
        self.by_slot[slot as usize] = index;
        self.progress[index].slot = Some(slot);
        for flow in 0..spec.flows.len() as u32 {
            let coflow = self.engine.network().coflow(slot);
            let original = coflow.original(flow);
            match coflow.state(flow) {
                FlowState::Waiting => {
                    let release = at + workload.coflows[index].flows[original as usize].release.get();
                    let there = self.not_before.get(&(index, original)).map_or(release, |l| l.max(release));
                    self.agenda.push(Reverse((Key(there), Item::Data(index, flow))));
                }
                FlowState::Live if self.transport.is_some() => self.start(index, slot, flow, now),
                FlowState::Live | FlowState::Done => {}
            }
        }
        self.record(observer);
    }

    /// The slot and the specification's index of a flow whose data becomes available at `at`. None if the flow does not
    /// wait for data, or if a late event has postponed the data since.
    fn expects(&self, index: usize, flow: u32, at: f64) -> Option<(Slot, u32)> {
        let slot = self.progress[index].slot?;
        let coflow = self.engine.network().coflow(slot);
        let original = coflow.original(flow);
        let put_off = self.not_before.get(&(index, original)).is_some_and(|&later| later > at);
        (coflow.state(flow) == FlowState::Waiting && !put_off).then_some((slot, original))
    }

    /// Removes outdated events from the head of the agenda, so that they cause no schedule.
    fn forget_stale(&mut self) {
        while let Some(&Reverse((Key(at), Item::Data(index, flow)))) = self.agenda.peek()
            && self.expects(index, flow, at).is_none()
        {
            self.agenda.pop();
        }
    }

    fn data(&mut self, index: usize, flow: u32, at: f64, now: f64, observer: &mut dyn Observer) {
        let Some((slot, original)) = self.expects(index, flow, at) else { return };
        if self.engine.data(slot, flow, self.size(index, original), now) {
            // The flow has no bytes and needs no schedule, so it ends at once.
            self.ended.push(Ended { slot, flow, at });
            self.record(observer);
        } else {
            self.start(index, slot, flow, now);
        }
    }

    fn event(&mut self, position: usize, now: f64) {
        match self.workload.events[position].what {
            Change::PortRate { port, side, factor } => {
                self.engine.scale_port(self.ports.number(port), side, factor, now);
            }
            Change::Restart { coflow, flow } => {
                if let Some((slot, place)) = self.find(coflow, flow) {
                    self.lose(coflow, slot, place, now);
                }
            }
            Change::Late { coflow, flow, until } => {
                let found = self.find(coflow, flow);
                let exists = found.map_or(0.0, |(slot, _)| {
                    let release = self.workload.coflows[coflow].flows[flow].release.get();
                    self.engine.network().coflow(slot).arrival + release
                });
                // An earlier late event remains valid.
                let before = self.not_before.get(&(coflow, flow as u32)).copied().unwrap_or(0.0);
                let until = until.get().max(exists).max(before);
                self.not_before.insert((coflow, flow as u32), until);
                let ended = |slot, place| self.engine.network().coflow(slot).state(place) == FlowState::Done;
                if let Some((slot, place)) = found.filter(|&(slot, place)| !ended(slot, place)) {
                    self.stop(coflow, slot, place, now);
                    self.engine.hold(slot, place, now);
                    self.agenda.push(Reverse((Key(until), Item::Data(coflow, place))));
                }
            }
        }
    }

    /// Restarts a flow.
    fn lose(&mut self, index: usize, slot: Slot, flow: u32, now: f64) {
        let network = self.engine.network();
        let coflow = network.coflow(slot);
        let (live, (src, dst)) = (coflow.state(flow) == FlowState::Live, coflow.ends_of(flow));
        let original = coflow.original(flow);
        let mut sent = network.attained(slot, flow, now);
        if coflow.state(flow) == FlowState::Done {
            return;
        }
        if let Some(transport) = &mut self.transport {
            let left = match live {
                true => transport.stop(slot, flow, network, now),
                false => self.held.remove(&(index, original)).unwrap_or(self.size(index, original)),
            };
            sent = self.size(index, original) - left;
        }
        self.lost.push((self.ports.name(src), self.ports.name(dst), sent));
        self.engine.restart(slot, flow, now);
        if live {
            self.start(index, slot, flow, now);
        }
    }

    /// An active flow, by its index in the workload.
    fn find(&self, index: usize, original: usize) -> Option<(Slot, u32)> {
        let slot = self.progress[index].slot?;
        let coflow = self.engine.network().coflow(slot);
        (0..coflow.width() as u32)
            .find(|&flow| coflow.original(flow) as usize == original)
            .map(|flow| (slot, flow))
    }

    fn outcome(self, wall: f64) -> Outcome {
        let coflows: Vec<CoflowOutcome> = self.outcomes.into_iter().flatten().collect();
        let makespan = coflows.iter().map(|c| c.end).fold(0.0, f64::max);
        let ports = self.workload.ports as usize;
        let (mut send, mut recv) = (vec![0.0; ports], vec![0.0; ports]);
        let flows = self.workload.coflows.iter().flat_map(|c| &c.flows);
        let moved = flows.map(|f| (f.src, f.dst, f.bytes.get())).chain(self.lost);
        for (src, dst, bytes) in moved {
            send[src as usize] += bytes;
            recv[dst as usize] += bytes;
        }
        let able = self.options.port_rate.get() * makespan;
        for bytes in send.iter_mut().chain(&mut recv) {
            *bytes = if able > 0.0 { *bytes / able } else { 0.0 };
        }
        let mut jobs: BTreeMap<u64, JobOutcome> = BTreeMap::new();
        for coflow in &coflows {
            let spec = &self.workload.coflows[coflow.index];
            let Some(id) = spec.job else { continue };
            let arrival = if spec.parents.is_empty() {
                spec.arrival.get()
            } else {
                coflow.arrival - spec.compute_before.get()
            };
            let end = coflow.end + spec.compute_after.get();
            let job = jobs.entry(id).or_insert(JobOutcome { id, arrival, end });
            job.arrival = job.arrival.min(arrival);
            job.end = job.end.max(end);
        }
        Outcome {
            coflows,
            jobs: jobs.into_values().collect(),
            flows: self.workload.flows(),
            makespan,
            send_utilisation: send,
            recv_utilisation: recv,
            schedule_ns: self.schedule_ns,
            wall,
        }
    }
}
