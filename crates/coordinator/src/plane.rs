//! Control-plane state machine: applies requests and reports, and computes orders. Sans-I/O: callers pass the time.
//!
//! Saath, section 5: frameworks register, update and deregister coflows. At every interval, hosts report the bytes that
//! their flows have sent and the flows that have completed. The coordinator computes the next schedule from the reports
//! of the interval before, and pushes it. The paper leaves these points open:
//!
//! - *Plausibility.* A host's reports about its own flows are accepted up to the rate of its link. Decreasing bytes and
//!   bytes above that rate are counted in [`RejectedEntries`]; the rest of the report is applied.
//! - *Estimated progress.* Agents report a flow only when it deviates from its last order, so a flow without a report
//!   is assumed to send at its ordered rate.
//! - *Available data* (4.3). A flow has data once its host reports the flow, since a program has then handed over a
//!   connection. Connections follow registrations shortly, so an unreported flow counts as having data for one lease.
//!   Then it gives up its port: the program that registered it may have died.
//! - *Payload.* The engine counts payload, as frameworks and hosts do. Links and orders count whole packets, which
//!   include headers.
//! - *No zero rate.* A flow without a rate in the schedule gets its share of [`Settings::reserve`] of its two ports.
//!   The engine does not schedule this reserve, so connections stay alive and no port exceeds its capacity.
//! - *Leases.* Each order carries the epoch of its coordinator, a sequence number and a lease. A host gets an order
//!   when one of its flows, queues or limits changes, and at least once every quarter of the lease. A host that
//!   confirms none of the recent orders gets a complete order. The flows of a silent host count as flows without data
//!   until it reports again.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::engine::Engine;
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, FlowState, Names, Side, Slot};
use weir_core::policy::AnyPolicy;
use weir_core::tree::TreeError;
use weir_core::units::{Bytes, Rate, Time};
use weir_proto::{FRAME, MAX_FLOWS, PAYLOAD, is_id};

mod allocator;
mod arrivals;
mod decide;
mod observed_connections;
mod rejected_entries;
mod reports;
mod request;
mod senders;
mod status;

pub use allocator::Services;
pub use rejected_entries::RejectedEntries;
pub use request::{Refusal, Registration, Transfer, UnknownName};
pub use status::{HostState, Progress, Share, Standing, Summary};
pub use weir_proto::{
    Arrival, Conflict, Demand, FlowKey, FlowProgress, Found, Limit, Mark, Order, Pace, Queues, Refusals,
    Report, Restored, Way,
};

/// Size of a flow whose size is unknown, in bytes: more than any flow sends, and small enough for sums of sizes.
const UNKNOWN: f64 = 1e18;

/// Parameters of the control plane.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Seconds between two schedules.
    pub interval: f64,
    /// Duration of an order's lease, in seconds. A host that reported within a lease receives orders.
    pub lease: f64,
    /// Fraction of every port that flows without a rate share, 0 to 1.
    pub reserve: f64,
    /// How long completed coflows are kept if no client deregisters them, in seconds.
    pub keep: f64,
    /// Maximum number of coflows, active or completed. A registration above it is refused.
    pub most_coflows: usize,
    /// Maximum number of flows of all coflows. A registration or update above it is refused.
    pub most_flows: usize,
    /// Maximum number of flows that one host sends, which bounds the size of an order. A request above it is refused.
    pub most_of_host: usize,
}

/// The longest time between two orders to a host, in seconds. Agents end a stream after two seconds of silence.
const QUIET: f64 = 1.0;

impl Settings {
    /// Time after the last order until its lease is renewed, in seconds. A lease is renewed four times or
    /// more, so two lost renewals in a row do not end it.
    fn renewal(&self) -> f64 {
        (self.lease / 4.0).min(QUIET)
    }

    /// Time after which an unconfirmed order counts as lost, in seconds. An order, the report after it and the schedule
    /// after that take three intervals if none of them is late.
    fn answer(&self) -> f64 {
        self.renewal().max(3.0 * self.interval)
    }
}

impl Default for Settings {
    /// The interval of the Saath paper (8 ms), and a lease of ten intervals.
    fn default() -> Settings {
        Settings {
            interval: 0.008,
            lease: 0.08,
            reserve: 0.01,
            keep: 600.0,
            most_coflows: 100_000,
            most_flows: 10_000_000,
            most_of_host: MAX_FLOWS,
        }
    }
}

