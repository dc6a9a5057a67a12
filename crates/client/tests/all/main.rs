//! Tests of flows over real sockets.
#![cfg(target_os = "linux")]

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod fake_agent;
mod flows;
mod gates;
mod protocol;
mod proxy;
