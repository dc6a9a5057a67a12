//! What a coordinator knows and decides, moved by calls with the time.
//!
//! Saath, section 5: frameworks register, update and deregister coflows; hosts report, at every interval, what their flows have
//! sent and which are over; from the reports of the interval before, the schedule of the next is made and pushed. What the
//! paper leaves open:
//!
//! - *Believed* are hosts about their own flows, as far as their link could have carried it. Bytes that go back or come from
//!   nowhere are counted as [`Doubts`], and the rest of the report stands.
//! - *Nobody waits at zero.* A flow without a rate in the schedule gets its part of [`Settings::reserve`] of its two ports, which
//!   the engine does not see: connections stay alive, and no port is over its capacity.
//! - *Orders end.* Each carries the epoch of its coordinator, a number and a lease. A host that obeys none that was sent lately is
//!   told everything anew; one that is not heard of any more has no data, as far as the engine goes, until it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::allocation::{Allocation, Inside, Queues, Weights};
use weir_core::engine::Engine;
use weir_core::model::{CoflowSpec, Fabric, FlowSpec, FlowState, Names, Side, Slot};
use weir_core::policy::AnyPolicy;
use weir_core::tree::TreeError;
use weir_core::units::{Bytes, Rate, Time};

mod order;
mod request;

pub use order::{Doubts, FlowKey, Order, Pace, Report, Seen};
pub use request::{Refusal, Registration, Transfer};

/// A size that nobody knows: more than is ever sent, and little enough for sums.
const UNKNOWN: f64 = 1e18;

/// After so many orders that a host does not say it obeys, it is told everything anew.
const UNANSWERED: u64 = 8;

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

/// A host, and what it was told.
#[derive(Debug)]
struct Host {
    link: Link,
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
    /// Flows that it still believes in.
    gone: Vec<FlowKey>,
}

impl Host {
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
    sent: f64,
    /// When its host last said how much that was.
    seen: Option<f64>,
    done: bool,
    told: Option<Pace>,
}

impl Flow {
    /// One that begins.
    fn new(transfer: Transfer) -> Flow {
        Flow { transfer, number: 0, sent: 0.0, seen: None, done: false, told: None }
    }
}

#[derive(Debug)]
struct Coflow {
    registration: Registration,
    /// Its place in the engine until it is over.
    slot: Option<Slot>,
    over: Option<f64>,
    flows: Vec<Flow>,
}

/// The plane.
pub struct Plane {
    settings: Settings,
    epoch: u64,
    names: Names,
    engine: Engine,
    /// Whether the policy goes by sizes.
    sizes: bool,
    hosts: Vec<Host>,
    coflows: BTreeMap<Arc<str>, Coflow>,
    by_slot: Vec<Option<Arc<str>>>,
    /// Flows of all coflows.
    flows: usize,
    doubts: Doubts,
    now: f64,
}

