//! The local scheduler (Algorithm 2): divides the connections of a receiving host among its reducers.

use super::Params;

/// The reducers of a host, as the local scheduler sees them. The first one in the order of line 1 becomes prioritized.
pub(crate) trait HostReducers {
    /// The number of connections that no reducer has.
    fn free_connections(&self) -> usize;

    /// Whether the first reducer was the prioritized one in the last schedule.
    fn is_prioritized_unchanged(&self) -> bool;

    /// The capacity of the downlink and its residual capacity, in the same unit.
    fn downlink(&self) -> Downlink;

    /// Gives a connection to the first of the other reducers that can use one and has at most `max_count`. Returns whether one
    /// got it.
    fn add_to_other(&mut self, max_count: f64) -> bool;

    /// Makes the first reducer prioritized, and takes up to `count` connections from the others: from the reducer that was
    /// prioritized before, and then from the last in the order. Returns the number taken.
    fn preempt(&mut self, count: usize) -> usize;

    /// The number of connections of the first reducer.
    fn prioritized_connections(&self) -> usize;

    /// Gives the first reducer up to `count` more connections.
    fn add_to_prioritized(&mut self, count: usize);
}

/// The link from the network to a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Downlink {
    pub capacity: f64,
    pub vacant: f64,
}

impl Downlink {
    /// Whether more than this fraction of the link is residual.
    pub(crate) fn has_vacant(self, fraction: f64) -> bool {
        self.vacant > fraction * self.capacity
    }
}

/// Runs Algorithm 2 for a host with `max_connections` connections.
pub(crate) fn divide_connections(params: &Params, max_connections: usize, host: &mut impl HostReducers) {
    let mut free = host.free_connections();
    let reserved = params.reserved_connections(max_connections);
    if host.is_prioritized_unchanged() {
        // Lines 4 to 6.
        let may_add = host.downlink().has_vacant(params.alpha) && free > 0;
        if may_add && host.add_to_other(params.eta * free as f64) {
            free -= 1;
        }
    } else {
        // Lines 8 to 14.
        free += host.preempt(reserved.saturating_sub(free));
    }
    // Line 15.
    let missing = reserved.saturating_sub(host.prioritized_connections());
    host.add_to_prioritized(missing.min(free));
}
