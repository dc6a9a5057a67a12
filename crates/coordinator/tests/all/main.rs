//! Tests of the coordinator that measure no rates.

mod agents;
mod api;
#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod certificates;
mod config;
#[path = "../../../trace/tests/all/edits.rs"]
mod edits;
mod flood;
mod master;
#[cfg(target_os = "linux")]
mod plane;
mod problems;
mod rest;
mod roles;
mod routing;
#[cfg(target_os = "linux")]
mod simulation;
mod small;
mod store;
mod tls;
