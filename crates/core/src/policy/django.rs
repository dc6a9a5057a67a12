//! Django: receivers open connections, senders serve connections in order, and a tracker matches both.
//!
//! Source: Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21,
//! sections 3 and 4.
//!
//! - A *reducer* is the part of a coflow at a receiving host, and a *mapper* the part at a sending host. A flow
//!   between the two sends while it has a *connection*.
//! - Each host has m connections for all of its reducers. The local scheduler (Algorithm 2) decides the number of
//!   connections of each reducer.
//! - A micro scheduler for each reducer (Algorithm 3) decides which connections to close and open.
//! - The tracker (Algorithm 4, `tracker.rs`) decides which mappers to connect to.
//! - Senders serve connections by strict priority, in the order of the coflows' remaining bytes: section 1 says that
//!   senders throttle coflows of low priority if the sender's link is the bottleneck.
//! - TCP would find the rates of the connections; `solve::connections` computes these rates. A flow without a rate
//!   has no connection.
//!
//! Tracker and hosts share one process, so the messages of Table 1 are calls:
//!
//! | Message | Call or data |
//! |---|---|
//! | REQ_CANDIDATE | [`Django::connect`] collects the flows of a reducer without a connection, for [`Tracker::choose`] |
//! | REPLY_CHOSEN | the result of `choose`, and the bandwidth that the tracker subtracts at once |
//! | SEND_START | the first [`Open`] of a flow |
//! | SEND_PAUSE | [`Django::close`]: the connection of a flow closes before the flow completes |
//! | SEND_RECOVERY | a later [`Open`] of the same flow |
//!
//! Choices that the paper leaves open, and contradictions in the paper:
//!
//! - Algorithm 4 sorts candidates by *rising* vacant bandwidth and takes the first ones. The text wants the largest,
//!   and wants candidates whose sender prioritizes the same coflow to be likely among them. Here the largest are
//!   taken.
//! - The prioritized reducer gets connections whenever it has fewer than floor(beta m) (at least 1), not only when it
//!   becomes prioritized. Its flows complete one by one, so the reducer would run out of connections otherwise.
//! - If the prioritized reducer needs connections and the previously prioritized one has too few to return, the other
//!   reducers return theirs, the last in the order first. Line 10 requires beta m free connections.
//! - "First non-prioritized reducer whose connection number does not exceed eta rem" is the first of the reducers
//!   with a flow to connect.
//! - The paper gives a reducer without priority a "much smaller" number of candidates: here a quarter of m.
//! - A new connection counts at once with the residual capacity of its two ends, until the next schedule measures its
//!   rate. Hosts decide one after the other, the hosts with the smallest coflow first. In a network, hosts would
//!   decide concurrently and learn of each other's decisions later.
//! - A reducer is the whole part of a coflow at a host: several reduce tasks of one coflow at the host share its
//!   connections.
//! - While the prioritized reducer stays the same, a schedule first opens one more connection of another reducer, and
//!   then the missing ones of the prioritized reducer. The last free connection may therefore go to the other
//!   reducer. This step runs at every schedule, and schedules follow at once while connections change.
//! - The m of Algorithm 4, the number of candidates, is the m of Algorithm 2. The choice between candidates uses the
//!   residual capacity of links (Algorithm 3, line 8), without lambda. So lambda matters only if more than m flows of
//!   a reducer wait.
//! - alpha below theta has no effect: the tracker looks for candidates for one more connection only above theta.
//! - eta is 0.6 (Fig. 11c) and theta 0.5. Section 6.1 gives "alpha, beta, lambda, m" as 0.1, 0.7, 0.2 and 0.5, but
//!   0.5 cannot be a number of connections.

mod reducers;
mod tracker;

use self::reducers::{Reducers, Turn};
use self::tracker::{Pending, Tracker};
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Rule};
use crate::model::{Fabric, Mask, Sizes, Slot, View};
use crate::solve::connections::{Connection, Connections};

/// A flow with a connection.
#[derive(Debug, Clone, Copy)]
struct Open {
    slot: Slot,
    seq: u64,
    flow: u32,
    src: u32,
    /// At the last schedule, in bytes per second.
    rate: f64,
}

/// A receiving host.
#[derive(Debug, Default)]
struct Host {
    open: Vec<Open>,
    /// The coflow (by order of release) that was prioritized in the last schedule.
    prioritized: Option<u64>,
}

impl Host {
    fn connections_of(&self, slot: Slot) -> usize {
        self.open.iter().filter(|open| open.slot == slot).count()
    }
}

/// Bilateral scheduling.
pub struct Django {
    /// m: the number of connections of a host.
    connections: usize,
    alpha: f64,
    beta: f64,
    eta: f64,
    tracker: Tracker,
    reducers: Reducers,
    hosts: Vec<Host>,
    /// Hosts that may have connections of completed flows.
    ended: Mask,
    pending: Vec<Pending>,
    /// Whether a connection was opened or closed. More connections may then be possible once the new rates are known.
    moved: bool,
    /// Senders whose link is up; and a buffer for one receiver.
    senders: Mask,
    here: Mask,
    solver: Connections,
    asked: Vec<Connection>,
    rates: Vec<f64>,
}

