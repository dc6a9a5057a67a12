//! What a coordinator knows and decides, moved by calls with the time.
//!
//! Saath, section 5: frameworks register, update and deregister coflows; hosts report, at every interval, what their flows have
//! sent and which are over; from the reports of the interval before, the schedule of the next is made and pushed. What the
//! paper leaves open:
//!
//! - *Believed* are hosts about their own flows, as far as their link could have carried it. Bytes that go back or come from
//!   nowhere are counted as [`RejectedEntries`], and the rest of the report stands.
//! - *Reckoned* are flows that nothing is said of: they send as they were told, since hosts report what goes otherwise.
//! - *Data is there* (4.3) once the host names a flow, since somebody handed a connection over; before, a flow counts for a lease, as
//!   connections come just after registrations. What is registered by somebody who dies then has a port no longer.
//! - *Payload* is what the engine counts, as frameworks and hosts do; links and orders count whole packets, and have that many more bytes.
//! - *Nobody waits at zero.* A flow without a rate in the schedule gets its part of [`Settings::reserve`] of its two ports, which
//!   the engine does not see: connections stay alive, and no port is over its capacity.
//! - *Orders end.* Each carries the epoch of its coordinator, a number and a lease. A host gets one when something of its own changes, and
//!   otherwise each quarter of the lease. One that obeys none that was sent lately is told everything anew; one that is not heard of any
//!   more has no data, as far as the engine goes, until it is.

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

/// A size that nobody knows: more than is ever sent, and little enough for sums.
const UNKNOWN: f64 = 1e18;

/// How the plane goes about it.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Seconds between two schedules.
    pub interval: f64,
    /// How many seconds an order holds, and a host that is not heard of counts as there.
    pub lease: f64,
    /// The part of every port that flows without a rate share.
    pub reserve: f64,
    /// How long coflows that are over are remembered if nobody deregisters them, in seconds.
    pub keep: f64,
    /// The most coflows at once, and the most flows of all of them.
    pub most_coflows: usize,
    /// See [`Settings::most_coflows`].
    pub most_flows: usize,
    /// The most flows that one host sends: an order to it names no more.
    pub most_of_host: usize,
}

/// The longest time between two orders to a host, in seconds: agents take a coordinator that says nothing for two as gone.
const QUIET: f64 = 1.0;

impl Settings {
    /// How long after an order that was the last its lease is renewed, in seconds: two renewals in a row may be lost.
    fn renewal(&self) -> f64 {
        (self.lease / 4.0).min(QUIET)
    }

    /// How long a host may owe the answer to an order, in seconds, before that counts as lost: an order, the report after it and the
    /// schedule after that take three intervals where nothing is late.
    fn answer(&self) -> f64 {
        self.renewal().max(3.0 * self.interval)
    }
}

impl Default for Settings {
    /// 8 ms as in the Saath paper, and leases of ten of these.
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

/// What a host's link carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Out of the host.
    pub send: Rate,
    /// Into it.
    pub recv: Rate,
}

/// A host or a switch, and what it was told. What is of flows is of hosts only.
#[derive(Debug, Default)]
struct Host {
    /// When it was last heard of; never, before it reports.
    heard: Option<f64>,
    /// Whether the engine counts on its flows.
    present: bool,
    /// Whether it gets orders.
    addressed: bool,
    /// Whether the next order has to name everything.
    whole: bool,
    /// The number of the last order to it, and of the last that it said it obeys.
    seq: u64,
    obeys: u64,
    /// When that last order was sent.
    told: f64,
    /// Since when it owes an answer: when what it obeys last rose, or the first order after that was sent.
    owes: f64,
    /// Flows that it still believes in.
    gone: Vec<FlowKey>,
    /// How many flows it sends, over or not.
    flows: usize,
    /// The queues that its links should have, by their numbers there, and whether the last orders said so.
    queues: BTreeMap<u32, (Queues, bool)>,
    /// The connections that it found.
    found: observed_connections::Connections,
    /// What these may send.
    limits: allocator::Limits,
    /// What it last said that it had refused.
    refused: Refusals,
    /// What it last reported as restored.
    restored: Restored,
    /// The conflicts in its last report.
    conflicts: Vec<Conflict>,
}

