//! Tests of the simulator: one module per component.

mod bssi;
mod cables;
#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod common;
mod demands;
mod explanations;
mod host_service;
mod incast;
mod jobs;
mod link_use;
mod own_policies;
mod papers;
#[path = "../../benches/naive/ports.rs"]
mod ports;
mod properties;
#[path = "../../../trace/tests/all/public_trace.rs"]
mod public_trace;
mod reference_simulator;
mod regions;
mod regions_tree;
mod regressions;
mod service;
mod service_demands;
mod service_events;
mod service_guarantees;
mod service_ports;
mod single_flows;
mod small_workloads;
mod spare_capacity;
mod stall;
mod timing;
mod transfer_limit;
mod tree;
mod trunks;
mod unused_keys;
