//! Tests of the predictor.

mod data;
#[path = "../../../trace/tests/all/edits.rs"]
mod edits;
mod machines;
mod model;
