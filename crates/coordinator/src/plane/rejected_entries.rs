//! What is not believed of what hosts report.

/// How many parts of reports were not believed, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectedEntries {
    /// Flows that nobody registered.
    pub unknown: u64,
    /// Flows that another host sends, and what arrives at another host.
    pub foreign: u64,
    /// Counts that went back.
    pub backward: u64,
    /// Counts and rates beyond what the host's link carries.
    pub beyond: u64,
    /// Flows of hosts that are not there.
    pub absent: u64,
    /// Connections found beyond what is kept of a host, and rates beyond what one is told.
    pub crowded: u64,
}
