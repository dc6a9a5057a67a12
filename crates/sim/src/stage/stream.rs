//! Flows of jobs on a network with paths.

/// Flows of a job that go the same ways and are equally long.
pub(super) struct Stream {
    pub(super) job: usize,
    pub(super) ports: Vec<u32>,
    /// How many cross each of the ports, where that is the same number everywhere.
    pub(super) flows: f64,
    /// What is left of each.
    pub(super) left: f64,
    pub(super) rate: f64,
}
