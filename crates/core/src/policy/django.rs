//! Django: receivers open connections, senders serve connections in order, and a tracker matches both.
//!
//! Source: Zheng et al., "Django: Bilateral coflow scheduling with predictive concurrent connections", JPDC '21,
//! sections 3 and 4.
//!
//! - A *reducer* is a reduce task of a coflow at a receiving host, and a *mapper* the part of a coflow at a sending host. A flow
//!   between the two sends while it has a *connection*.
//! - Each host has m connections (`connections`) for all of its reducers. Its *prioritized* reducer is that of the
//!   coflow with the fewest remaining bytes; of several reducers of this coflow, the one with the fewest remaining
//!   bytes. The local scheduler (Algorithm 2) decides the number of connections of each reducer.
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
//! | REQ_CANDIDATE | [`Django::open_connections`] collects a reducer's flows without connection for [`Tracker::choose_mapper`] |
//! | REPLY_CHOSEN | the result of [`Tracker::choose_mapper`], and the bandwidth that the tracker subtracts at once |
//! | SEND_START | the first [`OpenConnection`] of a flow |
//! | SEND_PAUSE | [`Django::close_connections`]: the connection of a flow closes before the flow completes |
//! | SEND_RECOVERY | a later [`OpenConnection`] of the same flow |
//!
//! Choices that the paper leaves open, and contradictions in the paper:
//!
//! - Algorithm 4 sorts candidates by *rising* vacant bandwidth and takes the first ones. The text wants the largest,
//!   and wants candidates whose sender prioritizes the same coflow to be likely among them. Here the largest are
//!   taken.
//! - The prioritized reducer gets connections whenever it has fewer than floor(beta m) (at least 1), not only when it
//!   becomes prioritized. Its flows complete one by one, so the reducer would run out of connections otherwise.
//! - If another reducer becomes prioritized and too few connections are free, the previously prioritized reducer closes
//!   connections, then the others, the last in the order first. Line 10 requires beta m free connections.
//! - "First non-prioritized reducer whose connection number does not exceed eta rem" is the first of the reducers
//!   with a flow to connect.
//! - The paper gives a reducer without priority a "much smaller" number of candidates: here a quarter of m.
//! - A new connection counts at once with the residual capacity of its two ends, until the next schedule measures its
//!   rate. Hosts decide one after the other, the hosts with the smallest coflow first. In a network, hosts would
//!   decide concurrently and learn of each other's decisions later.
//! - Several reduce tasks of one coflow at a host are separate reducers (Algorithm 2, line 1), if the workload states
//!   the task of each flow ([`FlowSpec::reducer`](crate::model::FlowSpec::reducer)). Traces and the registrations of
//!   live flows do not state it: there, all flows of a coflow to a host are one reducer.
//! - Of reducers of one coflow with equal remaining bytes, the one with the lower number is first. Senders do not tell
//!   the reducers of a coflow apart.
//! - While the prioritized reducer stays the same, a schedule first opens one more connection of another reducer, and
//!   then the missing ones of the prioritized reducer. The last free connection may therefore go to the other
//!   reducer. This step runs at every schedule, and schedules follow at once while connections change.
//! - The m of Algorithm 4, the number of candidates, is the m of Algorithm 2. The choice between candidates uses the
//!   residual capacity of links (Algorithm 3, line 8), without lambda. So lambda matters only if more than m flows of
//!   a reducer wait.
//! - eta is 0.5 and theta 0. Section 6.1 gives "alpha, beta, lambda, m" as 0.1, 0.7, 0.2 and 0.5. The value 0.5 cannot
//!   be a number of connections; it is eta, because another reducer "cannot exceed a half of the number of free
//!   connections" (4.2). The paper gives no theta. With a theta above alpha, alpha has no effect: another reducer gets
//!   one more connection only if the residual fraction of the host's downlink exceeds both.

mod reducers;
mod tracker;

