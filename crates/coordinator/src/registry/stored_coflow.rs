//! The record of a coflow in the store.

use serde::{Deserialize, Serialize};

use super::{CoflowBody, FlowBody};

/// A coflow in the store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredCoflow {
    /// The generation of its registration; 1 in records without a generation, which Weir 0.1 wrote. Generations of this version are higher.
    #[serde(default = "generation_of_old_records")]
    generation: u64,
    service: Option<String>,
    application: Option<String>,
    weight: Option<f64>,
    deadline: Option<String>,
    flows: Vec<FlowBody>,
}

fn generation_of_old_records() -> u64 {
    1
}

impl StoredCoflow {
    pub(super) fn new(generation: u64, body: CoflowBody) -> StoredCoflow {
        let CoflowBody { service, application, weight, deadline, flows } = body;
        StoredCoflow { generation, service, application, weight, deadline, flows }
    }

    /// The generation of its registration, and its last registration or update.
    pub(super) fn into_parts(self) -> (u64, CoflowBody) {
        let StoredCoflow { generation, service, application, weight, deadline, flows } = self;
        (generation, CoflowBody { service, application, weight, deadline, flows })
    }
}