impl Host {
    /// One that is told everything first.
    fn new() -> Host {
        Host { whole: true, ..Host::default() }
    }

    /// Seconds since it was heard of.
    fn silent_for(&self, now: f64) -> f64 {
        self.heard.map_or(f64::INFINITY, |heard| now - heard)
    }
}

#[derive(Debug, Clone)]
struct Flow {
    transfer: Transfer,
    /// Its number in the engine's coflow.
    number: u32,
    /// What its host last said that it had sent, and when; none before it says anything.
    said: Option<(f64, f64)>,
    /// What it has sent by a time: what was said, and since then what it was told to send.
    sent: f64,
    by: f64,
    /// What of that the engine has not been told.
    ahead: f64,
    done: bool,
    /// Until when it counts as there although its host has never named it; none once it has.
    grace: Option<f64>,
    told: Option<Pace>,
}

impl Flow {
    /// One that begins, and counts as there until a time.
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

    /// Whether nobody has a connection for it, as far as is known.
    fn is_absent(&self, now: f64) -> bool {
        self.grace.is_some_and(|until| until < now)
    }
}

#[derive(Debug)]
struct Coflow {
    registration: Registration,
    /// The flows that it was registered with, if it was given others.
    first: Option<Vec<Transfer>>,
    /// Its place in the engine until it is over.
    slot: Option<Slot>,
    over: Option<f64>,
    flows: Vec<Flow>,
    /// What all flows have sent.
    sent: f64,
}

impl Coflow {
    /// Whether a registration is its own, be it with the flows that it has or with its first: who asks again may not have heard the
    /// first answer, whatever was updated since.
    fn is(&self, other: &Registration) -> bool {
        let Registration { service, application, weight, deadline, flows } = other;
        let own = &self.registration;
        (&own.service, &own.application, own.weight, own.deadline)
            == (service, application, *weight, *deadline)
            && (own.flows == *flows || self.first.as_ref() == Some(flows))
    }
}

/// What another policy decides about.
struct Under {
    engine: Engine,
    /// See [`ControlPlane::sizes`].
    sizes: bool,
    /// What is under way, in the order in which it came.
    coflows: Vec<(Arc<str>, CoflowSpec)>,
}

/// The plane.
pub struct ControlPlane {
    settings: Settings,
    epoch: u64,
    names: Names,
    engine: Engine,
    /// Whether the policy goes by sizes.
    sizes: bool,
    /// Of hosts, which come before switches.
    links: Vec<Link>,
    hosts: Vec<Host>,
    coflows: BTreeMap<Arc<str>, Coflow>,
    by_slot: Vec<Option<Arc<str>>>,
    /// Flows of all coflows.
    flows: usize,
    doubts: RejectedEntries,
    /// What all say that they have refused.
    refusals: Refusals,
    /// The kernel objects that all agents have restored.
    restored: Restored,
    /// How many schedules there were.
    ticks: u64,
    /// Coflows that came to be over since somebody asked, at most as many as there may be coflows.
    ended: Vec<Arc<str>>,
    /// What arrives of UDP, if that is anybody's business.
    arrivals: Option<arrivals::Arrivals>,
    /// Who divides links among connections that hosts find, if that is anybody's business.
    allocator: Option<allocator::Allocator>,
    now: f64,
}

impl ControlPlane {
    /// A plane for hosts with these links. Of two coordinators, hosts obey the one with the higher epoch.
    ///
    /// # Errors
    /// A policy tree that has no place for one of the names.
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

    /// The same with so many switches more, which are numbered after the hosts: they report nothing of flows, and are told queues.
    pub fn with_switches(mut self, switches: usize) -> ControlPlane {
        self.hosts.extend(std::iter::repeat_with(Host::new).take(switches));
        self
    }

    /// How it goes about it.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    // What frameworks ask for.

    /// Registers a coflow. The same again changes nothing, which is answered with `false`; also if it was updated meanwhile.
    ///
    /// # Errors
    /// Why it is not registered.
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

    /// Registers a coflow of before, with the flows that it was registered with then if it was updated.
    ///
    /// # Errors
    /// Why it is not registered.
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

