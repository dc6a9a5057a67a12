//! Data types of workloads, networks and scenarios, and the state of the network that the engine schedules.

pub mod bit_set;
pub mod coflow;
mod coflow_key;
pub mod fabric;
pub mod incast;
pub mod link_budget;
pub mod link_history;
pub mod network;
pub mod scenario;
pub mod service_names;
pub mod stage;
pub mod topology;
pub mod trunks;
pub mod view;
pub mod wide_area;
pub mod workload;

pub use bit_set::BitSet;
pub(crate) use coflow::{CandidateFlows, LiveWord};
pub use coflow::{Coflow, CommonRateKind, FlowState, LinkLoad};
pub use coflow_key::CoflowKey;
pub use fabric::{Fabric, LinkKind};
pub use incast::{Goodput, Incast, IncastError, IncastRun};
pub use link_budget::LinkBudget;
pub use link_history::LinkHistory;
pub use network::{CompletedFlow, Network};
pub use scenario::{Scenario, ScenarioError};
pub use service_names::ServiceNames;
pub use stage::Stage;
pub use topology::{LinkId, NodeId, Routes, Topology, TopologyError, TopologyTemplate};
pub use trunks::{Trunks, TrunksError};
pub use view::{
    Knowledge, LentNetwork, RemainingLoads, SizesEstimated, SizesKnown, SizesOrEstimates, SizesUnknown,
    TotalsKnown, View,
};
pub use wide_area::{BandwidthHistory, WideArea, WideAreaError};
pub use workload::{CoflowSpec, FlowSpec, PortSide, TimedEvent, Workload, WorkloadChange, WorkloadError};

/// The index of an active coflow. Reused after the coflow has completed.
pub type Slot = u32;