impl Django {
    pub(super) fn read(params: &mut Params) -> Result<Django, ParamsError> {
        let part = |x: &f64| (0.0..=1.0).contains(x);
        let expected = "a number from 0 to 1";
        let fits = |count: &usize| (1..=65_536).contains(count);
        let connections = params.take_with("connections", 11, fits, "a whole number from 1 to 65536")?;
        let alpha = params.take_with("alpha", 0.1, part, expected)?;
        let beta = params.take_with("beta", 0.7, part, expected)?;
        let eta = params.take_with("eta", 0.6, part, expected)?;
        let lambda = params.take_with("lambda", 0.2, part, expected)?;
        let theta = params.take_with("theta", 0.5, part, expected)?;
        Ok(Django {
            connections,
            alpha,
            beta,
            eta,
            tracker: Tracker::new(connections, lambda, theta),
            reducers: Reducers::default(),
            hosts: Vec::new(),
            ended: Mask::default(),
            pending: Vec::new(),
            moved: false,
            senders: Mask::default(),
            here: Mask::default(),
            solver: Connections::default(),
            asked: Vec::new(),
            rates: Vec::new(),
        })
    }

    /// The number of connections that the prioritized reducer may have: beta m.
    fn reserved(&self) -> usize {
        ((self.beta * self.connections as f64) as usize).max(1)
    }

    /// Sorts coflows and reducers, and updates the tracker and the hosts.
    ///
    /// O(n + C log C + C P / 64 + P log P) for n connections, C coflows and P ports, and the ports of the coflows
    /// that sent bytes.
    fn look(&mut self, view: &View<'_, Sizes>, reducers: &mut Reducers) {
        let fabric = view.fabric();
        self.hosts.resize_with(fabric.ports(), Host::default);
        if self.tracker.reset(fabric) {
            self.senders.set_where(fabric.send(), |&capacity| capacity > 0.0);
            self.here = Mask::empty(fabric.ports());
            self.ended.set_where(fabric.recv(), |_| true);
        }
        for port in self.ended.iter() {
            // A connection closes when its flow completes, and when one of its links fails.
            self.hosts[port].open.retain(|open| {
                view.is_live(open.slot, open.seq, open.flow)
                    && fabric.send()[open.src as usize] > 0.0
                    && fabric.recv()[port] > 0.0
            });
        }
        self.ended.clear();
        reducers.look(view);
        for (port, host) in self.hosts.iter_mut().enumerate() {
            for open in &host.open {
                self.tracker.take(open.src, port, open.rate);
            }
            if !reducers.are_at(port) {
                host.prioritized = None;
            }
        }
        for (_, slot) in reducers.order() {
            self.tracker.prioritize(slot, view.coflow(slot).send_mask());
        }
    }

    /// Algorithm 2: divides a host's connections among its reducers.
    ///
    /// O(m) if no connection opens or closes, and O(coflows) if a reducer without priority may get one more.
    fn share(&mut self, turn: Turn, reducers: &Reducers, view: &View<'_, Sizes>) {
        let (port, first) = (turn.port as usize, turn.first);
        let capacity = view.fabric().recv()[port];
        let seq = view.coflow(first).seq;
        let mut free = self.connections.saturating_sub(self.hosts[port].open.len());
        if self.hosts[port].prioritized == Some(seq) {
            if self.tracker.down(port) > self.alpha * capacity
                && free > 0
                && self.connect_another(turn, free, reducers, view)
            {
                free -= 1;
            }
        } else {
            let before = self.hosts[port].prioritized.replace(seq);
            let wanted = self.reserved().saturating_sub(free);
            free += self.close(turn, before, wanted, reducers, view);
        }
        let has = self.hosts[port].connections_of(first);
        let wanted = self.reserved().saturating_sub(has).min(free);
        self.connect(port, first, wanted, true, view);
    }

    /// Opens one more connection, for the first eligible reducer without priority that has a flow to connect. Returns
    /// whether it did.
    fn connect_another(
        &mut self,
        turn: Turn,
        free: usize,
        reducers: &Reducers,
        view: &View<'_, Sizes>,
    ) -> bool {
        let port = turn.port as usize;
        if !self.tracker.looks_for_more(port) {
            return false;
        }
        let mut opened = 0;
        reducers.find(port, view, |slot| {
            let has = self.hosts[port].connections_of(slot);
            if slot != turn.first && has as f64 <= self.eta * free as f64 {
                opened = self.connect(port, slot, 1, false, view);
            }
            opened > 0
        });
        opened > 0
    }

