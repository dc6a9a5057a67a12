//! Tests of relays.

mod header;
mod relay;
mod reorder;
mod server;
mod simulation;