use self::reducers::{HostTurn, Reducer, ReducerOrder};
use self::tracker::{Tracker, WaitingFlow};
use super::{Event, Params, ParamsError, Policy, Reaction, Timing, TrunkSupport};
use crate::allocation::{Allocation, Rule};
use crate::django::local_scheduler::{Downlink, HostReducers, divide_connections};
use crate::django::micro_scheduler::by_closing;
use crate::django::{self, Settings};
use crate::model::{BitSet, FlowState, SizesKnown, Slot, View};
use crate::solve::connections::{Connection, ConnectionSolver};

/// A flow with a connection.
#[derive(Debug, Clone, Copy)]
struct OpenConnection {
    reducer: Reducer,
    /// Order of release of the coflow.
    seq: u64,
    flow: u32,
    src: u32,
    /// Rate in bytes per second, as computed for the last schedule.
    rate: f64,
}

/// A receiving host.
#[derive(Debug, Default)]
struct ReceivingHost {
    open_connections: Vec<OpenConnection>,
    /// The reducer that was prioritized in the last schedule: the order of release of its coflow, and its number.
    prioritized: Option<(u64, u32)>,
}

impl ReceivingHost {
    fn connections_of(&self, reducer: Reducer) -> usize {
        self.open_connections.iter().filter(|open| open.reducer == reducer).count()
    }
}

/// Bilateral scheduling.
pub struct Django {
    /// m: the number of connections of a host.
    max_connections: usize,
    params: crate::django::Params,
    tracker: Tracker,
    reducers: ReducerOrder,
    hosts: Vec<ReceivingHost>,
    /// Hosts that may have connections of completed flows.
    hosts_with_completions: BitSet,
    pending_flows: Vec<WaitingFlow>,
    /// Whether a connection was opened or closed. More connections may then be possible once the new rates are known.
    connections_changed: bool,
    /// The links of senders that are up; for one receiver at a time also its link.
    open_links: BitSet,
    solver: ConnectionSolver,
    solver_connections: Vec<Connection>,
    rates: Vec<f64>,
}

/// The settings in a specification of this policy.
pub(super) fn settings_from_params(params: &mut Params) -> Result<Settings, ParamsError> {
    let part = |x: &f64| (0.0..=1.0).contains(x);
    let expected = "a number from 0 to 1";
    let fits = |count: &usize| (1..=65_536).contains(count);
    let connections = params.take_value("connections", 11, fits, "a whole number from 1 to 65536")?;
    let default = django::Params::default();
    let params = django::Params {
        alpha: params.take_value("alpha", default.alpha, part, expected)?,
        beta: params.take_value("beta", default.beta, part, expected)?,
        eta: params.take_value("eta", default.eta, part, expected)?,
        lambda: params.take_value("lambda", default.lambda, part, expected)?,
        theta: params.take_value("theta", default.theta, part, expected)?,
    };
    Ok(Settings { connections, params })
}

impl Django {
    pub(super) fn from_params(params: &mut Params) -> Result<Django, ParamsError> {
        let Settings { connections, params } = settings_from_params(params)?;
        Ok(Django {
            max_connections: connections,
            params,
            tracker: Tracker::new(connections, params),
            reducers: ReducerOrder::default(),
            hosts: Vec::new(),
            hosts_with_completions: BitSet::default(),
            pending_flows: Vec::new(),
            connections_changed: false,
            open_links: BitSet::default(),
            solver: ConnectionSolver::default(),
            solver_connections: Vec::new(),
            rates: Vec::new(),
        })
    }

