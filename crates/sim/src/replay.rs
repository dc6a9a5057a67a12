//! The event loop: drives the engine with virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Instant;

use weir_core::allocation::OrderCriterion;
use weir_core::engine::{Engine, Links};
use weir_core::model::topology::CableEvent;
use weir_core::model::{
    CoflowSpec, CompletedFlow, Fabric, FlowState, Slot, Trunks, Workload, WorkloadChange,
};
use weir_core::ordered_f64::OrderedF64;
use weir_core::policy::{AnyPolicy, PolicyError, Reaction, Timing};
use weir_core::units::Time;

use crate::outcome::{
    CoflowOutcome, DeadlineOutcome, JobOutcome, LinkUse, Outcome, Stall, coefficient_of_variation,
};
use crate::port_numbering::PortNumbering;
use crate::regions::RegionLayout;
use crate::regions::bandwidth::Bandwidth;
use crate::thread_clock::thread_cpu_time;
use weir_core::rounding::{self, is_shorter};

pub(crate) mod error;
mod link_use;
pub(crate) mod options;
mod rerouting;
pub(crate) mod snapshot;
mod stall;
mod transfer_limit;
mod trunk_usage;

pub use error::ReplayError;
use link_use::LinkUseRecorder;
pub use options::{NetworkModel, ReplayOptions};
pub use snapshot::{NoObserver, Observer, Snapshot};
use trunk_usage::TrunkUsage;

/// An event of the agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueuedEvent {
    /// An event of the workload, by index.
    WorkloadEvent(usize),
    /// A coflow is released.
    CoflowRelease(usize),
    /// A flow's data becomes available: coflow, and flow in the specification's order.
    DataAvailable(usize, u32),
}

/// The state of a coflow of the workload during the replay.
#[derive(Debug, Clone, Default)]
struct CoflowProgress {
    slot: Option<Slot>,
    pending_parents: usize,
    ready_at: f64,
    flow_ends: Vec<f64>,
    flow_paths: Vec<Box<[u32]>>,
    dropped_bytes: f64,
    /// By flow in the specification's order: its number in the network; empty unless flows wait for data.
    flow_numbers: Vec<u32>,
}

/// Who reacts to the events of a step.
#[derive(Debug, Clone, Copy, Default)]
struct Effects {
    by_coordinator: bool,
    by_hosts: bool,
}

impl Effects {
    fn add(&mut self, reaction: Reaction) {
        match reaction {
            Reaction::AtOnce => self.by_hosts = true,
            Reaction::AtInterval => self.by_coordinator = true,
        }
    }
}

struct Replay<'a> {
    workload: &'a Workload,
    options: &'a ReplayOptions,
    port_numbering: PortNumbering,
    engine: Engine,
    /// The capacities of all links at the start.
    nominal_rates: Vec<f64>,
    /// The remaining events of cables.
    cable_events: &'a [CableEvent],
    /// The random bandwidth of trunks, if it changes.
    bandwidth: Option<Bandwidth<'a>>,
    /// By the time at which it takes effect, then by the time of the event: starts of flows can wait for a schedule.
    event_queue: BinaryHeap<Reverse<(OrderedF64, OrderedF64, QueuedEvent)>>,
    /// The times at which coflows are released.
    release_times: BTreeSet<OrderedF64>,
    /// What happens at once, and what waits for the next multiple of the interval.
    timing: Timing,
    effects: Effects,
    /// Whether only hosts react to the completions of a step.
    is_between_schedules: bool,
    /// Times of the remaining events of the workload, the next one last.
    event_times: Vec<f64>,
    /// The latest ends of the flows of released coflows.
    transfer_limits: BinaryHeap<Reverse<(OrderedF64, usize)>>,
    progress: Vec<CoflowProgress>,
    children: Vec<Vec<usize>>,
    /// By coflow and flow in the specification's order: the time before which a late event withholds the flow's data.
    data_not_before: BTreeMap<(usize, u32), f64>,
    /// By slot, the coflow's index in the workload.
    coflow_by_slot: Vec<usize>,
    outcomes: Vec<Option<CoflowOutcome>>,
    completed_count: usize,
    completed_flows: Vec<CompletedFlow>,
    /// Flows inside a region that wait for one of their ports: coflow, and flow in the specification's order.
    blocked_flows: Vec<(usize, u32)>,
    /// Bytes that ports carried in addition to the sizes of flows, by sender and receiver: lost progress of restarted flows, and
    /// below zero for dropped bytes.
    extra_bytes: Vec<(u32, u32, f64)>,
    trunk_usage: TrunkUsage,
    /// The utilization of links over time, if requested.
    link_use: Option<LinkUseRecorder>,
    /// By coflow and flow in the specification's order: bytes that crossed former paths.
    bytes_on_former_paths: BTreeMap<(usize, u32), f64>,
    schedule_ns: Vec<u32>,
    /// The coflows that cannot complete, at the end of the replay.
    stall: Option<Stall>,
}

