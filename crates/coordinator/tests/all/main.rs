//! Tests of the coordinator that do not measure rates.

mod agents;
mod allocator;
mod api;
mod audit;
mod bandwidth;
mod bandwidths;
#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod certificates;
#[path = "../../../core/tests/all/common.rs"]
mod common;
mod config;
mod contention;
#[cfg(target_os = "linux")]
mod control_plane;
mod control_thread;
#[path = "../../../trace/tests/all/error_cases.rs"]
mod error_cases;
mod expiry;
mod fabric;
mod flood;
mod flow_states;
#[cfg(target_os = "linux")]
mod full_disk;
mod joins;
mod links;
mod matching;
mod overlay;
mod pauses;
mod policies;
mod problems;
mod quotas;
mod relays;
mod reload;
mod reported_flows;
mod rest;
mod roles;
mod routing;
mod service_api;
#[cfg(target_os = "linux")]
mod simulation;
mod small_cluster;
mod store;
mod tls;
mod traffic;
mod workload;