    /// Algorithm 3, lines 1 to 4: closes up to `wanted` connections and returns the number closed.
    ///
    /// The reducer that was prioritized before comes first, then the other reducers, the last in the order first. Of
    /// one reducer, the connections with the highest rates close first.
    fn close(
        &mut self,
        turn: Turn,
        before: Option<u64>,
        wanted: usize,
        reducers: &Reducers,
        view: &View<'_, Sizes>,
    ) -> usize {
        let port = turn.port as usize;
        let host = &mut self.hosts[port];
        let mut closed = 0;
        while closed < wanted {
            let givers = host.open.iter().enumerate().filter(|(_, open)| open.slot != turn.first);
            let next = givers.max_by(|(_, a), (_, b)| {
                let prioritized = (Some(a.seq) == before).cmp(&(Some(b.seq) == before));
                let order = || reducers.compare(a.slot, b.slot, port, view);
                let fastest = || a.rate.total_cmp(&b.rate).then(b.flow.cmp(&a.flow));
                prioritized.then_with(order).then_with(fastest)
            });
            let Some((at, &open)) = next else { break };
            host.open.remove(at);
            self.tracker.give_back(open.src, port, open.rate);
            closed += 1;
        }
        self.moved |= closed > 0;
        closed
    }

    /// Algorithm 3, lines 5 to 12: opens up to `wanted` connections of a reducer and returns the number opened.
    ///
    /// O(m) if all of its flows have a connection, otherwise O(m x the coflow's senders).
    fn connect(
        &mut self,
        port: usize,
        slot: Slot,
        wanted: usize,
        prioritized: bool,
        view: &View<'_, Sizes>,
    ) -> usize {
        let coflow = view.coflow(slot);
        if wanted == 0 || self.hosts[port].connections_of(slot) == coflow.live_to(port) {
            return 0;
        }
        let (open, pending) = (&mut self.hosts[port].open, &mut self.pending);
        pending.clear();
        self.here.insert(port);
        coflow.visit_open(&mut self.senders, &mut self.here, |flow, src, _| {
            if !open.iter().any(|open| (open.slot, open.flow) == (slot, flow)) {
                let left = view.remaining(slot, flow);
                pending.push(Pending { flow, src: src as u32, left });
            }
            (false, false)
        });
        self.here.remove(port);
        let mut opened = 0;
        while opened < wanted
            && let Some(at) = self.tracker.choose(pending, slot, port, prioritized)
        {
            let Pending { flow, src, .. } = pending.swap_remove(at);
            let rate = self.tracker.expect(src, port);
            open.push(Open { slot, seq: coflow.seq, flow, src, rate });
            opened += 1;
        }
        self.moved |= opened > 0;
        opened
    }

    /// Computes the steady rates of the connections: see [`Connections::rates`].
    fn settle(&mut self, fabric: &Fabric, reducers: &mut Reducers, out: &mut Allocation) {
        self.asked.clear();
        for (dst, host) in (0..).zip(&self.hosts) {
            let asked = |open: &Open| Connection { src: open.src, dst, rank: reducers.rank(open.slot) };
            self.asked.extend(host.open.iter().map(asked));
        }
        self.solver.rates(fabric.send(), fabric.recv(), &self.asked, &mut self.rates);
        let all = self.hosts.iter_mut().flat_map(|host| &mut host.open);
        for (open, &rate) in all.zip(&self.rates) {
            open.rate = rate;
            if rate > 0.0 {
                out.add_flow(open.slot, open.flow, rate);
                reducers.changed(open.slot);
            }
        }
    }
}

impl Policy for Django {
    type Knows = Sizes;

    /// O(1). For a coflow that completes or gets other flows, O(its ports x m), because the numbers of its flows
    /// change.
    fn on(&mut self, event: Event, view: &mut View<'_, Sizes>) {
        match event {
            Event::Released(slot) | Event::FlowLive(slot, _) => self.reducers.changed(slot),
            Event::FlowHeld(slot, flow) | Event::FlowDone(slot, flow) => {
                self.reducers.changed(slot);
                self.ended.insert(view.coflow(slot).ends_of(flow).1 as usize);
            }
            Event::Done(slot) => {
                for load in view.coflow(slot).receivers() {
                    if let Some(host) = self.hosts.get_mut(load.port as usize) {
                        host.open.retain(|open| open.slot != slot);
                    }
                }
            }
            Event::PortChanged => {}
        }
    }

    /// O(n log m + C log C + C P / 64 + P log P) for n connections, C coflows and P ports, and the ports of the
    /// coflows that sent bytes. In addition, for each host that opens connections, the senders of the coflows that
    /// may get them; and the cost of the solver.
    fn schedule(&mut self, view: &mut View<'_, Sizes>, out: &mut Allocation) {
        self.moved = false;
        let mut reducers = std::mem::take(&mut self.reducers);
        self.look(view, &mut reducers);
        for &turn in reducers.turns() {
            self.share(turn, &reducers, view);
        }
        for (rank, slot) in reducers.order() {
            out.set_class(slot, rank as usize);
            out.set_rule(slot, Rule::Connections);
        }
        self.settle(view.fabric(), &mut reducers, out);
        self.reducers = reducers;
    }

    /// The current time while connections change, so that the next schedule follows at once: Algorithm 2 gives
    /// reducers without priority one connection per schedule.
    fn wake(&mut self, view: &mut View<'_, Sizes>, _: &Allocation) -> f64 {
        if self.moved { view.now() } else { f64::INFINITY }
    }
}
