//! Tests of the agent that need no privileges: leases and queues.

#![cfg(target_os = "linux")]

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
#[path = "../../../core/tests/all/common.rs"]
mod common;
mod lease;
mod queues;
