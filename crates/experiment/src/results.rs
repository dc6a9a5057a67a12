//! The results of replays that the outputs describe.

use weir_sim::Outcome;

use crate::network::Network;
use crate::source::Source;

/// Coflows, a network, and the outcome of each policy.
pub struct Results<'a> {
    /// The coflows.
    pub source: &'a Source,
    /// The network.
    pub network: &'a Network,
    /// The policies.
    pub policies: &'a [String],
    /// By policy: the outcome.
    pub outcomes: &'a [Outcome],
    /// By job of a file: the duration alone, in seconds; none if the job cannot complete.
    pub alone: &'a [Option<f64>],
}

impl<'a> Results<'a> {
    /// The policies and their outcomes.
    pub fn by_policy(&self) -> impl Iterator<Item = (&'a String, &'a Outcome)> {
        self.policies.iter().zip(self.outcomes)
    }
}
