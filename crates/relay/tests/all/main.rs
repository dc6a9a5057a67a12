//! Tests of the relay protocol.

mod header;
mod overlay;
mod windows;
