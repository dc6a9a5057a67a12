//! Flows of jobs on a network with paths.

/// Flows of a job with the same paths and the same number of bytes.
pub(super) struct Stream {
    pub(super) job: usize,
    pub(super) ports: Vec<u32>,
    /// The number of flows over each of the ports, if all ports have the same number.
    pub(super) flows: f64,
    /// The remaining bytes of each flow.
    pub(super) left: f64,
    pub(super) rate: f64,
}
