//! Past measurements of links: what a policy knows of bandwidth that it cannot see.

/// Measured bandwidths of links, as the time per byte. The present bandwidth is not part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkHistory {
    /// Seconds per byte by link, falling. At least one value for each link, above zero and finite.
    seconds_per_byte: Vec<Vec<f64>>,
}

impl LinkHistory {
    /// Creates the history of links with these measurements, in seconds per byte. Each link needs at least one value, and
    /// the values of a link must fall.
    pub(crate) fn new(seconds_per_byte: Vec<Vec<f64>>) -> LinkHistory {
        debug_assert!(seconds_per_byte.iter().all(|link| !link.is_empty()));
        LinkHistory { seconds_per_byte }
    }

    /// The history of links that always had these capacities, in bytes per second. A link without capacity counts as one
    /// of a byte per second.
    pub(crate) fn constant(capacities: &[f64]) -> LinkHistory {
        LinkHistory::new(capacities.iter().map(|capacity| vec![1.0 / capacity.max(1.0)]).collect())
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.seconds_per_byte.len()
    }

    /// Measured seconds per byte on a link, falling.
    pub fn seconds_per_byte(&self, link: u32) -> &[f64] {
        &self.seconds_per_byte[link as usize]
    }

    /// Seconds per byte on a link at the mean of its measured bandwidths. O(measurements).
    pub fn mean_seconds_per_byte(&self, link: u32) -> f64 {
        let slowness = self.seconds_per_byte(link);
        slowness.len() as f64 / slowness.iter().map(|seconds| 1.0 / seconds).sum::<f64>()
    }

    /// Median seconds per byte on a link. Of two middle values, the slower.
    pub fn median_seconds_per_byte(&self, link: u32) -> f64 {
        let slowness = self.seconds_per_byte(link);
        slowness[(slowness.len() - 1) / 2]
    }
}
