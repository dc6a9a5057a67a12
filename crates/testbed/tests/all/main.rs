//! Tests of the plans of testbeds.

#![cfg(target_os = "linux")]

mod plan;
