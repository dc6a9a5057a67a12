//! Django (JPDC '21, sections 3 and 4): receivers open connections, senders serve them by strict priority, and a tracker
//! chooses the senders. It decides over ports only.

use super::connections::{Connection, steady_rates};
use super::{FlowPhase, Policy, RATE_TOLERANCE, ReferenceSimulator, Variant};
use proptest::prelude::*;

/// A reducer of a host: its coflow, and its number there.
type Reducer = (usize, u32);

/// The parameters of the paper, with the number of connections of a host.
#[derive(Debug, Clone, Default)]
pub(super) struct DjangoParameters {
    connections: usize,
    alpha: f64,
    beta: f64,
    eta: f64,
    lambda: f64,
    theta: f64,
}

/// Receiving hosts, by port, and the residual capacity of links.
#[derive(Debug, Default)]
pub(super) struct DjangoState {
    parameters: DjangoParameters,
    /// Connections in the order in which they were opened.
    connections: Vec<Vec<Connection>>,
    /// The prioritized reducer at the last schedule.
    prioritized: Vec<Option<Reducer>>,
    residuals: Vec<f64>,
    /// Whether the last schedule opened or closed a connection.
    pub(super) has_changed: bool,
}

/// Compares numbers, the greatest first. Numbers that are equal except for rounding set `has_ties`.
fn descending(a: f64, b: f64, has_ties: &mut bool) -> std::cmp::Ordering {
    *has_ties |= a != b && (a - b).abs() < RATE_TOLERANCE;
    b.total_cmp(&a)
}

/// Subtracts a rate from the residual capacity of a link. The link is full if the rest is rounding.
fn subtract_rate(residuals: &mut [f64], links: &[f64], link: usize, rate: f64) {
    residuals[link] -= rate;
    if residuals[link] <= RATE_TOLERANCE * links[link] {
        residuals[link] = 0.0;
    }
}

