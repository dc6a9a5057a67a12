//! Rates of flows in lockstep that links serve in strict order of ranks.

/// Flows in lockstep: all have the rate of the slowest.
#[derive(Debug, Clone, Copy)]
pub struct RankedGroup<'a> {
    /// Groups of higher ranks get the residual capacity.
    pub rank: u32,
    /// The links that the flows cross, each once, and their number at each, above 0.
    pub links: &'a [(u32, f64)],
}

/// The rate of each flow of each group, over links with these capacities. Groups of one rank share max-min between flows.
///
/// Each step fixes at least one group, and costs the links, and those of the groups that are not fixed yet.
pub fn ranked_rates(capacities: &[f64], groups: &[RankedGroup<'_>]) -> Vec<f64> {
    let mut left = capacities.to_vec();
    let mut rates = vec![0.0; groups.len()];
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&group| groups[group].rank);
    let mut flows = vec![0.0; capacities.len()];
    for same_rank in order.chunk_by(|&a, &b| groups[a].rank == groups[b].rank) {
        let mut open = same_rank.to_vec();
        while !open.is_empty() {
            flows.fill(0.0);
            for &(link, n) in open.iter().flat_map(|&group| groups[group].links) {
                flows[link as usize] += n;
            }
            let level = |link: usize| left[link].max(0.0) / flows[link];
            let loaded_links = (0..flows.len()).filter(|&link| flows[link] > 0.0);
            let Some(bottleneck) = loaded_links.min_by(|&a, &b| level(a).total_cmp(&level(b))) else { break };
            let rate = level(bottleneck);
            let crosses_bottleneck =
                |group: &usize| groups[*group].links.iter().any(|&(link, _)| link as usize == bottleneck);
            for group in open.extract_if(.., |group| crosses_bottleneck(group)) {
                rates[group] = rate;
                for &(link, n) in groups[group].links {
                    left[link as usize] -= n * rate;
                }
            }
        }
    }
    rates
}
