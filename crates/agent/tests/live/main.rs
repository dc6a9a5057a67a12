//! Tests of the agent on a real kernel, in network namespaces. Each one holds the lock of its pair of namespaces.

#![cfg(target_os = "linux")]

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod group;
mod kernel;
mod live;
mod pair;
mod programs;
mod throttle;
mod traffic;
mod wait;
mod wire;