    /// Sorts coflows and reducers, and updates the tracker and the hosts.
    ///
    /// O(n + C log C + C P / 64 + P log P) for n connections, C coflows and P ports, and the ports of the coflows
    /// that sent bytes.
    fn update_state(&mut self, view: &View<'_, SizesKnown>, reducers: &mut ReducerOrder) {
        let fabric = view.fabric();
        self.hosts.resize_with(fabric.ports(), ReceivingHost::default);
        if self.tracker.reset_residuals(fabric) {
            self.open_links.set_where(fabric.capacities(), |&capacity| capacity > 0.0);
            self.open_links.intersect_with(fabric.senders());
            (0..fabric.ports()).for_each(|port| self.hosts_with_completions.insert(port));
        }
        for port in self.hosts_with_completions.iter() {
            // A connection closes when its flow completes, and when one of its links fails.
            self.hosts[port].open_connections.retain(|open| {
                view.is_live(open.reducer.slot, open.seq, open.flow)
                    && fabric.send_capacity(open.src) > 0.0
                    && fabric.recv_capacity(port as u32) > 0.0
            });
        }
        self.hosts_with_completions.clear();
        reducers.update(view);
        for (port, host) in self.hosts.iter_mut().enumerate() {
            for open in &host.open_connections {
                self.tracker.subtract_rate(open.src, port, open.rate);
            }
            if !reducers.has_reducers(port) {
                host.prioritized = None;
            }
        }
        for (_, slot) in reducers.order() {
            self.tracker.prioritize_mappers(slot, view.coflow(slot).live_links());
        }
    }

    /// Opens one more connection, for the first reducer without priority that has at most `max_count` connections and a flow
    /// to connect. Returns whether it did. O(coflows), and the flows to the host of coflows with separate reducers.
    fn connect_unprioritized(
        &mut self,
        turn: HostTurn,
        max_count: f64,
        reducers: &ReducerOrder,
        view: &View<'_, SizesKnown>,
    ) -> bool {
        let port = turn.port as usize;
        if !self.tracker.allows_more_connections(port) {
            return false;
        }
        let mut opened = 0;
        reducers.visit_in_order(turn.port, view, |reducer| {
            let open_count = self.hosts[port].connections_of(reducer);
            if reducer != turn.first_reducer && open_count as f64 <= max_count {
                opened = self.open_connections(port, reducer, 1, false, view);
            }
            opened > 0
        });
        opened > 0
    }

    /// Algorithm 3, lines 1 to 4: closes up to `max_count` connections and returns the number closed.
    ///
    /// The reducer that was prioritized before comes first, then the other reducers, the last in the order first. Of
    /// one reducer, the connections with the highest rates close first.
    fn close_connections(
        &mut self,
        turn: HostTurn,
        before: Option<(u64, u32)>,
        max_count: usize,
        reducers: &ReducerOrder,
        view: &View<'_, SizesKnown>,
    ) -> usize {
        if max_count == 0 {
            return 0;
        }
        let port = turn.port as usize;
        let host = &mut self.hosts[port];
        let mut coflows: Vec<Slot> = host.open_connections.iter().map(|open| open.reducer.slot).collect();
        coflows.sort_unstable();
        coflows.dedup();
        let order = reducers.sort_reducers(coflows.into_iter(), turn.port, view);
        let position = |open: &OpenConnection| order.iter().position(|&reducer| reducer == open.reducer);
        let was_prioritized = |open: &OpenConnection| Some((open.seq, open.reducer.number)) == before;
        let mut closed = 0;
        while closed < max_count {
            let candidates = host.open_connections.iter().enumerate();
            let candidates = candidates.filter(|(_, open)| open.reducer != turn.first_reducer);
            let next = candidates.max_by(|(_, a), (_, b)| {
                let prioritized = was_prioritized(a).cmp(&was_prioritized(b));
                let order = || position(a).cmp(&position(b));
                let fastest = || by_closing((a.rate, a.flow), (b.rate, b.flow)).reverse();
                prioritized.then_with(order).then_with(fastest)
            });
            let Some((at, &open)) = next else { break };
            host.open_connections.remove(at);
            self.tracker.restore_rate(open.src, port, open.rate);
            closed += 1;
        }
        self.connections_changed |= closed > 0;
        closed
    }

