//! The engine: turns events with their times into an [`Allocation`] and the time of the next schedule.
//!
//! The engine is sans-I/O: it uses no clock, thread, socket or file. A driver (the simulator's loop, the coordinator)
//! passes events and times, and requests schedules. Policies behave identically under all drivers.
//!
//! If the policy leaves rates open, a transport sets them, and counts the bytes of live flows. The network then knows only what flows
//! had sent when they became live, so policies cannot read more.

use std::sync::Arc;

use crate::allocation::Allocation;
use crate::capacity_limit::{CapacityLimiter, DemandLimit, GoodputLimit, TrunkLimit};
use crate::host_service::HostService;
use crate::model::topology::CableChange;
use crate::model::{
    CoflowSpec, CompletedFlow, Fabric, FlowState, Goodput, LinkId, LinkKind, Network, PortSide, ServiceNames,
    Slot, Trunks,
};
use crate::policy::{AnyPolicy, DecidedBy, Event, PolicyError, PolicyObject, Timing, TrunkSupport};
use crate::transport::{SentProgress, Transport, build_transport};
use crate::tree::{PolicyTree, TreeError};

/// The policy, or tree of policies, that decides.
enum RootPolicy {
    Policy(Box<dyn PolicyObject>),
    Tree(Box<PolicyTree>),
}

/// The links that a policy decides over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecidesOver {
    /// All links: ports and trunks.
    #[default]
    Links,
    /// Ports only. Where a trunk is oversubscribed, the decided rates are reduced; the capacity that becomes free at
    /// ports is not reassigned.
    Ports,
}

/// The links of a network.
#[derive(Debug, Clone)]
pub struct Links {
    /// The ports.
    pub fabric: Fabric,
    /// The trunks, and the paths of flows; none on one switch.
    pub trunks: Option<Trunks>,
    /// The capacity of receiving ports by their number of senders, if it is not constant. Policies decide without it.
    pub goodput: Option<Arc<Goodput>>,
    /// The links that the policy decides over.
    pub decides_over: DecidesOver,
}

impl Links {
    /// One switch.
    pub fn one_switch(fabric: Fabric) -> Links {
        Links { fabric, trunks: None, goodput: None, decides_over: DecidesOver::Links }
    }
}

/// A policy, or a policy tree, on a network.
pub struct Engine {
    network: Network,
    root: RootPolicy,
    allocation: Allocation,
    /// Reduces the decided rates of flows to their maximum rates.
    demand_limiter: CapacityLimiter<DemandLimit>,
    /// Reduce these rates to the capacity of links that the policy does not decide over.
    capacity_limiters: Vec<CapacityLimiter>,
    /// Sets the rates from the first decision that leaves them open. Every live flow has started in it.
    transport: Option<Box<dyn Transport>>,
    /// The number of coflows that were released before the last update of the transport.
    known_coflows: u64,
    /// By slot: the part of the coflow's reported bytes that the transport does not count.
    uncounted_bytes: Vec<f64>,
    goodput: Option<Arc<Goodput>>,
    /// Between regions, where ports limit no flow: the region of each port.
    regions: Option<Vec<u32>>,
    /// Whether an event has occurred since the last schedule.
    has_new_events: bool,
    /// The flows that hosts serve between two schedules, if the policy leaves this time to them.
    host_service: Option<HostService>,
}

