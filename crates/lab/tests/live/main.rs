//! Tests with real traffic in network namespaces. Without the privileges, these tests print that and skip.

#![cfg(target_os = "linux")]

mod delay_line;
mod process;
mod regions;
mod relays;