    /// Algorithm 3, lines 5 to 12: opens up to `max_count` connections of a reducer and returns the number opened.
    ///
    /// O(m) if all of its flows have a connection, otherwise O(m x the coflow's senders). In addition the flows of a separate
    /// reducer.
    fn open_connections(
        &mut self,
        port: usize,
        reducer: Reducer,
        max_count: usize,
        prioritized: bool,
        view: &View<'_, SizesKnown>,
    ) -> usize {
        let coflow = view.coflow(reducer.slot);
        let open_count = self.hosts[port].connections_of(reducer);
        if max_count == 0 || open_count == coflow.live_flow_count_of_reducer(port as u32, reducer.number) {
            return 0;
        }
        self.find_pending_flows(port, reducer, view);
        let (open, pending) = (&mut self.hosts[port].open_connections, &mut self.pending_flows);
        let mut opened = 0;
        while opened < max_count
            && let Some(at) = self.tracker.choose_mapper(pending, reducer.slot, port, prioritized)
        {
            let WaitingFlow { flow, src, .. } = pending.swap_remove(at);
            let rate = self.tracker.reserve_expected_rate(src, port);
            open.push(OpenConnection { reducer, seq: coflow.seq, flow, src, rate });
            opened += 1;
        }
        self.connections_changed |= opened > 0;
        opened
    }

    /// Writes the live flows of a reducer whose links are up and that have no connection to `pending_flows`, in order.
    fn find_pending_flows(&mut self, port: usize, reducer: Reducer, view: &View<'_, SizesKnown>) {
        let Reducer { slot, number } = reducer;
        let coflow = view.coflow(slot);
        let (open, pending) = (&self.hosts[port].open_connections, &mut self.pending_flows);
        pending.clear();
        let mut add_if_pending = |flow: u32, src: u32| {
            if !open.iter().any(|open| (open.reducer.slot, open.flow) == (slot, flow)) {
                pending.push(WaitingFlow { flow, src, remaining_bytes: view.remaining_bytes(slot, flow) });
            }
        };
        if let Some(flows) = coflow.flows_of_separate_reducer(port as u32, number) {
            for &flow in flows {
                let (link, _) = coflow.flow_port_links(flow);
                if coflow.flow_state(flow) == FlowState::Live && self.open_links.contains(link) {
                    add_if_pending(flow, coflow.flow_ports(flow).0);
                }
            }
            return;
        }
        let receiver = view.fabric().recv_link(port as u32);
        self.open_links.insert(receiver);
        coflow.visit_open_flows(&mut self.open_links, |flow, _, _| {
            add_if_pending(flow, coflow.flow_ports(flow).0);
            (false, false)
        });
        self.open_links.remove(receiver);
    }

    fn assign_rates(&mut self, reducers: &mut ReducerOrder, out: &mut Allocation) {
        for (rank, slot) in reducers.order() {
            out.set_class(slot, rank as usize);
            out.set_rule(slot, Rule::Connections);
        }
        self.compute_rates(reducers, out);
    }

    /// Computes the steady rates of the connections: see [`ConnectionSolver::compute_rates`].
    fn compute_rates(&mut self, reducers: &mut ReducerOrder, out: &mut Allocation) {
        self.solver_connections.clear();
        for (dst, host) in (0..).zip(&self.hosts) {
            let to_connection = |open: &OpenConnection| Connection {
                src: open.src,
                dst,
                rank: reducers.rank(open.reducer.slot),
            };
            self.solver_connections.extend(host.open_connections.iter().map(to_connection));
        }
        let (send, recv) = self.tracker.capacities();
        self.solver.compute_rates(send, recv, &self.solver_connections, &mut self.rates);
        let all = self.hosts.iter_mut().flat_map(|host| &mut host.open_connections);
        for (open, &rate) in all.zip(&self.rates) {
            open.rate = rate;
            if rate > 0.0 {
                out.add_flow_rate(open.reducer.slot, open.flow, rate);
                reducers.mark_changed(open.reducer.slot);
            }
        }
    }
}

/// A receiving host during Algorithm 2: connections open and close at once.
///
/// Algorithm 2 is O(m) if no connection opens or closes, and O(coflows) if a reducer without priority may get one more.
struct ReceivingHostTurn<'a, 'v> {
    django: &'a mut Django,
    turn: HostTurn,
    reducers: &'a ReducerOrder,
    view: &'a View<'v, SizesKnown>,
}

impl ReceivingHostTurn<'_, '_> {
    fn host(&self) -> &ReceivingHost {
        &self.django.hosts[self.turn.port as usize]
    }