/// Replays a workload under a policy.
///
/// # Errors
/// As [`replay_until_stalled`], and if some coflow cannot complete.
pub fn replay(
    workload: &Workload,
    policy: AnyPolicy,
    options: &ReplayOptions,
    observer: &mut dyn Observer,
) -> Result<Outcome, ReplayError> {
    let outcome = replay_until_stalled(workload, policy, options, observer)?;
    outcome.stall.clone().map_or(Ok(outcome), |stall| Err(ReplayError::Stalled(stall)))
}

/// Replays a workload under a policy, until all coflows have completed or no flow can send any more ([`Outcome::stall`]).
///
/// # Errors
/// If the workload is inconsistent, the policy tree or the network does not fit it, the transport does not support it, or the observer
/// stops the replay; see [`ReplayError`].
pub fn replay_until_stalled(
    workload: &Workload,
    policy: AnyPolicy,
    options: &ReplayOptions,
    observer: &mut dyn Observer,
) -> Result<Outcome, ReplayError> {
    workload.check()?;
    let (started_at, processor_before) = (Instant::now(), thread_cpu_time());
    let routing = policy.routing_by_application(&workload.names)?;
    let mut outcome = match &options.network.regions {
        Some(regions) => {
            let layout = RegionLayout::new(workload, &regions.area, &routing);
            let trunks = Some(layout.trunks.clone());
            let bandwidth = Some(Bandwidth::new(&regions.area, regions.bandwidth_seed));
            let with_flow_ends = ReplayOptions { keep_flow_ends: true, ..options.clone() };
            let replay = Replay::new(&layout.workload, policy, &with_flow_ends, trunks, bandwidth)?;
            let mut outcome = replay.run_to_end(observer)?;
            layout.restore(&mut outcome, workload, options.keep_flow_ends);
            outcome
        }
        None if routing.iter().flatten().any(|routing| routing.detours) => {
            return Err(ReplayError::DetoursWithoutRegions);
        }
        None => {
            let mut trunks = options.network.trunks.as_deref().cloned();
            if !options.network.cable_events.is_empty() {
                trunks = trunks.map(Trunks::with_dead_end);
            }
            trunks = trunks.map(|trunks| trunks.with_flow_limits(&workload.coflows));
            Replay::new(workload, policy, options, trunks, None)?.run_to_end(observer)?
        }
    };
    outcome.wall_seconds = started_at.elapsed().as_secs_f64();
    outcome.processor_seconds = (thread_cpu_time() - processor_before).as_secs_f64();
    Ok(outcome)
}

impl<'a> Replay<'a> {
    fn new(
        workload: &'a Workload,
        policy: AnyPolicy,
        options: &'a ReplayOptions,
        trunks: Option<Trunks>,
        bandwidth: Option<Bandwidth<'a>>,
    ) -> Result<Replay<'a>, ReplayError> {
        if let Some(trunks) = &trunks
            && trunks.ports() < workload.ports as usize
        {
            return Err(ReplayError::TooFewHosts { ports: workload.ports as usize, hosts: trunks.ports() });
        }
        let port_numbering = PortNumbering::from_workload(workload);
        let trunks = trunks.map(|trunks| trunks.with_port_order(port_numbering.ports()));
        let fabric = match &trunks {
            Some(trunks) => Fabric::from_port_rates(trunks.port_rates()),
            None => Fabric::big_switch(workload.ports, options.port_rate),
        };
        // Behind the links are trunks that only stand for limits of flows.
        let limits = trunks.as_ref().map_or(0, |trunks| trunks.capacities().len() - trunks.links());
        let goodput = options.network.goodput.clone().filter(|goodput| goodput.has_reduction());
        let decides_over = options.network.decides_over;
        let links = Links { fabric, trunks, goodput, decides_over };
        let mut engine = Engine::new(links, policy, &workload.names)?;
        engine.set_interval(options.interval.get());
        let timing = engine.timing();
        let nominal_rates: Vec<f64> = engine.link_capacities().collect();
        if let Some(bandwidth) = &bandwidth {
            engine.set_trunk_capacities(bandwidth.rates(), 0.0);
        }
        let recorded = engine.link_capacities().take(nominal_rates.len() - limits).collect();
        // The replay does not end before the last arrival.
        let arrivals = workload.coflows.iter().map(|coflow| coflow.arrival.get());
        let last_arrival = arrivals.fold(0.0, f64::max);
        let link_use = options.keep_link_use.then(|| LinkUseRecorder::new(recorded, last_arrival));
        let count = workload.coflows.len();
        let mut replay = Replay {
            workload,
            options,
            port_numbering,
            engine,
            nominal_rates,
            cable_events: &options.network.cable_events,
            bandwidth,
            event_queue: BinaryHeap::new(),
            release_times: BTreeSet::new(),
            timing,
            effects: Effects::default(),
            is_between_schedules: false,
            event_times: Vec::new(),
            transfer_limits: BinaryHeap::new(),
            progress: vec![CoflowProgress::default(); count],
            children: vec![Vec::new(); count],
            data_not_before: BTreeMap::new(),
            coflow_by_slot: Vec::new(),
            outcomes: vec![None; count],
            completed_count: 0,
            completed_flows: Vec::new(),
            blocked_flows: Vec::new(),
            extra_bytes: Vec::new(),
            trunk_usage: TrunkUsage::default(),
            link_use,
            bytes_on_former_paths: BTreeMap::new(),
            schedule_ns: Vec::new(),
            stall: None,
        };
        replay.fill_event_queue();
        Ok(replay)
    }

    fn run_to_end(mut self, observer: &mut dyn Observer) -> Result<Outcome, ReplayError> {
        self.run(observer)?;
        Ok(self.into_outcome())
    }
}

