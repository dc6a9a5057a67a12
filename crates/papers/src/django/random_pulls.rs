//! Random pulls with a maximum number of connections for each host: the motivating experiment of Fig. 2 (2.3), without Django.
//!
//! Each host divides its connections evenly among its reducers: "the total connection resources at each host is uniformly
//! distributed to each reducer. Each reducer will randomly choose some hosts to connect and pull the output data of mappers."
//! The first reducers of a host get one more connection each if the division has a remainder, and every reducer has at least one
//! connection. When a pull completes, the reducer chooses the next sender at random. Senders and receivers share max-min, as TCP
//! does.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::allocation::{Allocation, Rule};
use weir_core::model::{FlowState, SizesUnknown, View};
use weir_core::policy::{Policy, Timing, TrunkSupport};
use weir_core::solve::connections::{Connection, ConnectionSolver};

/// A reducer, in a workload of one coflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reducer {
    /// The maximum number of its connections.
    pub max_connections: usize,
    /// Its flows, by their numbers in the coflow, in the random order in which it pulls.
    pub flows: Vec<u32>,
}

/// The policy of one coflow whose reducers pull from senders in a random order.
pub struct RandomPulls {
    /// The number of connections of a host.
    max_connections: usize,
    seed: u64,
    /// Empty before the first schedule.
    reducers: Vec<Reducer>,
    solver: ConnectionSolver,
    open_flows: Vec<u32>,
    connections: Vec<Connection>,
    rates: Vec<f64>,
}

impl RandomPulls {
    /// A host has `max_connections` connections. The seed draws the order of pulls.
    pub fn new(max_connections: usize, seed: u64) -> RandomPulls {
        RandomPulls {
            max_connections,
            seed,
            reducers: Vec::new(),
            solver: ConnectionSolver::default(),
            open_flows: Vec::new(),
            connections: Vec::new(),
            rates: Vec::new(),
        }
    }
}

/// A flow of the coflow.
#[derive(Debug, Clone, Copy)]
pub struct PulledFlow {
    /// Its number in the coflow.
    pub number: u32,
    /// The receiving host.
    pub host: u32,
    /// Its reducer among those of the host.
    pub reducer: u32,
}

/// Finds the reducers of the coflow, host by host, and draws the order in which each pulls. A host has `max_connections` connections. O(n
/// log n) for n flows.
pub fn draw_reducers(
    flows: impl Iterator<Item = PulledFlow>,
    max_connections: usize,
    seed: u64,
) -> Vec<Reducer> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // The first stream of the seed draws the sizes.
    random.set_stream(1);
    let mut hosts: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    for PulledFlow { number, host, reducer } in flows {
        hosts.entry(host).or_default().entry(reducer).or_default().push(number);
    }
    let mut drawn = Vec::new();
    for reducers in hosts.into_values() {
        let shares = divide_connections(max_connections, reducers.len());
        for (mut flows, max_connections) in reducers.into_values().zip(shares) {
            shuffle(&mut flows, &mut random);
            drawn.push(Reducer { max_connections, flows });
        }
    }
    drawn
}

/// The number of connections of each of a host's reducers.
fn divide_connections(max_connections: usize, reducers: usize) -> impl Iterator<Item = usize> {
    let remainder = max_connections % reducers.max(1);
    (0..reducers).map(move |number| (max_connections / reducers + usize::from(number < remainder)).max(1))
}

/// Shuffles by Fisher and Yates.
fn shuffle(flows: &mut [u32], random: &mut ChaCha8Rng) {
    for last in (1..flows.len()).rev() {
        let other = random.next_u64() % (last as u64 + 1);
        flows.swap(last, other as usize);
    }
}

impl Policy for RandomPulls {
    type Knowledge = SizesUnknown;

    fn trunk_support(&self) -> TrunkSupport {
        TrunkSupport::DecidesAtPorts
    }

    fn timing(&self) -> Timing {
        Timing::local("2.3: each reducer chooses hosts; open connections are TCP")
    }

