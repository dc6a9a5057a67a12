//! Keys of coflows that some policies use and others ignore.

use super::Workload;

/// A key of coflows in traces that only some policies use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoflowKey {
    /// The importance.
    Weight,
    /// The latest completion.
    Deadline,
    /// The service.
    Service,
    /// The application inside its service.
    Application,
}

impl CoflowKey {
    /// All keys.
    pub const ALL: [CoflowKey; 4] =
        [CoflowKey::Weight, CoflowKey::Deadline, CoflowKey::Service, CoflowKey::Application];

    /// The key in traces.
    pub fn name(self) -> &'static str {
        match self {
            CoflowKey::Weight => "weight",
            CoflowKey::Deadline => "deadline",
            CoflowKey::Service => "service",
            CoflowKey::Application => "application",
        }
    }
}

impl Workload {
    /// Whether coflows differ in this key, so that a policy that uses the key can decide differently.
    pub fn differs_in(&self, key: CoflowKey) -> bool {
        match key {
            CoflowKey::Weight => self.coflows.windows(2).any(|pair| pair[0].weight != pair[1].weight),
            CoflowKey::Deadline => self.coflows.iter().any(|coflow| coflow.deadline.is_some()),
            CoflowKey::Service => self.names.services() > 1,
            CoflowKey::Application => self.names.application_count() > self.names.services(),
        }
    }
}
