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
//! - eta is 0.6 (Fig. 11c), theta 0.5: section 6.1 gives "alpha, beta, lambda, m" as 0.1, 0.7, 0.2 and 0.5, of which the last cannot
//!   be a number of connections.

mod tracker;

use self::tracker::{Pending, Tracker};
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Rule};
use crate::model::{Fabric, Mask, Sizes, Slot, View};
use crate::solve::connections::{Connection, Connections};

/// A reducer of a host.
#[derive(Debug, Clone, Copy)]
struct Reducer {
    slot: Slot,
    seq: u64,
    coflow_left: f64,
    left: f64,
}

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
    reducers: Vec<Reducer>,
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
    hosts: Vec<Host>,
    /// Hosts with reducers, in the order in which they decide.
    turns: Vec<u32>,
    /// Coflows in order of what they have left: that, order of release, slot.
    order: Vec<(f64, u64, Slot)>,
    ranks: Vec<u32>,
    pending: Vec<Pending>,
    /// Whether a connection was opened or closed: there may be room for another once rates are known.
    moved: bool,
    senders: Mask,
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
            hosts: Vec::new(),
            turns: Vec::new(),
            order: Vec::new(),
            ranks: Vec::new(),
            pending: Vec::new(),
            moved: false,
            senders: Mask::default(),
            solver: Connections::default(),
            asked: Vec::new(),
            rates: Vec::new(),
        })
    }

    /// How many connections the prioritized reducer may have: beta m.
    fn reserved(&self) -> usize {
        ((self.beta * self.connections as f64) as usize).max(1)
    }

    /// Puts coflows in order, and tells the tracker and the hosts what there is. O(C log C + ports of all coflows).
    fn look(&mut self, view: &View<'_, Sizes>) {
        let fabric = view.fabric();
        self.hosts.resize_with(fabric.ports(), Host::default);
        self.order.clear();
        let coflows = view.active().iter().filter(|&&slot| view.coflow(slot).live() > 0);
        self.order.extend(coflows.map(|&slot| (view.left(slot), view.coflow(slot).seq, slot)));
        self.order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.ranks.clear();
        self.ranks.resize(view.slots(), u32::MAX);
        self.senders.set_where(fabric.send(), |&capacity| capacity > 0.0);
        self.tracker.reset(fabric);
        for (port, host) in self.hosts.iter_mut().enumerate() {
            host.reducers.clear();
            // A connection ends with its flow, and with a link that fails.
            host.open.retain(|open| {
                view.is_live(open.slot, open.seq, open.flow)
                    && fabric.send()[open.src as usize] > 0.0
                    && fabric.recv()[port] > 0.0
            });
            for open in &host.open {
                self.tracker.take(open.src, port, open.rate);
            }
        }
        for (rank, &(coflow_left, seq, slot)) in (0..).zip(&self.order) {
            self.ranks[slot as usize] = rank;
            let loads = view.loads(slot);
            for (port, _) in loads.send() {
                self.tracker.prioritize(port, slot);
            }
            for (port, left) in loads.recv().filter(|&(port, _)| fabric.recv()[port] > 0.0) {
                self.hosts[port].reducers.push(Reducer { slot, seq, coflow_left, left });
            }
        }
        self.take_turns();
    }

    fn take_turns(&mut self) {
        self.turns.clear();
        for (port, host) in (0..).zip(&mut self.hosts) {
            // Algorithm 2, line 1. They are in order but for equal coflows.
            host.reducers.sort_by(|a, b| {
                let sizes = a.coflow_left.total_cmp(&b.coflow_left).then(a.left.total_cmp(&b.left));
                sizes.then(a.seq.cmp(&b.seq))
            });
            match host.reducers.first() {
                Some(_) => self.turns.push(port),
                None => host.prioritized = None,
            }
        }
        let hosts = &self.hosts;
        let first = |port: &u32| hosts[*port as usize].reducers[0];
        self.turns.sort_by(|a, b| {
            let (a, b) = (first(a), first(b));
            let sizes = a.coflow_left.total_cmp(&b.coflow_left).then(a.seq.cmp(&b.seq));
            sizes.then(a.left.total_cmp(&b.left))
        });
    }

    /// Algorithm 2: shares a host's connections among its reducers.
    fn share(&mut self, port: usize, view: &View<'_, Sizes>) {
        let capacity = view.fabric().recv()[port];
        let first = self.hosts[port].reducers[0];
        let mut free = self.connections.saturating_sub(self.hosts[port].open.len());
        if self.hosts[port].prioritized == Some(first.seq) {
            if self.tracker.down(port) > self.alpha * capacity
                && free > 0
                && self.connect_another(port, free, view)
            {
                free -= 1;
            }
        } else {
            let before = self.hosts[port].prioritized.replace(first.seq);
            free += self.close(port, first.slot, before, self.reserved().saturating_sub(free));
        }
        let has = self.hosts[port].connections_of(first.slot);
        let wanted = self.reserved().saturating_sub(has).min(free);
        self.connect(port, first, wanted, true, view);
    }

    /// One more connection for the first reducer without priority that may have it and has somebody to connect to. Says
    /// whether there is one.
    fn connect_another(&mut self, port: usize, free: usize, view: &View<'_, Sizes>) -> bool {
        for at in 1..self.hosts[port].reducers.len() {
            let reducer = self.hosts[port].reducers[at];
            let has = self.hosts[port].connections_of(reducer.slot);
            if has as f64 <= self.eta * free as f64 && self.connect(port, reducer, 1, false, view) > 0 {
                return true;
            }
        }
        false
    }

    /// Algorithm 3, lines 1 to 4: takes connections from the reducer that was prioritized before, and then from the others, those with
    /// the highest rate first. Answers with how many.
    fn close(&mut self, port: usize, first: Slot, before: Option<u64>, wanted: usize) -> usize {
        let host = &mut self.hosts[port];
        let mut closed = 0;
        let givers = host.reducers.iter().filter(|reducer| Some(reducer.seq) == before);
        let others = host.reducers.iter().rev().filter(|reducer| Some(reducer.seq) != before);
        for giver in givers.chain(others).filter(|giver| giver.slot != first) {
            while closed < wanted {
                let own = host.open.iter().enumerate().filter(|(_, open)| open.slot == giver.slot);
                let fastest =
                    own.max_by(|(_, a), (_, b)| a.rate.total_cmp(&b.rate).then(b.flow.cmp(&a.flow)));
                let Some((at, &open)) = fastest else { break };
                host.open.remove(at);
                self.tracker.give_back(open.src, port, open.rate);
                closed += 1;
            }
        }
        self.moved |= closed > 0;
        closed
    }

    /// Algorithm 3, lines 5 to 12: opens up to so many connections of a reducer. Answers with how many.
    fn connect(
        &mut self,
        port: usize,
        reducer: Reducer,
        wanted: usize,
        prioritized: bool,
        view: &View<'_, Sizes>,
    ) -> usize {
        if wanted == 0 {
            return 0;
        }
        let mut here = Mask::empty(view.fabric().ports());
        here.insert(port);
        let (open, pending) = (&mut self.hosts[port].open, &mut self.pending);
        pending.clear();
        view.coflow(reducer.slot).visit_open(&mut self.senders, &mut here, |flow, src, _| {
            if !open.iter().any(|open| (open.slot, open.flow) == (reducer.slot, flow)) {
                let left = view.remaining(reducer.slot, flow);
                pending.push(Pending { flow, src: src as u32, left });
            }
            (false, false)
        });
        let mut opened = 0;
        while opened < wanted
            && let Some(at) = self.tracker.choose(pending, reducer.slot, port, prioritized)
        {
            let Pending { flow, src, .. } = pending.swap_remove(at);
            let rate = self.tracker.expect(src, port);
            open.push(Open { slot: reducer.slot, seq: reducer.seq, flow, src, rate });
            opened += 1;
        }
        self.moved |= opened > 0;
        opened
    }

    /// Finds what the connections settle at. O(n log n) for n connections, a bounded number of times.
    fn settle(&mut self, fabric: &Fabric, out: &mut Allocation) {
        self.asked.clear();
        for (dst, host) in (0..).zip(&self.hosts) {
            let ranks = &self.ranks;
            let asked = |open: &Open| Connection { src: open.src, dst, rank: ranks[open.slot as usize] };
            self.asked.extend(host.open.iter().map(asked));
        }
        self.solver.rates(fabric.send(), fabric.recv(), &self.asked, &mut self.rates);
        let all = self.hosts.iter_mut().flat_map(|host| &mut host.open);
        for (open, &rate) in all.zip(&self.rates) {
            open.rate = rate;
            if rate > 0.0 {
                out.add_flow(open.slot, open.flow, rate);
            }
        }
    }
}

impl Policy for Django {
    type Knows = Sizes;

    /// O(connections) for a coflow that leaves, or gets other flows: numbers mean others then.
    fn on(&mut self, event: Event, _: &mut View<'_, Sizes>) {
        if let Event::Done(slot) = event {
            self.hosts.iter_mut().for_each(|host| host.open.retain(|open| open.slot != slot));
        }
    }

    /// O(C log C + ports of all coflows + n log n) for n connections; and for each host that opens some, the rows of the coflows that
    /// want them.
    fn schedule(&mut self, view: &mut View<'_, Sizes>, out: &mut Allocation) {
        self.moved = false;
        self.look(view);
        for at in 0..self.turns.len() {
            self.share(self.turns[at] as usize, view);
        }
        for &(_, _, slot) in &self.order {
            out.set_class(slot, self.ranks[slot as usize] as usize);
            out.set_rule(slot, Rule::Connections);
        }
        self.settle(view.fabric(), out);
    }

    /// Again as soon as may be, as long as connections move: the local scheduler gives reducers without priority one at a time.
    fn wake(&mut self, view: &mut View<'_, Sizes>, _: &Allocation) -> f64 {
        if self.moved { view.now() } else { f64::INFINITY }
    }
}