impl ReferenceSimulator<'_> {
    fn remaining_bytes(&self, c: usize) -> f64 {
        self.coflows[c].live_flows().map(|f| f.size - f.sent_bytes).sum()
    }

    /// Coflows with live flows, by remaining bytes, then by release.
    fn shortest_coflows(&self) -> Vec<usize> {
        let mut order = self.active();
        order.retain(|&c| self.coflows[c].live_flows().count() > 0);
        order.sort_by(|&a, &b| self.remaining_bytes(a).total_cmp(&self.remaining_bytes(b)));
        order
    }

    /// The first coflow with a mapper at a sender (`link`).
    fn prioritized_mapper(&self, order: &[usize], link: usize) -> Option<usize> {
        order.iter().copied().find(|&c| self.coflows[c].live_count_over(link) > 0)
    }

    fn remaining_bytes_of_reducer(&self, (c, number): Reducer, link: usize) -> f64 {
        let flows = self.coflows[c].live_flows().filter(|f| (f.dst, f.reducer) == (link, number));
        flows.map(|f| f.size - f.sent_bytes).sum()
    }

    /// Algorithm 2, line 1: the reducers at a receiver (`link`), by the remaining bytes of their coflows, then by their own. Ties go
    /// to the first coflow, then to the lowest number.
    fn reducers(&self, order: &[usize], link: usize) -> Vec<Reducer> {
        let mut reducers: Vec<Reducer> = Vec::new();
        for &c in order {
            let mut numbers: Vec<u32> =
                self.coflows[c].live_flows().filter(|f| f.dst == link).map(|f| f.reducer).collect();
            numbers.sort();
            numbers.dedup();
            reducers.extend(numbers.iter().map(|&number| (c, number)));
        }
        let left = |reducer: Reducer| self.remaining_bytes_of_reducer(reducer, link);
        reducers.sort_by(|&a, &b| {
            let by_coflow = self.remaining_bytes(a.0).total_cmp(&self.remaining_bytes(b.0));
            by_coflow.then(left(a).total_cmp(&left(b)))
        });
        reducers
    }

    /// The reducer of a connection.
    fn reducer_of(&self, open: &Connection) -> Reducer {
        (open.coflow, self.coflows[open.coflow].flows[open.flow].reducer)
    }

    /// The number of connections of a reducer at a port.
    fn connection_count(&self, django: &DjangoState, port: usize, reducer: Reducer) -> usize {
        django.connections[port].iter().filter(|open| self.reducer_of(open) == reducer).count()
    }

    pub(super) fn schedule_django(&mut self, by_coordinator: bool, parameters: DjangoParameters) {
        let max_connections = parameters.connections;
        let ports = self.workload.ports as usize;
        let mut django = std::mem::take(&mut self.django);
        django.parameters = parameters;
        django.connections.resize_with(ports, Vec::new);
        django.prioritized.resize(ports, None);
        django.has_changed = false;
        let order = self.shortest_coflows();
        let positions = crate::ports::port_positions(self.workload);
        let mut hosts: Vec<usize> = (0..ports).collect();
        hosts.sort_by_key(|&port| positions[port]);
        self.close_ended_connections(&mut django, &hosts);
        let mut turns = Vec::new();
        for &port in &hosts {
            match self.reducers(&order, ports + port).first() {
                Some(&first) if self.links[ports + port] > 0.0 => {
                    let rank = order.iter().position(|&c| c == first.0).unwrap();
                    turns.push((rank, self.remaining_bytes_of_reducer(first, ports + port), port, first));
                }
                _ => django.prioritized[port] = None,
            }
        }
        turns.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for (_, _, port, first) in turns.into_iter().filter(|_| by_coordinator) {
            self.divide_connections(&mut django, max_connections, &order, port, first);
        }
        self.set_connection_rates(&mut django, &order, &hosts);
        self.django = django;
        self.limit_to_trunks();
    }

    /// Closes connections of flows that do not send any more or whose links are down, and subtracts the rates of the others
    /// from the capacities.
    fn close_ended_connections(&self, django: &mut DjangoState, hosts: &[usize]) {
        django.residuals = self.links.clone();
        for &port in hosts {
            django.connections[port].retain(|connection| {
                let flow = &self.coflows[connection.coflow].flows[connection.flow];
                flow.phase == FlowPhase::Live && self.links[flow.src] > 0.0 && self.links[flow.dst] > 0.0
            });
            for connection in &django.connections[port] {
                for link in [connection.src, connection.dst] {
                    subtract_rate(&mut django.residuals, &self.links, link, connection.rate);
                }
            }
        }
    }

    /// Whether more than this fraction of a link's capacity is residual.
    fn has_residual(&mut self, django: &DjangoState, link: usize, fraction: f64) -> bool {
        let excess = django.residuals[link] - fraction * self.links[link];
        self.has_ties |= excess.abs() < RATE_TOLERANCE;
        excess > 0.0
    }

    /// Algorithm 2: divides the connections of a receiver among its reducers.
    fn divide_connections(
        &mut self,
        django: &mut DjangoState,
        max_connections: usize,
        order: &[usize],
        port: usize,
        first: Reducer,
    ) {
        let link = self.workload.ports as usize + port;
        let reserved = ((django.parameters.beta * max_connections as f64).floor() as usize).max(1);
        let mut free = max_connections - django.connections[port].len();
        if django.prioritized[port] == Some(first) {
            let DjangoParameters { alpha, theta, .. } = django.parameters;
            if free > 0 && self.has_residual(django, link, alpha) && self.has_residual(django, link, theta) {
                for reducer in self.reducers(order, link).into_iter().skip(1) {
                    let count = self.connection_count(django, port, reducer);
                    if count as f64 <= django.parameters.eta * free as f64
                        && self.open_connection(django, max_connections, order, reducer, link, false)
                    {
                        free -= 1;
                        break;
                    }
                }
            }
        } else {
            let before = django.prioritized[port].replace(first);
            while free < reserved && self.close_connection(django, order, before, first, link) {
                free += 1;
            }
        }
        while self.connection_count(django, port, first) < reserved
            && free > 0
            && self.open_connection(django, max_connections, order, first, link, true)
        {
            free -= 1;
        }
    }

    /// Algorithm 3, lines 1 to 4: closes a connection of the reducer that was prioritized before, or else of the last reducer;
    /// of its connections the fastest. Returns whether it did.
    fn close_connection(
        &mut self,
        django: &mut DjangoState,
        order: &[usize],
        before: Option<Reducer>,
        first: Reducer,
        link: usize,
    ) -> bool {
        let connections = &django.connections[link - self.workload.ports as usize];
        let reducers = self.reducers(order, link);
        let rank = |reducer: Reducer| reducers.iter().position(|&other| other == reducer).unwrap();
        let key = |open: &Connection| {
            let reducer = self.reducer_of(open);
            (Some(reducer) != before, std::cmp::Reverse(rank(reducer)))
        };
        let mut candidates: Vec<usize> =
            (0..connections.len()).filter(|&at| self.reducer_of(&connections[at]) != first).collect();
        let mut has_ties = false;
        candidates.sort_by(|&a, &b| {
            let (a, b) = (&connections[a], &connections[b]);
            let by_reducer = key(a).cmp(&key(b));
            by_reducer.then_with(|| descending(a.rate, b.rate, &mut has_ties)).then(a.flow.cmp(&b.flow))
        });
        self.has_ties |= has_ties;
        let Some(&at) = candidates.first() else { return false };
        let closed = django.connections[link - self.workload.ports as usize].remove(at);
        for link in [closed.src, closed.dst] {
            django.residuals[link] = (django.residuals[link] + closed.rate).min(self.links[link]);
        }
        django.has_changed = true;
        true
    }

    /// Algorithm 3, lines 5 to 12: opens a connection of a reducer. Returns whether it did.
    fn open_connection(
        &mut self,
        django: &mut DjangoState,
        max_connections: usize,
        order: &[usize],
        (c, number): Reducer,
        link: usize,
        prioritized: bool,
    ) -> bool {
        if !prioritized && !self.has_residual(django, link, django.parameters.theta) {
            return false;
        }
        let connections = &django.connections[link - self.workload.ports as usize];
        let flows = &self.coflows[c].flows;
        let mut pending: Vec<usize> = (0..flows.len())
            .filter(|&f| {
                let is_open = connections.iter().any(|open| (open.coflow, open.flow) == (c, f));
                flows[f].phase == FlowPhase::Live
                    && (flows[f].dst, flows[f].reducer) == (link, number)
                    && self.links[flows[f].src] > 0.0
                    && !is_open
            })
            .collect();
        let senders: Vec<usize> = pending.iter().map(|&f| flows[f].src).collect();
        let mut has_ties = self.rounding_decides(django, &senders, link, prioritized);
        // Ties go to the flow with the most remaining bytes, then to the first one; all sorts are stable.
        let left = |f: usize| flows[f].size - flows[f].sent_bytes;
        pending.sort_by(|&a, &b| left(b).total_cmp(&left(a)));
        let vacant = |f: usize| django.residuals[flows[f].src];
        if prioritized {
            // Algorithm 4: the senders with the most bandwidth, where senders that prioritize the coflow have a bonus.
            let balanced = |f: usize| {
                let src = flows[f].src;
                let is_matched = self.prioritized_mapper(order, src) == Some(c);
                vacant(f) + if is_matched { django.parameters.lambda * self.links[src] } else { 0.0 }
            };
            pending.sort_by(|&a, &b| descending(balanced(a), balanced(b), &mut has_ties));
            pending.truncate(max_connections);
            pending.sort_by(|&a, &b| descending(vacant(a), vacant(b), &mut has_ties));
        } else {
            // From the sender on whose bandwidth is the nearest to the receiver's, those with less.
            pending.sort_by(|&a, &b| descending(vacant(a), vacant(b), &mut has_ties));
            let gap = |f: usize| (django.residuals[link] - vacant(f)).abs();
            let mut nearest = 0;
            for at in 1..pending.len() {
                if descending(gap(pending[nearest]), gap(pending[at]), &mut has_ties).is_lt() {
                    nearest = at;
                }
            }
            pending.drain(..nearest);
            pending.truncate((max_connections / 4).max(1));
            pending.sort_by(|&a, &b| left(b).total_cmp(&left(a)).then(a.cmp(&b)));
        }
        let Some(&f) = pending.first() else { return false };
        let src = flows[f].src;
        let rate = django.residuals[src].min(django.residuals[link]);
        for link in [src, link] {
            subtract_rate(&mut django.residuals, &self.links, link, rate);
        }
        let opened = Connection { coflow: c, flow: f, src, dst: link, rate };
        django.connections[link - self.workload.ports as usize].push(opened);
        django.has_changed = true;
        self.has_ties |= has_ties;
        true
    }

    /// Whether rounding decides between two of these senders for a receiver (`link`). Only the residual capacities of idle and full
    /// links are exact.
    fn rounding_decides(
        &self,
        django: &DjangoState,
        senders: &[usize],
        link: usize,
        prioritized: bool,
    ) -> bool {
        let left = |link: usize| django.residuals[link];
        let is_exact = |link: usize| left(link) == 0.0 || left(link) == self.links[link];
        let is_near = |a: f64, b: f64| (a - b).abs() < RATE_TOLERANCE;
        let gap = |src: usize| (left(link) - left(src)).abs();
        let is_tie = |a: usize, b: usize| {
            let equal_vacancy = is_near(left(a), left(b));
            (equal_vacancy && !(is_exact(a) && is_exact(b)))
                || (!prioritized && !equal_vacancy && is_near(gap(a), gap(b)) && !is_exact(link))
        };
        senders.iter().any(|&a| senders.iter().any(|&b| a != b && is_tie(a, b)))
    }

    /// The rates of all connections. Senders serve them in the order of coflows.
    fn set_connection_rates(&mut self, django: &mut DjangoState, order: &[usize], hosts: &[usize]) {
        let mut open: Vec<Connection> =
            hosts.iter().flat_map(|&port| django.connections[port].clone()).collect();
        let is_unique = steady_rates(&self.links, order, &mut open);
        self.has_ties |= !is_unique;
        let mut rates = open.into_iter();
        for &port in hosts {
            for connection in &mut django.connections[port] {
                connection.rate = rates.next().unwrap().rate;
                self.coflows[connection.coflow].flows[connection.flow].rate = connection.rate;
            }
        }
    }
}

pub(super) fn any_variants() -> impl Strategy<Value = Vec<Variant>> {
    let part = |values: [f64; 3]| prop::sample::select(values.to_vec());
    let parts = (part([0.1, 0.0, 0.5]), part([0.7, 0.3, 1.0]), part([0.5, 0.2, 1.0]));
    (1usize..6, parts, part([0.2, 0.0, 0.5]), part([0.0, 0.0, 0.3])).prop_map(
        |(connections, (alpha, beta, eta), lambda, theta)| {
            let name = format!(
                "django:connections={connections}:alpha={alpha}:beta={beta}:eta={eta}:lambda={lambda}:theta={theta}"
            );
            vec![(
                name,
                Policy::Django(DjangoParameters { connections, alpha, beta, eta, lambda, theta }),
            )]
        },
    )
}
