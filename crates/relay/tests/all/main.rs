//! Tests of relays.

mod header;
mod reorder;
mod server;