/// Capacity of a host's link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// From the host to the network.
    pub send: Rate,
    /// From the network to the host.
    pub recv: Rate,
}

/// A host or a switch, and the orders sent to it. The fields about flows are used for hosts only.
#[derive(Debug, Default)]
struct Host {
    /// Time of the last report; `None` before the first.
    heard: Option<f64>,
    /// Whether schedules include its flows.
    present: bool,
    /// Whether it receives orders.
    addressed: bool,
    /// Whether the next order has to be complete.
    whole: bool,
    /// Sequence numbers of the last order sent to it, and of the last order that it reported as applied.
    seq: u64,
    obeys: u64,
    /// When that last order was sent.
    told: f64,
    /// Start of the wait for a confirmation: when the applied sequence number last rose, or when the first order after
    /// that was sent.
    owes: f64,
    /// Flows to remove with the next order: the agent knows them from earlier orders.
    gone: Vec<FlowKey>,
    /// Number of flows that it sends, active or completed.
    flows: usize,
    /// Queues for its links, by link number, and whether an order with them was sent.
    queues: BTreeMap<u32, (Queues, bool)>,
    /// Observed connections of the host.
    found: observed_connections::Connections,
    /// Limits of these connections.
    limits: allocator::Limits,
    /// Totals of refused orders in its last report.
    refused: Refusals,
    /// Totals of restored kernel objects in its last report.
    restored: Restored,
    /// The conflicts in its last report.
    conflicts: Vec<Conflict>,
}

impl Host {
    /// A host or switch whose first order is complete.
    fn new() -> Host {
        Host { whole: true, ..Host::default() }
    }

    /// Seconds since the last report; infinite before the first.
    fn silent_for(&self, now: f64) -> f64 {
        self.heard.map_or(f64::INFINITY, |heard| now - heard)
    }
}

#[derive(Debug, Clone)]
struct Flow {
    transfer: Transfer,
    /// Index of the flow in the engine's coflow.
    number: u32,
    /// Bytes sent by the last report, and the time of that report; `None` before the first.
    said: Option<(f64, f64)>,
    /// Bytes sent at the time `by`: the reported bytes, plus the estimated progress since the report.
    sent: f64,
    by: f64,
    /// Bytes of `sent` that the engine does not include yet.
    ahead: f64,
    done: bool,
    /// Until when the flow counts as having data although its host has not reported it; `None` once it has.
    grace: Option<f64>,
    told: Option<Pace>,
}

impl Flow {
    /// A flow without progress, which counts as having data until `grace`.
    fn new(transfer: Transfer, grace: f64) -> Flow {
        Flow {
            transfer,
            number: 0,
            said: None,
            sent: 0.0,
            by: 0.0,
            ahead: 0.0,
            done: false,
            grace: Some(grace),
            told: None,
        }
    }

    /// Whether no connection is known for the flow, and its grace period has ended.
    fn is_absent(&self, now: f64) -> bool {
        self.grace.is_some_and(|until| until < now)
    }
}

#[derive(Debug)]
struct Coflow {
    registration: Registration,
    /// The flows of the first registration, if an update replaced them.
    first: Option<Vec<Transfer>>,
    /// Slot in the engine; `None` once the coflow has completed.
    slot: Option<Slot>,
    over: Option<f64>,
    flows: Vec<Flow>,
    /// Bytes that all flows have sent.
    sent: f64,
}

impl Coflow {
    /// Whether a registration equals this coflow's, with the current flows or with the first ones. A client that did
    /// not receive the answer to its registration repeats it, and an update may have happened in between.
    fn is(&self, other: &Registration) -> bool {
        let Registration { service, application, weight, deadline, flows } = other;
        let own = &self.registration;
        (&own.service, &own.application, own.weight, own.deadline)
            == (service, application, *weight, *deadline)
            && (own.flows == *flows || self.first.as_ref() == Some(flows))
    }
}

/// Engine and coflows for a change of the policy.
struct Under {
    engine: Engine,
    /// See [`ControlPlane::sizes`].
    sizes: bool,
    /// Active coflows in the order in which they were registered.
    coflows: Vec<(Arc<str>, CoflowSpec)>,
}