impl Replay<'_> {
    fn fill_event_queue(&mut self) {
        for (index, coflow) in self.workload.coflows.iter().enumerate() {
            self.progress[index].pending_parents = coflow.parents.len();
            self.progress[index].ready_at = coflow.arrival.get();
            for &parent in &coflow.parents {
                self.children[parent].push(index);
            }
            if coflow.parents.is_empty() {
                let at = coflow.arrival.get() + coflow.compute_before.get();
                self.queue_release(at, index);
            }
        }
        for (position, event) in self.workload.events.iter().enumerate() {
            self.queue_event(event.time.get(), QueuedEvent::WorkloadEvent(position));
            self.event_times.push(event.time.get());
        }
        self.event_times.sort_unstable_by(|a, b| b.total_cmp(a));
    }

    /// Adds the release of a coflow. Coflows that are released at the same time are released in the order of their indices, so that a
    /// time which differs by rounding only, from the completion of a parent, counts as the same.
    fn queue_release(&mut self, at: f64, index: usize) {
        let rounding = at * rounding::CLOCK;
        let mut near = self.release_times.range(OrderedF64(at - rounding)..=OrderedF64(at + rounding));
        let at = near.next().map_or(at, |time| time.0);
        self.release_times.insert(OrderedF64(at));
        self.queue_event(at, QueuedEvent::CoflowRelease(index));
    }

    /// Adds an event. A start of flows waits for the next schedule, unless the policy starts flows at once, or the flow takes no time.
    fn queue_event(&mut self, at: f64, event: QueuedEvent) {
        let reaction = match event {
            QueuedEvent::WorkloadEvent(_) => Reaction::AtOnce,
            QueuedEvent::DataAvailable(index, flow) if self.takes_no_time(index, flow) => Reaction::AtOnce,
            QueuedEvent::CoflowRelease(index) => self.timing_of(index).start,
            QueuedEvent::DataAvailable(index, _) => self.reaction_to_data(index),
        };
        let due = if reaction == Reaction::AtOnce { at } else { self.next_schedule_time(at) };
        self.event_queue.push(Reverse((OrderedF64(due), OrderedF64(at), event)));
    }

    /// Adds an event that waits for no schedule.
    fn queue_event_at_once(&mut self, at: f64, event: QueuedEvent) {
        self.event_queue.push(Reverse((OrderedF64(at), OrderedF64(at), event)));
    }

    /// What happens at once to a coflow.
    fn timing_of(&self, index: usize) -> Timing {
        let coflow = &self.workload.coflows[index];
        self.engine.timing_of(coflow.service, coflow.application)
    }

    /// When a flow of a coflow starts whose data becomes available. Its coflow may have been scheduled without it.
    fn reaction_to_data(&self, index: usize) -> Reaction {
        match self.timing.hosts_serve_between_schedules() {
            true => Reaction::AtInterval,
            false => self.timing_of(index).start,
        }
    }

    /// Whether a flow of an active coflow takes no time.
    fn takes_no_time(&self, index: usize, spec_index: u32) -> bool {
        let bytes = self.flow_size(index, spec_index);
        let found = self.find_flow(index, spec_index as usize);
        found.is_some_and(|(slot, flow)| self.engine.takes_no_time(slot, flow, bytes))
    }

    /// The first multiple of the interval at or after `time`, up to the slack.
    fn next_schedule_time(&self, time: f64) -> f64 {
        let interval = self.options.interval.get();
        if interval == 0.0 || time.is_infinite() {
            return time;
        }
        // Adding 0 turns -0 into 0.
        let ticks = ((time - self.options.slack_seconds()) / interval).ceil() + 0.0;
        // At the boundary, `ticks` and `due_until` must not disagree by rounding: the event would never become due.
        let tick = ticks * interval;
        if tick + self.options.slack_seconds().max(tick * rounding::CLOCK) < time {
            (ticks + 1.0) * interval
        } else {
            tick
        }
    }

    /// The time until which events count as due at `now`. What happens at once needs no slack.
    fn due_until(&self, now: f64) -> f64 {
        let slack = match self.timing.completion {
            Reaction::AtOnce => 0.0,
            Reaction::AtInterval => self.options.slack_seconds(),
        };
        now + slack.max(now * rounding::CLOCK)
    }

    fn run(&mut self, observer: &mut dyn Observer) -> Result<(), ReplayError> {
        let mut now = 0.0;
        // When the coordinator decides next, if no event comes before.
        let mut next_schedule = f64::INFINITY;
        while self.completed_count < self.workload.coflows.len() {
            self.drop_stale_events();
            let next_queued =
                self.event_queue.peek().map_or(f64::INFINITY, |Reverse((OrderedF64(due), ..))| *due);
            let next_scheduled_completion = self.next_completion();
            let next_completion = next_scheduled_completion.min(self.next_host_completion());
            // Changes of links and events of the workload do not wait for the next multiple of the interval.
            let next_change = self.bandwidth.as_ref().map_or(f64::INFINITY, Bandwidth::next_change);
            let next_cable_event = self.cable_events.first().map_or(f64::INFINITY, |event| event.time.get());
            let next_limit = self.next_transfer_limit();
            let next_event = self.event_times.last().copied().unwrap_or(f64::INFINITY);
            let next_event = next_event.min(next_cable_event).min(next_limit);
            let without_wakeups = next_event.min(next_completion).min(next_queued);
            let next_event = next_event.min(next_change);
            let next = without_wakeups.min(next_change).min(self.next_schedule_time(next_schedule));
            if next.is_infinite() || without_wakeups.is_infinite() && !self.can_any_flow_send() {
                self.stop_stalled(now);
                break;
            }
            // An event within the slack happens at its exact time, and its effects do not start earlier. Otherwise a port would
            // carry two flows at the same time for that long.
            now = next.max(now);
            let due_until = self.due_until(now);
            self.count_link_use_until(due_until);
            let has_schedule = self.next_schedule_time(next_schedule) <= due_until;
            self.effects =
                Effects { by_coordinator: next_event <= due_until || has_schedule, by_hosts: false };
            self.is_between_schedules = self.hosts_serve_between_schedules()
                && !self.effects.by_coordinator
                && next_scheduled_completion > due_until;
            let by_coordinator = self.effects.by_coordinator;
            now = self.complete_flows_until(due_until, now, observer);
            if next_scheduled_completion > due_until {
                // An event that waits for no schedule came first. The coordinator learns of the completions with its next schedule.
                self.effects.by_coordinator = by_coordinator;
            }
            if next_limit <= due_until {
                now = now.max(next_limit);
                self.end_transfers_until(due_until, observer);
            }
            now = self.process_events(due_until, now, observer);
            if next_cable_event <= due_until {
                now = now.max(next_cable_event);
                self.change_cables(due_until, now);
            }
            if next_change <= due_until {
                now = now.max(next_change);
                self.change_bandwidth(now)?;
            }
            if has_schedule {
                now = now.max(next_schedule);
            }
            if self.completed_count == self.workload.coflows.len() {
                break;
            }
            let Effects { by_coordinator, by_hosts } = self.effects;
            if !by_coordinator && !by_hosts {
                // The coordinator learns of these events with its next schedule.
                next_schedule = next_schedule.min(now);
                continue;
            }
            let decided = self.decide(by_coordinator, now, next_schedule);
            next_schedule = decided.map_err(|error| self.policy_error(error))?;
            if !observer.on_schedule(&self.snapshot(now)) {
                let coflows = self.workload.coflows.len();
                return Err(ReplayError::Interrupted { completed: self.completed_count, total: coflows });
            }
        }
        Ok(())
    }

    /// When the next flows complete, as far as the policy reacts.
    fn next_completion(&mut self) -> f64 {
        let at = self.engine.next_completion();
        match self.timing.completion {
            Reaction::AtOnce => at,
            Reaction::AtInterval => self.next_schedule_time(at),
        }
    }

    /// When the next flow completes to which hosts react.
    fn next_host_completion(&mut self) -> f64 {
        if self.hosts_serve_between_schedules() { self.engine.next_host_completion() } else { f64::INFINITY }
    }

    fn hosts_serve_between_schedules(&self) -> bool {
        self.timing.hosts_serve_between_schedules() && self.options.interval.get() > 0.0
    }

    /// Lets the coordinator, or hosts and switches alone, react to the events at `now`. Returns the time of the coordinator's next
    /// decision if no event comes before; `next_schedule` is the time before.
    fn decide(&mut self, by_coordinator: bool, now: f64, next_schedule: f64) -> Result<f64, PolicyError> {
        let by_coordinator = by_coordinator || self.timing.is_local() || self.options.interval.get() == 0.0;
        let started = Instant::now();
        if by_coordinator {
            self.engine.schedule(now)?;
        } else {
            self.engine.reassign(now)?;
        }
        // Hosts that only serve flows between schedules change nothing about the coordinator's next schedule.
        let mut next_wakeup = match by_coordinator || !self.timing.hosts_serve_between_schedules() {
            true => self.engine.next_wakeup(now)?,
            false => f64::INFINITY,
        };
        self.schedule_ns.push(started.elapsed().as_nanos().min(u32::MAX.into()) as u32);
        if self.next_schedule_time(next_wakeup) <= now {
            // The wake-up does not advance time, because rounding puts it at or before now.
            next_wakeup = now + self.options.interval.get().max(1e-9).max(now * 1e-12);
        }
        Ok(if by_coordinator {
            next_wakeup
        } else {
            // The coordinator learns of these events with its next schedule.
            next_wakeup.min(next_schedule).min(now)
        })
    }

    fn snapshot(&self, now: f64) -> Snapshot<'_> {
        Snapshot {
            workload: self.workload,
            has_cable_events: !self.options.network.cable_events.is_empty(),
            nominal_rates: &self.nominal_rates,
            engine: &self.engine,
            ports: &self.port_numbering,
            now,
        }
    }

    /// Changes the bandwidths of trunks.
    fn change_bandwidth(&mut self, now: f64) -> Result<(), ReplayError> {
        let Some(bandwidth) = &mut self.bandwidth else { return Ok(()) };
        let too_many = |max| ReplayError::TooManyBandwidthChanges { time: now, max };
        self.trunk_usage.add_capacities(bandwidth.rates(), now);
        bandwidth.apply_change().map_err(too_many)?;
        self.engine.set_trunk_capacities(bandwidth.rates(), now);
        self.record_capacities(now);
        Ok(())
    }

    /// The specification of a coflow, with the numbers of its ports.
    fn numbered_spec(&self, index: usize) -> CoflowSpec {
        let mut spec = self.workload.coflows[index].clone();
        for flow in &mut spec.flows {
            (flow.src, flow.dst) =
                (self.port_numbering.number_of_port(flow.src), self.port_numbering.number_of_port(flow.dst));
        }
        spec
    }

    /// Notes the numbers of a coflow's flows, if some of them wait for data.
    fn index_waiting_flows(&mut self, index: usize, slot: Slot) {
        let coflow = self.engine.network().coflow(slot);
        let numbers = &mut self.progress[index].flow_numbers;
        numbers.clear();
        if coflow.has_waiting_flows() {
            numbers.resize(coflow.width(), 0);
            for flow in 0..coflow.width() as u32 {
                numbers[coflow.spec_index(flow) as usize] = flow;
            }
        }
    }

    fn policy_error(&self, error: PolicyError) -> ReplayError {
        let coflow_name = |slot| format!("coflow {}", self.engine.network().coflow(slot).id);
        let subjects = error.name_subjects(coflow_name, |link| self.link_name(link));
        ReplayError::Policy { error, subjects }
    }

    /// The name of a link.
    fn link_name(&self, link: usize) -> String {
        let ports = self.engine.network().fabric().ports();
        let port = |number: usize| self.port_numbering.port_with_number(number as u32);
        match link.checked_sub(2 * ports) {
            None if link < ports => format!("port {} (sending)", port(link)),
            None => format!("port {} (receiving)", port(link - ports)),
            Some(trunk) => self.engine.trunk_name(trunk),
        }
    }

    /// Ends flows and coflows until `until` at the present rates. Returns the time of the last end, at least `now`.
    fn complete_flows_until(&mut self, until: f64, now: f64, observer: &mut dyn Observer) -> f64 {
        self.completed_flows.clear();
        self.engine.complete_flows_until(until, &mut self.completed_flows);
        let last_completion = self.completed_flows.iter().map(|ended| ended.completed_at).fold(now, f64::max);
        self.record_completions(observer);
        last_completion
    }

    fn flow_size(&self, index: usize, spec_index: u32) -> f64 {
        self.workload.coflows[index].flows[spec_index as usize].bytes.get()
    }

    /// Records the flows in `completed_flows`.
    fn record_completions(&mut self, observer: &mut dyn Observer) {
        for i in 0..self.completed_flows.len() {
            let CompletedFlow { slot, flow, completed_at: at } = self.completed_flows[i];
            let index = self.coflow_by_slot[slot as usize];
            let spec_index = self.engine.network().coflow(slot).spec_index(flow);
            // If only a part of a tree reacts at once, the others learn of the completion with the next schedule.
            let reaction = self.timing_of(index).completion;
            if self.is_between_schedules {
                // The coordinator learns of completions with its next schedule.
                self.effects.by_hosts |= self.engine.is_fresh(slot);
            } else if reaction == Reaction::AtOnce || self.timing.completion == Reaction::AtInterval {
                self.effects.add(reaction);
            }
            self.progress[index].flow_ends[spec_index as usize] = at;
            self.record_path(index, slot, flow);
            let mut bytes = self.flow_size(index, spec_index);
            self.count_link_use(slot, flow, bytes);
            let coflow = self.engine.network().coflow(slot);
            bytes -= self.bytes_on_former_paths.remove(&(index, spec_index)).unwrap_or(0.0);
            self.trunk_usage.add_bytes(self.engine.flow_trunks(slot, flow), bytes);
            if coflow.is_completed() && self.completed_flows[i + 1..].iter().all(|e| e.slot != slot) {
                self.complete_coflow(index, slot, observer);
            }
        }
        self.completed_flows.clear();
    }

    /// Records the path of a flow that ends, if the outcome contains paths.
    fn record_path(&mut self, index: usize, slot: Slot, flow: u32) {
        let has_paths = |trunks: &&Trunks| self.options.keep_flow_ends && trunks.links() > 0;
        let Some(trunks) = self.engine.trunks().filter(has_paths) else { return };
        // The other trunks stand for limits of flows.
        let links = trunks.links() as u32;
        let path = self.engine.flow_trunks(slot, flow).filter(|&trunk| trunk < links);
        let coflow = self.engine.network().coflow(slot);
        let paths = &mut self.progress[index].flow_paths;
        paths.resize_with(coflow.width(), Box::default);
        paths[coflow.spec_index(flow) as usize] = path.collect();
    }

    fn deadline_outcome(&self, deadline: Time, slot: Slot, end: f64) -> DeadlineOutcome {
        let cct = end - self.engine.network().coflow(slot).released_at;
        let is_met = !is_shorter(deadline.get(), cct, end);
        match self.engine.allocation().order_criterion(slot) {
            _ if is_met => DeadlineOutcome::Met,
            // A later decision, after a change of paths, finds no time left.
            OrderCriterion::Rejected { left_us, .. } if left_us > 0 => DeadlineOutcome::Rejected,
            _ => DeadlineOutcome::Missed,
        }
    }

    fn complete_coflow(&mut self, index: usize, slot: Slot, observer: &mut dyn Observer) {
        let spec = &self.workload.coflows[index];
        let coflow = self.engine.network().coflow(slot);
        let arrival = coflow.released_at;
        let ends = std::mem::take(&mut self.progress[index].flow_ends);
        let end = ends.iter().copied().fold(arrival, f64::max);
        let first = spec.flows[0].bytes;
        let outcome = CoflowOutcome {
            index,
            id: spec.id,
            released_at: arrival,
            end,
            width: spec.flows.len(),
            bytes: spec.total_bytes(),
            dropped_bytes: self.progress[index].dropped_bytes,
            flow_time_deviation: coefficient_of_variation(ends.iter().map(|e| e - arrival)),
            has_equal_flow_sizes: spec.flows.iter().all(|f| f.bytes == first),
            deadline: spec.deadline.map(|deadline| self.deadline_outcome(deadline, slot, end)),
            flow_ends: if self.options.keep_flow_ends { ends } else { Vec::new() },
            flow_paths: std::mem::take(&mut self.progress[index].flow_paths),
        };
        self.engine.remove_coflow(slot, end);
        if let Some(link_use) = &mut self.link_use {
            link_use.remove_coflow(index);
        }
        self.progress[index].slot = None;
        self.completed_count += 1;
        let finished_at = spec.computed_at(arrival, end);
        for i in 0..self.children[index].len() {
            let child = self.children[index][i];
            let progress = &mut self.progress[child];
            progress.pending_parents -= 1;
            progress.ready_at = progress.ready_at.max(finished_at);
            if progress.pending_parents == 0 {
                let at = progress.ready_at + self.workload.coflows[child].compute_before.get();
                self.queue_release(at, child);
            }
        }
        observer.on_coflow_completed(&outcome);
        self.outcomes[index] = Some(outcome);
    }

    /// Executes the agenda until `until`. Returns the time of the last event, at least `now`.
    fn process_events(&mut self, until: f64, mut now: f64, observer: &mut dyn Observer) -> f64 {
        while let Some(&Reverse((OrderedF64(due), OrderedF64(at), item))) = self.event_queue.peek() {
            if due > until {
                break;
            }
            self.event_queue.pop();
            now = now.max(at);
            match item {
                QueuedEvent::CoflowRelease(index) => {
                    self.effects.add(self.timing_of(index).start);
                    self.release_coflow(index, at, observer);
                }
                QueuedEvent::DataAvailable(index, flow) => {
                    self.make_data_available(index, flow, at, now, observer);
                }
                QueuedEvent::WorkloadEvent(position) => {
                    self.event_times.pop();
                    self.apply_event(position, now);
                }
            }
        }
        now
    }

    fn release_coflow(&mut self, index: usize, at: f64, observer: &mut dyn Observer) {
        let workload = self.workload;
        let mut spec = self.numbered_spec(index);
        for (&(_, flow), &later) in self.data_not_before.range((index, 0)..=(index, u32::MAX)) {
            if later > at + spec.flows[flow as usize].data_delay.get() {
                let release = Time::new(later - at).expect("`later` is after `at`, and both are finite");
                spec.flows[flow as usize].data_delay = release;
            }
        }
        self.progress[index].flow_ends = vec![at; spec.flows.len()];
        self.completed_flows.clear();
        let slot = self.engine.release_coflow(&spec, index, at, &mut self.completed_flows);
        if slot as usize >= self.coflow_by_slot.len() {
            self.coflow_by_slot.resize(slot as usize + 1, usize::MAX);
        }
        self.coflow_by_slot[slot as usize] = index;
        self.progress[index].slot = Some(slot);
        self.index_waiting_flows(index, slot);
        if let Some(limit) = spec.max_transfer_time {
            self.transfer_limits.push(Reverse((OrderedF64(at + limit.get()), index)));
        }
        for flow in 0..spec.flows.len() as u32 {
            let coflow = self.engine.network().coflow(slot);
            let spec_index = coflow.spec_index(flow);
            if coflow.flow_state(flow) == FlowState::Waiting {
                let release = at + workload.coflows[index].flows[spec_index as usize].data_delay.get();
                let available_at =
                    self.data_not_before.get(&(index, spec_index)).map_or(release, |l| l.max(release));
                self.queue_event(available_at, QueuedEvent::DataAvailable(index, spec_index));
            }
        }
        self.record_completions(observer);
    }

    /// The slot and the number of a flow whose data becomes available at `at`. None if the flow does not wait for data, or if a
    /// late event has postponed the data since.
    fn find_waiting_flow(&self, index: usize, spec_index: u32, at: f64) -> Option<(Slot, u32)> {
        let (slot, flow) = self.find_flow(index, spec_index as usize)?;
        let is_delayed = self.data_not_before.get(&(index, spec_index)).is_some_and(|&later| later > at);
        let state = self.engine.network().coflow(slot).flow_state(flow);
        (state == FlowState::Waiting && !is_delayed).then_some((slot, flow))
    }

    /// Removes outdated events from the head of the agenda, so that they cause no schedule.
    fn drop_stale_events(&mut self) {
        while let Some(&Reverse((_, OrderedF64(at), QueuedEvent::DataAvailable(index, flow)))) =
            self.event_queue.peek()
            && self.find_waiting_flow(index, flow, at).is_none()
        {
            self.event_queue.pop();
        }
    }

    fn make_data_available(
        &mut self,
        index: usize,
        spec_index: u32,
        at: f64,
        now: f64,
        observer: &mut dyn Observer,
    ) {
        let Some((slot, flow)) = self.find_waiting_flow(index, spec_index, at) else { return };
        match self.engine.set_flow_live(slot, flow, self.flow_size(index, spec_index), now) {
            FlowState::Live => self.effects.add(self.reaction_to_data(index)),
            FlowState::Waiting => self.blocked_flows.push((index, spec_index)),
            FlowState::Completed => {
                // The flow needs no schedule, so it ends at once. The coordinator learns of it with its next schedule.
                let by_coordinator = self.effects.by_coordinator;
                self.completed_flows.push(CompletedFlow { slot, flow, completed_at: at });
                self.record_completions(observer);
                self.effects.by_coordinator = by_coordinator;
            }
        }
    }

    fn apply_event(&mut self, position: usize, now: f64) {
        match self.workload.events[position].change {
            WorkloadChange::PortRate { port, side, factor } => {
                self.engine.scale_port(self.port_numbering.number_of_port(port), side, factor, now);
                self.record_capacities(now);
                for (index, flow) in std::mem::take(&mut self.blocked_flows) {
                    self.queue_event_at_once(now, QueuedEvent::DataAvailable(index, flow));
                }
            }
            WorkloadChange::RestartFlow { coflow, flow } => {
                if let Some((slot, place)) = self.find_flow(coflow, flow) {
                    self.restart_flow(coflow, slot, place, now);
                }
            }
            WorkloadChange::DelayFlow { coflow, flow, until } => {
                let found = self.find_flow(coflow, flow);
                let available_at = found.map_or(0.0, |(slot, _)| {
                    let release = self.workload.coflows[coflow].flows[flow].data_delay.get();
                    self.engine.network().coflow(slot).released_at + release
                });
                // An earlier late event remains valid.
                let earlier_delay = self.data_not_before.get(&(coflow, flow as u32)).copied().unwrap_or(0.0);
                let until = until.get().max(available_at).max(earlier_delay);
                self.data_not_before.insert((coflow, flow as u32), until);
                let is_completed = |slot, place| {
                    self.engine.network().coflow(slot).flow_state(place) == FlowState::Completed
                };
                if let Some((slot, place)) = found.filter(|&(slot, place)| !is_completed(slot, place)) {
                    self.count_link_use(slot, place, self.engine.sent_bytes(slot, place, now));
                    self.engine.set_flow_waiting(slot, place, now);
                    self.queue_event(until, QueuedEvent::DataAvailable(coflow, flow as u32));
                }
            }
        }
    }

    /// Restarts a flow.
    fn restart_flow(&mut self, index: usize, slot: Slot, flow: u32, now: f64) {
        let network = self.engine.network();
        let coflow = network.coflow(slot);
        if coflow.flow_state(flow) == FlowState::Completed {
            return;
        }
        let ((src, dst), spec_index) = (coflow.flow_ports(flow), coflow.spec_index(flow));
        let sent = self.engine.sent_bytes(slot, flow, now);
        self.extra_bytes.push((
            self.port_numbering.port_with_number(src),
            self.port_numbering.port_with_number(dst),
            sent,
        ));
        let on_former_paths = self.bytes_on_former_paths.remove(&(index, spec_index)).unwrap_or(0.0);
        self.trunk_usage.add_bytes(self.engine.flow_trunks(slot, flow), sent - on_former_paths);
        self.count_link_use(slot, flow, sent);
        self.skip_link_use(slot, flow, -sent);
        self.engine.restart_flow(slot, flow, now);
    }

    /// An active flow, by its index in the workload.
    fn find_flow(&self, index: usize, spec_index: usize) -> Option<(Slot, u32)> {
        let slot = self.progress[index].slot?;
        let coflow = self.engine.network().coflow(slot);
        if let Some(&flow) = self.progress[index].flow_numbers.get(spec_index) {
            return Some((slot, flow));
        }
        (0..coflow.width() as u32)
            .find(|&flow| coflow.spec_index(flow) as usize == spec_index)
            .map(|flow| (slot, flow))
    }

    fn into_outcome(mut self) -> Outcome {
        let mut coflows: Vec<CoflowOutcome> = self.outcomes.into_iter().flatten().collect();
        let stalled_at = self.stall.as_ref().map_or(0.0, |stall| stall.time);
        let makespan = coflows.iter().map(|c| c.end).fold(stalled_at, f64::max);
        let ports = self.workload.ports as usize;
        let (mut send, mut recv) = (vec![0.0; ports], vec![0.0; ports]);
        let flows = self.workload.coflows.iter().flat_map(|c| &c.flows);
        let transfers = flows.map(|f| (f.src, f.dst, f.bytes.get())).chain(self.extra_bytes);
        for (src, dst, bytes) in transfers {
            send[src as usize] += bytes;
            recv[dst as usize] += bytes;
        }
        let rates = match &self.options.network.trunks {
            Some(trunks) => trunks.port_rates().to_vec(),
            None => vec![self.options.port_rate; ports],
        };
        self.trunk_usage.add_capacities(self.engine.trunk_capacities(), makespan);
        let mut trunk_utilization = self.trunk_usage.utilization();
        if let Some(trunks) = &self.options.network.trunks {
            trunk_utilization.truncate(trunks.links());
        }
        let mut link_use = self.link_use.take().map(|recorder| {
            let (part_seconds, mut rows) = recorder.finish(makespan);
            let trunks = rows.drain(2 * ports..).take(trunk_utilization.len()).collect();
            let numbers =
                (0..self.workload.ports).map(|port| self.port_numbering.number_of_port(port) as usize);
            let mut of_side = |side: usize| {
                numbers.clone().map(|number| std::mem::take(&mut rows[side * ports + number])).collect()
            };
            LinkUse { part_seconds, send: of_side(0), recv: of_side(1), trunks }
        });
        if self.options.network.regions.is_some() {
            (send, recv) = (Vec::new(), Vec::new());
            link_use.iter_mut().for_each(|used| (used.send, used.recv) = (Vec::new(), Vec::new()));
        }
        for side in [&mut send, &mut recv] {
            for (bytes, rate) in side.iter_mut().zip(&rates) {
                let capacity_bytes = rate.get() * makespan;
                *bytes = if capacity_bytes > 0.0 { *bytes / capacity_bytes } else { 0.0 };
            }
        }
        let mut jobs: BTreeMap<u64, JobOutcome> = BTreeMap::new();
        for coflow in &coflows {
            let spec = &self.workload.coflows[coflow.index];
            let Some(id) = spec.job else { continue };
            let arrival = if spec.parents.is_empty() {
                spec.arrival.get()
            } else {
                coflow.released_at - spec.compute_before.get()
            };
            let end = spec.computed_at(coflow.released_at, coflow.end);
            let job = jobs.entry(id).or_insert(JobOutcome { id, arrival, end });
            job.arrival = job.arrival.min(arrival);
            job.end = job.end.max(end);
        }
        let stalled = self.stall.iter().flat_map(|stall| &stall.coflows);
        stalled.filter_map(|coflow| self.workload.coflows[coflow.index].job).for_each(|id| {
            jobs.remove(&id);
        });
        let finite_count = self.workload.finite_coflows().len();
        let endless_coflows =
            coflows.split_off(coflows.partition_point(|coflow| coflow.index < finite_count));
        Outcome {
            coflows,
            endless_coflows,
            jobs: jobs.into_values().collect(),
            stall: self.stall,
            flow_count: self.workload.finite_flow_count(),
            makespan,
            send_utilization: send,
            recv_utilization: recv,
            trunk_utilization,
            link_use,
            schedule_ns: self.schedule_ns,
            wall_seconds: 0.0,
            processor_seconds: 0.0,
        }
    }
}
