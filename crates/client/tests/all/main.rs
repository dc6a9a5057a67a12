//! Tests of flows over real sockets.
#![cfg(target_os = "linux")]

#[path = "../../../core/tests/all/campaign.rs"]
mod campaign;
mod flows;
mod protocol;
mod proxy;
