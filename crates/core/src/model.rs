//! Data types of the engine: the requested workload, and the current state of the network.

pub mod coflow;
pub mod fabric;
pub mod incast;
pub mod mask;
pub mod names;
pub mod network;
pub mod scenario;
pub mod topology;
pub mod trunks;
pub mod view;
pub mod wide_area;
pub mod workload;

pub use coflow::{Coflow, FlowState, PortLoad, Sharing};
pub use fabric::Fabric;
pub use incast::{Goodput, Incast, IncastError, IncastRun};
pub use mask::Mask;
pub use names::Names;
pub use network::{Ended, Network};
pub use scenario::{Scenario, ScenarioError};
pub use topology::{LinkId, NodeId, Plan, Routes, Topology, TopologyError};
pub use trunks::{Trunks, TrunksError};
pub use view::{Blind, Knowledge, Loads, Sizes, View};
pub use wide_area::{Past, WideArea, WideAreaError};
pub use workload::{Change, CoflowSpec, FlowSpec, Side, TimedEvent, Workload, WorkloadError};

/// The index of an active coflow. Reused after the coflow has completed.
pub type Slot = u32;