    /// The first reducer: the order of release of its coflow, and its number.
    fn first_reducer_key(&self) -> (u64, u32) {
        let Reducer { slot, number } = self.turn.first_reducer;
        (self.view.coflow(slot).seq, number)
    }
}

impl HostReducers for ReceivingHostTurn<'_, '_> {
    fn free_connections(&self) -> usize {
        self.django.max_connections.saturating_sub(self.host().open_connections.len())
    }

    fn is_prioritized_unchanged(&self) -> bool {
        self.host().prioritized == Some(self.first_reducer_key())
    }

    fn downlink(&self) -> Downlink {
        self.django.tracker.downlink(self.turn.port as usize)
    }

    fn add_to_other(&mut self, max_count: f64) -> bool {
        self.django.connect_unprioritized(self.turn, max_count, self.reducers, self.view)
    }

    fn preempt(&mut self, count: usize) -> usize {
        let first = self.first_reducer_key();
        let before = self.django.hosts[self.turn.port as usize].prioritized.replace(first);
        self.django.close_connections(self.turn, before, count, self.reducers, self.view)
    }

    fn prioritized_connections(&self) -> usize {
        self.host().connections_of(self.turn.first_reducer)
    }

    fn add_to_prioritized(&mut self, count: usize) {
        let (port, first) = (self.turn.port as usize, self.turn.first_reducer);
        self.django.open_connections(port, first, count, true, self.view);
    }
}

impl Policy for Django {
    type Knowledge = SizesKnown;

    fn trunk_support(&self) -> TrunkSupport {
        TrunkSupport::DecidesAtPorts
    }

    fn timing(&self) -> Timing {
        Timing {
            start: Reaction::AtInterval,
            completion: Reaction::AtOnce,
            at_interval: "new connections",
            source: "sections 3 and 5.1: open connections are TCP, the tracker and the hosts decide periodically",
        }
    }

    /// O(1). For a coflow that completes or gets other flows, O(its ports x m), because the numbers of its flows
    /// change.
    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesKnown>) {
        match event {
            Event::CoflowReleased(slot) | Event::FlowLive(slot, _) => self.reducers.mark_changed(slot),
            Event::FlowInterrupted(slot, flow) | Event::FlowCompleted(slot, flow) => {
                self.reducers.mark_changed(slot);
                self.hosts_with_completions.insert(view.coflow(slot).flow_ports(flow).1 as usize);
            }
            Event::CoflowCompleted(slot) => {
                for &port in view.coflow(slot).receiving_ports() {
                    if let Some(host) = self.hosts.get_mut(port as usize) {
                        host.open_connections.retain(|open| open.reducer.slot != slot);
                    }
                }
            }
            Event::CapacityChanged => {}
        }
    }

    /// O(n log m + C log C + C P / 64 + P log P) for n connections, C coflows and P ports, and the ports of the
    /// coflows that sent bytes. In addition, for each host that opens connections, the senders of the coflows that
    /// may get them; the cost of the solver; and the flows of coflows with separate reducers to each host that considers them.
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        self.connections_changed = false;
        let mut reducers = std::mem::take(&mut self.reducers);
        self.update_state(view, &mut reducers);
        for &turn in reducers.host_turns() {
            let (params, max_connections) = (self.params, self.max_connections);
            let mut host = ReceivingHostTurn { django: self, turn, reducers: &reducers, view };
            divide_connections(&params, max_connections, &mut host);
        }
        self.assign_rates(&mut reducers, out);
        self.reducers = reducers;
    }

    /// Open connections share the links; O(n log m) and the cost of the solver.
    fn reassign(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        let mut reducers = std::mem::take(&mut self.reducers);
        self.update_state(view, &mut reducers);
        self.assign_rates(&mut reducers, out);
        self.reducers = reducers;
    }

    /// The current time while connections change, so that the next schedule follows at once: Algorithm 2 gives
    /// reducers without priority one connection per schedule.
    fn next_wakeup(&mut self, view: &mut View<'_, SizesKnown>, _: &Allocation) -> f64 {
        if self.connections_changed { view.now() } else { f64::INFINITY }
    }
}
