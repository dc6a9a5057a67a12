//! Computes the capacity from one half of the hosts to the other: a maximum flow, by Dinic's algorithm.

use weir_core::model::{NodeId, Topology};

/// An edge of the residual network.
struct Edge {
    to: usize,
    left: f64,
}

/// Edges, each followed by its reverse, and the edges of each node.
struct Graph {
    edges: Vec<Edge>,
    of: Vec<Vec<u32>>,
}

/// The maximum number of steps of the search.
const MAX_STEPS: u64 = 1_000_000_000;

/// Residuals up to this fraction of the augmenting flow are rounding.
const ROUNDING: f64 = 1e-12;

/// The capacity from the first half of the hosts (the smaller, if their number is odd) to the other half, in bytes per
/// second; none if the search takes too many steps.
pub(super) fn between_halves(topology: &Topology) -> Option<f64> {
    let hosts = topology.hosts();
    let switches = topology.nodes() - hosts;
    let (source, sink) = (switches, switches + 1);
    // Hosts do not forward, so their links are modelled as capacity of their switches.
    let (mut sends, mut receives) = (vec![0.0; switches], vec![0.0; switches]);
    for host in 0..hosts {
        for &link in topology.out(NodeId(host as u32)) {
            let link = topology.link(link);
            let side = if host < hosts / 2 { &mut sends } else { &mut receives };
            side[link.to.index() - hosts] += link.rate.get();
        }
    }
    let mut graph = Graph { edges: Vec::new(), of: (0..switches + 2).map(|_| Vec::new()).collect() };
    for switch in 0..switches {
        graph.add(source, switch, sends[switch], 0.0);
        graph.add(switch, sink, receives[switch], 0.0);
    }
    for link in topology.links().iter().step_by(2) {
        if let (Some(a), Some(b)) = (link.from.index().checked_sub(hosts), link.to.index().checked_sub(hosts))
        {
            // The two links of the cable are each other's reverse.
            graph.add(a, b, link.rate.get(), link.rate.get());
        }
    }
    graph.flow(source, sink)
}

impl Graph {
    fn add(&mut self, from: usize, to: usize, there: f64, back: f64) {
        if there > 0.0 || back > 0.0 {
            self.of[from].push(self.edges.len() as u32);
            self.edges.push(Edge { to, left: there });
            self.of[to].push(self.edges.len() as u32);
            self.edges.push(Edge { to: from, left: back });
        }
    }

    fn flow(&mut self, source: usize, sink: usize) -> Option<f64> {
        let mut steps = 0u64;
        let mut flow = 0.0;
        loop {
            let far = self.distances(source, &mut steps);
            if far[sink] == u32::MAX {
                return Some(flow);
            }
            // Depth-first search for augmenting paths by increasing distance; each node tries each edge once.
            let mut next = vec![0usize; self.of.len()];
            let mut path: Vec<u32> = Vec::new();
            loop {
                steps += 1;
                if steps > MAX_STEPS {
                    return None;
                }
                let node = path.last().map_or(source, |&edge| self.edges[edge as usize].to);
                if node == sink {
                    let left = |edge: &u32| self.edges[*edge as usize].left;
                    let most = path.iter().map(left).fold(f64::INFINITY, f64::min);
                    flow += most;
                    let mut first = path.len();
                    for (at, &edge) in path.iter().enumerate() {
                        let edge = edge as usize;
                        self.edges[edge].left -= most;
                        self.edges[edge ^ 1].left += most;
                        if self.edges[edge].left <= ROUNDING * most {
                            self.edges[edge].left = 0.0;
                            first = first.min(at);
                        }
                    }
                    path.truncate(first);
                } else if let Some(&edge) = self.of[node].get(next[node]) {
                    let Edge { to, left } = self.edges[edge as usize];
                    if left > 0.0 && far[to] == far[node] + 1 {
                        path.push(edge);
                    } else {
                        next[node] += 1;
                    }
                } else if let Some(edge) = path.pop() {
                    // Dead end: skip the edge that leads to this node.
                    next[self.edges[edge as usize ^ 1].to] += 1;
                } else {
                    break;
                }
            }
        }
    }

    fn distances(&self, source: usize, steps: &mut u64) -> Vec<u32> {
        let mut far = vec![u32::MAX; self.of.len()];
        let mut reached = vec![source];
        far[source] = 0;
        let mut at = 0;
        while let Some(&node) = reached.get(at) {
            at += 1;
            *steps += self.of[node].len() as u64;
            for &edge in &self.of[node] {
                let Edge { to, left } = self.edges[edge as usize];
                if left > 0.0 && far[to] == u32::MAX {
                    far[to] = far[node] + 1;
                    reached.push(to);
                }
            }
        }
        far
    }
}
