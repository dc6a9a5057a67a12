//! Tests of flows over real sockets.
#![cfg(target_os = "linux")]

mod flows;
mod protocol;
mod proxy;