impl Engine {
    /// Creates an engine for an idle network, and for coflows of services and applications with these names.
    ///
    /// # Errors
    /// [`TreeError`] if the policy tree does not contain one of the names, or one of its policies cannot be built.
    pub fn new(links: Links, policy: AnyPolicy, names: &ServiceNames) -> Result<Engine, TreeError> {
        let policy = match policy {
            AnyPolicy::Tree(plan) => plan.single_leaf_policy(names)?.unwrap_or(AnyPolicy::Tree(plan)),
            other => other,
        };
        let Links { mut fabric, mut trunks, goodput, decides_over } = links;
        let mut capacity_limiters: Vec<CapacityLimiter> = Vec::new();
        let regions = trunks.as_ref().and_then(Trunks::regions).map(<[u32]>::to_vec);
        let at_ports = match policy.trunk_support() {
            TrunkSupport::DecidesAtPorts => true,
            TrunkSupport::Decides => decides_over == DecidesOver::Ports,
            TrunkSupport::Transport => false,
        };
        if at_ports {
            // The policy decides as if all ports were on one switch.
            let to_limiter =
                |trunks| -> CapacityLimiter { CapacityLimiter::new(Box::new(TrunkLimit::new(trunks))) };
            capacity_limiters.extend(trunks.take().map(to_limiter));
        }
        if let Some(trunks) = &mut trunks {
            fabric = fabric.with_trunks(trunks);
        }
        if let Some(goodput) = &goodput {
            capacity_limiters.push(CapacityLimiter::new(Box::new(GoodputLimit::new(Arc::clone(goodput)))));
        }
        let (sharing, root) = match policy {
            AnyPolicy::Policy(policy) => (policy.common_rate_kind(), RootPolicy::Policy(policy)),
            AnyPolicy::Tree(plan) => {
                let tree = PolicyTree::new(&plan, names, &fabric)?;
                (tree.common_rate_kind(), RootPolicy::Tree(Box::new(tree)))
            }
        };
        let network = Network::new(fabric, trunks, sharing);
        let mut engine = Engine {
            network,
            root,
            allocation: Allocation::default(),
            demand_limiter: CapacityLimiter::new(Box::default()),
            capacity_limiters,
            transport: None,
            known_coflows: 0,
            uncounted_bytes: Vec::new(),
            goodput,
            regions,
            has_new_events: false,
            host_service: None,
        };
        engine.host_service = engine.timing().hosts_serve_between_schedules().then(HostService::default);
        Ok(engine)
    }

    /// Tells policies the minimum time between schedules, in seconds; 0 without this call: a schedule at every change. To be called
    /// before the first coflow.
    pub fn set_interval(&mut self, seconds: f64) {
        self.network.set_interval(seconds);
    }

    /// The network as the engine knows it.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Whether an event has occurred since the last schedule, so that the next one can differ.
    pub fn has_new_events(&self) -> bool {
        self.has_new_events
    }

    /// The last decision.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// The capacity of receiving ports by their number of senders, if it is not constant.
    pub fn goodput(&self) -> Option<&Goodput> {
        self.goodput.as_deref()
    }

    /// The rate of a flow in bytes per second; 0 unless the flow is live.
    pub fn flow_rate(&self, slot: Slot, flow: u32) -> f64 {
        match &self.transport {
            None => self.network.rate(slot, flow),
            Some(_) if self.network.coflow(slot).flow_state(flow) != FlowState::Live => 0.0,
            Some(transport) => transport.flow_rate(slot, flow),
        }
    }

    /// Bytes that a flow has sent by `at`, which is before the next schedule.
    pub fn sent_bytes(&self, slot: Slot, flow: u32, at: f64) -> f64 {
        match &self.transport {
            Some(transport) if self.network.coflow(slot).flow_state(flow) == FlowState::Live => {
                let remaining_bytes = transport.remaining_bytes(slot, flow, at);
                self.network.flow_size(slot, flow) - remaining_bytes
            }
            _ => self.network.sent_bytes(slot, flow, at),
        }
    }

    /// In a tree: the slices that the leaf of a coflow decided over last, the minimum of its offers. Sending sides of
    /// all ports come first, then receiving sides. A slice is 0 where the leaf has no live flows.
    ///
    /// `None` if the policy is not a tree.
    pub fn slices(&self, slot: Slot) -> Option<&[f64]> {
        match &self.root {
            RootPolicy::Tree(tree) => Some(tree.slices(slot)),
            RootPolicy::Policy(_) => None,
        }
    }

    fn notify_policy(&mut self, event: Event, now: f64) {
        self.has_new_events = true;
        match &mut self.root {
            RootPolicy::Policy(policy) => policy.on_event(event, &mut self.network, now),
            RootPolicy::Tree(tree) => tree.on_event(event, &mut self.network, now),
        }
    }

