//! Counters of rejected report entries.

/// Number of rejected report entries, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectedEntries {
    /// Flows that are not registered.
    pub unknown: u64,
    /// Flows that another host sends, UDP measurements of another host's addresses, and UDP measurements or observed
    /// connections reported by a switch.
    pub foreign: u64,
    /// Bytes sent that are lower than in the report before.
    pub backward: u64,
    /// Bytes and rates above the capacity of the host's link.
    pub beyond: u64,
    /// Entries of a host number that does not exist.
    pub absent: u64,
    /// Observed connections, demands and UDP measurements beyond the maximum per host or in all.
    pub crowded: u64,
}
