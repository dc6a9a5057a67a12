//! Tests of testbeds of network namespaces.

#![cfg(target_os = "linux")]

mod bed;
mod network;