    /// Releases a coflow, whose service and application have to be among the engine's names.
    ///
    /// Flows with data and bytes become live. Flows without bytes, and flows that cross no link, complete at once and are added
    /// to `completed`. The other flows wait for [`Engine::set_flow_live`].
    pub fn release_coflow(
        &mut self,
        spec: &CoflowSpec,
        index: usize,
        now: f64,
        completed: &mut Vec<CompletedFlow>,
    ) -> Slot {
        let slot = match &mut self.root {
            RootPolicy::Policy(policy) => {
                self.network.insert_coflow(spec, index, now, policy.common_rate_kind())
            }
            RootPolicy::Tree(tree) => {
                let leaf = tree.find_leaf(spec.service, spec.application);
                let slot = self.network.insert_coflow(spec, index, now, tree.common_rate_kind_of_leaf(leaf));
                tree.add_coflow(leaf, slot);
                slot
            }
        };
        self.uncounted_bytes.resize(self.network.slots(), 0.0);
        self.uncounted_bytes[slot as usize] = 0.0;
        for flow in 0..spec.flows.len() as u32 {
            let flow_spec = &spec.flows[self.network.coflow(slot).spec_index(flow) as usize];
            if flow_spec.data_delay.get() > 0.0 {
                continue;
            }
            let bytes = flow_spec.bytes.get();
            if self.start_flow(slot, flow, bytes, now) == FlowState::Completed {
                self.count_instant_flow(slot, bytes, now);
                completed.push(CompletedFlow { slot, flow, completed_at: now });
            }
        }
        self.notify_policy(Event::CoflowReleased(slot), now);
        slot
    }

    /// Whether a flow of `bytes` bytes takes no time once its data is available and its ports are up: it has no bytes, or both of its
    /// ports are in one region. Such a flow needs no schedule.
    pub fn takes_no_time(&self, slot: Slot, flow: u32, bytes: f64) -> bool {
        let (src, dst) = self.network.coflow(slot).flow_ports(flow);
        let is_local = |regions: &Vec<u32>| regions[src as usize] == regions[dst as usize];
        bytes == 0.0 || self.regions.as_ref().is_some_and(is_local)
    }

    /// The state of a flow of `bytes` bytes that starts. It takes no time without bytes, and inside a region if both of its ports are
    /// up; otherwise it waits there.
    fn starting_state(&self, slot: Slot, flow: u32, bytes: f64) -> FlowState {
        let (src, dst) = self.network.coflow(slot).flow_ports(flow);
        let fabric = self.network.fabric();
        let is_up = || fabric.send_capacity(src) > 0.0 && fabric.recv_capacity(dst) > 0.0;
        match self.takes_no_time(slot, flow, bytes) {
            true if bytes == 0.0 || is_up() => FlowState::Completed,
            true => FlowState::Waiting,
            false => FlowState::Live,
        }
    }

    /// Starts a waiting flow of a coflow that the policy does not know yet. Returns the flow's new state: see
    /// [`Engine::set_flow_live`].
    fn start_flow(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) -> FlowState {
        let state = self.starting_state(slot, flow, bytes);
        match state {
            FlowState::Waiting => {}
            FlowState::Live => self.begin_sending(slot, flow, now),
            FlowState::Completed => self.network.complete_flow(slot, flow),
        }
        state
    }

    /// Marks the data of a waiting flow as available. Returns the flow's new state: the flow is live, has completed because it takes
    /// no time, or still waits because a port in its region is down.
    pub fn set_flow_live(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) -> FlowState {
        let state = self.network.coflow(slot).flow_state(flow);
        if state != FlowState::Waiting {
            return state;
        }
        let state = self.starting_state(slot, flow, bytes);
        match state {
            FlowState::Waiting => {}
            FlowState::Completed => {
                self.count_instant_flow(slot, bytes, now);
                self.network.complete_flow(slot, flow);
                self.notify_policy(Event::FlowCompleted(slot, flow), now);
            }
            FlowState::Live => {
                self.begin_sending(slot, flow, now);
                self.drop_cached_flows(slot);
                self.notify_policy(Event::FlowLive(slot, flow), now);
            }
        }
        state
    }

    /// Makes a waiting flow live, in the network and in the transport.
    fn begin_sending(&mut self, slot: Slot, flow: u32, now: f64) {
        self.network.set_flow_live(slot, flow, now);
        if let Some(transport) = &mut self.transport {
            let remaining_bytes = self.network.unsent_bytes(slot, flow, now);
            transport.start_flow(slot, flow, remaining_bytes, &self.network);
        }
    }

    /// Makes a live flow wait, in the transport and in the network. It keeps its progress.
    fn end_sending(&mut self, slot: Slot, flow: u32, now: f64) {
        let Some(transport) = &mut self.transport else {
            return self.network.set_flow_waiting(slot, flow, now);
        };
        let remaining_bytes = transport.stop_flow(slot, flow, &self.network, now);
        self.network.set_flow_waiting(slot, flow, now);
        self.network.set_remaining_bytes(slot, flow, remaining_bytes);
    }

