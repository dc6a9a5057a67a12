//! Tests of the agent on a real kernel, in network namespaces. Each one holds the lock of its pair of namespaces.

#![cfg(target_os = "linux")]

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod capture;
mod group;
mod kernel;
mod multiqueue;
mod namespace_pair;
mod nat;
mod other_programs;
mod pods;
mod ports;
mod programs;
mod queues;
mod socket_leases;
mod start_rates;
mod throttle;
mod traffic;
mod wait;