/// The control plane.
pub struct ControlPlane {
    settings: Settings,
    epoch: u64,
    names: Names,
    engine: Engine,
    /// Whether the policy reads sizes of flows.
    sizes: bool,
    /// Links of hosts, by host number. Switches have the numbers after the hosts and no entry.
    links: Vec<Link>,
    hosts: Vec<Host>,
    coflows: BTreeMap<Arc<str>, Coflow>,
    by_slot: Vec<Option<Arc<str>>>,
    /// Number of flows of all coflows.
    flows: usize,
    doubts: RejectedEntries,
    /// Sum of the orders refused by all agents.
    refusals: Refusals,
    /// Sum of the kernel objects restored by all agents.
    restored: Restored,
    /// Number of schedules.
    ticks: u64,
    /// Coflows that completed since the last call of [`ControlPlane::endings`]; at most [`Settings::most_coflows`].
    ended: Vec<Arc<str>>,
    /// UDP measurements for senders; `None` without throttling.
    arrivals: Option<arrivals::Arrivals>,
    /// Allocator for observed connections; `None` without central allocation.
    allocator: Option<allocator::Allocator>,
    now: f64,
}

impl ControlPlane {
    /// A control plane for hosts with these links. Agents refuse orders whose epoch is lower than the highest that they
    /// have seen.
    ///
    /// # Errors
    /// The policy tree has no leaf for one of the names.
    pub fn new(
        links: &[Link],
        policy: AnyPolicy,
        names: Names,
        settings: Settings,
        epoch: u64,
    ) -> Result<ControlPlane, TreeError> {
        let sizes = matches!(policy, AnyPolicy::Sizes(_));
        let engine = engine(links, policy, &names, settings.reserve)?;
        let hosts = std::iter::repeat_with(Host::new).take(links.len()).collect();
        let (coflows, by_slot) = (BTreeMap::new(), Vec::new());
        let doubts = RejectedEntries::default();
        Ok(ControlPlane {
            settings,
            epoch,
            names,
            engine,
            sizes,
            links: links.to_vec(),
            hosts,
            coflows,
            by_slot,
            flows: 0,
            doubts,
            refusals: Refusals::default(),
            restored: Restored::default(),
            ticks: 0,
            ended: Vec::new(),
            arrivals: None,
            allocator: None,
            now: 0.0,
        })
    }

    /// Adds this number of switches, numbered after the hosts. Agents of switches report no flows, and receive orders
    /// with queues.
    pub fn with_switches(mut self, switches: usize) -> ControlPlane {
        self.hosts.extend(std::iter::repeat_with(Host::new).take(switches));
        self
    }

    /// The parameters of this control plane.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    // Requests of frameworks.

    /// Registers a coflow. Returns `false` if the coflow is registered with the same body, also if it was updated
    /// since; then nothing changes.
    ///
    /// # Errors
    /// [`Refusal`]: the id is invalid or used by a coflow with another body, the weight is not a finite number above
    /// zero, a flow is invalid, a name is unknown, or a limit of [`Settings`] is exceeded.
    pub fn register(&mut self, id: &str, registration: Registration, now: f64) -> Result<bool, Refusal> {
        if !is_id(id) {
            return Err(Refusal::Id(id.chars().take(128).collect()));
        }
        if let Some(known) = self.coflows.get(id) {
            return if known.is(&registration) { Ok(false) } else { Err(Refusal::Taken(id.to_owned())) };
        }
        if !(registration.weight.is_finite() && registration.weight > 0.0) {
            return Err(Refusal::Weight(registration.weight));
        }
        self.check(&registration.flows, &[])?;
        if self.coflows.len() == self.settings.most_coflows {
            return Err(Refusal::Full { what: "coflows", most: self.settings.most_coflows });
        }
        let spec = self.spec(&registration)?;
        self.pass(now);
        let grace = self.grace();
        let flows: Vec<Flow> = registration.flows.iter().map(|&flow| Flow::new(flow, grace)).collect();
        self.count(&flows, true);
        let id: Arc<str> = id.into();
        let coflow = Coflow { registration, first: None, slot: None, over: None, flows, sent: 0.0 };
        self.coflows.insert(Arc::clone(&id), coflow);
        self.enter(&id, &spec);
        Ok(true)
    }