    /// Marks the data of a live flow as unavailable; the flow waits for [`Engine::set_flow_live`]. Returns whether the flow
    /// was live.
    pub fn set_flow_waiting(&mut self, slot: Slot, flow: u32, now: f64) -> bool {
        if self.network.coflow(slot).flow_state(flow) != FlowState::Live {
            return false;
        }
        self.end_sending(slot, flow, now);
        self.drop_cached_flows(slot);
        self.notify_policy(Event::FlowInterrupted(slot, flow), now);
        true
    }

    /// Sets or removes the maximum rate of a flow that has not completed, in bytes per second: its program does not write more. The next
    /// schedule limits the flow to it, and gives the capacity that becomes free to other flows, in the order of the policy if it has one. A
    /// policy that leaves max-min rates to the transport (`fair`) does not use maximum rates. Returns whether the maximum differs from the
    /// last one.
    pub fn set_flow_max_rate(&mut self, slot: Slot, flow: u32, max_rate: Option<f64>) -> bool {
        let is_changed = self.demand_limiter.limit_mut().set_max_rate(slot, flow, max_rate);
        self.has_new_events |= is_changed;
        is_changed
    }

    /// The maximum rate of a flow, if it has one.
    pub fn flow_max_rate(&self, slot: Slot, flow: u32) -> Option<f64> {
        self.demand_limiter.limit().max_rate(slot, flow)
    }

    /// Whether a flow has a maximum rate. Flows can then have higher rates than the policy knows, and [`Engine::next_wakeup`] can be late.
    pub fn has_max_rates(&self) -> bool {
        !self.demand_limiter.limit().is_empty()
    }

    /// Drops cached state of a coflow whose live flows changed.
    fn drop_cached_flows(&mut self, slot: Slot) {
        self.capacity_limiters.iter_mut().for_each(|limiter| limiter.drop_cached_flows(slot));
    }

    /// Drops the paths and maximum rates of a coflow's flows.
    fn drop_flows(&mut self, slot: Slot) {
        self.demand_limiter.drop_flows(slot);
        self.capacity_limiters.iter_mut().for_each(|limiter| limiter.drop_flows(slot));
    }

    /// Restarts a flow that has not completed: its progress is lost.
    pub fn restart_flow(&mut self, slot: Slot, flow: u32, now: f64) {
        self.set_flow_sent_bytes(slot, flow, 0.0, now);
    }

    /// Scales the capacity of a port side to `factor` times the rate of the healthy port.
    pub fn scale_port(&mut self, port: u32, side: PortSide, factor: f64, now: f64) {
        self.network.scale_port(port, side, factor);
        self.notify_policy(Event::CapacityChanged, now);
    }

    /// Sets the capacities of all trunks, in bytes per second.
    ///
    /// # Panics
    /// If the number of capacities is not that of the trunks.
    pub fn set_trunk_capacities(&mut self, capacities: &[f64], now: f64) {
        self.capacity_limiters.iter_mut().for_each(|limiter| limiter.set_trunk_capacities(capacities));
        if self.network.set_trunk_capacities(capacities) {
            self.notify_policy(Event::CapacityChanged, now);
        }
    }

    /// Whether rates in force can be below those that the policy decided.
    pub fn has_capacity_limits(&self) -> bool {
        !self.capacity_limiters.is_empty()
    }

    /// The trunks, also if the policy decides over ports only.
    pub fn trunks(&self) -> Option<&Trunks> {
        let of_limit = self.capacity_limiters.iter().find_map(|limiter| limiter.limit().trunks());
        of_limit.or(self.network.trunks())
    }

    /// The capacities of the trunks, also if the policy decides over ports only, in bytes per second.
    pub fn trunk_capacities(&self) -> &[f64] {
        let of_limit = self.capacity_limiters.iter().find_map(|limiter| limiter.limit().trunks());
        of_limit.map_or(self.network.fabric().trunk_capacities(), Trunks::capacities)
    }

    /// The name of a trunk by its position in [`Engine::trunk_capacities`]; see [`Trunks::link_name`].
    pub fn trunk_name(&self, trunk: usize) -> String {
        self.trunks().map_or_else(String::new, |trunks| trunks.link_name(trunk))
    }

