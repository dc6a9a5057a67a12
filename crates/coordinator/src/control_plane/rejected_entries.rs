//! Counts rejected report entries.

/// Number of rejected report entries, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectedEntries {
    /// Flows that are not registered.
    pub unknown_flow: u64,
    /// Flows of another registration of their coflow: it was removed, and its id registered again.
    pub former_generation: u64,
    /// Flows that another host sends, UDP measurements of another host's addresses, and UDP measurements or observed
    /// connections reported by a switch.
    pub foreign_flow: u64,
    /// Bytes sent that are lower than in an earlier report. They have no effect.
    pub decreasing: u64,
    /// Bytes and rates above the capacity of the host's link. They have no effect.
    pub above_link_rate: u64,
    /// Entries of a host number that does not exist.
    pub unknown_host: u64,
    /// Observed connections, demands and UDP measurements beyond the maximum per host or in total.
    pub too_many: u64,
}
