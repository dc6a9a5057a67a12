//! Tests of the readers and writers: one module per format.

mod common;
mod compressed;
mod describe;
mod edits;
mod errors;
mod generate;
mod incast;
mod jobs;
mod malformed_input;
mod public_trace;
mod round_trip;
mod scenario;
mod sensitivity;
mod topology;
mod trace_events;
mod tree;
mod wide_area;