    /// The capacities of all links, also if the policy decides over ports only, in bytes per second. Trunks are the last links.
    pub fn link_capacities(&self) -> impl Iterator<Item = f64> {
        let fabric = self.network.fabric();
        fabric.capacities()[..fabric.trunk_links().start].iter().chain(self.trunk_capacities()).copied()
    }

    /// What a link is, by position in [`Engine::link_capacities`].
    pub fn link_kind(&self, link: usize) -> LinkKind {
        let fabric = self.network.fabric();
        match link.checked_sub(fabric.trunk_links().start) {
            Some(trunk) => LinkKind::Trunk(trunk as u32),
            None => fabric.kind(link),
        }
    }

    /// The trunks that a flow with a rate crosses, also if the policy decides over ports only; by position in
    /// [`Engine::trunk_capacities`].
    pub fn flow_trunks(&self, slot: Slot, flow: u32) -> impl Iterator<Item = u32> + Clone {
        let limit =
            self.capacity_limiters.iter().map(CapacityLimiter::limit).find(|limit| limit.trunks().is_some());
        let (trunks, first) = match limit {
            Some(limit) => (limit.flow_trunks(slot, flow), 0),
            None => {
                let first = self.network.fabric().trunk_links().start as u32;
                (self.network.coflow(slot).flow_trunks(flow), first)
            }
        };
        trunks.iter().map(move |trunk| trunk - first)
    }

    /// The links that a flow with a rate crosses, by position in [`Engine::link_capacities`].
    pub fn flow_links(&self, slot: Slot, flow: u32) -> impl Iterator<Item = usize> + Clone {
        let first = self.network.fabric().trunk_links().start;
        let ports = self.network.coflow(slot).flow_links(flow).take(2);
        ports.chain(self.flow_trunks(slot, flow).map(move |trunk| first + trunk as usize))
    }

    /// Changes cables of the topology, each by one of its links.
    ///
    /// Returns the coflows with flows whose path changed; the driver replaces their flows ([`Engine::replace_flows`]), which
    /// keeps their progress. O(flows), and the cost of their paths, if a cable fails or is repaired.
    pub fn change_cables(&mut self, changes: &[(LinkId, CableChange)], now: f64) -> Vec<Slot> {
        for limiter in &mut self.capacity_limiters {
            if let Some(trunks) = limiter.change_cables(changes) {
                self.network.set_cable_rates(trunks.cable_rates());
            }
        }
        let paths_change = self.network.change_cables(changes);
        self.notify_policy(Event::CapacityChanged, now);
        let mut rerouted = if paths_change { self.network.active_coflows().to_vec() } else { Vec::new() };
        rerouted.retain(|&slot| self.network.has_new_path(slot));
        rerouted
    }

    /// Corrects flows that should have completed by `now` at the decided rates, but without an observed completion. Without effect while a
    /// transport sets the rates.
    ///
    /// Such flows get `remaining_bytes` bytes to send, or their whole size if that is smaller. A driver that learns of
    /// completions from hosts calls this before [`Engine::schedule`], and for a coflow before other changes of its flows
    /// than [`Engine::close_flow`] ([`Engine::correct_overdue_flows_of`]). O(coflows), and O(flows) of the coflows with
    /// such flows.
    pub fn correct_overdue_flows(&mut self, remaining_bytes: f64, now: f64) {
        let slots = self.network.active_coflows().to_vec();
        self.correct_overdue(&slots, remaining_bytes, now);
    }

    /// Corrects the flows of one coflow, as [`Engine::correct_overdue_flows`].
    pub fn correct_overdue_flows_of(&mut self, slot: Slot, remaining_bytes: f64, now: f64) {
        self.correct_overdue(&[slot], remaining_bytes, now);
    }

    fn correct_overdue(&mut self, slots: &[Slot], remaining_bytes: f64, now: f64) {
        for (slot, flow) in self.network.correct_overdue_flows(slots, remaining_bytes, now) {
            self.notify_policy(Event::FlowInterrupted(slot, flow), now);
            self.notify_policy(Event::FlowLive(slot, flow), now);
        }
    }

