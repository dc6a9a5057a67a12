//! Numbers of flows by link and bottleneck.

use std::ops::Range;

/// By link and other link: the flows over the first that the second one limits.
#[derive(Debug, Clone)]
pub(crate) enum CrossingFlows {
    /// A number for each pair of links.
    Dense {
        links: usize,
        flows: Vec<f32>,
        /// By link: the other links between which all numbers above zero are. On one switch, that is one side of the ports.
        spans: Vec<Range<usize>>,
    },
    /// By link: the other links with flows, sorted.
    Sparse(Vec<Vec<(u32, f32)>>),
}

/// Maximum number of links of the dense form, which takes 1 MB there. Its rows are fast to add up, but have all links.
const MAX_DENSE_LINKS: usize = 512;

impl Default for CrossingFlows {
    fn default() -> CrossingFlows {
        CrossingFlows::Sparse(Vec::new())
    }
}

impl CrossingFlows {
    pub fn new(links: usize) -> CrossingFlows {
        if links <= MAX_DENSE_LINKS {
            CrossingFlows::Dense { links, flows: vec![0.0; links * links], spans: vec![0..0; links] }
        } else {
            CrossingFlows::Sparse(vec![Vec::new(); links])
        }
    }

    pub fn clear(&mut self) {
        match self {
            CrossingFlows::Dense { flows, spans, .. } => {
                flows.fill(0.0);
                spans.fill(0..0);
            }
            CrossingFlows::Sparse(rows) => rows.iter_mut().for_each(Vec::clear),
        }
    }

    /// Changes a number. Whole numbers up to 2^24 are exact.
    pub fn add(&mut self, link: usize, bottleneck: u32, change: f32) {
        match self {
            CrossingFlows::Dense { links, flows, spans } => {
                let bottleneck = bottleneck as usize;
                flows[link * *links + bottleneck] += change;
                let Range { start, end } = spans[link];
                spans[link] = match start < end {
                    true => start.min(bottleneck)..end.max(bottleneck + 1),
                    false => bottleneck..bottleneck + 1,
                };
            }
            CrossingFlows::Sparse(rows) => {
                let row = &mut rows[link];
                match row.binary_search_by_key(&bottleneck, |entry| entry.0) {
                    Ok(at) => {
                        row[at].1 += change;
                        if row[at].1 == 0.0 {
                            row.remove(at);
                        }
                    }
                    Err(at) => row.insert(at, (bottleneck, change)),
                }
            }
        }
    }

    /// Visits the links whose number is not 0. O(links), or O(those links) in the sparse form.
    pub fn visit(&self, link: usize, mut visit: impl FnMut(usize, f64)) {
        match self {
            CrossingFlows::Dense { links, flows, spans } => {
                let span = spans[link].clone();
                let flows = &flows[link * links..][span.clone()];
                for (other, &flows) in span.zip(flows).filter(|(_, flows)| **flows != 0.0) {
                    visit(other, f64::from(flows));
                }
            }
            CrossingFlows::Sparse(rows) => {
                rows[link].iter().for_each(|&(other, flows)| visit(other as usize, f64::from(flows)));
            }
        }
    }

    /// The flows over a link that another one limits.
    pub fn flows(&self, link: usize, bottleneck: u32) -> f32 {
        match self {
            CrossingFlows::Dense { links, flows, .. } => flows[link * links + bottleneck as usize],
            CrossingFlows::Sparse(rows) => {
                let found = rows[link].binary_search_by_key(&bottleneck, |entry| entry.0);
                found.map_or(0.0, |at| rows[link][at].1)
            }
        }
    }

    /// The capacity of a link that flows use whose bottlenecks have these levels. O(links), or O(bottlenecks of the link's
    /// flows) in the sparse form.
    pub fn used_capacity(&self, link: usize, levels: &[f64]) -> f64 {
        match self {
            CrossingFlows::Dense { links, flows, spans } => {
                // Sums with the same lanes for any span.
                let start = spans[link].start / 8 * 8;
                let end = spans[link].end.next_multiple_of(8).min(*links);
                dot(&flows[link * links + start..link * links + end], &levels[start..end])
            }
            CrossingFlows::Sparse(rows) => {
                rows[link].iter().map(|&(other, flows)| f64::from(flows) * levels[other as usize]).sum()
            }
        }
    }
}

/// The sum of products, in eight independent sums, so that additions do not wait for each other.
fn dot(flows: &[f32], levels: &[f64]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (flows8, levels8) = (flows.chunks_exact(8), levels.chunks_exact(8));
    let rest: f64 =
        flows8.remainder().iter().zip(levels8.remainder()).map(|(n, level)| f64::from(*n) * level).sum();
    for (flows, levels) in flows8.zip(levels8) {
        for lane in 0..8 {
            sums[lane] += f64::from(flows[lane]) * levels[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}