impl Plane {
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
    ) -> Result<Plane, TreeError> {
        let sizes = matches!(policy, AnyPolicy::Sizes(_));
        let engine = engine(links, policy, &names, settings.reserve)?;
        let host = |&link: &Link| Host {
            link,
            heard: None,
            present: false,
            addressed: false,
            whole: true,
            seq: 0,
            obeys: 0,
            gone: Vec::new(),
        };
        let hosts = links.iter().map(host).collect();
        let (coflows, by_slot) = (BTreeMap::new(), Vec::new());
        let doubts = Doubts::default();
        Ok(Plane {
            settings,
            epoch,
            names,
            engine,
            sizes,
            hosts,
            coflows,
            by_slot,
            flows: 0,
            doubts,
            now: 0.0,
        })
    }

    /// What was not believed so far.
    pub fn doubts(&self) -> Doubts {
        self.doubts
    }

    /// What was decided last.
    pub fn allocation(&self) -> &Allocation {
        self.engine.allocation()
    }

    /// How many coflows are under way.
    pub fn under_way(&self) -> usize {
        self.engine.network().active().len()
    }

    /// Whether a coflow is over; `None` if nobody registered it.
    pub fn is_over(&self, id: &str) -> Option<bool> {
        self.coflows.get(id).map(|coflow| coflow.over.is_some())
    }

    // What frameworks ask for.

    /// Registers a coflow. The same again changes nothing, which is answered with `false`.
    ///
    /// # Errors
    /// Why it is not registered.
    pub fn register(&mut self, id: &str, registration: Registration, now: f64) -> Result<bool, Refusal> {
        if id.is_empty() || id.len() > 128 || !id.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Refusal::Id(id.chars().take(128).collect()));
        }
        if let Some(known) = self.coflows.get(id) {
            return if known.registration == registration {
                Ok(false)
            } else {
                Err(Refusal::Taken(id.to_owned()))
            };
        }
        if !(registration.weight.is_finite() && registration.weight > 0.0) {
            return Err(Refusal::Weight(registration.weight));
        }
        self.check(&registration.flows, 0)?;
        if self.coflows.len() == self.settings.most_coflows {
            return Err(Refusal::Full { what: "coflows", most: self.settings.most_coflows });
        }
        let spec = self.spec(&registration)?;
        self.pass(now);
        self.flows += registration.flows.len();
        let flows = registration.flows.iter().copied().map(Flow::new).collect();
        let id: Arc<str> = id.into();
        let coflow = Coflow { registration, slot: None, over: None, flows };
        self.coflows.insert(Arc::clone(&id), coflow);
        self.enter(&id, &spec);
        Ok(true)
    }

    /// Gives a coflow other flows: more, or elsewhere (Saath, section 5: migrated and restarted tasks). Those in the same place with
    /// the same ends go on.
    ///
    /// # Errors
    /// Why it stays as it is.
    pub fn update(&mut self, id: &str, flows: &[Transfer], now: f64) -> Result<(), Refusal> {
        let coflow = self.coflows.get(id).ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        self.check(flows, coflow.flows.len())?;
        let registration = Registration { flows: flows.to_vec(), ..coflow.registration.clone() };
        let spec = self.spec(&registration)?;
        self.pass(now);
        let (id, mut coflow) = self.coflows.remove_entry(id).expect("it was found");
        self.flows = self.flows - coflow.flows.len() + flows.len();
        let mut before = std::mem::take(&mut coflow.flows);
        for (at, old) in before.iter().enumerate() {
            let ends = |t: &Transfer| (t.src, t.dst);
            if flows.get(at).is_none_or(|new| ends(new) != ends(&old.transfer)) && old.told.is_some() {
                let key = FlowKey { coflow: Arc::clone(&id), flow: at as u32 };
                self.hosts[old.transfer.src as usize].gone.push(key);
            }
        }
        coflow.flows = flows
            .iter()
            .enumerate()
            .map(|(at, &transfer)| match before.get_mut(at) {
                Some(old) if (old.transfer.src, old.transfer.dst) == (transfer.src, transfer.dst) => {
                    Flow { transfer, ..old.clone() }
                }
                _ => Flow::new(transfer),
            })
            .collect();
        coflow.registration = registration;
        let slot = coflow.slot;
        coflow.over = None;
        self.coflows.insert(Arc::clone(&id), coflow);
        match slot {
            Some(slot) => {
                self.engine.respecify(slot, &spec, self.now);
                self.number(&id, slot);
                self.leave_if_over(&id);
            }
            None => self.enter(&id, &spec),
        }
        Ok(())
    }

    /// Forgets a coflow, whatever is left of it.
    ///
    /// # Errors
    /// If there is none.
    pub fn deregister(&mut self, id: &str, now: f64) -> Result<(), Refusal> {
        self.pass(now);
        let (id, coflow) = self.coflows.remove_entry(id).ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        self.flows -= coflow.flows.len();
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
        let sizes = matches!(policy, AnyPolicy::Sizes(_));
        for coflow in self.coflows.values().filter(|coflow| coflow.slot.is_some()) {
            if sizes && let Some(flow) = coflow.flows.iter().position(|f| f.transfer.bytes.is_none()) {
                return Err(Refusal::Size(flow));
            }
        }
        let links: Vec<Link> = self.hosts.iter().map(|host| host.link).collect();
        let engine = engine(&links, policy, &self.names, self.settings.reserve)?;
        let order: Vec<Slot> = self.engine.network().active().to_vec();
        let ids: Vec<Arc<str>> =
            order.iter().filter_map(|&slot| self.by_slot[slot as usize].clone()).collect();
        let specs: Result<Vec<CoflowSpec>, Refusal> =
            ids.iter().map(|id| self.spec(&self.coflows[id].registration)).collect();
        let specs = specs?;
        (self.engine, self.sizes) = (engine, sizes);
        self.by_slot.clear();
        for (id, spec) in ids.iter().zip(&specs) {
            self.enter(id, spec);
        }
        Ok(())
    }

    /// The flows of a request, of a coflow that has `before` now.
    fn check(&self, flows: &[Transfer], before: usize) -> Result<(), Refusal> {
        if flows.is_empty() {
            return Err(Refusal::Empty);
        }
        if self.flows - before + flows.len() > self.settings.most_flows {
            return Err(Refusal::Full { what: "flows", most: self.settings.most_flows });
        }
        let last = self.hosts.len() as u32 - 1;
        for (flow, transfer) in flows.iter().enumerate() {
            if let Some(&host) = [transfer.src, transfer.dst].iter().find(|&&host| host > last) {
                return Err(Refusal::Host { flow, host, last });
            }
            if self.sizes && transfer.bytes.is_none() {
                return Err(Refusal::Size(flow));
            }
        }
        Ok(())
    }

    /// A registration as the engine has it.
    fn spec(&self, registration: &Registration) -> Result<CoflowSpec, Refusal> {
        let Registration { service, application, weight, deadline, flows } = registration;
        let Some((service, application)) = self.names.find(service, application) else {
            return Err(Refusal::Nameless { service: service.clone(), application: application.clone() });
        };
        let unknown = Bytes::new(UNKNOWN).expect("it is finite");
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
        let coflow = self.coflows.get_mut(id).expect("the caller put it there");
        coflow.slot = Some(slot);
        for flow in &mut coflow.flows {
            if flow.done {
                self.engine.closed(slot, flow.number, flow.sent, self.now);
            } else if flow.sent > 0.0 {
                self.engine.sent(slot, flow.number, flow.sent, self.now);
            }
            flow.done |= self.engine.network().coflow(slot).state(flow.number) == FlowState::Done;
            if !self.hosts[flow.transfer.src as usize].present {
                self.engine.hold(slot, flow.number, self.now);
            }
        }
        self.leave_if_over(id);
    }

    /// Finds the engine's numbers of a coflow's flows.
    fn number(&mut self, id: &Arc<str>, slot: Slot) {
        let coflow = self.engine.network().coflow(slot);
        let flows = &mut self.coflows.get_mut(id).expect("the caller put it there").flows;
        for number in 0..coflow.width() as u32 {
            flows[coflow.original(number) as usize].number = number;
        }
    }

    /// Lets a coflow leave the engine once all of its flows are done.
    fn leave_if_over(&mut self, id: &Arc<str>) {
        let coflow = self.coflows.get_mut(id).expect("the caller found it");
        let Some(slot) = coflow.slot else { return };
        if coflow.flows.iter().all(|flow| flow.done) {
            self.engine.remove(slot, self.now);
            self.by_slot[slot as usize] = None;
            (coflow.slot, coflow.over) = (None, Some(self.now));
        }
    }

    fn tell_gone(&mut self, id: &Arc<str>, flows: &[Flow]) {
        for (at, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.told.is_some()) {
            let key = FlowKey { coflow: Arc::clone(id), flow: at as u32 };
            self.hosts[flow.transfer.src as usize].gone.push(key);
        }
    }

    // What hosts say.

    /// A host reports. Its flows are those that it sends.
    pub fn report(&mut self, host: u32, report: &Report, now: f64) {
        self.pass(now);
        let Some(known) = self.hosts.get_mut(host as usize) else {
            self.doubts.absent += report.flows.len() as u64;
            return;
        };
        known.heard = Some(self.now);
        let (epoch, seq) = report.obeys;
        known.obeys = if epoch == self.epoch { seq } else { 0 };
        known.whole |= epoch != self.epoch || seq > known.seq || known.seq - seq > UNANSWERED;
        if !known.present {
            known.present = true;
            self.give_data(host, true);
        }
        for seen in &report.flows {
            self.see(host, seen);
        }
    }

    fn see(&mut self, host: u32, seen: &Seen) {
        let Some(coflow) = self.coflows.get_mut(&seen.key.coflow) else {
            self.doubts.unknown += 1;
            return;
        };
        let Some(flow) = coflow.flows.get_mut(seen.key.flow as usize) else {
            self.doubts.unknown += 1;
            return;
        };
        if flow.transfer.src != host {
            self.doubts.foreign += 1;
            return;
        }
        let Some(slot) = coflow.slot.filter(|_| !flow.done) else { return };
        let line = self.hosts[host as usize].link.send.get();
        let mut sent = seen.sent as f64;
        // What is heard first may be of a time before this plane.
        if let Some(at) = flow.seen {
            let most = flow.sent + line * (1.05 * (self.now - at) + 2.0 * self.settings.interval) + 65536.0;
            if sent > most {
                self.doubts.beyond += 1;
                sent = most;
            }
        }
        sent = sent.min(flow.transfer.bytes.map_or(UNKNOWN, Bytes::get));
        if sent < flow.sent {
            self.doubts.backward += 1;
            sent = flow.sent;
        }
        (flow.sent, flow.seen) = (sent, Some(self.now));
        let known = self.engine.network().attained(slot, flow.number, self.now);
        if seen.closed {
            flow.done = true;
            self.engine.closed(slot, flow.number, sent, self.now);
            self.leave_if_over(&seen.key.coflow.clone());
        } else if (known - sent).abs() > 0.1 * line * self.settings.interval {
            self.engine.sent(slot, flow.number, sent, self.now);
        }
    }

    /// Gives the flows of a host their data, or takes it away.
    fn give_data(&mut self, host: u32, there: bool) {
        for coflow in self.coflows.values() {
            let Some(slot) = coflow.slot else { continue };
            for flow in coflow.flows.iter().filter(|flow| flow.transfer.src == host && !flow.done) {
                if there {
                    self.engine.data(slot, flow.number, UNKNOWN, self.now);
                } else {
                    self.engine.hold(slot, flow.number, self.now);
                }
            }
        }
    }

    /// Time does not go back, whatever clocks do.
    fn pass(&mut self, now: f64) {
        if now > self.now {
            self.now = now;
            let line = self.engine.network().fabric().nominal();
            self.engine.overdue(line * self.settings.interval, now);
        }
    }

    // What is decided.

    /// Decides for the next interval: an order for every host that is heard of, with what changes. O(flows), besides the policy.
    pub fn tick(&mut self, now: f64) -> Vec<(u32, Order)> {
        self.pass(now);
        for host in 0..self.hosts.len() {
            // What it was told last holds for a lease from when it got that; until then its part is nobody else's.
            let silence = 2.0 * (self.settings.lease + self.settings.interval);
            let known = &mut self.hosts[host];
            if known.present && known.silent_for(self.now) > silence {
                known.present = false;
                self.give_data(host as u32, false);
            }
        }
        let keep = self.settings.keep;
        let (now, flows) = (self.now, &mut self.flows);
        self.coflows.retain(|_, coflow| {
            let kept = coflow.over.is_none_or(|over| now - over <= keep);
            *flows -= if kept { 0 } else { coflow.flows.len() };
            kept
        });
        for coflow in self.coflows.values() {
            let Some(slot) = coflow.slot else { continue };
            let sent = coflow.flows.iter().map(|flow| flow.sent).sum();
            self.engine.report(slot, sent, 0.0, self.now);
        }
        self.engine.schedule(self.now);
        self.engine.wake(self.now);
        self.orders()
    }

    fn orders(&mut self) -> Vec<(u32, Order)> {
        let paces = self.paces();
        let mut orders: Vec<Order> = Vec::with_capacity(self.hosts.len());
        for host in &mut self.hosts {
            // Who is not heard gets no order, and all of them anew when it is.
            host.addressed = host.present && host.silent_for(self.now) <= self.settings.lease;
            let whole = std::mem::replace(&mut host.whole, !host.addressed);
            let gone = std::mem::take(&mut host.gone);
            let flows =
                if whole { Vec::new() } else { gone.into_iter().map(|key| (key, Pace::Gone)).collect() };
            orders.push(Order {
                epoch: self.epoch,
                seq: host.seq + 1,
                lease: self.settings.lease,
                whole,
                flows,
            });
        }
        let mut paces = paces.into_iter();
        for (id, coflow) in &mut self.coflows {
            let under_way = coflow.slot.is_some();
            for (at, flow) in coflow.flows.iter_mut().enumerate() {
                let order = &mut orders[flow.transfer.src as usize];
                let pace = if under_way && !flow.done { paces.next() } else { None };
                if order.whole {
                    flow.told = None;
                }
                if flow.told == pace {
                    continue;
                }
                flow.told = pace;
                let key = FlowKey { coflow: Arc::clone(id), flow: at as u32 };
                order.flows.push((key, pace.unwrap_or(Pace::Gone)));
            }
        }
        let orders = self.hosts.iter_mut().zip(orders).enumerate().filter(|(_, (host, _))| host.addressed);
        orders
            .map(|(at, (host, mut order))| {
                host.seq = order.seq;
                // A flow that went and came again within an interval is named once: as what it is now.
                order.flows.sort_by(|a, b| a.0.cmp(&b.0));
                order.flows.dedup_by(|later, earlier| {
                    let same = later.0 == earlier.0;
                    earlier.1 = if same { later.1 } else { earlier.1 };
                    same
                });
                (at as u32, order)
            })
            .collect()
    }

    /// The pace of every flow that is not done, in the order of coflows and places.
    fn paces(&self) -> Vec<Pace> {
        let network = self.engine.network();
        let rates = match self.engine.allocation().queues() {
            None => None,
            Some(Queues { inside: Inside::MaxMin, .. }) => {
                let open = self.coflows.values().filter(|coflow| coflow.slot.is_some());
                return open.flat_map(|c| &c.flows).filter(|f| !f.done).map(|_| Pace::Free).collect();
            }
            Some(queues) => Some(self.first_in_queues(queues)),
        };
        let rate = |slot: Slot, flow: &Flow| match &rates {
            None => network.rate(slot, flow.number),
            Some(_) if network.coflow(slot).state(flow.number) != FlowState::Live => 0.0,
            Some(first) => first.get(&(flow.transfer.src, slot)).copied().unwrap_or(0.0),
        };
        let flows = || {
            let open = self.coflows.values().filter_map(|coflow| Some((coflow.slot?, coflow)));
            open.flat_map(|(slot, c)| c.flows.iter().filter(|f| !f.done).map(move |flow| (slot, flow)))
        };
        let mut waiting = vec![(0u32, 0u32); self.hosts.len()];
        let decided: Vec<f64> = flows().map(|(slot, flow)| rate(slot, flow)).collect();
        for ((_, flow), _) in flows().zip(&decided).filter(|(_, rate)| **rate < 1.0) {
            waiting[flow.transfer.src as usize].0 += 1;
            waiting[flow.transfer.dst as usize].1 += 1;
        }
        let trickle = |flow: &Flow| {
            let (src, dst) = (flow.transfer.src as usize, flow.transfer.dst as usize);
            let send = self.hosts[src].link.send.get() / f64::from(waiting[src].0);
            let recv = self.hosts[dst].link.recv.get() / f64::from(waiting[dst].1);
            self.settings.reserve * send.min(recv)
        };
        let pace = |((_, flow), &rate): ((Slot, &Flow), &f64)| {
            let rate = if rate < 1.0 { trickle(flow) } else { rate };
            Pace::Rate((rate as u64).max(1))
        };
        flows().zip(&decided).map(pace).collect()
    }

    /// Aalo's senders: of each queue of a host the first coflow, which has the queue's share, evenly over its flows there.
    fn first_in_queues(&self, queues: &Queues) -> BTreeMap<(u32, Slot), f64> {
        let network = self.engine.network();
        let classes = match &queues.weights {
            Weights::Weighted(weights) => weights.len(),
            Weights::Strict(classes) => *classes,
        };
        let mut heads: Vec<Vec<Option<(Slot, u32)>>> = vec![vec![None; classes]; self.hosts.len()];
        for &slot in network.active() {
            let class = self.engine.allocation().class(slot).min(classes - 1);
            for load in network.coflow(slot).senders().iter().filter(|load| load.live > 0) {
                heads[load.port as usize][class].get_or_insert((slot, load.live));
            }
        }
        let mut rates = BTreeMap::new();
        for (src, heads) in heads.iter().enumerate() {
            let capacity = network.fabric().send()[src];
            let served = |class: usize| match &queues.weights {
                Weights::Weighted(weights) => weights[class],
                Weights::Strict(_) => f64::from(heads[..class].iter().all(Option::is_none)),
            };
            let open = || heads.iter().enumerate().filter_map(|(class, head)| Some((class, (*head)?)));
            let total: f64 = open().map(|(class, _)| served(class)).sum();
            for (class, (slot, live)) in open() {
                rates.insert((src as u32, slot), capacity * served(class) / total / f64::from(live));
            }
        }
        rates
    }
}

/// An engine for ports that keep a reserve.
fn engine(links: &[Link], policy: AnyPolicy, names: &Names, reserve: f64) -> Result<Engine, TreeError> {
    let rates = links.iter().flat_map(|link| [link.send.get(), link.recv.get()]);
    let nominal = rates.fold(1.0, f64::max) * (1.0 - reserve);
    let fabric = Fabric::big_switch(links.len() as u32, Rate::new(nominal).expect("links have rates"));
    let mut engine = Engine::new(fabric, policy, names)?;
    for (port, link) in links.iter().enumerate() {
        for (side, rate) in [(Side::Send, link.send), (Side::Receive, link.recv)] {
            let factor = rate.get() * (1.0 - reserve) / nominal;
            if factor != 1.0 {
                engine.scale_port(port as u32, side, factor, 0.0);
            }
        }
    }
    Ok(engine)
}