    /// Sets the observed bytes that a flow has sent by `now`, independent of the decided rates. O(log flows).
    pub fn set_flow_sent_bytes(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) {
        match self.network.coflow(slot).flow_state(flow) {
            FlowState::Completed => {}
            FlowState::Waiting => {
                self.network.set_sent_bytes(slot, flow, bytes);
                self.notify_policy(Event::FlowInterrupted(slot, flow), now);
            }
            FlowState::Live => {
                self.end_sending(slot, flow, now);
                self.network.set_sent_bytes(slot, flow, bytes);
                self.notify_policy(Event::FlowInterrupted(slot, flow), now);
                self.begin_sending(slot, flow, now);
                self.notify_policy(Event::FlowLive(slot, flow), now);
            }
        }
    }

    /// Records the observed completion of a flow after `bytes` bytes, independent of its specified size.
    pub fn close_flow(&mut self, slot: Slot, flow: u32, bytes: f64, now: f64) {
        match (self.network.coflow(slot).flow_state(flow), &mut self.transport) {
            (FlowState::Completed, _) => return,
            (FlowState::Live, Some(transport)) => {
                transport.stop_flow(slot, flow, &self.network, now);
            }
            (FlowState::Live | FlowState::Waiting, _) => {}
        }
        self.network.close_flow(slot, flow, bytes);
        self.notify_policy(Event::FlowCompleted(slot, flow), now);
    }

    /// Replaces the flows of an active coflow by those of `spec`.
    ///
    /// A flow at the same position of the specification as before, with the same ends, keeps its progress, and waits
    /// if it waited. All other flows start, or complete at once if they have no bytes. The coflow keeps its age.
    /// O(flows log flows).
    pub fn replace_flows(&mut self, slot: Slot, spec: &CoflowSpec, now: f64) {
        let before = self.network.coflow(slot);
        let flows = 0..before.width() as u32;
        let is_unchanged = |flow: u32| {
            let new_flow = spec.flows.get(before.spec_index(flow) as usize);
            new_flow.is_some_and(|f| (f.src, f.dst) == before.flow_ports(flow))
        };
        let waiting =
            flows.clone().filter(|&flow| before.flow_state(flow) == FlowState::Waiting && is_unchanged(flow));
        let mut waiting: Vec<u32> = waiting.map(|flow| before.spec_index(flow)).collect();
        waiting.sort_unstable();
        for flow in flows {
            self.set_flow_waiting(slot, flow, now);
        }
        self.notify_policy(Event::CoflowCompleted(slot), now);
        self.network.replace_flows(slot, spec, now);
        self.drop_flows(slot);
        for flow in 0..spec.flows.len() as u32 {
            let coflow = self.network.coflow(slot);
            let is_waiting = waiting.binary_search(&coflow.spec_index(flow)).is_ok();
            if coflow.flow_state(flow) != FlowState::Waiting || is_waiting {
                continue;
            }
            let bytes = spec.flows[coflow.spec_index(flow) as usize].bytes.get();
            self.start_flow(slot, flow, bytes, now);
        }
        self.notify_policy(Event::CoflowReleased(slot), now);
    }

    /// Removes a coflow that may be incomplete.
    pub fn withdraw_coflow(&mut self, slot: Slot, now: f64) {
        for flow in 0..self.network.coflow(slot).width() as u32 {
            self.close_flow(slot, flow, self.sent_bytes(slot, flow, now), now);
        }
        self.remove_coflow(slot, now);
    }

    /// Records what all flows of a coflow have sent by `now` in bytes, and their total rate in bytes per second, as
    /// reported by hosts.
    pub fn record_coflow_report(&mut self, slot: Slot, sent_bytes: f64, rate: f64, now: f64) {
        let counted = self.transport_progress(slot).map_or(0.0, |progress| progress.sent_bytes_at(now));
        self.network.record_report(slot, sent_bytes, rate, now);
        self.uncounted_bytes[slot as usize] = sent_bytes - counted;
    }

    /// Reports the bytes of a flow that took no time, which no transport counts.
    fn count_instant_flow(&mut self, slot: Slot, bytes: f64, now: f64) {
        self.uncounted_bytes[slot as usize] += bytes;
        if self.transport_progress(slot).is_none() {
            self.network.record_report(slot, self.uncounted_bytes[slot as usize], 0.0, now);
        }
    }

    /// The progress of a coflow since the transport was created; `None` if the transport does not know the coflow, or counts by flow only.
    fn transport_progress(&self, slot: Slot) -> Option<SentProgress> {
        let is_known = self.network.coflow(slot).seq < self.known_coflows;
        self.transport.as_ref().filter(|_| is_known)?.coflow_progress(slot)
    }

