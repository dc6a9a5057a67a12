//! Tests of the coordinator with real sockets whose rates are measured.

#![cfg(target_os = "linux")]

#[path = "../../../agent/tests/live/kernel.rs"]
mod kernel;
mod links;
mod live;
mod matching;
mod pauses;
mod reload;
#[path = "../../../agent/tests/live/wait.rs"]
mod wait;
