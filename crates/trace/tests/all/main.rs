//! Tests of the readers and writers: one module per format.

mod common;
mod describe;
mod edits;
mod errors;
mod generate;
mod hostile;
mod incast;
mod jobs;
mod public_trace;
mod round_trip;
mod scenario;
mod sensitivity;
mod topology;
mod tree;
mod wide_area;