    /// Reports the bytes that the transport has sent, as hosts do. O(coflows) if the transport counts them by coflow.
    fn record_transport_progress(&mut self) {
        let Some(transport) = &self.transport else { return };
        let unknown = self.network.coflows_since(self.known_coflows).len();
        for i in 0..self.network.active_coflows().len() - unknown {
            let slot = self.network.active_coflows()[i];
            let Some(SentProgress { sent_bytes, rate, time }) = transport.coflow_progress(slot) else {
                return;
            };
            let sent_bytes = sent_bytes + self.uncounted_bytes[slot as usize];
            self.network.record_report(slot, sent_bytes, rate, time);
        }
    }

    /// Computes the transport's rates for a decision that leaves rates open. The first one creates the transport.
    fn update_transport(&mut self, now: f64) {
        let Some(queues) = self.allocation.queue_discipline() else { return };
        let network = &self.network;
        let transport = self.transport.get_or_insert_with(|| {
            let mut transport = build_transport(queues, network, self.goodput.clone());
            for &slot in network.active_coflows() {
                for flow in network.coflow(slot).live_flows() {
                    transport.start_flow(slot, flow, network.unsent_bytes(slot, flow, now), network);
                }
            }
            transport
        });
        transport.update_rates(network, &self.allocation, now);
        self.known_coflows = network.released_count();
        self.record_transport_progress();
    }

    /// Ends the transport, if there is one: its progress moves to the network, until a decision creates another one. O(flows).
    fn drop_transport(&mut self, now: f64) {
        if self.transport.is_none() {
            return;
        }
        for i in 0..self.network.active_coflows().len() {
            let slot = self.network.active_coflows()[i];
            if let Some(progress) = self.transport_progress(slot) {
                let sent_bytes = progress.sent_bytes_at(now) + self.uncounted_bytes[slot as usize];
                self.network.record_report(slot, sent_bytes, 0.0, now);
                self.uncounted_bytes[slot as usize] = sent_bytes;
            }
            let live: Vec<u32> = self.network.coflow(slot).live_flows().collect();
            for flow in live {
                let sent_bytes = self.sent_bytes(slot, flow, now);
                self.network.advance_flow(slot, flow, sent_bytes, now);
            }
        }
        self.transport = None;
    }

    /// Removes a coflow whose flows have all completed.
    pub fn remove_coflow(&mut self, slot: Slot, now: f64) {
        self.notify_policy(Event::CoflowCompleted(slot), now);
        self.network.remove_coflow(slot);
        self.demand_limiter.drop_flows(slot);
        if let RootPolicy::Tree(tree) = &mut self.root {
            tree.remove_coflow(slot);
        }
    }

    /// The time of the next completion at the decided rates, as far as sizes are known; infinite if no flow
    /// completes.
    pub fn next_completion(&mut self) -> f64 {
        match &mut self.transport {
            Some(transport) => transport.next_completion(),
            None => self.network.next_completion(),
        }
    }

    /// Completes the flows that the decided rates complete by `until`, notifies the policy, and adds the flows to
    /// `completed` in the order of time.
    pub fn complete_flows_until(&mut self, until: f64, completed: &mut Vec<CompletedFlow>) {
        let first = completed.len();
        match &mut self.transport {
            None => self.network.complete_flows_until(until, completed),
            Some(transport) => {
                transport.complete_flows_until(until, &self.network, completed);
                completed[first..].sort_by(|a, b| a.completed_at.total_cmp(&b.completed_at));
                for &CompletedFlow { slot, flow, .. } in &completed[first..] {
                    self.network.complete_flow(slot, flow);
                }
            }
        }
        for &CompletedFlow { slot, flow, completed_at: at } in &completed[first..] {
            self.notify_policy(Event::FlowCompleted(slot, flow), at);
        }
    }

    /// What happens at once under the policy, and what waits for [`Engine::schedule`].
    pub fn timing(&self) -> Timing {
        match &self.root {
            RootPolicy::Policy(policy) => policy.timing(),
            RootPolicy::Tree(tree) => tree.timing(),
        }
    }

    /// What happens at once to coflows of a service and an application.
    pub fn timing_of(&self, service: u32, application: u32) -> Timing {
        match &self.root {
            RootPolicy::Tree(tree) => tree.timing_of_leaf(tree.find_leaf(service, application)),
            RootPolicy::Policy(policy) => policy.timing(),
        }
    }

