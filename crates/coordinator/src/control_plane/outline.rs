//! Describes a coflow without its list of flows.

use serde::Serialize;

use super::Registration;

/// A coflow without its list of flows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoflowOutline {
    /// The service that it belongs to.
    pub service: String,
    /// An application of that service.
    pub application: String,
    /// Its weight; absent between regions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Time after its registration by which it has to complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Number of flows.
    pub flows: usize,
    /// Sum of the sizes of its flows; `None` if one of them is unknown.
    pub bytes: Option<u64>,
}

impl CoflowOutline {
    /// The same coflow with flows of these sizes.
    pub fn with_flows(self, sizes: impl ExactSizeIterator<Item = Option<u64>>) -> CoflowOutline {
        let flows = sizes.len();
        let mut sizes = sizes;
        let bytes = sizes.try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)));
        CoflowOutline { flows, bytes, ..self }
    }
}

impl From<&Registration> for CoflowOutline {
    fn from(registration: &Registration) -> CoflowOutline {
        let outline = CoflowOutline {
            service: registration.service.clone(),
            application: registration.application.clone(),
            weight: Some(registration.weight),
            deadline: registration.deadline.map(|deadline| deadline.to_string()),
            flows: 0,
            bytes: None,
        };
        let size = |flow: &super::Transfer| flow.bytes.map(|bytes| bytes.get() as u64);
        outline.with_flows(registration.flows.iter().map(size))
    }
}