    /// Registers a coflow from the store. `first` are the flows of its first registration, if an update replaced them.
    ///
    /// # Errors
    /// Those of [`ControlPlane::register`].
    pub fn restore(
        &mut self,
        id: &str,
        registration: Registration,
        first: Option<Vec<Transfer>>,
        now: f64,
    ) -> Result<(), Refusal> {
        self.register(id, registration, now)?;
        self.coflows.get_mut(id).expect("`register` accepted the coflow, so it is in the map").first = first;
        Ok(())
    }

    /// Replaces the flows of a coflow: more flows, or other hosts (Saath, section 5: migrated and restarted tasks).
    /// Flows with the same index and hosts continue.
    ///
    /// # Errors
    /// [`Refusal`]: the coflow is unknown, a flow is invalid, or a limit of [`Settings`] is exceeded. The coflow is
    /// unchanged.
    pub fn update(&mut self, id: &str, flows: &[Transfer], now: f64) -> Result<(), Refusal> {
        let (registration, spec) = self.updated(id, flows)?;
        self.pass(now);
        let (id, mut coflow) =
            self.coflows.remove_entry(id).ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        let mut before = std::mem::take(&mut coflow.flows);
        self.count(&before, false);
        for (at, old) in before.iter().enumerate() {
            let ends = |t: &Transfer| (t.src, t.dst);
            if flows.get(at).is_none_or(|new| ends(new) != ends(&old.transfer)) && old.told.is_some() {
                let key = FlowKey { coflow: Arc::clone(&id), flow: at as u32 };
                self.hosts[old.transfer.src as usize].gone.push(key);
            }
        }
        let grace = self.grace();
        coflow.flows = flows
            .iter()
            .enumerate()
            .map(|(at, &transfer)| match before.get_mut(at) {
                Some(old) if (old.transfer.src, old.transfer.dst) == (transfer.src, transfer.dst) => {
                    Flow { transfer, ..old.clone() }
                }
                _ => Flow::new(transfer, grace),
            })
            .collect();
        self.count(&coflow.flows, true);
        coflow.sent = coflow.flows.iter().map(|flow| flow.sent).sum();
        let last = std::mem::replace(&mut coflow.registration, registration);
        coflow.first.get_or_insert(last.flows);
        let (slot, sent) = (coflow.slot, coflow.sent);
        coflow.over = None;
        self.coflows.insert(Arc::clone(&id), coflow);
        match slot {
            Some(slot) => {
                self.engine.respecify(slot, &spec, self.now);
                self.engine.report(slot, sent, 0.0, self.now);
                self.number(&id, slot);
                self.leave_if_over(&id);
            }
            None => self.enter(&id, &spec),
        }
        Ok(())
    }

    /// Checks an update without applying it.
    ///
    /// # Errors
    /// Those of [`ControlPlane::update`].
    pub fn check_update(&self, id: &str, flows: &[Transfer]) -> Result<(), Refusal> {
        self.updated(id, flows).map(drop)
    }

    /// Registration and engine spec of a coflow with new flows.
    fn updated(&self, id: &str, flows: &[Transfer]) -> Result<(Registration, CoflowSpec), Refusal> {
        let coflow = self.coflows.get(id).ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        self.check(flows, &coflow.flows)?;
        let registration = Registration { flows: flows.to_vec(), ..coflow.registration.clone() };
        let spec = self.spec(&registration)?;
        Ok((registration, spec))
    }

    /// Removes a coflow, active or completed.
    ///
    /// # Errors
    /// [`Refusal::Unknown`]: no coflow has this id.
    pub fn deregister(&mut self, id: &str, now: f64) -> Result<(), Refusal> {
        self.pass(now);
        let (id, coflow) = self.coflows.remove_entry(id).ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        self.count(&coflow.flows, false);
        if let Some(slot) = coflow.slot {
            self.engine.withdraw(slot, self.now);
            self.by_slot[slot as usize] = None;
        }
        self.tell_gone(&id, &coflow.flows);
        Ok(())
    }

