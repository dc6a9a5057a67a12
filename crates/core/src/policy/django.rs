//! Django: receivers open connections, senders serve them in order, and a tracker matches the two.
//!
//! Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21, sections 3 and 4. A
//! *reducer* is a coflow's part at a receiving host, a *mapper* its part at a sending one; a flow between the two sends while there is a
//! *connection*. Each host has m connections for all of its reducers. Its local scheduler (Algorithm 2) says how many each reducer has, a
//! micro scheduler for each reducer (Algorithm 3) which to close and open, and the tracker (Algorithm 4, `tracker.rs`) to which
//! mappers. Senders serve connections in strict order of what coflows have left: section 1 says that they throttle coflows of low
//! priority when their link is the bottleneck. What rates connections then have is for TCP to find, and
//! `solve::connections` here; flows without a rate have no connection.
//!
//! The messages of Table 1 are calls here, as tracker and hosts are in one place:
//!
//! | Message | Is |
//! |---|---|
//! | REQ_CANDIDATE | [`Django::connect`] puts together the flows of a reducer that have no connection, for [`Tracker::choose`] |
//! | REPLY_CHOSEN | what that answers, and the bandwidth that it takes at once |
//! | SEND_START | the first [`Open`] of a flow |
//! | SEND_PAUSE | [`Django::close`]: a flow whose connection goes before it has ended |
//! | SEND_RECOVERY | an [`Open`] of a flow that had one before |
//!
//! What the paper leaves open, or prints otherwise than it says:
//!
//! - Algorithm 4 sorts candidates by *rising* vacant bandwidth and takes the first; the text wants the largest, with those whose sender has
//!   the same coflow first most likely among them. Here the largest are taken.
//! - The prioritized reducer gets connections whenever it has fewer than floor(beta m) (but at least 1), not only when it becomes the
//!   prioritized one: its flows end one by one, and it would run dry.
//! - If it needs connections and the reducer that was prioritized before has too few to give back, the others give theirs, last in the
//!   order first: line 10 promises that beta m are free.
//! - "First non-prioritized reducer whose connection number does not exceed eta rem" is the first of those that have somebody to
//!   connect to.
//! - How many candidates a reducer without priority gets is only said to be "much smaller": a quarter of m.
//! - A new connection counts at once with what its two ends have left, until the next schedule measures it. Hosts decide
//!   one after the other, those with the smallest coflow first; in a network they would at the same time, and hear of each other later.
//! - A reducer is all of a coflow at a host: several reduce tasks of one coflow there share its connections.
//! - In a schedule in which the prioritized reducer stays, one more connection of another comes before those that the prioritized one lacks: the
//!   last one that is free may go to the other. It comes at every schedule, and there is another at once as long as connections move.
//! - The m of Algorithm 4, how many candidates there are, is that of Algorithm 2. Which of them is chosen goes by what links have left (Algorithm 3,
//!   line 8), without lambda, which so matters only where more than m flows of a reducer wait.
//! - alpha below theta has no effect of its own: candidates for one more connection are looked for above theta only.
//! - eta is 0.6 (Fig. 11c), theta 0.5: section 6.1 gives "alpha, beta, lambda, m" as 0.1, 0.7, 0.2 and 0.5, of which the last cannot
//!   be a number of connections.

mod reducers;
mod tracker;

use self::reducers::{Reducers, Turn};
use self::tracker::{Pending, Tracker};
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Rule};
use crate::model::{Fabric, Mask, Sizes, Slot, View};
use crate::solve::connections::{Connection, Connections};

/// A flow that has a connection.
#[derive(Debug, Clone, Copy)]
struct Open {
    slot: Slot,
    seq: u64,
    flow: u32,
    src: u32,
    /// As of the last schedule, in bytes per second.
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
    /// m.
    connections: usize,
    alpha: f64,
    beta: f64,
    eta: f64,
    tracker: Tracker,
    reducers: Reducers,
    hosts: Vec<Host>,
    /// Hosts that may have connections of flows that ended.
    ended: Mask,
    pending: Vec<Pending>,
    /// Whether a connection was opened or closed: there may be room for another once rates are known.
    moved: bool,
    /// Senders whose link is up; and room for one receiver.
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

    /// How many connections the prioritized reducer may have: beta m.
    fn reserved(&self) -> usize {
        ((self.beta * self.connections as f64) as usize).max(1)
    }

    /// Puts coflows and reducers in order, and tells the tracker and the hosts what there is. O(n + C log C + C P / 64 + P log P) for n
    /// connections, C coflows and P ports, and the ports of the coflows that sent something.
    fn look(&mut self, view: &View<'_, Sizes>, reducers: &mut Reducers) {
        let fabric = view.fabric();
        self.hosts.resize_with(fabric.ports(), Host::default);
        if self.tracker.reset(fabric) {
            self.senders.set_where(fabric.send(), |&capacity| capacity > 0.0);
            self.here = Mask::empty(fabric.ports());
            self.ended.set_where(fabric.recv(), |_| true);
        }
        for port in self.ended.iter() {
            // A connection ends with its flow, and with a link that fails.
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

    /// Algorithm 2: shares a host's connections among its reducers. O(m), if nobody opens or closes one, and O(coflows) if a
    /// reducer without priority may have one more.
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

    /// One more connection for the first reducer without priority that may have it and has somebody to connect to. Says
    /// whether there is one.
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

    /// Algorithm 3, lines 1 to 4: takes connections from the reducer that was prioritized before, and then from the others, the last
    /// in the order first, and of one reducer those with the highest rate first. Answers with how many.
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

    /// Algorithm 3, lines 5 to 12: opens up to so many connections of a reducer. Answers with how many. O(m) if all of its flows
    /// have one, otherwise O(m x the coflow's senders).
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

    /// Finds what the connections settle at: see [`Connections::rates`].
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

    /// O(1), but O(its ports x m) for a coflow that leaves, or gets other flows: numbers mean others then.
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

    /// O(n log m + C log C + C P / 64 + P log P) for n connections, C coflows and P ports, and the ports of the coflows that sent
    /// something; for each host that opens connections, the senders of the coflows that want them; and what the solver takes.
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

    /// Again as soon as may be, as long as connections move: the local scheduler gives reducers without priority one at a time.
    fn wake(&mut self, view: &mut View<'_, Sizes>, _: &Allocation) -> f64 {
        if self.moved { view.now() } else { f64::INFINITY }
    }
}
