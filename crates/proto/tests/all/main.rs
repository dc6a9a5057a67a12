//! Tests of the messages between coordinator and agents.

mod generated;
mod pack;
