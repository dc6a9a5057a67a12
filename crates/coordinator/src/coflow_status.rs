//! The state of a coflow that clients see, of hosts or between regions.

use serde::Serialize;
use utoipa::ToSchema;

use crate::control_plane::PauseMode;

/// Whether a coflow is active, or how it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Some of its bytes have not arrived.
    Active,
    /// All of its flows have completed.
    Completed,
    /// Only between regions: it lost a relay, and had no open flow for 5 minutes.
    Abandoned,
    /// Only between regions: its owner deregistered it with a reason.
    Failed,
}

impl Phase {
    /// Whether the coflow has ended without a failure.
    pub fn is_completed_or_abandoned(self) -> bool {
        matches!(self, Phase::Completed | Phase::Abandoned)
    }
}

/// A coflow in a list of coflows.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CoflowSummary {
    /// Its id.
    pub id: String,
    /// The service that it belongs to.
    pub service: String,
    /// The application of that service.
    pub application: String,
    /// Whether it is active, or how it has ended.
    pub state: Phase,
    /// Number of flows.
    #[serde(rename = "flows")]
    pub flow_count: usize,
    /// Number of completed flows.
    #[serde(rename = "done")]
    pub completed_flow_count: usize,
    /// Bytes sent, summed over all flows.
    pub sent_bytes: f64,
    /// Its class in the last schedule, from 0; `null` after completion, and for a coflow between regions.
    pub class: Option<usize>,
    /// `paused` if one of its flows is paused, else `shadow` if one is in shadow mode; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseMode>,
    /// What only a coflow between regions has.
    #[serde(flatten)]
    pub wide_area: WideAreaFields,
}

/// What only a coflow between regions has; absent for other coflows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct WideAreaFields {
    /// The estimate of the first decision after the last update before the first byte: seconds from the registration, at median
    /// bandwidth and without later coflows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_seconds: Option<f64>,
    /// The measured seconds from the registration to the completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_seconds: Option<f64>,
    /// Bytes that relays sent on a detour, resent ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detoured_bytes: Option<u64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
