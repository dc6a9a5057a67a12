//! Tests of the flow protocol.

mod codecs;
mod states;