    /// Replaces the policy. Active coflows continue with the bytes that they have sent.
    ///
    /// # Errors
    /// [`Refusal`]: the policy needs sizes and one flow has an unknown size, or a policy tree has no leaf for a service or an
    /// application. The policy is unchanged.
    pub fn set_policy(&mut self, policy: AnyPolicy, now: f64) -> Result<(), Refusal> {
        self.pass(now);
        let Under { engine, sizes, coflows } = self.under(policy)?;
        (self.engine, self.sizes) = (engine, sizes);
        self.by_slot.clear();
        for (id, spec) in &coflows {
            self.enter(id, spec);
        }
        Ok(())
    }

    /// Checks a change of the policy without applying it.
    ///
    /// # Errors
    /// Those of [`ControlPlane::set_policy`].
    pub fn check_policy(&self, policy: AnyPolicy) -> Result<(), Refusal> {
        self.under(policy).map(drop)
    }

    /// Engine and active coflows for a new policy.
    fn under(&self, policy: AnyPolicy) -> Result<Under, Refusal> {
        let sizes = matches!(policy, AnyPolicy::Sizes(_));
        for coflow in self.coflows.values().filter(|coflow| coflow.slot.is_some()) {
            if sizes && let Some(flow) = coflow.flows.iter().position(|f| f.transfer.bytes.is_none()) {
                return Err(Refusal::Size(flow));
            }
        }
        let engine = engine(&self.links, policy, &self.names, self.settings.reserve)?;
        let order: Vec<Slot> = self.engine.network().active().to_vec();
        let ids: Vec<Arc<str>> =
            order.iter().filter_map(|&slot| self.by_slot[slot as usize].clone()).collect();
        let spec = |id: Arc<str>| {
            let spec = self.spec(&self.coflows[&id].registration)?;
            Ok((id, spec))
        };
        let coflows = ids.into_iter().map(spec).collect::<Result<_, Refusal>>()?;
        Ok(Under { engine, sizes, coflows })
    }

    /// Sets the queues of a link: link 0 of a host, or any link out of a switch. The next order carries the queues if
    /// they changed; complete orders always carry them.
    pub fn set_queues(&mut self, host: u32, link: u32, queues: Queues) {
        let Some(known) = self.hosts.get_mut(host as usize) else { return };
        if known.queues.get(&link).is_none_or(|(last, _)| *last != queues) {
            known.queues.insert(link, (queues, false));
        }
    }

    /// Checks the flows of a request that replaces the flows `before`.
    fn check(&self, flows: &[Transfer], before: &[Flow]) -> Result<(), Refusal> {
        if flows.is_empty() {
            return Err(Refusal::Empty);
        }
        if self.flows - before.len() + flows.len() > self.settings.most_flows {
            return Err(Refusal::Full { what: "flows", most: self.settings.most_flows });
        }
        let last = self.links.len() as u32 - 1;
        for (flow, transfer) in flows.iter().enumerate() {
            if let Some(&host) = [transfer.src, transfer.dst].iter().find(|&&host| host > last) {
                return Err(Refusal::Host { flow, host, last });
            }
            if self.sizes && transfer.bytes.is_none() {
                return Err(Refusal::Size(flow));
            }
        }
        let mut of_host: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        flows.iter().for_each(|flow| of_host.entry(flow.src).or_default().0 += 1);
        before.iter().for_each(|flow| of_host.entry(flow.transfer.src).or_default().1 += 1);
        for (src, (more, less)) in of_host {
            if more > less && self.hosts[src as usize].flows - less + more > self.settings.most_of_host {
                return Err(Refusal::Full { what: "flows of a host", most: self.settings.most_of_host });
            }
        }
        Ok(())
    }

    /// Adds flows to the counts, or removes them (`come` is false).
    fn count(&mut self, flows: &[Flow], come: bool) {
        let change = |count: &mut usize, by: usize| *count = if come { *count + by } else { *count - by };
        change(&mut self.flows, flows.len());
        flows.iter().for_each(|flow| change(&mut self.hosts[flow.transfer.src as usize].flows, 1));
    }

    /// The engine's spec of a registration; unknown sizes become [`UNKNOWN`].
    fn spec(&self, registration: &Registration) -> Result<CoflowSpec, Refusal> {
        let Registration { service, application, weight, deadline, flows } = registration;
        let (service, application) = UnknownName::check(&self.names, service, application)?;
        let unknown = Bytes::new(UNKNOWN).expect("1e18 is a valid size");
        let flow = |t: &Transfer| FlowSpec::new(t.src, t.dst, t.bytes.unwrap_or(unknown));
        let spec = CoflowSpec::new(0, Time::ZERO, flows.iter().map(flow).collect());
        Ok(CoflowSpec { weight: *weight, deadline: *deadline, service, application, ..spec })
    }