    /// Gives a coflow other flows: more, or elsewhere (Saath, section 5: migrated and restarted tasks). Those in the same place with
    /// the same ends go on.
    ///
    /// # Errors
    /// Why it stays as it is.
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

    /// Whether a coflow could be given other flows now.
    ///
    /// # Errors
    /// Why not.
    pub fn check_update(&self, id: &str, flows: &[Transfer]) -> Result<(), Refusal> {
        self.updated(id, flows).map(drop)
    }

    /// A coflow with other flows.
    fn updated(&self, id: &str, flows: &[Transfer]) -> Result<(Registration, CoflowSpec), Refusal> {
        let coflow = self.coflows.get(id).ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        self.check(flows, &coflow.flows)?;
        let registration = Registration { flows: flows.to_vec(), ..coflow.registration.clone() };
        let spec = self.spec(&registration)?;
        Ok((registration, spec))
    }

    /// Forgets a coflow, whatever is left of it.
    ///
    /// # Errors
    /// If there is none.
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

    /// Lets another policy decide from now on; all coflows go on where they are.
    ///
    /// # Errors
    /// A policy that has no place for a coflow under way, or has to know a size that nobody does; the policy before stays.
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

    /// Whether another policy could decide now.
    ///
    /// # Errors
    /// Why not.
    pub fn check_policy(&self, policy: AnyPolicy) -> Result<(), Refusal> {
        self.under(policy).map(drop)
    }

    /// What is under way, for another policy.
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

    /// Gives a link out of a host, which has the one with the number 0, or out of a switch these queues from now on. They go with an order
    /// when they change, and with those that name everything.
    pub fn set_queues(&mut self, host: u32, link: u32, queues: Queues) {
        let Some(known) = self.hosts.get_mut(host as usize) else { return };
        if known.queues.get(&link).is_none_or(|(last, _)| *last != queues) {
            known.queues.insert(link, (queues, false));
        }
    }

    /// The flows of a request, of a coflow that has others now.
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

    /// Counts flows that come, or go.
    fn count(&mut self, flows: &[Flow], come: bool) {
        let change = |count: &mut usize, by: usize| *count = if come { *count + by } else { *count - by };
        change(&mut self.flows, flows.len());
        flows.iter().for_each(|flow| change(&mut self.hosts[flow.transfer.src as usize].flows, 1));
    }

    /// A registration as the engine has it.
    fn spec(&self, registration: &Registration) -> Result<CoflowSpec, Refusal> {
        let Registration { service, application, weight, deadline, flows } = registration;
        let (service, application) = UnknownName::check(&self.names, service, application)?;
        let unknown = Bytes::new(UNKNOWN).expect("1e18 is a valid size");
        let flow = |t: &Transfer| FlowSpec::new(t.src, t.dst, t.bytes.unwrap_or(unknown));
        let spec = CoflowSpec::new(0, Time::ZERO, flows.iter().map(flow).collect());
        Ok(CoflowSpec { weight: *weight, deadline: *deadline, service, application, ..spec })
    }

    /// A coflow that is in the map becomes one of the engine's, with what is known of its flows.
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

    /// Finds the engine's numbers of a coflow's flows.
    fn number(&mut self, id: &Arc<str>, slot: Slot) {
        let coflow = self.engine.network().coflow(slot);
        let flows =
            &mut self.coflows.get_mut(id).expect("the caller passes the id of a coflow in the map").flows;
        for number in 0..coflow.width() as u32 {
            flows[coflow.original(number) as usize].number = number;
        }
    }

    /// Lets a coflow leave the engine once all of its flows are done.
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

    /// Until when what begins now counts as there: a connection may be handed over just after it was registered.
    fn grace(&self) -> f64 {
        self.now + self.settings.lease
    }

    /// Time does not go back, whatever clocks do.
    fn pass(&mut self, now: f64) {
        if now > self.now {
            self.now = now;
            let line = self.engine.network().fabric().nominal();
            self.engine.overdue(line * self.settings.interval, now);
        }
    }
}

/// The part of a full packet that is payload.
const PART: f64 = PAYLOAD as f64 / FRAME as f64;

/// An engine for the payload of ports that keep a reserve.
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
