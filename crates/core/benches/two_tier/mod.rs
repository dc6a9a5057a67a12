//! Flows over a fabric of 16 cores and 128 edges, and a reference solver.

/// Number of core switches; every edge has an uplink and a downlink to each.
const CORES: u64 = 16;
/// Number of edge switches, where flows start and end.
const EDGES: u64 = 128;

/// The links of a flow: from its edge up to a core, and from there down to its other edge.
pub type Route = [u32; 2];

/// A network and its flows.
pub struct Instance {
    /// Capacity of each link, in bytes per second.
    pub capacities: Vec<f64>,
    /// Route of each flow.
    pub routes: Vec<Route>,
}

impl Instance {
    /// Creates `flows` flows between edges, each over a hashed core. Some edges receive more than others, so
    /// the shares differ.
    pub fn new(flows: usize) -> Instance {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: u64| {
            // SplitMix64: equal flows on every machine.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((u128::from(z ^ (z >> 31)) * u128::from(bound)) >> 64) as u64
        };
        let routes = (0..flows).map(|_| {
            let (from, core) = (below(EDGES), below(CORES));
            let to = below(EDGES).min(below(EDGES));
            [(from * CORES + core) as u32, (EDGES * CORES + core * EDGES + to) as u32]
        });
        Instance { routes: routes.collect(), capacities: vec![1.25e9; (2 * EDGES * CORES) as usize] }
    }

    /// Distinct routes, with the number of flows on each.
    pub fn classes(&self) -> Vec<(Route, f64)> {
        let mut routes = self.routes.clone();
        routes.sort_unstable();
        let mut classes: Vec<(Route, f64)> = Vec::new();
        for route in routes {
            match classes.last_mut() {
                Some((last, flows)) if *last == route => *flows += 1.0,
                _ => classes.push((route, 1.0)),
            }
        }
        classes
    }

    /// Max-min fair rates by the textbook algorithm: find the link with the smallest share, fix its flows,
    /// repeat. O(links x (links + flows)).
    pub fn textbook_rates(&self) -> Vec<f64> {
        let mut left = self.capacities.clone();
        let mut unfixed_flows = vec![0.0; left.len()];
        for &link in self.routes.iter().flatten() {
            unfixed_flows[link as usize] += 1.0;
        }
        let mut rates = vec![0.0; self.routes.len()];
        let mut unfixed: Vec<u32> = (0..self.routes.len() as u32).collect();
        while !unfixed.is_empty() {
            let shares = (0..left.len()).filter(|&link| unfixed_flows[link] > 0.0);
            let shares = shares.map(|link| (left[link] / unfixed_flows[link], link));
            let Some((share, bottleneck)) = shares.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            unfixed.retain(|&flow| {
                let route = &self.routes[flow as usize];
                if !route.contains(&(bottleneck as u32)) {
                    return true;
                }
                rates[flow as usize] = share;
                for &link in route {
                    left[link as usize] -= share;
                    unfixed_flows[link as usize] -= 1.0;
                }
                false
            });
        }
        rates
    }
}