    /// A reducer's connections are those of its first live flows: a flow that has a connection keeps it until it completes, and then
    /// the next flow in the order follows. O(flows) and the cost of the solver.
    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        let Some(&slot) = view.active_coflows().first() else { return };
        let coflow = view.coflow(slot);
        if self.reducers.is_empty() {
            let flow = |number| {
                let (_, host) = coflow.flow_ports(number);
                PulledFlow { number, host, reducer: coflow.reducer(number) }
            };
            let flows = (0..coflow.width() as u32).map(flow);
            self.reducers = draw_reducers(flows, self.max_connections, self.seed);
        }
        self.open_flows.clear();
        for Reducer { max_connections, flows } in &self.reducers {
            let live = flows.iter().copied().filter(|&flow| coflow.flow_state(flow) == FlowState::Live);
            self.open_flows.extend(live.take(*max_connections));
        }
        self.connections.clear();
        self.connections.extend(self.open_flows.iter().map(|&flow| {
            let (src, dst) = coflow.flow_ports(flow);
            Connection { src, dst, rank: 0 }
        }));
        let send: Vec<f64> = view.fabric().send_capacities().collect();
        let recv: Vec<f64> = view.fabric().recv_capacities().collect();
        self.solver.compute_rates(&send, &recv, &self.connections, &mut self.rates);
        out.set_rule(slot, Rule::Connections);
        for (&flow, &rate) in self.open_flows.iter().zip(&self.rates).filter(|&(_, &rate)| rate > 0.0) {
            out.add_flow_rate(slot, flow, rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
    use weir_core::policy::AnyPolicy;
    use weir_core::units::{Bytes, Rate, Time};
    use weir_sim::{NoObserver, Observer, ReplayOptions, Snapshot, replay};

    use super::*;

    /// Four senders (ports 0 to 3), and two reducers at port 4 that fetch one byte from each.
    fn workload() -> Workload {
        let flow = |src, reducer| FlowSpec { reducer, ..FlowSpec::new(src, 4, Bytes::new(1.0).unwrap()) };
        let flows = (0..2).flat_map(|reducer| (0..4).map(move |src| flow(src, reducer))).collect();
        let coflows = vec![CoflowSpec::new(1, Time::ZERO, flows)];
        Workload { ports: 5, coflows, events: Vec::new(), names: ServiceNames::default() }
    }

    /// The senders of the open flows of each reducer at every schedule.
    #[derive(Default)]
    struct OpenFlows(Vec<[Vec<u32>; 2]>);

    impl Observer for OpenFlows {
        fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
            let mut senders = [Vec::new(), Vec::new()];
            for rated in snapshot.allocation().flow_rates() {
                let coflow = snapshot.coflow(rated.slot);
                let (src, _) = coflow.flow_ports(rated.flow);
                senders[coflow.reducer(rated.flow) as usize].push(src);
            }
            self.0.push(senders);
            true
        }
    }

    fn observe(max_connections: usize, seed: u64) -> (f64, Vec<[Vec<u32>; 2]>) {
        let options = ReplayOptions { port_rate: Rate::new(1.0).unwrap(), ..ReplayOptions::default() };
        let mut open = OpenFlows::default();
        let policy = AnyPolicy::from(RandomPulls::new(max_connections, seed));
        let outcome = replay(&workload(), policy, &options, &mut open).unwrap();
        (outcome.ccts()[0], open.0)
    }

    #[test]
    fn first_reducers_get_the_remainder_and_each_has_a_connection() {
        let divide = |connections| divide_connections(connections, 4).collect::<Vec<usize>>();
        assert_eq!(divide(11), [3, 3, 3, 2]);
        assert_eq!(divide(4), [1, 1, 1, 1]);
        assert_eq!(divide(1), [1, 1, 1, 1]);
    }

    #[test]
    fn reducers_keep_their_number_of_connections_until_their_last_pulls() {
        // Three connections: two for the first reducer, one for the second. The port receives one byte per second.
        let (cct, schedules) = observe(3, 1);
        assert!((cct - 8.0).abs() < 1e-9, "{cct}");
        assert_eq!(schedules[0].clone().map(|open| open.len()), [2, 1]);
        assert!(schedules.iter().all(|[first, second]| first.len() <= 2 && second.len() <= 1));
        // Flows of equal size and rate complete in rounds: three at 3 s, three at 6 s, and one at 7 s and at 8 s.
        let last = schedules.iter().rev().find(|open| open.iter().any(|flows| !flows.is_empty()));
        assert_eq!(last.unwrap().clone().map(|open| open.len()), [0, 1]);
    }

    #[test]
    fn order_of_pulls_follows_the_seed() {
        let first = |seed| observe(2, seed).1[0].clone();
        assert_eq!(first(1), first(1));
        assert!((2..20).any(|seed| first(seed) != first(1)));
    }

    #[test]
    fn without_a_tight_limit_the_rates_are_those_of_fair_sharing() {
        let options = ReplayOptions { port_rate: Rate::new(1.0).unwrap(), ..ReplayOptions::default() };
        let fair = weir_core::policy::build("fair").unwrap();
        let fair = replay(&workload(), fair, &options, &mut NoObserver).unwrap().ccts();
        assert!((observe(8, 1).0 - fair[0]).abs() < 1e-9);
    }
}
