//! Tests of the messages between a coordinator and its agents and relays.

mod encoding;
mod generated;
mod relay;