    /// Computes a new allocation and applies its rates.
    ///
    /// # Errors
    /// If the policy is checked, and this decision or an earlier one is invalid. No flow of the policy has a rate then.
    pub fn schedule(&mut self, now: f64) -> Result<(), PolicyError> {
        self.has_new_events = false;
        self.decide(DecidedBy::Coordinator, now);
        if let Some(host_service) = &mut self.host_service {
            host_service.on_schedule(&self.allocation, &mut self.network);
        }
        self.check_policy()
    }

    /// Reassigns capacity between two schedules, as hosts and switches do at once; see
    /// [`Policy::reassign`](crate::policy::Policy::reassign). If the policy leaves only the time between schedules to hosts, the last
    /// schedule continues, and they serve other flows over the capacity that it leaves; see [`Timing`].
    ///
    /// # Errors
    /// As [`Engine::schedule`].
    pub fn reassign(&mut self, now: f64) -> Result<(), PolicyError> {
        let is_limited = self.demand_limiter.reduces_rates()
            || self.capacity_limiters.iter().any(CapacityLimiter::reduces_rates);
        match &mut self.host_service {
            Some(host_service) => {
                host_service.serve(&mut self.allocation, is_limited, &mut self.network, now);
                self.apply_decision(now);
            }
            None => self.decide(DecidedBy::Hosts, now),
        }
        self.check_policy()
    }

    /// Whether completions of a coflow's flows take effect at once, since hosts serve others then; see [`Timing`].
    pub fn is_fresh(&self, slot: Slot) -> bool {
        self.host_service.as_ref().is_some_and(|service| service.is_fresh(slot, &self.network))
    }

    /// When the next flow of such a coflow completes, in seconds; infinite without one.
    pub fn next_host_completion(&mut self) -> f64 {
        self.host_service.as_ref().map_or(f64::INFINITY, |service| service.next_completion(&mut self.network))
    }

    /// Returns the first invalid decision of a policy that is checked.
    #[inline]
    fn check_policy(&self) -> Result<(), PolicyError> {
        let error = match &self.root {
            RootPolicy::Policy(policy) => policy.error(),
            RootPolicy::Tree(tree) => tree.error(),
        };
        match error {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    fn decide(&mut self, by: DecidedBy, now: f64) {
        self.record_transport_progress();
        self.network.update_progress(now);
        self.allocation.start_decision(self.network.slots());
        let out = &mut self.allocation;
        match &mut self.root {
            RootPolicy::Policy(policy) => policy.decide(by, &mut self.network, now, out),
            RootPolicy::Tree(tree) => tree.decide(by, &mut self.network, now, out),
        }
        out.drop_unkept_flows();
        debug_assert_eq!(out.vacant_slot(), None, "a policy decides about active coflows");
        self.apply_decision(now);
        if let RootPolicy::Tree(tree) = &mut self.root {
            tree.record_changed_flows(&self.network);
        }
    }

    /// Applies the decided rates, up to the maximum rates of flows and the limits of links that the policy does not decide over.
    fn apply_decision(&mut self, now: f64) {
        let leaves_rates_open = self.allocation.queue_discipline().is_some();
        let has_transport = leaves_rates_open && !self.demand_limiter.limit().limits_queues(&self.allocation);
        if !has_transport {
            self.drop_transport(now);
        }
        let mut enforced = self.demand_limiter.limit_rates(&self.allocation, &self.network, now);
        for limiter in &mut self.capacity_limiters {
            enforced = limiter.limit_rates(enforced, &self.network, now);
        }
        self.network.apply_rates(enforced, now);
        if has_transport {
            self.update_transport(now);
        }
    }

    /// The time of the next schedule if no event occurs before; infinite if none is needed.
    ///
    /// Call it right after [`Engine::schedule`].
    ///
    /// # Errors
    /// If the policy is checked, and the time is not after `now`.
    pub fn next_wakeup(&mut self, now: f64) -> Result<f64, PolicyError> {
        let decided = &self.allocation;
        let next = match &mut self.root {
            RootPolicy::Policy(policy) => policy.next_wakeup(&mut self.network, now, decided),
            RootPolicy::Tree(tree) => tree.next_wakeup(&mut self.network, now),
        };
        self.check_policy().map(|()| next)
    }
}
