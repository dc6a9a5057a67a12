//! Computes the capacity from one half of the hosts to the other: a maximum flow, by Dinic's algorithm.

use weir_core::model::{NodeId, Topology};

/// An edge of the residual network.
struct Edge {
    to: usize,
    residual: f64,
}

/// Edges, each followed by its reverse, and the edges of each node.
struct Graph {
    edges: Vec<Edge>,
    edges_of_node: Vec<Vec<u32>>,
}

/// The maximum number of steps of the search.
const MAX_STEPS: u64 = 1_000_000_000;

/// Residuals up to this fraction of the augmenting flow are rounding.
const ROUNDING: f64 = 1e-12;

/// The capacity from the first half of the hosts (the smaller, if their number is odd) to the other half, in bytes per
/// second; none if the search takes too many steps.
pub(super) fn bisection_bytes_per_sec(topology: &Topology) -> Option<f64> {
    let hosts = topology.hosts();
    let switches = topology.nodes() - hosts;
    let (source, sink) = (switches, switches + 1);
    // Hosts do not forward, so their links are modelled as capacity of their switches.
    let (mut send_capacities, mut receive_capacities) = (vec![0.0; switches], vec![0.0; switches]);
    for host in 0..hosts {
        for &link in topology.outgoing_links(NodeId(host as u32)) {
            let link = topology.link(link);
            let capacities = if host < hosts / 2 { &mut send_capacities } else { &mut receive_capacities };
            capacities[link.to.index() - hosts] += link.rate.get();
        }
    }
    let mut graph =
        Graph { edges: Vec::new(), edges_of_node: (0..switches + 2).map(|_| Vec::new()).collect() };
    for switch in 0..switches {
        graph.add_edge(source, switch, send_capacities[switch], 0.0);
        graph.add_edge(switch, sink, receive_capacities[switch], 0.0);
    }
    for link in topology.links().iter().step_by(2) {
        if let (Some(a), Some(b)) = (link.from.index().checked_sub(hosts), link.to.index().checked_sub(hosts))
        {
            // The two links of the cable are each other's reverse.
            graph.add_edge(a, b, link.rate.get(), link.rate.get());
        }
    }
    graph.max_flow(source, sink)
}

impl Graph {
    fn add_edge(&mut self, from: usize, to: usize, capacity: f64, reverse_capacity: f64) {
        if capacity > 0.0 || reverse_capacity > 0.0 {
            self.edges_of_node[from].push(self.edges.len() as u32);
            self.edges.push(Edge { to, residual: capacity });
            self.edges_of_node[to].push(self.edges.len() as u32);
            self.edges.push(Edge { to: from, residual: reverse_capacity });
        }
    }

    fn max_flow(&mut self, source: usize, sink: usize) -> Option<f64> {
        let mut steps = 0u64;
        let mut flow = 0.0;
        loop {
            let distances = self.search_distances(source, &mut steps);
            if distances[sink] == u32::MAX {
                return Some(flow);
            }
            // Depth-first search for augmenting paths by increasing distance; each node tries each edge once.
            let mut next_edge = vec![0usize; self.edges_of_node.len()];
            let mut path: Vec<u32> = Vec::new();
            loop {
                steps += 1;
                if steps > MAX_STEPS {
                    return None;
                }
                let node = path.last().map_or(source, |&edge| self.edges[edge as usize].to);
                if node == sink {
                    let residual = |edge: &u32| self.edges[*edge as usize].residual;
                    let augmenting_flow = path.iter().map(residual).fold(f64::INFINITY, f64::min);
                    flow += augmenting_flow;
                    let mut first_saturated = path.len();
                    for (position, &edge) in path.iter().enumerate() {
                        let edge = edge as usize;
                        self.edges[edge].residual -= augmenting_flow;
                        self.edges[edge ^ 1].residual += augmenting_flow;
                        if self.edges[edge].residual <= ROUNDING * augmenting_flow {
                            self.edges[edge].residual = 0.0;
                            first_saturated = first_saturated.min(position);
                        }
                    }
                    path.truncate(first_saturated);
                } else if let Some(&edge) = self.edges_of_node[node].get(next_edge[node]) {
                    let Edge { to, residual } = self.edges[edge as usize];
                    if residual > 0.0 && distances[to] == distances[node] + 1 {
                        path.push(edge);
                    } else {
                        next_edge[node] += 1;
                    }
                } else if let Some(edge) = path.pop() {
                    // Dead end: skip the edge that leads to this node.
                    next_edge[self.edges[edge as usize ^ 1].to] += 1;
                } else {
                    break;
                }
            }
        }
    }

    fn search_distances(&self, source: usize, steps: &mut u64) -> Vec<u32> {
        let mut distances = vec![u32::MAX; self.edges_of_node.len()];
        let mut queue = vec![source];
        distances[source] = 0;
        let mut next = 0;
        while let Some(&node) = queue.get(next) {
            next += 1;
            *steps += self.edges_of_node[node].len() as u64;
            for &edge in &self.edges_of_node[node] {
                let Edge { to, residual } = self.edges[edge as usize];
                if residual > 0.0 && distances[to] == u32::MAX {
                    distances[to] = distances[node] + 1;
                    queue.push(to);
                }
            }
        }
        distances
    }
}
