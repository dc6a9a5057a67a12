//! Tests of the messages between coordinator and agents.

mod encoding;
mod generated;