    /// Releases a coflow of the map in the engine, with the progress of its flows.
    fn enter(&mut self, id: &Arc<str>, spec: &CoflowSpec) {
        let slot = self.engine.release(spec, 0, self.now, &mut Vec::new());
        if self.by_slot.len() <= slot as usize {
            self.by_slot.resize(slot as usize + 1, None);
        }
        self.by_slot[slot as usize] = Some(Arc::clone(id));
        self.number(id, slot);
        let coflow = self.coflows.get_mut(id).expect("the caller passes the id of a coflow in the map");
        coflow.slot = Some(slot);
        self.engine.report(slot, coflow.sent, 0.0, self.now);
        for flow in &mut coflow.flows {
            if flow.done {
                self.engine.closed(slot, flow.number, flow.sent, self.now);
            } else if flow.sent > 0.0 {
                self.engine.sent(slot, flow.number, flow.sent, self.now);
            }
            flow.done |= self.engine.network().coflow(slot).state(flow.number) == FlowState::Done;
            if flow.is_absent(self.now) || !self.hosts[flow.transfer.src as usize].present {
                self.engine.hold(slot, flow.number, self.now);
            }
        }
        self.leave_if_over(id);
    }

    /// Stores the engine's index of each flow of a coflow.
    fn number(&mut self, id: &Arc<str>, slot: Slot) {
        let coflow = self.engine.network().coflow(slot);
        let flows =
            &mut self.coflows.get_mut(id).expect("the caller passes the id of a coflow in the map").flows;
        for number in 0..coflow.width() as u32 {
            flows[coflow.original(number) as usize].number = number;
        }
    }

    /// Removes a coflow from the engine once all of its flows have completed.
    fn leave_if_over(&mut self, id: &Arc<str>) {
        let coflow = self.coflows.get_mut(id).expect("the caller passes the id of a coflow in the map");
        let Some(slot) = coflow.slot else { return };
        if coflow.flows.iter().all(|flow| flow.done) {
            self.engine.remove(slot, self.now);
            self.by_slot[slot as usize] = None;
            (coflow.slot, coflow.over) = (None, Some(self.now));
            if self.ended.len() < self.settings.most_coflows {
                self.ended.push(Arc::clone(id));
            }
        }
    }

    fn tell_gone(&mut self, id: &Arc<str>, flows: &[Flow]) {
        for (at, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.told.is_some()) {
            let key = FlowKey { coflow: Arc::clone(id), flow: at as u32 };
            self.hosts[flow.transfer.src as usize].gone.push(key);
        }
    }

    /// End of the grace period of a new flow: programs hand over connections shortly after they register.
    fn grace(&self) -> f64 {
        self.now + self.settings.lease
    }

    /// Advances the time. Ignores a `now` before the current time, so time never decreases.
    fn pass(&mut self, now: f64) {
        if now > self.now {
            self.now = now;
            let line = self.engine.network().fabric().nominal();
            self.engine.overdue(line * self.settings.interval, now);
        }
    }
}

/// Payload of a full packet, as a fraction of its bytes on the link.
const PART: f64 = PAYLOAD as f64 / FRAME as f64;

/// An engine whose ports have the payload capacity of the links without the reserve.
fn engine(links: &[Link], policy: AnyPolicy, names: &Names, reserve: f64) -> Result<Engine, TreeError> {
    let rates = links.iter().flat_map(|link| [link.send.get(), link.recv.get()]);
    let part = (1.0 - reserve) * PART;
    let nominal = rates.fold(1.0, f64::max) * part;
    let fabric = Fabric::big_switch(
        links.len() as u32,
        Rate::new(nominal).expect("the greatest of some rates times a part is finite and not negative"),
    );
    let mut engine = Engine::new(fabric, policy, names)?;
    for (port, link) in links.iter().enumerate() {
        for (side, rate) in [(Side::Send, link.send), (Side::Receive, link.recv)] {
            let factor = rate.get() * part / nominal;
            if factor != 1.0 {
                engine.scale_port(port as u32, side, factor, 0.0);
            }
        }
    }
    Ok(engine)
}
