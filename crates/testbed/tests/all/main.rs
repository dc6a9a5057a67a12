//! Tests of the plans of testbeds.

#![cfg(target_os = "linux")]

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
#[path = "../../../core/tests/all/common.rs"]
mod common;
mod plan;
