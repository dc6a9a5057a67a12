//! Computes the order of ports by pairwise comparison.

use weir_core::model::Workload;

/// Position of each port in the order of a replay. The next port is the first used among the remaining ports
/// that no other remaining port must precede, or among all remaining ports if each has a predecessor.
pub fn port_positions(workload: &Workload) -> Vec<usize> {
    let count = workload.ports as usize;
    let mut arrivals: Vec<_> = workload.coflows.iter().collect();
    arrivals.sort_by(|a, b| a.arrival.get().total_cmp(&b.arrival.get()));
    let mut precedes = vec![vec![false; count]; count];
    let mut ports_by_first_use = Vec::new();
    for coflow in arrivals {
        let sides = [0, 1].map(|side| coflow.flows.iter().map(move |f| [f.src, f.dst][side] as usize));
        for side in sides {
            let mut listed: Vec<usize> = Vec::new();
            for port in side {
                if !listed.contains(&port) {
                    listed.iter().for_each(|&before| precedes[before][port] = true);
                    listed.push(port);
                }
            }
        }
        ports_by_first_use.extend(coflow.flows.iter().flat_map(|f| [f.src as usize, f.dst as usize]));
    }
    ports_by_first_use.extend(0..count);
    let mut remaining = Vec::new();
    for port in ports_by_first_use {
        if !remaining.contains(&port) {
            remaining.push(port);
        }
    }
    let mut positions = vec![0; count];
    for position in 0..count {
        let ready =
            remaining.iter().position(|&port| remaining.iter().all(|&before| !precedes[before][port]));
        positions[remaining.remove(ready.unwrap_or(0))] = position;
    }
    positions
}
